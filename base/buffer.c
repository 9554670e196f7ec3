#include "base/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"

struct slice slice_copy(struct arena *arena, struct slice bytes) {
    return slice_make(arena_strndup(arena, bytes.data, bytes.size), bytes.size);
}

int slice_compare(struct slice a, struct slice b) {
    size_t common = a.size < b.size ? a.size : b.size;
    int order = common ? memcmp(a.data, b.data, common) : 0;
    if (order) return order;
    return a.size < b.size ? -1 : a.size > b.size;
}

static inline unsigned char lower(char c) {
    unsigned char byte = (unsigned char)c;
    return (unsigned char)(byte | ((unsigned char)(byte - 'A') < 26) << 5);
}

/* Of eight bytes: 0x80 in each that is A to Z. */
static inline uint64_t upper8(uint64_t bytes) {
    const uint64_t ones = 0x0101010101010101, high = 0x80 * ones;
    uint64_t low = bytes & ~high;
    uint64_t from_a = low + (0x80 - 'A') * ones, beyond_z = low + (0x7f - 'Z') * ones;
    return (from_a ^ beyond_z) & ~bytes & high;
}

static inline uint64_t load8(const char *from) {
    uint64_t bytes;
    memcpy(&bytes, from, sizeof bytes);
    return bytes;
}

static inline void lower8(char *at) {
    uint64_t bytes = load8(at);
    bytes |= upper8(bytes) >> 2;
    memcpy(at, &bytes, sizeof bytes);
}

/* The last eight bytes may overlap those before: folding a byte twice changes nothing. */
void bytes_lower(char *bytes, size_t size) {
    if (size < sizeof(uint64_t)) {
        for (size_t i = 0; i < size; i++) bytes[i] = (char)lower(bytes[i]);
        return;
    }
    for (size_t i = 0; i + sizeof(uint64_t) < size; i += sizeof(uint64_t)) lower8(bytes + i);
    lower8(bytes + size - sizeof(uint64_t));
}

bool slice_has_upper(struct slice text) {
    uint64_t found = 0;
    if (text.size < sizeof(uint64_t)) {
        for (size_t i = 0; i < text.size; i++) found |= (unsigned char)((unsigned char)text.data[i] - 'A') < 26;
        return found != 0;
    }
    for (size_t i = 0; i + sizeof(uint64_t) < text.size; i += sizeof(uint64_t)) found |= upper8(load8(text.data + i));
    return (found | upper8(load8(text.data + text.size - sizeof(uint64_t)))) != 0;
}

int slice_compare_nocase(struct slice a, struct slice b) {
    size_t common = a.size < b.size ? a.size : b.size;
    for (size_t i = 0; i < common; i++) {
        unsigned char one = lower(a.data[i]), other = lower(b.data[i]);
        if (one != other) return one < other ? -1 : 1;
    }
    return a.size < b.size ? -1 : a.size > b.size;
}

bool slice_equal_nocase(struct slice a, struct slice b) {
    if (a.size != b.size) return false;
    for (size_t i = 0; i < a.size; i++) {
        if (lower(a.data[i]) != lower(b.data[i])) return false;
    }
    return true;
}

void buffer_reserve(struct buffer *buffer, size_t extra) {
    if (extra <= buffer->capacity - buffer->size) return;
    CHECK(extra <= SIZE_MAX / 4 && buffer->size <= SIZE_MAX / 4);
    size_t capacity = buffer->capacity ? buffer->capacity * 2 : 64;
    if (capacity < buffer->size + extra) capacity = buffer->size + extra;
    buffer->data = mem_realloc(buffer->data, capacity);
    buffer->capacity = capacity;
}

void buffer_append(struct buffer *buffer, const void *data, size_t size) {
    if (size == 0) return;
    buffer_reserve(buffer, size);
    memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
}

void buffer_append_text(struct buffer *buffer, const char *text) { buffer_append(buffer, text, strlen(text)); }

void buffer_append_byte(struct buffer *buffer, char byte) {
    if (buffer->size == buffer->capacity) buffer_reserve(buffer, 1);
    buffer->data[buffer->size++] = byte;
}

void buffer_printf(struct buffer *buffer, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    size_t room = buffer->capacity - buffer->size;
    int length = vsnprintf(room ? buffer->data + buffer->size : NULL, room, format, arguments);
    va_end(arguments);
    CHECK(length >= 0);
    if ((size_t)length >= room) {
        buffer_reserve(buffer, (size_t)length + 1);
        vsnprintf(buffer->data + buffer->size, (size_t)length + 1, format, again);
    }
    va_end(again);
    buffer->size += (size_t)length;
}

static const char digit_pairs[200] =
    "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849"
    "5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

void buffer_append_u64(struct buffer *buffer, uint64_t value) {
    char text[20];
    size_t at = sizeof text;
    while (value >= 100) {
        at -= 2;
        memcpy(text + at, digit_pairs + value % 100 * 2, 2);
        value /= 100;
    }
    if (value >= 10) {
        at -= 2;
        memcpy(text + at, digit_pairs + value * 2, 2);
    } else {
        text[--at] = (char)('0' + value);
    }
    buffer_append(buffer, text + at, sizeof text - at);
}

void buffer_reset(struct buffer *buffer) { buffer->size = 0; }

void buffer_free(struct buffer *buffer) {
    free(buffer->data);
    *buffer = (struct buffer){0};
}

char *buffer_take(struct buffer *buffer, size_t *size) {
    char *data = buffer->data ? buffer->data : mem_alloc(1);
    if (size) *size = buffer->size;
    *buffer = (struct buffer){0};
    return data;
}
