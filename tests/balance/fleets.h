/* Random fleets whose loads follow their keys, against lb/load.h: is every owner within the bound in the end, and does all
 * come to rest? keys.h looks closely at a few fleets, this looks at many.
 *
 * Assumed: two to ten instances, a key costs each of them another part of what it can do, up to 13 times as much as others;
 * all together are busy to 30 to 90 %. One process decides. Time goes in seconds; FLEETS_SECONDS of them, of which those
 * after FLEETS_SETTLED are judged. */
#ifndef COORD_TESTS_BALANCE_FLEETS_H
#define COORD_TESTS_BALANCE_FLEETS_H

#include <stddef.h>
#include <stdint.h>

enum { FLEETS_SECONDS = 300, FLEETS_SETTLED = 180, FLEETS_KEYS = 1000 };

enum fleets_kind {
    FLEETS_USE,   /* load is the part that is used, at most 1 */
    FLEETS_WORK,  /* load is what there is to do, without a bound */
    FLEETS_QUEUE, /* rho / (1 - rho), at most 49 */
    FLEETS_LATE,  /* the same, reports are of three seconds ago */
    FLEETS_OWN,   /* work; a part of the instances has load that is not of the keys */
    FLEETS_NOISE, /* work; reports are wrong by up to three tenths */
    FLEETS_RARE,  /* work; a report every ten seconds */
    FLEETS_MEANS, /* work; reports are means over about five seconds */
    FLEETS_KINDS
};
extern const char *const fleets_names[FLEETS_KINDS];

struct fleets_outcome { /* parts of the fleets */
    double overloaded;  /* the greatest load, on average, is beyond 1.1 times the bound although it need not be */
    double swinging;    /* on average more than 0.2 % of the keys move in a second */
    double slow;        /* for the first time within 1.1 times the bound only after FLEETS_SETTLED */
    uint64_t seed;      /* of the last fleet that was one of these; 0: none */
};
void fleets_run(enum fleets_kind kind, unsigned count, struct fleets_outcome *outcome);

/* One fleet of these costs. */
struct fleets_seen {
    double moved,
        load; /* part of the keys that moves in a second; greatest load / mean load: means after FLEETS_SETTLED */
    unsigned within_s; /* the first second at which it was within 1.1 times the bound; UINT32_MAX: never */
};
void fleets_one(enum fleets_kind kind, const double *costs, size_t count, struct fleets_seen *seen);

#endif
