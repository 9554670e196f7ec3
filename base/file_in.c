#include "base/file_in.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"

#define PIECE ((size_t)256 << 10) /* about a millisecond of a disk */
#define MUCH  ((size_t)64 << 10)

void file_in_opened(int fd) { posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); }

int file_in(int fd, uint64_t offset, void *data, size_t size, size_t *got) {
    for (*got = 0; *got < size;) {
        size_t want = size - *got < PIECE ? size - *got : PIECE;
        ssize_t n = pread(fd, (char *)data + *got, want, (off_t)(offset + *got));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return co_from_errno(errno);
        if (n == 0) break;
        *got += (size_t)n;
    }
    return CO_OK;
}

int file_in_order(int fd, uint64_t offset, void *data, size_t size, size_t *got) {
    int rv = file_in(fd, offset, data, size, got);
    /* only advice, so its result does not matter */
    if (*got >= MUCH) posix_fadvise(fd, (off_t)(offset + *got), PIECE, POSIX_FADV_WILLNEED);
    return rv;
}

int file_in_all(int fd, uint64_t offset, void *data, size_t size) {
    size_t got;
    int rv = file_in_order(fd, offset, data, size, &got);
    return rv == CO_OK && got < size ? CO_IO : rv;
}
