/* The servers that a client agent knows: those to join by, then those that the cluster names; and when each may be
 * dialled again. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "rpc/client/client_internal.h"

#define BACKOFF_LEAST_MS 100
#define SERVERS_MAX      64
#define SAID_MAX         8

static struct client_server *server_find(struct client *client, const char *address) {
    LIST_FOREACH(item, &client->servers) {
        struct client_server *server = LIST_ENTRY(item, struct client_server, link);
        if (strcmp(server->address, address) == 0) return server;
    }
    return NULL;
}

struct client_server *client_server_know(struct client *client, const char *address) {
    struct client_server *server = server_find(client, address);
    if (server || !address[0] || strlen(address) >= sizeof server->address) return server;
    size_t count = 0;
    LIST_FOREACH(item, &client->servers) count++;
    if (count >= SERVERS_MAX) return NULL;
    server = mem_zalloc(sizeof *server);
    snprintf(server->address, sizeof server->address, "%s", address);
    server->rank = hash64_seed(address, strlen(address), client->seed);
    list_append(&client->servers, &server->link);
    return server;
}

void client_join(struct client *client, const char *const *join) {
    char name[ADDRESS_MAX];
    for (size_t i = 0; join[i]; i++)
        if (address_complete(join[i], client->port, name)) client_server_know(client, name);
}

struct client_server *client_server_best(struct client *client, uint64_t when_ms, const struct client_server *but) {
    struct client_server *best = NULL;
    LIST_FOREACH(item, &client->servers) {
        struct client_server *server = LIST_ENTRY(item, struct client_server, link);
        if (server->next_ms > when_ms || server->resolving || server == but) continue;
        if (!best || server->listed > best->listed || (server->listed == best->listed && server->rank > best->rank))
            best = server;
    }
    return best;
}

void client_server_failed(struct client_server *server, uint64_t least_ms) {
    if (address_failed(&server->turn)) return;
    server->backoff_ms = server->backoff_ms ? server->backoff_ms * 2 : BACKOFF_LEAST_MS;
    if (server->backoff_ms < least_ms) server->backoff_ms = least_ms;
    if (server->backoff_ms > CLIENT_BACKOFF_MOST_MS) server->backoff_ms = CLIENT_BACKOFF_MOST_MS;
    server->next_ms = clock_mono_ms() + server->backoff_ms;
}

void client_servers_say(const struct client *client, struct buffer *out) {
    size_t said = 0, more = 0;
    LIST_FOREACH(item, &client->servers) {
        const struct client_server *server = LIST_ENTRY(item, struct client_server, link);
        if (said >= SAID_MAX) {
            more++;
            continue;
        }
        if (said++) buffer_append_text(out, "; ");
        reach_say(&server->reach, server->address, client->port, out);
    }
    if (more) buffer_printf(out, "; and %zu more", more);
}

static void server_forget(struct client *client, struct client_server *server) {
    LIST_FOREACH(item, &client->conns) {
        struct client_conn *conn = LIST_ENTRY(item, struct client_conn, link);
        if (conn->server != server) continue;
        conn->server = NULL;
        if (conn == client->current) client->rebalance_ms = 0; /* to one that is a member */
    }
    list_remove(&server->link);
    free(server);
}

static void note_servers(struct client *client, const Pb__PeerServers *servers) {
    uv_mutex_lock(&client->lock);
    bool led = client->leader_address[0] != 0;
    client->leader_address[0] = 0;
    free(client->peers);
    client->peers = mem_zalloc((servers->n_servers + 1) * sizeof *client->peers);
    client->peer_count = servers->n_servers;
    for (size_t i = 0; i < servers->n_servers; i++) {
        snprintf(client->peers[i], sizeof client->peers[i], "%s", servers->servers[i]->address);
        if (servers->servers[i]->id == servers->leader)
            snprintf(client->leader_address, sizeof client->leader_address, "%s", servers->servers[i]->address);
    }
    if (led && !client->leader_address[0]) client->leaderless_ms = clock_mono_ms();
    atomic_store(&client->known_leader, client->leader_address[0] != 0);
    uv_mutex_unlock(&client->lock);
}

void client_servers_learn(struct client *client, const Pb__PeerServers *servers) {
    note_servers(client, servers);
    LIST_FOREACH_SAFE(item, next, &client->servers) {
        struct client_server *server = LIST_ENTRY(item, struct client_server, link);
        bool still = false;
        for (size_t i = 0; i < servers->n_servers; i++)
            still = still || strcmp(servers->servers[i]->address, server->address) == 0;
        if (server->listed && !still && servers->n_servers && !server->resolving) server_forget(client, server);
    }
    for (size_t i = 0; i < servers->n_servers; i++) {
        struct client_server *server = client_server_know(client, servers->servers[i]->address);
        if (server) server->listed = true, server->id = servers->servers[i]->id;
    }
    client_known_write(client);
}

uint64_t client_servers_elsewhere(struct client *client) {
    bool listed = false;
    uint64_t id = 0;
    LIST_FOREACH(item, &client->servers) listed = listed || LIST_ENTRY(item, struct client_server, link)->listed;
    LIST_FOREACH(item, &client->servers) {
        const struct client_server *server = LIST_ENTRY(item, struct client_server, link);
        if (server->listed != listed) continue;
        if (!server->other_cluster || (id && server->other_cluster != id)) return 0;
        id = server->other_cluster;
    }
    return id;
}
