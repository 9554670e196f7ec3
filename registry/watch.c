/* The table of waiters.
 *
 * A thing that has waiters is an entry in a hash table: those of plain spaces are in shards by hash, those of a prefix
 * space are in one shard of its own, which also knows the lengths of prefixes that occur. A changed key is walked once
 * from its beginning with a running hash; at each length that occurs the entry is looked up.
 *
 * (1) An entry has at least one waiter; a waiter's `entry` does not change while it is added.
 * (2) A shard's lock is held over adding, removing and firing in it: after watch_remove nothing of the waiter is in use.
 * (3) `armed` goes from true to false once per firing, by exchange.
 * (4) A generation only grows. */
#include "registry/watch.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "base/random.h"
#include "registry/watch_table.h"

#define SHARDS      64
#define GENERATIONS 16384
#define BUCKETS_MIN 8
_Static_assert((GENERATIONS & (GENERATIONS - 1)) == 0 && (BUCKETS_MIN & (BUCKETS_MIN - 1)) == 0, "powers of two");

METRIC woken_total = {.name = "coord_watch_woken_total",
                      .type = METRIC_COUNTER,
                      .help = "Waiters (blocking queries, locks' turns, ...) that a change of what they wait for woke"};

struct watch_entry {
    struct watch_entry *next; /* in its bucket */
    struct watch_shard *shard;
    struct list waiters;
    uint32_t hash; /* mixed (mix) */
    uint32_t size;
    uint8_t space;
    char name[];
};

/* How many entries have names of this length. */
struct watch_length {
    uint32_t length, entries;
};

struct watch_shard {
    pthread_mutex_t lock;
    struct watch_entry **buckets;
    size_t bucket_count, entry_count;
    struct watch_length *lengths; /* prefix spaces: ascending */
    size_t length_count, length_room;
};

struct watch_table {
    struct watch_shard shards[SHARDS];
    struct watch_shard *_Atomic prefixes[WATCH_PREFIX_BIT]; /* by key space; made on first use, never removed */
    pthread_mutex_t prefixes_lock;
    _Atomic size_t waiters;
    uint64_t prefix_base; /* of the running hash: random, so that nobody can choose names that collide */
    _Atomic uint64_t *generations;
};

static inline void fence(void) {
#ifndef COORD_TSAN
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* -- the running hash: a polynomial modulo 2^61 - 1 --------------------------------------------------------------- */

#define PRIME (((uint64_t)1 << 61) - 1)

static inline uint64_t roll(uint64_t hash, uint64_t base, unsigned char byte) {
    unsigned __int128 product = (unsigned __int128)hash * base + byte + 1;
    uint64_t sum = (uint64_t)(product & PRIME) + (uint64_t)(product >> 61);
    return sum >= PRIME ? sum - PRIME : sum;
}

static uint64_t prefix_hash(const struct watch_table *table, struct slice name) {
    uint64_t hash = 0;
    for (size_t i = 0; i < name.size; i++) hash = roll(hash, table->prefix_base, (unsigned char)name.data[i]);
    return hash;
}

/* -- shards ------------------------------------------------------------------------------------------------------- */

/* The bits by which an entry is found, made of either hash of a watch key. */
static uint32_t mix(uint64_t hash) { return (uint32_t)((hash * 0x9e3779b97f4a7c15u) >> 32); }

static size_t bucket_of(const struct watch_shard *shard, uint32_t hash) { return hash & (shard->bucket_count - 1); }

static void buckets_resize(struct watch_shard *shard, size_t count) {
    CHECK(count >= BUCKETS_MIN && (count & (count - 1)) == 0);
    struct watch_entry **old = shard->buckets;
    size_t old_count = shard->bucket_count;
    shard->buckets = mem_zalloc(count * sizeof(struct watch_entry *));
    shard->bucket_count = count;
    for (size_t i = 0; i < old_count; i++) {
        for (struct watch_entry *entry = old[i], *next; entry; entry = next) {
            next = entry->next;
            size_t bucket = bucket_of(shard, entry->hash);
            entry->next = shard->buckets[bucket];
            shard->buckets[bucket] = entry;
        }
    }
    free(old);
}

static struct watch_entry *find(const struct watch_shard *shard, uint32_t hash, uint8_t space, struct slice name) {
    if (shard->entry_count == 0) return NULL;
    for (struct watch_entry *entry = shard->buckets[bucket_of(shard, hash)]; entry; entry = entry->next) {
        if (entry->hash == hash && entry->space == space &&
            watch_same(space, slice_make(entry->name, entry->size), name))
            return entry;
    }
    return NULL;
}

/* Place of `length` among the lengths that occur, or where it belongs. */
static size_t length_place(const struct watch_shard *shard, uint32_t length) {
    size_t low = 0, high = shard->length_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (shard->lengths[middle].length < length) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void length_add(struct watch_shard *shard, uint32_t length) {
    size_t at = length_place(shard, length);
    if (at < shard->length_count && shard->lengths[at].length == length) {
        shard->lengths[at].entries++;
        return;
    }
    if (shard->length_count == shard->length_room) {
        shard->length_room = shard->length_room ? shard->length_room * 2 : 8;
        shard->lengths = mem_realloc(shard->lengths, shard->length_room * sizeof *shard->lengths);
    }
    memmove(shard->lengths + at + 1, shard->lengths + at, (shard->length_count - at) * sizeof *shard->lengths);
    shard->lengths[at] = (struct watch_length){length, 1};
    shard->length_count++;
}

static void length_remove(struct watch_shard *shard, uint32_t length) {
    size_t at = length_place(shard, length);
    CHECK(at < shard->length_count && shard->lengths[at].length == length);
    CHECK(shard->lengths[at].entries > 0);
    if (--shard->lengths[at].entries > 0) return;
    shard->length_count--;
    memmove(shard->lengths + at, shard->lengths + at + 1, (shard->length_count - at) * sizeof *shard->lengths);
}

static struct watch_entry *entry_new(struct watch_shard *shard, uint32_t hash, struct watch_key watched) {
    if (shard->entry_count >= shard->bucket_count)
        buckets_resize(shard, shard->bucket_count ? shard->bucket_count * 2 : BUCKETS_MIN);
    size_t bytes = offsetof(struct watch_entry, name) + watched.name.size;
    struct watch_entry *entry = mem_alloc(bytes > sizeof *entry ? bytes : sizeof *entry);
    *entry =
        (struct watch_entry){.shard = shard, .hash = hash, .size = (uint32_t)watched.name.size, .space = watched.space};
    if (watched.name.size) memcpy(entry->name, watched.name.data, watched.name.size);
    list_init(&entry->waiters);
    size_t bucket = bucket_of(shard, hash);
    entry->next = shard->buckets[bucket];
    shard->buckets[bucket] = entry;
    shard->entry_count++;
    if (watched.space & WATCH_PREFIX_BIT) length_add(shard, entry->size);
    return entry;
}

static void entry_free(struct watch_entry *entry) {
    struct watch_shard *shard = entry->shard;
    struct watch_entry **at = &shard->buckets[bucket_of(shard, entry->hash)];
    CHECK(list_empty(&entry->waiters) && shard->entry_count > 0);
    for (; *at != entry; at = &(*at)->next) CHECK(*at);
    *at = entry->next;
    shard->entry_count--;
    if (entry->space & WATCH_PREFIX_BIT) length_remove(shard, entry->size);
    free(entry);
    if (shard->bucket_count > BUCKETS_MIN && shard->entry_count * 8 < shard->bucket_count) {
        buckets_resize(shard, shard->bucket_count / 2);
    }
}

/* -- the table ---------------------------------------------------------------------------------------------------- */

struct watch_table *watch_table_new(void) {
    struct watch_table *table = mem_zalloc(sizeof *table);
    metric_register(&woken_total);
    for (size_t i = 0; i < SHARDS; i++) pthread_mutex_init(&table->shards[i].lock, NULL);
    pthread_mutex_init(&table->prefixes_lock, NULL);
    table->prefix_base = random_u64() % (PRIME - 512) + 256;
    table->generations = mem_zalloc(GENERATIONS * sizeof *table->generations);
    return table;
}

static void shard_free(struct watch_shard *shard) {
    CHECK(shard->entry_count == 0 && shard->length_count == 0);
    pthread_mutex_destroy(&shard->lock);
    free(shard->buckets);
    free(shard->lengths);
}

void watch_table_free(struct watch_table *table) {
    if (!table) return;
    for (size_t i = 0; i < SHARDS; i++) shard_free(&table->shards[i]);
    for (size_t i = 0; i < WATCH_PREFIX_BIT; i++) {
        struct watch_shard *shard = table->prefixes[i];
        if (shard) shard_free(shard);
        free(shard);
    }
    pthread_mutex_destroy(&table->prefixes_lock);
    free(table->generations);
    free(table);
}

static struct watch_shard *prefix_shard(struct watch_table *table, uint8_t space) {
    struct watch_shard *shard = table->prefixes[space & ~WATCH_PREFIX_BIT];
    if (shard) return shard;
    pthread_mutex_lock(&table->prefixes_lock);
    shard = table->prefixes[space & ~WATCH_PREFIX_BIT];
    if (!shard) {
        shard = mem_zalloc(sizeof *shard);
        pthread_mutex_init(&shard->lock, NULL);
        table->prefixes[space & ~WATCH_PREFIX_BIT] = shard;
    }
    pthread_mutex_unlock(&table->prefixes_lock);
    return shard;
}

void watch_add(struct watch_table *table, struct watch_waiter *waiter, struct watch_key watched, watch_fire fire) {
    bool prefix = watched.space & WATCH_PREFIX_BIT;
    uint64_t hash = prefix ? prefix_hash(table, watched.name) : watch_hash(watched.space, watched.name);
    struct watch_shard *shard = prefix ? prefix_shard(table, watched.space) : &table->shards[hash % SHARDS];
    CHECK(fire && watched.name.size <= UINT32_MAX);
    waiter->fire = fire;
    atomic_init(&waiter->armed, true);
    pthread_mutex_lock(&shard->lock);
    struct watch_entry *entry = find(shard, mix(hash), watched.space, watched.name);
    if (!entry) entry = entry_new(shard, mix(hash), watched);
    waiter->entry = entry;
    list_append(&entry->waiters, &waiter->link);
    pthread_mutex_unlock(&shard->lock);
    atomic_fetch_add_explicit(&table->waiters, 1, memory_order_relaxed);
    fence();
}

void watch_remove(struct watch_table *table, struct watch_waiter *waiter) {
    struct watch_entry *entry = waiter->entry;
    if (!entry) return;
    struct watch_shard *shard = entry->shard;
    pthread_mutex_lock(&shard->lock);
    list_remove(&waiter->link);
    if (list_empty(&entry->waiters)) entry_free(entry);
    pthread_mutex_unlock(&shard->lock);
    waiter->entry = NULL;
    size_t waiters = atomic_fetch_sub_explicit(&table->waiters, 1, memory_order_relaxed);
    CHECK(waiters > 0);
}

size_t watch_count(struct watch_table *table) { return atomic_load_explicit(&table->waiters, memory_order_relaxed); }

/* -- generations -------------------------------------------------------------------------------------------------- */

static _Atomic uint64_t *generation(struct watch_table *table, uint64_t hash) {
    return &table->generations[(hash >> 32) & (GENERATIONS - 1)];
}

uint64_t watch_generation(struct watch_table *table, struct watch_key watched) {
    uint8_t space = watched.space & (uint8_t)~WATCH_PREFIX_BIT;
    struct slice name = watched.space & WATCH_PREFIX_BIT ? slice_make("", 0) : watched.name;
    return atomic_load(generation(table, watch_hash(space, name)));
}

void watch_bump(struct watch_table *table, const struct watch_touched *touched) {
    fence();
    if (touched->everything) {
        for (size_t i = 0; i < GENERATIONS; i++) atomic_fetch_add(&table->generations[i], 1);
        return;
    }
    bool spaces[256] = {false};
    struct watch_packed watched;
    for (size_t at = 0; watch_next(touched, &at, &watched);) {
        atomic_fetch_add(generation(table, watched.hash), 1);
        if (spaces[watched.space]) continue;
        spaces[watched.space] = true;
        atomic_fetch_add(generation(table, watch_hash(watched.space, slice_make("", 0))), 1);
    }
}

/* -- waking ------------------------------------------------------------------------------------------------------- */

static void fire_all(struct watch_entry *entry) {
    uint64_t woken = 0;
    LIST_FOREACH_SAFE(item, next, &entry->waiters) {
        struct watch_waiter *waiter = LIST_ENTRY(item, struct watch_waiter, link);
        __builtin_prefetch(next);
        if (!atomic_load_explicit(&waiter->armed, memory_order_relaxed) || !atomic_exchange(&waiter->armed, false))
            continue;
        waiter->fire(waiter);
        woken++;
    }
    metric_add(&woken_total, woken);
}

static void wake_shard(struct watch_shard *shard) {
    pthread_mutex_lock(&shard->lock);
    for (size_t i = 0; i < shard->bucket_count; i++) {
        for (struct watch_entry *entry = shard->buckets[i]; entry; entry = entry->next) fire_all(entry);
    }
    pthread_mutex_unlock(&shard->lock);
}

/* Wakes the waiters of all prefixes of the name, in one walk. */
static void wake_prefixes(struct watch_table *table, const struct watch_packed *watched) {
    struct watch_shard *shard = table->prefixes[watched->space];
    if (!shard) return;
    pthread_mutex_lock(&shard->lock);
    uint64_t hash = 0;
    size_t at = 0;
    for (size_t i = 0; i < shard->length_count && shard->lengths[i].length <= watched->name.size; i++) {
        size_t length = shard->lengths[i].length;
        for (; at < length; at++) hash = roll(hash, table->prefix_base, (unsigned char)watched->name.data[at]);
        struct watch_entry *entry =
            find(shard, mix(hash), watched->space | WATCH_PREFIX_BIT, slice_make(watched->name.data, length));
        if (entry) fire_all(entry);
    }
    pthread_mutex_unlock(&shard->lock);
}

static void wake_thing(struct watch_table *table, const struct watch_packed *watched) {
    struct watch_shard *shard = &table->shards[watched->hash % SHARDS];
    pthread_mutex_lock(&shard->lock);
    struct watch_entry *entry = find(shard, mix(watched->hash), watched->space, watched->name);
    if (entry) fire_all(entry);
    pthread_mutex_unlock(&shard->lock);
    if (watched->space < WATCH_PREFIX_BIT) wake_prefixes(table, watched);
}

void watch_wake(struct watch_table *table, const struct watch_touched *touched) {
    fence();
    if (touched->everything) {
        for (size_t i = 0; i < SHARDS; i++) wake_shard(&table->shards[i]);
        for (size_t i = 0; i < WATCH_PREFIX_BIT; i++) {
            struct watch_shard *shard = table->prefixes[i];
            if (shard) wake_shard(shard);
        }
        return;
    }
    struct watch_packed watched;
    for (size_t at = 0; watch_next(touched, &at, &watched);) wake_thing(table, &watched);
}
