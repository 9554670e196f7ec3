/* Shared by the files of an agent's side of owner mode (kv/quota_owner/owner.h).
 *
 *     owner.c           the table of budgets; takes, here and for others
 *     owner_loss.c      admission while no owner answers
 *     owner_bucket.c    the remaining tokens of a key, also of one without a bucket
 *     owner_ring.c      notices: members, losses, splits, and their effects owner_handover.c handing keys over
 *     owner_incoming.c taking keys over
 *     owner_hot.c       hot keys, splits, shares of parts
 *     owner_ask.c       the membership: asks to the servers, and their times */
#ifndef COORD_KV_OWNER_INTERNAL_H
#define COORD_KV_OWNER_INTERNAL_H

#include "base/list.h"
#include "base/rendezvous.h"
#include "kv/quota/quota_agent.h"
#include "kv/quota/quota_internal.h"
#include "kv/quota/quota_loss.h"
#include "kv/quota_owner/owner.h"

#define OWNER_NEVER       UINT64_MAX
#define OWNER_MS          QUOTA_NS_A_MS
#define OWNER_LOSSES_MOST 48 /* losses that are kept, with those of the notice */
#define OWNER_STEPS_MOST  256

/* -- buckets (owner_bucket.c) ------------------------------------------------------------------------------------ */

/* The remaining tokens of a key, or of a part of one. */
struct owner_bucket {
    struct owner_bucket *next;
    uint64_t hash;
    uint64_t tokens, rest; /* rest: the part of the next token that has come, in units: unit_of */
    uint64_t at_ns;        /* refills are counted up to then */
    int64_t window_s;      /* the window's beginning */
    uint64_t round;        /* changes when the bucket became full, or came from elsewhere; takes of an older round
                            * cannot be given back */
    uint64_t checked;      /* the budget's version for which `counted` is valid */
    uint64_t turn, takes;  /* takes in this turn */
    uint32_t slot;         /* 0: the whole key; else part + 1 */
    uint32_t key_size;
    bool owed;    /* a part that waits for its share, and has not been full since */
    bool counted; /* this agent counts the key, while its lease lasts */
    char key[];
};
struct owner_table {
    struct owner_bucket **heads;
    size_t mask, count;
};
/* A key, or a part of it: the argument of look-ups in rings and tables. */
struct owner_id {
    struct slice key;
    uint32_t slot;
};
static inline struct owner_id owner_bucket_id(const struct owner_bucket *bucket) {
    return (struct owner_id){slice_make(bucket->key, bucket->key_size), bucket->slot};
}

/* -- a budget ----------------------------------------------------------------------------------------------------- */

struct owner_ring {
    char **nodes; /* the notice's */
    uint64_t *leases;
    size_t count;
    struct rendezvous *set; /* NULL: there are no members */
    size_t mine;            /* SIZE_MAX: this agent is not on it */
};

struct owner_loss {
    char *node; /* NULL: an unknown node */
    uint64_t index, active;
    uint64_t seen_ns; /* when this agent learned of it; the window of that moment by the wall clock */
    int64_t window_s;
    struct rendezvous *set; /* the lost node, as the first, and today's members of that time; NULL: not made yet */
};
struct owner_step {
    uint64_t index, seen_ns;
    int64_t window_s;
};
struct owner_split {
    struct slice key; /* the capacities of the parts, from the notice */
    uint64_t index;
    const uint64_t *amounts;
    uint32_t parts;
    uint64_t seen_ns;
    int64_t window_s;
};

/* Buckets that a member handed over, and that are not counted yet. */
struct owner_incoming {
    struct list link;
    uint64_t lease, epoch, attempt; /* the sender's */
    bool leaving;
    struct owner_table table;
};

enum owner_hand_state {
    HAND_NONE,
    HAND_PROBES, /* it asks the newcomers whether they are there */
    HAND_FROZEN, /* it no longer counts the newcomers' keys, and messages are under way */
    HAND_DONE,   /* the newcomers have received everything */
};
struct owner_hand {
    enum owner_hand_state state;
    uint64_t epoch, attempt; /* the attempt; older messages do not count */
    size_t left;             /* messages without an answer */
    uint64_t progress_ns, retry_ns;
    unsigned failures;
};

/* The steps of leaving a ring. */
enum owner_leave_state {
    LEAVE_NONE,
    LEAVE_HANDS,  /* it counts no keys, and hands over */
    LEAVE_CLOSES, /* it closes its lease */
};

enum owner_known { OWNER_UNKNOWN, OWNER_KNOWN, OWNER_NONE };

struct owner_budget {
    struct owner_budget *next; /* in the table */
    uint64_t hash;
    char *name;
    size_t name_size;
    bool serving;

    /* The notice, and all that follows from it. */
    enum owner_known known;
    struct arena arena; /* of the notice */
    Pb__QuotaNotice *notice;
    const Pb__QuotaDefinition *definition; /* the notice's */
    uint64_t capacity, epoch, active;
    struct owner_ring ring, live; /* the rings of the newest epoch, and of live members */
    struct owner_loss *losses;    /* OWNER_LOSSES_MOST, OWNER_STEPS_MOST of them at most */
    size_t loss_count;
    struct owner_step *steps;
    size_t step_count;
    struct owner_split *splits; /* in the arena */
    size_t split_count;
    uint64_t version; /* rises with each change of the rings, of splits, and of the hand-over */

    /* Its lease. */
    uint64_t lease, end_ns; /* this agent counts until then */
    uint64_t acked;         /* the highest epoch that was put into an ask */
    uint64_t ask_ns;        /* the next ask is due */
    bool asked;             /* the budget has an ask in the command */
    enum owner_leave_state leave;
    bool unsettled; /* it closes the lease as unsettled */
    bool refused;   /* the servers know no passing instance of its node */
    uint64_t leave_ns;

    /* Keys. */
    struct owner_table table;
    struct list incoming;
    struct owner_hand hand;
    uint64_t *leavers; /* leases of other leaving members, at most QUOTA_MEMBERS_MOST */
    size_t leaver_count, sending;
    uint64_t admitted;

    /* Hot keys. */
    uint64_t turn, turn_end_ns, turn_takes, turn_keys;
    Pb__QuotaHotKey hot[QUOTA_HOT_MOST];
    size_t hot_count;
    struct buffer splitting;            /* the key whose split is proposed; this agent does not count it */
    bool proposing, proposed, accepted; /* a proposal exists; an ask has it; it was accepted, and a notice will bring
                                         * the split */
    uint64_t accepted_index;            /* the index of that notice, at least */
    uint64_t split_tokens;              /* the key's tokens when the split was proposed; later refills belong to the
                                         * parts */
    int64_t split_window_s;

    /* Following. */
    struct list ready;
    bool following, unreachable;
    uint64_t index, follow_ns, born_ns, used_ns;

    struct quota_loss loss;            /* begins with the first take that no owner decided */
    bool ever;                         /* an owner has decided a take of it, at least once */
    uint64_t lost_version, lost_lease; /* the member for which a take waited in vain, and the budget's version at that
                                        * time */
};

enum owner_out_kind { OUT_HAND, OUT_SHARE };
struct owner_out {
    struct list link; /* a message to be sent, or under way */
    uint64_t id, attempt, not_before_ns;
    struct owner_budget *budget;
    enum owner_out_kind kind;
    bool void_; /* its outcome does not matter */
    bool sent;
    uint64_t to_lease;
    char *node;
    struct slice payload;
};

struct owner {
    char *node;
    uint64_t begun_ns; /* time of the first budget; 0: there was none */
    uint64_t seed;
    size_t keys_most, keys, key_bytes; /* buckets, and bytes of keys, of all tables */
    uint64_t sweep_ns;                 /* no search for full buckets before */
    struct rng rng;
    struct owner_budget **heads; /* by name; chained */
    size_t mask, count;
    uint64_t rounds, attempts, messages;
    unsigned mutations;
    char **listed; /* the sorted names of all budgets in owner mode */
    size_t listed_count;
    bool woken, leaving;
    uint64_t wake_ns, due_ns; /* times for waiting takes, and for ticks; they may be too early */
    struct list ready, outbox, under_way;
    struct arena request; /* retry time of the last such answer */

    struct quota_session session;
    struct arena arena; /* memory of the command */
    Pb__QuotaAskCommand *command;
    struct owner_budget **asked;
    uint64_t seq, sent_ns, retry_ns, ask_due_ns; /* ask_due_ns may be too early */
    bool out, uncertain;
    unsigned failures;
};

/* All budgets; the body may drop them. */
#define OWNER_EACH(owner, budget)                                                                                   \
    for (size_t head_ = 0; head_ <= (owner)->mask; head_++)                                                         \
        for (struct owner_budget *budget = (owner)->heads[head_], *after_; budget && (after_ = budget->next, true); \
             budget = after_)

/* -- owner.c -- */
struct owner_budget *owner_find(const struct owner *owner, struct slice name);
void owner_wake(struct owner *owner);
void owner_due(struct owner *owner, uint64_t at_ns); /* a tick, or earlier */

/* The beginning of the window of this moment; continuous: 0. */
static inline int64_t owner_window(const Pb__QuotaDefinition *definition, int64_t unix_s) {
    return definition->window ? quota_window_start(definition, unix_s) : 0;
}

/* -- owner_loss.c -- */
void owner_decided(struct owner_budget *budget); /* an owner decided a take */
/* No owner decides the take: judges and returns as owner_take. */
int owner_judge_loss(struct owner_budget *budget, const struct owner_take *take, struct owner_now now,
                     struct owner_answer *answer);

/* -- owner_bucket.c -- */
struct owner_bucket *owner_bucket_find(const struct owner_table *table, struct owner_id id);
/* The table owns the bucket from then on. */
void owner_bucket_add(struct owner *owner, struct owner_table *table, struct owner_bucket *bucket);
/* The caller owns it then. */
void owner_bucket_unlink(struct owner *owner, struct owner_table *table, struct owner_bucket *bucket);
void owner_bucket_remove(struct owner *owner, struct owner_table *table, struct owner_bucket *bucket);
void owner_table_clear(struct owner *owner, struct owner_table *table);
#define OWNER_EACH_BUCKET(table, bucket)                                           \
    for (size_t chain_ = 0; (table)->heads && chain_ <= (table)->mask; chain_++)   \
        for (struct owner_bucket *bucket = (table)->heads[chain_], *after_bucket_; \
             bucket && (after_bucket_ = bucket->next, true); bucket = after_bucket_)
/* The capacity of a key or part; 0: there is no such part. */
uint64_t owner_capacity(const struct owner_budget *budget, struct owner_id id);
/* A new bucket, in no table, with the tokens of a key without a bucket. */
struct owner_bucket *owner_bucket_default(struct owner *owner, struct owner_budget *budget, struct owner_id id,
                                          struct owner_now now);
void owner_refill(struct owner *owner, const struct owner_budget *budget, struct owner_bucket *bucket,
                  struct owner_now now);
/* Is the bucket what a key without a bucket has? Then it may be forgotten, or not be handed over. */
bool owner_bucket_is_default(struct owner *owner, struct owner_budget *budget, struct owner_bucket *bucket,
                             struct owner_now now);
/* Time until the bucket has n tokens. */
uint64_t owner_bucket_retry_ms(const struct owner_budget *budget, const struct owner_bucket *bucket, uint64_t n,
                               struct owner_now now);
/* Puts a bucket from elsewhere into the budget's table, which owns it from then on. When there is one already, the
 * lower one counts. */
void owner_bucket_merge(struct owner *owner, struct owner_budget *budget, struct owner_bucket *bucket,
                        struct owner_now now);
/* Limits the bucket to the tokens that losses after that index leave. */
void owner_bucket_doubt(struct owner *owner, struct owner_budget *budget, struct owner_bucket *bucket, uint64_t after,
                        struct owner_now now);
/* Is there room for one more key of this size? May forget full buckets. `in`: of a hand-over, which has more room. */
bool owner_room(struct owner *owner, size_t key_size, bool in, struct owner_now now);
void owner_forget_full(struct owner *owner, struct owner_budget *budget, struct owner_now now);

/* -- owner_ring.c -- */
void owner_ring_free(struct owner_ring *ring);
/* SIZE_MAX: the ring is empty. */
size_t owner_of_key(const struct owner_ring *ring, struct owner_id id);
static inline bool owner_is_mine(const struct owner_ring *ring, struct owner_id id) {
    return ring->mine != SIZE_MAX && owner_of_key(ring, id) == ring->mine;
}
void owner_rings_mine(const struct owner *owner, struct owner_budget *budget); /* the agent's lease has changed */
/* Does its lease last? */
bool owner_counts(const struct owner_budget *budget, struct owner_id id, unsigned mutations);
bool owner_alive(const struct owner *owner, const struct owner_budget *budget, uint64_t now_ns);
const struct owner_split *owner_split_find(const struct owner_budget *budget, struct slice key);
/* Does this loss touch the key? */
bool owner_loss_touches(const struct owner_budget *budget, struct owner_loss *loss, struct owner_id id);
/* Another member tells when it learned of a loss or split. */
void owner_step_add(struct owner_budget *budget, uint64_t index, uint64_t seen_ns, int64_t window_s);
uint64_t owner_losses_over(const struct owner_budget *budget, struct owner_now now);
void owner_follow_begin(struct owner *owner, struct owner_budget *budget, uint64_t now_ns);
/* True: the budget is to be dropped. */
bool owner_follow_tick(struct owner *owner, struct owner_budget *budget, uint64_t now_ns, uint64_t *next_ns);
void owner_forget_notice(struct owner_budget *budget);

/* -- owner_handover.c -- */
void owner_hand_tick(struct owner *owner, struct owner_budget *budget, struct owner_now now, uint64_t *next_ns);
bool owner_is_live(const struct owner_budget *budget, uint64_t lease);    /* it is on the live ring */
bool owner_leaves_too(const struct owner_budget *budget, uint64_t lease); /* it said that it leaves */
void owner_leaver_add(struct owner_budget *budget, uint64_t lease);
void owner_leavers_forget(struct owner_budget *budget);                  /* forgets those that are gone */
void owner_hand_reset(struct owner *owner, struct owner_budget *budget); /* ends the hand-over */
void owner_out_add(struct owner *owner, struct owner_budget *budget, enum owner_out_kind kind, const char *node,
                   uint64_t lease, const Pb__QuotaPeer *peer);
void owner_out_free(struct owner *owner);                                    /* frees all messages */
bool owner_out_ready(const struct owner *owner);                             /* a message may be sent now */
void owner_out_drop(struct owner *owner, const struct owner_budget *budget); /* drops all parcels */

/* -- owner_incoming.c -- */
/* After a notice: counts the parcels that may be counted now, and drops the ones that are void. */
void owner_incoming_settle(struct owner *owner, struct owner_budget *budget, struct owner_now now);
void owner_incoming_clear(struct owner *owner, struct owner_budget *budget);
Pb__QuotaVerdict owner_hand_serve(struct owner *owner, struct owner_budget *budget, const Pb__QuotaPeer *peer,
                                  struct owner_now now);

/* -- owner_hot.c -- */
void owner_hot_count(struct owner_budget *budget, struct owner_bucket *bucket);
void owner_hot_tick(struct owner *owner, struct owner_budget *budget, struct owner_now now, uint64_t *next_ns);
/* After a notice with splits: the tokens of whole keys go to the parts. */
void owner_split_settle(struct owner *owner, struct owner_budget *budget, struct owner_now now);
void owner_hot_clear(struct owner_budget *budget);
void owner_split_end(struct owner_budget *budget); /* gives up the proposal: the key counts as whole again */
Pb__QuotaVerdict owner_share_serve(struct owner *owner, struct owner_budget *budget, const Pb__QuotaShare *share,
                                   struct owner_now now);

/* -- owner_ask.c -- */
uint64_t owner_ask_deadline(const struct owner *owner);
void owner_ask_due(struct owner *owner, struct owner_budget *budget, uint64_t at_ns); /* or earlier */
/* The lease is gone, and with it everything that it counted. */
void owner_lease_gone(struct owner *owner, struct owner_budget *budget, uint64_t now_ns);
/* Stops counting, and closes the lease with the next ask, as unsettled or not. */
void owner_close(struct owner *owner, struct owner_budget *budget, bool unsettled, uint64_t now_ns);

#endif
