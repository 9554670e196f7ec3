/* rpc_fetch on a server: runs queries for clients that do not read the store themselves (client agents over their
 * connections, this agent's own anti-entropy), on one thread with a loop, a reader and a read engine (rpc/reads/read.h)
 * of its own. The thread begins with the first fetch. Answers are packed records; within a turn, equal requests share
 * one.
 *
 * When the confirmation fails because this server's disk is full and it is behind, the leader answers
 * (rpc/reads/leader_read.h). */
#ifndef COORD_RPC_FETCH_SERVICE_H
#define COORD_RPC_FETCH_SERVICE_H

#include <uv.h>

#include "rpc/api/rpc.h"

#define FETCH_WAIT_MOST_MS 660000
#define FETCH_PARKED_MOST  200000

struct fetch_service;
struct fetch_service *fetch_service_new(struct rpc *rpc);
/* Any thread. */
void fetch_service_take(struct fetch_service *fetches, struct rpc_fetch *fetch, const ProtobufCMessage *request);
void fetch_service_cancel(struct fetch_service *fetches, struct rpc_fetch *fetch);
/* Loop thread, while the node still answers: ends all fetches with CO_CLOSED, and later ones at once; the thread has
 * ended when it returns. */
void fetch_service_stop(struct fetch_service *fetches);
/* After the last call of the above, from any thread. */
void fetch_service_free(struct fetch_service *fetches);

#endif
