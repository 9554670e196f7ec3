/* Removing large files without a stall.
 *
 * The file system gives the blocks of a removed file back in one go, within the same journal commit that other
 * files' syncs wait for (with online discard the disk is told of each as well): a gigabyte costs them 50 to 100 ms.
 * So the name goes at once, and the blocks little by little, from a thread that lives as long as there is something
 * to do. After a crash the file system gives back the rest. */
#ifndef COORD_BASE_LAZY_UNLINK_H
#define COORD_BASE_LAZY_UNLINK_H

/* Any thread. For files that are read through file_hold, or by nobody else. CO_OK: the name is gone. */
int lazy_unlink(int folder, const char *name);

/* Any thread. For a file that has no name (O_TMPFILE, or removed) and is read and written through this handle alone:
 * when that is closed, by whomever, its blocks go little by little, too. Where that cannot be had they go at once. */
void lazy_unlink_when_closed(int fd);

/* Right after opening: what is read through this handle stays until it is closed, also when it is removed meanwhile.
 * CO_NOTFOUND: it is removed already, close it. */
int file_hold(int fd);

#endif
