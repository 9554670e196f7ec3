/* The fetch service: its thread, and the boxes through which others reach it.
 *
 * A fetch is in at most one box, and leaves it under the lock: taken by the thread, or by its end. So no box holds
 * what its owner may have freed. */
#include "rpc/reads/fetch.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "rpc/reads/fetch_internal.h"

void fetch_wake(struct fetches *fetches) {
    if (fetches->started && !fetches->ended) uv_async_send(&fetches->wake);
}

/* -- the thread --------------------------------------------------------------------------------------------------- */
static struct fetch *box_take(struct fetches *fetches, struct list *box, unsigned *flags) {
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
    if (flags & FETCH_NEW) list_append(&fetch->fetches->all, &fetch->all);
    if (flags & FETCH_CANCELLED) {
        fetch_finish(fetch, CO_CLOSED, NULL);
    } else if (flags & FETCH_NEW) {
        fetch_wish(fetch);
    } else if (fetch->parked) {
        watch_arm(&fetch->waiter);
        fetch_again(fetch);
    }
}

static void take_some(struct fetches *fetches, struct list *box) {
    unsigned flags = 0;
    for (unsigned i = 0; i < FETCH_TURN_MOST; i++) {
        struct fetch *fetch = box_take(fetches, box, &flags);
        if (!fetch) return;
        taken(fetch, flags);
    }
}

static void on_timer(uv_timer_t *timer) {
    struct fetches *fetches = timer->data;
    fetches->timer_ms = 0;
    fetch_due(fetches);
    fetch_turn_end(fetches);
}

static void timer_set(struct fetches *fetches) {
    uint64_t next = fetch_next_due(fetches), now = clock_mono_ms();
    if (next == UINT64_MAX || next == fetches->timer_ms) return; /* one that is early does no harm */
    fetches->timer_ms = next;
    uv_update_time(&fetches->loop);
    uv_timer_start(&fetches->timer, on_timer, next > now ? next - now : 0, 0);
}

static void read_unasked(struct fetches *fetches) {
    struct list ready;
    list_init(&ready);
    list_splice(&ready, &fetches->unasked); /* what comes by reading is for the next turn */
    while (!list_empty(&ready)) {
        struct fetch *fetch = LIST_ENTRY(ready.next, struct fetch, queue);
        list_remove(&fetch->queue);
        fetch_confirmed(fetch, CO_OK);
    }
}

void fetch_turn_end(struct fetches *fetches) {
    uv_mutex_lock(&fetches->lock);
    bool stopping = fetches->stopping;
    uv_mutex_unlock(&fetches->lock);
    if (stopping) {
        fetch_try_end(fetches);
        return;
    }
    read_unasked(fetches);
    fetch_confirm_all(fetches);
    fetch_kept_clear(fetches);
    fetch_large_next(fetches);
    timer_set(fetches);
    bool more = !list_empty(&fetches->unasked) || !list_empty(&fetches->confirming);
    uv_mutex_lock(&fetches->lock);
    more = more || !list_empty(&fetches->arrived) || !list_empty(&fetches->fired);
    if (more) fetch_wake(fetches);
    uv_mutex_unlock(&fetches->lock);
}

static void end_all(struct fetches *fetches) {
    unsigned flags;
    for (struct fetch *fetch; (fetch = box_take(fetches, &fetches->arrived, &flags));)
        if (flags & FETCH_NEW) list_append(&fetches->all, &fetch->all);
    while (!list_empty(&fetches->all)) fetch_finish(LIST_ENTRY(fetches->all.next, struct fetch, all), CO_CLOSED, NULL);
    fetch_confirm_open(fetches); /* nobody waits there any more */
}

void fetch_try_end(struct fetches *fetches) {
    end_all(fetches);
    fetch_large_stop(fetches);
    if (fetches->job || uv_is_closing((uv_handle_t *)&fetches->wake)) return;
    uv_mutex_lock(&fetches->lock);
    fetches->ended = true;
    uv_mutex_unlock(&fetches->lock);
    fetch_confirm_open(fetches);
    uv_close((uv_handle_t *)&fetches->wake, NULL);
    uv_close((uv_handle_t *)&fetches->timer, NULL);
}

static void on_wake(uv_async_t *wake) {
    struct fetches *fetches = wake->data;
    fetch_confirm_open(fetches);
    leader_read_back(fetches);
    take_some(fetches, &fetches->arrived);
    take_some(fetches, &fetches->fired);
    fetch_turn_end(fetches);
}

static void thread_main(void *data) {
    struct fetches *fetches = data;
    pthread_setname_np(pthread_self(), "rpc-fetch");
    fetches->reader = rpc_reader_new(fetches->rpc);
    rng_seed(&fetches->rng, random_u64());
    uv_run(&fetches->loop, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&fetches->loop) == 0);
    fetch_kept_clear(fetches);
    rpc_reader_free(fetches->reader);
    arena_free(&fetches->arena);
    free(fetches->heap);
}

/* Under the lock. */
static void start(struct fetches *fetches) {
    CHECK(uv_loop_init(&fetches->loop) == 0);
    CHECK(uv_async_init(&fetches->loop, &fetches->wake, on_wake) == 0);
    CHECK(uv_timer_init(&fetches->loop, &fetches->timer) == 0);
    fetches->wake.data = fetches->timer.data = fetches;
    CHECK(uv_thread_create(&fetches->thread, thread_main, fetches) == 0);
    fetches->started = true;
}

void fetch_finish(struct fetch *fetch, int error, const struct rpc_fetched *fetched) {
    struct fetches *fetches = fetch->fetches;
    fetch_unpark(fetch); /* it does not fire any more */
    fetch_large_forget(fetch);
    leader_read_drop(fetch);
    list_remove(&fetch->queue);
    list_remove(&fetch->all);
    uv_mutex_lock(&fetches->lock);
    list_remove(&fetch->box);
    fetch->over = true;
    uv_mutex_unlock(&fetches->lock);
    if (fetch->request != fetch->room) free(fetch->request);
    struct rpc_fetch *outer = fetch_outer(fetch);
    outer->done(outer, error, fetched);
}

/* -- from outside ------------------------------------------------------------------------------------------------- */
struct fetches *fetches_new(struct rpc *rpc) {
    struct fetches *fetches = mem_zalloc(sizeof *fetches);
    fetches->rpc = rpc;
    CHECK(uv_mutex_init(&fetches->lock) == 0);
    struct list *lists[] = {&fetches->arrived, &fetches->fired,      &fetches->gates_open, &fetches->all,
                            &fetches->unasked, &fetches->confirming, &fetches->large};
    for (size_t i = 0; i < ARRAY_COUNT(lists); i++) list_init(lists[i]);
    leader_read_new(fetches);
    return fetches;
}

void fetches_take(struct fetches *fetches, struct rpc_fetch *outer, const ProtobufCMessage *request) {
    struct fetch *fetch = fetch_of(outer);
    *fetch = (struct fetch){.fetches = fetches, .flags = FETCH_NEW};
    list_init(&fetch->box);
    list_init(&fetch->all);
    list_init(&fetch->queue);
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

void fetches_cancel(struct fetches *fetches, struct rpc_fetch *outer) {
    struct fetch *fetch = fetch_of(outer);
    uv_mutex_lock(&fetches->lock);
    if (!fetch->over) {
        fetch->flags |= FETCH_CANCELLED;
        list_remove(&fetch->box); /* from among those that fired, who can be many */
        if (list_empty(&fetches->arrived)) fetch_wake(fetches);
        list_append(&fetches->arrived, &fetch->box);
    }
    uv_mutex_unlock(&fetches->lock);
}

void fetches_stop(struct fetches *fetches) {
    uv_mutex_lock(&fetches->lock);
    bool join = fetches->started && !fetches->stopping;
    fetches->stopping = true;
    fetch_wake(fetches);
    uv_mutex_unlock(&fetches->lock);
    if (join) uv_thread_join(&fetches->thread);
    leader_read_stop(fetches);
}

void fetches_free(struct fetches *fetches) {
    if (!fetches) return;
    CHECK(fetches->stopping && fetches->gates == 0);
    leader_read_free(fetches);
    uv_mutex_destroy(&fetches->lock);
    free(fetches);
}
