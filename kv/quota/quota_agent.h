/* What an agent's two sides of quotas share (kv/quota/spender.h, kv/quota/owning.h): the session of its asks, what errors of
 * asks mean, what it may admit by itself in a refill period, and RateLimit fields. */
#ifndef COORD_KV_QUOTA_AGENT_H
#define COORD_KV_QUOTA_AGENT_H

#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "kv/quota/spender.h"

#define QUOTA_NS_A_MS UINT64_C(1000000)

/* The session that its leases belong to: made by the first ask, gone with the last lease. */
struct quota_session {
    char id[UUID_TEXT_SIZE + 1]; /* "": none */
    bool made;                   /* else the next ask makes it */
};
/* Whom a command acts for. Until the session is known to be there, each command makes it. `node` is not copied. */
Pb__SessionUse *quota_session_use(struct quota_session *session, char *node, struct rng *rng, struct arena *arena);
void quota_session_answered(struct quota_session *session, const Pb__QuotaGrants *grants);

/* Errors of a command after which it is certain that nothing was applied. */
bool quota_ask_certain(int error);
/* After so many failures in a row the next try comes so much later; spread, so that agents do not come all at once. */
uint64_t quota_retry_ms(unsigned failures, struct rng *rng);

/* Sums of the last refill period, in slots of time; 15 of them are a period or longer, by a clock that is fast. In the first
 * period after `begun_ns` all of it counts as admitted: by the process that was there before, and may have been killed. */
#define QUOTA_CAP_SLOTS 16
struct quota_cap {
    uint64_t sums[QUOTA_CAP_SLOTS], slot, slot_ns, begun_ns;
};
/* What was admitted within the last period, UINT64_MAX: nobody knows; moves on to now. *more_ns: when that may be less. */
uint64_t quota_cap_used(struct quota_cap *cap, const Pb__QuotaDefinition *definition, uint64_t now_ns,
                        uint64_t *more_ns);
void quota_cap_add(struct quota_cap *cap, uint64_t n); /* after quota_cap_used of the same moment */
bool quota_cap_counts(const struct quota_cap *cap, uint64_t now_ns);

uint64_t quota_slowed_ns(uint64_t ms); /* so long by a clock that is fast by the tolerated difference */
/* The whole refill period or window; a month: the longest. */
uint64_t quota_period_ms(const Pb__QuotaDefinition *definition);
/* What RateLimit fields say of a budget, but what remains. */
void quota_rate_fields(const Pb__QuotaDefinition *definition, int64_t unix_s, struct spender_rate *rate);

#endif
