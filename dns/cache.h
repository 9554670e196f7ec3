/* Answers kept by one thread, each good while the generations of the things that it was made from stand.
 *
 * An answer that is slow to make (a service with a thousand instances) is not made again at every change: where
 * stale answers are allowed it is used for ten times as long as it took. So a large service that changes all the
 * time costs a tenth of the thread at most, and is behind by a tenth of a second or so.
 *
 * Bounded twice, in entries and bytes. Only names that the catalog knows get in (the caller sees to that), so
 * made-up names cannot push anything out. */
#ifndef COORD_DNS_CACHE_H
#define COORD_DNS_CACHE_H

#include "dns/answer.h"
#include "dns/pick.h"
#include "rpc/api/rpc.h"

enum {
    DNS_CACHE_NAME_MAX = 255,
    DNS_CACHE_DEPENDS_MAX = 8,
};

struct dns_cache_key {
    struct slice name; /* at most DNS_CACHE_NAME_MAX bytes, lower case */
    uint16_t type;     /* of DNS, or one of the caller's own */
};

/* What an answer was made from. Read the generation before reading the catalog. */
struct dns_depends {
    size_t count;
    bool overflow; /* more than fit: not to be kept */
    struct {
        uint8_t space;
        uint16_t name_at, name_size;
        uint64_t generation;
    } items[DNS_CACHE_DEPENDS_MAX];
    struct buffer names;
};
void dns_depends_reset(struct dns_depends *depends);
void dns_depends_add(struct dns_depends *depends, struct rpc *rpc, struct watch_key watched);
void dns_depends_free(struct dns_depends *depends);

/* Either may be missing. Owned by the cache once stored. */
struct dns_cache_value {
    struct answer *answer;
    struct dns_pick *pick; /* or NULL: none of its records comes first */
    uint64_t *tags;        /* sorted hashes; malloc */
    size_t tag_count;
    uint64_t cost_ns; /* what it took to make */
};

struct dns_cache;
struct dns_cache *dns_cache_new(struct rpc *rpc, size_t entries_max, size_t bytes_max, bool stale);
void dns_cache_free(struct dns_cache *cache);
enum { DNS_CACHE_SLOW_NS = 2000000, DNS_CACHE_REST_FACTOR = 10 };
/* The value, when it is still good; valid until the next store. NULL: not here. */
const struct dns_cache_value *dns_cache_find(struct dns_cache *cache, struct dns_cache_key key);
/* Takes the value over. It may be dropped at once (too large, or made from too many things): false, and it is freed. */
bool dns_cache_store(struct dns_cache *cache, struct dns_cache_key key, const struct dns_depends *depends,
                     struct dns_cache_value value);
size_t dns_cache_bytes(const struct dns_cache *cache);
size_t dns_cache_count(const struct dns_cache *cache);

#endif
