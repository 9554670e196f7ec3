/* The catalog: nodes, their services, their checks. Commands (registry/catalog.proto), queries, and the module that
 * offers them to the state machine.
 *
 * Status of an instance = the worst of its node's checks (those without a service) and its own. Names of nodes and
 * services, and IDs of services and checks, have no case (registry/fold.h). A registration
 * that changes nothing changes no index and touches nothing. A check keeps the name and tags that its service had
 * when the check was registered, as in Consul. */
#ifndef COORD_REGISTRY_CATALOG_H
#define COORD_REGISTRY_CATALOG_H

#include "registry/catalog.pb-c.h"
#include "registry/machine.h"

enum catalog_command { CATALOG_REGISTER = 1, CATALOG_DEREGISTER = 2, CATALOG_BATCH = 3 };

/* Things that can be watched. */
enum catalog_space {
    /* names: "nodes", "services" (names and the union of their tags), "checks" (also when the meta of a node that
     * has checks changes), "service-nodes" (which services with which tags on which nodes with which meta),
     * "service-addresses" (the services' own addresses; fires, but has no index), "catalog" (all of it) */
    SPACE_TABLE = 1,
    SPACE_NODE = 2,    /* a node with its services and checks */
    SPACE_SERVICE = 3, /* a service name: its instances, their nodes and checks */
};

_Static_assert(CATALOG_REGISTER >= 1 && CATALOG_BATCH < 32, "commands of the registry (registry/module.h)");
_Static_assert(SPACE_TABLE >= 1 && SPACE_SERVICE < 32, "spaces of the registry");

extern const struct module catalog_module;

/* Queries. The comment names the request and result messages. */
extern const struct query_type query_nodes; /* TableRequest -> NodesResult; thing: table nodes */
/* TableRequest -> ServicesResult; thing: table services; with node meta: table service-nodes */
extern const struct query_type query_services;
extern const struct query_type query_node_services; /* NodeRequest -> NodeServicesResult; found=false: no such node */
/* ServiceRequest -> ServiceEntriesResult; thing: the service. Filters: all tags (without regard to case),
 * passing_only, node meta. Ordered by node, id (in the order of keys). checks = the node's own, then the service's.
 * held: with what self-preservation holds (registry/self_preservation.h); else the truth */
extern const struct query_type query_service_entries;
/* ServiceRequest -> ChecksResult: checks that carry the service's name (not the nodes'). Of the filters node meta
 * only. All checks: by node, check id */
extern const struct query_type query_service_checks;
extern const struct query_type query_node_checks;  /* NodeRequest -> ChecksResult */
extern const struct query_type query_state_checks; /* StateRequest -> ChecksResult; thing: table checks */

/* TableRequest (no filter) -> ServiceAddressesResult: the addresses of services that have one of their own, by node,
 * id; thing: table service-addresses, which has no index: 0 */
extern const struct query_type query_service_addresses;

/* TableRequest (no filter) -> MembersResult; thing: table nodes (a change of their status alone wakes nobody) */
extern const struct query_type query_members;

/* A name as it is stored that equals the given one without regard to case, in any cluster version, the exact one before
 * others. found=false: there is none. */
extern const struct query_type query_node_nocase;    /* NameRequest -> NameResult; thing: table nodes */
extern const struct query_type query_service_nocase; /* NameRequest -> NameResult; thing: table services */

bool catalog_tags_fit(const Pb__Service *service, char *const *tags, size_t count); /* has it all of them? */
/* Worst status of an entry's checks. */
Pb__Status catalog_entry_status(const Pb__ServiceEntry *entry);
const char *catalog_status_text(Pb__Status status);              /* "passing", "warning", "critical", "maintenance" */
int catalog_status_parse(struct slice text, Pb__Status *status); /* CO_INVALID */

/* The same within a transaction, of a service or a node (DNS). CO_NOTFOUND. */
int catalog_service_nocase(struct store_txn *txn, struct slice name, struct slice *stored);
int catalog_node_nocase(struct store_txn *txn, struct slice name, struct slice *stored);
/* Look-ups for modules (sessions check that node and checks exist). */
bool catalog_node_exists(struct store_txn *txn, struct slice node);
/* The number of registered nodes; at present, also in a read of the past. */
uint64_t catalog_node_count(struct store_txn *txn);
/* Does the node have a passing instance of the service? CO_OK; CO_NOTFOUND: none; or the store failed. */
int catalog_instance_passes(struct store_txn *txn, struct slice service, struct slice node, struct arena *arena);
/* Has the service an instance that DNS would give out: passing or warning, or held (registry/self_preservation.h)?
 * CO_OK; CO_NOTFOUND: none; CO_AGAIN: none among the `most` that were examined (0: all), and there are more; or the
 * store failed. It looks first where it found one last time (`witness`, the caller's; zeroed at first), so when many
 * instances fail one after the other, each is examined about once. Except for CO_AGAIN, the answer does not depend on
 * the witness. */
struct catalog_witness {
    char key[STORE_KEY_MAX];
    size_t size;
};
int catalog_service_healthy(struct store_txn *txn, struct slice service, size_t most, struct arena *arena,
                            struct catalog_witness *witness);
/* Is an instance of it registered? */
bool catalog_service_exists(struct store_txn *txn, struct slice name);
/* CO_NOTFOUND */
int catalog_check_status(struct store_txn *txn, struct slice node, struct slice check_id, Pb__Status *status);
/* One record, into the arena. CO_NOTFOUND; else the store failed. */
int catalog_node_get(struct store_txn *txn, struct slice node, struct arena *arena, Pb__Node **record);
int catalog_node_by_id(struct store_txn *txn, struct slice id, struct arena *arena, Pb__Node **record); /* its UUID */
int catalog_service_get(struct store_txn *txn, struct slice node, struct slice id, struct arena *arena,
                        Pb__Service **record);
int catalog_check_get(struct store_txn *txn, struct slice node, struct slice check_id, struct arena *arena,
                      Pb__Check **record);

#endif
