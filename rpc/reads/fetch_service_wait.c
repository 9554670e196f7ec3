/* Deadlines of waiting fetches, and the end of a fetch: the read owner's functions (rpc/reads/read.h) for these. */
#include <stdlib.h>

#include "base/clock.h"
#include "rpc/reads/fetch_service_internal.h"

/* -- deadlines: a binary heap, places count from 1 ---------------------------------------------------------------- */
static void heap_put(struct fetch_service *fetches, uint32_t place, struct fetch *fetch) {
    fetches->heap[place] = fetch;
    fetch->place = place;
}

static void heap_sift(struct fetch_service *fetches, uint32_t place, struct fetch *fetch) {
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

static void heap_add(struct fetch_service *fetches, struct fetch *fetch) {
    if (fetches->heap_count + 1 >= fetches->heap_room) {
        fetches->heap_room = fetches->heap_room ? 2 * fetches->heap_room : 64;
        fetches->heap = mem_realloc(fetches->heap, fetches->heap_room * sizeof(struct fetch *));
    }
    heap_sift(fetches, ++fetches->heap_count, fetch);
}

static void heap_remove(struct fetch_service *fetches, struct fetch *fetch) {
    uint32_t place = fetch->place;
    if (place == 0) return;
    fetch->place = 0;
    struct fetch *last = fetches->heap[fetches->heap_count--];
    if (last != fetch) heap_sift(fetches, place, last);
}

uint64_t fetch_next_due(const struct fetch_service *fetches) {
    return fetches->heap_count ? fetches->heap[1]->deadline_ms : UINT64_MAX;
}

void fetch_due(struct fetch_service *fetches) {
    uint64_t now = clock_mono_ms();
    while (fetch_next_due(fetches) <= now) {
        struct fetch *fetch = fetches->heap[1];
        heap_remove(fetches, fetch);
        read_expired(&fetch->read);
    }
}

bool fetch_park(struct read *read) {
    struct fetch *fetch = fetch_of_read(read);
    struct fetch_service *fetches = fetch_service_of(fetch);
    if (fetches->parked >= FETCH_PARKED_MOST) {
        fetch_finish(fetch, CO_BUSY, NULL);
        return false;
    }
    uint64_t wait_ms = fetch_outer(fetch)->wait_ms;
    if (wait_ms > FETCH_WAIT_MOST_MS) wait_ms = FETCH_WAIT_MOST_MS;
    fetches->parked++;
    if (!fetch->deadline_ms)
        fetch->deadline_ms = clock_mono_ms() + wait_ms + rng_below(&fetches->rng, wait_ms / 16 + 1);
    heap_add(fetches, fetch);
    return true;
}

void fetch_unpark(struct read *read) {
    struct fetch *fetch = fetch_of_read(read);
    fetch_service_of(fetch)->parked--;
    heap_remove(fetch_service_of(fetch), fetch);
}

/* -- the end ------------------------------------------------------------------------------------------------------ */
static const char *cause_of(struct read *read, struct fetch_answer *answer) {
    if (answer->cause) return answer->cause;
    struct depends depends = fetch_depends(read);
    answer->cause = mem_alloc(RPC_CAUSE_MAX);
    read_cause(fetch_service_of(fetch_of_read(read))->reader, read->requester, &depends, answer->read.index,
               answer->cause);
    return answer->cause;
}

void fetch_answer(struct read *read, struct read_answer *read_answer, uint64_t least) {
    struct fetch_answer *answer = CONTAINER_OF(read_answer, struct fetch_answer, read);
    struct rpc_fetched fetched = {.index = read_answer->index > least ? read_answer->index : least,
                                  .found = answer->found,
                                  .none = answer->none,
                                  .records = slice_make(answer->bytes, read_answer->size),
                                  .hidden = read_answer->hidden,
                                  .view = read_answer->view};
    struct rpc_status status;
    rpc_status(read->engine->rpc, &status);
    fetched.known_leader = status.known_leader;
    fetched.last_contact_ms = status.last_contact_ms;
    if (read->parked && !read->expired && read_answer->index > read->index) fetched.cause = cause_of(read, answer);
    fetch_finish(fetch_of_read(read), CO_OK, &fetched);
}

void fetch_fail(struct read *read, int error) {
    struct fetch *fetch = fetch_of_read(read);
    bool refused = error == CO_DENIED || error == CO_NOTOKEN || error == CO_NOTREADY;
    if (refused) fetch_outer(fetch)->denial = read->engine->denial;
    if (error == CO_DISKFULL && !fetch_outer(fetch)->here) leader_read_begin(fetch);
    else fetch_finish(fetch, error, NULL);
}
