/* The disk as the log, the hard state and the snapshots see it: a small table of functions, so that the simulator
 * can lose unsynced sectors in any order, fill up, tear, stall and fail. Paths are relative to the disk's root
 * folder, names have no '/'. All calls block; they are made by the log writer, the snapshot copier, or at start.
 *
 * Errors: CO_DISKFULL, CO_NOTFOUND, CO_EXISTS, CO_IO. After a failed sync the file's content is unknown. */
#ifndef COORD_CONSENSUS_DISK_H
#define COORD_CONSENSUS_DISK_H

#include <stddef.h>
#include <stdint.h>

struct disk;
typedef int disk_file; /* a handle of this disk; >= 0 */

#define DISK_NAME_MAX 64
struct disk_ops {
    /* read-write; create: 0 must exist, 1 make, must not exist */
    int (*open)(struct disk *disk, const char *name, int create, disk_file *file);
    void (*close)(struct disk *disk, disk_file file);
    int (*size)(struct disk *disk, disk_file file, uint64_t *size);
    /* Reads up to `size` bytes at offset; *got < size only at the end of the file. */
    int (*read)(struct disk *disk, disk_file file, uint64_t offset, void *data, size_t size, size_t *got);
    /* all or an error */
    int (*write)(struct disk *disk, disk_file file, uint64_t offset, const void *data, size_t size);
    int (*sync)(struct disk *disk, disk_file file); /* fdatasync */
    /* Begins to write the file's dirty pages out, and waits for those that an earlier call began. So a large file
     * reaches the disk piece by piece, without holding up the syncs of others (base/file_out.h), and its sync at the
     * end finds little left. Nothing is durable before that sync; an error here counts as an error of the sync. */
    int (*write_out)(struct disk *disk, disk_file file);
    /* reserve blocks for [0,size), file grows to it */
    int (*allocate)(struct disk *disk, disk_file file, uint64_t size);
    int (*truncate)(struct disk *disk, disk_file file, uint64_t size);
    int (*rename)(struct disk *disk, const char *from, const char *to); /* replaces */
    int (*remove)(struct disk *disk, const char *name);
    int (*sync_folder)(struct disk *disk); /* makes creates, renames and removes durable */
    /* Calls `found` for each name in the folder, any order. */
    int (*list)(struct disk *disk, void (*found)(void *data, const char *name), void *data);
    int (*free_bytes)(struct disk *disk, uint64_t *bytes); /* available to us */
};
struct disk {
    const struct disk_ops *ops;
}; /* implementations embed it first */

/* The real one (POSIX), rooted at `folder`, which is created (mode 0700) when missing, and locked until it is
 * closed: CO_BUSY when another disk (of this or another process) has it open. */
int disk_posix_open(const char *folder, struct disk **out);
/* For reading only: nothing is created, and the functions that change something are NULL. The folder is locked all the
 * same. CO_NOTFOUND. */
int disk_posix_look(const char *folder, struct disk **out);
void disk_posix_close(struct disk *disk);

#endif
