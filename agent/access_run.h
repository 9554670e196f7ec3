/* Access control of this process: hands the configuration's acl block to the rpc (rpc/api/access_control.h), which finds the
 * rules of tokens by it. On client agents it also follows the servers' state, so that verdicts which are kept here are
 * dropped as soon as a token or a policy changes. Once it warns of tokens that give away too much. Loop thread. */
#ifndef COORD_AGENT_ACCESS_RUN_H
#define COORD_AGENT_ACCESS_RUN_H

#include <uv.h>

#include "agent/config.h"
#include "http/http.h"
#include "rpc/api/rpc.h"

struct access_run;
/* NULL: there is no access control. `config` and the names live as long as the rpc. Before the first request. */
struct access_run *access_run_start(uv_loop_t *loop, struct rpc *rpc, const struct config *config, const char *node);
/* A token of this agent, from now on; "": none. As agent_tokens_config.use. */
void access_run_token(void *run, enum http_agent_token token, const char *secret);
void access_run_stop(struct access_run *run); /* before the rpc stops; accepts NULL */
void access_run_free(struct access_run *run); /* when the loop has ended; accepts NULL */

#endif
