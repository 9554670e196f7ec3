/* Inside the follower: an answer of the region on its way into our copy, as one command or as parts of a stage. */
#ifndef COORD_MULTI_DC_FOLLOWER_ANSWER_H
#define COORD_MULTI_DC_FOLLOWER_ANSWER_H

#include "multi-dc/copy.h"

struct answer {
    struct arena arena;                /* all of it */
    Pb__CatalogChangesResult *changes; /* NULL: there is none */
    Pb__CatalogKey **removed;          /* what is to go */
    size_t n_removed, bytes;
    struct slice *keys; /* sorted, of all that is there: `complete` */
    size_t n_keys;
    size_t entries_done, removed_done; /* told in parts before */
    uint32_t parts;
};

/* CO_CORRUPT: it is no such answer, or an entry of it is none; nothing is kept. CO_TOOLARGE: an entry does not fit into a
 * command. */
int answer_take(struct answer *answer, const char *region, struct slice records);
void answer_drop(struct answer *answer);
/* Of a complete one: what our copy has and the region has not. */
void answer_compare(struct answer *answer, const char *region, Pb__CatalogKey *const *ours, size_t count);
static inline bool answer_empty(const struct answer *answer) {
    return answer->changes->n_entries == 0 && answer->n_removed == 0;
}
void answer_no_rows(struct answer *answer);                          /* what it tells is known */
bool answer_is_small(const struct answer *answer, size_t rows_most); /* one command takes it */
static inline bool answer_told(const struct answer *answer) {
    return answer->entries_done == answer->changes->n_entries && answer->removed_done == answer->n_removed;
}
/* The next part: as much as fits. Counts as told. */
void answer_part(struct answer *answer, size_t rows_most, Pb__CopyStageCommand *command);

#endif
