/* The region that answers for a service: when it goes to another one, where to, and when it comes home. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/multi-dc/neighbours.h"

#define PASSING  PB__STATUS__PASSING
#define WARNING  PB__STATUS__WARNING
#define CRITICAL PB__STATUS__CRITICAL

static struct neighbours world;
static void setup(void) { neighbours_open(&world); }
static void teardown(void) { neighbours_close(&world); }

/* -- helpers ------------------------------------------------------------------------------------------------------ */
/* The sum of the generations of all that the request waits for. */
static uint64_t generations(const Pb__AnswerRequest *request) {
    struct watch_table *watches = machine_watches(world.f.machine);
    uint64_t sum = watch_generation(watches, query_answer.watched(&request->base));
    for (size_t i = 0; query_answer.own(&request->base, i).space; i++)
        sum += watch_generation(watches, query_answer.own(&request->base, i));
    return sum;
}

/* A client that asks again and again, as the order is now. Each other answer has to wake it. */
static void expect_woken(Pb__AnswerRequest *request, const char *text) {
    static char last[128];
    static uint64_t before;
    static char *others[FAILOVER_TARGETS_MAX];
    Pb__FailoverRequest ask = PB__FAILOVER_REQUEST__INIT;
    bool plain = strcmp(request->service, "web") == 0 && !request->n_tags && !request->passing_only;
    if (!plain) return;
    /* with the others of the order as it was when he asked, which the generations were summed up for */
    request->others = others;
    static size_t count;
    request->n_others = count;
    if (last[0] && strcmp(last, text) != 0)
        cr_expect_neq(generations(request), before, "from %s to %s, and nobody is woken", last, text);
    ask.service = request->service;
    const Pb__FailoverResult *known =
        (const Pb__FailoverResult *)fixture_ask(&world.f, &query_failover, &ask.base).message;
    count = 0;
    for (size_t i = 0; known->state && i < known->state->record->n_targets; i++) {
        const char *other = known->state->record->targets[i]->service;
        if (other[0]) others[count++] = arena_strndup(&world.arena, other, strlen(other));
    }
    request->n_others = count;
    before = generations(request);
    snprintf(last, sizeof last, "%s", text);
}

/* "us", "us:reader" (of another service), "own 2" (this region, with so many instances). */
static const char *answer_of(const char *service, const char *tag, bool passing) {
    static char text[128];
    Pb__AnswerRequest request = PB__ANSWER_REQUEST__INIT;
    char *tags[] = {TEXT(tag)};
    request.service = TEXT(service), request.own = TEXT("own"), request.passing_only = passing;
    request.tags = tags, request.n_tags = tag ? 1 : 0;
    struct query_result result = fixture_ask(&world.f, &query_answer, &request.base);
    const Pb__AnswerResult *found = (const Pb__AnswerResult *)result.message;
    bool own = strcmp(found->from->region, "own") == 0, same = strcmp(found->service, service) == 0;
    snprintf(text, sizeof text, "%s", found->from->region);
    if (!same) strcat(strcat(text, ":"), found->service);
    if (own) snprintf(text + strlen(text), 16, " %zu", found->from->n_entries);
    cr_expect(result.index > 0 && result.found);
    expect_woken(&request, text);
    return text;
}
static const char *answer(void) { return answer_of("web", NULL, false); }

static Pb__FailoverState *state_of(const char *service) {
    Pb__FailoverRequest request = PB__FAILOVER_REQUEST__INIT;
    request.service = TEXT(service);
    struct query_result result = fixture_ask(&world.f, &query_failover, &request.base);
    cr_expect_eq(result.found, ((const Pb__FailoverResult *)result.message)->state != NULL);
    return ((const Pb__FailoverResult *)result.message)->state;
}
static uint64_t away(const char *service) {
    const Pb__FailoverState *state = state_of(service);
    return state ? state->record->away_index : 0;
}
static uint64_t back(const char *service) {
    const Pb__FailoverState *state = state_of(service);
    return state ? state->record->back_index : 0;
}
static size_t on_record(void) {
    Pb__FailoversRequest request = PB__FAILOVERS_REQUEST__INIT;
    struct query_result result = fixture_ask(&world.f, &query_failovers, &request.base);
    return ((const Pb__FailoversResult *)result.message)->n_failovers;
}

static struct outcome home(const char *service, uint64_t away_index, uint64_t back_index) {
    Pb__FailoverHomeCommand command = PB__FAILOVER_HOME_COMMAND__INIT;
    command.service = TEXT(service), command.away_index = away_index, command.back_index = back_index;
    return fixture_apply(&world.f, FAILOVER_HOME, &command.base);
}
static void comes_home(const char *service) {
    cr_assert_neq(back(service), 0, "it is not healthy here, or not away");
    cr_assert(home(service, away(service), back(service)).yes);
}
/* It was healthy here, and is not any more. */
static uint64_t goes(const char *service) {
    here(&world, "n1", service, PASSING);
    return here(&world, "n1", service, CRITICAL).index;
}

/* NULL: that region is not at rest. */
static const Pb__FailoverRest *rest_of(const char *service, const char *region) {
    const Pb__FailoverState *state = state_of(service);
    for (size_t i = 0; state && i < state->record->n_rests; i++)
        if (strcmp(state->record->rests[i]->region, region) == 0) return state->record->rests[i];
    return NULL;
}
static struct outcome home_there(const char *service, const char *region, uint64_t away_index, uint64_t back_index) {
    Pb__FailoverHomeCommand command = PB__FAILOVER_HOME_COMMAND__INIT;
    command.service = TEXT(service), command.region = TEXT(region);
    command.away_index = away_index, command.back_index = back_index;
    return fixture_apply(&world.f, FAILOVER_HOME, &command.base);
}
static void rest_ends(const char *service, const char *region) {
    for (unsigned step = 0; step < 2; step++) {
        const Pb__FailoverRest *rest = rest_of(service, region);
        cr_assert(rest, "%s is not at rest", region);
        cr_assert(home_there(service, region, rest->away_index, rest->back_index).yes);
    }
    cr_expect_not(rest_of(service, region));
}

struct target {
    const char *service, *tag, *regions[3];
};
static struct outcome order(const char *service, size_t count, const struct target *targets) {
    Pb__FailoverSetCommand command = PB__FAILOVER_SET_COMMAND__INIT;
    Pb__FailoverTarget items[32], *pointers[32];
    char *tags[32];
    for (size_t i = 0; i < count; i++) {
        pointers[i] = &items[i];
        pb__failover_target__init(&items[i]);
        if (targets[i].service) items[i].service = TEXT(targets[i].service);
        tags[i] = TEXT(targets[i].tag);
        if (targets[i].tag) items[i].tags = &tags[i], items[i].n_tags = 1;
        items[i].regions = (char **)(uintptr_t)targets[i].regions;
        while (items[i].n_regions < 3 && targets[i].regions[items[i].n_regions]) items[i].n_regions++;
    }
    command.service = TEXT(service), command.targets = pointers, command.n_targets = count;
    return fixture_apply(&world.f, FAILOVER_SET, &command.base);
}
#define ORDER(service_, ...) \
    order(service_, sizeof((struct target[]){__VA_ARGS__}) / sizeof(struct target), (struct target[]){__VA_ARGS__})

static void two_neighbours(void) {
    neighbour_has(&world, "us", "web", PASSING, NULL);
    neighbour_has(&world, "ap", "web", PASSING, NULL);
    cr_assert(neighbour_seen(&world, "us", NEIGHBOUR_CLUSTER, 40000, true).yes);
    cr_assert(neighbour_seen(&world, "ap", NEIGHBOUR_CLUSTER, 90000, true).yes);
}

/* -- going and coming --------------------------------------------------------------------------------------------- */
Test(failover, it_goes_at_once_and_stays_until_it_is_told_to_come_home, .init = setup, .fini = teardown) {
    two_neighbours();
    here(&world, "n1", "web", PASSING);
    here(&world, "n2", "web", PASSING);
    cr_expect_str_eq(answer(), "own 2");
    here(&world, "n1", "web", CRITICAL);
    cr_expect_str_eq(answer(), "own 2", "one is healthy");
    cr_expect_eq(on_record(), 0);
    uint64_t went = here(&world, "n2", "web", WARNING).index;
    cr_expect_str_eq(answer(), "own 2", "a warning is healthy");
    went = here(&world, "n2", "web", CRITICAL).index;
    cr_expect_str_eq(answer(), "us");
    cr_expect_eq(away("WEB"), went);
    cr_expect_eq(home("web", went, 0).error, CO_CONFLICT, "it has no healthy instances");
    uint64_t since = here(&world, "n1", "web", PASSING).index;
    cr_expect_str_eq(answer(), "us", "not yet");
    cr_expect(state_of("web")->healthy && back("web") == since, "the entry notes that it is back");
    here(&world, "n2", "web", PASSING), here(&world, "n2", "web", CRITICAL);
    cr_expect_eq(back("web"), since, "the other one makes no difference");
    cr_expect_eq(home("web", went, 0).error, CO_CONFLICT, "that was noted");
    cr_expect_eq(home("web", went, since - 1).error, CO_CONFLICT);
    cr_expect_eq(home("web", went - 1, since).error, CO_CONFLICT);
    cr_assert(home("web", went, since).yes);
    cr_expect_str_eq(answer(), "own 2");
    cr_expect_eq(on_record(), 0);
}

Test(failover, a_relapse_begins_anew, .init = setup, .fini = teardown) {
    two_neighbours();
    uint64_t first = goes("web"), since = here(&world, "n1", "web", PASSING).index;
    uint64_t second = here(&world, "n1", "web", CRITICAL).index;
    cr_expect(away("web") == second && back("web") == 0);
    here(&world, "n1", "web", PASSING);
    cr_expect_eq(home("web", first, since).error, CO_CONFLICT, "an order of before the relapse");
    cr_expect_eq(home("web", first, 0).error, CO_CONFLICT);
    cr_expect_str_eq(answer(), "us");
    comes_home("web");
    cr_expect_str_eq(answer(), "own 1");
}

Test(failover, while_nobody_else_has_it_nothing_is_noted, .init = setup, .fini = teardown) {
    here(&world, "n1", "web", CRITICAL);
    cr_expect_eq(on_record(), 0, "there is no other region");
    cr_expect_str_eq(answer(), "own 1", "the answer is this region's as it is");
    neighbour_has(&world, "us", "other", PASSING, NULL);
    here(&world, "n1", "web", PASSING), here(&world, "n1", "web", CRITICAL);
    cr_expect_eq(on_record(), 0, "us does not have it");
    neighbour_has(&world, "us", "web", CRITICAL, NULL);
    cr_expect_eq(on_record(), 0, "it has it now, and this region had none before");
    cr_expect_str_eq(answer(), "own 1", "nobody is healthy: this region answers");
    here(&world, "n1", "web", PASSING), here(&world, "n1", "web", CRITICAL);
    cr_expect_neq(away("web"), 0, "now it is noted");
    cr_expect_eq(away("other"), 0, "which was never here");
}

Test(failover, services_that_are_gone_for_good_are_forgotten, .init = setup, .fini = teardown) {
    two_neighbours();
    here(&world, "n1", "web", PASSING);
    here_no_more(&world, "n1", "web");
    uint64_t went = away("web");
    cr_assert_neq(went, 0);
    cr_expect_str_eq(answer(), "us", "it disappeared here");
    cr_expect(!state_of("web")->healthy && state_of("web")->wanted);
    cr_expect_eq(home("web", went, 0).error, CO_CONFLICT);
    neighbour_loses(&world, "us", "web");
    cr_expect(state_of("web")->wanted, "ap has it");
    neighbour_loses(&world, "ap", "web");
    cr_expect_not(state_of("web")->wanted);
    cr_assert(home("web", went, 0).yes);
    cr_expect_eq(on_record(), 0);
    here(&world, "n1", "web", PASSING);
    here_no_more(&world, "n1", "web");
    cr_expect_eq(on_record(), 0, "neither is it noted now");
}

Test(failover, one_that_disappeared_here_comes_home_after_the_same_time, .init = setup, .fini = teardown) {
    two_neighbours();
    here(&world, "n1", "web", PASSING);
    here_no_more(&world, "n1", "web");
    here(&world, "n2", "web", PASSING);
    cr_expect_str_eq(answer(), "us");
    comes_home("web");
    cr_expect_str_eq(answer(), "own 1");
}

Test(failover, there_is_a_limit_of_services, .init = setup, .fini = teardown) {
    char name[32];
    neighbour_has(&world, "us", "web", PASSING, NULL);
    Pb__FailoverTarget target = PB__FAILOVER_TARGET__INIT, *targets[] = {&target};
    Pb__FailoverSetCommand command = PB__FAILOVER_SET_COMMAND__INIT;
    command.service = name, command.targets = targets, command.n_targets = 1;
    for (unsigned i = 0; i < FAILOVER_SERVICES_MAX; i++) {
        snprintf(name, sizeof name, "s%u", i);
        cr_assert(fixture_apply(&world.f, FAILOVER_SET, &command.base).yes);
    }
    cr_expect_eq(ORDER("one-more", {.service = "x"}).error, CO_TOOLARGE);
    goes("web");
    cr_expect_eq(away("web"), 0, "there is no room");
    cr_expect_str_eq(answer(), "us");
    here(&world, "n1", "web", PASSING);
    cr_expect_str_eq(answer(), "own 1", "it comes home at once");
    cr_expect(order("s7", 0, NULL).yes && order("s8", 0, NULL).yes, "orders that are taken back make room");
    cr_expect_null(state_of("s7"));
    here(&world, "n1", "web", CRITICAL);
    cr_expect_neq(away("web"), 0);
}

/* -- other regions that flap -------------------------------------------------------------------------------------- */
static const Pb__ExplainResult *explained(void) {
    Pb__AnswerRequest request = PB__ANSWER_REQUEST__INIT;
    request.service = TEXT("web"), request.own = TEXT("own");
    return (const Pb__ExplainResult *)fixture_ask(&world.f, &query_explain, &request.base).message;
}

/* us flaps. How often the answer is another one than before. */
static unsigned moves_while_us_flaps(unsigned flaps) {
    char before[128];
    unsigned moves = 0;
    snprintf(before, sizeof before, "%s", answer());
    for (unsigned i = 0; i < 2 * flaps; i++) {
        neighbour_has(&world, "us", "web", i % 2 ? PASSING : CRITICAL, NULL);
        moves += strcmp(answer(), before) != 0;
        snprintf(before, sizeof before, "%s", answer());
    }
    return moves;
}

Test(failover, another_region_that_flaps_is_left_once, .init = setup, .fini = teardown) {
    two_neighbours();
    goes("web");
    cr_expect_str_eq(answer(), "us");
    cr_expect_eq(moves_while_us_flaps(6), 1);
    cr_expect_str_eq(answer(), "ap");
    cr_expect_str_eq(explained()->passed_over, "us");
    uint64_t went = rest_of("web", "us")->away_index;
    cr_assert(home_there("web", "us", went, 0).yes);
    uint64_t since = rest_of("web", "us")->back_index;
    cr_expect_neq(since, 0);
    cr_expect_str_eq(answer(), "ap", "it is noted that it is back");
    neighbour_has(&world, "us", "web", CRITICAL, NULL);
    const Pb__FailoverRest *rest = rest_of("web", "us");
    cr_expect(rest->away_index > since && rest->back_index == 0, "a relapse begins anew");
    cr_expect_eq(home_there("web", "us", rest->away_index, 0).error, CO_CONFLICT, "it has no healthy instances");
    neighbour_has(&world, "us", "web", PASSING, NULL);
    cr_expect_eq(home_there("web", "us", went, since).error, CO_CONFLICT, "an order of before the relapse");
    cr_expect_eq(home_there("web", "ap", went, since).error, CO_CONFLICT, "which is not at rest");
    rest_ends("web", "us");
    cr_expect_str_eq(answer(), "us");
    cr_expect_str_empty(explained()->passed_over);
    cr_expect_neq(away("web"), 0);
}

Test(failover, a_region_at_rest_answers_rather_than_nobody, .init = setup, .fini = teardown) {
    two_neighbours();
    goes("web");
    moves_while_us_flaps(1);
    cr_expect_str_eq(answer(), "ap");
    neighbour_has(&world, "ap", "web", CRITICAL, NULL);
    cr_expect_str_eq(answer(), "us", "it is healthy now");
    cr_expect_str_empty(explained()->passed_over);
    neighbour_has(&world, "us", "web", CRITICAL, NULL);
    cr_expect_str_eq(answer(), "own 1");
    neighbour_has(&world, "us", "web", PASSING, NULL);
    here(&world, "n1", "web", PASSING);
    cr_expect_str_eq(answer(), "own 1", "this region has some now, and goes before one at rest");
    cr_expect_eq(on_record(), 0, "at home there is nobody to pass over");
}

Test(failover, what_other_regions_lose_is_noted_while_it_is_away, .init = setup, .fini = teardown) {
    two_neighbours();
    here(&world, "n1", "web", PASSING);
    moves_while_us_flaps(2);
    cr_assert(ORDER("web", {.regions = {"us", "ap"}}).yes);
    moves_while_us_flaps(2);
    cr_expect_not(rest_of("web", "us"), "it is at home");
    here(&world, "n1", "web", CRITICAL);
    cr_expect_str_eq(answer(), "us");
    neighbour_has(&world, "us", "web", WARNING, NULL);
    cr_expect_not(rest_of("web", "us"), "a warning is healthy");
    cr_expect_eq(moves_while_us_flaps(2), 1);
    cr_expect_str_eq(answer(), "ap", "orders pass it over too");
    neighbour_has(&world, "us", "reader", PASSING, NULL);
    cr_assert(ORDER("web", {.service = "reader", .regions = {"us"}}, {.regions = {"us"}}).yes);
    cr_expect_str_eq(answer(), "us:reader", "another service is not meant");
    here(&world, "n1", "web", PASSING);
    comes_home("web");
    cr_expect_eq(state_of("web")->record->n_rests, 0, "the order stays, the rest does not");
}

Test(failover, no_rest_is_for_ever, .init = setup, .fini = teardown) {
    Pb__CopyForgetCommand forget = PB__COPY_FORGET_COMMAND__INIT;
    Pb__FailoversRequest request = PB__FAILOVERS_REQUEST__INIT;
    two_neighbours();
    goes("web");
    neighbour_loses(&world, "us", "web");
    cr_assert(rest_of("web", "us"), "its service disappeared");
    rest_ends("web", "us");
    neighbour_has(&world, "us", "web", PASSING, NULL);
    neighbour_has(&world, "us", "web", CRITICAL, NULL);
    uint64_t went = rest_of("web", "us")->away_index;
    for (unsigned gone = 0; gone < 2; gone++) {
        const Pb__FailoversResult *all =
            (const Pb__FailoversResult *)fixture_ask(&world.f, &query_failovers, &request.base).message;
        cr_assert_eq(all->failovers[0]->n_rests_over, 1);
        cr_expect_eq(all->failovers[0]->rests_over[0] != 0, gone == 1);
        if (!gone) cr_expect_eq(home_there("web", "us", went, 0).error, CO_CONFLICT);
        forget.region = TEXT("us");
        if (!gone) cr_assert(fixture_apply(&world.f, COPY_FORGET, &forget.base).yes);
    }
    rest_ends("web", "us");
}

/* -- where to ----------------------------------------------------------------------------------------------------- */
Test(failover, the_nearest_region_that_has_healthy_instances, .init = setup, .fini = teardown) {
    two_neighbours();
    goes("web");
    cr_expect_str_eq(answer(), "us");
    neighbour_has(&world, "us", "web", CRITICAL, NULL);
    cr_expect_str_eq(answer(), "ap");
    neighbour_has(&world, "us", "web", WARNING, NULL);
    rest_ends("web", "us");
    cr_expect_str_eq(answer(), "us");
    cr_expect_str_eq(answer_of("web", NULL, true), "ap", "only those that pass");
}

Test(failover, an_order_of_regions, .init = setup, .fini = teardown) {
    two_neighbours();
    neighbour_has(&world, "sa", "web", PASSING, NULL);
    goes("web");
    cr_assert(ORDER("web", {.regions = {"sa", "ap"}}).yes);
    cr_expect_str_eq(answer(), "sa", "in this order, whatever the distance");
    neighbour_has(&world, "sa", "web", CRITICAL, NULL);
    cr_expect_str_eq(answer(), "ap");
    neighbour_has(&world, "ap", "web", CRITICAL, NULL);
    cr_expect_str_eq(answer(), "own 1", "us is not ordered");
    cr_assert(ORDER("web", {.regions = {"sa", "xx"}}, {.service = NULL}).yes);
    cr_expect_str_eq(answer(), "us", "the second target: any");
    cr_assert(order("web", 0, NULL).yes);
    cr_expect_str_eq(answer(), "us", "without an order the nearest");
    cr_expect_neq(away("web"), 0, "which it is away for, still");
}

Test(failover, an_order_of_other_services_and_tags, .init = setup, .fini = teardown) {
    neighbour_has(&world, "us", "web", PASSING, "blue");
    neighbour_has(&world, "ap", "web", PASSING, "green");
    neighbour_has(&world, "us", "reader", PASSING, NULL);
    here(&world, "n1", "web", CRITICAL);
    here(&world, "n1", "standby", PASSING);
    cr_assert(ORDER("web", {.tag = "green"}).yes);
    cr_expect_str_eq(answer(), "ap");
    cr_expect_str_eq(answer_of("web", "blue", false), "ap", "the order's tags go before those that were asked for");
    cr_assert(ORDER("web", {.regions = {"us", "ap"}}).yes);
    cr_expect_str_eq(answer_of("web", "green", false), "ap", "an order without tags leaves them");
    cr_assert(ORDER("web", {.service = "none"}, {.service = "reader"}).yes);
    cr_expect_str_eq(answer(), "us:reader");
    cr_expect_str_eq(answer_of("web", "blue", false), "us:reader", "the tags are not the other service's");
    neighbour_has(&world, "us", "reader", CRITICAL, NULL);
    cr_expect_str_eq(answer(), "own 1", "what becomes of the other service is waited for");
    neighbour_has(&world, "us", "reader", PASSING, NULL);
    cr_expect_str_eq(answer(), "us:reader");
    cr_assert(ORDER("web", {.service = "standby", .regions = {"own"}}).yes);
    cr_expect_str_eq(answer(), "own:standby 1", "another service of this region");
}

Test(failover, an_order_for_what_nobody_else_has_is_a_reason_to_go, .init = setup, .fini = teardown) {
    neighbour_has(&world, "us", "reader", PASSING, NULL);
    here(&world, "n1", "web", PASSING), here(&world, "n1", "web", CRITICAL);
    cr_expect_eq(away("web"), 0);
    cr_assert(ORDER("web", {.service = "reader"}).yes);
    cr_expect_str_eq(answer(), "us:reader");
    here(&world, "n1", "web", PASSING);
    cr_expect_str_eq(answer(), "own 1", "it was without before the order came: home at once");
    here(&world, "n1", "web", CRITICAL);
    cr_expect_neq(away("web"), 0);
    here(&world, "n1", "web", PASSING);
    cr_expect_str_eq(answer(), "us:reader");
    comes_home("web");
    cr_expect_str_eq(answer(), "own 1");
    cr_expect_eq(on_record(), 1, "the order stays");
}

Test(failover, orders_that_are_refused, .init = setup, .fini = teardown) {
    char name[FAILOVER_NAME_MAX + 2];
    memset(name, 'x', sizeof name - 1), name[sizeof name - 1] = '\0';
    struct target many[FAILOVER_TARGETS_MAX + 1] = {{.service = "y"}};
    cr_expect_eq(ORDER("", {.service = "y"}).error, CO_INVALID);
    cr_expect_eq(ORDER(name, {.service = "y"}).error, CO_INVALID);
    cr_expect_eq(ORDER("web", {.service = name}).error, CO_INVALID);
    cr_expect_eq(ORDER("web", {.tag = ""}).error, CO_INVALID);
    cr_expect_eq(ORDER("web", {.regions = {"no region"}}).error, CO_INVALID);
    cr_expect_eq(order("web", FAILOVER_TARGETS_MAX + 1, many).error, CO_INVALID);
    cr_expect(order("web", FAILOVER_TARGETS_MAX, many).yes);
    cr_expect(order("nothing", 0, NULL).yes && on_record() == 1, "to take back what is not there is fine");
}

/* -- why ---------------------------------------------------------------------------------------------------------- */
Test(failover, it_is_explained, .init = setup, .fini = teardown) {
    two_neighbours();
    here(&world, "n1", "web", CRITICAL), here(&world, "n2", "web", CRITICAL), here(&world, "n3", "web", WARNING);
    here(&world, "n3", "web", CRITICAL);
    here(&world, "n2", "web", PASSING);
    cr_assert(ORDER("web", {.regions = {"sa"}}, {.regions = {"ap"}}).yes);
    Pb__AnswerRequest request = PB__ANSWER_REQUEST__INIT;
    request.service = TEXT("web"), request.own = TEXT("own");
    const Pb__ExplainResult *why =
        (const Pb__ExplainResult *)fixture_ask(&world.f, &query_explain, &request.base).message;
    cr_assert_eq(why->n_regions, 3);
    const Pb__ExplainCounts *own = why->regions[0];
    cr_expect_str_eq(own->region, "own");
    cr_expect(own->passing == 1 && own->warning == 0 && own->critical == 2 && own->held == 0);
    cr_expect_str_eq(why->regions[1]->region, "ap");
    cr_expect_str_eq(why->answer->region, "ap");
    cr_expect(why->answer->passing == 1 && why->target == 2 && why->away && !why->none_here);
    cr_expect(why->record && why->record->away_index);
}
