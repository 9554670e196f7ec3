#include "agent/ids.h"

#include <ctype.h>
#include <json-c/linkhash.h>
#include <stdlib.h>

#include "base/check.h"

/* FNV-1a, over the id in lower case. */
static unsigned long hash(const void *key) {
    unsigned long sum = 14695981039346656037UL;
    for (const unsigned char *at = key; *at; at++) sum = (sum ^ (unsigned long)tolower(*at)) * 1099511628211UL;
    return sum;
}

static int equal(const void *a, const void *b) { return slice_equal_nocase(slice_text(a), slice_text(b)); }

static void entry_free(struct lh_entry *entry) { free(lh_entry_k(entry)); }

const struct lh_entry *ids_find(const struct ids *ids, const char *id) {
    return ids->table ? lh_table_lookup_entry(ids->table, id) : NULL;
}

void ids_put(struct ids *ids, const char *id, const struct config_block *block) {
    if (ids_find(ids, id)) return;
    if (!ids->table) ids->table = lh_table_new(16, entry_free, hash, equal);
    CHECK(ids->table && lh_table_insert(ids->table, mem_strdup(id), block) == 0);
}

void ids_free(struct ids *ids) {
    if (ids->table) lh_table_free(ids->table);
    ids->table = NULL;
}
