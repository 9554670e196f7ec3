/* CPU of a full handshake between two processes of a closed cluster, each side alone, and of records.
 *
 *     bench_handshake [COUNT] */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "cpu.h"
#include "tls/session.h"

#define RECORDS 20000

struct side {
    struct tls_context *context;
    struct tls_session_config config;
    uint64_t ns, began_ns; /* of handshakes; of which making the session */
};

static const char *const protocols[] = {"coord/1", NULL};
static char domain[TLS_DOMAIN_SIZE + 1];

static void make(const struct tls_issuer *issuer, enum tls_role role, const char *node, struct tls_life life,
                 struct side *side) {
    struct buffer key = {0}, request = {0}, chain = {0};
    struct tls_subject subject = {
        .domain = domain, .role = role, .node = node, .datacenter = "dc1", .dns_domain = "coord"};
    CHECK(tls_key_make(&key, NULL) == CO_OK && tls_request_make(buffer_slice(&key), &request, NULL) == CO_OK);
    CHECK(tls_issue(issuer, buffer_slice(&request), &subject, life, &chain, NULL) == CO_OK);
    struct tls_context_config config = {
        .chain = buffer_slice(&chain), .key = buffer_slice(&key), .trusted = issuer->certificate, .only_tls13 = true};
    CHECK(tls_context_make(&config, &side->context, NULL) == CO_OK);
    side->config = (struct tls_session_config){
        .server = role == TLS_ROLE_SERVER, .peer = TLS_PEER_REQUIRED, .protocols = protocols};
    tls_wipe(&key);
    buffer_free(&request), buffer_free(&chain);
}

static struct tls_session *begin(struct side *side) {
    uint64_t at = cpu_ns();
    struct tls_session *session = tls_session_new(side->context, &side->config);
    side->began_ns += cpu_ns() - at;
    side->ns += cpu_ns() - at;
    return session;
}

/* True: there was something to do. */
static bool give(struct side *side, struct tls_session *to, struct tls_session *from) {
    struct buffer bytes = *tls_session_out(from), plain = {0};
    *tls_session_out(from) = (struct buffer){0};
    uint64_t at = cpu_ns();
    if (bytes.size) tls_session_feed(to, buffer_slice(&bytes), &plain);
    side->ns += bytes.size ? cpu_ns() - at : 0;
    bool had = bytes.size > 0;
    buffer_free(&bytes), buffer_free(&plain);
    return had;
}

static void records(struct tls_session *from, struct tls_session *to, size_t size) {
    char *text = calloc(1, size);
    struct buffer plain = {0};
    uint64_t write_ns = 0, read_ns = 0;
    for (int i = 0; i < RECORDS; i++) {
        uint64_t at = cpu_ns();
        tls_session_write(from, slice_make(text, size));
        uint64_t middle = cpu_ns();
        tls_session_feed(to, buffer_slice(tls_session_out(from)), &plain);
        write_ns += middle - at, read_ns += cpu_ns() - middle;
        tls_session_out(from)->size = plain.size = 0;
    }
    printf("%6zu bytes: write %6.2f us, read %6.2f us\n", size, (double)write_ns / RECORDS / 1e3,
           (double)read_ns / RECORDS / 1e3);
    buffer_free(&plain);
    free(text);
}

int main(int argc, char **argv) {
    unsigned count = argc > 1 ? (unsigned)atoi(argv[1]) : 1000;
    int64_t now_s = clock_wall_ns() / 1000000000;
    struct tls_life life = {now_s - 3600, now_s + 7 * 86400};
    struct buffer key = {0}, ca = {0};
    struct side server = {0}, agent = {0};
    CHECK(tls_domain_make(domain, NULL) == CO_OK && tls_key_make(&key, NULL) == CO_OK);
    CHECK(tls_ca_make(buffer_slice(&key), domain, life, &ca, NULL) == CO_OK);
    struct tls_issuer issuer = {buffer_slice(&ca), buffer_slice(&key)};
    make(&issuer, TLS_ROLE_SERVER, "s1", life, &server);
    make(&issuer, TLS_ROLE_AGENT, "a1", life, &agent);
    for (unsigned i = 0; i < count; i++) {
        struct tls_session *dials = begin(&agent), *accepts = begin(&server);
        while (give(&server, accepts, dials) | give(&agent, dials, accepts)) {}
        CHECK(tls_session_state(dials) == TLS_OPEN && tls_session_state(accepts) == TLS_OPEN);
        if (i + 1 == count) {
            printf("handshake: server %.0f us, agent %.0f us (making the session: %.0f, %.0f)\n",
                   (double)server.ns / count / 1e3, (double)agent.ns / count / 1e3,
                   (double)server.began_ns / count / 1e3, (double)agent.began_ns / count / 1e3);
            for (size_t size = 64; size <= TLS_RECORD_MAX; size *= 4) records(dials, accepts, size);
        }
        tls_session_free(dials), tls_session_free(accepts);
    }
    tls_context_unref(server.context), tls_context_unref(agent.context);
    tls_wipe(&key);
    buffer_free(&ca);
    return 0;
}
