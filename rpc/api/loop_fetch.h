/* A read whose answer comes on the loop thread (rpc_fetch answers on some thread), for modules of that thread. */
#ifndef COORD_RPC_LOOP_FETCH_H
#define COORD_RPC_LOOP_FETCH_H

#include "rpc/api/rpc.h"

struct loop_fetch;
/* Loop thread, once, unless it was cancelled; the struct is gone then. `fetched` is valid during the call. */
typedef void (*loop_fetched)(void *data, int error, const struct rpc_fetched *fetched);
/* Loop thread. Asks `rpc`, which is that of this process or a link of it; `home` is this process's, on whose loop all
 * of this runs, and outlives the answer. All members of `how` except `done` count. */
struct loop_fetch *loop_fetch_begin(struct rpc *home, struct rpc *rpc, const struct rpc_fetch *how,
                                    const ProtobufCMessage *request, loop_fetched done, void *data);
/* Loop thread. Nobody wants the answer any more. The fetch ends soon, or when `rpc` is stopped. */
void loop_fetch_cancel(struct loop_fetch *fetch);

#endif
