/* The watch keys that a batch touched, packed one after another, each once. */
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "registry/fold.h"
#include "registry/watch_table.h"

#define SEEN_MIN 256
_Static_assert((SEEN_MIN & (SEEN_MIN - 1)) == 0, "a power of two");

uint64_t watch_hash(uint8_t space, struct slice name) {
    if (!fold_space(space)) return hash64_seed(name.data, name.size, space);
    struct fold_name folded;
    fold_name_of(&folded, name);
    uint64_t hash = hash64_seed(folded.folded.data, folded.folded.size, space);
    fold_name_free(&folded);
    return hash;
}

bool watch_same(uint8_t space, struct slice a, struct slice b) {
    return slice_equal(a, b) || (fold_space(space) && slice_equal_nocase(a, b));
}

bool watch_next(const struct watch_touched *touched, size_t *at, struct watch_packed *watched) {
    if (*at >= touched->things.size) return false;
    const char *bytes = touched->things.data + *at;
    uint32_t size;
    watched->hash = get_le64(bytes);
    memcpy(&size, bytes + 8, 4);
    watched->space = (uint8_t)bytes[12];
    watched->name = slice_make(bytes + WATCH_PACKED_HEAD, size);
    *at += WATCH_PACKED_HEAD + size;
    CHECK(*at <= touched->things.size);
    return true;
}

static void seen_grow(struct watch_touched *touched) {
    size_t size = touched->seen_size ? touched->seen_size * 2 : SEEN_MIN;
    free(touched->seen);
    touched->seen = mem_zalloc(size * sizeof *touched->seen);
    touched->seen_size = size;
    touched->stamp = 1;
    struct watch_packed watched;
    for (size_t at = 0, next = 0; watch_next(touched, &next, &watched); at = next) {
        size_t slot = watched.hash & (size - 1);
        while (touched->seen[slot]) slot = (slot + 1) & (size - 1);
        touched->seen[slot] = (uint64_t)touched->stamp << 32 | (uint32_t)at;
    }
}

/* Finds the watch key, or the empty place for it. */
static bool seen_before(const struct watch_touched *touched, uint64_t hash, struct watch_key watched, size_t *slot) {
    *slot = hash & (touched->seen_size - 1);
    for (;; *slot = (*slot + 1) & (touched->seen_size - 1)) {
        uint64_t place = touched->seen[*slot];
        if (place >> 32 != touched->stamp) return false;
        size_t at = (uint32_t)place;
        struct watch_packed there = {0};
        (void)watch_next(touched, &at, &there);
        if (there.hash == hash && there.space == watched.space && watch_same(watched.space, there.name, watched.name))
            return true;
    }
}

void watch_touch(struct watch_touched *touched, struct watch_key watched) {
    CHECK(watched.space < WATCH_PREFIX_BIT); /* prefixes are touched through their keys */
    if (touched->everything) return;
    if (touched->count * 2 >= touched->seen_size) seen_grow(touched);
    CHECK(touched->count < touched->seen_size); /* there is an empty place */
    uint64_t hash = watch_hash(watched.space, watched.name);
    size_t slot;
    if (seen_before(touched, hash, watched, &slot)) return;
    if (touched->things.size > UINT32_MAX / 2) { /* a batch of that size touches everything */
        touched->everything = true;
        return;
    }
    touched->seen[slot] = (uint64_t)touched->stamp << 32 | (uint32_t)touched->things.size;
    char head[WATCH_PACKED_HEAD];
    put_le64(head, hash);
    put_le32(head + 8, (uint32_t)watched.name.size);
    head[12] = (char)watched.space;
    buffer_append(&touched->things, head, sizeof head);
    buffer_append(&touched->things, watched.name.data, watched.name.size);
    touched->count++;
}

void watch_touched_all(struct watch_touched *touched) { touched->everything = true; }

struct watch_mark watch_touched_mark(const struct watch_touched *touched) {
    return (struct watch_mark){touched->things.size, touched->count, touched->everything};
}

/* Watch keys before the mark found their slots before those after it took theirs. So the search for one of the former
 * never passes a slot of the latter, and these slots can be emptied. (seen_grow keeps the order.) */
void watch_touched_back(struct watch_touched *touched, struct watch_mark mark) {
    CHECK(mark.size <= touched->things.size && mark.count <= touched->count);
    struct watch_packed watched;
    for (size_t at = mark.size, next = at; watch_next(touched, &next, &watched); at = next) {
        uint64_t place = (uint64_t)touched->stamp << 32 | (uint32_t)at;
        size_t slot = watched.hash & (touched->seen_size - 1);
        while (touched->seen[slot] != place) slot = (slot + 1) & (touched->seen_size - 1);
        touched->seen[slot] = 0;
    }
    touched->things.size = mark.size;
    touched->count = mark.count;
    touched->everything = mark.everything;
}

void watch_touched_reset(struct watch_touched *touched) {
    if (touched->things.capacity > (1 << 20)) {
        watch_touched_free(touched);
        return;
    }
    buffer_reset(&touched->things);
    touched->count = 0;
    touched->everything = false;
    if (++touched->stamp == 0) {
        if (touched->seen) memset(touched->seen, 0, touched->seen_size * sizeof *touched->seen);
        touched->stamp = 1;
    }
}

void watch_touched_free(struct watch_touched *touched) {
    buffer_free(&touched->things);
    free(touched->seen);
    *touched = (struct watch_touched){0};
}
