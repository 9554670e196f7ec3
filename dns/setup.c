#include "dns/setup.h"

#include <stdlib.h>

#include "base/memory.h"

/* Caps at 31 bits, the most that a TTL may have (RFC 2181). */
static uint32_t seconds(int64_t nanoseconds) {
    int64_t value = nanoseconds / 1000000000;
    return value < 0 ? 0 : value > INT32_MAX ? INT32_MAX : (uint32_t)value;
}

static void soa_make(struct dns_setup *setup, const struct dns_config *config, unsigned domain) {
    struct answer_soa *soa = &setup->soa[domain];
    soa->mname = soa->rname = setup->zone.domains[domain];
    soa->refresh = config->soa_refresh;
    soa->retry = config->soa_retry;
    soa->expire = config->soa_expire;
    soa->min_ttl = config->soa_min_ttl;
}

static int names_make(struct dns_setup *setup, const struct dns_config *config, struct fault *fault) {
    struct slice datacenter = slice_text(config->datacenter);
    const struct {
        struct wire_name *name;
        struct slice kind;
    } bases[] = {
        {&setup->node_base, SLICE_LITERAL("node")},
        {&setup->service_base, SLICE_LITERAL("service")},
        {&setup->addr_base, SLICE_LITERAL("addr")},
    };
    for (size_t i = 0; i < sizeof(bases) / sizeof(bases[0]); i++) {
        *bases[i].name = setup->zone.domains[0];
        if (!wire_name_prepend(bases[i].name, datacenter) || !wire_name_prepend(bases[i].name, bases[i].kind)) {
            return fault_set(fault, CO_INVALID, "datacenter '%.64s' is not a DNS label", config->datacenter);
        }
    }
    for (unsigned i = 0; i < setup->zone.count; i++) {
        soa_make(setup, config, i);
        if (!wire_name_prepend(&setup->soa[i].mname, SLICE_LITERAL("ns")) ||
            !wire_name_prepend(&setup->soa[i].rname, SLICE_LITERAL("hostmaster"))) {
            return fault_set(fault, CO_INVALID, "the DNS domain is too long");
        }
    }
    return CO_OK;
}

int dns_setup_make(struct dns_setup *setup, const struct dns_config *config, struct fault *fault) {
    *setup = (struct dns_setup){0};
    int rv = name_zone_set(&setup->zone, config->domain, config->alt_domain, fault);
    if (rv == CO_OK) rv = names_make(setup, config, fault);
    if (rv != CO_OK) return rv;
    setup->datacenter = mem_strdup(config->datacenter);
    setup->node_name = mem_strdup(config->node_name);
    setup->only_passing = config->only_passing;
    setup->stale = config->stale;
    setup->udp_answer_limit = config->udp_answer_limit;
    setup->a_record_limit = config->a_record_limit;
    setup->node_ttl = seconds(config->node_ttl_ns);
    setup->ttl_count = config->service_ttl_count;
    setup->ttls = mem_zalloc((setup->ttl_count + 1) * sizeof(*setup->ttls));
    for (size_t i = 0; i < setup->ttl_count; i++) {
        setup->ttls[i].service = mem_strdup(config->service_ttls[i].service);
        setup->ttls[i].ttl = seconds(config->service_ttls[i].ttl_ns);
    }
    return CO_OK;
}

void dns_setup_free(struct dns_setup *setup) {
    for (size_t i = 0; i < setup->ttl_count; i++) free(setup->ttls[i].service);
    free(setup->ttls);
    free(setup->datacenter);
    free(setup->node_name);
    *setup = (struct dns_setup){0};
}

uint32_t dns_setup_service_ttl(const struct dns_setup *setup, struct slice service) {
    uint32_t ttl = 0;
    size_t best = 0; /* length of the longest prefix so far, plus one */
    for (size_t i = 0; i < setup->ttl_count; i++) {
        struct slice rule = slice_text(setup->ttls[i].service);
        if (rule.size == 0 || rule.data[rule.size - 1] != '*') {
            if (slice_equal_nocase(rule, service)) return setup->ttls[i].ttl;
            continue;
        }
        if (rule.size > service.size + 1 || rule.size <= best) continue;
        if (!slice_equal_nocase(slice_make(rule.data, rule.size - 1), slice_make(service.data, rule.size - 1)))
            continue;
        best = rule.size;
        ttl = setup->ttls[i].ttl;
    }
    return ttl;
}
