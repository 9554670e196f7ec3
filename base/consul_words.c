#include "base/consul_words.h"

#define NO_ACCESS  "access control is as in Consul 1.8"
#define NO_TLS     "there is no TLS yet"
#define NO_MESH    "there is no service mesh"
#define NO_ENTRIES "there are no configuration entries"
#define ENTERPRISE "it is of Consul Enterprise"
#define NO_PEERING "regions are joined instead, see docs/regions.md"

const struct consul_word consul_words[] = {
    {CONSUL_COMMAND, "catalog", "ask the API: `curl localhost:8500/v1/catalog/services`"},
    {CONSUL_COMMAND, "config", NO_ENTRIES},
    {CONSUL_COMMAND, "connect", NO_MESH},
    {CONSUL_COMMAND, "debug", "see `coord info`, `coord monitor` and /v1/agent/metrics"},
    {CONSUL_COMMAND, "exec", "there is no remote execution"},
    {CONSUL_COMMAND, "intention", NO_MESH},
    {CONSUL_COMMAND, "license", ENTERPRISE},
    {CONSUL_COMMAND, "namespace", ENTERPRISE},
    {CONSUL_COMMAND, "operator area", ENTERPRISE},
    {CONSUL_COMMAND, "operator autopilot state", "see `coord operator autopilot health`"},
    {CONSUL_COMMAND, "operator usage", "see /v1/agent/metrics"},
    {CONSUL_COMMAND, "operator utilization", ENTERPRISE},
    {CONSUL_COMMAND, "partition", ENTERPRISE},
    {CONSUL_COMMAND, "peering", NO_PEERING},
    {CONSUL_COMMAND, "resource", "there are no such resources"},
    {CONSUL_COMMAND, "services",
     "register over the API (`curl -X PUT localhost:8500/v1/agent/service/register -d @web.json`), or in a file of "
     "the agent"},
    {CONSUL_COMMAND, "snapshot agent", "run `coord snapshot save` by a timer"},
    {CONSUL_COMMAND, "snapshot decode", "see `coord snapshot inspect`"},
    {CONSUL_COMMAND, "troubleshoot", NO_MESH},

    {CONSUL_AGENT_FLAG, "auto-reload-config", "send SIGHUP, or `coord reload`"},
    {CONSUL_AGENT_FLAG, "grpc-tls-port", NO_MESH},
    {CONSUL_AGENT_FLAG, "read-replica", ENTERPRISE},

    {CONSUL_CLIENT_FLAG, "namespace", ENTERPRISE},
    {CONSUL_CLIENT_FLAG, "partition", ENTERPRISE},

    {CONSUL_COMMAND_FLAG, "lock -child-exit-code", "the command's exit code is always handed on"},
    {CONSUL_COMMAND_FLAG, "lock -monitor-retry", "the lock is kept through a change of leader, up to its -ttl"},
    {CONSUL_COMMAND_FLAG, "lock -name", "say it with -note"},
    {CONSUL_COMMAND_FLAG, "lock -pass-stdin", "the command has standard input always"},
    {CONSUL_COMMAND_FLAG, "lock -shell", "write `-- sh -c LINE`"},
    {CONSUL_COMMAND_FLAG, "lock -timeout", "say it with -wait"},
    {CONSUL_COMMAND_FLAG, "lock -try", "say it with -wait"},
    {CONSUL_COMMAND_FLAG, "lock -verbose", "see `coord locks`"},
    {CONSUL_COMMAND_FLAG, "members -filter", "there are no filter expressions yet; see -status"},
    {CONSUL_COMMAND_FLAG, "members -segment", ENTERPRISE},
    {CONSUL_COMMAND_FLAG, "operator autopilot set-config -disable-upgrade-migration", ENTERPRISE},
    {CONSUL_COMMAND_FLAG, "operator autopilot set-config -redundancy-zone-tag", ENTERPRISE},
    {CONSUL_COMMAND_FLAG, "operator autopilot set-config -upgrade-version-tag", ENTERPRISE},
    {CONSUL_COMMAND_FLAG, "validate -config-format", "files are JSON"},

    /* Those of 1.8 are in the table of keys, with or without an effect. */
    {CONSUL_KEY, "acl.tokens.agent_recovery", NO_ACCESS},
    {CONSUL_KEY, "acl.tokens.config_file_service_registration", NO_ACCESS},
    {CONSUL_KEY, "acl.tokens.dns", NO_ACCESS},
    {CONSUL_KEY, "addresses.grpc_tls", NO_MESH},
    {CONSUL_KEY, "advertise_reconnect_timeout", "see coord.reconnect_timeouts and node_meta"},
    {CONSUL_KEY, "auto_reload_config", "send SIGHUP, or `coord reload`"},
    {CONSUL_KEY, "cloud", "there is no such service"},
    {CONSUL_KEY, "connect.enable_serverless_plugin", NO_MESH},
    {CONSUL_KEY, "connect.virtual_ip_cidr_v4", NO_MESH},
    {CONSUL_KEY, "connect.virtual_ip_cidr_v6", NO_MESH},
    {CONSUL_KEY, "default_intention_policy", NO_MESH},
    {CONSUL_KEY, "dns_config.recursor_strategy", "coord never recurses"},
    {CONSUL_KEY, "experiments", "there are none"},
    {CONSUL_KEY, "http_config.max_header_bytes", "see coord.http_header_max"},
    {CONSUL_KEY, "license_path", ENTERPRISE},
    {CONSUL_KEY, "limits.rpc_client_timeout", "there is no such limit"},
    {CONSUL_KEY, "locality", ENTERPRISE},
    {CONSUL_KEY, "partition", ENTERPRISE},
    {CONSUL_KEY, "peering", NO_PEERING},
    {CONSUL_KEY, "performance.grpc_keepalive_interval", NO_MESH},
    {CONSUL_KEY, "performance.grpc_keepalive_timeout", NO_MESH},
    {CONSUL_KEY, "ports.grpc_tls", NO_MESH},
    {CONSUL_KEY, "raft_boltdb", "the log is coord's own"},
    {CONSUL_KEY, "raft_logstore", "the log is coord's own"},
    {CONSUL_KEY, "read_replica", ENTERPRISE},
    {CONSUL_KEY, "reporting", ENTERPRISE},
    {CONSUL_KEY, "rpc", "streams are always there, see docs/streams.md"},
    {CONSUL_KEY, "server_rejoin_age_max", "there is no such age"},
    {CONSUL_KEY, "telemetry.disable_compat_1.9", "there are no such metrics; read /v1/agent/metrics"},
    {CONSUL_KEY, "telemetry.disable_per_tenancy_usage_metrics", "metrics are read, not sent"},
    {CONSUL_KEY, "telemetry.enable_host_metrics", "metrics are read, not sent"},
    {CONSUL_KEY, "telemetry.retry_failed_connection", "metrics are read, not sent"},
    {CONSUL_KEY, "ui_config", "there is no web interface"},
    {CONSUL_KEY, "use_streaming_backend", "blocking queries wake for their own answer alone, see docs/streams.md"},
    {CONSUL_KEY, "xds", NO_MESH},

    {CONSUL_PATH, "/ui", "there is no web interface"},
    {CONSUL_PATH, "/debug/pprof", "there are no profiles to read"},
    {CONSUL_PATH, "/v1/acl/oidc", "logins show a JWT, see /v1/acl/login"},
    {CONSUL_PATH, "/v1/acl/templated-policies", "see the identities of tokens, /v1/acl/token"},
    {CONSUL_PATH, "/v1/acl/templated-policy", "see the identities of tokens, /v1/acl/token"},
    {CONSUL_PATH, "/v1/agent/connect", NO_MESH},
    {CONSUL_PATH, "/v1/agent/host", "see the host's own tools"},
    {CONSUL_PATH, "/v1/agent/metrics/stream", "read /v1/agent/metrics"},
    {CONSUL_PATH, "/v1/agent/version", "see Config.Version in /v1/agent/self"},
    {CONSUL_PATH, "/v1/catalog/connect", NO_MESH},
    {CONSUL_PATH, "/v1/catalog/gateway-services", NO_MESH},
    {CONSUL_PATH, "/v1/config", NO_ENTRIES},
    {CONSUL_PATH, "/v1/connect", NO_MESH},
    {CONSUL_PATH, "/v1/discovery-chain", NO_MESH},
    {CONSUL_PATH, "/v1/exported-services", NO_PEERING},
    {CONSUL_PATH, "/v1/health/connect", NO_MESH},
    {CONSUL_PATH, "/v1/health/ingress", NO_MESH},
    {CONSUL_PATH, "/v1/imported-services", NO_PEERING},
    {CONSUL_PATH, "/v1/internal/federation-state", "each region is a cluster of its own, see docs/regions.md"},
    {CONSUL_PATH, "/v1/internal/federation-states", "each region is a cluster of its own, see docs/regions.md"},
    {CONSUL_PATH, "/v1/internal/service-virtual-ip", NO_MESH},
    {CONSUL_PATH, "/v1/internal/ui", "there is no web interface"},
    {CONSUL_PATH, "/v1/namespace", ENTERPRISE},
    {CONSUL_PATH, "/v1/namespaces", ENTERPRISE},
    {CONSUL_PATH, "/v1/operator/area", ENTERPRISE},
    {CONSUL_PATH, "/v1/operator/audit-hash", ENTERPRISE},
    {CONSUL_PATH, "/v1/operator/autopilot/state", "see /v1/operator/autopilot/health"},
    {CONSUL_PATH, "/v1/operator/license", ENTERPRISE},
    {CONSUL_PATH, "/v1/operator/segment", ENTERPRISE},
    {CONSUL_PATH, "/v1/operator/usage", "see /v1/agent/metrics"},
    {CONSUL_PATH, "/v1/operator/utilization", ENTERPRISE},
    {CONSUL_PATH, "/v1/partition", ENTERPRISE},
    {CONSUL_PATH, "/v1/partitions", ENTERPRISE},
    {CONSUL_PATH, "/v1/peering", NO_PEERING},
    {CONSUL_PATH, "/v1/peerings", NO_PEERING},
    {CONSUL_PATH, "/v1/query", "there are no prepared queries yet; services that fail over: docs/regions.md"},
    {0},
};

static bool is_or_is_below(const char *word, struct slice asked, char between) {
    struct slice known = slice_text(word);
    if (asked.size < known.size || !slice_equal_nocase(slice_make(asked.data, known.size), known)) return false;
    return asked.size == known.size || asked.data[known.size] == between;
}

const struct consul_word *consul_word_find(enum consul_kind kind, struct slice asked) {
    char between = kind == CONSUL_PATH ? '/' : kind == CONSUL_KEY ? '.' : '\0';
    for (const struct consul_word *at = consul_words; at->word; at++)
        if (at->kind == kind && (between ? is_or_is_below(at->word, asked, between) : slice_is(asked, at->word)))
            return at;
    return NULL;
}

void consul_word_print(struct buffer *out, const struct consul_word *word) {
    bool flag = word->kind == CONSUL_AGENT_FLAG || word->kind == CONSUL_CLIENT_FLAG;
    buffer_printf(out, "Consul's `%s%s`; coord does not have it: %s; see docs/divergence.md", flag ? "-" : "",
                  word->word, word->instead);
}
