#include "looks.h"

#include <string.h>

#include "base/check.h"
#include "base/message.h"

static const ProtobufCMessage *ask_for(struct rpc *rpc, const struct query_type *type, struct arena *arena,
                                       const ProtobufCMessage *request) {
    struct rpc_reader *reader = rpc_reader_new(rpc);
    struct query_result result = {0};
    CHECK(rpc_query(reader, type, request, NULL, arena, &result) == CO_OK);
    const ProtobufCMessage *message = result.message ? message_copy(arena, result.message) : NULL;
    rpc_read_end(reader);
    rpc_reader_free(reader);
    return message;
}

static const ProtobufCMessage *ask(struct rpc *rpc, const struct query_type *type, struct arena *arena,
                                   const char *node) {
    Pb__NodeRequest request = PB__NODE_REQUEST__INIT;
    request.node = (char *)node;
    return ask_for(rpc, type, arena, &request.base);
}

const Pb__Service *look_service(struct rpc *rpc, struct arena *arena, const char *node, const char *id) {
    const Pb__NodeServicesResult *all = (const Pb__NodeServicesResult *)ask(rpc, &query_node_services, arena, node);
    for (size_t i = 0; all && i < all->n_services; i++) {
        if (strcmp(all->services[i]->id, id) == 0) return all->services[i];
    }
    return NULL;
}

const Pb__Check *look_check(struct rpc *rpc, struct arena *arena, const char *node, const char *id) {
    const Pb__ChecksResult *all = (const Pb__ChecksResult *)ask(rpc, &query_node_checks, arena, node);
    for (size_t i = 0; all && i < all->n_checks; i++) {
        if (strcmp(all->checks[i]->check_id, id) == 0) return all->checks[i];
    }
    return NULL;
}

const Pb__Node *look_node(struct rpc *rpc, struct arena *arena, const char *node) {
    const Pb__NodeServicesResult *all = (const Pb__NodeServicesResult *)ask(rpc, &query_node_services, arena, node);
    return all ? all->node : NULL;
}

static const Pb__LeaseEntriesResult *leases(struct rpc *rpc, struct arena *arena) {
    Pb__LeaseListRequest request = PB__LEASE_LIST_REQUEST__INIT;
    return (const Pb__LeaseEntriesResult *)ask_for(rpc, &query_leases, arena, &request.base);
}

const Pb__Lease *look_lease(struct rpc *rpc, struct arena *arena, const char *id) {
    const Pb__LeaseEntriesResult *all = leases(rpc, arena);
    for (size_t i = 0; all && i < all->n_leases; i++) {
        if (strcmp(all->leases[i]->lease->id, id) == 0) return all->leases[i]->lease;
    }
    return NULL;
}

const Pb__Lease *look_node_lease(struct rpc *rpc, struct arena *arena, const char *node) {
    const Pb__LeaseEntriesResult *all = leases(rpc, arena);
    for (size_t i = 0; all && i < all->n_leases; i++) {
        if (strcmp(all->leases[i]->lease->node, node) == 0) return all->leases[i]->lease;
    }
    return NULL;
}

size_t look_count(struct rpc *rpc, const char *node) {
    struct arena arena = {0};
    const Pb__NodeServicesResult *services =
        (const Pb__NodeServicesResult *)ask(rpc, &query_node_services, &arena, node);
    const Pb__ChecksResult *checks = (const Pb__ChecksResult *)ask(rpc, &query_node_checks, &arena, node);
    size_t count = (services ? services->n_services : 0) + (checks ? checks->n_checks : 0);
    arena_free(&arena);
    return count;
}
