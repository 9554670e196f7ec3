/* Commands on tokens that only a server can make, because their secrets are hashed and sealed with a key that only servers
 * have (acl/key.h); and logins, which only servers judge. Any server carries them out. The secret goes there and back over the
 * connections between processes, and into no log, neither Raft's nor that for people. Any thread; `done` comes on the loop
 * thread, once. */
#ifndef COORD_RPC_ACL_ADMIN_H
#define COORD_RPC_ACL_ADMIN_H

#include "acl/acl.pb-c.h"
#include "rpc/api/rpc.h"

enum rpc_acl_verb {
    RPC_ACL_TOKEN_SET = 1, /* ACL_TOKEN_SET of acl/acl.h */
    RPC_ACL_BOOTSTRAP, /* ACL_BOOTSTRAP. A reset by a file beside Raft (rpc/server/acl_admin.h) comes first, if there is one */
    RPC_ACL_LOGIN, /* ACL_LOGIN: of the token count auth_method, the method, and description; `secret` is what is shown */
    RPC_ACL_VERBS
};

#define RPC_ACL_TEXT 512
struct rpc_acl {
    /* CO_OK: `answer` is there. CO_NOLEADER, CO_CLOSED, CO_NOREGION, CO_UNKNOWN_OUTCOME. Of other errors `text` says more:
     * CO_NOTREADY, CO_AGAIN: the server that was asked does not have the key, or there is none yet. */
    void (*done)(struct rpc_acl *acl, int error);
    const struct requester *requester; /* in: on whose behalf; the caller's reference, until `done` */
    char region[RPC_REGION_MAX + 1];   /* in */
    enum rpc_acl_verb verb;            /* in, as what follows; their bytes stay until `done` */
    /* A packed pb.AclTokenSetCommand without a secret's hash. A token that is made gets an accessor where it has none. */
    struct slice command;
    /* Of a token that is made: what its secret is to be; empty: one is drawn. Of one that is there: it has to be its own;
     * empty: it stays. */
    struct slice secret;
    /* Of a login: what this process saw of it; NULL: nothing. The names of its user and group are looked up on the way. */
    Pb__AclProof *proof;
    bool foreign;                 /* another process saw it: its names are there */
    struct buffer answer;         /* out: a packed pb.AclTokenResult, with the secret; the caller wipes and frees it */
    char text[RPC_ACL_TEXT];      /* out */
    _Alignas(16) char impl[1024]; /* rpc's own */
};
void rpc_acl(struct rpc *rpc, struct rpc_acl *acl);

#endif
