#include "fleet.h"

#include <stdio.h>
#include <stdlib.h>

#include "agent/modules.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/json_in.h"
#include "base/random.h"
#include "base/text.h"
#include "health/definition.h"
#include "registry/catalog.h"

#define TURN_MS       10
#define STARTS_A_TURN 10
#define SERVER_PORT   8300
#define WAIT_MS       300000

struct fleet_loop {
    struct fleet *fleet;
    unsigned first, count, begun; /* agents[first .. first + count), stepping by the number of threads */
    uv_loop_t loop;
    uv_timer_t timer;
    uv_async_t stop;
    pthread_t thread;
    _Atomic unsigned rate; /* changes a minute, of this loop */
    uint64_t rate_since_ns, last_ns;
    double owed_changes, owed_repeats, owed_loads;
    unsigned load_at;
    _Atomic bool cut;
    bool paused;
    unsigned repeat_at; /* whose turn it is to say the same again */
    struct rng rng;
    bool stopping;
};

const char *fleet_status_name(Pb__Status status) {
    return status == PB__STATUS__PASSING ? "passing" : status == PB__STATUS__WARNING ? "warning" : "critical";
}

/* Of our own definitions and configuration: nothing else is at fault. */
static void die(const struct fault *fault) {
    fprintf(stderr, "agents: %s\n", fault->text);
    exit(1);
}

static struct fleet_agent *agent_at(struct fleet_loop *at, unsigned number) {
    return &at->fleet->agents[at->first + number * at->fleet->config.threads];
}

static bool is_watched(const struct fleet_agent *agent) { return agent->number < agent->loop->fleet->config.watched; }

/* -- what the checks say ------------------------------------------------------------------------------------------ */
static void report(struct fleet_agent *agent, const struct fleet_check *check) {
    char output[64];
    int size = snprintf(output, sizeof output, "change %llu", (unsigned long long)check->number);
    struct fault fault = {0};
    CHECK(local_check_update(agent->local, slice_text(check->id), check->status, slice_make(output, (size_t)size),
                             &fault) == CO_OK);
}

static void change_one(struct fleet_loop *at) {
    static const Pb__Status others[] = {PB__STATUS__PASSING, PB__STATUS__WARNING, PB__STATUS__CRITICAL};
    struct fleet *fleet = at->fleet;
    struct fleet_agent *agent = agent_at(at, (unsigned)rng_below(&at->rng, at->count));
    struct fleet_check *check = &agent->checks[rng_below(&at->rng, fleet->config.checks)];
    Pb__Status status = check->status;
    while (status == check->status) status = others[rng_below(&at->rng, ARRAY_COUNT(others))];
    uv_mutex_lock(&agent->lock);
    if (check->changed_ns) atomic_fetch_add(&fleet->overtaken, 1);
    check->status = status;
    check->number++;
    if (is_watched(agent)) check->changed_ns = clock_mono_ns();
    report(agent, check);
    uv_mutex_unlock(&agent->lock);
    atomic_fetch_add(&fleet->changes, 1);
}

static void repeat_one(struct fleet_loop *at) {
    unsigned number = at->repeat_at++, checks = at->fleet->config.checks;
    struct fleet_agent *agent = agent_at(at, number / checks % at->count);
    report(agent, &agent->checks[number % checks]);
}

static void report_load(struct fleet_loop *at) {
    unsigned number = at->load_at++, services = at->fleet->config.services;
    struct fleet_agent *agent = agent_at(at, number % at->count);
    struct load_hint hint = load_unknown();
    char id[48];
    snprintf(id, sizeof id, "sim-%u-%u", agent->number, number / at->count % services);
    hint.load = rng_unit(&at->rng), hint.inflight = (double)rng_below(&at->rng, 20);
    CHECK(local_service_load(agent->local, slice_text(id), &hint) == CO_OK);
}

static void work(struct fleet_loop *at) {
    const struct fleet_config *config = &at->fleet->config;
    uint64_t now_ns = clock_mono_ns();
    double seconds = (double)(now_ns - at->last_ns) / 1e9;
    at->last_ns = now_ns;
    if (seconds > 1) seconds = 1; /* this process stood still */
    at->owed_changes += seconds * atomic_load(&at->rate) / 60;
    if (config->repeat_s) at->owed_repeats += seconds * at->count * config->checks / config->repeat_s;
    if (config->services) at->owed_loads += seconds * at->count * config->loads;
    for (; at->owed_loads >= 1; at->owed_loads--) report_load(at);
    for (; at->owed_changes >= 1; at->owed_changes--) change_one(at);
    for (; at->owed_repeats >= 1; at->owed_repeats--) repeat_one(at);
}

/* -- an agent ----------------------------------------------------------------------------------------------------- */
static void register_service(struct fleet_agent *agent, unsigned number) {
    const struct fleet_config *config = &agent->loop->fleet->config;
    char text[400];
    struct fault fault = {0};
    snprintf(
        text, sizeof text,
        "{\"Name\":\"sim-%u\",\"ID\":\"sim-%u-%u\",\"Port\":%u,\"Tags\":[\"v1\",\"sim\"],\"Meta\":{\"zone\":\"z%u\"}}",
        (agent->number * config->services + number) % config->names, agent->number, number, 20000 + number,
        agent->number % 3);
    struct json_object *json = json_parse(slice_text(text), &fault);
    struct service_definition *definition = json ? service_definition_parse(json, &fault) : NULL;
    if (!definition) die(&fault);
    json_object_put(json);
    CHECK(local_service_register(agent->local, definition, false, false, &fault) == CO_OK);
}

static void register_check(struct fleet_agent *agent, unsigned number) {
    const struct fleet_config *config = &agent->loop->fleet->config;
    struct fleet_check *check = &agent->checks[number];
    char text[400], service[80] = "";
    struct fault fault = {0};
    snprintf(check->id, sizeof check->id, "c-%u-%u", agent->number, number);
    check->status = PB__STATUS__PASSING;
    if (config->services)
        snprintf(service, sizeof service, ",\"ServiceID\":\"sim-%u-%u\"", agent->number, number % config->services);
    snprintf(text, sizeof text, "{\"Name\":\"check %u\",\"CheckID\":\"%s\",\"TTL\":\"1h\",\"Status\":\"passing\"%s}",
             number, check->id, service);
    struct json_object *json = json_parse(slice_text(text), &fault);
    struct check_definition *definition = json ? check_definition_parse(json, &fault) : NULL;
    if (!definition) die(&fault);
    json_object_put(json);
    CHECK(local_check_register(agent->local, definition, false, &fault) == CO_OK);
    report(agent, check);
}

static void wait_for_change(struct fleet_agent *agent, uint64_t index);

static void on_waited(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched) {
    if (error == CO_CLOSED) return;
    wait_for_change(CONTAINER_OF(fetch, struct fleet_agent, wait), error == CO_OK ? fetched->index : 1);
}

static void wait_for_change(struct fleet_agent *agent, uint64_t index) {
    Pb__NodeRequest request = PB__NODE_REQUEST__INIT;
    request.node = "nobody";
    agent->wait = (struct rpc_fetch){
        .type = &query_node_services, .freshness = RPC_STALE, .index = index, .wait_ms = WAIT_MS, .done = on_waited};
    rpc_fetch(agent->rpc, &agent->wait, &request.base);
}

static void agent_begin(struct fleet_loop *at, struct fleet_agent *agent) {
    const struct fleet_config *config = &at->fleet->config;
    char address[32];
    snprintf(address, sizeof address, "10.%u.%u.%u", 100 + agent->number / 65536 % 100, agent->number / 256 % 256,
             agent->number % 256);
    struct rpc_client_config client = {.cluster = config->datacenter,
                                       .node_name = agent->node,
                                       .address = address,
                                       .node_id = agent->node_id,
                                       .modules = agent_modules,
                                       .port = SERVER_PORT,
                                       .join = config->servers,
                                       .no_coordinates = !config->coordinates};
    struct fault fault = {0};
    if (at->fleet->identities) agent->security = identities_make(at->fleet->identities, agent->node);
    client.security = agent->security;
    agent->rpc = rpc_client_start(&at->loop, &client);
    Pb__Node node = PB__NODE__INIT;
    node.name = agent->node, node.id = agent->node_id, node.address = address,
    node.datacenter = (char *)config->datacenter;
    struct local_config local = {.node = agent->node,
                                 .node_id = agent->node_id,
                                 .address = address,
                                 .datacenter = config->datacenter,
                                 .node_record = &node,
                                 .version = "1",
                                 .lease_ttl_ns = config->lease_ttl_ns};
    if (local_start(&at->loop, &local, agent->rpc, &agent->local, &fault) != CO_OK) die(&fault);
    if (config->waiting) wait_for_change(agent, 0);
    for (unsigned i = 0; i < config->services; i++) register_service(agent, i);
    for (unsigned i = 0; i < config->checks; i++) register_check(agent, i);
    atomic_fetch_add(&at->fleet->started, 1);
}

/* -- a loop ------------------------------------------------------------------------------------------------------- */
static void pause_all(struct fleet_loop *at, bool paused) {
    at->paused = paused;
    for (unsigned i = 0; i < at->begun; i++) rpc_client_pause(agent_at(at, i)->rpc, paused);
}

static void on_turn(uv_timer_t *timer) {
    struct fleet_loop *at = timer->data;
    if (at->paused) pause_all(at, false);
    if (atomic_exchange(&at->cut, false)) pause_all(at, true);
    for (unsigned i = 0; i < STARTS_A_TURN && at->begun < at->count; i++) agent_begin(at, agent_at(at, at->begun++));
    if (at->begun == at->count && at->count > 0 && at->fleet->config.checks > 0) work(at);
}

static void on_rpc_closed(void *data) { (void)data; }

static void on_local_closed(void *data) {
    struct fleet_agent *agent = data;
    rpc_client_stop(agent->rpc, on_rpc_closed, agent);
}

static void on_stop(uv_async_t *stop) {
    struct fleet_loop *at = stop->data;
    uv_close((uv_handle_t *)&at->timer, NULL);
    uv_close((uv_handle_t *)&at->stop, NULL);
    for (unsigned i = 0; i < at->begun; i++) local_stop(agent_at(at, i)->local, on_local_closed, agent_at(at, i));
}

static void *loop_main(void *data) {
    struct fleet_loop *at = data;
    uv_run(&at->loop, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&at->loop) == 0);
    return NULL;
}

static void loop_start(struct fleet *fleet, unsigned number) {
    struct fleet_loop *at = &fleet->loops[number];
    at->fleet = fleet, at->first = number;
    rng_seed(&at->rng, number + 1);
    at->last_ns = clock_mono_ns();
    for (unsigned i = number; i < fleet->config.agents; i += fleet->config.threads) {
        fleet->agents[i].loop = at;
        at->count++;
    }
    CHECK(uv_loop_init(&at->loop) == 0 && uv_timer_init(&at->loop, &at->timer) == 0 &&
          uv_async_init(&at->loop, &at->stop, on_stop) == 0);
    at->timer.data = at->stop.data = at;
    uv_timer_start(&at->timer, on_turn, 0, TURN_MS);
    CHECK(pthread_create(&at->thread, NULL, loop_main, at) == 0);
}

/* -- all of them -------------------------------------------------------------------------------------------------- */
struct fleet *fleet_start(const struct fleet_config *config) {
    struct fleet *fleet = mem_zalloc(sizeof *fleet);
    fleet->config = *config;
    fleet->identities = config->tls ? identities_open(config->tls, config->datacenter) : NULL;
    fleet->loops = mem_zalloc(config->threads * sizeof *fleet->loops);
    fleet->agents = mem_zalloc((config->agents + 1) * sizeof *fleet->agents);
    for (unsigned i = 0; i < config->agents; i++) {
        struct fleet_agent *agent = &fleet->agents[i];
        uint8_t bytes[16];
        agent->number = i;
        snprintf(agent->node, sizeof agent->node, "%s-%u", config->prefix, i);
        random_bytes(bytes, sizeof bytes);
        uuid_format(bytes, agent->node_id);
        agent->checks = mem_zalloc((config->checks + 1) * sizeof *agent->checks);
        CHECK(uv_mutex_init(&agent->lock) == 0);
    }
    for (unsigned i = 0; i < config->threads; i++) loop_start(fleet, i);
    return fleet;
}

unsigned fleet_synced(struct fleet *fleet) {
    unsigned synced = 0;
    if (atomic_load(&fleet->started) < fleet->config.agents) return 0;
    for (unsigned i = 0; i < fleet->config.agents; i++) synced += local_synced(fleet->agents[i].local);
    return synced;
}

unsigned fleet_connected(struct fleet *fleet) {
    unsigned connected = 0;
    if (atomic_load(&fleet->started) < fleet->config.agents) return 0;
    for (unsigned i = 0; i < fleet->config.agents; i++) connected += rpc_known_leader(fleet->agents[i].rpc);
    return connected;
}

void fleet_cut(struct fleet *fleet) {
    for (unsigned i = 0; i < fleet->config.threads; i++) atomic_store(&fleet->loops[i].cut, true);
}

void fleet_rate(struct fleet *fleet, unsigned changes_per_minute) {
    for (unsigned i = 0; i < fleet->config.threads; i++)
        atomic_store(&fleet->loops[i].rate, changes_per_minute * fleet->loops[i].count / fleet->config.agents);
}

void fleet_stop(struct fleet *fleet) {
    for (unsigned i = 0; i < fleet->config.threads; i++) uv_async_send(&fleet->loops[i].stop);
    for (unsigned i = 0; i < fleet->config.threads; i++) pthread_join(fleet->loops[i].thread, NULL);
    for (unsigned i = 0; i < fleet->config.agents; i++) {
        uv_mutex_destroy(&fleet->agents[i].lock);
        security_free(fleet->agents[i].security);
        free(fleet->agents[i].checks);
    }
    identities_close(fleet->identities);
    free(fleet->loops);
    free(fleet->agents);
    free(fleet);
}
