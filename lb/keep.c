#include "lb/keep.h"

#include <math.h>

#include "lb/figure.h"

#define REMEMBERED  8             /* reports in the mean, about */
#define ERRORS_OVER 12            /* reports in the mean of errors: one of them alone makes no owner overloaded */
#define DOWN_LEAST  0.7           /* part of the keys kept, at least, in one step down */
#define UP_MOST     1.1           /* times as many keys in one step up, at most */
#define STEP_MOST   0.35667494394 /* -log(DOWN_LEAST) */
#define STEP_LEAST  0.02
#define GROWS       1.25 /* factor for the next step, when the last one went the same way */
#define HELPED      0.15 /* part of the expected effect of a step */
#define TRIED       6    /* steps in a row without an effect: the largest leave an eighth of the keys */
#define WORSE       1.1  /* times the load at which a step was made: then another step may follow */
#define FULL_LEAST  0.95 /* loads from here on may be the end of the scale */
#define FULL_MOST   1.0
#define ERRORS_MOST 0.9 /* errors count up to here: failing more is no worse */
#define WHOLE       0.995

struct keep keep_new(void) {
    return (struct keep){.share = 1, .load = NAN, .step = STEP_MOST, .pause_ns = KEEP_STEP_NS};
}

void keep_report(struct keep *keep, double load, double errors, uint64_t now_ns) {
    keep->errors += (errors - keep->errors) / ERRORS_OVER;
    if (isnan(keep->load)) keep->load = load; /* so that others are compared with it at once */
    if (keep->changed_ns && now_ns < keep->changed_ns + KEEP_SETTLE_NS) return;
    if (keep->reports < REMEMBERED) keep->reports++;
    keep->fell = load < keep->load / 2 ? keep->fell + 1 : 0;
    if (keep->fell >= KEEP_REPORTS) keep->load = load; /* else the means of all would fall alike when all become idle */
    else keep->load = keep->reports == 1 ? load : keep->load + (load - keep->load) / keep->reports;
}

static bool change(struct keep *keep, double share, double most, uint64_t now_ns) {
    double least = fmin(fmax(KEEP_LEAST * most, KEEP_TINY), keep->share);
    if (share > WHOLE) share = 1;
    if (share < least) share = least;
    if (share == keep->share) return false;
    keep->share = share, keep->changed_ns = now_ns, keep->reports = 0;
    return true;
}

/* Sets the size of the next step, and its time, before it is made. */
static void adapt(struct keep *keep, int way, uint64_t now_ns) {
    if (keep->changed_ns && now_ns > keep->changed_ns + KEEP_CALM_NS) {
        keep->step = STEP_MOST, keep->pause_ns = KEEP_STEP_NS;
    } else if (keep->way == -way) {
        keep->step = fmax(fmin(keep->step, STEP_MOST) / 2, STEP_LEAST);
        keep->pause_ns = 2 * keep->pause_ns < KEEP_PAUSE_NS ? 2 * keep->pause_ns : KEEP_PAUSE_NS;
    } else if (keep->way == way) {
        keep->step = fmin(keep->step * GROWS, STEP_MOST);
        keep->pause_ns = keep->pause_ns / 2 > KEEP_STEP_NS ? keep->pause_ns / 2 : KEEP_STEP_NS;
    }
    keep->way = way;
}

static double over_of(const struct keep *keep, double mean) {
    double load = figure_with_errors(keep->load, fmin(keep->errors, ERRORS_MOST), mean);
    return mean > 0 ? load / mean : load > 0 ? INFINITY : 0;
}

/* -- steps without an effect -------------------------------------------------------------------------------------- */
/* True: its load only says that it is full, or that it fails, and nothing about the effect of a step. */
static bool says_nothing(const struct keep *keep) {
    return (keep->load >= FULL_LEAST && keep->load <= FULL_MOST) || keep->errors > 0.5;
}

/* The load has not followed the share, neither by itself nor compared with others. (When many owners give up keys the
 * mean falls as well; with few owners it grows.) */
static bool was_in_vain(const struct keep *keep, const struct keep_seen *seen, double over) {
    double least = 1 - HELPED * (1 - keep->share / seen->share);
    return over > least * seen->over && keep->load > least * seen->load;
}

static void count_vain(struct keep *keep, double over, double most, uint64_t now_ns) {
    if (keep->before.over == 0 || !was_in_vain(keep, &keep->before, over) || says_nothing(keep)) {
        keep->first.over = 0;
        return;
    }
    if (keep->first.over == 0) keep->first = keep->before, keep->tried = 0;
    if (++keep->tried < TRIED && keep->share > 1.5 * KEEP_LEAST * most) return;
    if (was_in_vain(keep, &keep->first, over)) { /* several steps may have an effect together that one does not show */
        keep->vain = fmax(keep->first.over, over), keep->vain_share = keep->first.share;
        keep->vain_ns = now_ns, keep->vain_times++;
    }
    keep->first.over = 0;
}

/* True: its keys are not the reason for its load. */
static bool is_vain(struct keep *keep, double over, uint64_t now_ns) {
    if (keep->vain == 0) return false;
    unsigned times = keep->vain_times < 6 ? keep->vain_times : 6;
    bool due = keep->share >= keep->vain_share && now_ns > keep->vain_ns + (KEEP_VAIN_NS << (times - 1));
    if (!due && over > KEEP_BOUND && over < WORSE * keep->vain) return true;
    keep->vain = keep->before.over = 0;
    return false;
}

/* -- steps -------------------------------------------------------------------------------------------------------- */
static double part_of(const struct keep *keep, double over) {
    return fmin(fmax(KEEP_BOUND / over, fmax(DOWN_LEAST, exp(-keep->step))), 1);
}

static bool step_down(struct keep *keep, double over, double most, uint64_t now_ns) {
    struct keep_seen seen = {over, keep->load, keep->share};
    adapt(keep, -1, now_ns);
    if (!change(keep, seen.share * part_of(keep, over), most, now_ns)) return false;
    keep->before = seen;
    return true;
}

/* Its load was compared with a mean of too few instances, because reports come one after the other. */
static bool step_anew(struct keep *keep, double over, double most, uint64_t now_ns) {
    keep->before.over = over, keep->before.load = keep->load;
    return change(keep, keep->before.share * part_of(keep, over), most, now_ns);
}

static bool step_up(struct keep *keep, double times, double most, uint64_t now_ns) {
    keep->before.over = keep->first.over = 0;
    return change(keep, keep->share * times, most, now_ns);
}

static bool is_time(const struct keep *keep, bool beyond, uint64_t now_ns) {
    uint64_t pause_ns = keep->pause_ns;
    if (beyond && pause_ns > KEEP_HURRY_NS) pause_ns = KEEP_HURRY_NS;
    return !keep->changed_ns || (keep->reports >= KEEP_REPORTS && now_ns >= keep->changed_ns + pause_ns);
}

bool keep_decide(struct keep *keep, const struct keep_others *others, uint64_t now_ns) {
    if (isnan(keep->load) || isnan(others->mean)) return false;
    double over = over_of(keep, others->mean), most = others->most;
    bool just = keep->before.over > 0 && keep->reports == 0 && now_ns < keep->changed_ns + KEEP_SETTLE_NS;
    if (others->anew && just) return step_anew(keep, over, most, now_ns);
    if (keep->reports == 0) return false;
    bool beyond = over > KEEP_BOUND * (1 + 1e-9);
    if (!is_time(keep, beyond, now_ns)) return false;
    if (beyond && keep->vain == 0) count_vain(keep, over, most, now_ns);
    if (is_vain(keep, over, now_ns)) {
        if (keep->share >= keep->vain_share) return false;
        return step_up(keep, fmin(UP_MOST, keep->vain_share / keep->share), most, now_ns);
    }
    if (beyond) return step_down(keep, over, most, now_ns);
    if (keep->share == 1 || over >= KEEP_BOUND * (1 - KEEP_SLACK)) return false;
    adapt(keep, 1, now_ns);
    double wanted = KEEP_BOUND * (1 - KEEP_SLACK / 2) / fmax(over, 0.01);
    return step_up(keep, fmin(fmin(sqrt(wanted), UP_MOST), exp(keep->step)), most, now_ns);
}

bool keep_take(struct keep *keep, double share, uint64_t now_ns) {
    if (!(share >= KEEP_TINY && share <= 1)) return false;
    keep->before.over = keep->first.over = 0;
    return change(keep, share, 0, now_ns);
}

void keep_scale(struct keep *keep, double times) {
    keep->share = fmin(keep->share * times, 1);
    keep->before.share *= times, keep->first.share *= times, keep->vain_share = fmin(keep->vain_share * times, 1);
}
