/* Lock-delays: when the session of a holder ends, nobody gets the name for a while, because the holder may not know yet
 * that it lost it. Keys (kv/keys/) and queues (kv/lock/lock_queue.h) keep the delays that are under way in tables of
 * their own, in rows of the same form. The leader's expiry counts the time, and its command ends the delay.
 *
 * Functions that take a tx are called by the applier while it applies an entry. */
#ifndef COORD_KV_LOCK_DELAY_H
#define COORD_KV_LOCK_DELAY_H

#include "kv/session/session.h"

/* The place of one module's delays. The keys of the rows are the module's. */
struct lock_delays {
    uint8_t table;
    struct slice rows; /* how the keys of these rows begin; empty: the whole table has delays */
    const struct expiry_kind *kind;
};
struct lock_delay {
    uint64_t index; /* of the entry that began it */
    int64_t delay_ns;
    struct slice name; /* by which the expiry knows it; points into the row */
};

/* The length of the delay when this session ends; 0: none. */
int64_t lock_delay_ns(const Pb__Session *session);
/* A delay begins with the entry that is applied. A delay that this entry has begun in the row already gives way when it
 * is shorter. False: the row was there before. */
bool lock_delay_begin(struct machine_tx *tx, const struct lock_delays *delays, struct slice row, struct slice name,
                      int64_t delay_ns);
/* Ends the delay in the row if it is the one of this name and index; *over: it was. CO_OK, or why the store failed. */
int lock_delay_remove(struct machine_tx *tx, const struct lock_delays *delays, struct slice row, struct slice name,
                      uint64_t index, bool *over);
/* As expiry_kind.read. */
int lock_delays_read(struct store_txn *txn, const struct lock_delays *delays, const struct expiry_leader *leader,
                     struct expiry *expiry);

/* Any thread. The value of a row; CO_CORRUPT. */
int lock_delay_decode(struct slice bytes, struct lock_delay *delay);

#endif
