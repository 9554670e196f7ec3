/* Names without regard to case (registry/fold.h): what hangs on nodes, services and checks by their names. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "leases.h"
#include "registry/catalog_records.h"
#include "registry/self_preservation.h"

static struct fixture world;

static void setup(void) { leases_open(&world); }

static void teardown(void) {
    (void)fixture_sum(&world);
    fixture_close(&world);
}

static size_t sessions_of(const char *node) {
    struct query_result result = session_list(&world, node);
    return ((const Pb__SessionsResult *)result.message)->n_sessions;
}

static uint64_t sessions_index(const char *node) { return session_list(&world, node).index; }

static void make(unsigned number, const char *node, const char *check) {
    char id[UUID_TEXT_SIZE + 1];
    session_id(number, id);
    struct outcome outcome = session_make(&world, id, &(struct session_plan){.node = node, .node_check = check});
    cr_assert(outcome.yes, "%s", outcome.text);
}

/* -- sessions ----------------------------------------------------------------------------------------------------- */

Test(fold_sessions, are_bound_to_nodes_and_checks_in_any_case, .init = setup, .fini = teardown) {
    cr_assert(node_register(&world, "carl").yes);
    cr_assert(check_register(&world, "carl", "Up", PB__STATUS__PASSING).yes);
    make(1, "CARL", "uP");
    make(2, "carl", NULL);
    cr_expect_eq(sessions_of("Carl"), 2);
    cr_expect_eq(sessions_of("car"), 0);
    struct outcome critical = check_register(&world, "Carl", "UP", PB__STATUS__CRITICAL);
    cr_expect_eq(sessions_of("carl"), 1, "its check is critical, in whatever case");
    cr_expect_eq(sessions_index("cARL"), critical.index);
    char id[UUID_TEXT_SIZE + 1];
    session_id(3, id);
    cr_expect_not(session_make(&world, id, &(struct session_plan){.node = "carl", .node_check = "up"}).yes);
    cr_assert(node_remove(&world, "cARL").yes);
    cr_expect_eq(sessions_of("carl"), 0);
}

/* -- leases ------------------------------------------------------------------------------------------------------- */

#define ONE "00000001-1ea5-4000-8000-000000000000"
#define TWO "00000002-1ea5-4000-8000-000000000000"

Test(fold_leases, things_bound_in_one_case_go_in_another, .init = setup, .fini = teardown) {
    cr_assert(lease_grant(&world, ONE, NULL, 0).yes);
    cr_assert(lease_grant(&world, TWO, NULL, 0).yes);
    cr_assert(lease_register(&world, &(struct registration){.node = "Carl"}).yes);
    cr_assert(
        lease_register(&world, &(struct registration){.node = "Carl", .service = "Web", .lease = ONE, .skip = true})
            .yes);
    cr_expect_str_eq(lease_holds(&world, ONE), "service Carl/Web; ");
    cr_assert(
        lease_register(&world, &(struct registration){.node = "carl", .service = "web", .lease = ONE, .skip = true})
            .yes);
    cr_expect_str_eq(lease_holds(&world, ONE), "service carl/web; ", "as it was written last, once");
    cr_assert(
        lease_register(&world, &(struct registration){.node = "CARL", .service = "WEB", .lease = TWO, .skip = true})
            .yes);
    cr_expect_str_eq(lease_holds(&world, ONE), "");
    cr_expect_str_eq(lease_holds(&world, TWO), "service CARL/WEB; ");
    cr_assert(lease_register(&world, &(struct registration){.node = "CARL", .lease = ONE}).yes);
    cr_expect_str_eq(lease_holds(&world, ONE), "node CARL; ");
    cr_assert(lease_revoke(&world, TWO).yes);
    Pb__ServiceRequest request = PB__SERVICE_REQUEST__INIT;
    request.service = (char *)(uintptr_t) "web";
    struct query_result left = fixture_ask(&world, &query_service_entries, &request.base);
    cr_expect_eq(((const Pb__ServiceEntriesResult *)left.message)->n_entries, 0);
    cr_assert(lease_revoke(&world, ONE).yes);
    cr_expect_str_eq(node_state(&world, "carl"), "gone");
}

Test(fold_leases, a_node_lives_and_dies_in_any_case, .init = setup, .fini = teardown) {
    cr_assert(lease_register(&world, &(struct registration){.node = "carl", .node_id = 7, .alive = true}).yes);
    cr_assert(lease_grant(&world, ONE, "CARL", 7).yes);
    cr_assert(lease_expire(&world, ONE, world.term).yes);
    cr_expect_str_eq(node_state(&world, "carl"), "serfHealth=critical ");
    cr_expect_str_eq(dead_nodes(&world), "CARL ");
    cr_assert(lease_grant(&world, TWO, "Carl", 7).yes);
    cr_expect_str_eq(node_state(&world, "CARL"), "serfHealth=passing ");
    cr_expect_str_eq(dead_nodes(&world), "");
    cr_assert(lease_leave(&world, TWO).yes);
    cr_expect_str_eq(node_state(&world, "carl"), "gone");
}

/* -- self-preservation ---------------------------------------------------------------------------------------------------- */

enum { NODES = 12, TTL_MS = 10000 };

static void preservation_node(unsigned node, const char *word, const char *service, const char *id) {
    char lease[UUID_TEXT_SIZE + 1], name[16];
    snprintf(name, sizeof name, "%s%02u", word, node);
    lease_uuid(100 + node, lease);
    cr_assert(lease_register(&world, &(struct registration){.node = name, .node_id = 1000 + node, .alive = true}).yes);
    cr_assert(lease_grant(&world, lease, name, 1000 + node).yes);
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node record = PB__NODE__INIT;
    Pb__Service instance = PB__SERVICE__INIT;
    record.name = name, command.node = &record, command.skip_node_update = true;
    instance.name = (char *)(uintptr_t)service, instance.id = (char *)(uintptr_t)id;
    command.service = &instance;
    cr_assert(fixture_apply(&world, CATALOG_REGISTER, &command.base).yes);
}

static void preservation_expire(unsigned node, uint64_t at_ms) {
    Pb__LeaseEndCommand command = PB__LEASE_END_COMMAND__INIT;
    Pb__PreservationOrder order = PB__PRESERVATION_ORDER__INIT;
    char lease[UUID_TEXT_SIZE + 1];
    lease_uuid(100 + node, lease);
    order.percent = 85, order.instances = 10, order.nodes = 3, order.window_ms = 15000, order.hold_ms = 60000;
    order.unix_ms = 1700000000000, order.at_ms = at_ms;
    command.id = lease, command.term = world.term, command.preservation = &order;
    cr_assert(fixture_apply(&world, LEASE_END, &command.base).yes);
}

struct seen {
    unsigned passing, held;
};

static struct seen look(const char *service) {
    Pb__ServiceRequest request = PB__SERVICE_REQUEST__INIT;
    request.service = (char *)(uintptr_t)service;
    request.passing_only = request.held = true;
    struct query_result result = fixture_ask(&world, &query_service_entries, &request.base);
    const Pb__ServiceEntriesResult *entries = (const Pb__ServiceEntriesResult *)result.message;
    struct seen seen = {.passing = (unsigned)entries->n_entries};
    for (size_t i = 0; i < entries->n_entries; i++) seen.held += entries->entries[i]->held;
    return seen;
}

#define expect_held(service, passing_, held_)                                                                 \
    do {                                                                                                      \
        struct seen seen_ = look(service);                                                                    \
        cr_expect(seen_.passing == (passing_) && seen_.held == (held_), "%u, %u", seen_.passing, seen_.held); \
    } while (0)

static uint64_t held_since(const char *service) {
    Pb__HeldService *held;
    store_read_done(world.reader);
    cr_assert_eq(preservation_held(store_read(world.reader), slice_text(service), &world.arena, &held), CO_OK);
    uint64_t index = held ? held->index : 0;
    store_read_done(world.reader);
    return index;
}

static size_t preservation_rows(void) {
    store_read_done(world.reader);
    size_t count = store_count(store_read(world.reader), TABLE_PRESERVATION);
    store_read_done(world.reader);
    return count;
}

static void all_back(void) {
    for (unsigned i = 0; i < NODES; i++) {
        char lease[UUID_TEXT_SIZE + 1], name[16];
        lease_uuid(200 + i, lease);
        snprintf(name, sizeof name, "nODE%02u", i);
        cr_assert(lease_grant(&world, lease, name, 1000 + i).yes);
    }
    cr_expect_eq(preservation_rows(), 1, "nothing but its clock is left");
}

Test(fold_preservation, counts_a_service_in_all_its_spellings, .init = setup, .fini = teardown) {
    for (unsigned i = 0; i < NODES; i++)
        preservation_node(i, i % 2 ? "Node" : "node", i % 3 ? "Web" : "web", i % 2 ? "W" : "w");
    for (unsigned i = 0; i < 11; i++) preservation_expire(i, 1000 + i);
    expect_held("WEB", 12u, 11u);
    Pb__PreservationReleaseCommand command = PB__PRESERVATION_RELEASE_COMMAND__INIT;
    command.service = (char *)(uintptr_t) "wEB";
    command.index = held_since("web"), command.term = world.term;
    cr_expect(fixture_apply(&world, PRESERVATION_RELEASE, &command.base).yes);
    expect_held("web", 1u, 0u);
    all_back();
}
