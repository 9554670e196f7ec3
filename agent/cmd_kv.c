/* coord kv get | put | delete | export | import (history: cmd_kv_history.c, restore: cmd_kv_restore.c) */
#include <stdlib.h>

#include "agent/cmd.h"
#include "agent/cmd_json.h"
#include "base/check.h"
#include "base/json_in.h"
#include "base/text.h"

/* A leading slash is not part of a key. */
static const char *key_of(const char *argument) { return argument[0] == '/' ? argument + 1 : argument; }

static void key_path(struct buffer *path, const char *key) {
    buffer_append_text(path, "/v1/kv/");
    client_encode(path, key, true);
}

/* Sends the GET, then parses the list of entries. NULL: no entries, or a fault. */
static struct json_object *entries_of(const struct client *client, struct buffer *path, struct client_answer *answer,
                                      struct fault *fault) {
    buffer_append_byte(path, '\0');
    int rv = client_want(client, "GET", path->data, NULL, true, answer, fault);
    if (rv != CO_OK || answer->status == 404) return NULL;
    struct json_object *list = json_parse(buffer_slice(&answer->body), fault);
    if (list && json_object_is_type(list, json_type_array)) return list;
    if (list) json_object_put(list);
    fault_set(fault, CO_INVALID, "not a list of entries");
    return NULL;
}

static void value_of(struct json_object *entry, bool as_base64, struct buffer *value) {
    const char *text = "";
    json_get_string(entry, "Value", &text, NULL);
    if (as_base64) buffer_append_text(value, text);
    else (void)base64_decode(value, slice_text(text));
}

/* -- get ---------------------------------------------------------------------------------------------------------- */
struct get {
    struct client client;
    bool recurse, keys, detailed, base64;
    const char *separator, *at;
};

static void get_parameters(const struct get *get, struct buffer *path) {
    if (get->keys) client_parameter(path, "keys", NULL);
    if (get->keys && get->separator[0]) client_parameter(path, "separator", get->separator);
    if (get->recurse && !get->keys) client_parameter(path, "recurse", NULL);
    if (get->at) client_parameter(path, "at", get->at);
}

static void print_number(struct json_object *entry, const char *name) {
    uint64_t value = 0;
    json_get_u64(entry, name, UINT64_MAX, &value, NULL);
    printf("%-16s %llu\n", name, (unsigned long long)value);
}

static void print_detailed(struct json_object *entry, const struct buffer *value) {
    const char *key = "", *session = "-";
    json_get_string(entry, "Key", &key, NULL);
    json_get_string(entry, "Session", &session, NULL);
    print_number(entry, "CreateIndex");
    print_number(entry, "Flags");
    printf("%-16s %s\n", "Key", key);
    print_number(entry, "LockIndex");
    print_number(entry, "ModifyIndex");
    printf("%-16s %s\n%-16s ", "Session", session, "Value");
    fwrite(value->data, 1, value->size, stdout);
    putchar('\n');
}

static void print_entry(const struct get *get, struct json_object *entry) {
    struct buffer value = {0};
    const char *key = "";
    value_of(entry, get->base64, &value);
    json_get_string(entry, "Key", &key, NULL);
    if (get->detailed) {
        print_detailed(entry, &value);
    } else {
        if (get->recurse) printf("%s:", key);
        fwrite(value.data, 1, value.size, stdout);
        putchar('\n');
    }
    buffer_free(&value);
}

static void print_list(const struct get *get, struct json_object *list) {
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        struct json_object *item = json_object_array_get_idx(list, i);
        if (get->keys) puts(json_object_get_string(item));
        else print_entry(get, item);
        if (get->detailed && get->recurse && i + 1 < json_object_array_length(list)) putchar('\n');
    }
}

static int kv_get(int argc, char **argv) {
    static const char usage[] = "coord kv get [FLAGS] KEY_OR_PREFIX";
    struct get get = {.separator = "/"};
    const struct cmd_flag flags[] = {
        {"recurse", CMD_BOOL, &get.recurse, "all keys that begin with it"},
        {"keys", CMD_BOOL, &get.keys, "names only, of keys that begin with it"},
        {"separator", CMD_TEXT, &get.separator, "with -keys: names up to this; \"\" for whole names (default \"/\")"},
        {"detailed", CMD_BOOL, &get.detailed, "indexes, flags and session too"},
        {"base64", CMD_BOOL, &get.base64, "do not decode the value"},
        {"at", CMD_TEXT, &get.at, CMD_KV_AT_HELP},
    };
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &get.client, usage, &rest);
    if (code >= 0) return code;
    if (rest[0] && rest[1]) return cmd_wrong(usage, "one KEY is wanted, and flags before it");
    if (!rest[0] && !get.recurse && !get.keys) return cmd_wrong(usage, "a KEY is wanted");
    const char *key = key_of(rest[0] ? rest[0] : "");
    struct buffer path = {0};
    struct client_answer answer = {0};
    struct fault fault = {0};
    key_path(&path, key);
    get_parameters(&get, &path);
    struct json_object *list = entries_of(&get.client, &path, &answer, &fault);
    if (list) print_list(&get, list);
    else if (fault.code) cmd_failed("querying the agent", &fault);
    else if (!get.recurse && !get.keys) fprintf(stderr, "Error! No key exists at: %s\n", key);
    bool missing = !list && !get.recurse && !get.keys;
    if (list) json_object_put(list);
    client_answer_free(&answer);
    buffer_free(&path);
    return fault.code ? cmd_exit_of(&fault) : missing ? CMD_EXIT_REFUSED : 0;
}

/* -- put, delete -------------------------------------------------------------------------------------------------- */
/* Sends a request whose answer is true or false, and returns that; or a fault. */
static bool ask_yes(const struct client *client, const char *method, struct buffer *path, const struct slice *body,
                    struct fault *fault) {
    struct client_answer answer = {0};
    buffer_append_byte(path, '\0');
    int rv = client_want(client, method, path->data, body, false, &answer, fault);
    struct slice text = buffer_slice(&answer.body);
    while (text.size && text.data[text.size - 1] == '\n') text.size--;
    bool yes = rv == CO_OK && slice_is(text, "true");
    client_answer_free(&answer);
    return yes;
}

struct put {
    struct client client;
    bool cas, base64, acquire, release, allow_empty;
    uint64_t modify_index, flags;
    const char *session, *lease;
};

static void put_parameters(const struct put *put, struct buffer *path) {
    char number[24];
    snprintf(number, sizeof number, "%llu", (unsigned long long)put->flags);
    if (put->flags) client_parameter(path, "flags", number);
    snprintf(number, sizeof number, "%llu", (unsigned long long)put->modify_index);
    if (put->cas) client_parameter(path, "cas", number);
    if (put->acquire) client_parameter(path, "acquire", put->session);
    if (put->release) client_parameter(path, "release", put->session);
    if (put->lease) client_parameter(path, "lease", put->lease);
}

static int put_outcome(const struct put *put, const char *key, bool yes, const struct fault *fault) {
    if (fault->code) {
        fprintf(stderr, "Error! Failed writing data: %s\n", fault->text);
        return cmd_exit_of(fault);
    }
    if (yes)
        printf("Success! %s: %s\n",
               put->acquire   ? "Lock acquired on"
               : put->release ? "Lock released on"
                              : "Data written to",
               key);
    else if (put->acquire) fputs("Error! Did not acquire lock\n", stderr);
    else if (put->release) fputs("Error! Did not release lock\n", stderr);
    else fprintf(stderr, "Error! Did not write to %s: CAS failed\n", key);
    return yes ? 0 : 1;
}

static int put_value(const struct put *put, const char *argument, struct buffer *value, struct fault *fault) {
    struct buffer text = {0};
    if (!argument) return CO_OK;
    int rv = cmd_read_value(argument, put->allow_empty, put->base64 ? &text : value, fault);
    if (rv == CO_OK && put->base64 && base64_decode(value, buffer_slice(&text)) != CO_OK)
        rv = fault_set(fault, CO_INVALID, "the value is not base64");
    buffer_free(&text);
    return rv;
}

static int kv_put(int argc, char **argv) {
    static const char usage[] = "coord kv put [FLAGS] KEY [DATA | @FILE | -]";
    struct put put = {0};
    const struct cmd_flag flags[] = {
        {"cas", CMD_BOOL, &put.cas, "only while the key's index is -modify-index (0: the key is not there)"},
        {"modify-index", CMD_U64, &put.modify_index, "for -cas"},
        {"flags", CMD_U64, &put.flags, "a number to store with the value"},
        {"base64", CMD_BOOL, &put.base64, "DATA is base64"},
        {"allow-empty", CMD_BOOL, &put.allow_empty, "store an empty value although it comes from a file or a pipe"},
        {"acquire", CMD_BOOL, &put.acquire, "take the lock of this key for -session"},
        {"release", CMD_BOOL, &put.release, "give the lock back"},
        {"session", CMD_TEXT, &put.session, "for -acquire and -release"},
        {"lease", CMD_TEXT, &put.lease, "ID of a lease: the key goes when it ends"},
    };
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &put.client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || (rest[1] && rest[2]))
        return cmd_wrong(usage, "KEY and at most one DATA are wanted, and flags before them");
    if ((put.acquire || put.release) && !put.session) return cmd_wrong(usage, "-acquire and -release want -session");
    const char *key = key_of(rest[0]);
    if (!key[0]) return cmd_wrong(usage, "KEY is empty");
    struct buffer path = {0}, value = {0};
    struct fault fault = {0};
    bool yes = false;
    if (put_value(&put, rest[1], &value, &fault) == CO_OK) {
        struct slice body = buffer_slice(&value);
        key_path(&path, key);
        put_parameters(&put, &path);
        yes = ask_yes(&put.client, "PUT", &path, &body, &fault);
    }
    buffer_free(&path);
    buffer_free(&value);
    return put_outcome(&put, key, yes, &fault);
}

static int kv_delete(int argc, char **argv) {
    static const char usage[] = "coord kv delete [FLAGS] KEY_OR_PREFIX";
    struct client client = {0};
    bool recurse = false, cas = false;
    uint64_t index = 0;
    const struct cmd_flag flags[] = {
        {"recurse", CMD_BOOL, &recurse, "all keys that begin with it"},
        {"cas", CMD_BOOL, &cas, "only while the key's index is -modify-index"},
        {"modify-index", CMD_U64, &index, "for -cas"},
    };
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if ((rest[0] && rest[1]) || (!rest[0] && !recurse))
        return cmd_wrong(usage, "one KEY is wanted, and flags before it");
    if (cas && (recurse || !index)) return cmd_wrong(usage, "-cas goes with -modify-index, and not with -recurse");
    const char *key = key_of(rest[0] ? rest[0] : "");
    if (!key[0] && !recurse) return cmd_wrong(usage, "KEY is empty");
    struct buffer path = {0};
    struct fault fault = {0};
    char number[24];
    snprintf(number, sizeof number, "%llu", (unsigned long long)index);
    key_path(&path, key);
    if (recurse) client_parameter(&path, "recurse", NULL);
    if (cas) client_parameter(&path, "cas", number);
    bool yes = ask_yes(&client, "DELETE", &path, NULL, &fault);
    buffer_free(&path);
    if (fault.code) {
        fprintf(stderr, "Error! Did not delete %s: %s\n", key, fault.text);
        return cmd_exit_of(&fault);
    }
    if (yes) printf(recurse ? "Success! Deleted keys with prefix: %s\n" : "Success! Deleted key: %s\n", key);
    else fprintf(stderr, "Error! Did not delete key %s: CAS failed\n", key);
    return yes ? 0 : 1;
}

/* -- export, import ----------------------------------------------------------------------------------------------- */
static void export_entry(struct json_object *entry, bool last) {
    const char *key = "", *value = "";
    uint64_t number = 0;
    json_get_string(entry, "Key", &key, NULL);
    json_get_string(entry, "Value", &value, NULL);
    json_get_u64(entry, "Flags", UINT64_MAX, &number, NULL);
    struct json_object *name = json_object_new_string(key);
    printf("\t{\n\t\t\"key\": %s,\n\t\t\"flags\": %llu,\n\t\t\"value\": \"%s\"\n\t}%s\n",
           json_object_to_json_string_ext(name, JSON_C_TO_STRING_NOSLASHESCAPE), (unsigned long long)number, value,
           last ? "" : ",");
    json_object_put(name);
}

static int kv_export(int argc, char **argv) {
    static const char usage[] = "coord kv export [FLAGS] [PREFIX]";
    struct client client = {0};
    char **rest;
    int code = cmd_flags(argc, argv, NULL, 0, &client, usage, &rest);
    if (code >= 0) return code;
    if (rest[0] && rest[1]) return cmd_wrong(usage, "one PREFIX at most");
    struct buffer path = {0};
    struct client_answer answer = {0};
    struct fault fault = {0};
    key_path(&path, key_of(rest[0] ? rest[0] : ""));
    client_parameter(&path, "recurse", NULL);
    struct json_object *list = entries_of(&client, &path, &answer, &fault);
    size_t count = list ? json_object_array_length(list) : 0;
    if (!fault.code) {
        puts(count ? "[" : "[]");
        for (size_t i = 0; i < count; i++) export_entry(json_object_array_get_idx(list, i), i + 1 == count);
        if (count) puts("]");
    }
    if (list) json_object_put(list);
    client_answer_free(&answer);
    buffer_free(&path);
    return fault.code ? cmd_failed("querying the agent", &fault) : 0;
}

static int import_entry(const struct client *client, struct json_object *entry, struct fault *fault) {
    const char *key = "", *text = "";
    struct put put = {.client = *client};
    struct buffer value = {0}, path = {0};
    json_get_string(entry, "key", &key, fault);
    json_get_string(entry, "value", &text, fault);
    json_get_u64(entry, "flags", UINT64_MAX, &put.flags, fault);
    key = key_of(key);
    if (!key[0]) fault_set(fault, CO_INVALID, "an entry without a key");
    if (base64_decode(&value, slice_text(text)) != CO_OK)
        fault_set(fault, CO_INVALID, "%s: its value is not base64", key);
    if (!fault->code) {
        struct slice body = buffer_slice(&value);
        key_path(&path, key);
        put_parameters(&put, &path);
        if (!ask_yes(client, "PUT", &path, &body, fault)) fault_set(fault, CO_INVALID, "%s was not written", key);
    }
    if (!fault->code) printf("Imported: %s\n", key);
    buffer_free(&value);
    buffer_free(&path);
    return fault->code;
}

static int kv_import(int argc, char **argv) {
    static const char usage[] = "coord kv import [FLAGS] DATA | @FILE | -";
    struct client client = {0};
    char **rest;
    int code = cmd_flags(argc, argv, NULL, 0, &client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || rest[1]) return cmd_wrong(usage, "DATA is wanted, as `coord kv export` prints it");
    struct buffer text = {0};
    struct fault fault = {0};
    int rv = cmd_read_value(rest[0], false, &text, &fault);
    struct json_object *list = rv == CO_OK ? cmd_json_given(rest[0], buffer_slice(&text), &fault) : NULL;
    if (list && !json_object_is_type(list, json_type_array)) fault_set(&fault, CO_INVALID, "not a list of entries");
    for (size_t i = 0; !fault.code && i < json_object_array_length(list); i++)
        (void)import_entry(&client, json_object_array_get_idx(list, i), &fault);
    if (list) json_object_put(list);
    buffer_free(&text);
    return fault.code ? cmd_failed("importing", &fault) : 0;
}

int cmd_kv(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"get", "print the value of a key, or all below a prefix", kv_get},
        {"history", "list how a key changed", cmd_kv_history},
        {"put", "write a value", kv_put},
        {"delete", "delete a key, or all keys with a prefix", kv_delete},
        {"export", "print keys and values as JSON", kv_export},
        {"import", "write the entries that export printed", kv_import},
        {"restore", "give a key, or all keys with a prefix, their former values", cmd_kv_restore},
    };
    return cmd_sub(commands, ARRAY_COUNT(commands), "kv", argc, argv);
}
