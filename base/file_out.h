/* Writing a large file out piece by piece behind whoever fills it, so that syncs of other files on that disk find
 * little before them. */
#ifndef COORD_BASE_FILE_OUT_H
#define COORD_BASE_FILE_OUT_H

#include <stdint.h>

#define FILE_OUT_PIECE (256u << 10) /* worth a call: what is begun at a time is what others wait for */

/* Waits for what an earlier call began there, begins to write what has changed in [offset, offset + size) (size 0:
 * to the end), and, when the disk was slow, rests for as long as it had to wait: one writer keeps a busy disk busy
 * for half of the time at most. Blocks. Nothing is durable by it; an error is one of the disk (CO_IO, CO_DISKFULL). */
int file_out(int fd, uint64_t offset, uint64_t size);

#endif
