/* Sends the answers of a batch over one UDP socket: answers that can share a message (segments.h) do, and one call
 * sends all messages. Answers that the kernel refuses together are sent one by one. For one thread. */
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

/* `send` is sendmmsg, except in tests. `segments`: the kernel knows UDP_SEGMENT (dns_socket_segments). The caller
 * closes the descriptor. */
struct dns_outbox *dns_outbox_new(int fd, bool segments, dns_sendmmsg *send);
void dns_outbox_free(struct dns_outbox *outbox);

/* Room for an answer, valid until the answer is added or the box is flushed. A full box is sent first. */
uint8_t *dns_outbox_room(struct dns_outbox *outbox);
/* Adds the answer that was written into the room, `size` bytes, 1..DNS_UDP_ROOM. It goes to the sender of `query`, from
 * the address that the query was sent to. The name and control of `query` must stay valid until dns_outbox_flush. */
void dns_outbox_add(struct dns_outbox *outbox, const struct msghdr *query, size_t size);
/* Sends all. When one message fails (no route, refused by a filter) the others are sent nevertheless. */
void dns_outbox_flush(struct dns_outbox *outbox);

#endif
