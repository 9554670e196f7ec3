/* Reads of coordinates. */
#include <math.h>

#include "lb/coordinate_internal.h"
#include "registry/catalog_access.h"

struct gathered {
    struct arena *arena;
    Pb__Coordinate **records;
    size_t count, room;
};

static void list_add(struct gathered *list, Pb__Coordinate *record) {
    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 4;
        Pb__Coordinate **wider = arena_alloc(list->arena, list->room * sizeof *wider);
        if (list->count) memcpy(wider, list->records, list->count * sizeof *wider);
        list->records = wider;
    }
    list->records[list->count++] = record;
}

static int list_keys(struct store_txn *txn, struct slice prefix, struct gathered *list) {
    ProtobufCAllocator allocator = ARENA_PROTOBUF(list->arena);
    struct store_cursor cursor;
    int rv = CO_OK;
    STORE_PREFIX(&cursor, txn, COORDINATE_TABLE, prefix) {
        Pb__Coordinate *record =
            pb__coordinate__unpack(&allocator, cursor.value.size, (const uint8_t *)cursor.value.data);
        rv = record && record->n_vec == VIVALDI_DIMENSIONS ? CO_OK : CO_CORRUPT;
        if (rv != CO_OK) break;
        list_add(list, record);
    }
    store_cursor_close(&cursor);
    return rv;
}

int coordinate_of_node(struct store_txn *txn, struct slice node, struct arena *arena, Pb__Coordinate ***records,
                       size_t *count) {
    char room[STORE_KEY_MAX];
    struct gathered list = {.arena = arena};
    int rv = list_keys(txn, coordinate_keys(room, node), &list);
    *records = list.records, *count = list.count;
    return rv;
}

/* -- distances ---------------------------------------------------------------------------------------------------- */
static const Pb__Coordinate *in_segment(Pb__Coordinate *const *records, size_t count, const char *segment) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(records[i]->segment, segment) == 0) return records[i];
    return NULL;
}

void coordinate_meet(Pb__Coordinate *const *a, size_t a_count, Pb__Coordinate *const *b, size_t b_count,
                     const Pb__Coordinate **of_a, const Pb__Coordinate **of_b) {
    const char *segment = "";
    if (a_count == 1) segment = a[0]->segment;
    if (b_count == 1) segment = b[0]->segment;
    *of_a = in_segment(a, a_count, segment), *of_b = in_segment(b, b_count, segment);
}

double coordinate_distance(Pb__Coordinate *const *a, size_t a_count, Pb__Coordinate *const *b, size_t b_count) {
    const Pb__Coordinate *one, *other;
    coordinate_meet(a, a_count, b, b_count, &one, &other);
    if (!one || !other) return INFINITY;
    struct vivaldi_coordinate from = coordinate_read(one), to = coordinate_read(other);
    return vivaldi_distance(&from, &to);
}

/* -- the queries -------------------------------------------------------------------------------------------------- */
static void keep_segment(const Pb__CoordinatesRequest *request, struct gathered *list) {
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++)
        if (!request->by_segment || strcmp(list->records[i]->segment, request->segment) == 0)
            list->records[kept++] = list->records[i];
    list->count = kept;
}

static int finish(struct store_txn *txn, struct watch_key watched, const Pb__CoordinatesRequest *request,
                  struct gathered *list, struct query_result *result) {
    keep_segment(request, list);
    Pb__CoordinatesResult *records = arena_alloc(list->arena, sizeof *records);
    pb__coordinates_result__init(records);
    records->coordinates = list->records, records->n_coordinates = list->count;
    *result = (struct query_result){
        .index = machine_change_index(txn, watched.space, watched.name), .found = true, .message = &records->base};
    return CO_OK;
}

static struct watch_key all_thing(const ProtobufCMessage *message) {
    (void)message;
    return (struct watch_key){SPACE_COORDINATES, SLICE_LITERAL("")};
}

static int run_all(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                   struct query_result *result) {
    struct gathered list = {.arena = arena};
    int rv = list_keys(txn, slice_make("", 0), &list);
    return rv == CO_OK ? finish(txn, all_thing(message), (const Pb__CoordinatesRequest *)message, &list, result) : rv;
}

static struct watch_key node_thing(const ProtobufCMessage *message) {
    return (struct watch_key){SPACE_COORDINATE_NODE, slice_text(((const Pb__CoordinatesRequest *)message)->node)};
}

static int run_node(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                    struct query_result *result) {
    const Pb__CoordinatesRequest *request = (const Pb__CoordinatesRequest *)message;
    struct gathered list = {.arena = arena};
    int rv = coordinate_of_node(txn, slice_text(request->node), arena, &list.records, &list.count);
    if (rv == CO_OK) rv = finish(txn, node_thing(message), request, &list, result);
    if (rv == CO_OK) result->found = list.count > 0;
    return rv;
}

static void show_rows(struct access_check *check, struct query_result *result) {
    Pb__CoordinatesResult *records = (Pb__CoordinatesResult *)(uintptr_t)result->message;
    ACCESS_KEEP_ROWS(records->n_coordinates, records->coordinates,
                     access_shows(check, ACCESS_NODE, slice_text(row->node)));
}

static int show_all(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *message,
                    struct query_result *result) {
    (void)txn, (void)message;
    show_rows(check, result);
    return CO_OK;
}

static int show_node(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *message,
                     struct query_result *result) {
    (void)txn, (void)result;
    return access_require(check, ACCESS_NODE, slice_text(((const Pb__CoordinatesRequest *)message)->node), ACCESS_READ);
}

const struct query_type query_coordinates = {.number = 64,
                                             .name = "coordinates",
                                             .discovery = true,
                                             .request = &pb__coordinates_request__descriptor,
                                             .result = &pb__coordinates_result__descriptor,
                                             .watched = all_thing,
                                             .run = run_all,
                                             .show = show_all};
const struct query_type query_node_coordinates = {.number = 65,
                                                  .name = "node-coordinates",
                                                  .discovery = true,
                                                  .request = &pb__coordinates_request__descriptor,
                                                  .result = &pb__coordinates_result__descriptor,
                                                  .watched = node_thing,
                                                  .run = run_node,
                                                  .show = show_node};

/* -- of the nodes with a service ---------------------------------------------------------------------------------- */
static struct watch_key service_thing(const ProtobufCMessage *message) {
    return query_service_entries.watched(message);
}

static Pb__Coordinate *at_origin(struct arena *arena, const char *node) {
    struct vivaldi_coordinate *numbers = arena_alloc(arena, sizeof *numbers);
    Pb__Coordinate *record = arena_alloc(arena, sizeof *record);
    *numbers = vivaldi_origin();
    *record = coordinate_record(arena_strndup(arena, node, strlen(node)), "", numbers);
    return record;
}

static int run_service(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                       struct query_result *result) {
    struct gathered list = {.arena = arena};
    int rv = query_service_entries.run(txn, message, arena, result);
    if (rv != CO_OK) return rv;
    const Pb__ServiceEntriesResult *entries = (const Pb__ServiceEntriesResult *)result->message;
    for (size_t i = 0; i < entries->n_entries; i++) {
        const char *node = entries->entries[i]->node->name;
        Pb__Coordinate **of_node;
        size_t count;
        if (list.count && strcmp(list.records[list.count - 1]->node, node) == 0) continue;
        rv = coordinate_of_node(txn, slice_text(node), arena, &of_node, &count);
        if (rv != CO_OK) return rv;
        const Pb__Coordinate *known = in_segment(of_node, count, "");
        list_add(&list, known ? (Pb__Coordinate *)(uintptr_t)known : at_origin(arena, node));
    }
    Pb__CoordinatesResult *records = arena_alloc(arena, sizeof *records);
    pb__coordinates_result__init(records);
    records->coordinates = list.records, records->n_coordinates = list.count;
    result->message = &records->base;
    return CO_OK;
}

static int show_service(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *message,
                        struct query_result *result) {
    (void)txn;
    if (catalog_shows_service(check, ((const Pb__ServiceRequest *)message)->service, result)) show_rows(check, result);
    else ((Pb__CoordinatesResult *)(uintptr_t)result->message)->n_coordinates = 0;
    return CO_OK;
}

const struct query_type query_service_coordinates = {.number = 67,
                                                     .name = "service-coordinates",
                                                     .discovery = true,
                                                     .request = &pb__service_request__descriptor,
                                                     .result = &pb__coordinates_result__descriptor,
                                                     .watched = service_thing,
                                                     .run = run_service,
                                                     .show = show_service,
                                                     .also = all_thing};
