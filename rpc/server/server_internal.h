/* Inside the server's room: server.c (life, apply, snapshots), role.c (rpc/core/role.h), server_peers.c (the other
 * servers), server_changes.c (changes of the configuration), operator.c (operators' questions and changes, carried out
 * here). Loop thread, unless noted. */
#ifndef COORD_RPC_SERVER_INTERNAL_H
#define COORD_RPC_SERVER_INTERNAL_H

#include "rpc/core/rpc_internal.h"
#include "rpc/server/server.h"

extern const struct rpc_role server_role; /* role.c */

/* server.c: for readers on other threads, and the metric */
void server_members_note(struct rpc *rpc);

/* server_peers.c */
int server_peers_start(struct rpc *rpc, const struct rpc_server_config *config, struct fault *fault);
void server_peers_callbacks(struct rpc *rpc, struct node_callbacks *callbacks);
void server_peers_stop(struct rpc *rpc, void (*closed)(void *data));
void server_peers_heard(struct rpc *rpc, uint64_t id);
/* Describes why a server without a leader waits (rpc/cluster/waiting.h). */
void server_peers_waiting(struct rpc *rpc, struct buffer *out);

/* server_changes.c: the next change, if one is due. On a leader that is ready. `peers`: those that are connected; the
 * callee's to change. */
void server_changes(struct rpc *rpc, const struct peer_info *self, struct peer_info *peers, size_t count);

/* operator.c: as in rpc_role */
void operator_start(struct rpc *rpc);
void operator_post(struct rpc *rpc, struct loop_task *task); /* any thread */
void operator_ask(struct rpc *rpc, struct rpc_ask_cluster *ask);
void operator_ask_here(struct rpc *rpc, struct rpc_ask_cluster *ask);
void operator_change_here(struct rpc *rpc, struct rpc_change *change);
/* The leader's own decision: notes a voter that is gone as removed, and removes it, unless it is back by then. Does
 * nothing when that is under way already. `why` is static. */
void operator_remove(struct rpc *rpc, uint64_t id, const char *why);
void operator_poll(struct rpc *rpc); /* polls soon, and until nothing is under way */
/* After the node; waits for jobs. */
void operator_stop(struct rpc *rpc, void (*stopped)(void *data));

#endif
