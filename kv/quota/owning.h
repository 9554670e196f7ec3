/* An agent's side of budgets in owner mode: which keys this agent counts, how it hands them over, and whom it asks for the
 * others. It decides and does not act: time comes in, messages go out. The tests run fleets of it.
 *
 * A budget in owner mode gives its capacity C, and its refill, to each key. One agent counts a key: its owner on the ring
 * (base/rendezvous.h) of members. Members hold a lease each, which they renew (QUOTA_ASK); a member is a node and a lease,
 * so that an agent that begins anew is another member. The ring is that of the nodes, with the newest lease of each.
 *
 * Which members there are changes in epochs (kv/quota/quota.h). The newest epoch is pending until all members of the active
 * one have acknowledged it; the *live* ring is that of the active epoch without those whose leases have ended since.
 *
 *   This agent counts a key while its own lease lasts by its own clock, it has not begun to leave, it owns the key on the
 *   live ring, and either it owns it on the newest ring too, or it has not begun to hand it over.
 *
 * So nobody counts beside it. Who it gives keys to counts them only when the epoch is active, for which this agent has to
 * acknowledge it, or its lease has to end. Who goes gives its keys to those who are next on the live ring.
 *
 *   While no epoch is pending, each key whose bucket is not full lies with its owner, or an owner of it ended unsettled.
 *
 * A member that comes. Each member of the live ring sends the newcomers an empty message first; when all answer, it stops
 * counting what goes to them, and sends them those buckets that are not what a key without a bucket has. All received: it
 * acknowledges the epoch. One is not, within OWNING_MESSAGE_MS: it counts on, and tries again a while later, all of it anew.
 * The newcomer keeps apart what it gets until it is on the live ring. What was handed over and acknowledged stays here, too,
 * until another is seen to count it: when the epoch never became active it counts here again.
 *
 * A member that goes in order (the agent ends, or its instance does not pass): it stops counting, for good, and hands all
 * its buckets, also those that others gave it who go too, to the live ring without itself; then it closes its lease. What it
 * gave is counted when its lease is gone. It begins only while no epoch is pending that it has acknowledged. Who goes itself
 * takes nothing more, and says so. When it has not succeeded in OWNING_LEAVE_MS, or there is nobody left, it closes it as
 * unsettled, so that nothing is counted twice.
 *
 * A member whose lease ended by itself, or was closed as unsettled, while it was on the live ring is a loss. The record lists losses (QuotaLostOwner), the
 * newest QUOTA_LOSSES_MOST; members drop those that do not matter any more (QuotaAsk.losses_over). A loss touches a key
 * unless a member of today that was on the live ring then comes before the lost one in the key's order. A key that has no
 * bucket, and is touched, begins like this:
 *
 *     continuous    with what was refilled since this agent, or one that handed over to it, learned of the loss; at most C
 *     windows       one loss in the present window, or OWNING_SKEW_S before it: with C. More: with nothing, until the next window
 *
 * which is why the bound says C for windows and 0 for continuous refills (hand_over). What comes together, of one key, from
 * several places counts as the least of it: the truth is among it, or a loss covers it.
 *
 * Buckets are exact whole numbers, refilled by this agent's clock slowed by QUOTA_CLOCK_PPM; windows begin by its wall clock,
 * and never go back. OWNING_KEYS_MOST buckets: those that are full are forgotten; else takes of new keys are refused.
 *
 * Takes. The owner decides. Another agent asks it with the epoch that it knows; an owner that knows a newer one refuses it
 * (it asks again when its notice says so), one that knows an older one says so too. A take of which nobody knows whether it
 * came to the owner counts as spent there, and is not admitted. When no owner can say within OWNING_WAIT_MS (while a loss goes on,
 * OWNING_LOST_MS), on_loss decides:
 * open: local_cap each refill period and agent (of the budget, not of a key); last: what a lease of the budget would hold at
 * most (quota_lease_most), once each lease TTL, for last_for from then on, until an owner decides a take again, and as often
 * as that within any refill period (of the budget too); else it is refused. An agent for which no owner ever decided a take
 * of the budget admits nothing, and neither does one in the first refill period after it heard of the first budget.
 *
 * Hot keys. Takes are counted in turns of 10 s; a key is hot when more than 100 came, and more than 10 times the mean of the
 * other keys that this agent counted in that turn. The hottest QUOTA_HOT_MOST go out with the asks. If the budget says so,
 * they are split: the owner stops counting the key, and proposes it; only what no pending epoch can interfere with is
 * accepted (ask.acked = epoch = active). From the entry on the parts count, each a key of its own (the key, NUL, its number
 * in 4 bytes), with its part of C and of the refill. A part has nothing at first; the owner that split the key sends each
 * part its share of what was left, once.
 * Takers go to the part that is theirs by their node's name, and to the next one when that is spent. Splits are not undone;
 * a definition without splits undoes them, and what the parts admitted before counts beside it.
 *
 * Defined anew, what is spent of each bucket stays spent.
 *
 * Pure; one thread at a time (the caller's lock guards it). Times are of one monotonic clock, in ns, but windows'. */
#ifndef COORD_KV_OWNING_H
#define COORD_KV_OWNING_H

#include "kv/quota/quota.h"
#include "kv/quota/spender.h"

#define OWNING_MESSAGE_MS   500   /* a message to another member that is not answered by then has failed */
#define OWNING_LEAVE_MS     2000  /* for handing over before it leaves */
#define OWNING_WAIT_MS      1000  /* a take waits so long for an owner */
#define OWNING_LOST_MS      100   /* when one waited in vain for the same owner before, and nothing has changed */
#define OWNING_AGAIN_MS     50    /* and is tried again after this, when nothing is heard */
#define OWNING_MESSAGE_MOST 60000 /* bytes */
#define OWNING_SENDS_MOST   16    /* messages of a budget that are under way */
#define OWNING_KEYS_MOST    200000
#define OWNING_BYTES_MOST   (UINT64_C(64) << 20) /* of keys */
#define OWNING_SKEW_S       5                    /* wall clocks may differ by so much */
#define OWNING_TURN_MS      10000                /* hot keys */
#define OWNING_HOT_LEAST    100
#define OWNING_HOT_TIMES    10

struct owning_now {
    uint64_t ns;    /* monotonic */
    int64_t unix_s; /* wall clock */
};
struct owning_config {
    const char *node; /* this agent's; copied */
    uint64_t seed;    /* of session ids, and of what spreads */
    size_t keys_most; /* 0: OWNING_KEYS_MOST */
};
struct owning;
struct owning *owning_new(const struct owning_config *config);
void owning_free(struct owning *owning); /* accepts NULL */

/* -- which budgets ------------------------------------------------------------------------------------------------- */

/* All budgets in owner mode (query_quota_owned), as of now; the list is copied. Those that are not in it are left. A budget
 * that is taken from before it is in the list is known too. */
void owning_owned(struct owning *owning, const Pb__QuotaOwnedResult *list, struct owning_now now);
bool owning_knows(const struct owning *owning, struct slice name); /* it is in the list */
/* This node has, or has not, a passing instance of the budget's service: it is to be a member. Once said it stands. */
void owning_serves(struct owning *owning, const char *name, bool passing, struct owning_now now);
/* The agent ends in order: it leaves all rings. False: nothing is left to be done. To be called again while true. */
bool owning_leave(struct owning *owning, struct owning_now now);

/* -- takes --------------------------------------------------------------------------------------------------------- */

/* Filled in by the caller (the rest 0), and its own until the take has an outcome. */
struct owning_take {
    struct slice name, key; /* key: empty when there is none; live as long as this */
    uint64_t n;             /* 0 looks */
    uint64_t since_ns;      /* when it came */
    /* owning's own: */
    bool elsewhere; /* its part is spent, it tries another */
    bool asked;     /* what follows says of whom */
    uint64_t lease, split, round;
    uint32_t part;
    uint64_t retry_ms;
};
struct owning_answer {
    enum spender_source source; /* SPENDER_LOCAL: this agent is the owner; SPENDER_OWNER; SPENDER_FALLBACK */
    const char *node;           /* CO_AGAIN: ask it; NULL: wait. Valid until the next call */
    struct slice request;       /* what to send it; valid until the next call */
    uint64_t retry_ms;          /* refused: when it is worth another try; 0: nobody knows */
    uint64_t remaining;         /* of the key, afterwards, as far as this is known */
    const char *text;           /* an error's line; static */
};
/* CO_OK: n are spent. CO_AGAIN: with a node: that is asked (within OWNING_MESSAGE_MS), and owning_served decides; without
 * one: call it again when owning_woken says so. CO_BUSY, CO_TOOLARGE, CO_INVALID, CO_NOLEADER (no owner can say, and on_loss
 * does not allow it), CO_NOTFOUND (no such budget in owner mode): refused. */
int owning_take(struct owning *owning, struct owning_take *take, struct owning_now now, struct owning_answer *answer);
enum owning_reach { OWNING_NOT_DELIVERED, OWNING_MAYBE_DELIVERED, OWNING_ANSWERED };
/* What came of the request: as owning_take. reply: of OWNING_ANSWERED. */
int owning_served(struct owning *owning, struct owning_take *take, enum owning_reach reach, struct slice reply,
                  struct owning_now now, struct owning_answer *answer);
/* A take that was CO_OK (not of SPENDER_FALLBACK) is not wanted, because another one of its request failed. True: the
 * request is to be sent to the node, what comes of it does not matter. */
bool owning_back(struct owning *owning, const struct owning_take *take, struct owning_now now,
                 struct owning_answer *answer);
bool owning_woken(struct owning *owning); /* true, once: takes that wait are to be tried again */
/* What RateLimit fields say of a key, of which `remaining` is left. False: the budget is not known. */
bool owning_rate(const struct owning *owning, struct slice name, uint64_t remaining, int64_t unix_s,
                 struct spender_rate *rate);

/* -- other agents -------------------------------------------------------------------------------------------------- */

/* What another agent sent (takes, and all that owning_send has); `reply` is what it gets, appended. CO_OK; CO_INVALID: it
 * is none of our messages, and there is no reply. */
int owning_serve(struct owning *owning, struct slice payload, struct owning_now now, struct buffer *reply);

struct owning_message {
    uint64_t id;
    const char *node; /* both live until owning_sent */
    struct slice payload;
};
/* A message to be sent now, within OWNING_MESSAGE_MS; each is told once. */
bool owning_send(struct owning *owning, struct owning_now now, struct owning_message *message);
void owning_sent(struct owning *owning, uint64_t id, enum owning_reach reach, struct slice reply,
                 struct owning_now now);

/* -- the servers: as spender_ask, spender_asked, spender_follow, spender_followed -------------------------------------- */

bool owning_ask(struct owning *owning, struct owning_now now, const Pb__QuotaAskCommand **command);
void owning_asked(struct owning *owning, int error, const Pb__QuotaGrants *grants, struct owning_now now);
bool owning_follow(struct owning *owning, const char **name, uint64_t *index);
void owning_followed(struct owning *owning, const char *name, int error, const Pb__QuotaNotice *notice, uint64_t index,
                     struct owning_now now);

void owning_tick(struct owning *owning, struct owning_now now); /* at owning_deadline_ns, or earlier */
uint64_t owning_deadline_ns(const struct owning *owning);       /* UINT64_MAX: nothing */

/* -- looks --------------------------------------------------------------------------------------------------------- */

struct owning_view {
    const char *owner;    /* whom a take of the key asks; NULL: nobody is known. Valid until the next call */
    uint64_t left;        /* when this agent counts it: of the key, or the part */
    int64_t window_s;     /* likewise: of this window, which another clock may have begun */
    bool counts;          /* this agent counts it now */
    bool pending, moves;  /* an epoch is pending; the key gets another owner by it */
    uint32_t parts, part; /* 0: it is not split; this agent's part of it */
    uint64_t epoch, active;
};
/* False: the budget is not known here. `part`: one of a split key; UINT32_MAX: this agent's. */
bool owning_look(struct owning *owning, struct slice name, struct slice key, uint32_t part, struct owning_now now,
                 struct owning_view *view);

/* Rules broken on purpose, for tests only. */
enum owning_mutation {
    OWNING_MUTATE_COUNTS_EARLY = 1,    /* a newcomer counts before the epoch is active */
    OWNING_MUTATE_SKIPS_HAND_OVER = 2, /* it acknowledges what it did not hand over */
    OWNING_MUTATE_OVERSTAYS = 4,       /* it counts when its lease is over */
};
void owning_mutate(struct owning *owning, unsigned mutations);

#endif
