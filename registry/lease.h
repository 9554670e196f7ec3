/* Leases: replicated records with a TTL that the owner renews with the leader. When a lease ends, the things that are
 * bound to it are removed in the same entry.
 *
 * - Anybody may have a *free lease*, and bind services, nodes and keys to it. When it ends (revoked or expired),
 *   everything bound is removed in that entry; each touched thing wakes its watchers once, with tombstones.
 * - A *node lease* is the liveness of a node's agent, granted under the node's name (compared without case, as the
 *   catalog does). It has one owner at a time: while a lease of another node id stands under the name, a grant is
 *   refused with CO_EXISTS and a line that names the owner (the second agent waits and asks again). The same node id
 *   takes over at once from the same address (the agent was started again) or the same process (Lease.process: it
 *   replaces its own lease, health/anti_entropy.h); the older lease ends, and nothing is marked. The same node id from
 *   elsewhere waits like any other, because images of hosts are copied with their ids. An agent that names no process
 *   takes over by node id alone, and others take over from it likewise. Nor can such a copy, under another name, take
 *   the place of the node that has its node id in the catalog: while that node's agent lives elsewhere, the grant is
 *   refused, and so is a registration that would rename the node.
 *      granted   the node's check serfHealth passes again, in the same entry, if the node is in the catalog under this
 *                node id (or under none) and has that check; the note that it is dead is removed. A node that is not
 *                there yet comes with its registration
 *      expired, or ended by an operator
 *                serfHealth of the node becomes critical ("Agent not live or unreachable"), also if it had none: its
 *                sessions end in the same entry, with everything bound to them. The note "dead node" stands from now on
 *      left      (LeaseEndCommand.leave) the node goes, with services and checks, and a note that it left stays among
 *                the dead nodes' (query_members shows it) until it is granted a lease again, or for its reconnect
 *                timeout. Likewise when an operator makes a node leave whose agent is gone (NODE_LEAVE)
 *      reaped    reconnect_timeout after it died the leader has the node removed (LEASE_REAP); a change of leader
 *                begins the wait anew
 *   If the node is not in the catalog when the lease ends, nothing is marked and no note is made. A node that is
 *   removed takes its note along; its lease stays. Things may be bound to a node lease too: they are removed whenever
 *   that lease ends, by a takeover as well, and agents take over from themselves whenever they lost a write.
 *
 * How commands name a lease (a lease that does not stand is refused with CO_NOTFOUND,
 * "lease \"ID\" is not known: it has expired or was revoked; register again"):
 *   RegisterCommand.service.lease
 *                              binds the service, which goes with its checks. Registering it again with another lease,
 *                              or none, binds anew
 *   RegisterCommand.node.lease binds the node, which goes with all that is on it (not together with skip_node_update).
 *                              A registration of the node alone, without service and checks, binds anew; another that
 *                              names no lease leaves it as it is
 *   RegisterCommand.by_lease, CatalogBatchCommand.by_lease
 *                              binds nothing: the command comes from the agent that holds this node lease, and is
 *                              refused when that lease has ended. So commands that are still on their way from a dead
 *                              or replaced agent change nothing; nor do commands that an agent itself has given up,
 *                              once its lease was granted anew (health/anti_entropy.h). The lease's id counts, not
 *                              the node
 *   KvCommand.lease            binds the key; every later write of the key decides anew whether it is bound, and to
 *                              which lease
 *
 * Time: the leader counts (registry/expiry.h), renewals are no commands (rpc_renew). An expiry carries the
 * term of the leader that decided it, and is refused in another. */
#ifndef COORD_REGISTRY_LEASE_H
#define COORD_REGISTRY_LEASE_H

#include "registry/lease.pb-c.h"
#include "registry/machine.h"
#include "registry/reconnect.h"
#include "registry/self_preservation_settings.h"

enum lease_command { LEASE_GRANT = 20, LEASE_END = 21, LEASE_REAP = 22, NODE_LEAVE = 25 };
enum lease_space {
    SPACE_LEASE = 4,       /* a lease id: it, and which things are bound to it */
    SPACE_LEASE_TABLE = 5, /* name "": all of that */
    SPACE_DEAD_NODES = 6,  /* name "" */
};
#define LEASE_RECONNECT_NS 259200000000000 /* 72 h, as Consul: LeaseGrantCommand's reconnect_timeout_ns 0 means this */
#define LEASE_TTL_MIN_NS   100000000       /* the bounds of commands; the HTTP API has its own */
#define LEASE_TTL_MAX_NS   86400000000000
_Static_assert(LEASE_GRANT >= 1 && NODE_LEAVE < 32, "commands of the registry (registry/module.h)");
_Static_assert(SPACE_LEASE >= 1 && SPACE_DEAD_NODES < 32, "spaces of the registry");
_Static_assert(0 < LEASE_TTL_MIN_NS && LEASE_TTL_MIN_NS < LEASE_TTL_MAX_NS, "some TTL is allowed");

/* LEASE_GRANT: CO_OK with the pb.Lease; CO_EXISTS (see above), CO_INVALID. LEASE_END: yes, also when there was none,
 * but not with `leave`: an agent that leaves in order and gets "no" was given up already, and deregisters its node;
 * CO_CONFLICT: in another term. NODE_LEAVE: yes: the node was removed, or (prune) its note; no: there is neither;
 * CO_CONFLICT: its agent lives. LEASE_REAP: yes: the note is removed, and the node too unless its serfHealth is not
 * critical; CO_CONFLICT. Settings: NULL (self-preservation is off, no classes), or struct lease_settings. */
extern const struct module lease_module;
/* The leader's settings, on which its decisions depend besides the state. */
struct lease_settings {
    struct self_preservation_settings preservation;
    struct reconnect_classes reconnect; /* borrowed */
};
extern const struct expiry_kind lease_expiry;     /* 1: the lease's id */
extern const struct expiry_kind dead_node_expiry; /* 3: the node; index: of the entry in which its lease expired */
extern const struct query_type query_lease;       /* LeaseRequest -> LeaseEntry; found=false; thing: the lease */
extern const struct query_type query_leases;      /* LeaseListRequest -> LeaseEntriesResult; thing: table */
extern const struct query_type query_dead_nodes;  /* DeadNodesRequest -> DeadNodesResult, without those that left */

/* -- for modules that bind records to leases (applier thread; tx is an entry being applied) ----------------------- */
/* Kinds are numbers of struct module_binding in the modules' `lease_bindings`, which act at the end. */
enum lease_kind { LEASE_BINDS_KEY = 1, LEASE_BINDS_SERVICE = 2, LEASE_BINDS_NODE = 3 };
/* May something be bound to the lease? False: the lease is not known, and `result` has the refusal. */
bool lease_known(struct machine_tx *tx, struct slice lease, struct machine_result *result);
/* `name`: a key; service: lease_service_name; node. The module keeps the lease's id in its own record too, and unbinds
 * when that changes or goes. Binding a thing twice does nothing. */
void lease_bind(struct machine_tx *tx, struct slice lease, enum lease_kind kind, struct slice name);
void lease_unbind(struct machine_tx *tx, struct slice lease, enum lease_kind kind, struct slice name);
/* The first thing of that kind that is bound to the lease, in the arena. False: there is none. */
bool lease_first(struct machine_tx *tx, struct slice lease, enum lease_kind kind, struct slice *name);
/* May the agent that holds `lease` take its node id, which is registered under `name`, to another name? *why NULL: yes
 * (nobody lives under that name with this id, or it is the same agent: same process, or same address); else a line that
 * names the agent that lives there. CO_NOTFOUND, CO_CORRUPT. */
int lease_renames(struct machine_tx *tx, struct slice lease, struct slice name, const char **why);
struct slice lease_service_name(struct arena *arena, struct slice node, struct slice id);

#endif
