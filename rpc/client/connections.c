#include "rpc/client/connections.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "rpc/wire/hello.h"

#define HELLO_MOST_MS        800
#define HELLO_SECURE_MOST_MS 3000 /* after a handshake: the other side lives, and another one costs both */
#define SHAKES_MOST_MS       10000
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
#define UPGRADE_AGAIN_MS     2000
#define TELL_LOST_MS         2000
#define TELL_LOST_AGAIN_MS   60000
#define TELL_LEADERLESS_MS   10000

/* -- orders ------------------------------------------------------------------------------------------------------- */
struct connections_order connections_next(struct connections *c) {
    struct connections_order order = {.act = CONNECTIONS_NOTHING};
    if (c->to_use) {
        c->to_use = false;
        return (struct connections_order){.act = CONNECTIONS_USE, .connection = c->current, .before = c->before};
    }
    if (c->to_begin_anew) {
        c->to_begin_anew = false;
        order.act = CONNECTIONS_ANEW;
        return order;
    }
    LIST_FOREACH(item, &c->all) {
        struct connection *connection = LIST_ENTRY(item, struct connection, link);
        if (connection->to_close) {
            connection->to_close = connection->to_ping = false, connection->closing = true;
            return (struct connections_order){.act = CONNECTIONS_CLOSE, .connection = connection};
        }
        if (connection->to_ping) {
            connection->to_ping = false;
            return (struct connections_order){.act = CONNECTIONS_PING, .connection = connection};
        }
    }
    if (c->to_dial) order.act = CONNECTIONS_DIAL, order.server = c->to_dial, c->to_dial = NULL;
    return order;
}

static void give_up(struct connection *connection) {
    if (!connection->closing) connection->to_close = true;
}

/* -- a connection ------------------------------------------------------------------------------------------------- */
static void become_current(struct connections *c, struct connection *connection, uint64_t now_ms) {
    struct connection *before = c->current;
    c->trying = NULL;
    c->current = connection, c->before = before, c->to_use = true;
    c->lost_ms = 0;
    c->told_lost_ms = 0;
    c->connected = true;
    if (before) before->draining = true, before->since_ms = now_ms;
    c->rebalance_ms = now_ms + REBALANCE_MS + rng_below(&c->rng, REBALANCE_MS);
    LIST_FOREACH(item, &c->servers) LIST_ENTRY(item, struct client_server, link)->other_cluster = 0;
}

static bool names_leader(const Pb__PeerServers *servers) {
    for (size_t i = 0; i < servers->n_servers; i++)
        if (servers->leader && servers->servers[i]->id == servers->leader) return true;
    return false;
}

static void note_leader(struct connections *c, struct connection *connection, bool leads, bool cut_off,
                        uint64_t now_ms) {
    if (leads) connection->leave_ms = 0;
    else if (cut_off && !connection->cut_off) connection->leave_ms = now_ms + rng_below(&c->rng, CUT_OFF_JITTER_MS);
    else if (!connection->leave_ms)
        connection->leave_ms = now_ms + LEADERLESS_MS + rng_below(&c->rng, LEADERLESS_JITTER_MS);
    connection->cut_off = cut_off && !leads;
}

void connection_servers(struct connections *c, struct connection *connection, const Pb__PeerServers *servers,
                        uint64_t now_ms) {
    bool leads = names_leader(servers);
    note_leader(c, connection, leads, servers->cut_off, now_ms);
    if (connection == c->trying) {
        bool soon = c->current && c->current->cut_off && !connection->cut_off; /* those there elect one */
        if (leads || !c->current) become_current(c, connection, now_ms);
        else if (!soon) give_up(connection);
    }
    if (connection != c->current) return;
    if (c->known_leader && !leads) c->leaderless_ms = now_ms;
    c->known_leader = leads;
    connections_learn(c, servers);
}

static void judged(struct connection *connection, enum reach_what what, const char *why) {
    connection->judged = true;
    if (connection->server) reach_note(&connection->server->reach, what, 0, why);
}

void connection_strange(struct connection *connection) {
    judged(connection, REACH_STRANGER, NULL);
    give_up(connection);
}

void connection_denied(struct connection *connection, const char *why) {
    judged(connection, REACH_UNWANTED, why);
    give_up(connection);
}

static void unwanted(struct connections *c, struct connection *connection, const char *why, uint64_t least_ms,
                     uint64_t now_ms) {
    judged(connection, REACH_UNWANTED, why);
    log_warn("client", "a server is not talked to address=%s reason=\"%s\"", connection->at, why);
    if (connection->server) connections_failed(c, connection->server, least_ms, now_ms);
    give_up(connection);
}

static void reset(const struct connections *c, struct client_server *server) {
    if (!(c->mutations & CONNECTIONS_MUTATE_BACKOFF_STAYS)) server->backoff_ms = 0;
}

static void met(struct connections *c, struct connection *connection, const Pb__PeerHello *hello, uint64_t now_ms) {
    connection->greeted = true;
    judged(connection, REACH_MET, NULL);
    if (hello->cluster_id) c->cluster_id = hello->cluster_id;
    if (connection->server) reset(c, connection->server);
    struct client_server *server = connections_know(c, hello->address);
    if (server) connection->server = server, server->id = hello->id, reset(c, server);
    judged(connection, REACH_MET, NULL); /* it may say another address than it was dialled by */
    connection->server_id = hello->id;
    snprintf(connection->node, sizeof connection->node, "%s", hello->node);
    snprintf(connection->at, sizeof connection->at, "%s", hello->address);
    log_info("client", "connected server=%s address=%s", hello->node, hello->address);
    if (!c->current) become_current(c, connection, now_ms);
}

void connection_hello(struct connections *c, struct connection *connection, const Pb__PeerHello *hello,
                      uint64_t now_ms) {
    if (!hello) {
        connection_strange(connection);
        return;
    }
    struct hello_self self = {.cluster = c->config.cluster, .cluster_id = c->cluster_id, .version_most = UINT32_MAX};
    struct hello_terms terms;
    char why[HELLO_WHY];
    enum hello_verdict verdict = hello_judge(&self, hello, &terms, why);
    /* Founded anew, maybe, and not done with it: it would be taken for one of the cluster before. */
    bool unfounded = c->config.region && c->cluster_id && !hello->cluster_id;
    if (unfounded) snprintf(why, sizeof why, "it has no cluster id yet");
    if (connection->server) connection->server->other_cluster = verdict == HELLO_OTHER_CLUSTER ? hello->cluster_id : 0;
    if (verdict != HELLO_OK || unfounded) {
        unwanted(c, connection, why, unfounded ? UNFOUNDED_MS : CONNECTIONS_BACKOFF_MOST_MS, now_ms);
    } else if (!connection->greeted) {
        met(c, connection, hello, now_ms);
    }
}

void connection_refused(struct connections *c, struct connection *connection, struct slice why, uint64_t now_ms) {
    char text[HELLO_WHY];
    snprintf(text, sizeof text, "%.*s", (int)(why.size < sizeof text ? why.size : sizeof text - 1), why.data);
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == '"' || *at == 127) *at = '?';
    judged(connection, REACH_REFUSES, text);
    log_warn("client", "this agent is refused by=%s reason=\"%s\"", connection->at, text);
    uint64_t least_ms = c->config.region ? REGION_REFUSED_MS : CONNECTIONS_BACKOFF_MOST_MS;
    if (connection->server) connections_failed(c, connection->server, least_ms, now_ms);
    give_up(connection);
}

void connection_stands(struct connection *connection, bool encrypted, uint64_t now_ms) {
    connection->stood = true, connection->encrypted = encrypted, connection->since_ms = now_ms;
}

void connections_mixed(struct connections *c, bool mixed) { c->mixed = mixed, c->upgrade_ms = 0; }

void connection_heard(struct connection *connection, uint64_t now_ms) {
    connection->last_seen_ms = now_ms;
    connection->asked_ms = connection->pinged_ms = 0;
}

void connection_asked(struct connection *connection, uint64_t now_ms) {
    if (!connection->asked_ms) connection->asked_ms = now_ms;
}

void connection_pinged(struct connection *connection, uint64_t queued, uint64_t delivered, uint64_t now_ms) {
    connection->pinged_ms = now_ms, connection->ping_at = queued, connection->delivered = delivered;
}

void connection_leave(struct connections *c, struct connection *connection, const char *why, uint64_t now_ms) {
    if (connection->draining) return;
    log_warn("client", "a server is left server=%s address=%s reason=\"%s\"", connection->node, connection->at, why);
    if (connection->server) connections_failed(c, connection->server, CONNECTIONS_BACKOFF_MOST_MS, now_ms);
    give_up(connection);
}

/* -- dialling ----------------------------------------------------------------------------------------------------- */
static bool may_dial(const struct connections *c) { return !c->trying && !c->to_dial && !c->stopping && !c->paused; }

static void dial_next(struct connections *c, uint64_t now_ms) {
    if (may_dial(c) && !c->current) c->to_dial = connections_best(c, now_ms, NULL, false);
}

void connections_dialled(struct connections *c, struct connection *connection, struct client_server *server,
                         uint64_t now_ms) {
    *connection =
        (struct connection){.server = server, .number = ++c->last_number, .since_ms = now_ms, .last_seen_ms = now_ms};
    snprintf(connection->at, sizeof connection->at, "%s", server->address);
    list_append(&c->all, &connection->link);
    c->trying = connection;
}

void connections_resolving(struct client_server *server) { server->resolving = true; }

int connections_resolved(struct connections *c, struct client_server *server, int status, unsigned count,
                         uint64_t now_ms) {
    server->resolving = false;
    if (may_dial(c) && status == 0 && count) return (int)address_turn_next(&server->turn, count);
    connections_failed(c, server, RESOLVED_AGAIN_MS, now_ms);
    bool known = server->reach.what == REACH_UNRESOLVED;
    if (status != 0) reach_note(&server->reach, REACH_UNRESOLVED, status, NULL);
    if (!c->stopping && status != 0 && !known)
        log_warn("client", "an address to join does not resolve address=%s reason=\"%s\"", server->address,
                 reach_end_text(0, status));
    return -1;
}

void connections_unusable(struct connections *c, struct client_server *server, uint64_t now_ms) {
    connections_failed(c, server, CONNECTIONS_BACKOFF_MOST_MS, now_ms);
}

static void lost(struct connections *c, const struct connection *connection, const char *why, uint64_t now_ms) {
    c->current = NULL;
    c->to_use = false;
    c->lost_ms = now_ms;
    c->contact_ms = connection->last_seen_ms;
    c->connected = false;
    if (!c->stopping)
        log_warn("client", "the connection is lost server=%s address=%s reason=\"%s\"", connection->node,
                 connection->at, why);
}

void connection_closed(struct connections *c, struct connection *connection, int error, int cause, uint64_t now_ms) {
    struct client_server *server = connection->server;
    list_remove(&connection->link);
    if (server && !connection->judged) reach_ended(&server->reach, error, cause, connection->stood);
    else if (server && connection->greeted && server->reach.what == REACH_MET)
        reach_note(&server->reach, REACH_UNTRIED, 0, NULL);
    uint64_t least_ms = connection->leave_ms ? LEADERLESS_AGAIN_MS : connection->greeted ? LOST_AGAIN_MS : 0;
    if (server && !connection->draining) connections_failed(c, server, least_ms, now_ms);
    if (server && !connection->greeted) server->plain = !server->plain;
    if (c->trying == connection) c->trying = NULL;
    if (c->before == connection) c->before = NULL;
    if (c->current == connection) lost(c, connection, reach_end_text(error, cause), now_ms);
    dial_next(c, now_ms);
}

/* -- time --------------------------------------------------------------------------------------------------------- */
static bool is_late(const struct connection *connection, uint64_t now_ms) {
    return connection->asked_ms && now_ms - connection->asked_ms >= ASK_AGAIN_MS;
}

static bool is_silent(struct connection *connection, const struct connection_seen *seen, uint64_t now_ms) {
    if (!connection->pinged_ms) return false;
    uint64_t before = connection->delivered;
    connection->delivered = seen->delivered;
    /* still behind others of this agent's bytes: nobody can have answered it */
    if (connection->delivered > before && connection->delivered < connection->ping_at) connection->pinged_ms = now_ms;
    uint64_t most_ms = is_late(connection, now_ms) ? CONNECTIONS_SILENT_MS
                       : seen->awaited             ? WAITING_SILENT_MS
                                                   : UNHEARD_SILENT_MS;
    return now_ms - connection->pinged_ms >= most_ms;
}

/* Are you there? */
static bool wants_ping(const struct connection *connection, bool awaited, uint64_t now_ms) {
    if (connection->pinged_ms) return false;
    return is_late(connection, now_ms) || now_ms - connection->last_seen_ms >= (awaited ? WAITING_MS : UNHEARD_MS);
}

void connection_tick(struct connections *c, struct connection *connection, const struct connection_seen *seen,
                     uint64_t now_ms) {
    if (now_ms - c->ticked_ms > STALLED_MS) {
        connection->last_seen_ms = now_ms;
        if (!connection->greeted) connection->since_ms = now_ms;
        if (connection->pinged_ms) connection->pinged_ms = now_ms;
    }
    if (!connection->greeted || connection == c->trying) {
        /* A server to which thousands come back at once takes its time for each handshake. To begin anew would only add to
         * its work. */
        uint64_t most_ms = seen->shakes ? SHAKES_MOST_MS : connection->encrypted ? HELLO_SECURE_MOST_MS : HELLO_MOST_MS;
        if (now_ms - connection->since_ms > most_ms) give_up(connection);
        return;
    }
    bool drained = now_ms - connection->since_ms > DRAIN_MOST_MS || !seen->sent;
    if (connection->draining && drained && !seen->calls) {
        give_up(connection);
        return;
    }
    if (seen->heard) connection_heard(connection, now_ms);
    if (is_silent(connection, seen, now_ms)) {
        if (!connection->closing)
            log_warn("client", "a server does not answer, its connection is left server=%s address=%s ms=%llu",
                     connection->node, connection->at, (unsigned long long)(now_ms - connection->last_seen_ms));
        give_up(connection);
        return;
    }
    bool broken = c->mutations & CONNECTIONS_MUTATE_NO_PING;
    connection->to_ping = !broken && !connection->closing && wants_ping(connection, seen->awaited, now_ms);
}

/* Back to the server that this agent belongs to. */
static void rebalance(struct connections *c, uint64_t now_ms) {
    if (!c->current || !may_dial(c) || now_ms < c->rebalance_ms) return;
    struct client_server *home = connections_home(c, now_ms);
    c->rebalance_ms = now_ms + REBALANCE_MS + rng_below(&c->rng, REBALANCE_MS);
    if (home && home->listed && home != c->current->server) c->to_dial = home;
}

/* Rule (7). */
static void upgrade(struct connections *c, uint64_t now_ms) {
    if (!c->mixed || !c->current || c->current->encrypted || !c->current->server || !may_dial(c)) return;
    if (now_ms < c->upgrade_ms) return;
    c->upgrade_ms = now_ms + UPGRADE_AGAIN_MS + rng_below(&c->rng, UPGRADE_AGAIN_MS);
    c->current->server->plain = false;
    c->to_dial = c->current->server;
}

static void seek_leader(struct connections *c, uint64_t now_ms) {
    const struct connection *current = c->current;
    if (!current || !may_dial(c) || !current->leave_ms || now_ms < current->leave_ms) return;
    if (c->mutations & CONNECTIONS_MUTATE_KEEPS_LEADERLESS) return;
    c->to_dial = connections_best(c, now_ms, current->server, true);
}

/* The servers were founded anew, with empty folders: this agent goes with them. */
static void change_cluster(struct connections *c, uint64_t now_ms) {
    if (c->current || !c->cluster_id || now_ms - c->lost_ms < CONNECTIONS_OTHER_CLUSTER_MS) return;
    uint64_t id = connections_elsewhere(c);
    if (!id) return;
    log_warn("client",
             "every server known belongs to another cluster of the same name now, and so does this agent from now on "
             "before=%016llx now=%016llx",
             (unsigned long long)c->cluster_id, (unsigned long long)id);
    c->cluster_id = id;
    LIST_FOREACH(item, &c->servers) {
        struct client_server *server = LIST_ENTRY(item, struct client_server, link);
        server->next_ms = server->backoff_ms = server->other_cluster = 0;
    }
    c->to_begin_anew = true;
}

/* Each address with its reason; of another region once, as it may be away for long. */
static void tell_lost(struct connections *c, uint64_t now_ms) {
    if (c->current || now_ms - c->lost_ms < TELL_LOST_MS || list_empty(&c->servers)) return;
    if (c->told_lost_ms && (c->config.region || now_ms - c->told_lost_ms < TELL_LOST_AGAIN_MS)) return;
    c->told_lost_ms = now_ms;
    struct buffer line = {0};
    connections_say(c, &line);
    log_warn("client", "no server can be reached%s: %.*s",
             c->contact_ms ? ", answers of before are given and changes wait" : "", (int)line.size, line.data);
    buffer_free(&line);
}

/* The servers say in their own logs what they wait for. */
static void tell_leaderless(struct connections *c, uint64_t now_ms) {
    if (c->config.region || !c->current || c->known_leader) {
        c->told_leaderless_ms = 0;
        return;
    }
    if (now_ms - c->leaderless_ms < TELL_LEADERLESS_MS) return;
    if (c->told_leaderless_ms && now_ms - c->told_leaderless_ms < TELL_LOST_AGAIN_MS) return;
    c->told_leaderless_ms = now_ms;
    log_warn("client",
             "the servers have no leader, changes wait; their logs say what they wait for server=%s address=%s",
             c->current->node, c->current->at);
}

void connections_tick(struct connections *c, uint64_t now_ms) {
    change_cluster(c, now_ms);
    dial_next(c, now_ms);
    seek_leader(c, now_ms);
    rebalance(c, now_ms);
    upgrade(c, now_ms);
    tell_lost(c, now_ms);
    tell_leaderless(c, now_ms);
    c->ticked_ms = now_ms;
}

/* -- wishes, and what may be expected ----------------------------------------------------------------------------- */
void connections_hurry(struct connections *c) {
    LIST_FOREACH(item, &c->servers) {
        struct client_server *server = LIST_ENTRY(item, struct client_server, link);
        if (!c->current) server->next_ms = server->backoff_ms = 0;
    }
}

static void give_all_up(struct connections *c) {
    c->to_dial = NULL;
    LIST_FOREACH(item, &c->all) give_up(LIST_ENTRY(item, struct connection, link));
}

void connections_pause(struct connections *c, bool paused) {
    bool changed = c->paused != paused;
    c->paused = paused;
    if (changed && paused) give_all_up(c);
}

void connections_stop(struct connections *c) {
    c->stopping = true;
    give_all_up(c);
}

bool connections_unreachable(const struct connections *c, uint64_t now_ms) {
    uint64_t lost_ms = c->lost_ms;
    return lost_ms && now_ms >= lost_ms + CONNECTIONS_REACH_MS;
}

bool connections_away(const struct connections *c, uint64_t now_ms) {
    if (c->mutations & CONNECTIONS_MUTATE_HOLDS_ON) return false;
    return c->config.region && c->lost_ms && now_ms - c->lost_ms >= c->config.hold_ms;
}

uint64_t connections_wait_ms(const struct connections *c, uint64_t most_ms, uint64_t now_ms) {
    if (!c->config.region || !c->lost_ms) return most_ms;
    return connections_away(c, now_ms) ? 0 : c->config.hold_ms - (now_ms - c->lost_ms);
}

bool connections_gives_up(const struct connections *c, uint64_t begun_ms, bool blocking, uint64_t until_ms,
                          uint64_t now_ms) {
    bool nobody = list_empty(&c->servers) && !blocking; /* no server to look for, before `coord join` */
    bool held = c->config.region && !(c->mutations & CONNECTIONS_MUTATE_HOLDS_ON);
    uint64_t last_ms = (held ? c->lost_ms : begun_ms) + (nobody ? 0 : c->config.hold_ms);
    return now_ms >= last_ms && (c->config.region || now_ms >= until_ms);
}

/* -- life --------------------------------------------------------------------------------------------------------- */
void connections_begin(struct connections *c, const struct connections_config *config, uint64_t now_ms) {
    *c = (struct connections){.config = *config, .ticked_ms = now_ms};
    c->lost_ms = c->leaderless_ms = now_ms;
    c->cluster_id = config->cluster_id;
    list_init(&c->servers);
    list_init(&c->all);
    rng_seed(&c->rng, config->seed);
}

void connections_end(struct connections *c) {
    CHECK(list_empty(&c->all));
    LIST_FOREACH_SAFE(item, next, &c->servers) free(LIST_ENTRY(item, struct client_server, link));
    list_init(&c->servers);
}

void connections_mutate(struct connections *c, unsigned mutations) { c->mutations = mutations; }
