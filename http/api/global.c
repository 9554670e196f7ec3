/* /v1/global/service, /v1/global/services: all regions in one answer, of this region's catalog and of its copies of the
 * others. They do not block; to follow one region, ask it with ?dc=. */
#include <string.h>

#include "http/api/region_views.h"
#include "http/api/topics.h"
#include "http/api/views.h"
#include "http/http.h"
#include "multi-dc/global.h"

/* -- a service ---------------------------------------------------------------------------------------------------- */
static void view_instances(struct http_request *request, const struct regions_shown *shown) {
    const Pb__GlobalServiceResult *found = (const Pb__GlobalServiceResult *)shown->own;
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; i < found->n_regions; i++) {
        for (size_t k = 0; k < found->regions[i]->n_entries; k++) {
            view_service_entry_begin(json, found->regions[i]->entries[k]);
            region_write_origin(json, found->regions[i]->region, shown->seen);
            json_object_end(json);
        }
    }
    json_array_end(json);
    http_header_u64(request, "X-Consul-Index", shown->index);
    http_reply_json(request, 200);
}

static char **texts(struct http_request *request, const char *parameter, size_t *count) {
    struct slice *values;
    *count = http_parameters(request, parameter, &values);
    char **out = arena_alloc(http_arena(request), (*count + 1) * sizeof *out);
    for (size_t i = 0; i < *count; i++) out[i] = (char *)(uintptr_t)values[i].data;
    return out;
}

static void global_service(struct http_request *request) {
    Pb__GlobalRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__global_request__init(message);
    if (!view_path_text(request, "service", "service name", &message->service)) return;
    message->own = (char *)(uintptr_t)http_env(request)->datacenter;
    message->tags = texts(request, "tag", &message->n_tags);
    message->regions = texts(request, "region", &message->n_regions);
    message->passing_only = http_has(request, "passing");
    http_show_regions(request, &query_global, &message->base, view_instances);
}

/* -- all of them -------------------------------------------------------------------------------------------------- */
static void write_name(struct json_out *json, const char *service, char *const *tags, size_t count, const char *region,
                       const Pb__PeerRegionsAnswer *seen) {
    json_object(json);
    json_key(json, "Service"), json_string(json, service);
    json_key(json, "Tags"), view_strings(json, tags, count);
    region_write_origin(json, region, seen);
    json_object_end(json);
}

static void view_services(struct http_request *request, const struct regions_shown *shown) {
    const Pb__ServicesResult *own = shown->context;
    const Pb__GlobalServicesResult *copies = (const Pb__GlobalServicesResult *)shown->own;
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; own && i < own->n_services; i++) {
        const Pb__ServiceTags *service = own->services[i];
        write_name(json, service->name, service->tags, service->n_tags, http_env(request)->datacenter, shown->seen);
    }
    for (size_t i = 0; i < copies->n_services; i++) {
        const Pb__GlobalServiceName *service = copies->services[i];
        for (size_t k = 0; k < service->n_regions; k++)
            write_name(json, service->name, service->tags, service->n_tags, service->regions[k], shown->seen);
    }
    json_array_end(json);
    http_header_u64(request, "X-Consul-Index", shown->index);
    http_reply_json(request, 200);
}

static void own_known(struct http_request *request, int error, const struct query_result *result) {
    Pb__GlobalServicesRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__global_services_request__init(message);
    if (error) {
        http_reply_error(request, error);
        return;
    }
    http_tell_hidden(request);
    http_set_context(request, result->message);
    http_show_regions(request, &query_global_services, &message->base, view_services);
}

static void global_services(struct http_request *request) {
    Pb__TableRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__table_request__init(message);
    http_read_once(request, &query_services, &message->base, RPC_STALE, own_known);
}

const struct http_route http_routes_global[] = {
    {HTTP_GET, "/v1/global/services", global_services, "service:read rows", NULL,
     "Services of all regions: which there are in which region, each with Region, AsOf (age in ms) and Reachable",
     HTTP_LOCAL, .example = {.status = 200}},
    {HTTP_GET, "/v1/global/service/*service", global_service, "service:read rows",
     HTTP_PARAMS(VIEW_SERVICE, VIEW_TAG,
                 {"region", HTTP_TEXT, .repeats = true, .help = "only of this region; all of them"},
                 {"passing", HTTP_FLAG, .help = "only instances all of whose checks pass"}),
     "Instances of a service in all regions, as /v1/health/service has them, each with Region, AsOf (age in ms) and "
     "Reachable",
     HTTP_LOCAL, .example = {"/v1/global/service/db", .status = 200}},
    {0},
};
