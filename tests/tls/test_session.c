/* Encrypted sessions, two of them fed by each other in memory. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "ends.h"

static const char *const peers_protocol[] = {"coord/1", NULL};
static const char *const join_protocol[] = {"coord-join/1", NULL};
static const char *const both_protocols[] = {"coord/1", "coord-join/1", NULL};

/* A CA, two nodes of it, and a stranger with a CA of its own. */
struct world {
    struct test_ca authority, other;
    struct identity server, agent, stranger;
    struct tls_context *server_context, *agent_context, *stranger_context;
};

static const struct tls_context_config inner = {.only_tls13 = true};

static void world_make(struct world *world) {
    *world = (struct world){0};
    test_ca_make(&world->authority);
    test_ca_make(&world->other);
    identity_make(&world->authority, TLS_ROLE_SERVER, "s1", -DAY_S, DAY_S, &world->server);
    identity_make(&world->authority, TLS_ROLE_AGENT, "web-1", -DAY_S, DAY_S, &world->agent);
    identity_make(&world->other, TLS_ROLE_SERVER, "s9", -DAY_S, DAY_S, &world->stranger);
    world->server_context = context_of(&world->server, &world->authority, inner);
    world->agent_context = context_of(&world->agent, &world->authority, inner);
    world->stranger_context = context_of(&world->stranger, &world->other, inner);
}

static void world_free(struct world *world) {
    tls_context_unref(world->server_context);
    tls_context_unref(world->agent_context);
    tls_context_unref(world->stranger_context);
    identity_free(&world->server);
    identity_free(&world->agent);
    identity_free(&world->stranger);
    test_ca_free(&world->authority);
    test_ca_free(&world->other);
}

static const struct tls_session_config mutual = {.peer = TLS_PEER_REQUIRED, .protocols = peers_protocol};

static void open_mutual(const struct world *world, struct ends *ends) {
    ends_open(ends, world->agent_context, mutual, world->server_context, mutual);
    ends_move(ends, 0);
    cr_assert(ends_are_open(ends), "%s %s", tls_session_why(ends->client), tls_session_why(ends->server));
}

static void expect_server_refuses(const struct ends *ends, const char *why) {
    cr_assert_eq(tls_session_state(ends->server), TLS_FAILED);
    cr_assert(strstr(tls_session_why(ends->server), why), "%s", tls_session_why(ends->server));
    cr_assert_eq(tls_session_state(ends->client), TLS_FAILED);
    cr_assert(strstr(tls_session_why(ends->client), "it refuses this side"), "%s", tls_session_why(ends->client));
}

static void expect_client_refuses(const struct ends *ends, const char *why) {
    cr_assert_eq(tls_session_state(ends->client), TLS_FAILED);
    cr_assert(strstr(tls_session_why(ends->client), why), "%s", tls_session_why(ends->client));
    cr_assert_eq(tls_session_state(ends->server), TLS_FAILED);
    cr_assert(strstr(tls_session_why(ends->server), "it refuses this side"), "%s", tls_session_why(ends->server));
}

static void say(struct ends *ends, const char *to_server, const char *to_client) {
    buffer_reset(&ends->server_got);
    buffer_reset(&ends->client_got);
    tls_session_write(ends->client, slice_text(to_server));
    tls_session_write(ends->server, slice_text(to_client));
    ends_move(ends, 0);
    cr_assert(slice_is(buffer_slice(&ends->server_got), to_server));
    cr_assert(slice_is(buffer_slice(&ends->client_got), to_client));
}

/* -- who is who ----------------------------------------------------------------------------------------------------- */
Test(session, both_sides_know_each_other) {
    struct world world;
    struct ends ends;
    world_make(&world);
    open_mutual(&world, &ends);
    const struct tls_certificate *server = tls_session_peer(ends.client), *agent = tls_session_peer(ends.server);
    cr_assert(server && server->role == TLS_ROLE_SERVER && strcmp(server->node, "s1") == 0);
    cr_assert(agent && agent->role == TLS_ROLE_AGENT && strcmp(agent->node, "web-1") == 0);
    cr_assert_str_eq(agent->domain, world.authority.domain);
    cr_assert_str_eq(tls_session_protocol(ends.client), "coord/1");
    cr_assert_str_eq(tls_session_protocol(ends.server), "coord/1");
    cr_assert(!tls_session_by_psk(ends.client) && !tls_session_by_psk(ends.server));
    struct tls_certificate again;
    cr_assert_eq(tls_certificate_read(tls_session_peer_der(ends.server), &again, NULL), CO_OK);
    cr_assert_str_eq(again.serial, agent->serial);
    say(&ends, "hello", "welcome");
    ends_close(&ends);
    world_free(&world);
}

/* Who may do what is the caller's business: the session says which role it has. */
Test(session, an_agent_may_dial_and_answer_like_a_server) {
    struct world world;
    struct ends ends;
    world_make(&world);
    ends_open(&ends, world.server_context, mutual, world.agent_context, mutual);
    ends_move(&ends, 0);
    cr_assert(ends_are_open(&ends));
    cr_assert_eq(tls_session_peer(ends.client)->role, TLS_ROLE_AGENT);
    ends_close(&ends);
    world_free(&world);
}

Test(session, a_server_of_another_CA_is_refused) {
    struct world world;
    struct ends ends;
    world_make(&world);
    ends_open(&ends, world.agent_context, mutual, world.stranger_context, mutual);
    ends_move(&ends, 0);
    expect_client_refuses(&ends, "CA that is not trusted here");
    cr_assert_str_eq(tls_session_peer(ends.client)->node, "s9");
    ends_close(&ends);
    world_free(&world);
}

Test(session, a_client_of_another_CA_is_refused) {
    struct world world;
    struct ends ends;
    world_make(&world);
    struct tls_session_config unasked = mutual;
    unasked.peer = TLS_PEER_UNASKED;
    ends_open(&ends, world.stranger_context, unasked, world.server_context, mutual);
    ends_move(&ends, 0);
    expect_server_refuses(&ends, "CA that is not trusted here");
    cr_assert_null(tls_session_peer(ends.client), "nobody judged it");
    cr_assert_gt(tls_session_peer_der(ends.client).size, 0);
    ends_close(&ends);
    world_free(&world);
}

Test(session, a_client_without_a_certificate_is_refused_where_it_is_required) {
    struct world world;
    struct ends ends;
    world_make(&world);
    struct tls_context *bare = context_of(NULL, &world.authority, inner);
    ends_open(&ends, bare, mutual, world.server_context, mutual);
    ends_move(&ends, 0);
    expect_server_refuses(&ends, "it shows no certificate");
    ends_close(&ends);

    struct tls_session_config asked = mutual;
    asked.peer = TLS_PEER_ASKED;
    ends_open(&ends, bare, mutual, world.server_context, asked);
    ends_move(&ends, 0);
    cr_assert(ends_are_open(&ends));
    cr_assert_null(tls_session_peer(ends.server));
    cr_assert_eq(tls_session_peer_der(ends.server).size, 0);
    ends_close(&ends);
    tls_context_unref(bare);
    world_free(&world);
}

Test(session, a_wrong_certificate_is_refused_also_where_none_is_needed) {
    struct world world;
    struct ends ends;
    world_make(&world);
    struct tls_session_config asked = mutual, unasked = mutual;
    asked.peer = TLS_PEER_ASKED, unasked.peer = TLS_PEER_UNASKED;
    ends_open(&ends, world.stranger_context, unasked, world.server_context, asked);
    ends_move(&ends, 0);
    expect_server_refuses(&ends, "CA that is not trusted here");
    ends_close(&ends);
    ends_open(&ends, world.agent_context, mutual, world.server_context, asked);
    ends_move(&ends, 0);
    cr_assert(ends_are_open(&ends));
    cr_assert_str_eq(tls_session_peer(ends.server)->node, "web-1");
    ends_close(&ends);
    world_free(&world);
}

Test(session, an_expired_certificate_is_taken_within_the_grace_only) {
    struct world world;
    struct ends ends;
    struct identity old = {0};
    world_make(&world);
    identity_make(&world.authority, TLS_ROLE_AGENT, "old", -10 * DAY_S, -2 * DAY_S, &old);
    struct tls_context *context = context_of(&old, &world.authority, inner);
    ends_open(&ends, context, mutual, world.server_context, mutual);
    ends_move(&ends, 0);
    expect_server_refuses(&ends, "its certificate expired on ");
    cr_assert(strstr(tls_session_why(ends.client), "expired"), "%s", tls_session_why(ends.client));
    ends_close(&ends);

    struct tls_session_config grace = mutual;
    grace.grace_s = 30 * DAY_S;
    ends_open(&ends, context, mutual, world.server_context, grace);
    ends_move(&ends, 0);
    cr_assert(ends_are_open(&ends), "%s", tls_session_why(ends.server));
    ends_close(&ends);
    tls_context_unref(context);
    identity_free(&old);
    world_free(&world);
}

Test(session, a_certificate_of_tomorrow_is_refused) {
    struct world world;
    struct ends ends;
    struct identity early = {0};
    world_make(&world);
    identity_make(&world.authority, TLS_ROLE_SERVER, "s2", DAY_S, 2 * DAY_S, &early);
    struct tls_context *context = context_of(&early, &world.authority, inner);
    ends_open(&ends, world.agent_context, mutual, context, mutual);
    ends_move(&ends, 0);
    expect_client_refuses(&ends, "valid only from");
    ends_close(&ends);
    tls_context_unref(context);
    identity_free(&early);
    world_free(&world);
}

Test(session, the_host_has_to_be_in_the_certificate) {
    struct world world;
    struct ends ends;
    world_make(&world);
    static const struct {
        const char *host;
        bool fits;
    } hosts[] = {{"localhost", true},
                 {"server.dc1.coord", true},
                 {"127.0.0.1", true},
                 {"10.9.8.7", false},
                 {"s2.server.dc1.coord", false}};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        struct tls_session_config client = mutual;
        client.host = hosts[i].host;
        ends_open(&ends, world.agent_context, client, world.server_context, mutual);
        ends_move(&ends, 0);
        cr_assert_eq(ends_are_open(&ends), hosts[i].fits, "%s", hosts[i].host);
        if (!hosts[i].fits) expect_client_refuses(&ends, "its certificate is not for \"");
        ends_close(&ends);
    }
    world_free(&world);
}

/* -- pinned --------------------------------------------------------------------------------------------------------- */
Test(session, a_pin_counts_instead_of_trust_and_name) {
    struct world world;
    struct ends ends;
    world_make(&world);
    struct tls_context *bare = context_of(NULL, NULL, inner);
    struct tls_session_config client = mutual, server = mutual;
    client.peer = TLS_PEER_PINNED, client.host = "somewhere.else", server.peer = TLS_PEER_UNASKED;
    test_ca_pin(&world.authority, client.pin);
    ends_open(&ends, bare, client, world.server_context, server);
    ends_move(&ends, 0);
    cr_assert(ends_are_open(&ends), "%s", tls_session_why(ends.client));
    cr_assert_str_eq(tls_session_peer(ends.client)->node, "s1");
    ends_close(&ends);

    ends_open(&ends, bare, client, world.stranger_context, server);
    ends_move(&ends, 0);
    expect_client_refuses(&ends, "its CA is not the one with the expected fingerprint");
    ends_close(&ends);
    tls_context_unref(bare);
    world_free(&world);
}

/* Somebody adds the true CA's certificate, which is public, to a chain of its own. */
Test(session, a_pinned_CA_has_to_have_signed) {
    struct world world;
    struct ends ends;
    world_make(&world);
    struct identity forged = {0};
    struct buffer first = {0};
    cr_assert_eq(tls_certificate_at(buffer_slice(&world.stranger.chain), 0, &first, NULL), CO_OK);
    buffer_append(&forged.chain, first.data, first.size);
    buffer_append(&forged.chain, world.authority.certificate.data, world.authority.certificate.size);
    buffer_append(&forged.key, world.stranger.key.data, world.stranger.key.size);
    struct tls_context_config config = inner;
    struct tls_context *bare = context_of(NULL, NULL, inner), *server = context_of(&forged, NULL, config);
    struct tls_session_config client = mutual, unasked = mutual;
    client.peer = TLS_PEER_PINNED, unasked.peer = TLS_PEER_UNASKED;
    test_ca_pin(&world.authority, client.pin);
    ends_open(&ends, bare, client, server, unasked);
    ends_move(&ends, 0);
    cr_assert_eq(tls_session_state(ends.client), TLS_FAILED);
    cr_assert_neq(tls_session_state(ends.server), TLS_OPEN);
    ends_close(&ends);
    tls_context_unref(bare);
    tls_context_unref(server);
    buffer_free(&first);
    identity_free(&forged);
    world_free(&world);
}

/* -- protocols ------------------------------------------------------------------------------------------------------ */
Test(session, without_a_protocol_in_common_there_is_no_session) {
    struct world world;
    struct ends ends;
    world_make(&world);
    struct tls_session_config client = mutual;
    client.protocols = join_protocol;
    ends_open(&ends, world.agent_context, client, world.server_context, mutual);
    ends_move(&ends, 0);
    expect_server_refuses(&ends, "there is no protocol in common (ALPN)");
    ends_close(&ends);
    client.protocols = NULL; /* it names none at all */
    ends_open(&ends, world.agent_context, client, world.server_context, mutual);
    ends_move(&ends, 0);
    expect_server_refuses(&ends, "there is no protocol in common (ALPN)");
    ends_close(&ends);
    struct tls_session_config none = mutual; /* a server that knows none */
    none.protocols = NULL;
    ends_open(&ends, world.agent_context, mutual, world.server_context, none);
    ends_move(&ends, 0);
    cr_assert_eq(tls_session_state(ends.client), TLS_FAILED);
    cr_assert_str_eq(tls_session_why(ends.client), "there is no protocol in common (ALPN)");
    ends_close(&ends);
    world_free(&world);
}

static void by_purpose(void *data, const char *protocol, struct tls_session_config *config) {
    (void)data;
    if (strcmp(protocol, "coord-join/1") == 0) config->peer = TLS_PEER_UNASKED;
}

/* A server may take clients that offer no protocol, but not those that offer only others. */
Test(session, a_protocol_may_be_optional) {
    static const char *const others[] = {"h2", "h3", NULL}, *const fitting[] = {"h2", "coord/1", NULL};
    static const struct {
        const char *const *offered;
        const char *chosen;
        bool taken;
    } rows[] = {{NULL, NULL, true}, {fitting, "coord/1", true}, {others, NULL, false}};
    struct world world;
    world_make(&world);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ends ends;
        struct tls_session_config client = mutual, server = mutual;
        client.protocols = rows[i].offered;
        server.protocol_optional = true;
        ends_open(&ends, world.agent_context, client, world.server_context, server);
        ends_move(&ends, 0);
        cr_expect_eq(ends_are_open(&ends), rows[i].taken, "row %zu: %s", i, tls_session_why(ends.server));
        const char *chosen = tls_session_protocol(ends.server);
        cr_expect((!chosen && !rows[i].chosen) || (chosen && rows[i].chosen && strcmp(chosen, rows[i].chosen) == 0));
        ends_close(&ends);
    }
    world_free(&world);
}

Test(session, one_port_has_rules_by_protocol) {
    struct world world;
    struct ends ends;
    world_make(&world);
    struct tls_context *bare = context_of(NULL, &world.authority, inner);
    struct tls_session_config server = mutual, client = mutual;
    server.protocols = both_protocols, server.chosen = by_purpose;
    client.protocols = join_protocol;
    ends_open(&ends, bare, client, world.server_context, server);
    ends_move(&ends, 0);
    cr_assert(ends_are_open(&ends), "%s", tls_session_why(ends.server));
    cr_assert_str_eq(tls_session_protocol(ends.server), "coord-join/1");
    ends_close(&ends);
    ends_open(&ends, bare, mutual, world.server_context, server);
    ends_move(&ends, 0);
    expect_server_refuses(&ends, "it shows no certificate");
    ends_close(&ends);
    tls_context_unref(bare);
    world_free(&world);
}

/* -- other versions, other talk --------------------------------------------------------------------------------------- */
#define UNTIL_DONE 10

Test(session, an_earlier_version_is_refused_between_processes_of_coord) {
    struct world world;
    struct buffer got = {0};
    world_make(&world);
    static const char *const priorities[] = {"NORMAL:-VERS-ALL:+VERS-TLS1.2", "NORMAL:-VERS-ALL:+VERS-TLS1.1",
                                             "NORMAL:-VERS-ALL:+VERS-TLS1.0"};
    for (size_t i = 0; i < sizeof priorities / sizeof *priorities; i++) {
        struct bare bare;
        struct tls_session_config config = {.server = true};
        struct tls_session *server = tls_session_new(world.server_context, &config);
        bare_open(&bare, priorities[i]);
        bare_shake(&bare, server, &got);
        cr_assert_eq(tls_session_state(server), TLS_FAILED);
        cr_assert_str_eq(tls_session_why(server), "it offers no version of TLS that this side takes", "%s: %s",
                         priorities[i], tls_session_why(server));
        cr_assert_eq(bare_shake(&bare, server, &got), GNUTLS_E_FATAL_ALERT_RECEIVED);
        bare_close(&bare);
        tls_session_free(server);
    }
    buffer_free(&got);
    world_free(&world);
}

Test(session, TLS_1_2_is_taken_where_clients_are_met_and_not_negotiated_anew) {
    struct world world;
    struct buffer got = {0};
    struct bare bare;
    world_make(&world);
    struct tls_context *context = context_of(&world.server, NULL, (struct tls_context_config){0});
    struct tls_session_config config = {.server = true};
    struct tls_session *server = tls_session_new(context, &config);
    bare_open(&bare, "NORMAL:-VERS-ALL:+VERS-TLS1.2");
    int error = GNUTLS_E_AGAIN;
    for (int i = 0; i < UNTIL_DONE && error == GNUTLS_E_AGAIN; i++) error = bare_shake(&bare, server, &got);
    cr_assert_eq(error, 0, "%s", gnutls_strerror(error));
    cr_assert_eq(tls_session_state(server), TLS_OPEN);
    cr_assert_eq(gnutls_cipher_get(bare.tls), GNUTLS_CIPHER_AES_128_GCM);
    bare_shake(&bare, server, &got); /* a second handshake in the same session */
    cr_assert_eq(tls_session_state(server), TLS_FAILED);
    cr_assert_str_eq(tls_session_why(server), "it asks to negotiate anew");
    bare_close(&bare);
    tls_session_free(server);
    tls_context_unref(context);
    buffer_free(&got);
    world_free(&world);
}

Test(session, other_talk_is_no_handshake) {
    struct world world;
    struct buffer got = {0};
    world_make(&world);
    static const char *const talks[] = {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "\x05\x00\x00\x00\x01hello"};
    for (size_t i = 0; i < 2; i++) {
        struct tls_session_config config = {.server = true};
        struct tls_session *server = tls_session_new(world.server_context, &config);
        tls_session_feed(server, slice_make(talks[i], i == 0 ? strlen(talks[0]) : 10), &got);
        cr_assert_eq(tls_session_state(server), TLS_FAILED);
        cr_assert_str_eq(tls_session_why(server), "it does not speak TLS");
        tls_session_free(server);
    }
    cr_assert_eq(got.size, 0);
    buffer_free(&got);
    world_free(&world);
}

Test(session, hellos_are_told_from_frames) {
    cr_assert(tls_looks_like(slice_make("", 0)));
    cr_assert(tls_looks_like(slice_make("\x16\x03", 2)));
    cr_assert(tls_looks_like(slice_make("\x16\x03\x01\x02\x00\x01", 6)));
    cr_assert(!tls_looks_like(slice_make("\x16\x03\x00\x00\x01", 5)), "a frame of 790 bytes");
    cr_assert(!tls_looks_like(slice_make("\x05", 1)));
    cr_assert(!tls_looks_like(slice_text("GET ")));
    cr_assert(!tls_record_whole(slice_make("\x16\x03\x01\x00\x02\x01", 6)));
    cr_assert(tls_record_whole(slice_make("\x16\x03\x01\x00\x02\x01\x00", 7)));
    cr_assert(!tls_record_whole(slice_make("\x16\x03\x01\x00", 4)));
    cr_assert(tls_record_whole(slice_make("\x16\x03\x01\xff\xff", 5)), "no record is that long");
    cr_assert(tls_record_whole(slice_text("G")));
    cr_assert(tls_record_whole(slice_make("\x17\x04", 2)));
    cr_assert(!tls_record_whole(slice_make("\x15\x03", 2)));
}

/* -- shared keys ------------------------------------------------------------------------------------------------------ */
static const char key_a[] = "0123456789abcdef", key_b[] = "fedcba9876543210fedcba9876543210",
                  key_c[] = "0123456789abcdeg";

static struct tls_context *with_keys(const struct identity *identity, const struct test_ca *authority,
                                     const char *first, const char *second) {
    struct tls_context_config config = inner;
    config.psk[0] = slice_text(first), config.psk_count = 1;
    if (second) config.psk[1] = slice_text(second), config.psk_count = 2;
    return context_of(identity, authority, config);
}

static const struct tls_session_config by_key = {.psk = true, .protocols = peers_protocol};

Test(session, a_shared_key_is_enough) {
    struct ends ends;
    struct tls_context *server = with_keys(NULL, NULL, key_a, key_b), *first = with_keys(NULL, NULL, key_a, NULL),
                       *second = with_keys(NULL, NULL, key_b, NULL);
    struct tls_context *clients[] = {first, second};
    for (size_t i = 0; i < 2; i++) {
        ends_open(&ends, clients[i], by_key, server, mutual);
        ends_move(&ends, 0);
        cr_assert(ends_are_open(&ends), "%s | %s", tls_session_why(ends.client), tls_session_why(ends.server));
        cr_assert(tls_session_by_psk(ends.client) && tls_session_by_psk(ends.server));
        cr_assert_null(tls_session_peer(ends.client));
        cr_assert_null(tls_session_peer(ends.server));
        say(&ends, "hello", "welcome");
        ends_close(&ends);
    }
    tls_context_unref(server);
    tls_context_unref(first);
    tls_context_unref(second);
}

Test(session, another_shared_key_is_refused) {
    struct ends ends;
    struct tls_context *server = with_keys(NULL, NULL, key_a, key_b), *client = with_keys(NULL, NULL, key_c, NULL);
    ends_open(&ends, client, by_key, server, mutual);
    ends_move(&ends, 0);
    expect_server_refuses(&ends, "its shared key (encrypt) is none of this side's");
    ends_close(&ends);
    tls_context_unref(server);
    tls_context_unref(client);
}

Test(session, a_server_takes_keys_and_certificates_and_a_client_one_of_them) {
    struct world world;
    struct ends ends;
    world_make(&world);
    struct tls_context *both = with_keys(&world.server, &world.authority, key_a, NULL),
                       *key = with_keys(NULL, NULL, key_a, NULL);
    ends_open(&ends, key, by_key, both, mutual);
    ends_move(&ends, 0);
    cr_assert(ends_are_open(&ends) && tls_session_by_psk(ends.server));
    ends_close(&ends);
    ends_open(&ends, world.agent_context, mutual, both, mutual);
    ends_move(&ends, 0);
    cr_assert(ends_are_open(&ends) && !tls_session_by_psk(ends.server));
    cr_assert_str_eq(tls_session_peer(ends.server)->node, "web-1");
    ends_close(&ends);

    /* A client that wants the key's proof does not take a certificate for it, whoever signed it. */
    struct tls_context *trusting = with_keys(NULL, &world.authority, key_a, NULL);
    struct tls_session_config unasked = mutual;
    unasked.peer = TLS_PEER_UNASKED;
    ends_open(&ends, trusting, by_key, world.server_context, unasked);
    ends_move(&ends, 0);
    cr_assert_eq(tls_session_state(ends.client), TLS_FAILED);
    cr_assert_neq(tls_session_state(ends.server), TLS_OPEN);
    ends_close(&ends);

    /* And a server that has only keys takes no certificate. */
    ends_open(&ends, world.agent_context, mutual, key, mutual);
    ends_move(&ends, 0);
    cr_assert_eq(tls_session_state(ends.server), TLS_FAILED);
    cr_assert_neq(tls_session_state(ends.client), TLS_OPEN);
    ends_close(&ends);
    tls_context_unref(both);
    tls_context_unref(key);
    tls_context_unref(trusting);
    world_free(&world);
}

Test(session, without_a_key_nothing_begins_by_key) {
    struct world world;
    world_make(&world);
    struct tls_session *session = tls_session_new(world.agent_context, &by_key);
    cr_assert_eq(tls_session_state(session), TLS_FAILED);
    cr_assert_str_eq(tls_session_why(session), "this side has no shared key (encrypt)");
    cr_assert_eq(tls_session_out(session)->size, 0);
    tls_session_free(session);
    world_free(&world);
}

/* -- bytes in pieces ------------------------------------------------------------------------------------------------- */
Test(session, bytes_may_come_one_by_one) {
    struct world world;
    struct ends ends;
    world_make(&world);
    ends_open(&ends, world.agent_context, mutual, world.server_context, mutual);
    ends_move(&ends, 1);
    cr_assert(ends_are_open(&ends));
    tls_session_write(ends.client, slice_text("a record, cut at every byte"));
    ends_move(&ends, 1);
    cr_assert(slice_is(buffer_slice(&ends.server_got), "a record, cut at every byte"));
    ends_close(&ends);
    world_free(&world);
}

/* Wherever the client's bytes stop, the server waits; when the rest comes, it goes on. */
static void stop_at(const struct world *world, size_t at, size_t *total) {
    struct ends ends;
    size_t moved = 0, size = 1;
    ends_open(&ends, world->agent_context, mutual, world->server_context, mutual);
    for (int round = 0; round < UNTIL_DONE && size > 0; round++) {
        char *bytes = buffer_take(tls_session_out(ends.client), &size);
        size_t before = at > moved && at < moved + size ? at - moved : size;
        enum tls_state state = tls_session_feed(ends.server, slice_make(bytes, before), &ends.server_got);
        if (before < size) {
            cr_assert_eq(state, TLS_HANDSHAKE, "cut at %zu: %s", at, tls_session_why(ends.server));
            tls_session_feed(ends.server, slice_make(bytes + before, size - before), &ends.server_got);
        }
        moved += size;
        free(bytes);
        bytes = buffer_take(tls_session_out(ends.server), &(size_t){0});
        free(bytes);
        break;
    }
    *total = moved;
    ends_close(&ends);
}

Test(session, a_handshake_may_stop_at_every_byte) {
    struct world world;
    world_make(&world);
    size_t total = 0;
    stop_at(&world, 0, &total);
    for (size_t at = 1; at < total; at++) stop_at(&world, at, &total);
    world_free(&world);
}

Test(session, a_changed_byte_is_noticed_wherever_it_is) {
    struct world world;
    world_make(&world);
    for (size_t at = 0, size = 1; at < size; at++) {
        struct ends ends;
        open_mutual(&world, &ends);
        tls_session_write(ends.client, slice_text("pay 10"));
        char *bytes = buffer_take(tls_session_out(ends.client), &size);
        bytes[at] ^= 1;
        struct buffer got = {0};
        enum tls_state state = tls_session_feed(ends.server, slice_make(bytes, size), &got);
        if (at < 3) { /* type and version are always the same in TLS 1.3; GnuTLS does not look at them */
            cr_assert(state == TLS_FAILED || slice_is(buffer_slice(&got), "pay 10"));
        } else {
            cr_assert_eq(got.size, 0);
            cr_assert(state == TLS_FAILED || at == 3 || at == 4, "byte %zu", at); /* its size: it waits for more */
        }
        buffer_free(&got);
        free(bytes);
        ends_close(&ends);
    }
    world_free(&world);
}

Test(session, large_writes_arrive_whole) {
    struct world world;
    struct ends ends;
    world_make(&world);
    open_mutual(&world, &ends);
    size_t size = 16u << 20;
    char *bytes = malloc(size);
    for (size_t i = 0; i < size; i++) bytes[i] = (char)(i * 2654435761u >> 13);
    size_t before = ends.to_server;
    tls_session_write(ends.client, slice_make(bytes, size));
    cr_assert_eq(tls_session_out(ends.client)->size, size + size / TLS_RECORD_MAX * TLS_RECORD_OVERHEAD);
    ends_move(&ends, 100000);
    cr_assert_gt(ends.to_server, before + size);
    cr_assert(slice_equal(buffer_slice(&ends.server_got), slice_make(bytes, size)));
    free(bytes);
    ends_close(&ends);
    world_free(&world);
}

/* -- the end ---------------------------------------------------------------------------------------------------------- */
Test(session, a_goodbye_ends_it_and_what_came_before_is_there) {
    struct world world;
    struct ends ends;
    world_make(&world);
    open_mutual(&world, &ends);
    tls_session_write(ends.client, slice_text("last words"));
    tls_session_goodbye(ends.client);
    ends_move(&ends, 0);
    cr_assert(slice_is(buffer_slice(&ends.server_got), "last words"));
    cr_assert_eq(tls_session_state(ends.server), TLS_ENDED);
    cr_assert_str_eq(tls_session_why(ends.server), "");
    cr_assert_eq(tls_session_feed(ends.server, slice_text("more"), &ends.server_got), TLS_ENDED);
    cr_assert(slice_is(buffer_slice(&ends.server_got), "last words"));
    ends_close(&ends);
    world_free(&world);
}

/* Who said goodbye may still read. */
Test(session, after_a_goodbye_the_other_side_may_still_speak) {
    struct world world;
    struct ends ends;
    world_make(&world);
    open_mutual(&world, &ends);
    tls_session_write(ends.client, slice_text("a question"));
    tls_session_goodbye(ends.client);
    ends_move(&ends, 0);
    cr_assert_eq(tls_session_state(ends.server), TLS_ENDED);
    tls_session_write(ends.server, slice_text("an answer"));
    tls_session_goodbye(ends.server);
    ends_move(&ends, 0);
    cr_assert(slice_is(buffer_slice(&ends.client_got), "an answer"));
    cr_assert_eq(tls_session_state(ends.client), TLS_ENDED);
    ends_close(&ends);
    world_free(&world);
}

Test(session, both_sides_export_the_same_secret_and_others_another) {
    struct world world;
    struct ends ends, others;
    uint8_t one[32], two[32], three[32];
    world_make(&world);
    ends_open(&ends, world.agent_context, mutual, world.server_context, mutual);
    cr_assert_eq(tls_session_export(ends.client, "coord", one), CO_INVALID);
    ends_move(&ends, 0);
    open_mutual(&world, &others);
    cr_assert_eq(tls_session_export(ends.client, "coord", one), CO_OK);
    cr_assert_eq(tls_session_export(ends.server, "coord", two), CO_OK);
    cr_assert_eq(tls_session_export(others.server, "coord", three), CO_OK);
    cr_assert_eq(memcmp(one, two, 32), 0);
    cr_assert_neq(memcmp(one, three, 32), 0);
    cr_assert_eq(tls_session_export(ends.server, "another", two), CO_OK);
    cr_assert_neq(memcmp(one, two, 32), 0);
    ends_close(&ends);
    ends_close(&others);
    world_free(&world);
}
