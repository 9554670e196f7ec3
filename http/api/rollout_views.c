#include "http/api/rollout_views.h"

#include "base/json_in.h"
#include "base/message.h"
#include "base/text.h"

/* -- documents ---------------------------------------------------------------------------------------------------- */

enum document_form document_form(struct slice document) {
    if (json_valid(document)) return DOCUMENT_JSON;
    return utf8_valid(document) ? DOCUMENT_TEXT : DOCUMENT_BASE64;
}

static struct slice trimmed(struct slice text) {
    while (text.size && strchr(" \t\r\n", text.data[text.size - 1])) text.size--;
    while (text.size && strchr(" \t\r\n", text.data[0])) text.data++, text.size--;
    return text;
}

void document_write(struct json_out *json, struct slice document) {
    switch (document_form(document)) {
        case DOCUMENT_JSON: json_raw(json, trimmed(document)); break;
        case DOCUMENT_TEXT: json_slice(json, document); break;
        case DOCUMENT_BASE64: json_base64(json, document); break;
    }
}

static void resolution_document(struct json_out *json, const ProtobufCMessage *message, void *context) {
    static const char *const forms[] = {"json", "text", "base64"};
    const Pb__RolloutResolution *resolution = (const Pb__RolloutResolution *)message;
    struct slice document = message_slice(resolution->document);
    (void)context;
    json_key(json, "Document");
    if (resolution->missing) json_null(json);
    else document_write(json, document);
    json_key(json, "Format");
    json_string(json, resolution->missing ? "missing" : forms[document_form(document)]);
}

static const struct message_member seen[] = {{.field = "version"}, {.field = "percent"}, {.field = "paused"}, {0}};
const struct message_member rollout_resolution_members[] = {
    {.field = "version"}, {.write = resolution_document}, {.field = "stage", .members = seen}, {.field = "index"}, {0}};

/* -- states ------------------------------------------------------------------------------------------------------- */

static const struct message_member guard[] = {
    {.field = "service"}, {.field = "max_failing"}, {.field = "min_samples"}, {.field = "on_fail"}, {0}};
static const struct message_member stage[] = {{.field = "version"},
                                              {.field = "percent"},
                                              {.field = "match"},
                                              {.field = "steps"},
                                              {.field = "position"},
                                              {.field = "paused"},
                                              {.field = "reason"},
                                              {.field = "guard", .members = guard},
                                              {.field = "began"},
                                              {.field = "began_unix_ms", .name = "BeganTime"},
                                              {.field = "since_unix_ms", .name = "SinceTime"},
                                              {.field = "paused_unix_ms", .name = "PausedTime"},
                                              {.field = "next"},
                                              {.field = "comment"},
                                              {0}};
#define STATE_MEMBERS                                                                                         \
    {.field = "name"}, {.field = "current"}, {.field = "current_unix_ms", .name = "CurrentTime"},             \
        {.field = "previous"}, {.field = "stage", .members = stage}, {.field = "comment"},                    \
        {.field = "pointer", .flags = MEMBER_OPTIONAL}, {.field = "pointer_fault", .flags = MEMBER_OPTIONAL}, \
        {.field = "create_index"}, {                                                                          \
        .field = "modify_index"                                                                               \
    }
static const struct message_member refusal[] = {{.field = "id", .name = "ID"}, {.field = "node"},  {.field = "reason"},
                                                {.field = "time_unix_ms"},     {.field = "index"}, {0}};
static const struct message_member judgement[] = {
    {.field = "samples"}, {.field = "refused"}, {.field = "critical"}, {0}};
const struct message_member rollout_set_members[] = {STATE_MEMBERS, {0}};
const struct message_member rollout_state_members[] = {STATE_MEMBERS,
                                                       {.field = "callers"},
                                                       {.field = "versions"},
                                                       {.field = "refusals", .members = refusal},
                                                       {.field = "silent"},
                                                       {.field = "silent_nodes"},
                                                       {.field = "judgement", .members = judgement},
                                                       {0}};
const struct message_member rollout_change_members[] = {
    {.field = "number"},  {.field = "index"}, {.field = "time_unix_ms"}, {.field = "kind"},    {.field = "by"},
    {.field = "comment"}, {.field = "from"},  {.field = "to"},           {.field = "percent"}, {0}};

/* -- OpenFeature -------------------------------------------------------------------------------------------------- */

void ofrep_evaluation_write(struct json_out *json, const Pb__RolloutResolution *resolution) {
    static const char *const reasons[] = {"STATIC", "SPLIT", "TARGETING_MATCH"};
    struct slice document = message_slice(resolution->document);
    bool known = (size_t)resolution->reason < ARRAY_COUNT(reasons);
    json_object(json);
    json_key(json, "key");
    json_string(json, resolution->name);
    if (resolution->missing) {
        json_key(json, "errorCode"), json_string(json, "GENERAL");
        json_key(json, "errorDetails"), json_string(json, "the version's document was removed");
    } else if (document_form(document) == DOCUMENT_BASE64) {
        json_key(json, "errorCode"), json_string(json, "PARSE_ERROR");
        json_key(json, "errorDetails"), json_string(json, "the version's document is neither JSON nor text");
    } else {
        json_key(json, "reason"), json_string(json, known ? reasons[resolution->reason] : "UNKNOWN");
        json_key(json, "variant"), json_string(json, resolution->version);
        if (!slice_is(trimmed(document), "null")) json_key(json, "value"), document_write(json, document);
    }
    json_object_end(json);
}
