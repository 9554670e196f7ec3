/* On whose behalf a request is: its token becomes a requester (rpc/api/requester.h), which requests with the same token
 * share. */
#include <stdlib.h>
#include <string.h>

#include "http/impl.h"

#define KEPT 64

struct requesters {
    struct requester *kept[KEPT];
};

void requesters_free(struct worker *worker) {
    for (size_t i = 0; worker->requesters && i < KEPT; i++) requester_release(worker->requesters->kept[i]);
    free(worker->requesters);
    worker->requesters = NULL;
}

static struct requester *share(struct worker *worker, struct slice text) {
    if (!worker->requesters) worker->requesters = mem_zalloc(sizeof *worker->requesters);
    struct requester **kept = &worker->requesters->kept[requester_hash(REQUESTER_REQUEST, text) % KEPT];
    if (!*kept || !requester_is(*kept, REQUESTER_REQUEST, text)) {
        requester_release(*kept);
        *kept = requester_new(REQUESTER_REQUEST, text);
    }
    return requester_keep(*kept);
}

void requester_set(struct http_request *request) {
    struct worker *worker = request->worker;
    struct rpc *rpc = worker->server->env.rpc;
    if (!rpc_access_controlled(rpc)) return;
    requester_release(request->requester);
    request->requester = NULL;
    struct slice token = request->token;
    if (token.size > REQUESTER_TOKEN_MOST) {
        request_refuse(request, 403, "ACL not found: no token is as long as %zu bytes", token.size);
        token.size = 0;
    }
    request->requester = token.size ? share(worker, token) : rpc_default_requester(rpc);
}

int http_sees(struct http_request *request, uint64_t *view) {
    struct worker *worker = request->worker;
    const struct access *access;
    *view = 0;
    if (!request->requester) return CO_OK;
    /* A client agent's answers are reduced by its server, for each token. */
    if (!rpc_has_copy(worker->server->env.rpc)) {
        *view = request->requester->hash;
        return CO_OK;
    }
    int error = rpc_access(worker->reader, request->requester, &access);
    if (!error) *view = access_view(access);
    return error;
}

struct slice http_token(const struct http_request *request) {
    return request->token.size <= REQUESTER_TOKEN_MOST ? request->token : slice_make("", 0);
}

const struct requester *http_requester(const struct http_request *request) { return request->requester; }
const char *http_denial(const struct http_request *request) { return request->denial ? request->denial : ""; }
