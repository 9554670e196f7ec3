/* Shared by an agent's two sides of quotas (kv/quota/spender.h, kv/quota_owner/owner.h): the session of its asks, the
 * meaning of errors of asks, the sums that it admits by itself in a refill period, and RateLimit fields. */
#ifndef COORD_KV_QUOTA_AGENT_H
#define COORD_KV_QUOTA_AGENT_H

#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "kv/quota/spender.h"

#define QUOTA_NS_A_MS UINT64_C(1000000)

/* The session of the agent's leases: the first ask makes it, and it ends with the last lease. */
struct quota_session {
    char id[UUID_TEXT_SIZE + 1]; /* "": none */
    bool made;                   /* false: the next ask makes it */
};
/* The session for which a command acts. Each command makes it, until an answer has shown that it exists. `node` is not
 * copied. */
Pb__SessionUse *quota_session_use(struct quota_session *session, char *node, struct rng *rng, struct arena *arena);
void quota_session_answered(struct quota_session *session, const Pb__QuotaGrants *grants);

/* The reason for which a budget cannot have this name; NULL: it can. */
const char *quota_name_fault(struct slice name);

/* Is it certain, after this error of a command, that nothing was applied? */
bool quota_ask_certain(int error);
/* The wait before the next try after so many failures in a row; spread at random, so that agents do not all come at
 * once. */
uint64_t quota_retry_ms(unsigned failures, struct rng *rng);

/* Sums of the last refill period, in slots of time; 15 of them are a period or longer, by a clock that is fast. In the
 * first period after `begun_ns` the whole amount counts as admitted, because an earlier process that was killed may
 * have admitted it. */
#define QUOTA_CAP_SLOTS 16
struct quota_cap {
    uint64_t sums[QUOTA_CAP_SLOTS], slot, slot_ns, begun_ns;
};
/* The sum that was admitted within the last period, as of now. UINT64_MAX: not known. *more_ns: when it may be less. */
uint64_t quota_cap_used(struct quota_cap *cap, const Pb__QuotaDefinition *definition, uint64_t now_ns,
                        uint64_t *more_ns);
void quota_cap_add(struct quota_cap *cap, uint64_t n); /* to be called after quota_cap_used of the same moment */
bool quota_cap_counts(const struct quota_cap *cap, uint64_t now_ns);

uint64_t quota_slowed_ns(uint64_t ms); /* this time by a clock that is fast by the tolerated difference */
/* The length of the refill period or window; for months that of the longest. */
uint64_t quota_period_ms(const Pb__QuotaDefinition *definition);
/* Fills in the RateLimit fields of a budget, except the remaining amount. */
void quota_rate_fields(const Pb__QuotaDefinition *definition, int64_t unix_s, struct spender_rate *rate);

#endif
