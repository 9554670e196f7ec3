/* Requests of operators about the trust of the cluster (registry/trust.h). A server carries them out, because it needs the CA's
 * keys: any server does. Any thread; `done` comes on the loop thread, once. */
#ifndef COORD_RPC_TRUST_ADMIN_H
#define COORD_RPC_TRUST_ADMIN_H

#include "rpc/api/rpc.h"

enum rpc_trust_verb {
    RPC_JOIN_TOKEN = 1, /* makes a token; `text` is it */
    RPC_CA_ROTATE,      /* a new CA signs from now on; the one before stays trusted until nobody has its certificates */
    /* The same with a CA that is brought: `certificates`, and its key in DATA/tls/ca-import.key of the server that is asked. `text`:
     * what a person should know, a line each */
    RPC_CA_IMPORT,
    RPC_CA_DROP,       /* trusts only the CA that signs now, whoever still has another's certificate */
    RPC_SECURE_START,  /* an open cluster: nodes get certificates, both kinds of connections are taken */
    RPC_SECURE_FINISH, /* only encrypted ones from now on */
    RPC_SECURE_ABORT,  /* open again */
    RPC_NODE_REMOVE,   /* the certificate of the node counts no more */
    /* The CA of another region: `node` is the region's name. RPC_REGION_LOOK gives the fingerprint of the CA at `address` as
     * `text`; RPC_REGION_TRUST trusts it if it has the given fingerprint. */
    RPC_REGION_LOOK,
    RPC_REGION_TRUST,
    RPC_REGION_FORGET,
    RPC_TRUST_VERBS
};

#define RPC_TRUST_TEXT 512
struct rpc_trust {
    /* A host with a client agent must not be enough to become a server, or to change the CA: in a closed cluster such requests
     * are taken at servers only (CO_DENIED).
     * CO_OK; CO_NOLEADER, CO_CLOSED, CO_UNKNOWN_OUTCOME; CO_AGAIN: no server that was asked has the CA's key yet; CO_CONFLICT,
     * CO_DENIED, CO_INVALID, CO_NOTFOUND, CO_TOOLARGE: `text` says why. */
    void (*done)(struct rpc_trust *trust, int error);
    const struct requester *requester; /* in: on whose behalf; the caller's reference, until `done` */
    enum rpc_trust_verb verb;          /* in, as what follows; strings stay until `done` */
    bool server;                       /* the token makes servers; the node is a server */
    const char *node;                  /* a token's pattern, the node to remove; NULL: "" */
    const char *address,
        *fingerprint;            /* of regions: a server there; SHA-256 of the CA's key, 64 hex digits. NULL: "" */
    const char *certificates;    /* PEM; servers alone take it */
    uint32_t uses;               /* 0: any number */
    int64_t ttl_ns;              /* 0: for ever */
    bool by_agent;               /* rpc's own: a client agent asks */
    char text[RPC_TRUST_TEXT];   /* out */
    _Alignas(16) char impl[256]; /* rpc's own */
};
void rpc_trust(struct rpc *rpc, struct rpc_trust *trust);

#endif
