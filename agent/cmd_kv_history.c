/* coord kv history: how a key changed, in a table. */
#include "agent/cmd.h"
#include "base/check.h"
#include "base/json_in.h"
#include "base/text.h"

/* Shows a value of one line of text as it is; any other value stays base64. */
static void value_cell(struct cmd_table *table, const char *encoded) {
    struct buffer value = {0}, cell = {0};
    (void)base64_decode(&value, slice_text(encoded));
    bool plain = true;
    for (size_t i = 0; i < value.size; i++) plain = plain && (uint8_t)value.data[i] >= ' ' && value.data[i] != 0x7f;
    if (plain) buffer_append(&cell, value.data, value.size);
    else buffer_printf(&cell, "base64:%s", encoded);
    buffer_append_byte(&cell, '\0');
    cmd_cell(table, cell.data);
    buffer_free(&value);
    buffer_free(&cell);
}

static void row(struct cmd_table *table, struct json_object *change) {
    const char *kind = "", *session = "-", *value = "", *time = "-";
    uint64_t index = 0;
    char number[24];
    json_get_u64(change, "Index", UINT64_MAX, &index, NULL);
    json_get_string(change, "Time", &time, NULL);
    json_get_string(change, "Kind", &kind, NULL);
    json_get_string(change, "Session", &session, NULL);
    json_get_string(change, "Value", &value, NULL);
    snprintf(number, sizeof number, "%llu", (unsigned long long)index);
    cmd_cell(table, number);
    cmd_cell(table, time);
    cmd_cell(table, kind);
    cmd_cell(table, session);
    value_cell(table, value);
}

static void print_table(struct json_object *changes) {
    static const char *const heads[] = {"INDEX", "TIME", "KIND", "SESSION", "VALUE"};
    struct cmd_table table = {.columns = ARRAY_COUNT(heads)};
    for (size_t i = 0; i < ARRAY_COUNT(heads); i++) cmd_cell(&table, heads[i]);
    for (size_t i = 0; i < json_object_array_length(changes); i++) row(&table, json_object_array_get_idx(changes, i));
    cmd_table_print(&table);
}

static int show(const struct client *client, const char *key, bool json) {
    struct buffer path = {0};
    struct client_answer answer = {0};
    struct fault fault = {0};
    buffer_append_text(&path, "/v1/kv/");
    client_encode(&path, key, true);
    client_parameter(&path, "history", NULL);
    buffer_append_byte(&path, '\0');
    int rv = client_want(client, "GET", path.data, NULL, true, &answer, &fault);
    bool missing = rv == CO_OK && answer.status == 404;
    struct json_object *changes = rv == CO_OK && !missing ? json_parse(buffer_slice(&answer.body), &fault) : NULL;
    if (changes && !json_object_is_type(changes, json_type_array)) fault_set(&fault, CO_INVALID, "no list of changes");
    if (missing) fprintf(stderr, "Error! No key exists at: %s, and none did as far back as changes are kept\n", key);
    else if (!fault.code && json) printf("%.*s\n", (int)answer.body.size, answer.body.data);
    else if (!fault.code) print_table(changes);
    if (changes) json_object_put(changes);
    client_answer_free(&answer);
    buffer_free(&path);
    return fault.code ? cmd_failed("reading the history", &fault) : missing;
}

int cmd_kv_history(int argc, char **argv) {
    static const char usage[] = "coord kv history [FLAGS] KEY";
    struct client client = {0};
    bool json = false;
    const struct cmd_flag flags[] = {{"json", CMD_BOOL, &json, "the answer as it came, instead of a table"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || rest[1]) return cmd_wrong(usage, "one KEY is wanted, and flags before it");
    const char *key = rest[0][0] == '/' ? rest[0] + 1 : rest[0]; /* as in the other commands with keys */
    if (!key[0]) return cmd_wrong(usage, "KEY is empty");
    return show(&client, key, json);
}
