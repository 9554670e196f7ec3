/* The server's threads and the applier at once: clients over UDP, TCP and TLS, certificates and a catalog that change, start and
 * stop. A plain main, for the thread sanitizer. */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "catalog_help.h"
#include "dns/dns.h"
#include "dns_help.h"
#include "tls_help.h"

enum { CLIENTS = 3, ROUNDS = 60, AT_ONCE = 16, CHANGES = 200, INSTANCES = 20, SECURE_ROUNDS = 10 };

struct client {
    pthread_t thread;
    uint16_t port;
    bool tcp;
    struct tls_context *trusting;
    unsigned answered;
};

static int dial(const struct client *client) {
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(client->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, (client->tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
    return fd;
}

static bool take(int fd, uint8_t *to, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = recv(fd, to + done, size - done, 0);
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

/* The addresses do not change, only what else is known of the instances: each answer is whole. */
static void check(const uint8_t *data, size_t size) {
    struct help_answer answer = help_parse(data, size);
    CHECK(answer.rcode == RCODE_NOERROR && !answer.tc && answer.answers == INSTANCES);
    help_free(&answer);
}

static void ask(int fd, struct client *client, unsigned id) {
    uint8_t query[514];
    size_t size = help_query(query + 2, "db.service.coord", id % 2 ? TYPE_A : TYPE_SRV, client->tcp ? 0 : 4096);
    put_be16(query, (uint16_t)size);
    if (client->tcp) CHECK(send(fd, query, size + 2, 0) == (ssize_t)size + 2);
    else CHECK(send(fd, query + 2, size, 0) == (ssize_t)size);
}

static bool hear(int fd, struct client *client, uint8_t *in, size_t room) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    if (poll(&poll_fd, 1, client->tcp ? 20000 : 1000) != 1) return false;
    size_t size;
    if (client->tcp) {
        CHECK(take(fd, in, 2));
        size = get_be16(in);
        CHECK(size <= room && take(fd, in, size));
    } else {
        size = (size_t)recv(fd, in, room, 0);
    }
    check(in, size);
    client->answered++;
    return true;
}

static void *client_run(void *data) {
    struct client *client = data;
    static _Thread_local uint8_t in[8192];
    int fd = dial(client);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < AT_ONCE; i++) ask(fd, client, i);
        for (unsigned i = 0; i < AT_ONCE && hear(fd, client, in, sizeof(in)); i++) continue;
    }
    close(fd);
    return NULL;
}

/* Dials anew each time, while certificates are replaced. */
static void *secure_run(void *data) {
    struct client *client = data;
    static uint8_t in[8192], query[514];
    size_t size = help_query(query + 2, "db.service.coord", TYPE_SRV, 0);
    put_be16(query, (uint16_t)size);
    for (unsigned round = 0; round < SECURE_ROUNDS; round++) {
        struct help_tls connection;
        CHECK(help_tls_dial(&connection, client->port, client->trusting));
        for (unsigned i = 0; i < AT_ONCE; i++) help_tls_send(&connection, query, size + 2);
        for (unsigned i = 0; i < AT_ONCE; i++) {
            check(in, help_tls_hear(&connection, in, sizeof(in)));
            client->answered++;
        }
        help_tls_close(&connection);
    }
    return NULL;
}

static void instance(struct rpc *rpc, unsigned i, unsigned port) {
    char id[20], address[20];
    snprintf(id, sizeof(id), "db%u", i);
    snprintf(address, sizeof(address), "10.1.0.%u", i);
    help_service(rpc, (struct help_service){.node = "n1", .id = id, .name = "db", .address = address, .port = port});
}

int main(void) {
    struct rpc *rpc = fake_rpc_start(NULL);
    help_node(rpc, "n1", "10.0.0.1", NULL);
    for (unsigned i = 0; i < INSTANCES; i++) instance(rpc, i, 1000);
    static const char *const loopback[] = {"127.0.0.1", NULL};
    struct test_ca authority = {0};
    struct identity identity = {0};
    struct tls_slot *slot = tls_slot_new();
    const struct tls_context_config usual = {.only_tls13 = false};
    test_ca_make(&authority);
    identity_make(&authority, TLS_ROLE_SERVER, "s1", -DAY_S, DAY_S, &identity);
    tls_slot_set(slot, context_of(&identity, NULL, usual));
    struct dns_config config = {.addresses = loopback,
                                .domain = "coord",
                                .datacenter = "dc1",
                                .node_name = "n1",
                                .stale = true,
                                .workers = 2,
                                .tls = slot};
    struct dns_server *server = NULL;
    struct fault fault = {0};
    CHECK(dns_start(&config, rpc, &server, &fault) == CO_OK);

    struct client clients[CLIENTS] = {{0}};
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i].port = dns_port(server);
        clients[i].tcp = i == 0;
        CHECK(pthread_create(&clients[i].thread, NULL, client_run, &clients[i]) == 0);
    }
    struct client secure = {.port = dns_tls_port(server), .trusting = context_of(NULL, &authority, usual)};
    CHECK(pthread_create(&secure.thread, NULL, secure_run, &secure) == 0);
    for (unsigned i = 0; i < CHANGES; i++) {
        if (i % 20 == 0) tls_slot_set(slot, context_of(&identity, NULL, usual));
        instance(rpc, i % INSTANCES, 2000 + i);
        usleep(500);
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        CHECK(pthread_join(clients[i].thread, NULL) == 0);
        CHECK(clients[i].answered >= ROUNDS * AT_ONCE / 2); /* UDP may lose some on a busy machine */
    }
    CHECK(clients[0].answered == ROUNDS * AT_ONCE);
    CHECK(pthread_join(secure.thread, NULL) == 0);
    CHECK(secure.answered == SECURE_ROUNDS * AT_ONCE);
    dns_stop(server);
    tls_context_unref(secure.trusting);
    tls_slot_free(slot);
    identity_free(&identity);
    test_ca_free(&authority);
    fake_rpc_stop(rpc);
    return 0;
}
