/* The servers that are known: those to join by, then those that the cluster names; and when each may be dialled again. */
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/memory.h"
#include "rpc/client/connections.h"

#define SERVERS_MAX 64
#define SAID_MAX    8

static struct client_server *server_find(struct connections *c, const char *address) {
    LIST_FOREACH(item, &c->servers) {
        struct client_server *server = LIST_ENTRY(item, struct client_server, link);
        if (strcmp(server->address, address) == 0) return server;
    }
    return NULL;
}

struct client_server *connections_know(struct connections *c, const char *address) {
    struct client_server *server = server_find(c, address);
    if (server || !address[0] || strlen(address) >= sizeof server->address) return server;
    size_t count = 0;
    LIST_FOREACH(item, &c->servers) count++;
    if (count >= SERVERS_MAX) return NULL;
    server = mem_zalloc(sizeof *server);
    snprintf(server->address, sizeof server->address, "%s", address);
    server->rank = hash64_seed(address, strlen(address), c->config.rank_seed);
    if (c->mutations & CONNECTIONS_MUTATE_NO_RANK) server->rank = hash64(address, strlen(address));
    list_append(&c->servers, &server->link);
    return server;
}

static bool may_be_dialled(const struct client_server *server, uint64_t when_ms) {
    return server->next_ms <= when_ms && !server->resolving;
}

static bool is_preferred(const struct client_server *server, const struct client_server *to) {
    return server->listed != to->listed ? server->listed : server->rank > to->rank;
}

struct client_server *connections_home(struct connections *c, uint64_t when_ms) {
    struct client_server *home = NULL;
    LIST_FOREACH(item, &c->servers) {
        struct client_server *server = LIST_ENTRY(item, struct client_server, link);
        if (may_be_dialled(server, when_ms) && (!home || is_preferred(server, home))) home = server;
    }
    return home;
}

struct client_server *connections_best(struct connections *c, uint64_t now_ms, const struct client_server *but,
                                       bool listed) {
    struct client_server *best = NULL;
    LIST_FOREACH(item, &c->servers) {
        struct client_server *server = LIST_ENTRY(item, struct client_server, link);
        if (!may_be_dialled(server, now_ms) || server == but || (listed && !server->listed)) continue;
        bool same = best && server->backoff_ms == best->backoff_ms;
        if (!best || (same ? is_preferred(server, best) : server->backoff_ms < best->backoff_ms)) best = server;
    }
    return best;
}

void connections_failed(struct connections *c, struct client_server *server, uint64_t least_ms, uint64_t now_ms) {
    if (address_failed(&server->turn)) return;
    server->backoff_ms = server->backoff_ms ? server->backoff_ms * 2 : CONNECTIONS_BACKOFF_LEAST_MS;
    if (c->mutations & CONNECTIONS_MUTATE_NO_BACKOFF) server->backoff_ms = CONNECTIONS_BACKOFF_LEAST_MS;
    if (server->backoff_ms < least_ms) server->backoff_ms = least_ms;
    if (server->backoff_ms > CONNECTIONS_BACKOFF_MOST_MS) server->backoff_ms = CONNECTIONS_BACKOFF_MOST_MS;
    uint64_t wait_ms = server->backoff_ms - rng_below(&c->rng, server->backoff_ms / 2 + 1);
    uint64_t next_ms = now_ms + (wait_ms > least_ms ? wait_ms : least_ms);
    if (next_ms > server->next_ms) server->next_ms = next_ms; /* else it was told already to wait for longer */
    if (c->mutations & CONNECTIONS_MUTATE_DIALS_STRANGERS && server->other_cluster) server->next_ms = now_ms;
}

size_t connections_addresses(const struct connections *c, struct arena *arena, const char ***addresses) {
    size_t count = 0;
    *addresses = arena_alloc(arena, SERVERS_MAX * sizeof **addresses);
    for (int members = 1; members >= 0; members--) {
        LIST_FOREACH(item, &c->servers) {
            const struct client_server *server = LIST_ENTRY(item, struct client_server, link);
            if (server->listed == (members == 1))
                (*addresses)[count++] = arena_strndup(arena, server->address, strlen(server->address));
        }
    }
    return count;
}

void connections_say(const struct connections *c, struct buffer *out) {
    size_t said = 0, more = 0;
    LIST_FOREACH(item, &c->servers) {
        const struct client_server *server = LIST_ENTRY(item, struct client_server, link);
        if (said >= SAID_MAX) {
            more++;
            continue;
        }
        if (said++) buffer_append_text(out, "; ");
        reach_say(&server->reach, server->address, c->config.port, out);
    }
    if (more) buffer_printf(out, "; and %zu more", more);
}

static void server_forget(struct connections *c, struct client_server *server) {
    LIST_FOREACH(item, &c->all) {
        struct connection *connection = LIST_ENTRY(item, struct connection, link);
        if (connection->server != server) continue;
        connection->server = NULL;
        if (connection == c->current) c->rebalance_ms = 0; /* to one that is a member */
    }
    if (c->to_dial == server) c->to_dial = NULL;
    list_remove(&server->link);
    free(server);
}

void connections_learn(struct connections *c, const Pb__PeerServers *servers) {
    LIST_FOREACH_SAFE(item, next, &c->servers) {
        struct client_server *server = LIST_ENTRY(item, struct client_server, link);
        bool still = false;
        for (size_t i = 0; i < servers->n_servers; i++)
            still = still || strcmp(servers->servers[i]->address, server->address) == 0;
        if (server->listed && !still && servers->n_servers && !server->resolving) server_forget(c, server);
    }
    for (size_t i = 0; i < servers->n_servers; i++) {
        struct client_server *server = connections_know(c, servers->servers[i]->address);
        if (server) server->listed = true, server->id = servers->servers[i]->id;
    }
}

uint64_t connections_elsewhere(struct connections *c) {
    bool listed = false;
    uint64_t id = 0;
    LIST_FOREACH(item, &c->servers) listed = listed || LIST_ENTRY(item, struct client_server, link)->listed;
    LIST_FOREACH(item, &c->servers) {
        const struct client_server *server = LIST_ENTRY(item, struct client_server, link);
        if (c->mutations & CONNECTIONS_MUTATE_FOLLOWS_STRANGERS && server->other_cluster) return server->other_cluster;
        if (server->listed != listed) continue;
        if (!server->other_cluster || (id && server->other_cluster != id)) return 0;
        id = server->other_cluster;
    }
    return id;
}
