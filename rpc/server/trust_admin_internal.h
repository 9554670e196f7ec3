/* Shared by the files that carry out what operators ask of the cluster's trust: trust_admin.c, trust_ca.c. */
#ifndef COORD_RPC_TRUST_ADMIN_INTERNAL_H
#define COORD_RPC_TRUST_ADMIN_INTERNAL_H

#include "registry/trust.h"
#include "rpc/server/trust_admin.h"

struct trust_admin {
    struct rpc *rpc;
    struct authority *authority;
    char *data_dir, *dns_domain;
    uint64_t looked_ms;
    bool making; /* a new CA is under way */
    struct rpc_write drop;
    _Atomic bool dropping;
};

/* One request. */
struct admin_work {
    struct trust_admin *admin;
    struct rpc_trust *trust;
    struct rpc_write write;
    struct loop_task written;
    int error;
    char text[RPC_TRUST_TEXT]; /* the answer, if it succeeds */
    char why[256];
    /* of a new CA (trust_ca.c) */
    uv_work_t pool;
    struct arena arena;
    bool makes;     /* admin->making is this one's */
    Pb__Trust *old; /* NULL: the cluster is open */
    char domain[TLS_DOMAIN_SIZE + 1];
    struct buffer ca, above, cross;
    uint8_t pin[TLS_PIN_SIZE];    /* of `ca` */
    bool renews;                  /* it is the CA that signs already, with another certificate */
    struct tls_certificate shown; /* the server of another region */
    struct fault fault;
};

/* The request is over: `text` is the answer, or the reason of the error. */
void admin_end(struct admin_work *work, int error, const char *text);
/* Proposes this trust in the place of work->old, and ends with work->text when it is applied. */
void admin_set(struct admin_work *work, Pb__Trust *trust);

/* A new CA signs from now on: made here, or the one that was brought (RPC_CA_IMPORT). For an open cluster it is the first. */
void trust_ca_begin(struct admin_work *work);

#endif
