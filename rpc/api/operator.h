/* An operator's requests to the cluster: its members, their health and the leader; removing a server, handing
 * leadership over; saving and restoring the whole state. Any thread; answers come on another thread (loop or pool),
 * once. A request that names a region is for the cluster of that region (rpc/api/rpc.h). */
#ifndef COORD_RPC_OPERATOR_H
#define COORD_RPC_OPERATOR_H

#include "rpc/api/rpc.h"

struct rpc_server_state {
    uint64_t id;
    char address[128], node[256], build[64]; /* "": when it was never connected with this server */
    bool leader, voter, connected;
    /* known on the leader: its disk is full, its state is damaged, or (for the leader itself) it refuses writes because
     * of that */
    bool unhealthy;
    /* known on the leader; 0 elsewhere. match: up to here its log surely equals the leader's */
    uint64_t match, last_index, last_term;
    uint64_t last_contact_ms; /* since this server heard from it; 0: itself. UINT64_MAX: never */
    uint64_t stable_ms;       /* since its connection came or went, as this server saw it */
};
struct rpc_cluster_state {
    uint64_t index;                   /* of the configuration's entry */
    bool committed, here_leads;       /* here_leads: the answering server is the leader, and ready */
    char leader_address[128];         /* "": unknown */
    struct rpc_server_state *servers; /* valid during the call */
    size_t count;
    const char *waiting; /* why a server that belongs to no cluster yet still waits; else NULL. Valid during the call */
};

/* The configuration; `done` on the loop thread. `of_leader`: as the leader knows it; a server that does not lead asks
 * the leader, and ends with CO_NOLEADER when none answers for 7 s. Else as this server knows it. */
struct rpc_ask_cluster {
    void (*done)(struct rpc_ask_cluster *ask, int error, const struct rpc_cluster_state *state);
    bool of_leader;                    /* in */
    const struct requester *requester; /* in: on whose behalf; the caller's reference, until `done` */
    char region[RPC_REGION_MAX + 1];   /* in */
    _Alignas(16) char impl[160];
};
void rpc_ask_cluster(struct rpc *rpc, struct rpc_ask_cluster *ask);

/* Changes. RPC_REMOVE_SERVER: the removal is remembered (replicated): the server is not let in again as long as it runs
 * with its data folder. With an empty one it is a new server, and may join. Any server may be asked: the leader does
 * it. CO_OK when it is in the log and committed; CO_NOLEADER (for 7 s), CO_BUSY (another change), CO_INVALID (no such
 * server, or the last voter), CO_CONFLICT (without it the servers that can be reached are no majority; for a transfer:
 * another server leads now), CO_TIMEOUT, CO_UNKNOWN_OUTCOME (the leader was lost meanwhile). */
struct rpc_change {
    enum { RPC_REMOVE_SERVER, RPC_TRANSFER_LEADER } type;
    uint64_t id;       /* the server; transfer: 0 for the best one */
    char address[128]; /* instead of id, when id is 0 and this is not empty */
    char region[RPC_REGION_MAX + 1];
    const struct requester *requester; /* in: on whose behalf; the caller's reference, until `done` */
    void (*done)(struct rpc_change *change, int error);
    _Alignas(16) char impl[160];
};
void rpc_change(struct rpc *rpc, struct rpc_change *change);

/* A backup as of now (linearizable unless `stale`), as the archive that rpc/backup/archive.h describes. `done` on the loop
 * thread; when CO_OK, fd is a file without a name, at its beginning, and the caller's to close; else `fault` says
 * more. */
struct rpc_save {
    void (*done)(struct rpc_save *save, int error);
    const char *folder;                /* for temporary files: where there is space */
    bool stale;                        /* in */
    const struct requester *requester; /* in: on whose behalf; the caller's reference, until `done` */
    char region[RPC_REGION_MAX + 1];
    int fd;
    uint64_t size, index; /* of the archive; of the state in it, as rpc_applied counts */
    struct fault fault;
    _Alignas(16) char impl[512];
};
void rpc_save(struct rpc *rpc, struct rpc_save *save);

/* Replaces the state by that of an archive (registry/operator.h explains it). `fd` stays the caller's. `done` on the
 * loop thread: CO_OK: it is restored, everywhere; CO_CORRUPT, CO_INVALID: not such an archive, nothing has changed;
 * CO_UNKNOWN_OUTCOME, CO_NOLEADER, ... */
#define RPC_RESTORE_EMPTY \
    "the file is empty, so it is no backup: saving it failed, or it was never written; take another one"
struct rpc_restore {
    void (*done)(struct rpc_restore *restore, int error);
    const struct requester *requester; /* in: on whose behalf; the caller's reference, until `done` */
    const char *folder;
    char region[RPC_REGION_MAX + 1];
    int fd;
    uint64_t index; /* out: of the restore */
    struct fault fault;
    _Alignas(16) char impl[512];
};
void rpc_restore(struct rpc *rpc, struct rpc_restore *restore);

#endif
