/* coord event */
#include "agent/cmd.h"
#include "base/check.h"
#include "base/json_in.h"

static int fire(const struct client *client, const char *name, const char *const filters[3], const char *payload) {
    static const char *const names[] = {"node", "service", "tag"};
    struct buffer path = {0};
    struct client_answer answer = {0};
    struct fault fault = {0};
    struct slice body = slice_text(payload ? payload : "");
    buffer_append_text(&path, "/v1/event/fire/");
    client_encode(&path, name, false);
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (filters[i]) client_parameter(&path, names[i], filters[i]);
    buffer_append_byte(&path, '\0');
    int rv = client_want(client, "PUT", path.data, &body, false, &answer, &fault);
    struct json_object *event = rv == CO_OK ? json_parse(buffer_slice(&answer.body), &fault) : NULL;
    const char *id = "";
    if (event) json_get_string(event, "ID", &id, &fault);
    if (fault.code == CO_OK) printf("Event ID: %s\n", id);
    if (event) json_object_put(event);
    client_answer_free(&answer);
    buffer_free(&path);
    return fault.code ? cmd_failed("firing event", &fault) : 0;
}

int cmd_event(int argc, char **argv) {
    static const char usage[] = "coord event [FLAGS] [PAYLOAD]";
    struct client client = {0};
    const char *name = NULL, *filters[3] = {0};
    const struct cmd_flag flags[] = {{"name", CMD_TEXT, &name, "name of the event"},
                                     {"node", CMD_TEXT, &filters[0], "for these nodes alone: a regular expression"},
                                     {"service", CMD_TEXT, &filters[1], "for nodes with such a service"},
                                     {"tag", CMD_TEXT, &filters[2], "and with such a tag of it"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (!name || !name[0]) {
        fprintf(stderr, "Event name must be specified\n\nusage: %s\n", usage);
        return CMD_EXIT_MISTAKE;
    }
    if (rest[0] && rest[1]) return cmd_wrong(usage, "one payload at most");
    return fire(&client, name, filters, rest[0]);
}
