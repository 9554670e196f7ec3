/* The implementation of rpc/api/ask.h in this process: rpc/ask/asks.h with the loop, its links and its clock. The roles
 * report their connections. Loop thread. */
#ifndef COORD_RPC_ASKS_RUN_H
#define COORD_RPC_ASKS_RUN_H

#include <uv.h>

#include "rpc/ask/asks.h"
#include "rpc/cluster/peers.h"
#include "rpc/wire/link.h"

struct rpc;
struct asks_run_link; /* a connection, from its hello to its end */

/* `node`: this agent's. rpc->role is set. */
void asks_run_start(struct rpc *rpc, uv_loop_t *loop, const char *node);
void asks_run_stop(struct rpc *rpc); /* as asks_stop */
/* Closes ASKS_RUN_HANDLES handles; `closed` is called for each, with `data` as its data. Later asks end at once. */
#define ASKS_RUN_HANDLES 4
void asks_run_close(struct rpc *rpc, uv_close_cb closed, void *data);
void asks_run_free(struct rpc *rpc); /* they are closed, or were never started */

/* As asks_up and the like; `up->connection` is not used. A NULL link means that there is no connection. */
struct asks_run_link *asks_run_up(struct rpc *rpc, struct link *wire, const struct asks_up *up);
void asks_run_down(struct rpc *rpc, struct asks_run_link *link);
struct asks_run_link *asks_run_of_server(struct rpc *rpc, uint64_t id);
bool asks_run_with(const struct asks_run_link *link);
void asks_run_route(struct rpc *rpc, struct asks_run_link *link);

static inline bool asks_run_is_frame(uint8_t type) { return type >= PEER_ASK && type <= PEER_ASK_FOUND; }
bool asks_run_frame(struct rpc *rpc, struct asks_run_link *from, uint8_t type,
                    struct slice payload); /* false: not of its kind */

#endif
