#include "lb/keep.h"

#include <math.h>

#define REMEMBERED 8    /* reports that the mean is over, about */
#define DOWN_LEAST 0.7  /* of the keys kept in one step down */
#define UP_MOST    1.1  /* times as many in one step up */
#define HELPED     0.15 /* of what a step was to bring */
#define WORSE      1.05 /* times the load that a step was made at: then another one may */
#define WHOLE      0.995

struct keep keep_new(void) {
    return (struct keep){.share = 1, .load = NAN};
}

void keep_report(struct keep *keep, double load, uint64_t now_ns) {
    if (isnan(keep->load)) keep->load = load; /* others are compared with it at once */
    if (keep->changed_ns && now_ns < keep->changed_ns + KEEP_SETTLE_NS) return;
    if (keep->reports < REMEMBERED) keep->reports++;
    keep->load = keep->reports == 1 ? load : keep->load + (load - keep->load) / keep->reports;
}

static bool change(struct keep *keep, double share, uint64_t now_ns) {
    if (share > WHOLE) share = 1;
    if (share < KEEP_LEAST) share = KEEP_LEAST;
    if (share == keep->share) return false;
    keep->share = share, keep->changed_ns = now_ns, keep->reports = 0;
    return true;
}

/* The last step was down, and the load has not followed. */
static bool was_in_vain(const struct keep *keep, double over) {
    if (keep->before == 0 || over > WORSE * keep->before) return false;
    return keep->before - over < HELPED * keep->before * (1 - keep->part);
}

static bool step_down(struct keep *keep, double over, uint64_t now_ns) {
    if (was_in_vain(keep, over)) return false;
    double part = fmax(KEEP_BOUND / over, DOWN_LEAST), base = keep->share;
    if (!change(keep, base * part, now_ns)) return false;
    keep->before = over, keep->part = part, keep->base = base;
    return true;
}

/* Its load was compared with the mean of too few: reports come one after the other. */
static bool step_anew(struct keep *keep, double over, uint64_t now_ns) {
    double part = fmin(fmax(KEEP_BOUND / over, DOWN_LEAST), 1);
    keep->before = over, keep->part = part;
    return change(keep, keep->base * part, now_ns);
}

bool keep_decide(struct keep *keep, double mean, bool others, uint64_t now_ns) {
    if (isnan(keep->load) || !(mean > 0)) return false;
    bool just = keep->before > 0 && keep->reports == 0 && now_ns < keep->changed_ns + KEEP_SETTLE_NS;
    if (others && just) return step_anew(keep, keep->load / mean, now_ns);
    if (keep->reports == 0) return false;
    if (keep->changed_ns && (keep->reports < KEEP_REPORTS || now_ns < keep->changed_ns + KEEP_STEP_NS)) return false;
    double over = keep->load / mean;
    if (over > KEEP_BOUND * (1 + 1e-9)) return step_down(keep, over, now_ns);
    if (keep->share == 1 || over >= KEEP_BOUND * (1 - KEEP_SLACK)) return false;
    keep->before = 0;
    double wanted = KEEP_BOUND * (1 - KEEP_SLACK / 2) / fmax(over, 0.01);
    return change(keep, keep->share * fmin(sqrt(wanted), UP_MOST), now_ns);
}

bool keep_take(struct keep *keep, double share, uint64_t now_ns) {
    if (!(share >= KEEP_LEAST && share <= 1)) return false;
    keep->before = 0;
    return change(keep, share, now_ns);
}
