/* Sockets of the DNS server, and its two kinds of threads. For the files of dns/ only. */
#ifndef COORD_DNS_SOCKET_H
#define COORD_DNS_SOCKET_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "dns/responder.h"
#include "tls/context.h"

struct dns_address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } as;
    socklen_t size;
    bool wildcard; /* all addresses of the machine */
};
/* `text`: an IP address, no host name. */
int dns_address_parse(struct dns_address *address, const char *text, uint16_t port, struct fault *fault);
void dns_address_set_port(struct dns_address *address, uint16_t port);

/* Both return a descriptor, or -1 with errno. TCP: listening, not blocking. */
int dns_socket_udp(const struct dns_address *address);
int dns_socket_tcp(const struct dns_address *address);
int dns_socket_port(int fd, uint16_t *port);
/* Does the kernel know UDP_SEGMENT (Linux 4.18)? An older one would ignore it in a message, and send that uncut. */
bool dns_socket_segments(int fd);

/* Start a thread with all signals blocked, and take the descriptors over. `stop` ends the thread and frees
 * everything. */
struct dns_udp;
int dns_udp_start(const struct dns_setup *setup, struct rpc *rpc, int fd, bool wildcard, struct dns_udp **out,
                  struct fault *fault);
void dns_udp_stop(struct dns_udp *udp);

/* `slot`: whose certificate the clients are shown, and it outlives the thread; NULL: plain TCP. */
struct dns_tcp;
int dns_tcp_start(const struct dns_setup *setup, struct rpc *rpc, const int *listeners, size_t count,
                  unsigned connections_max, struct tls_slot *slot, struct dns_tcp **out, struct fault *fault);
void dns_tcp_stop(struct dns_tcp *tcp);

#endif
