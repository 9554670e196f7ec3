/* coord explain service */
#include <inttypes.h>

#include "agent/cmd.h"
#include "agent/cmd_explain.h"
#include "agent/cmd_json.h"
#include "base/check.h"
#include "base/text.h"

static bool flag(struct json_object *object, const char *name) {
    bool value = false;
    json_get_bool(object, name, &value, NULL);
    return value;
}

/* "2 passing, 1 warning, 3 critical (1 held by self-preservation)" */
static void print_counts(struct json_object *counts) {
    uint64_t passing = cmd_json_number(counts, "Passing"), warning = cmd_json_number(counts, "Warning"),
             critical = cmd_json_number(counts, "Critical"), held = cmd_json_number(counts, "Held");
    if (passing + warning + critical == 0) {
        printf("no instances");
        return;
    }
    printf("%" PRIu64 " passing, %" PRIu64 " warning, %" PRIu64 " critical", passing, warning, critical);
    if (held) printf(" (%" PRIu64 " held by self-preservation)", held);
}

static void print_age(struct json_object *region) {
    struct buffer text = {0};
    uint64_t age_ms = 0;
    if (!flag(region, "Reachable")) printf(", not reachable");
    if (!json_get(region, "AsOf")) return;
    json_get_u64(region, "AsOf", UINT64_MAX, &age_ms, NULL);
    duration_format(&text, (int64_t)age_ms * 1000000);
    printf(", as of %.*s ago", (int)text.size, text.data);
    buffer_free(&text);
}

/* -- the region that answers -------------------------------------------------------------------------------------- */
static void print_answer(struct json_object *why, const char *here) {
    struct json_object *answer = json_get_object(why, "Answer", NULL);
    const char *region = cmd_json_text(answer, "Region"), *service = cmd_json_text(answer, "Service");
    bool own = strcmp(region, here) == 0, same = strcmp(service, cmd_json_text(why, "Service")) == 0;
    cmd_print_words("Answered from region \"", region, own ? "\", this one" : "\"");
    if (!same) cmd_print_words(" by service \"", service, "\"");
    printf(": ");
    print_counts(answer);
    if (!own) print_age(answer);
    printf(".\n");
}

static void print_why(struct json_object *why, const char *here) {
    struct json_object *answer = json_get_object(why, "Answer", NULL);
    uint64_t target = cmd_json_number(why, "Target"), away = cmd_json_number(why, "AwayIndex"),
             back = cmd_json_number(why, "BackIndex");
    size_t targets = cmd_json_length(json_get_array(why, "Targets", NULL));
    const char *passed = cmd_json_text(why, "PassedOver");
    bool own = strcmp(cmd_json_text(answer, "Region"), here) == 0, none = flag(why, "NoneHere");
    if (none) printf("  because  there are no healthy instances here");
    else if (away) printf("  because  it had no healthy instances here lately");
    else printf("  because  there are healthy instances here");
    if (target) printf("; it is target %" PRIu64 " of %zu of the order", target, targets);
    else if (!own) printf("; it is the nearest region that has some");
    else if (none || away) printf(", and %s has some", targets ? "no target of its order" : "no other region");
    if (passed[0]) cmd_print_words("; \"", passed, "\" is passed over, since it had no healthy instances lately");
    printf(".\n");
    if (!away) return;
    printf("  away     since index %" PRIu64, away);
    if (back)
        printf("; healthy here since index %" PRIu64
               ", it comes home when that has lasted for coord.failover_return, or nobody else can answer",
               back);
    printf(".\n");
}

/* -- instances and targets ---------------------------------------------------------------------------------------- */
static void print_targets(struct json_object *why) {
    struct json_object *targets = json_get_array(why, "Targets", NULL);
    for (size_t i = 0; i < cmd_json_length(targets); i++) {
        struct json_object *target = json_object_array_get_idx(targets, i);
        const char *service = cmd_json_text(target, "Service");
        static const char *const lists[] = {"Regions", "Tags"}, *const heads[] = {" in ", " with tag "};
        printf("  target %zu ", i + 1);
        if (service[0]) cmd_print_words("service \"", service, "\"");
        else printf("the same service");
        for (size_t k = 0; k < ARRAY_COUNT(lists); k++) {
            struct json_object *list = json_get_array(target, lists[k], NULL);
            for (size_t n = 0; n < cmd_json_length(list); n++)
                cmd_print_words(n ? ", " : heads[k], json_object_get_string(json_object_array_get_idx(list, n)), "");
        }
        printf("\n");
    }
}

static void print_regions(struct json_object *regions) {
    static const char *const heads[] = {"  REGION", "PASSING", "WARNING", "CRITICAL", "REACHABLE", "DISTANCE", "AS OF"},
                             *const numbers[] = {"Passing", "Warning", "Critical"};
    struct cmd_table table = {.columns = ARRAY_COUNT(heads)};
    for (size_t i = 0; i < ARRAY_COUNT(heads); i++) cmd_cell(&table, heads[i]);
    for (size_t i = 0; i < cmd_json_length(regions); i++) {
        struct json_object *region = json_object_array_get_idx(regions, i);
        struct buffer text = {0};
        uint64_t age_ms = 0;
        buffer_printf(&text, "  %s", cmd_json_text(region, "Region"));
        buffer_append_byte(&text, '\0');
        cmd_cell(&table, text.data);
        for (size_t k = 0; k < ARRAY_COUNT(numbers); k++) {
            char number[24];
            snprintf(number, sizeof number, "%" PRIu64, cmd_json_number(region, numbers[k]));
            cmd_cell(&table, number);
        }
        const char *far = cmd_json_text(region, "RoundTrip");
        bool known = json_get(region, "AsOf") != NULL;
        json_get_u64(region, "AsOf", UINT64_MAX, &age_ms, NULL);
        cmd_cell(&table, i == 0 ? "here" : flag(region, "Reachable") ? "yes" : "no");
        cmd_cell(&table, far[0] ? far : "-");
        buffer_reset(&text);
        if (known && i) duration_format(&text, (int64_t)age_ms * 1000000);
        else buffer_append_text(&text, "-");
        buffer_append_byte(&text, '\0');
        cmd_cell(&table, text.data);
        buffer_free(&text);
    }
    cmd_table_print(&table);
}

static void print_service(const struct client *client, struct json_object *why) {
    struct json_object *regions = json_get_array(why, "Regions", NULL);
    const char *here = cmd_json_length(regions) ? cmd_json_text(json_object_array_get_idx(regions, 0), "Region") : "";
    (void)client;
    print_answer(why, here);
    print_why(why, here);
    print_targets(why);
    print_regions(regions);
}

int explain_service(int argc, char **argv) {
    static const char usage[] = "coord explain service [FLAGS] NAME";
    struct client client = {0};
    struct cmd_list tags = {0};
    const struct cmd_flag flags[] = {{"tag", CMD_LIST, &tags, "only instances with this tag"}};
    const char *name;
    int code = cmd_flags_and_one(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, "NAME", &name);
    if (code >= 0) return code;
    struct buffer path = {0};
    buffer_append_text(&path, "/v1/failover/");
    client_encode(&path, name, false);
    buffer_append_text(&path, "/explain");
    for (size_t i = 0; i < tags.count; i++) client_parameter(&path, "tag", tags.items[i]);
    return cmd_show(&client, &path, false, "asking for the service", print_service);
}
