#include "world_calls.h"

#include "base/message.h"

struct world_call *world_calls_new(struct world_calls *calls, uint64_t due_ms) {
    for (size_t i = 0; i < CALLS_MOST; i++) {
        struct world_call *call = &calls->call[i];
        if (call->state != CALL_FREE) continue;
        struct buffer bytes = call->bytes;
        buffer_reset(&bytes);
        *call = (struct world_call){.state = CALL_GOES, .bytes = bytes, .due_ms = due_ms};
        return call;
    }
    return NULL;
}

struct world_call *world_calls_due(struct world_calls *calls, uint64_t now_ms) {
    struct world_call *first = NULL;
    for (size_t i = 0; i < CALLS_MOST; i++) {
        struct world_call *call = &calls->call[i];
        if (call->state == CALL_FREE || call->due_ms > now_ms) continue;
        if (!first || call->due_ms < first->due_ms) first = call;
    }
    return first;
}

void world_call_put(struct world_call *call, const ProtobufCMessage *message) {
    struct arena arena = {0};
    struct slice packed = message_pack(&arena, message);
    buffer_reset(&call->bytes);
    buffer_append(&call->bytes, packed.data, packed.size);
    arena_free(&arena);
}

void world_calls_free(struct world_calls *calls) {
    for (size_t i = 0; i < CALLS_MOST; i++) buffer_free(&calls->call[i].bytes);
}
