#include "base/json_in.h"

#include <inttypes.h>
#include <json-c/json_tokener.h>

#include "base/suggest.h"
#include "base/text.h"

#define DEPTH_MOST 64

/* ---- what json-c lets pass although it is no JSON, or would change silently ---- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* Why a text is no JSON, and at which byte. */
struct refusal {
    const char *what; /* NULL: nothing yet */
    size_t at;
    int code;
};

static void refuse_at(struct refusal *refusal, size_t at, const char *what) {
    if (!refusal->what) *refusal = (struct refusal){.what = what, .at = at, .code = CO_INVALID};
}

/* A string from its opening quote; *at ends behind the closing one (or at the end: json-c complains). */
static bool string_fine(struct slice text, size_t *at, struct refusal *refusal) {
    size_t start = *at, i = start + 1;
    bool holds_nul = false;
    for (; i < text.size && text.data[i] != '"'; i++) {
        if ((unsigned char)text.data[i] < 0x20) {
            refuse_at(refusal, i, "control character in a string");
            return false;
        }
        if (text.data[i] != '\\') continue;
        i++;
        holds_nul = holds_nul || slice_starts(slice_make(text.data + i, text.size - i), SLICE_LITERAL("u0000"));
    }
    *at = i < text.size ? i + 1 : text.size;
    if (!holds_nul) return true;
    for (i = *at; i < text.size && is_blank(text.data[i]);) i++;
    if (i == text.size || text.data[i] != ':') return true;
    refuse_at(refusal, start, "NUL in a key");
    return false;
}

static size_t digits_at(struct slice text, size_t at) {
    size_t end = at;
    while (end < text.size && is_digit(text.data[end])) end++;
    return end - at;
}

/* A copy of the text in which integers beyond 64 bits are written as doubles, because json-c would clamp them to the
 * nearest 64-bit integer. Made only when the text has such integers. */
struct widened {
    struct buffer text; /* empty: there is none of these */
    size_t copied;      /* bytes of the original */
};

static void widen(struct widened *widened, struct slice text, size_t end, const char *with) {
    buffer_append(&widened->text, text.data + widened->copied, end - widened->copied);
    buffer_append_text(&widened->text, with);
    widened->copied = end;
}

/* RFC 8259's grammar; without `widened` integers are within 64 bits. */
static bool number_fine(struct slice text, size_t *at, struct widened *widened, struct refusal *refusal) {
    size_t start = *at, i = start + (text.data[start] == '-');
    size_t whole = digits_at(text, i), whole_at = i;
    bool fine = whole == 1 || (whole > 1 && text.data[i] != '0'), integer = true;
    i += whole;
    if (fine && i < text.size && text.data[i] == '.') {
        size_t digits = digits_at(text, i + 1);
        fine = digits > 0;
        integer = false;
        i += 1 + digits;
    }
    if (fine && i < text.size && (text.data[i] == 'e' || text.data[i] == 'E')) {
        size_t sign = i + 1 < text.size && (text.data[i + 1] == '+' || text.data[i + 1] == '-');
        size_t digits = digits_at(text, i + 1 + sign);
        fine = digits > 0;
        integer = false;
        i += 1 + sign + digits;
    }
    *at = i;
    if (!fine) {
        refuse_at(refusal, start, "malformed number");
        return false;
    }
    uint64_t value, most = whole_at > start ? (uint64_t)INT64_MAX + 1 : UINT64_MAX;
    if (!integer || u64_parse(slice_make(text.data + whole_at, whole), most, &value) == CO_OK) return true;
    if (widened) widen(widened, text, i, ".0");
    else refuse_at(refusal, start, "number out of range");
    return widened != NULL;
}

static bool tokens_fine(struct slice text, struct widened *widened, struct refusal *refusal) {
    for (size_t at = 0; at < text.size;) {
        char c = text.data[at];
        if (c == '"') {
            if (!string_fine(text, &at, refusal)) return false;
        } else if (c == '-' || is_digit(c)) {
            if (!number_fine(text, &at, widened, refusal)) return false;
        } else if (c == 'N' || c == 'I' || c == '\'') { /* NaN, Infinity; quotes that the parser takes for names */
            refuse_at(refusal, at, "unexpected character");
            return false;
        } else {
            /* Letters that follow a literal must not look like the start of a number or of another one. */
            at++;
        }
    }
    return true;
}

static bool bytes_fine(struct slice text, struct refusal *refusal) {
    const char *nul = text.size ? memchr(text.data, '\0', text.size) : NULL;
    if (nul) {
        refuse_at(refusal, (size_t)(nul - text.data), "NUL byte");
        return false;
    }
    if (utf8_valid(text)) return true;
    size_t at = 0;
    for (size_t step; (step = utf8_next(slice_make(text.data + at, text.size - at))) > 0;) at += step;
    refuse_at(refusal, at, "bytes that are not UTF-8");
    return false;
}

/* ---- parsing ---- */

/* Parses with json-c. CO_INVALID: it refuses the text, at byte *end. */
static int parse_tokens(struct slice text, struct json_object **value, size_t *end, const char **why) {
    struct json_tokener *tokener = json_tokener_new_ex(DEPTH_MOST);
    if (!tokener) return CO_NOMEM;
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    *value = json_tokener_parse_ex(tokener, text.data, (int)text.size);
    enum json_tokener_error error = json_tokener_get_error(tokener);
    *end = json_tokener_get_parse_end(tokener);
    if (error == json_tokener_continue) { /* a number may go on: say that it does not */
        *value = json_tokener_parse_ex(tokener, "", -1);
        error = json_tokener_get_error(tokener);
        *end = text.size;
    }
    json_tokener_free(tokener);
    if (error == json_tokener_success) return CO_OK;
    json_object_put(*value);
    *value = NULL;
    *why = error == json_tokener_error_depth ? "nested too deeply" : json_tokener_error_desc(error);
    return CO_INVALID;
}

static int parse(struct slice text, struct json_object **value, struct widened *widened, struct refusal *refusal) {
    *value = NULL;
    if (text.size > INT32_MAX / 2) {
        refuse_at(refusal, 0, "too large");
        return refusal->code = CO_TOOLARGE;
    }
    size_t blanks = 0, end;
    const char *why;
    while (blanks < text.size && is_blank(text.data[blanks])) blanks++;
    if (blanks == text.size) {
        refuse_at(refusal, 0, "the text is empty");
        return CO_INVALID;
    }
    if (!bytes_fine(text, refusal) || !tokens_fine(text, widened, refusal)) return CO_INVALID;
    if (widened && widened->text.size) widen(widened, text, text.size, "");
    bool copied = widened && widened->text.size && widened->text.size <= INT32_MAX;
    int rv = parse_tokens(copied ? buffer_slice(&widened->text) : text, value, &end, &why);
    /* Parses the original text to find where it is wrong in that one; its large numbers do no harm, because it
     * fails. */
    if (rv == CO_INVALID && copied) rv = parse_tokens(text, value, &end, &why);
    if (rv == CO_INVALID) refuse_at(refusal, end, why);
    if (rv == CO_NOMEM) {
        refuse_at(refusal, 0, co_strerror(CO_NOMEM));
        refusal->code = CO_NOMEM;
    }
    return rv;
}

/* "JSON: what at line 3, column 7"; without a place when the text as a whole is refused. */
static int refuse(const struct refusal *refusal, struct slice text, struct fault *fault) {
    size_t line, column;
    text_place(text, refusal->at, &line, &column);
    bool whole = refusal->code != CO_INVALID || text.size == 0 || strcmp(refusal->what, "the text is empty") == 0;
    if (whole) return fault_set(fault, refusal->code, "JSON: %s", refusal->what);
    return fault_set(fault, refusal->code, "JSON: %s at line %zu, column %zu", refusal->what, line, column);
}

int json_parse_value(struct slice text, struct json_object **value, struct fault *fault) {
    struct widened widened = {0};
    struct refusal refusal = {0};
    int rv = parse(text, value, &widened, &refusal);
    buffer_free(&widened.text);
    return rv == CO_OK ? CO_OK : refuse(&refusal, text, fault);
}

struct json_object *json_parse(struct slice text, struct fault *fault) {
    struct json_object *object;
    struct refusal refusal = {0};
    if (parse(text, &object, NULL, &refusal) != CO_OK) refuse(&refusal, text, fault);
    else if (!object) fault_set(fault, CO_INVALID, "JSON: null where a value is wanted");
    return object;
}

struct json_object *json_parse_placed(struct slice text, const char **why, size_t *at) {
    struct json_object *object;
    struct refusal refusal = {0};
    parse(text, &object, NULL, &refusal);
    *why = refusal.what ? refusal.what : "null where a value is wanted";
    *at = refusal.at;
    return object;
}

/* ---- look-up ---- */

static char folded(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c; }

/* Are the keys equal, except for case and underscores? */
static bool same_key(const char *a, const char *b) {
    for (;;) {
        while (*a == '_') a++;
        while (*b == '_') b++;
        if (folded(*a) != folded(*b)) return false;
        if (*a == '\0') return true;
        a++;
        b++;
    }
}

bool json_same_key(struct slice a, struct slice b) {
    size_t i = 0, j = 0;
    for (;; i++, j++) {
        while (i < a.size && a.data[i] == '_') i++;
        while (j < b.size && b.data[j] == '_') j++;
        if (i == a.size || j == b.size) return i == a.size && j == b.size;
        if (folded(a.data[i]) != folded(b.data[j])) return false;
    }
}

/* Of several spellings of one key the last counts, as in other readers of this API. */
struct json_object *json_get(struct json_object *object, const char *name) {
    struct json_object *found = NULL;
    if (!json_object_is_type(object, json_type_object)) return NULL;
    json_each(object, key, value) {
        if (value && same_key(key, name)) found = value;
    }
    return found;
}

const char *json_kind(struct json_object *value) {
    switch (json_object_get_type(value)) {
        case json_type_null: return "null";
        case json_type_boolean: return "a boolean";
        case json_type_double:
        case json_type_int: return "a number";
        case json_type_object: return "an object";
        case json_type_array: return "an array";
        case json_type_string: return "a string";
    }
    return "a value";
}

static struct json_object *get_typed(struct json_object *object, const char *name, json_type type, const char *wanted,
                                     struct fault *fault) {
    struct json_object *value = json_get(object, name);
    if (!value || json_object_is_type(value, type)) return value;
    fault_set(fault, CO_INVALID, "%s: %s is wanted, not %s", name, wanted, json_kind(value));
    return NULL;
}

void json_get_slice(struct json_object *object, const char *name, struct slice *out, struct fault *fault) {
    struct json_object *value = get_typed(object, name, json_type_string, "a string", fault);
    if (value) *out = slice_make(json_object_get_string(value), (size_t)json_object_get_string_len(value));
}

void json_get_string(struct json_object *object, const char *name, const char **out, struct fault *fault) {
    struct slice text = {NULL, 0};
    json_get_slice(object, name, &text, fault);
    if (!text.data) return;
    if (memchr(text.data, '\0', text.size)) {
        fault_set(fault, CO_INVALID, "%s: holds a NUL character", name);
    } else {
        *out = text.data;
    }
}

void json_get_bool(struct json_object *object, const char *name, bool *out, struct fault *fault) {
    struct json_object *value = get_typed(object, name, json_type_boolean, "a boolean", fault);
    if (value) *out = json_object_get_boolean(value);
}

/* json-c keeps an integer as int64_t or, above that, as uint64_t; only the latter reads as INT64_MAX and more. */
static struct json_object *get_integer(struct json_object *object, const char *name, struct fault *fault) {
    struct json_object *value = json_get(object, name);
    if (value && json_object_is_type(value, json_type_double)) {
        fault_set(fault, CO_INVALID, "%s: a whole number is wanted, not %s", name, json_object_get_string(value));
        return NULL;
    }
    return get_typed(object, name, json_type_int, "a whole number", fault);
}

void json_get_u64(struct json_object *object, const char *name, uint64_t most, uint64_t *out, struct fault *fault) {
    struct json_object *value = get_integer(object, name, fault);
    if (!value) return;
    if (json_object_get_int64(value) < 0) {
        fault_set(fault, CO_INVALID, "%s: %" PRId64 " is negative", name, json_object_get_int64(value));
        return;
    }
    uint64_t number = json_object_get_uint64(value);
    if (number > most) {
        fault_set(fault, CO_INVALID, "%s: %" PRIu64 " is above %" PRIu64, name, number, most);
    } else {
        *out = number;
    }
}

void json_get_i64(struct json_object *object, const char *name, int64_t *out, struct fault *fault) {
    struct json_object *value = get_integer(object, name, fault);
    if (!value) return;
    int64_t number = json_object_get_int64(value);
    if (number >= 0 && json_object_get_uint64(value) > INT64_MAX) {
        fault_set(fault, CO_INVALID, "%s: %" PRIu64 " is above %" PRId64, name, json_object_get_uint64(value),
                  INT64_MAX);
    } else {
        *out = number;
    }
}

void json_get_duration(struct json_object *object, const char *name, int64_t *nanoseconds, struct fault *fault) {
    struct json_object *value = json_get(object, name);
    if (!value) return;
    if (!json_object_is_type(value, json_type_string)) {
        if (json_object_is_type(value, json_type_int)) {
            json_get_i64(object, name, nanoseconds, fault);
        } else {
            fault_set(fault, CO_INVALID, "%s: a duration like \"10s\" is wanted, not %s", name, json_kind(value));
        }
        return;
    }
    const char *text = json_object_get_string(value);
    int64_t parsed;
    int error = duration_parse(slice_make(text, (size_t)json_object_get_string_len(value)), &parsed);
    if (error == CO_OK) {
        *nanoseconds = parsed;
    } else {
        fault_set(fault, CO_INVALID, "%s: %s \"%.40s\" (write it like 10s, 1m30s, 200ms)", name,
                  error == CO_TOOLARGE ? "too long a duration" : "invalid duration", text);
    }
}

struct json_object *json_get_object(struct json_object *object, const char *name, struct fault *fault) {
    return get_typed(object, name, json_type_object, "an object", fault);
}

struct json_object *json_get_array(struct json_object *object, const char *name, struct fault *fault) {
    return get_typed(object, name, json_type_array, "an array", fault);
}

static bool is_known(const char *key, const char *const *known) {
    while (*known && !same_key(key, *known)) known++;
    return *known != NULL;
}

void json_only_known(struct json_object *object, const char *const *known, struct fault *fault) {
    if (!json_object_is_type(object, json_type_object)) return;
    json_each(object, key, value) {
        (void)value;
        if (is_known(key, known)) continue;
        struct suggest suggest = suggest_for(slice_text(key));
        struct buffer nearest = {0};
        for (; *known; known++) suggest_try(&suggest, slice_text(*known));
        suggest_print(&nearest, &suggest);
        fault_set(fault, CO_INVALID,
                  nearest.size ? "unknown key \"%.60s\" (nearest: %.*s)" : "unknown key \"%.60s\"%.*s", key,
                  (int)nearest.size, nearest.size ? nearest.data : "");
        buffer_free(&nearest);
        return;
    }
}
