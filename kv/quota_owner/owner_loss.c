/* Admission while no owner answers (kv/quota/quota_loss.h). */
#include "base/error.h"
#include "kv/quota_owner/owner_internal.h"

void owner_decided(struct owner_budget *budget) {
    budget->ever = true;
    budget->loss.begin_ns = budget->lost_version = 0;
}

/* The amount that OnLoss admits now; *more_ns: when it may be more; OWNER_NEVER: it admits nothing. */
static uint64_t loss_allows(struct owner_budget *budget, uint64_t now_ns, uint64_t *more_ns) {
    *more_ns = OWNER_NEVER;
    if (!budget->ever) return 0;
    struct quota_loss_rule rule = {
        .begin_ns = now_ns, .amount = quota_lease_most(budget->definition), .turns_by_takes = true};
    return quota_loss_left(&budget->loss, budget->definition, &rule, now_ns, more_ns);
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
    quota_loss_spend(&budget->loss, take->n);
    answer->source = SPENDER_FALLBACK;
    answer->remaining = left - take->n;
    return CO_OK;
}
