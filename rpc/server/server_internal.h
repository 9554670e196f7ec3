/* Inside the server's room: server.c (life, apply, snapshots), role.c (rpc/core/role.h), server_peers.c (the other
 * servers), server_changes.c (changes of the configuration), operator.c (operators' questions and changes, carried out
 * here), version.c, coordinates.c, server_hints.c. Loop thread, unless noted. */
#ifndef COORD_RPC_SERVER_INTERNAL_H
#define COORD_RPC_SERVER_INTERNAL_H

#include "rpc/core/rpc_internal.h"
#include "rpc/leader/write_limit.h"
#include "rpc/server/enrolment.h"
#include "rpc/server/server.h"
#include "rpc/server/trust_admin.h"

extern const struct rpc_role server_role; /* role.c */

/* rpc->server, from rpc_server_start until the server has stopped. Most files have a struct of their own in it. */
struct server {
    struct rpc_reader *judge; /* judge.c; NULL: not needed yet */
    /* Set at start, constant afterwards. */
    uint64_t started_ms;
    uint32_t expect;
    char *address;
    const char *build;
    struct fetch_service *fetches; /* rpc/reads/fetch_service.h */
    struct security *security;     /* NULL: all is plain */
    struct trust_admin *trust;     /* trust_admin.c */
    struct enrolment *enrolment;   /* enrolment.c; NULL without `peers` */
    struct acl_keys *acl_keys;     /* acl_keys.c */

    /* Each has its own threads. */
    struct version *version;         /* version.c */
    struct operators *operators;     /* operator.c */
    struct server_peers *peers;      /* server_peers.c; NULL: alone by configuration */
    struct server_hints *hints;      /* server_hints.c */
    struct coordinates *coordinates; /* coordinates.c */
    struct write_limit write_limit;  /* write_limit_run.c */

    /* Loop thread. */
    uint64_t lead_since_ms;                    /* ready to lead since; 0: does not lead */
    uint64_t incompatible_id, incompatible_ms; /* the server that was not let in, and when that was logged */
    unsigned closing;
    void (*closed)(void *data);
    void *closed_data;

    /* Any thread, under the lock. */
    uv_mutex_t members_lock;
    struct raft_members members; /* as node_members had them last */

    /* Applier thread. */
    uint64_t replacements;   /* seen */
    _Atomic bool store_full; /* the applier's last batch found no room; any thread reads it */
    _Atomic bool quit;       /* the applier gives up retrying a failed store; the loop sets it */
};

/* server.c: for readers on other threads, and the metric */
void server_members_note(struct rpc *rpc);

/* server_peers.c */
int server_peers_start(struct rpc *rpc, const struct rpc_server_config *config, struct fault *fault);
void server_peers_callbacks(struct rpc *rpc, struct node_callbacks *callbacks);
void server_peers_stop(struct rpc *rpc, void (*closed)(void *data));
void server_peers_free(struct rpc *rpc); /* after server_peers_stop; nothing when it never started */
/* Describes why a server without a leader waits (rpc/cluster/waiting.h). */
void server_peers_waiting(struct rpc *rpc, struct buffer *out);

/* server_changes.c: the next change, if one is due. On a leader that is ready. `peers`: those that are connected; the
 * callee's to change. */
void server_changes(struct rpc *rpc, const struct peer_info *self, struct peer_info *peers, size_t count);

/* operator.c: as in rpc_role */
void operator_start(struct rpc *rpc);                        /* makes rpc->calls, too */
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
void operator_free(struct rpc *rpc); /* it has stopped */

#endif
