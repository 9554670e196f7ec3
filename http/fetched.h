/* The result of a fetch (rpc/api/rpc.h), kept after its `done`. */
#ifndef COORD_HTTP_FETCHED_H
#define COORD_HTTP_FETCHED_H

#include "rpc/api/rpc.h"

/* A copy, with records of its own; fetched_free frees them. */
void fetched_copy(struct rpc_fetched *copy, const struct rpc_fetched *fetched);
void fetched_free(struct rpc_fetched *copy); /* accepts a zeroed one, and zeroes it */
/* The result, its message in the arena. CO_CORRUPT: the records do not decode. */
int fetched_result(const struct rpc_fetched *fetched, const struct query_type *type, const ProtobufCMessage *request,
                   struct arena *arena, struct query_result *result);

#endif
