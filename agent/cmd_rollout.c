/* coord rollout: the commands that are more than a row of http/api/rollout.c. */
#include <stdlib.h>

#include "agent/cmd.h"
#include "agent/cmd_endpoint.h"
#include "agent/cmd_json.h"
#include "agent/cmd_rollout.h"
#include "base/check.h"
#include "base/json_in.h"
#include "base/json_out.h"
#include "base/text.h"

/* -- asking ------------------------------------------------------------------------------------------------------- */

void rollout_path(struct buffer *path, const char *name, const char *rest) {
    buffer_append_text(path, "/v1/rollout/");
    client_encode(path, name, false);
    buffer_append_text(path, rest);
}

void rollout_parameters(struct buffer *path, const struct rollout_identity *who) {
    client_parameter(path, "id", who->id);
    if (who->node) client_parameter(path, "node", who->node);
    if (who->region) client_parameter(path, "region", who->region);
    for (size_t i = 0; i < who->tags.count; i++) client_parameter(path, "tag", who->tags.items[i]);
}

/* -- status ------------------------------------------------------------------------------------------------------- */

static void print_status(const struct client *client, struct json_object *state) {
    (void)client;
    rollout_print(state, true);
}

static int status_main(int argc, char **argv) {
    static const char usage[] = "coord rollout status [FLAGS] NAME";
    struct client client = {0};
    bool json = false;
    const struct cmd_flag flags[] = {{"json", CMD_BOOL, &json, "the answer as it came"}};
    const char *name;
    int code = cmd_flags_and_one(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, "NAME", &name);
    if (code >= 0) return code;
    struct buffer path = {0};
    rollout_path(&path, name, "/status");
    return cmd_show(&client, &path, json, "reading the rollout", print_status);
}

/* -- stage -------------------------------------------------------------------------------------------------------- */

struct stage {
    const char *percent, *service, *max_failing, *on_fail, *comment, *cas, *min_samples;
    const char *in_regions;
    struct cmd_list nodes, tags, regions, steps;
};

static void list_write(struct json_out *json, const char *name, const struct cmd_list *list) {
    if (!list->count) return;
    json_key_raw(json, name, strlen(name));
    json_array(json);
    for (size_t i = 0; i < list->count; i++) json_string(json, list->items[i]);
    json_array_end(json);
}

/* "10:5m": a percentage, and the duration of this step. */
static void step_write(struct json_out *json, const char *step) {
    size_t percent = strcspn(step, ":");
    json_object(json);
    json_key(json, "Percent"), json_raw(json, slice_make(step, percent));
    if (step[percent]) json_key(json, "Hold"), json_string(json, step + percent + 1);
    json_object_end(json);
}

static void text_write(struct json_out *json, const char *name, const char *text) {
    if (text) json_key_raw(json, name, strlen(name)), json_string(json, text);
}
static void number_write(struct json_out *json, const char *name, const char *text) {
    if (text) json_key_raw(json, name, strlen(name)), json_raw(json, slice_text(text));
}

static void body_write(struct buffer *body, const char *version, const struct stage *stage) {
    struct json_out json;
    json_out_init(&json, body, false);
    json_object(&json);
    text_write(&json, "Version", version), text_write(&json, "Comment", stage->comment);
    number_write(&json, "Percent", stage->percent), number_write(&json, "Cas", stage->cas);
    if (stage->nodes.count || stage->tags.count || stage->regions.count) {
        json_key(&json, "Match"), json_object(&json);
        list_write(&json, "Nodes", &stage->nodes), list_write(&json, "Tags", &stage->tags);
        list_write(&json, "Regions", &stage->regions);
        json_object_end(&json);
    }
    if (stage->steps.count) {
        json_key(&json, "Steps"), json_array(&json);
        for (size_t i = 0; i < stage->steps.count; i++) step_write(&json, stage->steps.items[i]);
        json_array_end(&json);
    }
    if (stage->max_failing) {
        json_key(&json, "Guard"), json_object(&json);
        number_write(&json, "MaxFailing", stage->max_failing), number_write(&json, "MinSamples", stage->min_samples);
        text_write(&json, "Service", stage->service), text_write(&json, "OnFail", stage->on_fail);
        json_object_end(&json);
    }
    json_object_end(&json);
}

/* Do some callers keep the version that they have, for now at least? */
static bool is_part(const struct stage *stage) {
    bool percent = stage->percent && strtod(stage->percent, NULL) < 100;
    return percent || stage->steps.count || stage->nodes.count || stage->tags.count || stage->regions.count ||
           stage->max_failing;
}

/* A number as in JSON, without an exponent, because it is copied into the body. */
static bool is_decimal(struct slice text) {
    size_t whole = 0, at;
    while (whole < text.size && text.data[whole] >= '0' && text.data[whole] <= '9') whole++;
    if (whole == 0 || (whole > 1 && text.data[0] == '0')) return false;
    if (whole == text.size) return true;
    for (at = whole + 1; at < text.size && text.data[at] >= '0' && text.data[at] <= '9';) at++;
    return text.data[whole] == '.' && at == text.size && at > whole + 1;
}

static bool is_step(const char *step) {
    size_t percent = strcspn(step, ":");
    int64_t hold_ns;
    return is_decimal(slice_make(step, percent)) &&
           (!step[percent] || duration_parse(slice_text(step + percent + 1), &hold_ns) == CO_OK);
}

/* Returns CMD_EXIT_MISTAKE, with a line that names the flag; -1: all numbers may go into the body. */
static int check_numbers(const struct stage *stage) {
    const struct {
        const char *flag, *text;
    } numbers[] = {{"percent", stage->percent}, {"max-failing", stage->max_failing}};
    for (size_t i = 0; i < ARRAY_COUNT(numbers); i++) {
        if (!numbers[i].text || is_decimal(slice_text(numbers[i].text))) continue;
        fprintf(stderr, "coord: -%s: \"%.60s\" is not a number (10, 0.5)\n", numbers[i].flag, numbers[i].text);
        return CMD_EXIT_MISTAKE;
    }
    for (size_t i = 0; i < stage->steps.count; i++) {
        if (is_step(stage->steps.items[i])) continue;
        fprintf(stderr, "coord: -step: \"%.60s\" is not PERCENT:HOLD (10:5m, 2.5:1h30m)\n", stage->steps.items[i]);
        return CMD_EXIT_MISTAKE;
    }
    return -1;
}

static int stage_main(int argc, char **argv) {
    static const char usage[] = "coord rollout stage [FLAGS] NAME VERSION";
    struct client client = {0};
    struct stage stage = {0};
    const struct cmd_flag flags[] = {
        {"percent", CMD_TEXT, &stage.percent,
         "only this share of the callers, or where steps begin; without flags everybody gets it"},
        {"step", CMD_LIST, &stage.steps, "PERCENT:HOLD, one after the other: -step 1:5m -step 50:10m"},
        {"node", CMD_LIST, &stage.nodes, "only callers on these nodes"},
        {"tag", CMD_LIST, &stage.tags, "only callers with one of these tags"},
        {"region", CMD_LIST, &stage.regions, "only callers in these regions"},
        {"regions", CMD_TEXT, &stage.in_regions,
         "in these regions, in this order: eu,us; the document goes to all of them before any is changed"},
        {"max-failing", CMD_TEXT, &stage.max_failing,
         "a guard: it acts when more than this part (0.02) refuse it, or turn critical"},
        {"service", CMD_TEXT, &stage.service,
         "of the guard: callers on nodes where an instance of it turns critical fail"},
        {"min-samples", CMD_NUMBER, &stage.min_samples, "of the guard: so many have to have acknowledged it"},
        {"on-fail", CMD_TEXT, &stage.on_fail, "of the guard: pause or rollback (default pause)"},
        {"comment", CMD_TEXT, &stage.comment, "why, for the history"},
        {"cas", CMD_NUMBER, &stage.cas, "only if this is the rollout's ModifyIndex"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || !rest[1] || rest[2]) return cmd_wrong(usage, "NAME and VERSION are wanted, and flags before them");
    if (!stage.max_failing && (stage.service || stage.min_samples || stage.on_fail))
        return cmd_wrong(usage, "a guard needs -max-failing");
    code = check_numbers(&stage);
    if (code >= 0) return code;
    if (stage.in_regions && stage.cas) return cmd_wrong(usage, "-cas is of one region: it does not go with -regions");
    struct buffer path = {0}, body = {0};
    if (stage.in_regions) {
        body_write(&body, rest[1], &stage);
        code = rollout_stage_regions(&client, stage.in_regions, rest[0], rest[1], &body, is_part(&stage));
        buffer_free(&body);
        return code;
    }
    struct client_answer answer = {0};
    struct fault fault = {0};
    rollout_path(&path, rest[0], "/current");
    buffer_append_byte(&path, '\0');
    body_write(&body, rest[1], &stage);
    struct slice text = buffer_slice(&body);
    int rv = client_want(&client, "PUT", path.data, &text, false, &answer, &fault);
    struct json_object *state = rv == CO_OK ? json_parse(buffer_slice(&answer.body), &fault) : NULL;
    if (state) rollout_print(state, false);
    json_object_put(state);
    client_answer_free(&answer);
    buffer_free(&path), buffer_free(&body);
    return fault.code ? cmd_failed("changing the rollout", &fault) : 0;
}

/* -- the commands ------------------------------------------------------------------------------------------------- */

const struct cli_command cmd_rollout_commands[] = {
    {"create", "a new rollout: its first version, for everybody", cmd_rollout_create},
    {"stage", "give a version to a part of the callers, in steps, with a guard; or to everybody", stage_main},
    {"status", "the callers with their versions, refusals, and silent nodes", status_main},
    {"get", "the document that a caller gets", cmd_rollout_get},
    {"diff", "how two versions differ", cmd_rollout_diff},
    {"follow", "keep a file as a caller should have it, and run a command when it changes", cmd_rollout_follow},
    {0},
};
