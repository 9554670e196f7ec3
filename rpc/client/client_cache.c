/* Answers that are kept for the time when no server can be reached: a hash table by query and request, in a list by
 * last use. */
#include <stdlib.h>

#include "base/hash.h"
#include "rpc/client/client_internal.h"

#define BUCKETS 1024

struct kept {
    struct kept *chain;
    struct list link; /* by last use, the oldest first */
    uint64_t hash;
    uint16_t query;
    struct slice request;
    struct requester *requester; /* nobody else gets it */
    struct client_kept is;
    size_t cost;
    char bytes[]; /* request, records */
};

struct client_cache {
    size_t limit, bytes;
    struct kept *buckets[BUCKETS];
    struct list all;
};

struct client_cache *client_cache_new(size_t bytes) {
    struct client_cache *cache = mem_zalloc(sizeof *cache);
    cache->limit = bytes;
    list_init(&cache->all);
    return cache;
}

static uint64_t hash_of(uint16_t query, struct slice request, const struct requester *requester) {
    return hash64_seed(request.data, request.size, query + (requester ? requester->hash : 0));
}

static struct kept **find(struct client_cache *cache, uint16_t query, struct slice request,
                          const struct requester *requester, uint64_t hash) {
    struct kept **at = &cache->buckets[hash % BUCKETS];
    while (*at && ((*at)->hash != hash || (*at)->query != query || !slice_equal((*at)->request, request) ||
                   !requester_equal((*at)->requester, requester)))
        at = &(*at)->chain;
    return at;
}

static void drop(struct client_cache *cache, struct kept **at) {
    struct kept *kept = *at;
    *at = kept->chain;
    list_remove(&kept->link);
    cache->bytes -= kept->cost;
    requester_release(kept->requester);
    free(kept);
}

void client_cache_free(struct client_cache *cache) {
    for (size_t i = 0; i < BUCKETS; i++)
        while (cache->buckets[i]) drop(cache, &cache->buckets[i]);
    free(cache);
}

void client_cache_put(struct client_cache *cache, uint16_t query, struct slice request,
                      const struct requester *requester, const struct rpc_fetched *fetched, uint64_t now_ms) {
    uint64_t hash = hash_of(query, request, requester);
    struct kept **at = find(cache, query, request, requester, hash);
    if (*at) drop(cache, at);
    size_t cost = sizeof(struct kept) + request.size + fetched->records.size;
    if (cost > cache->limit / 4) return;
    while (cache->bytes + cost > cache->limit) {
        struct kept *oldest = LIST_ENTRY(cache->all.next, struct kept, link);
        drop(cache, find(cache, oldest->query, oldest->request, oldest->requester, oldest->hash));
    }
    struct kept *kept = mem_alloc(cost);
    *kept = (struct kept){.hash = hash, .query = query, .cost = cost, .is = {.fetched = *fetched, .at_ms = now_ms}};
    kept->is.fetched.cause = NULL;
    kept->requester = requester_keep(requester);
    kept->request = slice_make(kept->bytes, request.size);
    kept->is.fetched.records = slice_make(kept->bytes + request.size, fetched->records.size);
    if (request.size) memcpy(kept->bytes, request.data, request.size);
    if (fetched->records.size) memcpy(kept->bytes + request.size, fetched->records.data, fetched->records.size);
    kept->chain = cache->buckets[hash % BUCKETS];
    cache->buckets[hash % BUCKETS] = kept;
    list_append(&cache->all, &kept->link);
    cache->bytes += cost;
}

const struct client_kept *client_cache_get(struct client_cache *cache, uint16_t query, struct slice request,
                                           const struct requester *requester) {
    struct kept *kept = *find(cache, query, request, requester, hash_of(query, request, requester));
    if (!kept) return NULL;
    list_remove(&kept->link);
    list_append(&cache->all, &kept->link);
    return &kept->is;
}
