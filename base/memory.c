#include "base/memory.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* With the address sanitizer, an access to memory of an arena that is not handed out (or was taken back) is an
 * error. */
#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define ARENA_ASAN 1
#endif
#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, size)   ((void)(at), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#endif

#define ARENA_ALIGN ((size_t)16)
#define ARENA_FIRST ((size_t)4096)
#define ARENA_KEEP  ((size_t)64 * 1024)

/* Chunks are linked newest first; `size` counts the header. */
struct arena_chunk {
    struct arena_chunk *next;
    size_t size;
};
_Static_assert(sizeof(struct arena_chunk) % 16 == 0, "chunk contents are 16-byte aligned");

static _Noreturn void out_of_memory(size_t size) {
    fprintf(stderr, "coord: out of memory (%zu bytes wanted)\n", size);
    abort();
}

void *mem_alloc(size_t size) {
    void *pointer = malloc(size ? size : 1);
    if (!pointer) out_of_memory(size);
    return pointer;
}

void *mem_zalloc(size_t size) {
    void *pointer = calloc(1, size ? size : 1);
    if (!pointer) out_of_memory(size);
    return pointer;
}

void *mem_realloc(void *pointer, size_t size) {
    void *moved = realloc(pointer, size ? size : 1);
    if (!moved) out_of_memory(size);
    return moved;
}

char *mem_strndup(const char *text, size_t size) {
    char *copy = mem_alloc(size + 1);
    if (size) memcpy(copy, text, size);
    copy[size] = '\0';
    return copy;
}

char *mem_strdup(const char *text) { return mem_strndup(text, strlen(text)); }

static struct arena_chunk *chunk_new(size_t size) {
    struct arena_chunk *chunk = mem_alloc(size);
    chunk->size = size;
    chunk->next = NULL;
    ASAN_POISON_MEMORY_REGION(chunk + 1, size - sizeof *chunk);
    return chunk;
}

/* A result that would fill much of a chunk gets one of its own, below the current one, whose rest stays in use. */
static void *alloc_apart(struct arena *arena, size_t size) {
    struct arena_chunk *chunk = chunk_new(sizeof *chunk + size);
    if (arena->chunk) {
        chunk->next = arena->chunk->next;
        arena->chunk->next = chunk;
    } else {
        arena->chunk = chunk;
        arena->at = arena->end = (char *)chunk + chunk->size;
    }
    return chunk + 1;
}

static void arena_grow(struct arena *arena) {
    size_t size = arena->chunk ? arena->chunk->size * 2 : ARENA_FIRST;
    if (size > ARENA_KEEP) size = ARENA_KEEP;
    if (size < ARENA_FIRST) size = ARENA_FIRST;
    struct arena_chunk *chunk = chunk_new(size);
    chunk->next = arena->chunk;
    arena->chunk = chunk;
    arena->at = (char *)(chunk + 1);
    arena->end = (char *)chunk + size;
}

void *arena_alloc(struct arena *arena, size_t size) {
    if (size > SIZE_MAX / 2) out_of_memory(size);
    size_t room = (size + ARENA_ALIGN - 1) & ~(ARENA_ALIGN - 1);
    if (room == 0) room = ARENA_ALIGN;
    void *result;
    if (room <= (size_t)(arena->end - arena->at)) {
        result = arena->at;
        arena->at += room;
    } else if (room > ARENA_FIRST / 2) {
        result = alloc_apart(arena, room);
    } else {
        arena_grow(arena);
        result = arena->at;
        arena->at += room;
    }
    ASAN_UNPOISON_MEMORY_REGION(result, size);
    return result;
}

void *arena_zalloc(struct arena *arena, size_t size) {
    void *result = arena_alloc(arena, size);
    memset(result, 0, size);
    return result;
}

char *arena_strndup(struct arena *arena, const char *text, size_t size) {
    char *copy = arena_alloc(arena, size + 1);
    if (size) memcpy(copy, text, size);
    copy[size] = '\0';
    return copy;
}

char *arena_printf(struct arena *arena, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    CHECK(length >= 0);
    char *text = arena_alloc(arena, (size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

/* Frees every chunk but `keep`. */
static void free_but(struct arena *arena, const struct arena_chunk *keep) {
    for (struct arena_chunk *chunk = arena->chunk, *next; chunk; chunk = next) {
        next = chunk->next;
        if (chunk != keep) free(chunk);
    }
}

void arena_reset(struct arena *arena) {
    struct arena_chunk *keep = NULL;
    for (struct arena_chunk *chunk = arena->chunk; chunk; chunk = chunk->next) {
        if (chunk->size <= ARENA_KEEP && (!keep || chunk->size > keep->size)) keep = chunk;
    }
    free_but(arena, keep);
    *arena = (struct arena){.chunk = keep};
    if (!keep) return;
    keep->next = NULL;
    arena->at = (char *)(keep + 1);
    arena->end = (char *)keep + keep->size;
    ASAN_POISON_MEMORY_REGION(arena->at, (size_t)(arena->end - arena->at));
}

void arena_free(struct arena *arena) {
    free_but(arena, NULL);
    *arena = (struct arena){0};
}

void *arena_protobuf_alloc(void *arena, size_t size) { return arena_alloc(arena, size); }

void arena_protobuf_free(void *arena, void *pointer) {
    (void)arena;
    (void)pointer;
}
