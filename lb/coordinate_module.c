/* The module: the command, and the removal of a node's coordinates with the node. */
#include "base/check.h"
#include "lb/coordinate_internal.h"
#include "lb/near.h"
#include "registry/catalog.h"
#include "registry/fold.h"

static const struct slice everything = SLICE_LITERAL("");

/* -- records ------------------------------------------------------------------------------------------------------ */
int coordinate_check(const Pb__Coordinate *record) {
    if (!record->node[0]) return CO_INVALID;
    if (strlen(record->segment) > COORDINATE_SEGMENT_SIZE) return CO_TOOLARGE;
    if (record->n_vec != VIVALDI_DIMENSIONS) return CO_UNSUPPORTED;
    struct vivaldi_coordinate numbers = coordinate_read(record);
    return vivaldi_valid(&numbers) ? CO_OK : CO_INVALID;
}

struct vivaldi_coordinate coordinate_read(const Pb__Coordinate *record) {
    CHECK(record->n_vec == VIVALDI_DIMENSIONS);
    struct vivaldi_coordinate numbers = {
        .error = record->error, .adjustment = record->adjustment, .height = record->height};
    memcpy(numbers.vec, record->vec, sizeof numbers.vec);
    return numbers;
}

Pb__Coordinate coordinate_record(const char *node, const char *segment, struct vivaldi_coordinate *numbers) {
    Pb__Coordinate record = PB__COORDINATE__INIT;
    record.node = (char *)(uintptr_t)node, record.segment = (char *)(uintptr_t)segment;
    record.vec = numbers->vec, record.n_vec = VIVALDI_DIMENSIONS;
    record.error = numbers->error, record.adjustment = numbers->adjustment, record.height = numbers->height;
    return record;
}

struct slice coordinate_key(char *room, struct slice node, struct slice segment) {
    const struct slice names[] = {node, segment};
    return fold_key(room, ARRAY_COUNT(names), names);
}
struct slice coordinate_keys(char *room, struct slice node) {
    return fold_key(room, 1, &node);
}

/* -- the command -------------------------------------------------------------------------------------------------- */
static size_t segments_of(struct store_txn *txn, struct slice node) {
    char room[STORE_KEY_MAX];
    struct slice prefix = coordinate_keys(room, node);
    struct store_cursor cursor;
    size_t count = 0;
    STORE_PREFIX(&cursor, txn, COORDINATE_TABLE, prefix) count++;
    store_cursor_close(&cursor);
    return count;
}

static struct slice packed(struct arena *arena, const Pb__Coordinate *record) {
    size_t size = pb__coordinate__get_packed_size(record);
    uint8_t *bytes = arena_alloc(arena, size);
    pb__coordinate__pack(record, bytes);
    return slice_make(bytes, size);
}

/* *bytes: the new record. */
static bool changes(struct store_txn *txn, const Pb__Coordinate *record, struct arena *arena, struct slice *bytes) {
    char room[STORE_KEY_MAX];
    struct slice node = slice_text(record->node), now;
    *bytes = packed(arena, record);
    if (store_get(txn, COORDINATE_TABLE, coordinate_key(room, node, slice_text(record->segment)), &now) == CO_OK)
        return !slice_equal(now, *bytes);
    return catalog_node_exists(txn, node) && segments_of(txn, node) < COORDINATE_SEGMENTS_MAX;
}

bool coordinate_changes(struct store_txn *txn, const Pb__Coordinate *record, struct arena *arena) {
    struct slice bytes;
    return changes(txn, record, arena, &bytes);
}

/* True: something has changed. */
static bool update(struct machine_tx *tx, const Pb__Coordinate *record) {
    char room[STORE_KEY_MAX];
    struct slice node = slice_text(record->node), bytes;
    if (!changes(tx->store, record, tx->arena, &bytes)) return false;
    store_put(tx->store, COORDINATE_TABLE, coordinate_key(room, node, slice_text(record->segment)), bytes);
    machine_changed(tx, SPACE_COORDINATE_NODE, node, false);
    return true;
}

static int apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__CoordinateUpdateCommand *command = request;
    for (size_t i = 0; i < command->n_updates; i++)
        if (coordinate_check(command->updates[i]) != CO_OK)
            return machine_refuse(result, CO_INVALID, "invalid coordinate");
    bool changed = false;
    for (size_t i = 0; i < command->n_updates; i++) changed |= update(tx, command->updates[i]);
    if (changed) machine_changed(tx, SPACE_COORDINATES, everything, false);
    result->yes = true;
    return CO_OK;
}

/* node:write of each node, or nothing of the command. */
static int may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    const Pb__CoordinateUpdateCommand *command = (const Pb__CoordinateUpdateCommand *)request;
    int error = CO_OK;
    (void)txn;
    for (size_t i = 0; i < command->n_updates && !error; i++)
        error = access_require(check, ACCESS_NODE, slice_text(command->updates[i]->node), ACCESS_WRITE);
    return error;
}

/* -- events ------------------------------------------------------------------------------------------------------- */
_Static_assert((int)SPACE_COORDINATE_NODE == (int)FOLD_SPACE_COORDINATE_NODE, "one list of numbers");

static void on_event(struct machine_tx *tx, const struct machine_event *event) {
    if (event->type != MACHINE_NODE_REMOVED) return;
    char room[STORE_KEY_MAX];
    struct slice prefix = coordinate_keys(room, event->node);
    struct store_cursor cursor;
    bool had = false;
    store_cursor_open(&cursor, tx->store, COORDINATE_TABLE, prefix);
    while (cursor.valid && slice_starts(cursor.key, prefix)) {
        store_cursor_del(&cursor);
        had = true;
    }
    store_cursor_close(&cursor);
    if (!had) return;
    machine_changed(tx, SPACE_COORDINATE_NODE, event->node, true);
    machine_changed(tx, SPACE_COORDINATES, everything, false);
}

/* -- the table ---------------------------------------------------------------------------------------------------- */
static const struct module_command commands[] = {
    {.number = COORDINATE_UPDATE,
     .name = "coordinate-update",
     .request = &pb__coordinate_update_command__descriptor,
     .may = may,
     .apply = apply},
    {0},
};
static const struct store_table tables[] = {{COORDINATE_TABLE, "coordinates"}, {0}};
static const struct module_space spaces[] = {
    {SPACE_COORDINATES, "coordinates"}, {SPACE_COORDINATE_NODE, "coordinate-node"}, {0}};
static const struct query_type *const queries[] = {&query_coordinates, &query_node_coordinates, &query_near,
                                                   &query_service_coordinates, NULL};

const struct module coordinate_module = {.name = "coordinate",
                                         .commands = commands,
                                         .tables = tables,
                                         .spaces = spaces,
                                         .queries = queries,
                                         .on_event = on_event};
