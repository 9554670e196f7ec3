/* Encrypted sessions, two of them fed by each other in memory: who is who, and which protocol is spoken. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "world.h"

static const char *const join_protocol[] = {"coord-join/1", NULL};
static const char *const both_protocols[] = {"coord/1", "coord-join/1", NULL};

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

/* The caller decides what a role may do: the session says which one it is. */
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

Test(session, a_certificate_serves_the_use_it_was_made_for) {
    struct world world;
    struct ends ends;
    world_make(&world);
    for (int for_servers = 0; for_servers < 2; for_servers++) {
        struct identity one = {0};
        identity_make_plain(&world.authority, for_servers, !for_servers, &one);
        struct tls_context *context = context_of(&one, &world.authority, inner);
        ends_open(&ends, context, mutual, world.server_context, mutual); /* as a client */
        ends_move(&ends, 0);
        if (for_servers) expect_server_refuses(&ends, "its certificate is not made for clients");
        else cr_assert(ends_are_open(&ends), "%s", tls_session_why(ends.server));
        ends_close(&ends);
        ends_open(&ends, world.agent_context, mutual, context, mutual); /* as a server */
        ends_move(&ends, 0);
        if (!for_servers) expect_client_refuses(&ends, "its certificate is not made for servers");
        else cr_assert(ends_are_open(&ends), "%s", tls_session_why(ends.client));
        ends_close(&ends);
        tls_context_unref(context);
        identity_free(&one);
    }
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
