/* Inside follow_catalog.c: the region's answer, which becomes one command or the parts of a stage. */
#ifndef COORD_MULTI_DC_FOLLOW_CATALOG_ANSWER_H
#define COORD_MULTI_DC_FOLLOW_CATALOG_ANSWER_H

#include "multi-dc/copy.h"

struct answer {
    struct arena *arena; /* memory of everything below */
    const Pb__CatalogChangesResult *changes;
    ProtobufCBinaryData *entries; /* of `changes` */
    size_t n_entries;
    Pb__CatalogKey **removed; /* keys that our copy has to remove */
    size_t n_removed, bytes;
    struct slice *keys; /* sorted keys of all entries, for a `complete` answer */
    size_t n_keys;
    size_t entries_done, removed_done; /* that earlier parts had */
    uint32_t parts;
};

/* CO_CORRUPT: one of its entries does not decode. CO_TOOLARGE: an entry does not fit into a command. */
int answer_take(struct answer *answer, struct arena *arena, const char *region,
                const Pb__CatalogChangesResult *changes);
/* For a complete answer: notes the keys that our copy has and the region has not, for removal. */
void answer_compare(struct answer *answer, const char *region, Pb__CatalogKey *const *ours, size_t count);
static inline bool answer_empty(const struct answer *answer) {
    return answer->n_entries == 0 && answer->n_removed == 0;
}
void answer_no_rows(struct answer *answer);                          /* an answer without rows, for a proposal of the
                                                                      * position alone */
bool answer_is_small(const struct answer *answer, size_t rows_most); /* it fits into one command */
static inline bool answer_told(const struct answer *answer) {
    return answer->entries_done == answer->n_entries && answer->removed_done == answer->n_removed;
}
/* Takes the next part, as much as fits into a command. */
void answer_part(struct answer *answer, size_t rows_most, Pb__CopyStageCommand *command);

#endif
