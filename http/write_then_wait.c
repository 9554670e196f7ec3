/* Write, then wait: a command, or none, and then reads of a query until something holds (http.h). rpc_fetch does the
 * reads and the waiting, on servers and client agents alike. Only a change of the thing that is read wakes a request.
 *
 *     write --done--> FETCHING --holds, or time is up--> replied
 *                       ^  |--changed, does not hold yet: the next, from its index on
 *                       '--'--no leader, a lost server: PAUSING, then from the beginning
 *
 * The command is never sent again. A client that hangs up while it waits ends the wait at once; the effect of the
 * command stays, until its session ends.
 *
 * A session that the request made is renewed three times in each TTL while the client waits, because nobody else knows
 * of it yet. */
#include <stdlib.h>

#include "http/impl.h"
#include "kv/session/session.h"

#define PAUSE_MS 100 /* after a read that failed */

/* Of the request's session. The loop thread owns `rpc` while `busy`. */
struct renewals {
    struct timer timer;
    struct post post;
    struct rpc_renew rpc;
    bool busy;
    int error;
    uint64_t sent_ms;
};

struct waiting {
    struct operation operation;
    struct post post;
    struct timer pause;
    struct renewals renewals;
    struct worker *worker;
    struct requester *requester;
    struct http_request *request; /* NULL: nobody waits any more; freed once nothing is on its way */
    struct http_wait wait;
    const ProtobufCMessage *message; /* of the query; in the request's arena */
    uint64_t deadline_ms;
    bool fetching, hurried;
    struct rpc_fetch fetch;
    uint64_t index; /* of the last result; 0: there was none, or it must not be used any more */
    int error;
    struct rpc_fetched fetched; /* a copy */
};

static void waiting_free(struct waiting *waiting) {
    if (waiting->fetching || waiting->renewals.busy) return; /* the last of them frees it */
    waiting->worker->tickets--;
    fetched_free(&waiting->fetched);
    requester_release(waiting->requester);
    free(waiting);
}

static struct waiting *waiting_of(struct http_request *request) {
    return CONTAINER_OF(request->operation, struct waiting, operation);
}

/* Separates the waiting from its request. */
static struct http_request *leave(struct waiting *waiting) {
    struct http_request *request = waiting->request;
    timer_clear(waiting->worker, &waiting->pause);
    timer_clear(waiting->worker, &waiting->renewals.timer);
    request->operation = NULL;
    waiting->request = NULL;
    return request;
}

/* -- renewing the session ----------------------------------------------------------------------------------------- */
static void renew_due(struct worker *worker, struct timer *timer);

static void renew_later(struct waiting *waiting) {
    const struct granted *granted = &waiting->request->granted;
    if (granted->session)
        timer_set(waiting->worker, &waiting->renewals.timer,
                  waiting->worker->now_ms + (uint64_t)granted->ttl_ns / 3000000, renew_due);
}

/* Loop thread. */
static void renew_done(struct rpc_renew *rpc, int error) {
    struct renewals *renewals = CONTAINER_OF(rpc, struct renewals, rpc);
    renewals->error = error;
    worker_post(CONTAINER_OF(renewals, struct waiting, renewals)->worker, &renewals->post);
}

/* A failed renewal is ignored, because the read tells when the session has ended. */
static void renew_taken(void *taker, struct post *post) {
    struct renewals *renewals = CONTAINER_OF(post, struct renewals, post);
    struct waiting *waiting = CONTAINER_OF(renewals, struct waiting, renewals);
    (void)taker;
    renewals->busy = false;
    if (!waiting->request) {
        waiting_free(waiting);
        return;
    }
    if (renewals->error == CO_OK) waiting->request->granted.since_ms = renewals->sent_ms;
    renew_later(waiting);
}

static void renew_due(struct worker *worker, struct timer *timer) {
    struct renewals *renewals = CONTAINER_OF(timer, struct renewals, timer);
    struct waiting *waiting = CONTAINER_OF(renewals, struct waiting, renewals);
    const char *id = waiting->request->granted.session;
    CHECK(strlen(id) < sizeof renewals->rpc.id);
    renewals->rpc =
        (struct rpc_renew){.done = renew_done, .kind = session_expiry.number, .requester = waiting->requester};
    memcpy(renewals->rpc.id, id, strlen(id) + 1);
    http_region_name(waiting->request, renewals->rpc.region);
    renewals->busy = true;
    renewals->sent_ms = worker->now_ms;
    renewals->post.taken = renew_taken;
    rpc_renew(worker->server->env.rpc, &renewals->rpc);
}

/* -- reading ------------------------------------------------------------------------------------------------------ */
/* Another thread. */
static void fetch_done(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched) {
    struct waiting *waiting = CONTAINER_OF(fetch, struct waiting, fetch);
    waiting->error = error;
    if (!error) fetched_copy(&waiting->fetched, fetched);
    worker_post(waiting->worker, &waiting->post);
}

static uint64_t left_ms(const struct waiting *waiting) {
    uint64_t now_ms = waiting->worker->now_ms;
    return now_ms < waiting->deadline_ms && !waiting->hurried ? waiting->deadline_ms - now_ms : 0;
}

static void fetch(struct waiting *waiting) {
    fetched_free(&waiting->fetched);
    waiting->fetching = true;
    waiting->fetch = (struct rpc_fetch){.type = waiting->wait.query,
                                        .freshness = RPC_DEFAULT,
                                        .no_cache = true, /* an earlier answer does not include the write */
                                        .index = left_ms(waiting) ? waiting->index : 0,
                                        .wait_ms = left_ms(waiting),
                                        .requester = waiting->requester,
                                        .done = fetch_done};
    http_region_name(waiting->request, waiting->fetch.region);
    rpc_fetch(waiting->worker->server->env.rpc, &waiting->fetch, waiting->message);
}

static void pause_over(struct worker *worker, struct timer *timer) {
    (void)worker;
    fetch(CONTAINER_OF(timer, struct waiting, pause));
}

/* -- answers ------------------------------------------------------------------------------------------------------ */
/* May another leader, or another server, answer soon? */
static bool may_come_back(int error) {
    return error == CO_NOLEADER || error == CO_TIMEOUT || error == CO_FENCED || error == CO_DISKFULL ||
           error == CO_BUSY;
}

static void reply(struct waiting *waiting, const struct query_result *result, bool holds) {
    void (*view)(struct http_request *, const struct query_result *, bool) = waiting->wait.reply;
    struct http_request *request = leave(waiting);
    view(request, result, holds);
    waiting_free(waiting);
}

static void fail(struct waiting *waiting, int error) {
    struct http_request *request = leave(waiting);
    http_reply_read_error(request, error, NULL);
    waiting_free(waiting);
}

static void step(struct waiting *waiting) {
    struct query_result result;
    uint64_t left = left_ms(waiting);
    int error = waiting->error ? waiting->error
                               : fetched_result(&waiting->fetched, waiting->wait.query, waiting->message,
                                                &waiting->request->arena, &result);
    if (error && left && may_come_back(error)) {
        waiting->index = 0;
        timer_set(waiting->worker, &waiting->pause, waiting->worker->now_ms + (left < PAUSE_MS ? left : PAUSE_MS),
                  pause_over);
        return;
    }
    if (error) {
        fail(waiting, error);
        return;
    }
    waiting->index = result.index;
    bool holds = waiting->wait.holds(waiting->request, &result);
    if (holds || !left) reply(waiting, &result, holds);
    else fetch(waiting);
}

static void taken(void *taker, struct post *post) {
    struct waiting *waiting = CONTAINER_OF(post, struct waiting, post);
    (void)taker;
    waiting->fetching = false;
    if (waiting->request) step(waiting);
    else waiting_free(waiting);
}

/* -- the request -------------------------------------------------------------------------------------------------- */
static void wait_end(struct http_request *request) {
    struct waiting *waiting = waiting_of(request);
    (void)leave(waiting);
    if (waiting->fetching) rpc_fetch_cancel(waiting->worker->server->env.rpc, &waiting->fetch);
    waiting_free(waiting);
}

/* The server stops: ends the wait with the present result, or an error. */
static void wait_hurry(struct http_request *request) {
    struct waiting *waiting = waiting_of(request);
    waiting->hurried = true;
    if (waiting->fetching) rpc_fetch_cancel(waiting->worker->server->env.rpc, &waiting->fetch);
    else fail(waiting, CO_CLOSED);
}

/* `index`: the state as of which it does not hold; 0: not known. */
static void wait_from(struct http_request *request, const struct http_wait *wait, const ProtobufCMessage *message,
                      uint64_t index) {
    struct worker *worker = request->worker;
    struct waiting *waiting = mem_zalloc(sizeof *waiting);
    waiting->operation = (struct operation){wait_end, wait_hurry};
    waiting->post.taken = taken;
    waiting->worker = worker, waiting->request = request;
    waiting->requester = requester_keep(request->requester);
    waiting->wait = *wait, waiting->message = message;
    waiting->deadline_ms = worker->now_ms + wait->wait_ms;
    waiting->index = index;
    request->operation = &waiting->operation;
    request->context = message;
    worker->tickets++;
    connection_watch(request->connection);
    renew_later(waiting);
    fetch(waiting);
}

void http_wait_for(struct http_request *request, const struct http_wait *wait, const ProtobufCMessage *message) {
    wait_from(request, wait, message, 0);
}

bool http_waits(const struct http_request *request) {
    return ((const struct http_wait *)request->context)->wait_ms > 0;
}

static void written(struct http_request *request, const struct machine_result *result) {
    const struct http_wait *wait = request->context;
    const ProtobufCMessage *message = wait->ask(request, result);
    if (message) wait_from(request, wait, message, wait->after_write ? result->index : 0);
}

void http_write_then_wait(struct http_request *request, uint8_t command, const ProtobufCMessage *message,
                          const struct http_wait *wait) {
    struct http_wait *copy = arena_alloc(&request->arena, sizeof *copy);
    *copy = *wait;
    request->context = copy;
    http_write(request, command, message, written);
}
