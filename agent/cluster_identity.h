/* A node's identity in a cluster with certificates of its own: acts for agent/certificate_renewal.h. It reads DATA/tls,
 * tells `security` how connections are protected, follows what the cluster trusts (registry/trust.h), and renews the
 * certificate. The first server of a cluster brings in what `coord init` left. */
#ifndef COORD_AGENT_CLUSTER_IDENTITY_H
#define COORD_AGENT_CLUSTER_IDENTITY_H

#include <uv.h>

#include "agent/certificate_renewal.h"
#include "registry/trust.h"
#include "rpc/api/rpc.h"
#include "rpc/wire/security.h"
#include "tls/authority.h"

struct cluster_identity_config {
    const char *data_dir, *node, *datacenter;
    const char *bind;    /* IP to ask from; NULL: any */
    const char *address; /* of this node */
    uint16_t port;       /* of servers whose address names none */
    int64_t spread_s;    /* agent/certificate_renewal.h */
    bool server;
    struct authority *authority; /* outlives it, as `security` */
    struct security *security;
};

/* Blocking, before rpc starts: CO_OK also without certificates, then the cluster is open. Sets `security` and loads
 * `authority`. */
int cluster_identity_load(const struct cluster_identity_config *config, struct fault *fault);

struct cluster_identity;
/* Loop thread, once rpc has started. Copies the config. */
struct cluster_identity *cluster_identity_start(uv_loop_t *loop, struct rpc *rpc,
                                                const struct cluster_identity_config *config);

/* This node's present certificate, and the CAs of its cluster. */
struct cluster_identity_facts {
    bool has_certificate; /* false: the cluster is open, and nothing else is set */
    char serial[41];
    struct tls_life life;
    enum certificate_renewal_state state;
    size_t ca_count; /* the first one signs */
    struct {
        char name[TLS_NODE_MAX + 1], serial[41];
        struct tls_life life;
    } cas[TRUST_CAS_MAX];
};
void cluster_identity_facts(struct cluster_identity *identity,
                            struct cluster_identity_facts *facts); /* any thread; NULL: none */
/* Looks now whether the certificate is to be renewed, and not within the next second. */
void cluster_identity_look(struct cluster_identity *identity);
/* Before rpc stops; `stopped` is called from the loop when nothing is under way, and all is freed. NULL: at once. */
void cluster_identity_stop(struct cluster_identity *identity, void (*stopped)(void *data), void *data);

#endif
