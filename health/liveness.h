/* This agent's node lease (registry/lease.h): what says to the cluster that this node is alive. It is granted under
 * the node's name, renewed three times in each of its periods, and every 10 s at least (the answer says whether a
 * backup was taken in: then the catalog is compared), and granted anew when it has ended (this host was cut off, or
 * stood still, for longer than its TTL).
 *
 *     ASKING --granted--> HELD --ended--> ASKING
 *      |                 '--replaced--> ASKING: what still goes by the lease before becomes void
 *        '--another agent has the name--> WAITING: asks every 1 to 3 s, says so once a minute
 *
 * Another agent is one with another node id, or with the same one at another address (registry/lease.h). Two on one
 * host that share everything take the lease from each other: who loses it again and again soon after it was granted
 * asks later and later, up to 30 s.
 *
 * While it is ASKING or WAITING nothing of this node is written to the catalog (sync.h): it may be another's. Only a
 * monotonic clock is looked at. Loop thread only. */
#ifndef COORD_HEALTH_LIVENESS_H
#define COORD_HEALTH_LIVENESS_H

#include "health/local_internal.h"

struct liveness;
/* `changed` is called on the loop when liveness_lease or liveness_may_write may say something else. */
struct liveness *liveness_new(struct local *local, void (*changed)(struct local *local));
/* What is under way is let go of; then local_part_closed. */
void liveness_close(struct liveness *liveness);

bool liveness_may_write(const struct liveness *liveness);
/* The id of the lease that is held; NULL: none, and nothing may be written. */
const char *liveness_lease(const struct liveness *liveness);
/* The servers refused a write because the lease does not stand. */
void liveness_lost(struct liveness *liveness);
/* A write that went by this lease may still arrive, nobody knows when: a new lease takes the place of that one, if
 * it is held, so that the servers refuse the write. The node stays alive all the while; nothing is written until the
 * new lease stands. */
void liveness_replace(struct liveness *liveness, const char *lease);
/* The node leaves in order: it is removed from the catalog at once. `done` on the loop, within 5 s: CO_OK: it has left,
 * or had nothing to leave; else the servers did not take it, or nobody knows whether they did. Nothing is renewed or
 * asked for afterwards. */
void liveness_leave(struct liveness *liveness, void (*done)(void *data, int error), void *data);

/* How long it is not asked for after it was lost so often in a row, each time soon after it was granted. Pure. */
uint64_t liveness_period_ms(int64_t ttl_ns); /* from one renewal to the next */
uint64_t liveness_lost_wait_ms(unsigned lost);

#endif
