/* What a request may do with the services and checks of this agent. */
#ifndef COORD_HTTP_API_AGENT_ACCESS_H
#define COORD_HTTP_API_AGENT_ACCESS_H

#include "health/local.h"
#include "http/http.h"

/* All of them: false: it has replied 403. */

/* The service with this id, by its name. One that is not there: whoever has the level for some service is told so, because
 * clients register again what is not there, and others do not learn which ids there are. */
bool agent_may_service(struct http_request *request, struct slice id, enum access_level level);
/* The check with this id, by the name of its service, or by this node's. */
bool agent_may_check(struct http_request *request, struct slice id, enum access_level level);

/* To register it needs service:write (node:write of this node for its own checks) for what it is to be, and for what has
 * its ids now. */
bool agent_may_register(struct http_request *request, const struct service_definition *definition);
bool agent_may_register_check(struct http_request *request, const struct check_definition *definition);

/* Of lists, counts what is hidden. */
bool agent_shows_check(struct http_request *request, const Pb__Check *check);

#endif
