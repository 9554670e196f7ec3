/* An agent's local services and checks. They are the truth about this host; health/anti_entropy.h keeps the servers'
 * catalog equal to it. Registration never needs a server.
 *
 * Threads: every function here may be called from any thread (one lock, held briefly; nothing blocks on a disk while it
 * is held). When the lease is over that a service is bound to, the agent drops the service too: its next comparison
 * misses the service in the catalog, it writes the service again, and the servers refuse that because there is no such
 * lease. Definitions are kept in the data folder (health/store_files.h; written and synced in the background) and
 * survive a restart; those from configuration files are not written, and win over saved ones of the same id.
 *
 * With access control a service and a check are written to the catalog on behalf of the token that they were registered
 * with (kept with the definition, in memory and in the data folder, whose files only this user reads); without one, a
 * service on behalf of the agent's default token. All else is the agent's own work. */
#ifndef COORD_HEALTH_LOCAL_H
#define COORD_HEALTH_LOCAL_H

#include <json-c/json_object.h>
#include <uv.h>

#include "base/error.h"
#include "base/list.h"
#include "base/memory.h"
#include "registry/catalog.h"
#include "rpc/api/requester.h"
#include "rpc/api/rpc.h"

enum check_kind {
    CHECK_NONE,
    CHECK_TTL,
    CHECK_HTTP,
    CHECK_TCP,
    CHECK_UDP,
    CHECK_GRPC,
    CHECK_H2PING,
    CHECK_SCRIPT,
    CHECK_ALIAS,
    CHECK_OS_SERVICE
};

/* A check's definition as the API and configuration files give it, with defaults filled in. Strings belong to the
 * struct. */
struct check_definition {
    char *check_id, *name, *notes, *service_id; /* service_id "": a node check */
    char *token; /* on whose behalf the check is written to the catalog, and an alias looks at its target; "": none */
    enum check_kind kind;
    char *http, *method, *body, *tcp;
    char *udp, *grpc, *h2ping;         /* grpc: "host:port" or "host:port/service" */
    bool grpc_use_tls, h2ping_use_tls; /* h2ping_use_tls: true unless given, where there is an h2ping */
    char **args;                       /* script: the program and its arguments, no shell; not NULL-terminated */
    size_t arg_count;
    char *alias_node, *alias_service; /* alias_node "": this agent's; alias_service: an id; "": the node's checks */
    char *os_service;                 /* a systemd unit */
    struct check_header {
        char *name, *value;
    } * headers; /* one per value */
    size_t header_count;
    bool tls_skip_verify, disable_redirects;
    char *tls_server_name;
    /* timeout default 10 s, 30 s for programs; interval required but for TTL and alias */
    int64_t interval_ns, timeout_ns, ttl_ns, deregister_after_ns;
    uint32_t success_before_passing, failures_before_critical, failures_before_warning;
    uint32_t output_max_size;  /* 4096 */
    Pb__Status initial_status; /* critical unless given */
};
void check_definition_free(struct check_definition *definition);
void check_definition_token(struct check_definition *definition, struct slice token); /* at most REQUESTER_TOKEN_MOST */

struct service_definition {
    Pb__Service *service; /* node filled in by the agent; owned (protobuf-c) */
    char *token;          /* on whose behalf it is written to the catalog, as its checks without a token; "": none */
    struct check_definition **checks;
    size_t check_count;
};
void service_definition_free(struct service_definition *definition);
/* Of the service and of all its checks. */
void service_definition_token(struct service_definition *definition, struct slice token);

/* Whether the agent accepts definitions of script checks: from anybody, or from configuration files only. */
struct check_permission {
    bool scripts, local_scripts;
};
/* CO_DENIED and a fault, in Consul's words, when the agent does not accept this definition. `local`: it is from a
 * configuration file. */
int check_definition_permit(const struct check_definition *definition, const struct check_permission *permission,
                            bool local, struct fault *fault);

/* From JSON as PUT /v1/agent/service/register takes it (or a "service" block of a configuration file; both
 * spellings), keys in any case; unknown keys are a fault. Old-style top-level "check" and "checks" included.
 * "Lease": the service is bound to it (registry/lease.h), as by /v1/catalog/register. NULL and a fault (CO_INVALID,
 * one line as Consul says it where clients look at it). */
struct service_definition *service_definition_parse(struct json_object *json, struct fault *fault);
/* PUT /v1/agent/check/register, or a "check" block. `service_id` of the JSON may name a local service. */
struct check_definition *check_definition_parse(struct json_object *json, struct fault *fault);

struct local_config {
    const char *node, *node_id, *address, *datacenter; /* of this agent */
    const Pb__Node *node_record;                       /* as it is to stand in the catalog */
    const char *folder;                                /* DATA; NULL: nothing is kept (-dev) */
    uint32_t output_limit;                             /* 0: 4096 */
    bool is_server;
    uint16_t server_port;             /* of a server, for the service "consul" in the catalog; 0: none is registered */
    const char *version;              /* its meta "coord_version"; NULL: none */
    const char *consul_version;       /* its meta "version", which clients compare; NULL: none */
    int64_t check_update_interval_ns; /* 0: 5 min; about how late a change of output alone travels */
    int64_t lease_ttl_ns;             /* of the node lease (liveness.h); 0: there is none, for tests */
    int64_t reconnect_timeout_ns;     /* a dead node is removed after so long; 0: 72 h */
    int64_t sync_interval_ns;         /* 0: 60 s; full comparisons with the catalog (jittered) */
    struct check_permission permission;
    uint32_t flap_limit; /* at most FLAP_LIMIT_MOST (health/flap.h); 0: off */
    int64_t flap_window_ns;
    int64_t alias_lost_ns; /* 0: 15 s (local_follow.h) */
    /* Called on the loop after local changes, at most once a turn. NULL: not called. */
    void (*changed)(void *data);
    void *changed_data;
};

struct local;
/* Loads what was saved. Loop thread; runners start at once with jitter. */
int local_start(uv_loop_t *loop, const struct local_config *config, struct rpc *rpc, struct local **out,
                struct fault *fault);
/* Stops runners and anti-entropy, frees everything; `closed` is called on the loop. */
void local_stop(struct local *local, void (*closed)(void *data), void *data);

/* Takes over the definition (also on error; CO_DENIED: check_definition_permit). `replace`:
 * ?replace-existing-checks. `persist`: false for configuration files. */
int local_service_register(struct local *local, struct service_definition *definition, bool replace, bool persist,
                           struct fault *fault);
int local_service_deregister(struct local *local, struct slice id); /* CO_NOTFOUND */
int local_check_register(struct local *local, struct check_definition *definition, bool persist, struct fault *fault);
int local_check_deregister(struct local *local, struct slice check_id); /* CO_NOTFOUND */
/* Whose it is, for access control: the name of the service with this id, and of the check's service, "" of a node's check; in
 * the arena. NULL: there is none. */
const char *local_service_name(struct local *local, struct slice id, struct arena *arena);
const char *local_check_owner(struct local *local, struct slice check_id, struct arena *arena);
/* True: the service or check is registered, and a configuration file defines it. */
bool local_from_file(struct local *local, struct slice id, bool check);
/* TTL checks: pass, warn, fail, update. CO_NOTFOUND, or CO_INVALID (not a TTL check) with a fault. */
int local_check_update(struct local *local, struct slice check_id, Pb__Status status, struct slice output,
                       struct fault *fault);
/* An instance's report of its load (lb/load_hint.h). CO_NOTFOUND: there is no such service. CO_INVALID: load_check
 * refuses it. CO_BUSY: there are too many reports already. */
int local_service_load(struct local *local, struct slice id, const struct load_hint *hint);
int local_service_maintenance(struct local *local, struct slice id, bool enable, struct slice reason); /* CO_NOTFOUND */
int local_node_maintenance(struct local *local, bool enable, struct slice reason);

/* Copies for the API, in the arena: records as they stand or will stand in the catalog, sorted by id. */
size_t local_services(struct local *local, struct arena *arena, Pb__Service ***services);
size_t local_checks(struct local *local, struct arena *arena, Pb__Check ***checks);
/* How a check of this agent stands, for people. Texts are in the arena; times are ages and what is left, in ns. */
#define LOCAL_NO_TIME INT64_MIN
struct local_check_standing {
    Pb__Check *record;
    const char *kind, *target;                    /* "http", "http://..."; "": none */
    int64_t interval_ns, timeout_ns, ttl_ns;      /* 0: it has none */
    int64_t deregister_ns;                        /* its service goes after so long; LOCAL_NO_TIME: never */
    uint32_t to_passing, to_warning, to_critical; /* so many equal results in a row; 0: at once */
    uint64_t successes, failures;                 /* in a row */
    int64_t since_ns, last_ns, next_ns;           /* of its status, its last result, the next run or the TTL's end */
    bool runs, told, held, maintenance; /* the agent runs it; clients report it; damping holds it; maintenance mode */
};
bool local_check_explain(struct local *local, struct slice id, struct arena *arena,
                         struct local_check_standing *standing); /* false: unknown */
/* One service; false: unknown. Checks: the service's and the node's, sorted by id. */
bool local_service(struct local *local, struct slice id, struct arena *arena, Pb__Service **service,
                   Pb__Check ***checks, size_t *check_count);
/* Is an instance of the service passing, with all its checks and those of the node? */
bool local_service_passes(struct local *local, struct slice name);
/* Rises with every change of a local record. */
uint64_t local_generation(struct local *local);
/* Loop thread, once: this node leaves in order, and the servers remove it from the catalog at once. `done` is called on
 * the loop, after 5 s at the latest, with CO_OK or the reason why no server did so. */
void local_leave(struct local *local, void (*done)(void *data, int error), void *data);
/* True once everything local has been delivered to the servers and nothing is dirty (tests, leave). */
bool local_synced(struct local *local);
/* The copy of the configuration that it runs with; constant. */
const struct local_config *local_configuration(const struct local *local);

/* Waiting. The caller owns the struct until `done`, which is called exactly once: on the loop thread, or before the
 * function returns. CO_OK, CO_TIMEOUT (after wait_ms), CO_NOLEADER, CO_CLOSED, or why the servers or the disk
 * refused. */
struct local_waiter {
    void (*done)(struct local_waiter *waiter, int error);
    struct list link; /* the rest is local's own */
    uint64_t target, deadline_ms;
    char *service_id;
};
/* Every change made before this call has been delivered to the servers and is durable in the data folder, or that
 * was tried and failed (it goes on being tried). Without a known leader: only durable. CO_IO: it is not durable, a
 * file of definitions could not be written. */
void local_on_synced(struct local *local, struct local_waiter *waiter, uint64_t wait_ms);
/* The service's hash differs from `hash`. */
void local_on_service_change(struct local *local, struct local_waiter *waiter, struct slice id, uint64_t hash,
                             uint64_t wait_ms);
/* Of a service's definition, for hash-based blocking; 0: there is no such service. */
uint64_t local_service_hash(struct local *local, struct slice id);

#endif
