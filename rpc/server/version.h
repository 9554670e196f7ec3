/* Raises the cluster version (registry/version.h explains it): a leader raises it when every member of the
 * configuration is connected and supports more, and lets no command pass that is newer than it. Loop thread, except for
 * version_applied. */
#ifndef COORD_RPC_VERSION_H
#define COORD_RPC_VERSION_H

#include "consensus/node.h"
#include "rpc/api/rpc.h"
#include "rpc/cluster/peers.h"

#define VERSION_WHY 160

struct version_raise {
    unsigned to;
    char why[VERSION_WHY];
};
/* Pure. To which version a leader may raise it from `now`; to == 0: to none, and `why` names the server that is in
 * the way (empty: nothing is, it is as high as this program knows). */
struct version_raise version_next(unsigned now, unsigned newest, const struct raft_members *members, uint64_t self,
                                  const struct peer_info *peers, size_t count);
/* Pure. The version at which a new cluster of these members begins. `newest`: of this program, one of them. */
unsigned version_of_founders(const struct raft_members *members, const struct peer_info *peers, size_t count,
                             unsigned newest);
/* Pure. May this server be a member of the cluster (of this version and id, with these members)? NULL, or why
 * not: its program does not support the version; or it is no member yet, has a log and does not say of which
 * cluster (it has just founded one of its own, or left this one before it had an id). */
const char *version_incompatible(const struct peer_info *peer, unsigned version, uint64_t cluster_id,
                                 const struct raft_members *members);
/* The first command of a new cluster: its version and its id. */
void version_first_command(unsigned version, struct buffer *out);

struct version;                                          /* rpc->server->version */
void version_new(struct rpc *rpc);                       /* before version_applied */
void version_start(struct rpc *rpc);                     /* begins a timer */
void version_role(struct rpc *rpc);                      /* the role changed */
void version_close(struct rpc *rpc, uv_close_cb closed); /* closes the timer, whose data is `rpc` */
void version_free(struct rpc *rpc);
/* The cluster's version, or that of a raise under way: a server that does not support it may not join. */
unsigned version_to_be(struct rpc *rpc);
/* For node_callbacks.refuse. */
const void *version_refuse(void *data, uint64_t leader, const struct node_proposal *proposal);
/* Applier thread, or at start: something was applied. */
void version_applied(struct rpc *rpc);

#endif
