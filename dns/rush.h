/* Decides whether a worker is in a rush: so many queries come, and several at once, that it should not be woken for
 * each. Pure functions. */
#ifndef COORD_DNS_RUSH_H
#define COORD_DNS_RUSH_H

#include <stdbool.h>
#include <stdint.h>

/* A single client that waits for each answer before it asks again makes no rush, however fast it is. So the mean size
 * of batches counts too, in hundredths of a query. */
enum {
    RUSH_WINDOW_MS = 20, /* the decision is made with the first queries after it */
    RUSH_BEGINS_HZ = 30000,
    RUSH_BEGINS_BATCH = 200,
    RUSH_ENDS_HZ = 20000, /* when either is below */
    RUSH_ENDS_BATCH = 125,
};

struct rush { /* zero-initialise */
    bool on;
    uint64_t begun_ns, queries, batches;
};

/* `queries` have come together at `now_ns`, of any clock that does not go back. Returns whether `on` changed. */
bool rush_note(struct rush *rush, uint64_t now_ns, unsigned queries);

#endif
