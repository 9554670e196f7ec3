/* Parses "host:port" as people and configurations write it. Pure. */
#ifndef COORD_RPC_ADDRESS_H
#define COORD_RPC_ADDRESS_H

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define ADDRESS_MAX 128

/* "host", "host:port", "::1", "[::1]", "[::1]:port" -> with a port, `port` when it names none. False: too long, no
 * host, or not a port. */
bool address_complete(const char *text, uint16_t port, char out[ADDRESS_MAX]);
/* NULL, or why nobody can be joined by this text, as the end of a line that begins with it ("is not an address"). Texts
 * for libraries that coord does not have (cloud auto-join, templates) get their own reason. */
const char *address_refused(const char *text);
/* "host:port", "[v6]:port" -> host and port. */
bool address_split(const char *name, char host[ADDRESS_MAX], char port[8]);
/* An IP and a port; false: the host is a name. */
bool address_ip(const char *host, const char *port, struct sockaddr_storage *out);

/* A name with several addresses: tries them in turn, whatever it resolves to each time, and then begins anew. Zero at
 * first. */
struct address_turn {
    unsigned next, left;
};
/* Of `count` (at least 1) addresses: the index of the one to try now. */
unsigned address_turn_next(struct address_turn *turn, unsigned count);
unsigned address_count(const struct addrinfo *found);
const struct sockaddr *address_at(const struct addrinfo *found, unsigned at);
/* The address to try now; `found` is not empty. */
const struct sockaddr *address_next(struct address_turn *turn, const struct addrinfo *found);
/* The address was of no use. True: another one is left in this round; try it at once. */
bool address_failed(struct address_turn *turn);

#endif
