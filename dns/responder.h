/* Answers one packet with another, for UDP, TCP and TLS. Each thread has one responder. */
#ifndef COORD_DNS_RESPONDER_H
#define COORD_DNS_RESPONDER_H

#include "dns/setup.h"

enum dns_transport { DNS_UDP, DNS_TCP, DNS_TLS, DNS_TRANSPORTS };

struct dns_responder;
struct dns_responder *dns_responder_new(const struct dns_setup *setup, struct rpc *rpc);
void dns_responder_free(struct dns_responder *responder);

/* Call these before and after the queries that arrived together. _begin finds out whether the catalog may be read (and
 * waits for a confirmation when stale answers are not wanted) and takes the time; _end adds the counts to the
 * metrics. */
void dns_responder_begin(struct dns_responder *responder);
void dns_responder_end(struct dns_responder *responder);

/* The room that `out` needs for any query. */
enum { DNS_UDP_ROOM = PACKET_UDP_MAX + ANSWER_SLACK, DNS_TCP_ROOM = PACKET_TCP_MAX + ANSWER_SLACK };
/* Returns the size of the answer; 0: none. Over TLS the answer to a padded query is padded; on a wire that everybody reads it
 * would hide nothing. */
size_t dns_responder_answer(struct dns_responder *responder, enum dns_transport transport, const uint8_t *query,
                            size_t size, uint8_t *out);

/* Registers the metrics of the module. */
void dns_metrics_register(void);

#endif
