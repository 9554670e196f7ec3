/* The connections of a client agent with servers (client_servers.c knows which there are).
 *
 *     no connection --dial the best--> trying --hello--> current
 *     current, a better one is there, or it knows no leader --dial another--> trying --hello, SERVERS with a leader-->
 *     current; the other drains
 *                                                                                '--SERVERS without--> closed, tried
 *                                                                                again later */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "rpc/client/client_internal.h"
#include "rpc/wire/address.h"
#include "rpc/wire/frame_unpack.h"

#define HELLO_MOST_MS        800
#define STALLED_MS           300  /* this process stood still longer: nobody else is to blame */
#define ASK_AGAIN_MS         200  /* no answer for so long: are you there? */
#define WAITING_MS           400  /* somebody waits for a change, nothing heard for so long: are you there? */
#define WAITING_SILENT_MS    450  /* no answer to that; with two ticks it is left within a second */
#define UNHEARD_MS           5000 /* nothing heard for so long, and nobody waits: are you there? */
#define UNHEARD_SILENT_MS    1000 /* no answer to that: it may be busy */
#define LOST_AGAIN_MS        1000 /* a connection that was lost is not made again before */
#define DRAIN_MOST_MS        10000
#define REBALANCE_MS         30000
#define LEADERLESS_MS        500 /* so long a server may know no leader: longer than an election */
#define LEADERLESS_JITTER_MS 300
#define CUT_OFF_JITTER_MS    50 /* one that is cut off from the others is left at once */
#define LEADERLESS_AGAIN_MS  2000
#define RESOLVED_AGAIN_MS    1000
#define REGION_REFUSED_MS    1000 /* another region does not know yet that this one was founded anew, or joined again */
#define UNFOUNDED_MS         500  /* a server of a region whose cluster is being founded is asked again */
#define TELL_LOST_MS         2000
#define TELL_LOST_AGAIN_MS   60000
#define TELL_LEADERLESS_MS   10000
#define OTHER_CLUSTER_MS     3000 /* without a server of its own for so long: is it another cluster now? */

static void dial_next(struct client *client);

/* -- connections -------------------------------------------------------------------------------------------------- */
struct client_conn *client_conn_of(struct client *client, uint64_t number) {
    LIST_FOREACH(item, &client->conns) {
        struct client_conn *conn = LIST_ENTRY(item, struct client_conn, link);
        if (conn->number == number && conn->greeted) return conn;
    }
    return NULL;
}

static void say_hello(struct client_conn *conn) {
    struct client *client = conn->client;
    Pb__PeerHello hello = PB__PEER_HELLO__INIT;
    struct hello_region link = {.region = client->region,
                                .region_cluster_id = client->region_cluster_id,
                                .cluster = client->cluster,
                                .cluster_id = client->cluster_id};
    if (client->region) hello_of_region(&hello, &link, client->id);
    else hello_of_agent(&hello, client->cluster, client->cluster_id, client->id);
    hello.address = client->address, hello.node = client->node_name;
    link_tell(conn->wire, PEER_HELLO, &hello.base);
    link_flush(conn->wire);
}

static void become_current(struct client_conn *conn) {
    struct client *client = conn->client;
    struct client_conn *before = client->current;
    client->trying = NULL;
    client->current = conn;
    client->lost_ms = 0;
    client->told_lost_ms = 0;
    atomic_store(&client->connected, true);
    if (before) {
        before->draining = true, before->since_ms = clock_mono_ms();
        calls_move(client->rpc->calls, &fetch_method, before->number);
    }
    client->rebalance_ms = clock_mono_ms() + REBALANCE_MS + rng_below(&client->rng, REBALANCE_MS);
    client_up(client);
}

static bool names_leader(const Pb__PeerServers *servers) {
    for (size_t i = 0; i < servers->n_servers; i++)
        if (servers->leader && servers->servers[i]->id == servers->leader) return true;
    return false;
}

static void note_leader(struct client_conn *conn, bool leads, bool cut_off) {
    uint64_t now_ms = clock_mono_ms();
    struct rng *rng = &conn->client->rng;
    if (leads) conn->leave_ms = 0;
    else if (cut_off && !conn->cut_off) conn->leave_ms = now_ms + rng_below(rng, CUT_OFF_JITTER_MS);
    else if (!conn->leave_ms) conn->leave_ms = now_ms + LEADERLESS_MS + rng_below(rng, LEADERLESS_JITTER_MS);
    conn->cut_off = cut_off && !leads;
}

static void take_servers(struct client_conn *conn, struct slice payload) {
    struct client *client = conn->client;
    Pb__PeerServers *servers = frame_unpack(&pb__peer_servers__descriptor, payload, NULL);
    if (!servers) {
        log_warn("client", "a list of servers that does not decode");
        return;
    }
    bool leads = names_leader(servers);
    note_leader(conn, leads, servers->cut_off);
    if (conn == client->trying) {
        bool soon = client->current && client->current->cut_off && !conn->cut_off; /* those there elect one */
        if (leads || !client->current) become_current(conn);
        else if (!soon) link_close(conn->wire);
    }
    if (conn == client->current) client_servers_learn(client, servers);
    frame_drop(servers);
}

static void judged(struct client_conn *conn, enum reach_what what, const char *why) {
    conn->judged = true;
    if (conn->server) reach_note(&conn->server->reach, what, 0, why);
}

static void take_hello(struct client_conn *conn, struct slice payload) {
    struct client *client = conn->client;
    Pb__PeerHello *hello = payload.size < 64 * 1024 ? frame_unpack(&pb__peer_hello__descriptor, payload, NULL) : NULL;
    if (!hello) {
        judged(conn, REACH_STRANGER, NULL);
        link_close(conn->wire);
        return;
    }
    struct hello_self self = {.cluster = client->cluster, .cluster_id = client->cluster_id, .version_most = UINT32_MAX};
    struct hello_terms terms;
    char why[HELLO_WHY];
    enum hello_verdict verdict = hello_judge(&self, hello, &terms, why);
    /* Founded anew, maybe, and not done with it: it would be taken for one of the cluster before. */
    bool unfounded = client->region && client->cluster_id && !hello->cluster_id;
    if (unfounded) snprintf(why, sizeof why, "it has no cluster id yet");
    if (conn->server) conn->server->other_cluster = verdict == HELLO_OTHER_CLUSTER ? hello->cluster_id : 0;
    if (verdict != HELLO_OK || unfounded) {
        judged(conn, REACH_UNWANTED, why);
        log_warn("client", "a server is not talked to address=%s reason=\"%s\"", conn->at, why);
        if (conn->server) client_server_failed(conn->server, unfounded ? UNFOUNDED_MS : CLIENT_BACKOFF_MOST_MS);
        link_close(conn->wire);
    } else if (!conn->greeted) {
        conn->greeted = true;
        judged(conn, REACH_MET, NULL);
        if (hello->cluster_id) client->cluster_id = hello->cluster_id;
        if (conn->server) conn->server->backoff_ms = 0;
        struct client_server *server = client_server_know(client, hello->address);
        if (server) conn->server = server, server->id = hello->id, server->backoff_ms = 0;
        judged(conn, REACH_MET, NULL); /* it may say another address than it was dialled by */
        conn->server_id = hello->id;
        snprintf(conn->node, sizeof conn->node, "%s", hello->node);
        snprintf(conn->at, sizeof conn->at, "%s", hello->address);
        struct asks_up asks = {.server = true, .id = hello->id, .node = hello->node};
        conn->asks = ask_up(client->rpc, conn->wire, &asks);
        log_info("client", "connected server=%s address=%s", hello->node, hello->address);
        if (!client->current) become_current(conn);
    }
    frame_drop(hello);
}

static void refused_by(struct client_conn *conn, struct slice why) {
    char text[HELLO_WHY];
    snprintf(text, sizeof text, "%.*s", (int)(why.size < sizeof text ? why.size : sizeof text - 1), why.data);
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == '"' || *at == 127) *at = '?';
    judged(conn, REACH_REFUSES, text);
    log_warn("client", "this agent is refused by=%s reason=\"%s\"", conn->at, text);
    uint64_t least_ms = conn->client->region ? REGION_REFUSED_MS : CLIENT_BACKOFF_MOST_MS;
    if (conn->server) client_server_failed(conn->server, least_ms);
    link_close(conn->wire);
}

static void hear(struct client_conn *conn, uint64_t now_ms) {
    if (!link_heard(conn->wire, &conn->received)) return;
    conn->last_seen_ms = now_ms;
    conn->asked_ms = conn->pinged_ms = 0;
}

static void on_frame(void *data, struct link *wire, uint8_t type, struct slice payload) {
    struct client_conn *conn = data;
    if (conn->client->stopping) return;
    (void)wire;
    hear(conn, clock_mono_ms());
    if (type == PEER_HELLO) take_hello(conn, payload);
    else if (type == PEER_REFUSED) refused_by(conn, payload);
    else if (!conn->greeted) judged(conn, REACH_STRANGER, NULL), link_close(conn->wire);
    else if (type == PEER_SERVERS) take_servers(conn, payload);
    else if (type != PEER_PING) client_frame(conn->client, conn, type, payload);
}

static void on_connected(void *data, struct link *wire) {
    struct client_conn *conn = data;
    conn->stood = true;
    link_keep_short(wire);
    say_hello(conn);
}

static void on_drained(void *data, struct link *wire) {
    struct client_conn *conn = data;
    (void)wire;
    if (conn == conn->client->current) client_drained(conn->client);
}

static void on_closed(void *data, struct link *wire, int error) {
    struct client_conn *conn = data;
    struct client *client = conn->client;
    int cause = link_cause(wire);
    list_remove(&conn->link);
    if (conn->server && !conn->judged) reach_ended(&conn->server->reach, error, cause, conn->stood);
    else if (conn->server && conn->greeted && conn->server->reach.what == REACH_MET)
        reach_note(&conn->server->reach, REACH_UNTRIED, 0, NULL);
    if (conn->server && !conn->draining)
        client_server_failed(conn->server, conn->leave_ms ? LEADERLESS_AGAIN_MS : conn->greeted ? LOST_AGAIN_MS : 0);
    if (client->trying == conn) client->trying = NULL;
    if (client->current == conn) {
        client->current = NULL;
        client->lost_ms = clock_mono_ms();
        atomic_store(&client->contact_ms, conn->last_seen_ms);
        atomic_store(&client->connected, false);
        if (!client->stopping)
            log_warn("client", "the connection is lost server=%s address=%s reason=\"%s\"", conn->node, conn->at,
                     reach_end_text(error, cause));
    }
    if (conn->greeted) client_down(client, conn);
    free(conn);
    if (!client->stopping) dial_next(client);
    client_finish_stop(client);
}

static const struct link_callbacks wire_callbacks = {on_frame, on_connected, on_closed, on_drained};

/* -- dialling ----------------------------------------------------------------------------------------------------- */
static void dial(struct client *client, struct client_server *server, const struct sockaddr *to) {
    struct client_conn *conn = mem_zalloc(sizeof *conn);
    conn->client = client, conn->server = server, conn->number = ++client->last_conn;
    conn->since_ms = conn->last_seen_ms = clock_mono_ms();
    snprintf(conn->at, sizeof conn->at, "%s", server->address);
    list_append(&client->conns, &conn->link);
    client->trying = conn;
    bool same = client->has_from && to->sa_family == client->from.ss_family;
    conn->wire = link_dial(client->loop, to, same ? (struct sockaddr *)&client->from : NULL, &wire_callbacks, conn);
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
    resolve->server->resolving = false;
    if (!client->stopping && !client->trying && status == 0 && found) {
        dial(client, resolve->server, address_next(&resolve->server->turn, found));
    } else {
        client_server_failed(resolve->server, RESOLVED_AGAIN_MS);
        bool known = resolve->server->reach.what == REACH_UNRESOLVED;
        if (status != 0) reach_note(&resolve->server->reach, REACH_UNRESOLVED, status, NULL);
        if (!client->stopping && status != 0 && !known)
            log_warn("client", "an address to join does not resolve address=%s reason=\"%s\"", resolve->server->address,
                     uv_strerror(status));
    }
    uv_freeaddrinfo(found);
    free(resolve);
    client_finish_stop(client);
}

static void dial_server(struct client *client, struct client_server *server) {
    char host[ADDRESS_MAX], port[8];
    struct sockaddr_storage to;
    if (!address_split(server->address, host, port)) {
        client_server_failed(server, CLIENT_BACKOFF_MOST_MS);
        return;
    }
    if (address_ip(host, port, &to)) {
        dial(client, server, (struct sockaddr *)&to);
        return;
    }
    struct resolve *resolve = mem_zalloc(sizeof *resolve);
    resolve->client = client, resolve->server = server;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    if (uv_getaddrinfo(client->loop, &resolve->work, resolved, host, port, &hints) != 0) {
        free(resolve);
        client_server_failed(server, RESOLVED_AGAIN_MS);
        return;
    }
    server->resolving = true;
    client->resolving++;
}

static void dial_next(struct client *client) {
    if (client->current || client->trying || client->stopping || client->paused) return;
    struct client_server *server = client_server_best(client, clock_mono_ms(), NULL);
    if (server) dial_server(client, server);
}

/* -- time --------------------------------------------------------------------------------------------------------- */
static bool is_late(const struct client_conn *conn, uint64_t now_ms) {
    return conn->asked_ms && now_ms - conn->asked_ms >= ASK_AGAIN_MS;
}

static bool is_silent(const struct client *client, struct client_conn *conn, uint64_t now_ms) {
    if (!conn->pinged_ms) return false;
    uint64_t before = conn->delivered;
    conn->delivered = link_delivered(conn->wire);
    /* still behind others of this agent's bytes: nobody can have answered it */
    if (conn->delivered > before && conn->delivered < conn->ping_at) conn->pinged_ms = now_ms;
    uint64_t most_ms = is_late(conn, now_ms) ? CLIENT_SILENT_MS
                       : client->fetch_count ? WAITING_SILENT_MS
                                             : UNHEARD_SILENT_MS;
    return now_ms - conn->pinged_ms >= most_ms;
}

/* Are you there? */
static void ping(const struct client *client, struct client_conn *conn, uint64_t now_ms) {
    if (conn->pinged_ms) return;
    if (!is_late(conn, now_ms) && now_ms - conn->last_seen_ms < (client->fetch_count ? WAITING_MS : UNHEARD_MS)) return;
    conn->delivered = link_delivered(conn->wire);
    link_send(conn->wire, PEER_PING, (struct slice){0});
    conn->pinged_ms = now_ms, conn->ping_at = link_queued(conn->wire);
    link_flush(conn->wire);
}

static void watch(struct client *client, struct client_conn *conn, uint64_t now_ms) {
    if (!conn->greeted || conn == client->trying) {
        if (now_ms - conn->since_ms > HELLO_MOST_MS) link_close(conn->wire);
        return;
    }
    bool waits = forwarding_waits(client->forwarding, conn->number) || ask_with(conn->asks);
    bool drained = now_ms - conn->since_ms > DRAIN_MOST_MS || !waits;
    if (conn->draining && drained && !calls_with(client->rpc->calls, conn->number)) {
        link_close(conn->wire);
        return;
    }
    hear(conn, now_ms);
    if (is_silent(client, conn, now_ms)) {
        log_warn("client", "a server does not answer, its connection is left server=%s address=%s ms=%llu", conn->node,
                 conn->at, (unsigned long long)(now_ms - conn->last_seen_ms));
        link_close(conn->wire);
        return;
    }
    ping(client, conn, now_ms);
}

/* Back to the server that this agent belongs to. */
static void rebalance(struct client *client, uint64_t now_ms) {
    if (!client->current || client->trying || now_ms < client->rebalance_ms) return;
    struct client_server *best = client_server_best(client, now_ms, NULL);
    client->rebalance_ms = now_ms + REBALANCE_MS + rng_below(&client->rng, REBALANCE_MS);
    if (best && best->listed && best != client->current->server) dial_server(client, best);
}

static void seek_leader(struct client *client, uint64_t now_ms) {
    const struct client_conn *current = client->current;
    if (!current || client->trying || !current->leave_ms || now_ms < current->leave_ms) return;
    struct client_server *best = client_server_best(client, now_ms, current->server);
    if (best && best->listed) dial_server(client, best);
}

/* The servers were founded anew, with empty folders: this agent goes with them. */
static void change_cluster(struct client *client, uint64_t now_ms) {
    if (client->current || !client->cluster_id || now_ms - client->lost_ms < OTHER_CLUSTER_MS) return;
    uint64_t id = client_servers_elsewhere(client);
    if (!id) return;
    log_warn("client",
             "every server known belongs to another cluster of the same name now, and so does this agent from now on "
             "before=%016llx now=%016llx",
             (unsigned long long)client->cluster_id, (unsigned long long)id);
    client->cluster_id = id;
    LIST_FOREACH(item, &client->servers) {
        struct client_server *server = LIST_ENTRY(item, struct client_server, link);
        server->next_ms = server->backoff_ms = server->other_cluster = 0;
    }
    client_fetch_anew(client);
}

/* Each address with its reason; of another region once, as it may be away for long. */
static void tell_lost(struct client *client, uint64_t now_ms) {
    if (client->current || now_ms - client->lost_ms < TELL_LOST_MS || list_empty(&client->servers)) return;
    if (client->told_lost_ms && (client->region || now_ms - client->told_lost_ms < TELL_LOST_AGAIN_MS)) return;
    client->told_lost_ms = now_ms;
    struct buffer line = {0};
    client_servers_say(client, &line);
    log_warn("client", "no server can be reached%s: %.*s",
             atomic_load(&client->contact_ms) ? ", answers of before are given and changes wait" : "", (int)line.size,
             line.data);
    buffer_free(&line);
}

/* Those who are asked say what they wait for in their own logs. */
static void tell_leaderless(struct client *client, uint64_t now_ms) {
    if (client->region || !client->current || atomic_load(&client->known_leader)) {
        client->told_leaderless_ms = 0;
        return;
    }
    if (now_ms - client->leaderless_ms < TELL_LEADERLESS_MS) return;
    if (client->told_leaderless_ms && now_ms - client->told_leaderless_ms < TELL_LOST_AGAIN_MS) return;
    client->told_leaderless_ms = now_ms;
    log_warn("client",
             "the servers have no leader, changes wait; their logs say what they wait for server=%s address=%s",
             client->current->node, client->current->at);
}

void client_link_tick(struct client *client, uint64_t now_ms) {
    bool stalled = now_ms - client->ticked_ms > STALLED_MS;
    LIST_FOREACH_SAFE(item, next, &client->conns) {
        struct client_conn *conn = LIST_ENTRY(item, struct client_conn, link);
        if (stalled && conn->greeted) {
            conn->last_seen_ms = now_ms;
            if (conn->pinged_ms) conn->pinged_ms = now_ms;
        }
        watch(client, conn, now_ms);
    }
    change_cluster(client, now_ms);
    dial_next(client);
    seek_leader(client, now_ms);
    rebalance(client, now_ms);
    tell_lost(client, now_ms);
    tell_leaderless(client, now_ms);
}

void client_leave(struct client *client, uint64_t number, const char *why) {
    struct client_conn *conn = client_conn_of(client, number);
    if (!conn || conn->draining) return;
    log_warn("client", "a server is left server=%s address=%s reason=\"%s\"", conn->node, conn->at, why);
    if (conn->server) client_server_failed(conn->server, CLIENT_BACKOFF_MOST_MS);
    link_close(conn->wire);
}

void rpc_client_hurry(struct rpc *rpc) {
    LIST_FOREACH(item, &rpc->client->servers) {
        struct client_server *server = LIST_ENTRY(item, struct client_server, link);
        if (!rpc->client->current) server->next_ms = server->backoff_ms = 0;
    }
}

void rpc_client_pause(struct rpc *rpc, bool paused) {
    struct client *client = rpc->client;
    bool changed = client->paused != paused;
    client->paused = paused;
    if (changed && paused) client_link_stop(client);
}

void client_link_stop(struct client *client) {
    LIST_FOREACH_SAFE(item, next, &client->conns) link_close(LIST_ENTRY(item, struct client_conn, link)->wire);
}
