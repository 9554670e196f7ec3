/* The cluster's servers, for endpoints that show them. */
#ifndef COORD_HTTP_OPERATOR_VIEWS_H
#define COORD_HTTP_OPERATOR_VIEWS_H

#include "http/http.h"
#include "rpc/operator.h"

/* Asks for the cluster, as the leader knows it or as this server does (on a client agent: as its server does); then `view`, on the worker,
 * must reply. With an error `state` is NULL. `context` is handed through. */
typedef void (*http_cluster_view)(struct http_request *request, int error, const struct rpc_cluster_state *state, const void *context);
void http_ask_cluster(struct http_request *request, bool of_leader, http_cluster_view view, const void *context);

#endif
