/* The settings in the form that the threads need: names in wire form, times in seconds. Read-only once made. */
#ifndef COORD_DNS_SETUP_H
#define COORD_DNS_SETUP_H

#include "dns/answer.h"
#include "dns/dns.h"
#include "dns/name.h"

struct dns_setup_ttl {
    char *service;
    uint32_t ttl;
};
struct dns_setup {
    struct name_zone zone;
    struct answer_soa soa[2];                            /* one for each domain */
    struct wire_name node_base, service_base, addr_base; /* node.DC.DOMAIN, ..., in the first domain */
    char *datacenter, *node_name;
    bool only_passing, stale;
    unsigned udp_answer_limit, a_record_limit;
    uint32_t node_ttl;
    struct dns_setup_ttl *ttls;
    size_t ttl_count;
};

int dns_setup_make(struct dns_setup *setup, const struct dns_config *config, struct fault *fault);
void dns_setup_free(struct dns_setup *setup);
/* The TTL of the exact name, else of the longest "prefix*" that fits, "*" last; 0 when none fits. Case does not
 * matter. */
uint32_t dns_setup_service_ttl(const struct dns_setup *setup, struct slice service);

#endif
