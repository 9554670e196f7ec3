#include "fake_fetch.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/list.h"

struct fake_fetches {
    struct rpc *rpc;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct list queue;
    bool stop;
};

struct queued {
    struct list link;
    uint8_t *request;
    size_t size;
    bool cancelled;
};
_Static_assert(sizeof(struct queued) <= sizeof(((struct rpc_fetch *)0)->impl), "rpc_fetch.impl is too small");

static struct queued *queued_of(struct rpc_fetch *fetch) { return (struct queued *)(void *)fetch->impl; }

static int look(struct rpc *rpc, struct rpc_reader *reader, struct rpc_fetch *fetch, struct arena *arena,
                struct rpc_fetched *fetched) {
    ProtobufCAllocator allocator = ARENA_PROTOBUF(arena);
    const struct queued *queued = queued_of(fetch);
    struct query_result result = {0};
    if (!rpc_known_leader(rpc)) return CO_NOLEADER;
    const ProtobufCMessage *request =
        protobuf_c_message_unpack(fetch->type->request, &allocator, queued->size, queued->request);
    CHECK(request && fetch->index == 0);
    int error = fetch->type->run(rpc_read_begin(reader), request, arena, &result);
    size_t size = result.message ? protobuf_c_message_get_packed_size(result.message) : 0;
    uint8_t *bytes = arena_alloc(arena, size + 1);
    if (size) protobuf_c_message_pack(result.message, bytes);
    rpc_read_end(reader);
    *fetched = (struct rpc_fetched){.index = result.index ? result.index : 1, .found = result.found,
                                    .none = !result.message, .records = slice_make(bytes, size), .known_leader = true};
    return error;
}

static void answer(struct rpc *rpc, struct rpc_reader *reader, struct rpc_fetch *fetch, bool closed) {
    struct arena arena = {0};
    struct rpc_fetched fetched;
    int error = closed ? CO_CLOSED : look(rpc, reader, fetch, &arena, &fetched);
    free(queued_of(fetch)->request);
    fetch->done(fetch, error, error ? NULL : &fetched);
    arena_free(&arena);
}

static void *fetches_main(void *data) {
    struct fake_fetches *fetches = data;
    struct rpc_reader *reader = rpc_reader_new(fetches->rpc);
    pthread_mutex_lock(&fetches->lock);
    for (;;) {
        while (!fetches->stop && list_empty(&fetches->queue)) pthread_cond_wait(&fetches->wake, &fetches->lock);
        if (list_empty(&fetches->queue)) break;
        struct queued *queued = LIST_ENTRY(fetches->queue.next, struct queued, link);
        list_remove(&queued->link);
        bool closed = queued->cancelled || fetches->stop;
        pthread_mutex_unlock(&fetches->lock);
        answer(fetches->rpc, reader, CONTAINER_OF((char *)queued, struct rpc_fetch, impl), closed);
        pthread_mutex_lock(&fetches->lock);
    }
    pthread_mutex_unlock(&fetches->lock);
    rpc_reader_free(reader);
    return NULL;
}

struct fake_fetches *fake_fetches_start(struct rpc *rpc) {
    struct fake_fetches *fetches = mem_zalloc(sizeof *fetches);
    fetches->rpc = rpc;
    list_init(&fetches->queue);
    pthread_mutex_init(&fetches->lock, NULL);
    pthread_cond_init(&fetches->wake, NULL);
    CHECK(pthread_create(&fetches->thread, NULL, fetches_main, fetches) == 0);
    return fetches;
}

void fake_fetches_stop(struct fake_fetches *fetches) {
    pthread_mutex_lock(&fetches->lock);
    fetches->stop = true;
    pthread_cond_signal(&fetches->wake);
    pthread_mutex_unlock(&fetches->lock);
    pthread_join(fetches->thread, NULL);
    pthread_mutex_destroy(&fetches->lock);
    pthread_cond_destroy(&fetches->wake);
    free(fetches);
}

void fake_fetches_take(struct fake_fetches *fetches, struct rpc_fetch *fetch, const ProtobufCMessage *request) {
    struct queued *queued = queued_of(fetch);
    *queued = (struct queued){.size = protobuf_c_message_get_packed_size(request)};
    queued->request = mem_alloc(queued->size + 1);
    protobuf_c_message_pack(request, queued->request);
    pthread_mutex_lock(&fetches->lock);
    list_append(&fetches->queue, &queued->link);
    pthread_cond_signal(&fetches->wake);
    pthread_mutex_unlock(&fetches->lock);
}

void fake_fetches_cancel(struct fake_fetches *fetches, struct rpc_fetch *fetch) {
    pthread_mutex_lock(&fetches->lock);
    queued_of(fetch)->cancelled = true;
    pthread_mutex_unlock(&fetches->lock);
}
