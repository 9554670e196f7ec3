#include "rpc/wire/frame_unpack.h"

#include <stdlib.h>

struct allowance {
    struct arena *arena;
    size_t left;
};

static void *take(void *data, size_t size) {
    struct allowance *allowance = data;
    size = (size + 15) & ~(size_t)15; /* both kinds of memory round up: a text of one byte takes more than one */
    if (size > allowance->left) return NULL;
    allowance->left -= size;
    return allowance->arena ? arena_alloc(allowance->arena, size) : mem_alloc(size);
}

static void give_back(void *data, void *pointer) {
    struct allowance *allowance = data;
    if (!allowance->arena) free(pointer);
}

void *frame_unpack_within(const ProtobufCMessageDescriptor *type, struct slice payload, struct arena *arena,
                          size_t most) {
    struct allowance allowance = {arena, most};
    ProtobufCAllocator allocator = {.alloc = take, .free = give_back, .allocator_data = &allowance};
    return protobuf_c_message_unpack(type, &allocator, payload.size, (const uint8_t *)payload.data);
}

void *frame_unpack(const ProtobufCMessageDescriptor *type, struct slice payload, struct arena *arena) {
    return frame_unpack_within(type, payload, arena, payload.size + FRAME_UNPACK_MORE);
}

void frame_drop(void *message) { protobuf_c_message_free_unpacked(message, NULL); }
