/* H2 ping and gRPC checks against servers written by hand, good and hostile: whatever a peer does, the check ends
 * once, within its timeout, with a bounded output and bounded memory. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "attempt.h"
#include "base/check.h"
#include "h2_peer.h"
#include "web.h"

#define SERVING "\10\1"

/* Frames that several scripts use; made once per test. */
static struct buffer settings, answer;

static void make_frames(void) {
    peer_frame(&settings, 4, 0, 0, slice_make(NULL, 0));
    peer_grpc_answer(&answer, SLICE_LITERAL(SERVING), "0");
}

static void free_frames(void) {
    buffer_free(&settings);
    buffer_free(&answer);
}

TestSuite(h2, .init = make_frames, .fini = free_frames);

struct wish {
    bool tls, skip_verify;
    const char *server_name, *service;
    uint64_t timeout_ms;
};

static struct check_definition *definition_of(enum check_kind kind, uint16_t port, const struct wish *wish) {
    char target[200];
    snprintf(target, sizeof target, "127.0.0.1:%u%s", port, kind == CHECK_GRPC && wish->service ? wish->service : "");
    struct check_definition *d = attempt_definition(kind, target, wish->timeout_ms);
    d->grpc_use_tls = d->h2ping_use_tls = wish->tls;
    d->tls_skip_verify = wish->skip_verify;
    if (wish->server_name) {
        free(d->tls_server_name);
        d->tls_server_name = mem_strdup(wish->server_name);
    }
    return d;
}

static struct outcome meet(const struct peer_script *script, enum check_kind kind, const struct wish *wish) {
    struct peer *peer = peer_start(script);
    struct outcome outcome = attempt(definition_of(kind, peer_port(peer), wish));
    peer_stop(peer);
    return outcome;
}

/* -- good ones
 * -------------------------------------------------------------------------------------------------------- */

Test(h2, good_servers) {
    const struct peer_script plain = {buffer_slice(&settings), buffer_slice(&answer), PEER_ANSWERS, false, NULL};
    const struct wish wish = {.timeout_ms = 20000, .service = "/x.y.Z"};
    struct outcome outcome = meet(&plain, CHECK_H2PING, &wish);
    cr_assert_eq(outcome.status, PB__STATUS__PASSING, "%s", outcome.output);
    cr_assert_str_eq(outcome.output, "HTTP2 ping was successful");
    outcome = meet(&plain, CHECK_GRPC, &wish);
    cr_assert_eq(outcome.status, PB__STATUS__PASSING, "%s", outcome.output);
    cr_assert_not_null(strstr(outcome.output, "/x.y.Z: success"), "%s", outcome.output);
    cr_assert_lt(outcome.took_ms, 10000);
}

/* With and without ALPN; the certificate counts unless it is not to be looked at. */
Test(h2, tls) {
    static const char *const protocols[] = {"h2", NULL};
    static const enum check_kind kinds[] = {CHECK_H2PING, CHECK_GRPC};
    for (size_t i = 0; i < 4; i++) {
        const struct peer_script script = {buffer_slice(&settings), buffer_slice(&answer), PEER_ANSWERS, true,
                                           protocols[i / 2]};
        enum check_kind kind = kinds[i % 2];
        struct wish wish = {.timeout_ms = 20000, .tls = true, .skip_verify = true};
        struct outcome outcome = meet(&script, kind, &wish);
        cr_assert_eq(outcome.status, PB__STATUS__PASSING, "%s", outcome.output);
        wish.skip_verify = false;
        outcome = meet(&script, kind, &wish); /* nobody trusts it */
        cr_assert_eq(outcome.status, PB__STATUS__CRITICAL);
        cr_assert_not_null(strstr(outcome.output, "x509: "), "%s", outcome.output);
    }
}

/* A process of its own: which certificates are trusted is read once. */
Test(h2, tls_server_name) {
    char path[] = "/tmp/h2-tls-XXXXXX";
    const struct peer_script script = {buffer_slice(&settings), buffer_slice(&answer), PEER_ANSWERS, true, "h2"};
    struct peer *peer = peer_start(&script);
    struct wish wish = {.timeout_ms = 20000, .tls = true, .server_name = "check.test"};
    close(mkstemp(path));
    certificate_write(peer_certificate(peer), path, NULL);
    setenv("SSL_CERT_FILE", path, 1);
    struct outcome outcome = attempt(definition_of(CHECK_GRPC, peer_port(peer), &wish));
    cr_assert_eq(outcome.status, PB__STATUS__PASSING, "%s", outcome.output);
    outcome = attempt(definition_of(CHECK_H2PING, peer_port(peer), &wish));
    cr_assert_eq(outcome.status, PB__STATUS__PASSING, "%s", outcome.output);
    wish.server_name = "other.test";
    outcome = attempt(definition_of(CHECK_GRPC, peer_port(peer), &wish));
    cr_assert_eq(outcome.status, PB__STATUS__CRITICAL);
    cr_assert_not_null(strstr(outcome.output, "(name \"other.test\")"), "%s", outcome.output);
    wish.server_name = NULL; /* 127.0.0.1 is not in it */
    outcome = attempt(definition_of(CHECK_H2PING, peer_port(peer), &wish));
    cr_assert_eq(outcome.status, PB__STATUS__CRITICAL);
    cr_assert_not_null(strstr(outcome.output, "Failed to dial to 127.0.0.1:"), "%s", outcome.output);
    peer_stop(peer);
    unlink(path);
}

/* -- what a server says instead
 * --------------------------------------------------------------------------------------- */

static void expect(const struct peer_script *script, enum check_kind kind, const char *says) {
    const struct wish wish = {.timeout_ms = 20000};
    struct outcome outcome = meet(script, kind, &wish);
    cr_assert_eq(outcome.status, PB__STATUS__CRITICAL, "%s", outcome.output);
    cr_assert_lt(outcome.took_ms, 15000, "not before the timeout: %.*s", (int)script->bytes.size, script->bytes.data);
    cr_assert_not_null(strstr(outcome.output, says), "%s: %s", says, outcome.output);
}

static void expect_frame(unsigned type, unsigned flags, uint32_t stream, struct slice payload, const char *says) {
    struct buffer frame = {0};
    peer_frame(&frame, type, flags, stream, payload);
    const struct peer_script script = {buffer_slice(&settings), buffer_slice(&frame), PEER_ANSWERS, false, NULL};
    expect(&script, CHECK_GRPC, says);
    buffer_free(&frame);
}

Test(h2, other_answers) {
    struct buffer not_serving = {0}, head = {0};
    peer_grpc_answer(&not_serving, SLICE_LITERAL("\10\2"), "0");
    const struct peer_script script = {buffer_slice(&settings), buffer_slice(&not_serving), PEER_ANSWERS, false, NULL};
    expect(&script, CHECK_GRPC, "serving status: NOT_SERVING");
    peer_field(&head, ":status", "404");
    expect_frame(1, 5, 1, buffer_slice(&head),
                 "rpc error: code = Unimplemented desc = Not Found: HTTP status code 404");
    buffer_reset(&head);
    peer_field(&head, ":status", "200");
    peer_field(&head, "content-type", "application/grpc");
    peer_field(&head, "grpc-status", "12");
    peer_field(&head, "grpc-message", "no%20health");
    expect_frame(1, 5, 1, buffer_slice(&head), "rpc error: code = Unimplemented desc = no health");
    expect_frame(3, 0, 1, SLICE_LITERAL("\0\0\0\10"),
                 "rpc error: code = Canceled desc = stream terminated by RST_STREAM with error code: CANCEL");
    expect_frame(7, 0, 0, SLICE_LITERAL("\0\0\0\0\0\0\0\0"), "rpc error: code = Unavailable desc = ");
    buffer_reset(&head);
    buffer_append(&head, settings.data, settings.size);
    peer_frame(&head, 7, 0, 0, SLICE_LITERAL("\0\0\0\1\0\0\0\13"));
    const struct peer_script leaves = {.bytes = buffer_slice(&head), .then = PEER_HALF_CLOSES};
    expect(&leaves, CHECK_GRPC, "GOAWAY: ENHANCE_YOUR_CALM");
    expect(&leaves, CHECK_H2PING, "HTTP2 ping failed: http2: the server says GOAWAY: ENHANCE_YOUR_CALM");
    buffer_free(&not_serving);
    buffer_free(&head);
}

/* -- hostile ones
 * ----------------------------------------------------------------------------------------------------- */

static void both(const struct peer_script *script, const char *ping_says, const char *grpc_says) {
    expect(script, CHECK_H2PING, ping_says);
    expect(script, CHECK_GRPC, grpc_says);
}

Test(h2, those_that_hang_up) {
    static const enum peer_then ways[] = {PEER_CLOSES, PEER_HALF_CLOSES, PEER_RESETS};
    const struct slice starts[] = {slice_make(NULL, 0), buffer_slice(&settings), SLICE_LITERAL("\0\0"),
                                   SLICE_LITERAL("HTTP/1.1 400 Bad Request\r\n\r\n")};
    for (size_t i = 0; i < ARRAY_COUNT(ways) * ARRAY_COUNT(starts); i++) {
        const struct peer_script script = {.bytes = starts[i % 4], .then = ways[i / 4]};
        bool connects = ways[i / 4] != PEER_RESETS; /* else it may be gone before that is noticed */
        both(
            &script, connects ? "HTTP2 ping failed: " : "",
            connects ? "rpc error: code = Unavailable desc = transport is closing: " : "rpc error: code = Unavailable");
    }
    const struct wish wish = {.timeout_ms = 20000};
    struct outcome outcome = attempt(definition_of(CHECK_GRPC, web_free_port(), &wish));
    cr_assert_eq(outcome.status, PB__STATUS__CRITICAL);
    cr_assert_not_null(strstr(outcome.output,
                              "rpc error: code = Unavailable desc = connection error: desc = "
                              "\"transport: Error while dialing dial tcp 127.0.0.1:"),
                       "%s", outcome.output);
}

Test(h2, garbage) {
    struct buffer garbage = {0}, huge = {0}, push = {0}, odd = {0};
    for (unsigned i = 0; i < 5000; i++) buffer_append_byte(&garbage, (char)(i * 7919 >> 3));
    buffer_append(&huge, settings.data, settings.size);
    peer_frame_head(&huge, 0xffffff, 0, 0, 1);
    buffer_append(&push, settings.data, settings.size);
    peer_frame(&push, 4, 1, 0, slice_make(NULL, 0)); /* it knows that we want no pushes */
    peer_frame(&push, 5, 4, 1, SLICE_LITERAL("\0\0\0\2\202"));
    buffer_append(&odd, settings.data, settings.size);
    peer_frame(&odd, 6, 0, 0, SLICE_LITERAL("short"));
    const struct buffer *rows[] = {&garbage, &huge, &push, &odd, &answer};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const struct peer_script script = {.bytes = buffer_slice(rows[i]), .then = PEER_HANGS};
        both(&script, "HTTP2 ping failed: http2: ", "rpc error: code = ");
    }
    buffer_free(&garbage);
    buffer_free(&huge);
    buffer_free(&push);
    buffer_free(&odd);
}

/* Each of these sends without end. */
Test(h2, floods_cost_bounded_memory) {
    struct buffer start = {0}, pings = {0}, settings_flood = {0}, fields = {0}, headers = {0}, continued = {0};
    struct buffer unknown = {0}, data = {0}, many = {0}, message = {0};
    static char zeros[16384];
    struct rusage before, after;
    peer_frame(&pings, 6, 0, 0, SLICE_LITERAL("12345678"));
    peer_frame(&settings_flood, 4, 0, 0, slice_make(NULL, 0));
    for (int i = 0; i < 100; i++)
        peer_field(&fields, "name",
                   "a value that is a hundred bytes or so long, so that a few hundred fields of it are more "
                   "than one may send");
    buffer_append(&start, settings.data, settings.size);
    peer_field(&message, ":status", "200");
    peer_frame(&headers, 1, 0, 1, buffer_slice(&message)); /* without END_HEADERS */
    peer_frame(&continued, 9, 0, 1, buffer_slice(&fields));
    peer_frame(&unknown, 0xbe, 0, 0, slice_make(zeros, sizeof zeros));
    peer_frame(&data, 0, 0, 1, slice_make(zeros, sizeof zeros));
    buffer_append(&many, settings.data, settings.size);
    buffer_append(&many, headers.data, headers.size);
    const struct {
        struct slice start, again;
    } rows[] = {
        {buffer_slice(&start), buffer_slice(&pings)},    {buffer_slice(&start), buffer_slice(&settings_flood)},
        {buffer_slice(&many), buffer_slice(&continued)}, {buffer_slice(&start), buffer_slice(&unknown)},
        {buffer_slice(&start), buffer_slice(&data)},     {slice_make(NULL, 0), slice_make(zeros, sizeof zeros)},
    };
    getrusage(RUSAGE_SELF, &before);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const struct peer_script script = {.bytes = rows[i].start, .again = rows[i].again, .then = PEER_FLOODS};
        both(&script, "HTTP2 ping failed: ", "rpc error: code = ");
    }
    getrusage(RUSAGE_SELF, &after);
#ifndef COORD_ASAN
    cr_assert_lt(after.ru_maxrss - before.ru_maxrss, 4096, "KiB, of 12 floods: %ld",
                 after.ru_maxrss - before.ru_maxrss);
#endif
    struct buffer *all[] = {&start,     &pings,   &settings_flood, &fields, &headers,
                            &continued, &unknown, &data,           &many,   &message};
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) buffer_free(all[i]);
}

/* A header block of one frame after the other, each whole: too many fields in all. */
Test(h2, endless_header_fields) {
    struct buffer fields = {0}, block = {0}, start = {0};
    peer_field(&fields, ":status", "100");
    for (int i = 0; i < 40; i++)
        peer_field(&fields, "name", "a value of some length, a value of some length, a value of some length");
    peer_frame(&block, 1, 4, 1, buffer_slice(&fields));
    for (int i = 0; i < 10; i++) buffer_append(&start, block.data, block.size);
    const struct peer_script script = {buffer_slice(&settings), buffer_slice(&start), PEER_ANSWERS, false, NULL};
    expect(&script, CHECK_GRPC,
           "rpc error: code = ResourceExhausted desc = the server sends more than 16384 bytes of header fields");
    buffer_free(&fields);
    buffer_free(&block);
    buffer_free(&start);
}

/* An attempt that never comes to an end, ends with the timeout of the whole attempt, not of each step. */
Test(h2, slow_ones) {
    struct buffer wrong_pong = {0}, no_trailers = {0};
    buffer_append(&wrong_pong, settings.data, settings.size);
    peer_frame(&wrong_pong, 6, 1, 0, SLICE_LITERAL("\0\0\0\0\0\0\0\0"));
    peer_frame(&no_trailers, 1, 4, 1, slice_make("\210", 1)); /* :status 200 */
    const struct {
        struct peer_script script;
        bool tls;
        enum check_kind kind;
    } rows[] = {
        {{.then = PEER_HANGS}, false, CHECK_H2PING},
        {{.then = PEER_DEAF}, false, CHECK_GRPC},
        {{.then = PEER_HANGS}, true, CHECK_GRPC},
        {{.bytes = SLICE_LITERAL("\26\3\3\40\0"), .then = PEER_DRIPS}, true, CHECK_H2PING},
        {{.bytes = buffer_slice(&settings), .then = PEER_DRIPS}, false, CHECK_H2PING},
        {{.bytes = buffer_slice(&settings), .then = PEER_DRIPS}, false, CHECK_GRPC},
        {{.bytes = buffer_slice(&wrong_pong), .then = PEER_HANGS}, false, CHECK_H2PING},
        {{.bytes = buffer_slice(&settings), .again = buffer_slice(&no_trailers), .then = PEER_ANSWERS},
         false,
         CHECK_GRPC},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const struct wish wish = {.timeout_ms = 300, .tls = rows[i].tls};
        struct outcome outcome = meet(&rows[i].script, rows[i].kind, &wish);
        cr_assert_eq(outcome.status, PB__STATUS__CRITICAL, "row %zu: %s", i, outcome.output);
        cr_assert_not_null(strstr(outcome.output, "no answer within 300 ms"), "row %zu: %s", i, outcome.output);
        cr_assert(outcome.took_ms >= 295 && outcome.took_ms < 5000, "row %zu: %lu ms", i,
                  (unsigned long)outcome.took_ms);
    }
    buffer_free(&wrong_pong);
    buffer_free(&no_trailers);
}

Test(h2, tls_that_goes_wrong) {
    const struct peer_script http1 = {.then = PEER_HANGS, .tls = true, .alpn = "http/1.1"};
    const struct peer_script no_tls = {.bytes = SLICE_LITERAL("220 mail.test ESMTP\r\n"), .then = PEER_HANGS};
    const struct peer_script closes = {.then = PEER_CLOSES};
    const struct peer_script *scripts[] = {&http1, &no_tls, &closes};
    for (size_t i = 0; i < ARRAY_COUNT(scripts); i++) {
        const struct wish wish = {.timeout_ms = i == 0 ? 500 : 20000, .tls = true, .skip_verify = true};
        struct outcome outcome = meet(scripts[i], CHECK_H2PING, &wish);
        cr_assert_eq(outcome.status, PB__STATUS__CRITICAL, "%s", outcome.output);
        /* One whose protocols have nothing in common with ours may go on without any: then it is silent. */
        bool dialed = strstr(outcome.output, "HTTP2 ping failed: no answer within") != NULL && i == 0;
        cr_assert(dialed || strstr(outcome.output, "Failed to dial to 127.0.0.1:") != NULL, "%s", outcome.output);
        outcome = meet(scripts[i], CHECK_GRPC, &wish);
        cr_assert_eq(outcome.status, PB__STATUS__CRITICAL);
    }
}

/* -- definitions, and giving up
 * --------------------------------------------------------------------------------------- */

Test(h2, addresses_that_are_none) {
    static const struct {
        enum check_kind kind;
        const char *target, *says;
    } rows[] = {
        {CHECK_H2PING, "127.0.0.1",
         "Failed to dial to 127.0.0.1: dial tcp: address 127.0.0.1: missing port in address"},
        {CHECK_GRPC, "127.0.0.1",
         "rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing "
         "dial tcp: address 127.0.0.1: missing port in address\""},
        {CHECK_GRPC, "/x:1", "missing port"},
        {CHECK_GRPC, "nowhere.invalid:1/x", "dial tcp: lookup nowhere.invalid: "},
        {CHECK_H2PING, "127.0.0.1:70000", "invalid port"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct outcome outcome = attempt(attempt_definition(rows[i].kind, rows[i].target, 20000));
        cr_assert_eq(outcome.status, PB__STATUS__CRITICAL);
        cr_assert_not_null(strstr(outcome.output, rows[i].says), "%s: %s", rows[i].target, outcome.output);
    }
}

Test(h2, long_names_make_no_long_outputs) {
    struct buffer target = {0};
    buffer_append_text(&target, "127.0.0.1:1/");
    for (int i = 0; i < 100000; i++) buffer_append_byte(&target, 'x');
    buffer_append_byte(&target, '\0');
    cr_assert_lt(attempt(attempt_definition(CHECK_GRPC, target.data, 20000)).output_size, 600);
    const struct peer_script script = {buffer_slice(&settings), buffer_slice(&answer), PEER_ANSWERS, false, NULL};
    const struct wish wish = {.timeout_ms = 20000, .service = "/"};
    cr_assert_eq(meet(&script, CHECK_GRPC, &wish).status, PB__STATUS__PASSING);
    cr_assert_lt(attempt(attempt_definition(CHECK_H2PING, target.data, 20000)).output_size, 600);
    buffer_free(&target);
}

Test(h2, given_up) {
    const struct peer_script script = {buffer_slice(&settings), slice_make(NULL, 0), PEER_ANSWERS, true, "h2"};
    struct peer *peer = peer_start(&script);
    const struct wish wish = {.timeout_ms = 20000, .tls = true, .skip_verify = true};
    for (uint64_t after_ms = 0; after_ms < 12; after_ms++) /* at once, connecting, in the handshake, waiting */
        cr_assert_eq(attempt_given_up(definition_of(CHECK_GRPC, peer_port(peer), &wish), after_ms).calls, 0);
    peer_stop(peer);
}
