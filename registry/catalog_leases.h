/* Inside the registry: what the catalog does when leases come and end (registry/lease.h says when). Applier thread. */
#ifndef COORD_REGISTRY_CATALOG_LEASES_H
#define COORD_REGISTRY_CATALOG_LEASES_H

#include "registry/catalog.h"
#include "registry/lease.h"

/* What is bound to a lease that ended goes. */
extern const struct module_binding catalog_lease_bindings[];

/* The name of the node that has this id, in the arena; empty: none. */
struct slice catalog_node_of_id(struct machine_tx *tx, struct slice node_id);
/* The node's agent lives: its serfHealth passes, if it has one. Of a node that stands under another id nothing is
 * changed; false. An empty id, on either side, is no other. */
bool catalog_node_lives(struct machine_tx *tx, struct slice node, struct slice node_id);
/* Is its serfHealth, if it has one, not critical? */
bool catalog_node_alive(struct machine_tx *tx, struct slice node);
/* It died: serfHealth is critical from now on. False: there is no such node. */
bool catalog_node_died(struct machine_tx *tx, struct slice node, struct slice node_id);
/* It goes, with all that is on it. `dead_only`: unless its serfHealth says that it lives. */
void catalog_node_goes(struct machine_tx *tx, struct slice node, struct slice node_id, bool dead_only);

/* The node as /v1/agent/members has it, in the arena; *member NULL: it is not in the catalog, or has no agent. */
int catalog_member(struct store_txn *txn, struct arena *arena, struct slice node, Pb__Member **member);

/* A registration's leases: may it bind to them? Settles which lease the node's record names. False: refused. */
bool catalog_leases_fit(struct machine_tx *tx, Pb__RegisterCommand *command, struct machine_result *result);
/* An agent's registration renames the node that has its id (from: the other name; NULL: it does not): may it, or
 * does somebody live there? */
bool catalog_leases_rename(struct machine_tx *tx, const Pb__RegisterCommand *command, const char *from,
                           struct machine_result *result);
/* What an agent registers on its node comes onto one that is there, or is refused with CO_CONFLICT: somebody has
 * removed it. */
bool catalog_leases_on_node(struct machine_tx *tx, const Pb__RegisterCommand *command, bool known,
                            struct machine_result *result);
/* A record named the lease `before`, and names `after` from now on; "" each: none. */
void catalog_rebind(struct machine_tx *tx, enum lease_kind kind, const char *before, const char *after,
                    struct slice name);

#endif
