#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_in.h"

#define LARGE  ((size_t)32 << 20)
#define WINDOW ((size_t)64 << 10)
#define PIECE  ((size_t)256 << 10)

/* A file without a name, of bytes that tell their place. */
static int make(size_t size) {
    char path[] = "/tmp/test-file-in-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    unlink(path);
    uint32_t *words = malloc(size);
    for (size_t i = 0; i < size / sizeof *words; i++) words[i] = (uint32_t)i;
    cr_assert_eq(write(fd, words, size), (ssize_t)size);
    free(words);
    cr_assert_eq(fsync(fd), 0);
    return fd;
}

static size_t in_memory(int fd, size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), found = 0;
    unsigned char *pages = malloc(size / page);
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    cr_assert(map != MAP_FAILED && mincore(map, size, pages) == 0);
    for (size_t i = 0; i < size / page; i++) found += pages[i] & 1;
    munmap(map, size);
    free(pages);
    return found * page;
}

Test(file_in, gives_what_is_there_up_to_the_end) {
    size_t size = 1 << 20, got;
    int fd = make(size);
    uint32_t *words = malloc(size);
    cr_assert_eq(file_in(fd, 0, words, size, &got), CO_OK);
    cr_assert_eq(got, size);
    for (size_t i = 0; i < size / sizeof *words; i++) cr_assert_eq(words[i], i);
    cr_assert_eq(file_in(fd, size - 4, words, size, &got), CO_OK);
    cr_assert(got == 4 && words[0] == size / 4 - 1);
    cr_assert_eq(file_in(fd, size, words, size, &got), CO_OK);
    cr_assert_eq(got, 0);
    cr_assert_eq(file_in_all(fd, 400, words, 8), CO_OK);
    cr_assert(words[0] == 100 && words[1] == 101);
    cr_assert_eq(file_in_all(fd, size - 4, words, 8), CO_IO, "it ends before");
    free(words);
    close(fd);
    char byte;
    cr_assert_eq(file_in(fd, 0, &byte, 1, &got), CO_IO, "not a file");
}

static bool soon_more_than(int fd, size_t size) {
    for (uint64_t until = clock_mono_ms() + 30000; clock_mono_ms() < until; usleep(1000))
        if (in_memory(fd, LARGE) > size) return true;
    return false;
}

/* Bites where the machine's own setting is larger than that (/sys/block/DISK/queue/read_ahead_kb). */
Test(file_in, little_is_read_ahead_however_the_machine_is_set) {
    int fd = make(LARGE);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    size_t before = in_memory(fd, LARGE);
    file_in_opened(fd);
    char *data = malloc(WINDOW);
    cr_assert_eq(file_in_all(fd, 0, data, WINDOW), CO_OK);
    /* else: a file system in memory, or with a cache of its own */
    bool tells = before == 0 && in_memory(fd, LARGE) > 0;
    for (size_t at = WINDOW; tells && at < 16 * WINDOW; at += WINDOW) {
        cr_assert_eq(file_in_all(fd, at, data, WINDOW), CO_OK);
        size_t there = in_memory(fd, LARGE), read = at + WINDOW;
        cr_assert_leq(there, read + 2 * PIECE, "after %zu bytes %zu are there", read, there);
    }
    if (tells) cr_assert(soon_more_than(fd, 16 * WINDOW), "who reads on is not kept waiting for each piece");
    free(data);
    close(fd);
    if (!tells) cr_skip_test("no disk below /tmp");
}
