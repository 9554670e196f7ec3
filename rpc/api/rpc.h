/* Where a command is taken to and where a read is answered. On a server: its own node and machine; on a client
 * agent: its connection to a server. Callers see commands, queries and records only.
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
#include "rpc/wire/peer.pb-c.h"

struct rpc;

/* -- regions ------------------------------------------------------------------------------------------------------ */
/* Writes, reads and renewals name the region that they are for; "": this one. A server takes those of another to it over
 * its own link (rpc_region), a client agent to its server, which does. CO_NOREGION: no region of this name is known;
 * CO_NOLEADER: it cannot be reached now, or has no leader; it was waited for as a leader here is. */
#define RPC_REGION_MAX 63

/* -- writes ------------------------------------------------------------------------------------------------------- */
/* One command on its way. The caller owns the struct until `done`, called exactly once, on another thread (applier
 * or loop): keep it short, hand over to your own thread. */
struct rpc_write {
    /* error: CO_OK: `result` tells (result->error may still refuse); else CO_NOLEADER, CO_UNKNOWN_OUTCOME,
     * CO_DISKFULL, CO_BUSY, CO_CLOSED and result is NULL. `result` is valid during the call only. */
    void (*done)(struct rpc_write *write, int error, const struct machine_result *result);
    char region[RPC_REGION_MAX + 1]; /* in */
    _Alignas(16) char impl[128];     /* rpc's own */
};
#define RPC_LEADER_WAIT_MS 7000
/* Encodes and takes over nothing but `write`. Waits up to 7 s for a leader before failing with CO_NOLEADER. */
void rpc_submit(struct rpc *rpc, struct rpc_write *write, uint8_t command, const ProtobufCMessage *message);

/* Any thread: what commands and queries there are; lives as long as the rpc. */
const struct modules *rpc_modules(const struct rpc *rpc);

/* -- reads -------------------------------------------------------------------------------------------------------- */
/* Default = linearizable. RPC_CONSISTENT: the same, and never an answer of before, as client agents give it while no
 * server can be reached. */
enum rpc_freshness { RPC_DEFAULT, RPC_STALE, RPC_CONSISTENT };

/* Confirms that reads on this server are fresh enough from now on. CO_OK: at once (stale, or alone). CO_AGAIN:
 * `done` will be called (loop thread) with CO_OK or CO_NOLEADER / CO_TIMEOUT / CO_DISKFULL: its disk is full and it
 * is behind (an rpc_fetch is answered by the leader then). */
struct rpc_read_index {
    void (*done)(struct rpc_read_index *gate, int error);
    _Alignas(16) char impl[96];
};
int rpc_read_index(struct rpc *rpc, enum rpc_freshness freshness, struct rpc_read_index *gate);

/* May this server answer from its state? CO_FENCED: the self-audit found it damaged, and it is being rebuilt. Any
 * thread, cheap. */
int rpc_serves(struct rpc *rpc);
/* One line about a CO_FENCED of any call here. */
void rpc_fenced_why(struct rpc *rpc, char line[160]);
/* A query came back with CO_CORRUPT: the store is read through at once, and fenced if it is damaged. Any thread. */
void rpc_met_damage(struct rpc *rpc);

/* The records of a query, wherever they are: on a server from its own store (a thread of its own reads it), on a
 * client agent from a server, over its connection. For whoever must not block, or need not know the role.
 *
 * `index` 0: at once. Else as blocking queries: once the result is newer than `index` (never because something else
 * changed; the same bytes again are not a change), at the latest after `wait_ms`. RPC_DEFAULT: confirmed before the
 * first look and again before it is answered. */
#define RPC_CAUSE_MAX 256
struct rpc_fetched {
    uint64_t index;       /* of the result; never below the floor, never 0 */
    bool found;           /* as query_result */
    bool none;            /* no message at all */
    struct slice records; /* packed type->result; valid during the call */
    bool known_leader;    /* of the server that answered */
    uint64_t last_contact_ms;
    const char *cause; /* what woke it (stream_cause), valid as `records`; NULL: it did not wait, or nobody knows */
    uint64_t age_ms;   /* client agents: no server can be reached, this was the answer so long ago. 0: fresh */
};
struct rpc_fetch {
    /* Set by the caller. `request` is packed before rpc_fetch returns. */
    const struct query_type *type;
    enum rpc_freshness freshness;
    bool no_cache;   /* client agents: its answer is neither kept for the time without servers, nor one of then given */
    bool here;       /* servers: not handed on to the leader, where this one's disk is full: CO_DISKFULL */
    bool background; /* client agents: nobody waits for it, the loss of a silent server may be noticed a second later */
    uint64_t index, wait_ms;
    char region[RPC_REGION_MAX + 1];
    /* Exactly once, on another thread; short. CO_OK, CO_NOLEADER, CO_FENCED, CO_TIMEOUT, CO_CLOSED (cancelled, or
     * the end), CO_BUSY (too many), CO_CORRUPT, CO_TOOLARGE (a result of more than 512 MiB), CO_UNSUPPORTED (the
     * server does not know this query), CO_DISKFULL (the server's disk is full and it is behind, and no leader
     * answered in its place). `fetched` is NULL with an error. */
    void (*done)(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched);
    _Alignas(16) char impl[256]; /* rpc's own */
};
void rpc_fetch(struct rpc *rpc, struct rpc_fetch *fetch, const ProtobufCMessage *request); /* any thread */
/* Any thread, also when it is done already, as long as the struct is there. `done` still comes, soon. */
void rpc_fetch_cancel(struct rpc *rpc, struct rpc_fetch *fetch);

/* Is there a local copy to read? False on client agents: there no rpc_read_begin. Constant. */
bool rpc_has_copy(const struct rpc *rpc);

/* A read of the local copy. One reader per thread; between begin and end the result's slices are valid. */
struct rpc_reader;
struct rpc_reader *rpc_reader_new(struct rpc *rpc);
void rpc_reader_free(struct rpc_reader *reader);
struct store_txn *rpc_read_begin(struct rpc_reader *reader);
void rpc_read_end(struct rpc_reader *reader);
/* Calls the above; rpc_read_end when done with the result. For DNS it works on client agents too, where the records
 * are a copy that the agent keeps current (rpc/client/dns_subscriptions.c): whoever asks for something first waits for it, up
 * to 1.5 s. Not on the loop. */
int rpc_query(struct rpc_reader *reader, const struct query_type *type, const ProtobufCMessage *request,
              struct arena *arena, struct query_result *result);
/* The same, and nobody waits: CO_AGAIN: it is not here yet, but will be, up to 1.5 s after it was asked for first. */
int rpc_query_now(struct rpc_reader *reader, const struct query_type *type, const ProtobufCMessage *request,
                  struct arena *arena, struct query_result *result);
uint64_t rpc_generation(struct rpc *rpc, struct watch_key watched); /* read it before rpc_query when storing answers */
struct watch_table *rpc_watches(struct rpc *rpc);
uint64_t rpc_applied(struct rpc *rpc);
uint64_t rpc_floor(struct rpc *rpc); /* blocking queries: 0 < index < floor is answered at once */

/* -- the cluster as clients see it -------------------------------------------------------------------------------- */
struct rpc_status {
    bool is_server, is_leader, known_leader;
    uint64_t last_contact_ms; /* 0 on the leader */
    bool leader_heard;        /* in this life: before, last_contact_ms is since the start */
    uint64_t leaderless_ms;   /* for so long no leader has been known; 0: one is, or was just now */
    uint64_t term, commit, applied, last_index, snapshot_index;
    uint64_t log_bytes, recovered_index; /* recovered_index: see consensus/recover.h; 0: never */
    unsigned voters;
    bool is_voter, disk_degraded, disk_full;
    char leader_address[128]; /* "" unknown */
    bool unreachable; /* client agents: no server has been reached for a second or more; `voters` is of before */
    unsigned cluster_version; /* as applied here (registry/version.h) */
    uint64_t cluster_id;      /* 0: none */
};
void rpc_status(struct rpc *rpc, struct rpc_status *status); /* any thread */
bool rpc_known_leader(struct rpc *rpc);                      /* cheap */
/* Peers' addresses (voters), for /v1/status/peers: a copy in the arena. */
size_t rpc_peers(struct rpc *rpc, struct arena *arena, const char ***addresses);

/* One more address to join the cluster by. It is kept once a server there has answered this one's hello; each of a
 * name's addresses gets 2 s for that. Loop thread; the caller keeps the struct, and the rpc, until `done` (loop
 * thread, once; maybe before rpc_join returns). */
#define RPC_JOIN_SERVERS 16
struct rpc_join {
    char address[128]; /* in: "host:port" */
    /* in: a server of another region is wanted there, of whichever. It is only asked, not joined. Out, with CO_OK: its
     * region, its cluster's id (0: it has none yet), and the addresses of servers there, its own first. */
    bool wan;
    char region[RPC_REGION_MAX + 1];
    uint64_t cluster_id;
    char servers[RPC_JOIN_SERVERS][128];
    size_t server_count;
    /* CO_OK; CO_UNSUPPORTED: this server is alone by configuration; CO_INVALID, CO_IO, CO_TIMEOUT, CO_DENIED,
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
    char id[40];                     /* in */
    uint8_t kind;                    /* in: number of the expiry kind: session_expiry, lease_expiry, ... */
    char region[RPC_REGION_MAX + 1]; /* in */
    bool look;                       /* in: it is not renewed, only looked at; with an empty id: at all of the kind */
    /* out, with CO_OK: its TTL, and how much of it the leader has left, as the answer is sent; 0: no TTL */
    int64_t ttl_ns, left_ms;
    uint64_t restored; /* out: machine_restored, as the leader knows it; 0: not known, or none */
    /* out, of a look at all: pb.LeasesLeft, packed; whoever asked frees it. RPC_LOOK_MAX leases: CO_TOOLARGE */
    struct buffer all;
    struct rpc_renew *next; /* rpc's own, as what follows */
    _Alignas(16) char impl[128];
};
void rpc_renew(struct rpc *rpc, struct rpc_renew *renew);

/* -- how the regions are seen from here --------------------------------------------------------------------------- */
/* Of a server: from itself; of a client agent: from its server. */
struct rpc_regions {
    /* Loop thread, once. CO_OK; CO_NOLEADER: no server answered; CO_UNSUPPORTED, CO_CLOSED. `seen` is valid during the call,
     * NULL with an error. This region is among them. */
    void (*done)(struct rpc_regions *regions, int error, const Pb__PeerRegionsAnswer *seen);
    _Alignas(16) char impl[192]; /* rpc's own */
};
void rpc_ask_regions(struct rpc *rpc, struct rpc_regions *regions); /* any thread */

/* -- load balancing ----------------------------------------------------------------------------------------------- */
/* Any thread. What this process knows of the load of instances and of hot keys; lives as long as the rpc. What is reported
 * here goes to the servers within half a second, and on from there. */
struct hints *rpc_hints(const struct rpc *rpc);
/* Any thread, cheap. Whoever picks from a service says so, again and again: a client agent has its servers tell it the
 * hints of that service, for some minutes each time. Servers know all hints anyway. */
void rpc_hints_follow(struct rpc *rpc, struct slice service);

/* Which keys of a service are hot, as a server knows it. The caller owns the struct until `done` (loop thread, once):
 * CO_OK, CO_NOLEADER (no server is reached), CO_CLOSED. `answer` is valid during the
 * call. */
struct rpc_hot {
    void (*done)(struct rpc_hot *hot, int error, const Pb__PeerHotAnswer *answer);
    const char *service;         /* in; stays until `done` */
    _Alignas(16) char impl[256]; /* rpc's own */
};
void rpc_hot(struct rpc *rpc, struct rpc_hot *hot);

/* -- network coordinates ------------------------------------------------------------------------------------------ */
/* Any thread. Takes a copy of an update; it is in the catalog a period later. CO_OK: taken. Else refused:
 * CO_UNSUPPORTED, CO_INVALID, CO_TOOLARGE (coordinate_check); CO_BUSY: there are too many; CO_NOTFOUND: coordinates
 * are disabled here; CO_AGAIN: no server is connected. */
int rpc_coordinate_put(struct rpc *rpc, const Pb__Coordinate *record);
/* Any thread. Where this server is; the origin on client agents. */
struct vivaldi_coordinate rpc_coordinate_here(struct rpc *rpc);

#endif
