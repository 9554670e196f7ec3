#include "phasers.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

struct fixture world;
char id[SESSIONS][UUID_TEXT_SIZE + 1];
void phasers_setup(void) {
    fixture_open(&world);
    cr_assert(node_register(&world, "n1").yes);
    for (unsigned i = 0; i < SESSIONS; i++) session_id(i, id[i]);
    for (unsigned i = 0; i < 8; i++) cr_assert(session_make(&world, id[i], &(struct session_plan){.node = "n1"}).yes);
}
void phasers_teardown(void) { fixture_close(&world); }

/* -- commands, with what they answer ------------------------------------------------------------------------------ */

static void take(void *data, void *origin, const struct machine_result *result) {
    struct answer *answer = origin;
    (void)data;
    *answer = (struct answer){.error = result->error, .yes = result->yes, .index = result->index};
    if (result->text) snprintf(answer->text, sizeof answer->text, "%s", result->text);
    if (!result->message) return;
    if (result->message->descriptor == &pb__phaser_arrival__descriptor) {
        const Pb__PhaserArrival *arrival = (const Pb__PhaserArrival *)result->message;
        answer->phase = arrival->phase, answer->now = arrival->now, answer->arrived = arrival->arrived;
        answer->registered = arrival->registered, answer->advanced = arrival->advanced;
    } else {
        const Pb__PhaserRegistration *registration = (const Pb__PhaserRegistration *)result->message;
        answer->phase = registration->phase, answer->mode = registration->mode;
    }
}

struct answer phaser_command(uint8_t type, const ProtobufCMessage *message) {
    struct buffer bytes = {0};
    struct answer answer = {0};
    machine_command(&bytes, type, message);
    struct machine_input input = {.index = machine_applied(world.machine) + 1,
                                  .term = 1,
                                  .command = buffer_slice(&bytes),
                                  .is_command = true,
                                  .origin = &answer};
    cr_assert_eq(machine_apply(world.machine, &input, 1, take, NULL, NULL), CO_OK);
    buffer_free(&bytes);
    return answer;
}

struct answer join_with(const char *name, const char *session, const char *made, Pb__PhaserMode mode,
                        const char *parent) {
    Pb__PhaserRegisterCommand command = PB__PHASER_REGISTER_COMMAND__INIT;
    Pb__SessionUse use = PB__SESSION_USE__INIT;
    Pb__Session create = PB__SESSION__INIT;
    use.id = text(session);
    create.id = text(made), create.node = text("n1"), create.ttl_ns = 15000000000;
    if (made) use.create = &create;
    command.name = text(name), command.mode = mode, command.parent = text(parent), command.session = &use;
    return phaser_command(PHASER_REGISTER, &command.base);
}
struct answer join_as(const char *name, unsigned session, Pb__PhaserMode mode) {
    return join_with(name, id[session], NULL, mode, "");
}
struct answer join(const char *name, unsigned session) {
    return join_as(name, session, SIGNAL_WAIT);
}
struct answer join_below(const char *name, unsigned session, const char *parent) {
    return join_with(name, id[session], NULL, SIGNAL_WAIT, parent);
}

Pb__PhaserArriveCommand arrival(const char *name, unsigned session) {
    Pb__PhaserArriveCommand command = PB__PHASER_ARRIVE_COMMAND__INIT;
    command.name = text(name), command.session = id[session];
    return command;
}
struct answer arrive(const char *name, unsigned session) {
    Pb__PhaserArriveCommand command = arrival(name, session);
    return phaser_command(PHASER_ARRIVE, &command.base);
}
struct answer arrive_in(const char *name, unsigned session, uint64_t phase) {
    Pb__PhaserArriveCommand command = arrival(name, session);
    command.phase = phase, command.has_phase = true;
    return phaser_command(PHASER_ARRIVE, &command.base);
}

struct answer leave(const char *name, unsigned session) {
    Pb__PhaserDeregisterCommand command = PB__PHASER_DEREGISTER_COMMAND__INIT;
    command.name = text(name), command.session = id[session];
    return phaser_command(PHASER_DEREGISTER, &command.base);
}

/* -- what is there ------------------------------------------------------------------------------------------------ */

struct query_result ask(const char *name) {
    Pb__PhaserRequest request = PB__PHASER_REQUEST__INIT;
    request.name = text(name);
    return fixture_ask(&world, &query_phaser, &request.base);
}
const Pb__PhaserState *state(const char *name) {
    struct query_result result = ask(name);
    cr_assert(result.found, "%s", name);
    return (const Pb__PhaserState *)result.message;
}
uint64_t phase(const char *name) { return state(name)->phaser->phase; }
void expect_counts(const char *name, uint64_t at, uint32_t arrived, uint32_t registered) {
    const Pb__Phaser *phaser = state(name)->phaser;
    cr_expect(phaser->phase == at && phaser->arrived == arrived && phaser->registered == registered,
              "%s: phase %llu, %u of %u; wanted phase %llu, %u of %u", name, (unsigned long long)phaser->phase,
              phaser->arrived, phaser->registered, (unsigned long long)at, arrived, registered);
}

Pb__PhaserAwaitRequest waiter_of(const char *name, unsigned session) {
    static struct arena arena;
    Pb__PhaserAwaitRequest request = PB__PHASER_AWAIT_REQUEST__INIT;
    arena_reset(&arena);
    request.name = text(name), request.session = id[session];
    phaser_await_key(&request, &arena);
    return request;
}
struct query_result wait_look(const char *name, unsigned session) {
    Pb__PhaserAwaitRequest request = waiter_of(name, session);
    return fixture_ask(&world, &query_phaser_await, &request.base);
}

static void count(struct watch_waiter *waiter) {
    CONTAINER_OF(waiter, struct counter, waiter)->fired++;
    watch_arm(waiter);
}
void watch(struct counter *counter, struct watch_key watched) {
    *counter = (struct counter){0};
    watch_add(machine_watches(world.machine), &counter->waiter, watched, count);
}
void watch_name(struct counter *counter, uint8_t space, const char *name) {
    watch(counter, (struct watch_key){space, slice_text(name)});
}
void unwatch(struct counter *counter) { watch_remove(machine_watches(world.machine), &counter->waiter); }
