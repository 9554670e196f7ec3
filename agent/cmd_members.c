/* coord members, coord info */
#include <stdlib.h>

#include "agent/cmd.h"
#include "agent/cmd_json.h"
#include "base/check.h"
#include "base/json_in.h"

static const char *const statuses[] = {"none", "alive", "leaving", "left", "failed"};

static const char *status_of(struct json_object *member) {
    uint64_t status = 0;
    json_get_u64(member, "Status", ARRAY_COUNT(statuses) - 1, &status, NULL);
    return statuses[status < ARRAY_COUNT(statuses) ? status : 0];
}

static bool status_known(const char *status) {
    for (size_t i = 1; i < ARRAY_COUNT(statuses); i++)
        if (strcmp(status, statuses[i]) == 0) return true;
    return false;
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* The names of an object's members, sorted. */
static size_t names_of(struct json_object *object, const char **names, size_t room) {
    size_t count = 0;
    if (!json_object_is_type(object, json_type_object)) return 0;
    json_object_object_foreach(object, name, value) {
        (void)value;
        if (count < room) names[count++] = name;
    }
    qsort(names, count, sizeof *names, by_text);
    return count;
}

static void member_row(struct cmd_table *table, struct json_object *member) {
    struct json_object *tags = json_get(member, "Tags");
    uint64_t port = 0, protocol = 0;
    json_get_u64(member, "Port", 65535, &port, NULL);
    json_get_u64(member, "ProtocolCur", 255, &protocol, NULL);
    char address[160], number[24];
    snprintf(address, sizeof address, strchr(cmd_json_text(member, "Addr"), ':') ? "[%s]:%u" : "%s:%u",
             cmd_json_text(member, "Addr"), (unsigned)port);
    snprintf(number, sizeof number, "%llu", (unsigned long long)protocol);
    const char *own = cmd_json_text(tags, "coord_version"), *build = *own ? own : cmd_json_text(tags, "build");
    const char *role = cmd_json_text(tags, "role");
    char version[40];
    snprintf(version, sizeof version, "%.*s", (int)strcspn(build, ":"), build);
    bool server = strcmp(role, "consul") == 0, client = strcmp(role, "node") == 0;
    const char *cells[] = {cmd_json_text(member, "Name"),
                           address,
                           status_of(member),
                           server   ? "server"
                           : client ? "client"
                                    : "unknown",
                           version,
                           number,
                           cmd_json_text(tags, "dc"),
                           server ? "<all>" : "<default>"};
    for (size_t i = 0; i < ARRAY_COUNT(cells); i++) cmd_cell(table, cells[i]);
}

static int by_name(const void *a, const void *b) {
    return strcmp(cmd_json_text(*(struct json_object *const *)a, "Name"),
                  cmd_json_text(*(struct json_object *const *)b, "Name"));
}

/* A row with all tags, as name=value,name=value. */
static void member_row_detailed(struct cmd_table *table, struct json_object *member) {
    char address[160];
    uint64_t port = 0;
    struct buffer tags = {0};
    struct json_object *object = json_get(member, "Tags");
    json_get_u64(member, "Port", 65535, &port, NULL);
    snprintf(address, sizeof address, strchr(cmd_json_text(member, "Addr"), ':') ? "[%s]:%u" : "%s:%u",
             cmd_json_text(member, "Addr"), (unsigned)port);
    const char *names[64];
    size_t count = names_of(object, names, ARRAY_COUNT(names));
    for (size_t i = 0; i < count; i++)
        buffer_printf(&tags, "%s%s=%s", i ? "," : "", names[i], cmd_json_text(object, names[i]));
    buffer_append_byte(&tags, '\0');
    const char *cells[] = {cmd_json_text(member, "Name"), address, status_of(member), tags.data};
    for (size_t i = 0; i < ARRAY_COUNT(cells); i++) cmd_cell(table, cells[i]);
    buffer_free(&tags);
}

/* Returns exit code 2 when no member has that status, as with Consul. */
static int print_members(struct json_object *list, const char *status, bool detailed) {
    static const char *const short_heads[] = {"Node",  "Address",  "Status", "Type",
                                              "Build", "Protocol", "DC",     "Segment"};
    static const char *const detailed_heads[] = {"Node", "Address", "Status", "Tags"};
    struct cmd_table table = {.columns = detailed ? ARRAY_COUNT(detailed_heads) : ARRAY_COUNT(short_heads)};
    for (size_t i = 0; i < table.columns; i++) cmd_cell(&table, detailed ? detailed_heads[i] : short_heads[i]);
    json_object_array_sort(list, by_name);
    size_t shown = 0;
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        struct json_object *member = json_object_array_get_idx(list, i);
        if (status && strcmp(status, status_of(member)) != 0) continue;
        (detailed ? member_row_detailed : member_row)(&table, member);
        shown++;
    }
    if (shown) cmd_table_print(&table);
    else buffer_free(&table.cells);
    return shown ? 0 : 2;
}

int cmd_members(int argc, char **argv) {
    static const char usage[] = "coord members [FLAGS]";
    struct client client = {0};
    bool wan = false, detailed = false;
    const char *status = NULL;
    const struct cmd_flag flags[] = {
        {"detailed", CMD_BOOL, &detailed, "with all tags"},
        {"status", CMD_TEXT, &status, "only these: alive, leaving, left or failed; exit code 2 when there are none"},
        {"wan", CMD_BOOL, &wan, "those of other datacenters too"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (*rest) return cmd_wrong(usage, "no argument is wanted");
    if (status && !status_known(status)) return cmd_wrong(usage, "-status is alive, leaving, left or failed");
    struct client_answer answer;
    struct fault fault = {0};
    int rv = client_want(&client, "GET", wan ? "/v1/agent/members?wan=1" : "/v1/agent/members", NULL, false, &answer,
                         &fault);
    struct json_object *list = rv == CO_OK ? json_parse(buffer_slice(&answer.body), &fault) : NULL;
    if (list && json_object_is_type(list, json_type_array)) code = print_members(list, status, detailed);
    else fault_set(&fault, CO_INVALID, "not a list of members");
    if (list) json_object_put(list);
    client_answer_free(&answer);
    return fault.code ? cmd_failed("retrieving members", &fault) : code;
}

/* -- info --------------------------------------------------------------------------------------------------------- */
static void print_stats(struct json_object *stats) {
    const char *sections[64], *names[256];
    size_t section_count = names_of(stats, sections, ARRAY_COUNT(sections));
    for (size_t i = 0; i < section_count; i++) {
        struct json_object *section = json_object_object_get(stats, sections[i]);
        size_t count = names_of(section, names, ARRAY_COUNT(names));
        printf("%s:\n", sections[i]);
        for (size_t k = 0; k < count; k++)
            printf("\t%s = %s\n", names[k], json_object_get_string(json_object_object_get(section, names[k])));
    }
}

int cmd_info(int argc, char **argv) {
    static const char usage[] = "coord info [FLAGS]";
    struct client client = {0};
    char **rest;
    int code = cmd_flags(argc, argv, NULL, 0, &client, usage, &rest);
    if (code >= 0) return code;
    struct client_answer answer;
    struct fault fault = {0};
    int rv = client_want(&client, "GET", "/v1/agent/self", NULL, false, &answer, &fault);
    struct json_object *self = rv == CO_OK ? json_parse(buffer_slice(&answer.body), &fault) : NULL;
    if (self) print_stats(json_get(self, "Stats"));
    if (self) json_object_put(self);
    client_answer_free(&answer);
    return fault.code ? cmd_failed("querying agent", &fault) : 0;
}
