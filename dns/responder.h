/* Packet in, packet out: what UDP and TCP share. One per thread. */
#ifndef COORD_DNS_RESPONDER_H
#define COORD_DNS_RESPONDER_H

#include "dns/setup.h"

enum dns_transport { DNS_UDP, DNS_TCP };

struct dns_responder;
struct dns_responder *dns_responder_new(const struct dns_setup *setup, struct rpc *rpc);
void dns_responder_free(struct dns_responder *responder);

/* Around the queries that arrived together: says whether the catalog may be read (and waits for that when stale
 * answers are not wanted), takes the time, and hands the counts to the metrics. */
void dns_responder_begin(struct dns_responder *responder);
void dns_responder_end(struct dns_responder *responder);

/* Room that `out` needs, whatever is asked. */
enum { DNS_UDP_ROOM = PACKET_UDP_MAX + ANSWER_SLACK, DNS_TCP_ROOM = PACKET_TCP_MAX + ANSWER_SLACK };
/* Returns the size of the answer; 0: none. */
size_t dns_responder_answer(struct dns_responder *responder, enum dns_transport transport, const uint8_t *query,
                            size_t size, uint8_t *out);

/* Registers the metrics of the module. */
void dns_metrics_register(void);

#endif
