/* Endpoints that their row serves: a new one is a row (of a module of the tests), and what a row declares is refused
 * when it is wrong, for every row there is. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/text.h"
#include "http/api/topics.h"
#include "http/declared.h"
#include "toy.h"
#include "web_world.h"

#define SESSION "5e551000-0000-4000-8000-0000000000aa"

/* -- the rows ----------------------------------------------------------------------------------------------------- */

static const struct http_param step[] = {
    {"Percent", HTTP_U64, .help = "of the callers", .most = 100, .required = true, .field = "percent"},
    {"Hold", HTTP_DURATION, .help = "how long", .otherwise = "5m", .field = "hold_ns"},
    {0},
};
static const struct http_param limits[] = {
    {"Fraction", HTTP_DECIMAL, .help = "a share", .most = 1, .field = "toy.limits.fraction"},
    {"Most", HTTP_U64, .help = "at most", .least = 1, .most = 1000, .field = "toy.limits.most"},
    {"Tags", HTTP_TEXT, .help = "tags", .most = 8, .repeats = true, .field = "toy.limits.tags"},
    {"Steps", HTTP_OBJECT, .group = step, .repeats = true, .field = "toy.limits.steps"},
    {"Mode", HTTP_CHOICE, .choices = "exclusive|signal-wait", .help = "how", .field = "toy.mode"},
    {"Shared", HTTP_FLAG, .help = "by many", .field = "toy.shared"},
    {"SessionID", HTTP_UUID, .help = "whose", .field = "toy.id", .required = true},
    {0},
};
static const struct http_param note = {"note", HTTP_TEXT, .help = "what others see", .most = 16, .field = "toy.note"};

static int status(const ProtobufCMessage *answer) { return ((const Pb__Toy *)answer)->count == 13 ? 412 : 200; }
static bool prepare(struct http_request *request, ProtobufCMessage *message) {
    Pb__ToyPutCommand *command = (Pb__ToyPutCommand *)(void *)message;
    if (strcmp(command->toy->name, "refused") != 0) return true;
    http_reply_text(request, 409, "not this one");
    return false;
}
static void twice(struct json_out *json, const ProtobufCMessage *message, void *context) {
    cr_expect(http_method(context) == HTTP_PUT || http_method(context) == HTTP_GET, "it is the request");
    json_key(json, "Twice");
    json_u64(json, 2 * ((const Pb__Toy *)message)->count);
}
static const struct message_member members[] = {
    {.field = "name"},
    {.field = "mode"},
    {.field = "count"},
    {.write = twice},
    {.field = "wait_ns"},
    {"HoldFor", .field = "hold_ms"},
    {"HoldNumber", "hold_ms", .flags = MEMBER_NUMBER},
    {.field = "note", .flags = MEMBER_TEXT},
    {"NoteBase64", .field = "note"},
    {.field = "shared"},
    {.field = "has_count"},
    {.field = "session_id"},
    {.field = "colors"},
    {.field = "gone", .flags = MEMBER_OPTIONAL},
    {0},
};

#define NAME(field_) \
    { ":name", HTTP_TEXT, .help = "its name", .most = 20, .field = (field_) }
const struct http_route http_routes_status[] = {
    {HTTP_PUT, "/v1/toy/:name/take", http_declared, "key:write of :name",
     HTTP_PARAMS(NAME("toy.name"), HTTP_DC, HTTP_SESSION_USE("session"),
                 {"mode", HTTP_CHOICE, .choices = "exclusive|signal-wait", .otherwise = "signal-wait", .help = "how",
                  .field = "toy.mode"},
                 {"count", HTTP_U64, .least = 1, .most = 100, .help = "how many", .field = "toy.count",
                  .given = "toy.has_count"},
                 {"wait", HTTP_DURATION, .most = 600000000000, .help = "how long", .field = "toy.wait_ns"},
                 {"hold", HTTP_DURATION, .least = 1000000, .help = "how long", .field = "toy.hold_ms"},
                 {"shared", HTTP_FLAG, .help = "by many", .field = "toy.shared"},
                 {"color", HTTP_TEXT, .least = 2, .most = 10, .repeats = true, .help = "colors", .field = "toy.colors"},
                 {.type = HTTP_NEW_UUID, .field = "toy.id"}, {.type = HTTP_NOW, .field = "toy.made_unix_ms"}),
     "Takes a toy", HTTP_OWN | HTTP_BODY_RAW, .no_example = "for tests",
     .endpoint = {.command = TOY_PUT, .raw = &note, .answer = members, .status = status, .prepare = prepare}},
    {HTTP_PUT, "/v1/toy/:name/limits", http_declared, "key:write of :name", HTTP_PARAMS(NAME("toy.name"), HTTP_DC),
     "Sets limits", HTTP_OWN, .no_example = "for tests", .endpoint = {.command = TOY_PUT, .body = limits}},
    {HTTP_GET, "/v1/toy/:name", http_declared, "key:read of :name", HTTP_PARAMS(NAME("name"), HTTP_READS), "One toy",
     HTTP_OWN, .no_example = "for tests", .endpoint = {.query = &query_toy, .watched = "toy", .missing = "is nowhere"}},
    {HTTP_GET, "/v1/toys", http_declared, "key:read rows",
     HTTP_PARAMS(HTTP_READS, {"kind", HTTP_TEXT, .help = "which", .required = true}), "All toys", HTTP_OWN,
     .no_example = "for tests", .endpoint = {.query = &query_toys, .list = "toys", .answer = members}},
    {0},
};

/* -- a new endpoint is a row -------------------------------------------------------------------------------------- */

static struct world *world;
static void setup(void) {
    world = world_start_with(NULL, &toy_module);
    free(web_want(world, 200, "PUT /v1/catalog/register",
                  "{\"Node\":\"n1\",\"Address\":\"1.2.3.4\",\"Check\":{\"CheckID\":\"serfHealth\",\"Name\":\"x\","
                  "\"Status\":\"passing\"}}"));
}
static void teardown(void) { world_stop(world); }
TestSuite(endpoints, .init = setup, .fini = teardown);

static void expect(int wanted, const char *asked, const char *body, const char *answer) {
    char *text = web_want(world, wanted, asked, body);
    cr_expect_str_eq(text, answer, "%s\n  got    %s\n  wanted %s", asked, text, answer);
    free(text);
}

static char *session_made(void) {
    char *text = web_want(world, 200, "PUT /v1/session/create", "{\"TTL\":\"10s\"}");
    struct fault fault = {0};
    const char *id = "";
    struct json_object *json = json_parse(slice_text(text), &fault);
    json_get_string(json, "ID", &id, &fault);
    char *copy = mem_strdup(id);
    json_object_put(json);
    free(text);
    return copy;
}

Test(endpoints, parameters_body_and_path_fill_a_command_and_its_answer_is_json) {
    char *session = session_made(), asked[400], answer[600];
    snprintf(asked, sizeof asked,
             "PUT /v1/toy/a%%20b/take?session=%s&mode=exclusive&count=13&wait=1m30s&hold=1500us&shared&color=red&color="
             "blue%%3C&pretty=",
             session);
    for (char *at = strstr(asked, "session=") + 8; *at != '&'; at++)
        if (*at >= 'a' && *at <= 'f') *at = (char)(*at - 32); /* a UUID in upper case is the same */
    *strstr(asked, "&pretty=") = '\0';
    snprintf(answer, sizeof answer,
             "{\"Name\":\"a b\",\"Mode\":\"exclusive\",\"Count\":13,\"Twice\":26,\"Wait\":\"1m30s\",\"HoldFor\":"
             "\"2ms\",\"HoldNumber\":2,\"Note\":\"for \\u003cyou\\u003e\",\"NoteBase64\":\"Zm9yIDx5b3U+\",\"Shared\":"
             "true,\"HasCount\":true,\"SessionID\":\"%s\",\"Colors\":[\"red\",\"blue\\u003c\"]}",
             session);
    expect(412, asked, "for <you>", answer);
    free(session);
}

Test(endpoints, what_is_not_given_is_as_the_row_says) {
    char *text = web_want(world, 200, "PUT /v1/toy/b/take?ttl=15s", NULL);
    const char *before =
        "{\"Name\":\"b\",\"Mode\":\"signal-wait\",\"Count\":0,\"Twice\":0,\"Wait\":\"0s\",\"HoldFor\":\"0s\","
        "\"HoldNumber\":0,\"Note\":\"\",\"NoteBase64\":\"\",\"Shared\":false,\"HasCount\":false,\"SessionID\":\"";
    cr_assert(strncmp(text, before, strlen(before)) == 0, "%s", text);
    struct slice id = slice_make(text + strlen(before), UUID_TEXT_SIZE);
    cr_expect(uuid_valid(id));
    char asked[100];
    snprintf(asked, sizeof asked, "GET /v1/session/info/%.36s", id.data);
    char *info = web_want(world, 200, asked, NULL);
    cr_expect(strstr(info, "\"Node\":\"n1\"") && strstr(info, "\"TTL\":\"15s\"") && strstr(info, "\"LockDelay\":0,") &&
                  !strstr(info, "serfHealth"),
              "the session was made in the same entry, and ends with its TTL alone: %s", info);
    free(info), free(text);
}

Test(endpoints, json_bodies_fill_nested_messages_and_lists) {
    free(web_want(
        world, 200, "PUT /v1/toy/c/limits",
        "{\"Fraction\":0.25,\"Most\":1000,\"Tags\":[\"x\",\"y\",\"z\"],\"Steps\":[{\"Percent\":1,\"Hold\":\"10m\"},"
        "{\"Percent\":50,\"hold\":1000000000},{\"Percent\":100}],\"Mode\":\"signal-wait\",\"Shared\":true,"
        "\"session_id\":\"" SESSION "\"}"));
    char *text = web_want(world, 200, "GET /v1/toy/c", NULL);
    const char *limits_json =
        "\"Limits\":{\"Fraction\":0.25,\"Most\":1000,\"Tags\":[\"x\",\"y\",\"z\"],\"Steps\":[{\"Percent\":1,\"Hold\":"
        "\"10m0s\"},{\"Percent\":50,\"Hold\":\"1s\"},{\"Percent\":100,\"Hold\":\"5m0s\"}]}";
    cr_expect(strstr(text, limits_json), "%s", text);
    cr_expect(strstr(text, "\"ID\":\"" SESSION "\"") && strstr(text, "\"Mode\":\"signal-wait\""), "%s", text);
    cr_expect(strstr(text, "\"MadeUnixMs\"") == NULL && strstr(text, "\"Made\":0"), "units are no part of names: %s",
              text);
    free(text);
    expect(400, "PUT /v1/toy/c/limits", "{\"SessionID\":\"" SESSION "\",\"Steps\":[{\"Percent\":1},{\"Percent\":101}]}",
           "Steps[1].Percent: \"101\" is not a whole number from 0 to 100");
    expect(400, "PUT /v1/toy/c/limits", "{\"SessionID\":\"" SESSION "\",\"Steps\":[{\"Hold\":\"1s\"}]}",
           "Steps[0].Percent: it is missing; wanted: a whole number from 0 to 100");
    expect(400, "PUT /v1/toy/c/limits", "{\"SessionID\":\"" SESSION "\",\"Steps\":[{\"Percent\":1,\"Hald\":1}]}",
           "unknown key \"Hald\" (nearest: \"Hold\")");
    expect(400, "PUT /v1/toy/c/limits", "{\"SessionID\":\"" SESSION "\",\"Tags\":[\"x\",7]}",
           "Tags[1]: text of at most 8 bytes is wanted, not a number");
}

Test(endpoints, queries_show_one_or_a_list_and_block) {
    expect(404, "GET /v1/toy/a", NULL, "toy \"a\" is nowhere");
    expect(200, "GET /v1/toys?kind=x", NULL, "[]");
    free(web_want(world, 200, "PUT /v1/toy/a/limits", "{\"SessionID\":\"" SESSION "\",\"Most\":7}"));
    char *text = web_want(world, 200, "GET /v1/toys?kind=x", NULL);
    cr_expect(strstr(text, "[{\"Name\":\"a\",\"Mode\":\"exclusive\",") == text, "%s", text);
    free(text);
    struct web_answer answer = web_ask(world, "GET /v1/toy/a", NULL);
    uint64_t index = web_index(&answer);
    web_free(&answer);
    int fd = web_dial(world);
    web_say(fd, "GET /v1/toy/a?index=%llu HTTP/1.1\r\nHost: x\r\n\r\n", (unsigned long long)index);
    cr_expect(web_silent(fd, 50));
    free(web_want(world, 200, "PUT /v1/toy/a/limits", "{\"SessionID\":\"" SESSION "\",\"Most\":8}"));
    answer = web_hear(fd);
    cr_expect(strstr(answer.body, "\"Most\":8"), "%s", answer.body);
    cr_expect(web_index(&answer) > index);
    web_free(&answer);
    close(fd);
}

Test(endpoints, refused_commands_answer_by_the_status_of_their_error) {
    expect(409, "PUT /v1/toy/a/take?ttl=15s&count=99", NULL, "somebody else has it");
    expect(400, "PUT /v1/lease/revoke/" SESSION, "{\"Count\":1}", "this endpoint takes no body");
    expect(404, "PUT /v1/toy/a/take?session=" SESSION, NULL, "invalid session \"" SESSION "\"");
    expect(409, "PUT /v1/toy/refused/take?ttl=15s", NULL, "not this one");
    expect(400, "PUT /v1/toy/a/take?ttl=15s", "longer than sixteen bytes",
           "note: a body of 25 bytes is not text of at most 16 bytes");
    expect(400, "PUT /v1/toy/a/take", NULL, "session, ttl: one of them is wanted, and not both");
    expect(400, "PUT /v1/toy/a/take?ttl=15s&session=" SESSION, NULL,
           "session, ttl: one of them is wanted, and not both");
    expect(400, "PUT /v1/toy/a/take?ttl=15s&frobnicate=x", NULL,
           "unknown parameter \"frobnicate\" (known: dc, session, ttl, mode, count, wait, hold, shared, color, pretty, "
           "token)");
    expect(400, "PUT /v1/toy/a/take?ttl=15s&moed=x", NULL, "unknown parameter \"moed\" (nearest: \"mode\")");
    expect(400, "GET /v1/toys", NULL, "kind: it is missing; wanted: text");
    expect(500, "GET /v1/toy/a?dc=elsewhere", NULL, "No path to datacenter");
}

/* -- every declared parameter refuses what is wrong --------------------------------------------------------------- */

static unsigned refusals;

static void repeat(struct buffer *out, size_t times) {
    for (size_t i = 0; i < times; i++) buffer_append_byte(out, 'x');
}

/* A value that the row takes, as text. */
static void good(const struct http_param *param, struct buffer *out) {
    switch (param->type) {
        case HTTP_DURATION:
            buffer_append_u64(out, param->least);
            buffer_append_text(out, "ns");
            break;
        case HTTP_U64:
        case HTTP_DECIMAL: buffer_append_u64(out, param->least); break;
        case HTTP_FRACTION: buffer_printf(out, "0.%06llu", (unsigned long long)param->least); break;
        case HTTP_TEXT: repeat(out, param->least ? param->least : 1); break;
        case HTTP_CHOICE: buffer_append(out, param->choices, strcspn(param->choices, "|")); break;
        case HTTP_UUID: buffer_append_text(out, SESSION); break;
        default: buffer_append_text(out, "1");
    }
}

/* Appends values that the row does not take, each ended by a NUL; how many. */
static size_t bad(const struct http_param *param, struct buffer *out) {
    size_t count = 0;
#define VALUE(append) (append, buffer_append_byte(out, '\0'), count++)
    const char *unit = param->type == HTTP_DURATION ? "ns" : "";
    switch (param->type) {
        case HTTP_FLAG: VALUE(buffer_append_text(out, "perhaps")); break;
        case HTTP_U64:
            VALUE(buffer_append_text(out, "1.5"));
            VALUE(buffer_append_text(out, "18446744073709551616"));
            /* fallthrough */
        case HTTP_DECIMAL:
        case HTTP_DURATION:
            VALUE(buffer_append_text(out, "nonsense"));
            VALUE(buffer_append_text(out, ""));
            VALUE(buffer_printf(out, "-5%s", unit));
            if (param->least > 1) VALUE(buffer_printf(out, "%llu%s", (unsigned long long)param->least - 1, unit));
            else if (param->least) VALUE(buffer_printf(out, "0%s", unit));
            if (param->most) VALUE(buffer_printf(out, "%llu%s", (unsigned long long)param->most + 1, unit));
            break;
        case HTTP_FRACTION:
            VALUE(buffer_append_text(out, "nonsense"));
            VALUE(buffer_append_text(out, "-0.5"));
            VALUE(buffer_append_text(out, "0.0000015"));
            if (param->most) VALUE(buffer_printf(out, "%llu", (unsigned long long)param->most / 1000000 + 1));
            break;
        case HTTP_TEXT:
            if (param->most) VALUE(repeat(out, param->most + 1));
            if (param->least) VALUE(repeat(out, param->least - 1));
            break;
        case HTTP_CHOICE:
            VALUE(buffer_append_text(out, "unheard-of"));
            VALUE(buffer_append_text(out, ""));
            break;
        case HTTP_UUID:
            VALUE(buffer_append_text(out, "5e551000-0000-4000-8000-00000000000g"));
            VALUE(buffer_append_text(out, ""));
            break;
        default: break;
    }
#undef VALUE
    return count;
}

static void refused(const struct buffer *target, const char *body, const char *name) {
    char asked[12000];
    snprintf(asked, sizeof asked, "%.*s", (int)target->size, target->data);
    struct web_answer answer = web_ask(world, asked, body);
    cr_expect(answer.status == 400 && strstr(answer.body, name) && !strchr(answer.body, '\n'), "%s\n%s\n%d %s", asked,
              body ? body : "", answer.status, answer.body ? answer.body : "");
    web_free(&answer);
    refusals++;
}

/* The row's target with values that it takes, and `wrong` (or NULL) for this value of the path. */
static void target_make(const struct http_route *route, const struct http_param *in_path, const char *wrong,
                        struct buffer *out) {
    buffer_append_text(out, route->methods & HTTP_GET ? "GET " : route->methods & HTTP_PUT ? "PUT " : "DELETE ");
    for (const char *at = route->path; *at; at++) {
        if (*at != ':' && *at != '*' && *at != '+') {
            buffer_append_byte(out, *at);
            continue;
        }
        size_t size = strcspn(at, "/");
        const struct http_param *param = declared_find(route->params, slice_make(at, size));
        if (param == in_path) buffer_append_text(out, wrong);
        else good(param, out);
        at += size - 1;
    }
    buffer_append_byte(out, '?');
    struct declared_walk walk = declared_begin(route->params);
    for (const struct http_param *param; (param = declared_next(&walk));) {
        bool session = param->name && strcmp(param->name, "session") == 0;
        if (!declared_is_given(param) || declared_in_path(param) || !(param->required || session)) continue;
        buffer_printf(out, "%s=", param->name);
        good(param, out);
        buffer_append_byte(out, '&');
    }
}

static void refuses_parameter(const struct http_route *route, const struct http_param *param) {
    struct buffer values = {0}, target = {0};
    size_t count = bad(param, &values);
    const char *value = values.data;
    for (size_t i = 0; i < count; i++, value += strlen(value) + 1) {
        bool in_path = declared_in_path(param);
        if (in_path && !*value) continue; /* there is no such path */
        buffer_reset(&target);
        target_make(route, in_path ? param : NULL, value, &target);
        if (!in_path) buffer_printf(&target, "%s=%s", param->name, value);
        refused(&target, NULL, in_path ? param->name + 1 : param->name);
    }
    if (!declared_in_path(param) && !param->repeats) {
        buffer_reset(&target);
        target_make(route, NULL, NULL, &target);
        for (int i = 0; i < 2; i++) {
            buffer_printf(&target, "&%s=", param->name);
            good(param, &target);
        }
        refused(&target, NULL, param->name);
    }
    buffer_free(&values), buffer_free(&target);
}

/* -- and every member of a body ----------------------------------------------------------------------------------- */

static void member_json(const struct http_param *param, const char *value, struct buffer *out) {
    struct json_out json;
    json_out_init(&json, out, false);
    char *end;
    bool number = (param->type == HTTP_U64 || param->type == HTTP_DECIMAL || param->type == HTTP_FRACTION) && *value &&
                  (strtod(value, &end), !*end);
    if (param->repeats) buffer_append_byte(out, '[');
    if (number) buffer_append_text(out, value);
    else json_string(&json, value);
    if (param->repeats) buffer_append_byte(out, ']');
}

/* All that is required, but `instead`, whose JSON is `wrong` (NULL: it is left out). */
static void body_make(const struct http_param *members_, const struct http_param *instead, const char *wrong,
                      struct buffer *out) {
    buffer_reset(out);
    buffer_append_text(out, "{\"");
    for (; members_->name; members_++) {
        struct buffer value = {0};
        if (members_ != instead && !members_->required) continue;
        if (members_ == instead && !wrong) continue;
        buffer_printf(out, "%s\":", members_->name);
        good(members_, &value);
        buffer_append_byte(&value, '\0');
        if (members_ == instead) buffer_append_text(out, wrong);
        else member_json(members_, value.data, out);
        buffer_append_text(out, ",\"");
        buffer_free(&value);
    }
    if (out->size > 2) out->size -= 2;
    else out->size = 1;
    buffer_append_text(out, "}");
    buffer_append_byte(out, '\0');
}

static void refuses_member(const struct http_route *route, const struct http_param *param) {
    static const char *const kinds[] = {"true", "17", "\"text\"", "{}", "[{},7]"};
    struct buffer values = {0}, target = {0}, body = {0}, json = {0};
    size_t count = bad(param, &values);
    const char *value = values.data;
    target_make(route, NULL, NULL, &target);
    for (size_t i = 0; i < count; i++, value += strlen(value) + 1) {
        buffer_reset(&json);
        member_json(param, value, &json);
        buffer_append_byte(&json, '\0');
        if (param->type == HTTP_U64 && strcmp(value, "18446744073709551616") == 0) continue; /* JSON's own refusal */
        body_make(route->endpoint.body, param, json.data, &body);
        refused(&target, body.data, param->name);
    }
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        bool fits = !param->repeats && ((param->type == HTTP_FLAG && i == 0) ||
                                        ((param->type == HTTP_U64 || param->type == HTTP_DECIMAL) && i == 1) ||
                                        (param->type == HTTP_TEXT && i == 2) || (param->type == HTTP_OBJECT && i == 3));
        if (fits) continue;
        body_make(route->endpoint.body, param, kinds[i], &body);
        refused(&target, body.data, param->name);
    }
    buffer_reset(&json), buffer_reset(&values);
    good(param, &values), buffer_append_byte(&values, '\0');
    member_json(param, values.data, &json);
    struct buffer both = {0};
    buffer_printf(&both, "%.*s,\"%s\":%.*s", (int)json.size, json.data, param->name, (int)json.size, json.data);
    buffer_append_byte(&both, '\0');
    body_make(route->endpoint.body, param, both.data, &body);
    refused(&target, body.data, param->name); /* twice */
    if (param->required) {
        body_make(route->endpoint.body, param, NULL, &body);
        refused(&target, body.data, param->name);
    }
    buffer_free(&both), buffer_free(&values), buffer_free(&target), buffer_free(&body), buffer_free(&json);
}

Test(endpoints, every_declared_parameter_of_coords_own_endpoints_refuses_what_is_wrong, .timeout = 300) {
    unsigned rows = 0;
    for (const struct http_topic *topic = http_topics; topic->title; topic++) {
        for (const struct http_route *route = topic->rows; route->path; route++) {
            if (!(route->flags & HTTP_OWN)) continue;
            rows++;
            struct buffer target = {0};
            target_make(route, NULL, NULL, &target);
            buffer_append_text(&target, "nowhere-declared=1");
            refused(&target, NULL, "nowhere-declared");
            buffer_free(&target);
            struct declared_walk walk = declared_begin(route->params);
            for (const struct http_param *param; (param = declared_next(&walk));)
                if (declared_is_given(param)) refuses_parameter(route, param);
            for (const struct http_param *member = route->endpoint.body; member && member->name; member++)
                refuses_member(route, member);
        }
    }
    cr_expect(rows >= 9 && refusals > 150, "%u rows, %u refusals", rows, refusals);
}
