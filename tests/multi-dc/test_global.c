/* Services of all regions in one answer: which are in it, and which region is the nearest that can help. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/multi-dc/neighbours.h"

static struct neighbours world;
static void setup(void) { neighbours_open(&world); }
static void teardown(void) { neighbours_close(&world); }

static void region(const char *name, Pb__Status status) { neighbour_has(&world, name, "web", status, NULL); }
static struct outcome seen(const char *name, uint64_t cluster_id, uint32_t rtt_us, bool reachable) {
    return neighbour_seen(&world, name, cluster_id, rtt_us, reachable);
}

/* "own eu us ": whose instances are in the answer, in its order. */
static const char *answer(const char *own, bool nearest, bool passing) {
    static char text[128];
    Pb__GlobalRequest request = PB__GLOBAL_REQUEST__INIT;
    request.service = TEXT("web"), request.own = TEXT(own), request.nearest = nearest, request.passing_only = passing;
    struct query_result result = fixture_ask(&world.f, &query_global, &request.base);
    const Pb__GlobalServiceResult *found = (const Pb__GlobalServiceResult *)result.message;
    text[0] = 0;
    for (size_t i = 0; i < found->n_regions; i++)
        if (found->regions[i]->n_entries) strcat(strcat(text, found->regions[i]->region), " ");
    return text;
}

Test(global, this_region_comes_first_and_the_others_by_name, .init = setup, .fini = teardown) {
    region("us", PB__STATUS__PASSING);
    region("eu", PB__STATUS__CRITICAL);
    cr_expect_str_eq(answer("own", false, false), "eu us ", "nothing is registered here");
    here(&world, "n1", "web", PB__STATUS__PASSING);
    cr_expect_str_eq(answer("own", false, false), "own eu us ");
    cr_expect_str_eq(answer("own", false, true), "own us ", "those that pass");
    cr_expect_str_eq(answer("", false, false), "eu us ", "without this region");
}

Test(global, the_nearest_is_the_one_that_can_be_reached_and_has_healthy_instances, .init = setup, .fini = teardown) {
    region("ap", PB__STATUS__PASSING);
    region("eu", PB__STATUS__PASSING);
    region("us", PB__STATUS__WARNING);
    here(&world, "n1", "web", PB__STATUS__PASSING);
    cr_expect_str_eq(answer("own", true, false), "ap ", "as long as no distance is known, by name; never this region");
    cr_expect(seen("eu", 7, 90000, true).yes && seen("us", 7, 40000, true).yes);
    cr_expect_str_eq(answer("own", true, false), "us ",
                     "a known distance goes before an unknown one; a warning is healthy");
    cr_expect(seen("ap", 7, 20000, true).yes);
    cr_expect_str_eq(answer("own", true, false), "ap ");
    cr_expect(seen("ap", 7, 20000, false).yes);
    cr_expect_str_eq(answer("own", true, false), "us ", "the near one cannot be reached");
    cr_expect_str_eq(answer("own", true, true), "eu ", "only those that pass");
    cr_expect(seen("eu", 7, 90000, false).yes && seen("us", 7, 40000, false).yes);
    cr_expect_str_eq(answer("own", true, false), "ap ",
                     "without any that can be reached the last state of the nearest");
}

Test(global, no_region_without_healthy_instances_helps, .init = setup, .fini = teardown) {
    region("eu", PB__STATUS__CRITICAL);
    cr_expect(seen("eu", 7, 1000, true).yes);
    cr_expect_str_eq(answer("own", true, false), "");
}

Test(global, what_is_seen_of_another_cluster_or_of_nobody_does_not_count, .init = setup, .fini = teardown) {
    region("eu", PB__STATUS__PASSING);
    cr_expect_eq(seen("eu", 8, 1000, true).error, CO_CONFLICT);
    cr_expect_eq(seen("us", 7, 1000, true).error, CO_CONFLICT);
}

Test(global, small_changes_of_a_distance_are_no_news) {
    Pb__Region known = PB__REGION__INIT;
    Pb__RegionSeenCommand command = PB__REGION_SEEN_COMMAND__INIT;
    known.cluster_id = command.cluster_id = 7, known.reachable = command.reachable = true;
    known.rtt_us = 40000;
    static const struct {
        uint32_t rtt_us;
        bool news;
    } table[] = {{40000, false}, {59000, false}, {61000, true}, {27000, false}, {26000, true}, {0, false}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        command.rtt_us = table[i].rtt_us;
        cr_expect_eq(region_seen_is_news(&command, &known), table[i].news, "%u us", table[i].rtt_us);
    }
    known.rtt_us = 300, command.rtt_us = 2000;
    cr_expect_not(region_seen_is_news(&command, &known), "less than two milliseconds more");
    command.reachable = false;
    cr_expect(region_seen_is_news(&command, &known));
    known.removed = true;
    cr_expect_not(region_seen_is_news(&command, &known));
}
