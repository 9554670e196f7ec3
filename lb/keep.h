/* Which share of its keys an owner keeps (policy ring, /v1/lb/owner): one whose load is beyond KEEP_BOUND times the mean
 * gives up as many as bring it under that, and gets them back when its load has fallen. A key is given up by its hash, so
 * the others stay where they are (base/rendezvous.h). Of the shares of a service only their ratios count.
 *
 * That is a loop: keys follow the share, the load follows the keys, and reports follow the load, late. So a share changes
 * by one step, and then not until KEEP_REPORTS reports have come that were made when the step was known everywhere; what
 * is compared is their mean. A step gives up what is too much by the last reports, at most three tenths of the keys, and
 * gives back at most a tenth more of them, only while the load is KEEP_SLACK below the bound. In between nothing moves.
 *
 * A step that has to be taken back was too large: the next one is at most half as large and waits for twice as long. Steps
 * that go on in one way grow again, and after KEEP_CALM_NS without one all is as in the beginning.
 *
 * A step that did not help is no reason to stop: an owner that is far beyond what it can do is full before and after. When
 * six in a row have not helped, which may leave an eighth of the keys, the load does not come from the keys: they come
 * back, and stay until the load is another, or for KEEP_VAIN_NS, twice as long each time. A report at the end of the scale
 * (1: all that it can do), or of one whose requests fail, does not say that a step did not help.
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
#define KEEP_SETTLE_NS (1500 * UINT64_C(1000000))       /* until a change is known everywhere */
#define KEEP_STEP_NS   (4000 * UINT64_C(1000000))       /* between two changes, at least */
#define KEEP_PAUSE_NS  (64 * UINT64_C(1000000000))      /* what that grows to, at most */
#define KEEP_HURRY_NS  (8000 * UINT64_C(1000000))       /* the same, while the load is beyond the bound */
#define KEEP_CALM_NS   (180 * UINT64_C(1000000000))     /* more than any pause */
#define KEEP_VAIN_NS   (10 * 60 * UINT64_C(1000000000)) /* until it is tried again, the first time */
#define KEEP_LEAST     (1.0 / 64)                       /* of the greatest share of the service */
#define KEEP_TINY      1e-9                             /* no share is less */

/* What was seen when a step was made. */
struct keep_seen {
    double over; /* load / mean load; 0: nothing */
    double load;
    double share; /* before the step */
};

struct keep {
    double share;  /* above 0 to 1 */
    double load;   /* the mean of reports since the share changed, without errors; NAN: none ever */
    double errors; /* part of the requests that fail, over the last reports: 0 to 1. One report alone says little */
    unsigned reports, fell;  /* fell: the last ones, of less than half of `load` */
    uint64_t changed_ns;     /* 0: never */
    int way;                 /* of the last step: -1 down, 1 up, 0: none */
    double step;             /* how large the next one may be: a logarithm */
    uint64_t pause_ns;       /* until then */
    struct keep_seen before; /* at the last step, if it was down */
    struct keep_seen first;  /* at the first of the last steps down if none of them helped */
    unsigned tried;          /* how many they are */
    double vain, vain_share; /* load / mean load that does not come from the keys, 0: it may; the share to go back to */
    uint64_t vain_ns;        /* since when */
    unsigned vain_times;     /* how often that was found */
};
struct keep keep_new(void);
/* The instance says its load, and the part of its requests that fails. */
void keep_report(struct keep *keep, double load, double errors, uint64_t now_ns);

/* The service's instances. */
struct keep_others {
    double mean; /* of their loads */
    double most; /* the greatest share that one of them keeps */
    bool anew;   /* they are other ones than before: a step just made is made anew */
};
/* Makes a step, if it is time. True: the share is another one. */
bool keep_decide(struct keep *keep, const struct keep_others *others, uint64_t now_ns);
/* Somebody else has decided. True: the share is another one. */
bool keep_take(struct keep *keep, double share, uint64_t now_ns);
/* All shares of a service become so many times as large: that moves no key, so it is no step. */
void keep_scale(struct keep *keep, double times);

#endif
