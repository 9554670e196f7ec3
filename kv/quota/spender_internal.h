/* Shared by the files of an agent's side of quotas (kv/quota/spender.h).
 *
 *     spender.c         the table of budgets, takes
 *     spender_ask.c     asks to the servers, their times, their answers, the session spender_refusal.c refusals, and
 *     their ends spender_follow.c notices
 *     spender_rate.c    the rate of takes, and the wishes that follow from it; RateLimit fields
 *     spender_loss.c    on_loss
 *
 * Accounts. Between asks left = balance - spent (bounded: or less, down to the low watermark). Before an ask goes out
 * it takes over `spent`, and lowers `left` to the amount that the agent keeps. Tokens that are spent from then on count
 * in a `spent` that begins at 0. The answer has the new balance, from which this `spent` is subtracted. */
#ifndef COORD_KV_SPENDER_INTERNAL_H
#define COORD_KV_SPENDER_INTERNAL_H

#include "base/list.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "kv/quota/quota_agent.h"
#include "kv/quota/quota_internal.h"
#include "kv/quota/quota_loss.h"
#include "kv/quota/spender.h"

#define SPENDER_NEVER UINT64_MAX
#define SPENDER_MS    UINT64_C(1000000) /* ns */

enum spender_known { SPENDER_UNKNOWN, SPENDER_KNOWN, SPENDER_NONE };

/* Two ways for a take that is not covered: the agent asks for a larger balance, or the servers spend it. */
enum spender_way { SPENDER_WANT, SPENDER_TAKE };

struct spender_budget {
    /* The first fields are all that a covered take touches. */
    uint64_t left;         /* may be spent before end_ns */
    uint64_t keyless_left; /* as above, for takes without a key */
    uint64_t end_ns;
    uint64_t low;              /* when less is left an ask is due */
    uint64_t spent, demand;    /* sums since the last ask; demand: of all takes that the agent could have covered */
    uint64_t used_ns, want_ns; /* time of the last take or look; of the last take of more than 0 */
    char *name;
    size_t name_size;

    uint64_t hash, mark; /* mark: the present request, to detect a name twice */
    enum spender_known known;
    Pb__QuotaDefinition definition; /* the budget owns its name and service */
    char *service;
    uint64_t defined_index;
    uint64_t capacity, most, low_mark; /* most: the most that it may hold; low_mark: bounded: the low watermark as an
                                        * amount */
    const char *unsupported;           /* the reason for which this agent cannot spend of it */

    /* The lease, as the servers have it. */
    uint64_t lease, balance, available, level;
    bool starving; /* level counts */
    bool ever;     /* it was granted something at least once; then `last` is the newest grant */
    bool owes;     /* the servers refused its claims, so the whole balance counts as spent */
    uint64_t last;
    uint64_t since_ns;              /* sending time of the last ask that was answered */
    uint64_t reach, keyless_reach;  /* the servers spend for larger takes */
    uint64_t credit, credit_end_ns; /* tokens that the servers spent for takes that wait */
    bool yields;                    /* the servers did not have enough: the next such take gives back everything that it
                                     * holds */

    /* Asking. */
    uint64_t due_ns;
    uint64_t waiting[2]; /* by spender_way; valid while `waiting_turn` equals spender->turn */
    uint64_t waiting_turn;
    uint64_t refused_ns, fits;   /* until refused_ns there is no ask for takes that do not fit into `fits`; 0: no
                                  * refusal */
    uint64_t more_ns;            /* tokens are expected then: such takes are refused before, and wait from then on */
    uint64_t vain_ns;            /* no ask before, whatever comes */
    uint64_t got_ns, told_ns;    /* time of the last grant; the latest time at which refused clients were told to
                                  * come */
    uint64_t round_ns;           /* end of the turns of all other agents */
    uint64_t line_turn, in_line; /* tokens for which takes wait in this turn, without an ask */
    uint64_t came;               /* as of the newest grant or notice */
    uint64_t period, period_ns;  /* the refill period, by its index; when the agent first heard of it */
    int64_t window_s;            /* the servers' */
    bool window_noted;
    uint64_t leases, owed, stock; /* from the newest grant or notice; stock: the tokens that the servers had */
    unsigned in_vain, missed;     /* asks in a row that brought nothing; how often tokens came meanwhile */
    double rate, pace;            /* per second, smoothed; and with new demand counting in full */
    uint64_t counted_ns;          /* `demand` counts from then on */
    bool asked, asked_void;       /* the budget has an ask in the command; whose answer does not count */
    uint64_t asked_left, asked_keyless_left, asked_spent; /* values from before the ask */

    /* Following. */
    struct list ready;           /* in spender->ready: its notice is to be fetched */
    bool following, unreachable; /* a fetch is on its way; the last one failed */
    uint64_t index, follow_ns;   /* time of the next fetch */
    uint64_t begun_ns;           /* time of the agent's first take, of any budget */
    uint64_t born_ns;            /* since when the budget is unknown; after SPENDER_LOSS_MS takes wait no longer */
    struct quota_loss *loss;     /* NULL: on_loss was not asked yet */
};

struct spender_slot {
    uint64_t hash;
    struct spender_budget *budget; /* NULL: free */
};

struct spender {
    struct spender_slot *slots; /* open addressing; a power of two, at most half of them used */
    size_t slot_mask, count;
    struct spender_budget **budgets; /* the same, in any order */
    size_t room, next,
        evict; /* evict: where the search for room begins; next: where the search for asks begins, so that each has its
                * turn */
    uint64_t mark, seq;
    char *node;
    uint32_t priority;
    uint64_t seed;
    struct rng rng;
    unsigned mutations;
    uint64_t begun_ns; /* the first take; 0: none came */
    int64_t wall_ms;   /* the wall clock's unix ms where the other clock is 0 */
    bool wall_known;
    bool woken, leaving;
    uint64_t turn; /* number of the waking: after each one the takes that still wait are counted anew */

    /* The session. */
    struct quota_session session;

    /* The command. */
    struct arena arena;           /* memory of the command */
    Pb__QuotaAskCommand *command; /* NULL: there is none */
    struct spender_budget **asked;
    uint64_t first_ns, sent_ns; /* time of its first sending; of the last */
    bool out, late;             /* it is on its way; for SPENDER_LOSS_MS already */
    bool uncertain;             /* it may have been applied */
    bool lost;                  /* the last ask failed */
    unsigned failures;
    uint64_t retry_ns;  /* no ask is sent before */
    uint64_t spaced_ns; /* asks for which takes wait may be sent BURST times SPENDER_ASK_MS before this */
    bool urgent;        /* a take waits for the next one */
    uint64_t answer_ns; /* how long an answer takes, smoothed */

    struct list ready;
    uint64_t due_ns, tick_ns; /* no ask, and no tick, is due before; may be too early */
};

static inline uint64_t spender_min(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t spender_max(uint64_t a, uint64_t b) { return a > b ? a : b; }
static inline uint64_t spender_less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }
/* a * b / c without overflow; at most UINT64_MAX. */
static inline uint64_t spender_scale(uint64_t a, uint64_t b, uint64_t c) {
    unsigned __int128 result = (unsigned __int128)a * b / c;
    return result > UINT64_MAX ? UINT64_MAX : (uint64_t)result;
}
static inline bool spender_bounded(const struct spender_budget *budget) {
    return budget->definition.mode == PB__QUOTA_MODE__QUOTA_BOUNDED;
}
/* The part of its balance that is not spent. */
static inline uint64_t spender_has(const struct spender_budget *budget) {
    return spender_less(budget->balance, budget->spent);
}
static inline uint64_t spender_ttl_ns(const struct spender_budget *budget) {
    return budget->definition.lease_ttl_ms * SPENDER_MS;
}

/* -- spender.c -- */
struct spender_budget *spender_find(const struct spender *spender, struct slice name);
void spender_wake(struct spender *spender);
void spender_due(struct spender *spender, struct spender_budget *budget, uint64_t at_ns); /* or earlier */
void spender_tick_at(struct spender *spender, uint64_t at_ns);                            /* or earlier */
void spender_drop(struct spender *spender, struct spender_budget *budget);

/* -- spender_ask.c -- */
/* The tokens for which takes wait in this turn. */
uint64_t spender_waiting(const struct spender *spender, const struct spender_budget *budget, enum spender_way way);
void spender_wait(struct spender *spender, struct spender_budget *budget, enum spender_way way, uint64_t n,
                  uint64_t now_ns);
/* Sets the reach of a budget of which the agent holds nothing. */
void spender_reach_anew(struct spender_budget *budget);
/* Forgets the lease, which is gone; tokens that were not reported count as spent. */
void spender_forget_lease(struct spender_budget *budget);
void spender_is_low(struct spender_budget *budget); /* bounded: from now on the servers spend for all takes */
uint64_t spender_ask_deadline(const struct spender *spender);
bool spender_ask_late(struct spender *spender, uint64_t now_ns); /* true, once: the ask takes too long */
/* Can no server be asked now? */
bool spender_is_lost(const struct spender *spender);

/* -- spender_refusal.c -- */
/* The grant was less than the ask wanted. NULL: the servers refused the ask itself. */
void spender_refused(struct spender *spender, struct spender_budget *budget, const Pb__QuotaGrant *grant,
                     uint64_t now_ns);
/* The servers have spent something for the agent. */
void spender_served(struct spender *spender, struct spender_budget *budget, uint64_t now_ns);
/* Take in the news of a grant, of a notice. anew: the budget was defined anew. */
void spender_heard(struct spender_budget *budget, const Pb__QuotaGrant *grant, uint64_t now_ns);
void spender_noticed(struct spender *spender, struct spender_budget *budget, const Pb__QuotaNotice *notice, bool anew,
                     uint64_t now_ns);
/* True: a take for which there is no ask waits for tokens. Else it is refused, and the next function tells when they
 * come. */
bool spender_waits_for_more(const struct spender *spender, struct spender_budget *budget, uint64_t n, uint64_t now_ns);
uint64_t spender_retry_ms(const struct spender_budget *budget, uint64_t n, uint64_t now_ns);
uint64_t spender_retry_after_line_ms(const struct spender_budget *budget, uint64_t n, uint64_t now_ns);
/* A refused client was told to come again after this time. */
void spender_told(struct spender_budget *budget, uint64_t retry_ms, uint64_t now_ns);
bool spender_in_line(const struct spender *spender, const struct spender_budget *budget); /* a take waits for tokens */
bool spender_owes_report(const struct spender_budget *budget, uint64_t now_ns); /* an ask goes out nevertheless */
/* Ends a refusal that is over; returns the time of the next call. */
uint64_t spender_refusal_tick(struct spender *spender, struct spender_budget *budget, uint64_t now_ns);

/* -- spender_follow.c -- */
void spender_follow_begin(struct spender *spender, struct spender_budget *budget, uint64_t now_ns);
/* Does the things that are due for a budget; *next_ns: when the next ones are. True: the budget is to be dropped. */
bool spender_follow_tick(struct spender *spender, struct spender_budget *budget, uint64_t now_ns, uint64_t *next_ns);

/* -- spender_rate.c -- */
uint64_t spender_need(const struct spender *spender, const struct spender_budget *budget, uint64_t now_ns);
void spender_count(struct spender_budget *budget, uint64_t now_ns); /* counts `demand` into the rate */
uint64_t spender_low(const struct spender *spender, const struct spender_budget *budget);
uint64_t spender_surplus(const struct spender *spender, const struct spender_budget *budget, uint64_t now_ns);
/* While somebody starves, an agent without takes rests, and closes its lease. */
bool spender_rests(const struct spender *spender, const struct spender_budget *budget, uint64_t now_ns);
uint64_t spender_rest_ns(const struct spender *spender, const struct spender_budget *budget); /* since when it rests;
                                                                                               * NEVER: it does not */
/* Makes a resting budget ask; returns the time of the next call. */
uint64_t spender_rest_tick(struct spender *spender, struct spender_budget *budget, uint64_t now_ns);

/* -- spender_loss.c -- */
/* May on_loss admit n now? CO_OK, CO_BUSY with *retry_ms, CO_NOLEADER. */
int spender_loss_allows(struct spender_budget *budget, uint64_t n, uint64_t now_ns, uint64_t *retry_ms);
void spender_loss_spend(struct spender_budget *budget, uint64_t n, uint64_t now_ns); /* spends an allowed amount */
uint64_t spender_loss_left(struct spender_budget *budget, uint64_t now_ns);
bool spender_loss_counts(const struct spender_budget *budget, uint64_t now_ns); /* its sums still count, so the budget
                                                                                 * must not be forgotten */

#endif
