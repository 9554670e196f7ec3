/* The time after which a dead node is removed: from the node's record, or from the leader's settings for its class, or
 * its agent's own reconnect_timeout. Only the leader asks, when it begins to count (registry/expiry.h): the settings of
 * servers may differ.
 *
 *   node meta "reconnect_timeout"   a duration above 0 ("30m"); anything else counts as none
 *   node meta "class"               a name in the leader's list */
#ifndef COORD_REGISTRY_RECONNECT_H
#define COORD_REGISTRY_RECONNECT_H

#include "base/buffer.h"
#include "registry/store.h"

#define RECONNECT_META_TIMEOUT "reconnect_timeout"
#define RECONNECT_META_CLASS   "class"

struct reconnect_classes {
    const struct reconnect_class {
        const char *name;
        int64_t timeout_ns;
    } * items;
    size_t count;
};

/* `own_ns`: the agent's. It counts for a node that is not in the catalog. */
int64_t reconnect_timeout(struct store_txn *txn, struct slice node, const struct reconnect_classes *classes,
                          int64_t own_ns);
/* Parses a timeout of node meta or settings; false: it is no duration, or not above 0. */
bool reconnect_parse(const char *text, int64_t *timeout_ns);

#endif
