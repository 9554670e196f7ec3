/* Inside the watches: hashes of watch keys, and how touched watch keys are packed. Included by watch*.c only. */
#ifndef COORD_REGISTRY_WATCH_TABLE_H
#define COORD_REGISTRY_WATCH_TABLE_H

#include "registry/watch.h"

#define WATCH_PACKED_HEAD 13 /* hash (8), size of the name (4), space (1) */
_Static_assert(WATCH_PACKED_HEAD == sizeof(uint64_t) + sizeof(uint32_t) + sizeof(uint8_t), "its parts");

struct watch_packed {
    uint64_t hash;
    uint8_t space;
    struct slice name;
};
/* Things that are named after nodes and services are one in any case (registry/fold.h). */
uint64_t watch_hash(uint8_t space, struct slice name);
bool watch_same(uint8_t space, struct slice a, struct slice b);
/* The packed watch key at *at, which moves on; false at the end. */
bool watch_next(const struct watch_touched *touched, size_t *at, struct watch_packed *watched);

#endif
