/* The DNS server: UDP, TCP and TLS. One worker thread per UDP socket (SO_REUSEPORT, recvmmsg/sendmmsg), one thread for
 * TCP, one for TLS. Workers read the store themselves (rpc_reader), stale by default (dns_config.stale).
 *
 * Answers are prebuilt in wire form with ldns per name and type, and kept until something that they were made from
 * changes (the generations of registry/watch.h tell). For each query a packet is put together from one: id, flags,
 * question as asked (case kept), records in random order, cut to the client's size.
 *
 * Names and answers are those of Consul 1.8, except where these would be wrong in DNS, or surprising:
 *  - An answer has all records that fit, and TC when some do not. In the additional section addresses come before text;
 *    records that are left out there never set TC.
 *  - "No such type" (NOERROR) always has an SOA. It is also the answer for parents of names (service.coord,
 *    dc1.coord, 2.db.service.coord where db has the tag v1.2), for types that a name has none of (Consul answers
 *    TXT, MX, ... of a service with its addresses), and for the family that HEX.addr is not of.
 *  - Only the domain itself has SOA and NS records: Consul answers each name with them. An SOA in a negative answer is
 *    that of the part of the domain that may be forwarded by itself (name.h, zone_at).
 *  - Addresses that are neither an IP address nor a host name (base/host.h), or that are the name of the very node or
 *    service whose address they are, are left out. Names of nodes and services that are no host names are no targets.
 *  - There is a CNAME only when there is no address of either family, and then for every type. When its target in our
 *    domain does not exist, the response code is that of the last name, with the domain's SOA.
 *  - _name._tag without "service" is answered for every type, not just SRV.
 *  - ns.DOMAIN, the name in SOA records, has the servers' addresses. Servers are the instances of service "consul".
 *  - Nodes whose name is no host name are given as HEX.addr in SRV; text beyond 255 bytes is split.
 *  - Other classes and names outside: REFUSED; NOTIFY and zone transfers: NOTIMP; EDNS versions: BADVERS.
 *  - A reverse query is answered with the name of the node, or else of the service, that has the address. */
#ifndef COORD_DNS_DNS_H
#define COORD_DNS_DNS_H

#include "base/error.h"
#include "rpc/api/rpc.h"
#include "tls/context.h"

struct dns_service_ttl {
    const char *service;
    int64_t ttl_ns;
}; /* service: a name, "prefix*", or "*" for all */
#define DNS_TCP_CONNECTIONS_MAX 512

struct dns_config {
    const char *const *addresses; /* NULL-terminated */
    uint16_t port;                /* 0: any free one, the same for UDP and TCP */
    bool tls_only;                /* neither UDP nor TCP: `port` does not count */
    struct tls_slot *tls;         /* DNS over TLS (RFC 7858) shows its certificate; outlives the server. NULL: none */
    uint16_t tls_port;            /* 0: any free one */
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
    unsigned tcp_connections_max;                             /* and as many over TLS; 0: DNS_TCP_CONNECTIONS_MAX */
};
struct dns_server;
int dns_start(const struct dns_config *config, struct rpc *rpc, struct dns_server **out, struct fault *fault);
void dns_stop(struct dns_server *server);
uint16_t dns_port(const struct dns_server *server);     /* 0: neither UDP nor TCP */
uint16_t dns_tls_port(const struct dns_server *server); /* 0: no TLS */

#endif
