/* Hints of load and counts of keys between servers. Each server passes on the hints that it got directly, from its own
 * instances and from agents that are connected with it, so that every hint goes to each other server once, at most
 * HINTS_MS after it came. A server that is new, or was away, gets all of them at the next turn. Agents that follow a
 * service get changes every other turn. Counts of keys go once a second.
 *
 * Loop thread. */
#ifndef COORD_RPC_SERVER_HINTS_H
#define COORD_RPC_SERVER_HINTS_H

#include "rpc/core/rpc_internal.h"

#define HINTS_MS 100

void server_hints_start(struct rpc *rpc);                     /* makes rpc->server->hints, and begins a timer */
void server_hints_close(struct rpc *rpc, uv_close_cb closed); /* closes the timer, whose data is `rpc` */
void server_hints_free(struct rpc *rpc);
/* PEER_HINTS, PEER_KEYS of a server. False: it does not decode. */
bool server_hints_frame(struct rpc *rpc, uint8_t type, struct slice payload);
void server_hints_up(struct rpc *rpc, uint64_t peer);
void server_hints_down(struct rpc *rpc, uint64_t peer);

#endif
