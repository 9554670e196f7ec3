#include "health/flap.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"

void flap_begin(struct flap *flap, uint32_t limit, uint64_t window_ns, Pb__Status status) {
    CHECK(limit <= FLAP_LIMIT_MOST && status <= PB__STATUS__CRITICAL);
    *flap = (struct flap){.limit = limit, .window_ns = window_ns, .said = status, .reported = status};
    for (size_t i = 0; i < ARRAY_COUNT(flap->left_ns); i++) flap->left_ns[i] = FLAP_NEVER;
    if (limit > 0) flap->changes = mem_zalloc((limit + 1) * sizeof *flap->changes);
}

void flap_end(struct flap *flap) {
    free(flap->changes);
    flap->changes = NULL;
    flap->limit = 0;
}

static bool within(const struct flap *flap, uint64_t then_ns, uint64_t now_ns) {
    return then_ns != FLAP_NEVER && now_ns - then_ns < flap->window_ns;
}

/* The time of the (limit + 1)th change, counted from the last: while it is within the window, there were too many
 * changes. */
static uint64_t oldest(const struct flap *flap) {
    if (flap->limit == 0 || flap->count <= flap->limit) return FLAP_NEVER;
    return flap->changes[flap->count % (flap->limit + 1)];
}

bool flap_holds(const struct flap *flap, uint64_t now_ns) { return within(flap, oldest(flap), now_ns); }

uint64_t flap_due_ns(const struct flap *flap, uint64_t now_ns) {
    if (!flap_holds(flap, now_ns)) return FLAP_NEVER;
    uint64_t due = FLAP_NEVER, first = oldest(flap);
    for (size_t i = 0; i < ARRAY_COUNT(flap->left_ns); i++) { /* a worse state falls out of the window */
        if (within(flap, flap->left_ns[i], now_ns) && flap->left_ns[i] + flap->window_ns < due) {
            due = flap->left_ns[i] + flap->window_ns;
        }
    }
    return first + flap->window_ns < due ? first + flap->window_ns : due;
}

Pb__Status flap_look(struct flap *flap, uint64_t now_ns) {
    flap->reported = flap->said;
    if (!flap_holds(flap, now_ns)) return flap->reported;
    for (size_t i = 0; i < ARRAY_COUNT(flap->left_ns); i++) {
        if (i > flap->reported && within(flap, flap->left_ns[i], now_ns)) flap->reported = (Pb__Status)i;
    }
    return flap->reported;
}

Pb__Status flap_say(struct flap *flap, Pb__Status status, uint64_t now_ns) {
    CHECK(status <= PB__STATUS__CRITICAL);
    if (status != flap->said && flap->limit > 0) {
        flap->left_ns[flap->said] = now_ns;
        flap->changes[flap->count++ % (flap->limit + 1)] = now_ns;
    }
    flap->said = status;
    return flap_look(flap, now_ns);
}
