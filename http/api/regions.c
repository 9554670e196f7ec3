/* /v1/global/regions, and the datacenters of Consul's API: lists the regions, their distance, and their servers. */
#include <string.h>

#include "base/message.h"
#include "http/api/region_views.h"
#include "http/api/topics.h"
#include "http/api/views.h"
#include "http/http.h"
#include "lb/coordinate.h"
#include "multi-dc/keys.h"
#include "multi-dc/region.h"
#include "registry/catalog.h"

#define SERVERS "consul" /* the service of the servers */

/* -- the regions -------------------------------------------------------------------------------------------------- */
static void write_servers(struct json_out *json, const Pb__Region *record) {
    json_key(json, "Servers");
    json_array(json);
    for (size_t i = 0; record && i < record->n_servers; i++) {
        json_object(json);
        json_key(json, "Address"), json_string(json, record->servers[i]->address);
        json_key(json, "Node"), json_string(json, record->servers[i]->node);
        json_key(json, "Version"), json_string(json, record->servers[i]->version);
        json_object_end(json);
    }
    json_array_end(json);
}

static void write_region(struct http_request *request, struct json_out *json, const Pb__PeerRegion *seen,
                         const Pb__Region *record) {
    json_object(json);
    json_key(json, "Region"), json_string(json, seen->name);
    json_key(json, "Own"), json_bool(json, seen->own);
    json_key(json, "ClusterID");
    json_string(json, arena_printf(http_arena(request), "%016llx", (unsigned long long)seen->cluster_id));
    json_key(json, "Reachable"), json_bool(json, seen->reachable);
    region_write_round_trip(json, seen);
    if (!seen->own && !seen->never_heard) json_key(json, "LastContact"), json_u64(json, seen->heard_ms);
    json_key(json, "Leader"), json_string(json, seen->leader);
    if (seen->copied) {
        json_key(json, "AsOf");
        if (seen->never_confirmed) json_null(json);
        else json_u64(json, seen->as_of_ms);
        json_key(json, "Index"), json_u64(json, seen->position);
        json_key(json, "Newest"), json_u64(json, seen->newest);
    }
    if (seen->conflict[0]) json_key(json, "Conflict"), json_string(json, seen->conflict);
    if (record) write_servers(json, record);
    json_object_end(json);
}

static void view_regions(struct http_request *request, const struct regions_shown *shown) {
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; i < shown->seen->n_regions; i++) {
        const Pb__PeerRegion *seen = shown->seen->regions[i];
        write_region(request, json, seen, region_record(shown->records, seen->name));
    }
    json_array_end(json);
    http_reply_json(request, 200);
}

static void global_regions(struct http_request *request) { http_show_regions(request, NULL, NULL, view_regions); }

/* -- copied keys -------------------------------------------------------------------------------------------------- */
static const Pb__PeerKeys *keys_seen(const Pb__PeerRegionsAnswer *seen, const Pb__KeysRule *rule) {
    for (size_t i = 0; i < seen->n_keys; i++)
        if (seen->keys[i]->create_index == rule->create_index &&
            slice_equal(message_slice(seen->keys[i]->prefix), message_slice(rule->prefix)))
            return seen->keys[i];
    return NULL;
}

static void write_rule(struct json_out *json, const Pb__KeysRule *rule, const Pb__PeerKeys *seen) {
    bool whole = keys_whole(rule);
    json_object(json);
    json_key(json, "Prefix"), json_slice(json, message_slice(rule->prefix));
    json_key(json, "Source"), json_string(json, rule->region);
    json_key(json, "Position"), json_u64(json, rule->at ? rule->at->index : 0);
    json_key(json, "Newest"), json_u64(json, seen ? seen->newest : 0);
    json_key(json, "Whole"), json_bool(json, whole);
    json_key(json, "Lag");
    if (!whole || !seen || seen->never_confirmed) json_null(json);
    else json_u64(json, seen->as_of_ms);
    json_key(json, "Reachable"), json_bool(json, seen && seen->reachable);
    json_key(json, "Keys"), json_u64(json, rule->listing ? rule->listed : rule->keys);
    json_key(json, "CreateIndex"), json_u64(json, rule->create_index);
    json_object_end(json);
}

static void view_keys(struct http_request *request, const struct regions_shown *shown) {
    const Pb__KeysRulesResult *rules = (const Pb__KeysRulesResult *)shown->own;
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; i < rules->n_rules; i++)
        write_rule(json, rules->rules[i], keys_seen(shown->seen, rules->rules[i]));
    json_array_end(json);
    http_header_u64(request, "X-Consul-Index", shown->index);
    http_reply_json(request, 200);
}

static void region_keys(struct http_request *request) {
    Pb__KeysRulesRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__keys_rules_request__init(message);
    http_show_regions(request, &query_keys_rules, &message->base, view_keys);
}

/* -- Consul's ----------------------------------------------------------------------------------------------------- */
static void view_datacenters(struct http_request *request, int error, const Pb__PeerRegionsAnswer *seen) {
    if (error) {
        http_reply_error(request, error);
        return;
    }
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; i < seen->n_regions; i++) json_string(json, seen->regions[i]->name);
    json_array_end(json);
    http_reply_json(request, 200);
}

static void catalog_datacenters(struct http_request *request) { http_ask_regions(request, view_datacenters); }

static void area_begin(struct json_out *json, const char *datacenter) {
    json_object(json);
    json_key(json, "Datacenter"), json_string(json, datacenter);
    json_key(json, "AreaID"), json_string(json, "wan");
    json_key(json, "Coordinates");
    json_array(json);
}

static void area_end(struct json_out *json) {
    json_array_end(json);
    json_object_end(json);
}

static void write_coordinate(struct json_out *json, const char *node, const char *segment,
                             const struct vivaldi_coordinate *numbers) {
    json_object(json);
    json_key(json, "Node"), json_string(json, node);
    json_key(json, "Segment"), json_string(json, segment);
    json_key(json, "Coord"), view_coordinate(json, numbers);
    json_object_end(json);
}

/* The height of another region's servers is their measured distance from here. So the computed distance from here is
 * the measured one, and that between two other regions is the sum of both, which is an upper bound. */
static void write_area(struct json_out *json, const Pb__PeerRegion *seen, const Pb__Region *record) {
    struct vivaldi_coordinate numbers = vivaldi_origin();
    numbers.height = (double)seen->rtt_us / 1e6;
    area_begin(json, seen->name);
    for (size_t i = 0; record && seen->rtt_us && i < record->n_servers; i++) {
        const Pb__RegionServer *server = record->servers[i];
        write_coordinate(json, server->node[0] ? server->node : server->address, "", &numbers);
    }
    area_end(json);
}

static void write_own_area(struct http_request *request, struct json_out *json, const Pb__CoordinatesResult *own) {
    area_begin(json, http_env(request)->datacenter);
    for (size_t i = 0; own && i < own->n_coordinates; i++) {
        struct vivaldi_coordinate numbers = coordinate_read(own->coordinates[i]);
        write_coordinate(json, own->coordinates[i]->node, own->coordinates[i]->segment, &numbers);
    }
    area_end(json);
}

static void view_areas(struct http_request *request, const struct regions_shown *shown) {
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; i < shown->seen->n_regions; i++) {
        const Pb__PeerRegion *seen = shown->seen->regions[i];
        if (seen->own) write_own_area(request, json, (const Pb__CoordinatesResult *)shown->own);
        else write_area(json, seen, region_record(shown->records, seen->name));
    }
    json_array_end(json);
    http_reply_json(request, 200);
}

static void coordinate_datacenters(struct http_request *request) {
    static char servers[] = SERVERS;
    if (http_env(request)->no_coordinates) {
        http_reply_text(request, 401, "Coordinate support disabled");
        return;
    }
    Pb__ServiceRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__service_request__init(message);
    message->service = servers;
    http_show_regions(request, &query_service_coordinates, &message->base, view_areas);
}

#define PREFIX                                                                                                        \
    {                                                                                                                 \
        "prefix", HTTP_TEXT, .help = "the prefix of the keys", .required = true, .least = 1, .most = KEYS_PREFIX_MAX, \
                             .field = "prefix"                                                                        \
    }
const struct http_route http_routes_regions[] = {
    {HTTP_GET, "/v1/catalog/datacenters", catalog_datacenters, "none: the names of regions are known to all", NULL,
     "Known datacenters, which are the regions: this one first, then the nearest", HTTP_LOCAL,
     .example = {.status = 200}},
    {HTTP_GET, "/v1/coordinate/datacenters", coordinate_datacenters, "none: the names of regions are known to all",
     HTTP_PARAMS(HTTP_READS), "Network coordinates of the servers by datacenter", HTTP_LOCAL,
     .example = {.status = 200, .depth = 2}},
    {HTTP_GET, "/v1/global/regions", global_regions, "none: the names of regions are known to all", NULL,
     "The regions as this agent's server sees them: reachable or not, how far, how old its copy of their catalogs is",
     HTTP_LOCAL, .example = {.status = 200, .depth = 2}},
    {HTTP_DELETE, "/v1/global/region/:name", http_declared, "operator:write",
     HTTP_PARAMS(
         {":name", HTTP_TEXT, .help = "the region's name", .least = 1, .most = REGION_NAME_MAX, .field = "name"},
         HTTP_DC),
     "Forgets a region for good, until an operator joins it again", HTTP_OWN, .no_example = "it needs another region",
     .endpoint = {.command = REGION_REMOVE}, .cli = {"region remove"}},
    {HTTP_GET, "/v1/region/keys", region_keys, "operator:read", NULL,
     "The keys that are copied from other regions, how many they are, and how many milliseconds they may lag behind",
     HTTP_LOCAL, .example = {.status = 200}},
    {HTTP_PUT, "/v1/region/keys", http_declared, "operator:write",
     HTTP_PARAMS(
         PREFIX,
         {"from", HTTP_TEXT, .help = "the region that they are copied from", .required = true, .least = 1,
          .most = REGION_NAME_MAX, .field = "region"},
         {"replace", HTTP_FLAG, .help = "keys that are here go, unless that region has them", .field = "replace"},
         HTTP_DC),
     "Copies the keys below a prefix from another region, from now on; here nobody else can write them", HTTP_OWN,
     .no_example = "it needs another region", .endpoint = {.command = KEYS_SET}},
    {HTTP_DELETE, "/v1/region/keys", http_declared, "operator:write", HTTP_PARAMS(PREFIX, HTTP_DC),
     "Copies the keys below a prefix no longer: they stay, and can be written here", HTTP_OWN,
     .no_example = "it needs another region", .endpoint = {.command = KEYS_UNSET}},
    {0},
};
