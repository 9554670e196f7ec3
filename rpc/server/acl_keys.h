/* The key of tokens' secrets (acl/key.h) on a server that has access control: it comes from the server's own file, or from
 * another server, or the leader makes it, and the state says which one counts (ACL_KEY of acl/acl.h).
 *
 * (1) A key is in its file, durable, before the state gets its id. Of two leaders that make one at the same time the first
 *     entry counts; the other drops its own when it has got the right one.
 * (2) A file is replaced only by the key whose id the state has.
 * (3) Only servers are told the key, by a call over the connections between servers (PEER_ACL_KEY). In a closed cluster
 *     those have servers' certificates and are encrypted. In an open one they are plain, as everything there is: whoever
 *     can read the network of the servers, or pretend to be one, gets the key.
 *
 * The leader also makes a configured management token (acl.tokens.initial_management, master) where it is missing. The one of
 * `coord init` (agent/first_token.h) is made only as the first: before that nobody else can bootstrap at this server, and
 * afterwards it is forgotten, so that it does not come back once it was deleted.
 *
 * Loop thread; files are read and written in the thread pool, but for the start. */
#ifndef COORD_RPC_ACL_KEYS_H
#define COORD_RPC_ACL_KEYS_H

#include <uv.h>

#include "rpc/core/rpc_internal.h"

struct acl_keys_config {
    bool enabled;               /* else nothing of this happens */
    const char *default_policy; /* "allow" or "deny": what hosts that join are told */
    const char *initial;        /* the secret of a management token; NULL: none. Copied */
    bool only_first;            /* it is made only as the first token of all */
};

struct acl_keys; /* rpc->server->acl_keys */
struct acl_keys *acl_keys_new(struct rpc *rpc, const struct acl_keys_config *config, const char *data_dir);
void acl_keys_free(struct acl_keys *keys); /* nothing of it is under way */
/* Reads the file, and begins a timer. The fault names a file that others may read, or that is damaged. */
int acl_keys_start(struct rpc *rpc, struct fault *fault);
void acl_keys_close(struct rpc *rpc, uv_close_cb closed); /* closes the timer, whose data is `rpc` */
/* Does this server have the key that the state says? Any thread. */
bool acl_keys_ready(const struct rpc *rpc);
const char *acl_keys_folder(const struct rpc *rpc); /* whose acl/key it is */

extern const struct call_method acl_key_method;
bool acl_keys_serve(const struct caller *caller, struct slice payload); /* of a server; false: does not decode */

#endif
