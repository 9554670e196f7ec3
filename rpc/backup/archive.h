/* Archives of backups, in the form that `consul snapshot` writes and checks: a gzip'd tar of
 *   meta.json    {"Version":1,"ID":...,"Index":...,"Term":...,"Size":...,...}
 *   state.bin    the state machine's copy (registry/store_copy.c)
 *   SHA256SUMS   sums of the two, as sha256sum prints them
 * Streamed: no file is held in memory. Reading is for files from outside: every size is checked before memory or disk
 * space is taken. Blocks on the disk. */
#ifndef COORD_RPC_ARCHIVE_H
#define COORD_RPC_ARCHIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct archive_meta {
    uint64_t version, index, term, size; /* size: of state.bin */
    char id[128];
};

/* Writes an archive of the `meta->size` bytes at the beginning of `state` to `out`. CO_IO, CO_TOOLARGE, CO_DISKFULL
 * (also while a little is left). */
int archive_write(int out, const struct archive_meta *meta, int state, struct fault *fault);

/* Reads `in` to its end, writes state.bin to `state` (-1: nowhere), at most `state_max` bytes. CO_OK: the sums are
 * right, and meta.json has the right size of state.bin. CO_CORRUPT: it is no such archive, or damaged; CO_UNSUPPORTED:
 * of a later format; CO_TOOLARGE; CO_IO, CO_DISKFULL. */
int archive_read(int in, int state, uint64_t state_max, struct archive_meta *meta, struct fault *fault);

/* The free space on the disk of that file. A backup leaves ARCHIVE_ROOM_LEFT of it to the log. */
#define ARCHIVE_ROOM_LEFT (32u << 20)
uint64_t archive_room(int fd);

/* A file without a name in `folder`, for reading and writing; -1 and a fault. */
int archive_temporary(const char *folder, struct fault *fault);

#endif
