/* From what a name asks for to an answer, by asking the catalog. One per thread. */
#ifndef COORD_DNS_LOOKUP_H
#define COORD_DNS_LOOKUP_H

#include "dns/cache.h"
#include "dns/setup.h"

struct dns_lookup;
struct dns_lookup *dns_lookup_new(const struct dns_setup *setup, struct rpc *rpc);
void dns_lookup_free(struct dns_lookup *lookup);

struct dns_found {
    int rcode; /* NOERROR, NXDOMAIN, REFUSED, SERVFAIL */
    /* the caller's. NULL: there are no records, and nothing worth keeping; NOERROR is then NODATA */
    struct answer *answer;
    struct dns_pick *pick; /* the caller's; or NULL */
    uint8_t zone_at;       /* of the SOA that goes along when `answer` is NULL: see struct name */
    bool keep;             /* it may be kept while `depends` stand: the catalog knows the name */
    uint64_t cost_ns;      /* what making it again would take, counted and not timed: the same on a busy machine */
};
/* `type`: one of enum packet_type, or 0 for all those that no name here has. `cache` keeps what is known of
 * services' tags. */
struct dns_found dns_lookup_run(struct dns_lookup *lookup, const struct name *name, uint16_t type,
                                struct dns_cache *cache, struct dns_depends *depends);

/* The answer of a name without records: NXDOMAIN or NOERROR, with an SOA, whose zone is to be set for each name. */
struct answer *dns_lookup_negative(struct dns_lookup *lookup, unsigned domain, int rcode);

#endif
