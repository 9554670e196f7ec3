/* Inside the copies: keys and cells.
 *
 * COPY_TABLE_REGIONS:  region -> CopyRegion
 * COPY_TABLE_ROWS:     region, service, node, id -> cell of a ServiceEntry
 * COPY_TABLE_SERVICES: region, service -> cell of a CopyService
 * Names of services and nodes and ids are folded, as the catalog folds them.
 *
 * A cell has what is there at present, and beside it what is there in a stage: each a value, or nothing. One that has a
 * present value only is that value behind one byte. What has neither is not there. */
#ifndef COORD_MULTI_DC_COPY_INTERNAL_H
#define COORD_MULTI_DC_COPY_INTERNAL_H

#include "multi-dc/copy.h"
#include "registry/catalog_records.h"
#include "registry/fold.h"

enum copy_table {
    COPY_TABLE_REGIONS = 44,
    COPY_TABLE_ROWS = 45,
    COPY_TABLE_SERVICES = 46,
};
_Static_assert(COPY_TABLE_REGIONS >= 44 && COPY_TABLE_SERVICES < 48, "tables of multi-dc (registry/module.h)");

/* -- keys: `room` has STORE_KEY_MAX bytes ------------------------------------------------------------------------- */
struct slice copy_key_region(char *room, const char *region); /* a prefix of the other two */
struct slice copy_key_service(char *room, const char *region, struct slice service);
struct slice copy_key_row(char *room, const char *region, struct slice service, struct slice node, struct slice id);

/* -- cells -------------------------------------------------------------------------------------------------------- */
struct copy_value {
    bool there;
    struct slice bytes;
};
struct copy_cell {
    struct copy_value now;
    uint64_t stage; /* 0: in none */
    struct copy_value then;
};
bool copy_cell_read(struct slice bytes, struct copy_cell *cell); /* false: it is no cell */
/* In the arena. */
struct slice copy_cell_pack(struct arena *arena, const struct copy_cell *cell);
/* As it is once the stage is committed (0: as it is now). Any other stage in the cell does not count. */
static inline struct copy_value copy_cell_in(const struct copy_cell *cell, uint64_t stage) {
    return stage && cell->stage == stage ? cell->then : cell->now;
}

/* -- records ------------------------------------------------------------------------------------------------------ */
/* CO_NOTFOUND; CO_CORRUPT, and the transaction has failed. */
int copy_region_get(struct store_txn *txn, const char *region, struct arena *arena, Pb__CopyRegion **record);
/* Do readers see anything of it? *stage: for copy_cell_in. */
bool copy_region_seen(const Pb__CopyRegion *record, uint64_t *stage);
/* CO_NOTFOUND; CO_CORRUPT */
int copy_cell_get(struct store_txn *txn, uint8_t table, struct slice key, struct copy_cell *cell);

/* -- rows change (applier) ---------------------------------------------------------------------------------------- */
struct copy_change {
    struct machine_tx *tx;
    const char *region;
    uint64_t stage; /* 0: the present */
    Pb__CopyCounts *counts;
    bool names;           /* services came or went, or the union of the tags of one did */
    int error;            /* of the store */
    struct pointers lost; /* names of services that lost a healthy instance, or a tag of one; some may be in it twice */
    /* The service that rows changed of last. */
    struct slice key; /* in the arena; empty: none */
    Pb__CopyService *service;
    size_t tags_room;
    bool dirty;
};
/* The instance is this, or (`entry` NULL) not there. `bytes`: it, packed. */
void copy_change_row(struct copy_change *change, struct slice service, struct slice node, struct slice id,
                     const Pb__ServiceEntry *entry, struct slice bytes);
void copy_change_end(struct copy_change *change); /* the last service is written */

/* Makes one value of two in some cells behind *tidied, which moves on; empty: at the beginning. True: that was all. */
bool copy_tidy(struct machine_tx *tx, const char *region, uint64_t committed, struct slice *tidied);
/* Removes some cells. True: that was all. */
bool copy_remove(struct machine_tx *tx, const char *region);

extern const struct module_command copy_commands[];

#endif
