/* coord failover put, which is more than its row of http/api/failover.c. */
#include <string.h>

#include "agent/cmd.h"
#include "agent/cmd_endpoint.h"
#include "base/check.h"
#include "base/json_out.h"

static void write_list(struct json_out *json, const char *key, const struct cmd_list *list) {
    if (!list->count) return;
    json_key_raw(json, key, strlen(key));
    json_array(json);
    for (size_t i = 0; i < list->count; i++) json_string(json, list->items[i]);
    json_array_end(json);
}

/* "us,ap" */
static void write_regions(struct json_out *json, const char *regions) {
    if (!regions) return;
    json_key(json, "Regions");
    json_array(json);
    for (const char *at = regions; *at; at += *at == ',') {
        size_t size = strcspn(at, ",");
        json_slice(json, slice_make(at, size));
        at += size;
    }
    json_array_end(json);
}

struct wish {
    const char *to, *service, *targets;
    struct cmd_list tags;
};

/* Writes the body of the request. */
static int write_order(const struct wish *wish, struct buffer *body, struct fault *fault) {
    struct json_out json;
    struct buffer targets = {0};
    int rv = wish->targets ? cmd_read_value(wish->targets, false, &targets, fault) : CO_OK;
    json_out_init(&json, body, false);
    json_object(&json);
    json_key(&json, "Targets");
    if (wish->targets) {
        json_raw(&json, buffer_slice(&targets));
    } else {
        json_array(&json);
        json_object(&json);
        if (wish->service) json_key(&json, "Service"), json_string(&json, wish->service);
        write_list(&json, "Tags", &wish->tags);
        write_regions(&json, wish->to);
        json_object_end(&json);
        json_array_end(&json);
    }
    json_object_end(&json);
    buffer_free(&targets);
    return rv;
}

static int put(int argc, char **argv) {
    static const char usage[] = "coord failover put [FLAGS] SERVICE";
    struct client client = {0};
    struct wish wish = {0};
    const struct cmd_flag flags[] = {
        {"to", CMD_TEXT, &wish.to, "regions in their order, as us,ap; without it the nearest"},
        {"service", CMD_TEXT, &wish.service, "another service; without it the same"},
        {"tag", CMD_LIST, &wish.tags, "only instances with this tag; may be given several times"},
        {"targets", CMD_TEXT, &wish.targets, "in place of these: a JSON list of targets, @FILE, or - for stdin"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || !rest[0][0] || rest[1]) return cmd_wrong(usage, "one SERVICE is wanted, and flags before it");
    if (wish.targets ? wish.to || wish.service || wish.tags.count : !wish.to && !wish.service && !wish.tags.count)
        return cmd_wrong(usage, "a target is wanted: -to, -service, -tag; or -targets alone");
    struct buffer path = {0}, body = {0};
    struct client_answer answer = {0};
    struct fault fault = {0};
    buffer_append_text(&path, "/v1/failover/");
    client_encode(&path, rest[0], false);
    buffer_append_byte(&path, '\0');
    if (write_order(&wish, &body, &fault) == CO_OK) {
        struct slice text = buffer_slice(&body);
        (void)client_want(&client, "PUT", path.data, &text, false, &answer, &fault);
    }
    client_answer_free(&answer);
    buffer_free(&body), buffer_free(&path);
    return fault.code ? cmd_failed("ordering", &fault) : 0;
}

const struct cli_command cmd_failover_commands[] = {
    {"put", "set the order of regions that answer for a service without healthy instances here", put},
    {0},
};
