/* Whether a worker is in a rush: more queries come than a thread should be woken for one by one. Pure. */
#ifndef COORD_DNS_RUSH_H
#define COORD_DNS_RUSH_H

#include <stdbool.h>
#include <stdint.h>

enum {
    RUSH_WINDOW_MS = 20,    /* judged when it is over, with the queries that come then */
    RUSH_BEGINS_HZ = 30000, /* queries a second */
    RUSH_ENDS_HZ = 20000,
};

struct rush { /* zero-initialise */
    bool on;
    uint64_t begun_ns, queries;
};

/* `queries` have come together at `now_ns`, of any clock that does not go back. Returns whether `on` changed. */
bool rush_note(struct rush *rush, uint64_t now_ns, unsigned queries);

#endif
