/* Heads of tar archives (POSIX ustar): plain files only, no longer names, no extensions but one: sizes of 8 GiB and
 * more are in base 256, as GNU tar, Go's and Python's libraries write and read them. Pure. Decoding is safe for any
 * bytes, because they come from outside. */
#ifndef COORD_BASE_TAR_H
#define COORD_BASE_TAR_H

#include <stdbool.h>
#include <stdint.h>

#define TAR_BLOCK    512
#define TAR_NAME_MAX 100
#define TAR_SIZE_MAX (1ull << 44)

struct tar_file {
    char name[TAR_NAME_MAX + 1];
    uint64_t size;
};

/* `name` has 1 to TAR_NAME_MAX bytes, size is at most TAR_SIZE_MAX. */
void tar_head_encode(const struct tar_file *file, uint64_t unix_time, char head[TAR_BLOCK]);
/* CO_OK; CO_NOTFOUND: a block of zeros, the end; CO_CORRUPT: not a head; CO_UNSUPPORTED: the head is not that of a
 * plain file, or it is of an extended format. */
int tar_head_decode(const char head[TAR_BLOCK], struct tar_file *file);
/* Zeros after `size` bytes, up to a whole block. */
static inline unsigned tar_padding(uint64_t size) { return (unsigned)((TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK); }

#endif
