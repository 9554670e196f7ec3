/* The files of the fake disk: what readers see (the cache) and what the medium holds, sector by sector; and the
 * folders that name them. */
#ifndef COORD_TESTS_LIB_FAKE_FILE_H
#define COORD_TESTS_LIB_FAKE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/random.h"
#include "consensus/disk.h"

struct fake_page;
struct fake_file {
    unsigned refs;
    uint64_t size; /* as readers see it */
    uint64_t medium_size;
    struct fake_page *pages; /* of 4096 bytes */
    size_t page_count;
    struct fake_file *copy; /* for fake_disk_clone() */
};

struct fake_file *fake_file_new(void); /* one reference */
void fake_file_ref(struct fake_file *file);
void fake_file_unref(struct fake_file *file);
struct fake_file *fake_file_copy(const struct fake_file *file);

size_t fake_file_read(const struct fake_file *file, uint64_t offset, void *data, size_t size);
void fake_file_write(struct fake_file *file, uint64_t offset, const void *data, size_t size, struct rng *rng);
void fake_file_poke(struct fake_file *file, uint64_t offset, const void *data, size_t size); /* cache and medium */
void fake_file_resize(struct fake_file *file, uint64_t size);
/* rng NULL: all is on the medium. Else each dirty sector by a coin; `drop`: the others are not dirty any more. */
void fake_file_sync(struct fake_file *file, struct rng *rng, bool drop);
void fake_file_power_loss(struct fake_file *file, struct rng *rng);
void fake_file_forget_dropped(struct fake_file *file, struct rng *rng);

/* The names: one folder as readers see it, one as the medium has it. Each name holds a reference of its file. */
enum fake_change_kind { CHANGE_CREATE, CHANGE_RENAME, CHANGE_REMOVE };
struct fake_change {
    enum fake_change_kind kind;
    char name[DISK_NAME_MAX], to[DISK_NAME_MAX];
    struct fake_file *file;
};
struct fake_name {
    char name[DISK_NAME_MAX];
    struct fake_file *file;
};
struct fake_folder {
    struct fake_name *names; /* in order */
    size_t count;
};

struct fake_name *fake_folder_find(const struct fake_folder *folder, const char *name); /* NULL: none */
void fake_folder_put(struct fake_folder *folder, const char *name, struct fake_file *file);
void fake_folder_remove(struct fake_folder *folder, const char *name);
void fake_folder_clear(struct fake_folder *folder);
void fake_folder_copy(struct fake_folder *to, const struct fake_folder *from);
void fake_folder_apply(struct fake_folder *folder, const struct fake_change *change);

#endif
