#include "link_pair.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

static void end_both(struct pair *pair) {
    if (pair->accepted) link_close(pair->accepted);
    if (pair->dialled) link_close(pair->dialled);
}

static void frame(void *data, struct link *link, uint8_t type, struct slice payload) {
    struct pair *pair = data;
    (void)link;
    if (type != PAIR_FRAME) {
        buffer_append(&pair->refusal, payload.data, payload.size);
        return;
    }
    CHECK(link == pair->dialled ? pair->told_dialled : !pair->accept || pair->told_accepted);
    buffer_append(&pair->got, payload.data, payload.size);
    if (++pair->frames == pair->frames_wanted && !pair->keep) end_both(pair);
}

static void connected(void *data, struct link *link) {
    struct pair *pair = data;
    if (link == pair->dialled) {
        CHECK(!pair->told_dialled);
        pair->told_dialled = true;
    } else {
        CHECK(!pair->told_accepted);
        pair->told_accepted = true, pair->encrypted = link_encrypted(link);
    }
}

static void closed(void *data, struct link *link, int error) {
    struct pair *pair = data;
    bool dialled = link == pair->dialled;
    *(dialled ? &pair->dialled_error : &pair->error) = error;
    snprintf(dialled ? pair->dialled_why : pair->why, sizeof pair->why, "%s", link_why(link));
    *(dialled ? &pair->dialled : &pair->accepted) = NULL;
    if (++pair->closed == 1) { /* the other side goes too, when it has seen the end */
        if (error == CO_CLOSED) end_both(pair);
        if (dialled && !pair->accepted) pair->closed = 2; /* it never came */
    }
    if (pair->closed < 2) return;
    uv_close((uv_handle_t *)&pair->listener, NULL);
    uv_close((uv_handle_t *)&pair->guard, NULL);
}
static const struct link_callbacks callbacks = {.frame = frame, .connected = connected, .closed = closed};

static void connection(uv_stream_t *server, int status) {
    struct pair *pair = server->data;
    CHECK(status == 0);
    pair->accepted = link_accept(server, pair->accept, &callbacks, pair);
    if (pair->limit) link_limit(pair->accepted, pair->limit);
}

static void late(uv_timer_t *timer) {
    (void)timer;
    fprintf(stderr, "not done within a minute\n");
    abort();
}

void pair_open(struct pair *pair, const struct link_security *dial, const struct link_security *accept) {
    *pair = (struct pair){.accept = accept};
    uv_loop_init(&pair->loop);
    uv_tcp_init(&pair->loop, &pair->listener);
    uv_timer_init(&pair->loop, &pair->guard);
    uv_timer_start(&pair->guard, late, 60000, 0);
    pair->listener.data = pair;
    uv_ip4_addr("127.0.0.1", 0, &pair->at);
    CHECK(uv_tcp_bind(&pair->listener, (struct sockaddr *)&pair->at, 0) == 0);
    CHECK(uv_listen((uv_stream_t *)&pair->listener, 4, connection) == 0);
    int size = sizeof pair->at;
    uv_tcp_getsockname(&pair->listener, (struct sockaddr *)&pair->at, &size);
    pair->dialled = link_dial(&pair->loop, (struct sockaddr *)&pair->at, NULL, dial, &callbacks, pair);
}

void pair_run(struct pair *pair) {
    uv_run(&pair->loop, UV_RUN_DEFAULT);
    CHECK(pair->closed == 2);
    CHECK(uv_loop_close(&pair->loop) == 0);
}

void pair_close(struct pair *pair) {
    buffer_free(&pair->got);
    buffer_free(&pair->refusal);
}

/* -- certificates --------------------------------------------------------------------------------------------------- */
void link_world_make(struct link_world *world) {
    static const char *const protocols[] = {"coord/1", NULL};
    static const struct tls_context_config inner = {.only_tls13 = true};
    *world = (struct link_world){0};
    test_ca_make(&world->authority);
    identity_make(&world->authority, TLS_ROLE_SERVER, "s1", -DAY_S, DAY_S, &world->server);
    identity_make(&world->authority, TLS_ROLE_AGENT, "web-1", -DAY_S, DAY_S, &world->agent);
    world->server_context = context_of(&world->server, &world->authority, inner);
    world->agent_context = context_of(&world->agent, &world->authority, inner);
    world->dial.context = world->agent_context, world->accept.context = world->server_context;
    world->dial.session.peer = world->accept.session.peer = TLS_PEER_REQUIRED;
    world->dial.session.protocols = world->accept.session.protocols = protocols;
}

void link_world_free(struct link_world *world) {
    tls_context_unref(world->server_context);
    tls_context_unref(world->agent_context);
    identity_free(&world->server);
    identity_free(&world->agent);
    test_ca_free(&world->authority);
}
