/* Nodes of other regions, by their instances. */
#include <string.h>

#include "base/check.h"
#include "base/message.h"
#include "multi-dc/copy_internal.h"

static const struct slice no_name = {"", 0};

static struct watch_key watched(const ProtobufCMessage *message) {
    (void)message;
    return (struct watch_key){SPACE_COPY_SERVICES, no_name};
}
static struct watch_key own(const ProtobufCMessage *message, size_t i) {
    (void)message;
    return i == 0 ? (struct watch_key){SPACE_COPY_FLIP, no_name} : (struct watch_key){0};
}

/* The node's record in a visible instance of the service. `service`: the service's key. NULL: there is no such
 * instance. */
static Pb__Node *node_of(struct store_txn *txn, struct slice service, struct slice node, uint64_t stage,
                         struct arena *arena) {
    char room[STORE_KEY_MAX];
    Pb__Node *found = NULL;
    struct store_cursor cursor;
    memcpy(room, service.data, service.size);
    struct slice rest = fold_key(room + service.size, 1, &node);
    struct slice prefix = slice_make(room, service.size + rest.size);
    STORE_PREFIX(&cursor, txn, COPY_TABLE_ROWS, prefix) {
        struct copy_cell cell;
        if (!copy_cell_read(cursor.value, &cell)) store_fail(txn, CO_CORRUPT);
        struct copy_value value = copy_cell_in(&cell, stage);
        const Pb__ServiceEntry *entry =
            value.there ? message_unpack(arena, &pb__service_entry__descriptor, value.bytes) : NULL;
        if (value.there && (!entry || !entry->node)) store_fail(txn, CO_CORRUPT);
        if (entry) found = entry->node;
        if (found) break;
    }
    store_cursor_close(&cursor);
    return found;
}

static int run(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
               struct query_result *result) {
    const Pb__GlobalNodeRequest *request = (const Pb__GlobalNodeRequest *)message;
    Pb__GlobalNodeResult *records = arena_alloc(arena, sizeof *records);
    Pb__CopyRegion *region = NULL;
    char room[STORE_KEY_MAX];
    uint64_t stage = 0;
    size_t looked = 0;
    pb__global_node_result__init(records);
    bool good = copy_region_good(request->region) && request->node[0];
    int error = good ? copy_region_get(txn, request->region, arena, &region) : CO_NOTFOUND;
    if (error && error != CO_NOTFOUND) return error;
    struct store_cursor cursor;
    struct slice prefix = copy_key_region(room, good ? request->region : "");
    for (store_cursor_open(&cursor, txn, COPY_TABLE_SERVICES, prefix);
         region && copy_region_seen(region, &stage) && cursor.valid && slice_starts(cursor.key, prefix) &&
         !records->node && looked++ < COPY_NODE_SERVICES_MOST;
         store_cursor_next(&cursor))
        records->node = node_of(txn, cursor.key, slice_text(request->node), stage, arena);
    store_cursor_close(&cursor);
    uint64_t names = machine_change_index(txn, SPACE_COPY_SERVICES, no_name),
             all = machine_change_index(txn, SPACE_COPY_FLIP, no_name);
    *result =
        (struct query_result){.index = names > all ? names : all, .found = records->node, .message = &records->base};
    return store_txn_error(txn);
}

static int show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *message,
                struct query_result *result) {
    Pb__GlobalNodeResult *records = (Pb__GlobalNodeResult *)(uintptr_t)result->message;
    (void)txn;
    if (access_shows(check, ACCESS_NODE, slice_text(((const Pb__GlobalNodeRequest *)message)->node))) return CO_OK;
    records->node = NULL;
    result->found = false;
    return CO_OK;
}

const struct query_type query_global_node = {.number = 223,
                                             .name = "global-node",
                                             .request = &pb__global_node_request__descriptor,
                                             .result = &pb__global_node_result__descriptor,
                                             .watched = watched,
                                             .own = own,
                                             .run = run,
                                             .show = show};
