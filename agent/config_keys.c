/* Every key of a configuration file: first those with an effect, then known ones that have none yet. */
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <strings.h>

#include "agent/config_internal.h"
#include "base/suggest.h"
#include "health/flap.h"
#include "kv/lock/lock_queue.h"
#include "kv/quota/quota.h"
#include "kv/txn/txn.h"
#include "lb/coordinate_batch.h"

/* A value is one log entry, which has to fit into a few batches of the log, and with its metadata into one frame
 * between servers (rpc/wire/link.h: 16 MiB). */
#define KV_VALUE_MOST ((uint64_t)8 << 20)
#define SECOND        UINT64_C(1000000000)

/* The last argument is the key's help for docs/reference.md: one line, without default and bounds, which it takes from
 * config_init and from here; for a key without effect it is the reason. A default that depends on something is written
 * here: "default: ...". */
#define FIELD(path, kind, member, help) \
    { path, kind, offsetof(struct config, member), 0, UINT64_MAX, NULL, false, NULL, NULL, help }
#define BOOL(path, member, help) FIELD(path, KEY_BOOL, member, help)
#define TEXT(path, member, accept, help) \
    { path, KEY_TEXT, offsetof(struct config, member), 0, UINT64_MAX, accept, false, NULL, NULL, help }
#define LIST(path, member, accept, help) \
    { path, KEY_TEXTS, offsetof(struct config, member), 0, UINT64_MAX, accept, false, NULL, NULL, help }
#define NUMBER(path, member, least, most, help) \
    { path, KEY_NUMBER, offsetof(struct config, member), least, most, NULL, false, NULL, NULL, help }
#define DURATION(path, member, least, most, help) \
    { path, KEY_DURATION, offsetof(struct config, member), least, most, NULL, false, NULL, NULL, help }
#define CERTIFICATE(path, member, help) TEXT(path, member, accept_any, help)
/* As IDLE, but the value is kept. */
#define KEPT(path, kind, member, most, help) \
    { path, kind, offsetof(struct config, member), 0, most, NULL, true, NULL, NULL, help }
#define IDLE(path, kind, help) \
    { path, kind, NO_FIELD, 0, INT64_MAX, NULL, false, NULL, NULL, help }
/* As IDLE, but the value true, a port or a text (GUARD_UNLESS: any text but this) asks for a protection. A key that
 * protects only together with another of these needs no mark of its own: encrypt_verify_incoming, acl.down_policy. */
#define GUARD(path, kind, guard) \
    { path, kind, NO_FIELD, 0, INT64_MAX, NULL, false, guard, NULL, "asks for " guard }
#define GUARD_UNLESS(path, kind, guard, text) \
    { path, kind, NO_FIELD, 0, INT64_MAX, NULL, false, guard, text, "asks for " guard ", unless it says " text }
#define REPLICATION    "copying tokens from another region"
#define ACL_DATACENTER "access control by acl_datacenter (see acl.enabled)"
#define PROVIDERS      "tokens of managed service providers"
#define AUTO_ENCRYPT                                                                                              \
    "handing out certificates to agents that show none (`coord join` brings them in by a token, `coord tls cert " \
    "create "                                                                                                     \
    "-client` makes certificates)"

/* The reasons why keys have no effect. */
#define NO_ACCESS     "verdicts depend on the servers' state, not on a time"
#define NO_AUTO       "hosts come in by `coord join-token` and `coord join`"
#define ONLY_13       "servers and agents among themselves always use TLS 1.3"
#define NO_SINKS      "coord's audit log has one target: audit.file or audit.socket"
#define NO_MESH       "there is no service mesh"
#define NO_GRPC       "no port for gRPC is opened, so there is nothing to protect"
#define NO_GOSSIP     "there is no gossip: leases say which nodes are alive"
#define ONE_ADDRESS   "a server has one address, for its own region and for others"
#define OWN_CLUSTERS  "each region is a cluster of its own"
#define NO_PUSH       "metrics are read from /v1/agent/metrics, not sent"
#define NO_SEGMENTS   "there are no network segments"
#define NO_UI         "there is no web interface"
#define AUTOPILOT     "set at run time: `coord operator autopilot set-config`"
#define NO_CACHE      "there is no such cache: reads are answered from the store"
#define SNAPSHOTS     "see coord.snapshot_log_bytes"
#define RAFT_TIMES    "see performance.raft_multiplier"
#define NO_RPC_LIMITS "there is no such limit"

const struct key config_keys[] = {
    BOOL("bootstrap", bootstrap, "found a cluster of this server alone"),
    NUMBER("bootstrap_expect", bootstrap_expect, 0, 15,
           "found the cluster when so many servers see each other; 0: be taken in by one"),
    BOOL("server", server, "be a server, not only a client agent"),
    TEXT("node_name", node_name, accept_node_name, "name of this node; default: the host's name"),
    TEXT("node_id", node_id, accept_uuid, "UUID of this node; default: made up once and kept in the data folder"),
    FIELD("node_meta", KEY_MAP, node_meta,
          "meta of the node; `reconnect_timeout` and `class` say how long it stays when it is dead"),
    TEXT("datacenter", datacenter, accept_datacenter, "name of the datacenter, which is the cluster's"),
    TEXT("data_dir", data_dir, accept_not_empty, "folder for all state; must be given, unless -dev is"),
    TEXT("bind_addr", bind_addr, accept_ip, "address that other servers and agents connect to"),
    TEXT("advertise_addr", advertise_addr, accept_own_ip,
         "address that others are told; default: bind_addr, or the host's first private address"),
    TEXT("client_addr", client_addr, accept_client_ips, "addresses for HTTP and DNS, blanks between"),
    TEXT("addresses.http", http_addr, accept_no_http_addresses,
         "addresses for HTTP alone, also unix:///path; default: client_addr"),
    TEXT("addresses.https", https_addr, accept_no_http_addresses,
         "addresses for HTTPS alone, also unix:///path; default: client_addr"),
    TEXT("addresses.dns", dns_addr, accept_no_client_ips, "addresses for DNS alone; default: client_addr"),
    FIELD("ports.http", KEY_PORT, http_port, "-1: off; 0: any free one"),
    FIELD("ports.https", KEY_PORT, https_port, "-1: off; 0: any free one"),
    FIELD("ports.dns", KEY_PORT, dns_port, "UDP and TCP; -1: off; 0: any free one"),
    FIELD("ports.dns_tls", KEY_PORT, dns_tls_port,
          "DNS over TLS, with the certificate of HTTPS, on the addresses of DNS; the standard port is 853; -1: off; 0: "
          "any "
          "free one"),
    FIELD("ports.server", KEY_PORT, server_port, "between servers and agents"),
    TEXT("unix_sockets.user", socket_user, accept_any,
         "owner of the files of Unix sockets, a name or a number; default: this process's"),
    TEXT("unix_sockets.group", socket_group, accept_any,
         "group of the files of Unix sockets, a name or a number; default: this process's"),
    TEXT("unix_sockets.mode", socket_mode, accept_mode, "mode of the files of Unix sockets; default: 0660"),
    CERTIFICATE("cert_file", tls_defaults.cert_file, "this agent's certificate and those above it, PEM"),
    CERTIFICATE("key_file", tls_defaults.key_file, "its key, PEM; nobody but the owner may read it"),
    CERTIFICATE("ca_file", tls_defaults.ca_file, "the CAs that are trusted, PEM"),
    CERTIFICATE("ca_path", tls_defaults.ca_path, "a folder of such files"),
    TEXT("tls_min_version", tls_defaults.min_version, accept_tls_version, "the lowest version of TLS; default: tls12"),
    TEXT("tls_cipher_suites", tls_defaults.cipher_suites, accept_any,
         "what is taken of TLS 1.2, by Consul's names, commas between; default: all that is good, AES-GCM first"),
    KEPT("tls_prefer_server_cipher_suites", KEY_BOOL, tls_prefer_server_cipher_suites, UINT64_MAX,
         "the server's order always counts"),
    BOOL("verify_incoming", tls_defaults.verify_incoming,
         "who connects to ports.server or ports.https needs a certificate of a CA of ca_file or ca_path"),
    BOOL("verify_incoming_rpc", verify_incoming_rpc, "the same, for ports.server alone"),
    BOOL("verify_incoming_https", verify_incoming_https, "the same, for HTTPS alone"),
    BOOL("verify_outgoing", tls_defaults.verify_outgoing,
         "servers are dialled by TLS, and need a certificate of a CA of ca_file or ca_path"),
    BOOL("verify_server_hostname", tls_defaults.verify_server_hostname,
         "servers need a certificate with the name server.DATACENTER.DOMAIN; includes verify_outgoing"),
    CERTIFICATE("tls.defaults.cert_file", tls_defaults.cert_file, "as cert_file"),
    CERTIFICATE("tls.defaults.key_file", tls_defaults.key_file, "as key_file"),
    CERTIFICATE("tls.defaults.ca_file", tls_defaults.ca_file, "as ca_file"),
    CERTIFICATE("tls.defaults.ca_path", tls_defaults.ca_path, "as ca_path"),
    TEXT("tls.defaults.tls_min_version", tls_defaults.min_version, accept_tls_version, "as tls_min_version"),
    TEXT("tls.defaults.tls_cipher_suites", tls_defaults.cipher_suites, accept_any, "as tls_cipher_suites"),
    BOOL("tls.defaults.verify_incoming", tls_defaults.verify_incoming, "as verify_incoming"),
    BOOL("tls.defaults.verify_outgoing", tls_defaults.verify_outgoing, "as verify_outgoing"),
    BOOL("tls.defaults.verify_server_hostname", tls_defaults.verify_server_hostname, "as verify_server_hostname"),
    CERTIFICATE("tls.https.cert_file", tls_https.cert_file, "as cert_file, for HTTPS alone"),
    CERTIFICATE("tls.https.key_file", tls_https.key_file, "as key_file, for HTTPS alone"),
    CERTIFICATE("tls.https.ca_file", tls_https.ca_file, "as ca_file, for HTTPS alone"),
    CERTIFICATE("tls.https.ca_path", tls_https.ca_path, "as ca_path, for HTTPS alone"),
    TEXT("tls.https.tls_min_version", tls_https.min_version, accept_tls_version, "as tls_min_version, for HTTPS alone"),
    TEXT("tls.https.tls_cipher_suites", tls_https.cipher_suites, accept_any, "as tls_cipher_suites, for HTTPS alone"),
    BOOL("tls.https.verify_incoming", tls_https.verify_incoming, "as verify_incoming, for HTTPS alone"),
    CERTIFICATE("tls.internal_rpc.cert_file", tls_rpc.cert_file, "as cert_file, for ports.server alone"),
    CERTIFICATE("tls.internal_rpc.key_file", tls_rpc.key_file, "as key_file, for ports.server alone"),
    CERTIFICATE("tls.internal_rpc.ca_file", tls_rpc.ca_file, "as ca_file, for ports.server alone"),
    CERTIFICATE("tls.internal_rpc.ca_path", tls_rpc.ca_path, "as ca_path, for ports.server alone"),
    BOOL("tls.internal_rpc.verify_incoming", tls_rpc.verify_incoming, "as verify_incoming_rpc"),
    BOOL("tls.internal_rpc.verify_outgoing", tls_rpc.verify_outgoing, "as verify_outgoing"),
    BOOL("tls.internal_rpc.verify_server_hostname", tls_rpc.verify_server_hostname, "as verify_server_hostname"),
    TEXT("encrypt", encrypt, accept_shared_key,
         "a key in base64 (`coord keygen`), which all servers and agents have: it encrypts what they say to each other "
         "on ports.server. It counts for the first start; then the keys of keyring.json in the data folder do"),
    BOOL("encrypt_verify_incoming", encrypt_verify_incoming,
         "with encrypt: connections without the key are refused; false while it is introduced"),
    BOOL("encrypt_verify_outgoing", encrypt_verify_outgoing,
         "with encrypt: connections are made with the key; false while it is introduced"),
    BOOL("disable_keyring_file", disable_keyring_file,
         "keys are not kept in the data folder: after a restart there is only that of encrypt"),
    LIST("start_join", start_join, accept_join, "the same as retry_join"),
    LIST("retry_join", retry_join, accept_join, "servers to join by, HOST or HOST:8300, tried until one works"),
    LIST("start_join_wan", start_join_wan, accept_join, "the same as retry_join_wan"),
    LIST("retry_join_wan", retry_join_wan, accept_join,
         "of servers: servers of other regions, tried until one of each region works; one region is enough, it names "
         "the others"),
    FIELD("retry_interval_wan", KEY_DURATION, retry_interval_wan_ns,
          "how often an address of another region is tried again, at the slowest"),
    KEPT("retry_interval", KEY_DURATION, retry_interval_ns, UINT64_MAX, "coord tries again by itself, within seconds"),
    KEPT("retry_max", KEY_NUMBER, retry_max, 1000000000, "coord tries for as long as it takes"),
    TEXT("domain", domain, accept_domain, "DNS domain"),
    TEXT("alt_domain", alt_domain, accept_no_domain, "a second DNS domain"),
    FIELD("dns_config.node_ttl", KEY_DURATION, node_ttl_ns, "TTL of answers about nodes"),
    FIELD("dns_config.service_ttl", KEY_TTLS, service_ttls,
          "TTL of answers by service: a name, a prefix such as `web*`, or `*`"),
    NUMBER("dns_config.udp_answer_limit", udp_answer_limit, 0, 65535,
           "most records of an answer to a client without EDNS; 0: as many as fit"),
    NUMBER("dns_config.a_record_limit", a_record_limit, 0, 65535,
           "most records of an answer to A, AAAA and ANY; 0: no limit"),
    KEPT("dns_config.enable_truncate", KEY_BOOL, dns_enable_truncate, UINT64_MAX,
         "answers that do not fit are always marked (TC)"),
    BOOL("dns_config.only_passing", only_passing, "leave out instances with a warning, too"),
    BOOL("dns_config.allow_stale", dns_allow_stale, "answer from this server's state without asking the leader"),
    KEPT("dns_config.max_stale", KEY_DURATION, dns_max_stale_ns, UINT64_MAX, "see dns_config.allow_stale"),
    NUMBER("dns_config.soa.refresh", soa_refresh, 0, INT32_MAX, "of the SOA, seconds"),
    NUMBER("dns_config.soa.retry", soa_retry, 0, INT32_MAX, "of the SOA, seconds"),
    NUMBER("dns_config.soa.expire", soa_expire, 0, INT32_MAX, "of the SOA, seconds"),
    NUMBER("dns_config.soa.min_ttl", soa_min_ttl, 0, INT32_MAX,
           "of the SOA, seconds: how long resolvers keep negative answers"),
    KEPT("recursors", KEY_TEXTS, recursors, UINT64_MAX, "coord never recurses: names beyond its domain are refused"),
    NUMBER("limits.http_max_conns_per_client", http_max_conns_per_client, 0, 1000000000,
           "most HTTP connections from one address; 0: no limit"),
    TEXT("limits.request_limits.mode", request_limits_mode, accept_limits_mode,
         "`enforcing` refuses requests above a limit of `limits` (429), `permissive` counts them, `disabled` does "
         "neither"),
    FIELD("limits.request_limits.read_rate", KEY_COUNT, limit_rates[LIMIT_READS],
          "most reads a second of all clients of this agent's HTTP; 0 and -1: no limit"),
    FIELD("limits.request_limits.write_rate", KEY_COUNT, limit_rates[LIMIT_WRITES],
          "most writes a second of all clients of this agent's HTTP; 0 and -1: no limit"),
    FIELD("limits.client_read_rate", KEY_COUNT, limit_rates[LIMIT_ADDRESS_READS],
          "most reads a second of one address; 0 and -1: no limit"),
    FIELD("limits.client_write_rate", KEY_COUNT, limit_rates[LIMIT_ADDRESS_WRITES],
          "most writes a second of one address; 0 and -1: no limit"),
    FIELD("limits.token_read_rate", KEY_COUNT, limit_rates[LIMIT_TOKEN_READS],
          "most reads a second of one token; 0 and -1: no limit"),
    FIELD("limits.token_write_rate", KEY_COUNT, limit_rates[LIMIT_TOKEN_WRITES],
          "most writes a second of one token; 0 and -1: no limit"),
    FIELD("limits.client_parked", KEY_COUNT, parked_most[PARKED_ADDRESS],
          "most blocking queries and streams of one address that wait at a time; 0 and -1: no limit"),
    FIELD("limits.token_parked", KEY_COUNT, parked_most[PARKED_TOKEN],
          "most blocking queries and streams of one token that wait at a time; 0 and -1: no limit"),
    FIELD("limits.cluster_write_rate", KEY_COUNT, cluster_write_rate,
          "most writes a second of the clients of all agents together; the leader's key counts; 0 and -1: no limit"),
    DURATION("limits.https_handshake_timeout", https_handshake_timeout_ns, 1000000, 600 * SECOND,
             "a client of HTTPS has so long for its handshake"),
    NUMBER("limits.kv_max_value_size", kv_max_value_size, 1, KV_VALUE_MOST, "most bytes of a key's value"),
    NUMBER("limits.txn_max_req_len", txn_max_req_len, 1, KV_VALUE_MOST,
           "most bytes of a transaction's body; never less than limits.kv_max_value_size"),
    BOOL("acl.enabled", acl_enabled, "each request is allowed or refused by the rules of its token"),
    TEXT("acl.default_policy", acl_default_policy, accept_policy, "what no rule decides: `allow` or `deny` it"),
    TEXT("acl.down_policy", acl_down_policy, accept_down_policy,
         "of a client agent, while no server can tell what a token may do: `extend-cache` and `async-cache` keep to "
         "what a "
         "server said last, `deny` and `allow`"),
    DURATION("acl.token_ttl", acl_token_ttl_ns, 0, 3600 * SECOND,
             "of a client agent: so long it keeps what a server said about a token; changes drop it earlier"),
    BOOL("acl.enable_key_list_policy", acl_key_list_policy, "reads of all keys below a prefix need `list` on it"),
    BOOL("acl.enable_token_persistence", acl_token_persistence,
         "tokens that are set by `/v1/agent/token/...` are kept over a restart"),
    TEXT("acl.tokens.agent", acl_token_agent, accept_token,
         "token of the agent's own work; default: its certificate, where the cluster's own CA has signed that, else "
         "acl.tokens.default"),
    TEXT("acl.tokens.agent_master", acl_token_agent_master, accept_token,
         "a token for this agent alone, which needs no server: agent:write, node:read"),
    TEXT("acl.tokens.default", acl_token_default, accept_token, "token of requests that have none, and of DNS"),
    TEXT("acl.tokens.initial_management", acl_token_initial, accept_token,
         "secret of a token that may do everything; the servers make it while there is none"),
    TEXT("acl.tokens.master", acl_token_initial, accept_token, "the older name of acl.tokens.initial_management"),
    TEXT("acl_agent_token", acl_token_agent, accept_token, "the older name of acl.tokens.agent"),
    TEXT("acl_agent_master_token", acl_token_agent_master, accept_token, "the older name of acl.tokens.agent_master"),
    TEXT("acl_token", acl_token_default, accept_token, "the older name of acl.tokens.default"),
    TEXT("acl_master_token", acl_token_initial, accept_token, "the older name of acl.tokens.initial_management"),
    TEXT("acl_default_policy", acl_default_policy, accept_policy, "the older name of acl.default_policy"),
    TEXT("acl_down_policy", acl_down_policy, accept_down_policy, "the older name of acl.down_policy"),
    DURATION("acl_ttl", acl_token_ttl_ns, 0, 3600 * SECOND, "the older name of acl.token_ttl"),
    BOOL("acl_enable_key_list_policy", acl_key_list_policy, "the older name of acl.enable_key_list_policy"),
    FIELD("session_ttl_min", KEY_DURATION, session_ttl_min_ns, "shortest TTL of a session"),
    FIELD("default_query_time", KEY_DURATION, default_query_time_ns,
          "how long a blocking query waits that names no time"),
    FIELD("max_query_time", KEY_DURATION, max_query_time_ns, "how long a blocking query may wait"),
    KEPT("performance.leave_drain_time", KEY_DURATION, leave_drain_time_ns, UINT64_MAX,
         "an agent that leaves does not wait"),
    DURATION("performance.rpc_hold_timeout", rpc_hold_timeout_ns, 1000000, 3600 * SECOND,
             "a request to another region waits so long for one that cannot be reached, 7 s at most; for a leader of "
             "this region it is always 7 s"),
    NUMBER("performance.raft_multiplier", raft_multiplier, 0, 10,
           "multiplies Raft's timeouts, for slow networks; 0: 1"),
    FIELD("performance.scrub_interval", KEY_DURATION, scrub_interval_ns,
          "the store is read through for damage so often; 0: never"),
    FIELD("reconnect_timeout", KEY_DURATION, reconnect_timeout_ns,
          "a dead node is removed after this time; 0: the default"),
    BOOL("leave_on_terminate", leave_on_terminate,
         "leave on SIGTERM (a server: for good); default: true on client agents, false on servers"),
    BOOL("rejoin_after_leave", rejoin_after_leave,
         "go back to the servers of before also after a leave (without retry_join)"),
    BOOL("skip_leave_on_interrupt", skip_leave_on_interrupt,
         "do not leave on SIGINT (a server: for good); default: true on servers, false on client agents"),
    FIELD("service", KEY_BLOCK, services, "a service of this node"),
    FIELD("services", KEY_BLOCKS, services, "services of this node"),
    FIELD("check", KEY_BLOCK, checks, "a check of this node"),
    FIELD("checks", KEY_BLOCKS, checks, "checks of this node"),
    FIELD("watches", KEY_BLOCKS, watches, "watches whose handlers this agent runs"),
    BOOL("enable_script_checks", enable_script_checks, "allow script checks, also those registered over HTTP"),
    BOOL("enable_local_script_checks", enable_local_script_checks, "allow script checks of configuration files"),
    NUMBER("check_output_max_size", check_output_max_size, 1, (1 << 20), "bytes of a check's output that are kept"),
    KEPT("discard_check_output", KEY_BOOL, discard_check_output, UINT64_MAX, "see check_output_max_size"),
    FIELD("check_update_interval", KEY_DURATION, check_update_interval_ns,
          "an output that changes alone is told to the servers so often at most"),
    BOOL("disable_coordinates", disable_coordinates, "no network coordinates"),
    FIELD("sync_coordinate_interval_min", KEY_DURATION, coordinate_interval_ns,
          "between reports of this node's network coordinate"),
    FIELD("consul.coordinate.update_period", KEY_DURATION, coordinate_period_ns,
          "a server gathers reports of coordinates for so long"),
    NUMBER("consul.coordinate.update_batch_size", coordinate_batch_size, 0, COORDINATE_BATCH_SIZE_MAX,
           "reports in one command"),
    NUMBER("consul.coordinate.update_max_batches", coordinate_batches, 0, COORDINATE_BATCH_COMMANDS_MAX,
           "commands in a period; more reports are dropped"),
    BOOL("telemetry.certificate.enabled", certificate_warnings,
         "warn before a certificate of this agent ends: in the log, and by a check of the node"),
    NUMBER("telemetry.certificate.info_threshold_days", certificate_info_days, 0, 36500,
           "a line in the log when no more days are left; not for what renews itself"),
    NUMBER("telemetry.certificate.warning_threshold_days", certificate_warning_days, 0, 36500,
           "a warning when no more days are left; for what renews itself: when less than a third of its life is left"),
    NUMBER("telemetry.certificate.critical_threshold_days", certificate_critical_days, 0, 36500,
           "critical when no more days are left; for what renews itself: when less than a tenth of its life is left"),
    BOOL("telemetry.certificate.exclude_auto_renewable", certificate_exclude_renewable,
         "no warnings about certificates that renew themselves"),
    BOOL("coord.certificate_check", certificate_check,
         "the node has a check `certificate`; while that is not passing, ?passing leaves out all of the node's "
         "services"),
    DURATION("coord.renewal_spread", renewal_spread_ns, SECOND, 24 * 3600 * SECOND,
             "after `coord ca rotate` a node gets its new certificate within this time, at a random moment of it"),
    NUMBER("coord.check_flap_limit", check_flap_limit, 0, FLAP_LIMIT_MOST,
           "a check with more changes in the window is held at its worst state; 0: off"),
    DURATION(
        "coord.slow_start", slow_start_ns, 0, 3600 * SECOND,
        "the share of a new instance grows for so long, where this agent picks one of several; 0: it has all of it at "
        "once"),
    FIELD("coord.check_flap_window", KEY_DURATION, check_flap_window_ns, "the window of check_flap_limit"),
    FIELD("coord.reconnect_timeouts", KEY_MAP, reconnect_timeouts,
          "a dead node is removed after this time, by the `class` in its meta; the leader's count"),
    DURATION("coord.node_lease_ttl", node_lease_ttl_ns, SECOND, 24 * 3600 * SECOND,
             "a node is dead when its agent has not renewed its lease for so long"),
    NUMBER("coord.lock_waiters_max", lock_waiters_max, 1, QUEUE_WAITERS_MAX, "most that wait for one lock or election"),
    NUMBER("coord.lock_session_max", lock_session_max, 1, QUEUE_OWN_MAX,
           "most locks, and most elections, that a session holds or waits for"),
    NUMBER("coord.txn_max_operations", txn_max_operations, 1, TXN_OPS_MAX, "most operations of a transaction"),
    NUMBER("coord.lock_note_max", lock_note_max, 0, QUEUE_NOTE_MAX,
           "most bytes of a lock's note, or of what a leader advertises"),
    NUMBER("coord.quota_priority", quota_priority, 0, QUOTA_PRIORITIES - 1,
           "of this agent's share of quotas: when it is not enough for all, higher ones come first"),
    NUMBER("coord.history_changes", history_changes, 0, 10000000,
           "entries whose changes are kept, of keys, of the catalog and of locks each; 0: no history, no streams"),
    NUMBER("coord.history_bytes", history_bytes, 65536, (uint64_t)16 << 30, "bytes of them, of each"),
    DURATION("coord.history_age", history_age_ns, SECOND, 7 * 24 * 3600 * SECOND, "how far back they are kept"),
    TEXT("log_level", log_level, accept_level, "trace, debug, info, warn or err"),
    TEXT("log_file", log_file, accept_any,
         "the log goes into this file, too; in a folder, or where the path ends in /, it is `coord.log`; without an "
         "extension .log is appended. SIGHUP opens it anew"),
    NUMBER("log_rotate_bytes", log_rotate_bytes, 0, (uint64_t)1 << 50,
           "the file is set aside as NAME-TIME.log when it has so many bytes; 0: never"),
    DURATION("log_rotate_duration", log_rotate_duration_ns, SECOND, 10 * 365 * 24 * 3600 * SECOND,
             "and when it is so old"),
    FIELD("log_rotate_max_files", KEY_COUNT, log_rotate_max_files,
          "most files that were set aside and are kept; 0: all of them; -1: none"),
    BOOL("log_json", log_json, "the log is JSON, an object a line, on stderr and in the file"),
    BOOL("enable_syslog", enable_syslog, "the log goes to syslog, too"),
    TEXT("syslog_facility", syslog_facility, accept_facility, "of what goes to syslog"),
    TEXT("pid_file", pid_file, accept_any,
         "the process's number is in this file while it runs; an agent whose file is another running agent's does not "
         "start"),
    BOOL("audit.enabled", audit_enabled,
         "writes, logins and denials of the HTTP API are recorded, as JSON, a line each; needs audit.file or "
         "audit.socket"),
    TEXT("audit.file", audit_file, accept_any,
         "the lines go into this file, which is for the agent's user alone, in a folder that others cannot write. "
         "SIGHUP "
         "opens it anew"),
    TEXT("audit.socket", audit_socket, accept_any,
         "the lines go to a program that listens on this Unix socket, as a stream or as datagrams"),
    NUMBER("audit.rotate_bytes", audit_rotate_bytes, 0, (uint64_t)1 << 50,
           "the file is set aside as NAME-TIME.EXT when it has so many bytes; 0: never"),
    DURATION("audit.rotate_duration", audit_rotate_duration_ns, SECOND, 10 * 365 * 24 * 3600 * SECOND,
             "and when it is so old"),
    FIELD("audit.rotate_max_files", KEY_COUNT, audit_rotate_max_files,
          "most files that were set aside and are kept; 0: all of them; -1: none"),
    BOOL("audit.reads", audit_reads, "reads are recorded, too"),
    TEXT("audit.on_failure", audit_on_failure, accept_on_failure,
         "while lines cannot be written: `continue` loses those for which there is no room, and counts them; `refuse` "
         "answers 503 to requests that would be recorded, before they are carried out"),
    NUMBER("audit.buffer_bytes", audit_buffer_bytes, 65536, (uint64_t)1 << 30,
           "room for lines that wait to be written"),
    BOOL("disable_update_check", disable_update_check, "coord never looks for updates"),
    NUMBER("coord.self_preservation_percent", self_preservation_percent, 1, 100,
           "of a service's instances lost at once, from which they are held"),
    NUMBER("coord.self_preservation_instances", self_preservation_instances, 1, 1000000000,
           "fewest instances lost at once that are held"),
    NUMBER("coord.self_preservation_nodes", self_preservation_nodes, 1, 1000000000, "fewest nodes that they were on"),
    FIELD("coord.self_preservation_window", KEY_DURATION, self_preservation_window_ns,
          "losses within this time count as at once"),
    DURATION("coord.failover_return", failover_return_ns, 0, 3600 * SECOND,
             "a service that another region answers for comes home once it is healthy here for so long"),
    FIELD("coord.self_preservation_hold", KEY_DURATION, self_preservation_hold_ns,
          "lost instances are held in answers for so long, 24h at most; 0: off"),
    TEXT("coord.consul_version", consul_version, accept_version,
         "level of Consul's API that clients are told; the same on all agents"),
    NUMBER("coord.http_workers", http_workers, 0, 64, "threads for HTTP; 0: half the processors, 1 to 8"),
    NUMBER("coord.http_shards", http_shards, 0, 1024, "most groups of 64 connections in a thread; 0: no limit"),
    NUMBER("coord.http_connection_memory", http_connection_memory, 0, (1 << 20),
           "bytes of a connection; one with a long header gets more"),
    NUMBER("coord.http_connections_max", http_connections_max, 0, 10000000,
           "most HTTP connections; 0: what the limit of open files allows"),
    NUMBER("coord.http_body_max", http_body_max, 0, KV_VALUE_MOST,
           "most bytes of a request's body, but for values of keys, transactions and backups"),
    NUMBER("coord.http_header_max", http_header_max, 0, (1 << 20), "most bytes of request line and headers"),
    FIELD("coord.http_idle_timeout", KEY_DURATION, http_idle_timeout_ns,
          "a connection without a request is closed after this time"),
    NUMBER("coord.http_watches_max", http_watches_max, 0, 10000000,
           "most blocking queries that wait at once; more are answered with 429"),
    NUMBER("coord.http_cache_bytes", http_cache_bytes, 0, (1L << 40), "memory for ready HTTP answers"),
    NUMBER("coord.dns_workers", dns_workers, 0, 64, "threads for DNS; 0: half the processors, 1 to 8"),
    NUMBER("coord.dns_tcp_connections_max", dns_tcp_connections_max, 0, 100000,
           "most DNS connections over TCP, and as many over TLS"),
    NUMBER("coord.store_map_bytes", store_map_bytes, 0, (1L << 44),
           "most bytes of the store: address space, not memory or disk"),
    NUMBER("coord.store_reserve_bytes", store_reserve_bytes, 0, (1L << 34),
           "bytes of the store's file that are reserved ahead of use"),
    NUMBER("coord.snapshot_log_bytes", snapshot_log_bytes, 0, (1L << 40),
           "a snapshot is taken when the log has grown by this, and by the last one's size"),
    NUMBER("coord.snapshot_rate", snapshot_rate, 0, (1L << 40),
           "bytes a second of writing a snapshot, and of sending one to a server"),

    /* BOOL */
    GUARD("acl.enable_token_replication", KEY_BOOL, REPLICATION),
    IDLE("acl.msp_disable_bootstrap", KEY_BOOL, "there are no managed service providers"),
    IDLE("acl_enforce_version_8", KEY_BOOL, "rules for nodes and checks are always applied"),
    GUARD("auto_config.authorization.enabled", KEY_BOOL, "bringing hosts in by JWT (see `coord join-token`)"),
    IDLE("auto_config.authorization.static.allow_reuse", KEY_BOOL, NO_AUTO),
    GUARD("auto_config.enabled", KEY_BOOL, "bringing hosts in by JWT (see `coord join-token`)"),
    GUARD("auto_encrypt.allow_tls", KEY_BOOL, AUTO_ENCRYPT),
    GUARD("auto_encrypt.tls", KEY_BOOL, AUTO_ENCRYPT),
    IDLE("autopilot.cleanup_dead_servers", KEY_BOOL, AUTOPILOT),
    IDLE("autopilot.disable_upgrade_migration", KEY_BOOL, AUTOPILOT),
    IDLE("connect.enable_mesh_gateway_wan_federation", KEY_BOOL, NO_MESH),
    IDLE("connect.enabled", KEY_BOOL, NO_MESH),
    IDLE("disable_anonymous_signature", KEY_BOOL, "coord never looks for updates"),
    IDLE("disable_host_node_id", KEY_BOOL, "the ID of a node is made up, unless node_id says it"),
    IDLE("disable_http_unprintable_char_filter", KEY_BOOL, "there is no such filter"),
    IDLE("disable_remote_exec", KEY_BOOL, "there is no remote execution"),
    IDLE("dns_config.disable_compression", KEY_BOOL, "names are always compressed"),
    IDLE("dns_config.enable_additional_node_meta_txt", KEY_BOOL, "TXT records of a node's meta are always added"),
    IDLE("dns_config.prefer_namespace", KEY_BOOL, "there are no namespaces"),
    IDLE("dns_config.use_cache", KEY_BOOL, NO_CACHE),
    GUARD("enable_acl_replication", KEY_BOOL, REPLICATION),
    IDLE("enable_agent_tls_for_checks", KEY_BOOL, "checks show no certificate"),
    IDLE("enable_central_service_config", KEY_BOOL, NO_MESH),
    IDLE("enable_debug", KEY_BOOL, "there are no profiles to read"),
    IDLE("http_config.use_cache", KEY_BOOL, NO_CACHE),
    IDLE("non_voting_server", KEY_BOOL, "every server votes"),
    IDLE("reap", KEY_BOOL, "child processes are always reaped"),
    IDLE("segments.[].rpc_listener", KEY_BOOL, NO_SEGMENTS),
    IDLE("telemetry.certificate.cache_duration", KEY_DURATION, "certificates are looked at every 5s"),
    IDLE("telemetry.disable_hostname", KEY_BOOL, NO_PUSH),
    IDLE("telemetry.filter_default", KEY_BOOL, NO_PUSH),
    IDLE("translate_wan_addrs", KEY_BOOL, ONE_ADDRESS),
    IDLE("ui", KEY_BOOL, NO_UI),
    IDLE("tls.grpc.use_auto_cert", KEY_BOOL, NO_GRPC),
    IDLE("tls.grpc.verify_incoming", KEY_BOOL, NO_GRPC),
    /* NUMBER */
    IDLE("autopilot.max_trailing_logs", KEY_NUMBER, AUTOPILOT),
    IDLE("autopilot.min_quorum", KEY_NUMBER, AUTOPILOT),
    IDLE("cache.entry_fetch_max_burst", KEY_NUMBER, NO_CACHE),
    IDLE("gossip_lan.gossip_nodes", KEY_NUMBER, NO_GOSSIP),
    IDLE("gossip_lan.retransmit_mult", KEY_NUMBER, NO_GOSSIP),
    IDLE("gossip_lan.suspicion_mult", KEY_NUMBER, NO_GOSSIP),
    IDLE("gossip_wan.gossip_nodes", KEY_NUMBER, NO_GOSSIP),
    IDLE("gossip_wan.retransmit_mult", KEY_NUMBER, NO_GOSSIP),
    IDLE("gossip_wan.suspicion_mult", KEY_NUMBER, NO_GOSSIP),
    IDLE("limits.rpc_max_burst", KEY_NUMBER, NO_RPC_LIMITS),
    IDLE("limits.rpc_max_conns_per_client", KEY_NUMBER, NO_RPC_LIMITS),
    IDLE("protocol", KEY_NUMBER, "versions are agreed on by the servers"),
    IDLE("raft_protocol", KEY_NUMBER, "versions are agreed on by the servers"),
    IDLE("raft_snapshot_threshold", KEY_NUMBER, SNAPSHOTS),
    IDLE("raft_trailing_logs", KEY_NUMBER, SNAPSHOTS),
    IDLE("retry_max_wan", KEY_NUMBER, "other regions are tried until one answers"),
    IDLE("segment_limit", KEY_NUMBER, NO_SEGMENTS),
    IDLE("segment_name_limit", KEY_NUMBER, NO_SEGMENTS),
    /* REAL */
    IDLE("cache.entry_fetch_rate", KEY_REAL, NO_CACHE),
    IDLE("cache.entry_fetch_rate_limit", KEY_REAL, NO_CACHE),
    IDLE("limits.rpc_rate", KEY_REAL, NO_RPC_LIMITS),
    IDLE("sync_coordinate_rate_target", KEY_REAL, "64 reports a second, of the whole cluster"),
    /* PORT */
    IDLE("ports.expose_max_port", KEY_PORT, NO_MESH),
    IDLE("ports.expose_min_port", KEY_PORT, NO_MESH),
    IDLE("ports.grpc", KEY_PORT, NO_GRPC),
    IDLE("ports.proxy_max_port", KEY_PORT, NO_MESH),
    IDLE("ports.proxy_min_port", KEY_PORT, NO_MESH),
    IDLE("ports.serf_lan", KEY_PORT, NO_GOSSIP),
    IDLE("ports.serf_wan", KEY_PORT, NO_GOSSIP),
    IDLE("ports.sidecar_max_port", KEY_PORT, NO_MESH),
    IDLE("ports.sidecar_min_port", KEY_PORT, NO_MESH),
    IDLE("segments.[].port", KEY_PORT, NO_SEGMENTS),
    /* DURATION */
    IDLE("acl.disabled_ttl", KEY_DURATION, NO_ACCESS),
    IDLE("acl.policy_ttl", KEY_DURATION, NO_ACCESS),
    IDLE("acl.role_ttl", KEY_DURATION, NO_ACCESS),
    IDLE("acl_disabled_ttl", KEY_DURATION, NO_ACCESS),
    IDLE("ae_interval", KEY_DURATION, "changes are told at once, and all of it is compared once a minute"),
    IDLE("auto_config.authorization.static.clock_skew_leeway", KEY_DURATION, NO_AUTO),
    IDLE("auto_config.authorization.static.expiration_leeway", KEY_DURATION, NO_AUTO),
    IDLE("auto_config.authorization.static.not_before_leeway", KEY_DURATION, NO_AUTO),
    IDLE("autopilot.last_contact_threshold", KEY_DURATION, AUTOPILOT),
    IDLE("autopilot.server_stabilization_time", KEY_DURATION, AUTOPILOT),
    IDLE("check_deregister_interval_min", KEY_DURATION, "DeregisterCriticalServiceAfter is 1s at least"),
    IDLE("check_reap_interval", KEY_DURATION, "a service is removed when its time has come"),
    IDLE("connect.test_ca_leaf_root_change_spread", KEY_DURATION, NO_MESH),
    IDLE("consul.raft.election_timeout", KEY_DURATION, RAFT_TIMES),
    IDLE("consul.raft.heartbeat_timeout", KEY_DURATION, RAFT_TIMES),
    IDLE("consul.raft.leader_lease_timeout", KEY_DURATION, RAFT_TIMES),
    IDLE("consul.server.health_interval", KEY_DURATION, "servers are looked at all the time"),
    IDLE("discovery_max_stale", KEY_DURATION, "`?max_stale=` of a request says it"),
    IDLE("dns_config.cache_max_age", KEY_DURATION, NO_CACHE),
    IDLE("dns_config.recursor_timeout", KEY_DURATION, "coord never recurses"),
    IDLE("gossip_lan.gossip_interval", KEY_DURATION, NO_GOSSIP),
    IDLE("gossip_lan.probe_interval", KEY_DURATION, NO_GOSSIP),
    IDLE("gossip_lan.probe_timeout", KEY_DURATION, NO_GOSSIP),
    IDLE("gossip_wan.gossip_interval", KEY_DURATION, NO_GOSSIP),
    IDLE("gossip_wan.probe_interval", KEY_DURATION, NO_GOSSIP),
    IDLE("gossip_wan.probe_timeout", KEY_DURATION, NO_GOSSIP),
    IDLE("limits.rpc_handshake_timeout", KEY_DURATION, NO_RPC_LIMITS),
    IDLE("primary_gateways_interval", KEY_DURATION, OWN_CLUSTERS),
    IDLE("raft_snapshot_interval", KEY_DURATION, SNAPSHOTS),
    IDLE("reconnect_timeout_wan", KEY_DURATION, "a region is kept until `coord region remove`"),
    IDLE("telemetry.circonus_submission_interval", KEY_DURATION, NO_PUSH),
    IDLE("telemetry.prometheus_retention_time", KEY_DURATION, NO_PUSH),
    /* TEXT */
    GUARD("acl.tokens.managed_service_provider.[].accessor_id", KEY_TEXT, PROVIDERS),
    GUARD("acl.tokens.managed_service_provider.[].secret_id", KEY_TEXT, PROVIDERS),
    GUARD("acl.tokens.replication", KEY_TEXT, REPLICATION),
    GUARD("acl_datacenter", KEY_TEXT, ACL_DATACENTER),
    GUARD("acl_replication_token", KEY_TEXT, REPLICATION),
    IDLE("addresses.grpc", KEY_TEXT, NO_GRPC),
    IDLE("advertise_addr_ipv4", KEY_TEXT, "see advertise_addr"),
    IDLE("advertise_addr_ipv6", KEY_TEXT, "see advertise_addr"),
    IDLE("advertise_addr_wan", KEY_TEXT, ONE_ADDRESS),
    IDLE("advertise_addr_wan_ipv4", KEY_TEXT, ONE_ADDRESS),
    IDLE("advertise_addr_wan_ipv6", KEY_TEXT, ONE_ADDRESS),
    IDLE("auto_config.authorization.static.bound_issuer", KEY_TEXT, NO_AUTO),
    IDLE("auto_config.authorization.static.jwks_ca_cert", KEY_TEXT, NO_AUTO),
    IDLE("auto_config.authorization.static.jwks_url", KEY_TEXT, NO_AUTO),
    IDLE("auto_config.authorization.static.oidc_discovery_ca_cert", KEY_TEXT, NO_AUTO),
    IDLE("auto_config.authorization.static.oidc_discovery_url", KEY_TEXT, NO_AUTO),
    IDLE("auto_config.intro_token", KEY_TEXT, NO_AUTO),
    IDLE("auto_config.intro_token_file", KEY_TEXT, NO_AUTO),
    IDLE("autopilot.redundancy_zone_tag", KEY_TEXT, AUTOPILOT),
    IDLE("autopilot.upgrade_version_tag", KEY_TEXT, AUTOPILOT),
    IDLE("connect.ca_provider", KEY_TEXT, NO_MESH),
    IDLE("primary_datacenter", KEY_TEXT, OWN_CLUSTERS),
    IDLE("revision", KEY_TEXT, "written by Consul's own tools"),
    IDLE("segment", KEY_TEXT, NO_SEGMENTS),
    IDLE("segments.[].advertise", KEY_TEXT, NO_SEGMENTS),
    IDLE("segments.[].bind", KEY_TEXT, NO_SEGMENTS),
    IDLE("segments.[].name", KEY_TEXT, NO_SEGMENTS),
    IDLE("serf_lan", KEY_TEXT, NO_GOSSIP),
    IDLE("serf_wan", KEY_TEXT, NO_GOSSIP),
    IDLE("server_name", KEY_TEXT, "servers are named server.DATACENTER.DOMAIN"),
    IDLE("telemetry.circonus_api_app", KEY_TEXT, NO_PUSH),
    IDLE("telemetry.circonus_api_token", KEY_TEXT, NO_PUSH),
    IDLE("telemetry.circonus_api_url", KEY_TEXT, NO_PUSH),
    IDLE("telemetry.circonus_broker_id", KEY_TEXT, NO_PUSH),
    IDLE("telemetry.circonus_broker_select_tag", KEY_TEXT, NO_PUSH),
    IDLE("telemetry.circonus_check_display_name", KEY_TEXT, NO_PUSH),
    IDLE("telemetry.circonus_check_force_metric_activation", KEY_TEXT, NO_PUSH),
    IDLE("telemetry.circonus_check_id", KEY_TEXT, NO_PUSH),
    IDLE("telemetry.circonus_check_instance_id", KEY_TEXT, NO_PUSH),
    IDLE("telemetry.circonus_check_search_tag", KEY_TEXT, NO_PUSH),
    IDLE("telemetry.circonus_check_tags", KEY_TEXT, NO_PUSH),
    IDLE("telemetry.circonus_submission_url", KEY_TEXT, NO_PUSH),
    IDLE("telemetry.dogstatsd_addr", KEY_TEXT, NO_PUSH),
    IDLE("telemetry.metrics_prefix", KEY_TEXT, NO_PUSH),
    IDLE("telemetry.statsd_address", KEY_TEXT, NO_PUSH),
    IDLE("telemetry.statsite_address", KEY_TEXT, NO_PUSH),
    IDLE("tls.grpc.ca_file", KEY_TEXT, NO_GRPC),
    IDLE("tls.grpc.ca_path", KEY_TEXT, NO_GRPC),
    IDLE("tls.grpc.cert_file", KEY_TEXT, NO_GRPC),
    IDLE("tls.grpc.key_file", KEY_TEXT, NO_GRPC),
    IDLE("tls.grpc.tls_cipher_suites", KEY_TEXT, NO_GRPC),
    IDLE("tls.grpc.tls_min_version", KEY_TEXT, NO_GRPC),
    IDLE("tls.internal_rpc.tls_cipher_suites", KEY_TEXT, ONLY_13),
    IDLE("tls.internal_rpc.tls_min_version", KEY_TEXT, ONLY_13),
    IDLE("ui_content_path", KEY_TEXT, NO_UI),
    IDLE("ui_dir", KEY_TEXT, NO_UI),
    IDLE("version", KEY_TEXT, "written by Consul's own tools"),
    IDLE("version_prerelease", KEY_TEXT, "written by Consul's own tools"),
    /* TEXTS */
    IDLE("auto_config.authorization.static.bound_audiences", KEY_TEXTS, NO_AUTO),
    IDLE("auto_config.authorization.static.claim_assertions", KEY_TEXTS, NO_AUTO),
    IDLE("auto_config.authorization.static.jwt_supported_algs", KEY_TEXTS, NO_AUTO),
    IDLE("auto_config.authorization.static.jwt_validation_pub_keys", KEY_TEXTS, NO_AUTO),
    IDLE("auto_config.dns_sans", KEY_TEXTS, NO_AUTO),
    IDLE("auto_config.ip_sans", KEY_TEXTS, NO_AUTO),
    IDLE("auto_config.server_addresses", KEY_TEXTS, NO_AUTO),
    IDLE("auto_encrypt.dns_san", KEY_TEXTS, NO_AUTO),
    IDLE("auto_encrypt.ip_san", KEY_TEXTS, NO_AUTO),
    GUARD("http_config.allow_write_http_from", KEY_TEXTS, "a limit on who may write"),
    GUARD("http_config.block_endpoints", KEY_TEXTS, "blocking of endpoints"),
    IDLE("primary_gateways", KEY_TEXTS, OWN_CLUSTERS),
    GUARD("serf_lan_allowed_cidrs", KEY_TEXTS, "a limit on who may join"),
    GUARD("serf_wan_allowed_cidrs", KEY_TEXTS, "a limit on which regions may join"),
    IDLE("telemetry.dogstatsd_tags", KEY_TEXTS, NO_PUSH),
    IDLE("telemetry.prefix_filter", KEY_TEXTS, NO_PUSH),
    /* MAP */
    IDLE("auto_config.authorization.static.claim_mappings", KEY_MAP, NO_AUTO),
    IDLE("auto_config.authorization.static.list_claim_mappings", KEY_MAP, NO_AUTO),
    IDLE("http_config.response_headers", KEY_MAP, "no headers can be added yet"),
    IDLE("tagged_addresses", KEY_MAP, "a node has one address yet; services have their own"),
    /* ANY */
    IDLE("audit.sink", KEY_ANY, NO_SINKS),
    IDLE("config_entries.bootstrap", KEY_ANY, NO_MESH),
    IDLE("connect.ca_config", KEY_ANY, NO_MESH),
    IDLE("snapshot_agent", KEY_ANY, "see `coord snapshot save`"),
    {0},
};

const struct key *key_find(const char *path) {
    for (const struct key *key = config_keys; key->path; key++) {
        if (strcasecmp(key->path, path) == 0) return key;
    }
    return NULL;
}

bool key_is_secret(const struct key *key) { return strcmp(key->path, "encrypt") == 0 || key->accept == accept_token; }

enum key_folder key_folder(const char *path) {
    size_t size = strlen(path);
    for (const struct key *key = config_keys; key->path; key++) {
        if (strncasecmp(key->path, path, size) != 0 || key->path[size] != '.') continue;
        return key->path[size + 1] == '[' ? FOLDER_ARRAY : FOLDER_OBJECT;
    }
    return FOLDER_NONE;
}

bool config_key_is_bool(const char *key) {
    const struct key *found = key_find(key);
    return found && found->kind == KEY_BOOL;
}

/* Finds the key that was probably meant: keys of the same folder before others, but the exact name in another folder
 * (as for "http_port" in the wrong place) before two typing errors in this one. */
bool key_nearest(const char *folder, const char *name, char *nearest, size_t room) {
    size_t prefix = strlen(folder);
    unsigned best = UINT_MAX;
    for (const struct key *key = config_keys; key->path; key++) {
        const char *path = key->path, *last = strrchr(path, '.');
        unsigned elsewhere = suggest_rank(slice_text(name), slice_text(last ? last + 1 : path)), score = UINT_MAX;
        size_t shown = strlen(path);
        if (elsewhere != UINT_MAX) score = elsewhere == 0 ? 203 : elsewhere < 100 ? 207 : elsewhere * 2 + 3;
        if (strncasecmp(path, folder, prefix) == 0) {
            /* The next part of the path in this folder: the key itself, or a folder in it. */
            size_t here = strcspn(path + prefix, ".");
            unsigned near = suggest_rank(slice_text(name), slice_make(path + prefix, here));
            if (near != UINT_MAX && near * 2 <= score) {
                score = near * 2;
                shown = prefix + here;
            }
        }
        if (score >= best) continue;
        best = score;
        snprintf(nearest, room, "%.*s", (int)shown, path);
    }
    return best != UINT_MAX;
}
