/* The cluster's servers, for endpoints that show or change them. */
#ifndef COORD_HTTP_API_OPERATOR_VIEWS_H
#define COORD_HTTP_API_OPERATOR_VIEWS_H

#include "http/http.h"
#include "registry/catalog.pb-c.h"
#include "rpc/api/operator.h"

/* Asks for the cluster, as the leader knows it or as this server does (on a client agent: as its server does); then
 * `view`, on the worker, must reply. With an error `state` is NULL. `context` is handed through. */
typedef void (*http_cluster_view)(struct http_request *request, int error, const struct rpc_cluster_state *state,
                                  const void *context);
void http_ask_cluster(struct http_request *request, bool of_leader, http_cluster_view view, const void *context);

/* The server that a member of the catalog is: by its address, and its name where that is known. NULL: none; `state`
 * may be NULL. */
const struct rpc_server_state *http_server_of(const struct rpc_cluster_state *state, const Pb__Member *member);

/* Changes it as rpc_change does; then `view`, on the worker, must reply. What fails is replied here. `change` is
 * copied. */
typedef void (*http_cluster_changed)(struct http_request *request, const void *context);
void http_change_cluster(struct http_request *request, const struct rpc_change *change, http_cluster_changed view,
                         const void *context);

#endif
