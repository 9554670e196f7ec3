/* Network coordinates in the replicated state: the last known coordinate of each node. A module of the state machine
 * with one command, which servers send every few seconds for many nodes at once (lb/coordinate_batch.h), two queries,
 * and no life of its own: a node's coordinates go with the node.
 *
 * The command does no arithmetic and stores the numbers as they came, so that servers with different processors keep
 * equal states. An update without a change changes no index. A change of coordinates wakes only watchers of
 * coordinates, not those of nodes or services (lb/near.h on answers that are sorted by them). */
#ifndef COORD_LB_COORDINATE_H
#define COORD_LB_COORDINATE_H

#include "lb/coordinate.pb-c.h"
#include "lb/vivaldi.h"
#include "registry/machine.h"

enum coordinate_command { COORDINATE_UPDATE = 64 };
enum coordinate_table {
    COORDINATE_TABLE = 32, /* node, segment -> Coordinate */
};
enum coordinate_space {
    SPACE_COORDINATES = 64,     /* name "": all of them */
    SPACE_COORDINATE_NODE = 65, /* a node's */
};
#define COORDINATE_SEGMENTS_MAX 64 /* segments of one node; more are left out, as are coordinates of unknown nodes */
#define COORDINATE_SEGMENT_SIZE 64 /* longest name of one: Consul's limits */

extern const struct module coordinate_module;
extern const struct query_type query_coordinates; /* CoordinatesRequest (no node) -> CoordinatesResult */
/* CoordinatesRequest -> CoordinatesResult; found=false: the node has none */
extern const struct query_type query_node_coordinates;

/* ServiceRequest (name alone) -> CoordinatesResult: one coordinate (segment "") for each node of the service; the
 * origin, if none is known */
extern const struct query_type query_service_coordinates;

/* May this coordinate be stored? CO_INVALID: vivaldi_valid says no, or it names no node. CO_UNSUPPORTED: it has another
 * number of dimensions. CO_TOOLARGE: the segment's name is too long. */
int coordinate_check(const Pb__Coordinate *record);
/* A record's numbers, and back. The record points to `numbers` (its vec), which has to live as long. `record` has
 * been checked. */
struct vivaldi_coordinate coordinate_read(const Pb__Coordinate *record);
Pb__Coordinate coordinate_record(const char *node, const char *segment, struct vivaldi_coordinate *numbers);

/* Would an update with this record change the store? Not when the store has it already, or when the command will leave
 * it out. `arena`: memory for the comparison. */
bool coordinate_changes(struct store_txn *txn, const Pb__Coordinate *record, struct arena *arena);

/* Reads the coordinates of one node into the arena, by segment. *count 0: none. CO_OK, CO_CORRUPT. */
int coordinate_of_node(struct store_txn *txn, struct slice node, struct arena *arena, Pb__Coordinate ***records,
                       size_t *count);
/* Chooses the coordinates of two nodes that can be compared; NULL: that node has none. Both are of one segment: when
 * one of the nodes has a single segment, of that; else of "" (servers are in all segments, other nodes in one). */
void coordinate_meet(Pb__Coordinate *const *a, size_t a_count, Pb__Coordinate *const *b, size_t b_count,
                     const Pb__Coordinate **of_a, const Pb__Coordinate **of_b);
/* The round trip between two such coordinates, in seconds; INFINITY: they have no common segment. */
double coordinate_distance(Pb__Coordinate *const *a, size_t a_count, Pb__Coordinate *const *b, size_t b_count);

#endif
