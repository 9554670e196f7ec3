/* Which share of its keys an owner keeps (policy ring, /v1/lb/owner): one whose load is beyond KEEP_BOUND times the mean
 * gives up as many as bring it under that, and gets them back when its load has fallen. A key is given up by its hash, so
 * the others stay where they are (base/rendezvous.h).
 *
 * That is a loop: keys follow the share, the load follows the keys, and reports follow the load, late. So a share changes
 * by one step, and then not until KEEP_REPORTS reports have come that were made when the step was known everywhere; what
 * is compared is their mean. A step gives up what is too much by the last reports, at most three tenths of the keys, and
 * gives back at most a tenth more of them, only while the load is KEEP_SLACK below the bound. In between nothing moves.
 *
 * Where a step did not help, because load does not come from keys, or those who get the keys are full, no other one
 * follows: all stays as it is until the load is another.
 *
 * One process decides for an instance, the server that hears of it directly, and the share goes with the hint: so all
 * others have the same one as soon as they know of it (docs/decisions/key-owners.md).
 *
 * Pure: time is an argument. Not thread-safe. */
#ifndef COORD_LB_KEEP_H
#define COORD_LB_KEEP_H

#include <stdbool.h>
#include <stdint.h>

#define KEEP_BOUND     1.25 /* times the mean load */
#define KEEP_SLACK     0.1  /* of the bound */
#define KEEP_REPORTS   3
#define KEEP_SETTLE_NS (1500 * UINT64_C(1000000)) /* until a change is known everywhere */
#define KEEP_STEP_NS   (4000 * UINT64_C(1000000)) /* between two changes, at least */
#define KEEP_LEAST     (1.0 / 64)

struct keep {
    double share; /* above 0 to 1 */
    double load;  /* the mean of reports since the share changed; NAN: none ever */
    unsigned reports;
    uint64_t changed_ns; /* 0: never */
    double before, part; /* at the last step down: load / mean load, and the part of the keys that was kept; 0: none */
    double base;         /* the share before it */
};
struct keep keep_new(void);
/* The instance says its load (with what its errors add). */
void keep_report(struct keep *keep, double load, uint64_t now_ns);
/* Makes a step, if it is time. `mean`: of the service's instances; `others`: of other ones than before, so that a step just
 * made is made anew. True: the share is another one. */
bool keep_decide(struct keep *keep, double mean, bool others, uint64_t now_ns);
/* Somebody else has decided. True: the share is another one. */
bool keep_take(struct keep *keep, double share, uint64_t now_ns);

#endif
