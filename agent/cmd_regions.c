/* coord regions: lists the regions, their distance, and the age of the copy of their catalogs. */
#include "agent/cmd.h"
#include "agent/cmd_json.h"
#include "base/check.h"
#include "base/json_in.h"
#include "base/text.h"

static void duration_cell(struct cmd_table *table, uint64_t milliseconds) {
    struct buffer text = {0};
    duration_format(&text, (int64_t)milliseconds * 1000000);
    buffer_append_byte(&text, '\0');
    cmd_cell(table, text.data);
    buffer_free(&text);
}

static const char *reach_of(struct json_object *region) {
    bool own = false, reachable = false;
    json_get_bool(region, "Own", &own, NULL);
    json_get_bool(region, "Reachable", &reachable, NULL);
    return own ? "here" : reachable ? "yes" : "no";
}

static void row(struct cmd_table *table, struct json_object *region) {
    uint64_t age = 0, index = 0, newest = 0;
    struct json_object *servers = json_get_array(region, "Servers", NULL);
    bool copied = json_get(region, "AsOf") != NULL;
    cmd_cell(table, cmd_json_text(region, "Region"));
    cmd_cell(table, reach_of(region));
    cmd_cell(table, *cmd_json_text(region, "RoundTrip") ? cmd_json_text(region, "RoundTrip") : "-");
    json_get_u64(region, "AsOf", UINT64_MAX, &age, NULL);
    json_get_u64(region, "Index", UINT64_MAX, &index, NULL);
    json_get_u64(region, "Newest", UINT64_MAX, &newest, NULL);
    if (copied) duration_cell(table, age);
    else cmd_cell(table, "-");
    cmd_cell(table, !copied ? "-" : index >= newest ? "no" : "yes");
    cmd_cell(table, *cmd_json_text(region, "Leader") ? cmd_json_text(region, "Leader") : "-");
    char count[24];
    snprintf(count, sizeof count, "%zu", servers ? json_object_array_length(servers) : 0);
    cmd_cell(table, servers ? count : "-");
}

static void print_table(struct json_object *regions) {
    static const char *const heads[] = {"Region", "Reachable", "RoundTrip", "CopyAge", "Behind", "Leader", "Servers"};
    struct cmd_table table = {.columns = ARRAY_COUNT(heads)};
    for (size_t i = 0; i < ARRAY_COUNT(heads); i++) cmd_cell(&table, heads[i]);
    for (size_t i = 0; i < json_object_array_length(regions); i++) row(&table, json_object_array_get_idx(regions, i));
    cmd_table_print(&table);
    for (size_t i = 0; i < json_object_array_length(regions); i++) {
        struct json_object *region = json_object_array_get_idx(regions, i);
        const char *conflict = cmd_json_text(region, "Conflict");
        if (*conflict) printf("\n%s: %s\n", cmd_json_text(region, "Region"), conflict);
    }
}

int cmd_regions(int argc, char **argv) {
    static const char usage[] = "coord regions [FLAGS]";
    struct client client = {0};
    bool json = false;
    const struct cmd_flag flags[] = {{"json", CMD_BOOL, &json, "the answer as it came, instead of a table"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (rest[0]) return cmd_wrong(usage, "no argument is wanted");
    return cmd_list(&client, "/v1/global/regions", json, "listing the regions", print_table);
}
