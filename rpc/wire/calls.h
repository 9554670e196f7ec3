/* Calls between processes of one cluster: a numbered request to another process, its answer, and its outcome when no
 * answer comes. All requests that wait for an answer are in a table of this kind.
 *
 *     begun --no destination yet--> WAITING --calls_turn: there is one--> SENT --answer--> done
 *                                      ^                                    |
 *                                      '--it said "not I", or its connection ended, or the answer is late;
 *                                         the method may be repeated--------'     (else: done, outcome unknown)
 *
 * (1) A call that may have been carried out is repeated only if its method says that this does no harm. Otherwise the
 *     caller gets "outcome unknown".
 * (2) An answer counts only if it comes from the process to which the call was sent last, with the call's number.
 *     Numbers are never used twice, also not by two lives of a process (calls_new). An answer that does not decode ends
 *     all calls with its sender, as the end of the connection would.
 * (3) A call ends exactly once.
 *
 * On the wire a call is a frame (enum peer_frame) whose message has a field `number`, and `token` if it may be on
 * somebody's behalf; the answer has `number`, and `outcome` (enum co_error) if it may be refused.
 *
 * Pure: connections are reached through the callbacks, the time is an argument. One thread. */
#ifndef COORD_RPC_CALLS_H
#define COORD_RPC_CALLS_H

#include <protobuf-c/protobuf-c.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/list.h"
#include "base/memory.h"

#define CALLS_HERE UINT64_MAX /* a destination: this process itself */

struct call;
struct call_method {
    const char *name;                    /* for the log */
    uint8_t request_frame, answer_frame; /* enum peer_frame; of this method only */
    const ProtobufCMessageDescriptor *request, *answer;
    bool repeatable;    /* (1) */
    uint32_t again_ms;  /* a peer that said "not I" is asked again after so long; 0: 50 */
    uint32_t answer_ms; /* the answer is late after so long */
    /* The request, in the arena; `number` is filled in afterwards. Called each time that it is sent. */
    ProtobufCMessage *(*build)(struct call *call, struct arena *arena);
    uint64_t (*route)(const struct call *call); /* as calls_callbacks.route, which NULL stands for */
    /* Does this answer mean that the peer surely did nothing, and that another may do it? NULL: CO_NOTLEADER and
     * CO_CLOSED do. */
    bool (*elsewhere)(struct call *call, uint32_t outcome);
    /* Answers come in pieces: all but the last have `more` set, and go to call->piece. */
    bool pieces;
    /* Or each piece is asked for: all go to call->piece, and then the call rests until the caller asks for the next one
     * (calls_next) or has enough (calls_cancel). Only errors go to `done`, and such a call is never sent elsewhere. */
    bool pulled;
    uint8_t end_frame; /* says that the answer of `number` is not wanted any more; 0: there is no such frame */
    const ProtobufCMessageDescriptor *end;
};
/* The fields that all methods for reads share: the frames of a read (rpc/cluster/peers.h has the frames). */
#define CALL_FETCH_FRAMES                                                                                         \
    .request_frame = PEER_FETCH, .answer_frame = PEER_FETCHED, .request = &pb__peer_fetch__descriptor,            \
    .answer = &pb__peer_fetched__descriptor, .end_frame = PEER_FETCH_END, .end = &pb__peer_fetch_end__descriptor, \
    .repeatable = true, .pieces = true

/* A member of the caller's struct, which the caller keeps until `done`. */
struct call {
    /* Once. CO_OK: `answer` is there, valid during the call; its `outcome` may still be an error. CO_AGAIN: the
     * destination is this process: nothing was sent, do it yourself. CO_NOLEADER: there was no destination in time.
     * CO_UNKNOWN_OUTCOME. CO_CLOSED: calls_stop. */
    void (*done)(struct call *call, int error, const ProtobufCMessage *answer);
    /* Of methods with pieces: takes a piece that is not the last; false: it was too much, and the callee has cancelled
     * the call. When `build` is called again another answer begins, so drop the pieces so far. (When pieces are pulled,
     * `build` is called for each, and the result is ignored.) */
    bool (*piece)(struct call *call, const ProtobufCMessage *answer);
    uint32_t answer_ms; /* set by `build`, or 0: the method's */
    /* On whose behalf: the caller's token, which goes with the request. Set by `build`, for as long as its arena, or
     * NULL: nobody's. It is NULL until there is access control. */
    const char *token;
    /* The table's. wait_by_ms may be set later, answer_by_ms put off. */
    const struct call_method *method;
    struct list link;              /* in the list of those that wait for a destination */
    struct call *chain;            /* sent: in its bucket */
    uint64_t number, peer;         /* peer 0: it was sent to nobody */
    uint64_t refused_by, again_ms; /* the peer that said "not I" is asked again from then on */
    uint64_t wait_by_ms, answer_by_ms;
};

struct calls_callbacks {
    void *data;
    /* Where a call goes now: a peer, CALLS_HERE, or 0: nowhere yet. */
    uint64_t (*route)(void *data, const struct call *call);
    /* Queues a frame. False: not connected, or the peer's program does not know this frame. */
    bool (*tell)(void *data, uint64_t peer, uint8_t type, const ProtobufCMessage *message);
};

struct calls;
/* `methods`: the methods whose answers are accepted, NULL-terminated. Numbers begin above `first_number`. */
struct calls *calls_new(const struct calls_callbacks *callbacks, const struct call_method *const *methods,
                        uint64_t first_number);
void calls_free(struct calls *calls); /* stopped; accepts NULL */
/* Ends all calls: those that were sent and may not be repeated with CO_UNKNOWN_OUTCOME, others, and later ones at once,
 * with CO_CLOSED. */
void calls_stop(struct calls *calls);

/* Begins a call; `done` may be called before this returns. `wait_ms`: for so long the call waits for a destination, and
 * is sent again when it is lost; then it ends with CO_NOLEADER. */
void calls_begin(struct calls *calls, struct call *call, const struct call_method *method, uint64_t wait_ms,
                 uint64_t now_ms);
/* There may be a destination now, or another one: sends the waiting calls. */
void calls_turn(struct calls *calls, uint64_t now_ms);
void calls_tick(struct calls *calls, uint64_t now_ms);                /* a few times a second, while not idle */
void calls_down(struct calls *calls, uint64_t peer, uint64_t now_ms); /* its connection ended */
/* Sends the call elsewhere, as if it had been lost, and tells its peer. Does nothing when it was sent to nobody. */
void calls_again(struct calls *calls, struct call *call);
/* The caller gives the call up: `done` is not called, and the caller owns the struct again. */
void calls_cancel(struct calls *calls, struct call *call);
/* Asks for the next piece of a pulled answer: the same peer, with the same number. */
void calls_next(struct calls *calls, struct call *call, uint64_t now_ms);
/* Sends the calls of this method that are with `peer` elsewhere; tells `peer` that their answers are not wanted any
 * more. */
void calls_move(struct calls *calls, const struct call_method *method, uint64_t peer);
bool calls_idle(const struct calls *calls);
bool calls_with(const struct calls *calls, uint64_t peer); /* is a call to it not answered yet? */
/* Takes a frame that answers one of the methods. False: it is none, or does not decode. */
bool calls_answered(struct calls *calls, uint64_t from, uint8_t type, struct slice payload, uint64_t now_ms);

/* -- for frames that carry several calls (rpc/forward/forwarding.h) ------------------------------------------------ */
/* Notes that `call` goes to `peer`, in a frame of the caller's own making: its number. It has no deadline. Of the
 * method only its identity is used, when the call is taken. */
uint64_t calls_enter(struct calls *calls, struct call *call, const struct call_method *method, uint64_t peer);
/* The call of this method and number, if it is with that peer: takes it out of the table. NULL: it ended meanwhile. */
struct call *calls_take(struct calls *calls, const struct call_method *method, uint64_t number, uint64_t peer);
/* Ends the calls with `peer`, or (0) with all peers except `but`, as calls_down ends calls that may not be repeated. */
void calls_lose(struct calls *calls, uint64_t peer, uint64_t but);

#endif
