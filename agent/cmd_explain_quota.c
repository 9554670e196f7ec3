/* coord explain quota */
#include <inttypes.h>

#include "agent/cmd.h"
#include "agent/cmd_explain.h"
#include "agent/cmd_json.h"
#include "base/check.h"

#define HOLDERS_SHOWN 20

static bool is_owned(struct json_object *quota) { return strcmp(cmd_json_text(quota, "Mode"), "owner") == 0; }

/* -- the definition ----------------------------------------------------------------------------------------------- */

static void print_definition(struct json_object *quota, const char *name) {
    struct json_object *refill = json_get_object(quota, "Refill", NULL);
    const char *window = cmd_json_text(refill, "Window"), *offset = cmd_json_text(refill, "Offset");
    uint64_t budget = cmd_json_number(quota, "Budget"), capacity = cmd_json_number(quota, "Capacity");
    cmd_print_words("\"", name, "\"");
    if (window[0])
        printf(": %" PRIu64 " in each %s (UTC%s), counted by %s.\n", budget, window,
               offset[0] && strcmp(offset, "+00:00") != 0 ? offset : "", cmd_json_text(quota, "Mode"));
    else
        printf(": %" PRIu64 " come back every %s, at most %" PRIu64 " are unspent at once, counted by %s.\n",
               cmd_json_number(refill, "Tokens"), cmd_json_text(refill, "Every"), capacity ? capacity : budget,
               cmd_json_text(quota, "Mode"));
}

/* -- the rest of the budget --------------------------------------------------------------------------------------- */

static void print_part(uint64_t number, const char *what, bool *first) {
    if (!number) return;
    printf("%s%" PRIu64 " %s", *first ? "" : ", ", number, what);
    *first = false;
}

static void print_sums(struct json_object *quota) {
    int64_t available = 0;
    bool first = true;
    json_get_i64(quota, "Available", &available, NULL);
    printf("Of them %" PRId64 " are available", available);
    if (cmd_json_number(quota, "Spent") + cmd_json_number(quota, "Leased") + cmd_json_number(quota, "Stranded") +
        cmd_json_number(quota, "Slack"))
        printf(": ");
    print_part(cmd_json_number(quota, "Spent"), "are spent", &first);
    print_part(cmd_json_number(quota, "Leased"), "are leased to agents, which spend them without asking", &first);
    print_part(cmd_json_number(quota, "Slack"), "may be spent by agents that have not reported it yet", &first);
    print_part(cmd_json_number(quota, "Stranded"),
               "are stranded (their owners ended without settling, so they count as spent until the next refill)",
               &first);
    printf(".\n");
}

static void print_holders(struct json_object *quota) {
    struct json_object *leases = json_get_array(quota, "Leases", NULL);
    size_t count = cmd_json_length(leases);
    struct cmd_table table = {.columns = 4};
    if (!count) {
        printf("Nobody holds a lease.\n");
        return;
    }
    printf("%zu %s a lease:\n", count, count == 1 ? "holds" : "hold");
    cmd_cell(&table, "  OWNER"), cmd_cell(&table, "HOLDS"), cmd_cell(&table, "WANTS"), cmd_cell(&table, "TTL");
    for (size_t i = 0; i < count && i < HOLDERS_SHOWN; i++) {
        struct json_object *lease = json_object_array_get_idx(leases, i);
        char number[32];
        struct buffer owner = {0};
        buffer_printf(&owner, "  %s", cmd_json_text(lease, "Owner"));
        buffer_append_byte(&owner, '\0');
        cmd_cell(&table, owner.data);
        snprintf(number, sizeof number, "%" PRIu64, cmd_json_number(lease, "Granted"));
        cmd_cell(&table, number);
        snprintf(number, sizeof number, "%" PRIu64, cmd_json_number(lease, "Wants"));
        cmd_cell(&table, number);
        cmd_cell(&table, cmd_json_text(lease, "TTL"));
        buffer_free(&owner);
    }
    cmd_table_print(&table);
    if (count > HOLDERS_SHOWN) printf("  ... and %zu more\n", count - HOLDERS_SHOWN);
}

/* -- the bound ---------------------------------------------------------------------------------------------------- */

static void print_bound(struct json_object *quota) {
    struct json_object *bound = json_get_object(quota, "Bound", NULL);
    uint64_t sum = cmd_json_number(quota, "WorstCaseOverAdmission");
    static const struct {
        const char *member, *why;
    } parts[] = {
        {"Leases", "leases that are out"},
        {"Drift", "slack that agents spend before they report it (Drift of the budget)"},
        {"LocalCaps", "what agents admit while no server answers (LocalCap for each registered agent)"},
        {"Last", "what agents admit while no server answers (OnLoss last)"},
        {"HandOver",
         "of a key whose owner died in the window: its new owner cannot know what was admitted, and begins whole"},
    };
    if (!sum && is_owned(quota)) {
        printf("Never more than the budget is admitted of a key: one agent at a time counts it.\n");
        return;
    }
    if (!sum) {
        printf("Never more than the budget is admitted: what agents hold is taken out of it before they spend it.\n");
        return;
    }
    printf("At the worst %" PRIu64 " more than the budget are admitted in a window or period:\n", sum);
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++)
        if (cmd_json_number(bound, parts[i].member))
            printf("  %" PRIu64 "  %s\n", cmd_json_number(bound, parts[i].member), parts[i].why);
}

/* -- this agent --------------------------------------------------------------------------------------------------- */

/* The sum that the leases grant to the agent that is asked. */
static uint64_t held_here(const struct client *client, struct json_object *quota) {
    struct fault fault = {0};
    struct json_object *self = cmd_json_get(client, "/v1/agent/self", &fault);
    const char *node = cmd_json_text(json_get_object(self, "Config", NULL), "NodeName");
    struct json_object *leases = json_get_array(quota, "Leases", NULL);
    uint64_t held = 0;
    for (size_t i = 0; i < cmd_json_length(leases); i++) {
        struct json_object *lease = json_object_array_get_idx(leases, i);
        if (strcmp(cmd_json_text(lease, "Owner"), node) == 0) held += cmd_json_number(lease, "Granted");
    }
    if (self) json_object_put(self);
    return held;
}

static void print_here(const struct client *client, struct json_object *quota, const char *name, const char *key) {
    struct buffer path = {0};
    struct client_answer answer = {0};
    struct fault fault = {0};
    buffer_append_text(&path, "/v1/agent/quota/");
    client_encode(&path, name, false);
    buffer_append_text(&path, "/take");
    client_parameter(&path, "n", "0");
    if (key) client_parameter(&path, "key", key);
    buffer_append_byte(&path, '\0');
    int rv = client_ask(client, "PUT", path.data, NULL, NULL, NULL, &answer, &fault);
    bool said = rv == CO_OK && (answer.status == 200 || answer.status == 429), allowed = false;
    struct json_object *json = said ? json_parse(buffer_slice(&answer.body), &fault) : NULL;
    json_get_bool(json, "Allowed", &allowed, NULL);
    uint64_t held = json && allowed ? held_here(client, quota) : 0;
    if (held)
        printf("This agent could take of it now: it was granted %" PRIu64 ", which it spends without asking.\n", held);
    else if (json && allowed) printf("This agent could take of it now: it would ask the servers for a part.\n");
    else if (json) printf("This agent would refuse a take now, because it is spent.\n");
    else if (rv == CO_OK)
        printf("This agent cannot take of it now: %.*s\n", answer.body.size < 200 ? (int)answer.body.size : 200,
               answer.body.size ? answer.body.data : "");
    else printf("This agent does not say: %s\n", fault.text);
    if (json) json_object_put(json);
    client_answer_free(&answer);
    buffer_free(&path);
}

/* -- the owner of a key ------------------------------------------------------------------------------------------- */

static void print_why(struct json_object *seen, struct json_object *quota, const char *owner, const char *node) {
    uint64_t epoch = cmd_json_number(seen, "Epoch"), active = cmd_json_number(seen, "ActiveEpoch");
    size_t members = cmd_json_length(json_get_array(quota, "ActiveMembers", NULL));
    bool moves = false, counts = false;
    json_get_bool(seen, "Moves", &moves, NULL), json_get_bool(seen, "Counts", &counts, NULL);
    printf(
        "It is the first for this key on the ring of the %zu agents with a passing instance of \"%s\" (epoch %" PRIu64
        ").\n",
        members, cmd_json_text(quota, "Service"), active);
    if (moves) printf("It hands the key over: another one counts it as soon as epoch %" PRIu64 " is active.\n", epoch);
    else if (epoch != active) printf("Epoch %" PRIu64 " is to follow; the key stays where it is.\n", epoch);
    if (counts) printf("Of the key's budget %" PRIu64 " are left, by its count.\n", cmd_json_number(seen, "Remaining"));
    else if (strcmp(owner, node) == 0)
        printf("It does not count it at this moment: its lease is over, or it hands the key over.\n");
}

static void print_owner(const struct client *client, struct json_object *quota, const char *name, const char *key) {
    struct buffer path = {0};
    struct fault fault = {0};
    buffer_append_text(&path, "/v1/agent/quota/");
    client_encode(&path, name, false);
    buffer_append_text(&path, "/owner");
    client_parameter(&path, "key", key);
    buffer_append_byte(&path, '\0');
    struct json_object *seen = cmd_json_get(client, path.data, &fault);
    const char *owner = cmd_json_text(seen, "Owner"), *node = cmd_json_text(seen, "Node");
    if (!seen) {
        printf("Who counts the key is not known here: %s\n", fault.text);
    } else if (!owner[0]) {
        printf("Nobody counts the key: no agent has a passing instance of \"%s\", or none has joined yet.\n",
               cmd_json_text(quota, "Service"));
    } else {
        cmd_print_words("The key is counted by the agent of node \"", owner, "\"");
        printf("%s.\n", strcmp(owner, node) == 0 ? ", which is this one" : ", which this one asks");
        if (cmd_json_number(seen, "Parts"))
            printf("It is hot, and split into %" PRIu64 " parts; that is of part %" PRIu64
                   ", the first that takes here "
                   "are counted by.\n",
                   cmd_json_number(seen, "Parts"), cmd_json_number(seen, "Part"));
        print_why(seen, quota, owner, node);
    }
    if (seen) json_object_put(seen);
    buffer_free(&path);
}

int explain_quota(int argc, char **argv) {
    static const char usage[] = "coord explain quota [FLAGS] NAME [KEY]";
    struct client client = {0};
    char **rest;
    int code = cmd_flags(argc, argv, NULL, 0, &client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || !rest[0][0] || (rest[1] && rest[2]))
        return cmd_wrong(usage, "a NAME is wanted, perhaps a KEY, and flags before them");
    struct buffer path = {0};
    struct fault fault = {0};
    buffer_append_text(&path, "/v1/quota/");
    client_encode(&path, rest[0], false);
    buffer_append_byte(&path, '\0');
    struct json_object *quota = cmd_json_get(&client, path.data, &fault);
    if (quota) {
        print_definition(quota, rest[0]);
        if (!is_owned(quota)) print_sums(quota), print_holders(quota);
        print_bound(quota);
        if (is_owned(quota) && !rest[1]) printf("Each key has the budget; name one to hear who counts it.\n");
        else if (is_owned(quota)) print_owner(&client, quota, rest[0], rest[1]);
        else print_here(&client, quota, rest[0], rest[1]);
        json_object_put(quota);
    }
    buffer_free(&path);
    return fault.code ? cmd_failed("asking for the quota", &fault) : 0;
}
