/* Operators' questions and changes at a server that does not lead: the leader carries them out. Loop thread.
 *
 * A question is asked again of the next leader. A change that may have reached a leader is not: when that one is
 * lost, its outcome is unknown. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "rpc/frame_unpack.h"
#include "rpc/operator.h"
#include "rpc/operator_frames.h"
#include "rpc/rpc_internal.h"

#define FAR_WAIT_MS   RPC_LEADER_WAIT_MS /* for a leader */
#define FAR_ASK_MS    2000               /* for its answer to a question */
#define FAR_CHANGE_MS 20000              /* longer than the leader takes at most */

struct far {
    struct far *next;
    uint64_t number;
    uint64_t leader; /* who has it; 0: it waits for one */
    uint64_t deadline_ms, answer_by_ms;
    struct rpc_ask_cluster *ask; /* a question, or */
    struct rpc_change *change;   /* a change */
};

/* -- asking
 * ------------------------------------------------------------------------------------------------------ */
static void far_end(struct far *far, int error) {
    if (far->ask) far->ask->done(far->ask, error, NULL);
    else far->change->done(far->change, error);
    free(far);
}

/* A leader of an older program does not know these frames: then nothing has happened, and another is waited for. */
static void far_send(struct rpc *rpc, struct far *far, uint64_t leader, uint64_t now_ms) {
    bool told;
    far->number = ++rpc->far_number;
    far->answer_by_ms = now_ms + (far->ask ? FAR_ASK_MS : FAR_CHANGE_MS);
    if (far->ask) {
        Pb__PeerCluster message = PB__PEER_CLUSTER__INIT;
        message.number = far->number;
        told = peers_tell(rpc->others, leader, PEER_CLUSTER, &message.base);
    } else {
        Pb__PeerChange message = PB__PEER_CHANGE__INIT;
        message.number = far->number, message.type = far->change->type;
        message.id = far->change->id, message.address = far->change->address;
        told = peers_tell(rpc->others, leader, PEER_CHANGE, &message.base);
    }
    far->leader = told ? leader : 0;
}

/* True: it is over, or was handed to somebody here. */
static bool far_step(struct rpc *rpc, struct far *far) {
    const struct node_view *view = node_view(rpc->node);
    uint64_t now_ms = clock_mono_ms(), leader = atomic_load(&view->leader);
    if (far->leader) {
        if (now_ms < far->answer_by_ms) return false;
        if (far->change) {
            far_end(far, CO_UNKNOWN_OUTCOME);
            return true;
        }
        far->leader = 0;
    }
    if (now_ms >= far->deadline_ms) {
        far_end(far, CO_NOLEADER);
        return true;
    }
    if (atomic_load(&view->ready)) {
        if (far->ask) operator_ask_here(rpc, far->ask);
        else operator_change_here(rpc, far->change);
        free(far);
        return true;
    }
    if (leader && leader != atomic_load(&view->id)) far_send(rpc, far, leader, now_ms);
    return false;
}

void operator_far_poll(struct rpc *rpc) {
    for (struct far **at = &rpc->fars, *far; (far = *at) != NULL;) {
        struct far *next = far->next;
        if (far_step(rpc, far)) *at = next;
        else at = &far->next;
    }
}

static void far_new(struct rpc *rpc, struct rpc_ask_cluster *ask, struct rpc_change *change) {
    struct far *far = mem_zalloc(sizeof *far);
    far->ask = ask, far->change = change;
    far->deadline_ms = clock_mono_ms() + FAR_WAIT_MS;
    far->next = rpc->fars;
    rpc->fars = far;
    operator_poll(rpc);
}

void operator_far_ask(struct rpc *rpc, struct rpc_ask_cluster *ask) { far_new(rpc, ask, NULL); }
void operator_far_change(struct rpc *rpc, struct rpc_change *change) { far_new(rpc, NULL, change); }

/* NULL: nobody waits for it any more. */
static struct far *far_take(struct rpc *rpc, uint64_t from, uint64_t number, bool ask) {
    for (struct far **at = &rpc->fars, *far; (far = *at) != NULL; at = &far->next) {
        if (far->leader != from || far->number != number || !far->ask == ask) continue;
        *at = far->next;
        return far;
    }
    return NULL;
}

/* It surely did nothing: another leader is waited for. */
static void far_again(struct rpc *rpc, struct far *far) {
    far->leader = 0;
    far->next = rpc->fars;
    rpc->fars = far;
}

static void take_cluster_answer(struct rpc *rpc, uint64_t from, const Pb__PeerClusterAnswer *answer) {
    struct far *far = far_take(rpc, from, answer->number, true);
    if (!far) return;
    if (answer->outcome != CO_OK) {
        far_again(rpc, far);
        return;
    }
    struct arena arena = {0};
    struct rpc_cluster_state state;
    operator_state_unpack(answer, &arena, &state);
    far->ask->done(far->ask, CO_OK, &state);
    arena_free(&arena);
    free(far);
}

static void take_change_answer(struct rpc *rpc, uint64_t from, const Pb__PeerChangeAnswer *answer) {
    struct far *far = far_take(rpc, from, answer->number, false);
    if (!far) return;
    if (answer->outcome == CO_NOTLEADER) far_again(rpc, far);
    else far_end(far, (int)answer->outcome);
}

void operator_far_down(struct rpc *rpc, uint64_t peer) {
    for (struct far **at = &rpc->fars, *far; (far = *at) != NULL;) {
        if (far->leader != peer) {
            at = &far->next;
            continue;
        }
        if (far->ask) {
            far->leader = 0, at = &far->next;
            continue;
        }
        *at = far->next;
        far_end(far, CO_UNKNOWN_OUTCOME);
    }
}

void operator_far_stop(struct rpc *rpc) {
    for (struct far *far; (far = rpc->fars) != NULL;) {
        rpc->fars = far->next;
        far_end(far, far->leader && far->change ? CO_UNKNOWN_OUTCOME : CO_CLOSED);
    }
}

/* -- serving
 * ------------------------------------------------------------------------------------------------------- */
struct far_served {
    struct rpc *rpc;
    uint64_t from, number;
    struct rpc_ask_cluster ask;
    struct rpc_change change;
};

static struct far_served *served_new(struct rpc *rpc, uint64_t from, uint64_t number) {
    struct far_served *served = mem_zalloc(sizeof *served);
    served->rpc = rpc, served->from = from, served->number = number;
    return served;
}

static void cluster_known(struct rpc_ask_cluster *ask, int error, const struct rpc_cluster_state *state) {
    struct far_served *served = CONTAINER_OF(ask, struct far_served, ask);
    Pb__PeerClusterAnswer answer = PB__PEER_CLUSTER_ANSWER__INIT;
    struct arena arena = {0};
    answer.number = served->number;
    answer.outcome = error != CO_OK ? (uint32_t)error : state->here_leads ? CO_OK : CO_NOTLEADER;
    if (answer.outcome == CO_OK) operator_state_pack(state, &arena, &answer);
    peers_tell(served->rpc->others, served->from, PEER_CLUSTER_ANSWER, &answer.base);
    arena_free(&arena);
    free(served);
}

static void changed(struct rpc_change *change, int error) {
    struct far_served *served = CONTAINER_OF(change, struct far_served, change);
    Pb__PeerChangeAnswer answer = PB__PEER_CHANGE_ANSWER__INIT;
    answer.number = served->number, answer.outcome = (uint32_t)error;
    peers_tell(served->rpc->others, served->from, PEER_CHANGE_ANSWER, &answer.base);
    free(served);
}

static void serve_change(struct rpc *rpc, uint64_t from, const Pb__PeerChange *wanted) {
    struct far_served *served = served_new(rpc, from, wanted->number);
    served->change.done = changed;
    if (operator_change_unpack(wanted, &served->change) != CO_OK) changed(&served->change, CO_INVALID);
    else operator_change_here(rpc, &served->change);
}

/* -- frames
 * ----------------------------------------------------------------------------------------------------------- */
bool operator_far_frame(struct rpc *rpc, uint64_t from, uint8_t type, struct slice payload) {
    static const ProtobufCMessageDescriptor *const types[] = {
        &pb__peer_cluster__descriptor, &pb__peer_cluster_answer__descriptor, &pb__peer_change__descriptor,
        &pb__peer_change_answer__descriptor};
    struct arena arena = {0};
    void *message = frame_unpack(types[type - PEER_CLUSTER], payload, &arena);
    if (message && type == PEER_CLUSTER) {
        struct far_served *served = served_new(rpc, from, ((Pb__PeerCluster *)message)->number);
        served->ask.done = cluster_known;
        operator_ask_here(rpc, &served->ask);
    } else if (message && type == PEER_CHANGE) {
        serve_change(rpc, from, message);
    } else if (message && type == PEER_CLUSTER_ANSWER) {
        take_cluster_answer(rpc, from, message);
    } else if (message) {
        take_change_answer(rpc, from, message);
    }
    arena_free(&arena);
    return message != NULL;
}
