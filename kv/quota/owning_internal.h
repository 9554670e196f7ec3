/* What the files of an agent's side of owner mode share (kv/quota/owning.h).
 *
 *     owning.c           the table of budgets; takes, here and for others
 *     owning_loss.c      what is admitted while no owner can say
 *     owning_bucket.c    what is left of a key; what one has that has no bucket
 *     owning_ring.c      notices: members, losses, splits, and what follows from them
 *     owning_handover.c  giving keys to others
 *     owning_incoming.c  getting keys from others
 *     owning_hot.c       hot keys, splits, shares of parts
 *     owning_ask.c       the membership: what is asked of the servers and when */
#ifndef COORD_KV_OWNING_INTERNAL_H
#define COORD_KV_OWNING_INTERNAL_H

#include "base/list.h"
#include "base/rendezvous.h"
#include "kv/quota/owning.h"
#include "kv/quota/quota_agent.h"
#include "kv/quota/quota_internal.h"

#define OWNING_NEVER       UINT64_MAX
#define OWNING_MS          QUOTA_NS_A_MS
#define OWNING_LOSSES_MOST 48 /* that are kept, those of the notice among them */
#define OWNING_STEPS_MOST  256

/* -- buckets (owning_bucket.c) ------------------------------------------------------------------------------------ */

/* What is left of a key, or of a part of one. */
struct owning_bucket {
    struct owning_bucket *next;
    uint64_t hash;
    uint64_t tokens, rest; /* rest: of the next token, in parts of it: unit_of */
    uint64_t at_ns;        /* refilled until then */
    int64_t window_s;      /* began then */
    uint64_t round;        /* of its takes: another one once it was full since, or it came from elsewhere */
    uint64_t checked;      /* the version in which `counted` was found out */
    uint64_t turn, takes;  /* takes in this turn */
    uint32_t slot;         /* 0: the whole key; else part + 1 */
    uint32_t key_size;
    bool owed;    /* a part whose share has not come, and that was not full since */
    bool counted; /* this agent counts it, while its lease lasts */
    char key[];
};
struct owning_table {
    struct owning_bucket **heads;
    size_t mask, count;
};
/* A key, or a part of it: what rings and tables are asked for. */
struct owning_id {
    struct slice key;
    uint32_t slot;
};
static inline struct owning_id owning_bucket_id(const struct owning_bucket *bucket) {
    return (struct owning_id){slice_make(bucket->key, bucket->key_size), bucket->slot};
}

/* -- a budget ----------------------------------------------------------------------------------------------------- */

struct owning_ring {
    char **nodes; /* the notice's */
    uint64_t *leases;
    size_t count;
    struct rendezvous *set; /* NULL: nobody */
    size_t mine;            /* SIZE_MAX: this agent is not on it */
};

struct owning_loss {
    char *node; /* NULL: any */
    uint64_t index, active;
    uint64_t seen_ns; /* when it was learned of; by the wall clock: in this window */
    int64_t window_s;
    struct rendezvous *set; /* the lost one, the first, and today's members that were there; NULL: not made yet */
};
struct owning_step {
    uint64_t index, seen_ns;
    int64_t window_s;
};
struct owning_split {
    struct slice key; /* the notice's, as amounts */
    uint64_t index;
    const uint64_t *amounts;
    uint32_t parts;
    uint64_t seen_ns;
    int64_t window_s;
};

/* What a member handed over, and is not counted yet. */
struct owning_incoming {
    struct list link;
    uint64_t lease, epoch, attempt; /* of the sender */
    bool leaving;
    struct owning_table table;
};

enum owning_hand_state {
    HAND_NONE,
    HAND_PROBES, /* the newcomers are asked whether they are there */
    HAND_FROZEN, /* what goes to them is not counted; messages are under way */
    HAND_DONE,   /* all is received */
};
struct owning_hand {
    enum owning_hand_state state;
    uint64_t epoch, attempt; /* the attempt: of the messages that count */
    size_t left;             /* messages that are not answered */
    uint64_t progress_ns, retry_ns;
    unsigned failures;
};

/* How far this agent is with leaving a ring. */
enum owning_leave_state {
    LEAVE_NONE,
    LEAVE_HANDS,  /* it counts nothing any more, and hands over */
    LEAVE_CLOSES, /* its lease is to be closed */
};

enum owning_known { OWNING_UNKNOWN, OWNING_KNOWN, OWNING_NONE };

struct owning_budget {
    struct owning_budget *next; /* in the table */
    uint64_t hash;
    char *name;
    size_t name_size;
    bool serving;

    /* What is known. */
    enum owning_known known;
    struct arena arena; /* of the notice */
    Pb__QuotaNotice *notice;
    const Pb__QuotaDefinition *definition; /* the notice's */
    uint64_t capacity, epoch, active;
    struct owning_ring ring, live; /* of the newest epoch; live */
    struct owning_loss *losses;    /* OWNING_LOSSES_MOST, OWNING_STEPS_MOST of them at most */
    size_t loss_count;
    struct owning_step *steps;
    size_t step_count;
    struct owning_split *splits; /* the arena's */
    size_t split_count;
    uint64_t version; /* of all that says who counts what */

    /* Its lease. */
    uint64_t lease, end_ns; /* counts until then */
    uint64_t acked;         /* the highest epoch that was put into an ask */
    uint64_t ask_ns;        /* the next ask is due */
    bool asked;             /* it is in the command */
    enum owning_leave_state leave;
    bool unsettled; /* it closes as that */
    bool refused;   /* the servers know no passing instance of its node */
    uint64_t leave_ns;

    /* Keys. */
    struct owning_table table;
    struct list incoming;
    struct owning_hand hand;
    uint64_t *leavers; /* leases of others that go, at most QUOTA_MEMBERS_MOST */
    size_t leaver_count, sending;
    uint64_t admitted;

    /* Hot keys. */
    uint64_t turn, turn_end_ns, turn_takes, turn_keys;
    Pb__QuotaHotKey hot[QUOTA_HOT_MOST];
    size_t hot_count;
    struct buffer splitting;            /* the key that is proposed to be split; not counted */
    bool proposing, proposed, accepted; /* to be proposed; in an ask; the split is to come with a notice */
    uint64_t accepted_index;            /* of this index at least */
    uint64_t split_tokens;              /* what was left when it was proposed: refills belong to the parts since */
    int64_t split_window_s;

    /* Following. */
    struct list ready;
    bool following, unreachable;
    uint64_t index, follow_ns, born_ns, used_ns;

    struct quota_cap cap;
    bool ever;                         /* a take of it was decided by an owner, once */
    uint64_t lost_version, lost_lease; /* a take waited in vain for this member, while the budget was so */
    uint64_t loss_ns;                  /* the first take since then of which no owner could say; 0: none */
    uint64_t last_ns, last_used;       /* on_loss last: since when, and how much, within a lease TTL */
};

enum owning_out_kind { OUT_HAND, OUT_SHARE };
struct owning_out {
    struct list link; /* to be sent, or under way */
    uint64_t id, attempt, not_before_ns;
    struct owning_budget *budget;
    enum owning_out_kind kind;
    bool void_; /* what comes of it does not matter */
    bool sent;
    uint64_t to_lease;
    char *node;
    struct slice payload;
};

struct owning {
    char *node;
    uint64_t begun_ns; /* the first budget; 0: there was none */
    uint64_t seed;
    size_t keys_most, keys, key_bytes; /* of all tables */
    uint64_t sweep_ns;                 /* they are not searched for full ones before */
    struct rng rng;
    struct owning_budget **heads; /* by name; chained */
    size_t mask, count;
    uint64_t rounds, attempts, messages;
    unsigned mutations;
    char **listed; /* the names of all that are in owner mode, sorted */
    size_t listed_count;
    bool woken, leaving;
    uint64_t wake_ns, due_ns; /* takes that wait; ticks. May be too early */
    struct list ready, outbox, under_way;
    struct arena request; /* of the last answer that had one */

    struct quota_session session;
    struct arena arena; /* of the command */
    Pb__QuotaAskCommand *command;
    struct owning_budget **asked;
    uint64_t seq, sent_ns, retry_ns, ask_due_ns; /* ask_due_ns: may be too early */
    bool out, uncertain;
    unsigned failures;
};

/* All budgets; they may be dropped meanwhile. */
#define OWNING_EACH(owning, budget)                                                                                   \
    for (size_t head_ = 0; head_ <= (owning)->mask; head_++)                                                          \
        for (struct owning_budget *budget = (owning)->heads[head_], *after_; budget && (after_ = budget->next, true); \
             budget = after_)

/* -- owning.c -- */
struct owning_budget *owning_find(const struct owning *owning, struct slice name);
void owning_wake(struct owning *owning);
void owning_due(struct owning *owning, uint64_t at_ns); /* a tick, or earlier */

/* When the window began that this moment is in; continuous: 0. */
static inline int64_t owning_window(const Pb__QuotaDefinition *definition, int64_t unix_s) {
    return definition->window ? quota_window_start(definition, unix_s) : 0;
}

/* -- owning_loss.c -- */
void owning_decided(struct owning_budget *budget); /* an owner decided a take */
/* No owner can say: as owning_take. */
int owning_judge_loss(struct owning_budget *budget, const struct owning_take *take, struct owning_now now,
                      struct owning_answer *answer);

/* -- owning_bucket.c -- */
struct owning_bucket *owning_bucket_find(const struct owning_table *table, struct owning_id id);
/* The bucket is the table's from then on. */
void owning_bucket_add(struct owning *owning, struct owning_table *table, struct owning_bucket *bucket);
/* It is the caller's then. */
void owning_bucket_unlink(struct owning *owning, struct owning_table *table, struct owning_bucket *bucket);
void owning_bucket_remove(struct owning *owning, struct owning_table *table, struct owning_bucket *bucket);
void owning_table_clear(struct owning *owning, struct owning_table *table);
#define OWNING_EACH_BUCKET(table, bucket)                                           \
    for (size_t chain_ = 0; (table)->heads && chain_ <= (table)->mask; chain_++)    \
        for (struct owning_bucket *bucket = (table)->heads[chain_], *after_bucket_; \
             bucket && (after_bucket_ = bucket->next, true); bucket = after_bucket_)
/* What it has at most; 0: there is no such part. */
uint64_t owning_capacity(const struct owning_budget *budget, struct owning_id id);
/* A new bucket, in no table, with what a key has that has none. */
struct owning_bucket *owning_bucket_default(struct owning *owning, struct owning_budget *budget, struct owning_id id,
                                            struct owning_now now);
void owning_refill(struct owning *owning, const struct owning_budget *budget, struct owning_bucket *bucket,
                   struct owning_now now);
/* Forgetting it, here or by somebody it goes to, changes nothing. */
bool owning_bucket_is_default(struct owning *owning, struct owning_budget *budget, struct owning_bucket *bucket,
                              struct owning_now now);
/* When it has n. */
uint64_t owning_bucket_retry_ms(const struct owning_budget *budget, const struct owning_bucket *bucket, uint64_t n,
                                struct owning_now now);
/* What came from elsewhere, of the budget's table from then on: the least of both counts. */
void owning_bucket_merge(struct owning *owning, struct owning_budget *budget, struct owning_bucket *bucket,
                         struct owning_now now);
/* At most what losses after that index leave. */
void owning_bucket_doubt(struct owning *owning, struct owning_budget *budget, struct owning_bucket *bucket,
                         uint64_t after, struct owning_now now);
/* Room for one more of this size; full ones may be forgotten for it. `in`: of a hand-over, which has more room. */
bool owning_room(struct owning *owning, size_t key_size, bool in, struct owning_now now);
void owning_forget_full(struct owning *owning, struct owning_budget *budget, struct owning_now now);

/* -- owning_ring.c -- */
void owning_ring_free(struct owning_ring *ring);
/* SIZE_MAX: nobody is on it. */
size_t owning_owner(const struct owning_ring *ring, struct owning_id id);
static inline bool owning_is_mine(const struct owning_ring *ring, struct owning_id id) {
    return ring->mine != SIZE_MAX && owning_owner(ring, id) == ring->mine;
}
void owning_rings_mine(const struct owning *owning, struct owning_budget *budget); /* its lease is another one */
/* While its lease lasts. */
bool owning_counts(const struct owning_budget *budget, struct owning_id id, unsigned mutations);
bool owning_alive(const struct owning *owning, const struct owning_budget *budget, uint64_t now_ns);
const struct owning_split *owning_split_find(const struct owning_budget *budget, struct slice key);
/* Does this loss touch the key? */
bool owning_loss_touches(const struct owning_budget *budget, struct owning_loss *loss, struct owning_id id);
/* Somebody says that it learned of that then. */
void owning_step_add(struct owning_budget *budget, uint64_t index, uint64_t seen_ns, int64_t window_s);
uint64_t owning_losses_over(const struct owning_budget *budget, struct owning_now now);
void owning_follow_begin(struct owning *owning, struct owning_budget *budget, uint64_t now_ns);
/* True: the budget is to be dropped. */
bool owning_follow_tick(struct owning *owning, struct owning_budget *budget, uint64_t now_ns, uint64_t *next_ns);
void owning_forget_notice(struct owning_budget *budget);

/* -- owning_handover.c -- */
void owning_hand_tick(struct owning *owning, struct owning_budget *budget, struct owning_now now, uint64_t *next_ns);
bool owning_is_live(const struct owning_budget *budget, uint64_t lease);    /* it is on the live ring */
bool owning_leaves_too(const struct owning_budget *budget, uint64_t lease); /* it said that it goes */
void owning_leaver_add(struct owning_budget *budget, uint64_t lease);
void owning_leavers_forget(struct owning_budget *budget);                    /* those that have gone */
void owning_hand_reset(struct owning *owning, struct owning_budget *budget); /* nothing is handed over */
void owning_out_add(struct owning *owning, struct owning_budget *budget, enum owning_out_kind kind, const char *node,
                    uint64_t lease, const Pb__QuotaPeer *peer);
void owning_out_free(struct owning *owning);                                     /* all that is left */
bool owning_out_ready(const struct owning *owning);                              /* something is to be sent */
void owning_out_drop(struct owning *owning, const struct owning_budget *budget); /* all of it */

/* -- owning_incoming.c -- */
/* By the notice, what came in may be counted now, or not be worth anything. */
void owning_incoming_settle(struct owning *owning, struct owning_budget *budget, struct owning_now now);
void owning_incoming_clear(struct owning *owning, struct owning_budget *budget);
Pb__QuotaVerdict owning_hand_serve(struct owning *owning, struct owning_budget *budget, const Pb__QuotaPeer *peer,
                                   struct owning_now now);

/* -- owning_hot.c -- */
void owning_hot_count(struct owning_budget *budget, struct owning_bucket *bucket);
void owning_hot_tick(struct owning *owning, struct owning_budget *budget, struct owning_now now, uint64_t *next_ns);
/* The notice has splits: what was whole before goes to the parts. */
void owning_split_settle(struct owning *owning, struct owning_budget *budget, struct owning_now now);
void owning_hot_clear(struct owning_budget *budget);
void owning_split_end(struct owning_budget *budget); /* the key counts as whole again */
Pb__QuotaVerdict owning_share_serve(struct owning *owning, struct owning_budget *budget, const Pb__QuotaShare *share,
                                    struct owning_now now);

/* -- owning_ask.c -- */
uint64_t owning_ask_deadline(const struct owning *owning);
void owning_ask_due(struct owning *owning, struct owning_budget *budget, uint64_t at_ns); /* or earlier */
/* Its lease is gone, and what it counted by it. */
void owning_lease_gone(struct owning *owning, struct owning_budget *budget, uint64_t now_ns);
/* It counts nothing from now on; the lease is closed, as unsettled or not. */
void owning_close(struct owning *owning, struct owning_budget *budget, bool unsettled, uint64_t now_ns);

#endif
