/* Makes the answer to a parsed name by asking the catalog. Each thread has one lookup. */
#ifndef COORD_DNS_LOOKUP_H
#define COORD_DNS_LOOKUP_H

#include "dns/cache.h"
#include "dns/setup.h"

struct dns_lookup;
struct dns_lookup *dns_lookup_new(const struct dns_setup *setup, struct rpc *rpc);
void dns_lookup_free(struct dns_lookup *lookup);

struct dns_found {
    int rcode; /* NOERROR, NXDOMAIN, REFUSED, SERVFAIL */
    /* the caller frees it. NULL: there are no records, and nothing worth keeping; NOERROR is then NODATA */
    struct answer *answer;
    struct dns_pick *pick; /* the caller frees it; or NULL */
    uint8_t zone_at;       /* of the SOA that is sent when `answer` is NULL: see struct name */
    bool keep;             /* the answer may be kept until one of `depends` changes: the catalog knows the name */
    uint64_t cost_ns;      /* estimated time to make it again; not measured: it must not depend on the machine's load */
};
/* `type`: one of enum packet_type, or 0 for all types that no name here has. `cache` keeps the tags of services. */
struct dns_found dns_lookup_run(struct dns_lookup *lookup, const struct name *name, uint16_t type,
                                struct dns_cache *cache, struct dns_depends *depends);

/* The answer for names without records: NXDOMAIN or NOERROR, with an SOA. Call answer_set_zone for each name. */
struct answer *dns_lookup_negative(struct dns_lookup *lookup, unsigned domain, int rcode);

#endif
