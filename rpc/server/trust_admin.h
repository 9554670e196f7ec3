/* Carries out what operators ask of the cluster's trust (rpc/api/trust_admin.h), on a server. Loop thread; keys and
 * certificates are made in the thread pool.
 *
 * A rotation of the CA: the server that is asked makes the new CA's key and keeps it aside (DATA/tls/ca-next.key), and the
 * entry makes the new CA the first one that everybody trusts, with a certificate by the old one for nodes that were away.
 * Then this server takes the key, the other servers come for it when they renew, and every node renews because another CA
 * signs now. When no certificate of the old CA is left that could still be renewed, the leader drops it.
 *
 * A CA that is brought (tls/ca_import.h) goes the same way. Its key comes by DATA/tls/ca-import.key, which the command on this
 * host has written: no request carries it. Brought once more, with another certificate of the same key, it replaces its
 * certificate alone, and nobody has to renew for it. */
#ifndef COORD_RPC_TRUST_ADMIN_SERVER_H
#define COORD_RPC_TRUST_ADMIN_SERVER_H

#include "rpc/core/rpc_internal.h"
#include "tls/authority.h"

struct trust_admin;
struct trust_admin_config {
    struct authority *authority;       /* outlives it */
    const char *data_dir, *dns_domain; /* copied */
};
struct trust_admin *trust_admin_new(struct rpc *rpc, const struct trust_admin_config *config);
void trust_admin_free(struct trust_admin *admin); /* nothing is under way */
void trust_admin_do(struct trust_admin *admin, struct rpc_trust *trust);
/* About once a second on a leader: drops CAs that nobody needs any more. */
void trust_admin_tick(struct trust_admin *admin, uint64_t now_ms);

#endif
