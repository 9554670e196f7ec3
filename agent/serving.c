#include "agent/serving.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "agent/agent.h"
#include "agent/agent_tokens.h"
#include "agent/outputs.h"
#include "agent/self_config.h"

static enum http_down_policy down_policy(const struct config *config) {
    if (strcasecmp(config->acl_down_policy, "allow") == 0) return HTTP_DOWN_ALLOW;
    return strcasecmp(config->acl_down_policy, "deny") == 0 ? HTTP_DOWN_DENY : HTTP_DOWN_EXTEND;
}

int serving_start(const struct serving *serving, struct http_server **out, struct fault *fault) {
    const struct config *c = serving->config;
    *out = NULL;
    if (c->http_addresses.count + c->https_addresses.count == 0) return CO_OK;
    struct http_config config = {
        .addresses = c->http_addresses.items,
        .https_addresses = c->https_addresses.items,
        .port = c->http_port > 0 ? (uint16_t)c->http_port : 0,
        .https_port = c->https_port > 0 ? (uint16_t)c->https_port : 0,
        .socket_file = {.user = c->socket_user,
                        .group = c->socket_group,
                        .mode = c->socket_mode ? (unsigned)strtoul(c->socket_mode, NULL, 8) : 0},
        .tls = serving->tls,
        .certificates = c->tls_https.verify_incoming ? HTTP_CERTIFICATES_REQUIRED
                        : c->acl_enabled             ? HTTP_CERTIFICATES_ASKED /* for logins by certificate */
                                                     : HTTP_CERTIFICATES_UNASKED,
        .handshake_timeout_ms = (uint64_t)(c->https_handshake_timeout_ns / 1000000),
        .workers = (unsigned)c->http_workers,
        .shards = (unsigned)c->http_shards,
        .connection_memory = c->http_connection_memory,
        .header_max = c->http_header_max,
        .connections_per_address_max =
            c->http_max_conns_per_client ? (unsigned)c->http_max_conns_per_client : UINT32_MAX,
        .connections_max = (unsigned)c->http_connections_max,
        .limits_permissive = strcmp(c->request_limits_mode, "permissive") == 0,
        .body_max = c->http_body_max,
        .idle_timeout_ms = (uint64_t)(c->http_idle_timeout_ns / 1000000),
        .wait_default_ms = (uint64_t)(c->default_query_time_ns / 1000000),
        .wait_max_ms = (uint64_t)(c->max_query_time_ns / 1000000),
        .watches_max = c->http_watches_max,
        .cache_bytes = c->http_cache_bytes};
    bool limited = strcmp(c->request_limits_mode, "disabled") != 0;
    for (int i = 0; i < LIMITS; i++)
        config.limits.rates[i] = limited && c->limit_rates[i] > 0 ? (uint64_t)c->limit_rates[i] : 0;
    config.parked.permissive = config.limits_permissive;
    for (int i = 0; i < PARKED_LIMITS; i++)
        config.parked.most[i] = limited && c->parked_most[i] > 0 ? (uint64_t)c->parked_most[i] : 0;
    struct http_env env = {.rpc = serving->rpc,
                           .local = serving->local,
                           .config = c,
                           .datacenter = c->datacenter,
                           .node_name = serving->identity->node_name,
                           .node_id = serving->identity->node_id,
                           .version = COORD_VERSION,
                           .consul_version = c->consul_version,
                           .address = serving->identity->address,
                           .spool_folder = serving->identity->data_dir,
                           .is_server = c->server,
                           .no_coordinates = c->disable_coordinates,
                           .kv_value_max = c->kv_max_value_size,
                           .txn_body_max = c->txn_max_req_len,
                           .txn_ops_max = c->txn_max_operations,
                           .session_ttl_min_ns = c->session_ttl_min_ns,
                           .lock_waiters_max = c->lock_waiters_max,
                           .lock_session_max = c->lock_session_max,
                           .lock_note_max = c->lock_note_max,
                           .spender_run = serving->spender_run,
                           .quota_priority = c->quota_priority,
                           .token_ttl_ms = (uint64_t)c->acl_token_ttl_ns / 1000000,
                           .down_policy = down_policy(c),
                           .default_level = strcasecmp(c->acl_default_policy, "deny") == 0 ? ACCESS_DENY : ACCESS_WRITE,
                           .set_token = agent_tokens_set,
                           .own_rights = agent_tokens_own,
                           .set_token_data = serving->tokens,
                           .describe = self_config_write,
                           .self_config_data = (void *)(uintptr_t)c,
                           .protection = certificate_watch_protection,
                           .protection_data = serving->watch,
                           .audit = outputs_audit_log(),
                           .audit_reads = c->audit_enabled && c->audit_reads,
                           .act = acts_take,
                           .act_data = serving->acts};
    return http_start(&config, &env, out, fault);
}

bool serving_own_address(const struct config *config, const struct http_server *http, char address[SERVING_ADDRESS]) {
    if (!http || config->http_addresses.count == 0) return false;
    const char *first = config->http_addresses.items[0];
    if (strcmp(first, "0.0.0.0") == 0) first = "127.0.0.1";
    if (strcmp(first, "::") == 0) first = "::1";
    if (strncmp(first, "unix://", 7) == 0) snprintf(address, SERVING_ADDRESS, "%s", first);
    else snprintf(address, SERVING_ADDRESS, strchr(first, ':') ? "[%s]:%u" : "%s:%u", first, http_port(http));
    return true;
}
