/* Echoes: frames that are answered at once, to measure the round trip (rpc/server/coordinates.h). */
#include "base/clock.h"
#include "lb/coordinate.h"
#include "rpc/core/rpc_internal.h"
#include "rpc/wire/frame_unpack.h"

#define LOST_MS 3000 /* the connection is about to be given up (rpc/cluster/peers.h) */

static struct echo *echo_of(const struct call *call) { return CONTAINER_OF(call, struct echo, call); }
static uint64_t route(const struct call *call) { return echo_of(call)->peer; }

static ProtobufCMessage *build(struct call *call, struct arena *arena) {
    Pb__PeerEcho *message = arena_alloc(arena, sizeof *message);
    pb__peer_echo__init(message);
    echo_of(call)->at_ns = clock_mono_ns();
    return &message->base;
}

const struct call_method echo_method = {.name = "echo",
                                        .request_frame = PEER_ECHO,
                                        .answer_frame = PEER_ECHO_ANSWER,
                                        .request = &pb__peer_echo__descriptor,
                                        .answer = &pb__peer_echo_answer__descriptor,
                                        .answer_ms = LOST_MS,
                                        .build = build,
                                        .route = route};

static void ended(struct call *call, int error, const ProtobufCMessage *message) {
    struct echo *echo = echo_of(call);
    double rtt_s = (double)(clock_mono_ns() - echo->at_ns) / 1e9;
    if (error == CO_OK) echo->heard(echo, ((const Pb__PeerEchoAnswer *)message)->coordinate, rtt_s);
}

void echo_begin(struct rpc *rpc, struct echo *echo, uint64_t peer) {
    echo->call.done = ended, echo->peer = peer;
    calls_begin(rpc->calls, &echo->call, &echo_method, 0, clock_mono_ms());
}

bool echo_serve(const struct caller *caller, struct slice payload) {
    Pb__PeerEcho *echo = frame_unpack(&pb__peer_echo__descriptor, payload, NULL);
    if (!echo) return false;
    struct vivaldi_coordinate here = rpc_coordinate_here(caller->rpc);
    Pb__Coordinate record = coordinate_record(caller->rpc->node_name, "", &here);
    Pb__PeerEchoAnswer answer = PB__PEER_ECHO_ANSWER__INIT;
    answer.number = echo->number, answer.coordinate = &record;
    caller->tell(caller, PEER_ECHO_ANSWER, &answer.base);
    frame_drop(echo);
    return true;
}
