/* coord region keys: shows and changes the keys that are copied from other regions. */
#include "agent/cmd.h"
#include "agent/cmd_endpoint.h"
#include "agent/cmd_json.h"
#include "base/check.h"
#include "base/json_in.h"
#include "base/text.h"

#define PATH "/v1/region/keys"

static void number_cell(struct cmd_table *table, struct json_object *rule, const char *name) {
    uint64_t number = 0;
    char text[24];
    json_get_u64(rule, name, UINT64_MAX, &number, NULL);
    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    cmd_cell(table, text);
}

static void lag_cell(struct cmd_table *table, struct json_object *rule) {
    uint64_t lag_ms = 0;
    bool whole = false, known = json_get(rule, "Lag") != NULL;
    struct buffer text = {0};
    json_get_bool(rule, "Whole", &whole, NULL);
    json_get_u64(rule, "Lag", UINT64_MAX, &lag_ms, NULL);
    if (known) duration_format(&text, (int64_t)lag_ms * 1000000);
    else buffer_append_text(&text, whole ? "-" : "listing");
    buffer_append_byte(&text, '\0');
    cmd_cell(table, text.data);
    buffer_free(&text);
}

static void print_rules(struct json_object *rules) {
    static const char *const heads[] = {"Prefix", "Source", "Reachable", "Lag", "Keys", "Position"};
    struct cmd_table table = {.columns = ARRAY_COUNT(heads)};
    for (size_t i = 0; i < ARRAY_COUNT(heads); i++) cmd_cell(&table, heads[i]);
    for (size_t i = 0; i < json_object_array_length(rules); i++) {
        struct json_object *rule = json_object_array_get_idx(rules, i);
        bool reachable = false;
        json_get_bool(rule, "Reachable", &reachable, NULL);
        cmd_cell(&table, cmd_json_text(rule, "Prefix"));
        cmd_cell(&table, cmd_json_text(rule, "Source"));
        cmd_cell(&table, reachable ? "yes" : "no");
        lag_cell(&table, rule);
        number_cell(&table, rule, "Keys"), number_cell(&table, rule, "Position");
    }
    cmd_table_print(&table);
}

static int list_main(int argc, char **argv) {
    static const char usage[] = "coord region keys list [FLAGS]";
    struct client client = {0};
    bool json = false;
    const struct cmd_flag flags[] = {{"json", CMD_BOOL, &json, "the answer as it came, instead of a table"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (rest[0]) return cmd_wrong(usage, "no argument is wanted");
    return cmd_list(&client, PATH, json, "listing the copied keys", print_rules);
}

static int change(const struct client *client, const char *method, const struct buffer *path, const char *doing) {
    struct client_answer answer = {0};
    struct fault fault = {0};
    (void)client_want(client, method, path->data, NULL, false, &answer, &fault);
    client_answer_free(&answer);
    return fault.code ? cmd_failed(doing, &fault) : 0;
}

static int add_main(int argc, char **argv) {
    static const char usage[] = "coord region keys add [FLAGS] PREFIX REGION";
    struct client client = {0};
    bool replace = false;
    const struct cmd_flag flags[] = {
        {"replace", CMD_BOOL, &replace, "keys that are here below it go, unless that region has them"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || !rest[1] || rest[2])
        return cmd_wrong(usage, "a prefix and a region are wanted, and flags before them");
    struct buffer path = {0};
    buffer_append_text(&path, PATH);
    client_parameter(&path, "prefix", rest[0]), client_parameter(&path, "from", rest[1]);
    if (replace) client_parameter(&path, "replace", NULL);
    buffer_append_byte(&path, '\0');
    code = change(&client, "PUT", &path, "adding the prefix");
    buffer_free(&path);
    if (!code) printf("keys below \"%s\" are copied from region %s\n", rest[0], rest[1]);
    return code;
}

static int remove_main(int argc, char **argv) {
    static const char usage[] = "coord region keys remove [FLAGS] PREFIX";
    struct client client = {0};
    char **rest;
    int code = cmd_flags(argc, argv, NULL, 0, &client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || rest[1]) return cmd_wrong(usage, "a prefix is wanted, and nothing else");
    struct buffer path = {0};
    buffer_append_text(&path, PATH);
    client_parameter(&path, "prefix", rest[0]);
    buffer_append_byte(&path, '\0');
    code = change(&client, "DELETE", &path, "removing the prefix");
    buffer_free(&path);
    if (!code) printf("keys below \"%s\" are copied no longer; they stay\n", rest[0]);
    return code;
}

static int keys_main(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"add", "copy the keys below a prefix from another region", add_main},
        {"list", "list the prefixes that are copied, and how far they lag behind", list_main},
        {"remove", "copy the keys below a prefix no longer", remove_main},
    };
    return cmd_sub(commands, ARRAY_COUNT(commands), "region keys", argc, argv);
}

const struct cli_command cmd_region_commands[] = {
    {"keys", "keys that are copied from other regions: add, list, remove", keys_main},
    {0},
};
