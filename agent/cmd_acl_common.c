#include "agent/cmd_acl.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/text.h"

int acl_checked(const char *usage, char **rest, const struct acl_show *show, const char *wanted) {
    const char *format = show && show->format ? show->format : "pretty";
    if (rest && *rest) return cmd_wrong(usage, "no argument is wanted");
    if (strcmp(format, "pretty") != 0 && strcmp(format, "json") != 0)
        return cmd_wrong(usage, "-format: pretty or json is wanted");
    return wanted ? cmd_wrong(usage, wanted) : -1;
}

/* -- asking ---------------------------------------------------------------------------------------------------------- */
struct buffer acl_path(const char *before, const char *value, const char *after) {
    struct buffer path = {0};
    buffer_append_text(&path, before);
    client_encode(&path, value, false);
    buffer_append_text(&path, after);
    buffer_append_byte(&path, '\0');
    return path;
}

struct json_object *acl_send(const struct client *client, const char *method, const char *path,
                             struct json_object *body, struct fault *fault) {
    struct client_answer answer = {0};
    struct json_object *parsed = NULL;
    struct slice text = slice_text(body ? json_object_to_json_string(body) : "");
    int rv = client_want(client, method, path, body ? &text : NULL, false, &answer, fault);
    if (rv == CO_OK) (void)json_parse_value(buffer_slice(&answer.body), &parsed, fault);
    if (rv == CO_OK && !parsed) fault_set(fault, CO_INVALID, "the answer is null");
    if (body) json_object_put(body);
    if (answer.body.data) explicit_bzero(answer.body.data, answer.body.size);
    client_answer_free(&answer);
    return parsed;
}

static void show_whole(struct json_object *thing, acl_print print, const struct acl_show *show) {
    static const int flags = JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE;
    if (show->format && strcmp(show->format, "json") == 0) puts(json_object_to_json_string_ext(thing, flags));
    else if (!json_object_is_type(thing, json_type_array)) print(thing, show);
    else
        for (size_t i = 0; i < json_object_array_length(thing); i++) print(json_object_array_get_idx(thing, i), show);
}

int acl_send_and_show(const struct client *client, const char *method, const char *path, struct json_object *body,
                      const char *doing, acl_print print, const struct acl_show *show) {
    struct fault fault = {0};
    struct json_object *answer = acl_send(client, method, path, body, &fault);
    if (!answer) return cmd_failed(doing, &fault);
    show_whole(answer, print, show);
    json_object_put(answer);
    return 0;
}

int acl_read_and_show(const struct client *client, const char *path, const char *doing, acl_print print,
                      const struct acl_show *show) {
    return acl_send_and_show(client, "GET", path, NULL, doing, print, show);
}

int acl_delete(const struct client *client, const char *before, const char *id, const char *noun) {
    struct fault fault = {0};
    char doing[64];
    struct buffer path = acl_path(before, id, "");
    struct json_object *answer = acl_send(client, "DELETE", path.data, NULL, &fault);
    buffer_free(&path);
    snprintf(doing, sizeof doing, "deleting %s \"%.36s\"", noun, id);
    if (!answer) return cmd_failed(doing, &fault);
    json_object_put(answer);
    printf("%s \"%s\" deleted successfully\n", noun, id);
    return 0;
}

static bool fits(struct json_object *thing, const char *key, const char *prefix, const char *name) {
    if (prefix) return strncmp(cmd_json_text(thing, key), prefix, strlen(prefix)) == 0;
    return strcmp(cmd_json_text(thing, "Name"), name) == 0;
}

char *acl_find(const struct client *client, const char *list, const char *key, const char *prefix, const char *name,
               const char *noun, struct fault *fault) {
    struct json_object *all = prefix && uuid_valid(slice_text(prefix)) ? NULL : cmd_json_get(client, list, fault);
    const char *found = NULL;
    if (prefix && uuid_valid(slice_text(prefix))) return mem_strdup(prefix);
    for (size_t i = 0; all && i < cmd_json_length(all); i++) {
        struct json_object *thing = json_object_array_get_idx(all, i);
        if (!fits(thing, key, prefix, name)) continue;
        if (found) fault_set(fault, CO_INVALID, "several %s begin with \"%s\"", noun, prefix ? prefix : name);
        found = cmd_json_text(thing, key);
    }
    if (all && !found)
        fault_set(fault, CO_NOTFOUND, "no %s has the %s \"%s\"", noun, prefix ? key : "name", prefix ? prefix : name);
    char *id = fault->code ? NULL : mem_strdup(found);
    if (all) json_object_put(all);
    return id;
}

/* -- bodies ---------------------------------------------------------------------------------------------------------- */
void acl_set(struct json_object *body, const char *key, const char *value) {
    if (value) json_object_object_add(body, key, json_object_new_string(value));
}

/* The list of this name in the body; empty unless its items are kept. */
static struct json_object *list_in(struct json_object *body, const char *key, bool keep) {
    struct json_object *list = json_get(body, key);
    if (keep && json_object_is_type(list, json_type_array)) return list;
    list = json_object_new_array();
    json_object_object_add(body, key, list);
    return list;
}

static void add_links(struct json_object *list, const char *member, const struct cmd_list *values) {
    for (size_t i = 0; values && i < values->count; i++) {
        struct json_object *link = json_object_new_object();
        acl_set(link, member, values->items[i]);
        json_object_array_add(list, link);
    }
}

void acl_set_links(struct json_object *body, const char *key, const struct cmd_list *ids, const struct cmd_list *names,
                   bool merge) {
    struct json_object *list = list_in(body, key, merge);
    add_links(list, "ID", ids);
    add_links(list, "Name", names);
}

/* "name", or "name:rest": sets the name, and returns the rest, "" without. */
static const char *split(struct json_object *item, const char *member, const char *text) {
    size_t size = strcspn(text, ":");
    json_object_object_add(item, member, json_object_new_string_len(text, (int)size));
    return text[size] ? text + size + 1 : "";
}

bool acl_set_services(struct json_object *body, const struct cmd_list *given, bool merge, struct fault *fault) {
    struct json_object *list = list_in(body, "ServiceIdentities", merge);
    for (size_t i = 0; i < given->count; i++) {
        struct json_object *item = json_object_new_object(), *datacenters = json_object_new_array();
        json_object_array_add(list, item);
        json_object_object_add(item, "Datacenters", datacenters);
        for (const char *at = split(item, "ServiceName", given->items[i]); *at; at += *at == ',') {
            size_t size = strcspn(at, ",");
            json_object_array_add(datacenters, json_object_new_string_len(at, (int)size));
            at += size;
        }
        if (!cmd_json_text(item, "ServiceName")[0])
            fault_set(fault, CO_INVALID, "-service-identity: \"NAME\" or \"NAME:DATACENTER,...\" is wanted");
    }
    return !fault->code;
}

bool acl_set_nodes(struct json_object *body, const struct cmd_list *given, bool merge, struct fault *fault) {
    struct json_object *list = list_in(body, "NodeIdentities", merge);
    for (size_t i = 0; i < given->count; i++) {
        struct json_object *item = json_object_new_object();
        json_object_array_add(list, item);
        const char *datacenter = split(item, "NodeName", given->items[i]);
        acl_set(item, "Datacenter", datacenter);
        if (!datacenter[0] || strchr(datacenter, ':'))
            fault_set(fault, CO_INVALID, "-node-identity: \"NODE:DATACENTER\" is wanted");
    }
    return !fault->code;
}

bool acl_set_value(struct json_object *body, const char *key, const char *given, struct fault *fault) {
    struct buffer text = {0};
    if (!given) return true;
    if (cmd_read_value(given, false, &text, fault) == CO_OK)
        json_object_object_add(body, key, json_object_new_string_len(text.data ? text.data : "", (int)text.size));
    buffer_free(&text);
    return !fault->code;
}

/* -- showing --------------------------------------------------------------------------------------------------------- */
void acl_line(const char *indent, const char *label, const char *value) {
    char whole[64];
    snprintf(whole, sizeof whole, "%s%s:", indent, label);
    printf("%-*s", indent[0] ? 17 : 18, whole);
    cmd_print_words("", value, "\n");
}

void acl_line_texts(const char *indent, const char *label, struct json_object *texts) {
    struct buffer all = {0};
    for (size_t i = 0; texts && i < cmd_json_length(texts); i++)
        buffer_printf(&all, "%s%s", i ? ", " : "", json_object_get_string(json_object_array_get_idx(texts, i)));
    buffer_append_byte(&all, '\0');
    acl_line(indent, label, all.data);
    buffer_free(&all);
}

/* As Go prints a time: "2026-11-27 21:01:51.123 +0000 UTC". */
void acl_show_time(const char *label, const char *time) {
    char text[64];
    const char *clock = strchr(time, 'T');
    if (!time[0]) return;
    snprintf(text, sizeof text, "%.*s %.*s +0000 UTC", clock ? (int)(clock - time) : 0, time,
             clock ? (int)strcspn(clock + 1, "Z") : 0, clock ? clock + 1 : "");
    acl_line("", label, text);
}

void acl_show_meta(const char *indent, struct json_object *thing) {
    char number[24];
    struct buffer hash = {0}, hex = {0};
    if (base64_decode(&hash, slice_text(cmd_json_text(thing, "Hash"))) == CO_OK && hash.size) {
        for (size_t i = 0; i < hash.size; i++) buffer_printf(&hex, "%02x", (unsigned char)hash.data[i]);
        buffer_append_byte(&hex, '\0');
        acl_line(indent, "Hash", hex.data);
    }
    buffer_free(&hash), buffer_free(&hex);
    snprintf(number, sizeof number, "%llu", (unsigned long long)cmd_json_number(thing, "CreateIndex"));
    acl_line(indent, "Create Index", number);
    snprintf(number, sizeof number, "%llu", (unsigned long long)cmd_json_number(thing, "ModifyIndex"));
    acl_line(indent, "Modify Index", number);
}

static void show_links(const char *indent, const char *label, struct json_object *links) {
    if (!links || !cmd_json_length(links)) return;
    printf("%s%s:\n", indent, label);
    for (size_t i = 0; i < cmd_json_length(links); i++) {
        struct json_object *link = json_object_array_get_idx(links, i);
        printf("%s   %s", indent, cmd_json_text(link, "ID"));
        cmd_print_words(" - ", cmd_json_text(link, "Name"), "\n");
    }
}

static void show_service(const char *indent, struct json_object *identity) {
    struct json_object *datacenters = json_get(identity, "Datacenters");
    size_t count = datacenters ? cmd_json_length(datacenters) : 0;
    printf("%s   %s (Datacenters: %s", indent, cmd_json_text(identity, "ServiceName"), count ? "" : "all");
    for (size_t i = 0; i < count; i++)
        printf("%s%s", i ? ", " : "", json_object_get_string(json_object_array_get_idx(datacenters, i)));
    puts(")");
}

void acl_show_grants(const char *indent, struct json_object *thing) {
    struct json_object *services = json_get(thing, "ServiceIdentities"), *nodes = json_get(thing, "NodeIdentities");
    show_links(indent, "Policies", json_get(thing, "Policies"));
    show_links(indent, "Roles", json_get(thing, "Roles"));
    if (services) printf("%sService Identities:\n", indent);
    for (size_t i = 0; services && i < cmd_json_length(services); i++)
        show_service(indent, json_object_array_get_idx(services, i));
    if (nodes) printf("%sNode Identities:\n", indent);
    for (size_t i = 0; nodes && i < cmd_json_length(nodes); i++) {
        struct json_object *identity = json_object_array_get_idx(nodes, i);
        printf("%s   %s (Datacenter: %s)\n", indent, cmd_json_text(identity, "NodeName"),
               cmd_json_text(identity, "Datacenter"));
    }
}
