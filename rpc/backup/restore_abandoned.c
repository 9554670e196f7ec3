/* Gives up abandoned restores. When the server that restores dies, or is stopped, the pieces that were kept aside would
 * stay in every state and every backup. So the leader gives the restore up when nothing came for LEFT_MS. Loop
 * thread. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "registry/operator.h"
#include "rpc/backup/backup_internal.h"

#define LOOK_MS 5000
#define LEFT_MS 30000 /* longer than a restore waits for a leader, or for a busy disk */

static void given_up(struct rpc_write *write, int error, const struct machine_result *result) {
    (void)error, (void)result; /* on an error, the next look finds it again */
    atomic_store(&CONTAINER_OF(write, struct restore_abandoned, write)->writing, false);
}

static void give_up(struct rpc *rpc, struct restore_abandoned *left) {
    Pb__RestoreEndCommand command = PB__RESTORE_END_COMMAND__INIT;
    command.id = (ProtobufCBinaryData){sizeof left->id, left->id};
    command.size = left->size, command.give_up = true;
    log_warn("operator", "a restore was begun and not ended, it is given up bytes=%llu",
             (unsigned long long)left->size);
    left->write.done = given_up;
    atomic_store(&left->writing, true);
    rpc_submit(rpc, &left->write, OPERATOR_RESTORE_END, &command.base);
}

void restore_abandoned_look(struct rpc *rpc, bool leads) {
    struct restore_abandoned *left = &rpc->backups->left;
    uint64_t now_ms = clock_mono_ms(), size;
    uint8_t id[OPERATOR_RESTORE_ID];
    if (!leads) {
        left->since_ms = 0;
        return;
    }
    if (atomic_load(&left->writing) || now_ms < left->look_ms) return;
    left->look_ms = now_ms + LOOK_MS;
    bool there = operator_staged(store_read(rpc->loop_reader), id, &size);
    store_read_done(rpc->loop_reader);
    if (!there) {
        left->since_ms = 0;
        return;
    }
    if (left->since_ms == 0 || size != left->size || memcmp(id, left->id, sizeof id) != 0) {
        left->since_ms = now_ms, left->size = size;
        memcpy(left->id, id, sizeof id);
        return;
    }
    /* A piece of it, or its end, may still be in the log and not be applied; that time does not count. */
    const struct node_view *view = node_view(rpc->node);
    bool behind = atomic_load(&view->applied) < left->last_index;
    left->last_index = atomic_load(&view->last_index);
    if (behind) left->since_ms = now_ms;
    if (now_ms - left->since_ms < LEFT_MS) return;
    left->since_ms = 0;
    give_up(rpc, left);
}
