/* When a service comes home: once it was healthy for long enough on end, and never before. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "multi-dc/returning.h"
#include "tests/multi-dc/neighbours.h"

#define RETURN_MS 10000

/* Services as the state machine has them, in a row; the last of them are regions at rest of one that stays away. */
#define SERVICES 3
#define RESTS    2
#define ALL      (SERVICES + RESTS)
struct service {
    char name[16], region[16];
    bool healthy;
    uint64_t away, back, healthy_ms; /* since when it is healthy on end */
    unsigned homes;
};
struct world {
    struct service services[ALL];
    uint64_t index, now_ms;
    struct returning *returning;
    struct rng rng;
};

static void world_open(struct world *world, uint64_t seed) {
    *world = (struct world){.index = 1, .returning = returning_new(RETURN_MS)};
    rng_seed(&world->rng, seed);
    for (size_t i = 0; i < ALL; i++) {
        struct service *service = &world->services[i];
        bool rest = i >= SERVICES;
        snprintf(service->name, sizeof service->name, "s%zu", rest ? (size_t)SERVICES : i);
        if (rest) snprintf(service->region, sizeof service->region, "r%zu", ALL - i);
        service->healthy = true;
    }
}

static void turn(struct world *world, struct service *service, bool healthy) {
    if (service->healthy == healthy) return;
    service->healthy = healthy, world->index++;
    if (healthy) service->healthy_ms = world->now_ms;
    else if (!service->away || service->back) service->away = world->index, service->back = 0;
}

/* As the state machine takes the command. */
static void take(struct world *world, const Pb__FailoverHomeCommand *command) {
    for (size_t i = 0; i < ALL; i++) {
        struct service *service = &world->services[i];
        if (strcmp(service->name, command->service) != 0 || !service->healthy) continue;
        if (strcmp(service->region, command->region) != 0) continue;
        if (!service->away || service->away != command->away_index || service->back != command->back_index) continue;
        world->index++;
        if (!service->back) {
            service->back = world->index;
            continue;
        }
        cr_assert(world->now_ms - service->healthy_ms >= RETURN_MS, "%s is home after %d ms", service->name,
                  (int)(world->now_ms - service->healthy_ms));
        service->away = service->back = 0, service->homes++;
    }
}

/* The service that stays away, with its regions at rest. */
static void rests(const struct world *world, Pb__FailoverState *state, Pb__Failover *record) {
    static Pb__FailoverRest rests[RESTS], *pointers[RESTS];
    static protobuf_c_boolean over[RESTS];
    *state = (Pb__FailoverState)PB__FAILOVER_STATE__INIT, *record = (Pb__Failover)PB__FAILOVER__INIT;
    state->record = record, state->wanted = true, state->rests_over = over;
    record->service = TEXT(world->services[SERVICES].name), record->away_index = 1, record->rests = pointers;
    for (size_t i = SERVICES; i < ALL; i++) {
        const struct service *at = &world->services[i];
        if (!at->away) continue;
        Pb__FailoverRest *rest = pointers[record->n_rests] = &rests[record->n_rests];
        pb__failover_rest__init(rest);
        rest->region = TEXT(at->region), rest->away_index = at->away, rest->back_index = at->back;
        over[record->n_rests++] = at->healthy, state->n_rests_over++;
    }
}

static void look(struct world *world) {
    Pb__FailoverState states[SERVICES + 1], *pointers[SERVICES + 1];
    Pb__Failover records[SERVICES + 1];
    Pb__FailoversResult result = PB__FAILOVERS_RESULT__INIT;
    Pb__FailoverHomeCommand command;
    for (size_t i = 0; i < SERVICES; i++) {
        const struct service *service = &world->services[i];
        if (!service->away) continue;
        states[i] = (Pb__FailoverState)PB__FAILOVER_STATE__INIT;
        records[i] = (Pb__Failover)PB__FAILOVER__INIT;
        records[i].service = TEXT(service->name);
        records[i].away_index = service->away, records[i].back_index = service->back;
        states[i].record = &records[i], states[i].healthy = service->healthy, states[i].wanted = true;
        pointers[result.n_failovers++] = &states[i];
    }
    rests(world, &states[SERVICES], &records[SERVICES]);
    pointers[result.n_failovers++] = &states[SERVICES];
    result.failovers = pointers;
    returning_look(world->returning, &result, world->now_ms);
    size_t told = 0;
    while (returning_next(world->returning, world->now_ms, &command)) {
        cr_assert(++told <= ALL, "one was told twice after one look");
        if (rng_below(&world->rng, 10) == 0) continue; /* it got lost */
        for (size_t i = 0; i < ALL; i++)               /* something happens before it is applied */
            if (rng_below(&world->rng, 8) == 0) turn(world, &world->services[i], !world->services[i].healthy);
        take(world, &command);
    }
}

Test(returning, flapping_services_stay_away_until_they_were_healthy_on_end) {
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct world world;
        world_open(&world, seed);
        uint64_t pause_ms = 200 + rng_below(&world.rng, 8000);
        for (size_t step = 0; step < 400; step++) {
            world.now_ms += 50 + rng_below(&world.rng, pause_ms);
            struct service *service = &world.services[rng_below(&world.rng, ALL)];
            if (rng_below(&world.rng, 3) == 0) turn(&world, service, !service->healthy);
            look(&world);
            if (rng_below(&world.rng, 100) == 0) returning_forget(world.returning); /* another led for a while */
        }
        for (size_t i = 0; i < ALL; i++) turn(&world, &world.services[i], true);
        rng_seed(&world.rng, 1);
        for (size_t i = 0; i < 200; i++) {
            for (size_t k = 0; k < ALL; k++) turn(&world, &world.services[k], true);
            world.now_ms += 500;
            look(&world);
        }
        for (size_t i = 0; i < ALL; i++)
            cr_assert(!world.services[i].away, "%s %s stays away", world.services[i].name, world.services[i].region);
        returning_free(world.returning);
    }
}

static Pb__Failover record;
static Pb__FailoverState state;
static bool tells(struct returning *returning, uint64_t now_ms, Pb__FailoverHomeCommand *command) {
    Pb__FailoverState *states[] = {&state};
    Pb__FailoversResult result = PB__FAILOVERS_RESULT__INIT;
    state.record = &record;
    result.failovers = states, result.n_failovers = 1;
    returning_look(returning, &result, now_ms);
    return returning_next(returning, now_ms, command);
}

static struct returning *begin(uint64_t return_ms) {
    record = (Pb__Failover)PB__FAILOVER__INIT, state = (Pb__FailoverState)PB__FAILOVER_STATE__INIT;
    record.service = TEXT("web"), record.away_index = 5;
    state.wanted = true;
    return returning_new(return_ms);
}

Test(returning, the_steps_of_one_service) {
    Pb__FailoverHomeCommand command;
    struct returning *returning = begin(RETURN_MS);
    cr_expect_not(tells(returning, 1000, &command), "it is not healthy");
    state.healthy = true;
    cr_assert(tells(returning, 2000, &command), "it is healthy again: that is noted");
    cr_expect(command.away_index == 5 && command.back_index == 0 && strcmp(command.service, "web") == 0);
    cr_expect_not(returning_next(returning, 2000, &command), "once");
    record.back_index = 7;
    cr_expect_not(tells(returning, 3000, &command));
    cr_expect_not(tells(returning, 12999, &command), "not long enough");
    record.away_index = 8, record.back_index = 9;
    cr_expect_not(tells(returning, 13000, &command), "it went meanwhile, and is back: the time begins anew");
    cr_expect_not(tells(returning, 22999, &command));
    cr_assert(tells(returning, 23000, &command));
    cr_expect(command.away_index == 8 && command.back_index == 9);
    returning_forget(returning);
    cr_expect_not(tells(returning, 30000, &command), "another leader has not seen it");
    cr_expect(tells(returning, 40000, &command));
    returning_free(returning);
}

Test(returning, what_nobody_else_knows_goes_at_once) {
    Pb__FailoverHomeCommand command;
    struct returning *returning = begin(RETURN_MS);
    state.wanted = false;
    cr_assert(tells(returning, 1000, &command), "neither here nor elsewhere");
    cr_expect_eq(command.away_index, 5);
    state.wanted = true, record.away_index = 0;
    cr_expect_not(tells(returning, 99000, &command), "an order alone is nothing to come home from");
    returning_free(returning);
}

Test(returning, a_region_at_rest_is_looked_after_beside_the_service_and_other_regions) {
    Pb__FailoverHomeCommand command;
    struct returning *returning = begin(RETURN_MS);
    Pb__FailoverRest us = PB__FAILOVER_REST__INIT, ap = PB__FAILOVER_REST__INIT, *both[] = {&us, &ap};
    protobuf_c_boolean over[] = {false, true};
    us.region = TEXT("us"), us.away_index = 6, ap.region = TEXT("ap"), ap.away_index = 7;
    record.rests = both, record.n_rests = 2, state.rests_over = over, state.n_rests_over = 2;
    cr_assert(tells(returning, 1000, &command), "ap is healthy again, us and this region are not");
    cr_expect(strcmp(command.region, "ap") == 0 && strcmp(command.service, "web") == 0);
    cr_expect(command.away_index == 7 && command.back_index == 0);
    cr_expect_not(returning_next(returning, 1000, &command));
    ap.back_index = 8, over[0] = true;
    cr_assert(tells(returning, 6000, &command));
    cr_expect(strcmp(command.region, "us") == 0 && command.away_index == 6);
    us.back_index = 9, state.healthy = true, record.back_index = 10;
    cr_expect_not(tells(returning, 8000, &command), "not long enough, none of them");
    cr_assert(tells(returning, 16000, &command));
    cr_expect(strcmp(command.region, "ap") == 0 && command.away_index == 7 && command.back_index == 8);
    cr_expect_not(returning_next(returning, 16000, &command), "each has its own time");
    record.n_rests = state.n_rests_over = 1;
    cr_assert(tells(returning, 18000, &command));
    cr_expect_str_empty(command.region, "the service itself");
    cr_assert(returning_next(returning, 18000, &command));
    cr_expect_str_eq(command.region, "us");
    returning_free(returning);
}

Test(returning, without_a_time_it_comes_home_with_the_second_look) {
    Pb__FailoverHomeCommand command;
    struct returning *returning = begin(0);
    state.healthy = true;
    cr_assert(tells(returning, 1000, &command));
    record.back_index = 7;
    cr_assert(tells(returning, 1500, &command));
    returning_free(returning);
}
