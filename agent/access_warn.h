/* Warns in the log, once after the start, of tokens that give away too much (acl/warnings.h). It asks for their rules as a
 * request would, so it waits until somebody can tell. Loop thread. */
#ifndef COORD_AGENT_ACCESS_WARN_H
#define COORD_AGENT_ACCESS_WARN_H

#include <uv.h>

#include "registry/access.h"
#include "rpc/api/rpc.h"

struct access_warn;
/* `datacenter`: outlives it; `otherwise`: acl.default_policy. Looks when the loop runs. */
struct access_warn *access_warn_start(uv_loop_t *loop, struct rpc *rpc, const char *datacenter,
                                      enum access_level otherwise);
void access_warn_stop(struct access_warn *warn); /* before the rpc stops */
void access_warn_free(struct access_warn *warn); /* when the loop has ended */

#endif
