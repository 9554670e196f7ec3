/* Records for an endpoint that makes its answer of more than one thing: rpc_fetch as a call, on servers and client
 * agents alike. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "http/impl.h"

struct fetching {
    struct http_call call;
    struct rpc_fetch fetch;
    http_fetched view;
    const ProtobufCMessage *message;
    struct rpc_fetched fetched;
    char *records; /* a copy */
};

/* Another thread. */
static void done(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched) {
    struct fetching *fetching = CONTAINER_OF(fetch, struct fetching, fetch);
    if (error == CO_OK) {
        fetching->fetched = *fetched;
        fetching->records = mem_alloc(fetched->records.size + 1);
        if (fetched->records.size) memcpy(fetching->records, fetched->records.data, fetched->records.size);
    }
    http_called(&fetching->call, error);
}

static void view(struct http_request *request, struct http_call *call, int error) {
    struct fetching *fetching = CONTAINER_OF(call, struct fetching, call);
    struct query_result result = {.index = fetching->fetched.index, .found = fetching->fetched.found};
    if (error == CO_OK && !fetching->fetched.none) {
        ProtobufCAllocator allocator = ARENA_PROTOBUF(http_arena(request));
        result.message =
            protobuf_c_message_unpack(query_result_type(fetching->fetch.type, fetching->message), &allocator,
                                      fetching->fetched.records.size, (const uint8_t *)fetching->records);
        if (!result.message) error = CO_CORRUPT;
    }
    free(fetching->records);
    fetching->view(request, error, error == CO_OK ? &result : NULL);
}

static void drop(struct http_call *call, int error) {
    (void)error;
    free(CONTAINER_OF(call, struct fetching, call)->records);
}

void http_fetch(struct http_request *request, const struct query_type *type, const ProtobufCMessage *message,
                enum rpc_freshness freshness, http_fetched fetched) {
    struct fetching *fetching = arena_zalloc(http_arena(request), sizeof *fetching);
    fetching->call.view = view, fetching->call.drop = drop;
    fetching->view = fetched, fetching->message = message;
    fetching->fetch.type = type, fetching->fetch.freshness = freshness, fetching->fetch.done = done;
    http_call(request, &fetching->call);
    rpc_fetch(http_env(request)->rpc, &fetching->fetch, message);
}
