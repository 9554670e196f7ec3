/* Confirmations: a default read is answered once a question to the leader, asked after the read arrived, has shown
 * that this server is up to date. Those of one turn share one, asked for at its end. */
#include <stdlib.h>

#include "rpc/reads/fetch_internal.h"

struct fetch_gate {
    struct rpc_read_index rpc;
    struct fetches *fetches;
    struct list link;    /* under the lock: in gates_open */
    struct list waiting; /* emptied by their ends as well */
    int error;
};

static void open_all(struct list *waiting, int error) {
    while (!list_empty(waiting)) {
        struct fetch *fetch = LIST_ENTRY(waiting->next, struct fetch, queue);
        list_remove(&fetch->queue);
        fetch_confirmed(fetch, error);
    }
}

/* Loop thread. The fetch thread may have ended: then nobody waits any more. */
static void gate_done(struct rpc_read_index *rpc, int error) {
    struct fetch_gate *gate = CONTAINER_OF(rpc, struct fetch_gate, rpc);
    struct fetches *fetches = gate->fetches;
    gate->error = error;
    uv_mutex_lock(&fetches->lock);
    fetches->gates--;
    bool ended = fetches->ended;
    if (!ended) {
        list_append(&fetches->gates_open, &gate->link);
        fetch_wake(fetches);
    }
    uv_mutex_unlock(&fetches->lock);
    if (ended) free(gate);
}

static struct fetch_gate *gate_take(struct fetches *fetches) {
    struct fetch_gate *gate = NULL;
    uv_mutex_lock(&fetches->lock);
    if (!list_empty(&fetches->gates_open)) {
        gate = LIST_ENTRY(fetches->gates_open.next, struct fetch_gate, link);
        list_remove(&gate->link);
    }
    uv_mutex_unlock(&fetches->lock);
    return gate;
}

void fetch_confirm_open(struct fetches *fetches) {
    for (struct fetch_gate *gate; (gate = gate_take(fetches));) {
        open_all(&gate->waiting, gate->error);
        free(gate);
    }
}

static void gates_count(struct fetches *fetches, int by) {
    uv_mutex_lock(&fetches->lock);
    fetches->gates += (unsigned)by;
    uv_mutex_unlock(&fetches->lock);
}

void fetch_confirm_all(struct fetches *fetches) {
    if (list_empty(&fetches->confirming)) return;
    struct fetch_gate *gate = mem_zalloc(sizeof *gate);
    gate->rpc.done = gate_done;
    gate->fetches = fetches;
    list_init(&gate->link);
    list_init(&gate->waiting);
    list_splice(&gate->waiting, &fetches->confirming);
    gates_count(fetches, 1);
    int error = rpc_read_index(fetches->rpc, RPC_DEFAULT, &gate->rpc);
    if (error == CO_AGAIN) return;
    gates_count(fetches, -1);
    open_all(&gate->waiting, error);
    free(gate);
}
