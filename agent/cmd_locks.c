/* coord locks: who holds what, in a table. */
#include "agent/cmd.h"
#include "agent/cmd_json.h"
#include "base/check.h"
#include "base/json_in.h"

static void number_cell(struct cmd_table *table, uint64_t number) {
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    cmd_cell(table, text);
}

static void member_cell(struct cmd_table *table, struct json_object *lock, const char *name) {
    uint64_t number = 0;
    json_get_u64(lock, name, UINT64_MAX, &number, NULL);
    if (number) number_cell(table, number);
    else cmd_cell(table, "-");
}

static void row(struct cmd_table *table, struct json_object *lock) {
    const char *name = "", *mode = "";
    uint64_t waiters = 0;
    struct json_object *holders = json_get_array(lock, "Holders", NULL);
    json_get_string(lock, "Name", &name, NULL);
    json_get_string(lock, "Mode", &mode, NULL);
    json_get_u64(lock, "Waiters", UINT64_MAX, &waiters, NULL);
    cmd_cell(table, name);
    cmd_cell(table, mode[0] ? mode : "-");
    member_cell(table, lock, "Limit");
    member_cell(table, lock, "FencingToken");
    number_cell(table, holders ? json_object_array_length(holders) : 0);
    number_cell(table, waiters);
}

static void print_table(struct json_object *locks) {
    static const char *const heads[] = {"NAME", "MODE", "LIMIT", "TOKEN", "HOLDERS", "WAITING"};
    struct cmd_table table = {.columns = ARRAY_COUNT(heads)};
    for (size_t i = 0; i < ARRAY_COUNT(heads); i++) cmd_cell(&table, heads[i]);
    for (size_t i = 0; i < json_object_array_length(locks); i++) row(&table, json_object_array_get_idx(locks, i));
    cmd_table_print(&table);
}

int cmd_locks(int argc, char **argv) {
    static const char usage[] = "coord locks [FLAGS] [PREFIX]";
    struct client client = {0};
    bool json = false;
    const struct cmd_flag flags[] = {{"json", CMD_BOOL, &json, "the answer as it came, instead of a table"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (rest[0] && rest[1]) return cmd_wrong(usage, "one PREFIX at most, and flags before it");
    struct buffer path = {0};
    buffer_append_text(&path, "/v1/locks");
    if (rest[0]) client_parameter(&path, "prefix", rest[0]);
    buffer_append_byte(&path, '\0');
    code = cmd_list(&client, path.data, json, "listing the locks", print_table);
    buffer_free(&path);
    return code;
}
