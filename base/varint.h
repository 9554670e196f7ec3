/* Numbers of 1 to 10 bytes, as protobuf has them: seven bits a byte, the lowest first, 0x80 on all but the last. And
 * bytes with their size in front. */
#ifndef COORD_BASE_VARINT_H
#define COORD_BASE_VARINT_H

#include "base/buffer.h"

static inline void varint_append(struct buffer *out, uint64_t value) {
    for (; value >= 0x80; value >>= 7) buffer_append_byte(out, (char)(value | 0x80));
    buffer_append_byte(out, (char)value);
}

/* Takes it from the front of *rest. False: *rest does not begin with one. */
static inline bool varint_take(struct slice *rest, uint64_t *value) {
    *value = 0;
    for (size_t i = 0; i < rest->size && i < 10; i++) {
        uint8_t byte = (uint8_t)rest->data[i];
        *value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte & 0x80) continue;
        *rest = slice_make(rest->data + i + 1, rest->size - i - 1);
        return true;
    }
    return false;
}

static inline void varint_append_slice(struct buffer *out, struct slice bytes) {
    varint_append(out, bytes.size);
    buffer_append(out, bytes.data, bytes.size);
}

/* *bytes points into *rest. */
static inline bool varint_slice(struct slice *rest, struct slice *bytes) {
    uint64_t size;
    if (!varint_take(rest, &size) || size > rest->size) return false;
    *bytes = slice_make(rest->data, (size_t)size);
    *rest = slice_make(rest->data + size, rest->size - (size_t)size);
    return true;
}

#endif
