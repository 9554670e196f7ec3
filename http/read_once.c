/* Reads records for an endpoint that makes its answer from more than one thing: rpc_fetch as a call, on servers and
 * client agents alike. The functions fetched_... handle the result of any fetch. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/message.h"
#include "http/impl.h"

struct fetching {
    struct http_call call;
    struct rpc_fetch fetch;
    http_fetched view;
    const ProtobufCMessage *message;
    struct rpc_fetched fetched; /* a copy */
    char denial[400];
};

void fetched_copy(struct rpc_fetched *copy, const struct rpc_fetched *fetched) {
    struct slice records = fetched->records;
    *copy = *fetched;
    copy->records = slice_make(mem_strndup(records.size ? records.data : "", records.size), records.size);
    if (fetched->cause) copy->cause = mem_strndup(fetched->cause, strlen(fetched->cause));
}

void fetched_free(struct rpc_fetched *copy) {
    free((char *)(uintptr_t)copy->records.data);
    free((char *)(uintptr_t)copy->cause);
    *copy = (struct rpc_fetched){0};
}

int fetched_result(const struct rpc_fetched *fetched, const struct query_type *type, const ProtobufCMessage *request,
                   struct arena *arena, struct query_result *result) {
    *result = (struct query_result){.index = fetched->index, .found = fetched->found};
    if (fetched->none) return CO_OK;
    result->message = message_unpack(arena, query_result_type(type, request), fetched->records);
    return result->message ? CO_OK : CO_CORRUPT;
}

/* Another thread. */
static void done(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched) {
    struct fetching *fetching = CONTAINER_OF(fetch, struct fetching, fetch);
    snprintf(fetching->denial, sizeof fetching->denial, "%s", fetch->denial ? fetch->denial : "");
    if (error == CO_OK) fetched_copy(&fetching->fetched, fetched);
    http_called(&fetching->call, error);
}

static void view(struct http_request *request, struct http_call *call, int error) {
    struct fetching *fetching = CONTAINER_OF(call, struct fetching, call);
    struct query_result result;
    if (error == CO_OK)
        error =
            fetched_result(&fetching->fetched, fetching->fetch.type, fetching->message, http_arena(request), &result);
    if (error == CO_OK) request->hidden += fetching->fetched.hidden;
    fetched_free(&fetching->fetched);
    requester_release(fetching->fetch.requester);
    request->denial = arena_strndup(http_arena(request), fetching->denial, strlen(fetching->denial));
    fetching->view(request, error, error == CO_OK ? &result : NULL);
}

static void drop(struct http_call *call, int error) {
    struct fetching *fetching = CONTAINER_OF(call, struct fetching, call);
    (void)error;
    requester_release(fetching->fetch.requester);
    fetched_free(&fetching->fetched);
}

void http_read_once(struct http_request *request, const struct query_type *type, const ProtobufCMessage *message,
                    enum rpc_freshness freshness, http_fetched fetched) {
    struct fetching *fetching = arena_zalloc(http_arena(request), sizeof *fetching);
    fetching->call.view = view, fetching->call.drop = drop;
    fetching->view = fetched, fetching->message = message;
    fetching->fetch.type = type, fetching->fetch.freshness = freshness, fetching->fetch.done = done;
    fetching->fetch.requester = requester_keep(request->requester);
    http_region_name(request, fetching->fetch.region);
    http_call(request, &fetching->call);
    rpc_fetch(http_env(request)->rpc, &fetching->fetch, message);
}
