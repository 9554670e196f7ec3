/* Takes while no server answers (kv/quota/quota_loss.h). */
#include "base/error.h"
#include "kv/quota/spender_internal.h"

/* The amount that it admits now; *more_ns: when it may be more; SPENDER_NEVER: not before a server answers. */
static uint64_t allows(struct spender_budget *budget, uint64_t now_ns, uint64_t *more_ns) {
    *more_ns = SPENDER_NEVER;
    if (budget->known != SPENDER_KNOWN || !budget->ever || budget->definition.on_loss == PB__QUOTA_LOSS__QUOTA_CLOSED)
        return 0;
    if (!budget->loss) {
        budget->loss = mem_zalloc(sizeof *budget->loss);
        budget->loss->cap.begun_ns = budget->begun_ns;
    }
    /* last counts from the end of the last lease on, or from the first take that misses the servers. */
    struct quota_loss_rule rule = {.begin_ns = spender_max(now_ns, budget->end_ns),
                                   .amount = spender_min(budget->last, budget->most)};
    return quota_loss_left(budget->loss, &budget->definition, &rule, now_ns, more_ns);
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
    CHECK(budget->loss);
    (void)quota_cap_used(&budget->loss->cap, &budget->definition, now_ns, &more_ns);
    quota_loss_spend(budget->loss, n);
}

bool spender_loss_counts(const struct spender_budget *budget, uint64_t now_ns) {
    return budget->loss && quota_cap_counts(&budget->loss->cap, now_ns);
}
