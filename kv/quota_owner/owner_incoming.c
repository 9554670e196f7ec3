/* Taking keys over: as a newcomer from the members before it, and from members that leave. */
#include <stdlib.h>

#include "base/message.h"
#include "kv/quota_owner/owner_internal.h"

static void incoming_free(struct owner *owner, struct owner_incoming *incoming) {
    list_remove(&incoming->link);
    owner_table_clear(owner, &incoming->table);
    free(incoming);
}

void owner_incoming_clear(struct owner *owner, struct owner_budget *budget) {
    LIST_FOREACH_SAFE(item, next, &budget->incoming)
        incoming_free(owner, LIST_ENTRY(item, struct owner_incoming, link));
}

/* May the parcel be counted? A newcomer counts a parcel as soon as the newcomer is on the live ring; a leaver's parcel,
 * as soon as the leaver is off it. A parcel may be out of date if its sender ended unsettled afterwards. */
static bool is_ripe(const struct owner_budget *budget, const struct owner_incoming *incoming) {
    if (budget->live.mine == SIZE_MAX) return false;
    return !incoming->leaving || (budget->epoch > incoming->epoch && !owner_is_live(budget, incoming->lease));
}

static bool is_for_here(const struct owner_budget *budget, struct owner_id id) {
    if (!owner_is_mine(&budget->live, id) || owner_capacity(budget, id) == 0) return false;
    return id.slot > 0 || !owner_split_find(budget, id.key);
}

/* The sender had the bucket from another leaving member, which is still on the live ring. */
static bool is_for_later(const struct owner_budget *budget, const struct owner_incoming *incoming,
                         const struct owner_bucket *bucket) {
    size_t member = owner_of_key(&budget->live, owner_bucket_id(bucket));
    return incoming->leaving && member != SIZE_MAX && member != budget->live.mine &&
           owner_leaves_too(budget, budget->live.leases[member]);
}

void owner_incoming_settle(struct owner *owner, struct owner_budget *budget, struct owner_now now) {
    LIST_FOREACH_SAFE(item, next, &budget->incoming) {
        struct owner_incoming *incoming = LIST_ENTRY(item, struct owner_incoming, link);
        if (!is_ripe(budget, incoming)) continue;
        OWNER_EACH_BUCKET(&incoming->table, bucket) {
            if (is_for_later(budget, incoming, bucket)) continue;
            owner_bucket_unlink(owner, &incoming->table, bucket);
            if (!is_for_here(budget, owner_bucket_id(bucket))) {
                free(bucket);
                continue;
            }
            if (!incoming->leaving) owner_bucket_doubt(owner, budget, bucket, incoming->epoch, now);
            owner_bucket_merge(owner, budget, bucket, now);
        }
        if (incoming->table.count == 0) incoming_free(owner, incoming);
    }
}

/* The parcel of the sender. A sender has one parcel for this agent as a newcomer, and another one when it leaves
 * later. */
static struct owner_incoming *incoming_of(struct owner *owner, struct owner_budget *budget, const Pb__QuotaPeer *peer) {
    struct owner_incoming *incoming = NULL;
    LIST_FOREACH(item, &budget->incoming) {
        struct owner_incoming *at = LIST_ENTRY(item, struct owner_incoming, link);
        if (at->lease == peer->from_lease && at->leaving == peer->hand_over->leaving) incoming = at;
    }
    if (!incoming) {
        incoming = mem_zalloc(sizeof *incoming);
        incoming->lease = peer->from_lease;
        incoming->leaving = peer->hand_over->leaving;
        list_append(&budget->incoming, &incoming->link);
    }
    if (peer->hand_over->attempt > incoming->attempt) {
        owner_table_clear(owner, &incoming->table);
        incoming->attempt = peer->hand_over->attempt;
    }
    CHECK(incoming->lease == peer->from_lease && incoming->attempt >= peer->hand_over->attempt);
    incoming->epoch = peer->epoch;
    return peer->hand_over->attempt == incoming->attempt ? incoming : NULL;
}

/* Puts a bucket into the parcel, also a part of a split that this agent has not heard of yet. */
static bool bucket_in(struct owner *owner, struct owner_budget *budget, struct owner_incoming *incoming,
                      const Pb__QuotaBucket *from, bool same_units, struct owner_now now) {
    struct owner_id id = {message_slice(from->key), from->split ? from->part + 1 : 0};
    if (id.key.size > QUOTA_KEY_MOST || from->part >= QUOTA_PARTS_MOST) return true;
    if (!owner_room(owner, id.key.size, true, now)) return false;
    struct owner_bucket *bucket = owner_bucket_find(&incoming->table, id);
    if (!bucket) {
        bucket = owner_bucket_default(owner, budget, id, now);
        owner_bucket_add(owner, &incoming->table, bucket);
    }
    bucket->tokens = from->tokens < QUOTA_AMOUNT_MOST ? from->tokens : QUOTA_AMOUNT_MOST;
    bucket->rest = same_units && from->rest < INT64_MAX ? from->rest : 0;
    bucket->at_ns = now.ns;
    bucket->window_s = from->window;
    bucket->owed = from->owed;
    return true;
}

Pb__QuotaVerdict owner_hand_serve(struct owner *owner, struct owner_budget *budget, const Pb__QuotaPeer *peer,
                                  struct owner_now now) {
    const Pb__QuotaHandOver *hand = peer->hand_over;
    if (!budget->lease || peer->to_lease != budget->lease || !peer->from_lease) return PB__QUOTA_VERDICT__QUOTA_LATER;
    if (peer->epoch < budget->epoch) return PB__QUOTA_VERDICT__QUOTA_STALE;
    if (hand->leaving) owner_leaver_add(budget, peer->from_lease);
    for (size_t i = 0; i < hand->n_leavers; i++)
        if (hand->leavers[i] != budget->lease) owner_leaver_add(budget, hand->leavers[i]);
    if (budget->leave) return PB__QUOTA_VERDICT__QUOTA_LEAVES;
    if (!hand->leaving && budget->live.mine != SIZE_MAX) return PB__QUOTA_VERDICT__QUOTA_LATER;
    struct owner_incoming *incoming = incoming_of(owner, budget, peer);
    if (!incoming) return PB__QUOTA_VERDICT__QUOTA_STALE;
    for (size_t i = 0; i < hand->n_steps; i++) {
        uint64_t age_ns = hand->steps[i]->age_ns;
        owner_step_add(budget, hand->steps[i]->index, age_ns < now.ns ? now.ns - age_ns : 0, hand->steps[i]->window);
    }
    bool same_units = hand->defined_index == budget->notice->defined_index;
    for (size_t i = 0; i < hand->n_buckets; i++)
        if (!bucket_in(owner, budget, incoming, hand->buckets[i], same_units, now))
            return PB__QUOTA_VERDICT__QUOTA_REFUSED;
    return PB__QUOTA_VERDICT__QUOTA_DONE;
}
