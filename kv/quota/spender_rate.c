#include <math.h>

#include "base/error.h"
#include "kv/quota/spender_internal.h"

#define AHEAD_TTLS 1.5 /* an ask wants the need of its rate for so many TTLs */
#define GROWTH     16  /* but at most so many times the takes since the last ask, when these are above the rate */
#define SECOND     1e9
#define SOON_MS    2000 /* how long a grant is kept for clients that were told to come */

/* -- the rate of takes -------------------------------------------------------------------------------------------- */

struct pace {
    double rate, pace;
};

/* The rate forgets with half of a TTL. New demand counts in full when it is above the rate: so the first ask after a
 * jump notices it, and `grows` keeps a few takes in a row from looking like a flood. */
static struct pace pace_of(const struct spender_budget *budget, uint64_t now_ns) {
    double ttl = (double)spender_ttl_ns(budget) / SECOND;
    double since = fmax((double)spender_less(now_ns, budget->counted_ns) / SECOND, 0.001);
    double now = (double)budget->demand / since, grows = GROWTH * (double)budget->demand / (AHEAD_TTLS * ttl);
    struct pace out = {.rate = budget->rate + (1 - exp(-2 * since / ttl)) * (now - budget->rate)};
    out.pace = fmax(out.rate, fmin(now, grows));
    return out;
}

void spender_count(struct spender_budget *budget, uint64_t now_ns) {
    struct pace pace = pace_of(budget, now_ns);
    budget->rate = pace.rate;
    budget->pace = pace.pace;
    budget->demand = 0;
    budget->counted_ns = now_ns;
}

uint64_t spender_need(const struct spender *spender, const struct spender_budget *budget, uint64_t now_ns) {
    double ttl = (double)spender_ttl_ns(budget) / SECOND, need = pace_of(budget, now_ns).pace * AHEAD_TTLS * ttl;
    uint64_t whole = need < 0.1 ? 0 : need > (double)QUOTA_AMOUNT_MOST ? QUOTA_AMOUNT_MOST : (uint64_t)ceil(need);
    uint64_t most = budget->most;
    if (spender_bounded(budget)) most = spender_min(most, quota_part(budget->capacity, budget->definition.drift));
    return spender_min(whole + spender_waiting(spender, budget, SPENDER_WANT), most);
}

uint64_t spender_low(const struct spender *spender, const struct spender_budget *budget) {
    if (spender_bounded(budget)) return budget->left / 2;
    double until = (double)(2 * spender->answer_ns + SPENDER_ASK_MS * SPENDER_MS) / SECOND;
    double low = fmin(budget->pace * until, (double)budget->left / 2);
    return spender_max((uint64_t)low, budget->left / 8);
}

/* The amount that it gives back at once, because somebody starves. A small amount is not worth an ask. */
uint64_t spender_surplus(const struct spender *spender, const struct spender_budget *budget, uint64_t now_ns) {
    if (!budget->starving || !budget->lease || budget->asked) return 0;
    uint64_t has = spender_has(budget);
    uint64_t surplus = spender_less(has, spender_min(spender_need(spender, budget, now_ns), budget->level));
    return surplus > has / 8 ? surplus : 0;
}

/* -- rest --------------------------------------------------------------------------------------------------------- */

/* Slack does not rest, because it takes nothing from others: the servers spend tokens that are not granted. */
uint64_t spender_rest_ns(const struct spender *spender, const struct spender_budget *budget) {
    bool others_starve = budget->starving && budget->leases > 1;
    if (!others_starve || !budget->lease || spender_bounded(budget)) return SPENDER_NEVER;
    if (spender->mutations & SPENDER_MUTATE_HOARDS) return SPENDER_NEVER;
    /* Without a balance the lease stands in line for clients that were told to come; a balance is kept only for those
     * that come soon. */
    uint64_t told_ns = budget->told_ns;
    if (spender_has(budget)) told_ns = spender_min(told_ns, budget->got_ns + SOON_MS * SPENDER_MS);
    return spender_max(spender_max(budget->want_ns, budget->got_ns), told_ns) + SPENDER_REST_MS * SPENDER_MS;
}

bool spender_rests(const struct spender *spender, const struct spender_budget *budget, uint64_t now_ns) {
    return now_ns >= spender_rest_ns(spender, budget) && !spender_waiting(spender, budget, SPENDER_WANT) &&
           !spender_waiting(spender, budget, SPENDER_TAKE) && !spender_in_line(spender, budget);
}

uint64_t spender_rest_tick(struct spender *spender, struct spender_budget *budget, uint64_t now_ns) {
    uint64_t at_ns = spender_rest_ns(spender, budget);
    if (budget->asked) return SPENDER_NEVER; /* the answer will do it */
    if (now_ns < at_ns) return at_ns;
    if (!spender_rests(spender, budget, now_ns)) return now_ns + SPENDER_REST_MS * SPENDER_MS;
    spender_due(spender, budget, now_ns);
    return SPENDER_NEVER;
}

/* -- RateLimit fields --------------------------------------------------------------------------------------------- */

/* The amount that may be admitted now. */
static uint64_t remaining(const struct spender *spender, struct spender_budget *budget, bool keyless, uint64_t now_ns) {
    uint64_t left = now_ns < budget->end_ns ? budget->left : 0;
    if (keyless && now_ns < budget->end_ns) left = spender_min(left, budget->keyless_left);
    if (spender_is_lost(spender)) return left + spender_loss_left(budget, now_ns);
    /* The servers would add the tokens that they had at the last ask, up to the most that an agent may hold. */
    bool fresh = budget->since_ns && now_ns - budget->since_ns < spender_ttl_ns(budget);
    uint64_t available = fresh ? budget->available : budget->capacity;
    if (now_ns < budget->refused_ns) return spender_max(left, budget->fits); /* no ask goes out for more now */
    if (spender_bounded(budget)) return spender_max(left, spender_less(available, budget->spent));
    return spender_max(left, spender_min(left + available, budget->most));
}

bool spender_rate(const struct spender *spender, struct slice name, struct slice key, uint64_t now_ns, int64_t unix_s,
                  struct spender_rate *rate) {
    struct spender_budget *budget = spender_find(spender, name);
    if (!budget || budget->known != SPENDER_KNOWN || budget->unsupported) return false;
    rate->remaining = remaining(spender, budget, key.size == 0, now_ns);
    quota_rate_fields(&budget->definition, unix_s, rate);
    if (now_ns < budget->refused_ns) rate->reset_s = (spender_retry_ms(budget, 1, now_ns) + 999) / 1000;
    return true;
}
