/* Reading files without delaying the syncs of other files on the same disk.
 *
 * How much the kernel reads ahead is a setting of the machine, often megabytes. They are requested at once, and every
 * sync that comes after them waits for them. So these functions read ahead only a little, and the same amount on every
 * machine. */
#ifndef COORD_BASE_FILE_IN_H
#define COORD_BASE_FILE_IN_H

#include <stddef.h>
#include <stdint.h>

/* Tells the kernel to read nothing ahead through this handle; file_in_order still asks for the next piece. */
void file_in_opened(int fd);

/* Reads up to `size` bytes at `offset`, in pieces; *got < size only at the end of the file. Any thread, blocks.
 * Errors: of the disk (CO_IO, mostly). */
int file_in(int fd, uint64_t offset, void *data, size_t size, size_t *got);
/* The same, for reading a file in order: after a large part it asks the kernel to read the next piece ahead. */
int file_in_order(int fd, uint64_t offset, void *data, size_t size, size_t *got);
/* As file_in_order, but reads all `size` bytes: CO_IO also when the file ends before. */
int file_in_all(int fd, uint64_t offset, void *data, size_t size);

#endif
