/* Every key of a configuration file: first those with an effect, then those that are known without one yet. */
#include <stddef.h>
#include <stdio.h>
#include <strings.h>

#include "agent/config_internal.h"
#include "base/check.h"
#include "base/text.h"
#include "health/flap.h"
#include "lb/coordinate_batch.h"

/* A value is one log entry; what does not fit into a few of the log's batches is no configuration value. With all
 * that goes with it, it has to fit into one frame between servers (rpc/wire/link.h: 16 MiB). */
#define KV_VALUE_MOST ((uint64_t)8 << 20)

#define FIELD(path, kind, member) \
    { path, kind, offsetof(struct config, member), 0, UINT64_MAX, NULL, false, NULL, NULL }
#define BOOL(path, member) FIELD(path, KEY_BOOL, member)
#define TEXT(path, member, accept) \
    { path, KEY_TEXT, offsetof(struct config, member), 0, UINT64_MAX, accept, false, NULL, NULL }
#define NUMBER(path, member, least, most) \
    { path, KEY_NUMBER, offsetof(struct config, member), least, most, NULL, false, NULL, NULL }
/* As IDLE, but the value is kept. */
#define KEPT(path, kind, member, most) \
    { path, kind, offsetof(struct config, member), 0, most, NULL, true, NULL, NULL }
#define IDLE(path, kind) \
    { path, kind, NO_FIELD, 0, INT64_MAX, NULL, false, NULL, NULL }
/* As IDLE, but who writes true, a port or a text (GUARD_UNLESS: any text but this) counts on being protected. A key that protects
 * only together with another of these needs no mark of its own: encrypt_verify_incoming, acl.down_policy. */
#define GUARD(path, kind, guard) \
    { path, kind, NO_FIELD, 0, INT64_MAX, NULL, false, guard, NULL }
#define GUARD_UNLESS(path, kind, guard, text) \
    { path, kind, NO_FIELD, 0, INT64_MAX, NULL, false, guard, text }
#define ACCESS "access control"
#define TLS    "TLS"

static const struct key keys[] = {
    BOOL("bootstrap", bootstrap),
    NUMBER("bootstrap_expect", bootstrap_expect, 0, 15),
    BOOL("server", server),
    TEXT("node_name", node_name, accept_node_name),
    TEXT("node_id", node_id, accept_uuid),
    FIELD("node_meta", KEY_MAP, node_meta),
    TEXT("datacenter", datacenter, accept_datacenter),
    TEXT("data_dir", data_dir, accept_not_empty),
    TEXT("bind_addr", bind_addr, accept_ip),
    TEXT("advertise_addr", advertise_addr, accept_own_ip),
    TEXT("client_addr", client_addr, accept_client_ips),
    TEXT("addresses.http", http_addr, accept_no_client_ips),
    TEXT("addresses.dns", dns_addr, accept_no_client_ips),
    FIELD("ports.http", KEY_PORT, http_port),
    FIELD("ports.dns", KEY_PORT, dns_port),
    FIELD("ports.server", KEY_PORT, server_port),
    FIELD("start_join", KEY_TEXTS, start_join),
    FIELD("retry_join", KEY_TEXTS, retry_join),
    KEPT("retry_interval", KEY_DURATION, retry_interval_ns, UINT64_MAX),
    KEPT("retry_max", KEY_NUMBER, retry_max, 1000000000),
    TEXT("domain", domain, accept_domain),
    TEXT("alt_domain", alt_domain, accept_no_domain),
    FIELD("dns_config.node_ttl", KEY_DURATION, node_ttl_ns),
    FIELD("dns_config.service_ttl", KEY_TTLS, service_ttls),
    NUMBER("dns_config.udp_answer_limit", udp_answer_limit, 0, 65535),
    NUMBER("dns_config.a_record_limit", a_record_limit, 0, 65535),
    KEPT("dns_config.enable_truncate", KEY_BOOL, dns_enable_truncate, UINT64_MAX),
    BOOL("dns_config.only_passing", only_passing),
    BOOL("dns_config.allow_stale", dns_allow_stale),
    KEPT("dns_config.max_stale", KEY_DURATION, dns_max_stale_ns, UINT64_MAX),
    NUMBER("dns_config.soa.refresh", soa_refresh, 0, INT32_MAX),
    NUMBER("dns_config.soa.retry", soa_retry, 0, INT32_MAX),
    NUMBER("dns_config.soa.expire", soa_expire, 0, INT32_MAX),
    NUMBER("dns_config.soa.min_ttl", soa_min_ttl, 0, INT32_MAX),
    KEPT("recursors", KEY_TEXTS, recursors, UINT64_MAX),
    NUMBER("limits.http_max_conns_per_client", http_max_conns_per_client, 0, 1000000000),
    NUMBER("limits.kv_max_value_size", kv_max_value_size, 1, KV_VALUE_MOST),
    FIELD("session_ttl_min", KEY_DURATION, session_ttl_min_ns),
    FIELD("default_query_time", KEY_DURATION, default_query_time_ns),
    FIELD("max_query_time", KEY_DURATION, max_query_time_ns),
    KEPT("performance.leave_drain_time", KEY_DURATION, leave_drain_time_ns, UINT64_MAX),
    KEPT("performance.rpc_hold_timeout", KEY_DURATION, rpc_hold_timeout_ns, UINT64_MAX),
    NUMBER("performance.raft_multiplier", raft_multiplier, 0, 10),
    FIELD("performance.scrub_interval", KEY_DURATION, scrub_interval_ns),
    FIELD("reconnect_timeout", KEY_DURATION, reconnect_timeout_ns),
    BOOL("leave_on_terminate", leave_on_terminate),
    BOOL("rejoin_after_leave", rejoin_after_leave),
    BOOL("skip_leave_on_interrupt", skip_leave_on_interrupt),
    FIELD("service", KEY_BLOCK, services),
    FIELD("services", KEY_BLOCKS, services),
    FIELD("check", KEY_BLOCK, checks),
    FIELD("checks", KEY_BLOCKS, checks),
    FIELD("watches", KEY_BLOCKS, watches),
    BOOL("enable_script_checks", enable_script_checks),
    BOOL("enable_local_script_checks", enable_local_script_checks),
    NUMBER("check_output_max_size", check_output_max_size, 1, (1 << 20)),
    KEPT("discard_check_output", KEY_BOOL, discard_check_output, UINT64_MAX),
    FIELD("check_update_interval", KEY_DURATION, check_update_interval_ns),
    BOOL("disable_coordinates", disable_coordinates),
    FIELD("sync_coordinate_interval_min", KEY_DURATION, coordinate_interval_ns),
    FIELD("consul.coordinate.update_period", KEY_DURATION, coordinate_period_ns),
    NUMBER("consul.coordinate.update_batch_size", coordinate_batch_size, 0, COORDINATE_BATCH_SIZE_MAX),
    NUMBER("consul.coordinate.update_max_batches", coordinate_batches, 0, COORDINATE_BATCH_COMMANDS_MAX),
    NUMBER("coord.check_flap_limit", check_flap_limit, 0, FLAP_LIMIT_MOST),
    FIELD("coord.check_flap_window", KEY_DURATION, check_flap_window_ns),
    FIELD("coord.reconnect_timeouts", KEY_MAP, reconnect_timeouts),
    FIELD("coord.node_lease_ttl", KEY_DURATION, node_lease_ttl_ns),
    TEXT("log_level", log_level, accept_level),
    BOOL("disable_update_check", disable_update_check),
    NUMBER("coord.self_preservation_percent", self_preservation_percent, 1, 100),
    NUMBER("coord.self_preservation_instances", self_preservation_instances, 1, 1000000000),
    NUMBER("coord.self_preservation_nodes", self_preservation_nodes, 1, 1000000000),
    FIELD("coord.self_preservation_window", KEY_DURATION, self_preservation_window_ns),
    FIELD("coord.self_preservation_hold", KEY_DURATION, self_preservation_hold_ns),
    TEXT("coord.consul_version", consul_version, accept_version),
    NUMBER("coord.http_workers", http_workers, 0, 64),
    NUMBER("coord.http_shards", http_shards, 0, 1024),
    NUMBER("coord.http_connection_memory", http_connection_memory, 0, (1 << 20)),
    NUMBER("coord.http_connections_max", http_connections_max, 0, 10000000),
    NUMBER("coord.http_body_max", http_body_max, 0, KV_VALUE_MOST),
    NUMBER("coord.http_header_max", http_header_max, 0, (1 << 20)),
    FIELD("coord.http_idle_timeout", KEY_DURATION, http_idle_timeout_ns),
    NUMBER("coord.http_watches_max", http_watches_max, 0, 10000000),
    NUMBER("coord.http_cache_bytes", http_cache_bytes, 0, (1L << 40)),
    NUMBER("coord.dns_workers", dns_workers, 0, 64),
    NUMBER("coord.dns_tcp_connections_max", dns_tcp_connections_max, 0, 100000),
    NUMBER("coord.store_map_bytes", store_map_bytes, 0, (1L << 44)),
    NUMBER("coord.store_reserve_bytes", store_reserve_bytes, 0, (1L << 34)),
    NUMBER("coord.snapshot_log_bytes", snapshot_log_bytes, 0, (1L << 40)),
    NUMBER("coord.snapshot_rate", snapshot_rate, 0, (1L << 40)),

    /* BOOL */
    IDLE("acl.enable_key_list_policy", KEY_BOOL),
    IDLE("acl.enable_token_persistence", KEY_BOOL),
    GUARD("acl.enable_token_replication", KEY_BOOL, ACCESS),
    GUARD("acl.enabled", KEY_BOOL, ACCESS),
    IDLE("acl.msp_disable_bootstrap", KEY_BOOL),
    IDLE("acl_enable_key_list_policy", KEY_BOOL),
    IDLE("acl_enforce_version_8", KEY_BOOL),
    GUARD("audit.enabled", KEY_BOOL, "an audit log"),
    GUARD("auto_config.authorization.enabled", KEY_BOOL, "TLS and access control"),
    IDLE("auto_config.authorization.static.allow_reuse", KEY_BOOL),
    GUARD("auto_config.enabled", KEY_BOOL, "TLS and access control"),
    GUARD("auto_encrypt.allow_tls", KEY_BOOL, TLS),
    GUARD("auto_encrypt.tls", KEY_BOOL, TLS),
    IDLE("autopilot.cleanup_dead_servers", KEY_BOOL),
    IDLE("autopilot.disable_upgrade_migration", KEY_BOOL),
    IDLE("connect.enable_mesh_gateway_wan_federation", KEY_BOOL),
    IDLE("connect.enabled", KEY_BOOL),
    IDLE("disable_anonymous_signature", KEY_BOOL),
    IDLE("disable_host_node_id", KEY_BOOL),
    IDLE("disable_http_unprintable_char_filter", KEY_BOOL),
    IDLE("disable_keyring_file", KEY_BOOL),
    IDLE("disable_remote_exec", KEY_BOOL),
    IDLE("dns_config.disable_compression", KEY_BOOL),
    IDLE("dns_config.enable_additional_node_meta_txt", KEY_BOOL),
    IDLE("dns_config.prefer_namespace", KEY_BOOL),
    IDLE("dns_config.use_cache", KEY_BOOL),
    GUARD("enable_acl_replication", KEY_BOOL, ACCESS),
    IDLE("enable_agent_tls_for_checks", KEY_BOOL),
    IDLE("enable_central_service_config", KEY_BOOL),
    IDLE("enable_debug", KEY_BOOL),
    IDLE("enable_syslog", KEY_BOOL),
    IDLE("encrypt_verify_incoming", KEY_BOOL),
    IDLE("encrypt_verify_outgoing", KEY_BOOL),
    IDLE("http_config.use_cache", KEY_BOOL),
    IDLE("log_json", KEY_BOOL),
    IDLE("non_voting_server", KEY_BOOL),
    IDLE("reap", KEY_BOOL),
    IDLE("segments.[].rpc_listener", KEY_BOOL),
    IDLE("telemetry.disable_hostname", KEY_BOOL),
    IDLE("telemetry.filter_default", KEY_BOOL),
    IDLE("tls_prefer_server_cipher_suites", KEY_BOOL),
    IDLE("translate_wan_addrs", KEY_BOOL),
    IDLE("ui", KEY_BOOL),
    GUARD("verify_incoming", KEY_BOOL, TLS),
    GUARD("verify_incoming_https", KEY_BOOL, TLS),
    GUARD("verify_incoming_rpc", KEY_BOOL, TLS),
    GUARD("verify_outgoing", KEY_BOOL, TLS),
    GUARD("verify_server_hostname", KEY_BOOL, TLS),
    /* NUMBER */
    IDLE("autopilot.max_trailing_logs", KEY_NUMBER),
    IDLE("autopilot.min_quorum", KEY_NUMBER),
    IDLE("cache.entry_fetch_max_burst", KEY_NUMBER),
    IDLE("gossip_lan.gossip_nodes", KEY_NUMBER),
    IDLE("gossip_lan.retransmit_mult", KEY_NUMBER),
    IDLE("gossip_lan.suspicion_mult", KEY_NUMBER),
    IDLE("gossip_wan.gossip_nodes", KEY_NUMBER),
    IDLE("gossip_wan.retransmit_mult", KEY_NUMBER),
    IDLE("gossip_wan.suspicion_mult", KEY_NUMBER),
    IDLE("limits.rpc_max_burst", KEY_NUMBER),
    IDLE("limits.rpc_max_conns_per_client", KEY_NUMBER),
    IDLE("limits.txn_max_req_len", KEY_NUMBER),
    IDLE("log_rotate_bytes", KEY_NUMBER),
    IDLE("log_rotate_max_files", KEY_NUMBER),
    IDLE("protocol", KEY_NUMBER),
    IDLE("raft_protocol", KEY_NUMBER),
    IDLE("raft_snapshot_threshold", KEY_NUMBER),
    IDLE("raft_trailing_logs", KEY_NUMBER),
    IDLE("retry_max_wan", KEY_NUMBER),
    IDLE("segment_limit", KEY_NUMBER),
    IDLE("segment_name_limit", KEY_NUMBER),
    /* REAL */
    IDLE("cache.entry_fetch_rate", KEY_REAL),
    IDLE("cache.entry_fetch_rate_limit", KEY_REAL),
    IDLE("limits.rpc_rate", KEY_REAL),
    IDLE("sync_coordinate_rate_target", KEY_REAL),
    /* PORT */
    IDLE("ports.expose_max_port", KEY_PORT),
    IDLE("ports.expose_min_port", KEY_PORT),
    IDLE("ports.grpc", KEY_PORT),
    GUARD("ports.https", KEY_PORT, TLS),
    IDLE("ports.proxy_max_port", KEY_PORT),
    IDLE("ports.proxy_min_port", KEY_PORT),
    IDLE("ports.serf_lan", KEY_PORT),
    IDLE("ports.serf_wan", KEY_PORT),
    IDLE("ports.sidecar_max_port", KEY_PORT),
    IDLE("ports.sidecar_min_port", KEY_PORT),
    IDLE("segments.[].port", KEY_PORT),
    /* DURATION */
    IDLE("acl.disabled_ttl", KEY_DURATION),
    IDLE("acl.policy_ttl", KEY_DURATION),
    IDLE("acl.role_ttl", KEY_DURATION),
    IDLE("acl.token_ttl", KEY_DURATION),
    IDLE("acl_disabled_ttl", KEY_DURATION),
    IDLE("acl_ttl", KEY_DURATION),
    IDLE("ae_interval", KEY_DURATION),
    IDLE("auto_config.authorization.static.clock_skew_leeway", KEY_DURATION),
    IDLE("auto_config.authorization.static.expiration_leeway", KEY_DURATION),
    IDLE("auto_config.authorization.static.not_before_leeway", KEY_DURATION),
    IDLE("autopilot.last_contact_threshold", KEY_DURATION),
    IDLE("autopilot.server_stabilization_time", KEY_DURATION),
    IDLE("check_deregister_interval_min", KEY_DURATION),
    IDLE("check_reap_interval", KEY_DURATION),
    IDLE("connect.test_ca_leaf_root_change_spread", KEY_DURATION),
    IDLE("consul.raft.election_timeout", KEY_DURATION),
    IDLE("consul.raft.heartbeat_timeout", KEY_DURATION),
    IDLE("consul.raft.leader_lease_timeout", KEY_DURATION),
    IDLE("consul.server.health_interval", KEY_DURATION),
    IDLE("discovery_max_stale", KEY_DURATION),
    IDLE("dns_config.cache_max_age", KEY_DURATION),
    IDLE("dns_config.recursor_timeout", KEY_DURATION),
    IDLE("gossip_lan.gossip_interval", KEY_DURATION),
    IDLE("gossip_lan.probe_interval", KEY_DURATION),
    IDLE("gossip_lan.probe_timeout", KEY_DURATION),
    IDLE("gossip_wan.gossip_interval", KEY_DURATION),
    IDLE("gossip_wan.probe_interval", KEY_DURATION),
    IDLE("gossip_wan.probe_timeout", KEY_DURATION),
    IDLE("limits.https_handshake_timeout", KEY_DURATION),
    IDLE("limits.rpc_handshake_timeout", KEY_DURATION),
    IDLE("log_rotate_duration", KEY_DURATION),
    IDLE("primary_gateways_interval", KEY_DURATION),
    IDLE("raft_snapshot_interval", KEY_DURATION),
    IDLE("reconnect_timeout_wan", KEY_DURATION),
    IDLE("retry_interval_wan", KEY_DURATION),
    IDLE("telemetry.circonus_submission_interval", KEY_DURATION),
    IDLE("telemetry.prometheus_retention_time", KEY_DURATION),
    /* TEXT */
    GUARD_UNLESS("acl.default_policy", KEY_TEXT, ACCESS, "allow"),
    IDLE("acl.down_policy", KEY_TEXT),
    GUARD("acl.tokens.agent", KEY_TEXT, ACCESS),
    GUARD("acl.tokens.agent_master", KEY_TEXT, ACCESS),
    GUARD("acl.tokens.default", KEY_TEXT, ACCESS),
    GUARD("acl.tokens.managed_service_provider.[].accessor_id", KEY_TEXT, ACCESS),
    GUARD("acl.tokens.managed_service_provider.[].secret_id", KEY_TEXT, ACCESS),
    GUARD("acl.tokens.master", KEY_TEXT, ACCESS),
    GUARD("acl.tokens.replication", KEY_TEXT, ACCESS),
    GUARD("acl_agent_master_token", KEY_TEXT, ACCESS),
    GUARD("acl_agent_token", KEY_TEXT, ACCESS),
    GUARD("acl_datacenter", KEY_TEXT, ACCESS),
    GUARD_UNLESS("acl_default_policy", KEY_TEXT, ACCESS, "allow"),
    IDLE("acl_down_policy", KEY_TEXT),
    GUARD("acl_master_token", KEY_TEXT, ACCESS),
    GUARD("acl_replication_token", KEY_TEXT, ACCESS),
    GUARD("acl_token", KEY_TEXT, ACCESS),
    IDLE("addresses.grpc", KEY_TEXT),
    IDLE("addresses.https", KEY_TEXT),
    IDLE("advertise_addr_ipv4", KEY_TEXT),
    IDLE("advertise_addr_ipv6", KEY_TEXT),
    IDLE("advertise_addr_wan", KEY_TEXT),
    IDLE("advertise_addr_wan_ipv4", KEY_TEXT),
    IDLE("advertise_addr_wan_ipv6", KEY_TEXT),
    IDLE("auto_config.authorization.static.bound_issuer", KEY_TEXT),
    IDLE("auto_config.authorization.static.jwks_ca_cert", KEY_TEXT),
    IDLE("auto_config.authorization.static.jwks_url", KEY_TEXT),
    IDLE("auto_config.authorization.static.oidc_discovery_ca_cert", KEY_TEXT),
    IDLE("auto_config.authorization.static.oidc_discovery_url", KEY_TEXT),
    IDLE("auto_config.intro_token", KEY_TEXT),
    IDLE("auto_config.intro_token_file", KEY_TEXT),
    IDLE("autopilot.redundancy_zone_tag", KEY_TEXT),
    IDLE("autopilot.upgrade_version_tag", KEY_TEXT),
    GUARD("ca_file", KEY_TEXT, TLS),
    GUARD("ca_path", KEY_TEXT, TLS),
    GUARD("cert_file", KEY_TEXT, TLS),
    IDLE("connect.ca_provider", KEY_TEXT),
    GUARD("encrypt", KEY_TEXT, "encryption between agents"),
    GUARD("key_file", KEY_TEXT, TLS),
    IDLE("log_file", KEY_TEXT),
    IDLE("pid_file", KEY_TEXT),
    IDLE("primary_datacenter", KEY_TEXT),
    IDLE("revision", KEY_TEXT),
    IDLE("segment", KEY_TEXT),
    IDLE("segments.[].advertise", KEY_TEXT),
    IDLE("segments.[].bind", KEY_TEXT),
    IDLE("segments.[].name", KEY_TEXT),
    IDLE("serf_lan", KEY_TEXT),
    IDLE("serf_wan", KEY_TEXT),
    IDLE("server_name", KEY_TEXT),
    IDLE("syslog_facility", KEY_TEXT),
    IDLE("telemetry.circonus_api_app", KEY_TEXT),
    IDLE("telemetry.circonus_api_token", KEY_TEXT),
    IDLE("telemetry.circonus_api_url", KEY_TEXT),
    IDLE("telemetry.circonus_broker_id", KEY_TEXT),
    IDLE("telemetry.circonus_broker_select_tag", KEY_TEXT),
    IDLE("telemetry.circonus_check_display_name", KEY_TEXT),
    IDLE("telemetry.circonus_check_force_metric_activation", KEY_TEXT),
    IDLE("telemetry.circonus_check_id", KEY_TEXT),
    IDLE("telemetry.circonus_check_instance_id", KEY_TEXT),
    IDLE("telemetry.circonus_check_search_tag", KEY_TEXT),
    IDLE("telemetry.circonus_check_tags", KEY_TEXT),
    IDLE("telemetry.circonus_submission_url", KEY_TEXT),
    IDLE("telemetry.dogstatsd_addr", KEY_TEXT),
    IDLE("telemetry.metrics_prefix", KEY_TEXT),
    IDLE("telemetry.statsd_address", KEY_TEXT),
    IDLE("telemetry.statsite_address", KEY_TEXT),
    IDLE("tls_cipher_suites", KEY_TEXT),
    IDLE("tls_min_version", KEY_TEXT),
    IDLE("ui_content_path", KEY_TEXT),
    IDLE("ui_dir", KEY_TEXT),
    IDLE("unix_sockets.group", KEY_TEXT),
    IDLE("unix_sockets.mode", KEY_TEXT),
    IDLE("unix_sockets.user", KEY_TEXT),
    IDLE("version", KEY_TEXT),
    IDLE("version_prerelease", KEY_TEXT),
    /* TEXTS */
    IDLE("auto_config.authorization.static.bound_audiences", KEY_TEXTS),
    IDLE("auto_config.authorization.static.claim_assertions", KEY_TEXTS),
    IDLE("auto_config.authorization.static.jwt_supported_algs", KEY_TEXTS),
    IDLE("auto_config.authorization.static.jwt_validation_pub_keys", KEY_TEXTS),
    IDLE("auto_config.dns_sans", KEY_TEXTS),
    IDLE("auto_config.ip_sans", KEY_TEXTS),
    IDLE("auto_config.server_addresses", KEY_TEXTS),
    IDLE("auto_encrypt.dns_san", KEY_TEXTS),
    IDLE("auto_encrypt.ip_san", KEY_TEXTS),
    GUARD("http_config.allow_write_http_from", KEY_TEXTS, "a limit on who may write"),
    GUARD("http_config.block_endpoints", KEY_TEXTS, "blocking of endpoints"),
    IDLE("primary_gateways", KEY_TEXTS),
    IDLE("retry_join_wan", KEY_TEXTS),
    GUARD("serf_lan_allowed_cidrs", KEY_TEXTS, "a limit on who may join"),
    IDLE("serf_wan_allowed_cidrs", KEY_TEXTS),
    IDLE("start_join_wan", KEY_TEXTS),
    IDLE("telemetry.dogstatsd_tags", KEY_TEXTS),
    IDLE("telemetry.prefix_filter", KEY_TEXTS),
    /* MAP */
    IDLE("auto_config.authorization.static.claim_mappings", KEY_MAP),
    IDLE("auto_config.authorization.static.list_claim_mappings", KEY_MAP),
    IDLE("http_config.response_headers", KEY_MAP),
    IDLE("tagged_addresses", KEY_MAP),
    /* ANY */
    IDLE("audit.sink", KEY_ANY),
    IDLE("config_entries.bootstrap", KEY_ANY),
    IDLE("connect.ca_config", KEY_ANY),
    IDLE("snapshot_agent", KEY_ANY),
};

const struct key *key_find(const char *path) {
    for (size_t i = 0; i < ARRAY_COUNT(keys); i++) {
        if (strcasecmp(keys[i].path, path) == 0) return &keys[i];
    }
    return NULL;
}

enum key_folder key_folder(const char *path) {
    size_t size = strlen(path);
    for (size_t i = 0; i < ARRAY_COUNT(keys); i++) {
        if (strncasecmp(keys[i].path, path, size) != 0 || keys[i].path[size] != '.') continue;
        return keys[i].path[size + 1] == '[' ? FOLDER_ARRAY : FOLDER_OBJECT;
    }
    return FOLDER_NONE;
}

bool config_key_is_bool(const char *key) {
    const struct key *found = key_find(key);
    return found && found->kind == KEY_BOOL;
}

/* Judged by its last name, whatever the folder ("http_port" in the wrong place helps too), those of the same folder
 * before others. */
void key_nearest(const char *folder, const char *name, char *nearest, size_t room) {
    size_t prefix = strlen(folder);
    unsigned best = UINT32_MAX;
    for (size_t i = 0; i < ARRAY_COUNT(keys); i++) {
        const char *path = keys[i].path, *last = strrchr(path, '.');
        last = last ? last + 1 : path;
        unsigned distance = edit_distance(slice_text(name), slice_text(last)) * 2 + 3;
        size_t shown = strlen(path);
        if (strncasecmp(path, folder, prefix) == 0) {
            /* What stands next in this folder: the key itself, or a folder in it. */
            size_t here = strcspn(path + prefix, ".");
            unsigned near = edit_distance(slice_text(name), slice_make(path + prefix, here)) * 2;
            if (near <= distance) {
                distance = near;
                shown = prefix + here;
            }
        }
        if (distance >= best) continue;
        best = distance;
        snprintf(nearest, room, "%.*s", (int)shown, path);
    }
}
