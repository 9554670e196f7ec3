/* Inside the catalog: functions that its queries share. */
#ifndef COORD_REGISTRY_CATALOG_QUERY_H
#define COORD_REGISTRY_CATALOG_QUERY_H

#include "registry/catalog_write.h"

bool query_meta_fits(const Pb__Node *node, Pb__Pair *const *wanted, size_t wanted_count);
/* Fills in the result; its index is the thing's. */
int query_done(struct store_txn *txn, struct watch_key watched, const ProtobufCMessage *message, bool found,
               struct query_result *result);
struct watch_key query_service_thing(const ProtobufCMessage *message);

/* An instance's node and the checks of that node: the next instance is often on the same. In the arena. */
struct query_entry_node {
    char key[STORE_KEY_MAX];
    size_t key_size;
    Pb__Node *node; /* NULL: no node yet */
    struct pointers checks;
    struct pointers held_checks; /* the same as self-preservation shows them; empty: not made yet */
};
/* `rest`: the instance's key in TABLE_SERVICES. NULL in *out: filtered away by the request. `held`: self-preservation
 * holds the instance, if its node is dead. CO_CORRUPT. */
int query_load_entry(struct store_txn *txn, struct arena *arena, struct slice rest, bool held,
                     const Pb__ServiceRequest *request, struct query_entry_node *node, Pb__ServiceEntry **out);

#endif
