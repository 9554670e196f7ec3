/* A region never leaves a healthy home, and those who are away come home: what brings a service home at once. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "registry/lease.h"
#include "registry/self_preservation.h"
#include "tests/multi-dc/neighbours.h"

#define PASSING  PB__STATUS__PASSING
#define WARNING  PB__STATUS__WARNING
#define CRITICAL PB__STATUS__CRITICAL

static struct neighbours world;
static void setup(void) { neighbours_open(&world); }
static void teardown(void) { neighbours_close(&world); }

/* The region that answers. It says of itself whether the service is waiting to come home. */
static const char *answer(void) {
    Pb__AnswerRequest request = PB__ANSWER_REQUEST__INIT;
    request.service = TEXT("web"), request.own = TEXT("own");
    const Pb__AnswerResult *found =
        (const Pb__AnswerResult *)fixture_ask(&world.f, &query_answer, &request.base).message;
    cr_expect_eq(found->away, !found->none_here && strcmp(found->from->region, "own") != 0);
    return found->from->region;
}
#define AT(region_, ...) cr_expect_str_eq(answer(), region_, ##__VA_ARGS__)

static const Pb__Failover *record(void) {
    Pb__FailoverRequest request = PB__FAILOVER_REQUEST__INIT;
    request.service = TEXT("web");
    const Pb__FailoverResult *found =
        (const Pb__FailoverResult *)fixture_ask(&world.f, &query_failover, &request.base).message;
    return found->state ? found->state->record : NULL;
}
static bool is_noted(void) { return record() && record()->away_index; }

/* Others answer, and it is healthy here again. */
static void waits_to_come_home(void) {
    here(&world, "n1", "web", PASSING), here(&world, "n1", "web", CRITICAL), here(&world, "n1", "web", PASSING);
    cr_assert(record() && record()->back_index);
}

/* Of one target: "service", in the regions named (NULL: none), or with a tag. */
static void order(const char *service, const char *tag, const char *region, const char *next) {
    Pb__FailoverSetCommand command = PB__FAILOVER_SET_COMMAND__INIT;
    Pb__FailoverTarget target = PB__FAILOVER_TARGET__INIT, *targets[] = {&target};
    char *tags[] = {TEXT(tag)}, *regions[] = {TEXT(region), TEXT(next)};
    if (service) target.service = TEXT(service);
    target.tags = tags, target.n_tags = tag ? 1 : 0;
    target.regions = regions, target.n_regions = (region ? 1 : 0) + (next ? 1 : 0);
    command.service = TEXT("web"), command.targets = targets, command.n_targets = 1;
    cr_assert(fixture_apply(&world.f, FAILOVER_SET, &command.base).yes);
}

/* -- a healthy home is not left ----------------------------------------------------------------------------------- */
Test(failover_home, two_regions_that_begin_critical, .init = setup, .fini = teardown) {
    neighbour_has(&world, "eu", "web", CRITICAL, NULL);
    here(&world, "n1", "web", CRITICAL);
    here(&world, "n1", "web", PASSING);
    AT("own");
    neighbour_has(&world, "eu", "web", PASSING, NULL);
    AT("own", "half a second later");
    cr_expect_not(is_noted());
}

Test(failover_home, the_second_of_two_regions_that_begin_critical, .init = setup, .fini = teardown) {
    neighbour_has(&world, "us", "web", CRITICAL, NULL);
    here(&world, "n1", "web", CRITICAL);
    neighbour_has(&world, "us", "web", PASSING, NULL);
    AT("us");
    here(&world, "n1", "web", CRITICAL), here(&world, "n2", "web", CRITICAL);
    AT("us", "one more that was never healthy");
    here(&world, "n1", "web", PASSING);
    AT("own", "it was never healthy here before");
    cr_expect_not(is_noted());
}

Test(failover_home, another_region_registers_late, .init = setup, .fini = teardown) {
    neighbour_has(&world, "eu", "other", PASSING, NULL);
    here(&world, "n1", "web", CRITICAL), here(&world, "n1", "web", PASSING);
    neighbour_has(&world, "eu", "web", CRITICAL, NULL);
    neighbour_has(&world, "eu", "web", PASSING, NULL);
    AT("own");
    neighbour_turns(&world, "eu", "web", CRITICAL), neighbour_turns(&world, "eu", "web", PASSING);
    AT("own");
    order(NULL, NULL, "eu", NULL);
    AT("own", "an order that is given while home is healthy");
}

Test(failover_home, flaps_while_nobody_else_is_healthy, .init = setup, .fini = teardown) {
    neighbour_has(&world, "us", "web", CRITICAL, NULL);
    for (unsigned i = 0; i < 4; i++) {
        here(&world, "n1", "web", PASSING);
        AT("own");
        cr_expect_not(is_noted());
        if (i < 3) here(&world, "n1", "web", CRITICAL);
    }
    neighbour_has(&world, "us", "web", PASSING, NULL);
    AT("own", "nobody answered in its place");
}

/* -- the end of a wait -------------------------------------------------------------------------------------------- */
Test(failover_home, the_others_flap_while_it_waits, .init = setup, .fini = teardown) {
    neighbour_has(&world, "us", "web", PASSING, NULL);
    neighbour_has(&world, "ap", "web", PASSING, NULL);
    waits_to_come_home();
    bool us_first = strcmp(answer(), "us") == 0;
    const char *first = us_first ? "us" : "ap", *second = us_first ? "ap" : "us";
    neighbour_has(&world, first, "web", CRITICAL, NULL);
    AT(second);
    neighbour_has(&world, first, "web", PASSING, NULL);
    AT(second, "one that flapped is at rest");
    neighbour_has(&world, second, "web", CRITICAL, NULL);
    AT("own", "one that is at rest is nobody");
    cr_expect_not(is_noted(), "for good");
    neighbour_has(&world, second, "web", PASSING, NULL);
    AT("own");
}

Test(failover_home, the_last_of_the_others_is_deregistered, .init = setup, .fini = teardown) {
    neighbour_has(&world, "us", "web", PASSING, NULL);
    waits_to_come_home();
    AT("us");
    neighbour_loses(&world, "us", "web");
    AT("own");
    neighbour_has(&world, "us", "web", PASSING, NULL);
    AT("own");
}

Test(failover_home, a_copy_is_replaced_while_it_waits, .init = setup, .fini = teardown) {
    neighbour_has(&world, "us", "web", PASSING, NULL);
    neighbour_has(&world, "ap", "web", PASSING, NULL);
    waits_to_come_home();
    neighbour_turns(&world, "us", "web", CRITICAL);
    AT("ap", "somebody is left");
    neighbour_turns(&world, "us", "web", PASSING);
    neighbour_turns(&world, "ap", "web", CRITICAL);
    AT("us");
    neighbour_turns(&world, "us", "web", CRITICAL);
    AT("own");
    neighbour_turns(&world, "us", "web", PASSING);
    AT("own", "for good");
}

Test(failover_home, a_region_is_removed_while_it_waits, .init = setup, .fini = teardown) {
    neighbour_has(&world, "us", "web", PASSING, NULL);
    waits_to_come_home();
    neighbour_removed(&world, "us");
    AT("own");
    cr_expect_not(is_noted());
    neighbour_has(&world, "us", "web", PASSING, NULL);
    AT("own", "it came back");
}

Test(failover_home, the_order_changes_while_it_waits, .init = setup, .fini = teardown) {
    neighbour_has(&world, "us", "web", PASSING, NULL);
    neighbour_has(&world, "us", "reader", PASSING, NULL);
    waits_to_come_home();
    order("reader", NULL, NULL, NULL);
    AT("us", "another one that has some");
    order("nobody", NULL, NULL, NULL);
    AT("own");
    order(NULL, NULL, "us", NULL);
    AT("own");
    cr_expect_not(is_noted());
}

Test(failover_home, an_order_that_names_this_region_is_taken_back_while_it_waits, .init = setup, .fini = teardown) {
    neighbour_has(&world, "us", "web", PASSING, NULL);
    order(NULL, NULL, "own", "us");
    here(&world, "n1", "web", PASSING), here(&world, "n1", "web", CRITICAL);
    AT("us");
    here(&world, "n1", "web", PASSING);
    AT("own", "as it is ordered");
    order(NULL, NULL, "us", NULL);
    AT("own", "it was at home already");
    cr_expect_not(is_noted());
}

Test(failover_home, another_service_that_is_ordered_goes_while_it_waits, .init = setup, .fini = teardown) {
    for (unsigned i = 0; i < 3; i++) {
        neighbour_has(&world, "us", "reader", PASSING, "blue");
        order("Reader", "blue", NULL, NULL);
        waits_to_come_home();
        AT("us");
        if (i == 0) neighbour_has(&world, "us", "reader", CRITICAL, "blue");
        if (i == 1) neighbour_has(&world, "us", "reader", PASSING, "green");
        if (i == 2) neighbour_loses(&world, "us", "reader");
        cr_expect_not(is_noted());
        neighbour_has(&world, "us", "reader", PASSING, "blue");
        AT("own");
    }
}

Test(failover_home, the_tag_that_is_ordered_goes_while_it_waits, .init = setup, .fini = teardown) {
    neighbour_has(&world, "us", "web", PASSING, "green");
    order(NULL, "green", NULL, NULL);
    waits_to_come_home();
    AT("us");
    neighbour_has(&world, "us", "web", PASSING, "blue");
    AT("own");
    neighbour_has(&world, "us", "web", PASSING, "green");
    AT("own");
}

Test(failover_home, another_service_of_this_region_is_nothing_to_wait_for, .init = setup, .fini = teardown) {
    neighbour_has(&world, "us", "web", CRITICAL, NULL);
    here(&world, "n2", "standby", PASSING);
    order("standby", NULL, "own", NULL);
    here(&world, "n1", "web", PASSING), here(&world, "n1", "web", CRITICAL);
    cr_expect(is_noted());
    here(&world, "n1", "web", PASSING);
    cr_expect_not(is_noted());
}

/* -- what was healthy here before --------------------------------------------------------------------------------- */
Test(failover_home, the_last_instance_goes_and_another_comes, .init = setup, .fini = teardown) {
    neighbour_has(&world, "us", "web", PASSING, NULL);
    here(&world, "n1", "web", PASSING);
    here_no_more(&world, "n1", "web");
    AT("us");
    here(&world, "n2", "web", CRITICAL);
    here(&world, "n2", "web", PASSING);
    AT("us", "it was healthy here before, and went");
    here_no_more(&world, "n2", "web");
    neighbour_has(&world, "us", "web", CRITICAL, NULL);
    here(&world, "n2", "web", PASSING);
    AT("own", "nobody answers");
    neighbour_has(&world, "us", "web", PASSING, NULL);
    AT("own");
}

Test(failover_home, what_an_entry_does_in_between_does_not_count, .init = setup, .fini = teardown) {
    neighbour_has(&world, "us", "web", PASSING, NULL);
    here(&world, "n1", "web", PASSING), here(&world, "n2", "web", CRITICAL);
    const struct turn_here both[] = {{"n1", "web", CRITICAL}, {"n2", "web", PASSING}};
    here_at_once(&world, 2, both);
    cr_expect_not(is_noted(), "it was healthy before this entry, and is now");
    const struct turn_here flap[] = {{"n2", "web", CRITICAL}, {"n2", "web", PASSING}};
    here_at_once(&world, 2, flap);
    cr_expect_not(is_noted());
    here_no_more(&world, "n1", "web"), here_no_more(&world, "n2", "web");
    cr_expect(is_noted());
}

Test(failover_home, one_that_would_be_healthy_within_an_entry_alone_never_was, .init = setup, .fini = teardown) {
    neighbour_has(&world, "us", "web", PASSING, NULL);
    here(&world, "n1", "web", CRITICAL);
    const struct turn_here flap[] = {{"n1", "web", PASSING}, {"n1", "web", CRITICAL}};
    here_at_once(&world, 2, flap);
    cr_expect_not(is_noted());
    here_node(&world, "n1", CRITICAL), here(&world, "n1", "web", PASSING), here(&world, "n1", "web", CRITICAL);
    cr_expect_not(is_noted(), "its node was not well");
    here(&world, "n1", "web", PASSING);
    AT("us");
    here_node(&world, "n1", PASSING);
    AT("own");
    here_node(&world, "n1", CRITICAL);
    cr_expect(is_noted(), "it went with its node");
    here_node(&world, "n1", WARNING);
    AT("us", "it waits");
}

/* -- self-preservation -------------------------------------------------------------------------------------------- */
static const char *const leases[] = {"00000001-1ea5-4000-8000-000000000000", "00000002-1ea5-4000-8000-000000000000"};
static const char *const nodes[] = {"n1", "n2"};

static void two_nodes_that_live(void) {
    neighbour_has(&world, "us", "web", PASSING, NULL);
    for (unsigned i = 0; i < 2; i++) {
        Pb__Lease lease = PB__LEASE__INIT;
        Pb__LeaseGrantCommand grant = PB__LEASE_GRANT_COMMAND__INIT;
        here(&world, nodes[i], "web", PASSING);
        lease.id = TEXT(leases[i]), lease.ttl_ns = 10000000000, lease.node = TEXT(nodes[i]);
        lease.node_id = TEXT(leases[i]), lease.reconnect_timeout_ns = 7000000000;
        grant.lease = &lease;
        cr_assert(fixture_apply(&world.f, LEASE_GRANT, &grant.base).yes);
    }
}

/* Its index. Two of them within a while are of one cause. */
static uint64_t dies(unsigned node) {
    Pb__PreservationOrder preservation = PB__PRESERVATION_ORDER__INIT;
    Pb__LeaseEndCommand end = PB__LEASE_END_COMMAND__INIT;
    preservation.percent = 85, preservation.instances = preservation.nodes = 2, preservation.window_ms = 15000;
    preservation.hold_ms = 60000, preservation.at_ms = 1, preservation.unix_ms = 1700000000000;
    end.id = TEXT(leases[node]), end.term = world.f.term, end.preservation = &preservation;
    struct outcome outcome = fixture_apply(&world.f, LEASE_END, &end.base);
    cr_assert(outcome.yes);
    return outcome.index;
}

static void is_released(uint64_t held_index) {
    Pb__PreservationReleaseCommand release = PB__PRESERVATION_RELEASE_COMMAND__INIT;
    release.service = TEXT("web"), release.term = world.f.term, release.index = held_index;
    cr_assert(fixture_apply(&world.f, PRESERVATION_RELEASE, &release.base).yes);
}

Test(failover_home, what_self_preservation_holds_is_healthy, .init = setup, .fini = teardown) {
    two_nodes_that_live();
    dies(0);
    AT("own");
    uint64_t held = dies(1);
    AT("own", "both are held");
    cr_expect_not(is_noted());
    is_released(held);
    AT("us");
    cr_expect(is_noted());
}

Test(failover_home, what_is_held_again_waits_to_come_home, .init = setup, .fini = teardown) {
    two_nodes_that_live();
    here(&world, "n2", "web", CRITICAL);
    dies(0);
    AT("us", "one alone is not held");
    uint64_t held = dies(1);
    cr_expect(record() && record()->back_index == held, "n1 is held from now on");
    AT("us", "it waits");
    neighbour_has(&world, "us", "web", CRITICAL, NULL);
    AT("own");
    neighbour_has(&world, "us", "web", PASSING, NULL);
    AT("own");
}
