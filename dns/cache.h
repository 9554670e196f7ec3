/* Answers kept by one thread. An answer is valid until the generation of something that it was made from changes.
 *
 * An answer that is slow to make (a service with a thousand instances) is not made again at every change: when stale
 * answers are allowed it is used for ten times as long as it took to make. So a large service that changes all the time
 * costs at most a tenth of the thread's time, and its answers are behind by a tenth of a second or so.
 *
 * The cache is bounded in entries and in bytes. The caller stores only names that the catalog knows, so made-up names
 * cannot push anything out. */
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

/* The watch keys that an answer was made from, with their generations. Read the generation before reading the
 * catalog. */
struct dns_depends {
    size_t count;
    bool overflow; /* there are more than fit, or a change would go unnoticed: the answer must not be kept */
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
    uint64_t cost_ns; /* the time that it took to make */
};

struct dns_cache;
struct dns_cache *dns_cache_new(struct rpc *rpc, size_t entries_max, size_t bytes_max, bool stale);
void dns_cache_free(struct dns_cache *cache);
enum { DNS_CACHE_SLOW_NS = 2000000, DNS_CACHE_REST_FACTOR = 10 };
/* The value, when it is still good; valid until the next store. NULL: not here, or no longer good. */
const struct dns_cache_value *dns_cache_find(struct dns_cache *cache, struct dns_cache_key key);
/* Takes the value over. False: it was freed at once, because it is too large or was made from too many things. */
bool dns_cache_store(struct dns_cache *cache, struct dns_cache_key key, const struct dns_depends *depends,
                     struct dns_cache_value value);
size_t dns_cache_bytes(const struct dns_cache *cache);
size_t dns_cache_count(const struct dns_cache *cache);

#endif
