/* Confirmations: a default read is answered once a question to the leader, asked after the read arrived, has
 * shown that this server is up to date. Alone, that is at once. Otherwise the reads of one turn share the
 * question: whoever asks first in a turn asks for itself, those after it together at the end of the turn (the
 * first may have been asked before they came); since the node is woken at that end, or when there are many,
 * both mostly become one. */
#include <stdlib.h>

#include "base/wakeup_batch.h"
#include "http/impl.h"

#define CONFIRM_MANY 64

struct gate {
    struct post post;
    struct worker *worker;
    struct rpc_read_index rpc;
    struct list waiting;
    int error;
};

static void gate_recycle(struct worker *worker, struct gate *gate) {
    if (worker->spare_gate) {
        free(gate);
    } else {
        worker->spare_gate = gate;
    }
}

static void gate_open(struct list *waiting, int error) {
    while (!list_empty(waiting)) {
        struct confirm *confirm = LIST_ENTRY(waiting->next, struct confirm, link);
        struct http_request *request = confirm->request;
        struct connection *connection = request->connection;
        list_remove(&confirm->link);
        request->confirming = false;
        confirm->done(request, error);
        request_next(connection, request);
    }
}

static void gate_taken(struct worker *worker, struct post *post) {
    struct gate *gate = CONTAINER_OF(post, struct gate, post);
    struct list waiting;
    list_init(&waiting);
    list_splice(&waiting, &gate->waiting);
    int error = gate->error;
    worker->gates--;
    gate_recycle(worker, gate);
    gate_open(&waiting, error);
}

/* Loop thread. */
static void gate_done(struct rpc_read_index *rpc, int error) {
    struct gate *gate = CONTAINER_OF(rpc, struct gate, rpc);
    gate->error = error;
    worker_post(gate->worker, &gate->post);
}

/* CO_AGAIN: all of `waiting` moved to the gate. */
static int gate_ask(struct worker *worker, struct list *waiting) {
    struct gate *gate = worker->spare_gate ? worker->spare_gate : mem_zalloc(sizeof *gate);
    worker->spare_gate = NULL;
    gate->post.taken = gate_taken;
    gate->worker = worker;
    gate->rpc.done = gate_done;
    list_init(&gate->waiting);
    int error = rpc_read_index(worker->server->env.rpc, RPC_DEFAULT, &gate->rpc);
    if (error == CO_AGAIN) {
        list_splice(&gate->waiting, waiting);
        worker->gates++;
    } else {
        gate_recycle(worker, gate);
    }
    return error;
}

int confirm_read(struct worker *worker, struct confirm *confirm) {
    confirm->request->confirming = true;
    if (worker->confirm_asked) {
        list_append(&worker->confirming, &confirm->link);
        if (++worker->confirm_count % CONFIRM_MANY == 0) wakeup_batch_flush(); /* those asked for so far */
        return CO_AGAIN;
    }
    struct list one;
    list_init(&one);
    list_append(&one, &confirm->link);
    worker->confirm_count = 0;
    int error = gate_ask(worker, &one);
    if (error == CO_AGAIN) {
        worker->confirm_asked = true;
    } else {
        list_remove(&confirm->link);
        confirm->request->confirming = false;
    }
    return error;
}

void confirm_turn_end(struct worker *worker) {
    worker->confirm_asked = false;
    if (list_empty(&worker->confirming)) return;
    struct list waiting;
    list_init(&waiting);
    list_splice(&waiting, &worker->confirming);
    int error = gate_ask(worker, &waiting);
    if (error != CO_AGAIN) gate_open(&waiting, error);
}

void confirm_free(struct worker *worker) { free(worker->spare_gate); }
