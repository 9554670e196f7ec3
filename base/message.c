#include "base/message.h"

#include "base/check.h"

struct slice message_pack(struct arena *arena, const ProtobufCMessage *message) {
    uint8_t *bytes = arena_alloc(arena, protobuf_c_message_get_packed_size(message));
    return slice_make(bytes, protobuf_c_message_pack(message, bytes));
}

void *message_unpack(struct arena *arena, const ProtobufCMessageDescriptor *type, struct slice bytes) {
    ProtobufCAllocator allocator = ARENA_PROTOBUF(arena);
    return protobuf_c_message_unpack(type, &allocator, bytes.size, (const uint8_t *)bytes.data);
}

ProtobufCMessage *message_copy(struct arena *arena, const ProtobufCMessage *message) {
    ProtobufCMessage *copy = message_unpack(arena, message->descriptor, message_pack(arena, message));
    CHECK(copy);
    return copy;
}
