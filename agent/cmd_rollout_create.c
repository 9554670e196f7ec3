/* coord rollout create: a new rollout, whose first version everybody gets. */
#include "agent/cmd_rollout.h"
#include "base/check.h"
#include "base/json_in.h"
#include "base/json_out.h"

int rollout_known_read(const struct client *client, const char *name, struct rollout_known *known,
                       struct fault *fault) {
    struct buffer path = {0};
    struct client_answer answer = {0};
    const char *current = "", *staged = "";
    *known = (struct rollout_known){0};
    rollout_path(&path, name, "/status");
    buffer_append_byte(&path, '\0');
    int rv = client_want(client, "GET", path.data, NULL, true, &answer, fault);
    known->there = rv == CO_OK && answer.status == 200;
    struct json_object *state = known->there ? json_parse(buffer_slice(&answer.body), fault) : NULL;
    if (state) {
        json_get_string(state, "Current", &current, fault);
        snprintf(known->current, sizeof known->current, "%s", current);
        struct json_object *stage = json_get(state, "Stage");
        if (stage) json_get_string(stage, "Version", &staged, fault);
        snprintf(known->staged, sizeof known->staged, "%s", staged);
        json_get_u64(state, "ModifyIndex", UINT64_MAX, &known->modify_index, fault);
    }
    json_object_put(state);
    client_answer_free(&answer);
    buffer_free(&path);
    return fault->code;
}

int rollout_send(const struct client *client, const char *name, const char *rest, const struct buffer *body,
                 struct fault *fault) {
    struct buffer path = {0};
    struct client_answer answer = {0};
    struct slice text = buffer_slice(body);
    rollout_path(&path, name, rest);
    buffer_append_byte(&path, '\0');
    (void)client_want(client, "PUT", path.data, &text, false, &answer, fault);
    client_answer_free(&answer);
    buffer_free(&path);
    return fault->code;
}

int rollout_send_version(const struct client *client, const char *name, const char *version,
                         const struct buffer *document, struct fault *fault) {
    struct buffer rest = {0};
    buffer_append_text(&rest, "/versions/");
    client_encode(&rest, version, false);
    buffer_append_byte(&rest, '\0');
    int rv = rollout_send(client, name, rest.data, document, fault);
    buffer_free(&rest);
    return rv;
}

int rollout_send_current(const struct client *client, const char *name, const char *version, const char *comment,
                         uint64_t index, struct fault *fault) {
    struct buffer body = {0};
    struct json_out json;
    json_out_init(&json, &body, false);
    json_object(&json);
    json_key(&json, "Version"), json_string(&json, version);
    json_key(&json, "Cas"), json_u64(&json, index);
    if (comment) json_key(&json, "Comment"), json_string(&json, comment);
    json_object_end(&json);
    int rv = rollout_send(client, name, "/current", &body, fault);
    buffer_free(&body);
    return rv;
}

/* A version alone is no rollout yet, so an existing version, as of an earlier try, does no harm. The second read gets
 * the index, and finds a key config/NAME/current that somebody has written by hand: such a version became current when
 * the rollout began, and a new rollout must not replace it for everybody. */
static int create(const struct client *client, const char *name, const char *version, const char *comment,
                  const struct buffer *document, struct fault *fault) {
    struct rollout_known known;
    if (rollout_known_read(client, name, &known, fault) != CO_OK) return fault->code;
    if (known.current[0])
        return fault_set(fault, CO_EXISTS, "\"%s\" exists, and %s is current: `coord rollout put` adds a version", name,
                         known.current);
    if (rollout_send_version(client, name, version, document, fault) != CO_OK) return fault->code;
    if (rollout_known_read(client, name, &known, fault) != CO_OK) return fault->code;
    if (known.current[0])
        return fault_set(fault, CO_EXISTS, "%s is stored, but %s is current by now and stays so", version,
                         known.current);
    return rollout_send_current(client, name, version, comment, known.modify_index, fault);
}

int cmd_rollout_create(int argc, char **argv) {
    static const char usage[] = "coord rollout create [FLAGS] NAME VERSION DOCUMENT | @FILE | -";
    struct client client = {0};
    const char *comment = NULL;
    const struct cmd_flag flags[] = {{"comment", CMD_TEXT, &comment, "why, for the history"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || !rest[1] || !rest[2] || rest[3])
        return cmd_wrong(usage, "NAME, VERSION and a document are wanted, and flags before them");
    struct buffer document = {0};
    struct fault fault = {0};
    if (cmd_read_value(rest[2], false, &document, &fault) == CO_OK)
        (void)create(&client, rest[0], rest[1], comment, &document, &fault);
    buffer_free(&document);
    if (!fault.code) printf("%s: %s for everybody\n", rest[0], rest[1]);
    return fault.code ? cmd_failed("creating the rollout", &fault) : 0;
}
