/* Reading files beside those whose syncs wait for the same disk.
 *
 * How much the kernel reads ahead is a setting of the machine, often megabytes: asked for at once, they stand before
 * every sync that comes after them. So here what is read ahead is a little, and the same everywhere. */
#ifndef COORD_BASE_FILE_IN_H
#define COORD_BASE_FILE_IN_H

#include <stddef.h>
#include <stdint.h>

/* The kernel shall read nothing ahead through this handle, but for what file_in_order asks for. */
void file_in_opened(int fd);

/* Reads up to `size` bytes at `offset`, in pieces; *got < size only at the end of the file. Any thread, blocks.
 * Errors: of the disk (CO_IO, mostly). */
int file_in(int fd, uint64_t offset, void *data, size_t size, size_t *got);
/* The same for who goes through a file in order: behind a large part a piece of the next is asked for. */
int file_in_order(int fd, uint64_t offset, void *data, size_t size, size_t *got);
/* That, all of it: CO_IO also when the file ends before. */
int file_in_all(int fd, uint64_t offset, void *data, size_t size);

#endif
