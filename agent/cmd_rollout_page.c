/* The output of `coord rollout`: a page for one rollout, cells of lists, and a sentence for each change. */
#include <time.h>

#include "agent/cmd_json.h"
#include "agent/cmd_rollout.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"

#define LABEL "  %-9s"

static double decimal_of(struct json_object *object, const char *name) {
    return json_object_get_double(json_get(object, name));
}

static bool flag_of(struct json_object *object, const char *name) {
    return json_object_get_boolean(json_get(object, name));
}

/* -- times -------------------------------------------------------------------------------------------------------- */
static void append_time(struct buffer *out, uint64_t unix_ms) {
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm parts;
    char text[32];
    if (!gmtime_r(&seconds, &parts) || !strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts)) return;
    buffer_append_text(out, text);
}

static void append_span(struct buffer *out, uint64_t ms) {
    duration_format(out, (int64_t)(ms < 1000 ? ms : ms / 1000 * 1000) * 1000000);
}

/* "2026-11-27 10:00:00 UTC (2m3s ago)", or "(in 2m57s)". */
static void append_moment(struct buffer *out, uint64_t unix_ms, uint64_t now_ms) {
    append_time(out, unix_ms);
    buffer_append_text(out, unix_ms > now_ms ? " (in " : " (");
    append_span(out, unix_ms > now_ms ? unix_ms - now_ms : now_ms - unix_ms);
    buffer_append_text(out, unix_ms > now_ms ? ")" : " ago)");
}

static uint64_t now_unix_ms(void) { return (uint64_t)clock_wall_ns() / 1000000; }

/* -- the page ----------------------------------------------------------------------------------------------------- */
/* Replaces control characters, because callers wrote some of the text: it must not move the cursor, or begin a line. */
static void clean(struct buffer *text) {
    for (size_t i = 0; i < text->size; i++)
        if ((unsigned char)text->data[i] < ' ' || text->data[i] == 0x7f) text->data[i] = '?';
}

static void line(const char *label, struct buffer *text) {
    clean(text);
    printf(LABEL "%.*s\n", label, (int)text->size, text->size ? text->data : "");
    buffer_reset(text);
}

static void append_names(struct buffer *out, struct json_object *match, const char *name, const char *kind) {
    struct json_object *list = json_get_array(match, name, NULL);
    if (!cmd_json_length(list)) return;
    buffer_printf(out, "%s%s", out->size ? "; " : "", kind);
    for (size_t i = 0; i < cmd_json_length(list); i++)
        buffer_printf(out, "%s %s", i ? "," : "", json_object_get_string(json_object_array_get_idx(list, i)));
}

static void print_match(struct json_object *match, struct buffer *text) {
    append_names(text, match, "Tags", "tag");
    append_names(text, match, "Nodes", "node");
    append_names(text, match, "Regions", "region");
    if (text->size) line("match", text);
}

static void append_share(struct buffer *out, double percent) {
    if (percent >= 100) buffer_append_text(out, "everybody");
    else buffer_printf(out, "%g %%", percent);
}

static void print_next(struct json_object *stage, struct buffer *text, uint64_t now_ms) {
    struct json_object *next = json_get(stage, "Next");
    if (flag_of(stage, "Paused")) {
        buffer_append_text(text,
                           "nothing by itself: resume begins its hold anew, promote gives it to everybody, rollback "
                           "to nobody");
    } else if (!next) {
        buffer_append_text(text, "everybody, when it is promoted");
    } else {
        uint64_t at_ms = cmd_json_number(next, "Time");
        append_share(text, decimal_of(next, "Percent"));
        buffer_append_text(text, at_ms > now_ms ? " at " : ", which is due since ");
        append_moment(text, at_ms, now_ms);
    }
    line("next", text);
}

static void print_guard(struct json_object *stage, struct json_object *judgement, struct buffer *text) {
    struct json_object *guard = json_get(stage, "Guard");
    const char *service = cmd_json_text(guard, "Service");
    if (!guard) return;
    buffer_printf(text, "%s when more than %g %% fail, of %llu or more", cmd_json_text(guard, "OnFail"),
                  100 * decimal_of(guard, "MaxFailing"), (unsigned long long)cmd_json_number(guard, "MinSamples"));
    if (judgement) {
        unsigned long long refused = cmd_json_number(judgement, "Refused"),
                           critical = cmd_json_number(judgement, "Critical");
        buffer_printf(text, "; now %llu of %llu: %llu refused it", refused + critical,
                      (unsigned long long)cmd_json_number(judgement, "Samples"), refused);
        if (service[0]) buffer_printf(text, ", %llu where %s turned critical", critical, service);
    } else if (service[0]) {
        buffer_printf(text, "; %s is looked at", service);
    }
    line("guard", text);
}

static void print_stage(struct json_object *state, struct json_object *stage, struct buffer *text, uint64_t now_ms) {
    size_t steps = cmd_json_length(json_get_array(stage, "Steps", NULL));
    uint64_t since_ms = cmd_json_number(stage, "SinceTime"), paused_ms = cmd_json_number(stage, "PausedTime");
    print_match(json_get(stage, "Match"), text);
    if (since_ms) append_moment(text, since_ms, now_ms);
    if (since_ms && steps) buffer_append_text(text, ", ");
    if (steps)
        buffer_printf(text, "step %llu of %zu", (unsigned long long)cmd_json_number(stage, "Position") + 1, steps);
    if (cmd_json_text(stage, "Comment")[0])
        buffer_printf(text, "%s\"%s\"", text->size ? ", " : "", cmd_json_text(stage, "Comment"));
    if (text->size) line("since", text);
    if (flag_of(stage, "Paused")) {
        const char *reason = cmd_json_text(stage, "Reason");
        buffer_printf(text, "  paused%s%s", reason[0] ? ": " : "", reason);
        if (paused_ms)
            buffer_append_text(text, reason[0] ? ", since " : " since "), append_moment(text, paused_ms, now_ms);
        clean(text);
        printf("%.*s\n", (int)text->size, text->data);
        buffer_reset(text);
    }
    print_next(stage, text, now_ms);
    print_guard(stage, json_get(state, "Judgement"), text);
}

static void print_versions(struct json_object *state, const char *first, struct buffer *text) {
    struct json_object *versions = json_get_array(state, "Versions", NULL);
    unsigned long long callers = cmd_json_number(state, "Callers");
    uint64_t on = 0, refused = 0;
    for (size_t i = 0; i < cmd_json_length(versions); i++) {
        struct json_object *count = json_object_array_get_idx(versions, i);
        if (strcmp(cmd_json_text(count, "Version"), first) == 0)
            on = cmd_json_number(count, "Ok"), refused = cmd_json_number(count, "Refused");
    }
    buffer_printf(text, "%llu of %llu on %s, %llu refused it", (unsigned long long)on, callers, first,
                  (unsigned long long)refused);
    line("callers", text);
    for (size_t i = 0; i < cmd_json_length(versions); i++) {
        struct json_object *count = json_object_array_get_idx(versions, i);
        const char *version = cmd_json_text(count, "Version");
        if (strcmp(version, first) == 0) continue;
        buffer_printf(text, "%llu of %llu on %s, %llu refused it", (unsigned long long)cmd_json_number(count, "Ok"),
                      callers, version, (unsigned long long)cmd_json_number(count, "Refused"));
        line("", text);
    }
}

static void print_silent(struct json_object *state, struct buffer *text) {
    struct json_object *nodes = json_get_array(state, "SilentNodes", NULL);
    uint64_t silent = cmd_json_number(state, "Silent");
    if (!silent) return;
    buffer_printf(text, "%llu node%s on which no caller has acknowledged anything:", (unsigned long long)silent,
                  silent == 1 ? "" : "s");
    for (size_t i = 0; i < cmd_json_length(nodes); i++)
        buffer_printf(text, " %s", json_object_get_string(json_object_array_get_idx(nodes, i)));
    if (silent > cmd_json_length(nodes)) buffer_append_text(text, " ...");
    line("silent", text);
}

static void print_refusals(struct json_object *state, struct buffer *text, uint64_t now_ms) {
    struct json_object *refusals = json_get_array(state, "Refusals", NULL);
    for (size_t i = 0; i < cmd_json_length(refusals); i++) {
        struct json_object *refusal = json_object_array_get_idx(refusals, i);
        const char *node = cmd_json_text(refusal, "Node");
        buffer_printf(text, "by %s%s%s: %s, ", cmd_json_text(refusal, "ID"), node[0] ? " on " : "", node,
                      cmd_json_text(refusal, "Reason"));
        append_moment(text, cmd_json_number(refusal, "Time"), now_ms);
        line("refused", text);
    }
}

static void print_head(struct json_object *state, struct json_object *stage) {
    const char *current = cmd_json_text(state, "Current");
    printf("%s: ", cmd_json_text(state, "Name"));
    if (!current[0]) puts("no version is current");
    else if (!stage) printf("%s for everybody\n", current);
    else
        printf("%s for %g %% of the callers%s, %s for the others\n", cmd_json_text(stage, "Version"),
               decimal_of(stage, "Percent"), json_get(stage, "Match") ? " that match" : "", current);
}

static void print_current(struct json_object *state, struct json_object *stage, struct buffer *text, uint64_t now_ms) {
    uint64_t since_ms = cmd_json_number(state, "CurrentTime");
    const char *previous = cmd_json_text(state, "Previous"), *comment = cmd_json_text(state, "Comment");
    if (stage) buffer_printf(text, "%s", cmd_json_text(state, "Current"));
    if (since_ms) buffer_append_text(text, stage ? " since " : ""), append_moment(text, since_ms, now_ms);
    if (comment[0]) buffer_printf(text, "%s\"%s\"", text->size ? ", " : "", comment);
    if (previous[0]) buffer_printf(text, "%sbefore it %s", text->size ? ", " : "", previous);
    if (text->size) line(stage ? "others" : "since", text);
}

void rollout_print(struct json_object *state, bool whole) {
    struct json_object *stage = json_get(state, "Stage");
    const char *current = cmd_json_text(state, "Current"), *pointer = cmd_json_text(state, "Pointer");
    const char *fault = cmd_json_text(state, "PointerFault");
    struct buffer text = {0};
    uint64_t now_ms = now_unix_ms();
    print_head(state, stage);
    if (!current[0]) return;
    if (stage) print_stage(state, stage, &text, now_ms);
    if (whole) print_current(state, stage, &text, now_ms);
    if (pointer[0]) printf(LABEL "it says %s: somebody has written it\n", "key", pointer);
    if (fault[0]) printf(LABEL "config/%s/current: %s\n", "key", cmd_json_text(state, "Name"), fault);
    if (whole) {
        print_versions(state, stage ? cmd_json_text(stage, "Version") : current, &text);
        print_silent(state, &text);
        print_refusals(state, &text, now_ms);
    }
    buffer_free(&text);
}

/* -- cells of lists ----------------------------------------------------------------------------------------------- */
static void cell_time(struct json_object *record, struct buffer *out) {
    append_time(out, cmd_json_number(record, "Time"));
}

static void cell_since(struct json_object *record, struct buffer *out) {
    uint64_t since_ms = cmd_json_number(record, "CurrentTime");
    if (since_ms) append_time(out, since_ms);
    else buffer_append_byte(out, '-');
}

static void cell_stage(struct json_object *record, struct buffer *out) {
    struct json_object *stage = json_get(record, "Stage");
    if (!stage) buffer_append_byte(out, '-');
    else
        buffer_printf(out, "%s %g %%%s%s", cmd_json_text(stage, "Version"), decimal_of(stage, "Percent"),
                      json_get(stage, "Match") ? " that match" : "", flag_of(stage, "Paused") ? ", paused" : "");
}

/* The comment of the stage or, without one, of the record. */
static void cell_comment(struct json_object *record, struct buffer *out) {
    struct json_object *stage = json_get(record, "Stage");
    const char *comment = cmd_json_text(stage ? stage : record, "Comment");
    buffer_append_text(out, comment[0] ? comment : "-");
}

static void cell_next(struct json_object *record, struct buffer *out) {
    struct json_object *stage = json_get(record, "Stage"), *next = json_get(stage, "Next");
    uint64_t now_ms = now_unix_ms(), at_ms = cmd_json_number(next, "Time");
    if (next) {
        append_share(out, decimal_of(next, "Percent"));
        buffer_append_text(out, at_ms > now_ms ? " in " : " now");
        if (at_ms > now_ms) append_span(out, at_ms - now_ms);
    } else {
        buffer_append_text(out, !stage ? "-" : flag_of(stage, "Paused") ? "resume" : "promote");
    }
}

cmd_cell_write cmd_rollout_cell(const char *command, const char *column) {
    static const struct {
        const char *command, *column;
        cmd_cell_write write;
    } cells[] = {{"rollout history", "Time", cell_time},
                 {"rollout list", "Since", cell_since},
                 {"rollout list", "Stage", cell_stage},
                 {"rollout list", "Next", cell_next},
                 {"rollout list", "Comment", cell_comment}};
    for (size_t i = 0; i < ARRAY_COUNT(cells); i++)
        if (strcmp(cells[i].command, command) == 0 && strcmp(cells[i].column, column) == 0) return cells[i].write;
    return NULL;
}

/* -- a sentence for each change ----------------------------------------------------------------------------------- */
static void said_state(struct json_object *answer, const char *const *arguments) {
    (void)arguments;
    rollout_print(answer, false);
}

static void said_put(struct json_object *answer, const char *const *arguments) {
    (void)answer;
    printf("%s: %s is published; `coord rollout stage` gives it to callers\n", arguments[0], arguments[1]);
}

static void said_ack(struct json_object *answer, const char *const *arguments) {
    (void)answer;
    printf("%s: acknowledged\n", arguments[0]);
}

static void said_schema(struct json_object *answer, const char *const *arguments) {
    (void)answer;
    printf("%s: documents that are published from now on have to fit the schema\n", arguments[0]);
}

static void said_delete(struct json_object *answer, const char *const *arguments) {
    (void)answer;
    printf("%s: there is no such rollout any more\n", arguments[0]);
}

cmd_answer_print cmd_rollout_answer(const char *command) {
    static const struct {
        const char *command;
        cmd_answer_print print;
    } said[] = {{"rollout put", said_put},       {"rollout ack", said_ack},       {"rollout schema", said_schema},
                {"rollout delete", said_delete}, {"rollout promote", said_state}, {"rollout rollback", said_state},
                {"rollout pause", said_state},   {"rollout resume", said_state}};
    for (size_t i = 0; i < ARRAY_COUNT(said); i++)
        if (strcmp(said[i].command, command) == 0) return said[i].print;
    return NULL;
}
