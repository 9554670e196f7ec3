/* self-preservation in the state machine: what counts, what comes back into answers, when that is over. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "leases.h"
#include "registry/expiry.h"
#include "registry/self_preservation.h"

enum { NODES = 100, TTL_MS = 10000 }; /* of leases.c */

static struct fixture world;
static Pb__PreservationOrder order;
static unsigned leases[NODES]; /* the node's present lease; 0: none */
static unsigned next_lease;

static const char *node_name(unsigned node) {
    static char text[4][16];
    static unsigned turn;
    char *to = text[turn++ % 4];
    snprintf(to, sizeof text[0], "n%02u", node);
    return to;
}

static void grant(unsigned node) {
    char id[UUID_TEXT_SIZE + 1];
    leases[node] = ++next_lease;
    lease_uuid(leases[node], id);
    cr_assert(lease_grant(&world, id, node_name(node), 1000 + node).yes);
}

static void expire_of(unsigned node, uint64_t term, const Pb__PreservationOrder *preservation) {
    Pb__LeaseEndCommand command = PB__LEASE_END_COMMAND__INIT;
    char id[UUID_TEXT_SIZE + 1];
    lease_uuid(leases[node], id);
    command.id = id, command.term = term;
    command.preservation = (Pb__PreservationOrder *)(uintptr_t)preservation;
    cr_assert(fixture_apply(&world, LEASE_END, &command.base).yes);
    leases[node] = 0;
}

static void expire(unsigned node, uint64_t at_ms) {
    order.at_ms = at_ms;
    expire_of(node, world.term, &order);
}

static void put(unsigned node, const char *service, const char *id, const char *check, Pb__Status status) {
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node record = PB__NODE__INIT;
    Pb__Service instance = PB__SERVICE__INIT;
    Pb__Check own = PB__CHECK__INIT, *checks[] = {&own};
    char address[] = "127.0.0.1";
    record.name = (char *)(uintptr_t)node_name(node);
    record.address = address;
    command.node = &record;
    command.skip_node_update = true;
    instance.name = (char *)(uintptr_t)service;
    instance.id = (char *)(uintptr_t)id;
    command.service = &instance;
    own.check_id = (char *)(uintptr_t)check;
    own.service_id = instance.id;
    own.status = status;
    command.checks = checks;
    command.n_checks = check ? 1 : 0;
    cr_assert(fixture_apply(&world, CATALOG_REGISTER, &command.base).yes);
}

static void take(unsigned node, const char *id) {
    Pb__DeregisterCommand command = PB__DEREGISTER_COMMAND__INIT;
    command.node = (char *)(uintptr_t)node_name(node);
    command.service_id = (char *)(uintptr_t)id;
    cr_assert(fixture_apply(&world, CATALOG_DEREGISTER, &command.base).yes);
}

/* Nodes from first to end, alive, with one instance each. */
static void nodes_with(unsigned first, unsigned end, const char *service) {
    for (unsigned i = first; i < end; i++) {
        if (!leases[i]) {
            cr_assert(
                lease_register(&world, &(struct registration){.node = node_name(i), .node_id = 1000 + i, .alive = true})
                    .yes);
            grant(i);
        }
        put(i, service, service, NULL, PB__STATUS__PASSING);
    }
}

static void setup(void) {
    leases_open(&world);
    memset(leases, 0, sizeof leases);
    next_lease = 0;
    pb__preservation_order__init(&order);
    order.percent = 85, order.instances = 10, order.nodes = 3, order.window_ms = 15000, order.hold_ms = 60000;
    order.unix_ms = 1700000000000;
}

static void teardown(void) {
    store_read_done(world.reader);
    struct store_txn *txn = store_read(world.reader);
    cr_expect_eq(store_sum(txn), store_scrub(txn));
    store_read_done(world.reader);
    fixture_close(&world);
}

struct seen {
    unsigned passing, held;
    uint64_t index;
};

/* The passing instances, with or without the held ones. */
static struct seen look(const char *service, bool held) {
    Pb__ServiceRequest request = PB__SERVICE_REQUEST__INIT;
    request.service = (char *)(uintptr_t)service;
    request.passing_only = true;
    request.held = held;
    struct query_result result = fixture_ask(&world, &query_service_entries, &request.base);
    const Pb__ServiceEntriesResult *entries = (const Pb__ServiceEntriesResult *)result.message;
    struct seen seen = {.passing = (unsigned)entries->n_entries, .index = result.index};
    for (size_t i = 0; i < entries->n_entries; i++) seen.held += entries->entries[i]->held;
    return seen;
}

#define expect_answers(service, passing_wanted, held_wanted)                                                    \
    do {                                                                                                        \
        struct seen seen_ = look(service, true);                                                                \
        cr_expect(seen_.passing == (passing_wanted) && seen_.held == (held_wanted), "%u pass, %u of them held", \
                  seen_.passing, seen_.held);                                                                   \
    } while (0)

static Pb__HeldService *held_record(const char *service) {
    store_read_done(world.reader);
    Pb__HeldService *held;
    cr_assert_eq(preservation_held(store_read(world.reader), slice_text(service), &world.arena, &held), CO_OK);
    store_read_done(world.reader);
    return held;
}

static uint64_t held_count(void) {
    store_read_done(world.reader);
    uint64_t count = preservation_count(store_read(world.reader));
    store_read_done(world.reader);
    return count;
}

static struct outcome release(const char *service, uint64_t index, uint64_t term) {
    Pb__PreservationReleaseCommand command = PB__PRESERVATION_RELEASE_COMMAND__INIT;
    command.service = (char *)(uintptr_t)service;
    command.index = index, command.term = term;
    return fixture_apply(&world, PRESERVATION_RELEASE, &command.base);
}

/* The news of held services since the last call: "web+ api- ". */
static const char *news(void) {
    static char text[200];
    text[0] = '\0';
    for (struct expiry_update *item = expiry_updates_take(world.updates), *next; item; item = next) {
        next = item->next;
        if (item->kind == &held_service_expiry)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%c ", item->name, item->ended ? '-' : '+');
        free(item);
    }
    return text;
}

/* -- acting ------------------------------------------------------------------------------------------------------- */

Test(preservation, most_of_a_service_comes_back_marked_until_the_hold_is_over, .init = setup, .fini = teardown) {
    nodes_with(0, 12, "web");
    for (unsigned i = 0; i < 10; i++) expire(i, 1000 + i);
    expect_answers("web", 2u, 0u); /* 83 % */
    cr_expect_str_eq(news(), "");
    expire(10, 1010);
    expect_answers("web", 12u, 11u);
    cr_expect_str_eq(news(), "web+ ");
    cr_expect_eq(look("web", false).passing, 1, "the catalog tells the truth");
    cr_expect_str_eq(node_state(&world, "n00"), "serfHealth=critical ");
    cr_expect_eq(held_count(), 1);
    expire(11, 5000);
    expect_answers("web", 12u, 12u);
    cr_expect_eq(look("web", false).passing, 0);
    fixture_reopen(&world);
    expect_answers("web", 12u, 12u);
    uint64_t since = held_record("web")->index, before = look("web", true).index;
    cr_expect_not(release("web", since - 1, world.term).yes, "of another time");
    cr_expect_eq(release("web", since, world.term + 1).error, CO_CONFLICT);
    cr_expect_not(release("api", since, world.term).yes);
    cr_expect_eq(look("web", true).index, before, "nothing changed, nobody wakes");
    uint64_t ended = release("web", since, world.term).index;
    expect_answers("web", 0u, 0u);
    cr_expect_eq(look("web", true).index, ended, "who watches wakes");
    cr_expect_str_eq(news(), "web- ");
    cr_expect_eq(held_count(), 0);
    cr_expect_not(release("web", since, world.term).yes);
}

Test(preservation, an_instance_that_was_held_counts_for_no_other, .init = setup, .fini = teardown) {
    nodes_with(0, 12, "web");
    for (unsigned i = 0; i < 11; i++) expire(i, 1000);
    cr_assert(release("web", held_record("web")->index, world.term).yes);
    expire(11, 1001); /* the only one that was left: 1 of 1, but few */
    expect_answers("web", 0u, 0u);
    for (unsigned i = 0; i < 12; i++) grant(i);
    expect_answers("web", 12u, 0u);
    for (unsigned i = 0; i < 11; i++) expire(i, 2000);
    expect_answers("web", 12u, 11u); /* all came back: a time of its own */
    cr_assert(release("web", held_record("web")->index, world.term).yes);
    nodes_with(20, 40, "web");
    for (unsigned i = 20; i < 40; i++) expire(i, 2000); /* in the same millisecond */
    expect_answers("web", 21u, 20u);
}

Test(preservation, few_instances_few_nodes_or_slow_losses_are_let_go, .init = setup, .fini = teardown) {
    nodes_with(0, 9, "nine");
    nodes_with(10, 12, "two-nodes");
    static const char *const more[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    for (unsigned i = 0; i < 9; i++) put(10 + i % 2, "two-nodes", more[i], NULL, PB__STATUS__PASSING);
    nodes_with(20, 40, "slow");
    for (unsigned i = 0; i < 12; i++)
        if (leases[i]) expire(i, 1000);
    expect_answers("nine", 0u, 0u);
    expect_answers("two-nodes", 0u, 0u);
    for (unsigned i = 20; i < 40; i++) expire(i, 2000 + 1700 * (i - 20)); /* nine in the window, at every time */
    expect_answers("slow", 0u, 0u);
    cr_expect_eq(held_count(), 0);
}

Test(preservation, the_window_includes_its_ends, .init = setup, .fini = teardown) {
    nodes_with(0, 10, "in");
    nodes_with(20, 30, "out");
    expire(0, 1000);
    expire(20, 1000);
    for (unsigned i = 1; i < 9; i++) expire(i, 9000), expire(20 + i, 9000);
    expire(9, 16000);
    expect_answers("in", 10u, 10u);
    expire(29, 16001);
    expect_answers("out", 0u, 0u);
}

Test(preservation, several_instances_on_a_node_all_count, .init = setup, .fini = teardown) {
    nodes_with(0, 3, "web");
    static const char *const more[] = {"b", "c", "d"};
    for (unsigned i = 0; i < 9; i++) put(i / 3, "web", more[i % 3], NULL, PB__STATUS__PASSING);
    for (unsigned i = 0; i < 3; i++) expire(i, 1000);
    expect_answers("web", 12u, 12u);
    take(0, "b");
    expect_answers("web", 11u, 11u);
}

Test(preservation, those_dead_for_long_are_not_part_of_the_service, .init = setup, .fini = teardown) {
    nodes_with(0, 40, "web");
    for (unsigned i = 20; i < 40; i++) expire(i, 1000 + 2000 * i);
    expect_answers("web", 20u, 0u);
    for (unsigned i = 0; i < 17; i++) expire(i, 200000);
    expect_answers("web", 20u, 17u); /* 17 of 20 */
}

Test(preservation, the_settings_come_with_the_command, .init = setup, .fini = teardown) {
    nodes_with(0, 4, "web");
    nodes_with(10, 30, "off");
    order.hold_ms = 0;
    for (unsigned i = 10; i < 30; i++) expire(i, 1000);
    expect_answers("off", 0u, 0u);
    order = (Pb__PreservationOrder){
        .base = order.base, .percent = 50, .instances = 2, .nodes = 2, .window_ms = 100, .hold_ms = 5000};
    expire(0, 2000);
    expire(1, 2101);
    expect_answers("web", 2u, 0u);
    expire(2, 2201);
    expect_answers("web", 3u, 2u); /* 2 of 3: the first left the window */
    cr_expect_eq(held_record("web")->hold_ms, 5000);
}

/* -- what is real news -------------------------------------------------------------------------------------------- */

static void hold_twelve(void) {
    nodes_with(0, 12, "web");
    for (unsigned i = 0; i < 12; i++) put(i, "web", "web", "c", PB__STATUS__PASSING);
    for (unsigned i = 0; i < 12; i++) expire(i, 1000);
    expect_answers("web", 12u, 12u);
    (void)news();
}

Test(preservation, what_somebody_says_about_an_instance_counts, .init = setup, .fini = teardown) {
    hold_twelve();
    put(0, "web", "web", "c", PB__STATUS__CRITICAL);
    expect_answers("web", 11u, 11u);
    put(0, "web", "web", "c", PB__STATUS__PASSING);
    expect_answers("web", 12u, 12u);
    take(1, "web");
    expect_answers("web", 11u, 11u);
    grant(2);
    expect_answers("web", 11u, 10u);
    put(3, "api", "web", NULL, PB__STATUS__PASSING); /* another name */
    expect_answers("web", 10u, 9u);
    expect_answers("api", 0u, 0u);
    lease_register(&world, &(struct registration){.node = "n04", .node_id = 1004, .skip = true, .alive = true});
    expect_answers("web", 10u, 8u); /* somebody says that it lives */
    cr_expect_eq(held_record("web")->instances, 9);
    expire(2, 90000);
    expect_answers("web", 10u, 9u);
    cr_expect_str_eq(news(), "");
}

Test(preservation, it_is_over_when_nothing_is_lost_any_more, .init = setup, .fini = teardown) {
    hold_twelve();
    for (unsigned i = 0; i < 6; i++) grant(i);
    for (unsigned i = 6; i < 11; i++) take(i, "web");
    cr_expect_str_eq(news(), "");
    struct outcome gone = check_deregister(&world, "n11", "serfHealth");
    cr_assert(gone.error == CO_OK);
    cr_assert(node_remove(&world, "n11").error == CO_OK);
    cr_expect_str_eq(news(), "web- ");
    cr_expect_eq(held_count(), 0);
    cr_expect_null(held_record("web"));
    expect_answers("web", 6u, 0u);
}

Test(preservation, who_leaves_or_is_ended_by_an_operator_is_no_loss, .init = setup, .fini = teardown) {
    char id[UUID_TEXT_SIZE + 1];
    nodes_with(0, 12, "left");
    for (unsigned i = 0; i < 12; i++) {
        lease_uuid(leases[i], id);
        cr_assert(lease_leave(&world, id).yes);
    }
    nodes_with(20, 32, "ended");
    for (unsigned i = 20; i < 32; i++) expire_of(i, 0, &order);
    nodes_with(40, 52, "old"); /* a leader that says nothing of it */
    for (unsigned i = 40; i < 52; i++) expire_of(i, world.term, NULL);
    nodes_with(60, 72, "dead-already");
    for (unsigned i = 60; i < 72; i++) check_register(&world, node_name(i), "serfHealth", PB__STATUS__CRITICAL);
    for (unsigned i = 60; i < 72; i++) expire(i, 1000);
    expect_answers("left", 0u, 0u);
    expect_answers("ended", 0u, 0u);
    expect_answers("old", 0u, 0u);
    expect_answers("dead-already", 0u, 0u);
    cr_expect_eq(held_count(), 0);
}

/* -- time --------------------------------------------------------------------------------------------------------- */

/* The rest expires when `term` has another leader, whose clock says 50, and the wall clock `passed_ms` more. */
static void rest_expires_later(unsigned first, unsigned end, uint64_t term, int64_t passed_ms) {
    world.term = term;
    order.unix_ms += passed_ms;
    for (unsigned i = first; i < end; i++) expire(i, 50);
}

Test(preservation, across_a_change_of_leader_the_wall_clock_counts, .init = setup, .fini = teardown) {
    static const struct {
        const char *service;
        int64_t passed_ms;
        unsigned passing;
    } cases[] = {{"same", 0, 12},
                 {"back", -3600000, 12},
                 {"soon", 3000, 12},
                 {"last", TTL_MS + 15000, 12},
                 {"late", TTL_MS + 15001, 1},
                 {"day", INT64_C(400) * 86400000, 1}};
    uint64_t term = 1;
    for (unsigned i = 0; i < ARRAY_COUNT(cases); i++) {
        unsigned first = i * 12;
        world.term = ++term;
        nodes_with(first, first + 12, cases[i].service);
        for (unsigned node = first; node < first + 6; node++) expire(node, 1000000);
        rest_expires_later(first + 6, first + 11, ++term, cases[i].passed_ms);
        struct seen seen = look(cases[i].service, true);
        cr_expect(seen.passing == cases[i].passing, "%s: %u", cases[i].service, seen.passing);
        cr_expect(seen.held == cases[i].passing - 1, "%s: %u held", cases[i].service, seen.held);
    }
}

/* Within the new term its own clock counts again, whatever the wall clock says. */
Test(preservation, and_its_own_clock_within_a_term, .init = setup, .fini = teardown) {
    nodes_with(0, 12, "slow");
    for (unsigned i = 0; i < 6; i++) expire(i, 100);
    world.term = 3;
    expire(6, 7000000);
    for (unsigned i = 7; i < 12; i++) expire(i, 7015001);
    expect_answers("slow", 0u, 0u);
    nodes_with(40, 52, "later");
    for (unsigned i = 40; i < 46; i++) expire(i, 7020000);
    order.unix_ms += 90000000;
    for (unsigned i = 46; i < 51; i++) expire(i, 7030000);
    expect_answers("later", 12u, 11u);
}

Test(preservation, a_new_leader_holds_for_what_is_left_of_it, .init = setup, .fini = teardown) {
    hold_twelve();
    struct {
        int64_t unix_ms;
        uint64_t due_ms;
    } const cases[] = {/* never longer than it is */
                       {order.unix_ms + 20000, 40000},
                       {order.unix_ms + 70000, 0},
                       {order.unix_ms - 3600000, 60000}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct expiry *timers = expiry_new();
        expiry_lead(timers, 2, 1000);
        store_read_done(world.reader);
        struct expiry_leader leader = {.term = 2, .now_ms = 1000, .unix_ms = cases[i].unix_ms};
        cr_assert_eq(held_service_expiry.read(store_read(world.reader), &leader, timers), CO_OK);
        store_read_done(world.reader);
        cr_assert_eq(expiry_count(timers, &held_service_expiry), 1);
        uint64_t left_ms;
        int64_t ignored;
        cr_assert_eq(expiry_left(timers, &held_service_expiry, slice_text("web"), 1000, &left_ms, &ignored), CO_OK);
        cr_expect_eq(left_ms, cases[i].due_ms, "%zu: %llu", i, (unsigned long long)left_ms);
        expiry_free(timers);
    }
}

/* -- against a model ---------------------------------------------------------------------------------------------- */

enum { MODEL_NODES = 14, MODEL_IDS = 2, MODEL_WINDOW = 2000 };

static struct {
    bool there, lost, recent, held;
    uint64_t at_ms;
} model[MODEL_NODES][MODEL_IDS];
static bool model_holds, node_lives[MODEL_NODES];

static void model_forget(unsigned node, unsigned id) {
    model[node][id].lost = model[node][id].recent = model[node][id].held = false;
    bool any = false;
    for (unsigned i = 0; i < MODEL_NODES * MODEL_IDS; i++) any |= model[i / MODEL_IDS][i % MODEL_IDS].held;
    if (!any) model_holds = false;
}

static void model_lose(unsigned node, uint64_t now_ms) {
    unsigned all = 0, dead = 0, recent = 0, nodes = 0;
    if (!model[node][0].there && !model[node][1].there) return;
    for (unsigned id = 0; id < MODEL_IDS; id++) {
        if (!model[node][id].there) continue;
        model[node][id].lost = true;
        model[node][id].at_ms = now_ms;
        model[node][id].held = model_holds;
        model[node][id].recent = !model_holds;
    }
    for (unsigned i = 0; i < MODEL_NODES; i++) {
        bool any = false;
        for (unsigned id = 0; id < MODEL_IDS; id++) {
            if (model[i][id].recent && model[i][id].at_ms + MODEL_WINDOW < now_ms) model[i][id].recent = false;
            all += model[i][id].there, recent += model[i][id].recent, any |= model[i][id].recent;
            dead += model[i][id].lost && !model[i][id].recent;
        }
        nodes += any;
    }
    if (model_holds || recent < 4 || nodes < 3 || recent * 100 < (all - dead) * 50) return;
    model_holds = true;
    for (unsigned i = 0; i < MODEL_NODES * MODEL_IDS; i++) {
        if (!model[i / MODEL_IDS][i % MODEL_IDS].recent) continue;
        model[i / MODEL_IDS][i % MODEL_IDS].held = true, model[i / MODEL_IDS][i % MODEL_IDS].recent = false;
    }
}

static void model_expect(unsigned step) {
    unsigned passing = 0, held = 0;
    for (unsigned i = 0; i < MODEL_NODES; i++)
        for (unsigned id = 0; id < MODEL_IDS; id++) {
            bool shown = model[i][id].there && (node_lives[i] || model[i][id].held);
            passing += shown, held += shown && !node_lives[i];
        }
    struct seen seen = look("web", true);
    cr_assert(seen.passing == passing && seen.held == held, "step %u: %u/%u, the model has %u/%u", step, seen.passing,
              seen.held, passing, held);
    cr_assert_eq(held_count(), model_holds, "step %u: %u held, %llu services", step, held,
                 (unsigned long long)held_count());
}

Test(preservation, as_a_model_counts, .init = setup, .fini = teardown, .timeout = 300) {
    static const char *const ids[] = {"a", "b"};
    uint64_t now_ms = 1000, state = 4711;
    unsigned acted = 0;
    order.percent = 50, order.instances = 4, order.nodes = 3, order.window_ms = MODEL_WINDOW;
    memset(model, 0, sizeof model);
    memset(node_lives, 0, sizeof node_lives);
    model_holds = false;
    for (unsigned i = 0; i < MODEL_NODES; i++) {
        nodes_with(i, i + 1, "other");
        take(i, "other");
        node_lives[i] = true;
    }
    for (unsigned step = 0; step < 2500; step++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        unsigned pick = (unsigned)(state >> 33), node = pick % MODEL_NODES, id = pick / 16 % MODEL_IDS,
                 what = pick / 64 % 100;
        bool held_before = model_holds;
        now_ms += pick / 8192 % 200;
        if (what < 35 && node_lives[node]) {
            expire(node, now_ms);
            node_lives[node] = false;
            model_lose(node, now_ms);
        } else if (what < 60 && !node_lives[node]) {
            grant(node);
            node_lives[node] = true;
            for (unsigned i = 0; i < MODEL_IDS; i++) model_forget(node, i);
        } else if (what < 85) {
            put(node, "web", ids[id], NULL, PB__STATUS__PASSING); /* again, or on a dead node: it is no loss */
            model[node][id].there = true;
        } else if (what < 95) {
            take(node, ids[id]);
            model[node][id].there = false;
            model_forget(node, id);
        } else if (model_holds) {
            cr_assert(release("web", held_record("web")->index, world.term).yes);
            for (unsigned i = 0; i < MODEL_NODES * MODEL_IDS; i++) model[i / MODEL_IDS][i % MODEL_IDS].held = false;
            model_holds = false;
        }
        acted += model_holds && !held_before;
        model_expect(step);
    }
    cr_expect_gt(acted, 10, "%u", acted);
}
