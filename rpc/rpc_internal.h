/* Inside rpc: server.c (life, apply, snapshots), submit.c (writes and reads), leases.c (the leader's table on the
 * loop). */
#ifndef COORD_RPC_INTERNAL_H
#define COORD_RPC_INTERNAL_H

#include "base/check.h"
#include "base/mailbox.h"
#include "consensus/node.h"
#include "rpc/agents.h"
#include "rpc/audit.h"
#include "rpc/bootstrap.h"
#include "rpc/calls.h"
#include "rpc/cluster.h"
#include "rpc/coordinates.h"
#include "rpc/fetch.h"
#include "rpc/forward.h"
#include "rpc/peers.h"
#include "rpc/server.h"
#include "rpc/version.h"

struct client;
struct rpc;
/* What another thread wants done on the loop. */
struct loop_task {
    struct mail mail;
    struct rpc *rpc;
    void (*run)(struct loop_task *task);
};

/* rpc/apply_lag.c: this server misses what its full disk has no room for, as far as was looked. */
struct apply_lag {
    struct rpc_read_index gate;
    bool asking;
    unsigned times;
    uint64_t asked_ms, last_index;
};

/* What the leader has seen of a restore that goes on, or was left (restore_abandoned.c). */
struct restore_abandoned {
    uint8_t id[16];
    uint64_t size, since_ms, look_ms; /* since_ms: it is like that; 0: there is none */
    uint64_t last_index;              /* of the log, at the last look */
    struct rpc_write write;
    _Atomic bool writing;
};

struct rpc {
    /* Set at start, constant afterwards. */
    struct client *client; /* rpc/client.h; NULL: this is a server. Else nothing of the rest is used */
    uv_loop_t *loop;
    struct machine *machine;
    struct node *node;
    struct fetches *fetches; /* rpc/fetch.h */
    uint64_t started_ms;

    /* Loop thread: the other servers. */
    struct peers *others; /* NULL: alone by configuration */
    struct forward *forward;
    struct agents *agents;              /* likewise */
    struct agent_backup *agent_backups; /* rpc/backup_transfer.h */
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
    } heard[PEERS_MAX];
    uint64_t leaderless_ms; /* no leader is known since; 0: there is one */
    bool cut_off;           /* rpc/cluster.h */
    bool cut_off_said;      /* in the log, since no leader is known */
    struct apply_lag behind;
    uint32_t raft_multiplier;

    /* Loop thread: the cluster version. */
    struct version version;
    uint64_t lead_since_ms; /* ready to lead since; 0: does not lead */
    struct audit *audit;    /* rpc/audit.h */

    struct coordinates *coordinates; /* rpc/coordinates.h */
    uv_timer_t coordinate_timer;

    /* Loop thread: what operators want, and other threads' tasks. Anybody puts into the box. */
    struct mailbox tasks;
    struct loop_task far_task; /* rpc/leader_read.h */
    struct calls *calls;       /* to the leader */
    uv_async_t operator_wake;
    uv_timer_t operator_timer;
    struct change_work *changes; /* under way here */
    unsigned operator_jobs;      /* saves and restores */
    struct save_work *saves;     /* the first is under way, the others wait for their turn */
    struct restore_abandoned left;
    void (*operator_stopped)(void *data);

    /* Loop thread: leases. */
    struct lessor *leases;
    struct expiry_updates *updates;
    struct store_reader *loop_reader;
    uv_async_t wake;
    uv_timer_t lease_timer;
    uint64_t gauges_due_ms; /* the modules' gauges are to be read then; 0: they are right */
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
    uint64_t restores; /* seen */
    unsigned version_seen;
    _Atomic bool restored;   /* the leases are to be read again */
    _Atomic bool store_full; /* the applier's last batch found no room */
    _Atomic bool quit;       /* the applier gives up retrying a failed store */
};

struct raft_data *rpc_command(uint8_t command, const ProtobufCMessage *message); /* its bytes; one reference */
void leases_start(struct rpc *rpc);
void leases_role(struct rpc *rpc, uint64_t term, bool ready);
void leases_stop(struct rpc *rpc);
void leases_free(struct rpc *rpc);
void leases_wake_cb(uv_async_t *async);
void leases_timer_cb(uv_timer_t *timer);
void leases_updates_wake(void *data);
/* rpc_renew for who is on the loop thread: no wake-up */
void leases_renew_now(struct rpc *rpc, struct rpc_renew *renew);
void leases_renew_here(struct rpc *rpc, struct rpc_renew *renew); /* this server leads, or answers CO_NOLEADER */
void server_members_note(struct rpc *rpc); /* loop thread: for readers on other threads, and the metric */
/* rpc/server_peers.c */
int server_peers_start(struct rpc *rpc, const struct rpc_server_config *config, struct fault *fault);
void server_peers_callbacks(struct rpc *rpc, struct node_callbacks *callbacks);
void server_peers_stop(struct rpc *rpc, void (*closed)(void *data));
void server_peers_heard(struct rpc *rpc, uint64_t id);
void apply_lag_tick(struct rpc *rpc); /* rpc/apply_lag.c; a few times a second */
/* rpc/operator.c: any thread; `run` is called on the loop, soon */
void rpc_on_loop(struct rpc *rpc, struct loop_task *task, void (*run)(struct loop_task *task));
void operator_start(struct rpc *rpc);
struct rpc_ask_cluster;
struct rpc_change;
void operator_ask_here(struct rpc *rpc, struct rpc_ask_cluster *ask);  /* as this server knows it */
void operator_change_here(struct rpc *rpc, struct rpc_change *change); /* CO_NOTLEADER when it does not lead */
void operator_poll(struct rpc *rpc);                                   /* soon, and until nothing is under way */
/* rpc/operator_calls.c: questions and changes that others carry out, and others' */
extern const struct call_method cluster_method, change_method;
void operator_call_ask(struct rpc *rpc, struct rpc_ask_cluster *ask);  /* loop thread */
void operator_call_change(struct rpc *rpc, struct rpc_change *change); /* loop thread */
/* Whoever asks something of this server. */
struct caller {
    struct rpc *rpc;
    uint64_t id;
    bool is_agent; /* a client agent; else a server */
};
bool operator_serve(const struct caller *caller, uint8_t type, struct slice payload); /* false: does not decode */
void restore_abandoned_look(struct rpc *rpc, bool leads);
void operator_job_over(struct rpc *rpc);                          /* ++operator_jobs when one begins */
void operator_stop(struct rpc *rpc, void (*stopped)(void *data)); /* after the node; waits for jobs */

#endif
