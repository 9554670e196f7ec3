/* Members of the cluster, and of other regions their servers, as Consul shows them. */
#ifndef COORD_HTTP_API_MEMBERS_H
#define COORD_HTTP_API_MEMBERS_H

#include "http/http.h"

/* This agent. */
void members_write_own(struct json_out *json, const struct http_env *env);
/* Handler of /v1/agent/members: nodes with agents as the catalog has them, and of the servers what Raft knows; with ?wan
 * the servers of this region and of all others. */
void members_get(struct http_request *request);

#endif
