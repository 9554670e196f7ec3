#include "rpc/reads/apply_lag.h"

/* Waiting reads are woken twice, because a read that had been confirmed just before may have begun to wait after the
 * first time. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "rpc/core/rpc_internal.h"

#define LOOK_MS 1000 /* each look costs a round of the leader, and comes only while the disk is full */

struct apply_lag {
    struct rpc *rpc;
    struct rpc_read_index gate;
    bool asking;
    unsigned times;
    uint64_t asked_ms, last_index;
};

static void wake_all(struct rpc *rpc) {
    struct watch_touched everything = {0};
    watch_touched_all(&everything);
    watch_wake(machine_watches(rpc->machine), &everything);
    watch_touched_free(&everything);
}

static void looked(struct rpc_read_index *gate, int error) {
    struct apply_lag *behind = CONTAINER_OF(gate, struct apply_lag, gate);
    struct rpc *rpc = behind->rpc;
    behind->asking = false;
    if (rpc->stopping) return;
    uint64_t last_index = atomic_load(&node_view(rpc->node)->last_index);
    if (error == CO_OK || last_index != behind->last_index) behind->times = 0;
    behind->last_index = last_index;
    if (error != CO_DISKFULL || behind->times == 2) return;
    if (behind->times++ == 0)
        log_warn("raft", "behind, and the disk is full: the leader answers default reads index=%" PRIu64, last_index);
    wake_all(rpc);
}

void apply_lag_tick(struct apply_lag *behind) {
    struct rpc *rpc = behind->rpc;
    uint64_t now_ms = clock_mono_ms();
    if (!atomic_load(&node_view(rpc->node)->disk_full)) return;
    if (!behind->asking && now_ms - behind->asked_ms >= LOOK_MS) {
        behind->asked_ms = now_ms, behind->asking = true;
        behind->gate.done = looked;
        int rv = rpc_read_index(rpc, RPC_DEFAULT, &behind->gate);
        if (rv != CO_AGAIN) looked(&behind->gate, rv);
    }
}

struct apply_lag *apply_lag_new(struct rpc *rpc) {
    struct apply_lag *behind = mem_zalloc(sizeof *behind);
    behind->rpc = rpc;
    return behind;
}

void apply_lag_free(struct apply_lag *behind) { free(behind); }
