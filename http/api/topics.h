/* Rows of the routing table by topic, gathered in http/api/topics.c. Each ends with a row of zeros. */
#ifndef COORD_HTTP_API_TOPICS_H
#define COORD_HTTP_API_TOPICS_H

#include "http/route.h"

extern const struct http_route http_routes_kv[], http_routes_session[], http_routes_status[], http_routes_catalog[],
    http_routes_health[], http_routes_agent[], http_routes_agent_cluster[], http_routes_agent_check[],
    http_routes_agent_service[], http_routes_agent_token[], http_routes_metrics[], http_routes_operator[],
    http_routes_keyring[], http_routes_snapshot[], http_routes_acl[], http_routes_acl_policy[], http_routes_acl_role[],
    http_routes_acl_method[], http_routes_acl_request[], http_routes_coordinate[], http_routes_lease[],
    http_routes_event[], http_routes_monitor[], http_routes_lock[], http_routes_fence[], http_routes_election[],
    http_routes_barrier[], http_routes_phaser[], http_routes_hazard[], http_routes_watch[], http_routes_txn[],
    http_routes_quota[], http_routes_quota_take[], http_routes_rollout[], http_routes_ofrep[], http_routes_lb[],
    http_routes_regions[], http_routes_global[], http_routes_failover[], http_routes_trust[], http_routes_trust_ca[],
    http_routes_trust_regions[];

void lb_metrics(void); /* registers those of http/api/lb.c */

#endif
