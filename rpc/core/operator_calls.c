/* Operators' questions and changes that another process carries out: a server that does not lead calls the leader, a
 * client agent calls its server. Also serves such calls. A question is asked again of the next server that may answer.
 * A change that may have been made is not repeated: its outcome is unknown then. */
#include <stdlib.h>

#include "base/clock.h"
#include "rpc/api/operator_frames.h"
#include "rpc/core/rpc_internal.h"
#include "rpc/wire/frame_unpack.h"

/* -- calling ------------------------------------------------------------------------------------------------------ */
struct operator_call {
    struct loop_task task;
    struct rpc *rpc;
    struct call call;
};
_Static_assert(sizeof(struct operator_call) <= sizeof(((struct rpc_ask_cluster *)0)->impl),
               "rpc_ask_cluster.impl is too small");
_Static_assert(sizeof(struct operator_call) <= sizeof(((struct rpc_change *)0)->impl), "rpc_change.impl is too small");

static struct operator_call *operator_call_of(struct call *call) {
    return CONTAINER_OF(call, struct operator_call, call);
}
static struct rpc_ask_cluster *ask_of(struct operator_call *operation) {
    return CONTAINER_OF((char *)operation, struct rpc_ask_cluster, impl);
}
static struct rpc_change *change_of(struct operator_call *operation) {
    return CONTAINER_OF((char *)operation, struct rpc_change, impl);
}

static ProtobufCMessage *build_ask(struct call *call, struct arena *arena) {
    Pb__PeerCluster *message = arena_alloc(arena, sizeof *message);
    pb__peer_cluster__init(message);
    message->as_known = !ask_of(operator_call_of(call))->of_leader;
    message->region = ask_of(operator_call_of(call))->region;
    message->token = (char *)(uintptr_t)requester_token(ask_of(operator_call_of(call))->requester);
    return &message->base;
}

static ProtobufCMessage *build_change(struct call *call, struct arena *arena) {
    const struct rpc_change *change = change_of(operator_call_of(call));
    Pb__PeerChange *message = arena_alloc(arena, sizeof *message);
    pb__peer_change__init(message);
    message->type = change->type, message->id = change->id, message->address = (char *)(uintptr_t)change->address;
    message->region = (char *)(uintptr_t)change->region;
    message->token = (char *)(uintptr_t)requester_token(change->requester);
    return &message->base;
}

const struct call_method cluster_method = {.name = "cluster",
                                           .request_frame = PEER_CLUSTER,
                                           .answer_frame = PEER_CLUSTER_ANSWER,
                                           .request = &pb__peer_cluster__descriptor,
                                           .answer = &pb__peer_cluster_answer__descriptor,
                                           .repeatable = true,
                                           .answer_ms = 10000,
                                           .build = build_ask};
const struct call_method change_method = {.name = "change",
                                          .request_frame = PEER_CHANGE,
                                          .answer_frame = PEER_CHANGE_ANSWER,
                                          .request = &pb__peer_change__descriptor,
                                          .answer = &pb__peer_change_answer__descriptor,
                                          .answer_ms = 30000, /* longer than the longest time that a server takes */
                                          .build = build_change};

static void ask_answered(struct call *call, int error, const ProtobufCMessage *message) {
    struct operator_call *operation = operator_call_of(call);
    struct rpc_ask_cluster *ask = ask_of(operation);
    const Pb__PeerClusterAnswer *answer = (const Pb__PeerClusterAnswer *)message;
    if (error == CO_AGAIN) {
        operation->rpc->role->ask_here(operation->rpc, ask);
        return;
    }
    struct arena arena = {0};
    struct rpc_cluster_state state;
    if (error == CO_OK) error = (int)answer->outcome;
    if (error == CO_OK) operator_state_unpack(answer, &arena, &state);
    ask->done(ask, error, error == CO_OK ? &state : NULL);
    arena_free(&arena);
}

static void change_answered(struct call *call, int error, const ProtobufCMessage *message) {
    struct operator_call *operation = operator_call_of(call);
    struct rpc_change *change = change_of(operation);
    if (error == CO_AGAIN) operation->rpc->role->change_here(operation->rpc, change);
    else change->done(change, error ? error : (int)((const Pb__PeerChangeAnswer *)message)->outcome);
}

static void call(struct rpc *rpc, struct operator_call *operation, const struct call_method *method,
                 void (*done)(struct call *call, int error, const ProtobufCMessage *answer)) {
    operation->rpc = rpc, operation->call.done = done;
    uint64_t wait_ms = rpc->role->call_wait_ms ? rpc->role->call_wait_ms(rpc) : RPC_LEADER_WAIT_MS;
    calls_begin(rpc->calls, &operation->call, method, wait_ms, clock_mono_ms());
    if (rpc->role->calls_begun && !calls_idle(rpc->calls)) rpc->role->calls_begun(rpc);
}

void operator_call_ask(struct rpc *rpc, struct rpc_ask_cluster *ask) {
    call(rpc, (struct operator_call *)(void *)ask->impl, &cluster_method, ask_answered);
}

/* On a server: the link to the region; the request over it names the region once more, and is judged there. NULL: it is
 * not known. */
static struct rpc *target(struct rpc *rpc, const char *region) {
    return region[0] && rpc->machine ? region_find(rpc, region) : rpc;
}

static void ask_begin(struct loop_task *task) {
    struct rpc_ask_cluster *ask = ask_of(CONTAINER_OF(task, struct operator_call, task));
    struct rpc *there = target(task->rpc, ask->region);
    if (there) there->role->ask(there, ask);
    else ask->done(ask, CO_NOREGION, NULL);
}

static void change_begin(struct loop_task *task) {
    struct operator_call *operation = CONTAINER_OF(task, struct operator_call, task);
    struct rpc *there = target(task->rpc, change_of(operation)->region);
    if (there) call(there, operation, &change_method, change_answered);
    else change_of(operation)->done(change_of(operation), CO_NOREGION);
}

void rpc_ask_cluster(struct rpc *rpc, struct rpc_ask_cluster *ask) {
    rpc_on_loop(rpc, &((struct operator_call *)(void *)ask->impl)->task, ask_begin);
}

void rpc_change(struct rpc *rpc, struct rpc_change *change) {
    rpc_on_loop(rpc, &((struct operator_call *)(void *)change->impl)->task, change_begin);
}

/* -- serving ------------------------------------------------------------------------------------------------------ */
/* All calls are answered before the agents' connections are stopped (rpc/server/server.c), so none outlives
 * `agents`. */
struct served_call {
    struct caller caller;
    uint64_t number;
    struct rpc_ask_cluster ask;
    struct rpc_change change;
    struct requester *requester; /* NULL: a server's own work, or there is no access control */
};

static void served_free(struct served_call *served) {
    requester_release(served->requester);
    free(served);
}

/* Only the leader answers servers. */
static void cluster_known(struct rpc_ask_cluster *ask, int error, const struct rpc_cluster_state *state) {
    struct served_call *served = CONTAINER_OF(ask, struct served_call, ask);
    Pb__PeerClusterAnswer message = PB__PEER_CLUSTER_ANSWER__INIT;
    struct arena arena = {0};
    message.number = served->number;
    if (error == CO_OK && !served->caller.is_agent && !state->here_leads) error = CO_NOTLEADER;
    message.outcome = (uint32_t)error;
    if (error == CO_OK) operator_state_pack(state, &arena, &message);
    served->caller.tell(&served->caller, PEER_CLUSTER_ANSWER, &message.base);
    arena_free(&arena);
    served_free(served);
}

static void changed(struct rpc_change *change, int error) {
    struct served_call *served = CONTAINER_OF(change, struct served_call, change);
    Pb__PeerChangeAnswer message = PB__PEER_CHANGE_ANSWER__INIT;
    message.number = served->number, message.outcome = (uint32_t)error;
    served->caller.tell(&served->caller, PEER_CHANGE_ANSWER, &message.base);
    served_free(served);
}

static struct served_call *served_new(const struct caller *caller, uint64_t number) {
    struct served_call *served = mem_zalloc(sizeof *served);
    served->caller = *caller, served->number = number;
    served->ask.done = cluster_known, served->change.done = changed;
    return served;
}

/* False: it is not the name of a region. */
static bool take_region(const char *region, char to[RPC_REGION_MAX + 1]) {
    if (strlen(region) > RPC_REGION_MAX) return false;
    memcpy(to, region, strlen(region) + 1);
    return true;
}

static int judge(struct served_call *served, const char *token, const char *region, enum access_level least) {
    const struct caller *caller = &served->caller;
    if (!caller->may) return CO_OK;
    struct access_want want = {ACCESS_OPERATOR, {0}, least};
    return caller->may(caller, token, region_is_here(caller->rpc, region) ? &want : NULL, &served->requester);
}

static void serve_ask(const struct caller *caller, const Pb__PeerCluster *wanted) {
    struct served_call *served = served_new(caller, wanted->number);
    int denied = judge(served, wanted->token, wanted->region, ACCESS_READ);
    served->ask.requester = served->requester;
    served->ask.of_leader = !wanted->as_known;
    bool named = take_region(wanted->region, served->ask.region);
    if (denied) cluster_known(&served->ask, denied, NULL);
    else if (!named) cluster_known(&served->ask, CO_NOREGION, NULL);
    else if (caller->rpc->stopping) cluster_known(&served->ask, CO_CLOSED, NULL);
    else if (caller->is_agent) rpc_ask_cluster(caller->rpc, &served->ask);
    else caller->rpc->role->ask_here(caller->rpc, &served->ask);
}

static void serve_change(const struct caller *caller, const Pb__PeerChange *wanted) {
    struct served_call *served = served_new(caller, wanted->number);
    int rv = caller->rpc->stopping ? CO_CLOSED : operator_change_unpack(wanted, &served->change);
    if (!take_region(wanted->region, served->change.region)) rv = CO_NOREGION;
    if (rv == CO_OK) rv = judge(served, wanted->token, wanted->region, ACCESS_WRITE);
    served->change.requester = served->requester;
    if (rv != CO_OK) changed(&served->change, rv);
    else if (caller->is_agent) rpc_change(caller->rpc, &served->change);
    else caller->rpc->role->change_here(caller->rpc, &served->change);
}

bool operator_serve(const struct caller *caller, uint8_t type, struct slice payload) {
    struct arena arena = {0};
    const struct call_method *method = type == PEER_CLUSTER  ? &cluster_method
                                       : type == PEER_CHANGE ? &change_method
                                                             : NULL;
    void *message = method ? frame_unpack(method->request, payload, &arena) : NULL;
    if (message && type == PEER_CLUSTER) serve_ask(caller, message);
    else if (message) serve_change(caller, message);
    arena_free(&arena);
    return message != NULL;
}
