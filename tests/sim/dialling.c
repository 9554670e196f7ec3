#include "tests/sim/dialling.h"

#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "rpc/wire/hello.h"
#include "tests/sim/story.h"

#define TICK_US        (50 * (uint64_t)MS) /* rpc/client/client.c */
#define REGION_TICK_US (100 * (uint64_t)MS)
#define LOOK_US        (10 * (uint64_t)MS)
#define RESEND_US      (20 * (uint64_t)MS)
#define PING_BYTES     5

/* -- packets ------------------------------------------------------------------------------------------------------ */
enum dial_kind {
    TO_HOST_CONNECT,
    TO_HOST_HELLO,
    TO_HOST_PING,
    TO_HOST_ASK,
    TO_HOST_END,
    TO_AGENT_CONNECTED,
    TO_AGENT_HELLO,
    TO_AGENT_REFUSAL,
    TO_AGENT_SERVERS,
    TO_AGENT_ANYTHING, /* a ping's answer, or another's */
    TO_AGENT_END,      /* number: libuv's cause, less than 0 */
    AT_AGENT_CLOSED,   /* by itself */
    AT_AGENT_RESOLVED
};

/* One end sends it to the other, or to itself. */
struct dial_message {
    struct dial_message *next;
    uint64_t due_us;
    enum dial_kind kind;
    struct dial_link *link; /* NULL: of AT_AGENT_RESOLVED */
    struct dial_agent *agent;
    struct client_server *server; /* likewise */
    bool taken;                   /* by the host's kernel; its process has not read it */
    bool leads, cut_off;
    uint64_t cluster_id;
    int number;
};

struct dial_link {
    struct connection state;
    struct dial_agent *agent;
    struct dial_host *host; /* NULL: nobody has that address */
    uint64_t life;          /* of the host, when it took the connection; 0: not yet */
    bool over;              /* for the agent */
    bool greeted;           /* the host knows who came */
    uint64_t queued, delivered;
    uint64_t out_us, in_us; /* the last packet arrives; they do not overtake each other */
};

static struct dial_link *link_of(struct connection *state) { return CONTAINER_OF(state, struct dial_link, state); }

static void enqueue(struct dialling *d, struct dial_message *message) {
    struct dial_message **at = &d->first;
    while (*at && (*at)->due_us <= message->due_us) at = &(*at)->next;
    message->next = *at, *at = message;
}

static struct dial_message *message_new(struct dial_link *link, enum dial_kind kind) {
    struct dial_message *message = mem_zalloc(sizeof *message);
    message->kind = kind, message->link = link, message->agent = link->agent;
    return message;
}

static void send_message(struct dial_message *message, bool out) {
    struct dial_link *link = message->link;
    struct dialling *d = link->agent->all;
    uint64_t *last_us = out ? &link->out_us : &link->in_us;
    message->due_us = d->sim->now_us + d->delay_us + sim_random(d->sim, 0, d->delay_span_us);
    if (message->due_us < *last_us) message->due_us = *last_us;
    *last_us = message->due_us;
    enqueue(d, message);
}

static void to_host(struct dial_link *link, enum dial_kind kind) { send_message(message_new(link, kind), true); }
static void to_agent(struct dial_link *link, enum dial_kind kind, int number) {
    struct dial_message *message = message_new(link, kind);
    message->number = number, message->cluster_id = link->host->cluster_id;
    message->leads = link->host->leads, message->cut_off = link->host->cut_off;
    send_message(message, false);
}

static void again_at(struct dialling *d, struct dial_message *message, uint64_t us) {
    message->due_us = us;
    enqueue(d, message);
}

/* -- an agent ----------------------------------------------------------------------------------------------------- */
static uint64_t now_ms(const struct dial_agent *agent) { return agent->all->sim->now_us / 1000 + agent->clock_ms; }

static struct dial_host *host_at(struct dialling *d, const char *address) {
    for (unsigned i = 0; i < d->host_count; i++)
        if (strcmp(d->hosts[i].address, address) == 0) return &d->hosts[i];
    return NULL;
}

struct dial_host *dial_current(const struct dial_agent *agent) {
    struct connection *current = agent->connections.current;
    return current ? link_of(current)->host : NULL;
}

bool dial_good(const struct dial_agent *agent, const struct dial_host *of) {
    return of->state == DIAL_UP && of->paused_us <= agent->all->sim->now_us && of->leads && !agent->cut[of->number] &&
           of->cluster_id == DIAL_CLUSTER;
}

bool dial_works(const struct dial_agent *agent) {
    struct connection *current = agent->connections.current;
    return current && dial_good(agent, link_of(current)->host) &&
           link_of(current)->life == link_of(current)->host->life;
}

struct dial_host *dial_home(const struct dial_agent *agent) {
    struct dialling *d = agent->all;
    struct dial_host *best = NULL;
    uint64_t most = 0;
    for (unsigned i = 0; i < d->host_count; i++) {
        uint64_t rank = hash64_seed(d->hosts[i].address, strlen(d->hosts[i].address), agent->rank_seed);
        if (!best || rank > most) best = &d->hosts[i], most = rank;
    }
    return best;
}

static void dial(struct dial_agent *agent, struct client_server *server, struct dial_host *host) {
    struct dialling *d = agent->all;
    struct dial_link *link = mem_zalloc(sizeof *link);
    if (d->link_count == d->link_capacity) {
        d->link_capacity = d->link_capacity ? d->link_capacity * 2 : 64;
        d->links = mem_realloc(d->links, d->link_capacity * sizeof *d->links);
    }
    d->links[d->link_count++] = link;
    link->agent = agent, link->host = host;
    agent->dials++;
    connections_dialled(&agent->connections, &link->state, server, now_ms(agent));
    TRACE(d->sim, "agent %u dials %s", agent->number, server->address);
    if (host) to_host(link, TO_HOST_CONNECT);
}

static void look_up(struct dial_agent *agent, struct client_server *server) {
    struct dialling *d = agent->all;
    struct dial_message *message = mem_zalloc(sizeof *message);
    connections_resolving(server);
    message->kind = AT_AGENT_RESOLVED, message->agent = agent, message->server = server;
    again_at(d, message, d->sim->now_us + sim_random(d->sim, 0, d->resolve_us));
}

static void use(struct dial_agent *agent, const struct connection *state) {
    struct sim *s = agent->all->sim;
    struct dial_host *host = dial_current(agent);
    agent->changes++, agent->changed_us = s->now_us;
    TRACE(s, "agent %u uses %s", agent->number, state->at);
    if (!agent->anew && host->cluster_id != DIAL_CLUSTER)
        sim_violation(s, RULE_LINKS, "agent %u uses %s, which belongs to another cluster", agent->number, state->at);
}

static void carry_out(struct dial_agent *agent) {
    struct dialling *d = agent->all;
    for (;;) {
        struct connections_order order = connections_next(&agent->connections);
        struct dial_link *link = order.connection ? link_of(order.connection) : NULL;
        switch (order.act) {
            case CONNECTIONS_NOTHING: return;
            case CONNECTIONS_DIAL:
                if (strcmp(order.server->address, DIAL_NAME) == 0) look_up(agent, order.server);
                else dial(agent, order.server, host_at(d, order.server->address));
                break;
            case CONNECTIONS_CLOSE:
                if (link->host) to_host(link, TO_HOST_END);
                again_at(d, message_new(link, AT_AGENT_CLOSED), d->sim->now_us);
                break;
            case CONNECTIONS_PING:
                link->queued += PING_BYTES;
                connection_pinged(&link->state, link->queued, link->delivered, now_ms(agent));
                to_host(link, TO_HOST_PING);
                break;
            case CONNECTIONS_USE: use(agent, order.connection); break;
            case CONNECTIONS_ANEW: agent->anew++; break;
        }
    }
}

static void closed(struct dial_link *link, int error, int cause) {
    struct dial_agent *agent = link->agent;
    link->over = true;
    TRACE(agent->all->sim, "agent %u: its connection with %s ended: %s", agent->number, link->state.at,
          reach_end_text(error, cause));
    connection_closed(&agent->connections, &link->state, error, cause, now_ms(agent));
}

static void resolved(struct dial_agent *agent, struct client_server *server) {
    struct dialling *d = agent->all;
    int at = connections_resolved(&agent->connections, server, d->resolves ? 0 : UV_EAI_AGAIN,
                                  d->resolves ? d->named_count : 0, now_ms(agent));
    if (at >= 0) dial(agent, server, &d->hosts[d->named[at]]);
}

static void take_hello(struct dial_link *link, const struct dial_message *message) {
    Pb__PeerHello hello = PB__PEER_HELLO__INIT;
    char node[8];
    snprintf(node, sizeof node, "s%u", link->host->number + 1);
    hello.protocol = (char *)(uintptr_t)HELLO_PROTOCOL;
    hello.version_least = HELLO_VERSION_LEAST, hello.version_most = HELLO_VERSION_MOST;
    hello.cluster = (char *)(uintptr_t) "dc1", hello.cluster_id = message->cluster_id;
    hello.id = link->host->number + 1, hello.address = link->host->address, hello.node = node;
    hello.has_log = true, hello.cluster_version_least = hello.cluster_version_most = hello.cluster_version = 1;
    connection_hello(&link->agent->connections, &link->state, &hello, now_ms(link->agent));
}

/* A server names those that say the same cluster as it. */
static void take_servers(struct dial_link *link, const struct dial_message *message) {
    struct dialling *d = link->agent->all;
    Pb__PeerServers servers = PB__PEER_SERVERS__INIT;
    Pb__PeerServer server[DIAL_HOSTS], *pointers[DIAL_HOSTS];
    servers.servers = pointers, servers.cut_off = message->cut_off;
    for (unsigned i = 0; i < d->host_count; i++) {
        struct dial_host *host = &d->hosts[i];
        if (message->cluster_id == DIAL_STRANGER && host->cluster_id != DIAL_STRANGER) continue;
        server[i] = (Pb__PeerServer)PB__PEER_SERVER__INIT;
        server[i].id = i + 1, server[i].address = host->address;
        pointers[servers.n_servers++] = &server[i];
        if (message->leads && !servers.leader) servers.leader = i + 1;
    }
    connection_servers(&link->agent->connections, &link->state, &servers, now_ms(link->agent));
}

static void arrives_at_agent(struct dial_message *message) {
    struct dial_link *link = message->link;
    struct dial_agent *agent = message->agent;
    if (message->kind == AT_AGENT_RESOLVED) {
        resolved(agent, message->server);
    } else if (!link->over) {
        bool data = message->kind >= TO_AGENT_HELLO && message->kind <= TO_AGENT_ANYTHING;
        if (data && !link->state.closing) connection_heard(&link->state, now_ms(agent));
        if (message->kind == AT_AGENT_CLOSED) closed(link, CO_CLOSED, 0);
        else if (message->kind == TO_AGENT_END && !link->state.closing) closed(link, CO_IO, message->number);
        else if (link->state.closing) return;
        else if (message->kind == TO_AGENT_CONNECTED)
            connection_stands(&link->state, false, now_ms(agent)), to_host(link, TO_HOST_HELLO);
        else if (message->kind == TO_AGENT_HELLO) take_hello(link, message);
        else if (message->kind == TO_AGENT_REFUSAL)
            connection_refused(&agent->connections, &link->state, slice_text("another cluster"), now_ms(agent));
        else if (message->kind == TO_AGENT_SERVERS) take_servers(link, message);
    }
    carry_out(agent);
}

/* -- a host ------------------------------------------------------------------------------------------------------- */
static void tell_servers(struct dial_link *link) { to_agent(link, TO_AGENT_SERVERS, 0); }

static void process(struct dial_message *message) {
    struct dial_link *link = message->link;
    struct dial_host *host = link->host;
    switch (message->kind) {
        case TO_HOST_HELLO:
            to_agent(link, TO_AGENT_HELLO, 0);
            if (link->agent->connections.cluster_id && link->agent->connections.cluster_id != host->cluster_id) {
                to_agent(link, TO_AGENT_REFUSAL, 0);
            } else {
                link->greeted = true;
                tell_servers(link);
            }
            break;
        case TO_HOST_PING: to_agent(link, TO_AGENT_ANYTHING, 0); break;
        case TO_HOST_ASK:
            if (host->leads) to_agent(link, TO_AGENT_ANYTHING, 0);
            break;
        case TO_HOST_END: link->greeted = false, link->life = 0; break;
        default: UNREACHABLE();
    }
}

/* True: the message is kept, and comes again. */
static bool arrives_at_host(struct dialling *d, struct dial_message *message) {
    struct dial_link *link = message->link;
    struct dial_host *host = link->host;
    if (host->state == DIAL_GONE) return false;
    if (message->kind == TO_HOST_CONNECT && host->state == DIAL_UP) {
        link->life = host->life, host->arrivals++;
        to_agent(link, TO_AGENT_CONNECTED, 0);
        return false;
    }
    if (host->state != DIAL_UP || link->life != host->life) {
        if (message->kind != TO_HOST_END)
            to_agent(link, TO_AGENT_END, message->kind == TO_HOST_CONNECT ? UV_ECONNREFUSED : UV_ECONNRESET);
        return false;
    }
    if (!message->taken) {
        message->taken = true;
        if (message->kind == TO_HOST_PING || message->kind == TO_HOST_ASK) link->delivered += PING_BYTES;
        if (message->kind == TO_HOST_HELLO && host->hello_us) {
            again_at(d, message, d->sim->now_us + host->hello_us);
            return true;
        }
    }
    if (host->paused_us > d->sim->now_us) {
        again_at(d, message, host->paused_us);
        return true;
    }
    process(message);
    return false;
}

void dial_host_is(struct dialling *d, struct dial_host *host, enum dial_state state) {
    static const char *const words[] = {"runs", "has ended", "is without power"};
    if (host->state == state) return;
    TRACE(d->sim, "%s %s", host->address, words[state]);
    if (host->state == DIAL_UP) {
        for (size_t i = 0; i < d->link_count; i++) {
            struct dial_link *link = d->links[i];
            if (link->host == host && link->life == host->life && state == DIAL_DOWN)
                to_agent(link, TO_AGENT_END, UV_ECONNRESET);
            if (link->host == host) link->greeted = false;
        }
        host->life++;
    }
    host->state = state;
}

/* As the simulated server is. */
static void follow_server(struct dialling *d, struct dial_host *host) {
    const struct server *server = host->server;
    if (server->process != host->process && host->state == DIAL_UP) dial_host_is(d, host, DIAL_DOWN);
    host->process = server->process;
    dial_host_is(d, host, server->up ? DIAL_UP : DIAL_DOWN);
    if (!server->up) return;
    host->paused_us = server->paused_until_us;
    host->leads = raft_leader(server->raft) != 0, host->cut_off = server->requests.cut_off && !host->leads;
}

static void look_at_host(struct dialling *d, struct dial_host *host) {
    if (host->server) follow_server(d, host);
    if (host->state != DIAL_UP || host->paused_us > d->sim->now_us) return;
    if (host->told_leads == host->leads && host->told_cut_off == host->cut_off) return;
    host->told_leads = host->leads, host->told_cut_off = host->cut_off;
    TRACE(d->sim, "%s knows %s leader%s", host->address, host->leads ? "a" : "no", host->cut_off ? ", is cut off" : "");
    for (size_t i = 0; i < d->link_count; i++)
        if (d->links[i]->host == host && d->links[i]->greeted) tell_servers(d->links[i]);
}

/* -- readers ------------------------------------------------------------------------------------------------------ */
static void judge_told(struct dial_agent *agent, const struct dial_reader *reader) {
    struct sim *s = agent->all->sim;
    const struct connections *c = &agent->connections;
    uint64_t now = now_ms(agent), since_ms = c->config.region ? c->lost_ms : reader->begun_ms;
    uint64_t due_ms = since_ms + c->config.hold_ms;
    if (now < due_ms)
        sim_violation(s, RULE_LINKS, "a reader is told that nobody can be reached after %" PRIu64 " of %" PRIu64 " ms",
                      now - since_ms, c->config.hold_ms);
    if (due_ms < reader->begun_ms) due_ms = reader->begun_ms;
    if (now > due_ms + DIAL_LATE_MS)
        sim_violation(s, RULE_LINKS, "a reader is told that nobody can be reached %" PRIu64 " ms late", now - due_ms);
}

/* As client_reads.c: when one begins, and every tick. True: it is over. */
static bool reader_ends(struct dial_agent *agent, const struct dial_reader *reader) {
    const struct connections *c = &agent->connections;
    if (c->current) {
        agent->served++;
        return true;
    }
    if (!connections_gives_up(c, reader->begun_ms, false, reader->begun_ms, now_ms(agent))) {
        if (now_ms(agent) > reader->begun_ms + c->config.hold_ms + DIAL_LATE_MS)
            sim_violation(agent->all->sim, RULE_LINKS, "a reader of a region waits for longer than hold_ms");
        return false;
    }
    judge_told(agent, reader);
    agent->told++;
    return true;
}

void dial_read(struct dial_agent *agent) {
    struct dial_reader reader = {.begun_us = agent->all->sim->now_us, .begun_ms = now_ms(agent)};
    if (reader_ends(agent, &reader)) return;
    CHECK(agent->reading < DIAL_READERS);
    agent->readers[agent->reading++] = reader;
}

static void read_on(struct dial_agent *agent) {
    unsigned left = 0;
    for (unsigned i = 0; i < agent->reading; i++)
        if (!reader_ends(agent, &agent->readers[i])) agent->readers[left++] = agent->readers[i];
    agent->reading = left;
}

/* -- time --------------------------------------------------------------------------------------------------------- */
static void ask_server(struct dial_agent *agent) {
    struct connection *current = agent->connections.current;
    if (!agent->ask_ms || !current || agent->all->sim->now_us < agent->ask_us) return;
    agent->ask_us = agent->all->sim->now_us + agent->ask_ms * MS;
    connection_asked(current, now_ms(agent));
    link_of(current)->queued += PING_BYTES;
    to_host(link_of(current), TO_HOST_ASK);
}

static void tick(struct dial_agent *agent) {
    struct sim *s = agent->all->sim;
    struct connections *c = &agent->connections;
    agent->tick_us = s->now_us + (c->config.region ? REGION_TICK_US : TICK_US) + sim_random(s, 0, 5) * MS;
    LIST_FOREACH(item, &c->all) {
        struct connection *state = LIST_ENTRY(item, struct connection, link);
        struct connection_seen seen = {.awaited = agent->awaits, .delivered = link_of(state)->delivered};
        connection_tick(c, state, &seen, now_ms(agent));
    }
    connections_tick(c, now_ms(agent));
    carry_out(agent);
    read_on(agent);
    ask_server(agent);
}

static bool could_work(const struct dial_agent *agent) {
    for (unsigned i = 0; i < agent->all->host_count; i++)
        if (dial_good(agent, &agent->all->hosts[i]) && !agent->all->hosts[i].hello_us) return true;
    return false;
}

static void judge(struct dial_agent *agent) {
    struct sim *s = agent->all->sim;
    uint64_t now_us = s->now_us;
    if (agent->paused_us > now_us || !could_work(agent) || dial_works(agent)) {
        agent->lost_us = NEVER;
        return;
    }
    if (agent->lost_us == NEVER) agent->lost_us = now_us;
    uint64_t since_us = now_us - agent->lost_us;
    if (since_us > agent->longest_us) agent->longest_us = since_us;
    if (agent->bound_ms && since_us > agent->bound_ms * MS)
        sim_violation(s, RULE_LINKS, "agent %u has no connection that works for %" PRIu64 " ms", agent->number,
                      since_us / MS);
}

static void look(struct dialling *d) {
    d->look_us = d->sim->now_us + LOOK_US;
    for (unsigned i = 0; i < d->host_count; i++) look_at_host(d, &d->hosts[i]);
    for (unsigned i = 0; i < d->agent_count; i++) judge(&d->agents[i]);
}

/* True: it is kept, and comes again. */
static bool deliver(struct dialling *d, struct dial_message *message) {
    struct dial_agent *agent = message->agent;
    bool on_path = message->kind < AT_AGENT_CLOSED && !message->taken;
    if (on_path && agent->cut[message->link->host->number]) {
        again_at(d, message, d->sim->now_us + RESEND_US);
        return true;
    }
    if (message->kind <= TO_HOST_END) return arrives_at_host(d, message);
    if (agent->paused_us > d->sim->now_us) {
        again_at(d, message, agent->paused_us);
        return true;
    }
    arrives_at_agent(message);
    return false;
}

static struct dial_agent *next_agent(struct dialling *d) {
    struct dial_agent *next = NULL;
    for (unsigned i = 0; i < d->agent_count; i++) {
        struct dial_agent *agent = &d->agents[i];
        if (agent->tick_us < agent->paused_us) agent->tick_us = agent->paused_us;
        if (!next || agent->tick_us < next->tick_us) next = agent;
    }
    return next;
}

bool dialling_step(struct dialling *d, uint64_t end_us) {
    struct sim *s = d->sim;
    struct dial_agent *agent = next_agent(d);
    uint64_t at_us = d->look_us;
    if (agent && agent->tick_us < at_us) at_us = agent->tick_us;
    if (d->first && d->first->due_us < at_us) at_us = d->first->due_us;
    bool over = at_us > end_us;
    while (story_step(s, over ? end_us : at_us)) continue; /* the simulated cluster, if there is one */
    if (over || s->failed) return false;
    if (d->first && d->first->due_us == at_us) {
        struct dial_message *message = d->first;
        d->first = message->next;
        sim_mix(s, at_us ^ (uint64_t)message->kind << 56 ^ (uint64_t)message->agent->number << 48);
        if (!deliver(d, message)) free(message);
    } else if (d->look_us == at_us) {
        look(d);
    } else {
        tick(agent);
    }
    return !s->failed;
}

void dialling_run(struct dialling *d, uint64_t ms) {
    uint64_t end_us = d->sim->now_us + ms * MS;
    while (dialling_step(d, end_us)) continue;
}

/* -- life --------------------------------------------------------------------------------------------------------- */
struct dialling *dialling_begin(struct sim *sim, unsigned hosts) {
    struct dialling *d = mem_zalloc(sizeof *d);
    CHECK(hosts <= DIAL_HOSTS);
    log_level_now = LOG_ERROR;
    d->sim = sim, d->host_count = hosts, d->resolves = true;
    d->delay_us = 200, d->delay_span_us = sim_random(sim, 0, 20) * MS, d->resolve_us = 200 * MS;
    for (unsigned i = 0; i < hosts; i++) {
        struct dial_host *host = &d->hosts[i];
        *host = (struct dial_host){.number = i, .cluster_id = DIAL_CLUSTER, .life = 1};
        host->leads = host->told_leads = true;
        snprintf(host->address, sizeof host->address, "10.0.%u.%u:8300", (unsigned)sim_random(sim, 0, 255), i + 1);
    }
    return d;
}

void dialling_of_cluster(struct dialling *d) {
    CHECK(d->host_count == d->sim->server_count);
    for (unsigned i = 0; i < d->host_count; i++) {
        d->hosts[i].server = d->sim->servers[i];
        d->hosts[i].process = d->hosts[i].server->process;
    }
}

struct dial_agent *dialling_agent(struct dialling *d, const struct dial_host *join, uint64_t hold_ms) {
    struct sim *s = d->sim;
    CHECK(d->agent_count < DIAL_AGENTS);
    struct dial_agent *agent = &d->agents[d->agent_count++];
    *agent = (struct dial_agent){.all = d, .number = d->agent_count, .lost_us = NEVER};
    agent->rank_seed = sim_random(s, 1, UINT64_MAX - 1), agent->clock_ms = sim_random(s, 1000, 1000000);
    struct connections_config config = {.cluster = "dc1",
                                        .region = hold_ms != 0,
                                        .hold_ms = hold_ms ? hold_ms : 7000,
                                        .rank_seed = agent->rank_seed,
                                        .seed = sim_random(s, 1, UINT64_MAX - 1),
                                        .port = 8300};
    connections_begin(&agent->connections, &config, now_ms(agent));
    connections_mutate(&agent->connections, s->options.connections_mutations);
    connections_know(&agent->connections, join ? join->address : DIAL_NAME);
    agent->tick_us = s->now_us + sim_random(s, 0, TICK_US);
    agent->awaits = sim_chance(s, 500), agent->ask_ms = agent->awaits ? 0 : 100;
    return agent;
}

void dialling_end(struct dialling *d) {
    for (struct dial_message *message = d->first, *next; message; message = next) next = message->next, free(message);
    for (unsigned i = 0; i < d->agent_count; i++) {
        list_init(&d->agents[i].connections.all);
        connections_end(&d->agents[i].connections);
    }
    for (size_t i = 0; i < d->link_count; i++) free(d->links[i]);
    free(d->links);
    free(d);
}
