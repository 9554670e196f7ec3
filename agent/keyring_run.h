/* The shared keys of this process (agent/keyring.h) at work: they protect its connections, unless certificates do, and it
 * answers questions about them (rpc/keyring/keyring.h). Loop thread; the file is written in the thread pool. */
#ifndef COORD_AGENT_KEYRING_RUN_H
#define COORD_AGENT_KEYRING_RUN_H

#include <uv.h>

#include "agent/keyring.h"
#include "rpc/wire/security.h"

struct keyring_run;
/* `path` NULL: the keys are not kept. `ring` empty: there are none, and all questions are refused. With rules of
 * SECURITY_SHARED_KEY it sets `security`, now and after each change. All is copied; `security` outlives it. */
struct keyring_run *keyring_run_new(struct security *security, const struct security_rules *rules,
                                    const struct keyring *ring, const char *path);
struct rpc;
void keyring_run_start(struct keyring_run *run, uv_loop_t *loop, struct rpc *rpc); /* answers from now on */
/* Before rpc stops; `stopped` is called when nothing is under way. NULL: at once. */
void keyring_run_stop(struct keyring_run *run, void (*stopped)(void *data), void *data);
void keyring_run_free(struct keyring_run *run);

#endif
