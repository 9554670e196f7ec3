/* Messages of protobuf-c, whose memory is an arena's: nothing needs freeing but the arena. */
#ifndef COORD_BASE_MESSAGE_H
#define COORD_BASE_MESSAGE_H

#include <protobuf-c/protobuf-c.h>

#include "base/buffer.h"
#include "base/memory.h"

/* Converts between fields of bytes and slices. Nothing is copied. */
static inline struct slice message_slice(ProtobufCBinaryData data) { return slice_make(data.data, data.len); }
static inline ProtobufCBinaryData message_bytes(struct slice slice) {
    return (ProtobufCBinaryData){.len = slice.size, .data = (uint8_t *)(uintptr_t)slice.data};
}

struct slice message_pack(struct arena *arena, const ProtobufCMessage *message);
/* NULL: the bytes are no such message. */
void *message_unpack(struct arena *arena, const ProtobufCMessageDescriptor *type, struct slice bytes);
/* A deep copy. */
ProtobufCMessage *message_copy(struct arena *arena, const ProtobufCMessage *message);

#endif
