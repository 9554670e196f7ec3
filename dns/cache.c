/* A table of sets of four places. The hash of a name picks its set; in a full set a new entry replaces the one that has
 * not been used for longest. When the bytes run out, a hand that goes round the table drops the entries that were not
 * used since it last passed. */
#include "dns/cache.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/memory.h"

enum { WAYS = 4, LARGEST_SHARE = 4 /* of all bytes, for one entry: a quarter */ };

struct entry {
    uint64_t hash;
    uint64_t used; /* clock of the last use */
    bool recent;   /* used since the hand passed */
    uint16_t type, name_size;
    uint16_t depend_count;
    size_t bytes;
    uint64_t made_ns;
    struct dns_cache_value value;
    struct {
        struct watch_key watched;
        uint64_t generation;
    } depends[DNS_CACHE_DEPENDS_MAX];
    char text[]; /* the key's name, then the names of the watch keys */
};

struct dns_cache {
    struct rpc *rpc;
    bool stale;
    uint64_t seed, clock;
    size_t set_mask, bytes, bytes_max, count, hand;
    struct entry **places; /* WAYS per set */
};

/* -- what an answer depends on ------------------------------------------------------------------------------------ */

void dns_depends_reset(struct dns_depends *depends) {
    depends->count = 0;
    depends->overflow = false;
    buffer_reset(&depends->names);
}

void dns_depends_free(struct dns_depends *depends) { buffer_free(&depends->names); }

void dns_depends_add(struct dns_depends *depends, struct rpc *rpc, struct watch_key watched) {
    if (depends->count == DNS_CACHE_DEPENDS_MAX || depends->names.size + watched.name.size > UINT16_MAX) {
        depends->overflow = true;
        return;
    }
    size_t i = depends->count++;
    depends->items[i].space = watched.space;
    depends->items[i].name_at = (uint16_t)depends->names.size;
    depends->items[i].name_size = (uint16_t)watched.name.size;
    depends->items[i].generation = rpc_generation(rpc, watched);
    buffer_append(&depends->names, watched.name.data, watched.name.size);
}

/* -- the table ---------------------------------------------------------------------------------------------------- */

struct dns_cache *dns_cache_new(struct rpc *rpc, size_t entries_max, size_t bytes_max, bool stale) {
    size_t sets = 1;
    while (sets * 2 * WAYS <= entries_max) sets *= 2;
    struct dns_cache *cache = mem_alloc(sizeof(*cache));
    *cache = (struct dns_cache){.rpc = rpc,
                                .stale = stale,
                                .seed = random_u64(),
                                .set_mask = sets - 1,
                                .bytes_max = bytes_max,
                                .places = mem_zalloc(sets * WAYS * sizeof(struct entry *))};
    return cache;
}

static void value_free(struct dns_cache_value *value) {
    answer_free(value->answer);
    dns_pick_free(value->pick);
    free(value->tags);
}

static void drop(struct dns_cache *cache, struct entry **place) {
    struct entry *entry = *place;
    *place = NULL;
    cache->bytes -= entry->bytes;
    cache->count--;
    value_free(&entry->value);
    free(entry);
}

void dns_cache_free(struct dns_cache *cache) {
    if (!cache) return;
    for (size_t i = 0; i < (cache->set_mask + 1) * WAYS; i++) {
        if (cache->places[i]) drop(cache, &cache->places[i]);
    }
    free(cache->places);
    free(cache);
}

static uint64_t key_hash(const struct dns_cache *cache, struct dns_cache_key key) {
    return hash64_seed(key.name.data, key.name.size, cache->seed + key.type * UINT64_C(0x9e3779b97f4a7c15));
}

static struct entry **place_find(struct dns_cache *cache, struct dns_cache_key key, uint64_t hash) {
    struct entry **set = &cache->places[(hash & cache->set_mask) * WAYS];
    for (size_t i = 0; i < WAYS; i++) {
        struct entry *entry = set[i];
        if (entry && entry->hash == hash && entry->type == key.type &&
            slice_equal(slice_make(entry->text, entry->name_size), key.name)) {
            return &set[i];
        }
    }
    return NULL;
}

static bool current(const struct dns_cache *cache, const struct entry *entry) {
    for (size_t i = 0; i < entry->depend_count; i++) {
        if (rpc_generation(cache->rpc, entry->depends[i].watched) != entry->depends[i].generation) return false;
    }
    return true;
}

/* The entry was slow to make, and the time for which a stale one is used is not over. */
static bool resting(const struct dns_cache *cache, const struct entry *entry) {
    uint64_t cost_ns = entry->value.cost_ns;
    if (!cache->stale || cost_ns < DNS_CACHE_SLOW_NS) return false;
    return clock_mono_ns() < entry->made_ns + cost_ns * DNS_CACHE_REST_FACTOR;
}

const struct dns_cache_value *dns_cache_find(struct dns_cache *cache, struct dns_cache_key key) {
    struct entry **place = place_find(cache, key, key_hash(cache, key));
    if (!place) return NULL;
    if (!current(cache, *place) && !resting(cache, *place)) {
        drop(cache, place);
        return NULL;
    }
    (*place)->used = ++cache->clock;
    (*place)->recent = true;
    return &(*place)->value;
}

/* -- storing ------------------------------------------------------------------------------------------------------ */

static struct entry *entry_new(struct dns_cache_key key, const struct dns_depends *depends,
                               struct dns_cache_value value) {
    size_t size = sizeof(struct entry) + key.name.size + depends->names.size;
    struct entry *entry = mem_zalloc(size);
    entry->type = key.type;
    entry->name_size = (uint16_t)key.name.size;
    entry->depend_count = (uint16_t)depends->count;
    entry->value = value;
    entry->bytes = size + value.tag_count * sizeof(*value.tags) + (value.answer ? answer_bytes(value.answer) : 0) +
                   dns_pick_bytes(value.pick);
    memcpy(entry->text, key.name.data, key.name.size);
    char *names = entry->text + key.name.size;
    if (depends->names.size) memcpy(names, depends->names.data, depends->names.size);
    for (size_t i = 0; i < depends->count; i++) {
        entry->depends[i].watched.space = depends->items[i].space;
        entry->depends[i].watched.name = slice_make(names + depends->items[i].name_at, depends->items[i].name_size);
        entry->depends[i].generation = depends->items[i].generation;
    }
    return entry;
}

static void make_room(struct dns_cache *cache, size_t bytes) {
    size_t places = (cache->set_mask + 1) * WAYS;
    while (cache->count && cache->bytes + bytes > cache->bytes_max) {
        struct entry **place = &cache->places[cache->hand++ % places];
        if (!*place) continue;
        if ((*place)->recent) (*place)->recent = false;
        else drop(cache, place);
    }
}

static struct entry **place_choose(struct dns_cache *cache, uint64_t hash) {
    struct entry **set = &cache->places[(hash & cache->set_mask) * WAYS], **oldest = &set[0];
    for (size_t i = 0; i < WAYS; i++) {
        if (!set[i]) return &set[i];
        if (set[i]->used < (*oldest)->used) oldest = &set[i];
    }
    drop(cache, oldest);
    return oldest;
}

bool dns_cache_store(struct dns_cache *cache, struct dns_cache_key key, const struct dns_depends *depends,
                     struct dns_cache_value value) {
    CHECK(key.name.size <= DNS_CACHE_NAME_MAX);
    struct entry *entry = entry_new(key, depends, value);
    if (depends->overflow || entry->bytes > cache->bytes_max / LARGEST_SHARE) {
        value_free(&entry->value);
        free(entry);
        return false;
    }
    uint64_t hash = key_hash(cache, key);
    struct entry **old = place_find(cache, key, hash);
    if (old) drop(cache, old);
    make_room(cache, entry->bytes);
    entry->hash = hash;
    entry->made_ns = value.cost_ns < DNS_CACHE_SLOW_NS ? 0 : clock_mono_ns();
    entry->used = ++cache->clock;
    entry->recent = true;
    *place_choose(cache, hash) = entry;
    cache->bytes += entry->bytes;
    cache->count++;
    return true;
}

size_t dns_cache_bytes(const struct dns_cache *cache) { return cache->bytes; }
size_t dns_cache_count(const struct dns_cache *cache) { return cache->count; }
