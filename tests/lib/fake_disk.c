#include "tests/lib/fake_disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/random.h"
#include "tests/lib/fake_file.h"

struct fake_disk {
    struct disk disk;
    struct rng rng;
    struct fake_folder cache, medium;
    struct fake_change *changes; /* of the cached folder, not on the medium yet */
    size_t change_count;
    struct fake_file **handles; /* NULL: closed */
    size_t handle_count;
    uint64_t capacity;
    uint64_t halt_after;
    bool halted;
    unsigned fail_ops;
    uint64_t fail_after;
    int fail_error;
    struct fake_disk_stats stats;
};

static struct fake_disk *fake_of(struct disk *disk) { return CONTAINER_OF(disk, struct fake_disk, disk); }

static void change_add(struct fake_disk *fake, enum fake_change_kind kind, const char *name, const char *to,
                       struct fake_file *file) {
    struct fake_change change = {.kind = kind, .file = file};
    snprintf(change.name, sizeof change.name, "%s", name);
    if (to) snprintf(change.to, sizeof change.to, "%s", to);
    if (file) fake_file_ref(file);
    fake->changes = mem_realloc(fake->changes, (fake->change_count + 1) * sizeof change);
    fake->changes[fake->change_count++] = change;
    fake_folder_apply(&fake->cache, &change);
}

static void changes_clear(struct fake_disk *fake) {
    for (size_t i = 0; i < fake->change_count; i++)
        if (fake->changes[i].file) fake_file_unref(fake->changes[i].file);
    free(fake->changes);
    fake->changes = NULL;
    fake->change_count = 0;
}

/* -- faults -- */

/* Before each operation: CO_OK, or the error that it is to return. *part: it happens in part. */
static int fault_next(struct fake_disk *fake, unsigned op, bool *part) {
    *part = false;
    if (fake->halted) return CO_IO;
    if (op & FAKE_ANY_CHANGE) {
        fake->stats.operations++;
        if (fake->halt_after > 0 && --fake->halt_after == 0) {
            fake->halted = *part = true;
            return CO_IO;
        }
    }
    if ((fake->fail_ops & op) && fake->fail_after > 0 && --fake->fail_after == 0) {
        fake->fail_ops = 0;
        *part = true;
        return fake->fail_error;
    }
    return CO_OK;
}

/* NULL: closed, by a crash or otherwise. */
static struct fake_file *handle_file(struct fake_disk *fake, disk_file file) {
    CHECK(file >= 0);
    return (size_t)file < fake->handle_count ? fake->handles[file] : NULL;
}

static uint64_t blocks(uint64_t size) { return (size + 4095) / 4096 * 4096; }

uint64_t fake_disk_used(const struct fake_disk *fake) {
    uint64_t used = 0;
    for (size_t i = 0; i < fake->cache.count; i++) used += blocks(fake->cache.names[i].file->size);
    return used;
}

/* The size to which `file` may grow, at most `wanted`. */
static uint64_t growth_limit(const struct fake_disk *fake, const struct fake_file *file, uint64_t wanted) {
    if (fake->capacity == 0 || blocks(wanted) <= blocks(file->size)) return wanted;
    uint64_t used = fake_disk_used(fake);
    uint64_t free_bytes = used < fake->capacity ? (fake->capacity - used) / 4096 * 4096 : 0;
    uint64_t limit = blocks(file->size) + free_bytes;
    return wanted <= limit ? wanted : limit;
}

/* -- the operations -- */

static int fake_open(struct disk *disk, const char *name, int create, disk_file *out) {
    struct fake_disk *fake = fake_of(disk);
    bool part;
    int rv = fault_next(fake, FAKE_OPEN, &part);
    if (rv != CO_OK) return rv;
    CHECK(strlen(name) < DISK_NAME_MAX);
    struct fake_name *found = fake_folder_find(&fake->cache, name);
    if (create && found) return CO_EXISTS;
    if (!create && !found) return CO_NOTFOUND;
    struct fake_file *file;
    if (create) {
        file = fake_file_new();
        change_add(fake, CHANGE_CREATE, name, NULL, file);
    } else {
        file = found->file;
        fake_file_ref(file);
    }
    size_t at = 0;
    while (at < fake->handle_count && fake->handles[at]) at++;
    if (at == fake->handle_count)
        fake->handles = mem_realloc(fake->handles, ++fake->handle_count * sizeof *fake->handles);
    fake->handles[at] = file;
    *out = (disk_file)at;
    return CO_OK;
}

static void fake_close(struct disk *disk, disk_file handle) {
    struct fake_disk *fake = fake_of(disk);
    if ((size_t)handle >= fake->handle_count || !fake->handles[handle]) return; /* closed by a crash */
    fake_file_unref(fake->handles[handle]);
    fake->handles[handle] = NULL;
}

static int fake_size(struct disk *disk, disk_file handle, uint64_t *size) {
    struct fake_file *file = handle_file(fake_of(disk), handle);
    if (!file) return CO_IO;
    *size = file->size;
    return CO_OK;
}

static int fake_read(struct disk *disk, disk_file handle, uint64_t offset, void *data, size_t size, size_t *got) {
    struct fake_disk *fake = fake_of(disk);
    struct fake_file *file = handle_file(fake, handle);
    if (!file) return CO_IO;
    bool part;
    int rv = fault_next(fake, FAKE_READ, &part);
    if (rv != CO_OK) return rv;
    fake->stats.reads++;
    *got = fake_file_read(file, offset, data, size);
    return CO_OK;
}

static int fake_write(struct disk *disk, disk_file handle, uint64_t offset, const void *data, size_t size) {
    struct fake_disk *fake = fake_of(disk);
    struct fake_file *file = handle_file(fake, handle);
    if (!file) return CO_IO;
    bool part;
    int rv = fault_next(fake, FAKE_WRITE, &part);
    if (rv != CO_OK && !part) return rv;
    if (rv != CO_OK) { /* some whole sectors from the start on */
        uint64_t first = FAKE_DISK_SECTOR - offset % FAKE_DISK_SECTOR;
        uint64_t sectors = (size + FAKE_DISK_SECTOR - 1) / FAKE_DISK_SECTOR;
        uint64_t keep = rng_below(&fake->rng, sectors + 1);
        uint64_t bytes = keep == 0 ? 0 : first + (keep - 1) * FAKE_DISK_SECTOR;
        if (bytes < size) size = bytes;
    }
    uint64_t limit = growth_limit(fake, file, offset + size);
    if (limit < offset + size) {
        size = limit > offset ? limit - offset : 0;
        rv = CO_DISKFULL;
    }
    fake->stats.writes++;
    fake->stats.written_bytes += size;
    fake_file_write(file, offset, data, size, &fake->rng);
    return rv;
}

static int put_out(struct disk *disk, disk_file handle, bool all) {
    struct fake_disk *fake = fake_of(disk);
    struct fake_file *file = handle_file(fake, handle);
    if (!file) return CO_IO;
    bool part;
    int rv = fault_next(fake, FAKE_SYNC, &part);
    if (rv != CO_OK && !part) return rv;
    fake->stats.syncs += all;
    if (rv == CO_OK) fake_file_sync(file, all ? NULL : &fake->rng, false);
    else fake_file_sync(file, &fake->rng, !fake->halted);
    return rv;
}

static int fake_sync(struct disk *disk, disk_file handle) { return put_out(disk, handle, true); }

static int fake_write_out(struct disk *disk, disk_file handle) { return put_out(disk, handle, false); }

static int fake_allocate(struct disk *disk, disk_file handle, uint64_t size) {
    struct fake_disk *fake = fake_of(disk);
    struct fake_file *file = handle_file(fake, handle);
    if (!file) return CO_IO;
    bool part;
    int rv = fault_next(fake, FAKE_ALLOCATE, &part);
    if (rv != CO_OK) return rv;
    if (size <= file->size) return CO_OK;
    if (growth_limit(fake, file, size) < size) return CO_DISKFULL;
    fake_file_resize(file, size);
    return CO_OK;
}

static int fake_truncate(struct disk *disk, disk_file handle, uint64_t size) {
    struct fake_disk *fake = fake_of(disk);
    struct fake_file *file = handle_file(fake, handle);
    if (!file) return CO_IO;
    bool part;
    int rv = fault_next(fake, FAKE_TRUNCATE, &part);
    if (rv != CO_OK) return rv;
    if (growth_limit(fake, file, size) < size) return CO_DISKFULL;
    fake_file_resize(file, size);
    return CO_OK;
}

static int fake_rename(struct disk *disk, const char *from, const char *to) {
    struct fake_disk *fake = fake_of(disk);
    bool part;
    int rv = fault_next(fake, FAKE_RENAME, &part);
    if (rv != CO_OK) return rv;
    if (!fake_folder_find(&fake->cache, from)) return CO_NOTFOUND;
    change_add(fake, CHANGE_RENAME, from, to, NULL);
    return CO_OK;
}

static int fake_remove(struct disk *disk, const char *name) {
    struct fake_disk *fake = fake_of(disk);
    bool part;
    int rv = fault_next(fake, FAKE_REMOVE, &part);
    if (rv != CO_OK) return rv;
    if (!fake_folder_find(&fake->cache, name)) return CO_NOTFOUND;
    change_add(fake, CHANGE_REMOVE, name, NULL, NULL);
    return CO_OK;
}

static int fake_sync_folder(struct disk *disk) {
    struct fake_disk *fake = fake_of(disk);
    bool part;
    int rv = fault_next(fake, FAKE_SYNC_FOLDER, &part);
    if (rv != CO_OK) return rv;
    fake->stats.folder_syncs++;
    fake_folder_copy(&fake->medium, &fake->cache);
    changes_clear(fake);
    return CO_OK;
}

static int fake_list(struct disk *disk, void (*found)(void *data, const char *name), void *data) {
    struct fake_disk *fake = fake_of(disk);
    for (size_t i = 0; i < fake->cache.count; i++) found(data, fake->cache.names[i].name);
    return CO_OK;
}

static int fake_free_bytes(struct disk *disk, uint64_t *bytes) {
    struct fake_disk *fake = fake_of(disk);
    uint64_t used = fake_disk_used(fake);
    *bytes = fake->capacity == 0 ? (uint64_t)1 << 40 : used < fake->capacity ? fake->capacity - used : 0;
    return CO_OK;
}

static const struct disk_ops fake_ops = {
    .open = fake_open,
    .close = fake_close,
    .size = fake_size,
    .read = fake_read,
    .write = fake_write,
    .sync = fake_sync,
    .write_out = fake_write_out,
    .allocate = fake_allocate,
    .truncate = fake_truncate,
    .rename = fake_rename,
    .remove = fake_remove,
    .sync_folder = fake_sync_folder,
    .list = fake_list,
    .free_bytes = fake_free_bytes,
};

/* -- life -- */

struct fake_disk *fake_disk_new(uint64_t seed) {
    struct fake_disk *fake = mem_zalloc(sizeof *fake);
    fake->disk.ops = &fake_ops;
    rng_seed(&fake->rng, seed);
    return fake;
}

static void handles_close(struct fake_disk *fake) {
    for (size_t i = 0; i < fake->handle_count; i++)
        if (fake->handles[i]) fake_file_unref(fake->handles[i]);
    free(fake->handles);
    fake->handles = NULL;
    fake->handle_count = 0;
}

void fake_disk_free(struct fake_disk *fake) {
    if (!fake) return;
    handles_close(fake);
    changes_clear(fake);
    fake_folder_clear(&fake->cache);
    fake_folder_clear(&fake->medium);
    free(fake);
}

struct disk *fake_disk_disk(struct fake_disk *fake) {
    return &fake->disk;
}

/* A file is copied once, wherever it is named: `copy` remembers its double while the clone is made. */
static struct fake_file *double_of(struct fake_file *file) {
    if (!file->copy) file->copy = fake_file_copy(file);
    return file->copy;
}

/* Drops the reference that double_of took (the names hold their own by now). */
static void double_done(struct fake_file *file) {
    if (file->copy) fake_file_unref(file->copy);
    file->copy = NULL;
}

static void folder_clone(struct fake_folder *to, const struct fake_folder *from) {
    for (size_t i = 0; i < from->count; i++) fake_folder_put(to, from->names[i].name, double_of(from->names[i].file));
}

struct fake_disk *fake_disk_clone(const struct fake_disk *fake, uint64_t seed) {
    struct fake_disk *copy = fake_disk_new(seed);
    copy->capacity = fake->capacity;
    copy->halt_after = fake->halt_after;
    copy->halted = fake->halted;
    copy->fail_ops = fake->fail_ops;
    copy->fail_after = fake->fail_after;
    copy->fail_error = fake->fail_error;
    folder_clone(&copy->cache, &fake->cache);
    folder_clone(&copy->medium, &fake->medium);
    copy->change_count = fake->change_count;
    copy->changes = mem_alloc(fake->change_count * sizeof *copy->changes + 1);
    for (size_t i = 0; i < fake->change_count; i++) {
        copy->changes[i] = fake->changes[i];
        if (!fake->changes[i].file) continue;
        copy->changes[i].file = double_of(fake->changes[i].file);
        fake_file_ref(copy->changes[i].file);
    }
    for (size_t i = 0; i < fake->cache.count; i++) double_done(fake->cache.names[i].file);
    for (size_t i = 0; i < fake->medium.count; i++) double_done(fake->medium.names[i].file);
    for (size_t i = 0; i < fake->change_count; i++)
        if (fake->changes[i].file) double_done(fake->changes[i].file);
    return copy;
}

/* -- crashes and faults -- */

static void files_crash(struct fake_disk *fake, const struct fake_folder *folder, enum fake_crash how) {
    for (size_t i = 0; i < folder->count; i++) {
        if (how == FAKE_POWER_LOSS) fake_file_power_loss(folder->names[i].file, &fake->rng);
        else fake_file_forget_dropped(folder->names[i].file, &fake->rng);
    }
}

void fake_disk_crash(struct fake_disk *fake, enum fake_crash how) {
    handles_close(fake);
    if (how == FAKE_POWER_LOSS) {
        size_t keep = rng_below(&fake->rng, fake->change_count + 1);
        for (size_t i = 0; i < keep; i++) fake_folder_apply(&fake->medium, &fake->changes[i]);
        fake_folder_copy(&fake->cache, &fake->medium);
        changes_clear(fake);
    }
    files_crash(fake, &fake->cache, how);
    fake->halted = false;
    fake->halt_after = fake->fail_after = 0;
    fake->fail_ops = 0;
}

void fake_disk_halt_after(struct fake_disk *fake, uint64_t operations) { fake->halt_after = operations; }
bool fake_disk_halted(const struct fake_disk *fake) { return fake->halted; }

void fake_disk_fail(struct fake_disk *fake, unsigned ops, uint64_t n, int error) {
    fake->fail_ops = n ? ops : 0;
    fake->fail_after = n;
    fake->fail_error = error;
}

void fake_disk_set_capacity(struct fake_disk *fake, uint64_t bytes) { fake->capacity = bytes; }

/* -- looking and damaging -- */

static struct fake_file *file_named(const struct fake_disk *fake, const char *name) {
    struct fake_name *found = fake_folder_find(&fake->cache, name);
    return found ? found->file : NULL;
}

bool fake_disk_exists(const struct fake_disk *fake, const char *name) { return file_named(fake, name) != NULL; }

uint64_t fake_disk_size(const struct fake_disk *fake, const char *name) {
    struct fake_file *file = file_named(fake, name);
    return file ? file->size : 0;
}

size_t fake_disk_peek(const struct fake_disk *fake, const char *name, uint64_t offset, void *data, size_t size) {
    struct fake_file *file = file_named(fake, name);
    return file ? fake_file_read(file, offset, data, size) : 0;
}

void fake_disk_poke(struct fake_disk *fake, const char *name, uint64_t offset, const void *data, size_t size) {
    struct fake_file *file = file_named(fake, name);
    if (!file) {
        file = fake_file_new();
        fake_folder_put(&fake->cache, name, file);
        fake_folder_put(&fake->medium, name, file);
        fake_file_unref(file);
    }
    fake_file_poke(file, offset, data, size);
}

void fake_disk_flip(struct fake_disk *fake, const char *name, uint64_t offset, uint8_t bits) {
    uint8_t byte;
    CHECK(fake_disk_peek(fake, name, offset, &byte, 1) == 1);
    byte ^= bits;
    fake_disk_poke(fake, name, offset, &byte, 1);
}

void fake_disk_cut(struct fake_disk *fake, const char *name, uint64_t size) {
    struct fake_file *file = file_named(fake, name);
    CHECK(file && size <= file->size);
    fake_file_resize(file, size);
    fake_file_sync(file, NULL, false);
}

void fake_disk_delete(struct fake_disk *fake, const char *name) {
    CHECK(file_named(fake, name));
    fake_folder_remove(&fake->cache, name);
    fake_folder_remove(&fake->medium, name);
}

const char *fake_disk_name(const struct fake_disk *fake, size_t n) {
    return n < fake->cache.count ? fake->cache.names[n].name : NULL;
}

const struct fake_disk_stats *fake_disk_stats(const struct fake_disk *fake) { return &fake->stats; }
