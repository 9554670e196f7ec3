/* The marker file. It says whether the store was closed cleanly, or names the boot of this machine and the data
 * file, so that after a kill -9 (the kernel still has every page) the store is trusted, and after a crash of the
 * machine it is not.
 *
 * It is written in place, always with the same size, once it is there: that needs no new space, so a server stops and
 * starts on a full disk. A marker that was written in part is neither text, so the store is not trusted. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/boot.h"
#include "base/check.h"
#include "base/memory.h"
#include "registry/store_file.h"

#define MARKER      "marker"
#define MARKER_SIZE 256               /* padded with line ends; within one sector */
#define FORMAT      "coord store 1\n" /* of the store */

char *store_path(const char *folder, const char *name) {
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = mem_alloc(size);
    snprintf(path, size, "%s/%s", folder, name);
    return path;
}

/* Reads the marker; NUL-terminated. -1: it cannot be read. */
static ssize_t read_marker(const char *folder, char room[MARKER_SIZE + 2]) {
    char *path = store_path(folder, MARKER);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    free(path);
    if (fd < 0) return -1;
    ssize_t got = read(fd, room, MARKER_SIZE + 1);
    close(fd);
    if (got >= 0) room[got] = '\0';
    return got;
}

bool store_marker_foreign(const char *folder) {
    static const char head[] = "coord store ";
    char found[MARKER_SIZE + 2];
    return read_marker(folder, found) >= 0 && strncmp(found, head, strlen(head)) == 0 &&
           strncmp(found, FORMAT, strlen(FORMAT)) != 0;
}

static int file_line(const struct stat *file, char *room, size_t size) {
    return snprintf(room, size, "file %u:%u %" PRIu64 "\n", major(file->st_dev), minor(file->st_dev),
                    (uint64_t)file->st_ino);
}

/* `file` NULL: closed cleanly. `next`: NULL, or another one that may take its place. */
static void marker_text(const struct stat *file, const struct stat *next, char room[MARKER_SIZE]) {
    char boot[BOOT_ID_SIZE];
    memset(room, '\n', MARKER_SIZE);
    boot_id(boot);
    int size =
        file ? snprintf(room, MARKER_SIZE, FORMAT "boot %s\n", boot) : snprintf(room, MARKER_SIZE, FORMAT "closed\n");
    if (file) size += file_line(file, room + size, MARKER_SIZE - (size_t)size);
    if (next) size += file_line(next, room + size, MARKER_SIZE - (size_t)size);
    CHECK(size < MARKER_SIZE);
    room[size] = '\n'; /* instead of snprintf's end */
}

/* Does the marker name this boot and this file? Without a boot id a crash of the machine cannot be excluded, so the
 * answer is no. */
static bool names(const char *found, const struct stat *file) {
    char line[64], boot[BOOT_ID_SIZE], head[MARKER_SIZE];
    if (!boot_id(boot)) return false;
    int size = snprintf(head, sizeof head, FORMAT "boot %s\n", boot);
    (void)file_line(file, line, sizeof line);
    return strncmp(found, head, (size_t)size) == 0 && strstr(found + size, line);
}

bool store_marker_fits(const char *folder, const struct stat *file, bool *clean) {
    char closed[MARKER_SIZE], found[MARKER_SIZE + 2];
    ssize_t got = read_marker(folder, found);
    *clean = false;
    if (got < 0) return false;
    marker_text(NULL, NULL, closed);
    *clean = got == MARKER_SIZE && memcmp(found, closed, MARKER_SIZE) == 0;
    return !*clean && names(found, file);
}

int store_sync_folder(const char *folder) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return co_from_errno(errno);
    int error = fsync(fd) == 0 ? CO_OK : co_from_errno(errno);
    close(fd);
    return error;
}

int store_write_synced(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return co_from_errno(errno);
    size_t size = strlen(text);
    ssize_t done = write(fd, text, size);
    int error = CO_OK;
    if (done != (ssize_t)size) error = done < 0 ? co_from_errno(errno) : CO_DISKFULL;
    if (!error && fsync(fd) != 0) error = co_from_errno(errno);
    close(fd);
    return error;
}

/* Writes in place, because on a full disk there is no room for another file. */
static int write_synced(const char *path, const char text[MARKER_SIZE], bool *made) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    *made = fd < 0 && errno == ENOENT;
    if (*made) fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return co_from_errno(errno);
    ssize_t done = pwrite(fd, text, MARKER_SIZE, 0);
    int error = CO_OK;
    if (done != MARKER_SIZE) error = done < 0 ? co_from_errno(errno) : CO_DISKFULL;
    if (!error && ftruncate(fd, MARKER_SIZE) != 0) error = co_from_errno(errno);
    if (!error && fsync(fd) != 0) error = co_from_errno(errno);
    close(fd);
    return error;
}

static int write_marker(const char *folder, const struct stat *file, const struct stat *next, struct fault *fault) {
    char text[MARKER_SIZE];
    marker_text(file, next, text);
    char *path = store_path(folder, MARKER);
    bool made;
    int error = write_synced(path, text, &made);
    if (!error && made) error = store_sync_folder(folder);
    if (error) fault_set(fault, error, "store: %s: cannot be written: %s", path, co_strerror(error));
    free(path);
    return error;
}

int store_marker_write(const char *folder, const struct stat *file, struct fault *fault) {
    char wanted[MARKER_SIZE], found[MARKER_SIZE + 2];
    ssize_t got = read_marker(folder, found);
    marker_text(file, NULL, wanted);
    return got == MARKER_SIZE && memcmp(found, wanted, MARKER_SIZE) == 0 ? CO_OK
                                                                         : write_marker(folder, file, NULL, fault);
}

int store_marker_write_both(const char *folder, const struct stat *file, const struct stat *next, struct fault *fault) {
    return write_marker(folder, file, next, fault);
}

int store_marker_close(const char *folder, struct fault *fault) { return write_marker(folder, NULL, NULL, fault); }
