/* An agent's side of quotas in lease and bounded mode: its balance of each budget, how it spends that, and when it asks
 * the servers for more. It decides and does not act: time comes in, asks come out. rpc/quota/spender_run.h puts it to
 * work; the simulator runs it too. The protocol with its reasons: docs/internals/quotas.md. Its rules:
 *
 * (S1)  A budget is known from its first take on: its notice is fetched and followed. One in owner mode is
 *       CO_UNSUPPORTED with the text spender_owned (kv/quota_owner/owner.h counts it).
 * (S2) An ask wants the need of the rate for 1.5 TTLs, and for takes that wait. It goes out SPENDER_AHEAD_MS before the
 *       lease ends (after half of the TTL at the earliest); when less is left than the rate needs until an answer
 *       comes, or less than an eighth (bounded: half of the slack); and for a take that is not covered.
 * (S3)  While somebody starves it gives back everything above its level or its need, and closes a lease to which nobody
 *       came for SPENDER_REST_MS. Otherwise a due ask gives back what it does not need, if that is more than half; and
 *       a lease without a take for a TTL is closed.
 * (S4)  It may spend until the sending of the last answered ask, plus the TTL, less QUOTA_CLOCK_PPM of it and
 *       SPENDER_MARGIN_MS.
 * (S5)  The servers spend (`take`) for takes that it cannot hold. If they have not enough, the next such ask gives back
 *       all that it holds of the budget. Tokens that they spent stay for 2 s for the takes that wait.
 * (S6)  With windows it also reports SPENDER_WINDOW_MS before a window ends. Later reports count in the next window.
 * (S7)  After a grant that was too small there is no ask for takes that do not fit into the available tokens, until the
 *       reason is over: a notice has a new `came` or another definition, or tokens are expected (spender_refusal.c).
 * (S8) Agents ask for tokens that came in slots. An agent that got nothing from more of the former ones is earlier.
 * (S9) If asks fail, or have no answer for SPENDER_LOSS_MS, on_loss decides about takes that its balance does not
 * cover.
 *       Sums over a refill period are by this agent's clock, slowed by QUOTA_CLOCK_PPM. In the first period after its
 *       first take, and before the first grant, on_loss admits nothing.
 * (S10) A take of several budgets is all or nothing. n = 0 only looks whether the budget exists.
 *
 * Pure; one thread at a time (the caller's lock guards it). Times are in ns, of one clock that goes on while the
 * machine sleeps (clock_boot_ns).
 *
 * spender_deadline_ns is the time at which something is due; it may change with every call. When it has come:
 *
 *     spender_tick, then while spender_woken: all takes that wait again, in the order in which they came,
 *     then spender_follow until there is no more, then spender_ask
 *
 * After spender_asked and spender_followed likewise. The waiting takes come first, because an ask covers those takes
 * that were tried again since the last waking. */
#ifndef COORD_KV_SPENDER_H
#define COORD_KV_SPENDER_H

#include "kv/quota/quota.h"

#define SPENDER_MARGIN_MS    50
#define SPENDER_LOSS_MS      1000  /* an ask without an answer for this long counts as lost for takes that wait */
#define SPENDER_ASK_MS       40    /* between two asks; 8 may go at once for takes that wait */
#define SPENDER_AHEAD_MS     2000  /* before the end of a lease it renews; a change of leader takes less */
#define SPENDER_REST_MS      1100  /* without a take for this long it gives its balance back to agents that starve */
#define SPENDER_WINDOW_MS    300   /* it reports this long before a window ends */
#define SPENDER_IDLE_MS      60000 /* a budget without a take for this long is forgotten, and no longer followed */
#define SPENDER_BUDGETS_MOST 10000
#define SPENDER_TAKES_MOST   64 /* takes in one request */
#define SPENDER_KEY_MOST     QUOTA_KEY_MOST

extern const char spender_owned[];

struct spender_config {
    const char *node;  /* this agent's node; copied */
    uint64_t seed;     /* random; for session ids, the table, and times that spread */
    uint32_t priority; /* of its asks; below QUOTA_PRIORITIES */
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
    uint64_t lease;             /* the lease of the balance that was spent last; 0: none */
    size_t failed;              /* the first take that decided the outcome */
    uint64_t retry_ms;          /* refused: the time after which another try is worth it; 0: not known */
    const char *text;           /* the line of an error; static */
};
/* CO_OK: everything is spent. In all other cases nothing is. CO_AGAIN: the servers are asked; try again when
 * spender_woken says so, and with `last_try` when the take has waited long enough (never CO_AGAIN). CO_BUSY: refused,
 * there is not enough, or SPENDER_BUDGETS_MOST budgets are known (names of missing budgets make room). CO_NOTFOUND:
 * there is no such budget. CO_NOLEADER: no server answers, and on_loss does not allow it. CO_TOOLARGE: more than the
 * capacity. CO_INVALID: a name, a key, too many takes, or a budget twice with one key. CO_UNSUPPORTED: in owner mode,
 * or of a later version. `waited`: this is not the first try, so tokens that an ask brought are SPENDER_RENEWED. */
int spender_take(struct spender *spender, const struct spender_take *takes, size_t count, bool waited, bool last_try,
                 uint64_t now_ns, struct spender_answer *answer);
/* True, once: something has changed for which takes wait, so all of them are to be tried again. A take that still waits
 * is counted by that; one that is not tried again is forgotten. */
bool spender_woken(struct spender *spender);

/* The RateLimit fields of a budget (draft-ietf-httpapi-ratelimit-headers). False: the budget is not known. */
struct spender_rate {
    uint64_t quota,
        window_s;       /* q, w: the whole budget and its window, or the tokens of a refill period (whole seconds) */
    uint64_t remaining; /* r: the amount that this agent may admit now, as far as it knows: its balance, and a possible
                         * grant */
    uint64_t reset_s;   /* t: seconds until tokens come, rounded up */
};
bool spender_rate(const struct spender *spender, struct slice name, struct slice key, uint64_t now_ns, int64_t unix_s,
                  struct spender_rate *rate);

/* -- what is to be done, and what came of it ---------------------------------------------------------------------- */

/* The ask that is to be sent now (QUOTA_ASK), one at a time: true at most once until spender_asked. The spender owns
 * the message, which lives until spender_asked. */
bool spender_ask(struct spender *spender, uint64_t now_ns, const Pb__QuotaAskCommand **command);
/* error: CO_OK with grants, or the error of the command. CO_NOTFOUND: the session is gone, and all its leases.
 * CO_NOLEADER, CO_BUSY, CO_DISKFULL and others that quota_ask_certain knows: the command was certainly not applied. All
 * others: it may have been, so the same command is sent again until one sending is answered. The caller owns the
 * grants. */
void spender_asked(struct spender *spender, int error, const Pb__QuotaGrants *grants, uint64_t now_ns);

/* A budget whose notice is to be fetched now, by a blocking query after *index (0: without waiting; else it waits for a
 * minute or so). True once for each budget until spender_followed. `name` lives until then. */
bool spender_follow(struct spender *spender, const char **name, uint64_t *index);
/* notice NULL with CO_OK: there is no such budget. After an error the notice is fetched again a second later. */
void spender_followed(struct spender *spender, const char *name, int error, const Pb__QuotaNotice *notice,
                      uint64_t index, uint64_t now_ns);

/* The agent ends in order: the following asks give everything back. False: nothing is left. */
bool spender_leave(struct spender *spender);

/* The present wall clock; to be called before spender_tick, now and then. Without it there are no reports before the
 * end of a window. */
void spender_wall(struct spender *spender, uint64_t now_ns, int64_t unix_ms);
void spender_tick(struct spender *spender, uint64_t now_ns); /* at spender_deadline_ns, or earlier */
uint64_t spender_deadline_ns(const struct spender *spender); /* UINT64_MAX: nothing is due */

/* Rules broken on purpose, for the simulator only. */
enum spender_mutation {
    SPENDER_MUTATE_OVERSTAYS = 1, /* the agent spends a lease beyond its end */
    SPENDER_MUTATE_HOARDS = 4,    /* it keeps an idle balance for a TTL, although others starve */
    SPENDER_MUTATE_REMEMBERS = 2, /* it refuses for half of a TTL and a second, although tokens come */
};
void spender_mutate(struct spender *spender, unsigned mutations);

#endif
