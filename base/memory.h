/* Allocation that cannot fail, and arenas.
 *
 * A process that runs out of memory stops with a message and is restarted; every size that a client or peer decides
 * is bounded before memory is taken (limits), so that they cannot make this happen. */
#ifndef COORD_BASE_MEMORY_H
#define COORD_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

void *mem_alloc(size_t size);  /* never NULL; free with free() */
void *mem_zalloc(size_t size); /* zeroed */
void *mem_realloc(void *pointer, size_t size);
char *mem_strdup(const char *text);
char *mem_strndup(const char *text, size_t size);

/* Unmaps the pages of code and constants that this process has touched; those that are needed again come back from the
 * page cache. Otherwise the pages that only starting needed (the dynamic linker, libraries' beginnings, and the pages
 * that the kernel maps around each) would count as this process's memory for ever. Any thread. */
void mem_release_code(void);

/* Arena: many small allocations, freed together. Not thread-safe. Zero-initialise. The first chunk is taken on first
 * use; arena_reset keeps one chunk (of at most 64 KiB) for reuse. Results are 16-byte aligned. */
struct arena_chunk;
struct arena {
    struct arena_chunk *chunk;
    char *at, *end;
};
void *arena_alloc(struct arena *arena, size_t size);
void *arena_zalloc(struct arena *arena, size_t size);
char *arena_strndup(struct arena *arena, const char *text, size_t size); /* NUL-terminated copy */
char *arena_printf(struct arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
void arena_reset(struct arena *arena);
void arena_free(struct arena *arena);

/* For protobuf-c: unpack into an arena (nothing needs freeing but the arena). The returned struct is embedded by
 * value: `ProtobufCAllocator a = arena_protobuf(&arena);` (declared where protobuf-c is used). */
void *arena_protobuf_alloc(void *arena, size_t size);
void arena_protobuf_free(void *arena, void *pointer);
#define ARENA_PROTOBUF(arena_pointer) \
    { .alloc = arena_protobuf_alloc, .free = arena_protobuf_free, .allocator_data = (arena_pointer) }

#endif
