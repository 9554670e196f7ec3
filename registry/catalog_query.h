/* Inside the catalog: what its queries share. */
#ifndef COORD_REGISTRY_CATALOG_QUERY_H
#define COORD_REGISTRY_CATALOG_QUERY_H

#include "registry/catalog_write.h"

bool query_meta_fits(const Pb__Node *node, Pb__Pair *const *wanted, size_t wanted_count);
/* Fills in the result; its index is the thing's. */
int query_done(struct store_txn *txn, struct watch_key watched, const ProtobufCMessage *message, bool found,
               struct query_result *result);
struct watch_key query_service_thing(const ProtobufCMessage *message);

#endif
