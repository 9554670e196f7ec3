#include "health/disk_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MOST ((off_t)1 << 30)

static int read_all(int fd, struct buffer *text) {
    struct stat info;
    if (fstat(fd, &info) != 0) return errno;
    if (!S_ISREG(info.st_mode) || info.st_size > FILE_MOST) return EFBIG;
    buffer_reserve(text, (size_t)info.st_size + 1);
    while (text->size < (size_t)info.st_size) {
        ssize_t got = read(fd, text->data + text->size, (size_t)info.st_size - text->size);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno;
        if (got == 0) break;
        text->size += (size_t)got;
    }
    return 0;
}

int disk_file_read(const char *path, struct buffer *text) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno;
    int error = read_all(fd, text);
    close(fd);
    return error;
}

int disk_file_write(int fd, struct slice bytes, uint64_t at) {
    while (bytes.size > 0) {
        ssize_t wrote = pwrite(fd, bytes.data, bytes.size, (off_t)at);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return errno;
        bytes = slice_make(bytes.data + wrote, bytes.size - (size_t)wrote);
        at += (uint64_t)wrote;
    }
    return 0;
}
