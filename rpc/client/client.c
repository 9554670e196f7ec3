#include "rpc/client/client.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "rpc/api/access_control.h"
#include "rpc/client/client_internal.h"
#include "rpc/wire/address.h"

#define TICK_MS        50
#define REGION_TICK_MS 100 /* rarer for links, because there may be many of them */
/* bytes of commands given to the connection at a time, so that renewals and reads get between */
#define WRITES_BATCH (128u << 10)
#define WRITES_AHEAD (256u << 10) /* at most so much waits in the connection */

void client_post(struct client *client, struct loop_task *task) {
    if (mailbox_put(&client->box, &task->mail)) uv_async_send(&client->wake);
}

void client_asked(struct client *client) {
    if (client->current) connection_asked(&client->current->state, clock_mono_ms());
}

/* -- writes ------------------------------------------------------------------------------------------------------- */
struct client_write {
    struct loop_task task;
    struct judged judged;
    struct node_proposal proposal;
};
_Static_assert(sizeof(struct client_write) <= sizeof(((struct rpc_write *)0)->impl), "rpc_write.impl is too small");

static void write_done(struct node_proposal *proposal, int error, const void *result) {
    struct client_write *impl = CONTAINER_OF(proposal, struct client_write, proposal);
    struct rpc_write *write = CONTAINER_OF((char *)impl, struct rpc_write, impl);
    write->done(write, error, result);
}

static void write_fail(struct node_proposal *proposal, int error) {
    raft_data_unref(proposal->data);
    proposal->data = NULL;
    proposal->done(proposal, error, NULL);
}

static void write_wait(struct client *client, struct node_proposal *proposal) {
    proposal->next = NULL;
    *client->waiting_last = proposal;
    client->waiting_last = &proposal->next;
}

/* Takes the next writes off the list, up to WRITES_BATCH. */
static struct node_proposal *writes_take(struct client *client) {
    struct node_proposal *list = client->waiting, **at = &client->waiting;
    for (size_t bytes = 0; *at && bytes < WRITES_BATCH; at = &(*at)->next) bytes += (*at)->data->size;
    client->waiting = *at;
    *at = NULL;
    if (!client->waiting) client->waiting_last = &client->waiting;
    return list;
}

static void writes_send(struct client *client) {
    while (client->waiting && client->current && link_backlog(client->current->wire) < WRITES_AHEAD) {
        client_asked(client);
        CHECK(forwarding_writes(client->forwarding, client->current->state.number, writes_take(client)));
        link_flush(client->current->wire);
    }
}

void client_drained(struct client *client) {
    if (!client->stopping) writes_send(client);
}

uint64_t client_wait_ms(struct client *client) {
    return connections_wait_ms(&client->connections, RPC_LEADER_WAIT_MS, clock_mono_ms());
}

static void writes_expire(struct client *client, uint64_t now_ms, int error) {
    struct node_proposal *list = client->waiting, *next;
    client->waiting = NULL, client->waiting_last = &client->waiting;
    for (; list; list = next) {
        next = list->next;
        if (now_ms >= list->deadline_ms || connections_away(&client->connections, now_ms)) write_fail(list, error);
        else write_wait(client, list);
    }
}

static void write_taken(struct loop_task *task) {
    struct client *client = task->rpc->client;
    struct client_write *impl = CONTAINER_OF(task, struct client_write, task);
    if (client->stopping) write_fail(&impl->proposal, CO_CLOSED);
    else write_wait(client, &impl->proposal);
}

void client_submit(struct client *client, struct rpc_write *write, uint8_t command, const ProtobufCMessage *message) {
    struct client_write *impl = (struct client_write *)(void *)write->impl;
    *impl = (struct client_write){.judged = {.requester = write->requester, .client = write->client}};
    impl->proposal = (struct node_proposal){.done = write_done,
                                            .deadline_ms = clock_mono_ms() + RPC_LEADER_WAIT_MS,
                                            .data = rpc_command(command, message),
                                            .tag = &impl->judged};
    rpc_on_loop(client->rpc, &impl->task, write_taken);
}

void client_propose(struct client *client, struct node_proposal *proposal) {
    if (client->stopping) write_fail(proposal, CO_CLOSED);
    else write_wait(client, proposal);
    writes_send(client);
}

/* -- renewals ----------------------------------------------------------------------------------------------------- */
struct client_renewal {
    struct loop_task task;
    struct list link;
    uint64_t deadline_ms;
};
_Static_assert(sizeof(struct client_renewal) <= sizeof(((struct rpc_renew *)0)->impl), "rpc_renew.impl is too small");

static void renewals_look(struct client *client, uint64_t now_ms, bool stop) {
    LIST_FOREACH_SAFE(item, next, &client->renewals) {
        struct client_renewal *impl = LIST_ENTRY(item, struct client_renewal, link);
        struct rpc_renew *renew = CONTAINER_OF((char *)impl, struct rpc_renew, impl);
        bool late = now_ms >= impl->deadline_ms || connections_away(&client->connections, now_ms);
        if (!client->current && !late && !stop) continue;
        list_remove(&impl->link);
        if (client->current && !stop) client_asked(client);
        if (stop || !client->current || !forwarding_renew(client->forwarding, client->current->state.number, renew))
            renew->done(renew, stop ? CO_CLOSED : CO_NOLEADER);
    }
}

static void renewal_taken(struct loop_task *task) {
    struct client *client = task->rpc->client;
    struct client_renewal *impl = CONTAINER_OF(task, struct client_renewal, task);
    list_append(&client->renewals, &impl->link);
}

void client_renew(struct client *client, struct rpc_renew *renew) {
    struct client_renewal *impl = (struct client_renewal *)(void *)renew->impl;
    *impl = (struct client_renewal){.deadline_ms = clock_mono_ms() + RPC_LEADER_WAIT_MS};
    rpc_on_loop(client->rpc, &impl->task, renewal_taken);
}

/* -- the callbacks of forwarding.h --------------------------------------------------------------------------------- */
static bool reach(void *data, uint64_t conn) { return client_conn_of(data, conn) != NULL; }

static void send_message(void *data, uint64_t number, uint8_t type, const ProtobufCMessage *message) {
    struct client_conn *conn = client_conn_of(data, number);
    if (conn) link_tell(conn->wire, type, message);
}

const struct requester *client_requester(struct client *client, const struct requester *requester) {
    if (requester) return requester;
    requester_release(client->own);
    return client->own = rpc_agent_requester(client->rpc);
}

static const struct requester *requester_of(void *data, const struct requester *noted) {
    return client_requester(data, noted);
}

/* The region that a command names. A link gets only commands for its own region. */
static const char *region_of(void *data, const struct node_proposal *proposal) {
    const struct client *client = data;
    if (client->region) return "";
    const struct client_write *impl = CONTAINER_OF(proposal, struct client_write, proposal);
    return CONTAINER_OF((const char *)impl, struct rpc_write, impl)->region;
}

/* The servers had no leader for the command, so it is surely in no log, and waits again. */
static void command(void *data, struct node_proposal *proposal) {
    struct client *client = data;
    if (client->stopping || clock_mono_ms() >= proposal->deadline_ms)
        write_fail(proposal, client->stopping ? CO_CLOSED : CO_NOLEADER);
    else write_wait(client, proposal);
}

/* -- events ------------------------------------------------------------------------------------------------------- */
static void send_all(struct client *client) {
    if (!client->current) return;
    renewals_look(client, clock_mono_ms(), false);
    writes_send(client);
    calls_turn(client->rpc->calls, clock_mono_ms());
    link_flush(client->current->wire);
}

static void take_tasks(struct client *client) {
    for (struct mail *mail = mailbox_take(&client->box), *next; mail; mail = next) {
        next = mail->next;
        struct loop_task *task = CONTAINER_OF(mail, struct loop_task, mail);
        task->run(task);
    }
}

static void woken(uv_async_t *async) {
    struct client *client = async->data;
    take_tasks(client);
    if (client->stopping) renewals_look(client, 0, true);
    send_all(client);
}

void client_up(struct client *client) {
    asks_run_route(client->rpc, client->current->asks);
    send_all(client);
}

void client_down(struct client *client, struct client_conn *conn) {
    conn->state.greeted = false; /* nothing is sent there any more */
    asks_run_down(client->rpc, conn->asks);
    forwarding_down(client->forwarding, conn->state.number);
    calls_down(client->rpc->calls, conn->state.number, clock_mono_ms());
    send_all(client);
}

void client_frame(struct client *client, struct client_conn *conn, uint8_t type, struct slice payload) {
    uint64_t now_ms = clock_mono_ms();
    bool known = type == PEER_RESULTS || type == PEER_RENEW_ANSWER
                     ? forwarding_frame(client->forwarding, conn->state.number, type, payload, now_ms)
                 : asks_run_is_frame(type) ? asks_run_frame(client->rpc, conn->asks, type, payload)
                 : type == PEER_HINTS      ? client_hints_frame(client, payload)
                                      : calls_answered(client->rpc->calls, conn->state.number, type, payload, now_ms);
    if (!known)
        log_warn("client", "a frame of unknown type, or one that does not decode type=%u server=%s", type,
                 conn->state.node);
}

static void tick(uv_timer_t *timer) {
    struct client *client = timer->data;
    uint64_t now_ms = clock_mono_ms();
    if (client->stopping) return;
    connections_run_tick(client, now_ms);
    writes_expire(client, now_ms, CO_NOLEADER);
    renewals_look(client, now_ms, false);
    client_read_tick(client, now_ms);
    calls_tick(client->rpc->calls, now_ms);
    dns_subscriptions_tick(client->subscriptions, now_ms);
    client_coordinates_tick(client, now_ms);
    client_hints_tick(client, now_ms);
    send_all(client);
}

/* -- the cluster -------------------------------------------------------------------------------------------------- */
void client_status(struct client *client, struct rpc_status *status) {
    const struct connections *c = &client->connections;
    uint64_t contact_ms = c->contact_ms, leaderless_ms = c->leaderless_ms, now_ms = clock_mono_ms();
    bool connected = c->connected;
    *status = (struct rpc_status){.cluster_id = c->cluster_id};
    status->unreachable = connections_unreachable(c, now_ms);
    status->known_leader = connected && c->known_leader;
    status->last_contact_ms = connected || now_ms < contact_ms ? 0 : now_ms - contact_ms;
    uv_mutex_lock(&client->lock);
    if (!status->unreachable) memcpy(status->leader_address, client->leader_address, sizeof client->leader_address);
    bool led = client->leader_address[0] || now_ms < leaderless_ms;
    status->leaderless_ms = led ? 0 : now_ms - leaderless_ms;
    status->voters = (unsigned)client->peer_count;
    uv_mutex_unlock(&client->lock);
}

size_t client_peers(struct client *client, struct arena *arena, const char ***addresses) {
    uv_mutex_lock(&client->lock);
    size_t count = client->peer_count;
    *addresses = arena_alloc(arena, (count + 1) * sizeof **addresses);
    for (size_t i = 0; i < count; i++)
        (*addresses)[i] = arena_strndup(arena, client->peers[i], strlen(client->peers[i]));
    uv_mutex_unlock(&client->lock);
    return count;
}

/* -- life --------------------------------------------------------------------------------------------------------- */
static bool is_wildcard(const char *ip) { return strcmp(ip, "0.0.0.0") == 0 || strcmp(ip, "::") == 0; }

static struct client *client_new(struct rpc *rpc, uv_loop_t *loop, const struct rpc_client_config *config) {
    struct client *client = mem_zalloc(sizeof *client);
    client->rpc = rpc, client->loop = loop;
    client->modules = modules_new(config->modules, MACHINE_VERSION_NEWEST);
    client->cluster = mem_strdup(config->cluster), client->node_name = mem_strdup(config->node_name),
    client->address = mem_strdup(config->address);
    client->port = config->port, client->security = config->security;
    client->region = config->region ? mem_strdup(config->region) : NULL;
    client->region_cluster_id = config->region_cluster_id;
    bool default_hold = !config->hold_ms || config->hold_ms > RPC_LEADER_WAIT_MS;
    struct connections_config connections = {.cluster = client->cluster,
                                             .cluster_id = config->cluster_id,
                                             .region = config->region,
                                             .hold_ms = default_hold ? RPC_LEADER_WAIT_MS : config->hold_ms,
                                             .rank_seed = hash64(config->node_id, strlen(config->node_id)),
                                             .seed = random_u64(),
                                             .port = config->port};
    connections_begin(&client->connections, &connections, clock_mono_ms());
    client->known = config->known ? mem_strdup(config->known) : NULL;
    client->id = random_u64() | 1;
    client->has_from = config->bind && !is_wildcard(config->bind) && address_ip(config->bind, "0", &client->from);
    client->waiting_last = &client->waiting;
    list_init(&client->renewals);
    list_init(&client->fetches);
    client->cache = client_cache_new(CLIENT_CACHE_BYTES);
    client->subscriptions = dns_subscriptions_new(rpc, config->dns_queries ? config->dns_queries : CLIENT_DNS_QUERIES);
    if (!config->no_coordinates)
        client->coordinates = client_coordinates_new(client, config->node_name, config->coordinate_interval_ms);
    rpc->hints = hints_new(config->slow_start_ns);
    client->hints = client_hints_new();
    CHECK(uv_mutex_init(&client->lock) == 0);
    return client;
}

/* All calls go to the server with which this agent is connected. */
static uint64_t server_route(void *data, const struct call *call) {
    const struct client *client = data;
    (void)call;
    return client->current ? client->current->state.number : 0;
}

static bool server_tell(void *data, uint64_t number, uint8_t type, const ProtobufCMessage *message) {
    struct client *client = data;
    struct client_conn *conn = client_conn_of(client, number);
    if (!conn) return false;
    link_tell(conn->wire, type, message);
    if (conn != client->current || type != PEER_FETCH) link_flush(conn->wire); /* reads share a write in each turn */
    return true;
}

void client_join(struct client *client, const char *const *join) {
    char name[ADDRESS_MAX];
    for (size_t i = 0; join[i]; i++)
        if (address_complete(join[i], client->port, name)) connections_know(&client->connections, name);
}

struct rpc *rpc_client_start(uv_loop_t *loop, const struct rpc_client_config *config) {
    struct rpc *rpc = mem_zalloc(sizeof *rpc);
    rpc->role = &client_role;
    struct client *client = rpc->client = client_new(rpc, loop, config);
    bool told = config->join && config->join[0];
    if (!told && client_known_read(client)) log_info("client", "no server is named: those known last are tried");
    else if (!told)
        log_warn("client",
                 "no server is known: this agent waits for `coord join ADDRESS` (-retry-join=ADDRESS names one; "
                 "-server runs one)");
    struct forwarding_callbacks callbacks = {.data = client,
                                             .reach = reach,
                                             .send = send_message,
                                             .command = command,
                                             .region_of = region_of,
                                             .requester_of = requester_of};
    client->forwarding = forwarding_new(&callbacks, 0);
    static const struct call_method *const methods[] = {
        &fetch_method, &cluster_method, &change_method, &echo_method, &backup_method,
        &hot_method,   &regions_method, &trust_method,  &acl_method,  NULL};
    struct calls_callbacks calls = {.data = client, .route = server_route, .tell = server_tell};
    rpc->calls = calls_new(&calls, methods, 0);
    asks_run_start(rpc, loop, config->node_name);
    CHECK(uv_async_init(loop, &client->wake, woken) == 0 && uv_timer_init(loop, &client->timer) == 0);
    client->wake.data = client->timer.data = client;
    if (config->join) client_join(client, config->join);
    uv_timer_start(&client->timer, tick, 0, client->region ? REGION_TICK_MS : TICK_MS);
    return rpc;
}

void rpc_client_know(struct rpc *rpc, const char *address) {
    (void)connections_know(&rpc->client->connections, address);
}

static void handle_closed(uv_handle_t *handle) {
    struct client *client = handle->data;
    if (--client->closing > 0) return;
    take_tasks(client); /* the last tasks are told that it is over */
    connections_end(&client->connections);
    forwarding_free(client->forwarding);
    client_cache_free(client->cache);
    dns_subscriptions_free(client->subscriptions);
    client_coordinates_free(client->coordinates);
    client_hints_free(client->hints);
    hints_free(client->rpc->hints);
    modules_free(client->modules);
    asks_run_free(client->rpc);
    calls_free(client->rpc->calls);
    uv_mutex_destroy(&client->lock);
    buffer_free(&client->known_text);
    free(client->known), free(client->cluster), free(client->node_name), free(client->address), free(client->peers),
        free(client->region);
    void (*closed)(void *) = client->closed;
    void *data = client->closed_data;
    rpc_access_control_end(client->rpc);
    free(client->rpc);
    requester_release(client->own);
    free(client);
    closed(data);
}

void client_finish_stop(struct client *client) {
    if (!client->stopping || client->closing || client->resolving || !list_empty(&client->connections.all) ||
        client->rpc->jobs > 0)
        return;
    client->closing = 2 + ASKS_RUN_HANDLES;
    asks_run_close(client->rpc, handle_closed, client);
    uv_close((uv_handle_t *)&client->wake, handle_closed);
    uv_close((uv_handle_t *)&client->timer, handle_closed);
}

static void jobs_over(struct rpc *rpc) { client_finish_stop(rpc->client); }

void rpc_client_stop(struct rpc *rpc, void (*closed)(void *data), void *data) {
    struct client *client = rpc->client;
    client->closed = closed, client->closed_data = data;
    client->stopping = true;
    rpc->jobs_over = jobs_over;
    dns_subscriptions_stop(client->subscriptions);
    woken(&client->wake);
    forwarding_stop(client->forwarding);
    writes_expire(client, UINT64_MAX, CO_CLOSED);
    calls_stop(client->rpc->calls);
    asks_run_stop(client->rpc);
    connections_run_stop(client);
    client_finish_stop(client);
}
