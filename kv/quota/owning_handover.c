/* Handing keys over to other members. */
#include <stdlib.h>

#include "base/check.h"
#include "base/error.h"
#include "base/message.h"
#include "kv/quota/owning_internal.h"

#define RETRY_MS      200
#define RETRY_MOST_MS 5000
#define PACK_MOST     (OWNING_MESSAGE_MOST - QUOTA_KEY_MOST - 1024) /* a message of this size is full */

/* -- messages ----------------------------------------------------------------------------------------------------- */

void owning_out_add(struct owning *owning, struct owning_budget *budget, enum owning_out_kind kind, const char *node,
                    uint64_t lease, const Pb__QuotaPeer *peer) {
    struct owning_out *out = mem_zalloc(sizeof *out);
    size_t size = protobuf_c_message_get_packed_size(&peer->base);
    char *bytes = mem_alloc(size + 1);
    out->payload = slice_make(bytes, protobuf_c_message_pack(&peer->base, (uint8_t *)bytes));
    CHECK(out->payload.size == size && node);
    out->id = ++owning->messages;
    out->attempt = budget->hand.attempt;
    out->budget = budget;
    out->kind = kind;
    out->node = mem_strdup(node);
    out->to_lease = lease;
    list_append(&owning->outbox, &out->link);
    owning_due(owning, 0);
}

static void out_free(struct owning_out *out) {
    list_remove(&out->link);
    free((char *)(uintptr_t)out->payload.data);
    free(out->node);
    free(out);
}

static void drop(struct owning *owning, const struct owning_budget *budget, bool all) {
    LIST_FOREACH_SAFE(item, next, &owning->outbox) {
        struct owning_out *out = LIST_ENTRY(item, struct owning_out, link);
        if (out->budget == budget && (all || out->kind == OUT_HAND)) out_free(out);
    }
    LIST_FOREACH(item, &owning->under_way) {
        struct owning_out *out = LIST_ENTRY(item, struct owning_out, link);
        if (out->budget == budget && (all || out->kind == OUT_HAND)) out->void_ = true;
    }
}

void owning_out_drop(struct owning *owning, const struct owning_budget *budget) { drop(owning, budget, true); }

void owning_out_free(struct owning *owning) {
    LIST_FOREACH_SAFE(item, next, &owning->outbox) out_free(LIST_ENTRY(item, struct owning_out, link));
    LIST_FOREACH_SAFE(item, next, &owning->under_way) out_free(LIST_ENTRY(item, struct owning_out, link));
}

static bool may_go(const struct owning_out *out) { return out->budget->sending < OWNING_SENDS_MOST; }

bool owning_out_ready(const struct owning *owning) {
    LIST_FOREACH(item, &owning->outbox) {
        const struct owning_out *out = LIST_ENTRY(item, struct owning_out, link);
        if (!out->not_before_ns && may_go(out)) return true; /* ticks wake those that wait for their time */
    }
    return false;
}

static Pb__QuotaPeer peer_of(const struct owning_budget *budget, uint64_t to_lease) {
    Pb__QuotaPeer peer = PB__QUOTA_PEER__INIT;
    peer.name = budget->name;
    peer.epoch = budget->epoch;
    peer.from_lease = budget->lease;
    peer.to_lease = to_lease;
    return peer;
}

/* Collects buckets for one member, and sends them in as many messages as they need. */
struct parcel {
    const char *node;
    uint64_t lease;
    struct arena arena;
    Pb__QuotaBucket **buckets;
    size_t count, room, bytes;
};

static Pb__QuotaStep **steps_of(const struct owning_budget *budget, struct arena *arena, uint64_t now_ns) {
    Pb__QuotaStep **steps = arena_alloc(arena, (budget->step_count + 1) * sizeof(Pb__QuotaStep *));
    for (size_t i = 0; i < budget->step_count; i++) {
        const struct owning_step *from = &budget->steps[i];
        Pb__QuotaStep *step = steps[i] = arena_alloc(arena, sizeof *step);
        pb__quota_step__init(step);
        step->index = from->index;
        step->age_ns = now_ns > from->seen_ns ? now_ns - from->seen_ns : 0;
        step->window = from->window_s;
    }
    return steps;
}

static void parcel_send(struct owning *owning, struct owning_budget *budget, struct parcel *parcel, bool leaving,
                        uint64_t now_ns) {
    Pb__QuotaPeer peer = peer_of(budget, parcel->lease);
    Pb__QuotaHandOver hand = PB__QUOTA_HAND_OVER__INIT;
    CHECK(budget->lease && budget->notice && parcel->node);
    hand.attempt = budget->hand.attempt;
    hand.leaving = leaving;
    hand.defined_index = budget->notice->defined_index;
    hand.buckets = parcel->buckets, hand.n_buckets = parcel->count;
    hand.steps = steps_of(budget, &parcel->arena, now_ns), hand.n_steps = budget->step_count;
    hand.leavers = budget->leavers, hand.n_leavers = budget->leaver_count;
    peer.hand_over = &hand;
    owning_out_add(owning, budget, OUT_HAND, parcel->node, parcel->lease, &peer);
    budget->hand.left++;
    arena_reset(&parcel->arena);
    parcel->buckets = NULL;
    parcel->count = parcel->room = parcel->bytes = 0;
}

static void parcel_add(struct owning *owning, struct owning_budget *budget, struct parcel *parcel,
                       const struct owning_bucket *from, bool leaving, uint64_t now_ns) {
    enum { EACH = 64 };
    if (parcel->bytes + from->key_size + EACH > PACK_MOST) parcel_send(owning, budget, parcel, leaving, now_ns);
    if (parcel->count == parcel->room) {
        parcel->room = parcel->room ? 2 * parcel->room : 16;
        Pb__QuotaBucket **wider = arena_alloc(&parcel->arena, parcel->room * sizeof *wider);
        if (parcel->count) memcpy(wider, parcel->buckets, parcel->count * sizeof *wider);
        parcel->buckets = wider;
    }
    struct owning_id id = owning_bucket_id(from);
    Pb__QuotaBucket *bucket = parcel->buckets[parcel->count++] = arena_alloc(&parcel->arena, sizeof *bucket);
    const struct owning_split *split = id.slot ? owning_split_find(budget, id.key) : NULL;
    pb__quota_bucket__init(bucket);
    bucket->key = message_bytes(id.key); /* points into the table, which does not change before the message is packed */
    if (split) bucket->split = split->index, bucket->part = id.slot - 1;
    bucket->tokens = from->tokens, bucket->rest = from->rest;
    bucket->window = from->window_s;
    bucket->owed = from->owed;
    parcel->bytes += id.key.size + EACH;
}

static void parcels_send(struct owning *owning, struct owning_budget *budget, struct parcel *parcels, size_t count,
                         bool leaving, uint64_t now_ns) {
    for (size_t i = 0; i < count; i++) {
        if (parcels[i].count) parcel_send(owning, budget, &parcels[i], leaving, now_ns);
        arena_free(&parcels[i].arena);
    }
    free(parcels);
}

static struct parcel *parcels_for(const struct owning_ring *ring) {
    struct parcel *parcels = mem_zalloc((ring->count + 1) * sizeof *parcels);
    for (size_t i = 0; i < ring->count; i++) parcels[i].node = ring->nodes[i], parcels[i].lease = ring->leases[i];
    return parcels;
}

/* -- attempts ----------------------------------------------------------------------------------------------------- */

void owning_hand_reset(struct owning *owning, struct owning_budget *budget) {
    if (budget->leave) return; /* leaving goes on whatever happens */
    drop(owning, budget, false);
    if (budget->hand.state >= HAND_FROZEN) owning_wake(owning);
    budget->hand.state = HAND_NONE;
    budget->hand.left = budget->hand.failures = 0;
    budget->hand.retry_ns = 0;
    budget->version++;
}

static void attempt_begin(struct owning *owning, struct owning_budget *budget, enum owning_hand_state state,
                          uint64_t now_ns) {
    drop(owning, budget, false);
    CHECK(budget->lease && (state == HAND_PROBES || state == HAND_FROZEN));
    budget->hand.state = state;
    budget->hand.epoch = budget->epoch;
    budget->hand.attempt = ++owning->attempts;
    budget->hand.left = 0;
    budget->hand.progress_ns = now_ns;
    budget->version++;
}

/* This agent counts its keys again, and tries again later. */
static void attempt_failed(struct owning *owning, struct owning_budget *budget, uint64_t now_ns) {
    drop(owning, budget, false);
    unsigned failures = budget->hand.failures < 5 ? budget->hand.failures++ : 5;
    uint64_t wait_ms = budget->leave ? RETRY_MS / 2 : (uint64_t)RETRY_MS << failures;
    if (wait_ms > RETRY_MOST_MS) wait_ms = RETRY_MOST_MS;
    budget->hand.state = HAND_NONE;
    budget->hand.left = 0;
    budget->hand.retry_ns = now_ns + wait_ms * OWNING_MS;
    budget->version++;
    owning_wake(owning);
    owning_due(owning, budget->hand.retry_ns);
}

/* -- to members that come ----------------------------------------------------------------------------------------- */

bool owning_is_live(const struct owning_budget *budget, uint64_t lease) {
    for (size_t i = 0; i < budget->live.count; i++)
        if (budget->live.leases[i] == lease) return true;
    return false;
}

static void done(struct owning *owning, struct owning_budget *budget, uint64_t now_ns) {
    CHECK(budget->hand.state == HAND_FROZEN && budget->hand.left == 0);
    budget->hand.state = HAND_DONE;
    budget->version++;
    owning_ask_due(owning, budget, now_ns);
}

/* Asks the newcomers whether they are there, and tells them of the losses and splits that this agent knows. */
static void probe(struct owning *owning, struct owning_budget *budget, uint64_t now_ns) {
    struct parcel *parcels = parcels_for(&budget->ring);
    attempt_begin(owning, budget, HAND_PROBES, now_ns);
    for (size_t i = 0; i < budget->ring.count; i++)
        if (i != budget->ring.mine && !owning_is_live(budget, budget->ring.leases[i]))
            parcel_send(owning, budget, &parcels[i], false, now_ns);
    parcels_send(owning, budget, parcels, budget->ring.count, false, now_ns);
}

static void freeze(struct owning *owning, struct owning_budget *budget, struct owning_now now) {
    struct parcel *parcels = parcels_for(&budget->ring);
    attempt_begin(owning, budget, HAND_FROZEN, now.ns);
    bool skips = owning->mutations & OWNING_MUTATE_SKIPS_HAND_OVER;
    OWNING_EACH_BUCKET(&budget->table, bucket) {
        struct owning_id id = owning_bucket_id(bucket);
        size_t owner = owning_owner(&budget->ring, id);
        if (owner == SIZE_MAX || owner == budget->ring.mine || skips) continue;
        if (!owning_bucket_is_default(owning, budget, bucket, now))
            parcel_add(owning, budget, &parcels[owner], bucket, false, now.ns);
    }
    parcels_send(owning, budget, parcels, budget->ring.count, false, now.ns);
    if (budget->hand.left == 0) done(owning, budget, now.ns);
}

static void join_tick(struct owning *owning, struct owning_budget *budget, struct owning_now now) {
    bool pending = budget->epoch > budget->active && budget->live.mine != SIZE_MAX;
    if (!pending || budget->acked >= budget->epoch || now.ns < budget->hand.retry_ns) return;
    if (budget->hand.state != HAND_NONE) return;
    probe(owning, budget, now.ns);
    if (budget->hand.left == 0) freeze(owning, budget, now);
}

/* -- leaving ------------------------------------------------------------------------------------------------------ */

bool owning_leaves_too(const struct owning_budget *budget, uint64_t lease) {
    for (size_t i = 0; i < budget->leaver_count; i++)
        if (budget->leavers[i] == lease) return true;
    return false;
}

void owning_leaver_add(struct owning_budget *budget, uint64_t lease) {
    if (owning_leaves_too(budget, lease) || budget->leaver_count == QUOTA_MEMBERS_MOST) return;
    budget->leavers = mem_realloc(budget->leavers, (budget->leaver_count + 1) * sizeof *budget->leavers);
    budget->leavers[budget->leaver_count++] = lease;
    CHECK(budget->leaver_count <= QUOTA_MEMBERS_MOST);
}

void owning_leavers_forget(struct owning_budget *budget) {
    size_t kept = 0;
    for (size_t i = 0; i < budget->leaver_count; i++)
        if (budget->leavers[i] > budget->epoch || owning_is_live(budget, budget->leavers[i]))
            budget->leavers[kept++] = budget->leavers[i];
    budget->leaver_count = kept;
}

/* The live ring without the members that leave. The caller frees the arrays and the set. */
static struct owning_ring heirs_of(const struct owning_budget *budget) {
    const struct owning_ring *live = &budget->live;
    struct owning_ring heirs = {.nodes = mem_alloc((live->count + 1) * sizeof(char *)),
                                .leases = mem_alloc((live->count + 1) * sizeof(uint64_t)),
                                .mine = SIZE_MAX};
    struct rendezvous_member *members = mem_alloc((live->count + 1) * sizeof *members);
    for (size_t i = 0; i < live->count; i++) {
        if (i == live->mine || owning_leaves_too(budget, live->leases[i])) continue;
        members[heirs.count] = (struct rendezvous_member){slice_text(live->nodes[i]), 1};
        heirs.nodes[heirs.count] = live->nodes[i];
        heirs.leases[heirs.count++] = live->leases[i];
    }
    CHECK(heirs.count <= live->count);
    if (heirs.count) heirs.set = rendezvous_new(members, heirs.count);
    free(members);
    return heirs;
}

/* False: some bucket has no heir. */
static bool give(struct owning *owning, struct owning_budget *budget, struct owning_table *table,
                 const struct owning_ring *heirs, struct parcel *parcels, struct owning_now now) {
    bool good = true;
    OWNING_EACH_BUCKET(table, bucket) {
        if (owning_capacity(budget, owning_bucket_id(bucket)) == 0) continue;
        if (owning_bucket_is_default(owning, budget, bucket, now)) continue;
        size_t owner = owning_owner(heirs, owning_bucket_id(bucket));
        if (owner == SIZE_MAX) good = false;
        else parcel_add(owning, budget, &parcels[owner], bucket, true, now.ns);
    }
    return good;
}

/* Hands all buckets over to the members that stay, also the ones that other leaving members gave it. */
static void leave_begin(struct owning *owning, struct owning_budget *budget, struct owning_now now) {
    struct owning_ring heirs = heirs_of(budget);
    struct parcel *parcels = parcels_for(&heirs);
    attempt_begin(owning, budget, HAND_FROZEN, now.ns);
    bool good = true;
    if (!(owning->mutations & OWNING_MUTATE_SKIPS_HAND_OVER)) {
        good = give(owning, budget, &budget->table, &heirs, parcels, now);
        LIST_FOREACH(item, &budget->incoming) {
            struct owning_incoming *incoming = LIST_ENTRY(item, struct owning_incoming, link);
            if (incoming->leaving) good &= give(owning, budget, &incoming->table, &heirs, parcels, now);
        }
    }
    parcels_send(owning, budget, parcels, heirs.count, true, now.ns);
    rendezvous_free(heirs.set);
    free(heirs.nodes);
    free(heirs.leases);
    if (!good) owning_close(owning, budget, true, now.ns);
    else if (budget->hand.left == 0) owning_close(owning, budget, false, now.ns);
}

static bool wants_to_leave(const struct owning *owning, const struct owning_budget *budget) {
    return budget->lease && (owning->leaving || !budget->serving || budget->refused);
}

static void leave_tick(struct owning *owning, struct owning_budget *budget, struct owning_now now, uint64_t *next_ns) {
    if (budget->leave == LEAVE_NONE) {
        if (!wants_to_leave(owning, budget)) return;
        /* A pending epoch that it has acknowledged may become active at any moment; then others count the keys that it
         * would hand over. */
        if (budget->epoch > budget->active && budget->acked >= budget->epoch && budget->live.mine != SIZE_MAX) return;
        budget->leave = LEAVE_HANDS;
        budget->leave_ns = now.ns + OWNING_LEAVE_MS * OWNING_MS;
        budget->hand.retry_ns = 0;
        budget->version++;
        drop(owning, budget, false);
        budget->hand.state = HAND_NONE;
        owning_wake(owning);
    }
    if (budget->leave != LEAVE_HANDS) return;
    if (budget->known != OWNING_KNOWN || budget->live.mine == SIZE_MAX) {
        /* As far as it knows it never counted a key. But it may own by now the buckets that it was given. */
        owning_close(owning, budget, !list_empty(&budget->incoming), now.ns);
        return;
    }
    if (now.ns >= budget->leave_ns) {
        owning_close(owning, budget, true, now.ns);
        return;
    }
    if (budget->hand.state == HAND_NONE && now.ns >= budget->hand.retry_ns) leave_begin(owning, budget, now);
    if (budget->leave == LEAVE_HANDS && budget->leave_ns < *next_ns) *next_ns = budget->leave_ns;
}

/* -- time, and the outcome of messages ---------------------------------------------------------------------------- */

void owning_hand_tick(struct owning *owning, struct owning_budget *budget, struct owning_now now, uint64_t *next_ns) {
    if (!budget->lease) return;
    leave_tick(owning, budget, now, next_ns);
    if (!budget->leave && budget->known == OWNING_KNOWN) join_tick(owning, budget, now);
    struct owning_hand *hand = &budget->hand;
    bool waits = hand->state == HAND_PROBES || hand->state == HAND_FROZEN;
    uint64_t late_ns = hand->progress_ns + 2 * OWNING_MESSAGE_MS * OWNING_MS;
    if (waits && now.ns >= late_ns) attempt_failed(owning, budget, now.ns);
    else if (waits && late_ns < *next_ns) *next_ns = late_ns;
    if (hand->state == HAND_NONE && hand->retry_ns > now.ns && hand->retry_ns < *next_ns) *next_ns = hand->retry_ns;
}

bool owning_send(struct owning *owning, struct owning_now now, struct owning_message *message) {
    LIST_FOREACH(item, &owning->outbox) {
        struct owning_out *out = LIST_ENTRY(item, struct owning_out, link);
        if (out->not_before_ns > now.ns) {
            owning_due(owning, out->not_before_ns);
            continue;
        }
        if (!may_go(out)) continue;
        out->budget->sending++;
        list_remove(&out->link);
        list_append(&owning->under_way, &out->link);
        *message = (struct owning_message){.id = out->id, .node = out->node, .payload = out->payload};
        return true;
    }
    return false;
}

static bool verdict_of(enum owning_reach reach, struct slice reply, Pb__QuotaVerdict *verdict) {
    struct arena arena = {0};
    const Pb__QuotaPeerAnswer *answer = NULL;
    if (reach == OWNING_ANSWERED) answer = message_unpack(&arena, &pb__quota_peer_answer__descriptor, reply);
    if (answer) *verdict = answer->verdict;
    bool good = answer != NULL;
    arena_free(&arena);
    return good;
}

static void hand_sent(struct owning *owning, struct owning_budget *budget, const struct owning_out *out, bool answered,
                      Pb__QuotaVerdict verdict, struct owning_now now) {
    struct owning_hand *hand = &budget->hand;
    if (out->attempt != hand->attempt || (hand->state != HAND_PROBES && hand->state != HAND_FROZEN)) return;
    if (!answered || verdict != PB__QUOTA_VERDICT__QUOTA_DONE) {
        attempt_failed(owning, budget, now.ns);
        if (!answered || verdict != PB__QUOTA_VERDICT__QUOTA_LEAVES || !budget->leave) return;
        owning_leaver_add(budget, out->to_lease);
        hand->retry_ns = 0;
        owning_due(owning, now.ns);
        return;
    }
    hand->progress_ns = now.ns;
    CHECK(hand->left > 0);
    if (--hand->left > 0) return;
    if (budget->leave) owning_close(owning, budget, false, now.ns);
    else if (hand->state == HAND_PROBES) freeze(owning, budget, now);
    else done(owning, budget, now.ns);
}

/* Sends the same message again until the receiver has left; a share that comes twice counts once. */
static void share_sent(struct owning *owning, struct owning_out *out, bool answered, Pb__QuotaVerdict verdict,
                       struct owning_now now) {
    bool again = !answered || verdict == PB__QUOTA_VERDICT__QUOTA_LATER || verdict == PB__QUOTA_VERDICT__QUOTA_LEAVES;
    if (!again || !owning_is_live(out->budget, out->to_lease)) return;
    out->not_before_ns = now.ns + RETRY_MS * OWNING_MS;
    list_remove(&out->link);
    list_append(&owning->outbox, &out->link);
    owning_due(owning, out->not_before_ns);
}

void owning_sent(struct owning *owning, uint64_t id, enum owning_reach reach, struct slice reply,
                 struct owning_now now) {
    struct owning_out *out = NULL;
    LIST_FOREACH(item, &owning->under_way) {
        out = LIST_ENTRY(item, struct owning_out, link);
        if (out->id == id) break;
        out = NULL;
    }
    if (!out) return;
    Pb__QuotaVerdict verdict = PB__QUOTA_VERDICT__QUOTA_REFUSED;
    bool answered = verdict_of(reach, reply, &verdict);
    struct list none;
    list_init(&none);
    list_remove(&out->link);
    list_append(&none, &out->link);
    CHECK(out->budget->sending > 0);
    out->budget->sending--;
    if (!out->void_ && out->kind == OUT_HAND) hand_sent(owning, out->budget, out, answered, verdict, now);
    else if (!out->void_) share_sent(owning, out, answered, verdict, now);
    if (!list_empty(&none)) out_free(out);
    owning_due(owning, now.ns);
}
