/* What the files of an agent's side of quotas share (kv/quota/spender.h).
 *
 *     spender.c         the table of budgets, takes
 *     spender_ask.c     what is asked of the servers and when, what their answers change, the session
 *     spender_refusal.c what is refused, and until when
 *     spender_follow.c  notices
 *     spender_rate.c    how fast it is taken from, and what follows: what is wanted; RateLimit fields
 *     spender_loss.c    on_loss
 *
 * Accounts. Between asks left = balance - spent; bounded: or less, down to the low watermark. An ask takes over `spent`,
 * and lowers `left` to what it holds on to, before it goes out; what is spent from then on is in a `spent` that begins at
 * 0. Its answer gives the new balance, of which this is taken. */
#ifndef COORD_KV_SPENDER_INTERNAL_H
#define COORD_KV_SPENDER_INTERNAL_H

#include "base/list.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "kv/quota/quota_agent.h"
#include "kv/quota/quota_internal.h"
#include "kv/quota/spender.h"

#define SPENDER_NEVER UINT64_MAX
#define SPENDER_MS    UINT64_C(1000000) /* ns */

enum spender_known { SPENDER_UNKNOWN, SPENDER_KNOWN, SPENDER_NONE };

/* Which way a take goes that is not covered: the agent's part grows, or the servers spend it. */
enum spender_way { SPENDER_WANT, SPENDER_TAKE };

struct spender_fallback {
    struct quota_cap cap;
    uint64_t begin_ns;   /* of this loss; 0: none */
    uint64_t turn, used; /* last: the lease TTL that counts, and what was used of it */
};

struct spender_budget {
    /* All that a take touches that is covered. */
    uint64_t left;         /* to be spent before end_ns */
    uint64_t keyless_left; /* as above, of takes without a key */
    uint64_t end_ns;
    uint64_t low;              /* when less is left an ask is due */
    uint64_t spent, demand;    /* since the last ask was made; demand: of all that could be spent locally */
    uint64_t used_ns, want_ns; /* when it was taken from last, or looked at; when something was wanted of it */
    char *name;
    size_t name_size;

    uint64_t hash, mark; /* mark: of the request in hand, to see a name twice */
    enum spender_known known;
    Pb__QuotaDefinition definition; /* its name and service are the budget's own */
    char *service;
    uint64_t defined_index;
    uint64_t capacity, most, low_mark; /* most: that it may hold; low_mark: bounded: at this or below is low */
    const char *unsupported;           /* why this agent cannot spend of it */

    /* The lease, as the servers have it. */
    uint64_t lease, balance, available, level;
    bool starving; /* level counts */
    bool ever;     /* it was granted something, once; then `last` is the newest grant */
    bool owes;     /* the servers refused what it claims: all of the balance counts as spent */
    uint64_t last;
    uint64_t since_ns;              /* when the ask was sent that was answered last */
    uint64_t reach, keyless_reach;  /* larger takes are spent by the servers */
    uint64_t credit, credit_end_ns; /* what the servers spent, for takes that waited for it */
    bool yields;                    /* they had not enough: it gives back what it holds for the next such take */

    /* Asking. */
    uint64_t due_ns;
    uint64_t waiting[2]; /* by spender_way; valid while `waiting_turn` is the spender's */
    uint64_t waiting_turn;
    uint64_t refused_ns, fits;   /* until then nothing is asked for takes that do not fit into this; 0: all is asked */
    uint64_t more_ns;            /* then more is expected; before that such takes are refused, from then on they wait */
    uint64_t vain_ns;            /* it does not ask before, whatever comes */
    uint64_t got_ns, told_ns;    /* it was granted something last; when who was refused was told to come, the latest */
    uint64_t round_ns;           /* until then all others have their turn */
    uint64_t line_turn, in_line; /* so much waits for more in this turn of the spender, without being asked for */
    uint64_t came;               /* as of the newest grant or notice */
    uint64_t period, period_ns;  /* of refills, by its index; when it heard of that first */
    int64_t window_s;            /* the servers' */
    bool window_noted;
    uint64_t leases, owed, stock; /* of the budget, as of the newest grant or notice; stock: what the servers had */
    unsigned in_vain, missed;     /* refusals in a row that brought nothing; and how often more came meanwhile */
    double rate, pace;            /* per second: smoothed; with what is new counting in full */
    uint64_t counted_ns;          /* `demand` counts from then on */
    bool asked, asked_void;       /* it is in the command; which means nothing any more */
    uint64_t asked_left, asked_keyless_left, asked_spent; /* before the ask was made */

    /* Following. */
    struct list ready;           /* in spender->ready: its notice is to be fetched */
    bool following, unreachable; /* a fetch is on its way; the last one failed */
    uint64_t index, follow_ns;   /* fetch at this time */
    uint64_t begun_ns;           /* when this agent was taken from first, of any budget */
    uint64_t born_ns;            /* since when nothing is known of it; after SPENDER_LOSS_MS takes wait no longer */
    struct spender_fallback *fallback;
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
        evict; /* evict: where room is looked for; next: where asks begin to look, so that each has its turn */
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
    uint64_t turn; /* of takes that wait: each waking begins a new one, in which those that still wait say so again */

    /* The session. */
    struct quota_session session;

    /* The command. */
    struct arena arena;           /* its memory */
    Pb__QuotaAskCommand *command; /* NULL: none */
    struct spender_budget **asked;
    uint64_t first_ns, sent_ns; /* when it was sent for the first time; last */
    bool out, late;             /* on its way; for SPENDER_LOSS_MS already */
    bool uncertain;             /* nobody knows whether it was applied */
    bool lost;                  /* the last one failed */
    unsigned failures;
    uint64_t retry_ns;  /* nothing is sent before */
    uint64_t spaced_ns; /* asks for which takes wait may be ahead of this by SPENDER_BURST times SPENDER_ASK_MS */
    bool urgent;        /* a take waits for the next one */
    uint64_t answer_ns; /* how long an answer takes, smoothed */

    struct list ready;
    uint64_t due_ns, tick_ns; /* no budget's ask, or following, is due before; may be too early */
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
/* Of its balance, what is not spent. */
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
/* What waits for the servers in this turn. */
uint64_t spender_waiting(const struct spender *spender, const struct spender_budget *budget, enum spender_way way);
void spender_wait(struct spender *spender, struct spender_budget *budget, enum spender_way way, uint64_t n,
                  uint64_t now_ns);
/* What may be held at all, of a budget of which nothing is held. */
void spender_reach_anew(struct spender_budget *budget);
/* Forgets what it holds: its lease is gone, and what was not told of it counts as spent. */
void spender_forget_lease(struct spender_budget *budget);
void spender_is_low(struct spender_budget *budget); /* bounded: from now on the servers spend */
uint64_t spender_ask_deadline(const struct spender *spender);
bool spender_ask_late(struct spender *spender, uint64_t now_ns); /* true, once: it takes too long */
/* No server can be asked now. */
bool spender_is_lost(const struct spender *spender);

/* -- spender_refusal.c -- */
/* It got less than it asked for. NULL: the servers refused the ask itself. */
void spender_refused(struct spender *spender, struct spender_budget *budget, const Pb__QuotaGrant *grant,
                     uint64_t now_ns);
/* The servers spent something for it. */
void spender_served(struct spender *spender, struct spender_budget *budget, uint64_t now_ns);
/* What grants and notices say of what came. anew: the budget was defined anew. */
void spender_heard(struct spender_budget *budget, const Pb__QuotaGrant *grant, uint64_t now_ns);
void spender_noticed(struct spender *spender, struct spender_budget *budget, const Pb__QuotaNotice *notice, bool anew,
                     uint64_t now_ns);
/* Of a take that is not asked for: it waits for more. Else it is refused, and this says when more comes. */
bool spender_waits_for_more(const struct spender *spender, struct spender_budget *budget, uint64_t n, uint64_t now_ns);
uint64_t spender_retry_ms(const struct spender_budget *budget, uint64_t n, uint64_t now_ns);
uint64_t spender_retry_after_line_ms(const struct spender_budget *budget, uint64_t n, uint64_t now_ns);
/* A take was refused, and told to come again so much later. */
void spender_told(struct spender_budget *budget, uint64_t retry_ms, uint64_t now_ns);
bool spender_in_line(const struct spender *spender, const struct spender_budget *budget); /* a take waits for more */
bool spender_owes_report(const struct spender_budget *budget, uint64_t now_ns); /* it is asked for nevertheless */
/* Ends a refusal that is over; when it is to be called again. */
uint64_t spender_refusal_tick(struct spender *spender, struct spender_budget *budget, uint64_t now_ns);

/* -- spender_follow.c -- */
void spender_follow_begin(struct spender *spender, struct spender_budget *budget, uint64_t now_ns);
/* What is due of a budget; when it is the next time. True: the budget is to be dropped. */
bool spender_follow_tick(struct spender *spender, struct spender_budget *budget, uint64_t now_ns, uint64_t *next_ns);

/* -- spender_rate.c -- */
uint64_t spender_need(const struct spender *spender, const struct spender_budget *budget, uint64_t now_ns);
void spender_count(struct spender_budget *budget, uint64_t now_ns); /* takes `demand` over into the rate */
uint64_t spender_low(const struct spender *spender, const struct spender_budget *budget);
uint64_t spender_surplus(const struct spender *spender, const struct spender_budget *budget, uint64_t now_ns);
/* Somebody starves, and nobody comes for what this agent may hold: it closes its lease. */
bool spender_rests(const struct spender *spender, const struct spender_budget *budget, uint64_t now_ns);
uint64_t spender_rest_ns(const struct spender *spender, const struct spender_budget *budget); /* when; NEVER: not so */
/* Has it asked, when it rests; when this is to be called again. */
uint64_t spender_rest_tick(struct spender *spender, struct spender_budget *budget, uint64_t now_ns);

/* -- spender_loss.c -- */
/* What on_loss admits now of n: CO_OK, CO_BUSY with *retry_ms, CO_NOLEADER. */
int spender_loss_allows(struct spender_budget *budget, uint64_t n, uint64_t now_ns, uint64_t *retry_ms);
void spender_loss_spend(struct spender_budget *budget, uint64_t n, uint64_t now_ns); /* what was allowed */
uint64_t spender_loss_left(struct spender_budget *budget, uint64_t now_ns);
bool spender_loss_counts(const struct spender_budget *budget, uint64_t now_ns); /* it must not be forgotten yet */

#endif
