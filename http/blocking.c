/* Reads of the replicated state, at once or when something changes.
 *
 * (1) A parked read is in the watch table under its thing, in the worker's timer heap, and its client's hang-up is
 * watched for. (2) It was parked only after its thing's generation, taken before the read, was found unchanged after
 * it had entered the table: no change falls between reading and waiting. (3) It is armed before it is read again, so
 * a change after that read fires again. (4) An answer that equals, byte for byte, what the client has is not sent
 * while the wait lasts. (5) Where a confirmation ends since this server's disk is full and it is behind, the rest of
 * the read goes on as one of a process without a copy: rpc asks the leader.
 *
 *     http_read -> confirmed -> read -> newer than the client's index: answered
 *                                 '---> PARKED --fired--> confirmed -> read -> changed: answered, same:
 * PARKED
 *                                          '---time is up or the server stops--> confirmed -> read ->
 * answered */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/message.h"
#include "base/wakeup_batch.h"
#include "http/impl.h"

#define WALK_MOST    (1u << 20)   /* bytes of records that a worker reads at a time; more is for large.c */
#define ANSWERS_MOST (512u << 20) /* bytes of answers under way: clients that never read are not to fill the memory */

struct reading {
    struct http_request *request;
    const struct query_type *type;
    const ProtobufCMessage *message;
    http_view view;
    struct depends depends;
    enum consistency consistency;
    bool blocking, parked, expired;
    bool fresh;           /* not kept */
    int64_t max_stale_ns; /* 0: no bound */
    const void *context;
    uint64_t index, wait_ms;
    struct watch_waiter waiter;
    struct timer timer;
    struct confirm confirm;
    struct join join; /* waits for a build */
    bool again;       /* it changed meanwhile */
    int seen_status;  /* what the client has; 0: not known */
    size_t seen_size;
    uint8_t seen_digest[16];
};

static struct rpc *rpc_of(const struct http_request *request) { return request->worker->server->env.rpc; }

static uint64_t index_least(const struct http_request *request) {
    uint64_t floor = rpc_floor(rpc_of(request));
    return floor ? floor : 1;
}

/* Not when the thing has changed since it was read: a floor that rose with that change does not belong to this
 * answer. */
static uint64_t index_least_for(const struct http_request *request, const struct answer *answer) {
    uint64_t least = index_least(request);
    return depends_generation(rpc_of(request), &answer->depends) == answer->generation ? least : 1;
}

static struct reading *reading_new(struct http_request *request,
                                   void (*confirmed)(struct http_request *request, int error)) {
    struct reading *reading = arena_zalloc(&request->arena, sizeof *reading);
    reading->request = request;
    list_init(&reading->confirm.link);
    list_init(&reading->join.link);
    reading->confirm.request = reading->join.request = request;
    reading->confirm.done = confirmed;
    request->reading = reading;
    return reading;
}

static struct depends depends_of(const struct query_type *type, const ProtobufCMessage *message) {
    struct depends depends = {.thing = type->thing(message)};
    if (type->also) depends.also = type->also(message);
    return depends;
}

/* ---- one read ---- */

static struct answer *answer_write(struct http_request *request, const struct query_result *result) {
    struct buffer *out = &request->output->out;
    const struct reading *reading = request->reading;
    request->content_type = NULL;
    request->headers = NULL; /* of an earlier run of the view */
    http_out(request);
    struct answer *answer = answer_new();
    answer->status = reading->view(request, result);
    if (request->pretty && !request->raw && out->size) buffer_append_byte(out, '\n');
    answer->key = request->key;
    answer->key_hash = request->key_hash;
    answer->route = request->route;
    answer->consistency = reading->consistency;
    answer->bounded = reading->max_stale_ns > 0;
    answer->cached_asked = http_has(request, "cached");
    answer->depends = reading->depends;
    answer->index = result->index;
    answer->content_type = request_content_type(request);
    answer->headers = request->headers;
    answer->plain = bytes_take(out);
    return answer;
}

int reading_run(struct http_request *request, struct rpc_reader *reader, struct arena *scratch, size_t limit,
                struct answer **answer) {
    const struct reading *reading = request->reading;
    *answer = NULL;
    if (bytes_held() > ANSWERS_MOST) return CO_BUSY;
    wakeup_batch_flush(); /* it may take long */
    struct query_result result = {0};
    struct store_txn *txn = rpc_read_begin(reader);
    if (limit) store_read_limit(txn, limit);
    int error = reading->type->run(txn, reading->message, scratch, &result);
    if (limit && store_read_limit_hit(txn)) error = CO_AGAIN;
    /* Of the same transaction: after a restore the records' own indexes are older than those that clients have seen. */
    uint64_t floor = error ? 0 : machine_floor(txn);
    if (!error) error = store_txn_error(txn);
    if (result.index < floor) result.index = floor;
    if (!error) *answer = answer_write(request, &result);
    rpc_read_end(reader);
    arena_reset(scratch);
    if (error == CO_CORRUPT) rpc_met_damage(rpc_of(request));
    if (!error && rpc_serves(rpc_of(request)) != CO_OK) { /* fenced meanwhile */
        ready_answer_free(*answer);
        *answer = NULL;
        error = CO_FENCED;
    }
    return error;
}

void reading_copy(struct http_request *copy, const struct http_request *request) {
    const struct reading *from = request->reading;
    struct reading *reading = reading_new(copy, NULL);
    ProtobufCMessage *message = message_copy(&copy->arena, from->message);
    reading->type = from->type;
    reading->message = message;
    reading->view = from->view;
    reading->consistency = from->consistency;
    reading->max_stale_ns = from->max_stale_ns;
    reading->depends = depends_of(reading->type, message);
}

/* What one asked for answers the other, headers included. */
bool reading_like(const struct http_request *a, const struct http_request *b) {
    return a->reading->consistency == b->reading->consistency;
}

static void fail(struct http_request *request, int error) {
    reading_end(request);
    if (error == CO_BUSY) {
        http_reply_text(request, 503, "answers that clients have not taken yet hold more than %u MiB, try again later",
                        ANSWERS_MOST >> 20);
    } else {
        request_fail_read(request, error, NULL);
    }
}

/* Why a read was not confirmed: answered, or asked of another server for what is left of its wait. */
static void not_confirmed(struct http_request *request, int error) {
    struct reading *reading = request->reading;
    struct worker *worker = request->worker;
    uint64_t wait_ms = reading->wait_ms;
    if (reading->parked)
        wait_ms =
            reading->timer.at_ms > worker->now_ms && !reading->expired ? reading->timer.at_ms - worker->now_ms : 1;
    reading_end(request);
    if (error != CO_DISKFULL || worker->stop) {
        request_fail_read(request, error, NULL);
        return;
    }
    remote_read(request, &(struct http_remote){reading->type, reading->message, reading->view, reading->consistency,
                                               reading->max_stale_ns > 0, reading->index, wait_ms, reading->context});
}

static struct answer *obtain_fresh(struct http_request *request, uint64_t generation) {
    struct worker *worker = request->worker;
    struct answer *answer;
    int error = reading_run(request, worker->reader, &worker->scratch, 0, &answer);
    if (error) fail(request, error);
    else answer->generation = generation;
    return answer;
}

/* The present answer: kept, or written anew. NULL: an error, which has been answered, or it takes long and `later`
 * will be called. `generation` is that of the thing before the read. Give it back with `put_back`. */
static struct answer *obtain(struct http_request *request, uint64_t *generation,
                             void (*later)(struct http_request *request, int error, struct answer *answer)) {
    struct worker *worker = request->worker;
    struct reading *reading = request->reading;
    struct rpc *rpc = rpc_of(request);
    *generation = depends_generation(rpc, &reading->depends);
    if (rpc_serves(rpc) != CO_OK) {
        reading_end(request);
        request_fail_read(request, CO_FENCED, NULL);
        return NULL;
    }
    if (reading->fresh) return obtain_fresh(request, *generation);
    struct answer *answer = cache_find(worker->cache, request->key, request->key_hash);
    if (answer && answer->generation == *generation && answer->consistency == reading->consistency) {
        worker->tally.cache_hits++;
        return answer;
    }
    if (answer) cache_drop(worker->cache, answer);
    worker->tally.cache_misses++;
    reading->join.done = later;
    if (large_join(request, *generation, &reading->join)) {
        connection_watch(request->connection);
        return NULL;
    }
    int error = reading_run(request, worker->reader, &worker->scratch, WALK_MOST, &answer);
    if (error == CO_AGAIN) {
        if (large_start(request, *generation, &reading->join)) {
            connection_watch(request->connection); /* who hangs up is to be noticed */
            return NULL;
        }
        error = reading_run(request, worker->reader, &worker->scratch, 0, &answer);
    }
    if (error) {
        fail(request, error);
        return NULL;
    }
    answer->generation = *generation;
    if (depends_generation(rpc, &reading->depends) == *generation) cache_offer(worker->cache, answer);
    return answer;
}

static void put_back(struct answer *answer) {
    if (!answer->kept) ready_answer_free(answer);
}

static void send_answer(struct http_request *request, struct answer *answer) {
    reading_end(request);
    answer_send(request, answer, index_least_for(request, answer));
}

/* ---- waiting ---- */

static void fired(struct watch_waiter *waiter);
static void expired(struct worker *worker, struct timer *timer);

/* What the client has: what was read just now, if this server knew all up to the client's index. One that is behind,
 * as ?stale may find it, read what was before: when a thing is as it was again, to the client that is a change. */
static void remember(struct http_request *request, struct answer *answer) {
    struct reading *reading = request->reading;
    bool all = rpc_applied(rpc_of(request)) >= reading->index;
    if (!all || depends_generation(rpc_of(request), &reading->depends) != answer->generation) return;
    reading->seen_status = answer->status;
    reading->seen_size = answer->plain->size;
    memcpy(reading->seen_digest, bytes_digest(answer->plain), sizeof reading->seen_digest);
}

static bool seen_before(const struct reading *reading, struct answer *answer) {
    return reading->seen_status == answer->status && reading->seen_size == answer->plain->size &&
           memcmp(reading->seen_digest, bytes_digest(answer->plain), sizeof reading->seen_digest) == 0;
}

/* Enters the watch table. False: there are too many; answered. */
static bool park(struct http_request *request) {
    struct worker *worker = request->worker;
    struct reading *reading = request->reading;
    struct http_server *server = worker->server;
    if (atomic_fetch_add(&server->watches, 1) >= server->config.watches_max) {
        atomic_fetch_sub(&server->watches, 1);
        request->reading = NULL;
        http_reply_text(request, 429, "too many blocking queries (limit %llu)",
                        (unsigned long long)server->config.watches_max);
        return false;
    }
    reading->parked = true;
    worker->tally.parked++;
    watch_add(rpc_watches(server->env.rpc), &reading->waiter, reading->depends.thing, fired);
    uint64_t jitter_ms = rng_below(&worker->rng, reading->wait_ms / 16 + 1);
    timer_set(worker, &reading->timer, worker->now_ms + reading->wait_ms + jitter_ms, expired);
    return true;
}

/* Answers, unless the answer is none yet: false. */
static bool answer_again(struct http_request *request, struct answer *answer) {
    struct reading *reading = request->reading;
    bool older = answer->index <= reading->index, same = older || seen_before(reading, answer);
    if (older && !reading->seen_status) remember(request, answer);
    if (same && !reading->expired && !request->worker->stop) {
        request->worker->tally.unchanged++;
        return false;
    }
    send_answer(request, answer);
    return true;
}

/* ?max_stale bounds ?stale: beyond it, and before a leader was heard of in this life, the answer has to be the
 * newest. A client agent does not know how old a server's is. */
static void bound_staleness(struct http_request *request) {
    struct reading *reading = request->reading;
    if (reading->consistency != CONSISTENCY_STALE || reading->max_stale_ns == 0) return;
    struct rpc_status status;
    rpc_status(rpc_of(request), &status);
    if (!rpc_has_copy(rpc_of(request)) || !status.leader_heard ||
        status.last_contact_ms > (uint64_t)reading->max_stale_ns / 1000000)
        reading->consistency = CONSISTENCY_LEADER;
}

static void confirm_again(struct http_request *request);

static void built_again(struct http_request *request, int error, struct answer *answer) {
    struct reading *reading = request->reading;
    if (error) {
        fail(request, error);
    } else if (!answer_again(request, answer) && reading->again) {
        confirm_again(request);
    }
}

static void read_again(struct http_request *request, int error) {
    if (error) {
        not_confirmed(request, error);
        return;
    }
    uint64_t generation;
    struct answer *answer = obtain(request, &generation, built_again);
    if (!answer) return;
    answer_again(request, answer);
    put_back(answer);
}

static void confirm_again(struct http_request *request) {
    struct reading *reading = request->reading;
    reading->again = reading->join.build != NULL;
    if (reading->again) return; /* it is being read: that comes first */
    bound_staleness(request);
    if (reading->consistency == CONSISTENCY_STALE) {
        read_again(request, CO_OK);
        return;
    }
    if (!list_empty(&reading->confirm.link)) return; /* under way already */
    reading->confirm.done = read_again;
    int error = confirm_read(request->worker, &reading->confirm);
    if (error != CO_AGAIN) read_again(request, error);
}

static void woken(struct worker *worker, struct post *post) {
    struct http_request *request = CONTAINER_OF(post, struct http_request, post);
    atomic_store_explicit(&request->mailed, false, memory_order_relaxed);
    if (request->stage == REQUEST_ORPHAN) {
        worker->orphans--;
        request_free(request);
        return;
    }
    struct reading *reading = request->reading;
    if (!reading || !reading->parked) return;
    watch_arm(&reading->waiter);
    confirm_again(request);
}

/* Applier thread. */
static void fired(struct watch_waiter *waiter) {
    struct http_request *request = CONTAINER_OF(waiter, struct reading, waiter)->request;
    atomic_store_explicit(&request->mailed, true, memory_order_relaxed);
    request->post.taken = woken;
    request->post.bulk = true;
    worker_post(request->worker, &request->post);
}

static void expired(struct worker *worker, struct timer *timer) {
    (void)worker;
    struct reading *reading = CONTAINER_OF(timer, struct reading, timer);
    reading->expired = true;
    confirm_again(reading->request);
}

/* The first answer: sent, or waited upon. `own`: it is to be put back. */
static void answer_first(struct http_request *request, struct answer *answer, bool own) {
    struct reading *reading = request->reading;
    uint64_t generation = answer->generation;
    bool wait = reading->blocking && answer->index <= reading->index;
    if (wait) {
        remember(request, answer);
    } else {
        send_answer(request, answer);
    }
    if (own) put_back(answer);
    if (!wait || !park(request)) return;
    if (depends_generation(rpc_of(request), &reading->depends) != generation) confirm_again(request);
    if (request->stage == REQUEST_WORK) connection_watch(request->connection);
}

static void built_first(struct http_request *request, int error, struct answer *answer) {
    if (error) {
        fail(request, error);
    } else {
        answer_first(request, answer, false);
    }
}

/* The first read, confirmed. */
static void read_first(struct http_request *request, int error) {
    struct reading *reading = request->reading;
    if (error) {
        not_confirmed(request, error);
        return;
    }
    if (reading->blocking) {
        /* Below the floor removals are forgotten. Above what is applied, although that is confirmed to be
         * all: an index of another cluster's life. Both are answered with the present state; with ?stale this
         * server may just be behind. */
        bool foreign = reading->consistency != CONSISTENCY_STALE && reading->index > rpc_applied(rpc_of(request));
        reading->blocking = reading->index >= rpc_floor(rpc_of(request)) && !foreign && !request->worker->stop;
    }
    uint64_t generation;
    struct answer *answer = obtain(request, &generation, built_first);
    if (answer) answer_first(request, answer, true);
}

/* ---- from outside ---- */

static bool options_parse(struct http_request *request, struct reading *reading) {
    bool stale = http_has(request, "stale"), consistent = http_has(request, "consistent");
    if (stale && consistent) {
        http_reply_text(request, 400, "Cannot specify ?stale with ?consistent, conflicting semantics.");
        return false;
    }
    reading->consistency = stale ? CONSISTENCY_STALE : consistent ? CONSISTENCY_CONSISTENT : CONSISTENCY_LEADER;
    int64_t wait_ns = 0, max_stale_ns = 0;
    if (!http_parameter_u64(request, "index", &reading->index) || !http_parameter_duration(request, "wait", &wait_ns) ||
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
    reading->blocking = reading->index > 0;
    return true;
}

static void read_as(struct http_request *request, const struct query_type *type, const ProtobufCMessage *message,
                    http_view view, bool fresh, const void *context) {
    bool confirmed = request->confirmed;
    struct reading *reading = reading_new(request, read_first);
    /* What a write answers with is not kept: the key names no method, and a GET of that path is no read. */
    reading->fresh = fresh || !(request->method & (HTTP_GET | HTTP_HEAD));
    reading->context = context;
    reading->type = type;
    reading->message = message;
    reading->view = view;
    reading->depends = depends_of(type, message);
    request->key_hash = hash64(request->key.data, request->key.size);
    if (!options_parse(request, reading)) return;
    if (!rpc_has_copy(rpc_of(request))) {
        request->reading = NULL;
        remote_read(request, &(struct http_remote){type, message, view, reading->consistency, reading->max_stale_ns > 0,
                                                   reading->index, reading->wait_ms, context});
        return;
    }
    int error = CO_OK;
    if (reading->consistency != CONSISTENCY_STALE && !confirmed)
        error = confirm_read(request->worker, &reading->confirm);
    if (error != CO_AGAIN) read_first(request, error);
}

void http_read(struct http_request *request, const struct query_type *type, const ProtobufCMessage *message,
               http_view view) {
    read_as(request, type, message, view, false, NULL);
}

void http_read_fresh(struct http_request *request, const struct query_type *type, const ProtobufCMessage *message,
                     http_view view, const void *context) {
    read_as(request, type, message, view, true, context);
}

const void *http_context(const struct http_request *request) {
    return request->reading ? request->reading->context : request->context;
}

static bool fast_send(struct http_request *request) {
    struct worker *worker = request->worker;
    struct answer *answer = cache_find(worker->cache, request->target, request->key_hash);
    if (!answer || answer->generation != depends_generation(rpc_of(request), &answer->depends)) return false;
    if (rpc_serves(rpc_of(request)) != CO_OK) return false;
    worker->tally.cache_hits++;
    answer_send(request, answer, index_least_for(request, answer));
    return true;
}

static void fast_confirmed(struct http_request *request, int error) {
    request->reading = NULL;
    if (error && error != CO_DISKFULL) {
        request_fail_read(request, error, NULL);
        return;
    }
    request->confirmed = !error; /* if not, its handler asks once more, and knows what to do then */
    if (error || !fast_send(request)) request_run_parsed(request);
}

bool reading_fast(struct http_request *request) {
    struct worker *worker = request->worker;
    request->key_hash = hash64(request->target.data, request->target.size);
    struct answer *answer = cache_find(worker->cache, request->target, request->key_hash);
    if (!answer || answer->bounded || !route_permitted(request, answer->route)) return false;
    if (answer->consistency != CONSISTENCY_STALE) {
        struct reading *reading = reading_new(request, fast_confirmed);
        int error = confirm_read(worker, &reading->confirm);
        if (error == CO_AGAIN) return true;
        request->reading = NULL;
        if (error) return false;
        request->confirmed = true;
    }
    return fast_send(request);
}

void reading_end(struct http_request *request) {
    struct reading *reading = request->reading;
    if (!reading) return;
    request->reading = NULL;
    list_remove(&reading->confirm.link);
    large_leave(&reading->join);
    if (!reading->parked) return;
    struct http_server *server = request->worker->server;
    timer_clear(request->worker, &reading->timer);
    watch_remove(rpc_watches(server->env.rpc), &reading->waiter);
    atomic_fetch_sub(&server->watches, 1);
    request->worker->tally.parked--;
}

void reading_hurry(struct http_request *request) {
    struct reading *reading = request->reading;
    if (!reading || !reading->parked || reading->join.build || !list_empty(&reading->confirm.link)) return;
    reading->expired = true;
    read_again(request, CO_OK);
}
