#include "tests/lib/fake_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"

#define PAGE    4096u
#define SECTOR  512u
#define SECTORS (PAGE / SECTOR)

/* Memory is taken only for what differs from zeros, and twice only while cache and medium differ. */
struct fake_page {
    uint8_t *cache;         /* NULL: zeros */
    uint8_t *medium;        /* when `apart`; NULL: zeros */
    bool apart;             /* medium and cache may differ; else the medium is as the cache */
    uint8_t dirty, dropped; /* bits of sectors: to be synced; lost by a failed sync */
};

static bool coin(struct rng *rng) { return rng_below(rng, 2) == 0; }

static const uint8_t zeros[PAGE];
static const uint8_t *or_zeros(const uint8_t *page) { return page ? page : zeros; }

static uint8_t *page_writable(uint8_t **page) {
    if (!*page) *page = mem_zalloc(PAGE);
    return *page;
}

static void sector_copy(uint8_t **to, const uint8_t *from, unsigned sector) {
    const uint8_t *bytes = or_zeros(from) + sector * SECTOR;
    if (!*to && memcmp(bytes, zeros, SECTOR) == 0) return;
    memcpy(page_writable(to) + sector * SECTOR, bytes, SECTOR);
}

/* -- life -- */

struct fake_file *fake_file_new(void) {
    struct fake_file *file = mem_zalloc(sizeof *file);
    file->refs = 1;
    return file;
}

void fake_file_ref(struct fake_file *file) { file->refs++; }

void fake_file_unref(struct fake_file *file) {
    if (--file->refs > 0) return;
    for (size_t i = 0; i < file->page_count; i++) {
        free(file->pages[i].cache);
        free(file->pages[i].medium);
    }
    free(file->pages);
    free(file);
}

static uint8_t *page_copy(const uint8_t *page) {
    if (!page) return NULL;
    uint8_t *copy = mem_alloc(PAGE);
    memcpy(copy, page, PAGE);
    return copy;
}

struct fake_file *fake_file_copy(const struct fake_file *file) {
    struct fake_file *copy = fake_file_new();
    copy->size = file->size;
    copy->medium_size = file->medium_size;
    copy->page_count = file->page_count;
    copy->pages = mem_alloc(file->page_count * sizeof *copy->pages + 1);
    for (size_t i = 0; i < file->page_count; i++) {
        copy->pages[i] = file->pages[i];
        copy->pages[i].cache = page_copy(file->pages[i].cache);
        copy->pages[i].medium = page_copy(file->pages[i].medium);
    }
    return copy;
}

static struct fake_page *page_at(struct fake_file *file, uint64_t offset) {
    size_t n = offset / PAGE;
    if (n >= file->page_count) {
        size_t count = n + 1 > file->page_count * 2 ? n + 1 : file->page_count * 2;
        file->pages = mem_realloc(file->pages, count * sizeof *file->pages);
        memset(&file->pages[file->page_count], 0, (count - file->page_count) * sizeof *file->pages);
        file->page_count = count;
    }
    return &file->pages[n];
}

/* -- reading and writing -- */

size_t fake_file_read(const struct fake_file *file, uint64_t offset, void *data, size_t size) {
    if (offset >= file->size) return 0;
    if (size > file->size - offset) size = file->size - offset;
    for (size_t done = 0; done < size;) {
        uint64_t at = offset + done;
        size_t in = at % PAGE, n = PAGE - in < size - done ? PAGE - in : size - done;
        const uint8_t *page = at / PAGE < file->page_count ? file->pages[at / PAGE].cache : NULL;
        memcpy((char *)data + done, or_zeros(page) + in, n);
        done += n;
    }
    return size;
}

/* Readies a sector to differ from the medium. */
static void sector_touch(struct fake_page *page, unsigned sector, struct rng *rng) {
    uint8_t bit = (uint8_t)(1u << sector);
    if (!page->apart) {
        page->medium = page_copy(page->cache);
        page->apart = true;
    } else if ((page->dirty & bit) && rng && rng_below(rng, 4) == 0) {
        sector_copy(&page->medium, page->cache, sector); /* written back meanwhile */
    }
    page->dirty |= bit;
    page->dropped &= (uint8_t)~bit;
}

/* Within one sector. data NULL: zeros. */
static void sector_write(struct fake_file *file, uint64_t offset, const void *data, size_t size, struct rng *rng) {
    struct fake_page *page = page_at(file, offset);
    size_t in = offset % PAGE;
    sector_touch(page, (unsigned)(in / SECTOR), rng);
    if (!data) data = zeros;
    if (page->cache || memcmp(data, zeros, size) != 0) memcpy(page_writable(&page->cache) + in, data, size);
}

void fake_file_write(struct fake_file *file, uint64_t offset, const void *data, size_t size, struct rng *rng) {
    for (size_t done = 0; done < size;) {
        uint64_t at = offset + done;
        size_t n = SECTOR - at % SECTOR;
        if (n > size - done) n = size - done;
        sector_write(file, at, (const char *)data + done, n, rng);
        done += n;
    }
    if (size > 0 && offset + size > file->size) file->size = offset + size;
}

void fake_file_poke(struct fake_file *file, uint64_t offset, const void *data, size_t size) {
    for (size_t done = 0; done < size;) {
        uint64_t at = offset + done;
        size_t in = at % PAGE, n = PAGE - in < size - done ? PAGE - in : size - done;
        struct fake_page *page = page_at(file, at);
        memcpy(page_writable(&page->cache) + in, (const char *)data + done, n);
        if (page->apart) memcpy(page_writable(&page->medium) + in, (const char *)data + done, n);
        done += n;
    }
    if (offset + size > file->size) file->size = offset + size;
    if (offset + size > file->medium_size) file->medium_size = offset + size;
}

void fake_file_resize(struct fake_file *file, uint64_t size) {
    uint64_t end = (uint64_t)file->page_count * PAGE < file->size ? (uint64_t)file->page_count * PAGE : file->size;
    for (uint64_t at = size; at < end;) { /* what is cut off reads as zeros when the file grows again */
        size_t n = SECTOR - at % SECTOR;
        if (n > end - at) n = end - at;
        sector_write(file, at, NULL, n, NULL);
        at += n;
    }
    file->size = size;
}

/* -- syncing and losing -- */

static void page_together(struct fake_page *page) {
    if (page->dirty || page->dropped) return;
    free(page->medium);
    page->medium = NULL;
    page->apart = false;
}

void fake_file_sync(struct fake_file *file, struct rng *rng, bool drop) {
    for (size_t i = 0; i < file->page_count; i++) {
        struct fake_page *page = &file->pages[i];
        if (!page->dirty) continue;
        for (unsigned s = 0; s < SECTORS; s++) {
            uint8_t bit = (uint8_t)(1u << s);
            if (!(page->dirty & bit)) continue;
            if (rng && coin(rng)) {
                if (drop) page->dropped |= bit;
                if (drop) page->dirty &= (uint8_t)~bit;
                continue;
            }
            sector_copy(&page->medium, page->cache, s);
            page->dirty &= (uint8_t)~bit;
        }
        page_together(page);
    }
    if (!rng || coin(rng)) file->medium_size = file->size;
}

void fake_file_power_loss(struct fake_file *file, struct rng *rng) {
    if (file->size != file->medium_size && coin(rng)) file->medium_size = file->size;
    for (size_t i = 0; i < file->page_count; i++) {
        struct fake_page *page = &file->pages[i];
        if (!page->apart) continue;
        for (unsigned s = 0; s < SECTORS; s++)
            if ((page->dirty & (1u << s)) && coin(rng)) sector_copy(&page->medium, page->cache, s);
        free(page->cache);
        *page = (struct fake_page){.cache = page->medium};
    }
    file->size =
        (uint64_t)file->page_count * PAGE > file->medium_size ? (uint64_t)file->page_count * PAGE : file->medium_size;
    fake_file_resize(file, file->medium_size); /* nothing lives beyond the end */
    for (size_t i = 0; i < file->page_count; i++) {
        struct fake_page *page = &file->pages[i];
        page->dirty = 0;
        page_together(page);
    }
}

void fake_file_forget_dropped(struct fake_file *file, struct rng *rng) {
    for (size_t i = 0; i < file->page_count; i++) {
        struct fake_page *page = &file->pages[i];
        for (unsigned s = 0; s < SECTORS; s++) {
            uint8_t bit = (uint8_t)(1u << s);
            if (!(page->dropped & bit) || coin(rng)) continue;
            sector_copy(&page->cache, page->medium, s);
            page->dropped &= (uint8_t)~bit;
        }
        page_together(page);
    }
}

/* -- folders -- */

struct fake_name *fake_folder_find(const struct fake_folder *folder, const char *name) {
    for (size_t i = 0; i < folder->count; i++)
        if (strcmp(folder->names[i].name, name) == 0) return &folder->names[i];
    return NULL;
}

void fake_folder_remove(struct fake_folder *folder, const char *name) {
    struct fake_name *found = fake_folder_find(folder, name);
    if (!found) return;
    fake_file_unref(found->file);
    size_t at = (size_t)(found - folder->names);
    memmove(found, found + 1, (folder->count - at - 1) * sizeof *found);
    folder->count--;
}

void fake_folder_put(struct fake_folder *folder, const char *name, struct fake_file *file) {
    fake_file_ref(file);
    fake_folder_remove(folder, name);
    folder->names = mem_realloc(folder->names, (folder->count + 1) * sizeof *folder->names);
    size_t at = 0;
    while (at < folder->count && strcmp(folder->names[at].name, name) < 0) at++;
    memmove(&folder->names[at + 1], &folder->names[at], (folder->count - at) * sizeof *folder->names);
    folder->names[at].file = file;
    snprintf(folder->names[at].name, sizeof folder->names[at].name, "%s", name);
    folder->count++;
}

void fake_folder_clear(struct fake_folder *folder) {
    while (folder->count) fake_folder_remove(folder, folder->names[folder->count - 1].name);
    free(folder->names);
    folder->names = NULL;
}

void fake_folder_copy(struct fake_folder *to, const struct fake_folder *from) {
    fake_folder_clear(to);
    for (size_t i = 0; i < from->count; i++) fake_folder_put(to, from->names[i].name, from->names[i].file);
}

void fake_folder_apply(struct fake_folder *folder, const struct fake_change *change) {
    struct fake_name *found = fake_folder_find(folder, change->name);
    switch (change->kind) {
        case CHANGE_CREATE: fake_folder_put(folder, change->name, change->file); break;
        case CHANGE_REMOVE: fake_folder_remove(folder, change->name); break;
        case CHANGE_RENAME:
            CHECK(found);
            fake_folder_put(folder, change->to, found->file);
            fake_folder_remove(folder, change->name);
            break;
    }
}
