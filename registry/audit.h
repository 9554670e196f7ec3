/* The self-audit's sums and the judgement over them (docs/decisions/self-audit.md). Pure: no store, no clock, no
 * network.
 *
 * At each log index that is a multiple of AUDIT_EVERY every server notes the sum of its records right after that entry.
 * The sum leaves out the record of the applied index, which is written once per batch, because batches differ between
 * servers. So the sum is a function of the index alone. Each server keeps its newest notes in a ring, and judges itself
 * by everybody's rings. */
#ifndef COORD_REGISTRY_AUDIT_H
#define COORD_REGISTRY_AUDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AUDIT_EVERY 512
#define AUDIT_KEPT  64 /* a server that lags by AUDIT_EVERY * AUDIT_KEPT entries can still be compared */

struct audit_pair {
    uint64_t index, sum;
};
struct audit_ring {
    struct audit_pair pairs[AUDIT_KEPT];
    size_t count;
}; /* oldest first; zero-initialise */

/* Indexes rise; one that does not (the state was replaced) begins the ring anew. */
void audit_note(struct audit_ring *ring, uint64_t index, uint64_t sum);
bool audit_find(const struct audit_ring *ring, uint64_t index, uint64_t *sum);
uint64_t audit_newest(const struct audit_ring *ring); /* index; 0: nothing noted */

struct audit_report {
    uint64_t id;
    bool voter;
    struct audit_ring ring; /* empty: nothing was heard of the server, or it is fenced and its sums mean nothing */
};
enum audit_verdict {
    AUDIT_NOTHING,  /* no index can be judged yet */
    AUDIT_EQUAL,    /* a majority of the voters has our value */
    AUDIT_MINORITY, /* a majority of the voters has another value than we */
    AUDIT_OPEN,     /* values differ, none has a majority yet, and voters are missing */
    AUDIT_SPLIT,    /* all voters have reported, and no value has a majority */
};
struct audit_judgement {
    enum audit_verdict verdict;
    uint64_t index, own, other; /* where; our sum; the majority's, or one that differs from ours */
};
/* Judges the server `self` (one of `reports`) by the highest index of its ring at which the verdict is EQUAL, MINORITY
 * or SPLIT; if there is none, or a higher one is open, OPEN at the highest where values differ. `voters`: the number of
 * voters in the cluster; those without a report count as missing. */
struct audit_judgement audit_judge(uint64_t self, size_t voters, const struct audit_report *reports, size_t count);

#endif
