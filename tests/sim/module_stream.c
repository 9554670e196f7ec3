/* Streams: clients follow some keys and prefixes, each time at any server, from the position that they have; some ask
 * once more from an old one. The model is that of the keys (module_kv.c): what a server tells is exactly the changes
 * between the position that it was asked from and the one that it gives back, each as it was, in order; or `gap`, and
 * that only where its history does not reach back and something has changed. Since a client goes on from the position
 * that it was given, nothing comes twice and nothing is left out however many servers it asks. */
#include "kv/stream/stream.h"

#include "base/check.h"
#include "base/hash.h"
#include "tests/sim/modules.h"

#define P PRIu64

enum { TARGETS_MAX = 3 };
struct stream_own {
    uint64_t from, at; /* positions: asked from, given; index 0: none */
    uint64_t sum;      /* of the events, index by index */
    uint32_t from_place, at_place, back;
    uint16_t done, mask; /* keys: that the client has of `from`'s index; that were seen of the last index */
    uint16_t count;
    uint8_t from_topic, at_topic, targets[TARGETS_MAX], target_count;
    bool old, small; /* asks from `back` before its position; for few bytes */
    bool gap, off, reset;
};
static const struct stream_own *own_of(const struct op *op) { return OP_AS(const struct stream_own, op); }

/* -- clients ---------------------------------------------------------------------------------------------------------- */

struct plan {
    uint8_t targets[TARGETS_MAX], count;
};
struct known {
    uint64_t index;
    uint32_t place;
    uint16_t done;
    uint8_t topic;
};

static bool generate(struct sim_turn *turn, struct op *op) {
    struct plan *plan = turn->plan;
    struct stream_own *own = OP_AS(struct stream_own, op);
    if (plan->count == 0) {
        plan->count = (uint8_t)turn_random(turn, 1, TARGETS_MAX);
        for (size_t i = 0; i < plan->count; i++)
            plan->targets[i] = (uint8_t)turn_random(turn, 0, SIM_KEYS + SIM_PREFIXES - 1);
    }
    op->module = &sim_stream;
    op->way = OP_READ;
    op->stale = turn_chance(turn, 700);
    memcpy(own->targets, plan->targets, sizeof own->targets);
    own->target_count = plan->count;
    own->small = turn_chance(turn, 300);
    own->old = turn_chance(turn, 250);
    if (own->old) own->back = (uint32_t)turn_random(turn, 1, turn_chance(turn, 500) ? 30 : 600);
    else if (turn_chance(turn, 600)) op->wait_us = turn_random(turn, 50, 1000) * MS;
    return true;
}

static bool complete(void *data, struct op *op) {
    const struct known *known = data;
    struct stream_own *own = OP_AS(struct stream_own, op);
    if (own->old) {
        own->from = known->index > own->back ? known->index - own->back : known->index;
        return own->from > 0;
    }
    own->from = known->index, own->from_topic = known->topic, own->from_place = known->place, own->done = known->done;
    op->known_index = own->from - (own->from_topic != 0);
    if (own->from == 0) op->wait_us = 0;
    return true;
}

static void learn(void *data, const struct op *op) {
    struct known *known = data;
    const struct stream_own *own = own_of(op);
    if (op->state != OP_DONE || own->old) return;
    uint16_t before = own->at == own->from ? own->done : 0;
    *known = (struct known){.index = own->off ? 0 : own->at, .place = own->at_place, .topic = own->at_topic};
    if (own->at_topic) known->done = (uint16_t)(before | own->mask);
}

static const ProtobufCMessage *request(const struct op *op, struct arena *arena, const struct query_type **type) {
    const struct stream_own *own = own_of(op);
    Pb__StreamRequest *request = arena_alloc(arena, sizeof *request);
    pb__stream_request__init(request);
    request->subscriptions = arena_alloc(arena, TARGETS_MAX * sizeof *request->subscriptions);
    for (size_t i = 0; i < own->target_count; i++) {
        Pb__StreamSubscription *one = arena_alloc(arena, sizeof *one);
        char *name = arena_alloc(arena, 16);
        pb__stream_subscription__init(one);
        kv_target_name(own->targets[i], name);
        one->kind = own->targets[i] < SIM_KEYS ? PB__STREAM_KIND__STREAM_KEY : PB__STREAM_KIND__STREAM_PREFIX;
        one->name = (ProtobufCBinaryData){strlen(name), (uint8_t *)name};
        request->subscriptions[request->n_subscriptions++] = one;
    }
    request->bytes_most = own->small ? 1 + (uint32_t)(op->id % 200) : 0;
    *type = &query_stream;
    if (own->from == 0) return &request->base;
    request->from = arena_alloc(arena, sizeof *request->from);
    pb__stream_position__init(request->from);
    request->from->index = own->from, request->from->topic = own->from_topic, request->from->place = own->from_place;
    return &request->base;
}

/* -- what is seen: index by index, at each the keys in any order ------------------------------------------------------ */

struct sums {
    uint64_t sum, index, here; /* here: of the keys at that index */
    uint16_t mask;             /* of them */
    uint16_t count;
    bool bad; /* an index went back, or a key came twice at one */
};

static void sums_close(struct sums *sums) {
    uint64_t all[] = {sums->sum, sums->index, sums->here};
    if (sums->mask) sums->sum = hash64(all, sizeof all);
    sums->here = 0;
}

static void sums_add(struct sums *sums, uint64_t index, uint32_t key, uint64_t sum) {
    if (index != sums->index) {
        sums_close(sums);
        sums->bad |= index < sums->index;
        sums->index = index, sums->mask = 0;
    }
    sums->bad |= key >= SIM_KEYS || (sums->mask >> key & 1);
    sums->mask = (uint16_t)(sums->mask | 1u << key);
    sums->here += sum;
    sums->count++;
}

static uint64_t gone_sum(uint32_t key) { return kv_version_sum(key, &(struct key_version){.gone = true}); }

static uint64_t event_sum(const Pb__StreamEvent *event, uint32_t key) {
    if (event->gone) return gone_sum(key);
    Pb__KvEntry *entry = pb__kv_entry__unpack(NULL, event->record.len, event->record.data);
    uint64_t sum = entry ? kv_entry_sum(entry) : 0;
    if (entry) pb__kv_entry__free_unpacked(entry, NULL);
    return sum;
}

static void seen(struct op *op, const struct query_result *result) {
    struct stream_own *own = OP_AS(struct stream_own, op);
    const Pb__StreamResult *told = (const Pb__StreamResult *)result->message;
    struct sums sums = {0};
    own->gap = told->gap, own->off = told->off, own->reset = told->reset;
    op->quiet = told->off;
    own->at = told->position->index, own->at_topic = (uint8_t)told->position->topic,
    own->at_place = told->position->place;
    for (size_t i = 0; i < told->n_events; i++) {
        const Pb__StreamEvent *event = told->events[i];
        uint32_t key = kv_key_number(slice_make(event->name.data, event->name.len));
        sums_add(&sums, event->position->index, key, event_sum(event, key));
    }
    sums_close(&sums);
    own->sum = sums.bad ? UINT64_MAX : sums.sum;
    own->count = sums.count, own->mask = sums.mask;
}

/* -- judging ---------------------------------------------------------------------------------------------------------- */

struct reach {
    uint64_t floor;
    bool off;
};

static void reach_seen(void *data, const struct query_result *result) {
    const Pb__KvPastResult *past = (const Pb__KvPastResult *)result->message;
    *(struct reach *)data = (struct reach){.floor = past->floor, .off = past->off};
}

/* How far back this server's history goes. */
static struct reach reach_of(struct server *server) {
    struct reach reach = {0};
    Pb__KvPastRequest request = PB__KV_PAST_REQUEST__INIT;
    uint8_t key = 'k';
    Pb__KvMoment moment = PB__KV_MOMENT__INIT;
    moment.index = 1;
    request.key = (ProtobufCBinaryData){1, &key}, request.at = &moment;
    sim_query(server, &query_kv_past, &request.base, reach_seen, &reach);
    return reach;
}

static bool follows(const struct stream_own *own, uint32_t key) {
    for (size_t i = 0; i < own->target_count; i++)
        if (kv_is_target(own->targets[i], key)) return true;
    return false;
}

/* The next index after this one at which something changed, up to `most`; 0: there is none. */
static uint64_t next_change(struct sim *sim, const struct stream_own *own, uint64_t after, uint64_t most) {
    uint64_t next = 0;
    for (uint32_t key = 0; key < SIM_KEYS; key++) {
        const struct key_version *version = follows(own, key) ? kv_after(sim, key, after) : NULL;
        if (version && version->index <= most && (next == 0 || version->index < next)) next = version->index;
    }
    return next;
}

static uint16_t changed_at(struct sim *sim, const struct stream_own *own, uint64_t index) {
    unsigned mask = 0;
    for (uint32_t key = 0; key < SIM_KEYS; key++)
        if (follows(own, key) && kv_at(sim, key, index)->index == index) mask |= 1u << key;
    return (uint16_t)mask;
}

static void judge_events(struct sim *sim, const struct op *op, uint64_t after) {
    const struct stream_own *own = own_of(op);
    struct sums sums = {0};
    bool part_fits = true;
    /* A server that is behind tells nothing, and the position stays in the middle of its entry. */
    if (own->at == own->from && own->at_topic && own->count == 0 && op->index < own->from) return;
    for (uint64_t index; (index = next_change(sim, own, after, own->at)) != 0; after = index) {
        unsigned keys = changed_at(sim, own, index);
        if (index == own->from) keys &= ~(unsigned)own->done;
        if (index == own->at && own->at_topic) {
            part_fits = own->mask && (own->mask & ~keys) == 0 && own->mask != keys;
            keys = own->mask;
        }
        for (uint32_t key = 0; key < SIM_KEYS; key++) {
            const struct key_version *version = kv_at(sim, key, index);
            if (keys >> key & 1)
                sums_add(&sums, index, key, version->gone ? gone_sum(key) : kv_version_sum(key, version));
        }
    }
    sums_close(&sums);
    if (own->count != sums.count || own->sum != sums.sum || !part_fits)
        sim_violation(sim, RULE_MODEL,
                      "stream %" P " at s%u, applied %" P ": %u events from %" P ".%u to %" P ".%u, expected %u%s",
                      op->id, op->server + 1, op->index, own->count, own->from, own->from_place, own->at, own->at_place,
                      sums.count, own->count == sums.count ? ", others" : "");
    if (own->count == 0 && own->at != (own->from > op->index ? own->from : op->index))
        sim_violation(sim, RULE_MODEL, "stream %" P " at s%u, applied %" P ": it goes on from %" P, op->id,
                      op->server + 1, op->index, own->at);
}

static void judge_read(struct sim *sim, const struct op *op) {
    const struct stream_own *own = own_of(op);
    struct reach reach = reach_of(sim->servers[op->server]);
    uint64_t after = own->from - (own->from_topic != 0);
    bool below = own->from && !reach.off && after < reach.floor;
    bool gap = below && next_change(sim, own, after, op->index) != 0;
    if (own->off != reach.off || own->reset)
        sim_violation(sim, RULE_MODEL, "stream %" P " at s%u, applied %" P ": %s", op->id, op->server + 1, op->index,
                      own->reset ? "a reset, and no backup was restored"
                                 : "another word than ?at= on whether there is a history");
    else if (own->gap != gap)
        sim_violation(sim, RULE_MODEL,
                      "stream %" P " at s%u, applied %" P ": %s after %" P ", the history goes back to %" P, op->id,
                      op->server + 1, op->index, own->gap ? "a gap" : "no gap", after, reach.floor);
    else if (gap || reach.off || own->from == 0) {
        if (own->count || own->at != op->index || own->at_topic)
            sim_violation(sim, RULE_MODEL, "stream %" P " at s%u, applied %" P ": it begins at %" P " with %u events",
                          op->id, op->server + 1, op->index, own->at, own->count);
    } else {
        judge_events(sim, op, after);
    }
}

/* Each server tells the same of all keys, from any index on. */
static void judge_end(struct sim *sim, struct server *server) {
    (void)sim;
    for (uint32_t target = 0; target < SIM_KEYS + SIM_PREFIXES; target++) {
        struct op op = {.module = &sim_stream, .way = OP_READ};
        struct stream_own *own = OP_AS(struct stream_own, &op);
        own->targets[0] = (uint8_t)target, own->target_count = 1;
        own->from = server->machine.applied > target * 11 ? server->machine.applied - target * 11 : 1;
        op_judge(server, &op);
    }
}

const struct sim_module sim_stream = {
    .name = "stream",
    .module = &stream_module,
    .pace = {.clients_least = 1, .clients_most = 3, .think_least_ms = 10, .think_most_ms = 100, .open_most = 1},
    .plan_size = sizeof(struct plan),
    .known_size = sizeof(struct known),
    .generate = generate,
    .complete = complete,
    .learn = learn,
    .request = request,
    .seen = seen,
    .check_read = judge_read,
    .check_end = judge_end,
};
