#include "lb/near.h"

#include <stdlib.h>

#include "base/check.h"
#include "registry/catalog.h"

/* -- the wrapped query -------------------------------------------------------------------------------------------- */
bool near_wrap(Pb__NearRequest *request, const struct query_type *type, const ProtobufCMessage *message) {
    void *own = (void *)(uintptr_t)message;
    if (type == &query_nodes) request->nodes = own, request->of_case = PB__NEAR_REQUEST__OF_NODES;
    else if (type == &query_service_entries)
        request->service_entries = own, request->of_case = PB__NEAR_REQUEST__OF_SERVICE_ENTRIES;
    else if (type == &query_service_checks)
        request->service_checks = own, request->of_case = PB__NEAR_REQUEST__OF_SERVICE_CHECKS;
    else if (type == &query_state_checks)
        request->state_checks = own, request->of_case = PB__NEAR_REQUEST__OF_STATE_CHECKS;
    else return false;
    return true;
}

/* NULL: none. */
static const struct query_type *wrapped(const ProtobufCMessage *message, const ProtobufCMessage **inner) {
    const Pb__NearRequest *request = (const Pb__NearRequest *)message;
    switch (request->of_case) {
        case PB__NEAR_REQUEST__OF_NODES: *inner = &request->nodes->base; return &query_nodes;
        case PB__NEAR_REQUEST__OF_SERVICE_ENTRIES:
            *inner = &request->service_entries->base;
            return &query_service_entries;
        case PB__NEAR_REQUEST__OF_SERVICE_CHECKS: *inner = &request->service_checks->base; return &query_service_checks;
        case PB__NEAR_REQUEST__OF_STATE_CHECKS: *inner = &request->state_checks->base; return &query_state_checks;
        default: return NULL;
    }
}

static struct watch_key also(const ProtobufCMessage *message) {
    (void)message;
    return (struct watch_key){SPACE_COORDINATES, SLICE_LITERAL("")};
}

static struct watch_key watched(const ProtobufCMessage *message) {
    const ProtobufCMessage *inner;
    const struct query_type *type = wrapped(message, &inner);
    return type ? type->watched(inner) : also(message);
}

static const ProtobufCMessageDescriptor *result_of(const ProtobufCMessage *message) {
    const ProtobufCMessage *inner;
    const struct query_type *type = wrapped(message, &inner);
    return type ? type->result : NULL;
}

/* -- sorting ------------------------------------------------------------------------------------------------------ */
struct place {
    double distance;
    size_t at; /* in the catalog's order */
    void *item;
};

static int nearer(const void *a, const void *b) {
    const struct place *one = a, *other = b;
    if (one->distance != other->distance) return one->distance < other->distance ? -1 : 1;
    return one->at < other->at ? -1 : 1;
}

static const char *node_of_node(const void *item) { return ((const Pb__Node *)item)->name; }
static const char *node_of_entry(const void *item) { return ((const Pb__ServiceEntry *)item)->node->name; }
static const char *node_of_check(const void *item) { return ((const Pb__Check *)item)->node; }

struct sorting {
    struct store_txn *txn;
    struct arena *arena;
    Pb__Coordinate **from; /* coordinates of the node from which all are measured */
    size_t from_count;
};

/* Successive items are often of one node. */
static int measure(const struct sorting *sorting, struct place *places, size_t count,
                   const char *(*node_of)(const void *item)) {
    struct arena scratch = {0};
    const char *node = NULL;
    double distance = 0;
    int rv = CO_OK;
    for (size_t i = 0; i < count && rv == CO_OK; i++) {
        const char *name = node_of(places[i].item);
        if (!node || strcmp(node, name) != 0) {
            Pb__Coordinate **to;
            size_t to_count;
            node = name;
            rv = coordinate_of_node(sorting->txn, slice_text(name), &scratch, &to, &to_count);
            if (rv == CO_OK) distance = coordinate_distance(sorting->from, sorting->from_count, to, to_count);
            arena_reset(&scratch);
        }
        places[i].distance = distance;
    }
    arena_free(&scratch);
    return rv;
}

/* The rows of a result. */
struct rows {
    void ***items;
    size_t count;
    const char *(*node_of)(const void *item);
};

static struct rows rows_of(const ProtobufCMessage *records) {
    void *own = (void *)(uintptr_t)records;
    if (records->descriptor == &pb__nodes_result__descriptor) {
        Pb__NodesResult *nodes = own;
        return (struct rows){(void ***)&nodes->nodes, nodes->n_nodes, node_of_node};
    }
    if (records->descriptor == &pb__service_entries_result__descriptor) {
        Pb__ServiceEntriesResult *entries = own;
        return (struct rows){(void ***)&entries->entries, entries->n_entries, node_of_entry};
    }
    Pb__ChecksResult *checks = own;
    return (struct rows){(void ***)&checks->checks, checks->n_checks, node_of_check};
}

/* Behind the sorted rows stand the same ones in the catalog's order, for `show`. */
static int sort(const struct sorting *sorting, const struct rows *rows) {
    size_t count = rows->count;
    struct place *places = arena_alloc(sorting->arena, (count + 1) * sizeof *places);
    void **items = arena_alloc(sorting->arena, 2 * (count + 1) * sizeof *items);
    for (size_t i = 0; i < count; i++) places[i] = (struct place){.at = i, .item = (*rows->items)[i]};
    bool known = sorting->from_count > 0;
    int rv = known ? measure(sorting, places, count, rows->node_of) : CO_OK;
    if (rv != CO_OK) return rv;
    if (known && count) qsort(places, count, sizeof *places, nearer);
    for (size_t i = 0; i < count; i++) items[i] = places[i].item, items[count + i] = (*rows->items)[i];
    *rows->items = items;
    return CO_OK;
}

static int run(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
               struct query_result *result) {
    const ProtobufCMessage *inner;
    const struct query_type *type = wrapped(message, &inner);
    if (!type) return CO_INVALID;
    int rv = type->run(txn, inner, arena, result);
    if (rv != CO_OK || !result->message) return rv;
    struct sorting sorting = {.txn = txn, .arena = arena};
    struct slice node = slice_text(((const Pb__NearRequest *)message)->node);
    struct rows rows = rows_of(result->message);
    rv = coordinate_of_node(txn, node, arena, &sorting.from, &sorting.from_count);
    return rv != CO_OK ? rv : sort(&sorting, &rows);
}

/* A node that the token may not read is as one that is not known: its distances would tell where it is. */
static int show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *message,
                struct query_result *result) {
    const ProtobufCMessage *inner = NULL;
    const struct query_type *type = wrapped(message, &inner);
    struct rows rows = rows_of(result->message);
    CHECK(type);
    if (!access_allows(check->access, ACCESS_NODE, slice_text(((const Pb__NearRequest *)message)->node), ACCESS_READ))
        *rows.items += rows.count;
    return type->show(check, txn, inner, result);
}

const struct query_type query_near = {.number = 66,
                                      .name = "near",
                                      .discovery = true,
                                      .request = &pb__near_request__descriptor,
                                      .watched = watched,
                                      .run = run,
                                      .show = show,
                                      .also = also,
                                      .result_of = result_of};
