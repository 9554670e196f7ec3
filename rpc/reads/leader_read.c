#include "rpc/reads/leader_read.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "rpc/cluster/peers.h"
#include "rpc/reads/fetch_internal.h"
#include "rpc/wire/calls.h"

#define AGAIN_MS 200  /* after an answer that is none */
#define LATE_MS  1000 /* an answer may take longer than its wait */

struct leader_read {
    struct leader_reads *fars;
    struct fetch *fetch; /* the fetch thread's */
    uint32_t query;
    /* last_ms: asked again until then; until_ms: the end of the wait; most_ms: no longer than this where others'
     * answers are in the way */
    uint64_t index, last_ms, until_ms, most_ms;
    /* Under the lock. */
    struct list box; /* on its way: out or in */
    bool dropped;    /* its fetch has ended */
    bool back;       /* the fetch thread's again */
    /* The loop's; once it is back, the fetch thread's. */
    struct list link; /* in `all`; by itself: was never taken */
    struct call call;
    bool begun; /* the call */
    struct buffer pieces;
    size_t held; /* bytes of them that count in fars->held */
    int error;
    struct rpc_fetched fetched;
    size_t request_size;
    uint8_t request[];
};

struct leader_reads {
    struct fetches *fetches;
    struct leader_read_edge edge;
    /* Under the lock of `fetches`. */
    struct list out, in;
    bool woken;
    unsigned count;
    /* Loop. */
    struct list all;
    struct calls *calls;
    size_t held; /* bytes of pieces */
    /* the last of them came, or the leader said that too much is on its way here already */
    uint64_t heard_ms, heard_from;
};

METRIC under_way = {.name = "coord_rpc_fetches_far",
                    .type = METRIC_GAUGE,
                    .help = "Reads that are with the leader, since this server's disk is full and it is behind"};

static void far_free(struct leader_read *far) {
    struct leader_reads *fars = far->fars;
    uv_mutex_lock(&fars->fetches->lock);
    metric_set(&under_way, (int64_t)--fars->count);
    uv_mutex_unlock(&fars->fetches->lock);
    buffer_free(&far->pieces);
    free(far);
}

/* -- fetch thread ------------------------------------------------------------------------------------------------- */
/* Under the lock. */
static void send_out(struct leader_read *far) {
    struct leader_reads *fars = far->fars;
    list_append(&fars->out, &far->box);
    if (!fars->woken) fars->edge.wake(fars->edge.data);
    fars->woken = true;
}

static struct leader_read *far_new(struct fetch *fetch) {
    struct slice request = fetch_request(fetch);
    const struct rpc_fetch *outer = fetch_outer(fetch);
    struct leader_read *far = mem_zalloc(sizeof *far + request.size);
    uint64_t now_ms = clock_mono_ms();
    far->fars = fetches_of(fetch)->fars, far->fetch = fetch, far->query = outer->type->number,
    far->index = outer->index;
    uint64_t wait_ms = outer->wait_ms < FETCH_WAIT_MOST_MS ? outer->wait_ms : FETCH_WAIT_MOST_MS;
    if (outer->index && !fetch->deadline_ms) fetch->deadline_ms = now_ms + wait_ms;
    far->until_ms = fetch->deadline_ms;
    far->last_ms = now_ms + RPC_LEADER_WAIT_MS > far->until_ms ? now_ms + RPC_LEADER_WAIT_MS : far->until_ms;
    far->most_ms = far->last_ms > now_ms + FETCH_FAR_TURN_MS ? far->last_ms : now_ms + FETCH_FAR_TURN_MS;
    far->request_size = request.size;
    if (request.size) memcpy(far->request, request.data, request.size);
    list_init(&far->box);
    list_init(&far->link);
    return far;
}

void leader_read_begin(struct fetch *fetch) {
    struct fetches *fetches = fetches_of(fetch);
    struct leader_reads *fars = fetches->fars;
    if (!fars->edge.tell || fetch->request_size > FETCH_FAR_REQUEST_MOST) {
        fetch_finish(fetch, CO_DISKFULL, NULL);
        return;
    }
    struct leader_read *far = far_new(fetch);
    read_end(&fetch->read);
    uv_mutex_lock(&fetches->lock);
    metric_set(&under_way, (int64_t)++fars->count);
    bool room = fars->count <= FETCH_FAR_MOST;
    if (room) send_out(far);
    uv_mutex_unlock(&fetches->lock);
    if (room) {
        fetch->far = far;
    } else {
        far_free(far);
        fetch_finish(fetch, CO_BUSY, NULL);
    }
}

void leader_read_drop(struct fetch *fetch) {
    struct leader_read *far = fetch->far;
    if (!far) return;
    fetch->far = NULL;
    uv_mutex_lock(&fetches_of(fetch)->lock);
    list_remove(&far->box);
    bool back = far->back;
    far->dropped = true;
    if (!back) send_out(far);
    uv_mutex_unlock(&fetches_of(fetch)->lock);
    if (back) far_free(far);
}

void leader_read_back(struct fetches *fetches) {
    struct list came;
    list_init(&came);
    uv_mutex_lock(&fetches->lock);
    list_splice(&came, &fetches->fars->in);
    uv_mutex_unlock(&fetches->lock);
    LIST_FOREACH_SAFE(item, next, &came) {
        struct leader_read *far = LIST_ENTRY(item, struct leader_read, box);
        struct fetch *fetch = far->fetch;
        fetch->far = NULL;
        if (far->error == CO_AGAIN) read_begin(&fetch->read, false);
        else fetch_finish(fetch, far->error, far->error ? NULL : &far->fetched);
        far_free(far);
    }
}

/* -- loop: under way ---------------------------------------------------------------------------------------------- */
static struct leader_read *far_at(struct list *item) { return LIST_ENTRY(item, struct leader_read, link); }
static struct leader_read *far_of(struct call *call) { return CONTAINER_OF(call, struct leader_read, call); }

/* What came of its answer counts no more: it is whole, or is not going to be. */
static void release_pieces(struct leader_read *far) {
    far->fars->held -= far->held;
    far->held = 0;
}

static void drop_pieces(struct leader_read *far) {
    release_pieces(far);
    buffer_free(&far->pieces);
}

/* It is no call any more. One that was dropped meanwhile is in the box for this thread: leader_read_turn frees it. */
static void give_back(struct leader_read *far, int error) {
    struct fetches *fetches = far->fars->fetches;
    list_remove(&far->link);
    far->begun = false;
    far->error = error;
    uv_mutex_lock(&fetches->lock);
    if (!far->dropped) {
        far->back = true;
        list_append(&far->fars->in, &far->box);
        fetch_wake(fetches);
    }
    uv_mutex_unlock(&fetches->lock);
}

static void give_up(struct leader_read *far, int error) {
    if (far->begun) calls_cancel(far->fars->calls, &far->call);
    drop_pieces(far);
    give_back(far, error);
}

static bool others_are_answered(const struct leader_reads *fars, uint64_t leader, uint64_t now_ms) {
    return leader && fars->heard_from == leader && now_ms < fars->heard_ms + RPC_LEADER_WAIT_MS;
}

static void heard(struct leader_reads *fars, uint64_t leader) {
    fars->heard_ms = clock_mono_ms(), fars->heard_from = leader;
}

static ProtobufCMessage *build(struct call *call, struct arena *arena) {
    struct leader_read *far = far_of(call);
    uint64_t now_ms = clock_mono_ms(), left_ms = far->until_ms > now_ms ? far->until_ms - now_ms : 1;
    Pb__PeerFetch *message = arena_alloc(arena, sizeof *message);
    pb__peer_fetch__init(message);
    message->query = far->query;
    message->request = (ProtobufCBinaryData){far->request_size, far->request};
    message->index = far->index;
    if (far->index) message->wait_ms = left_ms;
    uint64_t last_ms = far->last_ms > now_ms ? far->last_ms - now_ms : 0;
    call->answer_ms = (uint32_t)(last_ms + left_ms / 16 + LATE_MS);
    drop_pieces(far);
    return &message->base;
}

/* The next leader may answer, or this one soon. */
static bool another_may(struct call *call, uint32_t outcome) {
    struct leader_read *far = far_of(call);
    if (outcome == CO_AGAIN) { /* too much is on its way here already */
        uint64_t now_ms = clock_mono_ms();
        uint64_t last_ms = now_ms + RPC_LEADER_WAIT_MS < far->most_ms ? now_ms + RPC_LEADER_WAIT_MS : far->most_ms;
        bool here = false;
        heard(far->fars, far->fars->edge.leader(far->fars->edge.data, &here));
        if (far->last_ms < last_ms) far->last_ms = call->wait_by_ms = last_ms;
    }
    return outcome == CO_NOTLEADER || outcome == CO_FENCED || outcome == CO_CLOSED || outcome == CO_DISKFULL ||
           outcome == CO_AGAIN;
}

static const struct call_method far_method = {
    .name = "fetch of a follower", CALL_FETCH_FRAMES, .again_ms = AGAIN_MS, .build = build, .elsewhere = another_may};

/* One whose answer is arriving stays where it is, and so does one whose turn has not come while others' are. */
static void look_after(struct leader_read *far, uint64_t leader, uint64_t now_ms) {
    struct call *call = &far->call;
    if (!call->peer || far->pieces.size > 0) return;
    if (leader && leader != call->peer) calls_again(far->fars->calls, call);
    else if (others_are_answered(far->fars, leader, now_ms) && call->answer_by_ms <= now_ms && now_ms < far->most_ms)
        call->answer_by_ms = far->most_ms;
}

void leader_read_tick(struct fetches *fetches) {
    struct leader_reads *fars = fetches->fars;
    bool here = false;
    if (list_empty(&fars->all)) return;
    uint64_t leader = fars->edge.leader(fars->edge.data, &here), now_ms = clock_mono_ms();
    LIST_FOREACH(item, &fars->all) look_after(far_at(item), leader, now_ms);
    calls_tick(fars->calls, now_ms);
}

/* One that is dropped afterwards comes out once more. */
static void take_out(struct leader_reads *fars, struct list *fresh, struct list *gone) {
    uv_mutex_lock(&fars->fetches->lock);
    fars->woken = false;
    LIST_FOREACH_SAFE(item, next, &fars->out) {
        struct leader_read *far = LIST_ENTRY(item, struct leader_read, box);
        list_remove(&far->box);
        list_remove(&far->link);
        list_append(far->dropped ? gone : fresh, &far->link);
    }
    uv_mutex_unlock(&fars->fetches->lock);
}

/* -- loop: answers ------------------------------------------------------------------------------------------------ */
/* 0: it fits; else why not. */
static int piece_fits(const struct leader_read *far, size_t size) {
    if (far->pieces.size + size > FETCH_RESULT_MOST) return CO_TOOLARGE;
    return far->fars->held + size > FETCH_FAR_HELD_MOST ? CO_BUSY : CO_OK;
}

static void add_piece(struct leader_read *far, uint64_t from, const Pb__PeerFetched *answer) {
    buffer_append(&far->pieces, answer->records.data, answer->records.len);
    far->fars->held += answer->records.len, far->held += answer->records.len;
    heard(far->fars, from);
}

static bool take_piece(struct call *call, const ProtobufCMessage *message) {
    struct leader_read *far = far_of(call);
    const Pb__PeerFetched *answer = (const Pb__PeerFetched *)message;
    int error = piece_fits(far, answer->records.len);
    if (error) {
        give_up(far, error);
        return false;
    }
    add_piece(far, call->peer, answer);
    call->answer_ms = RPC_LEADER_WAIT_MS; /* for the next */
    return true;
}

/* Why no leader answered in time. */
static int unanswered(const struct leader_reads *fars) {
    bool here = false;
    uint64_t leader = fars->edge.leader(fars->edge.data, &here);
    if (!leader) return CO_NOLEADER;
    return others_are_answered(fars, leader, clock_mono_ms()) ? CO_BUSY : CO_DISKFULL;
}

/* CO_AGAIN: this server leads now, and has everything. */
static void answered(struct call *call, int error, const ProtobufCMessage *message) {
    struct leader_read *far = far_of(call);
    struct leader_reads *fars = far->fars;
    const Pb__PeerFetched *answer = (const Pb__PeerFetched *)message;
    if (error == CO_NOLEADER) error = unanswered(fars);
    else if (error == CO_OK && answer->outcome != CO_OK)
        error = answer->outcome < CO_ERROR_COUNT ? (int)answer->outcome : CO_IO;
    if (error == CO_OK) error = piece_fits(far, answer->records.len);
    if (error != CO_OK) {
        drop_pieces(far);
        give_back(far, error);
        return;
    }
    add_piece(far, fars->heard_from, answer);
    release_pieces(far);
    far->fetched = (struct rpc_fetched){.index = answer->index ? answer->index : 1,
                                        .found = answer->found,
                                        .none = answer->none,
                                        .known_leader = answer->known_leader,
                                        .last_contact_ms = answer->last_contact_ms,
                                        .records = buffer_slice(&far->pieces)};
    give_back(far, CO_OK);
}

static void begin(struct leader_read *far) {
    struct leader_reads *fars = far->fars;
    uint64_t now_ms = clock_mono_ms();
    list_remove(&far->link);
    list_append(&fars->all, &far->link);
    far->call.done = answered, far->call.piece = take_piece;
    far->begun = true;
    uint64_t wait_ms = far->last_ms > now_ms ? far->last_ms - now_ms : 0;
    calls_begin(fars->calls, &far->call, &far_method, wait_ms, now_ms);
}

void leader_read_turn(struct fetches *fetches) {
    struct leader_reads *fars = fetches->fars;
    struct list fresh, gone;
    list_init(&fresh);
    list_init(&gone);
    take_out(fars, &fresh, &gone);
    LIST_FOREACH_SAFE(item, next, &gone) {
        struct leader_read *far = LIST_ENTRY(item, struct leader_read, link);
        if (far->begun) calls_cancel(fars->calls, &far->call);
        drop_pieces(far);
        far_free(far);
    }
    while (!list_empty(&fresh)) begin(far_at(fresh.next));
}

void leader_read_down(struct fetches *fetches, uint64_t server) {
    calls_down(fetches->fars->calls, server, clock_mono_ms());
}

bool leader_read_answered(struct fetches *fetches, uint64_t from, struct slice payload) {
    return calls_answered(fetches->fars->calls, from, PEER_FETCHED, payload, clock_mono_ms());
}

/* -- life --------------------------------------------------------------------------------------------------------- */
void leader_read_new(struct fetches *fetches) {
    struct leader_reads *fars = fetches->fars = mem_zalloc(sizeof *fars);
    fars->fetches = fetches;
    list_init(&fars->out);
    list_init(&fars->in);
    list_init(&fars->all);
}

static uint64_t leader_route(void *data, const struct call *call) {
    struct leader_reads *fars = data;
    bool here = false;
    uint64_t leader = fars->edge.leader(fars->edge.data, &here);
    (void)call;
    return here ? CALLS_HERE : leader;
}

static bool leader_tell(void *data, uint64_t server, uint8_t type, const ProtobufCMessage *message) {
    struct leader_reads *fars = data;
    return fars->edge.tell(fars->edge.data, server, type, message);
}

void leader_read_over(struct fetches *fetches, const struct leader_read_edge *edge) {
    static const struct call_method *const methods[] = {&far_method, NULL};
    struct leader_reads *fars = fetches->fars;
    metric_register(&under_way);
    fars->edge = *edge;
    fars->calls = calls_new(&(struct calls_edge){.data = fars, .route = leader_route, .tell = leader_tell}, methods,
                            random_u64() >> 1);
}

/* All fetches have ended: each one's was sent out, or is freed. */
void leader_read_stop(struct fetches *fetches) {
    if (fetches->fars->edge.tell) leader_read_turn(fetches);
    CHECK(list_empty(&fetches->fars->all) && fetches->fars->count == 0);
}

void leader_read_free(struct fetches *fetches) {
    calls_free(fetches->fars->calls);
    free(fetches->fars);
}
