/* Operators' questions about the cluster's trust, on their way to a server: a client agent calls its server, a server
 * carries them out. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "rpc/core/rpc_internal.h"
#include "rpc/wire/frame_unpack.h"

#define ANSWER_MS 20000 /* longer than a write waits for a leader */

struct trust_call {
    struct loop_task task;
    struct call call;
};
_Static_assert(sizeof(struct trust_call) <= sizeof(((struct rpc_trust *)0)->impl), "rpc_trust.impl is too small");

static struct rpc_trust *trust_of(struct trust_call *asking) {
    return CONTAINER_OF((char *)asking, struct rpc_trust, impl);
}

static ProtobufCMessage *build(struct call *call, struct arena *arena) {
    const struct rpc_trust *trust = trust_of(CONTAINER_OF(call, struct trust_call, call));
    Pb__PeerTrust *message = arena_alloc(arena, sizeof *message);
    pb__peer_trust__init(message);
    message->verb = trust->verb, message->server = trust->server, message->uses = trust->uses;
    message->ttl_ns = trust->ttl_ns;
    message->token = (char *)(uintptr_t)requester_token(trust->requester);
    message->node = (char *)(uintptr_t)(trust->node ? trust->node : "");
    message->address = (char *)(uintptr_t)(trust->address ? trust->address : "");
    message->fingerprint = (char *)(uintptr_t)(trust->fingerprint ? trust->fingerprint : "");
    return &message->base;
}

const struct call_method trust_method = {.name = "trust",
                                         .request_frame = PEER_TRUST,
                                         .answer_frame = PEER_TRUST_ANSWER,
                                         .request = &pb__peer_trust__descriptor,
                                         .answer = &pb__peer_trust_answer__descriptor,
                                         .answer_ms = ANSWER_MS,
                                         .build = build};

static void answered(struct call *call, int error, const ProtobufCMessage *message) {
    struct rpc_trust *trust = trust_of(CONTAINER_OF(call, struct trust_call, call));
    const Pb__PeerTrustAnswer *answer = (const Pb__PeerTrustAnswer *)message;
    if (error == CO_OK) {
        error = (int)answer->outcome;
        snprintf(trust->text, sizeof trust->text, "%s", answer->text);
    }
    trust->done(trust, error);
}

void trust_ask(struct rpc *rpc, struct rpc_trust *trust) {
    struct trust_call *asking = (struct trust_call *)(void *)trust->impl;
    asking->call.done = answered;
    calls_begin(rpc->calls, &asking->call, &trust_method, RPC_LEADER_WAIT_MS, clock_mono_ms());
}

static void begin(struct loop_task *task) {
    task->rpc->role->trust(task->rpc, trust_of(CONTAINER_OF(task, struct trust_call, task)));
}

void rpc_trust(struct rpc *rpc, struct rpc_trust *trust) {
    struct trust_call *asking = (struct trust_call *)(void *)trust->impl;
    *asking = (struct trust_call){0};
    trust->text[0] = 0;
    rpc_on_loop(rpc, &asking->task, begin);
}

/* -- serving a client agent ---------------------------------------------------------------------------------------- */
struct served {
    struct caller caller;
    uint64_t number;
    struct rpc_trust trust;
    char node[256], address[128], fingerprint[65];
    struct requester *requester;
};

static void served_done(struct rpc_trust *trust, int error) {
    struct served *served = CONTAINER_OF(trust, struct served, trust);
    Pb__PeerTrustAnswer answer = PB__PEER_TRUST_ANSWER__INIT;
    answer.number = served->number, answer.outcome = (uint32_t)error, answer.text = trust->text;
    served->caller.tell(&served->caller, PEER_TRUST_ANSWER, &answer.base);
    requester_release(served->requester);
    explicit_bzero(served, sizeof *served);
    free(served);
}

bool trust_serve(const struct caller *caller, struct slice payload) {
    Pb__PeerTrust *ask = frame_unpack(&pb__peer_trust__descriptor, payload, NULL);
    if (!ask) return false;
    struct served *served = mem_zalloc(sizeof *served);
    served->caller = *caller, served->number = ask->number;
    snprintf(served->node, sizeof served->node, "%s", ask->node);
    snprintf(served->address, sizeof served->address, "%s", ask->address);
    snprintf(served->fingerprint, sizeof served->fingerprint, "%s", ask->fingerprint);
    served->trust = (struct rpc_trust){.done = served_done,
                                       .verb = ask->verb,
                                       .by_agent = caller->is_agent,
                                       .server = ask->server,
                                       .node = served->node,
                                       .address = served->address,
                                       .fingerprint = served->fingerprint,
                                       .uses = ask->uses,
                                       .ttl_ns = ask->ttl_ns};
    struct access_want want = {ACCESS_OPERATOR, {0}, ACCESS_WRITE};
    int denied = caller->may ? caller->may(caller, ask->token, &want, &served->requester) : CO_OK;
    frame_drop(ask);
    if (denied) served_done(&served->trust, denied);
    else caller->rpc->role->trust(caller->rpc, &served->trust);
    return true;
}
