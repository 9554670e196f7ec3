/* Carries out commands on tokens (rpc/api/acl_admin.h) on a server that has the key of the secrets. Loop thread.
 *
 * A bootstrap that comes when it is not allowed any more looks for the file acl-bootstrap-reset beside Raft, as Consul's servers
 * do. Whoever may write there (root, or the user of the process) allows one more bootstrap by its content: the reset index, which
 * the refusal names, in digits. "INDEX new-key" also has a new key made, because the servers have lost theirs; all tokens end.
 * The file is removed before its content counts, and the log says that it was used. */
#ifndef COORD_RPC_SERVER_ACL_ADMIN_H
#define COORD_RPC_SERVER_ACL_ADMIN_H

#include "rpc/core/rpc_internal.h"

#define ACL_RESET_FILE "acl-bootstrap-reset"

void acl_admin_do(struct rpc *rpc, struct rpc_acl *acl);

#endif
