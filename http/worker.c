/* A worker: one thread, one outer epoll, and everything that they own.
 *
 * A turn: wait; take events (new connections, shards with something to do, hang-ups); take posts from other threads;
 * timers; run the shards, each once for all of its connections that woke up; confirm the reads of this turn, all at
 * once. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/wakeup_batch.h"
#include "http/impl.h"

#define EVENTS_MOST  256
#define BULK_STEP    256
#define BULK_TURN    16384
#define STOP_MOST_MS 800 /* for answers that are still due when the server stops */

/* ---- metrics ---- */

#define ANSWERED_HELP "HTTP requests answered, by class of status"
METRIC answered[] = {
    {.name = "coord_http_requests_total", .help = ANSWERED_HELP, .labels = "code=\"2xx\"", .type = METRIC_COUNTER},
    {.name = "coord_http_requests_total", .help = ANSWERED_HELP, .labels = "code=\"3xx\"", .type = METRIC_COUNTER},
    {.name = "coord_http_requests_total", .help = ANSWERED_HELP, .labels = "code=\"4xx\"", .type = METRIC_COUNTER},
    {.name = "coord_http_requests_total", .help = ANSWERED_HELP, .labels = "code=\"5xx\"", .type = METRIC_COUNTER},
};
METRIC cache_hits = {
    .name = "coord_http_cache_hits_total", .help = "Reads answered from ready bytes", .type = METRIC_COUNTER};
METRIC cache_misses = {
    .name = "coord_http_cache_misses_total", .help = "Reads whose answer had to be written", .type = METRIC_COUNTER};
METRIC refused = {
    .name = "coord_http_connections_refused_total", .help = "Connections above a limit", .type = METRIC_COUNTER};
METRIC unchanged = {.name = "coord_http_unchanged_total",
                    .help = "Wake-ups of blocking queries whose answer was the same as before",
                    .type = METRIC_COUNTER};
#define HANDSHAKES_HELP "Handshakes of HTTPS, by outcome; resumed: by a session ticket"
METRIC handshakes[] = {
    {.name = "coord_https_handshakes_total",
     .help = HANDSHAKES_HELP,
     .labels = "outcome=\"full\"",
     .type = METRIC_COUNTER},
    {.name = "coord_https_handshakes_total",
     .help = HANDSHAKES_HELP,
     .labels = "outcome=\"resumed\"",
     .type = METRIC_COUNTER},
    {.name = "coord_https_handshakes_total",
     .help = HANDSHAKES_HELP,
     .labels = "outcome=\"failed\"",
     .type = METRIC_COUNTER},
};
METRIC connections = {.name = "coord_http_connections", .help = "Open connections", .type = METRIC_GAUGE};
METRIC parked = {.name = "coord_http_blocking_queries", .help = "Blocking queries that wait", .type = METRIC_GAUGE};

static void metrics_start(void) {
    for (size_t i = 0; i < ARRAY_COUNT(answered); i++) metric_register(&answered[i]);
    for (size_t i = 0; i < ARRAY_COUNT(handshakes); i++) metric_register(&handshakes[i]);
    struct metric *others[] = {&cache_hits, &cache_misses, &refused, &unchanged, &connections, &parked};
    for (size_t i = 0; i < ARRAY_COUNT(others); i++) metric_register(others[i]);
}

static void add_nonzero(struct metric *metric, uint64_t n) {
    if (n) metric_add(metric, n);
}

static void metrics_flush(struct worker *worker) {
    struct tally *tally = &worker->tally;
    for (size_t i = 0; i < ARRAY_COUNT(answered); i++) add_nonzero(&answered[i], tally->answered[i + 2]);
    for (size_t i = 0; i < ARRAY_COUNT(handshakes); i++) add_nonzero(&handshakes[i], tally->handshakes[i]);
    add_nonzero(&cache_hits, tally->cache_hits);
    add_nonzero(&cache_misses, tally->cache_misses);
    add_nonzero(&refused, tally->refused_connections);
    add_nonzero(&unchanged, worker->engine.unchanged);
    add_nonzero(&parked, (uint64_t)tally->parked);
    worker->engine.unchanged = 0;
    *tally = (struct tally){0};
    metric_set(&connections, atomic_load_explicit(&worker->server->connections, memory_order_relaxed));
}

/* ---- posts ---- */

/* Wakes the worker only when it is (about to be) asleep. Both sides exchange `asleep` atomically, so the second one
 * sees everything that the first did before: either the worker finds the post, or the poster finds the worker
 * asleep. */
static void wake(void *data) {
    struct worker *worker = data;
    if (!atomic_exchange_explicit(&worker->asleep, false, memory_order_acq_rel)) return;
    /* The counter is never read: the epoll entry is edge-triggered, and each write is an edge. */
    uint64_t one = 1;
    ssize_t written = write(worker->wake_fd, &one, sizeof one);
    CHECK(written == sizeof one);
}

static void wake_posted(void *data) {
    struct worker *worker = data;
    wake(worker);
    atomic_fetch_sub_explicit(&worker->posting, 1, memory_order_release);
}

/* Once the post is in the mailbox the worker may take it, and end, if it was the last that it waited for. `posting`
 * keeps the worker in memory until it was woken (worker_free). */
void worker_post(struct worker *worker, struct post *post) {
    atomic_fetch_add_explicit(&worker->posting, 1, memory_order_relaxed);
    bool bulk = post->bulk; /* read it first: the post may be gone afterwards */
    if (!mailbox_put(&worker->box, &post->mail)) atomic_fetch_sub_explicit(&worker->posting, 1, memory_order_release);
    else if (bulk) wake_posted(worker);
    else wakeup_batch_send(wake_posted, worker);
}

/* Answers of one shard are cheaper together, because it is run once for all of them. Only requests that waited for a
 * change come in bulk (blocking.c). */
static unsigned group_of(struct post *post) {
    const struct http_request *request = CONTAINER_OF(post, struct http_request, post);
    return request->connection ? request->connection->shard->number % BULK_GROUPS : 0;
}

/* Wake-ups of blocking queries can come by the ten thousand, so they are handled after everything else. */
static void take_posts(struct worker *worker) {
    for (struct mail *mail = mailbox_take(&worker->box), *next; mail; mail = next) {
        next = mail->next;
        struct post *post = CONTAINER_OF(mail, struct post, mail);
        if (!post->bulk) {
            post->taken(worker, post);
            continue;
        }
        struct posts *group = &worker->bulk[group_of(post)];
        mail->next = NULL;
        *group->end = mail;
        group->end = &mail->next;
        worker->bulk_count++;
    }
}

/* Takes the next bulk post; there must be one. A group is taken as a whole, then the next. */
static struct mail *bulk_next(struct worker *worker) {
    struct posts *group;
    while (!(group = &worker->bulk[worker->bulk_group % BULK_GROUPS])->first) worker->bulk_group++;
    struct mail *mail = group->first;
    group->first = mail->next;
    if (!group->first) group->end = &group->first;
    worker->bulk_count--;
    return mail;
}

/* Takes some posts at a time, and sends their answers before the next. So the first do not wait for the last, nor the
 * last for new requests of the first. */
static void take_bulk(struct worker *worker) {
    for (unsigned taken = 0; worker->bulk_count && taken < BULK_TURN; taken++) {
        struct mail *mail = bulk_next(worker);
        struct post *post = CONTAINER_OF(mail, struct post, mail);
        post->taken(worker, post);
        if (taken % BULK_STEP < BULK_STEP - 1) continue;
        shards_run_answers(worker);
        worker->bulk_group++; /* new posts of this group wait for the other groups */
    }
}

/* ---- timers: a binary heap, places count from 1 ---- */

static void heap_place(struct worker *worker, size_t place, struct timer *timer) {
    worker->heap[place] = timer;
    timer->place = place;
}

static void heap_sift(struct worker *worker, size_t place, struct timer *timer) {
    for (; place > 1 && worker->heap[place / 2]->at_ms > timer->at_ms; place /= 2) {
        heap_place(worker, place, worker->heap[place / 2]);
    }
    for (size_t child; (child = place * 2) <= worker->heap_size; place = child) {
        if (child < worker->heap_size && worker->heap[child + 1]->at_ms < worker->heap[child]->at_ms) child++;
        if (worker->heap[child]->at_ms >= timer->at_ms) break;
        heap_place(worker, place, worker->heap[child]);
    }
    heap_place(worker, place, timer);
}

void timer_set(struct worker *worker, struct timer *timer, uint64_t at_ms,
               void (*due)(struct worker *worker, struct timer *timer)) {
    timer->at_ms = at_ms;
    timer->due = due;
    if (!timer->place) {
        if (worker->heap_size + 2 > worker->heap_capacity) {
            worker->heap_capacity = worker->heap_capacity ? worker->heap_capacity * 2 : 64;
            worker->heap = mem_realloc(worker->heap, worker->heap_capacity * sizeof *worker->heap);
        }
        timer->place = ++worker->heap_size;
    }
    heap_sift(worker, timer->place, timer);
}

void timer_clear(struct worker *worker, struct timer *timer) {
    if (!timer->place) return;
    size_t place = timer->place;
    struct timer *last = worker->heap[worker->heap_size--];
    timer->place = 0;
    if (last != timer) heap_sift(worker, place, last);
}

static void run_timers(struct worker *worker) {
    while (worker->heap_size && worker->heap[1]->at_ms <= worker->now_ms) {
        struct timer *timer = worker->heap[1];
        timer_clear(worker, timer);
        timer->due(worker, timer);
    }
}

/* ---- the known state of the cluster ---- */

#define LAST_CONTACT_FRESH_MS 10

bool worker_known_leader(struct worker *worker, uint64_t *last_contact_ms) {
    struct rpc *rpc = worker->server->env.rpc;
    worker->known_leader = rpc_known_leader(rpc);
    if (worker->now_ms - worker->leader_checked_ms >= LAST_CONTACT_FRESH_MS) {
        struct rpc_status status;
        rpc_status(rpc, &status);
        worker->last_contact_ms = status.last_contact_ms;
        worker->leader_checked_ms = worker->now_ms;
    }
    *last_contact_ms = worker->last_contact_ms;
    return worker->known_leader;
}

/* ---- turns ---- */

static uint64_t nearest(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Milliseconds the worker may sleep; -1: until something happens. */
static int sleep_most(struct worker *worker, uint64_t limit_ms) {
    if (!list_empty(&worker->runnable) || !list_empty(&worker->handshakes) || worker->bulk_count) return 0;
    uint64_t at = limit_ms;
    if (worker->heap_size) at = nearest(at, worker->heap[1]->at_ms);
    if (!list_empty(&worker->connections)) {
        at = nearest(at, LIST_ENTRY(worker->connections.next, struct connection, link)->check_ms);
    }
    if (worker->lingering_count) at = nearest(at, linger_deadline_ms(worker));
    if (worker->listen_again_ms) at = nearest(at, worker->listen_again_ms);
    if (at == UINT64_MAX) return -1;
    uint64_t now = clock_mono_ms();
    if (at <= now) return 0;
    return at - now < 3600000 ? (int)(at - now) : 3600000;
}

static int wait_events(struct worker *worker, struct epoll_event *events, uint64_t limit_ms) {
    int timeout = sleep_most(worker, limit_ms);
    if (timeout != 0) {
        atomic_exchange_explicit(&worker->asleep, true, memory_order_acq_rel);
        if (atomic_load_explicit(&worker->box.top, memory_order_relaxed)) timeout = 0;
    }
    int count = epoll_wait(worker->epoll, events, EVENTS_MOST, timeout);
    atomic_store_explicit(&worker->asleep, false, memory_order_relaxed);
    CHECK(count >= 0 || errno == EINTR);
    return count;
}

static void take_event(struct worker *worker, const struct epoll_event *event) {
    struct source *source = event->data.ptr;
    switch (source->kind) {
        case SOURCE_LISTENER: listen_ready(worker, CONTAINER_OF(source, struct listener, source)); break;
        case SOURCE_SHARD:
            CONTAINER_OF(source, struct shard, source)->idle_runs = 0; /* there are new events */
            shard_wake(CONTAINER_OF(source, struct shard, source));
            break;
        case SOURCE_CONNECTION:
            connection_event(worker, CONTAINER_OF(source, struct connection, source), event->events);
            break;
        case SOURCE_LINGER: linger_event(source); break;
        case SOURCE_WAKE: break;
    }
}

static void turn(struct worker *worker, uint64_t limit_ms) {
    struct epoll_event events[EVENTS_MOST];
    int count = wait_events(worker, events, limit_ms);
    worker->now_ms = clock_mono_ms();
    for (int i = 0; i < count; i++) take_event(worker, &events[i]);
    take_posts(worker);
    run_timers(worker);
    if (worker->bulk_count) {
        shards_run_answers(worker);
        take_bulk(worker);
    }
    wakeup_batch_begin(); /* all reads of the turn are confirmed together */
    shards_run(worker);
    read_turn_end(&worker->engine);
    shards_run(worker);
    read_turn_end(&worker->engine);
    wakeup_batch_end();
    handshakes_run(worker); /* at the end: nobody's answer waits for them */
    shards_check(worker);
    if (worker->lingering_count) linger_tick(worker, false);
    if (worker->listen_again_ms && worker->listen_again_ms <= worker->now_ms) {
        worker->listen_again_ms = 0;
        listen_watch(worker, true);
    }
    LIST_FOREACH_SAFE(link, next, &worker->closed) {
        list_remove(link);
        free(LIST_ENTRY(link, struct connection, link));
    }
    metrics_flush(worker);
}

/* Answers the requests that wait for a change, lets writes finish, then closes. */
static void wind_down(struct worker *worker) {
    if (!worker->listen_again_ms) listen_watch(worker, false);
    worker->listen_again_ms = 0;
    worker->engine.stopping = true;
    LIST_FOREACH_SAFE(link, next, &worker->connections) {
        struct http_request *request = LIST_ENTRY(link, struct connection, link)->request;
        if (!request) continue;
        reading_hurry(request);
        if (request->operation && request->operation->hurry) request->operation->hurry(request);
    }
    uint64_t limit_ms = clock_mono_ms() + STOP_MOST_MS;
    while ((worker->active || worker->orphans) && clock_mono_ms() < limit_ms) turn(worker, limit_ms);
    shards_stop(worker);
    linger_tick(worker, true);
    take_posts(worker);
    while (worker->bulk_count) take_bulk(worker);
}

static bool worker_setup(struct worker *worker) {
    worker->now_ms = clock_mono_ms();
    worker->leader_checked_ms = worker->now_ms - LAST_CONTACT_FRESH_MS;
    rng_seed(&worker->rng, random_u64());
    if (rpc_has_copy(worker->server->env.rpc))
        worker->reader = worker->engine.reader = rpc_reader_new(worker->server->env.rpc);
    worker->api =
        http_api.worker_new(worker->server->env.rpc, worker->server->config.cache_bytes / worker->server->worker_count);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = &worker->wake};
    worker->wake.kind = SOURCE_WAKE;
    return epoll_ctl(worker->epoll, EPOLL_CTL_ADD, worker->wake_fd, &event) == 0 && listen_watch(worker, true) == CO_OK;
}

void *worker_main(void *data) {
    struct worker *worker = data;
    metrics_start();
    pthread_setname_np(pthread_self(), "http");
    mhd_errors_enter(worker);
    if (worker_setup(worker)) {
        while (!atomic_load_explicit(&worker->stop, memory_order_acquire)) turn(worker, UINT64_MAX);
        wind_down(worker);
    } else {
        log_error("http", "worker cannot listen error=\"%s\"", strerror(errno));
    }
    rpc_reader_free(worker->reader);
    http_api.worker_free(worker->api);
    kept_responses_free(worker);
    requesters_free(worker);
    known_access_free(worker);
    mhd_errors_enter(NULL);
    return NULL;
}

void worker_free(struct worker *worker) {
    while (atomic_load_explicit(&worker->posting, memory_order_acquire)) sched_yield();
    cache_free(worker->cache);
    read_engine_free(&worker->engine);
    gzip_free(worker);
    arena_free(&worker->scratch);
    buffer_free(&worker->output.out);
    buffer_free(&worker->packed);
    buffer_free(&worker->audit_line);
    secure_room_free(worker);
    if (worker->yes) MHD_destroy_response(worker->yes);
    if (worker->no) MHD_destroy_response(worker->no);
    while (worker->spare) {
        struct http_request *request = worker->spare;
        worker->spare = request->next_spare;
        free(request);
    }
    free(worker->shards);
    free(worker->heap);
    free(worker->by_fd);
    if (worker->epoll >= 0) close(worker->epoll);
    if (worker->wake_fd >= 0) close(worker->wake_fd);
}
