#include "tests/consensus/wal_help.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "consensus/wal_format.h"
#include "tests/lib/fake_disk.h"

/* -- the model -- */

void model_init(struct model *model) {
    memset(model, 0, sizeof *model);
    model->first = 1;
}

void model_truncate(struct model *model, uint64_t from) {
    model->last = from - 1;
    if (model->first > from) model->first = from;
}

void model_reset(struct model *model, uint64_t index) {
    model->last = index;
    model->first = index + 1;
}

struct raft_entry model_entry(const struct model *model, uint64_t index) {
    uint32_t size = model->entries[index - 1].size;
    struct raft_entry entry = {.index = index,
                               .term = model->entries[index - 1].term,
                               .type = model->entries[index - 1].type,
                               .unix_ms = index * 8191 % (RAFT_UNIX_MS_MAX + 1)};
    if (size == 0) return entry;
    entry.data = raft_data_new(NULL, size);
    uint64_t seed = index * 1000003 + entry.term * 7919 + size;
    for (uint32_t i = 0; i < size; i++) { /* with stretches of zeros, as long as sectors */
        if (i % 8 == 0) seed = seed * 6364136223846793005u + 1442695040888963407u;
        entry.data->bytes[i] = seed >> 62 == 0 && size > 1500 ? 0 : (char)(seed >> (i % 8 * 7));
    }
    return entry;
}

void model_append(struct model *model, size_t count, uint64_t term, uint32_t size_max, struct rng *rng,
                  struct raft_entry **out) {
    *out = mem_alloc(count * sizeof **out + 1);
    for (size_t i = 0; i < count; i++) {
        CHECK(model->last < MODEL_ENTRIES_MAX);
        uint64_t index = ++model->last;
        model->entries[index - 1].term = term;
        model->entries[index - 1].size = rng ? (uint32_t)rng_below(rng, size_max + 1) : size_max;
        model->entries[index - 1].type = rng ? (uint8_t)rng_below(rng, 3) : RAFT_ENTRY_COMMAND;
        (*out)[i] = model_entry(model, index);
    }
}

void entries_free(struct raft_entry *entries, size_t count) {
    for (size_t i = 0; i < count; i++) raft_data_unref(entries[i].data);
    free(entries);
}

bool entry_same(const struct raft_entry *a, const struct raft_entry *b) {
    return a->index == b->index && a->term == b->term && a->type == b->type && a->unix_ms == b->unix_ms &&
           slice_equal(raft_entry_bytes(a), raft_entry_bytes(b));
}

bool model_has(const struct model *model, uint64_t from, const struct raft_entry *entries, size_t count) {
    if (count != (from <= model->last ? model->last - from + 1 : 0)) return false;
    for (size_t i = 0; i < count; i++) {
        struct raft_entry wanted = model_entry(model, from + i);
        bool same = entry_same(&wanted, &entries[i]);
        raft_data_unref(wanted.data);
        if (!same) return false;
    }
    return true;
}

bool model_recovered(const struct model *model, uint64_t start_after, const struct wal_recovered *recovered) {
    if (recovered->term != model->term || recovered->vote != model->vote) return false;
    if (recovered->last_index != model->last || recovered->first_index > model->last + 1) return false;
    return model_has(model, start_after + 1, recovered->entries, recovered->entry_count);
}

/* -- the log -- */

int wal_put(struct wal *wal, struct model *model, size_t count, uint32_t size, struct fault *fault) {
    struct model *after = mem_alloc(sizeof *after);
    *after = *model;
    struct raft_entry *entries;
    model_append(after, count, 1, size, NULL, &entries);
    struct wal_batch batch = {.entries = entries, .entry_count = count};
    int rv = wal_append(wal, &batch, 1, fault);
    if (rv == CO_OK) *model = *after;
    entries_free(entries, count);
    free(after);
    return rv;
}

size_t batch_places(const struct fake_disk *fake, const char *name, struct place *places, size_t max) {
    char bytes[WAL_HEAD_BYTES];
    size_t count = 0;
    uint64_t offset = 0;
    struct wal_head head;
    while (count < max && fake_disk_peek(fake, name, offset, bytes, sizeof bytes) == sizeof bytes &&
           wal_head_decode(bytes, &head) == WAL_HEAD_OK && head.offset == offset) {
        places[count++] = (struct place){offset, head.size};
        offset += head.size;
    }
    return count;
}

const char *last_segment(const struct fake_disk *fake) {
    const char *name, *last = NULL;
    struct place place;
    for (size_t i = 0; (name = fake_disk_name(fake, i)); i++)
        if (strncmp(name, "log-0", 5) == 0 && batch_places(fake, name, &place, 1) == 1) last = name;
    return last;
}
