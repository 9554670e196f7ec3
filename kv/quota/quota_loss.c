#include "kv/quota/quota_loss.h"

#include "base/check.h"
#include "kv/quota/quota.h"

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }
static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* last: the most that is admitted within a refill period. */
static uint64_t last_most(const Pb__QuotaDefinition *definition) {
    uint64_t ttl_ms = definition->lease_ttl_ms, turns = (definition->last_for_ms + ttl_ms - 1) / ttl_ms;
    unsigned __int128 most = (unsigned __int128)quota_lease_most(definition) * turns;
    return most > UINT64_MAX ? UINT64_MAX : (uint64_t)most;
}

/* last: notes the beginning of the loss and of the present lease TTL. */
static void turn(struct quota_loss *loss, const struct quota_loss_rule *rule, uint64_t ttl_ns, uint64_t now_ns) {
    if (!loss->begin_ns) {
        loss->begin_ns = rule->begin_ns;
        if (!rule->turns_by_takes) loss->turn_ns = loss->begin_ns, loss->used = 0;
    }
    uint64_t since_ns = less(now_ns, loss->turn_ns);
    if (since_ns < ttl_ns) return;
    loss->turn_ns = rule->turns_by_takes ? now_ns : loss->turn_ns + since_ns / ttl_ns * ttl_ns;
    loss->used = 0;
}

uint64_t quota_loss_left(struct quota_loss *loss, const Pb__QuotaDefinition *definition,
                         const struct quota_loss_rule *rule, uint64_t now_ns, uint64_t *more_ns) {
    uint64_t slot_end_ns, used = quota_cap_used(&loss->cap, definition, now_ns, &slot_end_ns);
    uint64_t ttl_ns = quota_slowed_ns(definition->lease_ttl_ms);
    *more_ns = QUOTA_LOSS_NEVER;
    switch (definition->on_loss) {
        case PB__QUOTA_LOSS__QUOTA_OPEN: *more_ns = slot_end_ns; return less(definition->local_cap, used);
        case PB__QUOTA_LOSS__QUOTA_LAST: break;
        default: return 0; /* closed */
    }
    CHECK(ttl_ns > 0);
    turn(loss, rule, ttl_ns, now_ns);
    if (less(now_ns, loss->begin_ns) >= definition->last_for_ms * QUOTA_NS_A_MS) return 0;
    *more_ns = loss->turn_ns + ttl_ns;
    return least(less(last_most(definition), used), less(rule->amount, loss->used));
}

void quota_loss_spend(struct quota_loss *loss, uint64_t n) {
    quota_cap_add(&loss->cap, n);
    loss->used += n;
}
