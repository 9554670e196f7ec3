#include "rpc/api/access_table.h"

#include <stdlib.h>

#include "base/memory.h"

#define RIGHT 256
#define WRONG 256

struct access_table {
    struct known_access right[RIGHT], wrong[WRONG];
};

static void forget(struct known_access *known) {
    requester_release(known->requester);
    access_release(known->access);
    *known = (struct known_access){0};
}

struct access_table *access_table_new(void) {
    return mem_zalloc(sizeof(struct access_table));
}

void access_table_free(struct access_table *table) {
    if (!table) return;
    for (size_t i = 0; i < RIGHT; i++) forget(&table->right[i]);
    for (size_t i = 0; i < WRONG; i++) forget(&table->wrong[i]);
    free(table);
}

/* NULL: it has none. */
static struct known_access *place_of(struct access_table *table, const struct requester *requester) {
    struct known_access *right = &table->right[requester->hash % RIGHT],
                        *wrong = &table->wrong[requester->hash % WRONG];
    if (right->requester && requester_equal(right->requester, requester)) return right;
    return wrong->requester && requester_equal(wrong->requester, requester) ? wrong : NULL;
}

const struct known_access *access_table_find(struct access_table *table, const struct requester *requester,
                                             int64_t now_unix_ms) {
    const struct known_access *known = place_of(table, requester);
    return known && now_unix_ms < known->until_unix_ms ? known : NULL;
}

const struct known_access *access_table_put(struct access_table *table, const struct known_access *known) {
    size_t hash = known->requester->hash;
    struct known_access *place = known->access ? &table->right[hash % RIGHT] : &table->wrong[hash % WRONG];
    struct requester *requester = requester_keep(known->requester);
    access_table_drop(table, requester);
    forget(place);
    *place = *known;
    place->requester = requester;
    return place;
}

void access_table_drop(struct access_table *table, const struct requester *requester) {
    struct known_access *known = place_of(table, requester);
    if (known) forget(known);
}
