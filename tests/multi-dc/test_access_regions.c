/* What a token gets to see of other regions and of answers that come from them, and which of their commands it may
 * send. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/message.h"
#include "multi-dc/keys.h"
#include "tests/lib/with_access.h"
#include "tests/multi-dc/neighbours.h"

static struct neighbours world;
static struct arena arena;
static void setup(void) { neighbours_open(&world); }
static void teardown(void) {
    neighbours_close(&world);
    arena_free(&arena);
}

/* The answer for the token, until the next one. Its error. */
static int ask(const char *rules, const struct query_type *type, const ProtobufCMessage *request,
               struct query_result *result) {
    struct access *access = access_of(rules);
    struct access_check check;
    int error = fixture_ask_as(&world.f, access, type, request, result, &check);
    access_release(access);
    return error;
}

static const char *seen(const char *rules, const struct query_type *type, const ProtobufCMessage *request) {
    struct query_result result;
    int error = ask(rules, type, request, &result);
    return error == CO_DENIED ? "denied" : !result.found ? "-" : rows_text(&arena, result.message);
}

static void order(const char *service, const char *other, const char *region) {
    Pb__FailoverSetCommand command = PB__FAILOVER_SET_COMMAND__INIT;
    Pb__FailoverTarget target = PB__FAILOVER_TARGET__INIT, *targets[] = {&target};
    char *regions[] = {TEXT(region)};
    target.service = TEXT(other), target.regions = regions, target.n_regions = region ? 1 : 0;
    command.service = TEXT(service), command.targets = targets, command.n_targets = 1;
    cr_assert(fixture_apply(&world.f, FAILOVER_SET, &command.base).yes);
}

/* -- instances ---------------------------------------------------------------------------------------------------- */

static void web_everywhere(void) {
    neighbour_has(&world, "eu", "web", PB__STATUS__PASSING, "blue");
    neighbour_has(&world, "us", "web", PB__STATUS__PASSING, NULL);
    neighbour_has(&world, "us", "web-db", PB__STATUS__PASSING, NULL);
    here(&world, "n1", "web", PB__STATUS__PASSING);
    here(&world, "n1-b", "web", PB__STATUS__CRITICAL);
}

Test(access_regions, instances_there_as_here_by_both, .init = setup, .fini = teardown) {
    Pb__GlobalRequest global = PB__GLOBAL_REQUEST__INIT;
    Pb__GlobalServiceRequest there = PB__GLOBAL_SERVICE_REQUEST__INIT;
    web_everywhere();
    global.service = there.service = TEXT("web"), global.own = TEXT("own");
    const struct {
        const char *rules, *all, *there;
    } table[] = {
        {"service:read=web node_prefix:read=", "web@n1 web@n1-b web@eu web@us", "web@eu web@us"},
        {"service:read=WEB node:read=us node_prefix:read=n1 node:deny=n1-b", "web@n1 web@us", "web@us"},
        {"service_prefix:read=web service:deny=web node_prefix:read=", "", ""},
        {"service:read=web", "", ""},
        {"node_prefix:read=", "", ""},
        {"operator:write", "", ""},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        cr_expect_str_eq(seen(table[i].rules, &query_global, &global.base), table[i].all, "row %zu", i);
        cr_expect_str_eq(seen(table[i].rules, &query_global_service, &there.base), table[i].there, "row %zu", i);
    }
}

/* The bytes of the answer for the token, and its index. */
static struct slice bytes(const char *rules, const struct query_type *type, const ProtobufCMessage *request) {
    struct query_result result;
    cr_assert_eq(ask(rules, type, request, &result), CO_OK);
    struct slice packed = message_pack(&arena, result.message);
    char *text = arena_printf(&arena, "%020llu", (unsigned long long)result.index);
    char *copy = arena_alloc(&arena, packed.size + 21);
    memcpy(copy, text, 20);
    if (packed.size) memcpy(copy + 20, packed.data, packed.size);
    return slice_make(copy, packed.size + 20);
}

Test(access_regions, a_hidden_service_is_answered_as_one_that_is_nowhere, .init = setup, .fini = teardown) {
    Pb__GlobalRequest near = PB__GLOBAL_REQUEST__INIT;
    Pb__AnswerRequest answer = PB__ANSWER_REQUEST__INIT;
    Pb__FailoverRequest failover = PB__FAILOVER_REQUEST__INIT;
    web_everywhere();
    order("web", "web-db", "us");
    answer.own = TEXT("own"), near.nearest = true;
    const struct {
        const struct query_type *type;
        const ProtobufCMessage *request;
        char **service;
    } table[] = {{&query_global, &near.base, &near.service},
                 {&query_answer, &answer.base, &answer.service},
                 {&query_failover, &failover.base, &failover.service}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        *table[i].service = TEXT("web");
        struct slice hidden = bytes("node_prefix:read=", table[i].type, table[i].request);
        *table[i].service = TEXT("abc");
        struct slice nowhere = bytes("node_prefix:read=", table[i].type, table[i].request);
        char *at = hidden.size ? memmem(hidden.data, hidden.size, "web", 3) : NULL;
        if (at) memcpy(at, "abc", 3); /* the name that was asked for */
        cr_expect(slice_equal(hidden, nowhere), "%s", table[i].type->name);
    }
}

Test(access_regions, names_there_by_service_read_and_counts_by_node_read_of_all, .init = setup, .fini = teardown) {
    Pb__GlobalServicesRequest request = PB__GLOBAL_SERVICES_REQUEST__INIT;
    struct query_result result;
    web_everywhere();
    cr_expect_str_eq(seen("service_prefix:read=", &query_global_services, &request.base), "web web-db");
    cr_expect_str_eq(seen("service_prefix:read=web service:deny=web-db", &query_global_services, &request.base), "web");
    cr_expect_str_eq(seen("node_prefix:read=", &query_global_services, &request.base), "");
    static const char *const rules[] = {"service:read=web node_prefix:read= node:deny=x",
                                        "service:read=web node_prefix:read="};
    for (size_t i = 0; i < 2; i++) {
        cr_assert_eq(ask(rules[i], &query_global_services, &request.base, &result), CO_OK);
        const Pb__GlobalServicesResult *found = (const Pb__GlobalServicesResult *)result.message;
        cr_expect_eq(found->services[0]->n_regions, 2);
        cr_expect_eq(found->services[0]->n_instances, 2 * i, "a count would tell of the node that is hidden");
    }
}

Test(access_regions, a_node_there_by_node_read, .init = setup, .fini = teardown) {
    Pb__GlobalNodeRequest request = PB__GLOBAL_NODE_REQUEST__INIT;
    web_everywhere();
    request.region = request.node = TEXT("us");
    cr_expect_str_eq(seen("node:read=US", &query_global_node, &request.base), "@us");
    cr_expect_str_eq(seen("node_prefix:read=u node:deny=us", &query_global_node, &request.base), "-");
    cr_expect_str_eq(seen("service_prefix:read=", &query_global_node, &request.base), "-");
}

/* -- who answers -------------------------------------------------------------------------------------------------- */

static const char *answer(const char *rules) {
    Pb__AnswerRequest request = PB__ANSWER_REQUEST__INIT;
    struct query_result result;
    request.service = TEXT("web"), request.own = TEXT("own");
    cr_assert_eq(ask(rules, &query_answer, &request.base, &result), CO_OK);
    const Pb__AnswerResult *found = (const Pb__AnswerResult *)result.message;
    return arena_printf(&arena, "%s %s %u: %s", found->from->region, found->service, found->target,
                        rows_text(&arena, result.message));
}

Test(access_regions, an_answer_from_elsewhere, .init = setup, .fini = teardown) {
    neighbour_has(&world, "us", "web", PB__STATUS__PASSING, NULL);
    neighbour_has(&world, "us", "web-db", PB__STATUS__PASSING, NULL);
    here(&world, "n1", "web", PB__STATUS__CRITICAL);
    cr_expect_str_eq(answer("service:read=web node:read=us"), "us web 0: web@us");
    cr_expect_str_eq(answer("service:read=web node:read=n1"), "us web 0: ");
    cr_expect_str_eq(answer("node_prefix:read="), "own web 0: ");
    order("web", "web-db", "us");
    cr_expect_str_eq(answer("service_prefix:read=web node:read=us"), "us web-db 1: web-db@us");
    cr_expect_str_eq(answer("service_prefix:read=web service:deny=web-db node_prefix:read="),
                     "own web 0: ", "the name of the other service is not told");
    cr_expect_str_eq(answer("service:read=web-db node_prefix:read="), "own web 0: ");
}

static const char *targets(const char *rules, const struct query_type *type, const ProtobufCMessage *request) {
    struct query_result result;
    cr_assert_eq(ask(rules, type, request, &result), CO_OK);
    return result.found ? rows_text(&arena, result.message) : "-";
}

Test(access_regions, orders_by_service_read_and_the_services_that_they_name_too, .init = setup, .fini = teardown) {
    Pb__FailoversRequest all = PB__FAILOVERS_REQUEST__INIT;
    Pb__FailoverRequest one = PB__FAILOVER_REQUEST__INIT;
    neighbour_has(&world, "us", "web", PB__STATUS__PASSING, NULL);
    order("web", "web-db", "us");
    order("api", "", "us");
    one.service = TEXT("Web");
    cr_expect_str_eq(targets("service_prefix:read=", &query_failovers, &all.base), "api api web web",
                     "a row, and its target");
    cr_expect_str_eq(targets("service_prefix:read= service:deny=web-db", &query_failovers, &all.base), "api api web");
    cr_expect_str_eq(targets("service_prefix:read= service:deny=web", &query_failovers, &all.base), "api api");
    cr_expect_str_eq(targets("node_prefix:read= operator:write", &query_failovers, &all.base), "");
    cr_expect_str_eq(targets("service:read=web service:read=web-db", &query_failover, &one.base), "web web");
    cr_expect_str_eq(targets("service:read=web", &query_failover, &one.base), "web");
    cr_expect_str_eq(targets("service:read=web-db", &query_failover, &one.base), "-");
}

/* "own 1/0/1 us 1/0/0": passing, warning, critical of each region; first of what answers. */
static const char *explained(const char *rules) {
    Pb__AnswerRequest request = PB__ANSWER_REQUEST__INIT;
    struct query_result result;
    request.service = TEXT("web"), request.own = TEXT("own");
    int error = ask(rules, &query_explain, &request.base, &result);
    if (error) return "denied";
    const Pb__ExplainResult *why = (const Pb__ExplainResult *)result.message;
    const char *text = arena_printf(&arena, "%s:", why->answer_service);
    for (size_t i = 0; i <= why->n_regions; i++) {
        const Pb__ExplainCounts *counts = i ? why->regions[i - 1] : why->answer;
        text = arena_printf(&arena, "%s %s %u/%u/%u", text, counts->region, counts->passing, counts->warning,
                            counts->critical);
    }
    for (size_t i = 0; why->record && i < why->record->n_targets; i++)
        text = arena_printf(&arena, "%s >%s", text, why->record->targets[i]->service);
    return text;
}

Test(access_regions, an_explanation_counts_what_may_be_read, .init = setup, .fini = teardown) {
    web_everywhere();
    cr_expect_str_eq(explained("service:read=web node_prefix:read="), "web: own 1/0/1 own 1/0/1 eu 1/0/0 us 1/0/0");
    cr_expect_str_eq(explained("service:read=web node:read=n1 node:read=us"),
                     "web: own 1/0/0 own 1/0/0 eu 0/0/0 us 1/0/0");
    cr_expect_str_eq(explained("service:read=web"), "web: own 0/0/0 own 0/0/0 eu 0/0/0 us 0/0/0");
    cr_expect_str_eq(explained("node_prefix:read= operator:read"), "denied");
    here_no_more(&world, "n1", "web");
    order("web", "web-db", "us");
    cr_expect_str_eq(explained("service_prefix:read=web node_prefix:read="),
                     "web-db: us 1/0/0 own 0/0/1 eu 1/0/0 us 1/0/0 >web-db");
    cr_expect_str_eq(explained("service:read=web node_prefix:read="), "web: own 0/0/0 own 0/0/1 eu 1/0/0 us 1/0/0");
}

/* -- what is the operator's ---------------------------------------------------------------------------------------- */

Test(access_regions, copies_and_copied_prefixes_by_operator_read, .init = setup, .fini = teardown) {
    Pb__CopiesRequest copies = PB__COPIES_REQUEST__INIT;
    Pb__CopyRequest copy = PB__COPY_REQUEST__INIT;
    Pb__KeysRulesRequest rules = PB__KEYS_RULES_REQUEST__INIT;
    const struct {
        const struct query_type *type;
        const ProtobufCMessage *request;
    } table[] = {{&query_copies, &copies.base}, {&query_copy, &copy.base}, {&query_keys_rules, &rules.base}};
    web_everywhere();
    copy.region = TEXT("us"), copy.keys = true;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct query_result result;
        cr_expect_eq(ask("operator:read", table[i].type, table[i].request, &result), CO_OK);
        cr_expect_eq(
            ask("service_prefix:write= node_prefix:write= key_prefix:write=", table[i].type, table[i].request, &result),
            CO_DENIED, "%s", table[i].type->name);
    }
}

Test(access_regions, the_sources_keys_by_key_read_of_all_of_them, .init = setup, .fini = teardown) {
    Pb__KeysChangesRequest request = PB__KEYS_CHANGES_REQUEST__INIT;
    struct query_result result;
    request.prefix = message_bytes(slice_text("app/"));
    cr_expect_eq(ask("key_prefix:read=app/", &query_keys_changes, &request.base, &result), CO_OK);
    cr_expect_eq(ask("key_prefix:read=app/ key:deny=app/secret", &query_keys_changes, &request.base, &result),
                 CO_DENIED);
    cr_expect_eq(ask("key_prefix:read=app/a operator:write", &query_keys_changes, &request.base, &result), CO_DENIED);
}

Test(access_regions, names_of_regions_are_for_everyone_and_their_servers_for_operators, .init = setup,
     .fini = teardown) {
    Pb__RegionsRequest request = PB__REGIONS_REQUEST__INIT;
    struct query_result result;
    web_everywhere();
    cr_assert(neighbour_seen(&world, "us", NEIGHBOUR_CLUSTER, 40000, true).yes);
    neighbour_removed(&world, "eu");
    for (size_t i = 0; i < 2; i++) {
        cr_assert_eq(ask(i ? "operator:read" : "", &query_regions, &request.base, &result), CO_OK);
        const Pb__RegionsResult *found = (const Pb__RegionsResult *)result.message;
        cr_assert_eq(found->n_regions, 2);
        cr_expect_str_eq(found->regions[0]->name, "eu");
        cr_expect(found->regions[0]->removed && !found->regions[1]->removed);
        const Pb__Region *us = found->regions[1];
        cr_expect_eq(us->n_servers, i);
        cr_expect_eq(us->rtt_us, i ? 40000 : 0);
        cr_expect_eq(us->cluster_id, i ? NEIGHBOUR_CLUSTER : 0);
        cr_expect_eq(us->modify_index != 0, i);
    }
}

static const char *may(const char *rules, uint8_t type, const ProtobufCMessage *command) {
    static char missing[256];
    struct access *access = access_of(rules);
    int error = fixture_may(&world.f, access, type, command, missing);
    access_release(access);
    return error ? missing : "yes";
}

Test(access_regions, commands_by_operator_write, .init = setup, .fini = teardown) {
    Pb__FailoverSetCommand failover = PB__FAILOVER_SET_COMMAND__INIT;
    Pb__RegionRemoveCommand region = PB__REGION_REMOVE_COMMAND__INIT;
    Pb__KeysSetCommand keys = PB__KEYS_SET_COMMAND__INIT;
    Pb__KeysUnsetCommand unset = PB__KEYS_UNSET_COMMAND__INIT;
    failover.service = TEXT("web"), region.name = TEXT("us");
    keys.prefix = unset.prefix = message_bytes(slice_text("app/"));
    const struct {
        uint8_t type;
        const ProtobufCMessage *message;
    } table[] = {{FAILOVER_SET, &failover.base},
                 {REGION_REMOVE, &region.base},
                 {KEYS_SET, &keys.base},
                 {KEYS_UNSET, &unset.base}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        cr_expect_str_eq(may("operator:write", table[i].type, table[i].message), "yes", "row %zu", i);
        cr_expect_str_eq(may("operator:read service_prefix:write= key_prefix:write=", table[i].type, table[i].message),
                         "operator:write", "row %zu", i);
    }
    keys.replace = true; /* keys that are here may go */
    cr_expect_str_eq(may("operator:write key_prefix:write=app/", KEYS_SET, &keys.base), "yes");
    cr_expect_str_eq(may("operator:write key_prefix:write=app/ key:read=app/a", KEYS_SET, &keys.base),
                     "key:write on everything below \"app/\"");
    cr_expect_str_eq(may("key_prefix:write=", KEYS_SET, &keys.base), "operator:write");
}

/* -- subsets ------------------------------------------------------------------------------------------------------ */

enum { NODES = 6, SERVICES = 5, WORLDS = 5, TOKENS = 40 };

struct maker {
    struct known_names known;
    struct rng rng;
};

static const char *any_name(struct maker *maker, bool service) {
    return maker->known.names[service][rng_below(&maker->rng, service ? SERVICES : NODES)];
}

/* The region gets some instances more, in its copy. */
static void some_there(struct maker *maker, struct neighbour *region) {
    ProtobufCBinaryData packed[6];
    Pb__CopyUpdateCommand command = PB__COPY_UPDATE_COMMAND__INIT;
    Pb__CatalogAt from = PB__CATALOG_AT__INIT, to = PB__CATALOG_AT__INIT;
    from.cluster_id = to.cluster_id = NEIGHBOUR_CLUSTER;
    from.index = region->index, to.index = region->index += 10;
    command.region = region->name, command.from = &from, command.to = &to;
    command.entries = packed;
    for (; command.n_entries < 6; command.n_entries++) {
        Pb__ServiceEntry entry = PB__SERVICE_ENTRY__INIT;
        Pb__Node node = PB__NODE__INIT;
        Pb__Service service = PB__SERVICE__INIT;
        Pb__Check check = PB__CHECK__INIT, *checks[] = {&check};
        node.name = TEXT(any_name(maker, false)), node.address = TEXT("10.0.0.1");
        service.name = TEXT(any_name(maker, true)), service.id = TEXT("i");
        check.check_id = check.service_id = service.id;
        check.status = rng_below(&maker->rng, 3) ? PB__STATUS__PASSING : PB__STATUS__CRITICAL;
        entry.node = &node, entry.service = &service, entry.checks = checks, entry.n_checks = 1;
        packed[command.n_entries] = message_bytes(message_pack(&arena, &entry.base));
    }
    struct outcome outcome = fixture_apply(&world.f, COPY_UPDATE, &command.base);
    cr_assert(outcome.yes, "%s", outcome.text);
}

static void fill(struct maker *maker, uint64_t seed) {
    rng_seed(&maker->rng, seed);
    for (int i = 0; i < NODES; i++) (void)known_name(&maker->known, false, &maker->rng, &arena);
    for (int i = 0; i < SERVICES; i++) (void)known_name(&maker->known, true, &maker->rng, &arena);
    neighbour_has(&world, "eu", "x", PB__STATUS__PASSING, NULL);
    neighbour_has(&world, "us", "x", PB__STATUS__PASSING, NULL);
    for (int i = 0; i < 6; i++) some_there(maker, &world.regions[i % 2]);
    for (int i = 0; i < 12; i++)
        here(&world, any_name(maker, false), any_name(maker, true),
             rng_below(&maker->rng, 2) ? PB__STATUS__PASSING : PB__STATUS__CRITICAL);
    for (int i = 0; i < 3; i++) order(maker->known.names[1][i], any_name(maker, true), i ? NULL : "us");
    const char *out = maker->known.names[1][0]; /* has no healthy instance here */
    for (int i = 0; i < NODES; i++) here(&world, maker->known.names[0][i], out, PB__STATUS__CRITICAL);
}

static void expect_counts(const struct access *access, const Pb__ExplainCounts *counts,
                          const Pb__GlobalServiceRegion *region) {
    size_t passing = 0, critical = 0;
    for (size_t i = 0; i < region->n_entries; i++) {
        const Pb__ServiceEntry *entry = region->entries[i];
        if (!access_allows(access, ACCESS_NODE, slice_text(entry->node->name), ACCESS_READ)) continue;
        Pb__Status status = catalog_entry_status(entry);
        passing += status == PB__STATUS__PASSING, critical += status == PB__STATUS__CRITICAL;
    }
    cr_expect_eq(counts->passing, passing);
    cr_expect_eq(counts->critical, critical);
}

/* Compares the counts for this token with those of the instances that it may read. */
static void explain_counts(const struct access *access, const Pb__AnswerRequest *request) {
    Pb__GlobalRequest all = PB__GLOBAL_REQUEST__INIT;
    struct query_result result;
    struct access_check check;
    all.service = request->service, all.own = request->own;
    const Pb__GlobalServiceResult *regions =
        (const Pb__GlobalServiceResult *)message_copy(&arena, fixture_ask(&world.f, &query_global, &all.base).message);
    int error = fixture_ask_as(&world.f, access, &query_explain, &request->base, &result, &check);
    bool may = access_allows(access, ACCESS_SERVICE, slice_text(request->service), ACCESS_READ);
    cr_expect_eq(error, may ? CO_OK : CO_DENIED);
    const Pb__ExplainResult *why = (const Pb__ExplainResult *)result.message;
    for (size_t i = 0; !error && i < regions->n_regions; i++)
        expect_counts(access, why->regions[i], regions->regions[i]);
}

Test(access_regions, a_token_sees_exactly_the_rows_that_it_may_read, .fini = teardown) {
    enum { CASES = 9 };
    size_t caught[CASES] = {0};
    for (uint64_t seed = 1; seed <= WORLDS; seed++) {
        struct maker maker = {0};
        if (seed > 1) teardown();
        arena = (struct arena){0};
        setup();
        fill(&maker, seed);
        Pb__GlobalServicesRequest names = PB__GLOBAL_SERVICES_REQUEST__INIT;
        Pb__FailoversRequest orders = PB__FAILOVERS_REQUEST__INIT;
        for (int token = 0; token < TOKENS; token++) {
            struct access *access = random_access(&maker.known, &maker.rng);
            Pb__GlobalRequest global = PB__GLOBAL_REQUEST__INIT, nearest = PB__GLOBAL_REQUEST__INIT;
            Pb__GlobalServiceRequest there = PB__GLOBAL_SERVICE_REQUEST__INIT;
            Pb__GlobalNodeRequest node = PB__GLOBAL_NODE_REQUEST__INIT;
            Pb__FailoverRequest failover = PB__FAILOVER_REQUEST__INIT;
            Pb__AnswerRequest answer = PB__ANSWER_REQUEST__INIT;
            char *service = TEXT(maker.known.names[1][token % SERVICES]);
            global.service = nearest.service = there.service = failover.service = answer.service = service;
            global.own = answer.own = TEXT("own"), nearest.nearest = true;
            node.region = TEXT("us"), node.node = TEXT(any_name(&maker, false));
            const struct {
                const struct query_type *type;
                const ProtobufCMessage *request;
            } cases[CASES] = {
                {&query_global, &global.base},        {&query_global, &nearest.base},
                {&query_global_service, &there.base}, {&query_global_services, &names.base},
                {&query_global_node, &node.base},     {&query_failovers, &orders.base},
                {&query_failover, &failover.base},    {&query_answer, &answer.base},
                {&query_explain, &answer.base},
            };
            for (size_t i = 0; i < CASES; i++) {
                struct arena scratch = {0};
                bool denied = i == 8 && !access_allows(access, ACCESS_SERVICE, slice_text(service), ACCESS_READ);
                const char *fault = denied ? NULL
                                           : answer_fault(&world.f, &maker.known, access, cases[i].type,
                                                          cases[i].request, false, &scratch);
                cr_expect_null(fault, "seed %d token %d: %s", (int)seed, token, fault);
                caught[i] += answer_fault(&world.f, &maker.known, access, cases[i].type, cases[i].request, true,
                                          &scratch) != NULL;
                arena_free(&scratch);
            }
            explain_counts(access, &answer);
            access_release(access);
        }
    }
    for (size_t i = 0; i < CASES; i++) cr_expect_geq(caught[i], 10, "case %zu: the judge noticed little", i);
}
