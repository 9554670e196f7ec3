#include "base/error.h"
#include "kv/quota/spender_internal.h"

/* How often `last` admits the amount of the last grant. */
static uint64_t turns(const struct spender_budget *budget) {
    uint64_t ttl_ms = budget->definition.lease_ttl_ms;
    return (budget->definition.last_for_ms + ttl_ms - 1) / ttl_ms;
}

/* The most that may be admitted within a refill period. */
static uint64_t cap_of(const struct spender_budget *budget) {
    if (budget->definition.on_loss == PB__QUOTA_LOSS__QUOTA_OPEN) return budget->definition.local_cap;
    return spender_scale(budget->most, turns(budget), 1);
}

/* The amount that it admits now; *more_ns: when it may be more; SPENDER_NEVER: not before a server answers. */
static uint64_t allows(struct spender_budget *budget, uint64_t now_ns, uint64_t *more_ns) {
    *more_ns = SPENDER_NEVER;
    if (budget->known != SPENDER_KNOWN || !budget->ever || budget->definition.on_loss == PB__QUOTA_LOSS__QUOTA_CLOSED)
        return 0;
    if (!budget->fallback) {
        budget->fallback = mem_zalloc(sizeof *budget->fallback);
        budget->fallback->cap.begun_ns = budget->begun_ns;
    }
    struct spender_fallback *fallback = budget->fallback;
    uint64_t slot_end_ns, used = quota_cap_used(&fallback->cap, &budget->definition, now_ns, &slot_end_ns);
    uint64_t rest = spender_less(cap_of(budget), used);
    if (budget->definition.on_loss == PB__QUOTA_LOSS__QUOTA_OPEN) {
        *more_ns = slot_end_ns;
        return rest;
    }
    /* last: counts from the end of the last lease on, or from the first take that misses the servers. */
    if (!fallback->begin_ns) {
        fallback->begin_ns = spender_max(now_ns, budget->end_ns);
        fallback->turn = fallback->used = 0;
    }
    uint64_t ttl_ns = quota_slowed_ns(budget->definition.lease_ttl_ms);
    uint64_t since_ns = spender_less(now_ns, fallback->begin_ns), turn = since_ns / ttl_ns;
    if (turn != fallback->turn) fallback->turn = turn, fallback->used = 0;
    if (since_ns >= budget->definition.last_for_ms * SPENDER_MS) return 0;
    *more_ns = fallback->begin_ns + (turn + 1) * ttl_ns;
    return spender_min(rest, spender_less(spender_min(budget->last, budget->most), fallback->used));
}

int spender_loss_allows(struct spender_budget *budget, uint64_t n, uint64_t now_ns, uint64_t *retry_ms) {
    uint64_t more_ns, left = allows(budget, now_ns, &more_ns);
    if (n <= left) return CO_OK;
    if (more_ns == SPENDER_NEVER) return CO_NOLEADER;
    *retry_ms = (spender_less(more_ns, now_ns) + SPENDER_MS - 1) / SPENDER_MS;
    return CO_BUSY;
}

uint64_t spender_loss_left(struct spender_budget *budget, uint64_t now_ns) {
    uint64_t more_ns;
    return allows(budget, now_ns, &more_ns);
}

void spender_loss_spend(struct spender_budget *budget, uint64_t n, uint64_t now_ns) {
    uint64_t more_ns;
    CHECK(budget->fallback);
    (void)quota_cap_used(&budget->fallback->cap, &budget->definition, now_ns, &more_ns);
    quota_cap_add(&budget->fallback->cap, n);
    budget->fallback->used += n;
}

bool spender_loss_counts(const struct spender_budget *budget, uint64_t now_ns) {
    return budget->fallback && quota_cap_counts(&budget->fallback->cap, now_ns);
}
