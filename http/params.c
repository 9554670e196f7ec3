/* Parses the target: path, parameters, and the key under which its answer is kept. Decodes strictly: refuses a bad
 * escape or a NUL. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "http/declared.h"
#include "http/impl.h"
#include "kv/stream/stream.h"

#define PARAMETERS_MOST (STREAM_SUBSCRIPTIONS_MAX + 32)

/* ---- parsing ---- */

/* Decodes into the arena, NUL-terminated. False: refused. */
static bool decode(struct http_request *request, struct slice raw, bool plus, const char *what, struct slice *out) {
    char *text = arena_alloc(&request->arena, raw.size + 1);
    size_t size;
    if (percent_decode(raw, plus, text, &size) != CO_OK) {
        request_refuse(request, 400, "Bad request: bad percent-encoding or NUL in the %s", what);
        return false;
    }
    text[size] = '\0';
    *out = slice_make(text, size);
    return true;
}

static bool add_parameter(struct http_request *request, struct slice raw, struct parameter *parameter) {
    const char *equals = memchr(raw.data, '=', raw.size);
    struct slice name = slice_make(raw.data, equals ? (size_t)(equals - raw.data) : raw.size);
    if (!decode(request, name, true, "name of a parameter", &parameter->name)) return false;
    parameter->has_value = equals != NULL;
    parameter->value = slice_make("", 0);
    if (!equals) return true;
    char what[80];
    snprintf(what, sizeof what, "parameter %.60s", parameter->name.data);
    struct slice value = slice_make(equals + 1, raw.size - name.size - 1);
    return decode(request, value, true, what, &parameter->value);
}

/* Is it a parameter that decides when to answer, and not what? */
static bool is_timing(struct slice name) { return slice_is(name, "index") || slice_is(name, "wait"); }

static void key_append(char *key, size_t *size, char before, struct slice text) {
    key[(*size)++] = before;
    memcpy(key + *size, text.data, text.size);
    *size += text.size;
}

static bool parse_query(struct http_request *request, struct slice query) {
    unsigned count = 1;
    for (size_t i = 0; i < query.size; i++) count += query.data[i] == '&';
    if (count > PARAMETERS_MOST) {
        request_refuse(request, 400, "Bad request: more than %d parameters", PARAMETERS_MOST);
        return false;
    }
    request->parameters = arena_alloc(&request->arena, count * sizeof *request->parameters);
    char *key = arena_alloc(&request->arena, request->target.size + 2);
    size_t key_size = request->path.size;
    memcpy(key, request->path.data, key_size);
    char before = '?';
    bool timed = false;
    for (const char *at = query.data, *end = at + query.size, *stop; at < end; at = stop + 1) {
        for (stop = at; stop < end && *stop != '&';) stop++;
        struct slice raw = slice_make(at, (size_t)(stop - at));
        if (!raw.size) continue;
        struct parameter *parameter = &request->parameters[request->parameter_count];
        if (!add_parameter(request, raw, parameter)) return false;
        request->parameter_count++;
        if (is_timing(parameter->name)) {
            timed = true;
            continue;
        }
        key_append(key, &key_size, before, raw);
        before = '&';
    }
    if (timed) request->key = slice_make(key, key_size);
    return true;
}

bool parameters_parse(struct http_request *request) {
    const char *mark = memchr(request->target.data, '?', request->target.size);
    size_t size = mark ? (size_t)(mark - request->target.data) : request->target.size;
    request->path = slice_make(request->target.data, size);
    request->key = request->target;
    if (mark && !parse_query(request, slice_make(mark + 1, request->target.size - size - 1))) return false;
    if (http_has(request, "ns")) {
        request_refuse(request, 400,
                       "Bad request: Invalid query parameter: \"ns\" - Namespaces are a Consul Enterprise feature");
        return false;
    }
    request->pretty = http_has(request, "pretty");
    return true;
}

/* A number where the row has a parameter `token` of its own is a fencing token, a term or a lease's token. */
void token_parse(struct http_request *request) {
    static const struct slice name = {"token", 5};
    struct slice token = http_parameter(request, "token");
    uint64_t number;
    bool own = declared_find(request->route->params, name) && u64_parse(token, UINT64_MAX, &number) == CO_OK;
    if (token.size && !own) request->token = token;
}

/* ---- reading parameters ---- */

/* Handlers may read only parameters that their row declares, because docs/api.md has those. */
static void must_be_declared(const struct http_request *request, const char *name) {
#ifdef COORD_ASAN
    static const char *const common[] = {"dc", "ns", "pretty", "token"};
    if (!request->route || declared_find(request->route->params, slice_text(name))) return;
    for (size_t i = 0; i < ARRAY_COUNT(common); i++)
        if (strcmp(name, common[i]) == 0) return;
    CHECK(!"a declared parameter");
#else
    (void)request, (void)name;
#endif
}

static const struct parameter *find(const struct http_request *request, const char *name) {
    size_t size = strlen(name);
    must_be_declared(request, name);
    for (unsigned i = 0; i < request->parameter_count; i++) {
        const struct parameter *parameter = &request->parameters[i];
        if (parameter->name.size == size && memcmp(parameter->name.data, name, size) == 0) return parameter;
    }
    return NULL;
}

bool http_has(const struct http_request *request, const char *parameter) { return find(request, parameter) != NULL; }

struct slice http_parameter(const struct http_request *request, const char *parameter) {
    const struct parameter *found = find(request, parameter);
    return found ? found->value : (struct slice){0};
}

size_t http_parameters(struct http_request *request, const char *parameter, struct slice **values) {
    size_t count = 0, size = strlen(parameter);
    must_be_declared(request, parameter);
    *values = arena_alloc(&request->arena, (request->parameter_count + 1) * sizeof **values);
    for (unsigned i = 0; i < request->parameter_count; i++) {
        const struct parameter *at = &request->parameters[i];
        if (at->name.size == size && memcmp(at->name.data, parameter, size) == 0) (*values)[count++] = at->value;
    }
    return count;
}

struct slice http_path_value(const struct http_request *request, const char *name) {
    for (unsigned i = 0; i < request->value_count; i++) {
        if (slice_is(request->values[i].name, name)) return request->values[i].value;
    }
    return (struct slice){0};
}

bool http_parameter_u64(struct http_request *request, const char *parameter, uint64_t *value) {
    const struct parameter *found = find(request, parameter);
    if (!found || !found->value.size) return true; /* without a value it is ignored, as in Consul */
    int error = u64_parse(found->value, UINT64_MAX, value);
    if (!error) return true;
    http_reply_text(request, 400, "Invalid %s: \"%.40s\" is %s", parameter, found->value.data,
                    error == CO_TOOLARGE ? "larger than 2^64-1" : "no whole number");
    return false;
}

bool http_parameter_duration(struct http_request *request, const char *parameter, int64_t *nanoseconds) {
    const struct parameter *found = find(request, parameter);
    if (!found || !found->value.size) return true;
    int64_t value;
    int error = duration_parse(found->value, &value);
    if (!error && value >= 0) {
        *nanoseconds = value;
        return true;
    }
    const char *why = error == CO_TOOLARGE ? "too long"
                      : error              ? "no duration such as \"10s\" or \"1m30s\""
                                           : "negative";
    http_reply_text(request, 400, "Invalid %s time: \"%.40s\" is %s", parameter, found->value.data, why);
    return false;
}

const char *http_region(const struct http_request *request) { return request->region ? request->region : ""; }

void http_region_name(const struct http_request *request, char region[RPC_REGION_MAX + 1]) {
    const char *name = http_region(request);
    memcpy(region, name, strlen(name) + 1);
}

static bool is_region(struct slice name) {
    bool good = name.size <= RPC_REGION_MAX;
    for (size_t i = 0; good && i < name.size; i++) {
        char c = name.data[i];
        good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    }
    return good;
}

bool http_region_set(struct http_request *request, struct slice name) {
    request->region = NULL;
    if (!name.size || slice_is(name, http_env(request)->datacenter)) return true;
    if (!is_region(name)) {
        http_reply_read_error(request, CO_NOREGION, NULL);
        return false;
    }
    request->region = arena_strndup(http_arena(request), name.data, name.size);
    return true;
}
