/* The cluster's servers, for endpoints that show or change them. */
#ifndef COORD_HTTP_API_OPERATOR_VIEWS_H
#define COORD_HTTP_API_OPERATOR_VIEWS_H

#include "http/http.h"
#include "registry/catalog.pb-c.h"
#include "rpc/api/operator.h"

/* Asks for the state of the cluster, as the leader knows it or as this server does (on a client agent: as its server
 * does); then calls `view` on the worker, which must reply. With an error `state` is NULL. `context` is passed on. */
typedef void (*http_cluster_view)(struct http_request *request, int error, const struct rpc_cluster_state *state,
                                  const void *context);
void http_ask_cluster(struct http_request *request, bool of_leader, http_cluster_view view, const void *context);

/* Finds the server that is this member of the catalog, by its address and, if known, its name. NULL: none; `state` may
 * be NULL. */
const struct rpc_server_state *http_server_of(const struct rpc_cluster_state *state, const Pb__Member *member);

/* Changes the cluster by rpc_change; then calls `view` on the worker, which must reply. An error is replied here.
 * `change` is copied. */
typedef void (*http_cluster_changed)(struct http_request *request, const void *context);
void http_change_cluster(struct http_request *request, const struct rpc_change *change, http_cluster_changed view,
                         const void *context);

#endif
