#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

Test(memory, plain) {
    char *copy = mem_strdup("abc");
    cr_expect_str_eq(copy, "abc");
    copy = mem_realloc(copy, 100);
    cr_expect_str_eq(copy, "abc");
    free(copy);
    copy = mem_strndup("abcdef", 2);
    cr_expect_str_eq(copy, "ab");
    free(copy);
    copy = mem_strndup(NULL, 0);
    cr_expect_str_eq(copy, "");
    free(copy);
    unsigned char *zeroed = mem_zalloc(64);
    for (int i = 0; i < 64; i++) cr_expect_eq(zeroed[i], 0);
    free(zeroed);
    void *nothing = mem_alloc(0);
    cr_expect_not_null(nothing);
    free(nothing);
}

/* Fills results with their number, and looks later whether one ran over another. */
static void fill(struct arena *arena, const size_t *sizes, size_t count) {
    unsigned char **results = mem_alloc(count * sizeof *results);
    for (size_t i = 0; i < count; i++) {
        results[i] = arena_alloc(arena, sizes[i]);
        cr_assert_eq((uintptr_t)results[i] % 16, 0, "size %zu", sizes[i]);
        memset(results[i], (int)(i & 255), sizes[i]);
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t at = 0; at < sizes[i]; at++) cr_assert_eq(results[i][at], i & 255, "result %zu", i);
    }
    free(results);
}

Test(arena, results_are_apart) {
    static const size_t sizes[] = {0, 1, 15, 16, 17, 3000, 5000, 100000, 1, 63, 70000, 2048, 2049, 1, 4096, 300, 65536};
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    struct arena arena = {0};
    for (int round = 0; round < 20; round++) {
        for (int again = 0; again < 20; again++) fill(&arena, sizes, COUNT);
        arena_reset(&arena);
    }
    arena_free(&arena);
    cr_expect_null(arena.chunk);
}

Test(arena, big_first) {
    struct arena arena = {0};
    static const size_t sizes[] = {200000, 1, 2, 3};
    fill(&arena, sizes, 4);
    arena_reset(&arena);
    fill(&arena, sizes, 4);
    arena_free(&arena);
}

Test(arena, reset_keeps_a_chunk) {
    struct arena arena = {0};
    void *first = arena_alloc(&arena, 100);
    arena_reset(&arena);
    cr_expect_eq(arena_alloc(&arena, 100), first);
    arena_free(&arena);
    arena_reset(&arena);
    arena_free(&arena);
}

Test(arena, texts) {
    struct arena arena = {0};
    cr_expect_str_eq(arena_strndup(&arena, "abcdef", 3), "abc");
    cr_expect_str_eq(arena_strndup(&arena, NULL, 0), "");
    cr_expect_str_eq(arena_printf(&arena, "%s-%d", "x", 42), "x-42");
    char *longer = arena_printf(&arena, "%05000d", 1);
    cr_expect_eq(strlen(longer), 5000);
    char *zeroed = arena_zalloc(&arena, 4000);
    for (int i = 0; i < 4000; i++) cr_assert_eq(zeroed[i], 0);
    arena_protobuf_free(&arena, arena_protobuf_alloc(&arena, 12));
    arena_free(&arena);
}

static unsigned long file_memory(void) {
    char line[200];
    unsigned long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) (void)sscanf(line, "RssFile: %lu", &kib);
    if (file) fclose(file);
    return kib;
}

/* Reads each page of the program's code and of its libraries', so that this process holds them. */
__attribute__((no_sanitize_address)) static void use_code(void) {
    char line[1000];
    FILE *file = fopen("/proc/self/maps", "r");
    while (file && fgets(line, sizeof line, file)) {
        unsigned long begin, end;
        if (sscanf(line, "%lx-%lx r-xp", &begin, &end) != 2 || !strchr(line, '/')) continue;
        for (volatile const char *at = (const char *)begin; at < (const char *)end; at += 4096) (void)*at;
    }
    if (file) fclose(file);
}

Test(memory, code_that_is_not_used_is_not_held) {
    char *text = mem_strdup("kept");
    use_code();
    unsigned long before = file_memory();
    mem_release_code();
    cr_assert_lt(file_memory(), before);
    cr_assert_str_eq(text, "kept");
    free(text);
}
