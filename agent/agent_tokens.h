/* The tokens of this agent: those of the configuration, and those that are set while it runs (PUT /v1/agent/token), which
 * count at once in their place. With acl.enable_token_persistence the latter are kept in DATA/acl/agent-tokens.json, which
 * only this user reads, and count again after a restart.
 *
 * The agent's own work has acl.tokens.agent, else a certificate of the cluster's own CA, else acl.tokens.default. */
#ifndef COORD_AGENT_AGENT_TOKENS_H
#define COORD_AGENT_AGENT_TOKENS_H

#include "agent/config.h"
#include "http/http.h"
#include "rpc/wire/security.h"

struct agent_tokens;
struct agent_tokens_config {
    const struct config *config;
    const char *data_dir; /* NULL: nothing is kept */
    struct security *security;
    /* A token for its own use, "": none. Any thread. */
    void (*use)(void *data, enum http_agent_token token, const char *secret);
    void *data;
};
/* Uses all of them. A file that cannot be read is a fault, because the agent would act on behalf of others. */
int agent_tokens_start(const struct agent_tokens_config *config, struct agent_tokens **out, struct fault *fault);
/* As http_env.set_token; `data`: from agent_tokens_start. With an error the token counts, but is not kept. */
int agent_tokens_set(void *data, enum http_agent_token token, struct slice secret, struct fault *fault);
/* Whose rights the agent's own work has, for people; as http_env.own_rights. Any thread. */
const char *agent_tokens_own(void *data);
void agent_tokens_free(struct agent_tokens *tokens); /* accepts NULL */

#endif
