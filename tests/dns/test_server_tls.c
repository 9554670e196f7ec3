/* DNS over TLS: the whole server over loopback sockets. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "catalog_help.h"
#include "dns/dns.h"
#include "dns_help.h"
#include "tls_help.h"

enum { INSTANCES = 100 };

static struct rpc *rpc;
static struct dns_server *server;
static struct tls_slot *slot;
static struct test_ca authority;
static struct tls_context *trusting; /* the client's */
static uint8_t in[70000];

static void show(const char *node) {
    struct identity identity = {0};
    identity_make(&authority, TLS_ROLE_SERVER, node, -DAY_S, DAY_S, &identity);
    tls_slot_set(slot, context_of(&identity, NULL, (struct tls_context_config){0}));
    identity_free(&identity);
}

static struct dns_config default_config(void) {
    static const char *const loopback[] = {"127.0.0.1", NULL};
    return (struct dns_config){
        .addresses = loopback, .domain = "coord", .datacenter = "dc1", .node_name = "n1", .stale = true, .tls = slot};
}

static void start(struct dns_config config) {
    struct fault fault = {0};
    cr_assert(eq(int, dns_start(&config, rpc, &server, &fault), CO_OK), "%s", fault.text);
    cr_assert(ne(u16, dns_tls_port(server), 0));
}

static void set_up(void) {
    rpc = fake_rpc_start(NULL);
    help_node(rpc, "n1", "10.0.0.1", NULL);
    for (unsigned i = 0; i < INSTANCES; i++) {
        char id[20], address[20];
        snprintf(id, sizeof(id), "big%u", i);
        snprintf(address, sizeof(address), "10.1.0.%u", i);
        help_service(rpc, (struct help_service){.node = "n1", .id = id, .name = "big", .address = address, .port = i});
    }
    help_service(rpc, (struct help_service){.node = "n1", .id = "db", .name = "db", .port = 5432});
    test_ca_make(&authority);
    slot = tls_slot_new();
    show("s1");
    trusting = context_of(NULL, &authority, (struct tls_context_config){0});
}
static void tear_down(void) {
    dns_stop(server);
    tls_slot_free(slot);
    tls_context_unref(trusting);
    test_ca_free(&authority);
    fake_rpc_stop(rpc);
}
TestSuite(dns_server_tls, .init = set_up, .fini = tear_down, .timeout = 300);

static void dial(struct help_tls *client) {
    cr_assert(help_tls_dial(client, dns_tls_port(server), trusting), "%s", tls_session_why(client->session));
}

static size_t frame(uint8_t *to, const char *name, unsigned id) {
    size_t size = help_query(to + 2, name, TYPE_A, 0);
    put_be16(to, (uint16_t)size);
    put_be16(to + 2, (uint16_t)id);
    return size + 2;
}

/* The next answer is the one to this query, whole. */
static void expect(struct help_tls *client, unsigned id, size_t records) {
    size_t size = help_tls_hear(client, in, sizeof(in));
    cr_assert(gt(sz, size, 12), "no answer %u", id);
    cr_expect(eq(u16, get_be16(in), id));
    struct help_answer got = help_parse(in, size);
    cr_expect(eq(sz, got.answers, records));
    cr_expect(not(got.tc));
    help_free(&got);
}

static void ask(struct help_tls *client, unsigned id) {
    uint8_t out[64];
    help_tls_send(client, out, frame(out, "db.service.coord", id));
    expect(client, id, 1);
}

Test(dns_server_tls, pipelined) {
    enum { QUERIES = 500 };
    start(default_config());
    struct help_tls client;
    dial(&client);
    static uint8_t out[QUERIES * 64];
    size_t size = 0;
    for (unsigned i = 0; i < QUERIES; i++)
        size += frame(out + size, i % 2 ? "big.service.coord" : "db.service.coord", i);
    help_tls_send(&client, out, size);
    for (unsigned i = 0; i < QUERIES; i++) expect(&client, i, i % 2 ? INSTANCES : 1);
    help_tls_close(&client);
}

/* The goodbye comes together with queries: they are answered, and then the server says goodbye, too. */
Test(dns_server_tls, queries_and_a_goodbye) {
    start(default_config());
    struct help_tls client;
    dial(&client);
    uint8_t out[256];
    size_t size = frame(out, "db.service.coord", 1);
    size += frame(out + size, "big.service.coord", 2);
    tls_session_write(client.session, slice_make(out, size));
    tls_session_goodbye(client.session);
    help_tls_flush(&client);
    expect(&client, 1, 1);
    expect(&client, 2, INSTANCES);
    cr_expect(eq(sz, help_tls_hear(&client, in, sizeof(in)), 0));
    cr_expect(eq(int, (int)tls_session_state(client.session), TLS_ENDED));
    help_tls_close(&client);
}

/* The answers to the queries before the junk reach nobody, least of all another client. */
Test(dns_server_tls, junk_after_queries) {
    start(default_config());
    struct help_tls bad, good;
    dial(&bad);
    dial(&good);
    uint8_t out[256];
    size_t size = frame(out, "big.service.coord", 1);
    size += frame(out + size, "big.service.coord", 2);
    memset(out + size, 0xff, 10);
    help_tls_send(&bad, out, size + 10);
    cr_expect(eq(sz, help_tls_hear(&bad, in, sizeof(in)), 0));
    ask(&good, 3);
    help_tls_close(&bad);
    help_tls_close(&good);
}

Test(dns_server_tls, a_new_certificate) {
    start(default_config());
    struct help_tls before, after;
    dial(&before);
    ask(&before, 1);
    show("s2");
    dial(&after);
    ask(&after, 2);
    ask(&before, 3);
    cr_expect_str_eq(tls_session_peer(before.session)->node, "s1");
    cr_expect_str_eq(tls_session_peer(after.session)->node, "s2");
    help_tls_close(&before);
    help_tls_close(&after);
}

Test(dns_server_tls, without_a_certificate_nobody_is_served) {
    tls_slot_set(slot, NULL);
    start(default_config());
    struct help_tls client;
    cr_expect_not(help_tls_dial(&client, dns_tls_port(server), trusting));
    help_tls_close(&client);
    show("s1");
    dial(&client);
    ask(&client, 1);
    help_tls_close(&client);
}

/* At the limit the one that has been quiet for longest makes room. */
Test(dns_server_tls, connection_limit) {
    struct dns_config config = default_config();
    config.tcp_connections_max = 8;
    start(config);
    struct help_tls clients[12];
    for (unsigned i = 0; i < 12; i++) {
        dial(&clients[i]);
        ask(&clients[i], i);
        struct pollfd first = {.fd = clients[i < 8 ? 0 : i - 8].fd, .events = POLLIN};
        cr_assert(eq(int, poll(&first, 1, 0), i >= 8), "it has ended before %u was taken, not later", i);
    }
    for (unsigned i = 0; i < 4; i++) {
        cr_expect(eq(sz, help_tls_hear(&clients[i], in, sizeof(in)), 0), "connection %u", i);
        cr_expect(eq(int, (int)tls_session_state(clients[i].session), TLS_ENDED), "it is told");
    }
    for (unsigned i = 4; i < 12; i++) ask(&clients[i], i);
    for (unsigned i = 0; i < 12; i++) help_tls_close(&clients[i]);
}

/* A handshake that stops halfway has less time than a connection that is idle: it ends before one that began earlier. */
Test(dns_server_tls, half_a_handshake) {
    start(default_config());
    struct help_tls idle;
    dial(&idle);
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(dns_tls_port(server)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int half = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(eq(int, connect(half, (struct sockaddr *)&to, sizeof(to)), 0));
    cr_assert(eq(long, send(half, "\x16\x03\x01\x01", 4, 0), 4));
    struct pollfd fds[] = {{.fd = half, .events = POLLIN}, {.fd = idle.fd, .events = POLLIN}};
    cr_assert(ge(int, poll(fds, 2, 60000), 1));
    cr_expect(fds[0].revents, "the idle one ended first");
    cr_expect(eq(long, recv(half, in, sizeof(in), 0), 0));
    close(half);
    help_tls_close(&idle);
}

Test(dns_server_tls, alone) {
    struct dns_config config = default_config();
    config.tls_only = true;
    start(config);
    cr_expect(eq(u16, dns_port(server), 0));
    struct help_tls client;
    dial(&client);
    ask(&client, 1);
    help_tls_close(&client);
}

Test(dns_server_tls, a_port_in_use) {
    start(default_config());
    struct dns_config config = default_config();
    config.tls_port = dns_tls_port(server);
    struct dns_server *second = NULL;
    struct fault fault = {0};
    cr_expect(ne(int, dns_start(&config, rpc, &second, &fault), CO_OK));
    char wanted[80];
    snprintf(wanted, sizeof(wanted), "cannot answer DNS over TLS on 127.0.0.1 port %u", (unsigned)config.tls_port);
    cr_expect(strstr(fault.text, wanted) != NULL, "%s", fault.text);
}
