/* Network coordinates in the replicated state: which node was last seen where. A module of the state machine with
 * one command, which servers send every few seconds for many nodes at once (lb/coordinate_batch.h), two queries, and
 * no life of its own: a node's coordinates go with the node.
 *
 * The command does no arithmetic: what is stored is what came, so that servers of different processors keep equal
 * states. An update that changes nothing changes no index. Coordinates are of no interest to those who watch nodes
 * or services: nobody but watchers of coordinates is woken (lb/near.h on answers that are sorted by them). */
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
#define COORDINATE_SEGMENTS_MAX 64 /* of one node; more are passed over, as those of unknown nodes are */
#define COORDINATE_SEGMENT_SIZE 64 /* longest name of one: Consul's limits */

extern const struct module coordinate_module;
extern const struct query_type query_coordinates; /* CoordinatesRequest (no node) -> CoordinatesResult */
/* CoordinatesRequest -> CoordinatesResult; found=false: it has none */
extern const struct query_type query_node_coordinates;

/* ServiceRequest (name alone) -> CoordinatesResult: of the nodes that the service is on, one each (segment ""); the
 * origin where none is known */
extern const struct query_type query_service_coordinates;

/* Is this one fit to be stored? CO_INVALID: vivaldi_valid says no, or there is no node. CO_UNSUPPORTED: it has
 * another number of dimensions. CO_TOOLARGE: the segment's name. */
int coordinate_check(const Pb__Coordinate *record);
/* A record's numbers, and back. The record points to `numbers` (its vec), which has to live as long. `record` has
 * been checked. */
struct vivaldi_coordinate coordinate_read(const Pb__Coordinate *record);
Pb__Coordinate coordinate_record(const char *node, const char *segment, struct vivaldi_coordinate *numbers);

/* Would an update of this record change what is in the store? Not when it is there already, or will be passed over.
 * `arena`: for its bytes. */
bool coordinate_changes(struct store_txn *txn, const Pb__Coordinate *record, struct arena *arena);

/* Those of one node, by segment: read in a transaction, into the arena. *count 0: none. CO_OK, CO_CORRUPT. */
int coordinate_of_node(struct store_txn *txn, struct slice node, struct arena *arena, Pb__Coordinate ***records,
                       size_t *count);
/* The two coordinates to compare of what is known of two nodes; NULL: that one has none there. They meet in a common
 * segment: in the one of whichever has a single one, else in "" (servers are in all segments, others in one). */
void coordinate_meet(Pb__Coordinate *const *a, size_t a_count, Pb__Coordinate *const *b, size_t b_count,
                     const Pb__Coordinate **of_a, const Pb__Coordinate **of_b);
/* The round trip between two that meet, in seconds; INFINITY: they do not. */
double coordinate_distance(Pb__Coordinate *const *a, size_t a_count, Pb__Coordinate *const *b, size_t b_count);

#endif
