/* Writes a large file out to the disk piece by piece while somebody fills it, so that syncs of other files on that disk
 * find little queued before them. */
#ifndef COORD_BASE_FILE_OUT_H
#define COORD_BASE_FILE_OUT_H

#include <stdint.h>

#define FILE_OUT_PIECE (256u << 10) /* call once for so many bytes: others may have to wait for one piece */

/* Waits for the writes that an earlier call began there, begins to write the changes in [offset, offset + size) (size
 * 0: to the end), and, when the disk was slow, rests for as long as it had to wait: one writer keeps a busy disk busy
 * for half of the time at most. Blocks. It makes nothing durable. Errors are those of the disk (CO_IO, CO_DISKFULL). */
int file_out(int fd, uint64_t offset, uint64_t size);

#endif
