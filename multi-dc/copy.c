/* Copies as a module: keys, cells, records. */
#include "multi-dc/copy.h"

#include "base/message.h"
#include "base/varint.h"
#include "multi-dc/copy_internal.h"

_Static_assert((int)SPACE_COPY_SERVICE == (int)FOLD_SPACE_COPY_SERVICE, "one list of numbers");
_Static_assert(COPY_UPDATE >= 208 && COPY_FORGET < 224, "commands of multi-dc (registry/module.h)");
_Static_assert(SPACE_COPY_SERVICE >= 112 && SPACE_COPY_FLIP < 120, "its spaces");

bool copy_region_good(const char *region) { return region && region[0] && strlen(region) <= COPY_REGION_MAX; }

bool copy_same_life(const Pb__CatalogAt *a, const Pb__CatalogAt *b) {
    if (!a || !b) return a == b;
    return a->cluster_id == b->cluster_id && a->restored == b->restored;
}

bool copy_same_at(const Pb__CatalogAt *a, const Pb__CatalogAt *b) {
    return copy_same_life(a, b) && (!a || a->index == b->index);
}

/* -- keys --------------------------------------------------------------------------------------------------------- */

_Static_assert(COPY_REGION_MAX <= STORE_PART_MAX && COPY_REGION_MAX + 1 + 3 * (STORE_PART_MAX + 2) <= STORE_KEY_MAX,
               "keys of the longest names fit");

struct slice copy_key_region(char *room, const char *region) {
    return store_key_join(room, 1, slice_text(region));
}

static struct slice below(char *room, const char *region, size_t count, const struct slice *names) {
    struct slice start = copy_key_region(room, region);
    struct slice rest = fold_key(room + start.size, count, names);
    CHECK(start.size + rest.size <= STORE_KEY_MAX);
    return slice_make(room, start.size + rest.size);
}

struct slice copy_key_service(char *room, const char *region, struct slice service) {
    return below(room, region, 1, &service);
}

struct slice copy_key_row(char *room, const char *region, struct slice service, struct slice node, struct slice id) {
    return below(room, region, 3, (struct slice[]){service, node, id});
}

/* -- cells -------------------------------------------------------------------------------------------------------- */

enum { CELL_NOW = 1, CELL_STAGED = 2, CELL_THEN = 4 };

bool copy_cell_read(struct slice bytes, struct copy_cell *cell) {
    *cell = (struct copy_cell){0};
    if (bytes.size == 0) return false;
    int head = bytes.data[0];
    struct slice rest = slice_make(bytes.data + 1, bytes.size - 1);
    cell->now.there = head & CELL_NOW;
    if (!(head & CELL_STAGED)) {
        cell->now.bytes = rest;
        return head == CELL_NOW;
    }
    if (!varint_take(&rest, &cell->stage) || cell->stage == 0) return false;
    if (cell->now.there && !varint_slice(&rest, &cell->now.bytes)) return false;
    cell->then = (struct copy_value){head & CELL_THEN, rest};
    return true;
}

struct slice copy_cell_pack(struct arena *arena, const struct copy_cell *cell) {
    CHECK(cell->stage || cell->now.there); /* an empty cell is not stored */
    struct buffer out = {0};
    buffer_append_byte(&out, (char)((cell->now.there ? CELL_NOW : 0) | (cell->stage ? CELL_STAGED : 0) |
                                    (cell->stage && cell->then.there ? CELL_THEN : 0)));
    if (cell->stage) varint_append(&out, cell->stage);
    if (cell->stage && cell->now.there) varint_append_slice(&out, cell->now.bytes);
    if (!cell->stage) buffer_append(&out, cell->now.bytes.data, cell->now.bytes.size);
    if (cell->stage && cell->then.there) buffer_append(&out, cell->then.bytes.data, cell->then.bytes.size);
    struct slice packed = slice_copy(arena, buffer_slice(&out));
    buffer_free(&out);
    return packed;
}

int copy_cell_get(struct store_txn *txn, uint8_t table, struct slice key, struct copy_cell *cell) {
    struct slice bytes;
    int error = store_get(txn, table, key, &bytes);
    if (error || copy_cell_read(bytes, cell)) return error;
    store_fail(txn, CO_CORRUPT);
    return CO_CORRUPT;
}

/* -- records ------------------------------------------------------------------------------------------------------ */

int copy_region_get(struct store_txn *txn, const char *region, struct arena *arena, Pb__CopyRegion **record) {
    char room[STORE_KEY_MAX];
    struct slice bytes;
    int error = store_get(txn, COPY_TABLE_REGIONS, copy_key_region(room, region), &bytes);
    if (error) return error;
    *record = message_unpack(arena, &pb__copy_region__descriptor, bytes);
    if (*record && (*record)->counts && (*record)->staged) return CO_OK;
    store_fail(txn, CO_CORRUPT);
    return CO_CORRUPT;
}

bool copy_region_seen(const Pb__CopyRegion *record, uint64_t *stage) {
    *stage = record->committed ? record->stage : 0;
    return record->at && record->state != PB__COPY_STATE__COPY_FORGETTING;
}

/* -- the module --------------------------------------------------------------------------------------------------- */

static const struct store_table tables[] = {
    {COPY_TABLE_REGIONS, "copy-regions"}, {COPY_TABLE_ROWS, "copy-rows"}, {COPY_TABLE_SERVICES, "copy-services"}, {0}};
static const struct module_space spaces[] = {{SPACE_COPY_SERVICE, "copy-service"},
                                             {SPACE_COPY_SERVICES, "copy-services"},
                                             {SPACE_COPY, "copy"},
                                             {SPACE_COPY_FLIP, "copy-flip"},
                                             {0}};
static const struct query_type *const queries[] = {&query_global_service, &query_global_services, &query_copies,
                                                   &query_copy,           &query_global_node,     NULL};

const struct module copy_module = {
    .name = "copy", .commands = copy_commands, .tables = tables, .spaces = spaces, .queries = queries};
