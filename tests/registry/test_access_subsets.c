/* Random tokens and random catalogs: of each list a token gets exactly the rows that it may read, and no name of
 * anything else. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "access_world.h"

enum { NODES = 6, SERVICES = 6, WORLDS = 6, TOKENS = 40, CASES = 32 };

struct world {
    struct known_names known;
    struct rng rng;
};

static int pick(struct world *world, int below) { return (int)rng_below(&world->rng, (uint64_t)below); }

/* A name as somebody may write it. */
static char *spelled(struct world *world, bool service) {
    char *name = arena_strndup(&arena, world->known.names[service][pick(world, service ? SERVICES : NODES)], 10);
    if (pick(world, 3) == 0) name[0] = (char)(name[0] - 32);
    return name;
}

static void random_step(struct world *world) {
    char spec[256];
    int id = pick(world, 4), size = snprintf(spec, sizeof spec, "node=%s", spelled(world, false));
    bool service = pick(world, 4) != 0;
    if (service)
        size += snprintf(spec + size, sizeof spec - (size_t)size, " service=i%d:%s:80 tag=t%d", id,
                         spelled(world, true), pick(world, 3));
    if (pick(world, 2))
        size += snprintf(spec + size, sizeof spec - (size_t)size, " check=c%d:%s:%s", id,
                         pick(world, 2) ? "passing" : "critical",
                         service ? (const char *)arena_printf(&arena, "i%d", id) : "");
    if (pick(world, 3) == 0) snprintf(spec + size, sizeof spec - (size_t)size, " check=serfHealth:passing:");
    Pb__RegisterCommand *command = fixture_register_command(&arena, spec);
    if (service && pick(world, 2)) command->service->address = TEXT("10.1.1.1");
    cr_assert_eq(fixture_apply(&f, CATALOG_REGISTER, &command->base).error, CO_OK, "%s", spec);
}

/* Leases of some nodes: two stand, one has expired, and one node has left. */
static void some_leases(struct world *world) {
    for (int i = 0; i < 4; i++) {
        char id[] = ID(0);
        id[sizeof id - 2] = (char)('1' + i);
        const char *node = world->known.names[0][i];
        Pb__RegisterCommand *command =
            fixture_register_command(&arena, arena_printf(&arena, "node=%s id=%s check=serfHealth:passing:", node, id));
        cr_assert_eq(fixture_apply(&f, CATALOG_REGISTER, &command->base).error, CO_OK);
        cr_assert(grant(id, node, id).yes);
        if (i >= 2) lease_ends(id, i == 2, i == 3);
    }
}

struct asked {
    const struct query_type *type;
    const ProtobufCMessage *request;
    size_t caught;
};

static size_t all_cases(struct world *world, struct asked cases[CASES]) {
    static Pb__TableRequest all;
    static Pb__StateRequest state;
    static Pb__LeaseListRequest leases;
    static Pb__DeadNodesRequest dead;
    size_t count = 0;
    pb__table_request__init(&all), pb__state_request__init(&state);
    pb__lease_list_request__init(&leases), pb__dead_nodes_request__init(&dead);
    state.state = TEXT("any");
    cases[count++] = (struct asked){&query_nodes, &all.base, 0};
    cases[count++] = (struct asked){&query_services, &all.base, 0};
    cases[count++] = (struct asked){&query_service_addresses, &all.base, 0};
    cases[count++] = (struct asked){&query_members, &all.base, 0};
    cases[count++] = (struct asked){&query_state_checks, &state.base, 0};
    cases[count++] = (struct asked){&query_leases, &leases.base, 0};
    cases[count++] = (struct asked){&query_dead_nodes, &dead.base, 0};
    for (int i = 0; i < 3; i++) {
        Pb__NodeRequest *node = arena_alloc(&arena, sizeof *node);
        Pb__ServiceRequest *service = arena_alloc(&arena, sizeof *service);
        pb__node_request__init(node), pb__service_request__init(service);
        node->node = spelled(world, false), service->service = spelled(world, true);
        service->held = i == 0;
        cases[count++] = (struct asked){&query_node_services, &node->base, 0};
        cases[count++] = (struct asked){&query_node_checks, &node->base, 0};
        cases[count++] = (struct asked){&query_service_entries, &service->base, 0};
        cases[count++] = (struct asked){&query_service_checks, &service->base, 0};
    }
    cr_assert_leq(count, CASES);
    return count;
}

Test(access_subsets, a_token_sees_exactly_the_rows_that_it_may_read, .fini = access_world_close) {
    size_t caught[32] = {0}; /* by number of the query: how often the judge noticed an answer that was not reduced */
    for (uint64_t seed = 1; seed <= WORLDS; seed++) {
        struct world world = {0};
        struct asked cases[CASES];
        if (seed > 1) access_world_close();
        access_world_open();
        rng_seed(&world.rng, seed);
        for (int i = 0; i < NODES; i++) (void)known_name(&world.known, false, &world.rng, &arena);
        for (int i = 0; i < SERVICES; i++) (void)known_name(&world.known, true, &world.rng, &arena);
        some_leases(&world);
        for (int i = 0; i < 60; i++) random_step(&world);
        size_t count = all_cases(&world, cases);
        for (int token = 0; token < TOKENS; token++) {
            struct access *access = random_access(&world.known, &world.rng);
            for (size_t i = 0; i < count; i++) {
                struct arena scratch = {0};
                const char *fault =
                    answer_fault(&f, &world.known, access, cases[i].type, cases[i].request, false, &scratch);
                cr_expect_null(fault, "seed %d token %d: %s", (int)seed, token, fault);
                caught[cases[i].type->number] +=
                    answer_fault(&f, &world.known, access, cases[i].type, cases[i].request, true, &scratch) != NULL;
                arena_free(&scratch);
            }
            access_release(access);
        }
    }
    static const struct query_type *const types[] = {
        &query_nodes,          &query_services,    &query_node_services, &query_service_entries,
        &query_service_checks, &query_node_checks, &query_state_checks,  &query_service_addresses,
        &query_members,        &query_leases,      &query_dead_nodes};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        cr_expect_geq(caught[types[i]->number], 20, "%s: the judge noticed little", types[i]->name);
}
