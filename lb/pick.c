#include "lb/pick.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/rendezvous.h"
#include "lb/figure.h"

#define TRIES 8 /* draws by weight that look for another slot, before the next slot is taken instead */

struct slot { /* a candidate that may be picked */
    size_t candidate;
    double weight; /* above 0, with its share */
    double distance_s;
    struct load_hint hint;
    double kept;
    uint64_t reported_ns;
    /* The table for drawing by weight (Walker, Vose): each slot is drawn with the same probability, and then replaced
     * by its alias unless it stays, with this probability. */
    double stays;
    uint32_t alias;
};

struct pick_set {
    struct slot *slots;
    uint32_t *place; /* place of a candidate among the slots; UINT32_MAX: it may not be picked */
    size_t count, candidates, room;
    struct figure load, inflight, latency; /* requests in flight: for a weight of 1 */
    double hot;                            /* a slot with more requests in flight for a weight of 1 is hot */
    bool hot_stale;
    uint32_t *nearest; /* slots at the least distance */
    size_t nearest_count;
    size_t excluded[PICK_STATUSES];
    struct rendezvous *ring; /* of the slots */
    double *scratch;         /* one for each slot */
    double *kept;            /* shares of keys, one for each slot, relative to the greatest */
    bool kept_stale;
};

/* -- names -------------------------------------------------------------------------------------------------------- */
static const char *const names[PICK_POLICIES] = {"p2c", "hcl", "weighted", "nearest", "ring"};

const char *pick_policy_name(enum pick_policy policy) { return names[policy]; }

int pick_policy_parse(struct slice name, enum pick_policy *policy, struct fault *fault) {
    for (size_t i = 0; i < PICK_POLICIES; i++) {
        if (!slice_is(name, names[i])) continue;
        *policy = (enum pick_policy)i;
        return CO_OK;
    }
    int size = name.size < 40 ? (int)name.size : 40;
    return fault_set(fault, CO_INVALID, "policy: \"%.*s\" is none of p2c, hcl, weighted, nearest, ring", size,
                     size ? name.data : "");
}

/* -- hints -------------------------------------------------------------------------------------------------------- */
/* Errors that are not reported count as none. */
static double errors_of(const struct slot *slot) { return isnan(slot->hint.errors) ? 0 : slot->hint.errors; }

static struct figure_said load_said(const struct slot *slot) {
    return (struct figure_said){slot->hint.load, 1, errors_of(slot)};
}
static struct figure_said inflight_said(const struct slot *slot) {
    return (struct figure_said){slot->hint.inflight, slot->weight, errors_of(slot)};
}
static struct figure_said latency_said(const struct slot *slot) {
    return (struct figure_said){slot->hint.latency_ms, 1, errors_of(slot)};
}

static void hint_count(struct pick_set *set, const struct slot *slot,
                       void (*count)(struct figure *figure, const struct figure_said *said)) {
    struct figure_said load = load_said(slot), inflight = inflight_said(slot), latency = latency_said(slot);
    count(&set->load, &load);
    count(&set->inflight, &inflight);
    count(&set->latency, &latency);
}

static double own_of(const struct pick_ask *ask, const struct slot *slot) {
    return ask->own ? ask->own[slot->candidate] / slot->weight : 0;
}

/* Compares two slots by a figure; the smaller one is better. */
struct pair {
    double a, b;
};

/* For comparisons: a figure that nobody reports is 0. */
static double beside(const struct figure *figure, struct figure_said said, struct figure_said other) {
    double value = isnan(said.value) ? figure_beside(figure, &other) : said.value / said.weight;
    return isnan(value) ? 0 : value;
}

/* `unit`: the least value that counts as much of the figure. */
static struct pair pair_of(const struct figure *figure, struct figure_said a, struct figure_said b, double own_a,
                           double own_b, double unit) {
    double of_a = beside(figure, a, b) + own_a, of_b = beside(figure, b, a) + own_b;
    return (struct pair){figure_with_errors(of_a, a.errors, fmax(of_b, unit)),
                         figure_with_errors(of_b, b.errors, fmax(of_a, unit))};
}

static struct pair loads_of(const struct pick_set *set, const struct pick_ask *ask, const struct slot *a,
                            const struct slot *b) {
    return pair_of(&set->load, load_said(a), load_said(b), own_of(ask, a), own_of(ask, b), 1);
}

static struct pair inflights_of(const struct pick_set *set, const struct pick_ask *ask, const struct slot *a,
                                const struct slot *b) {
    return pair_of(&set->inflight, inflight_said(a), inflight_said(b), own_of(ask, a), own_of(ask, b), set->hot);
}

static struct pair latencies_of(const struct pick_set *set, const struct slot *a, const struct slot *b) {
    return pair_of(&set->latency, latency_said(a), latency_said(b), 0, 0, 0);
}

/* The slot's own load, without its errors. */
static double inflight_of(const struct pick_set *set, const struct slot *slot) {
    double inflight = isnan(slot->hint.inflight) ? figure_mean(&set->inflight) : slot->hint.inflight / slot->weight;
    return isnan(inflight) ? 0 : inflight;
}

static double load_of(const struct pick_set *set, const struct slot *slot) {
    double load = isnan(slot->hint.load) ? figure_mean(&set->load) : slot->hint.load;
    return isnan(load) ? NAN : fmin(figure_with_errors(load, errors_of(slot), 1), LOAD_MOST);
}

static bool differ(double a, double b) { return a != b && !(isnan(a) && isnan(b)); }

void pick_set_hint(struct pick_set *set, size_t candidate, const struct load_hint *hint, uint64_t reported_ns) {
    CHECK(candidate < set->candidates);
    if (set->place[candidate] == UINT32_MAX) return;
    struct slot *slot = &set->slots[set->place[candidate]];
    hint_count(set, slot, figure_remove);
    set->hot_stale =
        set->hot_stale || differ(slot->hint.inflight, hint->inflight) || differ(slot->hint.errors, hint->errors);
    slot->hint = *hint;
    slot->reported_ns = reported_ns;
    hint_count(set, slot, figure_add);
}

void pick_set_kept(struct pick_set *set, size_t candidate, double kept) {
    CHECK(candidate < set->candidates);
    if (set->place[candidate] == UINT32_MAX) return;
    set->slots[set->place[candidate]].kept = kept;
    set->kept_stale = true;
}

double pick_load(const struct pick_set *set, size_t candidate) {
    CHECK(candidate < set->candidates);
    uint32_t place = set->place[candidate];
    return place == UINT32_MAX ? NAN : load_of(set, &set->slots[place]);
}

/* -- filling ------------------------------------------------------------------------------------------------------ */
struct pick_set *pick_set_new(void) {
    return mem_zalloc(sizeof(struct pick_set));
}

static void lists_free(struct pick_set *set) {
    free(set->slots);
    free(set->place);
    free(set->nearest);
    free(set->scratch);
    free(set->kept);
}

void pick_set_free(struct pick_set *set) {
    if (!set) return;
    lists_free(set);
    rendezvous_free(set->ring);
    free(set);
}

static void make_room(struct pick_set *set, size_t count) {
    if (count <= set->room) return;
    lists_free(set);
    set->slots = mem_alloc(count * sizeof *set->slots);
    set->place = mem_alloc(count * sizeof *set->place);
    set->nearest = mem_alloc(count * sizeof *set->nearest);
    set->scratch = mem_alloc(count * sizeof *set->scratch);
    set->kept = mem_alloc(count * sizeof *set->kept);
    set->room = count;
}

static bool may_be_picked(const struct pick_candidate *candidate, bool passing) {
    return candidate->status == PICK_PASSING || (candidate->status == PICK_WARNING && !passing);
}

/* Instances without weight get no requests, unless no instance has any weight. */
static double weight_of(const struct pick_candidate *candidate, bool any_weight) {
    double share = candidate->share > 0 && candidate->share < 1 ? candidate->share : 1;
    return (any_weight ? candidate->weight : 1) * share;
}

static void slots_fill(struct pick_set *set, const struct pick_candidate *candidates, size_t count, bool passing) {
    bool any_weight = false;
    for (size_t i = 0; i < count && !any_weight; i++)
        any_weight = candidates[i].weight > 0 && may_be_picked(&candidates[i], passing);
    for (size_t i = 0; i < count; i++) {
        const struct pick_candidate *candidate = &candidates[i];
        CHECK(isfinite(candidate->weight) && candidate->weight >= 0);
        double weight = weight_of(candidate, any_weight);
        set->place[i] = UINT32_MAX;
        if (!may_be_picked(candidate, passing)) {
            set->excluded[candidate->status]++;
        } else if (weight > 0) {
            set->place[i] = (uint32_t)set->count;
            set->slots[set->count++] = (struct slot){.candidate = i,
                                                     .weight = weight,
                                                     .hint = candidate->hint,
                                                     .kept = candidate->kept,
                                                     .reported_ns = candidate->reported_ns,
                                                     .distance_s = candidate->distance_s};
        }
    }
}

/* Vose's way: slots above the mean weight fill up those below it. O(n). */
static void alias_fill(struct pick_set *set) {
    double sum = 0;
    uint32_t *waiting = set->nearest; /* slots below the mean from the front, those above from the end */
    size_t below = 0, above = set->count;
    for (size_t i = 0; i < set->count; i++) sum += set->slots[i].weight;
    for (size_t i = 0; i < set->count; i++) {
        struct slot *slot = &set->slots[i];
        slot->stays = slot->weight / sum * (double)set->count;
        slot->alias = (uint32_t)i;
        if (slot->stays < 1) waiting[below++] = (uint32_t)i;
        else waiting[--above] = (uint32_t)i;
    }
    while (below > 0 && above < set->count) {
        struct slot *small = &set->slots[waiting[--below]], *large = &set->slots[waiting[above]];
        small->alias = waiting[above];
        large->stays -= 1 - small->stays;
        if (large->stays < 1) waiting[below++] = waiting[above++];
    }
    while (below > 0) set->slots[waiting[--below]].stays = 1; /* rounding leaves some over */
}

static void nearest_fill(struct pick_set *set) {
    double least = INFINITY;
    set->nearest_count = 0;
    for (size_t i = 0; i < set->count; i++) least = fmin(least, set->slots[i].distance_s);
    for (size_t i = 0; i < set->count; i++) {
        double distance = isnan(set->slots[i].distance_s) ? INFINITY : set->slots[i].distance_s;
        if (distance <= least) set->nearest[set->nearest_count++] = (uint32_t)i;
    }
}

void pick_set_fill(struct pick_set *set, const struct pick_candidate *candidates, size_t count, bool passing) {
    CHECK(count < UINT32_MAX);
    make_room(set, count);
    set->candidates = count;
    set->count = 0;
    memset(set->excluded, 0, sizeof set->excluded);
    set->load = set->inflight = set->latency = (struct figure){0};
    slots_fill(set, candidates, count, passing);
    for (size_t i = 0; i < set->count; i++) hint_count(set, &set->slots[i], figure_add);
    set->hot_stale = set->kept_stale = true;
    alias_fill(set);
    nearest_fill(set);
    rendezvous_free(set->ring);
    struct rendezvous_member *members = mem_alloc((set->count + 1) * sizeof *members);
    for (size_t i = 0; i < set->count; i++) {
        const struct pick_candidate *candidate = &candidates[set->slots[i].candidate];
        /* The slow start's share is left out, because the keys would otherwise move to a new instance one by one. */
        members[i] = (struct rendezvous_member){candidate->name, candidate->weight > 0 ? candidate->weight : 1};
    }
    set->ring = rendezvous_new(members, set->count);
    free(members);
}

/* -- drawing ------------------------------------------------------------------------------------------------------ */
static uint32_t draw(const struct pick_set *set, struct rng *rng) {
    uint32_t at = (uint32_t)rng_below(rng, set->count);
    return rng_unit(rng) < set->slots[at].stays ? at : set->slots[at].alias;
}

static bool drawn(const uint32_t *slots, size_t count, uint32_t slot) {
    for (size_t i = 0; i < count; i++)
        if (slots[i] == slot) return true;
    return false;
}

/* Up to `most` different slots, by weight; all of them where there are no more. */
static size_t draw_some(const struct pick_set *set, struct rng *rng, size_t most, uint32_t *slots) {
    if (most > set->count) most = set->count;
    for (size_t count = 0; count < most; count++) {
        uint32_t slot = draw(set, rng);
        for (int i = 0; i < TRIES && drawn(slots, count, slot); i++) slot = draw(set, rng);
        while (drawn(slots, count, slot)) slot = slot + 1 < set->count ? slot + 1 : 0;
        slots[count] = slot;
    }
    return most;
}

/* -- policies ----------------------------------------------------------------------------------------------------- */

/* The k-th least of some numbers (Hoare's selection, as Wirth has it); they are rearranged. O(n) on average. */
static double select_least(double *numbers, size_t count, size_t k) {
    ptrdiff_t wanted = (ptrdiff_t)k, first = 0, last = (ptrdiff_t)count - 1;
    while (first < last) {
        double pivot = numbers[wanted];
        ptrdiff_t i = first, j = last;
        do {
            while (numbers[i] < pivot) i++;
            while (pivot < numbers[j]) j--;
            if (i > j) break;
            double other = numbers[i];
            numbers[i++] = numbers[j];
            numbers[j--] = other;
        } while (i <= j);
        if (j < wanted) first = i;
        if (wanted < i) last = j;
    }
    return numbers[k];
}

static void hot_update(struct pick_set *set) {
    if (!set->hot_stale) return;
    for (size_t i = 0; i < set->count; i++) set->scratch[i] = inflight_of(set, &set->slots[i]);
    set->hot = select_least(set->scratch, set->count, (size_t)(PICK_HCL_QUANTILE * (double)(set->count - 1)));
    set->hot_stale = false;
}

/* The mean latency of two slots, as they report it themselves. NAN: neither reports it. */
static double latency_of_both(const struct slot *a, const struct slot *b) {
    double of_a = a->hint.latency_ms, of_b = b->hint.latency_ms;
    return isnan(of_a) ? of_b : isnan(of_b) ? of_a : (of_a + of_b) / 2;
}

/* How often the requests in flight have been replaced by others since a hint was true: age / latency (Little's law). 0:
 * the hint is of now. */
static double turnover(const struct pick_ask *ask, const struct slot *slot, double latency_ms) {
    if (isnan(slot->hint.load) || !(latency_ms > 0) || ask->now_ns <= slot->reported_ns) return 0;
    return (double)(ask->now_ns - slot->reported_ns) / 1e6 / latency_ms;
}

/* Does the lesser of two figures win? All pickers have the same hint, and all have acted upon it: since it was true
 * they have placed requests worth the mean times the turnover. A larger difference surely still holds. A smaller one
 * decides with the probability of its part of that, else chance does. So old hints cause no herding, and still correct
 * lasting differences. */
static bool less_wins(const struct figure *figure, const struct pick_ask *ask, const struct slot *a,
                      const struct slot *b, double apart) {
    double latency_ms = latency_of_both(a, b), mean = figure->known ? figure->sum / figure->weight : 0;
    double placed = mean * (turnover(ask, a, latency_ms) + turnover(ask, b, latency_ms)) / 2;
    if (!(apart < placed)) return true;
    return 2 * rng_unit(ask->rng) < 1 + apart / placed;
}

/* Is `a` the better pick than `b`? */
static bool beats(const struct figure *figure, const struct pick_ask *ask, const struct slot *a, const struct slot *b,
                  struct pair of) {
    return less_wins(figure, ask, a, b, fabs(of.a - of.b)) ? of.a < of.b : of.a > of.b;
}

static bool less_loaded(const struct pick_set *set, const struct pick_ask *ask, const struct slot *a,
                        const struct slot *b) {
    return beats(&set->load, ask, a, b, loads_of(set, ask, a, b));
}

static uint32_t pick_p2c(struct pick_set *set, const struct pick_ask *ask, uint32_t *slots, size_t *count) {
    *count = draw_some(set, ask->rng, 2, slots);
    if (*count < 2) return slots[0];
    return less_loaded(set, ask, &set->slots[slots[1]], &set->slots[slots[0]]) ? slots[1] : slots[0];
}

static bool is_hot(const struct pick_set *set, const struct pick_ask *ask, const struct slot *slot) {
    return inflight_of(set, slot) + own_of(ask, slot) > set->hot;
}

/* A cold slot is better than a hot one. The load decides when these figures are equal. */
static bool hcl_better(const struct pick_set *set, const struct pick_ask *ask, const struct slot *a,
                       const struct slot *b) {
    bool hot = is_hot(set, ask, a) || is_hot(set, ask, b);
    struct pair of = hot ? inflights_of(set, ask, a, b) : latencies_of(set, a, b);
    if (of.a == of.b) return less_loaded(set, ask, a, b);
    return beats(hot ? &set->inflight : &set->latency, ask, a, b, of);
}

static uint32_t pick_hcl(struct pick_set *set, const struct pick_ask *ask, uint32_t *slots, size_t *count) {
    hot_update(set);
    *count = draw_some(set, ask->rng, PICK_HCL_SAMPLE, slots);
    uint32_t best = slots[0];
    for (size_t i = 1; i < *count; i++)
        if (hcl_better(set, ask, &set->slots[slots[i]], &set->slots[best])) best = slots[i];
    return best;
}

static uint32_t pick_nearest(struct pick_set *set, const struct pick_ask *ask) {
    if (set->nearest_count == 1) return set->nearest[0];
    if (set->nearest_count == set->count) return draw(set, ask->rng);
    double sum = 0;
    uint32_t picked = set->nearest[0];
    for (size_t i = 0; i < set->nearest_count; i++) { /* each replaces the earlier ones with the probability of its part
                                                       * of their weight */
        double weight = set->slots[set->nearest[i]].weight;
        sum += weight;
        if (rng_unit(ask->rng) * sum < weight) picked = set->nearest[i];
    }
    return picked;
}

static void kept_update(struct pick_set *set) {
    double most = 0;
    if (!set->kept_stale) return;
    for (size_t i = 0; i < set->count; i++) most = fmax(most, set->slots[i].kept);
    for (size_t i = 0; i < set->count; i++) set->kept[i] = most > 0 ? set->slots[i].kept / most : 1;
    set->kept_stale = false;
}

size_t pick_owners(struct pick_set *set, struct slice key, size_t most, size_t *owners) {
    kept_update(set);
    struct rendezvous_ask ask = {.key = key, .most = most, .kept = set->kept};
    size_t count = rendezvous_owners(set->ring, &ask, owners);
    for (size_t i = 0; i < count; i++) owners[i] = set->slots[owners[i]].candidate;
    return count;
}

static uint32_t pick_ring(struct pick_set *set, const struct pick_ask *ask) {
    size_t owner;
    CHECK(pick_owners(set, ask->key, 1, &owner) == 1);
    return set->place[owner];
}

int pick(struct pick_set *set, const struct pick_ask *ask, struct pick_result *result) {
    uint32_t slots[PICK_CONSIDERED_MAX], picked = 0;
    size_t count = 0;
    if (set->count == 0) return CO_NOTFOUND;
    switch (ask->policy) {
        case PICK_P2C: picked = pick_p2c(set, ask, slots, &count); break;
        case PICK_HCL: picked = pick_hcl(set, ask, slots, &count); break;
        case PICK_WEIGHTED: picked = draw(set, ask->rng); break;
        case PICK_NEAREST: picked = pick_nearest(set, ask); break;
        case PICK_RING: picked = pick_ring(set, ask); break;
        case PICK_POLICIES: UNREACHABLE();
    }
    if (count == 0) slots[count++] = picked;
    for (size_t i = 0; i < count; i++) result->considered[i] = set->slots[slots[i]].candidate;
    result->considered_count = count;
    result->picked = set->slots[picked].candidate;
    return CO_OK;
}

/* -- the reason for no pick --------------------------------------------------------------------------------------- */
size_t pick_count(const struct pick_set *set) { return set->count; }
size_t pick_excluded(const struct pick_set *set, enum pick_status status) { return set->excluded[status]; }

void pick_why(const struct pick_set *set, struct buffer *out) {
    static const char *const what[PICK_STATUSES] = {
        [PICK_WARNING] = "with warnings", [PICK_CRITICAL] = "critical", [PICK_MAINTENANCE] = "in maintenance"};
    static const enum pick_status order[] = {PICK_CRITICAL, PICK_MAINTENANCE, PICK_WARNING};
    const char *comma = "";
    for (size_t i = 0; i < ARRAY_COUNT(order); i++) {
        if (!set->excluded[order[i]]) continue;
        buffer_printf(out, "%s%zu %s", comma, set->excluded[order[i]], what[order[i]]);
        comma = ", ";
    }
    if (!*comma) buffer_append_text(out, "there are none");
}
