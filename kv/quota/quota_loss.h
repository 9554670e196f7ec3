/* on_loss: how much an agent admits of a budget by itself while nobody decides: no server about its balance
 * (kv/quota/spender_loss.c), or no owner about a key (kv/quota_owner/owner_loss.c). Pure: the time is an argument.
 *
 *     closed  nothing
 *     open    local_cap in any refill period
 *     last    for last_for since the beginning of the loss: in each lease TTL an amount that the caller names, and in
 *             any refill period no more than the largest lease in each TTL of last_for */
#ifndef COORD_KV_QUOTA_LOSS_H
#define COORD_KV_QUOTA_LOSS_H

#include "kv/quota/quota_agent.h"

#define QUOTA_LOSS_NEVER UINT64_MAX

/* Zeroed at first, except cap.begun_ns. */
struct quota_loss {
    struct quota_cap cap;
    uint64_t begin_ns; /* of the present loss; 0: none. Whoever learns that it is over sets it to 0. */
    uint64_t turn_ns;  /* last: the beginning of the present lease TTL, */
    uint64_t used;     /* and the amount that was admitted in it */
};
struct quota_loss_rule {
    uint64_t begin_ns; /* a loss that begins now counts from then on */
    uint64_t amount;   /* last: for each lease TTL */
    /* last: true: a lease TTL begins with the first take after the one before, also when another loss has begun
     * meanwhile. False: they follow each other from the beginning of the loss. */
    bool turns_by_takes;
};

/* The amount that is admitted now. *more_ns: when it may be more; QUOTA_LOSS_NEVER: not before the loss is over. */
uint64_t quota_loss_left(struct quota_loss *loss, const Pb__QuotaDefinition *definition,
                         const struct quota_loss_rule *rule, uint64_t now_ns, uint64_t *more_ns);
/* Admits an amount; to be called after quota_loss_left of the same moment. */
void quota_loss_spend(struct quota_loss *loss, uint64_t n);

#endif
