#include "registry/fold.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "registry/store.h"

enum { PARTS = 3 }; /* of a key */

void fold_name_of(struct fold_name *name, struct slice text) {
    name->own = NULL;
    name->folded = text;
    if (!slice_has_upper(text)) return;
    char *to = name->room;
    if (text.size > sizeof name->room) to = name->own = mem_alloc(text.size);
    memcpy(to, text.data, text.size);
    bytes_lower(to, text.size);
    name->folded.data = to;
}

void fold_name_free(struct fold_name *name) { free(name->own); }

/* A part that is shortened by its hash has to be folded before that. */
static struct slice long_key(char *room, size_t count, const struct slice *names) {
    struct slice parts[PARTS] = {0};
    struct fold_name folded[PARTS];
    for (size_t i = 0; i < count; i++) {
        fold_name_of(&folded[i], names[i]);
        parts[i] = folded[i].folded;
    }
    struct slice key = store_key_join(room, count, parts[0], parts[1], parts[2]);
    for (size_t i = 0; i < count; i++) fold_name_free(&folded[i]);
    return key;
}

/* The others are folded where they stand. */
struct slice fold_key(char *room, size_t count, const struct slice *names) {
    CHECK(count > 0 && count <= PARTS);
    bool long_part = false;
    for (size_t i = 0; i < count; i++) long_part |= names[i].size > STORE_PART_MAX;
    if (long_part) return long_key(room, count, names);
    struct slice none = {0};
    struct slice key = store_key_join(room, count, names[0], count > 1 ? names[1] : none, count > 2 ? names[2] : none);
    bytes_lower(room, key.size);
    return key;
}
