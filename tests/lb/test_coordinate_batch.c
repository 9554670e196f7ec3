/* Updates of thousands become a few commands; a node reports itself now and then. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "coordinates.h"
#include "lb/coordinate_agent.h"
#include "lb/coordinate_batch.h"

struct heard {
    unsigned commands, updates, largest;
    double last_of_a;
};
static void hear(void *data, const Pb__CoordinateUpdateCommand *command) {
    struct heard *heard = data;
    heard->commands++, heard->updates += (unsigned)command->n_updates;
    if (command->n_updates > heard->largest) heard->largest = (unsigned)command->n_updates;
    for (size_t i = 0; i < command->n_updates; i++) {
        cr_assert_eq(coordinate_check(command->updates[i]), CO_OK);
        if (strcmp(command->updates[i]->node, "a") == 0 && !command->updates[i]->segment[0])
            heard->last_of_a = command->updates[i]->vec[0];
    }
}

static struct arena arena;
static int put(struct coordinate_batch *batch, const char *node, const char *segment, double seconds, uint64_t now_ms) {
    int rv = coordinate_batch_put(batch, coordinate_at(&arena, node, segment, seconds), now_ms);
    arena_reset(&arena);
    return rv;
}

Test(coordinate_batch, a_period_after_the_first) {
    struct coordinate_batch *batch = coordinate_batch_new(&(struct coordinate_batch_config){0});
    struct heard heard = {0};
    cr_expect_eq(coordinate_batch_deadline_ms(batch), UINT64_MAX);
    coordinate_batch_tick(batch, 1 << 30, hear, &heard);
    cr_expect_eq(put(batch, "a", "", 1, 1000), CO_OK);
    cr_expect_eq(put(batch, "b", "", 2, 4000), CO_OK);
    cr_expect_eq(put(batch, "a", "west", 3, 4500), CO_OK);
    cr_expect_eq(put(batch, "a", "", 4, 5000), CO_OK, "the newest of a node and segment counts");
    cr_expect_eq(coordinate_batch_waiting(batch), 3);
    cr_expect_eq(coordinate_batch_deadline_ms(batch), 6000);
    coordinate_batch_tick(batch, 5999, hear, &heard);
    cr_expect_eq(heard.commands, 0);
    coordinate_batch_tick(batch, 6000, hear, &heard);
    cr_expect(heard.commands == 1 && heard.updates == 3 && heard.last_of_a == 4);
    cr_expect_eq(coordinate_batch_deadline_ms(batch), UINT64_MAX);
    coordinate_batch_tick(batch, 60000, hear, &heard);
    cr_expect_eq(heard.commands, 1, "once");
    cr_expect_eq(put(batch, "a", "", 1, 70000), CO_OK);
    cr_expect_eq(coordinate_batch_deadline_ms(batch), 75000);
    coordinate_batch_free(batch);
}

Test(coordinate_batch, bounded_as_configured) {
    struct coordinate_batch *batch = coordinate_batch_new(&(struct coordinate_batch_config){0});
    struct heard heard = {0};
    char node[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(node, sizeof node, "node-%d", i);
        cr_expect_eq(put(batch, node, "", 1, 10), i < 640 ? CO_OK : CO_BUSY, "%d", i);
    }
    cr_expect_eq(put(batch, "node-7", "", 2, 10), CO_OK, "a newer one of a node that waits needs no room");
    cr_expect_eq(coordinate_batch_dropped(batch), 360);
    coordinate_batch_tick(batch, 10000, hear, &heard);
    cr_expect(heard.commands == 5 && heard.updates == 640 && heard.largest == 128);
    cr_expect_eq(put(batch, "node-999", "", 1, 10000), CO_OK);
    coordinate_batch_free(batch);

    batch = coordinate_batch_new(&(struct coordinate_batch_config){.period_ms = 7, .size = 3, .commands = 2});
    heard = (struct heard){0};
    for (int i = 0; i < 5; i++) {
        snprintf(node, sizeof node, "node-%d", i);
        cr_expect_eq(put(batch, node, "", 1, 100), CO_OK);
    }
    coordinate_batch_tick(batch, 107, hear, &heard);
    cr_expect(heard.commands == 2 && heard.updates == 5 && heard.largest == 3);
    coordinate_batch_free(batch);
}

Test(coordinate_batch, what_cannot_be_stored_is_not_taken) {
    struct coordinate_batch *batch = coordinate_batch_new(&(struct coordinate_batch_config){0});
    cr_expect_eq(put(batch, "", "", 1, 0), CO_INVALID);
    cr_expect_eq(put(batch, "a", "", 1e7, 0), CO_INVALID);
    Pb__Coordinate *flat = coordinate_at(&arena, "a", "", 1);
    flat->n_vec = 2;
    cr_expect_eq(coordinate_batch_put(batch, flat, 0), CO_UNSUPPORTED);
    cr_expect_eq(coordinate_batch_waiting(batch), 0);
    coordinate_batch_free(batch);
    arena_free(&arena);
}

/* -- a node's own reports ----------------------------------------------------------------------------------------- */
/* The gaps between reports of a node in a cluster of so many. */
static void gaps(size_t nodes, uint64_t interval_ms, uint64_t *least, uint64_t *most) {
    struct coordinate_agent_config config = {.node = "a", .interval_ms = interval_ms, .seed = 3};
    struct coordinate_agent *agent = coordinate_agent_new(&config, 1000);
    uint64_t last_ms = 0;
    *least = UINT64_MAX, *most = 0;
    for (int i = 0; i < 300; i++) {
        Pb__Coordinate record;
        uint64_t now_ms = coordinate_agent_deadline_ms(agent);
        cr_assert_not(coordinate_report(agent, nodes, now_ms - 1, &record));
        cr_assert(coordinate_report(agent, nodes, now_ms, &record));
        cr_assert(coordinate_check(&record) == CO_OK && strcmp(record.node, "a") == 0);
        if (i > 1 && now_ms - last_ms < *least) *least = now_ms - last_ms;
        if (i > 1 && now_ms - last_ms > *most) *most = now_ms - last_ms;
        last_ms = now_ms;
    }
    coordinate_agent_free(agent);
}

Test(coordinate_agent, reports_spread_and_get_rarer_in_large_clusters) {
    uint64_t least, most;
    gaps(3, 0, &least, &most);
    cr_expect(least >= 15000 && least < 17000 && most <= 30000 && most > 28000, "%d to %d", (int)least, (int)most);
    gaps(6400, 0, &least, &most);
    cr_expect(least >= 100000 && most <= 200000, "%d to %d", (int)least, (int)most);
    gaps(3, 100, &least, &most);
    cr_expect(least >= 100 && most <= 200, "%d to %d", (int)least, (int)most);
}

Test(coordinate_agent, what_it_observes_is_what_it_reports) {
    struct coordinate_agent_config config = {.node = "a", .seed = 3};
    struct coordinate_agent *agent = coordinate_agent_new(&config, 0);
    struct vivaldi_coordinate there = vivaldi_origin();
    for (int i = 0; i < 100; i++) cr_assert_eq(coordinate_observe(agent, SLICE_LITERAL("b"), &there, 0.040), CO_OK);
    cr_expect_eq(coordinate_observe(agent, SLICE_LITERAL("b"), &there, -1), CO_INVALID);
    coordinate_forget(agent, SLICE_LITERAL("b"));
    Pb__Coordinate record;
    cr_assert(coordinate_report(agent, 1, 30000, &record));
    struct vivaldi_coordinate said = coordinate_read(&record);
    cr_expect_arr_eq(&said, coordinate_here(agent), sizeof said);
    double distance = vivaldi_distance(&said, &there);
    cr_expect(distance > 0.035 && distance < 0.045, "%f", distance);
    coordinate_agent_free(agent);
}
