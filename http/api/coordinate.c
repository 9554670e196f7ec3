/* /v1/coordinate: the network coordinates of nodes. Texts and statuses are Consul's; where Consul closes the connection
 * or sends no text, the answer is a 400 with a line. */
#include <math.h>

#include "http/api/topics.h"
#include "http/api/views.h"
#include "lb/coordinate.h"
#include "rpc/server/coordinates.h"

/* ---- answers ---- */

void view_coordinate(struct json_out *json, const struct vivaldi_coordinate *coordinate) {
    json_object(json);
    json_key(json, "Vec");
    json_array(json);
    for (int i = 0; i < VIVALDI_DIMENSIONS; i++) json_double(json, coordinate->vec[i]);
    json_array_end(json);
    json_key(json, "Error");
    json_double(json, coordinate->error);
    json_key(json, "Adjustment");
    json_double(json, coordinate->adjustment);
    json_key(json, "Height");
    json_double(json, coordinate->height);
    json_object_end(json);
}

static void records_write(struct json_out *json, const struct query_result *result) {
    const Pb__CoordinatesResult *found = (const Pb__CoordinatesResult *)result->message;
    json_array(json);
    for (size_t i = 0; i < found->n_coordinates; i++) {
        struct vivaldi_coordinate numbers = coordinate_read(found->coordinates[i]);
        json_object(json);
        json_key(json, "Node");
        json_string(json, found->coordinates[i]->node);
        json_key(json, "Segment");
        json_string(json, found->coordinates[i]->segment);
        json_key(json, "Coord");
        view_coordinate(json, &numbers);
        json_object_end(json);
    }
    json_array_end(json);
}

static int nodes_view(struct http_request *request, const struct query_result *result) {
    struct json_out *json = http_out(request);
    if (!result->found) return 404;
    records_write(json, result);
    return 200;
}

/* ---- reads ---- */

static bool enabled(struct http_request *request) {
    if (!http_env(request)->no_coordinates) return true;
    http_reply_text(request, 401, "Coordinate support disabled");
    return false;
}

static void read_coordinates(struct http_request *request, const struct query_type *type, struct slice node) {
    Pb__CoordinatesRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__coordinates_request__init(message);
    message->node = (char *)(uintptr_t)node.data;
    message->by_segment = http_has(request, "segment");
    if (message->by_segment) message->segment = (char *)(uintptr_t)http_parameter(request, "segment").data;
    http_read(request, type, &message->base, nodes_view);
}

static void coordinate_nodes(struct http_request *request) {
    if (enabled(request)) read_coordinates(request, &query_coordinates, SLICE_LITERAL(""));
}

static void coordinate_node(struct http_request *request) {
    if (enabled(request)) read_coordinates(request, &query_node_coordinates, http_path_value(request, "node"));
}

/* ---- updates ---- */

static void number_parse(struct json_object *value, const char *name, double *out, struct fault *fault) {
    if (!json_object_is_type(value, json_type_double) && !json_object_is_type(value, json_type_int))
        fault_set(fault, CO_INVALID, "%s: a number is wanted", name);
    else if (!isfinite(*out = json_object_get_double(value)))
        fault_set(fault, CO_INVALID, "%s: a number is too large", name);
}

static void number_member(struct json_object *json, const char *name, double *out, struct fault *fault) {
    struct json_object *value = json_get(json, name);
    if (value) number_parse(value, name, out, fault);
}

/* Reads the vector into the arena; coordinate_check checks the number of its elements. */
static void vec_parse(struct arena *arena, struct json_object *json, Pb__Coordinate *record, struct fault *fault) {
    struct json_object *array = json_get_array(json, "Vec", fault);
    record->n_vec = array ? json_object_array_length(array) : 0;
    record->vec = arena_alloc(arena, (record->n_vec + 1) * sizeof *record->vec);
    for (size_t i = 0; i < record->n_vec && fault->code == CO_OK; i++)
        number_parse(json_object_array_get_idx(array, i), "Vec", &record->vec[i], fault);
}

static void record_parse(struct arena *arena, struct json_object *json, Pb__Coordinate *record, struct fault *fault) {
    static const char *const known[] = {"Node", "Segment", "Coord", "Datacenter", "Namespace", "Token", NULL};
    static const char *const coord_known[] = {"Vec", "Error", "Adjustment", "Height", NULL};
    const char *node = "", *segment = "";
    json_only_known(json, known, fault);
    json_get_string(json, "Node", &node, fault);
    json_get_string(json, "Segment", &segment, fault);
    record->node = (char *)(uintptr_t)node, record->segment = (char *)(uintptr_t)segment;
    struct json_object *coord = json_get_object(json, "Coord", fault);
    if (!coord) fault_set(fault, CO_INVALID, "Coord is missing");
    json_only_known(coord, coord_known, fault);
    vec_parse(arena, coord, record, fault);
    number_member(coord, "Error", &record->error, fault);
    number_member(coord, "Adjustment", &record->adjustment, fault);
    number_member(coord, "Height", &record->height, fault);
}

static void reply_put(struct http_request *request, int error) {
    switch (error) {
        case CO_OK: http_reply_text(request, 200, "%s", ""); break;
        case CO_UNSUPPORTED: http_reply_text(request, 500, "incompatible coordinate"); break;
        case CO_TOOLARGE:
            http_reply_text(request, 400, "Segment: longer than %d bytes", COORDINATE_SEGMENT_SIZE);
            break;
        case CO_BUSY: http_reply_text(request, 503, "too many coordinate updates, try again later"); break;
        default: http_reply_text(request, 500, "invalid coordinate"); break;
    }
}

static void coordinate_update(struct http_request *request) {
    if (!enabled(request)) return;
    struct json_object *json = http_json(request);
    if (!json) return;
    Pb__Coordinate record = PB__COORDINATE__INIT;
    struct fault fault = {0};
    record_parse(http_arena(request), json, &record, &fault);
    if (fault.code == CO_OK && !record.node[0]) fault_set(&fault, CO_INVALID, "Node is missing");
    if (fault.code == CO_OK && !http_require(request, ACCESS_NODE, slice_text(record.node), ACCESS_WRITE)) return;
    if (fault.code == CO_OK) reply_put(request, rpc_coordinate_put(http_env(request)->rpc, &record));
    else http_reply_text(request, 400, "Request decode failed: %s", fault.text);
}

#define SEGMENT \
    { "segment", HTTP_TEXT, .help = "only of this network segment" }
const struct http_route http_routes_coordinate[] = {
    {HTTP_PUT, "/v1/coordinate/update", coordinate_update, "node:write", NULL, "Takes a node's network coordinate",
     HTTP_LOCAL,
     .example = {.body = "{\"Node\":\"db1\",\"Segment\":\"east\",\"Coord\":{\"Vec\":[0,0,0,0,0,0,0,0],\"Error\":1.5,"
                         "\"Adjustment\":0,"
                         "\"Height\":0.00001}}",
                 .status = 200}},
    {HTTP_GET, "/v1/coordinate/node/*node", coordinate_node, "node:read of *node",
     HTTP_PARAMS({"*node", HTTP_TEXT, .help = "the node's name"}, HTTP_READS, SEGMENT), "Network coordinates of a node",
     0, .example = {"/v1/coordinate/node/db1?segment=east", .status = 200}},
    {HTTP_GET, "/v1/coordinate/nodes", coordinate_nodes, "node:read rows", HTTP_PARAMS(HTTP_READS, SEGMENT),
     "Network coordinates of all nodes", 0, .example = {"/v1/coordinate/nodes?segment=east", .status = 200}},
    {0},
};
