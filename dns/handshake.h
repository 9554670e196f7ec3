/* How many handshakes of DNS over TLS are under way at once in a thread, and which one is given up for a new client. Pure.
 *
 * A handshake costs memory and a quarter of a millisecond of signing. When HANDSHAKES_MAX are under way, new clients wait in the
 * kernel's queue. They do not wait for handshakes that stop halfway: the oldest one is closed as soon as its client had
 * HANDSHAKE_GRACE_MS. A client that answers has by far enough of that, unless it waits for this thread; while the thread is
 * behind, handshakes are given up only after HANDSHAKE_BEHIND_MS. So many clients that come back at once are all served. */
#ifndef COORD_DNS_HANDSHAKE_H
#define COORD_DNS_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HANDSHAKE_MS = 5000, /* no handshake takes longer */
    HANDSHAKES_MAX = 256,
    HANDSHAKE_GRACE_MS = 200,
    HANDSHAKE_BEHIND_MS = 1000,
    HANDSHAKE_TURN_MS = 2, /* of a turn, for handshakes, at the turn's end; at least one goes on */
};

enum handshake_admission {
    HANDSHAKE_ADMIT,
    HANDSHAKE_REPLACE, /* the oldest one is to be closed first */
    HANDSHAKE_WAIT,
};
/* May a new client begin? `count`: under way; `age_ms`: of the oldest of them; `behind`: clients may have sent what this
 * thread has not looked at. With HANDSHAKE_WAIT, *wait_ms is the time until the answer changes by itself, at least 1. */
enum handshake_admission handshake_admit(size_t count, uint64_t age_ms, bool behind, uint64_t *wait_ms);

#endif
