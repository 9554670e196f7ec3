#include "agent/agent.h"

#include <arpa/inet.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/access_run.h"
#include "agent/agent_tokens.h"
#include "agent/announce.h"
#include "agent/certificates.h"
#include "agent/cluster_identity.h"
#include "agent/cmd.h"
#include "agent/control.h"
#include "agent/definitions.h"
#include "agent/enrolled.h"
#include "agent/first_token.h"
#include "agent/flags.h"
#include "agent/identity.h"
#include "agent/leaving.h"
#include "agent/modules.h"
#include "agent/outputs.h"
#include "agent/protection.h"
#include "agent/serving.h"
#include "base/check.h"
#include "base/log.h"
#include "dns/dns.h"
#include "health/local.h"
#include "http/server.h"
#include "kv/event/event.h"
#include "kv/keys/kv.h"
#include "lb/coordinate.h"
#include "multi-dc/links_run.h"
#include "registry/catalog.h"
#include "registry/lease.h"
#include "registry/undiscoverable.h"
#include "rpc/client/client.h"
#include "rpc/quota/spender_run.h"
#include "rpc/server/server.h"

#define TIDY_FIRST_MS 15000
#define TIDY_MS       300000

struct agent {
    struct config config;
    struct identity identity;
    uv_loop_t loop;
    uv_signal_t interrupt, terminate, hangup;
    uv_timer_t tidy;
    int argc;
    char **argv;
    struct acts *acts;
    uv_work_t stop_work;
    struct rpc *rpc;
    struct links *links; /* NULL: no other process can reach this one (-dev), or it is a client agent */
    struct local *local;
    struct spender_run *spender_run;
    struct certificates *certificates; /* of HTTPS and DNS over TLS; NULL: neither */
    struct security *security;
    struct authority *authority;
    struct protection *protection;
    struct cluster_identity_config cluster_identity_config;
    struct cluster_identity *cluster_identity;
    struct certificate_watch *certificate_watch;
    struct access_run *access;   /* NULL: there is no access control */
    struct agent_tokens *tokens; /* likewise */
    struct http_server *http;
    struct dns_server *dns;
    Pb__Node *node;
    struct arena arena;
    struct leaving *leaving; /* NULL: the agent does not leave */
    bool stopping;
    int exit_code;
};

/* -- parts, started in this order and stopped in reverse ---------------------------------------------------------- */
static struct coordinates_config coordinates_settings(const struct config *c) {
    return (struct coordinates_config){.disabled = c->disable_coordinates,
                                       .interval_ms = (uint64_t)c->coordinate_interval_ns / 1000000,
                                       .batch = {.period_ms = (uint64_t)c->coordinate_period_ns / 1000000,
                                                 .size = (unsigned)c->coordinate_batch_size,
                                                 .commands = (unsigned)c->coordinate_batches}};
}

#define ADDRESS_TEXT 96
/* The address at which others reach this server. */
static void server_address(const struct agent *agent, char address[ADDRESS_TEXT]) {
    bool v6 = strchr(agent->identity.address, ':') != NULL;
    snprintf(address, ADDRESS_TEXT, v6 ? "[%s]:%lld" : "%s:%lld", agent->identity.address,
             (long long)agent->config.server_port);
}

static void start_links(struct agent *agent) {
    const struct config *c = &agent->config;
    char address[ADDRESS_TEXT];
    if (c->server) links_init();
    if (!c->server || c->dev || c->server_port <= 0) return;
    server_address(agent, address);
    struct links_config config = {.own = agent->rpc,
                                  .region = c->datacenter,
                                  .node_name = agent->identity.node_name,
                                  .node_id = agent->identity.node_id,
                                  .address = address,
                                  .bind = c->bind_addr,
                                  .port = (uint16_t)c->server_port,
                                  .join = c->retry_join_wan.items,
                                  .join_interval_ms = (uint64_t)c->retry_interval_wan_ns / 1000000,
                                  .hold_ms = (uint64_t)c->rpc_hold_timeout_ns / 1000000,
                                  .failover_return_ms = (uint64_t)c->failover_return_ns / 1000000,
                                  .modules = agent_modules,
                                  .security = agent->security};
    agent->links = links_start(&agent->loop, &config);
}

static struct write_limit_config write_limit_settings(const struct config *c) {
    bool limited = c->cluster_write_rate > 0 && strcmp(c->request_limits_mode, "disabled") != 0;
    return (struct write_limit_config){.rate = limited ? (uint64_t)c->cluster_write_rate : 0,
                                       .permissive = strcmp(c->request_limits_mode, "permissive") == 0};
}

/* `first`: the secret of `coord init`'s token; NULL: another one is configured, or none. */
static int start_server_with(struct agent *agent, const char *first, struct fault *fault) {
    const struct config *c = &agent->config;
    char address[ADDRESS_TEXT];
    server_address(agent, address);
    struct rpc_server_config config = {
        .folder = agent->identity.data_dir,
        .address = address,
        .expect = c->bootstrap ? 1 : (uint32_t)c->bootstrap_expect,
        .bind = c->bind_addr,
        .port = c->dev || c->server_port < 0 ? 0 : (uint16_t)c->server_port,
        .cluster = c->datacenter,
        .node_name = agent->identity.node_name,
        .build = COORD_VERSION,
        .join = c->retry_join.items,
        .raft_multiplier = (uint32_t)c->raft_multiplier,
        .map_bytes = c->store_map_bytes,
        .reserve_step_bytes = c->store_reserve_bytes,
        .snapshot_log_bytes = c->snapshot_log_bytes,
        .snapshot_rate = c->snapshot_rate,
        .scrub_interval_ms = (uint64_t)c->scrub_interval_ns / 1000000,
        .coordinates = coordinates_settings(c),
        .slow_start_ns = (uint64_t)c->slow_start_ns,
        .modules = agent_modules_configured(c, &agent->arena),
        .security = agent->security,
        .authority = agent->authority,
        .acl = {c->acl_enabled, c->acl_default_policy, first ? first : c->acl_token_initial, first != NULL},
        .dns_domain = c->domain,
        .certificate_life_s = ENROLLED_LIFE_S,
        .write_limit = write_limit_settings(c)};
    return rpc_server_start(&agent->loop, &config, &agent->rpc, fault);
}

static int start_server(struct agent *agent, struct fault *fault) {
    const struct config *c = &agent->config;
    struct buffer first = {0};
    bool wanted = c->acl_enabled && !c->acl_token_initial;
    int rv = wanted ? first_token_read(agent->identity.data_dir, &first, fault) : CO_NOTFOUND;
    if (rv == CO_OK || rv == CO_NOTFOUND) rv = start_server_with(agent, first.data, fault);
    tls_wipe(&first);
    return rv;
}

/* The file with the servers that were known last, for an agent whose configuration names none. */
static const char *known_file(struct agent *agent) {
    return arena_printf(&agent->arena, "%s/servers", agent->identity.data_dir);
}

static void start_client(struct agent *agent) {
    const struct config *c = &agent->config;
    struct rpc_client_config config = {.cluster = c->datacenter,
                                       .node_name = agent->identity.node_name,
                                       .address = agent->identity.address,
                                       .node_id = agent->identity.node_id,
                                       .bind = c->bind_addr,
                                       .port = c->server_port > 0 ? (uint16_t)c->server_port : 8300,
                                       .join = c->retry_join.items,
                                       .known = known_file(agent),
                                       .no_coordinates = c->disable_coordinates,
                                       .coordinate_interval_ms = (uint64_t)c->coordinate_interval_ns / 1000000,
                                       .slow_start_ns = (uint64_t)c->slow_start_ns,
                                       .modules = agent_modules,
                                       .security = agent->security};
    agent->rpc = rpc_client_start(&agent->loop, &config);
}

/* Before anything is dialled or listens: how this node protects its connections. */
static int start_security(struct agent *agent, struct fault *fault) {
    const struct config *c = &agent->config;
    bool any = strcmp(c->bind_addr, "0.0.0.0") == 0 || strcmp(c->bind_addr, "::") == 0;
    agent->security = security_new();
    agent->authority = authority_new();
    agent->cluster_identity_config =
        (struct cluster_identity_config){.data_dir = agent->identity.data_dir,
                                         .node = agent->identity.node_name,
                                         .datacenter = c->datacenter,
                                         .bind = any ? NULL : c->bind_addr,
                                         .address = agent->identity.address,
                                         .port = c->server_port > 0 ? (uint16_t)c->server_port : 8300,
                                         .spread_s = c->renewal_spread_ns / 1000000000,
                                         .server = c->server,
                                         .authority = agent->authority,
                                         .security = agent->security};
    int rv = cluster_identity_load(&agent->cluster_identity_config, fault);
    if (rv == CO_OK)
        rv = protection_open(&agent->loop, c, agent->identity.data_dir, agent->security, &agent->protection, fault);
    return rv;
}

static void start_cluster_identity(struct agent *agent) {
    agent->cluster_identity = cluster_identity_start(&agent->loop, agent->rpc, &agent->cluster_identity_config);
    protection_start(agent->protection, agent->rpc);
}

static int start_rpc(struct agent *agent, struct fault *fault) {
    int rv = CO_OK;
    kv_key_list_policy = agent->config.acl_key_list_policy;
    if (agent->config.server) rv = start_server(agent, fault);
    else start_client(agent);
    if (rv == CO_OK)
        agent->access = access_run_start(&agent->loop, agent->rpc, &agent->config, agent->identity.node_name);
    if (!agent->access) return rv;
    struct agent_tokens_config tokens = {.config = &agent->config,
                                         .data_dir = agent->identity.temporary ? NULL : agent->identity.data_dir,
                                         .security = agent->security,
                                         .use = access_run_token,
                                         .data = agent->access};
    return agent_tokens_start(&tokens, &agent->tokens, fault);
}

static Pb__TaggedAddress *tagged(struct agent *agent, const char *name) {
    Pb__TaggedAddress *address = arena_alloc(&agent->arena, sizeof *address);
    *address = (Pb__TaggedAddress)PB__TAGGED_ADDRESS__INIT;
    address->name = (char *)name, address->address = agent->identity.address;
    return address;
}

static Pb__Node *node_record(struct agent *agent) {
    Pb__Node *node = arena_alloc(&agent->arena, sizeof *node);
    *node = (Pb__Node)PB__NODE__INIT;
    node->name = agent->identity.node_name, node->id = agent->identity.node_id;
    node->address = agent->identity.address, node->datacenter = (char *)agent->config.datacenter;
    node->version = (char *)COORD_VERSION;
    bool v6 = strchr(agent->identity.address, ':') != NULL;
    node->tagged_addresses = arena_alloc(&agent->arena, 4 * sizeof *node->tagged_addresses);
    node->tagged_addresses[node->n_tagged_addresses++] = tagged(agent, "lan");
    node->tagged_addresses[node->n_tagged_addresses++] = tagged(agent, v6 ? "lan_ipv6" : "lan_ipv4");
    node->tagged_addresses[node->n_tagged_addresses++] = tagged(agent, "wan");
    node->tagged_addresses[node->n_tagged_addresses++] = tagged(agent, v6 ? "wan_ipv6" : "wan_ipv4");
    const struct config_pairs *meta = &agent->config.node_meta;
    node->meta = arena_alloc(&agent->arena, (meta->count + 1) * sizeof *node->meta);
    for (size_t i = 0; i <= meta->count; i++) {
        Pb__Pair *pair = node->meta[node->n_meta++] = arena_alloc(&agent->arena, sizeof *pair);
        *pair = (Pb__Pair)PB__PAIR__INIT;
        /* Consul's agents carry this key; some of its clients print it */
        pair->key = (char *)(i ? meta->items[i - 1].name : "consul-network-segment");
        pair->value = (char *)(i ? meta->items[i - 1].value : "");
    }
    return node;
}

/* Definitions from configuration files. */
static int register_blocks(struct agent *agent, struct fault *fault) {
    for (size_t i = 0; i < agent->config.services.count; i++) {
        const struct config_block *block = &agent->config.services.items[i];
        struct fault inner = {0};
        struct service_definition *definition = service_definition_parse(block->json, &inner);
        int rv = definition ? local_service_register(agent->local, definition, true, false, &inner) : CO_INVALID;
        if (rv != CO_OK) return fault_set(fault, rv, "%s: %s: %s", block->file, block->key, inner.text);
    }
    for (size_t i = 0; i < agent->config.checks.count; i++) {
        const struct config_block *block = &agent->config.checks.items[i];
        struct fault inner = {0};
        struct check_definition *definition = check_definition_parse(block->json, &inner);
        int rv = definition ? local_check_register(agent->local, definition, false, &inner) : CO_INVALID;
        if (rv != CO_OK) return fault_set(fault, rv, "%s: %s: %s", block->file, block->key, inner.text);
    }
    return CO_OK;
}

static void local_changed(void *data) { spender_run_health_changed(((struct agent *)data)->spender_run); }

static int start_local(struct agent *agent, struct fault *fault) {
    agent->node = node_record(agent);
    struct local_config config = {
        .node = agent->identity.node_name,
        .node_id = agent->identity.node_id,
        .address = agent->identity.address,
        .datacenter = agent->config.datacenter,
        .node_record = agent->node,
        .folder = agent->identity.temporary ? NULL : agent->identity.data_dir,
        .output_limit = (uint32_t)agent->config.check_output_max_size,
        .is_server = agent->config.server,
        .server_port =
            (uint16_t)(agent->config.server && agent->config.server_port > 0 ? agent->config.server_port : 0),
        .version = COORD_VERSION,
        .consul_version = agent->config.consul_version,
        .lease_ttl_ns = agent->config.node_lease_ttl_ns,
        .reconnect_timeout_ns = agent->config.reconnect_timeout_ns,
        .check_update_interval_ns = agent->config.check_update_interval_ns,
        .permission = config_check_permission(&agent->config),
        .flap_limit = (uint32_t)agent->config.check_flap_limit,
        .flap_window_ns = agent->config.check_flap_window_ns,
        .changed = local_changed,
        .changed_data = agent};
    int rv = local_start(&agent->loop, &config, agent->rpc, &agent->local, fault);
    return rv == CO_OK ? register_blocks(agent, fault) : rv;
}

static bool service_passes(void *data, const char *service) {
    return local_service_passes(((struct agent *)data)->local, slice_text(service));
}

static void start_spending(struct agent *agent) {
    struct spender_run_config config = {.node = agent->identity.node_name,
                                        .priority = (uint32_t)agent->config.quota_priority,
                                        .passes = service_passes,
                                        .passes_data = agent};
    agent->spender_run = spender_run_start(&agent->loop, agent->rpc, &config);
}

static int start_http(struct agent *agent, struct fault *fault) {
    int rv = certificates_start(&agent->loop, &agent->config, agent->identity.data_dir, &agent->certificates, fault);
    if (rv != CO_OK) return rv;
    struct certificate_watch_config watch = {.config = &agent->config,
                                             .node = agent->identity.node_name,
                                             .security = agent->security,
                                             .certificates = agent->certificates,
                                             .rpc_certificates = protection_certificates(agent->protection),
                                             .cluster_identity = agent->cluster_identity,
                                             .local = agent->local};
    agent->certificate_watch = certificate_watch_start(&agent->loop, &watch);
    struct serving serving = {.config = &agent->config,
                              .identity = &agent->identity,
                              .rpc = agent->rpc,
                              .local = agent->local,
                              .spender_run = agent->spender_run,
                              .acts = agent->acts,
                              .tokens = agent->tokens,
                              .watch = agent->certificate_watch,
                              .tls = certificates_https(agent->certificates)};
    return serving_start(&serving, &agent->http, fault);
}

/* Starts the watches, which ask this agent's own API. */
static void start_watches(struct agent *agent) {
    char address[SERVING_ADDRESS];
    if (serving_own_address(&agent->config, agent->http, address)) acts_watch(agent->acts, address);
}

static int start_dns(struct agent *agent, struct fault *fault) {
    const struct config *c = &agent->config;
    if (c->dns_port < 0 && c->dns_tls_port < 0) return CO_OK;
    struct dns_service_ttl *ttls = arena_zalloc(&agent->arena, (c->service_ttl_count + 1) * sizeof *ttls);
    for (size_t i = 0; i < c->service_ttl_count; i++)
        ttls[i] = (struct dns_service_ttl){c->service_ttls[i].name, c->service_ttls[i].ttl_ns};
    struct dns_config config = {.addresses = c->dns_addresses.items,
                                .port = c->dns_port > 0 ? (uint16_t)c->dns_port : 0,
                                .tls_only = c->dns_port < 0,
                                .tls = c->dns_tls_port < 0 ? NULL : certificates_https(agent->certificates),
                                .tls_port = c->dns_tls_port > 0 ? (uint16_t)c->dns_tls_port : 0,
                                .domain = c->domain,
                                .alt_domain = c->alt_domain,
                                .datacenter = c->datacenter,
                                .node_name = agent->identity.node_name,
                                .workers = (unsigned)c->dns_workers,
                                .only_passing = c->only_passing,
                                .stale = c->dns_allow_stale,
                                .udp_answer_limit = (unsigned)c->udp_answer_limit,
                                .a_record_limit = (unsigned)c->a_record_limit,
                                .node_ttl_ns = c->node_ttl_ns,
                                .service_ttls = ttls,
                                .service_ttl_count = c->service_ttl_count,
                                .soa_refresh = (uint32_t)c->soa_refresh,
                                .soa_retry = (uint32_t)c->soa_retry,
                                .soa_expire = (uint32_t)c->soa_expire,
                                .soa_min_ttl = (uint32_t)c->soa_min_ttl,
                                .tcp_connections_max = (unsigned)c->dns_tcp_connections_max};
    return dns_start(&config, agent->rpc, &agent->dns, fault);
}

/* -- stopping ----------------------------------------------------------------------------------------------------- */
static void rpc_stopped(void *data) { (void)data; }

static void stop_rpc(struct agent *agent) {
    access_run_stop(agent->access);
    if (agent->config.server) rpc_server_stop(agent->rpc, rpc_stopped, agent);
    else rpc_client_stop(agent->rpc, rpc_stopped, agent);
}

static void links_stopped(void *data) {
    struct agent *agent = data;
    agent->links = NULL;
    stop_rpc(agent);
}

static void stop_links(struct agent *agent) { links_stop(agent->links, links_stopped, agent); }

static void local_stopped(void *data) {
    struct agent *agent = data;
    agent->local = NULL;
    stop_links(agent);
}

static void acts_stopped(void *data) {
    struct agent *agent = data;
    agent->acts = NULL;
    if (agent->local) local_stop(agent->local, local_stopped, agent);
    else if (agent->rpc) stop_links(agent);
}

static void spender_run_stopped(void *data) {
    struct agent *agent = data;
    agent->spender_run = NULL;
    acts_stop(agent->acts, acts_stopped, agent);
}

static void protection_stopped(void *data) {
    struct agent *agent = data;
    spender_run_stop(agent->spender_run, spender_run_stopped, agent);
}

static void cluster_identity_stopped(void *data) {
    struct agent *agent = data;
    agent->cluster_identity = NULL;
    protection_stop(agent->protection, protection_stopped, agent);
}

static void certificates_stopped(void *data) {
    struct agent *agent = data;
    cluster_identity_stop(agent->cluster_identity, cluster_identity_stopped, agent);
}

static void certificate_watch_stopped(void *data) {
    struct agent *agent = data;
    agent->certificate_watch = NULL;
    certificates_stop(agent->certificates, certificates_stopped, agent);
}

static void http_stopped(uv_work_t *work, int status) {
    struct agent *agent = work->data;
    (void)status;
    certificate_watch_stop(agent->certificate_watch, certificate_watch_stopped, agent);
}

/* Runs in the thread pool, because the loop has to go on meanwhile: writes under way are answered with their
 * outcome. */
static void stop_http(uv_work_t *work) {
    struct agent *agent = work->data;
    acts_unwatch(agent->acts);
    http_stop(agent->http);
}

static void stop(struct agent *agent) {
    if (agent->stopping) return;
    agent->stopping = true;
    leaving_forget(agent->leaving);
    agent->leaving = NULL;
    uv_close((uv_handle_t *)&agent->interrupt, NULL);
    uv_close((uv_handle_t *)&agent->terminate, NULL);
    uv_close((uv_handle_t *)&agent->hangup, NULL);
    uv_close((uv_handle_t *)&agent->tidy, NULL);
    dns_stop(agent->dns);
    acts_hurry(agent->acts);
    spender_run_hurry(agent->spender_run);
    agent->stop_work.data = agent;
    CHECK(uv_queue_work(&agent->loop, &agent->stop_work, stop_http, http_stopped) == 0);
}

static void left(void *data, bool stays, const struct fault *fault, const char *note) {
    struct agent *agent = data;
    agent->leaving = NULL;
    if (fault->code) log_warn("agent", "%s", fault->text);
    else log_info("agent", "left: everybody knows it%s%s", note[0] ? ". " : "", note);
    acts_left(agent->acts, fault, note);
    if (stays) return;
    if (!agent->config.server && !agent->config.rejoin_after_leave) unlink(known_file(agent));
    stop(agent);
}

static void leave(struct agent *agent, bool must) {
    if (agent->leaving) return;
    if (!agent->local) {
        stop(agent);
        return;
    }
    const struct config *c = &agent->config;
    char *address = arena_alloc(&agent->arena, ADDRESS_TEXT);
    server_address(agent, address);
    bool among_others = c->server && !c->dev && c->server_port > 0;
    struct leaving_config config = {.arena = &agent->arena,
                                    .rpc = agent->rpc,
                                    .local = agent->local,
                                    .spender_run = agent->spender_run,
                                    .address = among_others ? address : NULL,
                                    .must = must,
                                    .done = left,
                                    .data = agent};
    agent->leaving = leaving_begin(&config);
}

static void leave_asked(void *data) { leave(data, false); }

/* The first signal may make the agent leave; a second one stops it without waiting for that. */
static void on_signal(uv_signal_t *handle, int number) {
    struct agent *agent = handle->data;
    const struct config *c = &agent->config;
    bool wanted =
        !agent->leaving && !agent->stopping && (number == SIGINT ? !c->skip_leave_on_interrupt : c->leave_on_terminate);
    log_info("agent", "%s signal=%s", wanted ? "leaving" : "stopping", number == SIGINT ? "SIGINT" : "SIGTERM");
    if (wanted) leave(agent, true);
    else stop(agent);
}

static void on_hangup(uv_signal_t *handle, int number) {
    struct agent *agent = handle->data;
    (void)number;
    log_info("agent", "reading the configuration again signal=SIGHUP");
    if (agent->cluster_identity) cluster_identity_look(agent->cluster_identity);
    if (agent->acts) acts_reload(agent->acts);
}

static void reloaded(void *data, const struct config *config) {
    struct agent *agent = data;
    certificates_reload(agent->certificates, config);
    protection_reload(agent->protection, config);
}

static void on_tidy(uv_timer_t *timer) {
    (void)timer;
    mem_release_code();
}

static int start_acts(struct agent *agent) {
    struct acts_config config = {.loop = &agent->loop,
                                 .rpc = agent->rpc,
                                 .local = agent->local,
                                 .links = agent->links,
                                 .config = &agent->config,
                                 .argc = agent->argc,
                                 .argv = agent->argv,
                                 .leave = leave_asked,
                                 .reloaded = reloaded,
                                 .data = agent};
    agent->acts = acts_new(&config);
    return CO_OK;
}

/* -- life --------------------------------------------------------------------------------------------------------- */
/* After an error the rest is read nevertheless, so that all errors are reported. */
static int read_config(struct agent *agent, int argc, char **argv, bool *help, struct fault *fault) {
    struct config *c = &agent->config;
    config_init(c);
    int rv = flags_parse(argc, argv, c, help, fault);
    if (*help) return CO_OK;
    int rest = config_finish(c, fault);
    if (rv == CO_OK) rv = rest;
    rest = definitions_check(c, fault);
    if (rv == CO_OK) rv = rest;
    if (rv == CO_OK) log_level_now = log_level_parse(slice_text(c->log_level));
    return rv;
}

static void prepare_process(struct agent *agent) {
    signal(SIGPIPE, SIG_IGN);
    mallopt(M_MMAP_THRESHOLD, 1 << 20); /* large answers go back to the system when they are sent */
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) files.rlim_cur = files.rlim_max, setrlimit(RLIMIT_NOFILE, &files);
    CHECK(uv_loop_init(&agent->loop) == 0);
    uv_signal_init(&agent->loop, &agent->interrupt);
    uv_signal_init(&agent->loop, &agent->terminate);
    uv_signal_init(&agent->loop, &agent->hangup);
    uv_timer_init(&agent->loop, &agent->tidy);
    agent->interrupt.data = agent->terminate.data = agent->hangup.data = agent;
    uv_signal_start(&agent->hangup, on_hangup, SIGHUP);
    uv_signal_start(&agent->interrupt, on_signal, SIGINT);
    uv_signal_start(&agent->terminate, on_signal, SIGTERM);
}

/* A client agent is one of many processes on its host, so it gives unused memory back to the system. */
static void start_tidying(struct agent *agent) {
    if (!agent->config.server) uv_timer_start(&agent->tidy, on_tidy, TIDY_FIRST_MS, TIDY_MS);
}

static int start_parts(struct agent *agent, struct fault *fault) {
    undiscoverable_domains(agent->config.domain, agent->config.alt_domain, agent->config.datacenter);
    start_tidying(agent);
    int rv = start_security(agent, fault);
    if (rv == CO_OK) rv = start_rpc(agent, fault);
    if (rv == CO_OK) start_cluster_identity(agent);
    if (rv == CO_OK) start_links(agent);
    if (rv == CO_OK) rv = start_local(agent, fault);
    if (rv == CO_OK) start_spending(agent);
    if (rv == CO_OK) rv = start_acts(agent);
    if (rv == CO_OK) rv = start_http(agent, fault);
    if (rv == CO_OK) start_watches(agent);
    if (rv == CO_OK) rv = start_dns(agent, fault);
    return rv;
}

static void print_usage(void) {
    struct buffer text = {0};
    flags_usage(&text);
    fwrite(text.data, 1, text.size, stdout);
    buffer_free(&text);
}

/* Before anything runs: prints help, or the errors of the command line and the configuration. Returns false when the
 * program ends with that. */
static bool ready_to_run(struct agent *agent, int argc, char **argv) {
    const struct config *c = &agent->config;
    struct fault fault = {0}, guard = {0};
    bool help = false;
    int rv = read_config(agent, argc, argv, &help, &fault);
    if (help) {
        print_usage();
        return false;
    }
    config_errors_print(c, "coord agent: ", stderr);
    bool protects = config_require_protection(c, &guard) == CO_OK;
    if (!protects) config_guards_print(c, stderr);
    if (rv == CO_OK && protects) {
        rv = identity_open(c, &agent->identity, &fault);
        if (rv == CO_OK && (rv = outputs_open(c, &fault)) != CO_OK) identity_close(&agent->identity);
        if (rv == CO_OK) return true;
        fprintf(stderr, "coord agent: %s\n", fault.text);
        agent->exit_code = cmd_exit_of(&fault);
    } else {
        agent->exit_code = CMD_EXIT_MISTAKE;
    }
    return false;
}

static int agent_free(struct agent *agent) {
    int code = agent->exit_code;
    agent_tokens_free(agent->tokens);
    access_run_free(agent->access);
    arena_free(&agent->arena);
    config_free(&agent->config);
    free(agent);
    return code;
}

static bool wants_version(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-version") == 0 || strcmp(argv[i], "--version") == 0) return true;
    return false;
}

int agent_main(int argc, char **argv) {
    if (wants_version(argc, argv)) {
        puts("coord v" COORD_VERSION);
        return 0;
    }
    struct agent *agent = mem_zalloc(sizeof *agent);
    agent->argc = argc, agent->argv = argv;
    if (!ready_to_run(agent, argc, argv)) return agent_free(agent);
    struct fault fault = {0};
    int rv;
    prepare_process(agent);
    announce_build(&agent->config);
    rv = start_parts(agent, &fault);
    if (rv == CO_OK)
        announce_agent(&agent->config, agent->security, &agent->identity, agent->node, agent->http, agent->dns);
    else {
        log_error("agent", "cannot start: %s", fault.text);
        agent->exit_code = CMD_EXIT_REFUSED;
        stop(agent);
    }
    uv_run(&agent->loop, UV_RUN_DEFAULT);
    uv_loop_close(&agent->loop);
    certificates_free(agent->certificates);
    protection_free(agent->protection);
    security_free(agent->security);
    authority_free(agent->authority);
    identity_close(&agent->identity);
    if (rv == CO_OK) log_info("agent", "stopped");
    outputs_close(&agent->config);
    return agent_free(agent);
}
