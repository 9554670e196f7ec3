#include "rpc/server/judge.h"

#include <stdio.h>

#include "base/message.h"
#include "rpc/api/access_control.h"
#include "rpc/server/server_internal.h"
#include "rpc/server/version.h"

struct rpc_reader *judge_reader(struct rpc *rpc) {
    if (!rpc->server->judge) rpc->server->judge = rpc_reader_new(rpc);
    return rpc->server->judge;
}

static int judge(struct rpc *rpc, struct judged *judged, struct slice bytes) {
    const struct module_command *command = modules_command(machine_modules(rpc->machine), (uint8_t)bytes.data[0]);
    struct arena arena = {0};
    ProtobufCMessage *message =
        command ? message_unpack(&arena, command->request, slice_make(bytes.data + 2, bytes.size - 2)) : NULL;
    int error = message ? rpc_may_write(judge_reader(rpc), judged->requester, (uint8_t)bytes.data[0], message, &arena,
                                        &judged->generation)
                        : CO_INVALID;
    arena_free(&arena);
    return error;
}

const void *judge_refuse(void *data, uint64_t leader, const struct node_proposal *proposal) {
    static _Thread_local struct machine_result denied;
    struct rpc *rpc = data;
    struct judged *judged = (struct judged *)(uintptr_t)proposal->tag;
    const void *refused = version_refuse(data, leader, proposal);
    if (refused || !judged || !judged->requester || judged->generation == rpc_access_generation(rpc)) return refused;
    int error = judge(rpc, judged, slice_make(proposal->data->bytes, proposal->data->size));
    if (error == CO_OK) return NULL;
    denied = (struct machine_result){.error = error, .text = rpc_denial(rpc->server->judge)};
    return &denied;
}
