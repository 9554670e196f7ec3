/* Buckets: the remaining tokens of each key that is counted, or handed over. */
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "kv/quota_owner/owner_internal.h"

/* -- tables ------------------------------------------------------------------------------------------------------- */

static uint64_t hash_of(struct owner_id id) { return hash64_seed(id.key.data, id.key.size, id.slot); }

struct owner_bucket *owner_bucket_find(const struct owner_table *table, struct owner_id id) {
    if (!table->heads) return NULL;
    uint64_t hash = hash_of(id);
    struct owner_bucket *bucket = table->heads[hash & table->mask];
    while (bucket && (bucket->hash != hash || bucket->slot != id.slot ||
                      !slice_equal(slice_make(bucket->key, bucket->key_size), id.key)))
        bucket = bucket->next;
    return bucket;
}

static void grow(struct owner_table *table) {
    size_t mask = table->heads ? 2 * table->mask + 1 : 15;
    struct owner_bucket **heads = mem_zalloc((mask + 1) * sizeof(struct owner_bucket *));
    OWNER_EACH_BUCKET(table, bucket) {
        bucket->next = heads[bucket->hash & mask];
        heads[bucket->hash & mask] = bucket;
    }
    free(table->heads);
    table->heads = heads;
    table->mask = mask;
}

void owner_bucket_add(struct owner *owner, struct owner_table *table, struct owner_bucket *bucket) {
    if (!table->heads || table->count > table->mask) grow(table);
    CHECK(table->count <= table->mask);
    struct owner_bucket **head = &table->heads[bucket->hash & table->mask];
    bucket->next = *head;
    *head = bucket;
    table->count++;
    owner->keys++;
    owner->key_bytes += bucket->key_size;
}

void owner_bucket_unlink(struct owner *owner, struct owner_table *table, struct owner_bucket *bucket) {
    struct owner_bucket **at = &table->heads[bucket->hash & table->mask];
    CHECK(table->count > 0 && owner->keys > 0 && owner->key_bytes >= bucket->key_size);
    while (*at != bucket) at = &(*at)->next;
    *at = bucket->next;
    table->count--;
    owner->keys--;
    owner->key_bytes -= bucket->key_size;
}

void owner_bucket_remove(struct owner *owner, struct owner_table *table, struct owner_bucket *bucket) {
    owner_bucket_unlink(owner, table, bucket);
    free(bucket);
}

void owner_table_clear(struct owner *owner, struct owner_table *table) {
    OWNER_EACH_BUCKET(table, bucket) owner_bucket_remove(owner, table, bucket);
    CHECK(table->count == 0);
    free(table->heads);
    *table = (struct owner_table){0};
}

/* -- amounts ------------------------------------------------------------------------------------------------------ */

uint64_t owner_capacity(const struct owner_budget *budget, struct owner_id id) {
    if (id.slot == 0) return budget->capacity;
    const struct owner_split *split = owner_split_find(budget, id.key);
    return split && id.slot <= split->parts ? split->amounts[id.slot - 1] : 0;
}

static uint32_t parts_of(const struct owner_budget *budget, struct owner_id id) {
    const struct owner_split *split = id.slot ? owner_split_find(budget, id.key) : NULL;
    return split ? split->parts : 1;
}

/* The unit in which `rest` counts: `tokens` units come each ns, and unit_of of them are one token. So refills are
 * exact, by a clock that is slowed by the tolerated difference. Each part of a key gets an equal part of the refill. */
static uint64_t unit_of(const struct owner_budget *budget, uint32_t parts) {
    return budget->definition->every_ms * (1000000 + QUOTA_CLOCK_PPM) * parts;
}

static void fill(struct owner *owner, struct owner_bucket *bucket, uint64_t capacity) {
    if (bucket->tokens < capacity) bucket->round = ++owner->rounds;
    bucket->tokens = capacity;
    bucket->rest = 0;
    bucket->owed = false;
}

static void refill_continuous(struct owner *owner, const struct owner_budget *budget, struct owner_bucket *bucket,
                              uint64_t capacity, uint64_t now_ns) {
    uint64_t since_ns = now_ns > bucket->at_ns ? now_ns - bucket->at_ns : 0;
    uint64_t unit = unit_of(budget, parts_of(budget, owner_bucket_id(bucket)));
    unsigned __int128 sum = (unsigned __int128)since_ns * budget->definition->tokens + bucket->rest;
    CHECK(unit > 0);
    unsigned __int128 more = sum / unit;
    bucket->at_ns = now_ns > bucket->at_ns ? now_ns : bucket->at_ns;
    if (bucket->tokens >= capacity || more >= capacity - bucket->tokens) {
        fill(owner, bucket, capacity);
        return;
    }
    bucket->tokens += (uint64_t)more;
    bucket->rest = (uint64_t)(sum % unit);
    CHECK(bucket->tokens < capacity);
}

void owner_refill(struct owner *owner, const struct owner_budget *budget, struct owner_bucket *bucket,
                  struct owner_now now) {
    uint64_t capacity = owner_capacity(budget, owner_bucket_id(bucket));
    if (!budget->definition->window) {
        refill_continuous(owner, budget, bucket, capacity, now.ns);
        return;
    }
    int64_t window_s = owner_window(budget->definition, now.unix_s);
    if (bucket->tokens > capacity) bucket->tokens = capacity;
    if (window_s <= bucket->window_s) return;
    bucket->window_s = window_s;
    bucket->tokens = 0; /* makes it another round also when nothing was taken, because a take is given back only to its
                         * own window */
    fill(owner, bucket, capacity);
}

uint64_t owner_bucket_retry_ms(const struct owner_budget *budget, const struct owner_bucket *bucket, uint64_t n,
                               struct owner_now now) {
    if (n <= bucket->tokens) return 0;
    if (budget->definition->window) {
        int64_t left_s = quota_window_end(budget->definition, bucket->window_s) - now.unix_s;
        return left_s > 0 ? (uint64_t)left_s * 1000 : 1;
    }
    uint64_t unit = unit_of(budget, parts_of(budget, owner_bucket_id(bucket)));
    unsigned __int128 missing = (unsigned __int128)(n - bucket->tokens) * unit - bucket->rest;
    unsigned __int128 ms = missing / budget->definition->tokens / OWNER_MS + 1;
    return ms > INT64_MAX ? INT64_MAX : (uint64_t)ms;
}

/* -- keys without a bucket ---------------------------------------------------------------------------------------- */

static struct owner_bucket *bucket_new(struct owner *owner, struct owner_id id, struct owner_now now) {
    struct owner_bucket *bucket = mem_alloc(sizeof *bucket + id.key.size + 1);
    *bucket = (struct owner_bucket){.hash = hash_of(id),
                                    .at_ns = now.ns,
                                    .round = ++owner->rounds,
                                    .slot = id.slot,
                                    .key_size = (uint32_t)id.key.size};
    if (id.key.size) memcpy(bucket->key, id.key.data, id.key.size);
    return bucket;
}

/* The losses after an index that touch a key: how many are in the present window, and when this agent learned of the
 * last one. */
struct losses {
    size_t count, in_window;
    uint64_t since_ns;
};
static struct losses losses_of(struct owner_budget *budget, struct owner_id id, uint64_t after, int64_t window_s) {
    struct losses all = {0};
    for (size_t i = 0; i < budget->loss_count; i++) {
        struct owner_loss *loss = &budget->losses[i];
        if (loss->index <= after || !owner_loss_touches(budget, loss, id)) continue;
        all.count++;
        if (loss->window_s >= window_s) all.in_window++;
        if (loss->seen_ns > all.since_ns) all.since_ns = loss->seen_ns;
    }
    return all;
}

static void begin_empty(struct owner_bucket *bucket, uint64_t since_ns) {
    bucket->tokens = bucket->rest = 0;
    bucket->at_ns = since_ns;
}

/* A new bucket as a key without one has it, when only losses and splits after that index count. */
static struct owner_bucket *bucket_after(struct owner *owner, struct owner_budget *budget, struct owner_id id,
                                         uint64_t after, struct owner_now now) {
    struct owner_bucket *bucket = bucket_new(owner, id, now);
    const struct owner_split *split = id.slot ? owner_split_find(budget, id.key) : NULL;
    if (split && split->index <= after) split = NULL;
    bool windows = budget->definition->window != PB__QUOTA_WINDOW__QUOTA_CONTINUOUS;
    int64_t window_s = owner_window(budget->definition, now.unix_s);
    struct losses losses = losses_of(budget, id, after, window_s);
    bucket->window_s = window_s;
    bucket->tokens = owner_capacity(budget, id);
    if (windows) {
        bucket->owed = split && split->window_s >= window_s && !losses.count;
        if (losses.in_window > 1 || (split && split->window_s >= window_s)) bucket->tokens = 0;
    } else if (losses.count || split) {
        uint64_t split_ns = split ? split->seen_ns : 0;
        bucket->owed = split_ns > losses.since_ns;
        begin_empty(bucket, losses.since_ns > split_ns ? losses.since_ns : split_ns);
    }
    owner_refill(owner, budget, bucket, now);
    return bucket;
}

struct owner_bucket *owner_bucket_default(struct owner *owner, struct owner_budget *budget, struct owner_id id,
                                          struct owner_now now) {
    return bucket_after(owner, budget, id, 0, now);
}

bool owner_bucket_is_default(struct owner *owner, struct owner_budget *budget, struct owner_bucket *bucket,
                             struct owner_now now) {
    struct owner_id id = owner_bucket_id(bucket);
    uint64_t capacity = owner_capacity(budget, id);
    owner_refill(owner, budget, bucket, now);
    if (bucket->tokens < capacity) return false;
    if (budget->loss_count == 0 && !id.slot) return true;
    struct owner_bucket *begins = owner_bucket_default(owner, budget, id, now);
    bool same = begins->tokens >= capacity;
    free(begins);
    return same;
}

/* -- buckets from elsewhere --------------------------------------------------------------------------------------- */

static void keep_least(struct owner_bucket *bucket, const struct owner_bucket *other) {
    if (bucket->window_s > other->window_s) return; /* a bucket of an older window would be full now */
    bool later = bucket->window_s < other->window_s;
    if (!later && (bucket->tokens < other->tokens || (bucket->tokens == other->tokens && bucket->rest <= other->rest)))
        return;
    bucket->tokens = other->tokens, bucket->rest = other->rest, bucket->at_ns = other->at_ns;
    bucket->window_s = other->window_s;
    bucket->owed = other->owed;
    bucket->round = other->round;
}

void owner_bucket_merge(struct owner *owner, struct owner_budget *budget, struct owner_bucket *bucket,
                        struct owner_now now) {
    struct owner_bucket *mine = owner_bucket_find(&budget->table, owner_bucket_id(bucket));
    owner_refill(owner, budget, bucket, now);
    if (!mine) {
        owner_bucket_add(owner, &budget->table, bucket);
        return;
    }
    CHECK(mine != bucket && mine->slot == bucket->slot && mine->key_size == bucket->key_size);
    owner_refill(owner, budget, mine, now);
    keep_least(mine, bucket);
    free(bucket);
}

void owner_bucket_doubt(struct owner *owner, struct owner_budget *budget, struct owner_bucket *bucket, uint64_t after,
                        struct owner_now now) {
    struct owner_bucket *most = bucket_after(owner, budget, owner_bucket_id(bucket), after, now);
    owner_refill(owner, budget, bucket, now);
    keep_least(bucket, most);
    free(most);
}

/* -- room --------------------------------------------------------------------------------------------------------- */

void owner_forget_full(struct owner *owner, struct owner_budget *budget, struct owner_now now) {
    struct slice proposed = buffer_slice(&budget->splitting);
    OWNER_EACH_BUCKET(&budget->table, bucket) {
        if (budget->proposing && bucket->slot == 0 && slice_equal(slice_make(bucket->key, bucket->key_size), proposed))
            continue;
        if (owner_bucket_is_default(owner, budget, bucket, now)) owner_bucket_remove(owner, &budget->table, bucket);
    }
}

static bool fits(const struct owner *owner, size_t key_size, bool in) {
    size_t times = in ? 4 : 1;
    return owner->keys < times * owner->keys_most && owner->key_bytes + key_size <= times * OWNER_BYTES_MOST;
}

bool owner_room(struct owner *owner, size_t key_size, bool in, struct owner_now now) {
    if (fits(owner, key_size, in)) return true;
    if (now.ns < owner->sweep_ns) return false;
    owner->sweep_ns = now.ns + 1000 * OWNER_MS; /* because it looks at all buckets */
    OWNER_EACH(owner, budget)
    if (budget->known == OWNER_KNOWN) owner_forget_full(owner, budget, now);
    return fits(owner, key_size, in);
}
