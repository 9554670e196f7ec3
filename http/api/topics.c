/* All endpoints, topic by topic, in the order of docs/api.md. Examples are run in this order. */
#include "http/api/topics.h"

#include "http/api/ofrep.h"
#include "http/api/picks.h"

static void root(struct http_request *request) { http_reply_text(request, 200, "Coord Agent"); }

static const struct http_route http_routes_root[] = {
    {HTTP_GET, "/", root, "none: it shows nothing", NULL, "Says who is here", HTTP_LOCAL, .example = {.status = 200}},
    {0},
};

const struct http_topic http_topics[] = {
    {"Services of this agent", .rows = http_routes_agent_service},
    {"This agent", .rows = http_routes_agent},
    {"Checks of this agent", .rows = http_routes_agent_check},
    {"Tokens of this agent", .rows = http_routes_agent_token},
    {"The agent's process and its cluster", .rows = http_routes_agent_cluster},
    {"Metrics", .rows = http_routes_metrics},
    {"Log", .rows = http_routes_monitor},
    {"Catalog", .rows = http_routes_catalog},
    {"Health", .rows = http_routes_health},
    {"Load balancing", .rows = http_routes_lb},
    {"Keys", .rows = http_routes_kv},
    {"Sessions", .rows = http_routes_session},
    {"Leases", .rows = http_routes_lease},
    {"Events", .rows = http_routes_event},
    {"Network coordinates", .rows = http_routes_coordinate},
    {"Regions", .rows = http_routes_regions},
    {"The catalog of all regions", .rows = http_routes_global},
    {"Failover to other regions", .rows = http_routes_failover},
    {"Status", .rows = http_routes_status},
    {"Operators", .rows = http_routes_operator},
    {"Keys of encryption", .rows = http_routes_keyring},
    {"Joining, and certificates of nodes", .rows = http_routes_trust},
    {"The cluster's CA", .rows = http_routes_trust_ca},
    {"Trust between regions", .rows = http_routes_trust_regions},
    {"Backups", .rows = http_routes_snapshot},
    {"Access control: tokens", .rows = http_routes_acl},
    {"Access control: policies", .rows = http_routes_acl_policy},
    {"Access control: roles", .rows = http_routes_acl_role},
    {"Access control: auth methods and binding rules", .rows = http_routes_acl_method},
    {"Access control: of a token itself", .rows = http_routes_acl_request},
    {"Locks", .rows = http_routes_lock},
    {"Fences", .rows = http_routes_fence},
    {"Elections", .rows = http_routes_election},
    {"Barriers", .rows = http_routes_barrier},
    {"Hazards", .rows = http_routes_hazard},
    {"Phasers", .rows = http_routes_phaser},
    {"Quotas", .rows = http_routes_quota},
    {"Quotas, spent by this agent", .rows = http_routes_quota_take},
    {"Streams", .rows = http_routes_watch},
    {"Transactions", .rows = http_routes_txn},
    {"Rollouts", .rows = http_routes_rollout},
    {"OpenFeature", .rows = http_routes_ofrep, .prefix = "/ofrep/",
     .refused = ofrep_cors}, /* else a page cannot see why */
    {"Root", .rows = http_routes_root},
    {0},
};

static void *worker_new(struct rpc *rpc, size_t cache_bytes) {
    lb_metrics();
    return picks_new(rpc, cache_bytes);
}

static void worker_free(void *kept) { picks_free(kept); }

const struct http_api http_api = {worker_new, worker_free};
