/* The hot keys of a service (lb/hot.h): servers know them, client agents ask their server. */
#include "base/clock.h"
#include "rpc/core/rpc_internal.h"
#include "rpc/wire/frame_unpack.h"

#define ANSWER_MS 2000

struct hot_call {
    struct loop_task task;
    struct call call;
};
_Static_assert(sizeof(struct hot_call) <= sizeof(((struct rpc_hot *)0)->impl), "rpc_hot.impl is too small");

static struct rpc_hot *hot_of(struct hot_call *asking) { return CONTAINER_OF((char *)asking, struct rpc_hot, impl); }
static struct hot_call *called(const struct call *call) {
    return CONTAINER_OF((struct call *)(uintptr_t)call, struct hot_call, call);
}

static ProtobufCMessage *build(struct call *call, struct arena *arena) {
    Pb__PeerHot *message = arena_alloc(arena, sizeof *message);
    pb__peer_hot__init(message);
    message->service = (char *)(uintptr_t)hot_of(called(call))->service;
    message->token = (char *)(uintptr_t)requester_token(hot_of(called(call))->requester);
    return &message->base;
}

const struct call_method hot_method = {.name = "hot",
                                       .request_frame = PEER_HOT,
                                       .answer_frame = PEER_HOT_ANSWER,
                                       .request = &pb__peer_hot__descriptor,
                                       .answer = &pb__peer_hot_answer__descriptor,
                                       .repeatable = true,
                                       .answer_ms = ANSWER_MS,
                                       .build = build};

static void answered(struct call *call, int error, const ProtobufCMessage *message) {
    struct rpc_hot *hot = hot_of(called(call));
    const Pb__PeerHotAnswer *answer = (const Pb__PeerHotAnswer *)message;
    if (error == CO_OK) error = (int)answer->outcome;
    hot->done(hot, error, error == CO_OK ? answer : NULL);
}

static void begin(struct loop_task *task) {
    struct hot_call *asking = CONTAINER_OF(task, struct hot_call, task);
    asking->call.done = answered;
    calls_begin(task->rpc->calls, &asking->call, &hot_method, ANSWER_MS, clock_mono_ms());
}

static void asked(struct rpc *rpc, struct rpc_hot *hot, void (*run)(struct loop_task *task)) {
    struct hot_call *asking = (struct hot_call *)(void *)hot->impl;
    *asking = (struct hot_call){0};
    rpc_on_loop(rpc, &asking->task, run);
}

void hot_ask(struct rpc *rpc, struct rpc_hot *hot) { asked(rpc, hot, begin); }

/* -- here --------------------------------------------------------------------------------------------------------- */
struct looking {
    Pb__PeerHotAnswer *answer;
    void (*told)(struct looking *looking);
    const struct caller *caller;
    struct rpc_hot *hot;
};

static void see(void *data, const struct hot_service *found) {
    struct looking *looking = data;
    Pb__PeerHotKey keys[HOT_KEYS], *pointers[HOT_KEYS];
    looking->answer->hot = pointers;
    if (found) {
        looking->answer->rate = found->rate, looking->answer->keys = found->keys, looking->answer->mean = found->mean;
        looking->answer->n_hot = found->count;
    }
    for (size_t i = 0; i < looking->answer->n_hot; i++) {
        keys[i] = (Pb__PeerHotKey)PB__PEER_HOT_KEY__INIT;
        keys[i].key = (ProtobufCBinaryData){found->hot[i].key.size, (uint8_t *)(uintptr_t)found->hot[i].key.data};
        keys[i].rate = found->hot[i].rate;
        pointers[i] = &keys[i];
    }
    looking->told(looking);
}

static void tell_caller(struct looking *looking) {
    looking->caller->tell(looking->caller, PEER_HOT_ANSWER, &looking->answer->base);
}

bool hot_serve(const struct caller *caller, struct slice payload) {
    Pb__PeerHot *ask = frame_unpack(&pb__peer_hot__descriptor, payload, NULL);
    if (!ask) return false;
    Pb__PeerHotAnswer answer = PB__PEER_HOT_ANSWER__INIT;
    answer.number = ask->number;
    struct looking looking = {.answer = &answer, .told = tell_caller, .caller = caller};
    struct access_want want = {ACCESS_SERVICE, slice_text(ask->service), ACCESS_READ};
    struct requester *requester = NULL;
    int denied = caller->may ? caller->may(caller, ask->token, &want, &requester) : CO_OK;
    answer.outcome = (uint32_t)denied;
    if (denied) tell_caller(&looking);
    else hints_hot(caller->rpc->hints, slice_text(ask->service), clock_mono_ns(), see, &looking);
    requester_release(requester);
    frame_drop(ask);
    return true;
}

static void tell_here(struct looking *looking) { looking->hot->done(looking->hot, CO_OK, looking->answer); }

static void look(struct loop_task *task) {
    struct rpc_hot *hot = hot_of(CONTAINER_OF(task, struct hot_call, task));
    Pb__PeerHotAnswer answer = PB__PEER_HOT_ANSWER__INIT;
    struct looking looking = {.answer = &answer, .told = tell_here, .hot = hot};
    hints_hot(task->rpc->hints, slice_text(hot->service), clock_mono_ns(), see, &looking);
}

void hot_here(struct rpc *rpc, struct rpc_hot *hot) { asked(rpc, hot, look); }
