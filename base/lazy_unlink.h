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
 * when that is closed, by whomever, its blocks are freed little by little, too. If the thread cannot be started they
 * are freed at once. */
void lazy_unlink_when_closed(int fd);

/* Call it right after opening: the file's content stays readable through this handle until it is closed, also when the
 * file is removed meanwhile. CO_NOTFOUND: the file is removed already, close the handle. */
int file_hold(int fd);

#endif
