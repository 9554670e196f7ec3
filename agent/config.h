/* Settings of the process: defaults, then -dev, then JSON files in the order given, then flags. Keys and flags are
 * those of Consul 1.8 plus the object "coord" with our own; the table in config_keys.c knows all of them.
 *
 *     struct config config;
 *     config_init(&config);
 *     if (flags_parse(argc, argv, &config, &fault)) ...      (reads the files that flags name)
 *     if (config_finish(&config, &fault)) ...
 *
 * Faults are CO_INVALID (or CO_IO, CO_NOTFOUND, CO_TOOLARGE for a file, CO_UNSUPPORTED) and name source and key:
 * "web.json:3:14: ports.http: 70000 is above 65535" (line and column of the key). After an error the rest is read
 * nevertheless, so that one run reports all mistakes: `errors` has each of them, the fault the first. Only
 * config_add_path touches the disk; nothing here looks at the clock, the host's name or its interfaces. One thread. */
#ifndef COORD_AGENT_CONFIG_H
#define COORD_AGENT_CONFIG_H

#include <json-c/json_object.h>
#include <stdio.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "http/parked_limits.h"
#include "http/rate_limits.h"

/* All strings and arrays belong to the config. */
struct config_texts {
    const char **items; /* NULL-terminated; NULL when there are none */
    size_t count;
};

struct config_pair {
    const char *name, *value;
};

struct config_pairs { /* in the order written; a later value of a name replaces the earlier one */
    struct config_pair *items;
    size_t count;
};

struct config_ttl {
    const char *name; /* "web", "web*", "*" */
    int64_t ttl_ns;
};

/* The text of a file, kept while lines and columns in it may be needed for messages (config_forget_texts). */
struct config_source {
    struct config_source *next;
    struct buffer text;
};

/* One definition from a file, as written: health/ parses it. */
struct config_block {
    struct json_object *json;
    const char *file, *key;             /* for messages: "web.json", "services[2]" */
    const struct config_source *source; /* the text that has it; NULL: forgotten */
    const char *member;                 /* as it is written */
    size_t index;
    bool item;
};

/* A key that asks for protection, and the source that gave it: each pair once, in the order read. */
struct config_guard {
    const char *key, *source, *guard; /* "acl.enabled", "web.json" or "-encrypt", "access control" */
    const char *place;                /* "web.json:3:14", or the source where there is none */
    bool by_flag;
};

struct config_blocks {
    struct config_block *items;
    size_t count;
};

/* Keys of the block "tls", and of before Consul had it. NULL: not given. */
struct config_tls {
    const char *ca_file, *ca_path, *cert_file, *key_file;
    const char *min_version, *cipher_suites; /* as tls/context.h takes them */
    bool verify_incoming, verify_incoming_given;
    bool verify_outgoing, verify_outgoing_given; /* of servers and agents among themselves, as what follows */
    bool verify_server_hostname, verify_server_hostname_given;
};

struct config {
    /* role and name */
    bool dev; /* temporary data, loopback, a cluster of one */
    bool server;
    bool bootstrap;            /* found a cluster of one; also set by bootstrap_expect 1 */
    uint64_t bootstrap_expect; /* 0: not given */
    const char *node_name;     /* NULL: take the host's name */
    const char *node_id;       /* lower-case UUID; NULL: one is made up and kept in the data folder */
    struct config_pairs node_meta;
    const char *datacenter; /* lower case */
    const char *data_dir;   /* NULL only with dev: a temporary one */

    /* addresses: IP texts without brackets */
    const char *bind_addr;      /* between servers */
    const char *advertise_addr; /* NULL: bind_addr, or the host's first private address */
    const char *client_addr;    /* as written, blanks between several */
    /* the same for one interface; NULL: client_addr. HTTP and HTTPS also "unix:///path" */
    const char *http_addr, *https_addr, *dns_addr;
    /* set by config_finish; none where the port is off */
    struct config_texts http_addresses, https_addresses, dns_addresses;
    int64_t http_port, https_port, dns_port, dns_tls_port, server_port; /* -1: off; 0: any free one */
    const char *socket_user, *socket_group, *socket_mode; /* of Unix sockets; mode: octal. NULL: not given */
    struct config_texts start_join, retry_join;
    struct config_texts start_join_wan, retry_join_wan; /* of servers: other regions */
    int64_t retry_interval_wan_ns;
    int64_t failover_return_ns;
    int64_t retry_interval_ns;
    uint64_t retry_max; /* 0: for ever */

    /* TLS. tls_https, tls_rpc (between servers and agents): what is given for these alone; config_finish fills in the rest
     * from tls_defaults */
    struct config_tls tls_defaults, tls_https, tls_rpc;
    bool verify_incoming_https, verify_incoming_rpc;
    const char *encrypt; /* base64, of a shared key of a right size; NULL: not given */
    bool encrypt_verify_incoming, encrypt_verify_outgoing, disable_keyring_file;
    bool tls_prefer_server_cipher_suites;
    int64_t https_handshake_timeout_ns;

    /* access control. Secrets; NULL: none */
    bool acl_enabled, acl_key_list_policy, acl_token_persistence;
    const char *acl_default_policy, *acl_down_policy; /* allow, deny; extend-cache, async-cache, allow, deny */
    int64_t acl_token_ttl_ns;
    const char *acl_token_agent, *acl_token_agent_master, *acl_token_default, *acl_token_initial;

    /* DNS */
    const char *domain, *alt_domain; /* without dots at the ends; NULL: none */
    int64_t node_ttl_ns;
    struct config_ttl *service_ttls;
    size_t service_ttl_count;
    uint64_t udp_answer_limit, a_record_limit; /* 0: off */
    bool dns_enable_truncate;
    bool only_passing;
    bool dns_allow_stale;
    int64_t dns_max_stale_ns;
    uint64_t soa_refresh, soa_retry, soa_expire, soa_min_ttl; /* s */
    struct config_texts recursors;

    /* limits and times */
    uint64_t http_max_conns_per_client; /* 0: no limit */
    const char *request_limits_mode;    /* disabled, permissive, enforcing */
    int64_t limit_rates[LIMITS];        /* http/rate_limits.h; 0 and -1: no limit */
    int64_t parked_most[PARKED_LIMITS]; /* http/parked_limits.h; likewise */
    int64_t cluster_write_rate;         /* rpc/leader/write_limit.h; likewise */
    uint64_t kv_max_value_size;
    uint64_t txn_max_req_len, txn_max_operations;
    int64_t session_ttl_min_ns;
    uint64_t lock_waiters_max, lock_session_max, lock_note_max;
    uint64_t quota_priority; /* 0 to 9 */
    uint64_t history_changes, history_bytes;
    int64_t history_age_ns;
    int64_t default_query_time_ns, max_query_time_ns;
    int64_t leave_drain_time_ns, rpc_hold_timeout_ns;
    uint64_t raft_multiplier;
    int64_t scrub_interval_ns;                 /* 0: never */
    int64_t reconnect_timeout_ns;              /* 0 means the default, as in Consul */
    struct config_pairs reconnect_timeouts;    /* as written: class of nodes, duration */
    struct reconnect_class *reconnect_classes; /* the same, read (config_finish) */
    int64_t node_lease_ttl_ns;                 /* coord.node_lease_ttl */
    uint64_t self_preservation_percent, self_preservation_instances, self_preservation_nodes;
    int64_t self_preservation_window_ns, self_preservation_hold_ns; /* hold 0: off */
    bool rejoin_after_leave;
    bool leave_on_terminate;      /* false on servers, true on client agents (config_finish) */
    bool skip_leave_on_interrupt; /* true on servers, false on client agents (config_finish) */
    bool leave_on_terminate_given, skip_leave_on_interrupt_given;

    /* checks */
    struct config_blocks services, checks; /* "service" and "services", "check" and "checks", of all files in order */
    struct config_blocks watches;          /* agent/watch.h */
    bool enable_script_checks, enable_local_script_checks;
    uint64_t check_output_max_size;
    bool discard_check_output;
    int64_t check_update_interval_ns;
    uint64_t check_flap_limit; /* changes of state within the window above which it is held; 0: off */
    int64_t check_flap_window_ns;

    /* warnings about certificates that are near their end (agent/certificate_watch.h) */
    bool certificate_warnings, certificate_exclude_renewable, certificate_check;
    uint64_t certificate_info_days, certificate_warning_days, certificate_critical_days;

    int64_t renewal_spread_ns; /* agent/certificate_renewal.h */

    /* network coordinates; 0 means the default, too */
    bool disable_coordinates;
    int64_t slow_start_ns;                              /* lb/hints.h */
    int64_t coordinate_interval_ns;                     /* between reports of this node's own */
    int64_t coordinate_period_ns;                       /* updates are gathered so long */
    uint64_t coordinate_batch_size, coordinate_batches; /* in one command; commands in a period */

    /* the process */
    const char *log_level;                       /* valid for log_level_parse */
    const char *log_file;                        /* NULL: none */
    const char *log_file_place, *pid_file_place; /* the sources: "web.json:3:14", "-log-file" */
    uint64_t log_rotate_bytes;                   /* 0: never */
    int64_t log_rotate_duration_ns, log_rotate_max_files;
    bool log_json, enable_syslog;
    const char *syslog_facility, *pid_file; /* pid_file NULL: none */
    bool disable_update_check;

    /* the audit log; file or socket NULL: not given */
    bool audit_enabled, audit_reads;
    const char *audit_file, *audit_socket, *audit_on_failure; /* continue, refuse */
    uint64_t audit_rotate_bytes, audit_buffer_bytes;
    int64_t audit_rotate_duration_ns, audit_rotate_max_files;

    const char *consul_version; /* the version of Consul whose API is offered, as clients are told */

    /* coord's own keys, under "coord"; 0 means the default, or leaves the choice to the module */
    uint64_t http_workers, http_shards, http_connection_memory, http_connections_max, http_body_max, http_header_max;
    uint64_t http_watches_max, http_cache_bytes;
    int64_t http_idle_timeout_ns;
    uint64_t dns_workers, dns_tcp_connections_max;
    uint64_t store_map_bytes, store_reserve_bytes;
    uint64_t snapshot_log_bytes, snapshot_rate;

    /* Keys and flags that were given, are known, and have no effect yet; each once. The agent logs them. */
    struct config_texts without_effect;

    /* The errors, in the order read: at most CONFIG_ERRORS_MAX, and the number of further ones. */
    struct config_texts errors;
    size_t more_errors;
    bool unread; /* a file could not be read at all, so some keys are not known */
    struct config_source *sources;

    /* The value of every key with an effect as it was given, before others are derived (config_finish); in the order of
     * config_keys. */
    const char **as_given;

    /* Keys that ask for a protection that coord does not have yet (config_require_protection). */
    struct config_guard *guards;
    size_t guard_count;
    bool insecure_ignore_security; /* -insecure-ignore-security: run without it all the same */

    struct arena arena;
};

void config_init(struct config *config); /* sets the defaults, some of which are in the headers of modules */
void config_free(struct config *config);

/* Applies -dev. Call it before the files are read, so that they may override it. */
void config_dev(struct config *config);

/* All keys of a JSON text. `file` is for messages. */
int config_add_text(struct config *config, const char *file, struct slice text, struct fault *fault);
/* A file, or a folder of which every *.json is read in the order of their names. */
int config_add_path(struct config *config, const char *path, struct fault *fault);
/* One key from a flag's text: "ports.http" from "8500". Lists grow by one, maps by "name:value". `source` is for
 * messages and for without_effect: "-http-port". */
int config_set(struct config *config, const char *source, const char *key, struct slice text, struct fault *fault);
/* Is the key true or false? Then its flag needs no value. */
bool config_key_is_bool(const char *key);

/* One more error: into `errors`, and into `fault` if that has none. Returns `code`. */
#define CONFIG_ERRORS_MAX 20
int config_wrong(struct config *config, struct fault *fault, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Further errors are only counted, so nothing that takes long should be done for them. */
static inline bool config_errors_full(const struct config *config) { return config->errors.count == CONFIG_ERRORS_MAX; }
/* All errors, each in a line that begins with `before`, and how many more there are. */
void config_errors_print(const struct config *config, const char *before, FILE *out);
void config_errors_log(const struct config *config); /* the same, into the log */
/* Frees the texts of files, when lines and columns are not needed any more. */
void config_forget_texts(struct config *config);

/* Checks what depends on several keys, and derives the rest. After an error, checks that need the whole configuration
 * are skipped. */
int config_finish(struct config *config, struct fault *fault);

/* Writes a line for each key whose value differs and that takes effect only after a restart: `datacenter: "dc2" counts
 * after a restart; it is "dc1" until then`. Both configurations are finished. `lines` is in the arena of `now`. */
void config_differences(const struct config *was, struct config *now, struct config_texts *lines);

/* Refuses a configuration that asks for a protection that coord does not have yet, because its author would wrongly
 * believe to be protected: CO_UNSUPPORTED, and a fault that names the first such key. CO_OK with
 * -insecure-ignore-security. */
int config_require_protection(const struct config *config, struct fault *fault);
/* One line about a guard, without a line feed: "web.json:1:9: acl.enabled: access control is not there yet". */
void config_guard_line(const struct config_guard *guard, struct buffer *line);
/* Prints all guards, each in a line of its own, and how to go on. */
void config_guards_print(const struct config *config, FILE *out);
/* Logs all guards: as errors, or as warnings when they are ignored. */
void config_guards_log(const struct config *config);

#endif
