/* The versions of a model's thing from index to index, so that a read at any index can be checked. A version is a
 * struct whose first member is the index that it holds from, a uint64_t. */
#ifndef COORD_TESTS_SIM_VERSIONS_H
#define COORD_TESTS_SIM_VERSIONS_H

#include <stdlib.h>

#include "base/memory.h"

struct versions { /* zero-initialised; the items are freed by versions_free */
    char *items;
    size_t count, capacity;
};

static inline void versions_free(struct versions *versions) { free(versions->items); }

static inline void *versions_item(const struct versions *versions, size_t size, size_t i) {
    return versions->items + i * size;
}

/* How many are not newer than the index. */
static inline size_t versions_until(const struct versions *versions, size_t size, uint64_t index) {
    size_t least = 0, most = versions->count;
    while (least < most) {
        size_t middle = least + (most - least) / 2;
        if (*(const uint64_t *)versions_item(versions, size, middle) <= index) least = middle + 1;
        else most = middle;
    }
    return least;
}

/* As of the index; `none`: before the first. */
static inline const void *versions_at(const struct versions *versions, size_t size, uint64_t index, const void *none) {
    size_t count = versions_until(versions, size, index);
    return count ? versions_item(versions, size, count - 1) : none;
}

static inline void versions_add(struct versions *versions, size_t size, const void *version) {
    if (versions->count == versions->capacity) {
        versions->capacity = versions->capacity ? 2 * versions->capacity : 32;
        versions->items = mem_realloc(versions->items, versions->capacity * size);
    }
    memcpy(versions_item(versions, size, versions->count++), version, size);
}

/* The one that holds from `index` on, to be changed: the last one, or a copy of it (of `none`, if there is none). */
static inline void *versions_next(struct versions *versions, size_t size, uint64_t index, const void *none) {
    uint64_t *last = versions->count ? versions_item(versions, size, versions->count - 1) : NULL;
    if (last && *last == index) return last;
    char *copy = mem_alloc(size);
    memcpy(copy, last ? (const void *)last : none, size);
    memcpy(copy, &index, sizeof index);
    versions_add(versions, size, copy);
    free(copy);
    return versions_item(versions, size, versions->count - 1);
}

#endif
