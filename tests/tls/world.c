#include "world.h"

#include <stdio.h>

#include "base/check.h"

const char *const peers_protocol[] = {"coord/1", NULL};
const struct tls_context_config inner = {.only_tls13 = true};
const struct tls_session_config mutual = {.peer = TLS_PEER_REQUIRED, .protocols = peers_protocol};

void world_make(struct world *world) {
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

void world_free(struct world *world) {
    tls_context_unref(world->server_context);
    tls_context_unref(world->agent_context);
    tls_context_unref(world->stranger_context);
    identity_free(&world->server);
    identity_free(&world->agent);
    identity_free(&world->stranger);
    test_ca_free(&world->authority);
    test_ca_free(&world->other);
}

static void show(const struct ends *ends) {
    fprintf(stderr, "client: state %d \"%s\"; server: state %d \"%s\"\n", tls_session_state(ends->client),
            tls_session_why(ends->client), tls_session_state(ends->server), tls_session_why(ends->server));
}

void open_mutual(const struct world *world, struct ends *ends) {
    ends_open(ends, world->agent_context, mutual, world->server_context, mutual);
    ends_move(ends, 0);
    if (!ends_are_open(ends)) show(ends);
    CHECK(ends_are_open(ends));
}

static void expect_refusal(const struct ends *ends, const struct tls_session *by, const struct tls_session *of,
                           const char *why) {
    bool refused = tls_session_state(by) == TLS_FAILED && strstr(tls_session_why(by), why);
    bool told = tls_session_state(of) == TLS_FAILED && strstr(tls_session_why(of), "it refuses this side: ");
    if (!refused || !told) show(ends);
    CHECK(refused && told);
}

void expect_server_refuses(const struct ends *ends, const char *why) {
    expect_refusal(ends, ends->server, ends->client, why);
}

void expect_client_refuses(const struct ends *ends, const char *why) {
    expect_refusal(ends, ends->client, ends->server, why);
}

void say(struct ends *ends, const char *to_server, const char *to_client) {
    buffer_reset(&ends->server_got);
    buffer_reset(&ends->client_got);
    tls_session_write(ends->client, slice_text(to_server));
    tls_session_write(ends->server, slice_text(to_client));
    ends_move(ends, 0);
    CHECK(slice_is(buffer_slice(&ends->server_got), to_server));
    CHECK(slice_is(buffer_slice(&ends->client_got), to_client));
}
