/* Bursts of queries of equal and of unequal answers, from one socket and from several at once: each is answered
 * exactly once, whole, with its id, from the address that was asked. A plain main, for the thread sanitizer. */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "catalog_help.h"
#include "dns/dns.h"
#include "dns_help.h"

enum {
    SOCKETS = 5,
    BURST = 32, /* of a socket; together what queues of 200 KB take for certain */
    ROUNDS = 16,
    WAIT_MS = 20000,
};

/* Services of so many instances: A answers of 83 to 1,247 bytes for EDNS, of up to 512 without. */
static const unsigned kinds[] = {3, 8, 30, 74};
static const uint16_t types[] = {TYPE_A, TYPE_SRV};

/* The questions of a burst: always the same, two kinds in turn, all kinds and types, lengths that all differ. */
enum plan { EQUAL, TWO, ALL, NAMES, PLANS };

struct story {
    const char *address; /* asked at */
    pthread_t thread;
    uint16_t port;
    unsigned edns;
};

struct asked {
    bool answered;
    unsigned instances; /* 0: a name that does not exist */
    uint16_t type;
    char name[72];
};

static int dial(const char *address, uint16_t port) {
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    bool is_v4 = inet_pton(AF_INET, address, &v4.sin_addr) == 1;
    CHECK(is_v4 || inet_pton(AF_INET6, address, &v6.sin6_addr) == 1);
    int fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    /* Connected: an answer from another address does not arrive. */
    int rv = is_v4 ? connect(fd, (struct sockaddr *)&v4, sizeof(v4)) : connect(fd, (struct sockaddr *)&v6, sizeof(v6));
    CHECK(fd >= 0 && rv == 0);
    return fd;
}

static struct asked choose(enum plan plan, unsigned i) {
    struct asked asked = {.type = TYPE_A, .instances = kinds[0]};
    if (plan == TWO) asked.instances = kinds[i % 2 * 3];
    if (plan == ALL) {
        asked.instances = kinds[i * 7 % ARRAY_COUNT(kinds)];
        asked.type = types[i % 5 == 0];
    }
    if (plan == NAMES) {
        asked.instances = 0;
        snprintf(asked.name, sizeof(asked.name), "%.*s.service.coord", 1 + (int)i,
                 "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz");
    } else {
        snprintf(asked.name, sizeof(asked.name), "s%u.service.coord", asked.instances);
    }
    return asked;
}

static void check(const struct story *story, struct asked *asked, const uint8_t *data, size_t size) {
    struct help_answer answer = help_parse(data, size);
    char question[80];
    snprintf(question, sizeof(question), "%s.", asked->name);
    CHECK(strncmp(answer.question, question, strlen(question)) == 0);
    CHECK(!asked->answered);
    asked->answered = true;
    CHECK(answer.rcode == (asked->instances ? RCODE_NOERROR : RCODE_NXDOMAIN));
    CHECK(size <= (story->edns ? story->edns : PACKET_UDP_DEFAULT));
    if (!answer.tc) CHECK(answer.answers == asked->instances);
    if (asked->instances == kinds[0] || (story->edns && asked->type == TYPE_A)) CHECK(!answer.tc);
    help_free(&answer);
}

static void burst(const struct story *story, const int *fds, size_t sockets, enum plan plan, unsigned round) {
    struct asked asked[SOCKETS][BURST];
    uint8_t data[4096];
    for (unsigned i = 0; i < BURST; i++) { /* the sockets in turn, as a resolver's ports come */
        for (size_t s = 0; s < sockets; s++) {
            asked[s][i] = choose(plan, i);
            size_t size = help_query(data, asked[s][i].name, asked[s][i].type, story->edns);
            put_be16(data, (uint16_t)(round * SOCKETS * BURST + s * BURST + i));
            CHECK(send(fds[s], data, size, 0) == (ssize_t)size);
        }
    }
    for (size_t s = 0; s < sockets; s++) {
        for (unsigned i = 0; i < BURST; i++) {
            struct pollfd poll_fd = {.fd = fds[s], .events = POLLIN};
            CHECK(poll(&poll_fd, 1, WAIT_MS) == 1);
            ssize_t size = recv(fds[s], data, sizeof(data), 0);
            CHECK(size >= PACKET_HEADER_SIZE);
            unsigned at = get_be16(data) - (uint16_t)(round * SOCKETS * BURST + s * BURST);
            CHECK((uint16_t)at < BURST);
            check(story, &asked[s][(uint16_t)at], data, (size_t)size);
        }
    }
    for (size_t s = 0; s < sockets; s++) CHECK(recv(fds[s], data, sizeof(data), MSG_DONTWAIT) < 0); /* none twice */
}

static void *tell(void *data) {
    struct story *story = data;
    int fds[SOCKETS];
    for (size_t i = 0; i < SOCKETS; i++) fds[i] = dial(story->address, story->port);
    for (unsigned round = 0; round < ROUNDS; round++)
        burst(story, fds, round % 3 == 0 ? 1 : SOCKETS, (enum plan)(round % PLANS), round);
    for (size_t i = 0; i < SOCKETS; i++) close(fds[i]);
    return NULL;
}

static void instances(struct rpc *rpc, unsigned count) {
    char name[40], id[64], address[40];
    snprintf(name, sizeof(name), "s%u", count);
    for (unsigned i = 0; i < count; i++) {
        snprintf(id, sizeof(id), "%s-%u", name, i);
        snprintf(address, sizeof(address), "10.1.%u.%u", count, i);
        help_service(rpc,
                     (struct help_service){.node = "n1", .id = id, .name = name, .address = address, .port = 8080});
    }
}

static void run(struct rpc *rpc, const char *const *addresses, const char *const *asked_at) {
    struct dns_config config = {
        .addresses = addresses, .domain = "coord", .datacenter = "dc1", .node_name = "n1", .stale = true, .workers = 2};
    struct dns_server *server = NULL;
    struct fault fault = {0};
    CHECK(dns_start(&config, rpc, &server, &fault) == CO_OK);
    struct story stories[8];
    size_t count = 0;
    for (; asked_at[count]; count++) {
        stories[count] =
            (struct story){.address = asked_at[count], .port = dns_port(server), .edns = count % 2 ? 0 : 1247};
        CHECK(pthread_create(&stories[count].thread, NULL, tell, &stories[count]) == 0);
    }
    for (size_t i = 0; i < count; i++) CHECK(pthread_join(stories[i].thread, NULL) == 0);
    dns_stop(server);
}

/* Some machines have no IPv6. */
static bool has_v6(void) {
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool has = fd >= 0 && bind(fd, (struct sockaddr *)&to, sizeof(to)) == 0;
    if (fd >= 0) close(fd);
    if (!has) printf("no IPv6 here: left out\n");
    return has;
}

int main(void) {
    struct rpc *rpc = fake_rpc_start(NULL);
    help_node(rpc, "n1", "10.0.0.1", NULL);
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) instances(rpc, kinds[i]);
    bool v6 = has_v6();
    run(rpc, (const char *const[]){"127.0.0.1", v6 ? "::1" : NULL, NULL},
        (const char *const[]){"127.0.0.1", "127.0.0.1", v6 ? "::1" : NULL, "::1", NULL});
    run(rpc, (const char *const[]){"0.0.0.0", v6 ? "::" : NULL, NULL},
        (const char *const[]){"127.0.0.2", "127.0.0.1", "127.0.0.2", v6 ? "::1" : NULL, NULL});
    fake_rpc_stop(rpc);
    return 0;
}
