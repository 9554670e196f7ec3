#include "rpc/fetch_far.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "rpc/fetch_internal.h"
#include "rpc/frame_unpack.h"
#include "rpc/peers.h"

#define BUCKETS  1024
#define AGAIN_MS 200  /* after an answer that is none */
#define LATE_MS  1000 /* an answer may take longer than its wait */

struct fetch_far {
    struct fetch_fars *fars;
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
    struct fetch_far *chain;
    uint64_t number; /* as it was asked last; never given twice */
    uint64_t leader; /* who has it; 0: waits for one */
    uint64_t again_ms, answer_by_ms;
    struct buffer pieces;
    int error;
    struct rpc_fetched fetched;
    size_t request_size;
    uint8_t request[];
};

struct fetch_fars {
    struct fetches *fetches;
    struct fetch_far_edge edge;
    /* Under the lock of `fetches`. */
    struct list out, in;
    bool woken;
    unsigned count;
    /* Loop. */
    struct list all;
    struct fetch_far *buckets[BUCKETS];
    uint64_t last_number;
    size_t held; /* bytes of pieces */
    /* the last of them came, or the leader said that too much is on its way here already */
    uint64_t heard_ms, heard_from;
};

static struct metric under_way = {
    .name = "coord_rpc_fetches_far",
    .type = METRIC_GAUGE,
    .help = "Reads that are with the leader, since this server's disk is full and it is behind"};

static void far_free(struct fetch_far *far) {
    struct fetch_fars *fars = far->fars;
    uv_mutex_lock(&fars->fetches->lock);
    metric_set(&under_way, (int64_t)--fars->count);
    uv_mutex_unlock(&fars->fetches->lock);
    buffer_free(&far->pieces);
    free(far);
}

/* -- fetch thread ------------------------------------------------------------------------------------------------- */
/* Under the lock. */
static void send_out(struct fetch_far *far) {
    struct fetch_fars *fars = far->fars;
    list_append(&fars->out, &far->box);
    if (!fars->woken) fars->edge.wake(fars->edge.data);
    fars->woken = true;
}

static struct fetch_far *far_new(struct fetch *fetch) {
    struct slice request = fetch_request(fetch);
    const struct rpc_fetch *outer = fetch_outer(fetch);
    struct fetch_far *far = mem_zalloc(sizeof *far + request.size);
    uint64_t now_ms = clock_mono_ms();
    far->fars = fetch->fetches->fars, far->fetch = fetch, far->query = outer->type->number, far->index = outer->index;
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

void fetch_far_begin(struct fetch *fetch) {
    struct fetches *fetches = fetch->fetches;
    struct fetch_fars *fars = fetches->fars;
    if (!fars->edge.tell || fetch->request_size > FETCH_FAR_REQUEST_MOST) {
        fetch_finish(fetch, CO_DISKFULL, NULL);
        return;
    }
    struct fetch_far *far = far_new(fetch);
    fetch_unpark(fetch);
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

void fetch_far_drop(struct fetch *fetch) {
    struct fetch_far *far = fetch->far;
    if (!far) return;
    fetch->far = NULL;
    uv_mutex_lock(&fetch->fetches->lock);
    list_remove(&far->box);
    bool back = far->back;
    far->dropped = true;
    if (!back) send_out(far);
    uv_mutex_unlock(&fetch->fetches->lock);
    if (back) far_free(far);
}

void fetch_far_back(struct fetches *fetches) {
    struct list came;
    list_init(&came);
    uv_mutex_lock(&fetches->lock);
    list_splice(&came, &fetches->fars->in);
    uv_mutex_unlock(&fetches->lock);
    LIST_FOREACH_SAFE(item, next, &came) {
        struct fetch_far *far = LIST_ENTRY(item, struct fetch_far, box);
        struct fetch *fetch = far->fetch;
        fetch->far = NULL;
        if (far->error == CO_AGAIN) fetch_wish(fetch);
        else fetch_finish(fetch, far->error, far->error ? NULL : &far->fetched);
        far_free(far);
    }
}

/* -- loop: under way ---------------------------------------------------------------------------------------------- */
static struct fetch_far **find(struct fetch_fars *fars, uint64_t number) {
    struct fetch_far **at = &fars->buckets[number % BUCKETS];
    while (*at && (*at)->number != number) at = &(*at)->chain;
    return at;
}

static void drop_pieces(struct fetch_far *far) {
    far->fars->held -= far->pieces.size;
    buffer_free(&far->pieces);
}

/* It is with nobody: an answer that still comes is none. */
static void take_from(struct fetch_far *far, bool tell) {
    struct fetch_fars *fars = far->fars;
    if (!far->leader) return;
    Pb__PeerFetchEnd end = PB__PEER_FETCH_END__INIT;
    end.number = far->number;
    if (tell) (void)fars->edge.tell(fars->edge.data, far->leader, PEER_FETCH_END, &end.base);
    *find(fars, far->number) = far->chain;
    far->leader = 0;
    drop_pieces(far);
}

/* One that was dropped meanwhile is in the box for this thread: fetch_far_turn frees it. */
static void give_back(struct fetch_far *far, int error) {
    struct fetches *fetches = far->fars->fetches;
    list_remove(&far->link);
    far->error = error;
    uv_mutex_lock(&fetches->lock);
    if (!far->dropped) {
        far->back = true;
        list_append(&far->fars->in, &far->box);
        fetch_wake(fetches);
    }
    uv_mutex_unlock(&fetches->lock);
}

/* Not connected, or of an older program: it stays here, and is tried again. */
static void ask(struct fetch_far *far, uint64_t leader, uint64_t now_ms) {
    struct fetch_fars *fars = far->fars;
    uint64_t left_ms = far->until_ms > now_ms ? far->until_ms - now_ms : 1;
    Pb__PeerFetch message = PB__PEER_FETCH__INIT;
    message.number = far->number = ++fars->last_number;
    message.query = far->query;
    message.request = (ProtobufCBinaryData){far->request_size, far->request};
    message.index = far->index;
    if (far->index) message.wait_ms = left_ms;
    if (!fars->edge.tell(fars->edge.data, leader, PEER_FETCH, &message.base)) return;
    far->leader = leader;
    far->answer_by_ms = far->last_ms + left_ms / 16 + LATE_MS;
    struct fetch_far **at = find(fars, far->number);
    far->chain = *at;
    *at = far;
}

static bool others_are_answered(const struct fetch_fars *fars, uint64_t leader, uint64_t now_ms) {
    return fars->heard_from == leader && now_ms < fars->heard_ms + RPC_LEADER_WAIT_MS;
}

static void heard(struct fetch_fars *fars, uint64_t leader) {
    fars->heard_ms = clock_mono_ms(), fars->heard_from = leader;
}

/* One whose answer is arriving stays where it is, and so does one whose turn has not come while others' are. */
static void step(struct fetch_far *far, uint64_t leader, bool here, uint64_t now_ms) {
    bool stays = !leader || leader == far->leader || far->pieces.size > 0;
    bool others = leader && others_are_answered(far->fars, leader, now_ms);
    if (far->leader && stays && now_ms < far->answer_by_ms) return;
    if (far->leader && stays && far->pieces.size == 0 && others && now_ms < far->most_ms) return;
    take_from(far, true);
    if (here) give_back(far, CO_AGAIN); /* this one leads now: it has everything */
    else if (now_ms >= far->last_ms) give_back(far, !leader ? CO_NOLEADER : others ? CO_BUSY : CO_DISKFULL);
    else if (leader && now_ms >= far->again_ms) ask(far, leader, now_ms);
}

static void step_all(struct fetch_fars *fars, struct list *list) {
    bool here = false;
    uint64_t leader = fars->edge.leader(fars->edge.data, &here), now_ms = clock_mono_ms();
    LIST_FOREACH_SAFE(item, next, list) step(LIST_ENTRY(item, struct fetch_far, link), leader, here, now_ms);
}

void fetch_far_tick(struct fetches *fetches) {
    if (!list_empty(&fetches->fars->all)) step_all(fetches->fars, &fetches->fars->all);
}

/* One that is dropped afterwards comes out once more. */
static void take_out(struct fetch_fars *fars, struct list *fresh, struct list *gone) {
    uv_mutex_lock(&fars->fetches->lock);
    fars->woken = false;
    LIST_FOREACH_SAFE(item, next, &fars->out) {
        struct fetch_far *far = LIST_ENTRY(item, struct fetch_far, box);
        list_remove(&far->box);
        list_remove(&far->link);
        list_append(far->dropped ? gone : fresh, &far->link);
    }
    uv_mutex_unlock(&fars->fetches->lock);
}

void fetch_far_turn(struct fetches *fetches) {
    struct fetch_fars *fars = fetches->fars;
    struct list fresh, gone;
    list_init(&fresh);
    list_init(&gone);
    take_out(fars, &fresh, &gone);
    LIST_FOREACH_SAFE(item, next, &gone) {
        struct fetch_far *far = LIST_ENTRY(item, struct fetch_far, link);
        take_from(far, true);
        far_free(far);
    }
    if (list_empty(&fresh)) return;
    step_all(fars, &fresh);
    list_splice(&fars->all, &fresh);
}

void fetch_far_down(struct fetches *fetches, uint64_t server) {
    LIST_FOREACH(item, &fetches->fars->all) {
        struct fetch_far *far = LIST_ENTRY(item, struct fetch_far, link);
        if (far->leader == server) take_from(far, false);
    }
}

/* -- loop: answers ------------------------------------------------------------------------------------------------ */
static void finish(struct fetch_far *far, int error, bool tell) {
    take_from(far, tell);
    give_back(far, error);
}

static void take_piece(struct fetch_far *far, const Pb__PeerFetched *answer) {
    struct fetch_fars *fars = far->fars;
    size_t size = answer->records.len;
    if (far->pieces.size + size > FETCH_RESULT_MOST) {
        finish(far, CO_TOOLARGE, true);
        return;
    }
    if (fars->held + size > FETCH_FAR_HELD_MOST) {
        finish(far, CO_BUSY, true);
        return;
    }
    buffer_append(&far->pieces, answer->records.data, size);
    fars->held += size;
    heard(fars, far->leader);
    far->answer_by_ms = fars->heard_ms + RPC_LEADER_WAIT_MS;
    if (answer->more) return;
    struct buffer pieces = far->pieces;
    fars->held -= pieces.size;
    far->pieces = (struct buffer){0};
    far->fetched = (struct rpc_fetched){.index = answer->index ? answer->index : 1,
                                        .found = answer->found,
                                        .none = answer->none,
                                        .known_leader = answer->known_leader,
                                        .last_contact_ms = answer->last_contact_ms};
    far->fetched.records = buffer_slice(&pieces);
    take_from(far, false);
    far->pieces = pieces;
    give_back(far, CO_OK);
}

/* The next leader may answer, or this one soon. */
static bool another_may(uint32_t outcome) {
    return outcome == CO_NOTLEADER || outcome == CO_FENCED || outcome == CO_CLOSED || outcome == CO_DISKFULL ||
           outcome == CO_AGAIN;
}

static void take_answer(struct fetch_far *far, const Pb__PeerFetched *answer) {
    if (answer->outcome == CO_OK) {
        take_piece(far, answer);
    } else if (another_may(answer->outcome)) {
        uint64_t now_ms = clock_mono_ms();
        uint64_t last_ms = now_ms + RPC_LEADER_WAIT_MS < far->most_ms ? now_ms + RPC_LEADER_WAIT_MS : far->most_ms;
        bool behind_others = answer->outcome == CO_AGAIN;
        if (behind_others) heard(far->fars, far->leader);
        if (behind_others && far->last_ms < last_ms) far->last_ms = last_ms;
        take_from(far, false);
        far->again_ms = now_ms + AGAIN_MS;
    } else {
        finish(far, answer->outcome < CO_ERROR_COUNT ? (int)answer->outcome : CO_IO, false);
    }
}

bool fetch_far_answered(struct fetches *fetches, uint64_t from, struct slice payload) {
    Pb__PeerFetched *answer = frame_unpack(&pb__peer_fetched__descriptor, payload, NULL);
    if (!answer) return false;
    struct fetch_far *far = *find(fetches->fars, answer->number);
    if (far && far->leader == from) take_answer(far, answer); /* else it ended meanwhile, or was asked again */
    frame_drop(answer);
    return true;
}

/* -- life --------------------------------------------------------------------------------------------------------- */
void fetch_far_new(struct fetches *fetches) {
    struct fetch_fars *fars = fetches->fars = mem_zalloc(sizeof *fars);
    fars->fetches = fetches;
    list_init(&fars->out);
    list_init(&fars->in);
    list_init(&fars->all);
}

void fetch_far_over(struct fetches *fetches, const struct fetch_far_edge *edge) {
    metric_register(&under_way);
    fetches->fars->edge = *edge;
}

/* All fetches have ended: each one's was sent out, or is freed. */
void fetch_far_stop(struct fetches *fetches) {
    if (fetches->fars->edge.tell) fetch_far_turn(fetches);
    CHECK(list_empty(&fetches->fars->all) && fetches->fars->count == 0);
}

void fetch_far_free(struct fetches *fetches) { free(fetches->fars); }
