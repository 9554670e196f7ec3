/* Shared by all rooms of rpc above this one: the struct behind rpc/api/rpc.h, and functions on it. It has the loop, the
 * calls, the table of the role, and the parts of a replica. Each room keeps its own state in a struct of its own, which
 * only its files know. */
#ifndef COORD_RPC_INTERNAL_H
#define COORD_RPC_INTERNAL_H

#include "base/check.h"
#include "base/mailbox.h"
#include "consensus/node.h"
#include "rpc/cluster/peers.h"
#include "rpc/core/role.h"
#include "rpc/forward/forwarding.h"
#include "rpc/wire/calls.h"

struct agents;
struct asks_run;
struct audit;
struct backups;
struct client;
struct forwarding_run;
struct last_seen_table;
struct lessor_run;
struct rpc_access_control;
struct rpc_region_hooks;
struct server;

/* A task that another thread gives to the loop. */
struct loop_task {
    struct mail mail;
    struct rpc *rpc;
    void (*run)(struct loop_task *task);
};

struct rpc {
    /* Set at start, constant afterwards. */
    const struct rpc_role *role;
    struct hints *hints;
    struct client *client; /* rpc/client/client.h: a client agent, which has no members of servers */
    struct server *server; /* rpc/server/server_internal.h: a server */

    /* Loop thread. */
    struct calls *calls;                /* calls to other processes */
    struct asks_run *asks;              /* rpc/core/asks_run.h */
    unsigned jobs;                      /* rpc_job_begin */
    void (*jobs_over)(struct rpc *rpc); /* NULL, or called when the last one is over */

    /* Servers: set at start, constant afterwards. */
    uv_loop_t *loop;
    struct machine *machine;
    struct node *node;
    char *node_name, *cluster;

    /* Servers: loop thread. */
    struct store_reader *loop_reader;
    bool stopping;
    struct peers *others;              /* NULL: alone by configuration */
    struct last_seen_table *last_seen; /* rpc/cluster/last_seen.h */

    /* Servers: set before requests come; any thread. */
    struct rpc_region_hooks *regions;         /* rpc/api/regions.h; NULL: there are no links */
    const struct rpc_access_control *control; /* rpc/api/access_control.h; NULL: everything is allowed */
    pthread_mutex_t default_lock;
    struct requester *default_requester; /* under the lock; NULL: while there is no access control */
    struct requester *agent_requester;   /* likewise */

    /* Servers: the rooms, NULL before they start; each has its own threads. */
    struct agents *agents;             /* rpc/agents/agents.h; NULL without `others` */
    struct forwarding_run *forwarding; /* rpc/leader/forwarding_run.h; likewise */
    struct lessor_run *leases;         /* rpc/leader/leases_run.h */
    struct backups *backups;           /* rpc/backup/backup.h */
    struct audit *audit;               /* rpc/audit/audit.h */
};

void rpc_access_control_end(struct rpc *rpc);                                    /* before the rpc is freed */
struct raft_data *rpc_command(uint8_t command, const ProtobufCMessage *message); /* its bytes; one reference */
/* Any thread: `run` is called on the loop, soon. */
void rpc_on_loop(struct rpc *rpc, struct loop_task *task, void (*run)(struct loop_task *task));
/* Loop thread. Saves, restores and copies of the state: the server does not stop before the last is over. */
void rpc_job_begin(struct rpc *rpc);
void rpc_job_over(struct rpc *rpc);

/* -- names.c ------------------------------------------------------------------------------------------------------- */
/* The name of a server in the log, and its address. "(unknown)": it was never connected with this one; it is no member.
 * Loop thread; valid until the loop turns. */
const char *rpc_server_name(const struct rpc *rpc, uint64_t id);
const char *rpc_server_address(const struct rpc *rpc, uint64_t id);

/* -- operator_calls.c: questions and changes that others carry out, and others' ----------------------------------- */
extern const struct call_method cluster_method, change_method;
void operator_call_ask(struct rpc *rpc, struct rpc_ask_cluster *ask); /* loop thread: another server answers it */
/* The client of a request to this server, while the request is served. */
struct caller {
    struct rpc *rpc;
    uint64_t id;
    bool is_agent; /* a client agent; else a server */
    /* May it, with this token? *requester: a reference for the caller, or NULL. `want` NULL: nothing is asked for. Errors as
     * rpc_may. A NULL function: it may everything. */
    int (*may)(const struct caller *caller, const char *token, const struct access_want *want,
               struct requester **requester);
    /* The node that its certificate proves; NULL: none, also of a NULL function. Valid while its frame is served. */
    const char *(*proven)(const struct caller *caller);
    /* Loop thread. Nothing when its connection has ended. */
    void (*tell)(const struct caller *caller, uint8_t type, const ProtobufCMessage *message);
};
bool operator_serve(const struct caller *caller, uint8_t type, struct slice payload); /* false: does not decode */

/* -- hot.c: which keys are hot ------------------------------------------------------------------------------------- */
extern const struct call_method hot_method;
void hot_ask(struct rpc *rpc, struct rpc_hot *hot);                /* any thread: asks a server */
void hot_here(struct rpc *rpc, struct rpc_hot *hot);               /* any thread: as this server knows it */
bool hot_serve(const struct caller *caller, struct slice payload); /* false: does not decode */

/* -- trust_call.c: what operators ask of the cluster's trust ------------------------------------------------------- */
extern const struct call_method trust_method;
void trust_ask(struct rpc *rpc, struct rpc_trust *trust);            /* loop thread: a server carries it out */
bool trust_serve(const struct caller *caller, struct slice payload); /* false: does not decode */

/* -- acl_call.c: commands on tokens ------------------------------------------------------------------------------- */
extern const struct call_method acl_method;
void acl_ask(struct rpc *rpc, struct rpc_acl *acl);                /* loop thread: a server carries it out */
bool acl_serve(const struct caller *caller, struct slice payload); /* false: does not decode */

/* -- echo.c: the time to another process and back ------------------------------------------------------------------ */
extern const struct call_method echo_method;
/* Zeroed, except `heard`. One is under way at a time: while call.peer is not 0. */
struct echo {
    void (*heard)(struct echo *echo, const Pb__Coordinate *said, double rtt_s); /* `said`: the peer's; or NULL */
    struct call call;
    uint64_t peer, at_ns;
};
void echo_begin(struct rpc *rpc, struct echo *echo, uint64_t peer); /* an echo that does not come back is forgotten */
bool echo_serve(const struct caller *caller, struct slice payload); /* false: does not decode */

/* -- regions.c ---------------------------------------------------------------------------------------------------- */
/* Servers; any thread. The rpc for requests to this region: `rpc` itself, or that of a link; NULL: the region is not
 * known. */
struct rpc *region_find(struct rpc *rpc, const char *region);
/* A request for it is judged here. Others may name this region, too: forgers, and links from another region. */
bool region_is_here(struct rpc *rpc, const char *region);
extern const struct call_method regions_method;
bool regions_serve(const struct caller *caller, struct slice payload); /* false: does not decode */

#endif
