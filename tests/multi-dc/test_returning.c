/* When a service comes home: once it was healthy for long enough on end, and never before. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "multi-dc/returning.h"
#include "tests/multi-dc/neighbours.h"

#define RETURN_MS 10000

/* Services as the state machine has them, in a row. */
#define SERVICES 3
struct service {
    char name[16];
    bool healthy;
    uint64_t away, back, healthy_ms; /* since when it is healthy on end */
    unsigned homes;
};
struct world {
    struct service services[SERVICES];
    uint64_t index, now_ms;
    struct returning *returning;
    struct rng rng;
};

static void world_open(struct world *world, uint64_t seed) {
    *world = (struct world){.index = 1, .returning = returning_new(RETURN_MS)};
    rng_seed(&world->rng, seed);
    for (size_t i = 0; i < SERVICES; i++) {
        snprintf(world->services[i].name, sizeof world->services[i].name, "s%zu", i);
        world->services[i].healthy = true;
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
    for (size_t i = 0; i < SERVICES; i++) {
        struct service *service = &world->services[i];
        if (strcmp(service->name, command->service) != 0 || !service->healthy) continue;
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

static void look(struct world *world) {
    Pb__FailoverState states[SERVICES], *pointers[SERVICES];
    Pb__Failover records[SERVICES];
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
    result.failovers = pointers;
    returning_look(world->returning, &result, world->now_ms);
    size_t told = 0;
    while (returning_next(world->returning, world->now_ms, &command)) {
        cr_assert(++told <= result.n_failovers, "one was told twice after one look");
        if (rng_below(&world->rng, 10) == 0) continue; /* it got lost */
        for (size_t i = 0; i < SERVICES; i++)          /* something happens before it is applied */
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
            struct service *service = &world.services[rng_below(&world.rng, SERVICES)];
            if (rng_below(&world.rng, 3) == 0) turn(&world, service, !service->healthy);
            look(&world);
            if (rng_below(&world.rng, 100) == 0) returning_forget(world.returning); /* another led for a while */
        }
        for (size_t i = 0; i < SERVICES; i++) turn(&world, &world.services[i], true);
        rng_seed(&world.rng, 1);
        for (size_t i = 0; i < 200; i++) {
            for (size_t k = 0; k < SERVICES; k++) turn(&world, &world.services[k], true);
            world.now_ms += 500;
            look(&world);
        }
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

Test(returning, without_a_time_it_comes_home_with_the_second_look) {
    Pb__FailoverHomeCommand command;
    struct returning *returning = begin(0);
    state.healthy = true;
    cr_assert(tells(returning, 1000, &command));
    record.back_index = 7;
    cr_assert(tells(returning, 1500, &command));
    returning_free(returning);
}
