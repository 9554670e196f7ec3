/* An agent's side of budgets in owner mode: the keys that this agent counts, how it hands them over, and the agents
 * that it asks for other keys. It decides and does not act: time comes in, messages go out. Tests run fleets of it. The
 * protocol with its reasons: docs/internals/quotas.md; epochs and members: rule Q13 of kv/quota/quota.h. The live ring
 * is the ring (base/rendezvous.h) of the active epoch, without members whose leases have ended since. The rules:
 *
 * (O1) This agent counts a key while its own lease lasts by its own clock, it has not begun to leave, it owns the key
 *      on the live ring, and either it owns it on the newest ring too, or it has not begun to hand it over. So no two
 *      agents count one key.
 * (O2) While no epoch is pending, each key whose bucket is not full lies with its owner, or one of its owners has ended
 *      unsettled.
 * (O3) A member comes: each live member sends the newcomers an empty message. When all have answered, it stops counting
 *      their keys, and sends them the buckets that differ from that of a key without one. When all is received it
 *      acknowledges the epoch; if a message has no answer within OWNER_MESSAGE_MS it counts on and begins anew later.
 *      The newcomer counts what it got when it is on the live ring.
 * (O4) A member leaves in order: it stops counting for good, hands its buckets (also those from other leaving members)
 *      to the live ring without leaving members, and closes its lease. They are counted when that lease is gone. It
 *      begins only when it has acknowledged no pending epoch. After OWNER_LEAVE_MS, or without heirs, it closes as
 *      unsettled.
 * (O5) A member that ends unsettled is a loss (QuotaLostOwner). It touches a key unless another member of that time,
 *      which is one still, comes before the lost one in the key's order. A touched key without a bucket begins:
 *      continuous  with the refill since this agent, or one that handed over to it, learned of the loss; at most C
 *      windows     with C after one loss in the present window, or OWNER_SKEW_S before it; after more with nothing,
 *                  until the next window
 *      Of several buckets of one key the least counts.
 * (O6) Buckets are exact, refilled by this agent's clock slowed by QUOTA_CLOCK_PPM; windows begin by its wall clock and
 *      never go back. At OWNER_KEYS_MOST buckets full ones are forgotten; else takes of new keys are refused.
 * (O7) The owner decides a take. Owner and asker must know the same epoch, else the take is asked again. A take with an
 *      unknown outcome counts as spent, and is not admitted. Without a decision for OWNER_WAIT_MS (while a loss goes
 *      on OWNER_LOST_MS) on_loss decides, for the whole budget; it admits nothing before an owner has decided a take,
 *      nor in the first refill period.
 * (O8) A key is hot with more than OWNER_HOT_LEAST takes in OWNER_TURN_MS, and OWNER_HOT_TIMES the mean of the
 *      others. The owner stops counting it, and proposes to split it. That is accepted only while no epoch is pending
 *      (ask.acked = epoch = active). Each part (the key, NUL, its number in 4 bytes) then counts as a key, and gets its
 *      share of the remaining tokens once. A take goes to the part of the taker's node, then to the next one.
 *
 * Pure; one thread at a time (the caller's lock guards it). Times are of one monotonic clock, in ns, except windows. */
#ifndef COORD_KV_OWNER_H
#define COORD_KV_OWNER_H

#include "kv/quota/quota.h"
#include "kv/quota/spender.h"

#define OWNER_MESSAGE_MS   500   /* a message to another member without an answer by then has failed */
#define OWNER_LEAVE_MS     2000  /* the time for handing over before it leaves */
#define OWNER_WAIT_MS      1000  /* how long a take waits for an owner */
#define OWNER_LOST_MS      100   /* how long it waits after an earlier take waited in vain */
#define OWNER_AGAIN_MS     50    /* a waiting take is tried again after this, without news */
#define OWNER_MESSAGE_MOST 60000 /* bytes */
#define OWNER_SENDS_MOST   16    /* the most messages of a budget under way */
#define OWNER_KEYS_MOST    200000
#define OWNER_BYTES_MOST   (UINT64_C(64) << 20) /* bytes of keys */
#define OWNER_SKEW_S       5                    /* the tolerated difference of wall clocks */
#define OWNER_TURN_MS      10000                /* hot keys */
#define OWNER_HOT_LEAST    100
#define OWNER_HOT_TIMES    10

struct owner_now {
    uint64_t ns;    /* monotonic */
    int64_t unix_s; /* wall clock */
};
struct owner_config {
    const char *node; /* this agent's; copied */
    uint64_t seed;    /* for session ids, and times that spread */
    size_t keys_most; /* 0: OWNER_KEYS_MOST */
};
struct owner;
struct owner *owner_new(const struct owner_config *config);
void owner_free(struct owner *owner); /* accepts NULL */

/* -- which budgets ------------------------------------------------------------------------------------------------ */

/* The present list of all budgets in owner mode (query_quota_owned), which is copied. The agent leaves budgets that are
 * not in it. A take also makes a budget known before it is in the list. */
void owner_listed(struct owner *owner, const Pb__QuotaOwnedResult *list, struct owner_now now);
bool owner_knows(const struct owner *owner, struct slice name); /* is it in the list? */
/* This node has a passing instance of the budget's service, so it becomes a member; or it has none. Holds until the
 * next call. */
void owner_serves(struct owner *owner, const char *name, bool passing, struct owner_now now);
/* The agent ends in order: it leaves all rings. To be called again while true. False: nothing is left to be done. */
bool owner_leave(struct owner *owner, struct owner_now now);

/* -- takes -------------------------------------------------------------------------------------------------------- */

/* The caller fills in the first fields (the rest is 0), and keeps it until the take has an outcome. */
struct owner_take {
    struct slice name, key; /* key: empty when there is none; both live as long as this */
    uint64_t n;             /* 0: only looks */
    uint64_t since_ns;      /* when it came */
    /* private to owner: */
    bool elsewhere; /* its part is spent, so it tries another one */
    bool asked;     /* another member was asked, which the following fields tell */
    uint64_t lease, split, round;
    uint32_t part;
    uint64_t retry_ms;
};
struct owner_answer {
    enum spender_source source; /* SPENDER_LOCAL: this agent is the owner; SPENDER_OWNER; SPENDER_FALLBACK */
    const char *node;           /* CO_AGAIN: the node to ask; NULL: wait. Valid until the next call */
    struct slice request;       /* the message for the node; valid until the next call */
    uint64_t retry_ms;          /* refused: the time after which another try is worth it; 0: not known */
    uint64_t remaining;         /* tokens of the key after the take, as far as known */
    const char *text;           /* the line of an error; static */
};
/* CO_OK: n are spent. CO_AGAIN with a node: the caller asks that node within OWNER_MESSAGE_MS, and calls
 * owner_served; without a node: call again when owner_woken says so. Refused: CO_BUSY, CO_TOOLARGE, CO_INVALID,
 * CO_NOLEADER (no owner decides, and on_loss does not allow it), CO_NOTFOUND (no such budget in owner mode). */
int owner_take(struct owner *owner, struct owner_take *take, struct owner_now now, struct owner_answer *answer);
enum owner_reach { OWNER_NOT_DELIVERED, OWNER_MAYBE_DELIVERED, OWNER_ANSWERED };
/* The outcome of the request; returns as owner_take. reply: for OWNER_ANSWERED. */
int owner_served(struct owner *owner, struct owner_take *take, enum owner_reach reach, struct slice reply,
                 struct owner_now now, struct owner_answer *answer);
/* Gives back a take that was CO_OK (not of SPENDER_FALLBACK), because another take of its request failed. True: the
 * answer's request is to be sent to its node; the outcome does not matter. */
bool owner_back(struct owner *owner, const struct owner_take *take, struct owner_now now, struct owner_answer *answer);
bool owner_woken(struct owner *owner); /* true, once: waiting takes are to be tried again */
/* The RateLimit fields of a key with `remaining` tokens. False: the budget is not known. */
bool owner_rate(const struct owner *owner, struct slice name, uint64_t remaining, int64_t unix_s,
                struct spender_rate *rate);

/* -- other agents ------------------------------------------------------------------------------------------------- */

/* Serves a message of another agent (a take, or a message of its owner_send), and appends the answer to `reply`.
 * CO_INVALID: it is no such message, and there is no reply. */
int owner_serve(struct owner *owner, struct slice payload, struct owner_now now, struct buffer *reply);

struct owner_message {
    uint64_t id;
    const char *node; /* both live until owner_sent */
    struct slice payload;
};
/* A message that is to be sent now, within OWNER_MESSAGE_MS; each is returned once. */
bool owner_send(struct owner *owner, struct owner_now now, struct owner_message *message);
void owner_sent(struct owner *owner, uint64_t id, enum owner_reach reach, struct slice reply, struct owner_now now);

/* -- the servers: as spender_ask, spender_asked, spender_follow, spender_followed --------------------------------- */

bool owner_ask(struct owner *owner, struct owner_now now, const Pb__QuotaAskCommand **command);
void owner_asked(struct owner *owner, int error, const Pb__QuotaGrants *grants, struct owner_now now);
bool owner_follow(struct owner *owner, const char **name, uint64_t *index);
void owner_followed(struct owner *owner, const char *name, int error, const Pb__QuotaNotice *notice, uint64_t index,
                    struct owner_now now);

void owner_tick(struct owner *owner, struct owner_now now); /* at owner_deadline_ns, or earlier */
uint64_t owner_deadline_ns(const struct owner *owner);      /* UINT64_MAX: nothing is due */

/* -- looks -------------------------------------------------------------------------------------------------------- */

struct owner_view {
    const char *owner;    /* the node that a take of the key asks; NULL: none is known. Valid until the next call */
    uint64_t left;        /* tokens of the key or part, if this agent counts it */
    int64_t window_s;     /* likewise: their window, which another clock may have begun */
    bool counts;          /* this agent counts the key now */
    bool pending, moves;  /* an epoch is pending; it gives the key to another owner */
    uint32_t parts, part; /* 0: the key is not split; this agent's part of it */
    uint64_t epoch, active;
};
/* False: the budget is not known here. `part`: of a split key; UINT32_MAX: this agent's. */
bool owner_look(struct owner *owner, struct slice name, struct slice key, uint32_t part, struct owner_now now,
                struct owner_view *view);

/* Rules broken on purpose, for tests only. */
enum owner_mutation {
    OWNER_MUTATE_COUNTS_EARLY = 1,    /* a newcomer counts before the epoch is active */
    OWNER_MUTATE_SKIPS_HAND_OVER = 2, /* a member acknowledges without a hand-over */
    OWNER_MUTATE_OVERSTAYS = 4,       /* a member counts when its lease is over */
};
void owner_mutate(struct owner *owner, unsigned mutations);

#endif
