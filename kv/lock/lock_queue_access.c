/* Locks and elections are read and written by the rules `lock` for their names. */
#include "base/check.h"
#include "kv/lock/lock_queue_internal.h"

static int may_write(struct access_check *check, const char *name) {
    return access_require(check, ACCESS_LOCK, slice_text(name), ACCESS_WRITE);
}

int queue_acquire_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    Pb__QueueAcquireCommand *command = (Pb__QueueAcquireCommand *)(uintptr_t)request;
    (void)txn;
    int rv = may_write(check, command->name);
    command->nameless = !access_allows_below(check->access, ACCESS_LOCK, slice_make("", 0), ACCESS_READ);
    return rv == CO_OK ? session_may_use(check, command->session) : rv;
}

int queue_release_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    (void)txn;
    return may_write(check, ((const Pb__QueueReleaseCommand *)request)->name);
}

int queue_note_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    (void)txn;
    return may_write(check, ((const Pb__QueueNoteCommand *)request)->name);
}

static void view_show(const struct access_check *check, Pb__QueueView *view) {
    for (size_t i = 0; i < view->n_holders; i++) session_node_show(check, &view->holders[i]->node);
    for (size_t i = 0; i < view->n_waiters; i++) session_node_show(check, &view->waiters[i]->node);
    if (view->queue && view->queue->holder) session_node_show(check, &view->queue->holder->node);
}

int queue_view_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                    struct query_result *result) {
    (void)txn;
    int rv = access_require(check, ACCESS_LOCK, queue_request_name(request), ACCESS_READ);
    if (rv == CO_OK && result->message) view_show(check, (Pb__QueueView *)result->message);
    return rv;
}

int queue_answer_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                      struct query_result *result) {
    (void)txn, (void)result;
    return access_require(check, ACCESS_LOCK, queue_request_name(request), ACCESS_READ);
}

int queue_list_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                    struct query_result *result) {
    Pb__QueueListResult *list = (Pb__QueueListResult *)result->message;
    (void)txn, (void)request;
    ACCESS_KEEP_ROWS(list->n_queues, list->queues, access_shows(check, ACCESS_LOCK, slice_text(row->name)));
    for (size_t i = 0; i < list->n_queues; i++) view_show(check, list->queues[i]);
    return CO_OK;
}
