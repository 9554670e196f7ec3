#include "rpc/reads/leader_read.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "rpc/cluster/peers.h"
#include "rpc/reads/fetch_service_internal.h"
#include "rpc/wire/calls.h"

#define AGAIN_MS 200  /* pause after "ask again" */
#define LATE_MS  1000 /* an answer may come so long after the end of its wait */

struct leader_read {
    struct leader_reads *reads;
    struct fetch *fetch; /* the fetch thread's */
    uint32_t query;
    /* last_ms: it is asked again until then; until_ms: the end of the wait; most_ms: the limit while answers to others
     * are in the way */
    uint64_t index, view, last_ms, until_ms, most_ms;
    /* Under the lock. */
    struct list box; /* in `out` or `in` */
    bool dropped;    /* its fetch has ended */
    bool back;       /* the fetch thread has it again */
    /* The loop's; once it is back, the fetch thread's. */
    struct list link; /* in `all`; alone: the loop never took it */
    struct call call;
    bool begun; /* the call has begun */
    struct buffer pieces;
    size_t held; /* the part of `pieces` that counts in reads->held */
    int error;
    struct rpc_fetched fetched;
    struct requester *requester;
    size_t request_size;
    uint8_t request[];
};

struct leader_reads {
    struct fetch_service *fetches;
    struct leader_read_callbacks callbacks;
    /* Under the lock of `fetches`. */
    struct list out, in;
    bool woken;
    unsigned count;
    /* Loop. */
    struct list all;
    struct calls *calls;
    size_t held; /* bytes of pieces */
    /* when the last piece came, or the leader said that too much is on its way here already */
    uint64_t last_seen_ms, heard_from;
};

METRIC under_way = {.name = "coord_rpc_leader_reads",
                    .type = METRIC_GAUGE,
                    .help = "Reads that are with the leader, since this server's disk is full and it is behind"};

static void pending_free(struct leader_read *pending) {
    struct leader_reads *reads = pending->reads;
    uv_mutex_lock(&reads->fetches->lock);
    metric_set(&under_way, (int64_t)--reads->count);
    uv_mutex_unlock(&reads->fetches->lock);
    buffer_free(&pending->pieces);
    requester_release(pending->requester);
    free(pending);
}

/* -- fetch thread ------------------------------------------------------------------------------------------------- */
/* Under the lock. */
static void send_out(struct leader_read *pending) {
    struct leader_reads *reads = pending->reads;
    list_append(&reads->out, &pending->box);
    if (!reads->woken) reads->callbacks.wake(reads->callbacks.data);
    reads->woken = true;
}

static struct leader_read *pending_new(struct fetch *fetch) {
    struct slice request = fetch_request(fetch);
    const struct rpc_fetch *outer = fetch_outer(fetch);
    struct leader_read *pending = mem_zalloc(sizeof *pending + request.size);
    uint64_t now_ms = clock_mono_ms();
    pending->reads = fetch_service_of(fetch)->leader_reads, pending->fetch = fetch,
    pending->query = outer->type->number, pending->index = outer->index, pending->view = outer->view;
    uint64_t wait_ms = outer->wait_ms < FETCH_WAIT_MOST_MS ? outer->wait_ms : FETCH_WAIT_MOST_MS;
    if (outer->index && !fetch->deadline_ms) fetch->deadline_ms = now_ms + wait_ms;
    pending->until_ms = fetch->deadline_ms;
    pending->last_ms =
        now_ms + RPC_LEADER_WAIT_MS > pending->until_ms ? now_ms + RPC_LEADER_WAIT_MS : pending->until_ms;
    pending->most_ms =
        pending->last_ms > now_ms + LEADER_READ_TURN_MS ? pending->last_ms : now_ms + LEADER_READ_TURN_MS;
    pending->request_size = request.size;
    pending->requester = requester_keep(outer->requester);
    if (request.size) memcpy(pending->request, request.data, request.size);
    list_init(&pending->box);
    list_init(&pending->link);
    return pending;
}

void leader_read_begin(struct fetch *fetch) {
    struct fetch_service *fetches = fetch_service_of(fetch);
    struct leader_reads *reads = fetches->leader_reads;
    if (!reads->callbacks.tell || fetch->request_size > LEADER_READ_REQUEST_MOST) {
        fetch_finish(fetch, CO_DISKFULL, NULL);
        return;
    }
    struct leader_read *pending = pending_new(fetch);
    read_end(&fetch->read);
    uv_mutex_lock(&fetches->lock);
    metric_set(&under_way, (int64_t)++reads->count);
    bool room = reads->count <= LEADER_READ_MOST;
    if (room) send_out(pending);
    uv_mutex_unlock(&fetches->lock);
    if (room) {
        fetch->leader_read = pending;
    } else {
        pending_free(pending);
        fetch_finish(fetch, CO_BUSY, NULL);
    }
}

void leader_read_drop(struct fetch *fetch) {
    struct leader_read *pending = fetch->leader_read;
    if (!pending) return;
    fetch->leader_read = NULL;
    uv_mutex_lock(&fetch_service_of(fetch)->lock);
    list_remove(&pending->box);
    bool back = pending->back;
    pending->dropped = true;
    if (!back) send_out(pending);
    uv_mutex_unlock(&fetch_service_of(fetch)->lock);
    if (back) pending_free(pending);
}

void leader_read_back(struct fetch_service *fetches) {
    struct list came;
    list_init(&came);
    uv_mutex_lock(&fetches->lock);
    list_splice(&came, &fetches->leader_reads->in);
    uv_mutex_unlock(&fetches->lock);
    LIST_FOREACH_SAFE(item, next, &came) {
        struct leader_read *pending = LIST_ENTRY(item, struct leader_read, box);
        struct fetch *fetch = pending->fetch;
        fetch->leader_read = NULL;
        if (pending->error == CO_AGAIN) read_begin(&fetch->read, false);
        else fetch_finish(fetch, pending->error, pending->error ? NULL : &pending->fetched);
        pending_free(pending);
    }
}

/* -- loop: under way ---------------------------------------------------------------------------------------------- */
static struct leader_read *pending_at(struct list *item) { return LIST_ENTRY(item, struct leader_read, link); }
static struct leader_read *pending_of(struct call *call) { return CONTAINER_OF(call, struct leader_read, call); }

/* The pieces of this answer do not count any more: it is whole, or will never be. */
static void release_pieces(struct leader_read *pending) {
    pending->reads->held -= pending->held;
    pending->held = 0;
}

static void drop_pieces(struct leader_read *pending) {
    release_pieces(pending);
    buffer_free(&pending->pieces);
}

/* Gives the read back to the fetch thread; it is no call any more. One that was dropped meanwhile is in this thread's
 * box, and leader_read_turn frees it. */
static void give_back(struct leader_read *pending, int error) {
    struct fetch_service *fetches = pending->reads->fetches;
    list_remove(&pending->link);
    pending->begun = false;
    pending->error = error;
    uv_mutex_lock(&fetches->lock);
    if (!pending->dropped) {
        pending->back = true;
        list_append(&pending->reads->in, &pending->box);
        fetch_wake(fetches);
    }
    uv_mutex_unlock(&fetches->lock);
}

static void give_up(struct leader_read *pending, int error) {
    if (pending->begun) calls_cancel(pending->reads->calls, &pending->call);
    drop_pieces(pending);
    give_back(pending, error);
}

static bool others_are_answered(const struct leader_reads *reads, uint64_t leader, uint64_t now_ms) {
    return leader && reads->heard_from == leader && now_ms < reads->last_seen_ms + RPC_LEADER_WAIT_MS;
}

static void heard(struct leader_reads *reads, uint64_t leader) {
    reads->last_seen_ms = clock_mono_ms(), reads->heard_from = leader;
}

static ProtobufCMessage *build(struct call *call, struct arena *arena) {
    struct leader_read *pending = pending_of(call);
    uint64_t now_ms = clock_mono_ms(), left_ms = pending->until_ms > now_ms ? pending->until_ms - now_ms : 1;
    Pb__PeerFetch *message = arena_alloc(arena, sizeof *message);
    pb__peer_fetch__init(message);
    if (pending->requester) {
        /* between servers a node's name counts, too */
        message->token = pending->requester->text, message->slot = pending->requester->slot;
    }
    message->query = pending->query;
    message->request = (ProtobufCBinaryData){pending->request_size, pending->request};
    message->index = pending->index, message->view = pending->view;
    if (pending->index) message->wait_ms = left_ms;
    uint64_t last_ms = pending->last_ms > now_ms ? pending->last_ms - now_ms : 0;
    call->answer_ms = (uint32_t)(last_ms + left_ms / 16 + LATE_MS);
    drop_pieces(pending);
    return &message->base;
}

/* May the read be asked again? The next leader may answer, or this one soon. */
static bool another_may(struct call *call, uint32_t outcome) {
    struct leader_read *pending = pending_of(call);
    if (outcome == CO_AGAIN) { /* too much is on its way here already */
        uint64_t now_ms = clock_mono_ms();
        uint64_t last_ms =
            now_ms + RPC_LEADER_WAIT_MS < pending->most_ms ? now_ms + RPC_LEADER_WAIT_MS : pending->most_ms;
        bool here = false;
        heard(pending->reads, pending->reads->callbacks.leader(pending->reads->callbacks.data, &here));
        if (pending->last_ms < last_ms) pending->last_ms = call->wait_by_ms = last_ms;
    }
    return outcome == CO_NOTLEADER || outcome == CO_FENCED || outcome == CO_CLOSED || outcome == CO_DISKFULL ||
           outcome == CO_AGAIN;
}

static const struct call_method leader_read_method = {
    .name = "fetch of a follower", CALL_FETCH_FRAMES, .again_ms = AGAIN_MS, .build = build, .elsewhere = another_may};

/* Moves a read to the present leader when its answer is late. It stays with the old one while its answer, or answers to
 * others before its turn, are arriving. */
static void look_after(struct leader_read *pending, uint64_t leader, uint64_t now_ms) {
    struct call *call = &pending->call;
    if (!call->peer || pending->pieces.size > 0) return;
    if (leader && leader != call->peer) calls_again(pending->reads->calls, call);
    else if (others_are_answered(pending->reads, leader, now_ms) && call->answer_by_ms <= now_ms &&
             now_ms < pending->most_ms)
        call->answer_by_ms = pending->most_ms;
}

void leader_read_tick(struct fetch_service *fetches) {
    struct leader_reads *reads = fetches->leader_reads;
    bool here = false;
    if (list_empty(&reads->all)) return;
    uint64_t leader = reads->callbacks.leader(reads->callbacks.data, &here), now_ms = clock_mono_ms();
    LIST_FOREACH(item, &reads->all) look_after(pending_at(item), leader, now_ms);
    calls_tick(reads->calls, now_ms);
}

/* Takes the reads out of the box. One that is dropped later comes out once more. */
static void take_out(struct leader_reads *reads, struct list *fresh, struct list *gone) {
    uv_mutex_lock(&reads->fetches->lock);
    reads->woken = false;
    LIST_FOREACH_SAFE(item, next, &reads->out) {
        struct leader_read *pending = LIST_ENTRY(item, struct leader_read, box);
        list_remove(&pending->box);
        list_remove(&pending->link);
        list_append(pending->dropped ? gone : fresh, &pending->link);
    }
    uv_mutex_unlock(&reads->fetches->lock);
}

/* -- loop: answers ------------------------------------------------------------------------------------------------ */
/* CO_OK, or why the piece does not fit. */
static int piece_fits(const struct leader_read *pending, size_t size) {
    if (pending->pieces.size + size > FETCH_RESULT_MOST) return CO_TOOLARGE;
    return pending->reads->held + size > LEADER_READ_HELD_MOST ? CO_BUSY : CO_OK;
}

static void add_piece(struct leader_read *pending, uint64_t from, const Pb__PeerFetched *answer) {
    buffer_append(&pending->pieces, answer->records.data, answer->records.len);
    pending->reads->held += answer->records.len, pending->held += answer->records.len;
    heard(pending->reads, from);
}

static bool take_piece(struct call *call, const ProtobufCMessage *message) {
    struct leader_read *pending = pending_of(call);
    const Pb__PeerFetched *answer = (const Pb__PeerFetched *)message;
    int error = piece_fits(pending, answer->records.len);
    if (error) {
        give_up(pending, error);
        return false;
    }
    add_piece(pending, call->peer, answer);
    call->answer_ms = RPC_LEADER_WAIT_MS; /* for the next piece */
    return true;
}

/* The error when no leader answered in time. */
static int unanswered(const struct leader_reads *reads) {
    bool here = false;
    uint64_t leader = reads->callbacks.leader(reads->callbacks.data, &here);
    if (!leader) return CO_NOLEADER;
    return others_are_answered(reads, leader, clock_mono_ms()) ? CO_BUSY : CO_DISKFULL;
}

/* CO_AGAIN: this server leads now, and has everything. */
static void answered(struct call *call, int error, const ProtobufCMessage *message) {
    struct leader_read *pending = pending_of(call);
    struct leader_reads *reads = pending->reads;
    const Pb__PeerFetched *answer = (const Pb__PeerFetched *)message;
    if (error == CO_NOLEADER) error = unanswered(reads);
    else if (error == CO_OK && answer->outcome != CO_OK)
        error = answer->outcome < CO_ERROR_COUNT ? (int)answer->outcome : CO_IO;
    if (error == CO_OK) error = piece_fits(pending, answer->records.len);
    if (error != CO_OK) {
        drop_pieces(pending);
        give_back(pending, error);
        return;
    }
    add_piece(pending, reads->heard_from, answer);
    release_pieces(pending);
    pending->fetched = (struct rpc_fetched){.index = answer->index ? answer->index : 1,
                                            .found = answer->found,
                                            .none = answer->none,
                                            .view = answer->view,
                                            .known_leader = answer->known_leader,
                                            .last_contact_ms = answer->last_contact_ms,
                                            .records = buffer_slice(&pending->pieces)};
    give_back(pending, CO_OK);
}

static void begin(struct leader_read *pending) {
    struct leader_reads *reads = pending->reads;
    uint64_t now_ms = clock_mono_ms();
    list_remove(&pending->link);
    list_append(&reads->all, &pending->link);
    pending->call.done = answered, pending->call.piece = take_piece;
    pending->begun = true;
    uint64_t wait_ms = pending->last_ms > now_ms ? pending->last_ms - now_ms : 0;
    calls_begin(reads->calls, &pending->call, &leader_read_method, wait_ms, now_ms);
}

void leader_read_turn(struct fetch_service *fetches) {
    struct leader_reads *reads = fetches->leader_reads;
    struct list fresh, gone;
    list_init(&fresh);
    list_init(&gone);
    take_out(reads, &fresh, &gone);
    LIST_FOREACH_SAFE(item, next, &gone) {
        struct leader_read *pending = LIST_ENTRY(item, struct leader_read, link);
        if (pending->begun) calls_cancel(reads->calls, &pending->call);
        drop_pieces(pending);
        pending_free(pending);
    }
    while (!list_empty(&fresh)) begin(pending_at(fresh.next));
}

void leader_read_down(struct fetch_service *fetches, uint64_t server) {
    calls_down(fetches->leader_reads->calls, server, clock_mono_ms());
}

bool leader_read_answered(struct fetch_service *fetches, uint64_t from, struct slice payload) {
    return calls_answered(fetches->leader_reads->calls, from, PEER_FETCHED, payload, clock_mono_ms());
}

/* -- life --------------------------------------------------------------------------------------------------------- */
void leader_read_new(struct fetch_service *fetches) {
    struct leader_reads *reads = fetches->leader_reads = mem_zalloc(sizeof *reads);
    reads->fetches = fetches;
    list_init(&reads->out);
    list_init(&reads->in);
    list_init(&reads->all);
}

static uint64_t leader_route(void *data, const struct call *call) {
    struct leader_reads *reads = data;
    bool here = false;
    uint64_t leader = reads->callbacks.leader(reads->callbacks.data, &here);
    (void)call;
    return here ? CALLS_HERE : leader;
}

static bool leader_tell(void *data, uint64_t server, uint8_t type, const ProtobufCMessage *message) {
    struct leader_reads *reads = data;
    return reads->callbacks.tell(reads->callbacks.data, server, type, message);
}

void leader_read_over(struct fetch_service *fetches, const struct leader_read_callbacks *callbacks) {
    static const struct call_method *const methods[] = {&leader_read_method, NULL};
    struct leader_reads *reads = fetches->leader_reads;
    metric_register(&under_way);
    reads->callbacks = *callbacks;
    reads->calls = calls_new(&(struct calls_callbacks){.data = reads, .route = leader_route, .tell = leader_tell},
                             methods, random_u64() >> 1);
}

/* All fetches have ended, so each read was sent out, or is freed. */
void leader_read_stop(struct fetch_service *fetches) {
    if (fetches->leader_reads->callbacks.tell) leader_read_turn(fetches);
    CHECK(list_empty(&fetches->leader_reads->all) && fetches->leader_reads->count == 0);
}

void leader_read_free(struct fetch_service *fetches) {
    calls_free(fetches->leader_reads->calls);
    free(fetches->leader_reads);
}
