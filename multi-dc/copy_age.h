/* How old this server's copy of another region's catalog is at most, and how far away the region is. Decides only: times
 * are its arguments. Part of the follower of a catalog (multi-dc/follow_catalog.c).
 *
 * Every COPY_AGE_HEARTBEAT_MS the region is asked where its catalog is, and after the answer the own copy is looked at. A
 * copy that has reached a place is as new as the moment when the region was there. While the region changes all the time
 * the copy equals what was heard a while ago, so the last places are kept. A copy that is behind where it was before (this
 * region was set back to a backup) proves nothing of what it proved.
 *
 * Times are of any monotonic clock. One thread. */
#ifndef COORD_MULTI_DC_COPY_AGE_H
#define COORD_MULTI_DC_COPY_AGE_H

#include "multi-dc/copy.h"

#define COPY_AGE_HEARTBEAT_MS 1000
#define COPY_AGE_ROUNDS       8  /* round trips that the shortest is taken of */
#define COPY_AGE_HEARD        16 /* places of the region */

struct copy_age {
    uint64_t heartbeat_ms; /* the next one is due */
    struct copy_age_heard {
        Pb__CatalogAt at;
        uint64_t ms;
    } heard[COPY_AGE_HEARD];
    unsigned heard_count;
    Pb__CatalogAt ours; /* where the copy was when it was looked at last */
    uint64_t confirmed_ms, position;
    uint64_t answered_ms, newest; /* the last answer, and which place it named */
    uint32_t rounds_us[COPY_AGE_ROUNDS];
    unsigned round_count;
};

void copy_age_begin(struct copy_age *age);
/* Is a heartbeat due? Then it is asked. */
bool copy_age_asks(struct copy_age *age, uint64_t now_ms);
/* Its answer came, `round_ns` after it was asked. */
void copy_age_answered(struct copy_age *age, const Pb__CatalogAt *at, uint64_t round_ns, uint64_t now_ms);
/* The region was there at `as_of_ms` at the latest: of a server whose copy somebody else keeps. */
void copy_age_heard(struct copy_age *age, const Pb__CatalogAt *at, uint64_t as_of_ms);
/* The copy is here now; NULL: there is none. `other`: it is another one than before. */
void copy_age_seen(struct copy_age *age, const Pb__CatalogAt *at, bool other);
/* `confirmed_ms`: what the copy's follower knows besides; 0: nothing. UINT64_MAX: not known. */
uint64_t copy_age_ms(const struct copy_age *age, uint64_t confirmed_ms, uint64_t now_ms);
uint32_t copy_age_round_us(const struct copy_age *age); /* the shortest of the last; 0: none */

#endif
