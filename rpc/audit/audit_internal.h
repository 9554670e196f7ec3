/* Inside the audit. */
#ifndef COORD_RPC_AUDIT_INTERNAL_H
#define COORD_RPC_AUDIT_INTERNAL_H

#include <pthread.h>

#include "registry/audit.h"
#include "rpc/audit/audit.h"
#include "rpc/core/rpc_internal.h"

#define AUDIT_PIECE_BYTES ((size_t)1 << 20)

/* The report of another server. */
struct audit_reported {
    uint64_t id, ms;
    bool fenced;
    struct audit_ring ring;
};

enum rebuild_step {
    REBUILD_IDLE,    /* may begin at `next_ms` */
    REBUILD_COPYING, /* a piece is on its way, or the pool writes or checks it */
    REBUILD_READY,   /* a whole, checked copy: it waits until this server's log is that far */
    REBUILD_APPLIER, /* the applier has it */
};

struct audit {
    struct rpc *rpc;
    char *data_folder, *store_folder;
    uint64_t scrub_interval_ms;

    /* Any thread. */
    _Atomic bool fenced, split, quit;
    _Atomic bool look;               /* scrub at once */
    _Atomic bool lifted;             /* the applier has replaced the state: tell the loop */
    _Atomic uint64_t apply_begun_ms; /* the applier is within a batch since; 0: it is not */
    _Atomic uint64_t failed;         /* rebuilds that the applier could not end */
    pthread_mutex_t lock;            /* for the members up to the next heading */
    pthread_cond_t wake;
    char reason[256];
    uint64_t fenced_index, split_index, fenced_ms;
    bool marked; /* the fence is durable */

    /* The audit's thread. */
    pthread_t thread;
    _Atomic bool running;

    /* Applier thread. */
    bool holding, replaying;

    /* Loop thread. */
    uv_timer_t timer;
    uv_async_t async;
    unsigned closing;
    void (*stopped)(void *data);
    struct audit_reported reported[PEERS_MAX];
    uint64_t told_ms, told_index, open_since_ms;
    uint64_t stuck_begun_ms, stuck_look_ms; /* the batch that takes long; when to check next */
    bool told_fenced, fence_seen;
    struct {
        enum rebuild_step step;
        struct call call;
        uint64_t next_ms, from, index, size, offset, failures;
        int fd;
        struct audit_ring ring;
    } rebuild;
    struct state_copy *copies;
};

/* audit.c */
/* The pairs of indexes up to `most` as messages, in `room` for AUDIT_KEPT. Returns their number. */
size_t audit_pairs(const struct audit_ring *ring, uint64_t most, Pb__PeerAuditPair *room, Pb__PeerAuditPair **pairs);
void audit_ring_from(struct audit_ring *ring, Pb__PeerAuditPair *const *pairs, size_t count);
/* audit_rebuild.c; loop thread */
void rebuild_tick(struct rpc *rpc, uint64_t now_ms);
void rebuild_end(struct rpc *rpc, bool failed);
/* audit_source.c; loop thread */
void state_source_ask(struct rpc *rpc, uint64_t from, const Pb__PeerCopyAsk *ask);
void state_source_tick(struct rpc *rpc, uint64_t now_ms);
void state_source_stop(struct rpc *rpc);

#endif
