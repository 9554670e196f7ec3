/* /v1/rollout: versions of a configuration, and the callers that get them. */
#include "base/json_schema.h"
#include "http/api/rollout_views.h"
#include "http/api/topics.h"
#include "http/declared.h"
#include "http/http.h"

#define TRIES_MOST 5 /* of one publication, while its schema changes */

static struct slice path_name(const struct http_request *request) { return http_path_value(request, "name"); }

/* The agent through which the request came. */
static char *by_agent(struct http_request *request) {
    return arena_printf(http_arena(request), "node %s", http_env(request)->node_name);
}

/* -- callers ------------------------------------------------------------------------------------------------------ */

static bool caller_prepare(struct http_request *request, ProtobufCMessage *message) {
    Pb__RolloutCaller *caller = (Pb__RolloutCaller *)(void *)message;
    if (caller->n_tags > ROLLOUT_TAGS_MOST) {
        http_reply_text(request, 400, "tag: at most %d", ROLLOUT_TAGS_MOST);
        return false;
    }
    if (!caller->region[0]) caller->region = (char *)(uintptr_t)http_env(request)->datacenter;
    rollout_caller_keys(caller, http_arena(request));
    return true;
}

static int resolution_status(const ProtobufCMessage *answer) {
    return ((const Pb__RolloutResolution *)answer)->missing ? 404 : 200;
}

/* -- documents ---------------------------------------------------------------------------------------------------- */

struct publication {
    Pb__RolloutPublishCommand *command;
    Pb__RolloutRequest schema;
    unsigned tries;
};

/* Parses a schema; NULL and a fault. */
static struct json_schema *schema_read(struct slice text, struct fault *fault) {
    struct json_schema *schema = NULL;
    struct json_object *json;
    (void)json_parse_value(text, &json, fault);
    if (!fault->code && json_refuse_duplicates(text, fault) == CO_OK) schema = json_schema_compile(json, fault);
    json_object_put(json);
    return schema;
}

/* Does the document fit the schema? False: it has replied. */
static bool document_fits(struct http_request *request, struct slice schema, struct slice document) {
    struct fault fault = {0};
    struct json_schema *rules = NULL;
    struct json_object *json;
    (void)json_parse_value(document, &json, &fault);
    if (!fault.code) json_refuse_duplicates(document, &fault);
    if (!fault.code && !slice_is(schema, "json")) rules = schema_read(schema, &fault);
    if (rules) json_schema_check(rules, json, &fault);
    json_schema_free(rules);
    json_object_put(json);
    if (fault.code) http_reply_text(request, 400, "the document does not fit the schema: %s", fault.text);
    return !fault.code;
}

static void publish_look(struct http_request *request);

static void published(struct http_request *request, const struct machine_result *result) {
    struct publication *publication = (struct publication *)(uintptr_t)http_context(request);
    if (result->error == CO_AGAIN && ++publication->tries < TRIES_MOST) publish_look(request);
    else if (result->error == CO_AGAIN) http_reply_text(request, 409, "%s: try again", result->text);
    else http_reply_result(request, result);
}

static void schema_found(struct http_request *request, int error, const struct query_result *result) {
    const struct publication *publication = http_context(request);
    Pb__RolloutPublishCommand *command = publication->command;
    if (error) {
        http_reply_error(request, error);
        return;
    }
    command->schema_index = 0;
    if (result->found) {
        const Pb__RolloutSchema *schema = (const Pb__RolloutSchema *)result->message;
        struct slice document = slice_make(command->document.data, command->document.len);
        if (!document_fits(request, slice_make(schema->schema.data, schema->schema.len), document)) return;
        command->schema_index = schema->index;
    }
    http_write(request, ROLLOUT_PUBLISH, &command->base, published);
}

static void publish_look(struct http_request *request) {
    const struct publication *publication = http_context(request);
    http_read_once(request, &query_rollout_schema, &publication->schema.base, RPC_DEFAULT, schema_found);
}

/* The document is checked here and not when the command is applied, because a check may take long. The command names
 * the schema, and is refused when there is another one by then. */
static void put_version(struct http_request *request) {
    ProtobufCMessage *message = declared_message(request, &pb__rollout_publish_command__descriptor);
    if (!message) return;
    struct publication *publication = arena_zalloc(http_arena(request), sizeof *publication);
    pb__rollout_request__init(&publication->schema);
    publication->command = (Pb__RolloutPublishCommand *)(void *)message;
    publication->command->by = by_agent(request);
    publication->schema.name = publication->command->name;
    http_set_context(request, publication);
    publish_look(request);
}

static void put_schema(struct http_request *request) {
    ProtobufCMessage *message = declared_message(request, &pb__rollout_schema_command__descriptor);
    struct fault fault = {0};
    if (!message) return;
    Pb__RolloutSchemaCommand *command = (Pb__RolloutSchemaCommand *)(void *)message;
    struct slice text = slice_make(command->schema.data, command->schema.len);
    if (slice_is(text, "json") || slice_is(text, "\"json\"")) {
        command->schema.data = (uint8_t *)(uintptr_t) "json", command->schema.len = 4;
    } else {
        struct json_schema *rules = schema_read(text, &fault);
        json_schema_free(rules);
        if (!rules) {
            http_reply_text(request, 400, "%s (wanted: \"json\", or a JSON Schema)", fault.text);
            return;
        }
    }
    command->by = by_agent(request);
    http_write(request, ROLLOUT_SCHEMA, message, NULL);
}

static bool schema_prepare(struct http_request *request, ProtobufCMessage *message) {
    ((Pb__RolloutSchemaCommand *)(void *)message)->by = by_agent(request);
    return true;
}

static int schema_view(struct http_request *request, const struct query_result *result) {
    const Pb__RolloutSchema *schema = (const Pb__RolloutSchema *)result->message;
    if (!result->found) {
        http_view_text(request, "rollout \"%.*s\" has no schema", (int)path_name(request).size,
                       path_name(request).data);
        return 404;
    }
    struct slice text = slice_make(schema->schema.data, schema->schema.len);
    if (slice_is(text, "json")) json_string(http_out(request), "json");
    else json_raw(http_out(request), text);
    return 200;
}

static void get_schema(struct http_request *request) {
    ProtobufCMessage *message = declared_message(request, &pb__rollout_request__descriptor);
    if (message) http_read(request, &query_rollout_schema, message, schema_view);
}

/* -- changes ------------------------------------------------------------------------------------------------------ */

static bool set_prepare(struct http_request *request, ProtobufCMessage *message) {
    ((Pb__RolloutSetCommand *)(void *)message)->by = by_agent(request);
    return true;
}

static bool change_prepare(struct http_request *request, ProtobufCMessage *message) {
    ((Pb__RolloutChangeCommand *)(void *)message)->by = by_agent(request);
    return true;
}

/* -- rows --------------------------------------------------------------------------------------------------------- */

#define NAME \
    { ":name", HTTP_TEXT, .help = "the rollout's name", .least = 1, .most = ROLLOUT_NAME_MOST, .field = "name" }
#define NOW \
    { .type = HTTP_NOW, .field = "now_unix_ms" }
static const struct http_param document = {"document", HTTP_TEXT, .help = "the document", .required = true,
                                           .field = "document"};
static const struct http_param schema = {
    "schema",         HTTP_TEXT,        .help = "\"json\", or a JSON Schema", .least = 1, .most = ROLLOUT_SCHEMA_MOST,
    .required = true, .field = "schema"};

static const struct http_param match[] = {{"Tags", HTTP_TEXT, .help = "callers that have one of these", .least = 1,
                                           .most = ROLLOUT_NODE_MOST, .repeats = true, .field = "tags"},
                                          {"Nodes", HTTP_TEXT, .help = "callers on one of these", .least = 1,
                                           .most = ROLLOUT_NODE_MOST, .repeats = true, .field = "nodes"},
                                          {"Regions", HTTP_TEXT, .help = "callers in one of these", .least = 1,
                                           .most = ROLLOUT_NODE_MOST, .repeats = true, .field = "regions"},
                                          {0}};
static const struct http_param step[] = {
    {"Percent", HTTP_DECIMAL, .help = "of the callers, a multiple of 0.01", .most = 100, .required = true,
     .field = "percent"},
    {"Hold", HTTP_DURATION, .help = "how long, before the next step or everybody; 0: until it is promoted",
     .most = ROLLOUT_HOLD_MOST_NS, .field = "hold_ns"},
    {0}};
static const struct http_param guard[] = {
    {"Service", HTTP_TEXT, .help = "callers on nodes where an instance of it turns critical fail",
     .most = ROLLOUT_NODE_MOST, .field = "service"},
    {"MaxFailing", HTTP_DECIMAL, .help = "a part of those that acknowledged the version; above it the guard acts",
     .most = 1, .required = true, .field = "max_failing"},
    {"MinSamples", HTTP_U64, .help = "so many have to have acknowledged it", .most = ROLLOUT_CALLERS_MOST,
     .field = "min_samples"},
    {"OnFail", HTTP_CHOICE, .help = "the action of the guard", .choices = "pause|rollback", .field = "on_fail"},
    {0}};
static const struct http_param set[] = {
    {"Version", HTTP_TEXT, .help = "the version that is given", .least = 1, .most = ROLLOUT_NAME_MOST, .required = true,
     .field = "version"},
    {"Percent", HTTP_DECIMAL,
     .help = "of the callers, a multiple of 0.01; 100 unless there are steps, which begin there if it is given",
     .most = 100, .field = "percent", .given = "percent_given"},
    {"Match", HTTP_OBJECT, .help = "only these callers", .field = "match", .group = match},
    {"Steps", HTTP_OBJECT, .help = "percentages that follow one another", .repeats = true, .field = "steps",
     .group = step},
    {"Guard", HTTP_OBJECT, .help = "when it is stopped", .field = "guard", .group = guard},
    {"Comment", HTTP_TEXT, .help = "why, for the history", .most = ROLLOUT_TEXT_MOST, .field = "comment"},
    {"Cas", HTTP_U64, .help = "only if this is the rollout's ModifyIndex; 0: if there is none", .field = "cas",
     .given = "cas_given"},
    {0}};
#define CHANGE(verb_, number_, summary_)                                                                               \
    {                                                                                                                  \
        HTTP_PUT, "/v1/rollout/:name/" verb_, http_declared, "rollout:write",                                          \
            HTTP_PARAMS(                                                                                               \
                NAME, HTTP_DC,                                                                                         \
                {"comment", HTTP_TEXT, .help = "why, for the history", .most = ROLLOUT_TEXT_MOST, .field = "comment"}, \
                {"cas", HTTP_U64, .help = "only if this is the rollout's ModifyIndex", .field = "cas",                 \
                 .given = "cas_given"},                                                                                \
                NOW),                                                                                                  \
            summary_, HTTP_OWN,                                                                                        \
            .no_example = "it needs a stage under way (docs/rollouts.md)",                                             \
            .endpoint = {.command = (number_), .prepare = change_prepare, .answer = rollout_set_members}, .cli = {     \
                "rollout " verb_                                                                                       \
            }                                                                                                          \
    }
#define CALLER(name_, help_, field_) \
    { name_, HTTP_TEXT, .help = (help_), .most = ROLLOUT_NODE_MOST, .field = field_ }
const struct http_route http_routes_rollout[] = {
    {HTTP_PUT, "/v1/rollout/:name/versions/:version", put_version, "rollout:write of :name",
     HTTP_PARAMS(NAME,
                 {":version", HTTP_TEXT, .help = "the version's name", .least = 1, .most = ROLLOUT_NAME_MOST,
                  .field = "version"},
                 HTTP_DC, NOW),
     "Publishes a version: the body becomes the key config/NAME/VERSION; 409 when it exists with other content",
     HTTP_OWN | HTTP_BODY_RAW | HTTP_BODY_BIG,
     .example = {"/v1/rollout/web/versions/v1", .body = "{\"Color\":\"blue\"}", .status = 200},
     .endpoint = {.command = ROLLOUT_PUBLISH, .raw = &document}, .cli = {"rollout put"}},
    {HTTP_PUT, "/v1/rollout/:name/current", http_declared, "rollout:write of :name", HTTP_PARAMS(NAME, HTTP_DC, NOW),
     "Makes a version the current one for everybody, or gives it to a part of the callers: a stage. A stage is what "
     "has Steps, Match, Guard or a Percent below 100",
     HTTP_OWN,
     .example = {"/v1/rollout/web/current", .body = "{\"Version\":\"v1\",\"Comment\":\"first\"}", .status = 200,
                 .depth = 1},
     .endpoint = {.command = ROLLOUT_SET, .body = set, .prepare = set_prepare, .answer = rollout_set_members}},
    {HTTP_GET, "/v1/rollout/:name", http_declared, "rollout:read of :name",
     HTTP_PARAMS(NAME,
                 {"id", HTTP_TEXT, .help = "the caller's, which stays the same for him", .least = 1,
                  .most = ROLLOUT_ID_MOST, .required = true, .field = "id"},
                 CALLER("node", "where the caller runs", "node"),
                 {"tag", HTTP_TEXT, .help = "that the caller has", .least = 1, .most = ROLLOUT_NODE_MOST,
                  .repeats = true, .field = "tags"},
                 CALLER("region", "where the caller is; the datacenter unless it is given", "region"), HTTP_READS),
     "The version that a caller gets, and its document. Wakes only those whose version becomes another one", HTTP_OWN,
     .example = {"/v1/rollout/web?id=web-17&node=n1", .status = 200},
     .endpoint = {.query = &query_rollout,
                  .prepare = caller_prepare,
                  .answer = rollout_resolution_members,
                  .status = resolution_status,
                  .watched = "rollout",
                  .missing = "has no current version"}},
    {HTTP_PUT, "/v1/rollout/:name/ack", http_declared, "rollout:read of :name",
     HTTP_PARAMS(NAME, HTTP_DC,
                 {"id", HTTP_TEXT, .help = "the caller's", .least = 1, .most = ROLLOUT_ID_MOST, .required = true,
                  .field = "id"},
                 {"version", HTTP_TEXT, .help = "the version that it runs, or refuses", .least = 1,
                  .most = ROLLOUT_NAME_MOST, .required = true, .field = "version"},
                 {"ok", HTTP_CHOICE, .help = "true: it runs the version, false: it refuses it (default true)",
                  .choices = "true|false", .field = "ok"},
                 CALLER("node", "where the caller runs", "node"),
                 {"reason", HTTP_TEXT, .help = "why it refuses it", .most = ROLLOUT_TEXT_MOST, .field = "reason"}, NOW),
     "A caller says that it runs a version, or refuses it", HTTP_OWN,
     .example = {"/v1/rollout/web/ack?id=web-17&version=v1&ok=true&node=n1", .status = 200},
     .endpoint = {.command = ROLLOUT_ACK}, .cli = {"rollout ack"}},
    {HTTP_GET, "/v1/rollout/:name/status", http_declared, "rollout:read of :name", HTTP_PARAMS(NAME, HTTP_READS),
     "The callers that acknowledged a version, with that version; and the nodes without any", HTTP_OWN,
     .example = {"/v1/rollout/web/status", .status = 200, .depth = 2},
     .endpoint = {.query = &query_rollout_state,
                  .answer = rollout_state_members,
                  .watched = "rollout",
                  .missing = "does not exist"}},
    {HTTP_GET, "/v1/rollout/:name/history", http_declared, "rollout:read of :name", HTTP_PARAMS(NAME, HTTP_READS),
     "The changes of a rollout, with author, time and comment; the newest first, the newest 10000", HTTP_OWN,
     .example = {"/v1/rollout/web/history", .status = 200},
     .endpoint = {.query = &query_rollout_history, .answer = rollout_change_members, .list = "changes"},
     .cli = {"rollout history", .columns = "Number Time Kind From To Percent By Comment"}},
    {HTTP_GET, "/v1/rollouts", http_declared, "rollout:read rows",
     HTTP_PARAMS(
         {"prefix", HTTP_TEXT, .help = "only names that begin so", .most = ROLLOUT_NAME_MOST, .field = "prefix"},
         HTTP_READS),
     "All rollouts, without counts", HTTP_OWN, .example = {"/v1/rollouts?prefix=w", .status = 200, .depth = 2},
     .endpoint = {.query = &query_rollouts, .answer = rollout_set_members, .list = "rollouts"},
     .cli = {"rollout list", .columns = "Name Current Since Stage Next Comment"}},
    {HTTP_PUT, "/v1/rollout/:name/schema", put_schema, "rollout:write of :name", HTTP_PARAMS(NAME, HTTP_DC, NOW),
     "Sets the schema of documents that are published from now on: \"json\", or a JSON Schema (docs/rollouts.md)",
     HTTP_OWN | HTTP_BODY_RAW,
     .example = {"/v1/rollout/web/schema", .body = "{\"type\":\"object\",\"required\":[\"Color\"]}", .status = 200},
     .endpoint = {.command = ROLLOUT_SCHEMA, .raw = &schema}, .cli = {"rollout schema"}},
    {HTTP_GET, "/v1/rollout/:name/schema", get_schema, "rollout:read of :name", HTTP_PARAMS(NAME, HTTP_READS),
     "The schema", HTTP_OWN, .example = {"/v1/rollout/web/schema", .status = 200},
     .endpoint = {.query = &query_rollout_schema, .watched = "rollout", .missing = "has no schema"}},
    {HTTP_DELETE, "/v1/rollout/:name/schema", http_declared, "rollout:write of :name", HTTP_PARAMS(NAME, HTTP_DC, NOW),
     "Any document can be published again", HTTP_OWN, .example = {"/v1/rollout/web/schema", .status = 200},
     .endpoint = {.command = ROLLOUT_SCHEMA, .prepare = schema_prepare}},
    {HTTP_DELETE, "/v1/rollout/:name", http_declared, "rollout:write of :name",
     HTTP_PARAMS(
         NAME, HTTP_DC,
         {"keys", HTTP_FLAG, .help = "the keys config/NAME/... too: documents and pointer", .field = "with_keys"},
         {"cas", HTTP_U64, .help = "only if this is the rollout's ModifyIndex; 0: if there is none", .field = "cas",
          .given = "cas_given"}),
     "Deletes a rollout with its history, acknowledgements and schema; true also when there is none. 409 while a "
     "stage is under way",
     HTTP_OWN, .no_example = "the examples below need it", .endpoint = {.command = ROLLOUT_DELETE},
     .cli = {"rollout delete"}},
    CHANGE("promote", ROLLOUT_PROMOTE, "The stage's version is everybody's from now on"),
    CHANGE("rollback", ROLLOUT_ROLLBACK,
           "Ends the stage; without one, the version that was current before is current again"),
    CHANGE("pause", ROLLOUT_PAUSE, "The stage stays as it is: no step follows"),
    CHANGE("resume", ROLLOUT_RESUME, "The stage goes on; the hold of its step counts from now on"),
    {0},
};
