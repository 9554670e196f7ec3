/* What a token may see of the catalog, and do with it. The rules are Consul's:
 *
 *   a node              node:read
 *   an instance         service:read of its service and node:read of its node
 *   a node's check      node:read; a service's check: both, for the service's name in the check
 *   names with tags     service:read alone
 *
 * A single node or name that is hidden is answered as one that is not there, with the index 0, because DNS and
 * /v1/catalog/node answer so. */
#ifndef COORD_REGISTRY_CATALOG_ACCESS_H
#define COORD_REGISTRY_CATALOG_ACCESS_H

#include "registry/catalog.h"

/* -- parts of results, for the queries of other modules ----------------------------------------------------------- */

/* Of a row: false counts it as hidden. */
bool catalog_shows_instance(struct access_check *check, const char *service, const char *node);
/* May the token read the service? If not, the whole result counts as one hidden row, and its index becomes 0. */
bool catalog_shows_service(struct access_check *check, const char *service, struct query_result *result);
/* Keeps the instances that the token may read. A check that has a former name of its service, which the token may not
 * read, gets the present one. */
void catalog_show_entries(struct access_check *check, Pb__ServiceEntry **entries, size_t *count);

/* -- the catalog's own (query_type.show, module_command.may) ------------------------------------------------------ */

#define CATALOG_SHOW(name)                                                                                      \
    int catalog_show_##name(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request, \
                            struct query_result *result)
CATALOG_SHOW(nodes);
CATALOG_SHOW(services);
CATALOG_SHOW(node_services);
CATALOG_SHOW(service_entries);
CATALOG_SHOW(service_checks);
CATALOG_SHOW(node_checks);
CATALOG_SHOW(state_checks);
CATALOG_SHOW(service_addresses);
CATALOG_SHOW(members);
CATALOG_SHOW(node_name);
CATALOG_SHOW(service_name);

/* Registering needs node:write, unless the node is there and stays just as it is; node:write of the node whose ID it
 * takes over; service:write of the service's name, of the name that its ID has now, and of the services of its checks;
 * for a node's check node:write. A check that belongs to something else now is taken over: that needs the same again. */
int catalog_may_register(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request);
/* Deregistering needs node:write; a service, or its check, can go by service:write too. */
int catalog_may_deregister(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request);
/* Each part as if it were alone. */
int catalog_may_batch(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request);

#endif
