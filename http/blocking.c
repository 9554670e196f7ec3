/* Reads of the replicated state: the owner of the read engine (rpc/reads/read.h) on a worker's thread. Its answers are
 * whole HTTP bodies, kept by the worker's cache; its posts come through the worker's mailbox, its deadlines are in the
 * worker's timer heap, and waiting connections are watched for hang-ups.
 *
 * When a confirmation fails because this server's disk is full and it is behind, the read goes on as in a process
 * without a copy: rpc asks the leader (remote.c). */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/message.h"
#include "base/wakeup_batch.h"
#include "http/impl.h"

#define ANSWERS_MOST \
    (512u << 20) /* bytes of answers under way, so that clients that never read cannot fill the memory */

struct reading {
    struct http_request *request;
    struct read read;
    const struct query_type *type;
    const ProtobufCMessage *message;
    http_view view;
    struct depends depends;
    enum consistency consistency;
    bool fast;            /* of reading_fast: it waits only for a confirmation */
    int64_t max_stale_ns; /* 0: no bound */
    const void *context;
    void (*confirmed)(struct http_request *request, int error); /* of http_confirm; then it is no read */
    uint64_t wait_ms;
    struct timer timer;
};

static struct rpc *rpc_of(const struct http_request *request) { return request->worker->server->env.rpc; }
static struct reading *reading_of(const struct read *read) { return CONTAINER_OF(read, struct reading, read); }
static struct answer *answer_of(struct read_answer *answer) { return CONTAINER_OF(answer, struct answer, read); }

static struct reading *reading_new(struct http_request *request) {
    struct reading *reading = arena_zalloc(&request->arena, sizeof *reading);
    reading->request = request;
    read_init(&reading->read, &request->worker->engine);
    reading->read.requester = request->requester;
    request->reading = reading;
    return reading;
}

/* ---- one read ---- */

/* An answer of the text that was written to http_out. */
static struct answer *answer_made(struct http_request *request, enum consistency consistency, struct depends depends,
                                  uint64_t index) {
    struct buffer *body = &request->output->out;
    struct answer *answer = answer_new();
    if (request->pretty && !request->raw && body->size) buffer_append_byte(body, '\n');
    answer->key = request->key;
    answer->key_hash = request->key_hash;
    answer->route = request->route;
    answer->consistency = consistency;
    answer->cached_asked = http_has(request, "cached");
    answer->depends = depends;
    answer->read.index = index;
    answer->content_type = request_content_type(request);
    answer->headers = request->headers;
    answer->plain = bytes_take(body);
    answer->read.size = answer->plain->size;
    return answer;
}

static int answer_write(void *data, const struct query_result *result, struct read_answer **out) {
    struct http_request *request = data;
    const struct reading *reading = request->reading;
    request->content_type = NULL;
    request->headers = NULL; /* forgets those of an earlier run of the view */
    http_out(request);
    int status = reading->view(request, result);
    struct answer *answer = answer_made(request, reading->consistency, reading->depends, result->index);
    answer->read.tag = (uint32_t)status;
    answer->bounded = reading->max_stale_ns > 0;
    *out = &answer->read;
    return CO_OK;
}

static int run(struct http_request *request, struct rpc_reader *reader, struct arena *arena, size_t limit,
               struct read_answer **answer) {
    const struct reading *reading = request->reading;
    if (bytes_held() > ANSWERS_MOST) return CO_BUSY;
    return read_run(&request->worker->engine, reader, arena, reading->type, reading->message, request->requester, limit,
                    answer_write, request, answer);
}

static int on_run(struct read *read, size_t limit, struct read_answer **answer) {
    struct http_request *request = reading_of(read)->request;
    return run(request, request->worker->reader, &request->worker->scratch, limit, answer);
}

static struct depends on_depends(struct read *read) { return reading_of(read)->depends; }

static struct read_answer *on_find(struct read *read, uint64_t generation, uint64_t view) {
    const struct reading *reading = reading_of(read);
    struct worker *worker = reading->request->worker;
    struct answer *answer = cache_find(worker->cache, reading->request->key, reading->request->key_hash, view);
    if (answer && answer->read.generation == generation && answer->consistency == reading->consistency) {
        worker->tally.cache_hits++;
        return &answer->read;
    }
    if (answer) cache_drop(worker->cache, answer);
    worker->tally.cache_misses++;
    return NULL;
}

static void on_keep(struct read_engine *engine, struct read_answer *read) {
    struct answer *answer = answer_of(read);
    if (depends_generation(engine->rpc, &answer->depends) == read->generation)
        cache_offer(CONTAINER_OF(engine, struct worker, engine)->cache, answer);
}

static void on_drop(struct read_answer *answer) {
    if (!answer_of(answer)->kept) ready_answer_free(answer_of(answer));
}

static const uint8_t *on_digest(struct read_answer *answer) { return bytes_digest(answer_of(answer)->plain); }

/* ---- large reads: by a copy of the request, made from target and method alone, which is all that a view may depend
 * on (http.h) ---- */

struct build {
    struct read_build read;
    struct http_request *copy;
};

static struct read_build *on_build_new(struct read *read) {
    const struct reading *from = reading_of(read);
    struct build *build = mem_zalloc(sizeof *build);
    struct http_request *copy = build->copy = request_copy(from->request);
    copy->requester = requester_keep(from->request->requester);
    struct reading *reading = reading_new(copy);
    ProtobufCMessage *message = message_copy(&copy->arena, from->message);
    reading->type = from->type;
    reading->message = message;
    reading->view = from->view;
    reading->consistency = from->consistency;
    reading->max_stale_ns = from->max_stale_ns;
    reading->depends = depends_of(reading->type, message);
    return &build->read;
}

static const struct http_request *copy_of(const struct read_build *build) {
    return CONTAINER_OF((struct read_build *)(uintptr_t)build, struct build, read)->copy;
}

static bool on_build_like(const struct read_build *build, const struct read *read) {
    const struct http_request *copy = copy_of(build), *request = reading_of(read)->request;
    return copy->key_hash == request->key_hash && copy->reading->consistency == request->reading->consistency &&
           slice_equal(copy->key, request->key) && requester_equal(copy->requester, request->requester);
}

/* The large reads' thread. */
static int on_build_run(struct read_build *read, struct rpc_reader *reader, struct arena *arena,
                        struct read_answer **answer) {
    struct http_request *copy = CONTAINER_OF(read, struct build, read)->copy;
    struct output output = {0};
    copy->output = &output;
    int error = run(copy, reader, arena, 0, answer);
    buffer_free(&output.out);
    return error;
}

static void on_build_free(struct read_build *read) {
    struct build *build = CONTAINER_OF(read, struct build, read);
    request_copy_free(build->copy);
    free(build);
}

/* ---- the end of a read ---- */

static void fail(struct http_request *request, int error) {
    const char *denial = request->reading->read.engine->denial;
    reading_end(request);
    if (error == CO_DENIED || error == CO_NOTOKEN || error == CO_NOTREADY) {
        http_reply_text(request, reply_status(error), "%s", denial);
    } else if (error == CO_BUSY) {
        http_reply_text(request, 503, "answers that clients have not taken yet hold more than %u MiB, try again later",
                        ANSWERS_MOST >> 20);
    } else {
        http_reply_read_error(request, error, NULL);
    }
}

static void on_fail(struct read *read, int error) {
    struct reading *reading = reading_of(read);
    struct http_request *request = reading->request;
    struct worker *worker = request->worker;
    uint64_t wait_ms = reading->wait_ms;
    if (error != CO_DISKFULL || worker->stop) {
        fail(request, error);
        return;
    }
    /* Another server waits for the rest of the time. */
    if (read->parked)
        wait_ms = reading->timer.at_ms > worker->now_ms && !read->expired ? reading->timer.at_ms - worker->now_ms : 1;
    reading_end(request);
    remote_read(request, &(struct http_remote){reading->type, reading->message, reading->view, reading->consistency,
                                               reading->max_stale_ns > 0, read->index, wait_ms, reading->context});
}

static void on_answer(struct read *read, struct read_answer *answer, uint64_t least) {
    struct http_request *request = reading_of(read)->request;
    bool woken = read->parked && !read->expired && answer->index > read->index;
    reading_end(request);
    answer_send(request, answer_of(answer), least, woken);
}

/* ---- waiting ---- */

static void on_expired(struct worker *worker, struct timer *timer) {
    (void)worker;
    read_expired(&CONTAINER_OF(timer, struct reading, timer)->read);
}

static bool on_park(struct read *read) {
    struct reading *reading = reading_of(read);
    struct http_request *request = reading->request;
    struct worker *worker = request->worker;
    const char *refusal = watch_enter(request);
    if (refusal) {
        reading_end(request);
        watch_refuse(request, refusal);
        return false;
    }
    worker->tally.parked++;
    uint64_t jitter_ms = rng_below(&worker->rng, reading->wait_ms / 16 + 1);
    timer_set(worker, &reading->timer, worker->now_ms + reading->wait_ms + jitter_ms, on_expired);
    connection_watch(request->connection);
    return true;
}

static void on_unpark(struct read *read) {
    struct http_request *request = reading_of(read)->request;
    struct worker *worker = request->worker;
    timer_clear(worker, &reading_of(read)->timer);
    watch_leave(request);
    worker->tally.parked--;
}

static void woken(void *taker, struct post *post) {
    struct worker *worker = taker;
    struct http_request *request = CONTAINER_OF(post, struct http_request, post);
    atomic_store_explicit(&request->mailed, false, memory_order_relaxed);
    if (request->stage == REQUEST_ORPHAN) {
        worker->orphans--;
        request_free(request);
        return;
    }
    if (request->reading) read_fired(&request->reading->read);
}

/* Applier thread. */
static void on_fired(struct watch_waiter *waiter) {
    struct http_request *request = reading_of(CONTAINER_OF(waiter, struct read, waiter))->request;
    atomic_store_explicit(&request->mailed, true, memory_order_relaxed);
    request->post.taken = woken;
    request->post.bulk = true;
    worker_post(request->worker, &request->post);
}

/* A waiting connection is watched for hang-ups. */
static void on_waits(struct read *read) { connection_watch(reading_of(read)->request->connection); }

static void on_post(struct read_engine *engine, struct post *post) {
    worker_post(CONTAINER_OF(engine, struct worker, engine), post);
}

/* ?max_stale bounds ?stale: when this server is staler, or has not heard from a leader since it started, the read is
 * confirmed by the leader. So are all such reads of a client agent or of another region, because there the staleness of
 * the answer is not known. */
static void bound_staleness(struct http_request *request) {
    struct reading *reading = request->reading;
    if (reading->consistency != CONSISTENCY_STALE || reading->max_stale_ns == 0) return;
    struct rpc_status status;
    rpc_status(rpc_of(request), &status);
    if (!rpc_has_copy(rpc_of(request)) || request->region || !status.leader_heard ||
        status.last_contact_ms > (uint64_t)reading->max_stale_ns / 1000000)
        reading->consistency = CONSISTENCY_LEADER;
}

static bool on_stale(struct read *read) {
    bound_staleness(reading_of(read)->request);
    return reading_of(read)->consistency == CONSISTENCY_STALE;
}

static void fast_confirmed(struct http_request *request, int error);
static void only_confirmed(struct http_request *request, int error);

static void on_confirmed(struct read *read, int error) {
    struct http_request *request = reading_of(read)->request;
    struct connection *connection = request->connection;
    if (reading_of(read)->fast) fast_confirmed(request, error);
    else if (reading_of(read)->confirmed) only_confirmed(request, error);
    else read_confirmed(read, error);
    request_next(connection, request);
}

const struct read_owner http_reads = {.post = on_post,
                                      .depends = on_depends,
                                      .stale = on_stale,
                                      .confirmed = on_confirmed,
                                      .waits = on_waits,
                                      .park = on_park,
                                      .unpark = on_unpark,
                                      .fired = on_fired,
                                      .answer = on_answer,
                                      .fail = on_fail,
                                      .find = on_find,
                                      .run = on_run,
                                      .keep = on_keep,
                                      .drop = on_drop,
                                      .digest = on_digest,
                                      .build_new = on_build_new,
                                      .build_like = on_build_like,
                                      .build_run = on_build_run,
                                      .build_free = on_build_free};

/* ---- from outside ---- */

static bool options_parse(struct http_request *request, struct reading *reading) {
    bool stale = http_has(request, "stale"), consistent = http_has(request, "consistent");
    if (stale && consistent) {
        http_reply_text(request, 400, "Cannot specify ?stale with ?consistent, conflicting semantics.");
        return false;
    }
    reading->consistency = stale ? CONSISTENCY_STALE : consistent ? CONSISTENCY_CONSISTENT : CONSISTENCY_LEADER;
    int64_t wait_ns = 0, max_stale_ns = 0;
    if (!http_parameter_u64(request, "index", &reading->read.index) ||
        !http_parameter_duration(request, "wait", &wait_ns) ||
        !http_parameter_duration(request, "max_stale", &max_stale_ns)) {
        return false;
    }
    if (stale && max_stale_ns > 0) {
        reading->max_stale_ns = max_stale_ns;
        bound_staleness(request);
    }
    const struct http_config *config = &request->worker->server->config;
    uint64_t most_ms = config->wait_max_ms;
    reading->wait_ms = wait_ns ? ((uint64_t)wait_ns + 999999) / 1000000 : config->wait_default_ms;
    if (reading->wait_ms > most_ms) reading->wait_ms = most_ms;
    return true;
}

static void read_as(struct http_request *request, const struct query_type *type, const ProtobufCMessage *message,
                    http_view view, bool fresh, const void *context) {
    bool confirmed = request->confirmed;
    struct reading *reading = reading_new(request);
    /* The answer of a write is not kept, because the cache key has no method, and a GET of the same path is another
     * request. */
    reading->read.alone = fresh || !(request->method & (HTTP_GET | HTTP_HEAD));
    reading->context = context;
    reading->type = type;
    reading->message = message;
    reading->view = view;
    reading->depends = depends_of(type, message);
    request->key_hash = hash64(request->key.data, request->key.size);
    if (!options_parse(request, reading)) return;
    if (!rpc_has_copy(rpc_of(request)) || request->region) {
        request->reading = NULL;
        remote_read(request, &(struct http_remote){type, message, view, reading->consistency, reading->max_stale_ns > 0,
                                                   reading->read.index, reading->wait_ms, context});
        return;
    }
    read_begin(&reading->read, confirmed);
}

void http_read(struct http_request *request, const struct query_type *type, const ProtobufCMessage *message,
               http_view view) {
    read_as(request, type, message, view, false, NULL);
}

void http_read_fresh(struct http_request *request, const struct query_type *type, const ProtobufCMessage *message,
                     http_view view, const void *context) {
    read_as(request, type, message, view, true, context);
}

void http_set_context(struct http_request *request, const void *context) { request->context = context; }

const void *http_context(const struct http_request *request) {
    return request->reading ? request->reading->context : request->context;
}

static void only_confirmed(struct http_request *request, int error) {
    void (*view)(struct http_request * request, int error) = request->reading->confirmed;
    request->reading = NULL;
    view(request, error);
}

void http_confirm(struct http_request *request, void (*view)(struct http_request *request, int error)) {
    bool asks = rpc_has_copy(rpc_of(request)) && !http_has(request, "stale");
    struct reading *reading = reading_new(request);
    reading->confirmed = view;
    int error = asks ? read_confirm(&reading->read) : rpc_serves(rpc_of(request));
    if (error != CO_AGAIN) only_confirmed(request, error);
}

void http_reply_confirmed(struct http_request *request, const struct query_type *type, const ProtobufCMessage *message,
                          uint64_t index) {
    struct read_engine *engine = &request->worker->engine;
    struct depends depends = depends_of(type, message);
    enum consistency consistency = http_has(request, "stale") ? CONSISTENCY_STALE : CONSISTENCY_LEADER;
    struct answer *answer = answer_made(request, consistency, depends, index);
    answer->read.tag = 200;
    answer_send(request, answer, read_index_least(engine, &depends, depends_generation(engine->rpc, &depends)), false);
    ready_answer_free(answer);
}

static bool fast_send(struct http_request *request) {
    struct worker *worker = request->worker;
    const struct access *access;
    if (rpc_access(worker->reader, request->requester, &access) != CO_OK) return false;
    struct answer *answer = cache_find(worker->cache, request->target, request->key_hash, access_view(access));
    if (!answer || answer->read.generation != depends_generation(rpc_of(request), &answer->depends)) return false;
    if (rpc_serves(rpc_of(request)) != CO_OK) return false;
    worker->tally.cache_hits++;
    answer_send(request, answer, read_index_least(&worker->engine, &answer->depends, answer->read.generation), false);
    return true;
}

static void fast_confirmed(struct http_request *request, int error) {
    request->reading = NULL;
    if (error && error != CO_DISKFULL) {
        http_reply_read_error(request, error, NULL);
        return;
    }
    request->confirmed = !error; /* if not, the handler reads again, and handles the error */
    if (error || !fast_send(request)) request_run_parsed(request);
}

bool reading_fast(struct http_request *request) {
    const struct access *access;
    if (!rpc_has_copy(rpc_of(request)) || rpc_access(request->worker->reader, request->requester, &access))
        return false;
    request->key_hash = hash64(request->target.data, request->target.size);
    struct answer *answer = cache_find(request->worker->cache, request->target, request->key_hash, access_view(access));
    if (!answer || answer->bounded) return false;
    if (answer->consistency != CONSISTENCY_STALE) {
        struct reading *reading = reading_new(request);
        reading->fast = true;
        int error = read_confirm(&reading->read);
        if (error == CO_AGAIN) return true;
        request->reading = NULL;
        if (error) return false;
        request->confirmed = true;
    }
    return fast_send(request);
}

bool reading_confirms(const struct http_request *request) {
    return request->reading && read_is_confirming(&request->reading->read);
}

void reading_end(struct http_request *request) {
    struct reading *reading = request->reading;
    if (!reading) return;
    request->reading = NULL;
    read_end(&reading->read);
}

void reading_hurry(struct http_request *request) {
    if (request->reading) read_hurry(&request->reading->read);
}
