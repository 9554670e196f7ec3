/* Members of the cluster, and the servers of other regions, as Consul shows them. */
#ifndef COORD_HTTP_API_MEMBERS_H
#define COORD_HTTP_API_MEMBERS_H

#include "http/http.h"

/* Writes this agent as a member. */
void members_write_own(struct json_out *json, const struct http_env *env);
/* Handler of /v1/agent/members: lists nodes with agents from the catalog, and servers also from Raft's configuration;
 * with ?wan the servers of this region and of all others. */
void members_get(struct http_request *request);

#endif
