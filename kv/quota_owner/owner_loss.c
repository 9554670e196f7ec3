/* Admission while no owner answers. */
#include "base/error.h"
#include "kv/quota_owner/owner_internal.h"

void owner_decided(struct owner_budget *budget) {
    budget->ever = true;
    budget->loss_ns = budget->lost_version = 0;
}

/* The amount that OnLoss admits now; *more_ns: when it may be more; OWNER_NEVER: it admits nothing. */
static uint64_t loss_allows(struct owner_budget *budget, uint64_t now_ns, uint64_t *more_ns) {
    const Pb__QuotaDefinition *definition = budget->definition;
    uint64_t slot_end_ns, used = quota_cap_used(&budget->cap, definition, now_ns, &slot_end_ns);
    uint64_t ttl_ns = quota_slowed_ns(definition->lease_ttl_ms), most = quota_lease_most(definition);
    *more_ns = OWNER_NEVER;
    if (!budget->ever || definition->on_loss == PB__QUOTA_LOSS__QUOTA_CLOSED) return 0;
    if (definition->on_loss == PB__QUOTA_LOSS__QUOTA_OPEN) {
        *more_ns = slot_end_ns;
        return definition->local_cap > used ? definition->local_cap - used : 0;
    }
    if (!budget->loss_ns) budget->loss_ns = now_ns;
    if (now_ns - budget->loss_ns >= definition->last_for_ms * OWNER_MS) return 0;
    if (now_ns - budget->last_ns >= ttl_ns) budget->last_ns = now_ns, budget->last_used = 0;
    uint64_t turns = (definition->last_for_ms + definition->lease_ttl_ms - 1) / definition->lease_ttl_ms;
    unsigned __int128 all = (unsigned __int128)most * turns;
    *more_ns = budget->last_ns + ttl_ns;
    if (used >= all || budget->last_used >= most) return 0;
    return all - used < most - budget->last_used ? (uint64_t)(all - used) : most - budget->last_used;
}

/* The reason for which no owner decides the take. */
static const char *nobody(const struct owner_budget *budget, bool spent) {
    bool none = budget->known == OWNER_KNOWN && !budget->live.count && !budget->ring.count;
    if (none && !spent)
        return "no node has a passing instance of its Service, so that nobody counts its keys, and OnLoss does not "
               "admit it";
    return spent ? "no agent counts this key now, and what OnLoss admits is spent"
                 : "no agent counts this key now, and OnLoss does not admit it";
}

int owner_judge_loss(struct owner_budget *budget, const struct owner_take *take, struct owner_now now,
                     struct owner_answer *answer) {
    uint64_t more_ns = OWNER_NEVER, left = 0;
    if (budget->known == OWNER_KNOWN) left = loss_allows(budget, now.ns, &more_ns);
    if (more_ns == OWNER_NEVER) {
        answer->text = nobody(budget, false);
        return CO_NOLEADER;
    }
    if (take->n > left) {
        answer->text = nobody(budget, true);
        answer->retry_ms = (more_ns - now.ns) / OWNER_MS + 1;
        return CO_BUSY;
    }
    quota_cap_add(&budget->cap, take->n);
    budget->last_used += take->n;
    answer->source = SPENDER_FALLBACK;
    answer->remaining = left - take->n;
    return CO_OK;
}
