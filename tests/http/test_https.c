/* HTTPS: which clients are taken, by which credentials, and what happens when the kernel takes no more. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/impl.h"
#include "tests/http/web_world.h"
#include "tls/certificate.h"
#include "tls/context.h"

static const char *const here[] = {"127.0.0.1", NULL};
static const char *const names[] = {"localhost", NULL};

struct pair {
    struct buffer key, certificate;
};

static struct pair authority, other;
static struct tls_slot *slot;
static struct world *world;

static struct tls_life life(void) {
    int64_t now_s = clock_wall_ns() / 1000000000;
    return (struct tls_life){now_s - 60, now_s + 3600};
}

static struct pair make_authority(void) {
    char domain[TLS_DOMAIN_SIZE + 1];
    struct pair pair = {0};
    cr_assert_eq(tls_key_make(&pair.key, NULL), CO_OK);
    cr_assert_eq(tls_domain_make(domain, NULL), CO_OK);
    cr_assert_eq(tls_ca_make(buffer_slice(&pair.key), domain, life(), &pair.certificate, NULL), CO_OK);
    return pair;
}

static struct pair give(const struct pair *by, const char *name) {
    struct pair pair = {0};
    struct tls_issuer issuer = {buffer_slice(&by->certificate), buffer_slice(&by->key)};
    struct tls_plain_subject subject = {
        .common_name = name, .names = names, .addresses = here, .server = true, .client = true};
    struct fault fault = {0};
    cr_assert_eq(tls_key_make(&pair.key, NULL), CO_OK);
    cr_assert_eq(tls_issue_plain(&issuer, buffer_slice(&pair.key), &subject, life(), &pair.certificate, &fault), CO_OK,
                 "%s", fault.text);
    return pair;
}

static void pair_free(struct pair *pair) {
    tls_wipe(&pair->key);
    buffer_free(&pair->certificate);
}

static void show(const char *name) {
    struct pair own = give(&authority, name);
    struct tls_context *context;
    struct fault fault = {0};
    struct tls_context_config config = {.chain = buffer_slice(&own.certificate),
                                        .key = buffer_slice(&own.key),
                                        .trusted = buffer_slice(&authority.certificate)};
    cr_assert_eq(tls_context_make(&config, &context, &fault), CO_OK, "%s", fault.text);
    tls_slot_set(slot, context);
    pair_free(&own);
}

static void start(enum http_certificates certificates, uint64_t timeout_ms) {
    authority = make_authority();
    other = make_authority();
    slot = tls_slot_new();
    world = world_start(&(struct http_config){.https_addresses = here,
                                              .tls = slot,
                                              .certificates = certificates,
                                              .handshake_timeout_ms = timeout_ms,
                                              .workers = 1});
}

static void stop(void) {
    world_stop(world);
    tls_slot_free(slot);
    pair_free(&authority);
    pair_free(&other);
}

/* -- a client ----------------------------------------------------------------------------------------------------- */

struct client {
    int fd;
    gnutls_session_t session;
    gnutls_certificate_credentials_t credentials;
};

static int dial(int receive_room) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(https_port(world_server(world)))};
    struct timeval patience = {.tv_sec = 30};
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (receive_room) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_room, sizeof receive_room);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* Returns gnutls_handshake's result. */
static int client_open(struct client *client, const struct pair *own, int receive_room) {
    *client = (struct client){.fd = dial(receive_room)};
    gnutls_certificate_allocate_credentials(&client->credentials);
    if (own) {
        gnutls_datum_t certificate = {(unsigned char *)own->certificate.data, (unsigned)own->certificate.size};
        gnutls_datum_t key = {(unsigned char *)own->key.data, (unsigned)own->key.size};
        cr_assert_geq(gnutls_certificate_set_x509_key_mem(client->credentials, &certificate, &key, GNUTLS_X509_FMT_PEM),
                      0);
    }
    /* Shows its certificate also to a server that does not name its CA. */
    gnutls_init(&client->session, GNUTLS_CLIENT | GNUTLS_FORCE_CLIENT_CERT);
    gnutls_set_default_priority(client->session);
    gnutls_credentials_set(client->session, GNUTLS_CRD_CERTIFICATE, client->credentials);
    gnutls_transport_set_int(client->session, client->fd);
    return gnutls_handshake(client->session);
}

static void client_close(struct client *client) {
    gnutls_deinit(client->session);
    gnutls_certificate_free_credentials(client->credentials);
    close(client->fd);
}

static void client_say(struct client *client, const char *text) {
    cr_assert_eq(gnutls_record_send(client->session, text, strlen(text)), (ssize_t)strlen(text));
}

/* The status of the answer, which comes in one record; or what gnutls_record_recv returned. */
static int client_ask(struct client *client) {
    char answer[4096];
    ssize_t got;
    client_say(client, "GET /v1/status/leader HTTP/1.1\r\nHost: x\r\n\r\n");
    do got = gnutls_record_recv(client->session, answer, sizeof answer - 1);
    while (got == GNUTLS_E_AGAIN || got == GNUTLS_E_INTERRUPTED);
    if (got <= 0) return (int)got;
    answer[got] = '\0';
    cr_expect_not_null(strstr(answer, "\r\n\r\n\""), "header and body in one record: %s", answer);
    return (int)strtol(answer + 9, NULL, 10);
}

/* Its common name, by the first certificate that it shows. */
static void shown_name(const struct client *client, char name[TLS_NODE_MAX + 1]) {
    unsigned count = 0;
    const gnutls_datum_t *chain = gnutls_certificate_get_peers(client->session, &count);
    struct tls_certificate certificate;
    cr_assert(chain && count);
    cr_assert_eq(tls_certificate_read(slice_make(chain[0].data, chain[0].size), &certificate, NULL), CO_OK);
    strcpy(name, certificate.common_name);
}

/* The only connection of the server. */
static const struct tls_certificate *peer(void) {
    struct worker *worker = &world_server(world)->workers[0];
    cr_assert_eq(worker->connection_count, 1);
    return connection_peer(LIST_ENTRY(worker->connections.next, struct connection, link));
}

/* -- tests -------------------------------------------------------------------------------------------------------- */

Test(https, certificates_of_clients_that_are_asked) {
    start(HTTP_CERTIFICATES_ASKED, 0);
    show("first");
    struct pair good = give(&authority, "web-7"), wrong = give(&other, "web-8");
    struct client client;
    cr_assert_eq(client_open(&client, NULL, 0), 0);
    cr_expect_eq(client_ask(&client), 200, "one without a certificate is served");
    cr_expect_null(peer());
    client_close(&client);
    EVENTUALLY(world_server(world)->workers[0].connection_count == 0);
    cr_assert_eq(client_open(&client, &good, 0), 0);
    cr_expect_eq(client_ask(&client), 200);
    cr_assert_not_null(peer());
    cr_expect_str_eq(peer()->common_name, "web-7");
    client_close(&client);
    EVENTUALLY(world_server(world)->workers[0].connection_count == 0);
    cr_assert_eq(client_open(&client, &wrong, 0), 0);
    cr_expect_eq(client_ask(&client), 200, "one whose CA is not known counts as one without a certificate");
    cr_expect_null(peer());
    struct slice chain[2];
    struct worker *worker = &world_server(world)->workers[0];
    struct connection *connection = LIST_ENTRY(worker->connections.next, struct connection, link);
    cr_assert_geq(secure_certificates(connection, chain, 2), 1, "but what it showed is there");
    struct tls_certificate shown;
    cr_assert_eq(tls_certificate_read(chain[0], &shown, NULL), CO_OK);
    cr_expect_str_eq(shown.common_name, "web-8");
    client_close(&client);
    pair_free(&good), pair_free(&wrong);
    stop();
}

Test(https, certificates_of_clients_that_are_required) {
    start(HTTP_CERTIFICATES_REQUIRED, 0);
    show("first");
    struct pair good = give(&authority, "web-7"), wrong = give(&other, "web-8");
    struct client client;
    if (client_open(&client, &wrong, 0) == 0) /* by TLS 1.3 it learns of the refusal when it reads */
        cr_expect_eq(client_ask(&client), GNUTLS_E_FATAL_ALERT_RECEIVED);
    cr_expect_eq(gnutls_alert_get(client.session), GNUTLS_A_UNKNOWN_CA);
    client_close(&client);
    if (client_open(&client, NULL, 0) == 0) cr_expect_eq(client_ask(&client), GNUTLS_E_FATAL_ALERT_RECEIVED);
    cr_expect_eq(gnutls_alert_get(client.session), GNUTLS_A_CERTIFICATE_REQUIRED);
    client_close(&client);
    cr_assert_eq(client_open(&client, &good, 0), 0);
    cr_expect_eq(client_ask(&client), 200);
    client_close(&client);
    pair_free(&good), pair_free(&wrong);
    stop();
}

Test(https, new_connections_have_the_new_certificate) {
    start(HTTP_CERTIFICATES_UNASKED, 0);
    struct client client, second;
    char name[TLS_NODE_MAX + 1];
    cr_expect_neq(client_open(&client, NULL, 0), 0, "there is no certificate yet");
    client_close(&client);
    show("first");
    cr_assert_eq(client_open(&client, NULL, 0), 0);
    show("second");
    cr_assert_eq(client_open(&second, NULL, 0), 0);
    shown_name(&client, name);
    cr_expect_str_eq(name, "first");
    shown_name(&second, name);
    cr_expect_str_eq(name, "second");
    for (int i = 0; i < 3; i++) cr_expect(client_ask(&client) == 200 && client_ask(&second) == 200);
    client_close(&client), client_close(&second);
    stop();
}

Test(https, a_handshake_has_its_time) {
    start(HTTP_CERTIFICATES_UNASKED, 100);
    show("first");
    static const char begun[] = "\x16\x03\x01\x02";
    int halves[8];
    char byte;
    for (int i = 0; i < 8; i++) {
        halves[i] = dial(0);
        if (i % 2) cr_assert_eq(send(halves[i], begun, 4, 0), 4);
    }
    for (int i = 0; i < 8; i++) {
        cr_expect_eq(recv(halves[i], &byte, 1, 0), 0, "it is closed");
        close(halves[i]);
    }
    struct client client;
    cr_assert_eq(client_open(&client, NULL, 0), 0);
    usleep(200000); /* longer than the time of a handshake */
    cr_expect_eq(client_ask(&client), 200, "an open connection has no deadline of that kind");
    client_close(&client);
    stop();
}

/* A client that reads nothing for long, and then all: the answer is larger than the buffers of the kernel. */
Test(https, the_kernel_takes_no_more) {
    start(HTTP_CERTIFICATES_UNASKED, 0);
    show("first");
    static char value[400000];
    for (size_t i = 0; i < sizeof value; i++) value[i] = (char)('a' + i % 23);
    char *body = mem_alloc(sizeof value + 1);
    memcpy(body, value, sizeof value), body[sizeof value] = '\0';
    free(web_want(world, 200, "PUT /v1/kv/large", body));
    free(body);
    struct client client;
    enum { ASKED = 12 };
    cr_assert_eq(client_open(&client, NULL, 4096), 0);
    for (int i = 0; i < ASKED; i++) client_say(&client, "GET /v1/kv/large?raw HTTP/1.1\r\nHost: x\r\n\r\n");
    usleep(100000); /* so that the server meets the full buffer; the test holds without, too */
    static char text[sizeof value + 4096];
    for (int i = 0; i < ASKED; i++) {
        size_t size = 0, head = 0;
        while (!head || size < head + sizeof value) {
            size_t most = head ? head + sizeof value - size : 1;
            ssize_t got = gnutls_record_recv(client.session, text + size, most);
            if (got == GNUTLS_E_AGAIN || got == GNUTLS_E_INTERRUPTED) continue;
            cr_assert_gt(got, 0, "answer %d: %s", i, gnutls_strerror((int)got));
            size += (size_t)got;
            if (!head && size >= 4 && memcmp(text + size - 4, "\r\n\r\n", 4) == 0) head = size;
        }
        cr_assert_eq(memcmp(text + head, value, sizeof value), 0, "answer %d", i);
    }
    client_close(&client);
    stop();
}

/* A client that goes away in the midst of its answer takes nothing with it. */
Test(https, clients_that_leave) {
    start(HTTP_CERTIFICATES_UNASKED, 0);
    show("first");
    char *body = mem_zalloc(300001);
    memset(body, 'x', 300000);
    free(web_want(world, 200, "PUT /v1/kv/large", body));
    free(body);
    for (int i = 0; i < 20; i++) {
        struct client client;
        cr_assert_eq(client_open(&client, NULL, 4096), 0);
        for (int j = 0; j < 8; j++) client_say(&client, "GET /v1/kv/large?raw HTTP/1.1\r\nHost: x\r\n\r\n");
        if (i % 2) {
            struct linger reset = {.l_onoff = 1};
            setsockopt(client.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        }
        client_close(&client);
    }
    EVENTUALLY(world_server(world)->workers[0].connection_count == 0);
    stop();
}
