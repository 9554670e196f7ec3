#include "multi-dc/follow_catalog_answer.h"

#include <stdlib.h>

#include "base/message.h"
#include "multi-dc/copy_internal.h"

static int compare_keys(const void *a, const void *b) {
    return slice_compare(*(const struct slice *)a, *(const struct slice *)b);
}

static struct slice key_in(struct arena *arena, const char *region, const char *service, const char *node,
                           const char *id) {
    char room[STORE_KEY_MAX];
    return slice_copy(arena, copy_key_row(room, region, slice_text(service), slice_text(node), slice_text(id)));
}

static bool key_good(const Pb__CatalogKey *key) { return key->service[0] && key->node[0] && key->id[0]; }

static size_t key_bytes(const Pb__CatalogKey *key) {
    return strlen(key->service) + strlen(key->node) + strlen(key->id);
}

static int look_at_entries(struct answer *answer, const char *region) {
    const Pb__CatalogChangesResult *changes = answer->changes;
    struct arena scratch = {0};
    int error = CO_OK;
    for (size_t i = 0; i < changes->n_entries && !error; i++) {
        struct slice bytes = message_slice(changes->entries[i]);
        const Pb__ServiceEntry *entry = machine_decode(&pb__service_entry__descriptor, bytes, &scratch);
        bool good = entry && entry->node && entry->service && entry->node->name[0] && entry->service->name[0] &&
                    entry->service->id[0];
        if (!good) error = CO_CORRUPT;
        else if (bytes.size > COPY_BYTES_MOST) error = CO_TOOLARGE;
        else if (changes->complete)
            answer->keys[answer->n_keys++] =
                key_in(answer->arena, region, entry->service->name, entry->node->name, entry->service->id);
        answer->bytes += bytes.size;
        arena_reset(&scratch);
    }
    arena_free(&scratch);
    return error;
}

static int look(struct answer *answer, const char *region) {
    const Pb__CatalogChangesResult *changes = answer->changes;
    if (!changes->to) return CO_CORRUPT;
    answer->keys = arena_alloc(answer->arena, (changes->n_entries + changes->n_kept + 1) * sizeof *answer->keys);
    int error = look_at_entries(answer, region);
    for (size_t i = 0; i < changes->n_kept && changes->complete; i++) {
        const Pb__CatalogKey *kept = changes->kept[i];
        answer->keys[answer->n_keys++] = key_in(answer->arena, region, kept->service, kept->node, kept->id);
    }
    CHECK(answer->n_keys <= changes->n_entries + changes->n_kept);
    if (answer->n_keys) qsort(answer->keys, answer->n_keys, sizeof *answer->keys, compare_keys);
    for (size_t i = 0; i < changes->n_removed; i++) {
        if (!key_good(changes->removed[i])) error = CO_CORRUPT;
        else if (!error && key_bytes(changes->removed[i]) > COPY_BYTES_MOST) error = CO_TOOLARGE;
        answer->bytes += key_bytes(changes->removed[i]);
    }
    answer->removed = changes->removed, answer->n_removed = changes->n_removed;
    return error;
}

int answer_take(struct answer *answer, struct arena *arena, const char *region,
                const Pb__CatalogChangesResult *changes) {
    *answer = (struct answer){.arena = arena, .changes = changes};
    answer->entries = changes->entries, answer->n_entries = changes->n_entries;
    return look(answer, region);
}

void answer_compare(struct answer *answer, const char *region, Pb__CatalogKey *const *ours, size_t count) {
    answer->removed = arena_alloc(answer->arena, (count + 1) * sizeof(Pb__CatalogKey *));
    CHECK(answer->changes && answer->changes->complete && answer->parts == 0);
    answer->n_removed = 0;
    for (size_t i = 0; i < count; i++) {
        char room[STORE_KEY_MAX];
        struct slice key = copy_key_row(room, region, slice_text(ours[i]->service), slice_text(ours[i]->node),
                                        slice_text(ours[i]->id));
        if (bsearch(&key, answer->keys, answer->n_keys, sizeof key, compare_keys)) continue;
        answer->removed[answer->n_removed++] = (Pb__CatalogKey *)message_copy(answer->arena, &ours[i]->base);
        answer->bytes += key_bytes(ours[i]);
    }
}

void answer_no_rows(struct answer *answer) {
    CHECK(answer->changes && answer->parts == 0);
    answer->n_entries = answer->n_removed = 0;
    answer->bytes = 0;
}

bool answer_is_small(const struct answer *answer, size_t rows_most) {
    return answer->n_entries + answer->n_removed <= rows_most && answer->bytes <= COPY_BYTES_MOST;
}

void answer_part(struct answer *answer, size_t rows_most, Pb__CopyStageCommand *command) {
    size_t rows = rows_most, bytes = 0, removed = answer->removed_done, entries = answer->entries_done;
    for (; removed < answer->n_removed && rows && bytes + key_bytes(answer->removed[removed]) <= COPY_BYTES_MOST;
         rows--)
        bytes += key_bytes(answer->removed[removed++]);
    for (; entries < answer->n_entries && rows && bytes + answer->entries[entries].len <= COPY_BYTES_MOST; rows--)
        bytes += answer->entries[entries++].len;
    CHECK(rows_most > 0 && removed <= answer->n_removed && entries <= answer->n_entries);
    command->n_removed = removed - answer->removed_done, command->n_entries = entries - answer->entries_done;
    if (command->n_removed) command->removed = answer->removed + answer->removed_done;
    if (command->n_entries) command->entries = answer->entries + answer->entries_done;
    command->part = answer->parts++;
    answer->removed_done = removed, answer->entries_done = entries;
}
