#include "acl/jwt.h"

#include <inttypes.h>
#include <math.h>

#include "base/json_in.h"
#include "base/json_value.h"
#include "base/text.h"

#define DEFAULT_LEEWAY_S     150
#define DEFAULT_CLOCK_SKEW_S 60
#define TIME_MOST            9007199254740992.0 /* 2^53: doubles have all whole numbers below */

/* ---- the token ---- */

struct parts {
    struct slice header, payload, signature, input; /* input: what is signed */
};

static bool split(struct slice token, struct parts *parts) {
    const char *first = memchr(token.data, '.', token.size), *end = token.data + token.size;
    const char *second = first ? memchr(first + 1, '.', (size_t)(end - first - 1)) : NULL;
    if (!second) return false; /* a third dot is no character of base64url */
    *parts = (struct parts){
        .header = slice_make(token.data, (size_t)(first - token.data)),
        .payload = slice_make(first + 1, (size_t)(second - first - 1)),
        .signature = slice_make(second + 1, (size_t)(end - second - 1)),
        .input = slice_make(token.data, (size_t)(second - token.data)),
    };
    return parts->header.size > 0 && parts->signature.size > 0;
}

/* An object that has no name twice; NULL and a fault that says nothing of the content. */
static struct json_object *read_object(struct slice text, const char *what, struct fault *fault) {
    struct json_object *object = json_parse(text, NULL);
    if (json_object_is_type(object, json_type_object) && json_refuse_duplicates(text, NULL) == CO_OK) return object;
    json_object_put(object);
    fault_set(fault, CO_INVALID, "the token's %s is no JSON object, or has a name twice", what);
    return NULL;
}

/* JOSE's names have case: json_get would find others. */
static bool has(struct json_object *object, const char *name, struct json_object **value) {
    *value = NULL;
    return json_object_object_get_ex(object, name, value);
}

/* Reads the members of the header that count. */
static int read_header(struct json_object *header, unsigned algs, enum jwt_alg *alg, struct slice *kid,
                       struct fault *fault) {
    struct json_object *value;
    *kid = (struct slice){0};
    if (has(header, "crit", &value))
        return fault_set(fault, CO_INVALID, "the token needs an extension (\"crit\"), and coord has none");
    bool known = has(header, "alg", &value) && json_object_is_type(value, json_type_string) &&
                 jwt_alg_parse(json_text(value), alg);
    if (!known || (algs && !(algs & 1u << *alg)))
        return fault_set(fault, CO_DENIED, "the token's signature is of no kind that is accepted (\"alg\")");
    if (!has(header, "kid", &value)) return CO_OK;
    if (!json_object_is_type(value, json_type_string))
        return fault_set(fault, CO_INVALID, "the token's \"kid\" is no text");
    *kid = json_text(value);
    return CO_OK;
}

static int check_signature(const struct jwt_keys *keys, unsigned algs, const struct parts *parts, struct slice header,
                           struct slice signature, struct fault *fault) {
    enum jwt_alg alg;
    struct slice kid;
    struct json_object *object = read_object(header, "header", fault);
    if (!object) return CO_INVALID;
    int rv = read_header(object, algs, &alg, &kid, fault);
    if (rv == CO_OK && !jwt_keys_verify(keys, alg, kid, parts->input, signature))
        rv = fault_set(fault, CO_DENIED, "no known key made the token's signature");
    json_object_put(object);
    return rv;
}

int jwt_open(const struct jwt_keys *keys, unsigned algs, struct slice token, struct buffer *payload,
             struct fault *fault) {
    struct parts parts;
    struct buffer header = {0}, signature = {0};
    size_t before = payload->size;
    if (token.size > JWT_TOKEN_MOST)
        return fault_set(fault, CO_TOOLARGE, "a token of %zu bytes: at most %zu KiB are taken", token.size,
                         JWT_TOKEN_MOST >> 10);
    int rv = CO_INVALID;
    if (token.size && split(token, &parts) && base64url_decode(&header, parts.header) == CO_OK &&
        base64url_decode(&signature, parts.signature) == CO_OK && base64url_decode(payload, parts.payload) == CO_OK)
        rv = check_signature(keys, algs, &parts, buffer_slice(&header), buffer_slice(&signature), fault);
    else fault_set(fault, CO_INVALID, "this is no signed token: three parts in base64url with dots between");
    if (rv != CO_OK) payload->size = before;
    buffer_free(&header);
    buffer_free(&signature);
    return rv;
}

/* ---- its claims ---- */

static int64_t leeway(int64_t given, int64_t otherwise) { return given == 0 ? otherwise : given < 0 ? 0 : given; }

struct time_claim {
    bool there;
    int64_t s;
};

static int read_time(struct json_object *claims, const char *name, struct time_claim *out, struct fault *fault) {
    struct json_object *value;
    *out = (struct time_claim){.there = has(claims, name, &value)};
    if (!out->there) return CO_OK;
    double s = json_is_number(value) ? json_object_get_double(value) : NAN;
    if (!(fabs(s) <= TIME_MOST)) return fault_set(fault, CO_INVALID, "the token's \"%s\" is no time", name);
    out->s = (int64_t)s;
    return CO_OK;
}

static int check_times(struct json_object *claims, const struct jwt_rules *rules, struct fault *fault) {
    struct time_claim exp, nbf, iat;
    int64_t skew = leeway(rules->clock_skew_leeway_s, DEFAULT_CLOCK_SKEW_S);
    int rv = read_time(claims, "exp", &exp, fault);
    if (rv == CO_OK) rv = read_time(claims, "nbf", &nbf, fault);
    if (rv == CO_OK) rv = read_time(claims, "iat", &iat, fault);
    if (rv != CO_OK) return rv;
    if (!exp.there && !nbf.there && !iat.there)
        return fault_set(fault, CO_DENIED, "the token says no time: one of exp, nbf, iat is needed");
    if (!exp.there) {
        int64_t start = !iat.there || (nbf.there && nbf.s > iat.s) ? nbf.s : iat.s;
        exp.s = start + leeway(rules->expiration_leeway_s, DEFAULT_LEEWAY_S);
    }
    if (!nbf.there) nbf.s = iat.there ? iat.s : exp.s - leeway(rules->not_before_leeway_s, DEFAULT_LEEWAY_S);
    if (rules->now_s + skew < nbf.s) return fault_set(fault, CO_DENIED, "the token is not valid yet");
    if (rules->now_s - skew > exp.s) return fault_set(fault, CO_DENIED, "the token has expired");
    if (iat.there && rules->now_s + skew < iat.s)
        return fault_set(fault, CO_DENIED, "the token was issued in the future");
    return CO_OK;
}

static int check_issuer(struct json_object *claims, struct slice issuer, struct fault *fault) {
    struct json_object *value;
    bool there = has(claims, "iss", &value), text = json_object_is_type(value, json_type_string);
    if (there && !text) return fault_set(fault, CO_INVALID, "the token's \"iss\" is no text");
    if (issuer.size == 0 || (there && slice_equal(json_text(value), issuer))) return CO_OK;
    return fault_set(fault, CO_DENIED, "the token is of another issuer");
}

static bool is_bound(const struct jwt_rules *rules, struct slice audience) {
    for (size_t i = 0; i < rules->audience_count; i++) {
        if (slice_equal(rules->audiences[i], audience)) return true;
    }
    return false;
}

static int check_audience(struct json_object *claims, const struct jwt_rules *rules, struct fault *fault) {
    struct json_object *value;
    bool there = has(claims, "aud", &value), list = json_object_is_type(value, json_type_array), fits = false;
    size_t count = list ? json_object_array_length(value) : there;
    for (size_t i = 0; i < count; i++) {
        struct json_object *item = list ? json_object_array_get_idx(value, i) : value;
        if (!json_object_is_type(item, json_type_string))
            return fault_set(fault, CO_INVALID, "the token's \"aud\" is neither text nor a list of texts");
        fits = fits || is_bound(rules, json_text(item));
    }
    if (rules->audience_count == 0 && count)
        return fault_set(fault, CO_DENIED, "the token is for an audience, and none is bound");
    if (rules->audience_count && !fits) return fault_set(fault, CO_DENIED, "the token is for another audience");
    return CO_OK;
}

int jwt_verify(const struct jwt_keys *keys, const struct jwt_rules *rules, struct slice token,
               struct json_object **claims, struct fault *fault) {
    struct buffer payload = {0};
    struct fault own = {0};
    *claims = NULL;
    int rv = jwt_open(keys, rules->algs, token, &payload, &own);
    if (rv == CO_OK && !(*claims = read_object(buffer_slice(&payload), "payload", &own))) rv = CO_INVALID;
    if (rv == CO_OK) rv = check_times(*claims, rules, &own);
    if (rv == CO_OK) rv = check_issuer(*claims, rules->issuer, &own);
    if (rv == CO_OK) rv = check_audience(*claims, rules, &own);
    buffer_free(&payload);
    if (rv == CO_OK) return CO_OK;
    json_object_put(*claims);
    *claims = NULL;
    return fault_set(fault, rv, "%s", own.text);
}

/* ---- claims become variables ---- */

/* Takes the next step of a JSON pointer, with ~0 and ~1 resolved, into the arena. */
static const char *next_step(const char **pointer, struct arena *arena) {
    const char *at = *pointer + 1; /* behind the "/" */
    size_t size = strcspn(at, "/"), out = 0;
    char *step = arena_alloc(arena, size + 1);
    for (size_t i = 0; i < size; i++) {
        bool escape = at[i] == '~' && (at[i + 1] == '0' || at[i + 1] == '1');
        step[out++] = escape ? (at[i + 1] == '0' ? '~' : '/') : at[i];
        i += escape;
    }
    step[out] = '\0';
    *pointer = at + size;
    return step;
}

static struct json_object *item_of(struct json_object *array, const char *step) {
    uint64_t index;
    struct slice text = slice_text(step);
    bool fine = u64_parse(text, UINT32_MAX, &index) == CO_OK && (text.size == 1 || text.data[0] != '0');
    return fine ? json_object_array_get_idx(array, (size_t)index) : NULL;
}

/* NULL: it is not there, or null. */
static struct json_object *find_claim(struct json_object *claims, const char *claim, struct arena *arena) {
    struct json_object *value = claims;
    if (claim[0] != '/') return has(claims, claim, &value) ? value : NULL;
    while (*claim && value) {
        const char *step = next_step(&claim, arena);
        if (json_object_is_type(value, json_type_object)) has(value, step, &value);
        else value = json_object_is_type(value, json_type_array) ? item_of(value, step) : NULL;
    }
    return value;
}

/* False: it is no text, number or boolean. */
static bool text_of(struct json_object *value, struct arena *arena, struct slice *text) {
    switch (json_object_get_type(value)) {
        case json_type_string: *text = slice_copy(arena, json_text(value)); return true;
        case json_type_boolean: *text = slice_text(json_object_get_boolean(value) ? "true" : "false"); return true;
        case json_type_int: {
            uint64_t size = json_object_get_uint64(value);
            bool negative = json_object_get_int64(value) < 0;
            *text = slice_text(negative ? arena_printf(arena, "%" PRId64, json_object_get_int64(value))
                                        : arena_printf(arena, "%" PRIu64, size));
            return true;
        }
        case json_type_double: {
            double whole = trunc(json_object_get_double(value));
            if (!(whole >= -0x1p63 && whole < 0x1p63)) return false;
            *text = slice_text(arena_printf(arena, "%" PRId64, (int64_t)whole));
            return true;
        }
        case json_type_null:
        case json_type_array:
        case json_type_object: break;
    }
    return false;
}

static int refuse_claim(const struct jwt_mapping *mapping, const char *why, struct fault *fault) {
    return fault_set(fault, CO_INVALID, "the claim \"%.80s\" %s", mapping->claim, why);
}

static int map_list(struct json_object *value, const struct jwt_mapping *mapping, struct arena *arena,
                    struct jwt_list *out, struct fault *fault) {
    bool list = json_object_is_type(value, json_type_array);
    size_t count = list ? json_object_array_length(value) : 1;
    *out = (struct jwt_list){.name = mapping->name, .items = arena_alloc(arena, count * sizeof *out->items)};
    for (size_t i = 0; i < count; i++) {
        struct slice text;
        if (!text_of(list ? json_object_array_get_idx(value, i) : value, arena, &text))
            return refuse_claim(mapping, "has a value that is no text, number or boolean", fault);
        if (text.size) out->items[out->count++] = text;
    }
    return CO_OK;
}

int jwt_map(struct json_object *claims, const struct jwt_mapping *values, size_t value_count,
            const struct jwt_mapping *lists, size_t list_count, struct arena *arena, struct jwt_variables *variables,
            struct fault *fault) {
    *variables = (struct jwt_variables){
        .values = arena_alloc(arena, value_count * sizeof *variables->values),
        .lists = arena_alloc(arena, list_count * sizeof *variables->lists),
    };
    for (size_t i = 0; i < value_count; i++) {
        struct json_object *value = find_claim(claims, values[i].claim, arena);
        struct jwt_value *out = &variables->values[variables->value_count];
        if (!value) continue;
        if (!text_of(value, arena, &out->text)) return refuse_claim(&values[i], "is no text, number or boolean", fault);
        out->name = values[i].name;
        variables->value_count++;
    }
    for (size_t i = 0; i < list_count; i++) {
        struct json_object *value = find_claim(claims, lists[i].claim, arena);
        if (!value) continue;
        int rv = map_list(value, &lists[i], arena, &variables->lists[variables->list_count], fault);
        if (rv != CO_OK) return rv;
        variables->list_count++;
    }
    return CO_OK;
}
