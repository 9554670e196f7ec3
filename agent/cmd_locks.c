/* coord locks, coord elections: a table of all locks with their holders, or of all elections with their leaders. */
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

static void election_row(struct cmd_table *table, struct json_object *election) {
    struct json_object *leader = json_get_object(election, "Leader", NULL);
    const char *node = cmd_json_text(leader, "Node"), *value = cmd_json_text(leader, "Value");
    cmd_cell(table, cmd_json_text(election, "Name"));
    if (leader) number_cell(table, cmd_json_number(leader, "Term"));
    else cmd_cell(table, "-");
    cmd_cell(table, node[0] ? node : leader ? cmd_json_text(leader, "Session") : "-");
    cmd_cell(table, value[0] ? value : "-");
    number_cell(table, cmd_json_length(json_get_array(election, "Candidates", NULL)));
}

static void print_elections(struct json_object *elections) {
    static const char *const heads[] = {"NAME", "TERM", "LEADER", "VALUE", "CANDIDATES"};
    struct cmd_table table = {.columns = ARRAY_COUNT(heads)};
    for (size_t i = 0; i < ARRAY_COUNT(heads); i++) cmd_cell(&table, heads[i]);
    for (size_t i = 0; i < json_object_array_length(elections); i++)
        election_row(&table, json_object_array_get_idx(elections, i));
    cmd_table_print(&table);
}

static int list_all(int argc, char **argv, const char *usage, const char *where, const char *doing,
                    void (*print)(struct json_object *list)) {
    struct client client = {0};
    bool json = false;
    const struct cmd_flag flags[] = {{"json", CMD_BOOL, &json, "the answer as it came, instead of a table"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (rest[0] && rest[1]) return cmd_wrong(usage, "one PREFIX at most, and flags before it");
    struct buffer path = {0};
    buffer_append_text(&path, where);
    if (rest[0]) client_parameter(&path, "prefix", rest[0]);
    buffer_append_byte(&path, '\0');
    code = cmd_list(&client, path.data, json, doing, print);
    buffer_free(&path);
    return code;
}

int cmd_locks(int argc, char **argv) {
    return list_all(argc, argv, "coord locks [FLAGS] [PREFIX]", "/v1/locks", "listing the locks", print_table);
}

int cmd_elections(int argc, char **argv) {
    return list_all(argc, argv, "coord elections [FLAGS] [PREFIX]", "/v1/elections", "listing the elections",
                    print_elections);
}
