#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_out.h"
#include "base/lazy_unlink.h"

#define LARGE ((size_t)16 << 20)

struct place {
    char folder[32], path[64];
    int fd; /* of the folder */
};

static void open_place(struct place *place) {
    strcpy(place->folder, "/tmp/test-gone-XXXXXX");
    cr_assert(mkdtemp(place->folder) != NULL);
    snprintf(place->path, sizeof place->path, "%s/file", place->folder);
    place->fd = open(place->folder, O_RDONLY | O_DIRECTORY);
    cr_assert_geq(place->fd, 0);
}

static void close_place(struct place *place) {
    close(place->fd);
    cr_expect_eq(rmdir(place->folder), 0, "nothing is left");
}

/* Its handle. */
static int make(const struct place *place, size_t size) {
    int fd = open(place->path, O_RDWR | O_CREAT | O_EXCL, 0600);
    char *bytes = malloc(size);
    memset(bytes, 'x', size);
    cr_assert_eq(write(fd, bytes, size), (ssize_t)size);
    cr_assert_eq(fsync(fd), 0);
    free(bytes);
    return fd;
}

static size_t size_of(int fd) {
    struct stat info;
    cr_assert_eq(fstat(fd, &info), 0);
    return (size_t)info.st_size;
}

/* On the disk, as far as the kernel has given it blocks yet: synced before. */
static size_t blocks_of(int fd) {
    struct stat info;
    cr_assert_eq(fstat(fd, &info), 0);
    return (size_t)info.st_blocks * 512;
}

static bool gone_soon(int fd) {
    for (uint64_t until = clock_mono_ms() + 30000; clock_mono_ms() < until; usleep(1000))
        if (blocks_of(fd) == 0) return true;
    return false;
}

static atomic_int syncs, front_gone, looked_at = -1; /* a descriptor; -1: none */

/* Instead of the library's: the remover, between two bits. */
int fdatasync(int fd) {
    char first, last;
    int look = atomic_load(&looked_at);
    atomic_fetch_add(&syncs, 1);
    if (look >= 0 && pread(look, &first, 1, 0) == 1 && pread(look, &last, 1, LARGE - 1) == 1)
        atomic_fetch_add(&front_gone, first == 0 && last == 'x');
    return (int)syscall(SYS_fdatasync, fd);
}

Test(lazy_unlink, a_large_file_is_given_back_bit_by_bit) {
    struct place place;
    open_place(&place);
    int fd = make(&place, LARGE);
    atomic_store(&looked_at, fd);
    cr_assert_eq(lazy_unlink(place.fd, "file"), CO_OK);
    cr_expect_neq(access(place.path, F_OK), 0, "the name is gone at once");
    cr_expect(gone_soon(fd));
    cr_expect_gt(atomic_load(&front_gone), 0, "its front goes before its end");
    atomic_store(&looked_at, -1);
    close(fd);
    close_place(&place);
}

Test(lazy_unlink, each_bit_is_committed_before_the_next) {
    struct place place;
    open_place(&place);
    int fd = make(&place, LARGE);
    atomic_store(&syncs, 0);
    cr_assert_eq(lazy_unlink(place.fd, "file"), CO_OK);
    cr_expect(gone_soon(fd));
    cr_expect_geq(atomic_load(&syncs), 15, "of sixteen pieces; the last one's may be under way");
    close(fd);
    close_place(&place);
}

/* Most of it may be in memory only: a sync would write it out first. */
Test(lazy_unlink, what_never_had_a_name_is_not_synced) {
    struct place place;
    open_place(&place);
    int fd = open(place.folder, O_TMPFILE | O_RDWR, 0600);
    if (fd < 0) cr_skip_test("no nameless files here");
    char *bytes = calloc(1, LARGE), own[32];
    cr_assert_eq(write(fd, bytes, LARGE), LARGE);
    free(bytes);
    atomic_store(&syncs, 0);
    lazy_unlink_when_closed(fd);
    snprintf(own, sizeof own, "/proc/self/fd/%d", fd);
    int look = open(own, O_RDONLY);
    close(fd);
    cr_expect(gone_soon(look));
    cr_expect_eq(atomic_load(&syncs), 0);
    close(look);
    close_place(&place);
}

Test(lazy_unlink, one_file_after_the_other) {
    struct place place;
    open_place(&place);
    int first = make(&place, LARGE);
    cr_assert_eq(lazy_unlink(place.fd, "file"), CO_OK);
    int second = make(&place, LARGE);
    cr_assert_eq(lazy_unlink(place.fd, "file"), CO_OK);
    for (uint64_t until = clock_mono_ms() + 30000; blocks_of(first) > 0 && clock_mono_ms() < until; usleep(500)) {
        bool all = blocks_of(second) >= LARGE;
        cr_assert(all || blocks_of(first) == 0);
    }
    cr_expect(gone_soon(first) && gone_soon(second));
    close(first), close(second);
    close_place(&place);
}

Test(lazy_unlink, not_while_somebody_reads_it) {
    struct place place;
    open_place(&place);
    int look = make(&place, LARGE), reader = open(place.path, O_RDONLY), late = open(place.path, O_RDONLY);
    cr_assert_eq(file_hold(reader), CO_OK);
    cr_assert_eq(lazy_unlink(place.fd, "file"), CO_OK);
    usleep(300000);
    char last;
    cr_expect_eq(pread(reader, &last, 1, LARGE - 1), 1);
    cr_expect_eq(last, 'x');
    close(reader);
    cr_expect(gone_soon(look));
    cr_expect_eq(file_hold(late), CO_NOTFOUND, "opened before, too late to be read");
    usleep(50000); /* the remover has closed it, too */
    cr_expect_eq(file_hold(late), CO_NOTFOUND);
    close(look), close(late);
    close_place(&place);
}

Test(lazy_unlink, several_at_once_and_one_that_is_read_holds_up_no_other) {
    struct place place;
    open_place(&place);
    int read = make(&place, LARGE);
    cr_assert_eq(file_hold(read), CO_OK);
    cr_assert_eq(lazy_unlink(place.fd, "file"), CO_OK);
    int other = make(&place, LARGE);
    cr_assert_eq(lazy_unlink(place.fd, "file"), CO_OK);
    cr_expect(gone_soon(other));
    cr_expect_eq(size_of(read), LARGE);
    close(other), close(read);
    close_place(&place);
}

Test(lazy_unlink, small_missing_and_what_is_no_file) {
    struct place place;
    open_place(&place);
    close(make(&place, 100));
    cr_expect_eq(lazy_unlink(place.fd, "file"), CO_OK);
    cr_expect_eq(lazy_unlink(place.fd, "file"), CO_NOTFOUND);
    cr_assert_eq(mkdir(place.path, 0700), 0);
    cr_expect_neq(lazy_unlink(place.fd, "file"), CO_OK, "a folder");
    cr_assert_eq(rmdir(place.path), 0);
    close_place(&place);
}

/* A store's file is: 64 GiB long, some megabytes full. */
Test(lazy_unlink, a_hole_behind_it_takes_no_time) {
    struct place place;
    open_place(&place);
    int fd = make(&place, LARGE);
    cr_assert_eq(ftruncate(fd, (off_t)64 << 30), 0);
    cr_assert_eq(lazy_unlink(place.fd, "file"), CO_OK);
    cr_expect(gone_soon(fd));
    close(fd);
    close_place(&place);
}

Test(lazy_unlink, a_nameless_one_once_it_is_closed) {
    struct place place;
    open_place(&place);
    int fd = make(&place, LARGE), look = open(place.path, O_RDONLY);
    cr_assert_eq(unlink(place.path), 0);
    lazy_unlink_when_closed(fd);
    usleep(200000);
    cr_expect_eq(size_of(look), LARGE, "it is in use");
    close(fd);
    cr_expect(gone_soon(look), "its handle was closed, this one is open");
    close(look);
    close_place(&place);
}

Test(lazy_unlink, what_has_got_a_name_again_stays) {
    struct place place;
    open_place(&place);
    int fd = open(place.folder, O_TMPFILE | O_RDWR, 0600);
    if (fd < 0) cr_skip_test("no nameless files here");
    char own[32], *bytes = calloc(1, LARGE);
    cr_assert_eq(write(fd, bytes, LARGE), LARGE);
    free(bytes);
    lazy_unlink_when_closed(fd);
    snprintf(own, sizeof own, "/proc/self/fd/%d", fd);
    cr_assert_eq(linkat(AT_FDCWD, own, AT_FDCWD, place.path, AT_SYMLINK_FOLLOW), 0);
    close(fd);
    usleep(200000);
    fd = open(place.path, O_RDONLY);
    cr_expect_eq(size_of(fd), LARGE);
    close(fd);
    cr_assert_eq(unlink(place.path), 0);
    close_place(&place);
}

/* It has two names: what stands under the other one stays. */
Test(lazy_unlink, a_second_name_keeps_it) {
    struct place place;
    open_place(&place);
    char other[64];
    snprintf(other, sizeof other, "%s/other", place.folder);
    int fd = make(&place, LARGE);
    cr_assert_eq(link(place.path, other), 0);
    cr_assert_eq(lazy_unlink(place.fd, "file"), CO_OK);
    usleep(100000);
    cr_expect_eq(size_of(fd), LARGE);
    cr_assert_eq(unlink(other), 0);
    close(fd);
    close_place(&place);
}

Test(file_out, begins_and_waits) {
    struct place place;
    open_place(&place);
    int fd = make(&place, LARGE);
    cr_expect_eq(file_out(fd, 0, 0), CO_OK);
    cr_expect_eq(file_out(fd, 4096, FILE_OUT_PIECE), CO_OK);
    cr_expect_neq(file_out(-1, 0, 0), CO_OK);
    close(fd);
    cr_assert_eq(unlink(place.path), 0);
    close_place(&place);
}
