#include <stdlib.h>

#include "base/check.h"
#include "base/message.h"
#include "health/sync.h"

enum { OF_SERVICES, OF_CHECKS, PARTS };

/* Two queries on their way. They outlive the sync when that goes first. */
struct sync_read {
    uv_mutex_t lock;
    struct sync *sync; /* NULL: nobody wants to know any more */
    unsigned left;
    int error;
    struct part {
        struct rpc_fetch fetch;
        struct sync_read *read;
        struct buffer records;
        bool found;
    } parts[PARTS];
};

static void read_free(struct sync_read *read) {
    for (size_t i = 0; i < PARTS; i++) buffer_free(&read->parts[i].records);
    uv_mutex_destroy(&read->lock);
    free(read);
}

/* Another thread. */
static void on_fetched(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched) {
    struct part *part = CONTAINER_OF(fetch, struct part, fetch);
    struct sync_read *read = part->read;
    uv_mutex_lock(&read->lock);
    if (error != CO_OK) {
        read->error = error;
    } else {
        part->found = fetched->found;
        buffer_append(&part->records, fetched->records.data, fetched->records.size);
    }
    bool last = --read->left == 0;
    struct sync *sync = read->sync;
    if (last && sync) local_wake(sync->local); /* it cannot go while we hold the lock */
    uv_mutex_unlock(&read->lock);
    if (last && !sync) read_free(read);
}

void sync_read_begin(struct sync *sync) {
    struct sync_read *read = mem_zalloc(sizeof *read);
    const struct query_type *types[PARTS] = {&query_node_services, &query_node_checks};
    Pb__NodeRequest request = PB__NODE_REQUEST__INIT;
    request.node = (char *)sync->local->config.node;
    CHECK(uv_mutex_init(&read->lock) == 0);
    read->sync = sync;
    read->left = PARTS;
    sync->read = read;
    for (size_t i = 0; i < PARTS; i++) {
        struct part *part = &read->parts[i];
        part->read = read;
        part->fetch = (struct rpc_fetch){.type = types[i], .freshness = RPC_CONSISTENT, .done = on_fetched};
        rpc_fetch(sync->local->rpc, &part->fetch, &request.base);
    }
}

static const ProtobufCMessage *unpack(struct sync *sync, const struct part *part) {
    return message_unpack(&sync->arena, part->fetch.type->result, buffer_slice(&part->records));
}

int sync_read_take(struct sync *sync, struct sync_catalog *catalog) {
    struct sync_read *read = sync->read;
    uv_mutex_lock(&read->lock);
    bool ended = read->left == 0;
    uv_mutex_unlock(&read->lock);
    if (!ended) return CO_AGAIN;
    int error = read->error;
    if (error == CO_OK) {
        catalog->services = (const Pb__NodeServicesResult *)unpack(sync, &read->parts[OF_SERVICES]);
        catalog->checks = (const Pb__ChecksResult *)unpack(sync, &read->parts[OF_CHECKS]);
        if (!catalog->services || !catalog->checks) error = CO_CORRUPT;
        if (!read->parts[OF_SERVICES].found) catalog->services = NULL;
    }
    sync->read = NULL;
    read_free(read);
    return error;
}

void sync_read_drop(struct sync *sync) {
    struct sync_read *read = sync->read;
    if (!read) return;
    sync->read = NULL;
    uv_mutex_lock(&read->lock);
    read->sync = NULL;
    bool ended = read->left == 0;
    for (size_t i = 0; i < PARTS && !ended; i++) rpc_fetch_cancel(sync->local->rpc, &read->parts[i].fetch);
    uv_mutex_unlock(&read->lock);
    if (ended) read_free(read);
}
