#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file_in.h"
#include "base/file_out.h"
#include "base/lazy_unlink.h"
#include "base/memory.h"
#include "consensus/disk.h"

struct disk_posix {
    struct disk disk;
    int folder;
};

static int folder_of(struct disk *disk) { return CONTAINER_OF(disk, struct disk_posix, disk)->folder; }

/* -- files -- */

static int open_with(struct disk *disk, const char *name, int flags, disk_file *file) {
    CHECK(strlen(name) < DISK_NAME_MAX && !strchr(name, '/'));
    int fd;
    do fd = openat(folder_of(disk), name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return co_from_errno(errno);
    int rv = file_hold(fd);
    if (rv != CO_OK) {
        close(fd);
        return rv;
    }
    file_in_opened(fd);
    *file = fd;
    return CO_OK;
}

static int posix_open(struct disk *disk, const char *name, int create, disk_file *file) {
    return open_with(disk, name, O_RDWR | (create ? O_CREAT | O_EXCL : 0), file);
}

static int look_open(struct disk *disk, const char *name, int create, disk_file *file) {
    CHECK(!create);
    return open_with(disk, name, O_RDONLY, file);
}

static void posix_close(struct disk *disk, disk_file file) {
    (void)disk;
    close(file);
}

static int posix_size(struct disk *disk, disk_file file, uint64_t *size) {
    (void)disk;
    struct stat info;
    if (fstat(file, &info) != 0) return co_from_errno(errno);
    *size = (uint64_t)info.st_size;
    return CO_OK;
}

static int posix_read(struct disk *disk, disk_file file, uint64_t offset, void *data, size_t size, size_t *got) {
    (void)disk;
    return file_in_order(file, offset, data, size, got);
}

static int posix_write(struct disk *disk, disk_file file, uint64_t offset, const void *data, size_t size) {
    (void)disk;
    for (size_t done = 0; done < size;) {
        ssize_t n = pwrite(file, (const char *)data + done, size - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return co_from_errno(errno);
        if (n == 0) return CO_IO;
        done += (size_t)n;
    }
    return CO_OK;
}

/* Not repeated on EINTR or anything else: after a failed sync the kernel may have dropped the dirty pages, and a
 * second one would succeed without them. */
static int posix_sync(struct disk *disk, disk_file file) {
    (void)disk;
    return fdatasync(file) == 0 ? CO_OK : co_from_errno(errno);
}

static int posix_write_out(struct disk *disk, disk_file file) {
    (void)disk;
    return file_out(file, 0, 0);
}

static int posix_allocate(struct disk *disk, disk_file file, uint64_t size) {
    (void)disk;
    int error;
    do error = posix_fallocate(file, 0, (off_t)size);
    while (error == EINTR);
    return error == 0 ? CO_OK : co_from_errno(error);
}

static int posix_truncate(struct disk *disk, disk_file file, uint64_t size) {
    (void)disk;
    int rv;
    do rv = ftruncate(file, (off_t)size);
    while (rv != 0 && errno == EINTR);
    return rv == 0 ? CO_OK : co_from_errno(errno);
}

/* -- the folder -- */

static int posix_rename(struct disk *disk, const char *from, const char *to) {
    int folder = folder_of(disk);
    return renameat(folder, from, folder, to) == 0 ? CO_OK : co_from_errno(errno);
}

static int posix_remove(struct disk *disk, const char *name) { return lazy_unlink(folder_of(disk), name); }

static int posix_sync_folder(struct disk *disk) { return fsync(folder_of(disk)) == 0 ? CO_OK : co_from_errno(errno); }

static int posix_list(struct disk *disk, void (*found)(void *data, const char *name), void *data) {
    int fd = openat(folder_of(disk), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* with a position of its own */
    if (fd < 0) return co_from_errno(errno);
    DIR *dir = fdopendir(fd);
    if (!dir) {
        int error = errno;
        close(fd);
        return co_from_errno(error);
    }
    struct dirent *entry;
    while (errno = 0, (entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) found(data, entry->d_name);
    int error = errno;
    closedir(dir);
    return error == 0 ? CO_OK : co_from_errno(error);
}

static int posix_free_bytes(struct disk *disk, uint64_t *bytes) {
    struct statvfs info;
    if (fstatvfs(folder_of(disk), &info) != 0) return co_from_errno(errno);
    *bytes = (uint64_t)info.f_bavail * info.f_frsize;
    return CO_OK;
}

static const struct disk_ops posix_ops = {
    .open = posix_open,
    .close = posix_close,
    .size = posix_size,
    .read = posix_read,
    .write = posix_write,
    .sync = posix_sync,
    .write_out = posix_write_out,
    .allocate = posix_allocate,
    .truncate = posix_truncate,
    .rename = posix_rename,
    .remove = posix_remove,
    .sync_folder = posix_sync_folder,
    .list = posix_list,
    .free_bytes = posix_free_bytes,
};

static const struct disk_ops look_ops = {
    .open = look_open,
    .close = posix_close,
    .size = posix_size,
    .read = posix_read,
    .list = posix_list,
    .free_bytes = posix_free_bytes,
};

/* -- life -- */

/* A folder that was just made is only there for good once its parent is synced. */
static int sync_parent(const char *folder) {
    char *copy = mem_strdup(folder);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rv = fd >= 0 && fsync(fd) == 0 ? CO_OK : co_from_errno(errno);
    if (fd >= 0) close(fd);
    free(copy);
    return rv;
}

static int lock_and_make(const char *folder, const struct disk_ops *ops, struct disk **out) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return co_from_errno(errno);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) { /* two writers would destroy each other's log */
        int error = errno;
        close(fd);
        return error == EWOULDBLOCK ? CO_BUSY : co_from_errno(error);
    }
    struct disk_posix *posix = mem_zalloc(sizeof *posix);
    posix->disk.ops = ops;
    posix->folder = fd;
    *out = &posix->disk;
    return CO_OK;
}

int disk_posix_open(const char *folder, struct disk **out) {
    if (mkdir(folder, 0700) == 0) {
        int rv = sync_parent(folder);
        if (rv != CO_OK) return rv;
    } else if (errno != EEXIST) {
        return co_from_errno(errno);
    }
    return lock_and_make(folder, &posix_ops, out);
}

int disk_posix_look(const char *folder, struct disk **out) { return lock_and_make(folder, &look_ops, out); }

void disk_posix_close(struct disk *disk) {
    struct disk_posix *posix = CONTAINER_OF(disk, struct disk_posix, disk);
    close(posix->folder);
    free(posix);
}
