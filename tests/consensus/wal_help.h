/* Shared by the log's tests: entries with content that can be told by their index, and a model of a log. */
#ifndef COORD_TESTS_CONSENSUS_WAL_HELP_H
#define COORD_TESTS_CONSENSUS_WAL_HELP_H

#include "base/random.h"
#include "consensus/wal.h"

#define MODEL_ENTRIES_MAX 4096

/* The content of a log: entries[i] has index i + 1. Those up to `first - 1` are gone. Their content follows from
 * (index, term, size). */
struct model {
    uint64_t term, vote;
    uint64_t first, last;
    struct {
        uint64_t term;
        uint32_t size;
        uint8_t type;
    } entries[MODEL_ENTRIES_MAX];
};

void model_init(struct model *model);
void model_truncate(struct model *model, uint64_t from);
void model_reset(struct model *model, uint64_t index);
struct raft_entry model_entry(const struct model *model, uint64_t index); /* one reference */
/* Adds entries to the model; *out gets them with one reference each (entries_free). */
void model_append(struct model *model, size_t count, uint64_t term, uint32_t size_max, struct rng *rng,
                  struct raft_entry **out);
void entries_free(struct raft_entry *entries, size_t count);

bool entry_same(const struct raft_entry *a, const struct raft_entry *b);
/* Do the entries from..last of the model and these match exactly? */
bool model_has(const struct model *model, uint64_t from, const struct raft_entry *entries, size_t count);
/* As recovered after `start_after`. */
bool model_recovered(const struct model *model, uint64_t start_after, const struct wal_recovered *recovered);

/* Appends `count` entries of `size` bytes in one batch; keeps the model in step when it succeeds. */
int wal_put(struct wal *wal, struct model *model, size_t count, uint32_t size, struct fault *fault);

/* Where the batches of a segment lie in a fake disk; returns their number (at most max). */
struct place {
    uint64_t offset, size;
};
struct fake_disk;
size_t batch_places(const struct fake_disk *fake, const char *name, struct place *places, size_t max);
/* The name of the last segment with a batch in it. */
const char *last_segment(const struct fake_disk *fake);

#endif
