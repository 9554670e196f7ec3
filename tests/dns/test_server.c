/* The whole server over loopback sockets. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "catalog_help.h"
#include "dns/dns.h"
#include "dns_help.h"

enum { DEADLINE_MS = 20000 };

static struct rpc *rpc;
static struct dns_server *server;
static uint8_t in[70000];

static struct dns_config config_for(const char *const *addresses) {
    return (struct dns_config){.addresses = addresses,
                               .domain = "coord",
                               .datacenter = "dc1",
                               .node_name = "n1",
                               .stale = true,
                               .workers = 2,
                               .soa_refresh = 3600,
                               .soa_retry = 600,
                               .soa_expire = 86400};
}
static const char *const loopback[] = {"127.0.0.1", NULL};

static void start(const struct dns_config *config) {
    struct fault fault = {0};
    cr_assert(eq(int, dns_start(config, rpc, &server, &fault), CO_OK), "%s", fault.text);
    cr_assert(ne(u16, dns_port(server), 0));
}

static void set_up(void) {
    rpc = fake_rpc_start(NULL);
    help_node(rpc, "n1", "10.0.0.1", NULL);
    for (unsigned i = 0; i < 100; i++) {
        char id[20], address[20];
        snprintf(id, sizeof(id), "big%u", i);
        snprintf(address, sizeof(address), "10.1.0.%u", i);
        help_service(
            rpc, (struct help_service){.node = "n1", .id = id, .name = "big", .address = address, .port = 1000 + i});
    }
    help_service(rpc, (struct help_service){.node = "n1", .id = "db", .name = "db", .port = 5432});
}
static void tear_down(void) {
    dns_stop(server);
    fake_rpc_stop(rpc);
}
TestSuite(dns_server, .init = set_up, .fini = tear_down, .timeout = 300);

static int dial(int type, const char *address) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(dns_port(server))};
    cr_assert(eq(int, inet_pton(AF_INET, address, &to.sin_addr), 1));
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    struct timeval limit = {.tv_sec = DEADLINE_MS / 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    cr_assert(eq(int, connect(fd, (struct sockaddr *)&to, sizeof(to)), 0));
    return fd;
}

static struct help_answer ask_udp(int fd, const char *name, unsigned type, unsigned edns) {
    uint8_t query[512];
    size_t size = help_query(query, name, type, edns);
    cr_assert(eq(long, send(fd, query, size, 0), (long)size));
    ssize_t got = recv(fd, in, sizeof(in), 0);
    cr_assert(got > 0, "no answer for %s", name);
    return help_parse(in, (size_t)got);
}

static size_t frame(uint8_t *to, const char *name, unsigned type, unsigned id) {
    size_t size = help_query(to + 2, name, type, 0);
    put_be16(to, (uint16_t)size);
    put_be16(to + 2, (uint16_t)id);
    return size + 2;
}

static bool read_exactly(int fd, uint8_t *to, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = recv(fd, to + done, size - done, 0);
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

/* The next answer on the connection; its size, 0 when it was closed. */
static size_t read_frame(int fd) {
    uint8_t length[2];
    if (!read_exactly(fd, length, 2)) return 0;
    size_t size = get_be16(length);
    cr_assert(read_exactly(fd, in, size));
    return size;
}

Test(dns_server, udp) {
    struct dns_config config = config_for(loopback);
    start(&config);
    int fd = dial(SOCK_DGRAM, "127.0.0.1");
    struct help_answer got = ask_udp(fd, "db.service.coord", TYPE_A, 0);
    EXPECT_LINES(got.answer, "db.service.coord. 0 IN A 10.0.0.1");
    help_free(&got);
    got = ask_udp(fd, "big.service.coord", TYPE_A, 0);
    cr_expect(got.tc);
    cr_expect(le(sz, got.size, 512));
    help_free(&got);
    got = ask_udp(fd, "big.service.coord", TYPE_SRV, 8192);
    cr_expect(not(got.tc));
    cr_expect(eq(sz, got.answers, 100));
    help_free(&got);
    close(fd);
}

/* Nonsense gets an error or nothing, and the next query its answer. */
Test(dns_server, udp_nonsense) {
    struct dns_config config = config_for(loopback);
    start(&config);
    int fd = dial(SOCK_DGRAM, "127.0.0.1");
    struct rng rng;
    rng_seed(&rng, 3);
    for (unsigned i = 0; i < 2000; i++) {
        uint8_t junk[2000];
        size_t size = i < 40 ? i : rng_below(&rng, sizeof(junk));
        for (size_t j = 0; j < size; j++) junk[j] = (uint8_t)rng_next(&rng);
        if (size > 2 && i % 2) junk[2] &= 0x7f;
        send(fd, junk, size, 0);
    }
    uint8_t query[512];
    size_t size = help_query(query, "db.service.coord", TYPE_A, 0);
    uint64_t deadline_ms = clock_mono_ms() + DEADLINE_MS;
    struct help_answer got = {.rcode = -1};
    put_be16(query, 0xabcd);
    while (got.rcode != RCODE_NOERROR && clock_mono_ms() < deadline_ms) {
        send(fd, query, size, 0); /* again: the junk may have filled the queue */
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        while (got.rcode != RCODE_NOERROR && poll(&poll_fd, 1, 200) == 1) {
            ssize_t n = recv(fd, in, sizeof(in), 0);
            if (n >= 12 && get_be16(in) == 0xabcd && (in[3] & 15) == 0) got = help_parse(in, (size_t)n);
            else cr_expect(n >= 12 && (in[2] & 0x80) && (in[3] & 15) != 0);
        }
    }
    EXPECT_LINES(got.answer, "db.service.coord. 0 IN A 10.0.0.1");
    help_free(&got);
    close(fd);
}

static void *flood(void *data) {
    _Atomic unsigned *wrong = data;
    int fd = dial(SOCK_DGRAM, "127.0.0.1");
    uint8_t query[512], answer[2048];
    size_t size = help_query(query, "big.service.coord", TYPE_A, 4096);
    unsigned answered = 0;
    for (unsigned round = 0; round < 200; round++) {
        for (unsigned i = 0; i < 32; i++) {
            put_be16(query, (uint16_t)(round * 32 + i));
            send(fd, query, size, 0);
        }
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        for (unsigned i = 0; i < 32 && poll(&poll_fd, 1, 1000) == 1; answered++) {
            ssize_t n = recv(fd, answer, sizeof(answer), 0);
            unsigned of = get_be16(answer) / 32; /* of a round before: nobody waited for it any more */
            if (n != 12 + 23 + 1600 + 11 || of > round || get_be16(answer + 6) != 100) (*wrong)++;
            i += of == round;
        }
    }
    if (answered < 200 * 32 / 2) (*wrong)++;
    close(fd);
    return NULL;
}

/* Many at once, from several sockets, while the catalog changes beneath. */
Test(dns_server, udp_in_batches_under_changes) {
    struct dns_config config = config_for(loopback);
    start(&config);
    enum { CLIENTS = 4 };
    pthread_t clients[CLIENTS];
    _Atomic unsigned wrong = 0;
    for (size_t i = 0; i < CLIENTS; i++)
        cr_assert(eq(int, pthread_create(&clients[i], NULL, flood, (void *)&wrong), 0));
    for (unsigned i = 0; i < 300; i++) { /* the weight and port change, the addresses do not */
        help_service(rpc, (struct help_service){.node = "n1",
                                                .id = "big7",
                                                .name = "big",
                                                .address = "10.1.0.7",
                                                .port = 2000 + i,
                                                .passing = 1 + i % 9,
                                                .warning = 1});
        usleep(1000);
    }
    for (size_t i = 0; i < CLIENTS; i++) pthread_join(clients[i], NULL);
    cr_expect(eq(uint, wrong, 0));
}

Test(dns_server, tcp_pipelined) {
    struct dns_config config = config_for(loopback);
    start(&config);
    int fd = dial(SOCK_STREAM, "127.0.0.1");
    uint8_t out[64 * 64];
    size_t size = 0;
    for (unsigned i = 0; i < 50; i++)
        size += frame(out + size, i % 2 ? "big.service.coord" : "db.service.coord", TYPE_A, i);
    cr_assert(eq(long, send(fd, out, size, 0), (long)size));
    for (unsigned i = 0; i < 50; i++) {
        size_t got = read_frame(fd);
        cr_assert(got > 12);
        cr_expect(eq(u16, get_be16(in), i));
        cr_expect(eq(u16, get_be16(in + 6), i % 2 ? 100 : 1));
        struct help_answer answer = help_parse(in, got);
        cr_expect(not(answer.tc));
        help_free(&answer);
    }
    close(fd);
}

/* A byte at a time, and the client closes its side behind its last query. */
Test(dns_server, tcp_in_pieces) {
    struct dns_config config = config_for(loopback);
    start(&config);
    int fd = dial(SOCK_STREAM, "127.0.0.1");
    uint8_t out[128];
    size_t size = frame(out, "db.service.coord", TYPE_SRV, 77);
    for (size_t i = 0; i < size; i++) cr_assert(eq(long, send(fd, out + i, 1, 0), 1));
    cr_expect(gt(sz, read_frame(fd), 12));
    size = frame(out, "db.service.coord", TYPE_SRV, 78);
    cr_assert(eq(long, send(fd, out, size, 0), (long)size));
    shutdown(fd, SHUT_WR);
    cr_expect(gt(sz, read_frame(fd), 12));
    cr_expect(eq(u16, get_be16(in), 78));
    cr_expect(eq(sz, read_frame(fd), 0));
    close(fd);
}

Test(dns_server, tcp_nonsense) {
    struct dns_config config = config_for(loopback);
    start(&config);
    static const struct {
        const char *data;
        size_t size;
    } rows[] = {{"\xff\xff"
                 "aaaaaaaaaaaaaa",
                 16},
                {"\0\0", 2},
                {"\0\x05"
                 "abcde",
                 7},
                {"\0\x0c\0\0\x80\0\0\0\0\0\0\0\0\0", 14}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int fd = dial(SOCK_STREAM, "127.0.0.1");
        cr_assert(eq(long, send(fd, rows[i].data, rows[i].size, 0), (long)rows[i].size));
        cr_expect(eq(sz, read_frame(fd), 0), "row %zu", i);
        close(fd);
    }
    int fd = dial(SOCK_STREAM, "127.0.0.1"); /* a bad message in a good frame: an error, and the connection goes on */
    uint8_t out[128] = "\0\x0c\x11\x11\0\0\0\x02\0\0\0\0\0\0";
    size_t size = 14 + frame(out + 14, "db.service.coord", TYPE_A, 5);
    cr_assert(eq(long, send(fd, out, size, 0), (long)size));
    cr_expect(eq(sz, read_frame(fd), 12));
    cr_expect(eq(int, in[3] & 15, RCODE_FORMERR));
    cr_expect(gt(sz, read_frame(fd), 12));
    cr_expect(eq(u16, get_be16(in), 5));
    close(fd);
}

/* A client that asks and does not read is not read from either: what waits for it is bounded. It gets all in the
 * end. */
Test(dns_server, tcp_slow_reader) {
    struct dns_config config = config_for(loopback);
    start(&config);
    int fd = dial(SOCK_STREAM, "127.0.0.1");
    int small = 64 * 1024;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    uint8_t out[64];
    unsigned sent = 0;
    size_t size = 0, done = 0;
    for (;; done = 0, sent++) { /* until the server stops taking more: 16 MB of answers would be asked for */
        size = frame(out, "big.service.coord", TYPE_A, sent);
        struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
        while (done < size && poll(&poll_fd, 1, 500) == 1) {
            ssize_t n = send(fd, out + done, size - done, MSG_DONTWAIT);
            if (n > 0) done += (size_t)n;
        }
        if (done < size || sent == 200000) break;
    }
    cr_assert(lt(uint, sent, 200000));
    for (unsigned i = 0; i < sent; i++) {
        cr_assert(gt(sz, read_frame(fd), 1600), "answer %u of %u", i, sent);
        cr_assert(eq(u16, get_be16(in), (uint16_t)i));
    }
    close(fd);
}

/* At the limit the one that has been quiet for longest makes room. */
Test(dns_server, tcp_connection_limit) {
    struct dns_config config = config_for(loopback);
    config.tcp_connections_max = 8;
    start(&config);
    int fds[20];
    for (size_t i = 0; i < 20; i++) {
        uint8_t out[64];
        fds[i] = dial(SOCK_STREAM, "127.0.0.1");
        size_t size = frame(out, "db.service.coord", TYPE_A, (unsigned)i);
        cr_assert(eq(long, send(fds[i], out, size, 0), (long)size));
        cr_expect(gt(sz, read_frame(fds[i]), 12), "connection %zu", i);
    }
    for (size_t i = 0; i < 12; i++) cr_expect(eq(sz, read_frame(fds[i]), 0), "connection %zu", i);
    for (size_t i = 12; i < 20; i++) {
        uint8_t out[64];
        size_t size = frame(out, "db.service.coord", TYPE_A, (unsigned)i);
        cr_assert(eq(long, send(fds[i], out, size, 0), (long)size));
        cr_expect(gt(sz, read_frame(fds[i]), 12), "connection %zu", i);
    }
    for (size_t i = 0; i < 20; i++) close(fds[i]);
}

/* Bytes that never make a query buy no time. */
Test(dns_server, tcp_idle_connections_end) {
    struct dns_config config = config_for(loopback);
    start(&config);
    uint64_t before_ms = clock_mono_ms();
    int fd = dial(SOCK_STREAM, "127.0.0.1");
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    static const uint8_t partial[] = "\0\x40";
    for (unsigned i = 0; i < sizeof(partial) || poll(&poll_fd, 1, 1000) == 0; i++) {
        cr_assert(lt(u64, clock_mono_ms() - before_ms, DEADLINE_MS));
        (void)send(fd, partial + i % 2, 1, MSG_NOSIGNAL);
    }
    cr_expect(eq(sz, read_frame(fd), 0));
    cr_expect(ge(u64, clock_mono_ms() - before_ms, 9000));
    close(fd);
}

/* Answers come from the address that was asked, also when all are listened on. */
Test(dns_server, all_addresses) {
    static const char *const any[] = {"0.0.0.0", NULL};
    struct dns_config config = config_for(any);
    start(&config);
    static const char *const asked[] = {"127.0.0.1", "127.0.0.7", "127.9.9.9"};
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        int fd = dial(SOCK_DGRAM, asked[i]); /* connected: an answer from elsewhere would not arrive */
        struct help_answer got = ask_udp(fd, "db.service.coord", TYPE_A, 0);
        cr_expect(eq(sz, got.answers, 1));
        help_free(&got);
        close(fd);
    }
}

Test(dns_server, several_addresses) {
    static const char *const addresses[] = {"127.0.0.2", "127.0.0.3", NULL};
    struct dns_config config = config_for(addresses);
    start(&config);
    for (size_t i = 0; addresses[i]; i++) {
        int fd = dial(SOCK_DGRAM, addresses[i]);
        struct help_answer got = ask_udp(fd, "db.service.coord", TYPE_A, 0);
        cr_expect(eq(sz, got.answers, 1));
        help_free(&got);
        close(fd);
        fd = dial(SOCK_STREAM, addresses[i]);
        close(fd);
    }
}

/* Two servers never share a port without a word, although UDP sockets of one may. */
Test(dns_server, a_port_in_use) {
    struct dns_config config = config_for(loopback);
    start(&config);
    config.port = dns_port(server);
    struct dns_server *second = NULL;
    struct fault fault = {0};
    cr_expect(ne(int, dns_start(&config, rpc, &second, &fault), CO_OK));
    char wanted[64];
    snprintf(wanted, sizeof(wanted), "127.0.0.1 port %u", (unsigned)config.port);
    cr_expect(strstr(fault.text, wanted) != NULL, "%s", fault.text);
    cr_expect(strstr(fault.text, "in use") != NULL, "%s", fault.text);
}

Test(dns_server, bad_settings) {
    static const char *const bad[] = {"localhost", NULL}, *const none[] = {NULL};
    const struct {
        struct dns_config config;
        const char *word;
    } rows[] = {{config_for(bad), "'localhost'"}, {config_for(none), "no address"}};
    for (size_t i = 0; i < 2; i++) {
        struct fault fault = {0};
        cr_expect(eq(int, dns_start(&rows[i].config, rpc, &server, &fault), CO_INVALID));
        cr_expect(strstr(fault.text, rows[i].word) != NULL, "%s", fault.text);
    }
    struct dns_config config = config_for(loopback);
    config.domain = "a..b";
    struct fault fault = {0};
    cr_expect(eq(int, dns_start(&config, rpc, &server, &fault), CO_INVALID));
    cr_expect(strstr(fault.text, "a..b") != NULL, "%s", fault.text);
}

/* Stopping wakes all that sleep, at once, with connections open. */
Test(dns_server, start_and_stop_often) {
    for (unsigned i = 0; i < 20; i++) {
        struct dns_config config = config_for(loopback);
        start(&config);
        int fd = dial(SOCK_STREAM, "127.0.0.1");
        uint64_t before_ms = clock_mono_ms();
        dns_stop(server);
        server = NULL;
        cr_expect(lt(u64, clock_mono_ms() - before_ms, 3000));
        close(fd);
    }
}
