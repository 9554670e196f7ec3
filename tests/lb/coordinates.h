/* Nodes and their coordinates, for the tests of this folder. */
#ifndef COORD_TESTS_LB_COORDINATES_H
#define COORD_TESTS_LB_COORDINATES_H

#include "lb/coordinate.h"
#include "registry/catalog.h"
#include "tests/lib/fixture.h"

/* A node with an instance of the service "web", and a check of either. */
struct outcome node_add(struct fixture *world, const char *node);
struct outcome node_remove(struct fixture *world, const char *node);
/* A coordinate on a line: at `seconds` from the origin, of height 0. */
Pb__Coordinate *coordinate_at(struct arena *arena, const char *node, const char *segment, double seconds);
struct outcome coordinate_put(struct fixture *world, const char *node, const char *segment, double seconds);

/* "node:segment=seconds ..." of a list of coordinates, in its order; static. */
const char *coordinates_text(const struct query_result *result);
struct query_result coordinates_all(struct fixture *world);
struct query_result coordinates_of(struct fixture *world, const char *node);

#endif
