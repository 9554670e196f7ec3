/* Exact watches (docs/decisions/exact-watches.md): waiters for watch keys, generations for answer caches, and waking.
 *
 * A query depends on a *watch key*: a space (a number: KV keys, service names, the table of nodes, ...) and a name in
 * it. KV prefixes are watch keys of a prefix space: a change of key K of its key space touches every prefix watch key
 * whose name K starts with. Names of nodes and services are compared without case.
 *
 * The order that makes it exact: the waiter arms first, then reads; the applier commits, bumps generations,
 * publishes the applied index, then fires. So a change is either seen by the read or fires the waiter. */
#ifndef COORD_REGISTRY_WATCH_H
#define COORD_REGISTRY_WATCH_H

#include <stdatomic.h>

#include "base/buffer.h"
#include "base/list.h"

/* Spaces are numbered in registry/module.h. A prefix space is its key space | 0x80. */
enum { WATCH_PREFIX_BIT = 0x80 };
struct watch_key {
    uint8_t space;
    struct slice name;
};

struct watch_table;
struct watch_table *watch_table_new(void);
void watch_table_free(struct watch_table *table);

struct watch_waiter;
typedef void (*watch_fire)(struct watch_waiter *waiter); /* applier thread; short, must not call back into the table */
struct watch_waiter {
    struct list link; /* the table's */
    void *entry;      /* the table's */
    watch_fire fire;
    _Atomic bool armed;
};

/* Any thread. Adds the waiter, armed. The name is copied (shared among its waiters). */
void watch_add(struct watch_table *table, struct watch_waiter *waiter, struct watch_key watched, watch_fire fire);
/* Re-arms after it fired; then read again. The store of `armed` may not sink below the reads that follow (the
 * sanitizer does not know fences). */
static inline void watch_arm(struct watch_waiter *waiter) {
    atomic_store(&waiter->armed, true);
#ifndef COORD_TSAN
    atomic_thread_fence(memory_order_seq_cst);
#endif
}
/* Any thread. After it returns `fire` will not be called (and is not running). */
void watch_remove(struct watch_table *table, struct watch_waiter *waiter);
size_t watch_count(struct watch_table *table); /* waiters, for limits and metrics */

/* Generation of a watch key: equal before and after a read means that the read's result is current. Several watch keys may
 * share a counter (a table of 16,384), which costs a rebuild and never staleness. Any thread. Prefix watch keys: the
 * generation of their key space as a whole (space without the bit, empty name). */
uint64_t watch_generation(struct watch_table *table, struct watch_key watched);

/* Applier: the watch keys that one batch touched, each once. Zero-initialise; reuse; watch_touched_free at last. */
struct watch_touched {
    struct buffer things; /* packed */
    size_t count;
    uint64_t *seen; /* places in `things` by hash, stamped with the batch */
    size_t seen_size;
    uint32_t stamp;
    bool everything;
};
/* `watched` in a key space touches its prefixes too */
void watch_touch(struct watch_touched *touched, struct watch_key watched);
void watch_touched_all(struct watch_touched *touched); /* a restore: everything */
/* Touches after a mark can be taken back. */
struct watch_mark {
    size_t size, count;
    bool everything;
};
struct watch_mark watch_touched_mark(const struct watch_touched *touched);
void watch_touched_back(struct watch_touched *touched, struct watch_mark mark);
/* after commit, before publishing the index */
void watch_bump(struct watch_table *table, const struct watch_touched *touched);
/* after publishing: fires armed waiters, once each */
void watch_wake(struct watch_table *table, const struct watch_touched *touched);
void watch_touched_reset(struct watch_touched *touched);
void watch_touched_free(struct watch_touched *touched);

#endif
