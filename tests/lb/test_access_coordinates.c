/* What a token gets to see of coordinates, and of orders that come from them. */
#include <criterion/criterion.h>
#include <string.h>

#include "coordinates.h"
#include "lb/near.h"
#include "tests/lib/with_access.h"

static struct fixture world;
static struct arena arena;
static void setup(void) {
    fixture_open(&world);
    fixture_found(&world);
}
static void teardown(void) {
    fixture_close(&world);
    arena_free(&arena);
}

#define TEXT(text) ((char *)(uintptr_t)(text))

static void line(void) {
    static const char *const nodes[] = {"a", "b", "c", "c-b"};
    for (size_t i = 0; i < 4; i++) cr_assert_eq(node_add(&world, nodes[i]).error, CO_OK);
    coordinate_put(&world, "a", "", 0.3), coordinate_put(&world, "b", "", 0.1);
    coordinate_put(&world, "c", "", 0.2), coordinate_put(&world, "c-b", "", 0.05);
}

static const char *seen(const char *rules, const struct query_type *type, const ProtobufCMessage *request) {
    struct access *access = access_of(rules);
    struct query_result result;
    struct access_check check;
    int error = fixture_ask_as(&world, access, type, request, &result, &check);
    access_release(access);
    return error == CO_DENIED ? "denied" : rows_text(&arena, result.message);
}

static const char *coordinates(const char *rules, const struct query_type *type, const char *node) {
    Pb__CoordinatesRequest request = PB__COORDINATES_REQUEST__INIT;
    request.node = TEXT(node);
    return seen(rules, type, &request.base);
}

Test(access_coordinates, by_node_read, .init = setup, .fini = teardown) {
    line();
    cr_expect_str_eq(coordinates("node_prefix:read=", &query_coordinates, ""), "@a @b @c @c-b");
    cr_expect_str_eq(coordinates("node:read=b", &query_coordinates, ""), "@b");
    cr_expect_str_eq(coordinates("node_prefix:read=C node:deny=c-b", &query_coordinates, ""), "@c");
    cr_expect_str_eq(coordinates("service_prefix:write=", &query_coordinates, ""), "");
    cr_expect_str_eq(coordinates("node:read=b", &query_node_coordinates, "B"), "@b");
    cr_expect_str_eq(coordinates("node_prefix:read=c node:deny=c-b", &query_node_coordinates, "c-b"), "denied");
    cr_expect_str_eq(coordinates("node:read=b", &query_node_coordinates, "gone"), "denied",
                     "whether it is there or not");
}

Test(access_coordinates, of_a_service_by_both, .init = setup, .fini = teardown) {
    Pb__ServiceRequest request = PB__SERVICE_REQUEST__INIT;
    line();
    request.service = TEXT("web");
    const struct query_type *type = &query_service_coordinates;
    cr_expect_str_eq(seen("service:read=web node_prefix:read=", type, &request.base), "@a @b @c @c-b");
    cr_expect_str_eq(seen("service:read=web node:read=a", type, &request.base), "@a");
    cr_expect_str_eq(seen("service:read=web", type, &request.base), "");
    cr_expect_str_eq(seen("node_prefix:read=", type, &request.base), "");
}

static const char *may(const char *rules, size_t count) {
    static char missing[256];
    Pb__CoordinateUpdateCommand command = PB__COORDINATE_UPDATE_COMMAND__INIT;
    Pb__Coordinate *updates[] = {coordinate_at(&arena, "a", "", 0.1), coordinate_at(&arena, "c-b", "", 0.1)};
    struct access *access = access_of(rules);
    command.updates = updates, command.n_updates = count;
    int error = fixture_may(&world, access, COORDINATE_UPDATE, &command.base, missing);
    access_release(access);
    return error ? missing : "yes";
}

Test(access_coordinates, an_update_by_node_write_of_all, .init = setup, .fini = teardown) {
    cr_expect_str_eq(may("node:write=a", 1), "yes");
    cr_expect_str_eq(may("node:read=a", 1), "node:write on \"a\"");
    cr_expect_str_eq(may("node:write=a node:write=c-b", 2), "yes");
    cr_expect_str_eq(may("node:write=a node_prefix:write=c node:deny=c-b", 2), "node:write on \"c-b\"");
}

/* -- orders ------------------------------------------------------------------------------------------------------- */

static Pb__NearRequest *near(const char *node, const struct query_type *type, const ProtobufCMessage *message) {
    Pb__NearRequest *request = arena_alloc(&arena, sizeof *request);
    pb__near_request__init(request);
    request->node = TEXT(node);
    cr_assert(near_wrap(request, type, message));
    return request;
}

Test(access_coordinates, an_order_does_not_tell_where_a_hidden_node_is, .init = setup, .fini = teardown) {
    Pb__TableRequest nodes = PB__TABLE_REQUEST__INIT;
    Pb__ServiceRequest entries = PB__SERVICE_REQUEST__INIT;
    Pb__StateRequest state = PB__STATE_REQUEST__INIT;
    line();
    entries.service = TEXT("web"), state.state = TEXT("any");
    const struct {
        const struct query_type *type;
        const ProtobufCMessage *request;
        const char *near, *plain, *other;
    } table[] = {
        {&query_nodes, &nodes.base, "@c-b @b @c @a", "@a @b @c", "@b @c @a"},
        {&query_service_entries, &entries.base, "web@c-b web@b web@c web@a", "web@a web@b web@c", "web@b web@c web@a"},
        {&query_service_checks, &entries.base, "web@c-b web@b web@c web@a", "web@a web@b web@c", "web@b web@c web@a"},
        {&query_state_checks, &state.base, "@c-b web@c-b @b web@b @c web@c @a web@a", "@a web@a @b web@b @c web@c",
         "@b web@b @c web@c @a web@a"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const ProtobufCMessage *at_cb = &near("c-b", table[i].type, table[i].request)->base,
                               *at_b = &near("b", table[i].type, table[i].request)->base,
                               *gone = &near("gone", table[i].type, table[i].request)->base;
        static const char all[] = "service_prefix:read= node_prefix:read=",
                          some[] = "service_prefix:read= node_prefix:read= node:deny=c-b";
        cr_expect_str_eq(seen(all, &query_near, at_cb), table[i].near, "row %zu", i);
        cr_expect_str_eq(seen(some, &query_near, at_cb), table[i].plain, "row %zu: as of a node that is not known", i);
        cr_expect_str_eq(seen(some, &query_near, gone), table[i].plain, "row %zu", i);
        cr_expect_str_eq(seen(some, &query_near, at_b), table[i].other, "row %zu", i);
        cr_expect_str_eq(seen("service_prefix:read=", &query_near, at_b), "", "row %zu", i);
    }
}

/* -- subsets ------------------------------------------------------------------------------------------------------ */

enum { NODES = 6, SERVICES = 4 };

static void random_nodes(struct known_names *known, struct rng *rng) {
    for (int i = 0; i < SERVICES; i++) (void)known_name(known, true, rng, &arena);
    for (int i = 0; i < NODES; i++) {
        const char *name = known_name(known, false, rng, &arena);
        for (int k = 0; k < 2; k++) {
            Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
            Pb__Node node = PB__NODE__INIT;
            Pb__Service service = PB__SERVICE__INIT;
            Pb__Check check = PB__CHECK__INIT, *checks[] = {&check};
            node.name = TEXT(name), node.address = TEXT("10.0.0.1");
            service.name = TEXT(known->names[1][rng_below(rng, SERVICES)]), service.id = TEXT(k ? "i" : "j");
            check.check_id = TEXT(k ? "ci" : "cj"), check.service_id = service.id;
            command.node = &node, command.service = &service, command.checks = checks, command.n_checks = 1;
            cr_assert_eq(fixture_apply(&world, CATALOG_REGISTER, &command.base).error, CO_OK);
        }
        coordinate_put(&world, name, "", (double)(1 + rng_below(rng, 1000)) / 1000);
    }
}

Test(access_coordinates, a_token_sees_exactly_the_rows_that_it_may_read, .fini = teardown) {
    enum { CASES = 7 };
    size_t caught[CASES] = {0};
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct known_names known = {0};
        struct rng rng;
        if (seed > 1) teardown();
        arena = (struct arena){0};
        setup();
        rng_seed(&rng, seed);
        random_nodes(&known, &rng);
        Pb__CoordinatesRequest all = PB__COORDINATES_REQUEST__INIT;
        Pb__TableRequest nodes = PB__TABLE_REQUEST__INIT;
        Pb__ServiceRequest service = PB__SERVICE_REQUEST__INIT;
        Pb__StateRequest state = PB__STATE_REQUEST__INIT;
        service.service = TEXT(known.names[1][0]), state.state = TEXT("any");
        for (int token = 0; token < 40; token++) {
            struct access *access = random_access(&known, &rng);
            const char *from = known.names[0][rng_below(&rng, NODES)];
            bool may = access_allows(access, ACCESS_NODE, slice_text(from), ACCESS_READ);
            if (!may) from = "nobody"; /* the order is another one then; see above */
            const struct {
                const struct query_type *type;
                const ProtobufCMessage *request;
            } cases[CASES] = {{&query_coordinates, &all.base},
                              {&query_service_coordinates, &service.base},
                              {&query_near, &near(from, &query_nodes, &nodes.base)->base},
                              {&query_near, &near(from, &query_service_entries, &service.base)->base},
                              {&query_near, &near(from, &query_service_checks, &service.base)->base},
                              {&query_near, &near(from, &query_state_checks, &state.base)->base},
                              {&query_nodes, &nodes.base}};
            for (size_t i = 0; i < CASES; i++) {
                struct arena scratch = {0};
                const char *fault =
                    answer_fault(&world, &known, access, cases[i].type, cases[i].request, false, &scratch);
                cr_expect_null(fault, "seed %d token %d: %s", (int)seed, token, fault);
                caught[i] +=
                    answer_fault(&world, &known, access, cases[i].type, cases[i].request, true, &scratch) != NULL;
                arena_free(&scratch);
            }
            access_release(access);
        }
    }
    for (size_t i = 0; i < CASES; i++) cr_expect_geq(caught[i], 20, "case %zu: the judge noticed little", i);
}
