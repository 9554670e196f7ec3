/* The fetch service: its thread, and the boxes through which others reach it.
 *
 * A fetch is in at most one box, and leaves it under the lock, when the thread takes it or when it ends. So no box
 * holds a fetch that its owner may have freed. */
#include "rpc/reads/fetch_service.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/wakeup_batch.h"
#include "rpc/reads/fetch_service_internal.h"

void fetch_wake(struct fetch_service *fetches) {
    if (fetches->started && !fetches->ended) uv_async_send(&fetches->wake);
}

/* -- the thread --------------------------------------------------------------------------------------------------- */
static struct fetch *box_take(struct fetch_service *fetches, struct list *box, unsigned *flags) {
    struct fetch *fetch = NULL;
    uv_mutex_lock(&fetches->lock);
    if (!list_empty(box)) {
        fetch = LIST_ENTRY(box->next, struct fetch, box);
        list_remove(&fetch->box);
        *flags = fetch->flags;
        fetch->flags = 0;
    }
    uv_mutex_unlock(&fetches->lock);
    return fetch;
}

static void taken(struct fetch *fetch, unsigned flags) {
    if (flags & FETCH_NEW) list_append(&fetch_service_of(fetch)->all, &fetch->all);
    if (flags & FETCH_CANCELLED) fetch_finish(fetch, CO_CLOSED, NULL);
    else if (flags & FETCH_NEW) read_begin(&fetch->read, false);
    else read_fired(&fetch->read);
}

static void take_some(struct fetch_service *fetches, struct list *box) {
    unsigned flags = 0;
    for (unsigned i = 0; i < FETCH_TURN_MOST; i++) {
        struct fetch *fetch = box_take(fetches, box, &flags);
        if (!fetch) return;
        taken(fetch, flags);
    }
}

static void turn(struct fetch_service *fetches, void (*work)(struct fetch_service *fetches));

static void on_timer(uv_timer_t *timer) {
    struct fetch_service *fetches = timer->data;
    fetches->timer_ms = 0;
    turn(fetches, fetch_due);
}

static void timer_set(struct fetch_service *fetches) {
    uint64_t next = fetch_next_due(fetches), now = clock_mono_ms();
    if (next == UINT64_MAX || next == fetches->timer_ms) return; /* an early timer does no harm */
    fetches->timer_ms = next;
    uv_update_time(&fetches->loop);
    uv_timer_start(&fetches->timer, on_timer, next > now ? next - now : 0, 0);
}

static void take_posts(struct fetch_service *fetches) {
    for (struct mail *mail = mailbox_take(&fetches->posts), *next; mail; mail = next) {
        next = mail->next;
        struct post *post = CONTAINER_OF(mail, struct post, mail);
        post->taken(fetches, post);
    }
}

static void end_all(struct fetch_service *fetches) {
    unsigned flags;
    for (struct fetch *fetch; (fetch = box_take(fetches, &fetches->arrived, &flags));)
        if (flags & FETCH_NEW) list_append(&fetches->all, &fetch->all);
    while (!list_empty(&fetches->all)) fetch_finish(LIST_ENTRY(fetches->all.next, struct fetch, all), CO_CLOSED, NULL);
}

/* Confirmations may still be on their way: fetch_service_free takes and drops them. */
static void end(struct fetch_service *fetches) {
    end_all(fetches);
    if (uv_is_closing((uv_handle_t *)&fetches->wake)) return;
    large_reads_stop(fetches->engine.large);
    uv_mutex_lock(&fetches->lock);
    fetches->ended = true;
    uv_mutex_unlock(&fetches->lock);
    uv_close((uv_handle_t *)&fetches->wake, NULL);
    uv_close((uv_handle_t *)&fetches->timer, NULL);
}

static void turn(struct fetch_service *fetches, void (*work)(struct fetch_service *fetches)) {
    wakeup_batch_begin(); /* so that one question confirms all reads of the turn */
    work(fetches);
    read_turn_end(&fetches->engine);
    wakeup_batch_end();
    fetch_kept_clear(fetches);
    arena_reset(&fetches->request_arena);
    uv_mutex_lock(&fetches->lock);
    bool stopping = fetches->stopping;
    if (!list_empty(&fetches->arrived) || !list_empty(&fetches->fired)) fetch_wake(fetches);
    uv_mutex_unlock(&fetches->lock);
    if (stopping) end(fetches);
    else timer_set(fetches);
}

static void take_all(struct fetch_service *fetches) {
    take_posts(fetches);
    leader_read_back(fetches);
    take_some(fetches, &fetches->arrived);
    take_some(fetches, &fetches->fired);
}

static void on_wake(uv_async_t *wake) { turn(wake->data, take_all); }

static void thread_main(void *data) {
    struct fetch_service *fetches = data;
    pthread_setname_np(pthread_self(), "rpc-fetch");
    fetches->reader = fetches->engine.reader = rpc_reader_new(fetches->rpc);
    rng_seed(&fetches->rng, random_u64());
    uv_run(&fetches->loop, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&fetches->loop) == 0);
    rpc_reader_free(fetches->reader);
    arena_free(&fetches->arena);
    arena_free(&fetches->request_arena);
    free(fetches->heap);
}

/* Under the lock. */
static void start(struct fetch_service *fetches) {
    CHECK(uv_loop_init(&fetches->loop) == 0);
    CHECK(uv_async_init(&fetches->loop, &fetches->wake, on_wake) == 0);
    CHECK(uv_timer_init(&fetches->loop, &fetches->timer) == 0);
    fetches->wake.data = fetches->timer.data = fetches;
    CHECK(uv_thread_create(&fetches->thread, thread_main, fetches) == 0);
    fetches->started = true;
}

void fetch_finish(struct fetch *fetch, int error, const struct rpc_fetched *fetched) {
    struct fetch_service *fetches = fetch_service_of(fetch);
    read_end(&fetch->read); /* its waiter does not fire any more */
    leader_read_drop(fetch);
    list_remove(&fetch->all);
    uv_mutex_lock(&fetches->lock);
    list_remove(&fetch->box);
    fetch->over = true;
    uv_mutex_unlock(&fetches->lock);
    if (fetch->request != fetch->room) free(fetch->request);
    struct rpc_fetch *outer = fetch_outer(fetch);
    outer->done(outer, error, fetched);
}

/* -- of the read owner: any thread -------------------------------------------------------------------------------- */
static void post(struct read_engine *engine, struct post *post) {
    struct fetch_service *fetches = CONTAINER_OF(engine, struct fetch_service, engine);
    mailbox_put(&fetches->posts, &post->mail);
    uv_mutex_lock(&fetches->lock);
    fetch_wake(fetches);
    uv_mutex_unlock(&fetches->lock);
}

/* Applier thread, or the thread that restores. */
static void fired(struct watch_waiter *waiter) {
    struct fetch *fetch = fetch_of_read(CONTAINER_OF(waiter, struct read, waiter));
    struct fetch_service *fetches = fetch_service_of(fetch);
    uv_mutex_lock(&fetches->lock);
    fetch->flags |= FETCH_FIRED;
    bool idle = list_empty(&fetches->fired);
    if (list_empty(&fetch->box)) list_append(&fetches->fired, &fetch->box);
    if (idle) fetch_wake(fetches);
    uv_mutex_unlock(&fetches->lock);
}

static bool stale(struct read *read) { return fetch_outer(fetch_of_read(read))->freshness == RPC_STALE; }

static const struct read_owner owner = {.post = post,
                                        .depends = fetch_depends,
                                        .stale = stale,
                                        .confirmed = read_confirmed,
                                        .park = fetch_park,
                                        .unpark = fetch_unpark,
                                        .fired = fired,
                                        .answer = fetch_answer,
                                        .fail = fetch_fail,
                                        .find = fetch_find,
                                        .run = fetch_run,
                                        .keep = fetch_keep,
                                        .drop = fetch_drop,
                                        .digest = fetch_digest,
                                        .build_new = fetch_build_new,
                                        .build_like = fetch_build_like,
                                        .build_run = fetch_build_run,
                                        .build_free = fetch_build_free};

/* -- from outside ------------------------------------------------------------------------------------------------- */
struct fetch_service *fetch_service_new(struct rpc *rpc) {
    struct fetch_service *fetches = mem_zalloc(sizeof *fetches);
    fetches->rpc = rpc;
    CHECK(uv_mutex_init(&fetches->lock) == 0);
    list_init(&fetches->arrived), list_init(&fetches->fired), list_init(&fetches->all);
    fetches->engine = (struct read_engine){.rpc = rpc, .owner = &owner, .large = large_reads_new(rpc, "rpc-large")};
    read_engine_init(&fetches->engine);
    leader_read_new(fetches);
    return fetches;
}

void fetch_service_take(struct fetch_service *fetches, struct rpc_fetch *outer, const ProtobufCMessage *request) {
    struct fetch *fetch = fetch_of(outer);
    *fetch = (struct fetch){
        .read.index = outer->index, .read.view = outer->view, .read.requester = outer->requester, .flags = FETCH_NEW};
    read_init(&fetch->read, &fetches->engine);
    list_init(&fetch->box);
    list_init(&fetch->all);
    size_t size = protobuf_c_message_get_packed_size(request);
    CHECK(size <= UINT32_MAX);
    fetch->request_size = (uint32_t)size;
    fetch->request = size <= sizeof fetch->room ? fetch->room : mem_alloc(size);
    protobuf_c_message_pack(request, fetch->request);
    uv_mutex_lock(&fetches->lock);
    bool closed = fetches->stopping;
    if (!closed) {
        if (!fetches->started) start(fetches);
        if (list_empty(&fetches->arrived)) fetch_wake(fetches);
        list_append(&fetches->arrived, &fetch->box);
    }
    uv_mutex_unlock(&fetches->lock);
    if (!closed) return;
    fetch->over = true;
    if (fetch->request != fetch->room) free(fetch->request);
    outer->done(outer, CO_CLOSED, NULL);
}

void fetch_service_cancel(struct fetch_service *fetches, struct rpc_fetch *outer) {
    struct fetch *fetch = fetch_of(outer);
    uv_mutex_lock(&fetches->lock);
    if (!fetch->over) {
        fetch->flags |= FETCH_CANCELLED;
        list_remove(&fetch->box); /* out of those that fired, which can be many */
        if (list_empty(&fetches->arrived)) fetch_wake(fetches);
        list_append(&fetches->arrived, &fetch->box);
    }
    uv_mutex_unlock(&fetches->lock);
}

void fetch_service_stop(struct fetch_service *fetches) {
    uv_mutex_lock(&fetches->lock);
    bool join = fetches->started && !fetches->stopping;
    fetches->stopping = true;
    fetch_wake(fetches);
    uv_mutex_unlock(&fetches->lock);
    if (join) uv_thread_join(&fetches->thread);
    leader_read_stop(fetches);
}

void fetch_service_free(struct fetch_service *fetches) {
    if (!fetches) return;
    CHECK(fetches->stopping);
    large_reads_stop(fetches->engine.large);
    take_posts(fetches);
    fetch_kept_clear(fetches);
    read_engine_free(&fetches->engine);
    large_reads_free(fetches->engine.large);
    leader_read_free(fetches);
    uv_mutex_destroy(&fetches->lock);
    free(fetches);
}
