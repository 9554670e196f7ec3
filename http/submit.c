/* Writes, renewals, and other waits: the request is parked until another thread reports. */
#include <stdlib.h>
#include <string.h>

#include "http/impl.h"

struct writing {
    struct operation operation;
    struct http_request *request;
    http_written view;
    int error;
    uint8_t command;
    struct machine_result result; /* text and record are ours */
    struct rpc_write rpc;
};

struct renewing {
    struct operation operation;
    struct http_request *request;
    http_renewed view;
    int error;
    struct rpc_renew rpc;
};

struct http_ticket {
    struct operation operation;
    struct post post;
    struct worker *worker;
    struct http_request *request; /* NULL: nobody waits any more */
    struct timer timer;
    void (*view)(struct http_request *request, int error);
    int error;
};

/* Call it when the outcome has come. NULL: the client is gone, and the request is freed. */
static struct connection *operation_over(struct worker *worker, struct http_request *request) {
    request->busy = false;
    request->operation = NULL;
    if (request->stage != REQUEST_ORPHAN) return request->connection;
    worker->orphans--;
    request_free(request);
    return NULL;
}

void request_next(struct connection *connection, const struct http_request *request) {
    if (connection->request == request && request->stage == REQUEST_WORK && !request->suspended)
        connection_wait(connection);
}

/* ---- writes ---- */

static bool decode_record(struct http_request *request, struct writing *writing) {
    const struct module_command *command = modules_command(rpc_modules(http_env(request)->rpc), writing->command);
    struct machine_result *result = &writing->result;
    if (!command || !command->result) return false;
    return (result->message = machine_decode(command->result, result->record, &request->arena)) != NULL;
}

static void deliver(struct http_request *request, struct writing *writing) {
    if (writing->error) {
        http_reply_error(request, writing->error);
        return;
    }
    int error = writing->result.error;
    bool refused = error == CO_DENIED || error == CO_NOTOKEN || error == CO_LIMITED;
    if (!writing->view || refused) { /* the other servers' verdict is told as ours */
        http_reply_result(request, &writing->result);
        return;
    }
    if (writing->result.record.data && !decode_record(request, writing)) {
        http_reply_error(request, CO_UNKNOWN_OUTCOME); /* applied, but the answer of a newer server does not decode */
        return;
    }
    writing->view(request, &writing->result);
}

static void written(void *taker, struct post *post) {
    struct worker *worker = taker;
    struct http_request *request = CONTAINER_OF(post, struct http_request, post);
    struct writing *writing = CONTAINER_OF(request->operation, struct writing, operation);
    char *text = (char *)writing->result.text;
    char *record = (char *)(uintptr_t)writing->result.record.data;
    if (!writing->error) audit_index(request, writing->result.index);
    struct connection *connection = operation_over(worker, request);
    if (connection) {
        deliver(request, writing);
        request_next(connection, request);
    }
    free(text);
    free(record);
}

/* Applier or loop thread. */
static void write_done(struct rpc_write *rpc, int error, const struct machine_result *result) {
    struct writing *writing = CONTAINER_OF(rpc, struct writing, rpc);
    writing->error = error;
    if (!error) {
        writing->result = *result;
        writing->result.text = result->text ? mem_strdup(result->text) : NULL;
        writing->result.message = NULL, writing->result.record_type = NULL;
        writing->result.record = (struct slice){0};
        if (writing->view && result->record_type)
            writing->result.record =
                slice_make(mem_strndup(result->record.data, result->record.size), result->record.size);
    }
    worker_post(writing->request->worker, &writing->request->post);
}

/* In a region of its own the servers there judge the command, on a client agent its server does. */
static bool write_permitted(struct http_request *request, uint8_t command, const ProtobufCMessage *message,
                            uint64_t *judged) {
    struct worker *worker = request->worker;
    if (!request->requester || request->region || !rpc_has_copy(worker->server->env.rpc)) return true;
    int error = rpc_may_write(worker->reader, request->requester, command, message, &request->arena, judged);
    if (error) http_reply_text(request, reply_status(error), "%s", rpc_denial(worker->reader));
    return !error;
}

void http_write(struct http_request *request, uint8_t command, const ProtobufCMessage *message, http_written view) {
    uint64_t judged = 0;
    if (http_env(request)->audit && !audit_admit(request)) return;
    if (!write_permitted(request, command, message, &judged)) return;
    struct writing *writing = arena_zalloc(&request->arena, sizeof *writing);
    writing->request = request;
    writing->view = view;
    writing->rpc.judged = judged;
    writing->command = command;
    writing->rpc.done = write_done;
    writing->rpc.client = true;
    writing->rpc.requester = request->requester; /* which lives as long as the request */
    request->operation = &writing->operation;
    request->busy = true;
    request->post.taken = written;
    request->post.bulk = false;
    http_region_name(request, writing->rpc.region);
    rpc_submit(http_env(request)->rpc, &writing->rpc, command, message);
}

/* ---- renewals ---- */

static void renewed(void *taker, struct post *post) {
    struct worker *worker = taker;
    struct http_request *request = CONTAINER_OF(post, struct http_request, post);
    struct renewing *renewing = CONTAINER_OF(request->operation, struct renewing, operation);
    struct buffer all = renewing->rpc.all;
    struct connection *connection = operation_over(worker, request);
    if (connection && all.size) renewing->rpc.all.data = arena_strndup(&request->arena, all.data, all.size);
    buffer_free(&all);
    if (!connection) return;
    renewing->view(request, renewing->error, &renewing->rpc);
    request_next(connection, request);
}

static void renew_done(struct rpc_renew *rpc, int error) {
    struct renewing *renewing = CONTAINER_OF(rpc, struct renewing, rpc);
    renewing->error = error;
    worker_post(renewing->request->worker, &renewing->request->post);
}

static bool renewal_permitted(struct http_request *request, const struct expiry_kind *kind, bool look,
                              struct slice id) {
    struct worker *worker = request->worker;
    if (!request->requester || request->region || !rpc_has_copy(worker->server->env.rpc)) return true;
    int error = rpc_may_renew(worker->reader, request->requester, kind, id, look);
    if (error) http_reply_text(request, reply_status(error), "%s", rpc_denial(worker->reader));
    return !error;
}

void http_renew(struct http_request *request, const struct expiry_kind *kind, bool look, struct slice id,
                http_renewed view) {
    struct renewing *renewing = arena_zalloc(&request->arena, sizeof *renewing);
    if (http_env(request)->audit && !audit_admit(request)) return;
    if (!renewal_permitted(request, kind, look, id)) return;
    if (id.size >= sizeof renewing->rpc.id) {
        view(request, CO_NOTFOUND, &renewing->rpc);
        return;
    }
    renewing->rpc.kind = kind->number;
    renewing->rpc.look = look;
    memcpy(renewing->rpc.id, id.data, id.size);
    renewing->request = request;
    renewing->rpc.requester = request->requester; /* which lives as long as the request */
    renewing->view = view;
    renewing->rpc.done = renew_done;
    request->operation = &renewing->operation;
    request->busy = true;
    request->post.taken = renewed;
    request->post.bulk = false;
    http_region_name(request, renewing->rpc.region);
    rpc_renew(http_env(request)->rpc, &renewing->rpc);
}

/* ---- calls ---- */

struct calling {
    struct operation operation;
    struct http_call *call;
};

static void called(void *taker, struct post *post) {
    struct worker *worker = taker;
    struct http_request *request = CONTAINER_OF(post, struct http_request, post);
    struct http_call *call = CONTAINER_OF(request->operation, struct calling, operation)->call;
    bool gone = request->stage == REQUEST_ORPHAN || request->stage == REQUEST_ABORT;
    if (gone && call->drop) call->drop(call, call->error);
    struct connection *connection = operation_over(worker, request);
    if (!connection || gone) return;
    call->view(request, call, call->error);
    request_next(connection, request);
}

void http_call(struct http_request *request, struct http_call *call) {
    struct calling *calling = arena_zalloc(&request->arena, sizeof *calling);
    calling->call = call;
    call->request = request;
    request->operation = &calling->operation;
    request->busy = true;
    request->post.taken = called;
    request->post.bulk = false;
}

void http_uncall(struct http_request *request) {
    CHECK(request->busy && request->post.taken == called);
    request->operation = NULL;
    request->busy = false;
}

void http_called(struct http_call *call, int error) {
    call->error = error;
    worker_post(call->request->worker, &call->request->post);
}

/* ---- tickets ---- */

static void ticket_leave(struct http_ticket *ticket) {
    timer_clear(ticket->worker, &ticket->timer);
    watch_leave(ticket->request);
    ticket->request->operation = NULL;
    ticket->request = NULL;
}

static void ticket_taken(void *taker, struct post *post) {
    struct worker *worker = taker;
    struct http_ticket *ticket = CONTAINER_OF(post, struct http_ticket, post);
    struct http_request *request = ticket->request;
    if (request) {
        ticket_leave(ticket);
        ticket->view(request, ticket->error);
    }
    worker->tickets--;
    free(ticket);
}

static void ticket_due(struct worker *worker, struct timer *timer) {
    (void)worker;
    struct http_ticket *ticket = CONTAINER_OF(timer, struct http_ticket, timer);
    struct http_request *request = ticket->request;
    ticket_leave(ticket);
    ticket->view(request, CO_TIMEOUT);
}

static void ticket_end(struct http_request *request) {
    ticket_leave(CONTAINER_OF(request->operation, struct http_ticket, operation));
}

static void ticket_hurry(struct http_request *request) {
    ticket_due(request->worker, &CONTAINER_OF(request->operation, struct http_ticket, operation)->timer);
}

struct http_ticket *http_defer(struct http_request *request, uint64_t wait_ms,
                               void (*view)(struct http_request *request, int error)) {
    struct worker *worker = request->worker;
    struct http_ticket *ticket = mem_zalloc(sizeof *ticket);
    ticket->operation = (struct operation){ticket_end, ticket_hurry};
    ticket->post.taken = ticket_taken;
    ticket->worker = worker;
    ticket->request = request;
    ticket->view = view;
    request->operation = &ticket->operation;
    worker->tickets++;
    timer_set(worker, &ticket->timer, worker->now_ms + wait_ms, ticket_due);
    /* A hang-up ends only reads: a request that changes something is answered, because the client may only have ended
     * its sending. */
    if (request->method & (HTTP_GET | HTTP_HEAD)) connection_watch(request->connection);
    return ticket;
}

void http_deferred(struct http_ticket *ticket, int error) {
    ticket->error = error;
    worker_post(ticket->worker, &ticket->post);
}

/* ---- looking again ---- */

struct looking {
    struct operation operation;
    struct timer timer;
    struct http_request *request;
    uint64_t began_ms;
    void (*view)(struct http_request *request, uint64_t waited_ms);
};

static void look_end(struct http_request *request) {
    timer_clear(request->worker, &CONTAINER_OF(request->operation, struct looking, operation)->timer);
}

static void look_due(struct worker *worker, struct timer *timer) {
    struct looking *looking = CONTAINER_OF(timer, struct looking, timer);
    uint64_t waited_ms = worker->stop ? UINT64_MAX : worker->now_ms - looking->began_ms;
    looking->view(looking->request, waited_ms);
}

static void look_hurry(struct http_request *request) {
    struct timer *timer = &CONTAINER_OF(request->operation, struct looking, operation)->timer;
    timer_clear(request->worker, timer);
    look_due(request->worker, timer);
}

void http_look_again(struct http_request *request, uint64_t wait_ms,
                     void (*view)(struct http_request *request, uint64_t waited_ms)) {
    struct worker *worker = request->worker;
    struct looking *looking;
    if (request->operation) {
        looking = CONTAINER_OF(request->operation, struct looking, operation);
    } else {
        looking = arena_zalloc(&request->arena, sizeof *looking);
        *looking =
            (struct looking){.operation = {look_end, look_hurry}, .request = request, .began_ms = worker->now_ms};
        request->operation = &looking->operation;
    }
    looking->view = view;
    timer_set(worker, &looking->timer, worker->now_ms + wait_ms, look_due);
    connection_watch(request->connection);
}
