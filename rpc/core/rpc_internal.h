/* Shared by all rooms of rpc above this one: the struct behind rpc/api/rpc.h, and functions on it. */
#ifndef COORD_RPC_INTERNAL_H
#define COORD_RPC_INTERNAL_H

#include "base/check.h"
#include "base/mailbox.h"
#include "consensus/node.h"
#include "rpc/cluster/bootstrap.h"
#include "rpc/cluster/cluster.h"
#include "rpc/cluster/peers.h"
#include "rpc/cluster/waiting.h"
#include "rpc/core/role.h"
#include "rpc/core/version.h"
#include "rpc/wire/calls.h"

struct agents;
struct asks_run;
struct audit;
struct client;
struct coordinates;
struct fetch_service;
struct forwarding_run;
struct lessor;
struct rpc_region_hooks;
struct rpc_server_config;

/* A task that another thread gives to the loop. */
struct loop_task {
    struct mail mail;
    struct rpc *rpc;
    void (*run)(struct loop_task *task);
};

/* rpc/reads/apply_lag.c: the check whether this server misses entries because its disk is full. */
struct apply_lag {
    struct rpc_read_index gate;
    bool asking;
    unsigned times;
    uint64_t asked_ms, last_index;
};

/* The leader's observation of a restore that goes on, or was abandoned (restore_abandoned.c). */
struct restore_abandoned {
    uint8_t id[16];
    uint64_t size, since_ms, look_ms; /* since_ms: since when it is unchanged; 0: there is none */
    uint64_t last_index;              /* of the log, at the last look */
    struct rpc_write write;
    _Atomic bool writing;
};

struct rpc {
    /* Set at start, constant afterwards. */
    const struct rpc_role *role;
    struct client
        *client; /* rpc/client/client.h: of client agents, which use nothing else here but `calls` and `ask` */
    uv_loop_t *loop;
    struct hints *hints;
    struct machine *machine;
    struct node *node;
    struct fetch_service *fetches;    /* rpc/reads/fetch_service.h */
    struct rpc_region_hooks *regions; /* rpc/api/regions.h; NULL: there are no links */
    uint64_t started_ms;

    /* Loop thread: the other servers. */
    struct peers *others; /* NULL: alone by configuration */
    struct forwarding_run *forwarding;
    struct agents *agents;              /* likewise */
    struct agent_backup *agent_backups; /* rpc/backup/backup_transfer.h */
    struct bootstrap bootstrap;
    uv_timer_t cluster_timer;
    void (*peers_stopped)(void *data);
    uint32_t expect;
    char *folder, *address, *node_name, *cluster;
    const char *build;
    /* when each was heard last; since when it is up or down */
    struct {
        uint64_t id, ms, since_ms;
        bool up;
        char node[256], build[PEER_BUILD_MAX];
    } last_seen[PEERS_MAX];
    uint64_t leaderless_ms; /* no leader is known since; 0: there is one */
    bool cut_off;           /* rpc/cluster/cluster.h */
    bool cut_off_said;      /* in the log, since no leader is known */
    struct waiting_clock waiting;
    uint16_t port; /* that this server listens on */
    struct apply_lag behind;
    uint32_t raft_multiplier;

    /* Loop thread: the cluster version. */
    struct version version;
    uint64_t lead_since_ms; /* ready to lead since; 0: does not lead */
    struct audit *audit;    /* rpc/audit/audit.h */

    struct coordinates *coordinates; /* rpc/server/coordinates.h */
    uv_timer_t coordinate_timer;

    /* rpc/server/server_hints.h: up to here the other servers have the hints */
    struct {
        uint64_t id; /* 0: nobody */
        uint64_t since;
    } hints_told[PEERS_MAX];
    uv_timer_t hints_timer;
    unsigned hints_turns;

    /* Loop thread: operators' requests, and tasks of other threads. Any thread puts into the box. */
    struct mailbox tasks;
    struct loop_task leader_read_task; /* rpc/reads/leader_read.h */
    struct calls *calls;               /* calls to the leader */
    struct asks_run *asks;             /* rpc/core/asks_run.h */
    uv_async_t operator_wake;
    uv_timer_t operator_timer;
    struct change_work *changes;        /* under way here */
    unsigned jobs;                      /* rpc_job_begin */
    void (*jobs_over)(struct rpc *rpc); /* NULL, or called when the last one is over */
    struct save_work *saves;            /* the first is under way, the others wait for their turn */
    struct restore_abandoned left;
    void (*operator_stopped)(void *data);

    /* Loop thread: leases. */
    struct lessor *lessor;
    struct expiry_updates *updates;
    struct store_reader *loop_reader;
    uv_async_t wake;
    uv_timer_t lease_timer;
    uint64_t gauges_due_ms; /* when to read the modules' gauges; 0: they are right */
    /* some are queued for the leader; they go out together, at most LESSOR_GATHER_MS after the last ones */
    bool renewals_held;
    uint64_t renewals_sent_ms;
    bool stopping;
    unsigned closing;
    void (*closed)(void *data);
    void *closed_data;

    /* Any thread. */
    struct mailbox renewals, due_ends;
    uv_mutex_t peers_lock;
    struct raft_members peers;

    /* Applier thread. */
    uint64_t replacements; /* seen */
    unsigned version_seen;
    _Atomic bool replaced;   /* the leases are to be read again */
    _Atomic bool store_full; /* the applier's last batch found no room */
    _Atomic bool quit;       /* the applier gives up retrying a failed store */
};

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
    /* Loop thread. Nothing when its connection has ended. */
    void (*tell)(const struct caller *caller, uint8_t type, const ProtobufCMessage *message);
};
bool operator_serve(const struct caller *caller, uint8_t type, struct slice payload); /* false: does not decode */

/* -- hot.c: which keys are hot ------------------------------------------------------------------------------------- */
extern const struct call_method hot_method;
void hot_ask(struct rpc *rpc, struct rpc_hot *hot);                /* any thread: asks a server */
void hot_here(struct rpc *rpc, struct rpc_hot *hot);               /* any thread: as this server knows it */
bool hot_serve(const struct caller *caller, struct slice payload); /* false: does not decode */

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
extern const struct call_method regions_method;
bool regions_serve(const struct caller *caller, struct slice payload); /* false: does not decode */

#endif
