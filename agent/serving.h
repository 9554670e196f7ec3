/* Starts the HTTP API of an agent, as its configuration says. */
#ifndef COORD_AGENT_SERVING_H
#define COORD_AGENT_SERVING_H

#include "agent/certificate_watch.h"
#include "agent/config.h"
#include "agent/control.h"
#include "agent/identity.h"
#include "http/server.h"

struct serving {
    const struct config *config; /* outlives the server, and all of these do */
    const struct identity *identity;
    struct rpc *rpc;
    struct local *local;
    struct spender_run *spender_run;
    struct acts *acts;
    struct agent_tokens *tokens; /* NULL: there is no access control */
    struct certificate_watch *watch;
    struct tls_slot *tls; /* of HTTPS; NULL: there is none */
};
/* *out is NULL when no address is configured. */
int serving_start(const struct serving *serving, struct http_server **out, struct fault *fault);

/* Where this agent reaches its own API without TLS, for its watches: "127.0.0.1:8500", "unix:///path". False: it has
 * none. */
#define SERVING_ADDRESS 160
bool serving_own_address(const struct config *config, const struct http_server *http, char address[SERVING_ADDRESS]);

#endif
