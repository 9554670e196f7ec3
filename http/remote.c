/* Reads of a process that has no copy of the state, or whose copy is behind while its disk is full. rpc_fetch asks a
 * server, and waits for changes too; the same views write the answer. Nothing is kept here: the server's answer is as
 * fresh as the request demands, and while no server can be reached rpc returns its last answer, with its age; then
 * ?consistent is an error, as in Consul.
 *
 *     remote_read -> fetched -> answered
 *          '--client gone, server stops: cancelled--> freed when the fetch ends */
#include <stdlib.h>

#include "http/impl.h"

/* A server that has not answered by then is taken to wait for a change: only it knows. */
#define PARKS_MS 250

struct remote {
    struct operation operation;
    struct post post;
    struct timer parks;
    struct worker *worker;
    struct http_request *request; /* NULL: nobody waits any more */
    struct http_remote read;
    struct rpc_fetch fetch;
    int error;
    struct rpc_fetched fetched; /* a copy */
};

static void remote_free(struct remote *remote) {
    remote->worker->tickets--;
    fetched_free(&remote->fetched);
    requester_release(remote->fetch.requester);
    free((char *)(uintptr_t)remote->fetch.denial);
    free(remote);
}

/* Loop or another thread. */
static void fetch_done(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched) {
    struct remote *remote = CONTAINER_OF(fetch, struct remote, fetch);
    remote->error = error;
    if (fetch->denial) fetch->denial = mem_strdup(fetch->denial);
    if (!error) fetched_copy(&remote->fetched, fetched);
    worker_post(remote->worker, &remote->post);
}

static void put_headers(struct http_request *request, const struct remote *remote) {
    static const char *const names[] = {"leader", "stale", "consistent"};
    const struct rpc_fetched *fetched = &remote->fetched;
    if (http_has(request, "cached")) http_header(request, "X-Cache", "MISS");
    http_header(request, "X-Consul-Effective-Consistency",
                names[fetched->age_ms ? CONSISTENCY_STALE : remote->read.consistency]);
    http_header_u64(request, "X-Consul-Index", fetched->index);
    http_header(request, "X-Consul-KnownLeader", fetched->known_leader ? "true" : "false");
    http_header_u64(request, "X-Consul-LastContact", fetched->last_contact_ms);
    if (fetched->cause && fetched->cause[0]) http_header(request, "X-Coord-Cause", fetched->cause);
    if (fetched->hidden) http_header(request, "X-Consul-Results-Filtered-By-ACLs", "true");
    if (fetched->hidden) http_header_u64(request, "X-Coord-Filtered", fetched->hidden);
    if (fetched->age_ms) http_header_u64(request, "X-Coord-Age", (fetched->age_ms + 999) / 1000);
}

static void answer(struct http_request *request, const struct remote *remote) {
    struct query_result result;
    if (fetched_result(&remote->fetched, remote->read.type, remote->read.message, &request->arena, &result) != CO_OK) {
        http_reply_read_error(request, CO_CORRUPT, "what the server answered does not decode");
        return;
    }
    request->content_type = NULL;
    request->context = remote->read.context;
    http_out(request);
    struct buffer *out = &request->output->out;
    int status = remote->read.view(request, &result);
    if (request->pretty && !request->raw && out->size) buffer_append_byte(out, '\n');
    const char *content_type = request_content_type(request);
    put_headers(request, remote);
    request_answer_bytes(request, status, bytes_take(out), content_type);
}

/* Separates it from its request. */
static void remote_leave(struct remote *remote) {
    timer_clear(remote->worker, &remote->parks);
    watch_leave(remote->request);
    remote->request->operation = NULL;
    remote->request = NULL;
}

static void taken(void *taker, struct post *post) {
    struct remote *remote = CONTAINER_OF(post, struct remote, post);
    struct http_request *request = remote->request;
    (void)taker;
    if (request) {
        remote_leave(remote);
        if (remote->error) http_reply_read_error(request, remote->error, remote->fetch.denial);
        else answer(request, remote);
    }
    remote_free(remote);
}

static struct remote *remote_of(struct http_request *request) {
    return CONTAINER_OF(request->operation, struct remote, operation);
}

static void remote_end(struct http_request *request) {
    struct remote *remote = remote_of(request);
    remote_leave(remote);
    rpc_fetch_cancel(remote->worker->server->env.rpc, &remote->fetch);
}

static void remote_parks(struct worker *worker, struct timer *timer) {
    struct http_request *request = CONTAINER_OF(timer, struct remote, parks)->request;
    const char *refusal = watch_enter(request);
    (void)worker;
    if (!refusal) return;
    remote_end(request);
    watch_refuse(request, refusal);
}

static void remote_hurry(struct http_request *request) {
    rpc_fetch_cancel(request->worker->server->env.rpc, &remote_of(request)->fetch);
}

static enum rpc_freshness freshness_of(enum consistency consistency) {
    return consistency == CONSISTENCY_STALE        ? RPC_STALE
           : consistency == CONSISTENCY_CONSISTENT ? RPC_CONSISTENT
                                                   : RPC_DEFAULT;
}

void remote_read(struct http_request *request, const struct http_remote *read) {
    struct remote *remote = mem_zalloc(sizeof *remote);
    remote->operation = (struct operation){remote_end, remote_hurry};
    remote->post.taken = taken;
    remote->worker = request->worker;
    remote->request = request;
    remote->read = *read;
    remote->fetch.type = read->type;
    remote->fetch.freshness = freshness_of(read->consistency);
    remote->fetch.no_cache = read->bounded;
    http_region_name(request, remote->fetch.region);
    remote->fetch.requester = requester_keep(request->requester);
    remote->fetch.index = read->index;
    remote->fetch.wait_ms = read->wait_ms;
    remote->fetch.done = fetch_done;
    request->operation = &remote->operation;
    request->worker->tickets++;
    rpc_fetch(request->worker->server->env.rpc, &remote->fetch, read->message);
    if (!read->index) return;
    timer_set(remote->worker, &remote->parks, remote->worker->now_ms + PARKS_MS, remote_parks);
    connection_watch(request->connection);
}
