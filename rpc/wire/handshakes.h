/* The order of handshakes. A handshake costs about half a millisecond of a loop in two or three pieces, its turns. When
 * thousands of agents come back at once, only a few turns are carried out in each turn of the loop, and the others wait,
 * so that answers go out in between.
 *
 * (1) A turn is asked for when bytes to work on are there. Whoever stops halfway has none, and holds nobody up.
 * (2) Those that have begun come first, because the other side waits for the rest of what was paid for already.
 * (3) Otherwise it goes by the time of asking.
 *
 * Decides only; handshakes_run.h acts. One thread. */
#ifndef COORD_RPC_HANDSHAKES_H
#define COORD_RPC_HANDSHAKES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/list.h"

/* A member of the caller's struct. Begin it with handshake_init. */
struct handshake {
    struct list link; /* while it waits */
    bool begun;       /* it has had a turn */
    void (*go)(struct handshake *handshake);
};

struct handshakes {
    struct list begun, fresh; /* that wait */
    unsigned per_turn, left;  /* turns in this turn of the loop */
    size_t waiting;
};

void handshake_init(struct handshake *handshake, void (*go)(struct handshake *handshake));
void handshakes_init(struct handshakes *handshakes, unsigned per_turn);
/* True: it is its turn now. False: it waits, until handshakes_next gives it out. One that waits may ask again, and keeps
 * its place. */
bool handshakes_ask(struct handshakes *handshakes, struct handshake *handshake);
/* The next one whose turn it is within this turn of the loop; NULL: none. */
struct handshake *handshakes_next(struct handshakes *handshakes);
void handshakes_turn(struct handshakes *handshakes); /* a turn of the loop begins */
/* It waits no more. May be called for one that does not wait. */
void handshakes_leave(struct handshakes *handshakes, struct handshake *handshake);
bool handshake_waits(const struct handshake *handshake);

#endif
