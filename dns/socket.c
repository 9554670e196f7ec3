#include "dns/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <unistd.h>

enum {
    BACKLOG = 512,
    UDP_QUEUE_BYTES = 4 << 20,
    TCP_QUEUE_BYTES = 128 * 1024, /* what the kernel keeps for a client that does not read */
};

int dns_address_parse(struct dns_address *address, const char *text, uint16_t port, struct fault *fault) {
    *address = (struct dns_address){0};
    if (inet_pton(AF_INET, text, &address->as.v4.sin_addr) == 1) {
        address->as.v4.sin_family = AF_INET;
        address->size = sizeof(address->as.v4);
        address->wildcard = address->as.v4.sin_addr.s_addr == htonl(INADDR_ANY);
    } else if (inet_pton(AF_INET6, text, &address->as.v6.sin6_addr) == 1) {
        address->as.v6.sin6_family = AF_INET6;
        address->size = sizeof(address->as.v6);
        address->wildcard = IN6_IS_ADDR_UNSPECIFIED(&address->as.v6.sin6_addr);
    } else {
        return fault_set(fault, CO_INVALID, "'%.80s' is not an IP address to answer DNS on", text);
    }
    dns_address_set_port(address, port);
    return CO_OK;
}

void dns_address_set_port(struct dns_address *address, uint16_t port) {
    if (address->as.any.sa_family == AF_INET) address->as.v4.sin_port = htons(port);
    else address->as.v6.sin6_port = htons(port);
}

static void switch_on(int fd, int level, int option) {
    int yes = 1;
    (void)setsockopt(fd, level, option, &yes, sizeof(yes));
}

static int close_with_errno(int fd) {
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

/* Answers must leave from the address that was asked. The kernel tells that address only when this option is on. */
static void want_destination(int fd, int family) {
    if (family == AF_INET) switch_on(fd, IPPROTO_IP, IP_PKTINFO);
    else switch_on(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO);
}

/* Forged "fragmentation needed" messages must not make answers fragment. */
static void ignore_path_mtu(int fd, int family) {
    int v4 = IP_PMTUDISC_OMIT, v6 = IPV6_PMTUDISC_OMIT;
    if (family == AF_INET) (void)setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &v4, sizeof(v4));
    else (void)setsockopt(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &v6, sizeof(v6));
}

int dns_socket_udp(const struct dns_address *address) {
    int family = address->as.any.sa_family, queue = UDP_QUEUE_BYTES;
    int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    switch_on(fd, SOL_SOCKET, SO_REUSEPORT);
    if (family == AF_INET6) switch_on(fd, IPPROTO_IPV6, IPV6_V6ONLY);
    if (address->wildcard) want_destination(fd, family);
    ignore_path_mtu(fd, family);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &queue, sizeof(queue));
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &queue, sizeof(queue));
    return bind(fd, &address->as.any, address->size) == 0 ? fd : close_with_errno(fd);
}

int dns_socket_tcp(const struct dns_address *address) {
    int family = address->as.any.sa_family, queue = TCP_QUEUE_BYTES;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    switch_on(fd, SOL_SOCKET, SO_REUSEADDR);
    if (family == AF_INET6) switch_on(fd, IPPROTO_IPV6, IPV6_V6ONLY);
    switch_on(fd, IPPROTO_TCP, TCP_NODELAY);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &queue, sizeof(queue));
    bool good = bind(fd, &address->as.any, address->size) == 0 && listen(fd, BACKLOG) == 0;
    return good ? fd : close_with_errno(fd);
}

int dns_socket_port(int fd, uint16_t *port) {
    struct dns_address address;
    socklen_t size = sizeof(address.as);
    if (getsockname(fd, &address.as.any, &size) != 0) return co_from_errno(errno);
    *port = ntohs(address.as.any.sa_family == AF_INET ? address.as.v4.sin_port : address.as.v6.sin6_port);
    return CO_OK;
}

bool dns_socket_segments(int fd) {
    int none = 0; /* none for the socket, because each message names its own size */
    return setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &none, sizeof(none)) == 0;
}
