/* The implementation of rpc/api/rpc.h and rpc/api/operator.h in a role: on a server (rpc/server/role.c) and on a client
 * agent (rpc/client/role.c). rpc/core/dispatch.c hands each call on, so nothing else has to ask which role it is.
 * Threads, errors and lifetimes are those of the function of the same name there. */
#ifndef COORD_RPC_ROLE_H
#define COORD_RPC_ROLE_H

#include <uv.h>

#include "rpc/api/acl_admin.h"
#include "rpc/api/operator.h"
#include "rpc/api/trust_admin.h"

struct loop_task;
struct node_proposal;

/* The identity with which this process greets another agent, when it joins by an address. Valid while the rpc is. */
struct rpc_self {
    const char *cluster, *address, *node_name;
    uint64_t cluster_id; /* 0: not known yet */
    uv_loop_t *loop;
    struct security *security; /* NULL: all is plain */
    bool alone;                /* by configuration it joins no others */
};

struct rpc_role {
    /* writes and reads. On servers rpc/core/dispatch.c has handled their regions already */
    void (*submit)(struct rpc *rpc, struct rpc_write *write, uint8_t command, const ProtobufCMessage *message);
    int (*read_index)(struct rpc *rpc, enum rpc_freshness freshness, struct rpc_read_index *gate);
    void (*fetch)(struct rpc *rpc, struct rpc_fetch *fetch, const ProtobufCMessage *request);
    void (*fetch_cancel)(struct rpc *rpc, struct rpc_fetch *fetch);
    /* for roles without a copy to read (rpc_has_copy); else NULL */
    int (*query)(struct rpc *rpc, const struct query_type *type, const ProtobufCMessage *request,
                 const struct requester *requester, struct arena *arena, struct query_result *result, bool wait);
    /* Loop thread: as submit, for a command that is packed already (proposal->data). NULL: links to regions do not have
     * this role. */
    void (*propose)(struct rpc *rpc, struct node_proposal *proposal);
    const struct modules *(*modules)(const struct rpc *rpc);
    struct watch_table *(*watches)(struct rpc *rpc);
    uint64_t (*applied)(struct rpc *rpc);
    uint64_t (*floor)(struct rpc *rpc);
    void (*renew)(struct rpc *rpc, struct rpc_renew *renew);
    /* the state is damaged, or may be */
    int (*serves)(struct rpc *rpc);
    void (*fenced_why)(struct rpc *rpc, char line[160]);
    void (*met_damage)(struct rpc *rpc);
    /* coordinates */
    int (*coordinate_put)(struct rpc *rpc, const Pb__Coordinate *record);
    struct vivaldi_coordinate (*coordinate_here)(struct rpc *rpc);
    /* load balancing */
    void (*hints_follow)(struct rpc *rpc, struct slice service);
    void (*hot)(struct rpc *rpc, struct rpc_hot *hot);
    /* the cluster */
    bool (*known_leader)(struct rpc *rpc);
    void (*status)(struct rpc *rpc, struct rpc_status *status);
    size_t (*peers)(struct rpc *rpc, struct arena *arena, const char ***addresses);
    size_t (*servers)(struct rpc *rpc, struct arena *arena, const char ***addresses); /* loop thread */
    struct rpc_self (*self)(const struct rpc *rpc);                                   /* loop thread */
    void (*know_server)(struct rpc *rpc, const char *address); /* loop thread: one more to join by */
    /* loop thread: ids of the other servers of the cluster's configuration; NULL: this is no server */
    size_t (*other_servers)(struct rpc *rpc, uint64_t *ids, size_t room);
    void (*asked)(struct rpc *rpc); /* loop thread: rpc_ask was called; may be NULL */
    /* operators: questions and changes on the loop thread */
    void (*ask)(struct rpc *rpc, struct rpc_ask_cluster *ask);
    void (*ask_here)(struct rpc *rpc, struct rpc_ask_cluster *ask);  /* as this server knows it */
    void (*change_here)(struct rpc *rpc, struct rpc_change *change); /* CO_NOTLEADER when it does not lead */
    void (*save)(struct rpc *rpc, struct rpc_save *save);
    void (*restore)(struct rpc *rpc, struct rpc_restore *restore);
    void (*post)(struct rpc *rpc, struct loop_task *task);   /* any thread: task->run on the loop, soon */
    void (*trust)(struct rpc *rpc, struct rpc_trust *trust); /* loop thread */
    void (*acl)(struct rpc *rpc, struct rpc_acl *acl);       /* loop thread */
    /* Loop thread: calls are under way, and need calls_tick. NULL: it is called anyway. */
    void (*calls_begun)(struct rpc *rpc);
    uint64_t (*call_wait_ms)(struct rpc *rpc); /* loop thread: how long calls wait; NULL: RPC_LEADER_WAIT_MS */
};

#endif
