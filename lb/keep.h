/* Decides the share of its keys that an owner keeps (policy ring, /v1/lb/owner). An owner whose load is beyond
 * KEEP_BOUND times the mean gives up as many keys as bring it below that, and gets them back when its load has fallen.
 * The hash of a key decides whether it is given up, so the other keys stay where they are (base/rendezvous.h). Only the
 * ratios of a service's shares count.
 *
 * This is a control loop: keys follow the share, the load follows the keys, and reports follow the load, late. So a
 * share changes by one step, and then not before KEEP_REPORTS reports have come that were made when the step was known
 * everywhere; their mean is compared. A step down gives up the excess by the last reports, at most three tenths of the
 * keys. A step up gives back at most a tenth more, and only while the load is KEEP_SLACK below the bound. Between these
 * two loads nothing moves.
 *
 * A step that has to be taken back was too large: the next one is at most half as large, and waits for twice as long.
 * Steps that go on in one direction grow again, and after KEEP_CALM_NS without a step the loop begins anew.
 *
 * One step without an effect is no reason to stop, because an owner far beyond its capacity is full before and after.
 * When six steps in a row had no effect, which may leave an eighth of the keys, the load does not come from the keys:
 * they come back, and stay until the load changes, or for KEEP_VAIN_NS, twice as long each time. A report at the end of
 * the scale (1: the capacity), or of an owner whose requests fail, is no evidence that a step had no effect.
 *
 * The server that hears of an instance directly decides for it, and the share goes along with the hint, so all
 * processes have the same share as soon as they have the hint (docs/decisions/key-owners.md).
 *
 * Pure: time is an argument. Not thread-safe. */
#ifndef COORD_LB_KEEP_H
#define COORD_LB_KEEP_H

#include <stdbool.h>
#include <stdint.h>

#define KEEP_BOUND     1.25 /* times the mean load */
#define KEEP_SLACK     0.1  /* of the bound */
#define KEEP_REPORTS   3
#define KEEP_SETTLE_NS (1500 * UINT64_C(1000000))       /* until a change is known everywhere */
#define KEEP_STEP_NS   (4000 * UINT64_C(1000000))       /* the least pause between two changes */
#define KEEP_PAUSE_NS  (64 * UINT64_C(1000000000))      /* the longest pause */
#define KEEP_HURRY_NS  (8000 * UINT64_C(1000000))       /* the longest pause while the load is beyond the bound */
#define KEEP_CALM_NS   (180 * UINT64_C(1000000000))     /* more than any pause */
#define KEEP_VAIN_NS   (10 * 60 * UINT64_C(1000000000)) /* pause before it is tried again, the first time */
#define KEEP_LEAST     (1.0 / 64)                       /* part of the greatest share of the service */
#define KEEP_TINY      1e-9                             /* no share is smaller */

/* The loads at the time of a step. */
struct keep_seen {
    double over; /* load / mean load; 0: not known */
    double load;
    double share; /* before the step */
};

struct keep {
    double share;  /* above 0 to 1 */
    double load;   /* mean of the reports since the share changed, without errors; NAN: no report yet */
    double errors; /* part of the requests that fail, 0 to 1: the mean of the last reports, because one alone says
                    * little */
    unsigned reports, fell;  /* fell: the last reports in a row of less than half of `load` */
    uint64_t changed_ns;     /* 0: never */
    int way;                 /* of the last step: -1 down, 1 up, 0: none */
    double step;             /* the most that the next step may change, as a logarithm */
    uint64_t pause_ns;       /* no step until this long after changed_ns */
    struct keep_seen before; /* at the last step, if that was down */
    struct keep_seen first;  /* at the first of the last steps down, if none of them had an effect */
    unsigned tried;          /* their number */
    double vain, vain_share; /* load / mean load that does not come from the keys (0: it may come from them); the share
                              * to go back to */
    uint64_t vain_ns;        /* when that was found */
    unsigned vain_times;     /* how often it was found */
};
struct keep keep_new(void);
/* Takes in a report of the instance: its load, and the part of its requests that fails. */
void keep_report(struct keep *keep, double load, double errors, uint64_t now_ns);

/* The service's instances. */
struct keep_others {
    double mean; /* mean of their loads */
    double most; /* the greatest of their shares */
    bool anew;   /* the set of instances has changed, so a step that was just made is made anew */
};
/* Makes a step, if it is time. True: the share has changed. */
bool keep_decide(struct keep *keep, const struct keep_others *others, uint64_t now_ns);
/* Takes over the share that another process decided. True: the share has changed. */
bool keep_take(struct keep *keep, double share, uint64_t now_ns);
/* Multiplies the share, as all shares of the service; that moves no key, so it is no step. */
void keep_scale(struct keep *keep, double times);

#endif
