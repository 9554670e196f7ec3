/* The server's side of rpc: one replica of the state machine, driven by Raft, with the lease table of sessions.
 * Opened by the agent; everybody else uses rpc/api/rpc.h. */
#ifndef COORD_RPC_SERVER_H
#define COORD_RPC_SERVER_H

#include <uv.h>

#include "rpc/api/rpc.h"
#include "rpc/leader/write_limit.h"
#include "rpc/server/acl_keys.h"
#include "rpc/server/coordinates.h"
#include "rpc/wire/security.h"
#include "tls/authority.h"

struct rpc_server_config {
    const char *folder;              /* DATA: holds raft/ and store/ */
    const char *address;             /* "IP:port" for the cluster's configuration */
    uint32_t expect;                 /* -bootstrap-expect; 1: founds a cluster of its own; 0: joins one */
    const char *bind;                /* IP for the server port */
    uint16_t port;                   /* 0: no peers (-dev) */
    const char *cluster, *node_name; /* datacenter; this server's name */
    const char *build;               /* of the program, for operators; static; NULL: "" */
    const char *const *join;         /* addresses of other servers, NULL-terminated; may be NULL */
    uint32_t raft_multiplier;
    uint64_t map_bytes;                                             /* of the store; 0: default */
    uint64_t reserve_step_bytes, snapshot_log_bytes, snapshot_rate; /* 0: the defaults of store.h and node.h */
    uint64_t scrub_interval_ms; /* how often the whole store is checked for damage; 0: never */
    struct coordinates_config coordinates;
    uint64_t slow_start_ns;             /* lb/hints.h */
    const struct module_entry *modules; /* registry/modules.h; their settings are borrowed until it is stopped */
    struct security *security;          /* outlives it, as `authority`; NULL: all is plain */
    struct authority *authority;
    const char *dns_domain;     /* in certificates; copied */
    int64_t certificate_life_s; /* of the nodes' certificates that it signs */
    struct acl_keys_config acl; /* access control */
    size_t agents_held_max;     /* 0: the default of rpc/agents/agents.h */
    struct write_limit_config write_limit;
};

/* Loop thread. Recovers and starts; leadership comes later. Faults name file and offset. When *out is set although it
 * failed (the server port), the caller has to stop it. */
int rpc_server_start(uv_loop_t *loop, const struct rpc_server_config *config, struct rpc **out, struct fault *fault);
/* Loop thread. Answers all waiting requests with CO_CLOSED; `closed` is called from the loop when everything is on disk
 * and freed. */
void rpc_server_stop(struct rpc *rpc, void (*closed)(void *data), void *data);

#endif
