/* The cluster's servers, for endpoints that show them. */
#ifndef COORD_HTTP_OPERATOR_VIEWS_H
#define COORD_HTTP_OPERATOR_VIEWS_H

#include "http/http.h"
#include "rpc/operator.h"

/* Asks for the cluster, as the leader knows it or as this server does; then `view`, on the worker, must reply. */
typedef void (*http_cluster_view)(struct http_request *request, const struct rpc_cluster_state *state);
void http_ask_cluster(struct http_request *request, bool of_leader, http_cluster_view view);

#endif
