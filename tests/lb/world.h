/* A state machine on a real store in a temporary folder, with catalog and coordinates; shared by the tests of this
 * folder. */
#ifndef COORD_TESTS_LB_WORLD_H
#define COORD_TESTS_LB_WORLD_H

#include "lb/coordinate.h"
#include "registry/catalog.h"

struct world {
    char folder[256];
    struct machine *machine;
    struct store_reader *reader;
    struct arena arena; /* of the last result */
};
void world_open(struct world *world);
void world_close(struct world *world);

struct outcome {
    int error;
    bool yes;
    uint64_t index;
};
struct outcome world_do(struct world *world, uint8_t type, const ProtobufCMessage *message);

/* A node with an instance of the service "web", and a check of either. */
struct outcome node_add(struct world *world, const char *node);
struct outcome node_remove(struct world *world, const char *node);
/* A coordinate on a line: at `seconds` from the origin, of height 0. */
Pb__Coordinate *coordinate_at(struct arena *arena, const char *node, const char *segment, double seconds);
struct outcome coordinate_put(struct world *world, const char *node, const char *segment, double seconds);

/* Valid until the next one. */
struct query_result world_query(struct world *world, const struct query_type *type, const ProtobufCMessage *request);
/* "node:segment=seconds ..." of a list of coordinates, in its order; static. */
const char *coordinates_text(const struct query_result *result);
struct query_result coordinates_all(struct world *world);
struct query_result coordinates_of(struct world *world, const char *node);

#endif
