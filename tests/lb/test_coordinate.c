/* Coordinates in the replicated state: what is stored, what is passed over, what goes with its node, and who is
 * woken. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#include "base/check.h"
#include "coordinates.h"
#include "lb/near.h"
#include "registry/fold.h"

static struct fixture world;
static void setup(void) {
    fixture_open(&world);
    cr_assert_eq(node_add(&world, "a").error, CO_OK);
    cr_assert_eq(node_add(&world, "b").error, CO_OK);
    cr_assert_eq(node_add(&world, "ab").error, CO_OK);
}
static void teardown(void) { fixture_close(&world); }

#define cr_expect_text(result, wanted)                                                        \
    do {                                                                                      \
        struct query_result shown_ = (result);                                                \
        cr_expect_str_eq(coordinates_text(&shown_), wanted, "%s", coordinates_text(&shown_)); \
    } while (0)

Test(coordinate, updates_replace_and_are_found, .init = setup, .fini = teardown) {
    cr_expect_eq(coordinates_all(&world).index, 0);
    struct outcome first = coordinate_put(&world, "b", "", 0.5);
    cr_expect(first.error == CO_OK && first.yes);
    struct outcome second = coordinate_put(&world, "a", "", 0.25), third = coordinate_put(&world, "a", "west", 0.125);
    cr_expect_text(coordinates_all(&world), "a:=0.25 a:west=0.125 b:=0.5");
    cr_expect_eq(coordinates_all(&world).index, third.index);
    cr_expect_text(coordinates_of(&world, "a"), "a:=0.25 a:west=0.125");
    cr_expect_eq(coordinates_of(&world, "a").index, third.index);
    cr_expect_eq(coordinates_of(&world, "b").index, first.index, "each node has its own index");
    cr_expect(second.index < third.index);
    struct outcome again = coordinate_put(&world, "a", "", 0.75);
    cr_expect_text(coordinates_of(&world, "a"), "a:=0.75 a:west=0.125");
    cr_expect_eq(coordinates_of(&world, "a").index, again.index);
    cr_expect_not(coordinates_of(&world, "ab").found);
    cr_expect_not(coordinates_of(&world, "nobody").found);
}

Test(coordinate, what_changes_nothing_changes_no_index, .init = setup, .fini = teardown) {
    uint64_t index = coordinate_put(&world, "a", "", 0.5).index;
    cr_expect(coordinate_put(&world, "a", "", 0.5).yes);
    cr_expect_eq(coordinates_all(&world).index, index);
    cr_expect(coordinate_put(&world, "nobody", "", 0.5).yes, "an unknown node is passed over");
    cr_expect_eq(coordinates_all(&world).index, index);
    cr_expect_text(coordinates_all(&world), "a:=0.5");
}

Test(coordinate, one_segment_can_be_asked_for, .init = setup, .fini = teardown) {
    coordinate_put(&world, "a", "", 1), coordinate_put(&world, "a", "west", 2), coordinate_put(&world, "b", "west", 3);
    Pb__CoordinatesRequest request = PB__COORDINATES_REQUEST__INIT;
    request.by_segment = true, request.segment = "west";
    cr_expect_text(fixture_ask(&world, &query_coordinates, &request.base), "a:west=2 b:west=3");
    request.segment = "";
    cr_expect_text(fixture_ask(&world, &query_coordinates, &request.base), "a:=1");
    request.node = "b";
    cr_expect_not(fixture_ask(&world, &query_node_coordinates, &request.base).found);
}

Test(coordinate, they_go_with_their_node, .init = setup, .fini = teardown) {
    coordinate_put(&world, "a", "", 1), coordinate_put(&world, "a", "west", 2), coordinate_put(&world, "ab", "", 3);
    uint64_t of_ab = coordinates_of(&world, "ab").index;
    struct outcome removed = node_remove(&world, "a");
    cr_expect_text(coordinates_all(&world), "ab:=3");
    cr_expect_eq(coordinates_all(&world).index, removed.index);
    struct query_result gone = coordinates_of(&world, "a");
    cr_expect(!gone.found && gone.index == removed.index, "who waits for it hears that it is gone");
    cr_expect_eq(coordinates_of(&world, "ab").index, of_ab);
    cr_expect(node_remove(&world, "b").yes);
    cr_expect_eq(coordinates_all(&world).index, removed.index, "b had none");
    store_read_done(world.reader);
    struct store_txn *txn = store_read(world.reader);
    cr_expect_eq(store_sum(txn), store_scrub(txn));
}

Test(coordinate, nodes_are_found_in_any_case, .init = setup, .fini = teardown) {
    cr_assert(node_add(&world, "Near").yes);
    coordinate_put(&world, "Near", "", 0.5);
    coordinate_put(&world, "a", "", 1), coordinate_put(&world, "b", "", 0.75);
    cr_expect_text(coordinates_of(&world, "NEAR"), "Near:=0.5");
    cr_expect(coordinate_put(&world, "nEAR", "", 0.625).yes);
    cr_expect_text(coordinates_of(&world, "near"), "nEAR:=0.625");
    Pb__NearRequest near = PB__NEAR_REQUEST__INIT;
    Pb__TableRequest nodes = PB__TABLE_REQUEST__INIT;
    near.node = "NEAR";
    cr_assert(near_wrap(&near, &query_nodes, &nodes.base));
    struct query_result sorted = fixture_ask(&world, &query_near, &near.base);
    const Pb__NodesResult *found = (const Pb__NodesResult *)sorted.message;
    cr_assert_eq(found->n_nodes, 4);
    cr_expect_str_eq(found->nodes[0]->name, "Near");
    cr_expect_str_eq(found->nodes[1]->name, "b");
    cr_expect(node_remove(&world, "nEaR").yes);
    cr_expect_text(coordinates_all(&world), "a:=1 b:=0.75");
    store_read_done(world.reader);
    struct store_txn *txn = store_read(world.reader);
    cr_expect_eq(store_sum(txn), store_scrub(txn));
}

Test(coordinate, a_node_has_so_many_segments_at_most, .init = setup, .fini = teardown) {
    for (int i = 0; i < COORDINATE_SEGMENTS_MAX + 10; i++) {
        char segment[16];
        snprintf(segment, sizeof segment, "s%d", i);
        coordinate_put(&world, "a", segment, 1);
    }
    struct query_result result = coordinates_of(&world, "a");
    cr_expect_eq(((const Pb__CoordinatesResult *)result.message)->n_coordinates, COORDINATE_SEGMENTS_MAX);
    cr_expect(coordinate_put(&world, "a", "s0", 2).yes);
    result = coordinates_of(&world, "a");
    cr_expect_not_null(strstr(coordinates_text(&result), "a:s0=2"), "those there move on");
}

/* -- what is refused ---------------------------------------------------------------------------------------------- */
static int put_numbers(const struct vivaldi_coordinate *numbers, size_t dimensions, const char *segment) {
    double vec[VIVALDI_DIMENSIONS + 1] = {0};
    memcpy(vec, numbers->vec, sizeof numbers->vec);
    Pb__Coordinate good = PB__COORDINATE__INIT, bad = PB__COORDINATE__INIT, *both[] = {&good, &bad};
    double zeros[VIVALDI_DIMENSIONS] = {0};
    good.node = "a", good.vec = zeros, good.n_vec = VIVALDI_DIMENSIONS;
    bad.node = "b", bad.segment = (char *)(uintptr_t)segment, bad.vec = vec, bad.n_vec = dimensions;
    bad.error = numbers->error, bad.adjustment = numbers->adjustment, bad.height = numbers->height;
    Pb__CoordinateUpdateCommand command = PB__COORDINATE_UPDATE_COMMAND__INIT;
    command.updates = both, command.n_updates = 2;
    return fixture_apply(&world, COORDINATE_UPDATE, &command.base).error;
}

Test(coordinate, bad_ones_are_refused_as_a_whole, .init = setup, .fini = teardown) {
    struct vivaldi_coordinate fine = vivaldi_origin(), bad[6] = {fine, fine, fine, fine, fine, fine};
    bad[0].vec[3] = NAN, bad[1].vec[0] = INFINITY, bad[2].error = -1, bad[3].height = -1, bad[4].adjustment = NAN,
    bad[5].vec[7] = 1e9;
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        cr_expect_eq(put_numbers(&bad[i], VIVALDI_DIMENSIONS, ""), CO_INVALID, "row %zu", i);
    cr_expect_eq(put_numbers(&fine, VIVALDI_DIMENSIONS - 1, ""), CO_INVALID);
    cr_expect_eq(put_numbers(&fine, VIVALDI_DIMENSIONS + 1, ""), CO_INVALID);
    cr_expect_eq(put_numbers(&fine, 0, ""), CO_INVALID);
    char longest[COORDINATE_SEGMENT_SIZE + 2];
    memset(longest, 'x', sizeof longest);
    longest[COORDINATE_SEGMENT_SIZE + 1] = '\0';
    cr_expect_eq(put_numbers(&fine, VIVALDI_DIMENSIONS, longest), CO_INVALID);
    cr_expect_text(coordinates_all(&world), "");
    cr_expect_eq(put_numbers(&fine, VIVALDI_DIMENSIONS, longest + 1), CO_OK);
}

/* -- who is woken ------------------------------------------------------------------------------------------------- */
struct watcher {
    struct watch_waiter waiter;
    unsigned fired;
};
static void fire(struct watch_waiter *waiter) { ((struct watcher *)waiter)->fired++; }

Test(coordinate, only_watchers_of_coordinates_are_woken, .init = setup, .fini = teardown) {
    static const struct watch_key things[] = {
        {SPACE_COORDINATES, {"", 0}},
        {SPACE_COORDINATE_NODE, {"a", 1}},
        {SPACE_COORDINATE_NODE, {"b", 1}},
        {SPACE_SERVICE, {"web", 3}},
        {SPACE_NODE, {"a", 1}},
        {SPACE_TABLE, {"nodes", 5}},
        {SPACE_TABLE, {"checks", 6}},
    };
    static const unsigned wanted[] = {1, 1, 0, 0, 0, 0, 0};
    struct watcher watchers[ARRAY_COUNT(things)] = {{.fired = 0}};
    struct watch_table *table = machine_watches(world.machine);
    for (size_t i = 0; i < ARRAY_COUNT(things); i++) watch_add(table, &watchers[i].waiter, things[i], fire);
    coordinate_put(&world, "a", "", 1);
    for (size_t i = 0; i < ARRAY_COUNT(things); i++)
        cr_expect_eq(watchers[i].fired, wanted[i], "row %zu: %u", i, watchers[i].fired);
    for (size_t i = 0; i < ARRAY_COUNT(things); i++) watch_arm(&watchers[i].waiter);
    coordinate_put(&world, "a", "", 1);
    for (size_t i = 0; i < ARRAY_COUNT(things); i++)
        cr_expect_eq(watchers[i].fired, wanted[i], "row %zu: woken by what changed nothing", i);
    for (size_t i = 0; i < ARRAY_COUNT(things); i++) watch_remove(table, &watchers[i].waiter);
}

/* -- servers ------------------------------------------------------------------------------------------------------ */
Test(coordinate, nodes_of_a_service_are_at_the_origin_until_they_report, .init = setup, .fini = teardown) {
    coordinate_put(&world, "ab", "", 3);
    Pb__ServiceRequest request = PB__SERVICE_REQUEST__INIT;
    request.service = "web";
    cr_expect_text(fixture_ask(&world, &query_service_coordinates, &request.base), "a:=0 ab:=3 b:=0");
    request.service = "none";
    cr_expect_text(fixture_ask(&world, &query_service_coordinates, &request.base), "");
}

/* -- against a model ---------------------------------------------------------------------------------------------- */
/* A person can read it: what stands where, and when each node's part changed last. */
struct model {
    bool there[3];
    double at[3][2]; /* by node, segment; 0: none */
    uint64_t changed[3], changed_all;
};
static const char *const model_nodes[] = {"a", "b", "ab"}, *const model_segments[] = {"", "west"};

static void model_compare(const struct model *model, unsigned step) {
    static const size_t by_name[] = {0, 2, 1};
    char wanted[400] = "";
    for (size_t k = 0; k < 3; k++) {
        size_t n = by_name[k];
        for (size_t s = 0; s < 2; s++)
            if (model->at[n][s] != 0)
                snprintf(wanted + strlen(wanted), sizeof wanted - strlen(wanted), "%s%s:%s=%g", wanted[0] ? " " : "",
                         model_nodes[n], model_segments[s], model->at[n][s]);
        struct query_result of_node = coordinates_of(&world, model_nodes[n]);
        cr_assert_eq(of_node.index, model->changed[n], "step %u, node %s", step, model_nodes[n]);
        cr_assert_eq(of_node.found, model->at[n][0] != 0 || model->at[n][1] != 0, "step %u, node %s", step,
                     model_nodes[n]);
    }
    struct query_result all = coordinates_all(&world);
    cr_assert_str_eq(coordinates_text(&all), wanted, "step %u: %s, not %s", step, coordinates_text(&all), wanted);
    cr_assert_eq(all.index, model->changed_all, "step %u", step);
}

static void model_change(struct model *model, size_t node, uint64_t index) {
    model->changed[node] = model->changed_all = index;
}

static void model_step(struct model *model, struct rng *rng) {
    size_t n = rng_below(rng, 3), s = rng_below(rng, 2);
    switch (rng_below(rng, 8)) {
        case 0:
            node_add(&world, model_nodes[n]);
            model->there[n] = true;
            break;
        case 1: {
            uint64_t index = node_remove(&world, model_nodes[n]).index;
            if (model->at[n][0] != 0 || model->at[n][1] != 0) model_change(model, n, index);
            model->there[n] = false, model->at[n][0] = model->at[n][1] = 0;
            break;
        }
        default: {
            double seconds = (double)rng_between(rng, 1, 3) / 8;
            uint64_t index = coordinate_put(&world, model_nodes[n], model_segments[s], seconds).index;
            if (model->there[n] && model->at[n][s] != seconds) model_change(model, n, index), model->at[n][s] = seconds;
        }
    }
}

Test(coordinate, random_commands_do_what_a_model_says, .init = setup, .fini = teardown) {
    struct model model = {.there = {true, true, true}};
    struct rng rng;
    rng_seed(&rng, 4711);
    for (unsigned step = 0; step < 2000; step++) {
        model_step(&model, &rng);
        model_compare(&model, step);
    }
}
