/* Inside the registry: the catalog's part when leases begin and end (registry/lease.h has the rules). Applier
 * thread. */
#ifndef COORD_REGISTRY_CATALOG_LEASES_H
#define COORD_REGISTRY_CATALOG_LEASES_H

#include "registry/catalog.h"
#include "registry/lease.h"

/* Removes the things that are bound to a lease that ended. */
extern const struct module_binding catalog_lease_bindings[];

/* The name of the node that has this id, in the arena; empty: none. */
struct slice catalog_node_of_id(struct machine_tx *tx, struct slice node_id);
/* The node's agent lives: its serfHealth becomes passing, if it has one. False: the node has another id, and nothing is
 * changed. An empty id, on either side, counts as the same. */
bool catalog_node_lives(struct machine_tx *tx, struct slice node, struct slice node_id);
/* Is its serfHealth, if it has one, not critical? */
bool catalog_node_alive(struct machine_tx *tx, struct slice node);
/* The node died: its serfHealth becomes critical. False: there is no such node. */
bool catalog_node_died(struct machine_tx *tx, struct slice node, struct slice node_id);
/* Removes the node, with everything on it. `dead_only`: unless its serfHealth is not critical. */
void catalog_node_goes(struct machine_tx *tx, struct slice node, struct slice node_id, bool dead_only);

/* The node as /v1/agent/members has it, in the arena; *member NULL: it is not in the catalog, or has no agent. */
int catalog_member(struct store_txn *txn, struct arena *arena, struct slice node, Pb__Member **member);

/* May a registration bind to its leases? Sets the lease that the node's record names. False: refused. */
bool catalog_leases_fit(struct machine_tx *tx, Pb__RegisterCommand *command, struct machine_result *result);
/* An agent's registration renames the node that has its id (from: the other name; NULL: it does not): may it, or
 * does somebody live there? */
bool catalog_leases_rename(struct machine_tx *tx, const Pb__RegisterCommand *command, const char *from,
                           struct machine_result *result);
/* An agent's registration needs a node that is there. False: refused with CO_CONFLICT, because somebody has removed the
 * node. */
bool catalog_leases_on_node(struct machine_tx *tx, const Pb__RegisterCommand *command, bool known,
                            struct machine_result *result);
/* A record named the lease `before`, and names `after` from now on; "" each: none. */
void catalog_rebind(struct machine_tx *tx, enum lease_kind kind, const char *before, const char *after,
                    struct slice name);

#endif
