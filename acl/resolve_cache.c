/* The cache of resolved tokens: two tables of small sets, in each of which the least recently used entry makes room. */
#include <gnutls/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "acl/resolve.h"
#include "base/check.h"

#define WAYS       4
#define WRONG_MOST 256 /* of tokens that are not there */

struct entry {
    uint8_t hash[ACL_HASH_SIZE];
    bool there;
    struct access *access; /* NULL: there is no such token */
    uint64_t until_ms;     /* 0: no end */
    uint64_t used;
};
struct table {
    struct entry *entries; /* sets of WAYS */
    size_t sets;           /* a power of two */
};
struct resolve_cache {
    struct table known, wrong;
    gnutls_hmac_hd_t hmac;
    uint64_t generation, uses;
    size_t count;
};

static struct table table_new(size_t most) {
    struct table table = {.sets = 1};
    while (table.sets * WAYS < most) table.sets *= 2;
    table.entries = mem_zalloc(table.sets * WAYS * sizeof *table.entries);
    return table;
}

struct resolve_cache *resolve_cache_new(size_t most) {
    struct resolve_cache *cache = mem_zalloc(sizeof *cache);
    uint8_t key[32];
    cache->known = table_new(most), cache->wrong = table_new(WRONG_MOST);
    CHECK(gnutls_rnd(GNUTLS_RND_KEY, key, sizeof key) == 0);
    CHECK(gnutls_hmac_init(&cache->hmac, GNUTLS_MAC_SHA256, key, sizeof key) == 0);
    explicit_bzero(key, sizeof key);
    return cache;
}

static void drop(struct resolve_cache *cache, struct entry *entry) {
    if (!entry->there) return;
    access_release(entry->access);
    *entry = (struct entry){0};
    cache->count--;
}

static void table_clear(struct resolve_cache *cache, struct table *table) {
    for (size_t i = 0; i < table->sets * WAYS; i++) drop(cache, &table->entries[i]);
}

static void clear(struct resolve_cache *cache) {
    if (cache->count == 0) return;
    table_clear(cache, &cache->known);
    table_clear(cache, &cache->wrong);
}

void resolve_cache_free(struct resolve_cache *cache) {
    if (!cache) return;
    clear(cache);
    gnutls_hmac_deinit(cache->hmac, NULL);
    free(cache->known.entries);
    free(cache->wrong.entries);
    free(cache);
}

size_t resolve_cache_count(const struct resolve_cache *cache) { return cache->count; }

static void hash(struct resolve_cache *cache, struct slice secret, uint8_t out[ACL_HASH_SIZE]) {
    CHECK(gnutls_hmac(cache->hmac, secret.data, secret.size) == 0);
    gnutls_hmac_output(cache->hmac, out); /* and begins anew */
}

static struct entry *set_of(const struct table *table, const uint8_t key[ACL_HASH_SIZE]) {
    return &table->entries[(get_le64(key) & (table->sets - 1)) * WAYS];
}

static struct entry *find(const struct table *table, const uint8_t key[ACL_HASH_SIZE]) {
    struct entry *set = set_of(table, key);
    for (size_t i = 0; i < WAYS; i++)
        if (set[i].there && memcmp(set[i].hash, key, ACL_HASH_SIZE) == 0) return &set[i];
    return NULL;
}

static void follow(struct resolve_cache *cache, uint64_t generation) {
    if (cache->generation != generation) clear(cache);
    cache->generation = generation;
}

int resolve_cache_get(struct resolve_cache *cache, struct slice secret, uint64_t generation, uint64_t now_ms,
                      struct access **access) {
    uint8_t key[ACL_HASH_SIZE];
    follow(cache, generation);
    hash(cache, secret, key);
    struct entry *entry = find(&cache->known, key);
    if (!entry) entry = find(&cache->wrong, key);
    if (!entry) return CO_AGAIN;
    if (entry->until_ms && now_ms >= entry->until_ms) {
        drop(cache, entry);
        return CO_AGAIN;
    }
    entry->used = ++cache->uses;
    if (!entry->access) return CO_NOTFOUND;
    *access = access_keep(entry->access);
    return CO_OK;
}

void resolve_cache_put(struct resolve_cache *cache, struct slice secret, uint64_t generation,
                       const struct access *access, uint64_t until_ms) {
    uint8_t key[ACL_HASH_SIZE];
    follow(cache, generation);
    hash(cache, secret, key);
    struct entry *before = find(&cache->known, key);
    if (before) drop(cache, before);
    if ((before = find(&cache->wrong, key)) != NULL) drop(cache, before);
    struct entry *set = set_of(access ? &cache->known : &cache->wrong, key), *oldest = set;
    for (size_t i = 1; i < WAYS; i++)
        if (set[i].used < oldest->used) oldest = &set[i]; /* a free one was never used */
    drop(cache, oldest);
    *oldest = (struct entry){.there = true, .until_ms = until_ms, .used = ++cache->uses};
    oldest->access = access ? access_keep(access) : NULL;
    memcpy(oldest->hash, key, sizeof key);
    cache->count++;
}
