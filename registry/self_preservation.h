/* Self-preservation: when the leases of many nodes expire at once and take a service with them, the registry
 * itself is the likelier cause than all of its machines. The service's lost instances then come back into *answers*
 * for a while, marked as held.
 *
 * - A *loss*: the lease of a node expired (LEASE_END with the leader's term) while the node's serfHealth was not
 *   critical; every instance on the node is lost then, whatever its own checks say. No losses: a node that left or was
 *   reaped, a lease that an operator ended, instances bound to free leases, checks that turned critical, because
 *   somebody wanted those ends, or a check found the failure.
 * - *Self-preservation* acts on a service when its losses within the window are at least `instances` on at least
 *   `nodes` nodes, and at least `percent` of those of its instances that were not on dead nodes before. It holds the
 *   instances that were lost in the window, and those that are lost later in the same way. It releases them when
 *   `hold_ms` are over (PRESERVATION_RELEASE), or earlier when none of them is lost any more. A loss that has been held
 *   does not count again.
 * - A held instance is shown with its node's serfHealth passing, and ServiceEntry.held, in answers to requests with
 *   ServiceRequest.held: those of DNS and /v1/health/service (later the pick). Its own checks are shown as they are,
 *   because reports about the instance itself count. It is held no longer when its node's lease is granted again, or
 *   when it is deregistered or gets another name.
 * - The catalog's records do not change: requests without the flag, and all requests of nodes and checks, get the true
 *   status. Sessions, locks and leased keys end as always.
 * - If the machines really are gone (a rack without power), answers name dead instances for `hold_ms` longer: that is
 *   the price.
 *
 * All of it is replicated state, so that every server answers alike, watches are exact, and restarts and changes of
 * leader keep it. The state machine has neither clock nor configuration: the leader puts both into each LEASE_END that
 * it decides (LeaseEndCommand.preservation).
 *   PreservationOrder.at_ms    the leader's monotonic clock, because wall clocks may jump. The state machine keeps a
 *                              clock of its own that advances by the time between two ends of one term. Across a change
 *                              of leader it advances by unix_ms, minus the TTL of the lease that ends, because the new
 *                              leader has granted it anew, and the old one was probably lost in the same trouble
 *   PreservationOrder.unix_ms  the leader's wall clock, for times beyond one leader: for the step above (never
 *                              backwards, at most PRESERVATION_HOLD_MS_MAX), and for the end of the hold: a later leader
 *                              waits for the rest, never longer than hold_ms. While no server leads nothing is released
 *   percent ... hold_ms        of the leader's configuration. hold_ms 0: self-preservation is off; it releases nothing
 *                              that is held
 *
 * Work per end of a lease: three small writes for each instance and service on the node, whatever the size of the
 * services; when it acts, one more per node that was lost. */
#ifndef COORD_REGISTRY_SELF_PRESERVATION_H
#define COORD_REGISTRY_SELF_PRESERVATION_H

#include "registry/catalog_write.h"
#include "registry/lease.pb-c.h"

/* Of the lease module. PRESERVATION_RELEASE: yes: it was released; CO_CONFLICT: the term is another one. */
enum preservation_command { PRESERVATION_RELEASE = 23 };
_Static_assert(PRESERVATION_RELEASE < 32, "a command of the registry (registry/module.h)");
#define PRESERVATION_HOLD_MS_MAX 86400000 /* longer holds count as this */

/* -- applying (applier thread) ------------------------------------------------------------------------------------ */
/* The node died. `order`: the leader's; NULL: the node is dead from now on, but that is no loss. `lease_ms`: the TTL of
 * its lease. Tells `began` of services that are held from now on. */
void preservation_node_lost(struct machine_tx *tx, struct slice node, const Pb__PreservationOrder *order,
                            int64_t lease_ms);
/* Its lease was granted again. */
void preservation_node_back(struct machine_tx *tx, struct slice node);
/* An instance leaves its service's name. Call it while the service still has its other records;
 * MACHINE_PRESERVATION_RELEASED may follow. */
void preservation_instance_gone(struct change *change, const Pb__Service *service);
int preservation_release_apply(struct machine_tx *tx, void *request,
                               struct machine_result *result); /* PRESERVATION_RELEASE */

/* -- reading (any thread) ----------------------------------------------------------------------------------------- */
/* Is the service held? NULL: no. CO_CORRUPT. */
int preservation_held(struct store_txn *txn, struct slice service, struct arena *arena, Pb__HeldService **held);
/* Is this instance held? `instance`: its key in TABLE_INSTANCES. */
bool preservation_holds(struct store_txn *txn, const Pb__HeldService *held, struct slice instance);
uint64_t preservation_count(struct store_txn *txn); /* services that are held */

/* -- for the lease module's table --------------------------------------------------------------------------------- */
/* 4: the service; index: of the entry since which it is held. A later leader computes the time that is left by the wall
 * clock. */
extern const struct expiry_kind held_service_expiry;
extern const struct module_gauge preservation_gauges[];
extern struct metric *const preservation_metrics[];

#endif
