/* coord kv restore: gives keys the values that they had before, in one log entry. */
#include "agent/cmd.h"
#include "base/check.h"
#include "base/json_in.h"
#include "base/text.h"

struct restore {
    struct client client;
    const char *at, *key;
    bool prefix, remove, dry_run;
};

static void path_of(const struct restore *restore, struct buffer *path) {
    buffer_append_text(path, "/v1/kv/");
    client_encode(path, restore->key, true);
    client_parameter(path, "restore", NULL);
    client_parameter(path, "at", restore->at);
    if (restore->prefix) client_parameter(path, "recurse", NULL);
    if (restore->remove) client_parameter(path, "delete", NULL);
    if (restore->dry_run) client_parameter(path, "dry-run", NULL);
    buffer_append_byte(path, '\0');
}

static void print_changes(struct json_object *answer) {
    struct json_object *changes = NULL;
    struct cmd_table table = {.columns = 2};
    if (!json_object_object_get_ex(answer, "Changes", &changes) || !json_object_is_type(changes, json_type_array))
        return;
    for (size_t i = 0; i < json_object_array_length(changes); i++) {
        const char *key = "", *kind = "";
        json_get_string(json_object_array_get_idx(changes, i), "Key", &key, NULL);
        json_get_string(json_object_array_get_idx(changes, i), "Kind", &kind, NULL);
        cmd_cell(&table, kind);
        cmd_cell(&table, key);
    }
    cmd_table_print(&table);
}

static void print_outcome(const struct restore *restore, struct json_object *answer) {
    uint64_t at = 0, set = 0, removed = 0;
    json_get_u64(answer, "At", UINT64_MAX, &at, NULL);
    json_get_u64(answer, "Set", UINT64_MAX, &set, NULL);
    json_get_u64(answer, "Deleted", UINT64_MAX, &removed, NULL);
    const char *what = restore->prefix ? " and what is below" : "";
    if (restore->dry_run) print_changes(answer);
    if (set + removed == 0)
        printf("Nothing to do: %s%s is what it was at index %llu\n", restore->key, what, (unsigned long long)at);
    else
        printf("%s %s%s to index %llu: %llu set, %llu deleted\n",
               restore->dry_run ? "Dry run, nothing was changed: would restore" : "Success! Restored", restore->key,
               what, (unsigned long long)at, (unsigned long long)set, (unsigned long long)removed);
}

static int ask(const struct restore *restore) {
    struct buffer path = {0};
    struct client_answer answer = {0};
    struct fault fault = {0};
    path_of(restore, &path);
    int rv = client_want(&restore->client, "PUT", path.data, NULL, true, &answer, &fault);
    bool absent = rv == CO_OK && answer.status == 404;
    struct json_object *json = rv == CO_OK && !absent ? json_parse(buffer_slice(&answer.body), &fault) : NULL;
    if (absent)
        fprintf(stderr, "Error! %s was not there then, and nothing was done: -delete deletes it\n", restore->key);
    else if (!fault.code) print_outcome(restore, json);
    if (json) json_object_put(json);
    client_answer_free(&answer);
    buffer_free(&path);
    return fault.code ? cmd_failed("restoring", &fault) : absent;
}

int cmd_kv_restore(int argc, char **argv) {
    static const char usage[] = "coord kv restore -at INDEX|TIME|-DURATION [FLAGS] KEY_OR_PREFIX";
    struct restore restore = {0};
    const struct cmd_flag flags[] = {
        {"at", CMD_TEXT, &restore.at, CMD_KV_AT_HELP},
        {"prefix", CMD_BOOL, &restore.prefix, "all keys that begin with it; what was not there then is deleted"},
        {"delete", CMD_BOOL, &restore.remove, "delete the one key if it was not there then"},
        {"dry-run", CMD_BOOL, &restore.dry_run, "change nothing, and list what would change"},
    };
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &restore.client, usage, &rest);
    if (code >= 0) return code;
    if (!restore.at) return cmd_wrong(usage, "-at is wanted: which moment to go back to");
    if (!rest[0] || rest[1])
        return cmd_wrong(usage, "one KEY or PREFIX is wanted, and flags before it; all keys: -prefix \"\"");
    if (restore.prefix && restore.remove)
        return cmd_wrong(usage, "-prefix deletes what was not there anyway, and goes without -delete");
    const char *key = rest[0];
    restore.key = key[0] == '/' ? key + 1 : key; /* as in the other commands with keys */
    if (!restore.key[0] && !restore.prefix) return cmd_wrong(usage, "KEY is empty");
    return ask(&restore);
}
