/* Hot keys: finding them, and splitting them. */
#include <stdlib.h>

#include "base/check.h"
#include "base/message.h"
#include "kv/quota_owner/owner_internal.h"

/* -- turns -------------------------------------------------------------------------------------------------------- */

void owner_hot_count(struct owner_budget *budget, struct owner_bucket *bucket) {
    if (bucket->turn != budget->turn) {
        bucket->turn = budget->turn;
        bucket->takes = 0;
        budget->turn_keys++;
    }
    bucket->takes++;
    budget->turn_takes++;
}

/* Compares the key with the mean of the others, because among few keys it would make most of the mean itself. */
static bool is_hot(const struct owner_budget *budget, const struct owner_bucket *bucket) {
    if (bucket->turn != budget->turn || bucket->takes <= OWNER_HOT_LEAST || budget->turn_keys < 2) return false;
    CHECK(budget->turn_takes >= bucket->takes);
    uint64_t others = budget->turn_takes - bucket->takes;
    return (unsigned __int128)bucket->takes * (budget->turn_keys - 1) > (unsigned __int128)OWNER_HOT_TIMES * others;
}

/* Adds the key to the hottest ones, in order. The key is copied, because its bucket may be forgotten. */
static void hot_add(struct owner_budget *budget, const struct owner_bucket *bucket, double rate) {
    size_t at = budget->hot_count;
    if (at == QUOTA_HOT_MOST) {
        if (rate <= budget->hot[at - 1].rate) return;
        free(budget->hot[--at].key.data);
    } else {
        budget->hot_count++;
    }
    for (; at > 0 && budget->hot[at - 1].rate < rate; at--) budget->hot[at] = budget->hot[at - 1];
    CHECK(at < QUOTA_HOT_MOST && budget->hot_count <= QUOTA_HOT_MOST);
    pb__quota_hot_key__init(&budget->hot[at]);
    budget->hot[at].key.data = (uint8_t *)mem_strndup(bucket->key, bucket->key_size);
    budget->hot[at].key.len = bucket->key_size;
    budget->hot[at].rate = rate;
}

void owner_hot_clear(struct owner_budget *budget) {
    for (size_t i = 0; i < budget->hot_count; i++) free(budget->hot[i].key.data);
    budget->hot_count = 0;
}

static bool may_split(const struct owner_budget *budget) {
    size_t bytes = 0;
    if (budget->definition->split < 2 || budget->leave || budget->proposing) return false;
    if (budget->epoch != budget->active || budget->live.mine == SIZE_MAX) return false;
    for (size_t i = 0; i < budget->split_count; i++) bytes += budget->splits[i].key.size;
    return budget->split_count < QUOTA_SPLITS_MOST && bytes + QUOTA_KEY_MOST <= QUOTA_SPLIT_BYTES;
}

/* Proposes to split the hottest key that is not split yet, and that this agent counts. It stops counting the key before
 * it sends the proposal. */
static void propose(struct owner *owner, struct owner_budget *budget, struct owner_now now) {
    if (!may_split(budget)) return;
    for (size_t i = 0; i < budget->hot_count; i++) {
        struct slice key = message_slice(budget->hot[i].key);
        struct owner_id id = {key, 0};
        struct owner_bucket *bucket = owner_bucket_find(&budget->table, id);
        if (!key.size || !bucket || !owner_counts(budget, id, 0)) continue;
        owner_refill(owner, budget, bucket, now);
        CHECK(bucket->tokens <= budget->capacity);
        budget->split_tokens = bucket->tokens;
        budget->split_window_s = bucket->window_s;
        buffer_reset(&budget->splitting);
        buffer_append(&budget->splitting, key.data, key.size);
        budget->proposing = true;
        budget->proposed = budget->accepted = false;
        budget->version++;
        owner_ask_due(owner, budget, now.ns);
        return;
    }
}

static void turn_end(struct owner *owner, struct owner_budget *budget, struct owner_now now) {
    owner_hot_clear(budget);
    OWNER_EACH_BUCKET(&budget->table, bucket) {
        if (is_hot(budget, bucket)) hot_add(budget, bucket, (double)bucket->takes * 1000 / OWNER_TURN_MS);
    }
    propose(owner, budget, now);
    owner_forget_full(owner, budget, now);
}

void owner_hot_tick(struct owner *owner, struct owner_budget *budget, struct owner_now now, uint64_t *next_ns) {
    if (budget->known != OWNER_KNOWN || !budget->lease) return;
    if (now.ns >= budget->turn_end_ns) {
        if (budget->turn_end_ns) turn_end(owner, budget, now);
        budget->turn++;
        budget->turn_takes = budget->turn_keys = 0;
        budget->turn_end_ns = now.ns + OWNER_TURN_MS * OWNER_MS;
    }
    if (budget->turn_end_ns < *next_ns) *next_ns = budget->turn_end_ns;
}

/* -- splits ------------------------------------------------------------------------------------------------------- */

void owner_split_end(struct owner_budget *budget) {
    budget->proposing = budget->proposed = budget->accepted = false;
    budget->version++;
}

/* Adds the share to the part's bucket, if the share is still owed. */
static void share_add(struct owner *owner, struct owner_budget *budget, struct owner_id id, uint64_t tokens,
                      int64_t window_s, struct owner_now now) {
    struct owner_bucket *bucket = owner_bucket_find(&budget->table, id);
    if (!bucket) {
        bucket = owner_bucket_default(owner, budget, id, now);
        owner_bucket_add(owner, &budget->table, bucket);
    }
    owner_refill(owner, budget, bucket, now);
    bool windows = budget->definition->window != PB__QUOTA_WINDOW__QUOTA_CONTINUOUS;
    if (!bucket->owed || (windows && window_s > bucket->window_s))
        return; /* the sender's window is a later one, in which this bucket will be full */
    CHECK(bucket->tokens <= owner_capacity(budget, id));
    uint64_t capacity = owner_capacity(budget, id), room = capacity - bucket->tokens;
    if (windows && window_s < bucket->window_s) tokens = capacity; /* a later window, untouched */
    bucket->tokens += tokens < room ? tokens : room;
    bucket->owed = false;
}

Pb__QuotaVerdict owner_share_serve(struct owner *owner, struct owner_budget *budget, const Pb__QuotaShare *share,
                                   struct owner_now now) {
    struct owner_id id = {message_slice(share->key), share->part + 1};
    if (id.key.size > QUOTA_KEY_MOST || share->part >= QUOTA_PARTS_MOST) return PB__QUOTA_VERDICT__QUOTA_REFUSED;
    const struct owner_split *split = owner_split_find(budget, id.key);
    if (!split || split->index < share->split) return PB__QUOTA_VERDICT__QUOTA_LATER;
    if (split->index > share->split || id.slot > split->parts) return PB__QUOTA_VERDICT__QUOTA_REFUSED;
    if (!owner_counts(budget, id, 0) || !owner_alive(owner, budget, now.ns)) return PB__QUOTA_VERDICT__QUOTA_LATER;
    share_add(owner, budget, id, share->tokens, share->window, now);
    return PB__QUOTA_VERDICT__QUOTA_DONE;
}

static void share_send(struct owner *owner, struct owner_budget *budget, const struct owner_split *split, uint32_t part,
                       uint64_t tokens, int64_t window_s, struct owner_now now) {
    struct owner_id id = {split->key, part + 1};
    size_t member = owner_of_key(&budget->live, id);
    if (member == SIZE_MAX) return;
    if (member == budget->live.mine) {
        if (owner_counts(budget, id, 0)) share_add(owner, budget, id, tokens, window_s, now);
        return;
    }
    Pb__QuotaPeer peer = PB__QUOTA_PEER__INIT;
    Pb__QuotaShare share = PB__QUOTA_SHARE__INIT;
    peer.name = budget->name, peer.epoch = budget->epoch;
    peer.from_lease = budget->lease, peer.to_lease = budget->live.leases[member];
    share.key = message_bytes(split->key);
    share.split = split->index, share.part = part;
    share.tokens = tokens, share.window = window_s;
    peer.share = &share;
    owner_out_add(owner, budget, OUT_SHARE, budget->live.nodes[member], budget->live.leases[member], &peer);
}

/* Divides the remaining tokens of the whole key like the capacity, so that no part gets more than its capacity. */
static void share_out(struct owner *owner, struct owner_budget *budget, const struct owner_split *split,
                      struct owner_now now) {
    int64_t window_s = owner_window(budget->definition, now.unix_s);
    bool begun = budget->definition->window && window_s > budget->split_window_s; /* a window has begun since, so all
                                                                                   * tokens are left */
    uint64_t left = begun ? budget->capacity : budget->split_tokens;
    for (uint32_t i = 0; i < split->parts; i++)
        share_send(owner, budget, split, i, quota_split_part(left, split->parts, i),
                   begun ? window_s : budget->split_window_s, now);
}

void owner_split_settle(struct owner *owner, struct owner_budget *budget, struct owner_now now) {
    if (!budget->proposing) return;
    struct owner_id id = {buffer_slice(&budget->splitting), 0};
    const struct owner_split *split = owner_split_find(budget, id.key);
    if (!split) {
        bool in_vain = budget->accepted && budget->index >= budget->accepted_index; /* accepted, but taken back since */
        if (in_vain || (!budget->proposed && !owner_is_mine(&budget->live, id))) owner_split_end(budget);
        return;
    }
    struct owner_bucket *whole = owner_bucket_find(&budget->table, id);
    if (whole && owner_alive(owner, budget, now.ns)) share_out(owner, budget, split, now);
    if (whole) owner_bucket_remove(owner, &budget->table, whole);
    owner_split_end(budget);
}
