/* Small files of the data folder: read at once, written where they have grown. Return 0 or an errno value; block. */
#ifndef COORD_HEALTH_DISK_FILE_H
#define COORD_HEALTH_DISK_FILE_H

#include "base/buffer.h"

/* The whole file; `text` is empty before. EFBIG: it is no regular file, or has more than 1 GiB. */
int disk_file_read(const char *path, struct buffer *text);
/* All of it, at this offset. */
int disk_file_write(int fd, struct slice bytes, uint64_t at);

#endif
