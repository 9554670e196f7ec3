/* Buckets: the remaining tokens of each key that is counted, or handed over. */
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "kv/quota/owning_internal.h"

/* -- tables ------------------------------------------------------------------------------------------------------- */

static uint64_t hash_of(struct owning_id id) { return hash64_seed(id.key.data, id.key.size, id.slot); }

struct owning_bucket *owning_bucket_find(const struct owning_table *table, struct owning_id id) {
    if (!table->heads) return NULL;
    uint64_t hash = hash_of(id);
    struct owning_bucket *bucket = table->heads[hash & table->mask];
    while (bucket && (bucket->hash != hash || bucket->slot != id.slot ||
                      !slice_equal(slice_make(bucket->key, bucket->key_size), id.key)))
        bucket = bucket->next;
    return bucket;
}

static void grow(struct owning_table *table) {
    size_t mask = table->heads ? 2 * table->mask + 1 : 15;
    struct owning_bucket **heads = mem_zalloc((mask + 1) * sizeof(struct owning_bucket *));
    OWNING_EACH_BUCKET(table, bucket) {
        bucket->next = heads[bucket->hash & mask];
        heads[bucket->hash & mask] = bucket;
    }
    free(table->heads);
    table->heads = heads;
    table->mask = mask;
}

void owning_bucket_add(struct owning *owning, struct owning_table *table, struct owning_bucket *bucket) {
    if (!table->heads || table->count > table->mask) grow(table);
    CHECK(table->count <= table->mask);
    struct owning_bucket **head = &table->heads[bucket->hash & table->mask];
    bucket->next = *head;
    *head = bucket;
    table->count++;
    owning->keys++;
    owning->key_bytes += bucket->key_size;
}

void owning_bucket_unlink(struct owning *owning, struct owning_table *table, struct owning_bucket *bucket) {
    struct owning_bucket **at = &table->heads[bucket->hash & table->mask];
    CHECK(table->count > 0 && owning->keys > 0 && owning->key_bytes >= bucket->key_size);
    while (*at != bucket) at = &(*at)->next;
    *at = bucket->next;
    table->count--;
    owning->keys--;
    owning->key_bytes -= bucket->key_size;
}

void owning_bucket_remove(struct owning *owning, struct owning_table *table, struct owning_bucket *bucket) {
    owning_bucket_unlink(owning, table, bucket);
    free(bucket);
}

void owning_table_clear(struct owning *owning, struct owning_table *table) {
    OWNING_EACH_BUCKET(table, bucket) owning_bucket_remove(owning, table, bucket);
    CHECK(table->count == 0);
    free(table->heads);
    *table = (struct owning_table){0};
}

/* -- amounts ------------------------------------------------------------------------------------------------------ */

uint64_t owning_capacity(const struct owning_budget *budget, struct owning_id id) {
    if (id.slot == 0) return budget->capacity;
    const struct owning_split *split = owning_split_find(budget, id.key);
    return split && id.slot <= split->parts ? split->amounts[id.slot - 1] : 0;
}

static uint32_t parts_of(const struct owning_budget *budget, struct owning_id id) {
    const struct owning_split *split = id.slot ? owning_split_find(budget, id.key) : NULL;
    return split ? split->parts : 1;
}

/* The unit in which `rest` counts: `tokens` units come each ns, and unit_of of them are one token. So refills are
 * exact, by a clock that is slowed by the tolerated difference. Each part of a key gets an equal part of the refill. */
static uint64_t unit_of(const struct owning_budget *budget, uint32_t parts) {
    return budget->definition->every_ms * (1000000 + QUOTA_CLOCK_PPM) * parts;
}

static void fill(struct owning *owning, struct owning_bucket *bucket, uint64_t capacity) {
    if (bucket->tokens < capacity) bucket->round = ++owning->rounds;
    bucket->tokens = capacity;
    bucket->rest = 0;
    bucket->owed = false;
}

static void refill_continuous(struct owning *owning, const struct owning_budget *budget, struct owning_bucket *bucket,
                              uint64_t capacity, uint64_t now_ns) {
    uint64_t since_ns = now_ns > bucket->at_ns ? now_ns - bucket->at_ns : 0;
    uint64_t unit = unit_of(budget, parts_of(budget, owning_bucket_id(bucket)));
    unsigned __int128 sum = (unsigned __int128)since_ns * budget->definition->tokens + bucket->rest;
    CHECK(unit > 0);
    unsigned __int128 more = sum / unit;
    bucket->at_ns = now_ns > bucket->at_ns ? now_ns : bucket->at_ns;
    if (bucket->tokens >= capacity || more >= capacity - bucket->tokens) {
        fill(owning, bucket, capacity);
        return;
    }
    bucket->tokens += (uint64_t)more;
    bucket->rest = (uint64_t)(sum % unit);
    CHECK(bucket->tokens < capacity);
}

void owning_refill(struct owning *owning, const struct owning_budget *budget, struct owning_bucket *bucket,
                   struct owning_now now) {
    uint64_t capacity = owning_capacity(budget, owning_bucket_id(bucket));
    if (!budget->definition->window) {
        refill_continuous(owning, budget, bucket, capacity, now.ns);
        return;
    }
    int64_t window_s = owning_window(budget->definition, now.unix_s);
    if (bucket->tokens > capacity) bucket->tokens = capacity;
    if (window_s <= bucket->window_s) return;
    bucket->window_s = window_s;
    bucket->tokens = 0; /* makes it another round also when nothing was taken, because a take is given back only to its
                         * own window */
    fill(owning, bucket, capacity);
}

uint64_t owning_bucket_retry_ms(const struct owning_budget *budget, const struct owning_bucket *bucket, uint64_t n,
                                struct owning_now now) {
    if (n <= bucket->tokens) return 0;
    if (budget->definition->window) {
        int64_t left_s = quota_window_end(budget->definition, bucket->window_s) - now.unix_s;
        return left_s > 0 ? (uint64_t)left_s * 1000 : 1;
    }
    uint64_t unit = unit_of(budget, parts_of(budget, owning_bucket_id(bucket)));
    unsigned __int128 missing = (unsigned __int128)(n - bucket->tokens) * unit - bucket->rest;
    unsigned __int128 ms = missing / budget->definition->tokens / OWNING_MS + 1;
    return ms > INT64_MAX ? INT64_MAX : (uint64_t)ms;
}

/* -- keys without a bucket ---------------------------------------------------------------------------------------- */

static struct owning_bucket *bucket_new(struct owning *owning, struct owning_id id, struct owning_now now) {
    struct owning_bucket *bucket = mem_alloc(sizeof *bucket + id.key.size + 1);
    *bucket = (struct owning_bucket){.hash = hash_of(id),
                                     .at_ns = now.ns,
                                     .round = ++owning->rounds,
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
static struct losses losses_of(struct owning_budget *budget, struct owning_id id, uint64_t after, int64_t window_s) {
    struct losses all = {0};
    for (size_t i = 0; i < budget->loss_count; i++) {
        struct owning_loss *loss = &budget->losses[i];
        if (loss->index <= after || !owning_loss_touches(budget, loss, id)) continue;
        all.count++;
        if (loss->window_s >= window_s) all.in_window++;
        if (loss->seen_ns > all.since_ns) all.since_ns = loss->seen_ns;
    }
    return all;
}

static void begin_empty(struct owning_bucket *bucket, uint64_t since_ns) {
    bucket->tokens = bucket->rest = 0;
    bucket->at_ns = since_ns;
}

/* A new bucket as a key without one has it, when only losses and splits after that index count. */
static struct owning_bucket *bucket_after(struct owning *owning, struct owning_budget *budget, struct owning_id id,
                                          uint64_t after, struct owning_now now) {
    struct owning_bucket *bucket = bucket_new(owning, id, now);
    const struct owning_split *split = id.slot ? owning_split_find(budget, id.key) : NULL;
    if (split && split->index <= after) split = NULL;
    bool windows = budget->definition->window != PB__QUOTA_WINDOW__QUOTA_CONTINUOUS;
    int64_t window_s = owning_window(budget->definition, now.unix_s);
    struct losses losses = losses_of(budget, id, after, window_s);
    bucket->window_s = window_s;
    bucket->tokens = owning_capacity(budget, id);
    if (windows) {
        bucket->owed = split && split->window_s >= window_s && !losses.count;
        if (losses.in_window > 1 || (split && split->window_s >= window_s)) bucket->tokens = 0;
    } else if (losses.count || split) {
        uint64_t split_ns = split ? split->seen_ns : 0;
        bucket->owed = split_ns > losses.since_ns;
        begin_empty(bucket, losses.since_ns > split_ns ? losses.since_ns : split_ns);
    }
    owning_refill(owning, budget, bucket, now);
    return bucket;
}

struct owning_bucket *owning_bucket_default(struct owning *owning, struct owning_budget *budget, struct owning_id id,
                                            struct owning_now now) {
    return bucket_after(owning, budget, id, 0, now);
}

bool owning_bucket_is_default(struct owning *owning, struct owning_budget *budget, struct owning_bucket *bucket,
                              struct owning_now now) {
    struct owning_id id = owning_bucket_id(bucket);
    uint64_t capacity = owning_capacity(budget, id);
    owning_refill(owning, budget, bucket, now);
    if (bucket->tokens < capacity) return false;
    if (budget->loss_count == 0 && !id.slot) return true;
    struct owning_bucket *begins = owning_bucket_default(owning, budget, id, now);
    bool same = begins->tokens >= capacity;
    free(begins);
    return same;
}

/* -- buckets from elsewhere --------------------------------------------------------------------------------------- */

static void keep_least(struct owning_bucket *bucket, const struct owning_bucket *other) {
    if (bucket->window_s > other->window_s) return; /* a bucket of an older window would be full now */
    bool later = bucket->window_s < other->window_s;
    if (!later && (bucket->tokens < other->tokens || (bucket->tokens == other->tokens && bucket->rest <= other->rest)))
        return;
    bucket->tokens = other->tokens, bucket->rest = other->rest, bucket->at_ns = other->at_ns;
    bucket->window_s = other->window_s;
    bucket->owed = other->owed;
    bucket->round = other->round;
}

void owning_bucket_merge(struct owning *owning, struct owning_budget *budget, struct owning_bucket *bucket,
                         struct owning_now now) {
    struct owning_bucket *mine = owning_bucket_find(&budget->table, owning_bucket_id(bucket));
    owning_refill(owning, budget, bucket, now);
    if (!mine) {
        owning_bucket_add(owning, &budget->table, bucket);
        return;
    }
    CHECK(mine != bucket && mine->slot == bucket->slot && mine->key_size == bucket->key_size);
    owning_refill(owning, budget, mine, now);
    keep_least(mine, bucket);
    free(bucket);
}

void owning_bucket_doubt(struct owning *owning, struct owning_budget *budget, struct owning_bucket *bucket,
                         uint64_t after, struct owning_now now) {
    struct owning_bucket *most = bucket_after(owning, budget, owning_bucket_id(bucket), after, now);
    owning_refill(owning, budget, bucket, now);
    keep_least(bucket, most);
    free(most);
}

/* -- room --------------------------------------------------------------------------------------------------------- */

void owning_forget_full(struct owning *owning, struct owning_budget *budget, struct owning_now now) {
    struct slice proposed = buffer_slice(&budget->splitting);
    OWNING_EACH_BUCKET(&budget->table, bucket) {
        if (budget->proposing && bucket->slot == 0 && slice_equal(slice_make(bucket->key, bucket->key_size), proposed))
            continue;
        if (owning_bucket_is_default(owning, budget, bucket, now)) owning_bucket_remove(owning, &budget->table, bucket);
    }
}

static bool fits(const struct owning *owning, size_t key_size, bool in) {
    size_t times = in ? 4 : 1;
    return owning->keys < times * owning->keys_most && owning->key_bytes + key_size <= times * OWNING_BYTES_MOST;
}

bool owning_room(struct owning *owning, size_t key_size, bool in, struct owning_now now) {
    if (fits(owning, key_size, in)) return true;
    if (now.ns < owning->sweep_ns) return false;
    owning->sweep_ns = now.ns + 1000 * OWNING_MS; /* because it looks at all buckets */
    OWNING_EACH(owning, budget)
    if (budget->known == OWNING_KNOWN) owning_forget_full(owning, budget, now);
    return fits(owning, key_size, in);
}
