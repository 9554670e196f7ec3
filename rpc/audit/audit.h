/* The self-audit at work (docs/decisions/self-audit.md): compares sums with the other servers (PEER_AUDIT is a report
 * to all, and no call: it has no answer), scrubs the store in a thread of its own, fences this server when its state
 * is damaged, and has it rebuilt from another server's, or from its own snapshot and log when it is alone.
 *   audit.c          the fence, the judgement, the scrub
 *   audit_rebuild.c  a fenced server gets a new state
 *   audit_source.c   copies of the state for fenced servers */
#ifndef COORD_RPC_AUDIT_H
#define COORD_RPC_AUDIT_H

#include "consensus/node.h"
#include "rpc/api/rpc.h"

struct audit;

/* Call it before the state machine is opened. `folder`: DATA; scrub_interval_ms 0: it never scrubs by itself. It finds
 * out whether the store was fenced when the process ended. */
struct audit *audit_new(struct rpc *rpc, const char *folder, uint64_t scrub_interval_ms);
void audit_free(struct audit *audit);
/* Loop thread, after the node has started; before it stops. */
void audit_start(struct rpc *rpc);
/* `stopped` is called from the loop. After the node. */
void audit_stop(struct rpc *rpc, void (*stopped)(void *data));
void audit_quit(struct rpc *rpc); /* at once: nothing new begins */

/* Any thread. The state is damaged: nothing is served from now on. Only the first call counts. */
void audit_fence(struct rpc *rpc, const char *reason);

/* Any thread: as in rpc_role. */
int audit_serves(struct rpc *rpc);
void audit_fenced_why(struct rpc *rpc, char line[160]);

/* The store behaves oddly: checks the whole of it at once. */
void audit_look(struct rpc *rpc);

/* Applier thread. May entries be applied? True: audit_applied follows. */
bool audit_may_apply(struct rpc *rpc);
void audit_applied(struct rpc *rpc);
/* A snapshot of the leader has replaced the state. */
void audit_installed(struct rpc *rpc);
/* For node_callbacks. */
bool audit_held(void *data);
int audit_rebuild(void *data, bool own, uint64_t *applied, struct fault *fault);
void audit_rebuilt(void *data, int error, const struct fault *fault);

/* Does no majority agree on the state, as far as this server has seen? Any thread. */
bool audit_split(const struct rpc *rpc);
/* Loop thread. */
bool audit_damaged(const struct rpc *rpc, uint64_t peer);                             /* by its own report */
bool audit_frame(struct rpc *rpc, uint64_t from, uint8_t type, struct slice payload); /* false: it does not decode */
void audit_down(struct rpc *rpc, uint64_t peer);                                      /* it takes no copy any more */
extern const struct call_method copy_method;                                          /* of a fenced server */

#endif
