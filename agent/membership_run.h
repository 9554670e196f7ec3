/* A node's part in a cluster with certificates of its own: acts for agent/membership.h. It reads DATA/tls, tells `security`
 * how connections are protected, follows what the cluster trusts (registry/trust.h), and renews the certificate. The first
 * server of a cluster brings in what `coord init` left. */
#ifndef COORD_AGENT_MEMBERSHIP_RUN_H
#define COORD_AGENT_MEMBERSHIP_RUN_H

#include <uv.h>

#include "agent/membership.h"
#include "registry/trust.h"
#include "rpc/api/rpc.h"
#include "rpc/wire/security.h"
#include "tls/authority.h"

struct membership_run_config {
    const char *data_dir, *node, *datacenter;
    const char *bind;    /* IP to ask from; NULL: any */
    const char *address; /* of this node */
    uint16_t port;       /* of servers whose address names none */
    int64_t spread_s;    /* agent/membership.h */
    bool server;
    struct authority *authority; /* outlives it, as `security` */
    struct security *security;
};

/* Blocking, before rpc starts: CO_OK also without certificates, then the cluster is open. Sets `security` and loads
 * `authority`. */
int membership_load(const struct membership_run_config *config, struct fault *fault);

struct membership_run;
/* Loop thread, once rpc has started. Copies the config. */
struct membership_run *membership_run_start(uv_loop_t *loop, struct rpc *rpc,
                                            const struct membership_run_config *config);

/* This node's present certificate, and the CAs of its cluster. */
struct membership_facts {
    bool has_certificate; /* false: the cluster is open, and nothing else is set */
    char serial[41];
    struct tls_life life;
    enum membership_state state;
    size_t ca_count; /* the first one signs */
    struct {
        char name[TLS_NODE_MAX + 1], serial[41];
        struct tls_life life;
    } cas[TRUST_CAS_MAX];
};
void membership_run_facts(struct membership_run *run, struct membership_facts *facts); /* any thread; NULL: none */
/* Looks now whether the certificate is to be renewed, and not within the next second. */
void membership_run_look(struct membership_run *run);
/* Before rpc stops; `stopped` is called from the loop when nothing is under way, and all is freed. NULL: at once. */
void membership_run_stop(struct membership_run *run, void (*stopped)(void *data), void *data);

#endif
