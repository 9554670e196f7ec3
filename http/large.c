/* Large reads: what would keep a worker from its other clients for long is read and written by a thread of its own.
 *
 * A worker begins every read itself, with a limit on how many records it walks (blocking.c). When that is hit, it
 * starts a build: the query runs again on the thread below, with that thread's own reader, and its view writes into
 * that thread's own buffer. The view sees a copy of the request, made from target and method alone, which is all
 * that a view may depend on (http.h). Whoever asks for the same while it is under way joins it, as long as the thing
 * that it reads has not changed: then its bytes are as good as those in the cache (cache.c). When all who joined are
 * gone, it is dropped.
 *
 * One thread: large reads wait for each other, not others for them, and at most one answer more than the limit in
 * blocking.c is in memory. The thread is started by the first large read. */
#include <malloc.h>
#include <stdlib.h>

#include "base/log.h"
#include "http/impl.h"

struct large {
    struct http_server *server;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct list queue; /* builds */
    pthread_t thread;
    bool started, stop;
};

struct large *large_new(struct http_server *server) {
    struct large *large = mem_zalloc(sizeof *large);
    large->server = server;
    pthread_mutex_init(&large->lock, NULL);
    pthread_cond_init(&large->changed, NULL);
    list_init(&large->queue);
    return large;
}

/* ---- the thread ---- */

static struct build *next_build(struct large *large) {
    struct build *build = NULL;
    pthread_mutex_lock(&large->lock);
    while (!large->stop && list_empty(&large->queue)) pthread_cond_wait(&large->changed, &large->lock);
    if (!large->stop) {
        build = LIST_ENTRY(large->queue.next, struct build, queued);
        list_remove(&build->queued);
    }
    pthread_mutex_unlock(&large->lock);
    return build;
}

static bool idle(struct large *large) {
    pthread_mutex_lock(&large->lock);
    bool empty = list_empty(&large->queue);
    pthread_mutex_unlock(&large->lock);
    return empty;
}

static void *large_main(void *data) {
    struct large *large = data;
    struct rpc_reader *reader = rpc_reader_new(large->server->env.rpc);
    struct output output = {0};
    struct arena scratch = {0};
    pthread_setname_np(pthread_self(), "http-large");
    for (struct build *build; (build = next_build(large));) {
        build->copy->output = &output;
        build->error = atomic_load_explicit(&build->dropped, memory_order_relaxed)
                           ? CO_CLOSED
                           : reading_run(build->copy, reader, &scratch, 0, &build->answer);
        if (build->answer) bytes_digest(build->answer->plain);
        worker_post(build->worker, &build->post);
        /* What it took is not to be kept for the next, who may come next week. */
        arena_free(&scratch);
        buffer_free(&output.out);
        if (idle(large)) malloc_trim(0);
    }
    arena_free(&scratch);
    buffer_free(&output.out);
    rpc_reader_free(reader);
    return NULL;
}

static bool submit(struct large *large, struct build *build) {
    pthread_mutex_lock(&large->lock);
    if (!large->started && !large->stop) {
        int error = pthread_create(&large->thread, NULL, large_main, large);
        large->started = error == 0;
        if (error) log_error("http", "no thread for large reads errno=%d", error);
    }
    bool taken = large->started && !large->stop;
    if (taken) list_append(&large->queue, &build->queued);
    pthread_cond_signal(&large->changed);
    pthread_mutex_unlock(&large->lock);
    return taken;
}

void large_stop(struct large *large) {
    pthread_mutex_lock(&large->lock);
    large->stop = true;
    pthread_cond_signal(&large->changed);
    pthread_mutex_unlock(&large->lock);
    if (large->started) pthread_join(large->thread, NULL);
    large->started = false;
}

void large_free(struct large *large) {
    if (!large) return;
    pthread_mutex_destroy(&large->lock);
    pthread_cond_destroy(&large->changed);
    free(large);
}

/* ---- builds: the worker's thread ---- */

static void build_free(struct build *build) {
    request_copy_free(build->copy);
    free(build);
}

static void build_taken(struct worker *worker, struct post *post) {
    struct build *build = CONTAINER_OF(post, struct build, post), **at = &worker->builds;
    while (*at != build) at = &(*at)->next;
    *at = build->next;
    struct answer *answer = build->answer;
    if (answer) answer->generation = build->generation;
    while (!list_empty(&build->joined)) {
        struct join *join = LIST_ENTRY(build->joined.next, struct join, link);
        list_remove(&join->link);
        join->build = NULL;
        join->done(join->request, build->error, answer);
    }
    /* Only now, since what the cache has it may drop at any time. */
    if (answer && depends_generation(worker->server->env.rpc, &answer->depends) == build->generation)
        cache_offer(worker->cache, answer);
    if (answer && !answer->kept) ready_answer_free(answer);
    build_free(build);
}

static struct build *build_find(const struct worker *worker, const struct http_request *request, uint64_t generation) {
    struct build *build = worker->builds;
    while (build && !(build->generation == generation && build->copy->key_hash == request->key_hash &&
                      reading_like(build->copy, request) && slice_equal(build->copy->key, request->key) &&
                      !atomic_load_explicit(&build->dropped, memory_order_relaxed))) {
        build = build->next;
    }
    return build;
}

static void build_join(struct build *build, struct join *join) {
    join->build = build;
    list_append(&build->joined, &join->link);
}

bool large_join(struct http_request *request, uint64_t generation, struct join *join) {
    struct build *build = build_find(request->worker, request, generation);
    if (build) build_join(build, join);
    return build != NULL;
}

bool large_start(struct http_request *request, uint64_t generation, struct join *join) {
    struct worker *worker = request->worker;
    struct build *build = mem_zalloc(sizeof *build);
    build->worker = worker;
    build->post.taken = build_taken;
    build->generation = generation;
    build->copy = request_copy(request);
    reading_copy(build->copy, request);
    list_init(&build->joined);
    list_init(&build->queued);
    if (!submit(worker->server->large, build)) {
        build_free(build);
        return false;
    }
    build->next = worker->builds;
    worker->builds = build;
    build_join(build, join);
    return true;
}

void large_leave(struct join *join) {
    struct build *build = join->build;
    if (!build) return;
    list_remove(&join->link);
    join->build = NULL;
    if (list_empty(&build->joined)) atomic_store_explicit(&build->dropped, true, memory_order_relaxed);
}

void large_forget(struct worker *worker) {
    while (worker->builds) {
        struct build *build = worker->builds;
        worker->builds = build->next;
        if (build->answer) ready_answer_free(build->answer);
        build_free(build);
    }
}
