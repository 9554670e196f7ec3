/* ?near=NODE: a query of the catalog whose result is sorted by the round trip from a node, nearest first.
 *
 * The query wraps the catalog's own: same thing, same index, same result message; only the order differs. Nodes without
 * a known coordinate come last; equally distant ones keep the catalog's order, and so do all when NODE itself has no
 * known coordinate, or the token may not read NODE.
 *
 * A coordinate that moves does not wake clients that wait for a service. But the order of a *kept* answer depends on
 * it. So the query names the coordinates as the second thing on which its bytes depend (query_type.also), and ready
 * bytes are written anew, in a new order, when any coordinate has changed: at most once in the period of
 * lb/coordinate_batch.h. */
#ifndef COORD_LB_NEAR_H
#define COORD_LB_NEAR_H

#include "lb/coordinate.h"

/* NearRequest -> the result of the wrapped query: query_nodes, query_service_entries, query_service_checks or
 * query_state_checks. CO_INVALID: it wraps none of them. */
extern const struct query_type query_near;
/* Wraps one of these four and its request. False: the query is none of them. Pointers are kept. */
bool near_wrap(Pb__NearRequest *request, const struct query_type *type, const ProtobufCMessage *message);

#endif
