/* Inside the copies: keys and cells.
 *
 * COPY_TABLE_REGIONS:  region -> CopyRegion
 * COPY_TABLE_ROWS:     region, service, node, id -> cell of a ServiceEntry COPY_TABLE_SERVICES: region, service -> cell
 * of a CopyService Names of services, of nodes, and ids are folded, as in the catalog.
 *
 * A cell has a present value, and beside it the value of a stage; each may be missing. A cell with a present value only
 * is that value behind one byte. A cell with neither is not stored. */
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
    uint64_t stage; /* 0: the cell is in no stage */
    struct copy_value then;
};
bool copy_cell_read(struct slice bytes, struct copy_cell *cell); /* false: the bytes are no cell */
/* In the arena. */
struct slice copy_cell_pack(struct arena *arena, const struct copy_cell *cell);
/* The value once the stage is committed (0: the present value). A different stage in the cell does not count. */
static inline struct copy_value copy_cell_in(const struct copy_cell *cell, uint64_t stage) {
    return stage && cell->stage == stage ? cell->then : cell->now;
}

/* -- records ------------------------------------------------------------------------------------------------------ */
/* CO_NOTFOUND; CO_CORRUPT, and the transaction has failed. */
int copy_region_get(struct store_txn *txn, const char *region, struct arena *arena, Pb__CopyRegion **record);
/* Do readers see the copy? *stage: for copy_cell_in. */
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
    struct pointers lost; /* names of services that lost a healthy instance, or a tag of one; a name may be in it
                           * twice */
    /* The service of the last changed row. */
    struct slice key; /* in the arena; empty: none */
    Pb__CopyService *service;
    size_t tags_room;
    bool dirty;
};
/* Sets an instance, or removes it (`entry` NULL). `bytes`: the packed entry. */
void copy_change_row(struct copy_change *change, struct slice service, struct slice node, struct slice id,
                     const Pb__ServiceEntry *entry, struct slice bytes);
void copy_change_end(struct copy_change *change); /* writes the last service */

/* Tidies some cells behind *tidied, and moves that on; empty: begins. True: all are tidy. */
bool copy_tidy(struct machine_tx *tx, const char *region, uint64_t committed, struct slice *tidied);
/* Removes some cells. True: none are left. */
bool copy_remove(struct machine_tx *tx, const char *region);

extern const struct module_command copy_commands[];

#endif
