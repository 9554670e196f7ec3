/* Names without regard to case. Names of nodes and services, and IDs of services and checks, are one when they differ
 * in the case of ASCII letters only (docs/decisions/names-and-case.md says why ASCII). They are *folded* in the keys of
 * the store, in tombstones and in watch keys; records have the last spelling. */
#ifndef COORD_REGISTRY_FOLD_H
#define COORD_REGISTRY_FOLD_H

#include "base/buffer.h"

/* The key of 1 to 3 names, as store_key_join makes it. `room`: STORE_KEY_MAX bytes. */
struct slice fold_key(char *room, size_t count, const struct slice *names);

/* A name for comparison: the name itself, or folded in `room` or in memory of its own. */
struct fold_name {
    char room[256], *own;
    struct slice folded;
};
void fold_name_of(struct fold_name *name, struct slice text);
void fold_name_free(struct fold_name *name);

/* Are the things of this space (registry/watch.h) named after nodes or services? */
enum {
    FOLD_SPACE_NODE = 2,
    FOLD_SPACE_SERVICE = 3,
    FOLD_SPACE_SESSION_NODE = 35,
    FOLD_SPACE_COORDINATE_NODE = 65,
    FOLD_SPACE_COPY_SERVICE = 112,
    FOLD_SPACE_FAILOVER = 117
};
static inline bool fold_space(uint8_t space) {
    return space == FOLD_SPACE_NODE || space == FOLD_SPACE_SERVICE || space == FOLD_SPACE_SESSION_NODE ||
           space == FOLD_SPACE_COORDINATE_NODE || space == FOLD_SPACE_COPY_SERVICE || space == FOLD_SPACE_FAILOVER;
}

#endif
