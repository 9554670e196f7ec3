#include "rpc/server/judge.h"

#include <stdio.h>

#include "rpc/api/access_control.h"
#include "rpc/server/server_internal.h"
#include "rpc/server/version.h"
#include "rpc/server/write_limit_run.h"

struct rpc_reader *judge_reader(struct rpc *rpc) {
    if (!rpc->server->judge) rpc->server->judge = rpc_reader_new(rpc);
    return rpc->server->judge;
}

/* A command whose parts would be marked otherwise now is refused as a whole: it cannot be changed any more. */
static const char *judge(struct rpc *rpc, struct judged *judged, struct slice proposed, int *error) {
    struct arena arena = {0};
    struct slice bytes = proposed;
    *error = rpc_may_write_bytes(judge_reader(rpc), judged->requester, &bytes, &arena, &judged->generation);
    bool same = *error || slice_equal(bytes, proposed);
    arena_free(&arena);
    if (same) return *error == CO_INVALID ? co_strerror(CO_INVALID) : rpc_denial(rpc->server->judge);
    *error = CO_DENIED;
    return "Permission denied: the rules of the token have changed while the request was under way";
}

static const void *access_refuse(struct rpc *rpc, struct judged *judged, const struct node_proposal *proposal) {
    static _Thread_local struct machine_result denied;
    if (!judged || !judged->requester || judged->generation == rpc_access_generation(rpc)) return NULL;
    int error;
    const char *why = judge(rpc, judged, slice_make(proposal->data->bytes, proposal->data->size), &error);
    if (error == CO_OK) return NULL;
    denied = (struct machine_result){.error = error, .text = why};
    return &denied;
}

const void *judge_refuse(void *data, uint64_t leader, const struct node_proposal *proposal) {
    struct rpc *rpc = data;
    struct judged *judged = (struct judged *)(uintptr_t)proposal->tag;
    const void *refused = version_refuse(data, leader, proposal);
    if (!refused) refused = access_refuse(rpc, judged, proposal);
    return refused ? refused : write_limit_refuse(rpc, leader, judged);
}
