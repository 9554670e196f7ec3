/* ?near=: reads of the catalog in the order of round trips. */
#include "http/api/near.h"

#include "base/check.h"
#include "lb/near.h"

/* The node to measure from; empty: no order is wanted. Only the first ?near= counts, as with Consul. */
static const char *near_node(struct http_request *request) {
    struct slice node = http_parameter(request, "near");
    return slice_is(node, "_agent") ? http_env(request)->node_name : node.size ? node.data : "";
}

/* The message of query_near, or `message` itself when no order is wanted. */
static const ProtobufCMessage *near_wrapped(struct http_request *request, const struct query_type *type,
                                            const ProtobufCMessage *message) {
    const char *node = near_node(request);
    if (!node[0]) return message;
    Pb__NearRequest *near = arena_alloc(http_arena(request), sizeof *near);
    pb__near_request__init(near);
    near->node = (char *)(uintptr_t)node;
    CHECK(near_wrap(near, type, message));
    return &near->base;
}

void http_read_near_fresh(struct http_request *request, const struct query_type *type, const ProtobufCMessage *message,
                          http_view view, const void *context) {
    const ProtobufCMessage *ask = near_wrapped(request, type, message);
    http_read_fresh(request, ask == message ? type : &query_near, ask, view, context);
}

void http_read_near(struct http_request *request, const struct query_type *type, const ProtobufCMessage *message,
                    http_view view) {
    const ProtobufCMessage *ask = near_wrapped(request, type, message);
    http_read(request, ask == message ? type : &query_near, ask, view);
}
