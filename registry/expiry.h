/* Expiry: everything that ends by itself (sessions, leases, lock-delays, dead nodes, held services, ...), counted by
 * the leader in one table of deadlines. The table decides, it does not act: the caller passes the time and gets the
 * things that are due. rpc/leader/leases.h puts it to work. A module declares each kind of its things as a row (struct
 * expiry_kind, named in its table: registry/module.h) and reports beginnings and ends while it applies commands
 * (expiry_began_in, expiry_ended_in); nothing else knows kinds by name.
 *
 * Bounds (docs/decisions/leases.md): an end is proposed never before the full period after the last acknowledged
 * renewal, at most 1 s after it on a healthy cluster; a new leader (or one whose loop stood still longer than an
 * election timeout) grants everything a full period.
 *
 * The table is for one thread (the loop), the updates between two. */
#ifndef COORD_REGISTRY_EXPIRY_H
#define COORD_REGISTRY_EXPIRY_H

#include <protobuf-c/protobuf-c.h>

#include "registry/access.h"

struct expiry;
struct store_txn;
struct machine_tx;

/* -- kinds -------------------------------------------------------------------------------------------------------- */

/* A thing whose time is up. Valid during the call. */
struct expiry_due {
    const struct expiry_kind *kind;
    struct slice name; /* not NUL-terminated */
    uint64_t index;
};
/* The leader at the time of its decision. */
struct expiry_leader {
    uint64_t term, now_ms; /* now_ms: its monotonic clock */
    int64_t unix_ms;       /* its wall clock */
    const void *settings;  /* of the kind's module (registry/modules.h); NULL: none */
};
/* A beginning or an end, made by a command. `name` is followed by a NUL. */
struct expiry_update {
    struct expiry_update *next;
    const struct expiry_kind *kind;
    bool ended;
    int64_t period_ns;
    uint64_t index;
    size_t size;
    char name[];
};

struct expiry_kind {
    uint8_t number;   /* unique, never reused: kinds that are renewed go over the wire by it (PeerRenew.kind) */
    const char *name; /* in the log: "session" */
    bool renewed;     /* its owner renews it (rpc_renew); such things get a grace for a renewal that is on its way */
    /* A period of 0 or less means that it does not end by itself. The table knows it nevertheless, for renewals. */
    bool may_be_endless;
    bool no_second_period; /* a new leader counts the time that is left, and does not grant a full period anew */
    bool quiet;            /* its end is not worth a line in the log */
    /* Loop thread, when this server begins to lead: expiry_began for everything of this kind in the store. CO_OK;
     * CO_CORRUPT: a record makes no sense; the others are read. */
    int (*read)(struct store_txn *txn, const struct expiry_leader *leader, struct expiry *expiry);
    /* The command that ends it: number and message, given to `propose` before this returns. */
    void (*end)(const struct expiry_due *due, const struct expiry_leader *leader,
                void (*propose)(void *data, uint8_t command, const ProtobufCMessage *message), void *data);
    /* NULL, or gives the period that counts, for kinds where the leader's settings override the entry that began it. */
    int64_t (*period_ns)(struct store_txn *txn, const struct expiry_update *began, const struct expiry_leader *leader);
    /* Of kinds that are renewed: may the request's token renew the thing, or (`look`) see how long it has left? An empty name, of
     * a look: of all of them. As module_command.may. */
    int (*may)(struct access_check *check, struct store_txn *txn, struct slice name, bool look);
    /* NULL, or appends to a line of the log the name by which people know the thing, while it stands (` node="web1"`).
     * Loop thread. */
    void (*describe)(struct store_txn *txn, struct slice name, struct buffer *out);
    /* NULL, or is called for each beginning and end, on every server, for log lines and counters. Loop thread. */
    void (*updated)(const struct expiry_update *update);
};

/* -- the table ---------------------------------------------------------------------------------------------------- */

struct expiry *expiry_new(void);
void expiry_free(struct expiry *expiry); /* accepts NULL */
/* A loop that stood still longer than this (an election timeout) has everything granted a full period; 1 s unless
 * set. */
void expiry_stall_ms(struct expiry *expiry, uint64_t stall_ms);

/* This server leads `term` and has applied its first entry. The table is empty afterwards: the kinds' `read` fill it
 * from the store, and everything starts a full period. When called again in the same term, entries stay and get a full
 * period, and proposed ends stay proposed. */
void expiry_lead(struct expiry *expiry, uint64_t term, uint64_t now_ms);
void expiry_follow(struct expiry *expiry); /* forgets everything */
/* Something began, or ended. Ignored unless leading. A beginning does not count when the table knows the name with the
 * same or a higher index, and an end does not count when it knows a higher one. Things whose names are used only once
 * have the index 0. */
void expiry_began(struct expiry *expiry, const struct expiry_kind *kind, struct slice name, uint64_t index,
                  int64_t period_ns, uint64_t now_ms);
void expiry_ended(struct expiry *expiry, const struct expiry_kind *kind, struct slice name, uint64_t index);
/* CO_OK; CO_NOTFOUND: not known, or its end is proposed already; CO_NOTLEADER. *ttl_ns: its period; 0: it has none.
 * Call it when the leadership round is confirmed, with the time when it is: the client counts from the answer on. */
int expiry_renew(struct expiry *expiry, const struct expiry_kind *kind, struct slice name, uint64_t now_ms,
                 int64_t *ttl_ns);
/* The rest of its TTL; renews nothing. The same errors; UINT64_MAX: it has no TTL. */
int expiry_left(const struct expiry *expiry, const struct expiry_kind *kind, struct slice name, uint64_t now_ms,
                uint64_t *left_ms, int64_t *ttl_ns);
/* The same for all things of a kind whose end is not proposed, in no order. Calls nothing unless leading. */
void expiry_each(const struct expiry *expiry, const struct expiry_kind *kind, uint64_t now_ms,
                 void (*each)(void *data, struct slice name, uint64_t left_ms), void *data);
size_t expiry_count(const struct expiry *expiry, const struct expiry_kind *kind);

/* Calls `due` for everything whose time is up (each is then marked as proposed; call expiry_failed to try again, only
 * when the proposal is certainly not in the log). To be called at expiry_deadline_ms (or earlier); that moment comes
 * several times before something ends, and a late call shows that the loop stood still. */
void expiry_tick(struct expiry *expiry, uint64_t now_ms, void (*due)(void *data, const struct expiry_due *item),
                 void *data);
void expiry_failed(struct expiry *expiry, const struct expiry_due *item, uint64_t now_ms);
uint64_t expiry_deadline_ms(const struct expiry *expiry); /* UINT64_MAX: nothing is due */
uint64_t expiry_term(const struct expiry *expiry);        /* 0: not leading */

/* -- updates: from the applier to the loop ------------------------------------------------------------------------ */

/* Beginnings and ends, for the table: the machine keeps them with the batch (machine_config.updates), the loop takes
 * them. The loop can take them once their batch is committed. So a new leader, which drops the waiting updates and
 * reads the store, misses none. And it can take them before the applied index is published, so that a renewal that is
 * confirmed after an end sees the end. */
struct expiry_updates;
/* `wake` is called (applier thread) when there are updates to take again. */
struct expiry_updates *expiry_updates_new(void (*wake)(void *data), void *data);
void expiry_updates_free(struct expiry_updates *updates); /* accepts NULL */
/* Applier thread; nothing when `updates` is NULL. */
void expiry_updates_put(struct expiry_updates *updates, const struct expiry_kind *kind, bool ended, struct slice name,
                        uint64_t index, int64_t period_ns);
/* A mark in the batch: updates that are put after it can be taken back. NULL without `updates`. */
struct expiry_update **expiry_updates_mark(struct expiry_updates *updates);
void expiry_updates_back(struct expiry_updates *updates, struct expiry_update **mark);
/* The batch is committed, and its updates can be taken; or it failed, and they are dropped. */
void expiry_updates_batch_end(struct expiry_updates *updates, bool committed);
struct expiry_update *expiry_updates_take(struct expiry_updates *updates); /* oldest first; free() each. Loop thread */

/* For modules, while they apply a command. */
void expiry_began_in(struct machine_tx *tx, const struct expiry_kind *kind, struct slice name, uint64_t index,
                     int64_t period_ns);
void expiry_ended_in(struct machine_tx *tx, const struct expiry_kind *kind, struct slice name, uint64_t index);

#endif
