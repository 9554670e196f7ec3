/* Certificates that a server gives, to whom and what for (rpc/server/enrolment.h): by enrol_ask, over real sockets. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/message.h"
#include "registry/trust.h"
#include "tests/lib/closed_server.h"

static uv_loop_t loop;
static struct closed_server server;
static struct identity agent, second; /* a1, and server s2 */
static struct tls_context *nothing;

static void setup(void) {
    uv_loop_init(&loop);
    closed_server_start(&server, &loop);
    identity_make(&server.ca, TLS_ROLE_AGENT, "a1", -DAY_S, DAY_S, &agent);
    identity_make(&server.ca, TLS_ROLE_SERVER, "s2", -DAY_S, DAY_S, &second);
    closed_server_note(&server, &agent);
    closed_server_note(&server, &second);
    nothing = context_of(NULL, NULL, (struct tls_context_config){.only_tls13 = true});
}

static void turn_until(bool (*done)(void)) {
    uint64_t end_ms = clock_mono_ms() + 30000;
    while (!done()) {
        cr_assert(clock_mono_ms() < end_ms, "not in time");
        if (server.enrolment) enrolment_tick(server.enrolment, clock_mono_ms());
        uv_run(&loop, UV_RUN_NOWAIT);
    }
}
static bool stopped(void) { return closed_server_stopped(&server); }

static void teardown(void) {
    closed_server_stop(&server);
    turn_until(stopped);
    while (uv_run(&loop, UV_RUN_NOWAIT)) continue;
    cr_assert_eq(uv_loop_close(&loop), 0);
    identity_free(&agent);
    identity_free(&second);
    tls_context_unref(nothing);
    closed_server_free(&server);
}
TestSuite(enrolment, .init = setup, .fini = teardown);

/* -- asking ---------------------------------------------------------------------------------------------------------- */
static struct asked {
    struct enrol enrol;
    Pb__EnrolRequest request;
    struct arena arena;
    Pb__EnrolAnswer *answer;
    struct fault fault;
    int error;
    _Atomic bool done;
} asked;

static void *ask_there(void *data) {
    (void)data;
    asked.error = enrol_ask(&asked.enrol, server.address, 0, &asked.arena, &asked.answer, &asked.fault);
    asked.done = true;
    return NULL;
}
static bool answered(void) { return asked.done; }

static void begin(const char *protocol, const char *node, bool is_server) {
    arena_free(&asked.arena);
    asked = (struct asked){.enrol = {.protocol = protocol, .context = nothing, .timeout_ms = 20000}};
    pb__enrol_request__init(&asked.request);
    asked.enrol.request = &asked.request;
    asked.request.node = (char *)(uintptr_t)node, asked.request.server = is_server;
}

static int ask(void) {
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, ask_there, NULL), 0);
    turn_until(answered);
    pthread_join(thread, NULL);
    return asked.error;
}

static void expect(int error, const char *why) {
    cr_expect_eq(asked.error, error, "%s: %s", co_strerror(asked.error), asked.fault.text);
    if (why) cr_expect(strstr(asked.fault.text, why), "%s", asked.fault.text);
}

/* -- joining ----------------------------------------------------------------------------------------------------------- */
static struct buffer key, request;
static uint8_t pin[TLS_PIN_SIZE];

static void join_with(const struct join_token *token, const char *node, bool is_server) {
    begin(SECURITY_JOIN, node, is_server);
    if (!key.size) {
        cr_assert_eq(tls_key_make(&key, NULL), CO_OK);
        cr_assert_eq(tls_request_make(buffer_slice(&key), &request, NULL), CO_OK);
    }
    test_ca_pin(&server.ca, pin);
    asked.enrol.pin = pin;
    asked.request.request = message_bytes(buffer_slice(&request));
    asked.request.token_id = message_bytes(slice_make(token->id, sizeof token->id));
    asked.request.token_secret = message_bytes(slice_make(token->secret, sizeof token->secret));
}

Test(enrolment, a_token_makes_the_node_that_it_is_for) {
    struct join_token token = closed_server_token(&server, TLS_ROLE_AGENT, "web-*", 1);
    struct tls_certificate made;
    join_with(&token, "db-1", false);
    ask(), expect(CO_DENIED, "other names");
    join_with(&token, "web-1", true);
    ask(), expect(CO_DENIED, "wrong"); /* its hash has the role */
    struct join_token wrong = token;
    wrong.secret[3] ^= 1;
    join_with(&wrong, "web-1", false);
    ask(), expect(CO_DENIED, "secret is wrong");
    wrong = token, wrong.id[0] ^= 1;
    join_with(&wrong, "web-1", false);
    ask(), expect(CO_DENIED, "not known");
    join_with(&token, "web-1", false);
    asked.request.token_secret.len--;
    ask(), expect(CO_DENIED, "no join token");
    join_with(&token, "web-1", false);
    ask(), expect(CO_OK, NULL);
    cr_assert_eq(tls_certificate_read(slice_text(asked.answer->chain), &made, NULL), CO_OK);
    cr_expect(made.role == TLS_ROLE_AGENT && strcmp(made.node, "web-1") == 0);
    cr_expect_eq(asked.answer->ca_key.len + asked.answer->secret_key.len, 0, "an agent gets no key");
    cr_expect_eq(asked.answer->n_servers, 1);
    struct buffer der = {0};
    cr_assert_eq(tls_certificate_to_der(slice_text(asked.answer->chain), &der, NULL), CO_OK);
    cr_expect(tls_certificate_names(buffer_slice(&der), "127.0.0.1") &&
              tls_certificate_names(buffer_slice(&der), "web-1.node.dc1.coord"));
    cr_expect_not(tls_certificate_names(buffer_slice(&der), "10.0.0.9"), "only where it came from");
    buffer_free(&der);
    join_with(&token, "web-1", false);
    ask(), expect(CO_OK, NULL); /* its first answer may have been lost */
    tls_wipe(&key), buffer_free(&request);
    join_with(&token, "web-2", false);
    ask(), expect(CO_DENIED, "used up");
    tls_wipe(&key), buffer_free(&request);
}

Test(enrolment, a_server_gets_the_keys) {
    struct join_token token = closed_server_token(&server, TLS_ROLE_SERVER, "", 0);
    join_with(&token, "s3", true);
    ask(), expect(CO_OK, NULL);
    cr_expect(slice_equal(message_slice(asked.answer->ca_key), buffer_slice(&server.ca.key)));
    cr_expect(slice_is(message_slice(asked.answer->secret_key), "0123456789abcdef0123456789abcdef"));
    tls_wipe(&key), buffer_free(&request);
    join_with(&token, "s2", true);
    ask(), expect(CO_CONFLICT, "has a certificate already");
    join_with(&token, "a1", true);
    ask(), expect(CO_CONFLICT, "has a certificate already");
    tls_wipe(&key), buffer_free(&request);
}

Test(enrolment, names_and_places_that_are_not_given_away) {
    struct join_token token = closed_server_token(&server, TLS_ROLE_AGENT, "", 0);
    static const struct {
        const char *node, *datacenter;
        int error;
        const char *why;
    } rows[] = {
        {"localhost", "", CO_INVALID, "belongs to the cluster itself"},
        {"LocalHost", "", CO_INVALID, "belongs to the cluster itself"},
        {"server.dc1.coord", "", CO_INVALID, "belongs to the cluster itself"},
        {"x.COORD", "", CO_INVALID, "belongs to the cluster itself"},
        {"", "", CO_INVALID, "1 to 255 bytes"},
        {"coord", "dc2", CO_INVALID, "this is datacenter dc1, not dc2"},
        {"coord", "DC1", CO_OK, NULL},
        {"mycoord", "", CO_OK, NULL},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        join_with(&token, rows[i].node, false);
        asked.request.datacenter = (char *)(uintptr_t)rows[i].datacenter;
        ask(), expect(rows[i].error, rows[i].why);
    }
    char much[600];
    memset(much, 'x', 599), much[599] = 0;
    join_with(&token, much, false);
    ask(), expect(CO_INVALID, "1 to 255 bytes");
    tls_wipe(&key), buffer_free(&request);
    join_with(&token, "no-request", false);
    asked.request.request.len = 20;
    ask(), expect(CO_INVALID, "request");
    tls_wipe(&key), buffer_free(&request);
}

Test(enrolment, a_write_that_fails_gives_no_certificate) {
    struct join_token token = closed_server_token(&server, TLS_ROLE_AGENT, "", 0);
    server.write_error = CO_NOLEADER;
    join_with(&token, "web-1", false);
    ask(), expect(CO_NOLEADER, NULL);
    cr_expect(asked.answer && !asked.answer->chain[0] && enrol_may_repeat(asked.error));
    server.write_error = CO_OK;
    tls_wipe(&key), buffer_free(&request);
}

/* -- renewing ---------------------------------------------------------------------------------------------------------- */
static struct tls_context *context;
static unsigned kept;
static int keep_error;

static int keep(void *data, const Pb__EnrolAnswer *answer, struct fault *fault) {
    (void)data;
    cr_expect(answer->chain[0]);
    kept++;
    return keep_error ? fault_set(fault, keep_error, "no room") : CO_OK;
}

static void renew_as(const struct identity *identity, const char *node, bool is_server) {
    begin(SECURITY_RENEW, node, is_server);
    tls_context_unref(context);
    buffer_free(&request);
    context = context_of(identity, &server.ca, (struct tls_context_config){.only_tls13 = true});
    asked.enrol.context = context, asked.enrol.keep = keep;
    cr_assert_eq(tls_request_make(buffer_slice(&identity->key), &request, NULL), CO_OK);
    asked.request.request = message_bytes(buffer_slice(&request));
}

static int64_t ends_s(const char *node) { return closed_server_record(&server, false, node)->now->to_s; }
static int64_t before_s;
static bool noted(void) { return ends_s("a1") != before_s; }

Test(enrolment, a_renewal_is_noted_when_it_is_kept) {
    before_s = ends_s("a1");
    renew_as(&agent, "a1", false);
    ask(), expect(CO_OK, NULL);
    turn_until(noted);
    cr_expect_eq(asked.answer->ca_key.len, 0);
    cr_expect_geq(ends_s("a1"), before_s + 5 * DAY_S);

    before_s = ends_s("a1");
    unsigned before = server.writes;
    keep_error = CO_DISKFULL;
    renew_as(&agent, "a1", false);
    ask(), expect(CO_DISKFULL, "no room");
    keep_error = CO_OK;
    renew_as(&agent, "A1", false); /* names count without regard to case; it does not say that it has kept it */
    asked.enrol.keep = NULL;
    ask(), expect(CO_OK, NULL);
    renew_as(&agent, "other", false); /* what comes after has gone through the same hands */
    ask(), expect(CO_DENIED, "for the same node only");
    cr_expect_eq(server.writes, before, "nothing was noted");
    cr_expect_eq(kept, 2);
}

static unsigned writes;
static bool written(void) { return server.writes > writes; }

Test(enrolment, its_record_waits_for_a_leader) {
    before_s = ends_s("a1");
    server.write_error = CO_NOLEADER;
    for (int i = 0; i < 3; i++) {
        renew_as(&agent, "a1", false);
        ask(), expect(CO_OK, NULL);
    }
    writes = server.writes + 1;
    turn_until(written);
    cr_expect_not(noted());
    server.write_error = CO_OK;
    turn_until(noted);
    writes = server.writes;
    renew_as(&second, "s2", true);
    ask(), expect(CO_OK, NULL);
    turn_until(written);
    cr_expect_eq(server.writes, writes + 1, "of three of one node one was left");
}

Test(enrolment, only_the_node_itself_renews) {
    struct identity other = {0}, stranger = {0};
    struct test_ca elsewhere = {0};
    renew_as(&agent, "a2", false);
    ask(), expect(CO_DENIED, "for the same node only");
    renew_as(&agent, "a1", true);
    ask(), expect(CO_DENIED, "for the same node only");
    renew_as(&agent, "a1", false);
    buffer_free(&request);
    cr_assert_eq(tls_request_make(buffer_slice(&second.key), &request, NULL), CO_OK);
    asked.request.request = message_bytes(buffer_slice(&request));
    ask(), expect(CO_DENIED, "keeps its key");
    identity_make(&server.ca, TLS_ROLE_AGENT, "a9", -DAY_S, DAY_S, &other);
    renew_as(&other, "a9", false);
    ask(), expect(CO_AGAIN, "does not know that the cluster gave this node a certificate");
    identity_free(&other);
    identity_make(&server.ca, TLS_ROLE_AGENT, "a1", -DAY_S, DAY_S, &other); /* of another key */
    renew_as(&other, "a1", false);
    ask(), expect(CO_DENIED, "another certificate was issued for its name");
    identity_free(&other);
    identity_make_plain(&server.ca, true, true, &other);
    renew_as(&other, "a1", false);
    ask(), expect(CO_DENIED, "not of this cluster");
    identity_free(&other);
    test_ca_make(&elsewhere);
    identity_make(&elsewhere, TLS_ROLE_AGENT, "a1", -DAY_S, DAY_S, &stranger);
    renew_as(&stranger, "a1", false);
    ask(), expect(CO_DENIED, "refuses this side");
    cr_expect_null(asked.answer, "by the handshake");
    identity_free(&stranger);
    test_ca_free(&elsewhere);
}

Test(enrolment, after_its_end_for_thirty_days) {
    struct identity old = {0};
    static const struct {
        int64_t to_s;
        bool good;
    } rows[] = {{-1, true}, {-29 * DAY_S, true}, {-31 * DAY_S, false}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        char node[8];
        snprintf(node, sizeof node, "old-%zu", i);
        identity_make(&server.ca, TLS_ROLE_AGENT, node, -60 * DAY_S, rows[i].to_s, &old);
        closed_server_note(&server, &old);
        renew_as(&old, node, false);
        ask(), expect(rows[i].good ? CO_OK : CO_DENIED, NULL);
        identity_free(&old);
    }
}

Test(enrolment, a_removed_node_renews_no_more) {
    Pb__TrustRemoveCommand command = PB__TRUST_REMOVE_COMMAND__INIT;
    command.node = (char *)(uintptr_t) "a1";
    cr_assert_eq(fixture_apply(&server.f, TRUST_REMOVE, &command.base).error, CO_OK);
    renew_as(&agent, "a1", false);
    ask(), expect(CO_DENIED, "removed from the cluster");
}

Test(enrolment, a_server_that_renews_gets_the_keys_and_may_insist_on_a_ca) {
    renew_as(&second, "s2", true);
    ask(), expect(CO_OK, NULL);
    cr_expect(slice_equal(message_slice(asked.answer->ca_key), buffer_slice(&server.ca.key)));
    test_ca_pin(&server.ca, pin);
    renew_as(&second, "s2", true);
    asked.request.ca_pin = (ProtobufCBinaryData){sizeof pin, pin};
    ask(), expect(CO_OK, NULL);
    pin[0] ^= 1;
    renew_as(&second, "s2", true);
    asked.request.ca_pin = (ProtobufCBinaryData){sizeof pin, pin};
    ask(), expect(CO_AGAIN, "does not have the key of the CA that signs now");
}

/* -- closing an open cluster ------------------------------------------------------------------------------------------- */
Test(enrolment, without_a_certificate_only_while_the_cluster_is_being_closed) {
    struct join_token token = {.role = TLS_ROLE_AGENT};
    join_with(&token, "new", false);
    asked.enrol.protocol = SECURITY_SECURE;
    ask(), expect(CO_DENIED, "this cluster is closed: it takes join tokens");
    closed_server_mode(&server, TRUST_BOTH);
    join_with(&token, "new", false);
    asked.enrol.protocol = SECURITY_SECURE;
    ask(), expect(CO_OK, NULL);
    cr_expect(closed_server_record(&server, false, "new"));
    cr_expect_eq(asked.answer->mode, TRUST_BOTH);
    tls_wipe(&key), buffer_free(&request);
    join_with(&token, "new", false); /* another host of this name */
    asked.enrol.protocol = SECURITY_SECURE;
    ask(), expect(CO_DENIED, "another certificate was issued for its name");
    tls_wipe(&key), buffer_free(&request);
}
