/* Growable byte buffers and slices. */
#ifndef COORD_BASE_BUFFER_H
#define COORD_BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Bytes owned by somebody else. Not NUL-terminated unless said so. */
struct slice {
    const char *data;
    size_t size;
};

static inline struct slice slice_make(const void *data, size_t size) {
    return (struct slice){(const char *)data, size};
}
static inline struct slice slice_text(const char *text) { return slice_make(text, text ? strlen(text) : 0); }
#define SLICE_LITERAL(text) ((struct slice){(text), sizeof(text) - 1})
static inline bool slice_equal(struct slice a, struct slice b) {
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}
static inline bool slice_is(struct slice a, const char *text) { return slice_equal(a, slice_text(text)); }
static inline bool slice_starts(struct slice a, struct slice prefix) {
    return a.size >= prefix.size && (prefix.size == 0 || memcmp(a.data, prefix.data, prefix.size) == 0);
}
int slice_compare(struct slice a, struct slice b); /* memcmp order, shorter first */
/* Without regard to case: A to Z are a to z, other bytes are themselves. */
bool slice_equal_nocase(struct slice a, struct slice b);
int slice_compare_nocase(struct slice a, struct slice b);
void bytes_lower(char *bytes, size_t size); /* in place */
bool slice_has_upper(struct slice text);    /* has bytes_lower anything to change? */
struct arena;
struct slice slice_copy(struct arena *arena, struct slice bytes); /* in the arena, with a NUL behind them */

/* Owns `data`. Zero-initialise. */
struct buffer {
    char *data;
    size_t size, capacity;
};
void buffer_reserve(struct buffer *buffer, size_t extra); /* room for `extra` more bytes */
void buffer_append(struct buffer *buffer, const void *data, size_t size);
void buffer_append_text(struct buffer *buffer, const char *text);
void buffer_append_byte(struct buffer *buffer, char byte);
void buffer_printf(struct buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buffer_append_u64(struct buffer *buffer, uint64_t value); /* decimal, no printf */
void buffer_reset(struct buffer *buffer);                      /* keeps the memory */
void buffer_free(struct buffer *buffer);
char *buffer_take(struct buffer *buffer, size_t *size); /* caller frees; buffer is empty afterwards */
static inline struct slice buffer_slice(const struct buffer *buffer) { return slice_make(buffer->data, buffer->size); }

/* Big- and little-endian fixed-width integers. */
static inline void put_be64(void *to, uint64_t v) {
    v = __builtin_bswap64(v);
    memcpy(to, &v, 8);
}
static inline uint64_t get_be64(const void *from) {
    uint64_t v;
    memcpy(&v, from, 8);
    return __builtin_bswap64(v);
}
static inline void put_le64(void *to, uint64_t v) { memcpy(to, &v, 8); }
static inline uint64_t get_le64(const void *from) {
    uint64_t v;
    memcpy(&v, from, 8);
    return v;
}
static inline void put_le32(void *to, uint32_t v) { memcpy(to, &v, 4); }
static inline uint32_t get_le32(const void *from) {
    uint32_t v;
    memcpy(&v, from, 4);
    return v;
}
static inline void put_be16(void *to, uint16_t v) {
    v = __builtin_bswap16(v);
    memcpy(to, &v, 2);
}
static inline uint16_t get_be16(const void *from) {
    uint16_t v;
    memcpy(&v, from, 2);
    return __builtin_bswap16(v);
}
static inline void put_be32(void *to, uint32_t v) {
    v = __builtin_bswap32(v);
    memcpy(to, &v, 4);
}
static inline uint32_t get_be32(const void *from) {
    uint32_t v;
    memcpy(&v, from, 4);
    return __builtin_bswap32(v);
}

#endif
