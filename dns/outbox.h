/* The answers of a batch on their way out of one UDP socket: those that can share a message (segments.h) do, and all
 * messages leave in one call. Answers that the kernel refuses together leave singly. One thread. */
#ifndef COORD_DNS_OUTBOX_H
#define COORD_DNS_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "dns/segments.h"

enum {
    OUTBOX_ANSWERS = 64,
    OUTBOX_CONTROL = 64, /* at most, of a query */
};

struct dns_outbox;
typedef int dns_sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags);

/* `send` is sendmmsg, but for tests. `segments`: the kernel knows UDP_SEGMENT (dns_socket_segments). The descriptor
 * stays the caller's. */
struct dns_outbox *dns_outbox_new(int fd, bool segments, dns_sendmmsg *send);
void dns_outbox_free(struct dns_outbox *outbox);

/* Room for an answer; until it is added or the box is flushed. Sends what is there when it is full. */
uint8_t *dns_outbox_room(struct dns_outbox *outbox);
/* The answer of `size` bytes, 1..DNS_UDP_ROOM, which stands in the room now, goes to where `query` came from, from
 * the address that it was sent to: its name and control as received, which stay until dns_outbox_flush. */
void dns_outbox_add(struct dns_outbox *outbox, const struct msghdr *query, size_t size);
/* Sends all. What one message makes fail (no route, a filter's refusal) is that message's; the others go out. */
void dns_outbox_flush(struct dns_outbox *outbox);

#endif
