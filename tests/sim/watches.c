/* Blocking queries, in the steps of rpc/reads/read.h: confirm, read, then enter the watch table, and read again if
 * the thing's generation has moved meanwhile; when woken, arm first, then confirm and read. Between any two steps
 * the state machine may apply something. The order is this file's own: that of the program is tested by
 * tests/rpc/thread_fetch_service.c and tests/http/test_large.c. */
#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "registry/machine.h"
#include "tests/sim/module.h"

enum step { STEP_PARK, STEP_WOKEN, STEP_EXPIRED };

struct watch {
    struct watch_waiter waiter;
    struct own { /* of the query's further watch keys */
        struct watch_waiter waiter;
        struct watch *watch;
    } own[OP_THINGS_MAX - 1];
    struct watch *next;
    struct server *server;
    uint64_t op, generation, replacements, index; /* index: as it was seen last */
    bool parked, fired, confirming, expired;
};

static struct watch *watch_of(struct server *server, uint64_t op) {
    struct watch *watch = server->watches;
    while (watch && watch->op != op) watch = watch->next;
    return watch;
}

static struct watch_table *table_of(struct server *server) { return machine_watches(server->machine.machine); }

static uint64_t generation_of(struct server *server, const struct op *op) {
    struct arena arena = {0};
    struct watch_key things[OP_THINGS_MAX];
    uint64_t generation = 0;
    size_t count = op_things(op, &arena, things);
    for (size_t i = 0; i < count; i++) generation += watch_generation(table_of(server), things[i]);
    arena_free(&arena);
    return generation;
}

static void watch_free(struct watch *watch) {
    struct watch **at = &watch->server->watches;
    while (*at != watch) at = &(*at)->next;
    *at = watch->next;
    if (watch->parked) {
        for (size_t i = 0; i < ARRAY_COUNT(watch->own); i++)
            watch_remove(table_of(watch->server), &watch->own[i].waiter);
        watch_remove(table_of(watch->server), &watch->waiter);
    }
    free(watch);
}

void watches_close(struct server *server) {
    while (server->watches) {
        op_done(server->sim, server->watches->op, OP_REFUSED, 0);
        watch_free(server->watches);
    }
}

static void later(struct watch *watch, enum step step, uint64_t us) {
    sim_schedule(watch->server->sim, us, EVENT_WATCH, watch->server->slot, watch->op << 2 | step, NULL);
}

static void fired(struct watch_waiter *waiter) {
    struct watch *watch = CONTAINER_OF(waiter, struct watch, waiter);
    watch->fired = true;
    later(watch, STEP_WOKEN, sim_random(watch->server->sim, 0, 200));
}

static void own_fired(struct watch_waiter *waiter) {
    struct watch *watch = CONTAINER_OF(waiter, struct own, waiter)->watch;
    if (atomic_exchange(&watch->waiter.armed, false)) fired(&watch->waiter);
}

static void answer(struct watch *watch) {
    uint64_t op = watch->op;
    struct server *server = watch->server;
    watch_free(watch);
    op_done(server->sim, op, OP_DONE, server->machine.applied);
}

/* -- the first read -- */

void watch_read(struct server *server, uint64_t id) {
    struct watch *watch = watch_of(server, id);
    if (watch) { /* not the first */
        watch->confirming = false;
        watch_again(server, id);
        return;
    }
    watch = mem_zalloc(sizeof *watch);
    watch->server = server;
    watch->op = id;
    watch->next = server->watches;
    server->watches = watch;
    struct op *op = op_get(server->sim, id);
    watch->generation = generation_of(server, op);
    watch->replacements = machine_replacements(server->machine.machine);
    bool foreign = !op->stale && op->known_index > machine_index(server->machine.machine);
    bool blocking = !foreign && op->known_index >= machine_floor_now(server->machine.machine);
    op_look(server, op);
    watch->index = op->seen_index;
    if (!blocking || op->seen_index > op->known_index) answer(watch);
    else later(watch, STEP_PARK, sim_random(server->sim, 0, sim_chance(server->sim, 300) ? 20 * MS : 300));
}

static void confirm_again(struct watch *watch) {
    struct server *server = watch->server;
    if (watch->confirming) return;
    if (op_get(server->sim, watch->op)->stale) {
        watch_again(server, watch->op);
    } else {
        watch->confirming = true;
        edge_read(server, watch->op);
    }
}

static void park(struct watch *watch) {
    struct server *server = watch->server;
    struct op *op = op_get(server->sim, watch->op);
    struct arena arena = {0};
    struct watch_key things[OP_THINGS_MAX];
    size_t count = op_things(op, &arena, things);
    watch_add(table_of(server), &watch->waiter, things[0], fired);
    for (size_t i = 0; i + 1 < count; i++) {
        watch->own[i].watch = watch;
        watch_add(table_of(server), &watch->own[i].waiter, things[i + 1], own_fired);
    }
    arena_free(&arena);
    watch->parked = true;
    later(watch, STEP_EXPIRED, op->wait_us);
    if (server->sim->options.watch_mutations) return; /* that rule is switched off */
    if (generation_of(server, op) != watch->generation) confirm_again(watch);
}

/* -- later ones -- */

void watch_again(struct server *server, uint64_t id) {
    struct watch *watch = watch_of(server, id);
    struct op *op = op_get(server->sim, id);
    op_look(server, op);
    bool news = op->seen_index > op->known_index, fell = watch->fired;
    watch->fired = false;
    bool same = op->seen_index == watch->index;
    watch->index = op->seen_index;
    if (fell && same && watch->replacements == machine_replacements(server->machine.machine))
        sim_violation(server->sim, RULE_WATCH, "watch %" PRIu64 " at s%u was woken, what it reads stands at %" PRIu64,
                      id, server->slot + 1, op->seen_index);
    watch->replacements = machine_replacements(server->machine.machine);
    if (news || watch->expired) answer(watch);
}

/* Armed, and nothing under way: then nothing may have changed. */
static void expire(struct watch *watch) {
    struct server *server = watch->server;
    struct op *op = op_get(server->sim, watch->op);
    watch->expired = true;
    op_look(server, op);
    if (watch->waiter.armed && !watch->confirming && !op->quiet && op->seen_index > op->known_index)
        sim_violation(server->sim, RULE_WATCH,
                      "watch %" PRIu64 " at s%u was not woken: what it reads has changed at %" PRIu64
                      ", it knew %" PRIu64,
                      op->id, server->slot + 1, op->seen_index, op->known_index);
    confirm_again(watch);
}

void watch_failed(struct server *server, uint64_t id) { /* not confirmed in time */
    struct watch *watch = watch_of(server, id);
    if (watch) watch_free(watch);
}

void watch_event(struct server *server, uint64_t number) {
    struct watch *watch = watch_of(server, number >> 2);
    if (!watch) return;
    switch ((enum step)(number & 3)) {
        case STEP_PARK: park(watch); break;
        case STEP_WOKEN:
            watch_arm(&watch->waiter); /* first, as rpc/reads/read.c */
            for (size_t i = 0; i < ARRAY_COUNT(watch->own); i++)
                if (watch->own[i].waiter.entry) watch_arm(&watch->own[i].waiter);
            confirm_again(watch);
            break;
        case STEP_EXPIRED: expire(watch); break;
    }
}
