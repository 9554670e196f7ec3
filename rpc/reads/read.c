#include "rpc/reads/read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/wakeup_batch.h"
#include "kv/stream/stream.h"

#define CONFIRM_MANY 64

struct depends depends_of(const struct query_type *type, const ProtobufCMessage *request) {
    struct depends depends = {.watched = type->watched(request), .type = type, .request = request};
    if (type->also) depends.also = type->also(request);
    return depends;
}

/* -- confirmations ------------------------------------------------------------------------------------------------ */
struct read_gate {
    struct post post;
    struct read_engine *engine;
    struct rpc_read_index rpc;
    struct list waiting; /* reads */
    int error;
};

static void gate_recycle(struct read_gate *gate) {
    if (gate->engine->spare) free(gate);
    else gate->engine->spare = gate;
}

static void confirm_all(struct list *waiting, int error) {
    while (!list_empty(waiting)) {
        struct read *read = LIST_ENTRY(waiting->next, struct read, link);
        list_remove(&read->link);
        read->engine->owner->confirmed(read, error);
    }
}

static void gate_taken(void *taker, struct post *post) {
    struct read_gate *gate = CONTAINER_OF(post, struct read_gate, post);
    struct list waiting;
    (void)taker;
    list_init(&waiting);
    list_splice(&waiting, &gate->waiting);
    int error = gate->error;
    gate->engine->gates--;
    gate_recycle(gate);
    confirm_all(&waiting, error);
}

/* Loop thread. */
static void gate_done(struct rpc_read_index *rpc, int error) {
    struct read_gate *gate = CONTAINER_OF(rpc, struct read_gate, rpc);
    gate->error = error;
    gate->engine->owner->post(gate->engine, &gate->post);
}

/* Asks for a confirmation. CO_AGAIN: all of `waiting` moved to the gate. */
static int gate_ask(struct read_engine *engine, struct list *waiting) {
    struct read_gate *gate = engine->spare ? engine->spare : mem_zalloc(sizeof *gate);
    engine->spare = NULL;
    gate->engine = engine;
    gate->post.taken = gate_taken;
    gate->rpc.done = gate_done;
    list_init(&gate->waiting);
    int error = rpc_read_index(engine->rpc, RPC_DEFAULT, &gate->rpc);
    if (error == CO_AGAIN) {
        list_splice(&gate->waiting, waiting);
        engine->gates++;
    } else {
        gate_recycle(gate);
    }
    return error;
}

int read_confirm(struct read *read) {
    struct read_engine *engine = read->engine;
    if (engine->asked) {
        list_append(&engine->confirming, &read->link);
        if (++engine->asked_after % CONFIRM_MANY == 0) wakeup_batch_flush(); /* sends the questions so far */
        return CO_AGAIN;
    }
    struct list one;
    list_init(&one);
    list_append(&one, &read->link);
    engine->asked_after = 0;
    int error = gate_ask(engine, &one);
    if (error == CO_AGAIN) engine->asked = true;
    else list_remove(&read->link);
    return error;
}

void read_turn_end(struct read_engine *engine) {
    engine->asked = false;
    if (list_empty(&engine->confirming)) return;
    struct list waiting;
    list_init(&waiting);
    list_splice(&waiting, &engine->confirming);
    int error = gate_ask(engine, &waiting);
    if (error != CO_AGAIN) confirm_all(&waiting, error);
}

/* -- one look at the state ---------------------------------------------------------------------------------------- */
int read_run(const struct read_engine *engine, struct rpc_reader *reader, struct arena *arena,
             const struct query_type *type, const ProtobufCMessage *request, const struct requester *requester,
             size_t limit, read_write write, void *data, struct read_answer **answer) {
    struct query_result result = {0};
    const struct access *access = access_all;
    size_t hidden = 0;
    *answer = NULL;
    wakeup_batch_flush(); /* it may take long */
    struct store_txn *txn = rpc_read_begin(reader);
    if (limit) store_read_limit(txn, limit);
    int error = type->run(txn, request, arena, &result);
    if (!error) error = rpc_show(reader, requester, type, request, arena, &result, &hidden); /* it may walk, too */
    if (limit && store_read_limit_hit(txn)) error = CO_AGAIN;
    /* The floor of the same transaction counts, because after a restore the records' own indexes are older than those
     * that clients have. */
    uint64_t floor = error ? 0 : machine_floor(txn);
    if (!error) error = store_txn_error(txn);
    if (!error) error = rpc_access(reader, requester, &access);
    if (result.index < floor) result.index = floor;
    if (!error) error = write(data, &result, answer);
    if (*answer) (*answer)->view = access_view(access), (*answer)->hidden = hidden;
    rpc_read_end(reader);
    arena_reset(arena);
    if (error == CO_CORRUPT) rpc_met_damage(engine->rpc);
    if (!error && rpc_serves(engine->rpc) != CO_OK) { /* the store was fenced meanwhile */
        engine->owner->drop(*answer);
        *answer = NULL;
        error = CO_FENCED;
    }
    return error;
}

void read_cause(struct rpc_reader *reader, const struct requester *requester, const struct depends *depends,
                uint64_t index, char text[RPC_CAUSE_MAX]) {
    struct arena arena = {0};
    struct buffer line = {0};
    text[0] = '\0';
    if (depends->type->own) return; /* it waited for several things */
    const struct access *access;
    struct store_txn *txn = rpc_read_begin(reader);
    if (rpc_access(reader, requester, &access) == CO_OK &&
        stream_cause(txn, access, depends->watched, index, &arena, &line))
        snprintf(text, RPC_CAUSE_MAX, "%.*s", (int)line.size, line.data);
    rpc_read_end(reader);
    buffer_free(&line);
    arena_free(&arena);
}

static void read_now(struct read *read) {
    struct read_engine *engine = read->engine;
    const struct read_owner *owner = engine->owner;
    struct depends depends = owner->depends(read);
    uint64_t generation = depends_generation(engine->rpc, &depends);
    struct read_answer *answer = NULL;
    const struct access *access;
    read->access_generation = rpc_access_generation(engine->rpc);
    int error = rpc_serves(engine->rpc);
    engine->denial = rpc_denial(engine->reader);
    if (!error) error = rpc_access(engine->reader, read->requester, &access);
    if (!error && !read->alone) {
        answer = owner->find(read, generation, access_view(access));
        if (!answer && large_join(read, generation)) return;
    }
    bool found = answer != NULL;
    if (!error && !found) error = owner->run(read, read->alone ? 0 : READ_WALK_MOST, &answer);
    if (error == CO_AGAIN) {
        if (large_start(read, generation)) return;
        error = owner->run(read, 0, &answer);
    }
    if (error) {
        owner->fail(read, error);
        return;
    }
    if (!found) {
        answer->generation = generation;
        if (!read->alone) owner->keep(engine, answer);
    }
    read_deliver(read, answer, &depends, true);
}

/* Reads the floor before the generation: a floor that rose with a later change does not belong to this answer. */
uint64_t read_index_least(const struct read_engine *engine, const struct depends *depends, uint64_t generation) {
    uint64_t floor = rpc_floor(engine->rpc);
    return floor && depends_generation(engine->rpc, depends) == generation ? floor : 1;
}

/* -- waiting ------------------------------------------------------------------------------------------------------ */
/* May the read wait for an index above its own? Not below the floor, where removals are forgotten. Not above the
 * applied index, if that was confirmed to be current: then the index is from another cluster's life. Both get the
 * present state. For a stale read, the server may just be behind. */
static bool may_wait(const struct read *read) {
    struct rpc *rpc = read->engine->rpc;
    bool foreign = !read->stale && read->index > rpc_applied(rpc);
    return read->index > 0 && read->index >= rpc_floor(rpc) && !foreign && !read->engine->stopping;
}

/* Remembers the answer as the one that the client has, if this server had applied everything up to the client's index.
 * A server that is behind (for a stale read) may have read an older state than the client has; if the state becomes
 * like that again, it is a change for the client. */
static void remember(struct read *read, struct read_answer *answer, bool current) {
    if (!current || rpc_applied(read->engine->rpc) < read->index) return;
    read->seen_tag = answer->tag;
    read->seen_size = (uint32_t)answer->size;
    memcpy(read->seen_digest, read->engine->owner->digest(answer), sizeof read->seen_digest);
}

static bool seen_before(const struct read *read, struct read_answer *answer) {
    return read->seen_tag == answer->tag && read->seen_size == answer->size &&
           memcmp(read->seen_digest, read->engine->owner->digest(answer), sizeof read->seen_digest) == 0;
}

/* Confirms, and reads once more. */
static void look_again(struct read *read) {
    read->again = read->build != NULL; /* the build has to end first */
    if (read->build || !list_empty(&read->link)) return;
    read_begin(read, false);
}

/* The further watch keys of a parked read: those of its query, and that of access control. */
struct read_owns {
    size_t count;
    struct read_own {
        struct watch_waiter waiter;
        struct read *read;
    } items[];
};

/* Applier thread. The flag of the read's first waiter counts for all its waiters: the owner is told once until the read
 * is armed again. */
static void own_fired(struct watch_waiter *waiter) {
    struct read *read = CONTAINER_OF(waiter, struct read_own, waiter)->read;
    if (atomic_exchange(&read->waiter.armed, false)) read->engine->owner->fired(&read->waiter);
}

static void owns_add(struct read *read, const struct depends *depends) {
    struct rpc *rpc = read->engine->rpc;
    size_t count = 0;
    while (depends_own(depends, count).space) count++;
    bool controlled = read->requester && rpc_access_controlled(rpc);
    size_t all = count + controlled;
    if (all == 0) return;
    read->owns = mem_zalloc(sizeof *read->owns + all * sizeof read->owns->items[0]);
    for (size_t i = 0; i < all; i++) {
        struct read_own *own = &read->owns->items[i];
        own->read = read;
        struct watch_key watched = i < count ? depends_own(depends, i) : rpc_access_changes(rpc);
        watch_add(rpc_watches(rpc), &own->waiter, watched, own_fired);
    }
    read->owns->count = all;
}

static void owns_remove(struct read *read) {
    if (!read->owns) return;
    for (size_t i = 0; i < read->owns->count; i++)
        watch_remove(rpc_watches(read->engine->rpc), &read->owns->items[i].waiter);
    free(read->owns);
    read->owns = NULL;
}

static void park(struct read *read, const struct depends *depends, uint64_t generation) {
    struct read_engine *engine = read->engine;
    if (!engine->owner->park(read)) return;
    read->parked = true;
    watch_add(rpc_watches(engine->rpc), &read->waiter, depends->watched, engine->owner->fired);
    owns_add(read, depends);
    bool changed = depends_generation(engine->rpc, depends) != generation;
    if (read->requester) changed |= rpc_access_generation(engine->rpc) != read->access_generation;
    if (changed) look_again(read);
}

static bool answers(struct read *read, struct read_answer *answer, bool current) {
    bool newer = answer->index > read->index, others = (read->parked || read->view) && answer->view != read->view;
    read->view = answer->view;
    if (others) return true; /* (5) */
    if (!read->parked) {
        if (newer || !may_wait(read)) return true;
        remember(read, answer, current);
        return false;
    }
    bool same = !newer || seen_before(read, answer);
    if (!newer && !read->seen_tag) remember(read, answer, current);
    if (!same || read->expired || read->engine->stopping) return true;
    read->engine->unchanged++;
    return false;
}

/* Drops the answer before anything else is read, because the owner may drop ready answers to make room. */
void read_deliver(struct read *read, struct read_answer *answer, const struct depends *depends, bool own) {
    struct read_engine *engine = read->engine;
    const struct read_owner *owner = engine->owner;
    uint64_t generation = answer->generation;
    bool current = depends_generation(engine->rpc, depends) == generation, over = answers(read, answer, current);
    if (over) owner->answer(read, answer, read_index_least(engine, depends, generation));
    if (own) owner->drop(answer);
    if (over) return;
    if (!read->parked) park(read, depends, generation);
    else if (read->again) look_again(read);
}

/* -- from outside ------------------------------------------------------------------------------------------------- */
void read_init(struct read *read, struct read_engine *engine) {
    read->engine = engine;
    list_init(&read->link);
}

void read_begin(struct read *read, bool confirmed) {
    read->stale = read->engine->owner->stale(read);
    int error = read->stale || confirmed ? CO_OK : read_confirm(read);
    if (error != CO_AGAIN) read_confirmed(read, error);
}

void read_confirmed(struct read *read, int error) {
    if (error) read->engine->owner->fail(read, error);
    else read_now(read);
}

void read_fired(struct read *read) {
    if (!read->parked) return;
    watch_arm(&read->waiter); /* first: one of `owns` that fired before this would be lost, and stay unarmed */
    for (size_t i = 0; read->owns && i < read->owns->count; i++) watch_arm(&read->owns->items[i].waiter);
    look_again(read);
}

void read_expired(struct read *read) {
    read->expired = true;
    look_again(read);
}

void read_hurry(struct read *read) {
    if (!read->parked || read->build || !list_empty(&read->link)) return;
    read->expired = true;
    read_now(read);
}

void read_end(struct read *read) {
    large_leave(read);
    list_remove(&read->link);
    if (!read->parked) return;
    read->parked = false;
    read->engine->owner->unpark(read);
    owns_remove(read);
    watch_remove(rpc_watches(read->engine->rpc), &read->waiter);
}

void read_engine_init(struct read_engine *engine) { list_init(&engine->confirming); }

void read_engine_free(struct read_engine *engine) {
    CHECK(list_empty(&engine->confirming) && engine->gates == 0);
    large_forget(engine);
    free(engine->spare);
    engine->spare = NULL;
}
