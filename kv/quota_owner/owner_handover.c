/* Handing keys over to other members. */
#include <stdlib.h>

#include "base/check.h"
#include "base/error.h"
#include "base/message.h"
#include "kv/quota_owner/owner_internal.h"

#define RETRY_MS      200
#define RETRY_MOST_MS 5000
#define PACK_MOST     (OWNER_MESSAGE_MOST - QUOTA_KEY_MOST - 1024) /* a message of this size is full */

/* -- messages ----------------------------------------------------------------------------------------------------- */

void owner_out_add(struct owner *owner, struct owner_budget *budget, enum owner_out_kind kind, const char *node,
                   uint64_t lease, const Pb__QuotaPeer *peer) {
    struct owner_out *out = mem_zalloc(sizeof *out);
    size_t size = protobuf_c_message_get_packed_size(&peer->base);
    char *bytes = mem_alloc(size + 1);
    out->payload = slice_make(bytes, protobuf_c_message_pack(&peer->base, (uint8_t *)bytes));
    CHECK(out->payload.size == size && node);
    out->id = ++owner->messages;
    out->attempt = budget->hand.attempt;
    out->budget = budget;
    out->kind = kind;
    out->node = mem_strdup(node);
    out->to_lease = lease;
    list_append(&owner->outbox, &out->link);
    owner_due(owner, 0);
}

static void out_free(struct owner_out *out) {
    list_remove(&out->link);
    free((char *)(uintptr_t)out->payload.data);
    free(out->node);
    free(out);
}

static void drop(struct owner *owner, const struct owner_budget *budget, bool all) {
    LIST_FOREACH_SAFE(item, next, &owner->outbox) {
        struct owner_out *out = LIST_ENTRY(item, struct owner_out, link);
        if (out->budget == budget && (all || out->kind == OUT_HAND)) out_free(out);
    }
    LIST_FOREACH(item, &owner->under_way) {
        struct owner_out *out = LIST_ENTRY(item, struct owner_out, link);
        if (out->budget == budget && (all || out->kind == OUT_HAND)) out->void_ = true;
    }
}

void owner_out_drop(struct owner *owner, const struct owner_budget *budget) { drop(owner, budget, true); }

void owner_out_free(struct owner *owner) {
    LIST_FOREACH_SAFE(item, next, &owner->outbox) out_free(LIST_ENTRY(item, struct owner_out, link));
    LIST_FOREACH_SAFE(item, next, &owner->under_way) out_free(LIST_ENTRY(item, struct owner_out, link));
}

static bool may_go(const struct owner_out *out) { return out->budget->sending < OWNER_SENDS_MOST; }

bool owner_out_ready(const struct owner *owner) {
    LIST_FOREACH(item, &owner->outbox) {
        const struct owner_out *out = LIST_ENTRY(item, struct owner_out, link);
        if (!out->not_before_ns && may_go(out)) return true; /* ticks wake those that wait for their time */
    }
    return false;
}

static Pb__QuotaPeer peer_of(const struct owner_budget *budget, uint64_t to_lease) {
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

static Pb__QuotaStep **steps_of(const struct owner_budget *budget, struct arena *arena, uint64_t now_ns) {
    Pb__QuotaStep **steps = arena_alloc(arena, (budget->step_count + 1) * sizeof(Pb__QuotaStep *));
    for (size_t i = 0; i < budget->step_count; i++) {
        const struct owner_step *from = &budget->steps[i];
        Pb__QuotaStep *step = steps[i] = arena_alloc(arena, sizeof *step);
        pb__quota_step__init(step);
        step->index = from->index;
        step->age_ns = now_ns > from->seen_ns ? now_ns - from->seen_ns : 0;
        step->window = from->window_s;
    }
    return steps;
}

static void parcel_send(struct owner *owner, struct owner_budget *budget, struct parcel *parcel, bool leaving,
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
    owner_out_add(owner, budget, OUT_HAND, parcel->node, parcel->lease, &peer);
    budget->hand.left++;
    arena_reset(&parcel->arena);
    parcel->buckets = NULL;
    parcel->count = parcel->room = parcel->bytes = 0;
}

static void parcel_add(struct owner *owner, struct owner_budget *budget, struct parcel *parcel,
                       const struct owner_bucket *from, bool leaving, uint64_t now_ns) {
    enum { EACH = 64 };
    if (parcel->bytes + from->key_size + EACH > PACK_MOST) parcel_send(owner, budget, parcel, leaving, now_ns);
    if (parcel->count == parcel->room) {
        parcel->room = parcel->room ? 2 * parcel->room : 16;
        Pb__QuotaBucket **wider = arena_alloc(&parcel->arena, parcel->room * sizeof *wider);
        if (parcel->count) memcpy(wider, parcel->buckets, parcel->count * sizeof *wider);
        parcel->buckets = wider;
    }
    struct owner_id id = owner_bucket_id(from);
    Pb__QuotaBucket *bucket = parcel->buckets[parcel->count++] = arena_alloc(&parcel->arena, sizeof *bucket);
    const struct owner_split *split = id.slot ? owner_split_find(budget, id.key) : NULL;
    pb__quota_bucket__init(bucket);
    bucket->key = message_bytes(id.key); /* points into the table, which does not change before the message is packed */
    if (split) bucket->split = split->index, bucket->part = id.slot - 1;
    bucket->tokens = from->tokens, bucket->rest = from->rest;
    bucket->window = from->window_s;
    bucket->owed = from->owed;
    parcel->bytes += id.key.size + EACH;
}

static void parcels_send(struct owner *owner, struct owner_budget *budget, struct parcel *parcels, size_t count,
                         bool leaving, uint64_t now_ns) {
    for (size_t i = 0; i < count; i++) {
        if (parcels[i].count) parcel_send(owner, budget, &parcels[i], leaving, now_ns);
        arena_free(&parcels[i].arena);
    }
    free(parcels);
}

static struct parcel *parcels_for(const struct owner_ring *ring) {
    struct parcel *parcels = mem_zalloc((ring->count + 1) * sizeof *parcels);
    for (size_t i = 0; i < ring->count; i++) parcels[i].node = ring->nodes[i], parcels[i].lease = ring->leases[i];
    return parcels;
}

/* -- attempts ----------------------------------------------------------------------------------------------------- */

void owner_hand_reset(struct owner *owner, struct owner_budget *budget) {
    if (budget->leave) return; /* leaving goes on whatever happens */
    drop(owner, budget, false);
    if (budget->hand.state >= HAND_FROZEN) owner_wake(owner);
    budget->hand.state = HAND_NONE;
    budget->hand.left = budget->hand.failures = 0;
    budget->hand.retry_ns = 0;
    budget->version++;
}

static void attempt_begin(struct owner *owner, struct owner_budget *budget, enum owner_hand_state state,
                          uint64_t now_ns) {
    drop(owner, budget, false);
    CHECK(budget->lease && (state == HAND_PROBES || state == HAND_FROZEN));
    budget->hand.state = state;
    budget->hand.epoch = budget->epoch;
    budget->hand.attempt = ++owner->attempts;
    budget->hand.left = 0;
    budget->hand.progress_ns = now_ns;
    budget->version++;
}

/* This agent counts its keys again, and tries again later. */
static void attempt_failed(struct owner *owner, struct owner_budget *budget, uint64_t now_ns) {
    drop(owner, budget, false);
    unsigned failures = budget->hand.failures < 5 ? budget->hand.failures++ : 5;
    uint64_t wait_ms = budget->leave ? RETRY_MS / 2 : (uint64_t)RETRY_MS << failures;
    if (wait_ms > RETRY_MOST_MS) wait_ms = RETRY_MOST_MS;
    budget->hand.state = HAND_NONE;
    budget->hand.left = 0;
    budget->hand.retry_ns = now_ns + wait_ms * OWNER_MS;
    budget->version++;
    owner_wake(owner);
    owner_due(owner, budget->hand.retry_ns);
}

/* -- to members that come ----------------------------------------------------------------------------------------- */

bool owner_is_live(const struct owner_budget *budget, uint64_t lease) {
    for (size_t i = 0; i < budget->live.count; i++)
        if (budget->live.leases[i] == lease) return true;
    return false;
}

static void done(struct owner *owner, struct owner_budget *budget, uint64_t now_ns) {
    CHECK(budget->hand.state == HAND_FROZEN && budget->hand.left == 0);
    budget->hand.state = HAND_DONE;
    budget->version++;
    owner_ask_due(owner, budget, now_ns);
}

/* Asks the newcomers whether they are there, and tells them of the losses and splits that this agent knows. */
static void probe(struct owner *owner, struct owner_budget *budget, uint64_t now_ns) {
    struct parcel *parcels = parcels_for(&budget->ring);
    attempt_begin(owner, budget, HAND_PROBES, now_ns);
    for (size_t i = 0; i < budget->ring.count; i++)
        if (i != budget->ring.mine && !owner_is_live(budget, budget->ring.leases[i]))
            parcel_send(owner, budget, &parcels[i], false, now_ns);
    parcels_send(owner, budget, parcels, budget->ring.count, false, now_ns);
}

static void freeze(struct owner *owner, struct owner_budget *budget, struct owner_now now) {
    struct parcel *parcels = parcels_for(&budget->ring);
    attempt_begin(owner, budget, HAND_FROZEN, now.ns);
    bool skips = owner->mutations & OWNER_MUTATE_SKIPS_HAND_OVER;
    OWNER_EACH_BUCKET(&budget->table, bucket) {
        struct owner_id id = owner_bucket_id(bucket);
        size_t member = owner_of_key(&budget->ring, id);
        if (member == SIZE_MAX || member == budget->ring.mine || skips) continue;
        if (!owner_bucket_is_default(owner, budget, bucket, now))
            parcel_add(owner, budget, &parcels[member], bucket, false, now.ns);
    }
    parcels_send(owner, budget, parcels, budget->ring.count, false, now.ns);
    if (budget->hand.left == 0) done(owner, budget, now.ns);
}

static void join_tick(struct owner *owner, struct owner_budget *budget, struct owner_now now) {
    bool pending = budget->epoch > budget->active && budget->live.mine != SIZE_MAX;
    if (!pending || budget->acked >= budget->epoch || now.ns < budget->hand.retry_ns) return;
    if (budget->hand.state != HAND_NONE) return;
    probe(owner, budget, now.ns);
    if (budget->hand.left == 0) freeze(owner, budget, now);
}

/* -- leaving ------------------------------------------------------------------------------------------------------ */

bool owner_leaves_too(const struct owner_budget *budget, uint64_t lease) {
    for (size_t i = 0; i < budget->leaver_count; i++)
        if (budget->leavers[i] == lease) return true;
    return false;
}

void owner_leaver_add(struct owner_budget *budget, uint64_t lease) {
    if (owner_leaves_too(budget, lease) || budget->leaver_count == QUOTA_MEMBERS_MOST) return;
    budget->leavers = mem_realloc(budget->leavers, (budget->leaver_count + 1) * sizeof *budget->leavers);
    budget->leavers[budget->leaver_count++] = lease;
    CHECK(budget->leaver_count <= QUOTA_MEMBERS_MOST);
}

void owner_leavers_forget(struct owner_budget *budget) {
    size_t kept = 0;
    for (size_t i = 0; i < budget->leaver_count; i++)
        if (budget->leavers[i] > budget->epoch || owner_is_live(budget, budget->leavers[i]))
            budget->leavers[kept++] = budget->leavers[i];
    budget->leaver_count = kept;
}

/* The live ring without the members that leave. The caller frees the arrays and the set. */
static struct owner_ring heirs_of(const struct owner_budget *budget) {
    const struct owner_ring *live = &budget->live;
    struct owner_ring heirs = {.nodes = mem_alloc((live->count + 1) * sizeof(char *)),
                               .leases = mem_alloc((live->count + 1) * sizeof(uint64_t)),
                               .mine = SIZE_MAX};
    struct rendezvous_member *members = mem_alloc((live->count + 1) * sizeof *members);
    for (size_t i = 0; i < live->count; i++) {
        if (i == live->mine || owner_leaves_too(budget, live->leases[i])) continue;
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
static bool give(struct owner *owner, struct owner_budget *budget, struct owner_table *table,
                 const struct owner_ring *heirs, struct parcel *parcels, struct owner_now now) {
    bool good = true;
    OWNER_EACH_BUCKET(table, bucket) {
        if (owner_capacity(budget, owner_bucket_id(bucket)) == 0) continue;
        if (owner_bucket_is_default(owner, budget, bucket, now)) continue;
        size_t member = owner_of_key(heirs, owner_bucket_id(bucket));
        if (member == SIZE_MAX) good = false;
        else parcel_add(owner, budget, &parcels[member], bucket, true, now.ns);
    }
    return good;
}

/* Hands all buckets over to the members that stay, also the ones that other leaving members gave it. */
static void leave_begin(struct owner *owner, struct owner_budget *budget, struct owner_now now) {
    struct owner_ring heirs = heirs_of(budget);
    struct parcel *parcels = parcels_for(&heirs);
    attempt_begin(owner, budget, HAND_FROZEN, now.ns);
    bool good = true;
    if (!(owner->mutations & OWNER_MUTATE_SKIPS_HAND_OVER)) {
        good = give(owner, budget, &budget->table, &heirs, parcels, now);
        LIST_FOREACH(item, &budget->incoming) {
            struct owner_incoming *incoming = LIST_ENTRY(item, struct owner_incoming, link);
            if (incoming->leaving) good &= give(owner, budget, &incoming->table, &heirs, parcels, now);
        }
    }
    parcels_send(owner, budget, parcels, heirs.count, true, now.ns);
    rendezvous_free(heirs.set);
    free(heirs.nodes);
    free(heirs.leases);
    if (!good) owner_close(owner, budget, true, now.ns);
    else if (budget->hand.left == 0) owner_close(owner, budget, false, now.ns);
}

static bool wants_to_leave(const struct owner *owner, const struct owner_budget *budget) {
    return budget->lease && (owner->leaving || !budget->serving || budget->refused);
}

static void leave_tick(struct owner *owner, struct owner_budget *budget, struct owner_now now, uint64_t *next_ns) {
    if (budget->leave == LEAVE_NONE) {
        if (!wants_to_leave(owner, budget)) return;
        /* A pending epoch that it has acknowledged may become active at any moment; then others count the keys that it
         * would hand over. */
        if (budget->epoch > budget->active && budget->acked >= budget->epoch && budget->live.mine != SIZE_MAX) return;
        budget->leave = LEAVE_HANDS;
        budget->leave_ns = now.ns + OWNER_LEAVE_MS * OWNER_MS;
        budget->hand.retry_ns = 0;
        budget->version++;
        drop(owner, budget, false);
        budget->hand.state = HAND_NONE;
        owner_wake(owner);
    }
    if (budget->leave != LEAVE_HANDS) return;
    if (budget->known != OWNER_KNOWN || budget->live.mine == SIZE_MAX) {
        /* As far as it knows it never counted a key. But it may own by now the buckets that it was given. */
        owner_close(owner, budget, !list_empty(&budget->incoming), now.ns);
        return;
    }
    if (now.ns >= budget->leave_ns) {
        owner_close(owner, budget, true, now.ns);
        return;
    }
    if (budget->hand.state == HAND_NONE && now.ns >= budget->hand.retry_ns) leave_begin(owner, budget, now);
    if (budget->leave == LEAVE_HANDS && budget->leave_ns < *next_ns) *next_ns = budget->leave_ns;
}

/* -- time, and the outcome of messages ---------------------------------------------------------------------------- */

void owner_hand_tick(struct owner *owner, struct owner_budget *budget, struct owner_now now, uint64_t *next_ns) {
    if (!budget->lease) return;
    leave_tick(owner, budget, now, next_ns);
    if (!budget->leave && budget->known == OWNER_KNOWN) join_tick(owner, budget, now);
    struct owner_hand *hand = &budget->hand;
    bool waits = hand->state == HAND_PROBES || hand->state == HAND_FROZEN;
    uint64_t late_ns = hand->progress_ns + 2 * OWNER_MESSAGE_MS * OWNER_MS;
    if (waits && now.ns >= late_ns) attempt_failed(owner, budget, now.ns);
    else if (waits && late_ns < *next_ns) *next_ns = late_ns;
    if (hand->state == HAND_NONE && hand->retry_ns > now.ns && hand->retry_ns < *next_ns) *next_ns = hand->retry_ns;
}

bool owner_send(struct owner *owner, struct owner_now now, struct owner_message *message) {
    LIST_FOREACH(item, &owner->outbox) {
        struct owner_out *out = LIST_ENTRY(item, struct owner_out, link);
        if (out->not_before_ns > now.ns) {
            owner_due(owner, out->not_before_ns);
            continue;
        }
        if (!may_go(out)) continue;
        out->budget->sending++;
        list_remove(&out->link);
        list_append(&owner->under_way, &out->link);
        *message = (struct owner_message){.id = out->id, .node = out->node, .payload = out->payload};
        return true;
    }
    return false;
}

static bool verdict_of(enum owner_reach reach, struct slice reply, Pb__QuotaVerdict *verdict) {
    struct arena arena = {0};
    const Pb__QuotaPeerAnswer *answer = NULL;
    if (reach == OWNER_ANSWERED) answer = message_unpack(&arena, &pb__quota_peer_answer__descriptor, reply);
    if (answer) *verdict = answer->verdict;
    bool good = answer != NULL;
    arena_free(&arena);
    return good;
}

static void hand_sent(struct owner *owner, struct owner_budget *budget, const struct owner_out *out, bool answered,
                      Pb__QuotaVerdict verdict, struct owner_now now) {
    struct owner_hand *hand = &budget->hand;
    if (out->attempt != hand->attempt || (hand->state != HAND_PROBES && hand->state != HAND_FROZEN)) return;
    if (!answered || verdict != PB__QUOTA_VERDICT__QUOTA_DONE) {
        attempt_failed(owner, budget, now.ns);
        if (!answered || verdict != PB__QUOTA_VERDICT__QUOTA_LEAVES || !budget->leave) return;
        owner_leaver_add(budget, out->to_lease);
        hand->retry_ns = 0;
        owner_due(owner, now.ns);
        return;
    }
    hand->progress_ns = now.ns;
    CHECK(hand->left > 0);
    if (--hand->left > 0) return;
    if (budget->leave) owner_close(owner, budget, false, now.ns);
    else if (hand->state == HAND_PROBES) freeze(owner, budget, now);
    else done(owner, budget, now.ns);
}

/* Sends the same message again until the receiver has left; a share that comes twice counts once. */
static void share_sent(struct owner *owner, struct owner_out *out, bool answered, Pb__QuotaVerdict verdict,
                       struct owner_now now) {
    bool again = !answered || verdict == PB__QUOTA_VERDICT__QUOTA_LATER || verdict == PB__QUOTA_VERDICT__QUOTA_LEAVES;
    if (!again || !owner_is_live(out->budget, out->to_lease)) return;
    out->not_before_ns = now.ns + RETRY_MS * OWNER_MS;
    list_remove(&out->link);
    list_append(&owner->outbox, &out->link);
    owner_due(owner, out->not_before_ns);
}

void owner_sent(struct owner *owner, uint64_t id, enum owner_reach reach, struct slice reply, struct owner_now now) {
    struct owner_out *out = NULL;
    LIST_FOREACH(item, &owner->under_way) {
        out = LIST_ENTRY(item, struct owner_out, link);
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
    if (!out->void_ && out->kind == OUT_HAND) hand_sent(owner, out->budget, out, answered, verdict, now);
    else if (!out->void_) share_sent(owner, out, answered, verdict, now);
    if (!list_empty(&none)) out_free(out);
    owner_due(owner, now.ns);
}
