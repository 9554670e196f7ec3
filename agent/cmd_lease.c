/* coord lease grant | renew | revoke | list */
#include "agent/cmd.h"
#include "base/check.h"
#include "base/json_in.h"
#include "base/json_out.h"

static const char *text_of(struct json_object *object, const char *name) {
    const char *text = "";
    json_get_string(object, name, &text, NULL);
    return text;
}

/* Asks, then prints `member` of the answer, or the answer itself (NULL). Returns the exit code. */
static int ask(const struct client *client, struct buffer *path, const struct slice *body, const char *member,
               const char *what) {
    struct client_answer answer = {0};
    struct fault fault = {0};
    buffer_append_byte(path, '\0');
    int rv = client_want(client, "PUT", path->data, body, false, &answer, &fault);
    struct json_object *json = rv == CO_OK ? json_parse(buffer_slice(&answer.body), &fault) : NULL;
    if (json && member) puts(text_of(json, member));
    else if (json) puts(json_object_to_json_string(json));
    if (json) json_object_put(json);
    client_answer_free(&answer);
    buffer_free(path);
    return fault.code ? cmd_failed(what, &fault) : 0;
}

static int lease_grant(int argc, char **argv) {
    static const char usage[] = "coord lease grant [FLAGS]";
    struct client client = {0};
    const char *ttl = "15s", *name = "";
    const struct cmd_flag flags[] = {
        {"ttl", CMD_DURATION, &ttl, "how long it lives without being renewed (default 15s)"},
        {"name", CMD_TEXT, &name, "what it is for"},
    };
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (rest[0]) return cmd_wrong(usage, "no argument is wanted");
    struct buffer path = {0}, text = {0};
    struct json_out json;
    json_out_init(&json, &text, false);
    json_object(&json);
    json_key(&json, "TTL");
    json_string(&json, ttl);
    json_key(&json, "Name");
    json_string(&json, name);
    json_object_end(&json);
    struct slice body = buffer_slice(&text);
    buffer_append_text(&path, "/v1/lease/grant");
    code = ask(&client, &path, &body, "ID", "granting a lease");
    buffer_free(&text);
    return code;
}

static int by_id(int argc, char **argv, const char *usage, const char *verb, const char *member, const char *what) {
    struct client client = {0};
    char **rest;
    int code = cmd_flags(argc, argv, NULL, 0, &client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || rest[1]) return cmd_wrong(usage, "one ID is wanted");
    struct buffer path = {0};
    buffer_printf(&path, "/v1/lease/%s/", verb);
    client_encode(&path, rest[0], true);
    return ask(&client, &path, NULL, member, what);
}

static int lease_renew(int argc, char **argv) {
    return by_id(argc, argv, "coord lease renew [FLAGS] ID", "renew", "TTL", "renewing");
}

static int lease_revoke(int argc, char **argv) {
    return by_id(argc, argv, "coord lease revoke [FLAGS] ID", "revoke", NULL, "revoking");
}

/* -- list --------------------------------------------------------------------------------------------------------- */
static void append_list(struct buffer *out, struct json_object *lease, const char *name, const char *kind) {
    struct json_object *list = json_get_array(lease, name, NULL);
    for (size_t i = 0; list && i < json_object_array_length(list); i++) {
        struct json_object *item = json_object_array_get_idx(list, i);
        if (out->size) buffer_append_byte(out, ' ');
        if (json_object_is_type(item, json_type_object))
            buffer_printf(out, "%s:%s/%s", kind, text_of(item, "Node"), text_of(item, "ID"));
        else buffer_printf(out, "%s:%s", kind, json_object_get_string(item));
    }
}

static void lease_row(struct cmd_table *table, struct json_object *lease) {
    struct buffer bound = {0};
    append_list(&bound, lease, "Keys", "key");
    append_list(&bound, lease, "Services", "service");
    append_list(&bound, lease, "Nodes", "node");
    buffer_append_byte(&bound, '\0');
    const char *node = text_of(lease, "Node");
    const char *cells[] = {text_of(lease, "ID"),   text_of(lease, "TTL"), text_of(lease, "Remaining"),
                           text_of(lease, "Name"), node[0] ? node : "-",  bound.data};
    for (size_t i = 0; i < ARRAY_COUNT(cells); i++) cmd_cell(table, cells[i]);
    buffer_free(&bound);
}

static int lease_list(int argc, char **argv) {
    static const char usage[] = "coord lease list [FLAGS]", *const heads[] = {"ID",   "TTL",  "Remaining",
                                                                              "Name", "Node", "Bound"};
    struct client client = {0};
    char **rest;
    int code = cmd_flags(argc, argv, NULL, 0, &client, usage, &rest);
    if (code >= 0) return code;
    if (rest[0]) return cmd_wrong(usage, "no argument is wanted");
    struct client_answer answer = {0};
    struct fault fault = {0};
    int rv = client_want(&client, "GET", "/v1/leases?remaining", NULL, false, &answer, &fault);
    struct json_object *list = rv == CO_OK ? json_parse(buffer_slice(&answer.body), &fault) : NULL;
    if (list && !json_object_is_type(list, json_type_array)) fault_set(&fault, CO_INVALID, "not a list of leases");
    struct cmd_table table = {.columns = ARRAY_COUNT(heads)};
    for (size_t i = 0; i < ARRAY_COUNT(heads); i++) cmd_cell(&table, heads[i]);
    for (size_t i = 0; list && !fault.code && i < json_object_array_length(list); i++)
        lease_row(&table, json_object_array_get_idx(list, i));
    if (!fault.code) cmd_table_print(&table);
    else buffer_free(&table.cells);
    if (list) json_object_put(list);
    client_answer_free(&answer);
    return fault.code ? cmd_failed("listing leases", &fault) : 0;
}

int cmd_lease(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"grant", "grant a lease and print its ID", lease_grant},
        {"list", "list leases and what is bound to them", lease_list},
        {"renew", "renew a lease", lease_renew},
        {"revoke", "end a lease, with all that is bound to it", lease_revoke},
    };
    return cmd_sub(commands, ARRAY_COUNT(commands), "lease", argc, argv);
}
