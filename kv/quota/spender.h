/* An agent's side of quotas: what it holds of each budget, how it spends that, and when it asks the servers for more. It
 * decides and does not act: time comes in, asks come out. rpc/quota/spending.h puts it to work; the simulator runs it too.
 *
 * A budget is known from the first take of it on: its notice is fetched (spender_follow) and followed. Then
 *
 * lease     The agent holds a balance and spends it. It asks so that about one ask a TTL is enough: it wants what its rate
 *           (of the last TTL, the newest counting most) needs for a TTL and a half, plus what waits now. An ask goes out
 *           when half of the TTL is over, earlier when less is left than the rate needs until an answer is there, and for
 *           a take that the balance does not cover. When nothing was taken for a TTL it closes its lease. When the notice
 *           says that somebody starves, it gives back at once what is above its level and what it does not need.
 * bounded   The balance is slack: the agent spends while what it has not reported is below it, and reports in the
 *           background (when half of the slack is used, and each half TTL). At or below the low watermark each take is
 *           asked of the servers (all takes that wait go in one ask).
 * owner     see the end of this header.
 *
 * How long it may spend: until the send time of the last ask that was answered, plus its TTL less QUOTA_CLOCK_PPM of it and
 * SPENDER_MARGIN_MS. Afterwards it holds nothing, and what it had counts as lost (the servers strand it).
 *
 * Servers away: asks fail, or are not answered for SPENDER_LOSS_MS. What it holds is spent until its end. Then on_loss
 * decides: closed: refused; open: at most local_cap each refill period (of this agent's clock, slowed by
 * QUOTA_CLOCK_PPM), while the notice is known; last: at most what it was granted last, once each lease TTL, for last_for at
 * most. An agent that was never granted anything of the budget admits nothing.
 *
 * A take of several budgets is all or nothing: everything is there, or nothing is spent. n = 0 looks. A take of more than
 * an agent may ever hold is asked of the servers (`take`); one of more than the capacity is refused for good (CO_TOOLARGE).
 *
 * Pure; one thread at a time (the caller's lock guards it). Times are of one monotonic clock, in ns. */
#ifndef COORD_KV_SPENDER_H
#define COORD_KV_SPENDER_H

#include "kv/quota/quota.h"

#define SPENDER_MARGIN_MS    50
#define SPENDER_LOSS_MS      1000  /* an ask that is on its way for so long counts as lost for takes that wait */
#define SPENDER_ASK_MS       40    /* between two asks: takes gather; those for which a take waits may go 8 in a row */
#define SPENDER_AHEAD_MS     2000  /* it renews so long before it would end: a change of leader takes less */
#define SPENDER_IDLE_MS      60000 /* a budget that nobody takes from for so long is forgotten, and followed no more */
#define SPENDER_BUDGETS_MOST 10000
#define SPENDER_TAKES_MOST   64 /* in one request */
#define SPENDER_KEY_MOST     QUOTA_KEY_MOST

struct spender_config {
    const char *node;  /* this agent's node; copied */
    uint64_t seed;     /* of session ids, and of what spreads */
    uint32_t priority; /* of its asks */
};
struct spender;
struct spender *spender_new(const struct spender_config *config);
void spender_free(struct spender *spender); /* accepts NULL */

/* -- takes -------------------------------------------------------------------------------------------------------- */

struct spender_take {
    struct slice name, key; /* key: empty when there is none */
    uint64_t n;
};
enum spender_source { SPENDER_LOCAL, SPENDER_RENEWED, SPENDER_OWNER, SPENDER_FALLBACK };
struct spender_answer {
    enum spender_source source; /* the weakest of its takes */
    size_t failed;              /* the first take that is the reason */
    uint64_t retry_ms;          /* refused: when it is worth another try; 0: nobody knows */
    const char *text;           /* an error's line; static */
};
/* CO_OK: all of it is spent. CO_AGAIN: nothing is spent; the servers are asked: try again when spender_woken says so, or
 * with `last_try` when it has waited long enough (then it is not CO_AGAIN). Else nothing is spent: CO_BUSY: refused, there
 * is not enough; CO_NOTFOUND: there is no such budget; CO_NOLEADER: no server can say, and on_loss does not allow it;
 * CO_TOOLARGE; CO_INVALID (of names, keys, more than SPENDER_TAKES_MOST, a budget twice).
 * `waited`: this is not its first try: what an ask brought is SPENDER_RENEWED. */
int spender_take(struct spender *spender, const struct spender_take *takes, size_t count, bool waited, bool last_try,
                 uint64_t now_ns, struct spender_answer *answer);
/* True, once: something changed since the last call for which takes wait. */
bool spender_woken(struct spender *spender);

/* What RateLimit fields say of a budget (draft-ietf-httpapi-ratelimit-headers). False: it is not known. */
struct spender_rate {
    uint64_t quota, window_s; /* q, w: of the whole budget */
    uint64_t remaining;       /* r: what this agent may admit now, as far as it knows */
    uint64_t reset_s;         /* t: until more comes, rounded up */
};
bool spender_rate(const struct spender *spender, struct slice name, struct slice key, uint64_t now_ns, int64_t unix_s,
                  struct spender_rate *rate);

/* -- what is to be done, and what came of it ------------------------------------------------------------------------- */

/* The ask to be sent now (QUOTA_ASK), one at a time: true at most once until spender_asked. The message is the spender's,
 * until spender_asked. */
bool spender_ask(struct spender *spender, uint64_t now_ns, const Pb__QuotaAskCommand **command);
/* error: CO_OK and the grants; or of the command: it was refused (CO_NOTFOUND: its session is gone, and all its leases),
 * or was certainly not applied (CO_NOLEADER, CO_BUSY, CO_DISKFULL), or nobody knows (CO_UNKNOWN_OUTCOME: it is sent
 * again with the same `seq`). */
void spender_asked(struct spender *spender, int error, const Pb__QuotaGrants *grants, uint64_t now_ns);

/* A budget whose notice is to be fetched now, as a blocking query after *index (0: at once). True once for each, until
 * spender_followed. `name` lives until then. */
bool spender_follow(struct spender *spender, const char **name, uint64_t *index);
/* notice NULL with CO_OK: there is no such budget (any more). With an error it is asked for again a second later. */
void spender_followed(struct spender *spender, const char *name, int error, const Pb__QuotaNotice *notice,
                      uint64_t index, uint64_t now_ns);

/* The agent ends in order: the asks that come now give everything back; false: nothing is left. */
bool spender_leave(struct spender *spender);

void spender_tick(struct spender *spender, uint64_t now_ns); /* at spender_deadline_ns, or earlier */
uint64_t spender_deadline_ns(const struct spender *spender); /* UINT64_MAX: nothing */

/* Rules broken on purpose, for the simulator only. */
enum spender_mutation {
    SPENDER_MUTATE_OVERSTAYS = 1, /* it spends a lease beyond its end */
};
void spender_mutate(struct spender *spender, unsigned mutations);

#endif
