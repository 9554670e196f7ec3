/* Large reads: a read that would keep a thread from its other clients for long is done by a separate thread. An engine
 * begins every read itself, with a limit on what it walks. When that is hit it starts a build: the query runs again on
 * the thread here, with that thread's own reader, and its answer is given to all who joined. When all of them are gone,
 * the build is dropped. */
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/log.h"
#include "rpc/reads/read.h"

struct large_reads {
    struct rpc *rpc;
    const char *thread_name;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct list queue; /* builds */
    pthread_t thread;
    bool started, stop;
};

struct large_reads *large_reads_new(struct rpc *rpc, const char *thread_name) {
    struct large_reads *large = mem_zalloc(sizeof *large);
    large->rpc = rpc;
    large->thread_name = thread_name;
    pthread_mutex_init(&large->lock, NULL);
    pthread_cond_init(&large->changed, NULL);
    list_init(&large->queue);
    return large;
}

/* -- the thread --------------------------------------------------------------------------------------------------- */
static struct read_build *next_build(struct large_reads *large) {
    struct read_build *build = NULL;
    pthread_mutex_lock(&large->lock);
    while (!large->stop && list_empty(&large->queue)) pthread_cond_wait(&large->changed, &large->lock);
    if (!large->stop) {
        build = LIST_ENTRY(large->queue.next, struct read_build, queued);
        list_remove(&build->queued);
    }
    pthread_mutex_unlock(&large->lock);
    return build;
}

static bool idle(struct large_reads *large) {
    pthread_mutex_lock(&large->lock);
    bool empty = list_empty(&large->queue);
    pthread_mutex_unlock(&large->lock);
    return empty;
}

static void run(struct read_build *build, struct rpc_reader *reader, struct arena *arena) {
    const struct read_owner *owner = build->engine->owner;
    if (atomic_load_explicit(&build->dropped, memory_order_relaxed)) build->error = CO_CLOSED;
    else build->error = owner->build_run(build, reader, arena, &build->answer);
    if (build->answer) (void)owner->digest(build->answer);
    owner->post(build->engine, &build->post);
}

static void *large_main(void *data) {
    struct large_reads *large = data;
    struct rpc_reader *reader = rpc_reader_new(large->rpc);
    struct arena arena = {0};
    pthread_setname_np(pthread_self(), large->thread_name);
    for (struct read_build *build; (build = next_build(large));) {
        run(build, reader, &arena);
        arena_free(&arena); /* its memory is not kept for the next large read, which may come next week */
        if (idle(large)) malloc_trim(0);
    }
    rpc_reader_free(reader);
    return NULL;
}

static bool submit(struct large_reads *large, struct read_build *build) {
    pthread_mutex_lock(&large->lock);
    if (!large->started && !large->stop) {
        int error = pthread_create(&large->thread, NULL, large_main, large);
        large->started = error == 0;
        if (error) log_error("rpc", "no thread for large reads error=\"%s\"", strerror(error));
    }
    bool taken = large->started && !large->stop;
    if (taken) list_append(&large->queue, &build->queued);
    pthread_cond_signal(&large->changed);
    pthread_mutex_unlock(&large->lock);
    return taken;
}

void large_reads_stop(struct large_reads *large) {
    pthread_mutex_lock(&large->lock);
    large->stop = true;
    pthread_cond_signal(&large->changed);
    pthread_mutex_unlock(&large->lock);
    if (large->started) pthread_join(large->thread, NULL);
    large->started = false;
}

void large_reads_free(struct large_reads *large) {
    if (!large) return;
    pthread_mutex_destroy(&large->lock);
    pthread_cond_destroy(&large->changed);
    free(large);
}

/* -- builds: the engine's thread ---------------------------------------------------------------------------------- */
static void built(void *taker, struct post *post) {
    struct read_build *build = CONTAINER_OF(post, struct read_build, post), **at = &build->engine->builds;
    const struct read_owner *owner = build->engine->owner;
    (void)taker;
    while (*at != build) at = &(*at)->next;
    *at = build->next;
    if (build->answer) build->answer->generation = build->generation;
    while (!list_empty(&build->joined)) {
        struct read *read = LIST_ENTRY(build->joined.next, struct read, link);
        list_remove(&read->link);
        read->build = NULL;
        struct depends depends = owner->depends(read);
        build->engine->denial = "Permission denied";
        if (build->error) owner->fail(read, build->error);
        else read_deliver(read, build->answer, &depends, false);
    }
    if (build->answer) {
        owner->keep(build->engine, build->answer); /* only now, because the owner may drop kept answers at any time */
        owner->drop(build->answer);
    }
    owner->build_free(build);
}

static void join(struct read_build *build, struct read *read) {
    read->build = build;
    list_append(&build->joined, &read->link);
    if (build->engine->owner->waits) build->engine->owner->waits(read);
}

bool large_join(struct read *read, uint64_t generation) {
    struct read_build *build = read->engine->builds;
    while (build && !(build->generation == generation && build->access_generation == read->access_generation &&
                      read->engine->owner->build_like(build, read) &&
                      !atomic_load_explicit(&build->dropped, memory_order_relaxed)))
        build = build->next;
    if (build) join(build, read);
    return build != NULL;
}

bool large_start(struct read *read, uint64_t generation) {
    struct read_engine *engine = read->engine;
    struct read_build *build = engine->owner->build_new(read);
    build->engine = engine;
    build->post.taken = built;
    build->generation = generation;
    build->access_generation = read->access_generation;
    list_init(&build->joined);
    list_init(&build->queued);
    if (!submit(engine->large, build)) {
        engine->owner->build_free(build);
        return false;
    }
    build->next = engine->builds;
    engine->builds = build;
    join(build, read);
    return true;
}

void large_leave(struct read *read) {
    struct read_build *build = read->build;
    if (!build) return;
    list_remove(&read->link);
    read->build = NULL;
    if (list_empty(&build->joined)) atomic_store_explicit(&build->dropped, true, memory_order_relaxed);
}

void large_forget(struct read_engine *engine) {
    while (engine->builds) {
        struct read_build *build = engine->builds;
        engine->builds = build->next;
        if (build->answer) engine->owner->drop(build->answer);
        engine->owner->build_free(build);
    }
}
