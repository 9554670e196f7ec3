/* The connections of a client agent: what connections.h decides is done here. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "rpc/client/client_internal.h"
#include "rpc/wire/address.h"
#include "rpc/wire/frame_unpack.h"

static void carry_out(struct client *client);

static struct client_conn *conn_at(struct connection *state) { return CONTAINER_OF(state, struct client_conn, state); }

struct client_conn *client_conn_of(struct client *client, uint64_t number) {
    LIST_FOREACH(item, &client->connections.all) {
        struct connection *state = LIST_ENTRY(item, struct connection, link);
        if (state->number == number && state->greeted) return conn_at(state);
    }
    return NULL;
}

/* -- what comes over them ----------------------------------------------------------------------------------------- */
static void say_hello(struct client_conn *conn) {
    struct client *client = conn->client;
    Pb__PeerHello hello = PB__PEER_HELLO__INIT;
    struct hello_region link = {.region = client->region,
                                .region_cluster_id = client->region_cluster_id,
                                .cluster = client->cluster,
                                .cluster_id = client->connections.cluster_id};
    if (client->region) hello_of_region(&hello, &link, client->id);
    else hello_of_agent(&hello, client->cluster, client->connections.cluster_id, client->id);
    hello.address = client->address, hello.node = client->node_name;
    link_tell(conn->wire, PEER_HELLO, &hello.base);
    link_flush(conn->wire);
}

/* For other threads. */
static void publish_servers(struct client *client, const Pb__PeerServers *servers) {
    uv_mutex_lock(&client->lock);
    client->leader_address[0] = 0;
    free(client->peers);
    client->peers = mem_zalloc((servers->n_servers + 1) * sizeof *client->peers);
    client->peer_count = servers->n_servers;
    for (size_t i = 0; i < servers->n_servers; i++) {
        snprintf(client->peers[i], sizeof client->peers[i], "%s", servers->servers[i]->address);
        if (servers->leader && servers->servers[i]->id == servers->leader)
            snprintf(client->leader_address, sizeof client->leader_address, "%s", servers->servers[i]->address);
    }
    uv_mutex_unlock(&client->lock);
}

static void take_servers(struct client_conn *conn, struct slice payload) {
    struct client *client = conn->client;
    Pb__PeerServers *servers = frame_unpack(&pb__peer_servers__descriptor, payload, NULL);
    if (!servers) {
        log_warn("client", "a list of servers that does not decode");
        return;
    }
    connection_servers(&client->connections, &conn->state, servers, clock_mono_ms());
    if (&conn->state == client->connections.current) {
        publish_servers(client, servers);
        client_known_write(client);
    }
    frame_drop(servers);
}

static void take_hello(struct client_conn *conn, struct slice payload) {
    struct client *client = conn->client;
    Pb__PeerHello *hello = payload.size < 64 * 1024 ? frame_unpack(&pb__peer_hello__descriptor, payload, NULL) : NULL;
    bool met = conn->state.greeted;
    connection_hello(&client->connections, &conn->state, hello, clock_mono_ms());
    if (!met && conn->state.greeted) {
        struct asks_up asks = {.server = true, .id = hello->id, .node = hello->node};
        conn->asks = asks_run_up(client->rpc, conn->wire, &asks);
    }
    if (hello) frame_drop(hello);
}

static void on_frame(void *data, struct link *wire, uint8_t type, struct slice payload) {
    struct client_conn *conn = data;
    struct client *client = conn->client;
    if (client->stopping) return;
    uint64_t now_ms = clock_mono_ms();
    if (link_heard(wire, &conn->received)) connection_heard(&conn->state, now_ms);
    if (type == PEER_HELLO) take_hello(conn, payload);
    else if (type == PEER_REFUSED) connection_refused(&client->connections, &conn->state, payload, now_ms);
    else if (!conn->state.greeted) connection_strange(&conn->state);
    else if (type == PEER_SERVERS) take_servers(conn, payload);
    else if (type != PEER_PING) client_frame(client, conn, type, payload);
    carry_out(client);
}

/* Once for each reason in a row, because the agent goes on trying. */
static void tell_denied(struct client_conn *conn, const char *why) {
    struct client *client = conn->client;
    if (strcmp(client->denied, why) == 0) return;
    snprintf(client->denied, sizeof client->denied, "%s", why);
    log_warn("client", "no encrypted connection server=%s reason=\"%s\"", conn->state.at, why);
}

/* The other end of an encrypted connection. False: it is refused. */
static bool is_a_server(struct client_conn *conn) {
    struct client *client = conn->client;
    struct security_rules rules;
    char why[SECURITY_WHY];
    if (!client->security) return true;
    security_get(client->security, &rules);
    struct security_seen seen = security_see(client->security, conn->wire);
    const char *fault = security_judge_dialled(&rules, &seen, client->region ? client->cluster : NULL, why);
    if (!fault) return true;
    tell_denied(conn, fault);
    connection_denied(&conn->state, fault);
    return false;
}

static void on_connected(void *data, struct link *wire) {
    struct client_conn *conn = data;
    connection_stands(&conn->state, link_encrypted(wire), clock_mono_ms());
    link_keep_short(wire);
    if (is_a_server(conn)) say_hello(conn);
    else carry_out(conn->client);
}

static void on_drained(void *data, struct link *wire) {
    struct client_conn *conn = data;
    (void)wire;
    if (conn == conn->client->current) client_drained(conn->client);
}

static void on_closed(void *data, struct link *wire, int error) {
    struct client_conn *conn = data;
    struct client *client = conn->client;
    if (link_why(wire)[0] && !client->stopping) tell_denied(conn, link_why(wire)); /* its handshake failed */
    if (error == CO_DENIED && !client->stopping) connection_denied(&conn->state, link_why(wire));
    connection_closed(&client->connections, &conn->state, error, link_cause(wire), clock_mono_ms());
    if (client->current == conn) client->current = NULL;
    if (conn->state.greeted) client_down(client, conn);
    free(conn);
    carry_out(client);
    client_finish_stop(client);
}

static const struct link_callbacks wire_callbacks = {on_frame, on_connected, on_closed, on_drained};

/* -- what is ordered ---------------------------------------------------------------------------------------------- */
static void dial(struct client *client, struct client_server *server, const struct sockaddr *to) {
    struct client_conn *conn = mem_zalloc(sizeof *conn);
    conn->client = client;
    connections_dialled(&client->connections, &conn->state, server, clock_mono_ms());
    bool same = client->has_from && to->sa_family == client->from.ss_family;
    struct link_security security;
    bool mixed = security_mixed(client->security);
    bool secure = security_dial(client->security, &security) && !(mixed && server->plain);
    conn->wire = link_dial(client->loop, to, same ? (struct sockaddr *)&client->from : NULL, secure ? &security : NULL,
                           &wire_callbacks, conn);
}

struct resolve {
    uv_getaddrinfo_t work;
    struct client *client;
    struct client_server *server;
};

static void resolved(uv_getaddrinfo_t *work, int status, struct addrinfo *found) {
    struct resolve *resolve = CONTAINER_OF(work, struct resolve, work);
    struct client *client = resolve->client;
    client->resolving--;
    int at = connections_resolved(&client->connections, resolve->server, status, status == 0 ? address_count(found) : 0,
                                  clock_mono_ms());
    if (at >= 0) dial(client, resolve->server, address_at(found, (unsigned)at));
    uv_freeaddrinfo(found);
    free(resolve);
    client_finish_stop(client);
}

static void resolve(struct client *client, struct client_server *server, const char *host, const char *port) {
    struct resolve *resolve = mem_zalloc(sizeof *resolve);
    resolve->client = client, resolve->server = server;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    connections_resolving(server);
    int status = uv_getaddrinfo(client->loop, &resolve->work, resolved, host, port, &hints);
    if (status == 0) {
        client->resolving++;
        return;
    }
    free(resolve);
    connections_resolved(&client->connections, server, status, 0, clock_mono_ms());
}

static void dial_server(struct client *client, struct client_server *server) {
    char host[ADDRESS_MAX], port[8];
    struct sockaddr_storage to;
    if (!address_split(server->address, host, port))
        connections_unusable(&client->connections, server, clock_mono_ms());
    else if (address_ip(host, port, &to)) dial(client, server, (struct sockaddr *)&to);
    else resolve(client, server, host, port);
}

static void ping(struct client_conn *conn) {
    uint64_t delivered = link_delivered(conn->wire);
    link_send(conn->wire, PEER_PING, (struct slice){0});
    connection_pinged(&conn->state, link_queued(conn->wire), delivered, clock_mono_ms());
    link_flush(conn->wire);
}

static void use(struct client *client, struct connection *state, const struct connection *before) {
    client->current = conn_at(state);
    if (before) calls_move(client->rpc->calls, &fetch_method, before->number);
    client_up(client);
}

static void carry_out(struct client *client) {
    for (;;) {
        struct connections_order order = connections_next(&client->connections);
        switch (order.act) {
            case CONNECTIONS_NOTHING: return;
            case CONNECTIONS_DIAL: dial_server(client, order.server); break;
            case CONNECTIONS_CLOSE: link_close(conn_at(order.connection)->wire); break;
            case CONNECTIONS_PING: ping(conn_at(order.connection)); break;
            case CONNECTIONS_USE: use(client, order.connection, order.before); break;
            case CONNECTIONS_ANEW: client_read_anew(client); break;
        }
    }
}

/* -- time, and wishes --------------------------------------------------------------------------------------------- */
static void look_at(struct client *client, struct client_conn *conn, uint64_t now_ms) {
    struct connection_seen seen = {.awaited = client->fetch_count, .shakes = link_shakes(conn->wire)};
    if (conn->state.greeted) {
        uint64_t number = conn->state.number;
        seen.heard = link_heard(conn->wire, &conn->received);
        seen.delivered = conn->state.pinged_ms ? link_delivered(conn->wire) : 0;
        seen.sent = forwarding_waits(client->forwarding, number) || asks_run_with(conn->asks);
        seen.calls = calls_with(client->rpc->calls, number);
    }
    connection_tick(&client->connections, &conn->state, &seen, now_ms);
}

/* Connections that may not go on since certificates or rules changed: the open cluster that they were made in is closed
 * now. */
static void look_at_security(struct client *client) {
    uint64_t generation = client->security ? security_generation(client->security) : 0;
    if (generation == client->secured) return;
    client->secured = generation;
    bool keeps = security_keeps_plain(client->security);
    connections_mixed(&client->connections, security_mixed(client->security) || keeps);
    struct security_rules rules;
    char why[SECURITY_WHY];
    security_get(client->security, &rules);
    LIST_FOREACH(item, &client->connections.all) {
        struct client_conn *conn = conn_at(LIST_ENTRY(item, struct connection, link));
        struct security_seen seen = security_see(client->security, conn->wire);
        seen.kept = keeps;
        if (conn->state.greeted && security_judge_dialled(&rules, &seen, client->region ? client->cluster : NULL, why))
            link_close(conn->wire);
    }
}

void connections_run_tick(struct client *client, uint64_t now_ms) {
    look_at_security(client);
    LIST_FOREACH(item, &client->connections.all)
        look_at(client, conn_at(LIST_ENTRY(item, struct connection, link)), now_ms);
    connections_tick(&client->connections, now_ms);
    carry_out(client);
}

void client_leave(struct client *client, uint64_t number, const char *why) {
    struct client_conn *conn = client_conn_of(client, number);
    if (!conn) return;
    connection_leave(&client->connections, &conn->state, why, clock_mono_ms());
    carry_out(client);
}

void rpc_client_hurry(struct rpc *rpc) { connections_hurry(&rpc->client->connections); }

void rpc_client_pause(struct rpc *rpc, bool paused) {
    connections_pause(&rpc->client->connections, paused);
    carry_out(rpc->client);
}

void connections_run_stop(struct client *client) {
    connections_stop(&client->connections);
    carry_out(client);
}
