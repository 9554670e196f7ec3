/* Queries of names without regard to case. */
#include "registry/catalog_access.h"
#include "registry/catalog_query.h"

static int run_name(struct store_txn *txn, struct watch_key watched, int error, struct slice stored,
                    struct arena *arena, struct query_result *result) {
    if (error && error != CO_NOTFOUND) return error;
    Pb__NameResult *record = arena_alloc(arena, sizeof *record);
    pb__name_result__init(record);
    if (!error) record->name = arena_strndup(arena, stored.data, stored.size);
    return query_done(txn, watched, &record->base, error == CO_OK, result);
}

static struct slice wanted(const ProtobufCMessage *message) {
    return slice_text(((const Pb__NameRequest *)message)->name);
}

static struct watch_key nodes_thing(const ProtobufCMessage *message) {
    (void)message;
    return (struct watch_key){SPACE_TABLE, catalog_table_nodes};
}

static int run_node(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                    struct query_result *result) {
    struct slice stored = {0};
    int error = catalog_node_nocase(txn, wanted(message), &stored);
    return run_name(txn, nodes_thing(message), error, stored, arena, result);
}

static struct watch_key services_thing(const ProtobufCMessage *message) {
    (void)message;
    return (struct watch_key){SPACE_TABLE, catalog_table_services};
}

static int run_service(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                       struct query_result *result) {
    struct slice stored = {0};
    int error = catalog_service_nocase(txn, wanted(message), &stored);
    return run_name(txn, services_thing(message), error, stored, arena, result);
}

const struct query_type query_node_nocase = {.number = 9,
                                             .name = "node-nocase",
                                             .discovery = true,
                                             .request = &pb__name_request__descriptor,
                                             .result = &pb__name_result__descriptor,
                                             .watched = nodes_thing,
                                             .run = run_node,
                                             .show = catalog_show_node_name};
const struct query_type query_service_nocase = {.number = 10,
                                                .name = "service-nocase",
                                                .discovery = true,
                                                .request = &pb__name_request__descriptor,
                                                .result = &pb__name_result__descriptor,
                                                .watched = services_thing,
                                                .run = run_service,
                                                .show = catalog_show_service_name};
