#include "agent/private_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Returns 0, or errno. */
static int write_all(int fd, struct slice bytes) {
    for (size_t at = 0; at < bytes.size;) {
        ssize_t n = write(fd, bytes.data + at, bytes.size - at);
        if (n < 0 && errno != EINTR) return errno;
        if (n > 0) at += (size_t)n;
    }
    return fsync(fd) == 0 ? 0 : errno;
}

int private_file_write(const char *folder, const char *name, struct slice content, struct fault *fault) {
    char path[4096], aside[4096 + 8];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(aside, sizeof aside, "%s.new", path);
    int fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int error = fd < 0 ? errno : write_all(fd, content);
    if (fd >= 0) close(fd);
    if (!error && rename(aside, path) != 0) error = errno;
    int within = error ? -1 : open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (within >= 0 && fsync(within) != 0) error = errno;
    if (within >= 0) close(within);
    if (error) unlink(aside);
    return error ? fault_set(fault, co_from_errno(error), "%s: %s", path, strerror(error)) : CO_OK;
}
