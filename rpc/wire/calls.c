#include "rpc/wire/calls.h"

#include <stdlib.h>

#include "base/check.h"
#include "rpc/wire/frame_unpack.h"

#define BUCKETS  1024       /* a power of two */
#define AGAIN_MS 50         /* after "not I", unless the method says otherwise */
#define HELD     UINT64_MAX /* answer_by_ms: the caller has a piece, and the next one is not asked for yet */

struct calls {
    struct calls_callbacks callbacks;
    const struct call_method *const *methods;
    uint64_t number;
    struct call *buckets[BUCKETS];
    size_t sent;
    struct list waiting; /* oldest first */
    bool stopped;
};

/* -- the table ---------------------------------------------------------------------------------------------------- */

static struct call **place(struct calls *calls, uint64_t number) {
    struct call **at = &calls->buckets[number % BUCKETS];
    while (*at && (*at)->number != number) at = &(*at)->chain;
    return at;
}

static void enter(struct calls *calls, struct call *call, uint64_t peer) {
    CHECK(call->peer == 0 && peer != 0 && peer != CALLS_HERE);
    struct call **bucket = &calls->buckets[call->number % BUCKETS];
    call->peer = peer;
    call->chain = *bucket;
    *bucket = call;
    calls->sent++;
}

static void leave(struct calls *calls, struct call *call) {
    struct call **at = place(calls, call->number);
    CHECK(*at == call);
    *at = call->chain;
    call->peer = 0;
    calls->sent--;
}

uint64_t calls_enter(struct calls *calls, struct call *call, const struct call_method *method, uint64_t peer) {
    list_init(&call->link);
    call->method = method, call->peer = 0;
    call->number = ++calls->number;
    call->answer_by_ms = UINT64_MAX;
    enter(calls, call, peer);
    return call->number;
}

struct call *calls_take(struct calls *calls, const struct call_method *method, uint64_t number, uint64_t peer) {
    struct call *call = *place(calls, number);
    if (!call || call->peer != peer || call->method != method) return NULL;
    leave(calls, call);
    return call;
}

/* -- sending ------------------------------------------------------------------------------------------------------ */

/* NULL: there is no such field. */
static void *find_field(const ProtobufCMessage *message, const char *name, ProtobufCType type) {
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field_by_name(message->descriptor, name);
    CHECK(!field || field->type == type);
    return field ? (char *)(uintptr_t)message + field->offset : NULL;
}

static void *field_of(const ProtobufCMessage *message, const char *name, ProtobufCType type) {
    void *field = find_field(message, name, type);
    CHECK(field);
    return field;
}

static void set_number(ProtobufCMessage *message, uint64_t number) {
    *(uint64_t *)field_of(message, "number", PROTOBUF_C_TYPE_UINT64) = number;
}

static void put_off(struct call *call, uint64_t now_ms) {
    call->answer_by_ms = now_ms + (call->answer_ms ? call->answer_ms : call->method->answer_ms);
}

/* Sends the request with the call's number. */
static bool ask(struct calls *calls, struct call *call, uint64_t peer, uint64_t now_ms) {
    struct arena arena = {0};
    ProtobufCMessage *request = call->method->build(call, &arena);
    CHECK(request->descriptor == call->method->request);
    set_number(request, call->number);
    if (call->token) *(char **)field_of(request, "token", PROTOBUF_C_TYPE_STRING) = (char *)(uintptr_t)call->token;
    bool told = calls->callbacks.tell(calls->callbacks.data, peer, call->method->request_frame, request);
    arena_free(&arena);
    put_off(call, now_ms);
    return told;
}

static bool send_to(struct calls *calls, struct call *call, uint64_t peer, uint64_t now_ms) {
    call->number = ++calls->number;
    if (!ask(calls, call, peer, now_ms)) return false;
    enter(calls, call, peer);
    return true;
}

/* A step of a call in the waiting list. A call that was sent before is not sent again once its time is over. */
static void step(struct calls *calls, struct call *call, uint64_t now_ms) {
    bool late = now_ms >= call->wait_by_ms, over = late && call->number != 0;
    uint64_t peer = over                  ? 0
                    : call->method->route ? call->method->route(call)
                                          : calls->callbacks.route(calls->callbacks.data, call);
    if (peer == call->refused_by && now_ms < call->again_ms) peer = 0;
    bool here = peer == CALLS_HERE;
    bool gone = !here && peer && send_to(calls, call, peer, now_ms);
    if (!here && !gone && !late) return;
    list_remove(&call->link);
    if (!gone) call->done(call, here ? CO_AGAIN : CO_NOLEADER, NULL);
}

void calls_begin(struct calls *calls, struct call *call, const struct call_method *method, uint64_t wait_ms,
                 uint64_t now_ms) {
    call->method = method, call->answer_ms = 0, call->token = NULL;
    call->peer = call->number = call->refused_by = 0;
    call->wait_by_ms = now_ms + wait_ms;
    list_init(&call->link);
    if (calls->stopped) {
        call->done(call, CO_CLOSED, NULL);
        return;
    }
    list_append(&calls->waiting, &call->link);
    step(calls, call, now_ms);
}

void calls_turn(struct calls *calls, uint64_t now_ms) {
    struct list ready; /* `done` may begin other calls */
    list_init(&ready);
    list_splice(&ready, &calls->waiting);
    while (!list_empty(&ready)) {
        struct call *call = LIST_ENTRY(ready.next, struct call, link);
        list_remove(&call->link);
        list_append(&calls->waiting, &call->link);
        step(calls, call, now_ms);
    }
}

/* -- lost calls --------------------------------------------------------------------------------------------------- */

/* Puts a call back into the waiting list: it surely did nothing, or may be repeated. */
static void wait_again(struct calls *calls, struct call *call) { list_append(&calls->waiting, &call->link); }

static void lost(struct calls *calls, struct call *call) {
    leave(calls, call);
    if (call->method->repeatable && !calls->stopped) wait_again(calls, call);
    else if (call->method->repeatable) call->done(call, CO_CLOSED, NULL);
    else call->done(call, CO_UNKNOWN_OUTCOME, NULL);
}

typedef bool (*call_wanted)(const struct call *call, uint64_t value);

static struct call *find_in(const struct calls *calls, size_t bucket, call_wanted wanted, uint64_t value) {
    struct call *call = calls->buckets[bucket];
    while (call && !wanted(call, value)) call = call->chain;
    return call;
}

/* `done` may begin and end other calls meanwhile, so each bucket is searched anew after each call. */
static void lose_all(struct calls *calls, call_wanted wanted, uint64_t value) {
    for (size_t i = 0; calls->sent && i < BUCKETS; i++)
        for (struct call *call; (call = find_in(calls, i, wanted, value));) lost(calls, call);
}

static bool is_with(const struct call *call, uint64_t peer) { return call->peer == peer; }
static bool is_with_others(const struct call *call, uint64_t peer) { return call->peer != peer; }
static bool is_late(const struct call *call, uint64_t now_ms) { return now_ms >= call->answer_by_ms; }
static bool is_any(const struct call *call, uint64_t ignored) {
    (void)call, (void)ignored;
    return true;
}

void calls_down(struct calls *calls, uint64_t peer, uint64_t now_ms) {
    lose_all(calls, is_with, peer);
    calls_turn(calls, now_ms);
}

void calls_lose(struct calls *calls, uint64_t peer, uint64_t but) {
    lose_all(calls, peer ? is_with : is_with_others, peer ? peer : but);
}

void calls_tick(struct calls *calls, uint64_t now_ms) {
    lose_all(calls, is_late, now_ms);
    calls_turn(calls, now_ms);
}

/* Tells the peer that nobody waits for the answer any more. */
static void tell_end(struct calls *calls, const struct call *call) {
    if (!call->method->end_frame) return;
    struct arena arena = {0};
    ProtobufCMessage *end = arena_alloc(&arena, call->method->end->sizeof_message);
    protobuf_c_message_init(call->method->end, end);
    set_number(end, call->number);
    (void)calls->callbacks.tell(calls->callbacks.data, call->peer, call->method->end_frame, end);
    arena_free(&arena);
}

void calls_cancel(struct calls *calls, struct call *call) {
    list_remove(&call->link);
    if (!call->peer) return;
    tell_end(calls, call);
    leave(calls, call);
}

void calls_again(struct calls *calls, struct call *call) {
    if (!call->peer) return;
    tell_end(calls, call);
    lost(calls, call);
}

void calls_next(struct calls *calls, struct call *call, uint64_t now_ms) {
    CHECK(call->peer && call->answer_by_ms == HELD);
    if (!ask(calls, call, call->peer, now_ms)) lost(calls, call);
}

void calls_move(struct calls *calls, const struct call_method *method, uint64_t peer) {
    for (size_t i = 0; calls->sent && i < BUCKETS; i++) {
        struct call *next;
        for (struct call *call = calls->buckets[i]; call; call = next) {
            next = call->chain;
            if (call->method == method && call->peer == peer) calls_again(calls, call);
        }
    }
}

bool calls_idle(const struct calls *calls) { return calls->sent == 0 && list_empty(&calls->waiting); }

bool calls_with(const struct calls *calls, uint64_t peer) {
    for (size_t i = 0; calls->sent && i < BUCKETS; i++)
        if (find_in(calls, i, is_with, peer)) return true;
    return false;
}

/* -- answers ------------------------------------------------------------------------------------------------------ */

static const struct call_method *method_of(const struct calls *calls, uint8_t answer_frame) {
    for (size_t i = 0; calls->methods && calls->methods[i]; i++)
        if (calls->methods[i]->answer_frame == answer_frame) return calls->methods[i];
    return NULL;
}

static bool is_elsewhere(struct call *call, uint32_t outcome) {
    if (call->method->pulled) return false; /* a part of the answer may be here */
    if (call->method->elsewhere) return call->method->elsewhere(call, outcome);
    return outcome == CO_NOTLEADER || outcome == CO_CLOSED;
}

static void take_answer(struct calls *calls, struct call *call, const ProtobufCMessage *answer, uint64_t now_ms) {
    const uint32_t *said = find_field(answer, "outcome", PROTOBUF_C_TYPE_UINT32);
    uint32_t outcome = said ? *said : CO_OK;
    if (outcome == CO_OK && call->method->pulled) {
        call->answer_by_ms = HELD;
        call->piece(call, answer);
        return;
    }
    bool more = outcome == CO_OK && call->method->pieces &&
                *(const protobuf_c_boolean *)field_of(answer, "more", PROTOBUF_C_TYPE_BOOL);
    if (more) {
        if (call->piece(call, answer)) put_off(call, now_ms);
        return;
    }
    uint64_t peer = call->peer;
    leave(calls, call);
    if (!is_elsewhere(call, outcome) || calls->stopped) {
        call->done(call, CO_OK, answer);
        return;
    }
    call->refused_by = peer, call->again_ms = now_ms + (call->method->again_ms ? call->method->again_ms : AGAIN_MS);
    wait_again(calls, call);
}

bool calls_answered(struct calls *calls, uint64_t from, uint8_t type, struct slice payload, uint64_t now_ms) {
    const struct call_method *method = method_of(calls, type);
    struct arena arena = {0};
    const ProtobufCMessage *answer = method ? frame_unpack(method->answer, payload, &arena) : NULL;
    if (answer) {
        uint64_t number = *(const uint64_t *)field_of(answer, "number", PROTOBUF_C_TYPE_UINT64);
        struct call *call = *place(calls, number);
        bool asked = call && call->peer == from && call->method == method && call->answer_by_ms != HELD;
        if (asked) take_answer(calls, call, answer, now_ms);
    } else if (method) {
        lose_all(calls, is_with, from);
    }
    arena_free(&arena);
    return answer != NULL;
}

/* -- life --------------------------------------------------------------------------------------------------------- */

struct calls *calls_new(const struct calls_callbacks *callbacks, const struct call_method *const *methods,
                        uint64_t first_number) {
    struct calls *calls = mem_zalloc(sizeof *calls);
    calls->callbacks = *callbacks, calls->methods = methods, calls->number = first_number;
    list_init(&calls->waiting);
    return calls;
}

void calls_stop(struct calls *calls) {
    calls->stopped = true;
    lose_all(calls, is_any, 0);
    while (!list_empty(&calls->waiting)) {
        struct call *call = LIST_ENTRY(calls->waiting.next, struct call, link);
        list_remove(&call->link);
        call->done(call, CO_CLOSED, NULL);
    }
}

void calls_free(struct calls *calls) {
    CHECK(!calls || calls_idle(calls));
    free(calls);
}
