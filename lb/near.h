/* ?near=NODE: a query of the catalog whose result is sorted by the round trip from a node, nearest first.
 *
 * The query wraps the catalog's own: same thing, same index, same result message; only the order differs. Nodes
 * whose coordinate is not known come last; what is equally far keeps the catalog's order; when nothing is known of
 * NODE itself, everything keeps it.
 *
 * Who waits for a service does not care that a coordinate moved, and is not woken by it. A *kept* answer does care:
 * so the query names the coordinates as the second thing that its bytes depend on (query_type.also), and ready bytes
 * are written anew, with a new order, when any coordinate has changed. That is once in the period of
 * lb/coordinate_batch.h at most. */
#ifndef COORD_LB_NEAR_H
#define COORD_LB_NEAR_H

#include "lb/coordinate.h"

/* NearRequest -> what the wrapped query gives: query_nodes, query_service_entries, query_service_checks or
 * query_state_checks. CO_INVALID: it wraps none. */
extern const struct query_type query_near;
/* Wraps one of these four; the request is to be one of its own. False: it is none of them. Pointers are kept. */
bool near_wrap(Pb__NearRequest *request, const struct query_type *type, const ProtobufCMessage *message);

#endif
