/* Folders for tests, removed at the end. */
#ifndef COORD_TESTS_LIB_SCRATCH_H
#define COORD_TESTS_LIB_SCRATCH_H

#include "registry/store.h"

/* A fresh folder; the path is static, valid until the next call but seven. */
const char *scratch_folder(void);
void scratch_remove(const char *folder);
/* A small store in it (map 1 GiB, steps of 1 MiB). */
struct store_config scratch_config(const char *folder, const struct store_table *tables, size_t count);

#endif
