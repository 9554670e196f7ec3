/* /v1/catalog/... reads. */
#include "http/api/catalog.h"

#include "http/api/near.h"
#include "http/api/topics.h"
#include "http/api/views.h"

static Pb__TableRequest *table_request(struct http_request *request) {
    if (!view_no_filter(request)) return NULL;
    Pb__TableRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__table_request__init(message);
    message->n_node_meta = view_node_meta(request, &message->node_meta);
    return message;
}

static int nodes_view(struct http_request *request, const struct query_result *result) {
    const Pb__NodesResult *found = (const Pb__NodesResult *)result->message;
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; found && i < found->n_nodes; i++) view_node(json, found->nodes[i]);
    json_array_end(json);
    return 200;
}

static void catalog_nodes(struct http_request *request) {
    Pb__TableRequest *message = table_request(request);
    if (message) http_read_near(request, &query_nodes, &message->base, nodes_view);
}

static int services_view(struct http_request *request, const struct query_result *result) {
    const Pb__ServicesResult *found = (const Pb__ServicesResult *)result->message;
    struct json_out *json = http_out(request);
    json_object(json);
    for (size_t i = 0; found && i < found->n_services; i++) {
        json_key_slice(json, slice_text(found->services[i]->name));
        view_strings(json, found->services[i]->tags, found->services[i]->n_tags);
    }
    json_object_end(json);
    return 200;
}

static void catalog_services(struct http_request *request) {
    Pb__TableRequest *message = table_request(request);
    if (message) http_read(request, &query_services, &message->base, services_view);
}

static int service_view(struct http_request *request, const struct query_result *result) {
    const Pb__ServiceEntriesResult *found = (const Pb__ServiceEntriesResult *)result->message;
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; found && i < found->n_entries; i++) view_catalog_service(json, found->entries[i]);
    json_array_end(json);
    return 200;
}

static void catalog_service(struct http_request *request) {
    Pb__ServiceRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__service_request__init(message);
    if (!view_no_filter(request) || !view_path_text(request, "service", "service name", &message->service)) return;
    message->n_node_meta = view_node_meta(request, &message->node_meta);
    struct slice *tags;
    message->n_tags = http_parameters(request, "tag", &tags);
    message->tags = arena_alloc(http_arena(request), (message->n_tags + 1) * sizeof(char *));
    for (size_t i = 0; i < message->n_tags; i++) message->tags[i] = (char *)tags[i].data;
    http_read_near(request, &query_service_entries, &message->base, service_view);
}

/* ---- one node ---- */

static Pb__NodeRequest *node_request(struct http_request *request) {
    Pb__NodeRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__node_request__init(message);
    if (!view_no_filter(request) || !view_path_text(request, "node", "node name", &message->node)) return NULL;
    return message;
}

void view_node_services(struct json_out *json, const Pb__NodeServicesResult *found) {
    json_object(json);
    json_key(json, "Node");
    view_node(json, found->node);
    json_key(json, "Services");
    json_object(json);
    for (size_t i = 0; i < found->n_services; i++) {
        json_key_slice(json, slice_text(found->services[i]->id));
        view_service(json, found->services[i]);
    }
    json_object_end(json);
    json_object_end(json);
}

static int node_view(struct http_request *request, const struct query_result *result) {
    const Pb__NodeServicesResult *found = (const Pb__NodeServicesResult *)result->message;
    struct json_out *json = http_out(request);
    if (result->found && found) view_node_services(json, found);
    else json_null(json);
    return 200;
}

static void catalog_node(struct http_request *request) {
    Pb__NodeRequest *message = node_request(request);
    if (message) http_read(request, &query_node_services, &message->base, node_view);
}

static int node_services_view(struct http_request *request, const struct query_result *result) {
    const Pb__NodeServicesResult *found = (const Pb__NodeServicesResult *)result->message;
    struct json_out *json = http_out(request);
    bool is = result->found && found;
    json_object(json);
    json_key(json, "Node");
    view_node(json, is ? found->node : NULL);
    json_key(json, "Services");
    if (is) {
        json_array(json);
        for (size_t i = 0; i < found->n_services; i++) view_service(json, found->services[i]);
        json_array_end(json);
    } else {
        json_null(json);
    }
    json_object_end(json);
    return 200;
}

static void catalog_node_services(struct http_request *request) {
    Pb__NodeRequest *message = node_request(request);
    if (message) http_read(request, &query_node_services, &message->base, node_services_view);
}

#define NODE \
    { "*node", HTTP_TEXT, .help = "the node's name" }
const struct http_route http_routes_catalog[] = {
    {HTTP_PUT, "/v1/catalog/register", catalog_register, "service:write", HTTP_PARAMS(HTTP_DC),
     "Registers a node, a service of it, checks", 0,
     .example = {.body = "{\"Node\":\"db1\",\"Address\":\"10.0.0.7\",\"Service\":{\"Service\":\"db\",\"Port\":5432},"
                         "\"Check\":{\"Name\":\"alive\",\"Status\":\"passing\",\"ServiceID\":\"db\"}}",
                 .status = 200}},
    {HTTP_PUT, "/v1/catalog/deregister", catalog_deregister, "service:write", HTTP_PARAMS(HTTP_DC),
     "Removes a node, a service or a check; one that is not there is no error", 0,
     .example = {.body = "{\"Node\":\"db0\"}", .status = 200}},
    {HTTP_GET, "/v1/catalog/nodes", catalog_nodes, "node:read rows",
     HTTP_PARAMS(HTTP_READS, VIEW_FILTER, VIEW_NEAR, VIEW_NODE_META), "All nodes", 0, .example = {.status = 200}},
    {HTTP_GET, "/v1/catalog/services", catalog_services, "service:read rows",
     HTTP_PARAMS(HTTP_READS, VIEW_FILTER, VIEW_NODE_META), "All service names with their tags", 0,
     .example = {.status = 200}},
    {HTTP_GET, "/v1/catalog/service/*service", catalog_service, "service:read rows",
     HTTP_PARAMS(VIEW_SERVICE, HTTP_READS, VIEW_FILTER, VIEW_TAG, VIEW_NEAR, VIEW_NODE_META), "Instances of a service",
     0, .example = {"/v1/catalog/service/db", .status = 200}},
    {HTTP_GET, "/v1/catalog/node/*node", catalog_node, "node:read rows", HTTP_PARAMS(NODE, HTTP_READS, VIEW_FILTER),
     "A node and its services by id; null when there is no such node", 0,
     .example = {"/v1/catalog/node/db1", .status = 200}},
    {HTTP_GET, "/v1/catalog/node-services/*node", catalog_node_services, "node:read rows",
     HTTP_PARAMS(NODE, HTTP_READS, VIEW_FILTER), "A node and the list of its services", 0,
     .example = {"/v1/catalog/node-services/db1", .status = 200, .depth = 3}},
    {0},
};
