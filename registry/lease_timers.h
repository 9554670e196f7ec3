/* The leader's table of everything that ends by itself: sessions, leases, lock-delays, dead nodes, held services. It
 * decides, it does not act: time comes in, proposals come out. rpc/lease_keeper.h puts it to work; modules feed it,
 * from the store and by news from the applier.
 *
 * Bounds (design, decision 4): an end is proposed never before the full period after the last acknowledged renewal,
 * at most 1 s after it on a healthy cluster; a new leader (or one whose loop stood still longer than an election
 * timeout) grants everything a full period.
 *
 * The table is for one thread (the loop), the box between two. */
#ifndef COORD_REGISTRY_LEASE_TIMERS_H
#define COORD_REGISTRY_LEASE_TIMERS_H

#include "base/buffer.h"
#include "base/error.h"

/* What ends. The first two can be renewed, and go over the wire by these numbers (PeerRenew.kind). */
enum timed {
    TIMED_SESSION = 0,    /* id; a period of 0: it does not end by itself. Ids are used once: the index is 0 */
    TIMED_LEASE = 1,      /* id; likewise */
    TIMED_LOCK_DELAY = 2, /* key; index: of the entry that began it */
    TIMED_DEAD_NODE = 3,  /* node; index: of the entry in which its lease expired */
    /* service; index: of the entry since which it is held (registry/brake.h). Of this nobody is granted more */
    TIMED_HELD = 4,
    TIMED_KINDS
};
const char *timed_text(enum timed kind); /* "session", "lease", "lock-delay", "dead node", "held service" */

struct lease_timers;
struct lease_timers *lease_timers_new(void);
void lease_timers_free(struct lease_timers *timers);
/* A loop that stood still longer than this (an election timeout) has everything granted a full period; 1 s unless
 * set. */
void lease_timers_stall_ms(struct lease_timers *timers, uint64_t stall_ms);

/* This server leads `term` and has applied its first entry. The table is empty afterwards: the modules fill it from
 * the store (lease_timers_read, session_timers_read), and everything starts a full period. Again in the same term:
 * what is there stays and gets a full period, what is proposed stays so. */
void lease_timers_lead(struct lease_timers *timers, uint64_t term, uint64_t now_ms);
void lease_timers_follow(struct lease_timers *timers); /* forgets everything */
/* Something began, or ended. Ignored unless leading. What is known with the same or a higher index is not begun
 * again, and what is known with a higher one not ended. */
void lease_timers_began(struct lease_timers *timers, enum timed kind, struct slice name, uint64_t index,
                        int64_t period_ns, uint64_t now_ms);
void lease_timers_ended(struct lease_timers *timers, enum timed kind, struct slice name, uint64_t index);
/* CO_OK; CO_NOTFOUND: not known, or its end is proposed already; CO_NOTLEADER. *ttl_ns: its period; 0: it has none.
 * Call it when the leadership round is confirmed, with the time when it is: the client counts from the answer on. */
int lease_timers_renew(struct lease_timers *timers, enum timed kind, struct slice name, uint64_t now_ms,
                       int64_t *ttl_ns);
/* How much of its TTL is left; nothing is renewed. The same errors; of what has no TTL: UINT64_MAX. */
int lease_timers_left(const struct lease_timers *timers, enum timed kind, struct slice name, uint64_t now_ms,
                      uint64_t *left_ms, int64_t *ttl_ns);
/* The same of all of a kind whose end is not proposed, in no order. Nothing unless leading. */
void lease_timers_each(const struct lease_timers *timers, enum timed kind, uint64_t now_ms,
                       void (*each)(void *data, struct slice name, uint64_t left_ms), void *data);
size_t lease_timers_count(const struct lease_timers *timers, enum timed kind);

struct lease_due {
    enum timed kind;
    struct slice name;
    uint64_t index;
}; /* valid during the call */
/* Calls `due` for everything whose time is up (each is then marked as proposed; call lease_timers_failed to try
 * again, only when the proposal is certainly not in the log). To be called at lease_timers_deadline_ms (or earlier);
 * that comes several times before something ends, and a call that is late tells that the loop stood still. */
void lease_timers_tick(struct lease_timers *timers, uint64_t now_ms,
                       void (*due)(void *data, const struct lease_due *item), void *data);
void lease_timers_failed(struct lease_timers *timers, const struct lease_due *item, uint64_t now_ms);
uint64_t lease_timers_deadline_ms(const struct lease_timers *timers); /* UINT64_MAX: nothing */
uint64_t lease_timers_term(const struct lease_timers *timers);        /* 0: not leading */

/* What commands changed, for the table: modules put news into the box that they were given as module data (applier
 * thread; none when NULL), the loop takes them. They can be taken once their batch is committed: a leader that
 * begins forgets the news that there are and reads the store, which shows no others (of what was in neither the
 * table would never hear). And before it is applied: a renewal that was confirmed after an end sees it. */
struct lease_news {
    struct lease_news *next;
    enum timed kind;
    bool ended;
    int64_t period_ns;
    uint64_t index;
    size_t size;
    char name[];
};
struct lease_box;
/* `wake` is called (applier thread) when news can be taken out of a box that was empty. */
struct lease_box *lease_box_new(void (*wake)(void *data), void *data);
void lease_box_free(struct lease_box *box);
void lease_box_put(struct lease_box *box, enum timed kind, bool ended, struct slice name, uint64_t index,
                   int64_t period_ns);
/* machine_module.batch_end: what was put since can be taken, or is dropped. Of modules that share a box any. */
void lease_box_batch_end(void *box, bool committed);
struct lease_news *lease_box_take(struct lease_box *box); /* oldest first; free() each. Loop thread */

#endif
