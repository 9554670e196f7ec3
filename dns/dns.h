/* The DNS server: UDP and TCP. One worker thread per UDP socket (SO_REUSEPORT, recvmmsg/sendmmsg), one thread for
 * TCP. Workers read the store themselves (rpc_reader), stale by default (dns_config.stale).
 *
 * Answers are prebuilt in wire form with ldns per name and type, kept while the generations of what they were made
 * from stand (registry/watch.h), then put together per query: id, flags, question as asked (case kept), records in
 * random order, cut to the client's size.
 *
 * As Consul 1.8, name for name, but for what would be wrong in DNS or surprise:
 *  - All records that fit, and TC when some do not. Of what is additional, addresses come before text; leaving
 *    it out never sets TC.
 *  - "No such type" (NOERROR) always has an SOA. It is also the answer for parents of names (service.coord,
 *    dc1.coord, 2.db.service.coord where db has the tag v1.2), for types that a name has none of (Consul answers
 *    TXT, MX, ... of a service with its addresses), and for the family that HEX.addr is not of.
 *  - SOA and NS are the domain's alone: Consul answers each name with them. An SOA that denies something is that of
 *    the part of the domain that may be forwarded by itself (name.h, zone_at).
 *  - Addresses that are neither an IP address nor a host name (base/host.h), or that ask for what has them, are left
 *    out, and names of nodes and services that are none are no targets.
 *  - A CNAME only when there is no address of either family, and then for every type. Where it leads to nothing within
 *    the domain, the response code is that of the last name, with the domain's SOA.
 *  - _name._tag without "service" for every type, not just SRV.
 *  - ns.DOMAIN, which SOA names, has the servers' addresses. Servers are the instances of service "consul".
 *  - Nodes whose name is no host name are given as HEX.addr in SRV; text beyond 255 bytes is split.
 *  - Other classes and names outside: REFUSED; NOTIFY and zone transfers: NOTIMP; EDNS versions: BADVERS.
 *  - Reverse names: those of nodes. */
#ifndef COORD_DNS_DNS_H
#define COORD_DNS_DNS_H

#include "base/error.h"
#include "rpc/api/rpc.h"

struct dns_service_ttl {
    const char *service;
    int64_t ttl_ns;
}; /* "*" for all, "prefix*" */
#define DNS_TCP_CONNECTIONS_MAX 512

struct dns_config {
    const char *const *addresses;    /* NULL-terminated */
    uint16_t port;                   /* 0: any free one, the same for UDP and TCP */
    const char *domain, *alt_domain; /* "coord", NULL; without dots at the ends */
    const char *datacenter, *node_name;
    unsigned workers;          /* 0: half the processors, 1..8 */
    bool only_passing;         /* drop warning too */
    bool stale;                /* true */
    unsigned udp_answer_limit; /* 0: off */
    unsigned a_record_limit;   /* 0: off */
    int64_t node_ttl_ns;
    const struct dns_service_ttl *service_ttls;
    size_t service_ttl_count;
    uint32_t soa_refresh, soa_retry, soa_expire, soa_min_ttl; /* 3600 600 86400 0 */
    unsigned tcp_connections_max;                             /* 0: DNS_TCP_CONNECTIONS_MAX */
};
struct dns_server;
int dns_start(const struct dns_config *config, struct rpc *rpc, struct dns_server **out, struct fault *fault);
void dns_stop(struct dns_server *server);
uint16_t dns_port(const struct dns_server *server);

#endif
