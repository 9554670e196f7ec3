/* The entrance for commands and reads. On a server they go to its own node and machine, on a client agent over its
 * connection to a server. Callers see only commands, queries and records.
 *
 * Threads: submit and read may be called from any thread; each reading thread has its own `rpc_reader`. */
#ifndef COORD_RPC_RPC_H
#define COORD_RPC_RPC_H

#include "base/error.h"
#include "base/memory.h"
#include "lb/coordinate.pb-c.h"
#include "lb/hints.h"
#include "lb/vivaldi.h"
#include "registry/machine.h"
#include "rpc/api/requester.h"
#include "rpc/wire/peer.pb-c.h"

struct rpc;

/* -- regions ------------------------------------------------------------------------------------------------------ */
/* Writes, reads and renewals name the region that they are for; "": this one. A server sends those for another region
 * over its own link (rpc_region); a client agent sends them to its server, which does so. CO_NOREGION: no region of
 * this name is known; CO_NOLEADER: the region cannot be reached now, or has no leader; the request has waited for it as
 * long as it would for a leader here. */
#define RPC_REGION_MAX 63

/* -- writes ------------------------------------------------------------------------------------------------------- */
/* One command on its way. The caller owns the struct until `done`, called exactly once, on another thread (applier
 * or loop): keep it short, hand over to your own thread. */
struct rpc_write {
    /* error: CO_OK: `result` has the outcome (result->error may still be a refusal); else CO_NOLEADER,
     * CO_UNKNOWN_OUTCOME, CO_DISKFULL, CO_BUSY, CO_CLOSED and result is NULL. `result` is valid during the call
     * only. */
    void (*done)(struct rpc_write *write, int error, const struct machine_result *result);
    char region[RPC_REGION_MAX + 1]; /* in */
    /* in: on whose behalf; the caller's reference, until `done`. On a server rpc_may_write has judged the command, and said
     * `judged`; the command is judged anew when access control has changed before it is proposed. */
    const struct requester *requester;
    uint64_t judged;
    bool client; /* in: a client wants it: it counts for limits.cluster_write_rate, else it is coord's own work */
    _Alignas(16) char impl[128]; /* rpc's own */
};
#define RPC_LEADER_WAIT_MS 7000
/* Encodes `message`, and keeps only `write`. Waits up to 7 s for a leader before failing with CO_NOLEADER. */
void rpc_submit(struct rpc *rpc, struct rpc_write *write, uint8_t command, const ProtobufCMessage *message);

/* Any thread: the modules with their commands and queries; lives as long as the rpc. */
const struct modules *rpc_modules(const struct rpc *rpc);

/* -- reads -------------------------------------------------------------------------------------------------------- */
/* Default = linearizable. RPC_CONSISTENT: the same, and never a kept answer, which client agents give out while no
 * server can be reached. */
enum rpc_freshness { RPC_DEFAULT, RPC_STALE, RPC_CONSISTENT };

/* Confirms that reads on this server are fresh enough from now on. CO_OK: at once (stale, or alone). CO_AGAIN: `done`
 * will be called (loop thread) with CO_OK or CO_NOLEADER / CO_TIMEOUT / CO_DISKFULL: the server's disk is full and it
 * is behind (the leader then answers an rpc_fetch). */
struct rpc_read_index {
    void (*done)(struct rpc_read_index *gate, int error);
    _Alignas(16) char impl[96];
};
int rpc_read_index(struct rpc *rpc, enum rpc_freshness freshness, struct rpc_read_index *gate);

/* May this server answer from its state? CO_FENCED: the self-audit found it damaged, and it is being rebuilt. Any
 * thread, cheap. */
int rpc_serves(struct rpc *rpc);
/* One line that explains a CO_FENCED of any call here. */
void rpc_fenced_why(struct rpc *rpc, char line[160]);
/* Call it when a query ended with CO_CORRUPT: the whole store is checked at once, and fenced if it is damaged. Any
 * thread. */
void rpc_met_damage(struct rpc *rpc);

/* Gets the records of a query: on a server from its own store (a thread of its own reads it), on a client agent from a
 * server, over its connection. For callers that must not block, or need not know the role.
 *
 * `index` 0: at once. Else as blocking queries: once the result is newer than `index` (a change of something else does
 * not count, and neither do the same bytes again), at the latest after `wait_ms`. RPC_DEFAULT: confirmed before the
 * first look and again before it is answered. */
#define RPC_CAUSE_MAX 256
struct rpc_fetched {
    uint64_t index;       /* of the result; never below the floor, never 0 */
    bool found;           /* as query_result */
    bool none;            /* no message at all */
    struct slice records; /* packed type->result; valid during the call */
    bool known_leader;    /* of the server that answered */
    uint64_t last_contact_ms;
    const char *cause; /* the change that ended its wait (stream_cause), valid as `records`; NULL: none, or unknown */
    uint64_t hidden;   /* rows that the requester may not see, and that are not among the records */
    uint64_t view;     /* of the rules that hid them (access_view); 0: there is no requester */
    uint64_t age_ms;   /* client agents: no server can be reached, and this answer is so old. 0: fresh */
};
struct rpc_fetch {
    /* Set by the caller. `request` is packed before rpc_fetch returns. */
    const struct query_type *type;
    enum rpc_freshness freshness;
    bool no_cache;   /* client agents: its answer is not kept for times without servers, and no kept one is given */
    bool here;       /* servers: not handed on to the leader when this one's disk is full: CO_DISKFULL */
    bool background; /* client agents: nobody waits for it, so a silent server may be noticed a second later */
    uint64_t index, wait_ms;
    /* With an index: of the answer that the caller has. When the rules are others now, it is answered at once, whatever the
     * index. 0: not known. */
    uint64_t view;
    char region[RPC_REGION_MAX + 1];
    const struct requester *requester; /* on whose behalf; the caller's reference, until `done` */
    const char *denial; /* out, with CO_DENIED, CO_NOTOKEN and CO_NOTREADY: one line, valid during `done`; NULL: none */
    /* Exactly once, on another thread; short. CO_OK, CO_NOLEADER, CO_FENCED, CO_TIMEOUT, CO_CLOSED (cancelled, or
     * the end), CO_BUSY (too many), CO_CORRUPT, CO_DENIED, CO_NOTOKEN, CO_NOTREADY, CO_TOOLARGE (a result of more than 512 MiB), CO_UNSUPPORTED (the
     * server does not know this query), CO_DISKFULL (the server's disk is full and it is behind, and no leader
     * answered in its place). `fetched` is NULL with an error. */
    void (*done)(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched);
    _Alignas(16) char impl[288]; /* rpc's own */
};
void rpc_fetch(struct rpc *rpc, struct rpc_fetch *fetch, const ProtobufCMessage *request); /* any thread */
/* Any thread, also when it is done already, as long as the struct is there. `done` still comes, soon. */
void rpc_fetch_cancel(struct rpc *rpc, struct rpc_fetch *fetch);

/* Is there a local copy to read? False on client agents, where rpc_read_begin must not be called. Constant. */
bool rpc_has_copy(const struct rpc *rpc);

/* A read of the local copy. One reader per thread; between begin and end the result's slices are valid. */
struct rpc_reader;
struct rpc_reader *rpc_reader_new(struct rpc *rpc);
void rpc_reader_free(struct rpc_reader *reader);
struct store_txn *rpc_read_begin(struct rpc_reader *reader);
void rpc_read_end(struct rpc_reader *reader);
/* Calls the above; rpc_read_end when done with the result. For DNS it works on client agents too, where the records are
 * a copy that the agent keeps current (rpc/client/dns_subscriptions.c): the first question for a name waits for it, up
 * to 1.5 s. Not on the loop. */
int rpc_query(struct rpc_reader *reader, const struct query_type *type, const ProtobufCMessage *request,
              const struct requester *requester, struct arena *arena, struct query_result *result);
/* The same without waiting. CO_AGAIN: it is not here yet, but will be, up to 1.5 s after the first question. */
int rpc_query_now(struct rpc_reader *reader, const struct query_type *type, const ProtobufCMessage *request,
                  const struct requester *requester, struct arena *arena, struct query_result *result);
uint64_t rpc_generation(struct rpc *rpc, struct watch_key watched); /* read it before rpc_query when storing answers */
struct watch_table *rpc_watches(struct rpc *rpc);
uint64_t rpc_applied(struct rpc *rpc);
uint64_t rpc_floor(struct rpc *rpc); /* blocking queries: 0 < index < floor is answered at once */

/* -- the cluster as clients see it -------------------------------------------------------------------------------- */
struct rpc_status {
    bool is_server, is_leader, known_leader;
    uint64_t last_contact_ms; /* 0 on the leader */
    bool leader_heard;        /* in this life: before, last_contact_ms is since the start */
    uint64_t leaderless_ms;   /* how long no leader has been known; 0: one is, or was just now */
    uint64_t term, commit, applied, last_index, snapshot_index;
    uint64_t log_bytes, recovered_index; /* recovered_index: see consensus/recover.h; 0: never */
    unsigned voters;
    bool is_voter, disk_degraded, disk_full;
    char leader_address[128]; /* "" unknown */
    bool unreachable; /* client agents: no server has been reached for a second or more; `voters` is the last known */
    unsigned cluster_version; /* as applied here (registry/version.h) */
    uint64_t cluster_id;      /* 0: none */
};
void rpc_status(struct rpc *rpc, struct rpc_status *status); /* any thread */
bool rpc_known_leader(struct rpc *rpc);                      /* cheap */
/* Peers' addresses (voters), for /v1/status/peers: a copy in the arena. */
size_t rpc_peers(struct rpc *rpc, struct arena *arena, const char ***addresses);
/* Where a server may answer who is no member any more, for a new certificate: those, and on client agents also the addresses
 * to join by and the servers of before a restart. Loop thread. */
size_t rpc_servers(struct rpc *rpc, struct arena *arena, const char ***addresses);

/* One more address to join the cluster by. It is kept once a server there has answered this one's hello; each of a
 * name's addresses gets 2 s for that. Loop thread; the caller keeps the struct, and the rpc, until `done` (loop
 * thread, once; maybe before rpc_join returns). */
#define RPC_JOIN_SERVERS 16
struct rpc_join {
    char address[128]; /* in: "host:port" */
    /* in: a server of another region is wanted there, of any region. It is only asked, not joined. Out, with CO_OK: its
     * region, its cluster's id (0: it has none yet), and the addresses of servers there, its own first. */
    bool wan;
    char region[RPC_REGION_MAX + 1];
    uint64_t cluster_id;
    char servers[RPC_JOIN_SERVERS][128];
    size_t server_count;
    /* CO_OK; CO_UNSUPPORTED: by configuration this server joins no others; CO_INVALID, CO_IO, CO_TIMEOUT, CO_DENIED,
     * CO_CORRUPT, CO_TOOLARGE: `fault` says why. */
    void (*done)(struct rpc_join *join, int error);
    struct fault fault;
};
void rpc_join(struct rpc *rpc, struct rpc_join *join);

/* -- sessions and leases ------------------------------------------------------------------------------------------ */
/* Renews a session or a lease with the leader: acknowledged only after a leadership round that began after it
 * arrived, and never while its end is proposed. Sessions without TTL: CO_OK. `done` on the loop thread: CO_OK,
 * CO_NOTFOUND, CO_NOLEADER, CO_CLOSED. */
#define RPC_LOOK_MAX 20000
struct rpc_renew {
    void (*done)(struct rpc_renew *renew, int error);
    char id[40];                       /* in */
    uint8_t kind;                      /* in: number of the expiry kind: session_expiry, lease_expiry, ... */
    char region[RPC_REGION_MAX + 1];   /* in */
    const struct requester *requester; /* in: on whose behalf; the caller's reference, until `done` */
    bool look; /* in: only reads the time, renews nothing; with an empty id: of the whole kind */
    /* out, with CO_OK: its TTL, and the part of it that is left when the leader answers; 0: no TTL */
    int64_t ttl_ns, left_ms;
    uint64_t restored; /* out: machine_restored, as the leader knows it; 0: not known, or none */
    /* out, of a look at all: pb.LeasesLeft, packed; the caller frees it. More than RPC_LOOK_MAX leases: CO_TOOLARGE */
    struct buffer all;
    struct rpc_renew *next; /* rpc's own, as what follows */
    _Alignas(16) char impl[128];
};
void rpc_renew(struct rpc *rpc, struct rpc_renew *renew);

/* -- the regions as seen from here -------------------------------------------------------------------------------- */
/* As this server sees them; a client agent asks its server. */
struct rpc_regions {
    /* Loop thread, once. CO_OK; CO_NOLEADER: no server answered; CO_UNSUPPORTED, CO_CLOSED. `seen` is valid during the call,
     * NULL with an error. This region is among them. */
    void (*done)(struct rpc_regions *regions, int error, const Pb__PeerRegionsAnswer *seen);
    _Alignas(16) char impl[192]; /* rpc's own */
};
void rpc_ask_regions(struct rpc *rpc, struct rpc_regions *regions); /* any thread */

/* -- load balancing ----------------------------------------------------------------------------------------------- */
/* Any thread. The hints of load and hot keys that this process has; they live as long as the rpc. Reports go to the
 * servers within half a second, and on from there. */
struct hints *rpc_hints(const struct rpc *rpc);
/* Any thread, cheap. Call it whenever instances of the service are picked: a client agent then asks its server for the
 * hints of that service, for some minutes each time. Servers know all hints anyway. */
void rpc_hints_follow(struct rpc *rpc, struct slice service);

/* The hot keys of a service, as a server knows them. The caller owns the struct until `done` (loop thread, once):
 * CO_OK, CO_NOLEADER (no server is reached), CO_CLOSED. `answer` is valid during the call. */
struct rpc_hot {
    void (*done)(struct rpc_hot *hot, int error, const Pb__PeerHotAnswer *answer);
    const char *service;               /* in; stays until `done` */
    const struct requester *requester; /* in: on whose behalf; the caller's reference, until `done` */
    _Alignas(16) char impl[256];       /* rpc's own */
};
void rpc_hot(struct rpc *rpc, struct rpc_hot *hot);

/* -- network coordinates ------------------------------------------------------------------------------------------ */
/* Any thread. Takes a copy of an update; it is in the catalog a period later. CO_OK: taken. Else refused:
 * CO_UNSUPPORTED, CO_INVALID, CO_TOOLARGE (coordinate_check); CO_BUSY: there are too many; CO_NOTFOUND: coordinates
 * are disabled here; CO_AGAIN: no server is connected. */
int rpc_coordinate_put(struct rpc *rpc, const Pb__Coordinate *record);
/* Any thread. The coordinate of this host. */
struct vivaldi_coordinate rpc_coordinate_here(struct rpc *rpc);

#endif
