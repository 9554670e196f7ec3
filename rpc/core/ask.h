/* The implementation of rpc/api/ask.h in this process: rpc/ask/asks.h with the loop, its links and its clock. The roles
 * report their connections. Loop thread. */
#ifndef COORD_RPC_ASK_H
#define COORD_RPC_ASK_H

#include <uv.h>

#include "rpc/ask/asks.h"
#include "rpc/cluster/peers.h"
#include "rpc/wire/link.h"

struct rpc;
struct ask_link; /* a connection, from its hello to its end */

/* `node`: this agent's. rpc->role is set. */
void ask_start(struct rpc *rpc, uv_loop_t *loop, const char *node);
void ask_stop(struct rpc *rpc); /* as asks_stop */
/* Closes ASK_HANDLES handles; `closed` is called for each, with `data` as its data. Later asks end at once. */
#define ASK_HANDLES 4
void ask_close(struct rpc *rpc, uv_close_cb closed, void *data);
void ask_free(struct rpc *rpc); /* they are closed, or were never started */

/* As asks_up and the like; `up->connection` is not used. A NULL link means that there is no connection. */
struct ask_link *ask_up(struct rpc *rpc, struct link *wire, const struct asks_up *up);
void ask_down(struct rpc *rpc, struct ask_link *link);
struct ask_link *ask_of_server(struct rpc *rpc, uint64_t id);
bool ask_with(const struct ask_link *link);
void ask_route(struct rpc *rpc, struct ask_link *link);

static inline bool ask_is_frame(uint8_t type) { return type >= PEER_ASK && type <= PEER_ASK_FOUND; }
bool ask_frame(struct rpc *rpc, struct ask_link *from, uint8_t type, struct slice payload); /* false: not of its kind */

#endif
