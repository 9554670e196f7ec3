/* A small store with three tables, and short ways to put and look, for its tests. */
#ifndef COORD_TESTS_REGISTRY_SMALL_STORE_H
#define COORD_TESTS_REGISTRY_SMALL_STORE_H

#include "registry/store_file.h"
#include "tests/lib/scratch.h"

extern const struct store_table small_tables[3]; /* 1, 2, 40 */

struct store *open_at(const char *folder, bool *trusted); /* trusted may be NULL */
void put_text(struct store_txn *txn, uint8_t table, const char *key, const char *value);
void put_committed(struct store *store, const char *key, const char *value); /* into table 1 */
bool has_text(struct store *store, uint8_t table, const char *key, const char *value);
uint64_t sum_of(struct store *store); /* checked against a scrub */

#endif
