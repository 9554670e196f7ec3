/* Reading files beside those whose syncs wait for the same disk.
 *
 * How much the kernel reads ahead is a setting of the machine, often megabytes: asked for at once, they stand before every sync that comes after
 * them. So here what is read ahead is a little, and the same everywhere. */
#ifndef COORD_BASE_FILE_IN_H
#define COORD_BASE_FILE_IN_H

#include <stddef.h>
#include <stdint.h>

/* The kernel shall read nothing ahead through this handle (but for what file_in asks for). */
void file_in_opened(int fd);

/* Reads up to `size` bytes at `offset`, in pieces; *got < size only at the end of the file. Who reads much at a time is taken to go on behind it:
 * a piece of that is asked for. Any thread, blocks. Errors: of the disk (CO_IO). */
int file_in(int fd, uint64_t offset, void *data, size_t size, size_t *got);
/* All of it: CO_IO also when the file ends before. */
int file_in_all(int fd, uint64_t offset, void *data, size_t size);

#endif
