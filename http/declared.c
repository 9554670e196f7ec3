/* Parameters as the routing table declares them: found, read, checked. */
#include "http/declared.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json_in.h"
#include "base/suggest.h"
#include "base/text.h"
#include "http/impl.h"
#include "http/route_near.h"

const struct http_param http_params_read[] = {
    HTTP_DC,
    {"index", HTTP_U64,
     .help = "waits until the answer is newer than this X-Consul-Index; X-Coord-Cause says what woke it"},
    {"wait", HTTP_DURATION, .help = "how long it waits at most, with index; more than 10m is 10m (default 5m)"},
    {"stale", HTTP_FLAG, .help = "any server may answer, perhaps with old data"},
    {"consistent", HTTP_FLAG, .help = "the newest data, which is the default; not together with stale"},
    {"max_stale", HTTP_DURATION, .help = "with stale: how long ago the answering server heard of its leader at most"},
    {"cached", HTTP_FLAG, .help = "taken, and answered as without it"},
    {0},
};

const struct http_param http_params_session[] = {
    {"session", HTTP_UUID, .help = "the session that it is done for"},
    {"ttl", HTTP_DURATION,
     .help = "in place of session: a new session of this TTL (at least session_ttl_min) is made in the same entry",
     .least = 1, .most = HTTP_TTL_MOST_NS},
    {0},
};

/* -- walking ------------------------------------------------------------------------------------------------------ */

struct declared_walk declared_begin(const struct http_param *params) {
    return (struct declared_walk){.at = {params}, .depth = params != NULL};
}

const struct http_param *declared_next(struct declared_walk *walk) {
    while (walk->depth) {
        const struct http_param *param = walk->at[walk->depth - 1];
        if (!param->name && !param->field) {
            walk->depth--;
            continue;
        }
        walk->at[walk->depth - 1]++;
        if (param->type == HTTP_GROUP || param->type == HTTP_SESSION) {
            CHECK(walk->depth < ARRAY_COUNT(walk->at));
            walk->at[walk->depth++] = param->group;
        }
        if (param->type != HTTP_GROUP) return param;
    }
    return NULL;
}

const struct http_param *declared_find(const struct http_param *params, struct slice name) {
    struct declared_walk walk = declared_begin(params);
    for (const struct http_param *param; (param = declared_next(&walk));)
        if (declared_is_given(param) && slice_is(name, param->name)) return param;
    return NULL;
}

/* -- the wanted form ---------------------------------------------------------------------------------------------- */

/* Appends the short form: "24h", not "24h0m0s". */
static void duration_append(struct buffer *out, uint64_t ns) {
    struct buffer text = {0};
    duration_format(&text, (int64_t)ns);
    for (int i = 0; i < 2 && text.size > 2 && memcmp(text.data + text.size - 2, i ? "0m" : "0s", 2) == 0; i++) {
        if (isdigit((unsigned char)text.data[text.size - 3])) break;
        text.size -= 2;
    }
    buffer_append(out, text.data, text.size);
    buffer_free(&text);
}

static void fraction_append(struct buffer *out, uint64_t millionths) {
    char text[40];
    int size = snprintf(text, sizeof text, "%llu.%06llu", (unsigned long long)(millionths / 1000000),
                        (unsigned long long)(millionths % 1000000));
    while (text[size - 1] == '0') size--;
    if (text[size - 1] == '.') size--;
    buffer_append(out, text, (size_t)size);
}

static void bound_append(const struct http_param *param, struct buffer *out, uint64_t bound) {
    if (param->type == HTTP_DURATION) duration_append(out, bound);
    else if (param->type == HTTP_FRACTION) fraction_append(out, bound);
    else buffer_append_u64(out, bound);
}

static void bounds_append(const struct http_param *param, struct buffer *out) {
    bool text = param->type == HTTP_TEXT, both = param->most && (param->least || !text);
    if (!param->least && !param->most) return;
    buffer_append_text(out, both ? (text ? " of " : " from ") : param->most ? " of at most " : " of at least ");
    if (both || param->least) bound_append(param, out, param->least);
    if (both) buffer_append_text(out, " to ");
    if (param->most) bound_append(param, out, param->most);
    if (text) buffer_append_text(out, " bytes");
}

static void choices_append(const struct http_param *param, struct buffer *out) {
    if (strchr(param->choices, '|')) buffer_append_text(out, "one of ");
    for (const char *at = param->choices; *at; at++) {
        if (*at == '|') buffer_append_text(out, ", ");
        else buffer_append_byte(out, *at);
    }
}

void declared_wanted(const struct http_param *param, struct buffer *out) {
    switch (param->type) {
        case HTTP_FLAG: buffer_append_text(out, "a flag"); return;
        case HTTP_U64: buffer_append_text(out, "a whole number"); break;
        case HTTP_DECIMAL: buffer_append_text(out, "a number"); break;
        case HTTP_FRACTION: buffer_append_text(out, "a number with up to 6 decimals"); break;
        case HTTP_OFFSET: buffer_append_text(out, "an offset from UTC, from \"-23:59\" to \"+23:59\""); return;
        case HTTP_DURATION: buffer_append_text(out, "a duration"); break;
        case HTTP_TEXT: buffer_append_text(out, "text"); break;
        case HTTP_CHOICE: choices_append(param, out); return;
        case HTTP_UUID: buffer_append_text(out, "a UUID"); return;
        case HTTP_OBJECT: buffer_append_text(out, "an object"); return;
        default: return;
    }
    bounds_append(param, out);
}

/* -- one value ---------------------------------------------------------------------------------------------------- */

static int refuse(const struct http_param *param, struct slice text, struct fault *fault) {
    struct buffer wanted = {0};
    declared_wanted(param, &wanted);
    const char *name = declared_in_path(param) ? param->name + 1 : param->name;
    int size = text.size < 40 ? (int)text.size : 40;
    uint64_t number;
    bool no_unit = param->type == HTTP_DURATION && u64_parse(text, UINT64_MAX, &number) != CO_INVALID && number;
    if (no_unit) buffer_append_text(&wanted, ": it has no unit (10s, 1m30s, 200ms)");
    fault_set(fault, CO_INVALID, "%s: \"%.*s\"%s is not %.*s%s", name, size, size ? text.data : "",
              text.size > 40 ? "..." : "", (int)wanted.size, wanted.data,
              param->type == HTTP_FLAG ? ": leave the value out, or write 1 or true" : "");
    buffer_free(&wanted);
    return CO_INVALID;
}

static bool within(const struct http_param *param, uint64_t number) {
    return number >= param->least && (!param->most || number <= param->most);
}

static bool decimal_within(const struct http_param *param, struct slice text, double *decimal) {
    return decimal_parse(text, decimal) == CO_OK && *decimal >= (double)param->least &&
           (!param->most || *decimal <= (double)param->most);
}

/* Parses a whole number of millionths. A text with more digits is refused, because it would silently become another
 * value. */
static bool fraction_parse(struct slice text, uint64_t *millionths) {
    double decimal;
    if (decimal_parse(text, &decimal) != CO_OK || decimal < 0 || decimal > 1e9) return false;
    double whole = round(decimal * 1e6);
    *millionths = (uint64_t)whole;
    return fabs(decimal * 1e6 - whole) < 1e-3;
}

#define OFFSET_MOST_MINUTES (14 * 60)
static bool offset_parse(struct slice text, uint64_t *minutes) {
    uint64_t hour, minute;
    bool formed = text.size == 6 && (text.data[0] == '+' || text.data[0] == '-') && text.data[3] == ':' &&
                  u64_parse(slice_make(text.data + 1, 2), 23, &hour) == CO_OK &&
                  u64_parse(slice_make(text.data + 4, 2), 59, &minute) == CO_OK;
    if (!formed || hour * 60 + minute > OFFSET_MOST_MINUTES) return false;
    int32_t offset = (int32_t)(hour * 60 + minute);
    *minutes = (uint64_t)(int64_t)(text.data[0] == '-' ? -offset : offset);
    return true;
}

static bool choice_known(const struct http_param *param, struct slice text) {
    for (const char *at = param->choices;; at++) {
        size_t size = strcspn(at, "|");
        if (slice_equal(text, slice_make(at, size))) return true;
        at += size;
        if (!*at) return false;
    }
}

static bool value_parse(const struct http_param *param, struct slice text, bool has_value,
                        struct message_value *value) {
    int64_t ns;
    *value = (struct message_value){.type = VALUE_TEXT, .text = text};
    switch (param->type) {
        case HTTP_FLAG:
            value->type = VALUE_BOOL, value->number = 1;
            return !has_value || !text.size || slice_is(text, "1") || slice_is(text, "true");
        case HTTP_U64:
            value->type = VALUE_U64;
            return u64_parse(text, UINT64_MAX, &value->number) == CO_OK && within(param, value->number);
        case HTTP_DECIMAL: value->type = VALUE_DECIMAL; return decimal_within(param, text, &value->decimal);
        case HTTP_FRACTION:
            value->type = VALUE_U64;
            return fraction_parse(text, &value->number) && within(param, value->number);
        case HTTP_OFFSET: value->type = VALUE_SIGNED; return offset_parse(text, &value->number);
        case HTTP_DURATION:
            value->type = VALUE_NS;
            if (duration_parse(text, &ns) != CO_OK || ns < 0) return false;
            value->number = (uint64_t)ns;
            return within(param, value->number);
        case HTTP_TEXT: return within(param, text.size) && !(text.size && memchr(text.data, '\0', text.size));
        case HTTP_CHOICE: return choice_known(param, text);
        case HTTP_UUID:
            if (!uuid_valid(text)) return false;
            for (char *at = (char *)(uintptr_t)text.data; at < text.data + text.size; at++) /* the request's own copy */
                if (isupper((unsigned char)*at)) *at = (char)tolower((unsigned char)*at);
            return true;
        default: return false;
    }
}

int declared_parse(const struct http_param *param, struct slice text, bool has_value, struct message_value *value,
                   struct fault *fault) {
    return value_parse(param, text, has_value, value) ? CO_OK : refuse(param, text, fault);
}

/* -- a request ---------------------------------------------------------------------------------------------------- */

static const char *const common[] = {"pretty", "token"};

static bool is_common(struct slice name) {
    for (size_t i = 0; i < ARRAY_COUNT(common); i++)
        if (slice_is(name, common[i])) return true;
    return false;
}

#define KNOWN_SHOWN 140 /* bytes */

static void list_known(const struct http_param *params, struct buffer *out) {
    struct declared_walk walk = declared_begin(params);
    size_t begun = out->size;
    for (const struct http_param *param; (param = declared_next(&walk));) {
        if (!declared_is_given(param) || declared_in_path(param)) continue;
        if (out->size - begun > KNOWN_SHOWN) {
            buffer_append_text(out, ", ...");
            return;
        }
        buffer_printf(out, "%s%s", out->size > begun ? ", " : "", param->name);
    }
    for (size_t i = 0; i < ARRAY_COUNT(common); i++)
        buffer_printf(out, "%s%s", out->size > begun ? ", " : "", common[i]);
}

/* The member of a body with this name, in any case; NULL: none. */
static const struct http_param *member_named(const struct http_param *members, struct slice name) {
    struct declared_walk walk = declared_begin(members);
    for (const struct http_param *member; (member = declared_next(&walk));)
        if (declared_is_given(member) && json_same_key(slice_text(member->name), name)) return member;
    return NULL;
}

/* Refuses an unknown parameter, with a hint: it is a member of the body, a parameter of another method of the same
 * path, or probably mistyped. */
static void refuse_unknown(const struct http_request *request, struct slice name, struct fault *fault) {
    struct suggest suggest = suggest_for(name);
    struct declared_walk walk = declared_begin(request->route->params);
    struct buffer said = {0};
    buffer_printf(&said, "unknown parameter \"%.60s\"", name.data);
    const struct http_param *member = member_named(request->route->endpoint.body, name);
    if (!member && slice_is(name, "dc")) {
        fault_set(fault, CO_INVALID, "dc: this is done in a region by itself: ask an agent there");
        buffer_free(&said);
        return;
    }
    if (member) {
        fault_set(fault, CO_INVALID, "%.*s: it is a member of the body: {\"%s\": ...}", (int)said.size, said.data,
                  member->name);
        buffer_free(&said);
        return;
    }
    size_t before = said.size;
    buffer_append_text(&said, " of ");
    route_show(request->route, request->method, &said);
    buffer_append_text(&said, "; it is one of ");
    if (!route_with_parameter(request->path, request->method == HTTP_HEAD ? HTTP_GET : request->method, name, &said)) {
        said.size = before;
        for (size_t i = 0; i < ARRAY_COUNT(common); i++) suggest_try(&suggest, slice_text(common[i]));
        for (const struct http_param *param; (param = declared_next(&walk));)
            if (declared_is_given(param) && !declared_in_path(param)) suggest_try(&suggest, slice_text(param->name));
        buffer_append_text(&said, suggest.count ? " (nearest: " : " (known: ");
        if (suggest.count) suggest_print(&said, &suggest);
        else list_known(request->route->params, &said);
        buffer_append_byte(&said, ')');
    }
    fault_set(fault, CO_INVALID, "%.*s", (int)said.size, said.data);
    buffer_free(&said);
}

static void check_given(const struct http_request *request, unsigned i, struct fault *fault) {
    const struct parameter *parameter = &request->parameters[i];
    const struct http_param *param = declared_find(request->route->params, parameter->name);
    struct message_value value;
    bool here = slice_is(parameter->name, "dc") && slice_is(parameter->value, http_env(request)->datacenter);
    if (!param) {
        if (!here && !is_common(parameter->name)) refuse_unknown(request, parameter->name, fault);
        return;
    }
    for (unsigned j = 0; j < i && !param->repeats; j++)
        if (slice_equal(request->parameters[j].name, parameter->name))
            fault_set(fault, CO_INVALID, "%s: it is given twice", param->name);
    declared_parse(param, parameter->value, parameter->has_value, &value, fault);
}

static void refuse_missing(const struct http_param *param, struct fault *fault) {
    struct buffer wanted = {0};
    declared_wanted(param, &wanted);
    fault_set(fault, CO_INVALID, "%s: it is missing; wanted: %.*s", param->name, (int)wanted.size, wanted.data);
    buffer_free(&wanted);
}

static void check_session(const struct http_request *request, const struct http_param *param, struct fault *fault) {
    const char *other = param->choices;
    int count = http_has(request, "session") + http_has(request, "ttl") + (other && http_has(request, other));
    if (count == 1) return;
    fault_set(fault, CO_INVALID, "session, ttl%s%s: one of them is wanted, and not %s", other ? ", " : "",
              other ? other : "", other ? "more" : "both");
}

static void check_row(const struct http_request *request, const struct http_param *param, struct fault *fault) {
    struct message_value value;
    if (param->type == HTTP_SESSION) {
        check_session(request, param, fault);
    } else if (declared_is_given(param) && declared_in_path(param)) {
        declared_parse(param, http_path_value(request, param->name + 1), true, &value, fault);
    } else if (declared_is_given(param) && param->required && !http_has(request, param->name)) {
        refuse_missing(param, fault);
    }
}

bool declared_check(struct http_request *request) {
    struct fault fault = {0};
    for (unsigned i = 0; i < request->parameter_count && !fault.code; i++) check_given(request, i, &fault);
    struct declared_walk walk = declared_begin(request->route->params);
    for (const struct http_param *param; !fault.code && (param = declared_next(&walk));)
        check_row(request, param, &fault);
    if (!fault.code) return true;
    http_reply_text(request, 400, "%s", fault.text);
    return false;
}
