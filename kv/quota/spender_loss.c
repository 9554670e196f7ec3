#include "base/error.h"
#include "kv/quota/spender_internal.h"

/* A clock that is fast by the tolerated difference must not make a period short. */
static uint64_t slowed_ns(uint64_t ms) {
    uint64_t ns = ms * SPENDER_MS;
    return ns + spender_scale(ns, QUOTA_CLOCK_PPM, 1000000);
}

/* How often `last` admits what was granted last. */
static uint64_t turns(const struct spender_budget *budget) {
    uint64_t ttl_ms = budget->definition.lease_ttl_ms;
    return (budget->definition.last_for_ms + ttl_ms - 1) / ttl_ms;
}

/* What may be admitted at most within a refill period. */
static uint64_t cap_of(const struct spender_budget *budget) {
    if (budget->definition.on_loss == PB__QUOTA_LOSS__QUOTA_OPEN) return budget->definition.local_cap;
    return spender_scale(budget->most, turns(budget), 1);
}

/* Slots of time go by; what is older than a period no longer counts. */
static void move_on(struct spender_budget *budget, uint64_t now_ns) {
    struct spender_fallback *fallback = budget->fallback;
    uint64_t slot_ns = slowed_ns(spender_refill_ms(budget)) / (SPENDER_SLOTS - 1) + 1, slot = now_ns / slot_ns;
    if (slot_ns != fallback->slot_ns) { /* defined anew: all of it counts for a whole period from now on */
        uint64_t sum = 0;
        for (size_t i = 0; i < SPENDER_SLOTS; i++) sum += fallback->sums[i], fallback->sums[i] = 0;
        fallback->sums[slot % SPENDER_SLOTS] = sum;
        fallback->slot_ns = slot_ns;
        fallback->slot = slot;
    }
    for (size_t i = 0; fallback->slot < slot && i < SPENDER_SLOTS; i++)
        fallback->sums[++fallback->slot % SPENDER_SLOTS] = 0;
    fallback->slot = slot;
}

static uint64_t sum_of(const struct spender_fallback *fallback) {
    uint64_t sum = 0;
    for (size_t i = 0; i < SPENDER_SLOTS; i++) sum += fallback->sums[i];
    return sum;
}

/* What it admits now; *more_ns: when there may be more; SPENDER_NEVER: not before a server answers. */
static uint64_t allows(struct spender_budget *budget, uint64_t now_ns, uint64_t *more_ns) {
    *more_ns = SPENDER_NEVER;
    if (budget->known != SPENDER_KNOWN || !budget->ever || budget->definition.on_loss == PB__QUOTA_LOSS__QUOTA_CLOSED)
        return 0;
    if (!budget->fallback) budget->fallback = mem_zalloc(sizeof *budget->fallback);
    struct spender_fallback *fallback = budget->fallback;
    move_on(budget, now_ns);
    uint64_t rest = spender_less(cap_of(budget), sum_of(fallback));
    if (budget->definition.on_loss == PB__QUOTA_LOSS__QUOTA_OPEN) {
        *more_ns = (fallback->slot + 1) * fallback->slot_ns;
        return rest;
    }
    /* last: from the end of the last lease on; else from the first take that misses the servers. */
    if (!fallback->begin_ns) {
        fallback->begin_ns = spender_max(now_ns, budget->end_ns);
        fallback->turn = fallback->used = 0;
    }
    uint64_t ttl_ns = slowed_ns(budget->definition.lease_ttl_ms);
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
    move_on(budget, now_ns);
    budget->fallback->sums[budget->fallback->slot % SPENDER_SLOTS] += n;
    budget->fallback->used += n;
}

bool spender_loss_counts(const struct spender_budget *budget, uint64_t now_ns) {
    const struct spender_fallback *fallback = budget->fallback;
    return fallback && sum_of(fallback) && now_ns / fallback->slot_ns < fallback->slot + SPENDER_SLOTS;
}
