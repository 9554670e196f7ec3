/* Any bytes as what somebody says behind the handshake of TLS, at the port of a closed cluster's server: hellos, and questions
 * for a certificate. The server takes nobody for another than its certificate says, and gives certificates to nobody
 * but whom the question was for; and goes on.
 * Input: a byte (bits 0-2: who comes and what for, as in `comers`; bit 3: the question's certificate request is replaced by
 * a good one of its key; bits 4-7: the size of the pieces, 0: at once), then the bytes: frames (rpc/wire/link.h). */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/message.h"
#include "tests/lib/closed_server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* In libuv's place: a hello may name any address, and nothing leaves this host. */
int uv_getaddrinfo(uv_loop_t *on, uv_getaddrinfo_t *work, uv_getaddrinfo_cb done, const char *name, const char *service,
                   const struct addrinfo *hints) {
    (void)on, (void)work, (void)done, (void)name, (void)service, (void)hints;
    return UV_EAI_FAIL;
}
int uv_tcp_connect(uv_connect_t *connecting, uv_tcp_t *tcp, const struct sockaddr *to, uv_connect_cb done) {
    (void)connecting, (void)tcp, (void)to, (void)done;
    return UV_ECONNREFUSED;
}

#define HEAD       5 /* of a frame */
#define PATIENCE_S 60

static uv_loop_t loop;
static struct closed_server server;
static struct identity agent, second, expired, nobody;

static const struct comer {
    const char *protocol;
    struct identity *identity; /* NULL: it shows no certificate, and has `nobody`'s key */
} comers[8] = {{SECURITY_MEMBER, &agent}, {SECURITY_MEMBER, &second}, {SECURITY_JOIN, NULL},
               {SECURITY_JOIN, NULL},     {SECURITY_RENEW, &agent},   {SECURITY_RENEW, &second},
               {SECURITY_SECURE, NULL},   {SECURITY_RENEW, &expired}};

static void begin(void) {
    static const struct join_token for_agents = {.role = TLS_ROLE_AGENT, .id = "agents", .secret = "0123456789abcde"};
    static const struct join_token for_servers = {.role = TLS_ROLE_SERVER, .id = "serve", .secret = "0123456789abcde"};
    log_level_set(LOG_ERROR);
    uv_loop_init(&loop);
    closed_server_start(&server, &loop);
    identity_make(&server.ca, TLS_ROLE_AGENT, "a1", -DAY_S, DAY_S, &agent);
    identity_make(&server.ca, TLS_ROLE_SERVER, "s2", -DAY_S, DAY_S, &second);
    identity_make(&server.ca, TLS_ROLE_AGENT, "a3", -20 * DAY_S, -10 * DAY_S, &expired);
    CHECK(tls_key_make(&nobody.key, NULL) == CO_OK);
    closed_server_note(&server, &agent);
    closed_server_note(&server, &second);
    closed_server_note(&server, &expired);
    closed_server_admit(&server, &for_agents, "", 0);
    closed_server_admit(&server, &for_servers, "", 0);
}

/* -- the bytes that are sent -------------------------------------------------------------------------------------------- */
/* A question with a good request in the place of its own. */
static void with_good_request(struct slice bytes, const struct comer *comer, struct buffer *out) {
    struct arena arena = {0};
    struct buffer made = {0};
    struct identity *identity = comer->identity ? comer->identity : &nobody;
    Pb__EnrolRequest *request = bytes.size > HEAD ? message_unpack(&arena, &pb__enrol_request__descriptor,
                                                                   slice_make(bytes.data + HEAD, bytes.size - HEAD))
                                                  : NULL;
    if (request) {
        char head[HEAD] = {[4] = ENROL_REQUEST};
        CHECK(tls_request_make(buffer_slice(&identity->key), &made, NULL) == CO_OK);
        request->request = message_bytes(buffer_slice(&made));
        struct slice packed = message_pack(&arena, &request->base);
        put_le32(head, (uint32_t)packed.size);
        buffer_append(out, head, sizeof head);
        buffer_append(out, packed.data, packed.size);
    } else {
        buffer_append(out, bytes.data, bytes.size);
    }
    buffer_free(&made);
    arena_free(&arena);
}

/* -- the connection ------------------------------------------------------------------------------------------------------ */
static int dial(void) {
    static uint32_t turn;
    struct sockaddr_in to = {.sin_family = AF_INET}, from = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    to.sin_port = htons((uint16_t)atoi(strrchr(server.address, ':') + 1)), to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    from.sin_addr.s_addr = htonl(0x7f000001 + turn++ % 0xffff); /* so that ports last */
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&from, sizeof from) == 0);
    CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    return fd;
}

/* Sends what the session has; takes what has come. False: the other side has ended. */
static bool move(int fd, struct tls_session *session, struct buffer *got) {
    char bytes[16384];
    struct buffer *out = tls_session_out(session);
    uv_run(&loop, UV_RUN_NOWAIT);
    ssize_t n = out->size ? send(fd, out->data, out->size, MSG_NOSIGNAL) : 0;
    if (n > 0) {
        memmove(out->data, out->data + n, out->size - (size_t)n);
        out->size -= (size_t)n;
    }
    if (n < 0 && errno != EAGAIN) return false;
    n = recv(fd, bytes, sizeof bytes, 0);
    if (n > 0) tls_session_feed(session, slice_make(bytes, (size_t)n), got);
    return n > 0 || (n < 0 && errno == EAGAIN);
}

static void talk(const struct comer *comer, struct slice bytes, size_t piece, struct buffer *got) {
    const char *protocols[] = {comer->protocol, NULL};
    struct tls_context *context =
        context_of(comer->identity, &server.ca, (struct tls_context_config){.only_tls13 = true});
    struct tls_session_config config = {.peer = TLS_PEER_REQUIRED, .protocols = protocols};
    struct tls_session *session = tls_session_new(context, &config);
    uint64_t end_ms = clock_mono_ms() + PATIENCE_S * 1000;
    int fd = dial();
    bool there = true;
    while (there && tls_session_state(session) == TLS_HANDSHAKE) there = move(fd, session, got);
    CHECK(tls_session_state(session) == TLS_OPEN);
    while (there && bytes.size > 0) {
        size_t part = bytes.size < piece ? bytes.size : piece;
        if (tls_session_state(session) != TLS_OPEN) break;
        tls_session_write(session, slice_make(bytes.data, part));
        bytes = slice_make(bytes.data + part, bytes.size - part);
        there = move(fd, session, got);
    }
    while (there && tls_session_out(session)->size > 0) there = move(fd, session, got);
    (void)shutdown(fd, SHUT_WR); /* the server takes what is there, and ends */
    while (there) {
        there = move(fd, session, got);
        CHECK(clock_mono_ms() < end_ms);
    }
    close(fd);
    tls_session_free(session);
    tls_context_unref(context);
}

/* -- what it says --------------------------------------------------------------------------------------------------------- */
static void check_answer(const struct comer *comer, struct slice payload) {
    struct arena arena = {0};
    const Pb__EnrolAnswer *answer = message_unpack(&arena, &pb__enrol_answer__descriptor, payload);
    struct tls_certificate made;
    CHECK(answer && answer->outcome < CO_ERROR_COUNT);
    CHECK((answer->outcome == CO_OK) == (answer->chain[0] != 0) && (answer->outcome == CO_OK) == !answer->text[0]);
    CHECK(answer->outcome == CO_OK || (!answer->ca_key.len && !answer->secret_key.len));
    if (answer->outcome == CO_OK) {
        CHECK(strcmp(comer->protocol, SECURITY_SECURE) != 0);
        CHECK(tls_certificate_read(slice_text(answer->chain), &made, NULL) == CO_OK && !made.is_ca);
        CHECK(strcmp(made.domain, server.ca.domain) == 0 && made.role != TLS_ROLE_NONE);
        CHECK((made.role == TLS_ROLE_SERVER) == (answer->ca_key.len > 0));
        if (comer->identity) {
            struct tls_certificate shown;
            CHECK(tls_certificate_read(buffer_slice(&comer->identity->chain), &shown, NULL) == CO_OK);
            CHECK(strcasecmp(made.node, shown.node) == 0 && made.role == shown.role);
            CHECK(memcmp(made.pin, shown.pin, TLS_PIN_SIZE) == 0);
        }
    }
    arena_free(&arena);
}

static void check_got(const struct comer *comer, struct slice got) {
    bool member = strcmp(comer->protocol, SECURITY_MEMBER) == 0;
    unsigned answers = 0;
    while (got.size >= HEAD && got.size - HEAD >= get_le32(got.data)) {
        struct slice payload = slice_make(got.data + HEAD, get_le32(got.data));
        uint8_t type = (uint8_t)got.data[4];
        CHECK(member ? type == PEER_HELLO || type == PEER_REFUSED || type == PEER_PING : type == ENROL_ANSWER);
        if (!member) check_answer(comer, payload), answers++;
        got = slice_make(got.data + HEAD + payload.size, got.size - HEAD - payload.size);
    }
    CHECK(answers <= 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!loop.data) begin(), loop.data = &server;
    if (size < 1) return 0;
    const struct comer *comer = &comers[data[0] & 7];
    struct slice bytes = slice_make(data + 1, size - 1);
    struct buffer sent = {0}, got = {0};
    if (data[0] & 8 && strcmp(comer->protocol, SECURITY_MEMBER) != 0) with_good_request(bytes, comer, &sent);
    else buffer_append(&sent, bytes.data, bytes.size);
    unsigned agents = server.agents, ups = server.ups;
    talk(comer, buffer_slice(&sent), data[0] >> 4 ? data[0] >> 4 : sent.size + 1, &got);
    check_got(comer, buffer_slice(&got));
    CHECK(server.ups == ups || comer == &comers[1]);
    CHECK(server.agents == agents || comer == &comers[0] || comer == &comers[1]);
    buffer_free(&sent);
    buffer_free(&got);
    return 0;
}
