/* What becomes of a fetch: read, answered or parked, read again.
 *
 * (1) What is parked is in the watch table under its thing and in the heap of deadlines. (2) It entered the table
 * before the thing's generation, taken before the read, was found unchanged: no change falls between reading and
 * waiting. (3) It is armed before it is read again, so a change after that read fires again. (4) A result that
 * equals, byte for byte, what the client has is no answer while the wait lasts. */
#include <stdlib.h>

#include "base/clock.h"
#include "rpc/reads/fetch_internal.h"

/* -- deadlines: a binary heap, places count from 1 ---------------------------------------------------------------- */
static void heap_put(struct fetches *fetches, uint32_t place, struct fetch *fetch) {
    fetches->heap[place] = fetch;
    fetch->place = place;
}

static void heap_sift(struct fetches *fetches, uint32_t place, struct fetch *fetch) {
    struct fetch **heap = fetches->heap;
    for (; place > 1 && heap[place / 2]->deadline_ms > fetch->deadline_ms; place /= 2)
        heap_put(fetches, place, heap[place / 2]);
    for (uint32_t child; (child = 2 * place) <= fetches->heap_count; place = child) {
        if (child < fetches->heap_count && heap[child + 1]->deadline_ms < heap[child]->deadline_ms) child++;
        if (heap[child]->deadline_ms >= fetch->deadline_ms) break;
        heap_put(fetches, place, heap[child]);
    }
    heap_put(fetches, place, fetch);
}

static void heap_add(struct fetches *fetches, struct fetch *fetch) {
    if (fetches->heap_count + 1 >= fetches->heap_room) {
        fetches->heap_room = fetches->heap_room ? 2 * fetches->heap_room : 64;
        fetches->heap = mem_realloc(fetches->heap, fetches->heap_room * sizeof(struct fetch *));
    }
    heap_sift(fetches, ++fetches->heap_count, fetch);
}

static void heap_remove(struct fetches *fetches, struct fetch *fetch) {
    uint32_t place = fetch->place;
    if (place == 0) return;
    fetch->place = 0;
    struct fetch *last = fetches->heap[fetches->heap_count--];
    if (last != fetch) heap_sift(fetches, place, last);
}

uint64_t fetch_next_due(const struct fetches *fetches) {
    return fetches->heap_count ? fetches->heap[1]->deadline_ms : UINT64_MAX;
}

void fetch_due(struct fetches *fetches) {
    uint64_t now = clock_mono_ms();
    while (fetch_next_due(fetches) <= now) {
        struct fetch *fetch = fetches->heap[1];
        heap_remove(fetches, fetch);
        fetch->expired = true;
        fetch_again(fetch);
    }
}

/* -- parked ------------------------------------------------------------------------------------------------------- */
/* Applier thread, or whoever restores. */
static void fired(struct watch_waiter *waiter) {
    struct fetch *fetch = CONTAINER_OF(waiter, struct fetch, waiter);
    struct fetches *fetches = fetch->fetches;
    uv_mutex_lock(&fetches->lock);
    fetch->flags |= FETCH_FIRED;
    bool idle = list_empty(&fetches->fired);
    if (list_empty(&fetch->box)) list_append(&fetches->fired, &fetch->box);
    if (idle) fetch_wake(fetches);
    uv_mutex_unlock(&fetches->lock);
}

/* What the client has: what was read just now, if this server knew all up to the client's index. One that is behind,
 * as a stale read may find it, read what was before: when a thing is as it was again, to the client that is a
 * change. */
static void remember(struct fetch *fetch, struct fetch_answer *answer, struct watch_thing thing) {
    struct rpc *rpc = fetch->fetches->rpc;
    bool all = rpc_applied(rpc) >= fetch_outer(fetch)->index;
    fetch->seen = all && rpc_generation(rpc, thing) == answer->generation;
    if (!fetch->seen) return;
    fetch->seen_found = answer->found;
    fetch->seen_none = answer->none;
    fetch->seen_size = (uint32_t)answer->size;
    memcpy(fetch->seen_digest, fetch_digest(answer), sizeof fetch->seen_digest);
}

static bool seen_before(const struct fetch *fetch, struct fetch_answer *answer) {
    return fetch->seen && fetch->seen_found == answer->found && fetch->seen_none == answer->none &&
           fetch->seen_size == answer->size &&
           memcmp(fetch->seen_digest, fetch_digest(answer), sizeof fetch->seen_digest) == 0;
}

/* False: there are too many; it is over. */
static bool park(struct fetch *fetch, struct watch_thing thing) {
    struct fetches *fetches = fetch->fetches;
    if (fetches->parked >= FETCH_PARKED_MOST) {
        fetch_finish(fetch, CO_BUSY, NULL);
        return false;
    }
    uint64_t wait_ms = fetch_outer(fetch)->wait_ms;
    if (wait_ms > FETCH_WAIT_MOST_MS) wait_ms = FETCH_WAIT_MOST_MS;
    fetch->parked = true;
    fetches->parked++;
    watch_add(rpc_watches(fetches->rpc), &fetch->waiter, thing, fired);
    if (!fetch->deadline_ms)
        fetch->deadline_ms = clock_mono_ms() + wait_ms + rng_below(&fetches->rng, wait_ms / 16 + 1);
    heap_add(fetches, fetch);
    return true;
}

void fetch_unpark(struct fetch *fetch) {
    if (!fetch->parked) return;
    fetch->parked = false;
    fetch->fetches->parked--;
    heap_remove(fetch->fetches, fetch);
    watch_remove(rpc_watches(fetch->fetches->rpc), &fetch->waiter);
}

/* -- answering ---------------------------------------------------------------------------------------------------- */
static void answer_with(struct fetch *fetch, const struct fetch_answer *answer, struct watch_thing thing) {
    struct rpc *rpc = fetch->fetches->rpc;
    /* Not when the thing has changed since it was read: a floor that rose with that change does not belong to this. */
    uint64_t floor = rpc_floor(rpc), least = floor && rpc_generation(rpc, thing) == answer->generation ? floor : 1;
    struct rpc_fetched fetched = {.index = answer->index > least ? answer->index : least,
                                  .found = answer->found,
                                  .none = answer->none,
                                  .records = slice_make(answer->bytes, answer->size)};
    struct rpc_status status;
    rpc_status(rpc, &status);
    fetched.known_leader = status.known_leader;
    fetched.last_contact_ms = status.last_contact_ms;
    fetch_finish(fetch, CO_OK, &fetched);
}

static void deliver_first(struct fetch *fetch, struct fetch_answer *answer, struct watch_thing thing) {
    const struct rpc_fetch *outer = fetch_outer(fetch);
    struct rpc *rpc = fetch->fetches->rpc;
    /* Below the floor removals are forgotten. Above what is applied, although that is confirmed to be all: an index
     * of another cluster's life. Both get the present state; stale, this server may just be behind. */
    bool foreign = outer->freshness != RPC_STALE && outer->index > rpc_applied(rpc);
    bool wait = outer->index > 0 && outer->index >= rpc_floor(rpc) && !foreign && answer->index <= outer->index;
    if (!wait) {
        answer_with(fetch, answer, thing);
        return;
    }
    remember(fetch, answer, thing);
    if (park(fetch, thing) && rpc_generation(rpc, thing) != answer->generation) fetch_again(fetch);
}

static void deliver_again(struct fetch *fetch, struct fetch_answer *answer, struct watch_thing thing) {
    bool older = answer->index <= fetch_outer(fetch)->index, same = older || seen_before(fetch, answer);
    if (older && !fetch->seen) remember(fetch, answer, thing);
    if (!same || fetch->expired) answer_with(fetch, answer, thing);
    else if (fetch->again) fetch_again(fetch);
}

void fetch_deliver(struct fetch *fetch, struct fetch_answer *answer, struct watch_thing thing) {
    if (fetch->parked) deliver_again(fetch, answer, thing);
    else deliver_first(fetch, answer, thing);
}

/* -- reading ------------------------------------------------------------------------------------------------------ */
void fetch_wish(struct fetch *fetch) {
    struct fetches *fetches = fetch->fetches;
    bool stale = fetch_outer(fetch)->freshness == RPC_STALE;
    list_append(stale ? &fetches->unasked : &fetches->confirming, &fetch->queue);
}

void fetch_again(struct fetch *fetch) {
    fetch->again = fetch->building; /* that comes first */
    if (list_empty(&fetch->queue) && !fetch->building) fetch_wish(fetch);
}

void fetch_confirmed(struct fetch *fetch, int error) {
    struct fetches *fetches = fetch->fetches;
    if (!error) error = rpc_serves(fetches->rpc);
    if (error == CO_DISKFULL && !fetch_outer(fetch)->here) {
        leader_read_begin(fetch);
        return;
    }
    if (error) {
        fetch_finish(fetch, error, NULL);
        return;
    }
    struct fetch_answer *answer = fetch_kept(fetch);
    struct watch_thing thing;
    if (answer) {
        thing = fetch_thing(answer->type, fetch_request(fetch), &fetches->arena);
        if (rpc_generation(fetches->rpc, thing) == answer->generation) answer->references++;
        else answer = NULL;
    }
    if (!answer) {
        error = fetch_read(fetches->rpc, fetches->reader, &fetches->arena, fetch_outer(fetch)->type,
                           fetch_request(fetch), FETCH_WALK_MOST, &thing, &answer);
        if (!error) fetch_keep(fetches, answer);
    }
    if (!error) fetch_deliver(fetch, answer, thing);
    else if (error == CO_AGAIN) fetch_large_add(fetch);
    else fetch_finish(fetch, error, NULL);
    fetch_answer_drop(answer);
    arena_reset(&fetches->arena);
}
