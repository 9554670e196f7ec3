/* All endpoints, topic by topic, in the order of docs/api.md. Examples are run in this order. */
#include "http/http.h"

static void root(struct http_request *request) { http_reply_text(request, 200, "Coord Agent"); }

static const struct http_route http_routes_root[] = {
    {HTTP_GET, "/", root, "none", NULL, "Says who is here", HTTP_LOCAL, .example = {.status = 200}},
    {0},
};

const struct http_topic http_topics[] = {
    {"Services of this agent", http_routes_agent_service},
    {"This agent", http_routes_agent},
    {"Checks of this agent", http_routes_agent_check},
    {"The agent's process and its cluster", http_routes_agent_cluster},
    {"Metrics", http_routes_metrics},
    {"Log", http_routes_monitor},
    {"Catalog", http_routes_catalog},
    {"Health", http_routes_health},
    {"Load balancing", http_routes_lb},
    {"Keys", http_routes_kv},
    {"Sessions", http_routes_session},
    {"Leases", http_routes_lease},
    {"Events", http_routes_event},
    {"Network coordinates", http_routes_coordinate},
    {"Regions", http_routes_regions},
    {"The catalog of all regions", http_routes_global},
    {"Failover to other regions", http_routes_failover},
    {"Status", http_routes_status},
    {"Operators", http_routes_operator},
    {"Backups", http_routes_snapshot},
    {"Access control", http_routes_acl},
    {"Locks", http_routes_lock},
    {"Fences", http_routes_fence},
    {"Elections", http_routes_election},
    {"Barriers", http_routes_barrier},
    {"Hazards", http_routes_hazard},
    {"Phasers", http_routes_phaser},
    {"Quotas", http_routes_quota},
    {"Quotas, spent by this agent", http_routes_quota_take},
    {"Streams", http_routes_watch},
    {"Transactions", http_routes_txn},
    {"Rollouts", http_routes_rollout},
    {"OpenFeature", http_routes_ofrep},
    {"Root", http_routes_root},
    {0},
};
