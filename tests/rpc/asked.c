#include "asked.h"

#include <string.h>

#include "base/check.h"
#include "kv/keys/kv.h"

static void on_done(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched) {
    struct asked *asked = CONTAINER_OF(fetch, struct asked, fetch);
    CHECK((error == CO_OK) == (fetched != NULL));
    asked->error = error;
    if (fetched) {
        asked->fetched = *fetched;
        buffer_append(&asked->records, fetched->records.data, fetched->records.size);
    }
    CHECK(atomic_fetch_add(&asked->count, 1) == 0);
    uv_sem_post(&asked->done);
}

void asked_begin(struct asked *asked, struct rpc *rpc, const struct query_type *type, const ProtobufCMessage *request,
                 struct how how) {
    *asked = (struct asked){0};
    asked->fetch = (struct rpc_fetch){.type = type,
                                      .freshness = how.stale ? RPC_STALE : RPC_DEFAULT,
                                      .here = how.here,
                                      .index = how.index,
                                      .wait_ms = how.wait_ms,
                                      .view = how.view,
                                      .requester = how.requester,
                                      .done = on_done};
    CHECK(uv_sem_init(&asked->done, 0) == 0);
    rpc_fetch(rpc, &asked->fetch, request);
}

void asked_begin_key(struct asked *asked, struct rpc *rpc, const struct query_type *type, const char *key,
                     struct how how) {
    Pb__KvRequest request = PB__KV_REQUEST__INIT;
    request.key = (ProtobufCBinaryData){strlen(key), (uint8_t *)(uintptr_t)key};
    asked_begin(asked, rpc, type, &request.base, how);
}

bool asked_over(struct asked *asked) { return atomic_load(&asked->count) > 0; }
void asked_await(struct asked *asked) { uv_sem_wait(&asked->done); }

void asked_end(struct asked *asked) {
    CHECK(atomic_load(&asked->count) == 1);
    uv_sem_destroy(&asked->done);
    buffer_free(&asked->records);
}

bool asked_value_is(const struct asked *asked, const char *value) {
    if (!asked->fetched.found) return value == NULL;
    Pb__KvEntry *entry = pb__kv_entry__unpack(NULL, asked->records.size, (const uint8_t *)asked->records.data);
    CHECK(entry && entry->modify_index == asked->fetched.index);
    bool is = value && slice_equal(slice_make(entry->value.data, entry->value.len), slice_text(value));
    pb__kv_entry__free_unpacked(entry, NULL);
    return is;
}
