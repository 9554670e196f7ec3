/* Ids of services or checks, each with the block of the configuration that defines it. Ids that differ only in case are
 * the same. One thread. */
#ifndef COORD_AGENT_IDS_H
#define COORD_AGENT_IDS_H

#include "agent/config.h"

/* Zeroed: none. */
struct ids {
    struct lh_table *table; /* NULL: none; its entries are in the order in which they were put */
};

/* The id as it was put, and the block that was put with it first; NULL: it is not there. */
const struct lh_entry *ids_find(const struct ids *ids, const char *id);
/* Keeps a copy of the id. Does nothing when the id is there already. */
void ids_put(struct ids *ids, const char *id, const struct config_block *block);
void ids_free(struct ids *ids);

#endif
