/* ?near=: reads of the catalog in the order of round trips. */
#include "lb/near.h"

#include "base/check.h"
#include "http/http.h"

/* Of whom; empty: no order is wanted. Only the first one given counts, as with Consul. */
static const char *near_node(struct http_request *request) {
    struct slice node = http_parameter(request, "near");
    return slice_is(node, "_agent") ? http_env(request)->node_name : node.size ? node.data : "";
}

void http_read_near(struct http_request *request, const struct query_type *type, const ProtobufCMessage *message,
                    http_view view) {
    const char *node = near_node(request);
    if (!node[0]) {
        http_read(request, type, message, view);
        return;
    }
    Pb__NearRequest *near = arena_alloc(http_arena(request), sizeof *near);
    pb__near_request__init(near);
    near->node = (char *)(uintptr_t)node;
    CHECK(near_wrap(near, type, message));
    http_read(request, &query_near, &near->base, view);
}
