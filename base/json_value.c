#include "base/json_value.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/json_in.h"
#include "base/json_out.h"
#include "base/steps.h"
#include "base/text.h"

#define DEPTH_MOST 64 /* as json_parse has it */
#define SHOWN_MOST 40

/* ---- numbers ---- */

struct number {
    bool is_real;
    double real;
    bool negative; /* and size: of a whole number */
    uint64_t size;
};

bool json_is_number(struct json_object *value) {
    return json_object_is_type(value, json_type_int) || json_object_is_type(value, json_type_double);
}

static struct number whole_number(int64_t below, uint64_t above) {
    return below < 0 ? (struct number){.negative = true, .size = -(uint64_t)below} : (struct number){.size = above};
}

static struct number number_of(struct json_object *value) {
    if (json_object_is_type(value, json_type_double)) {
        return (struct number){.is_real = true, .real = json_object_get_double(value)};
    }
    return whole_number(json_object_get_int64(value), json_object_get_uint64(value));
}

static int order(bool below, bool above) { return below ? -1 : above ? 1 : 0; }

static int compare_whole(struct number a, struct number b) {
    if (a.negative != b.negative) return a.negative ? -1 : 1;
    int way = order(a.size<b.size, a.size> b.size);
    return a.negative ? -way : way;
}

static int compare_to_real(struct number a, double b) {
    if (b >= 0x1p64) return -1;
    if (b <= -0x1p64) return 1;
    double towards_zero = trunc(b), rest = b - towards_zero;
    int way = compare_whole(a, (struct number){.negative = towards_zero < 0, .size = (uint64_t)fabs(towards_zero)});
    return way ? way : order(rest > 0, rest < 0);
}

int json_number_compare(struct json_object *a, struct json_object *b) {
    struct number one = number_of(a), other = number_of(b);
    if (one.is_real && other.is_real) return order(one.real<other.real, one.real> other.real);
    if (one.is_real) return -compare_to_real(other, one.real);
    return other.is_real ? compare_to_real(one, other.real) : compare_whole(one, other);
}

bool json_is_whole(struct json_object *number) {
    struct number it = number_of(number);
    return !it.is_real || (isfinite(it.real) && trunc(it.real) == it.real);
}

bool json_is_count(struct json_object *value, uint64_t *count) {
    if (!json_is_number(value) || !json_is_whole(value)) return false;
    struct number it = number_of(value);
    if (it.is_real ? it.real < 0 || it.real > 0x1p53 : it.negative || it.size > 1ull << 53) return false;
    *count = it.is_real ? (uint64_t)it.real : it.size;
    return true;
}

/* digits * 10^power, without the sign. */
struct decimal {
    uint64_t digits;
    int power;
};

static struct decimal decimal_of(struct number number) {
    if (!number.is_real) return (struct decimal){number.size, 0};
    char text[40];
    double_shortest(fabs(number.real), text, sizeof text);
    struct decimal decimal = {0};
    const char *at = text;
    for (bool behind = false; *at != 'e'; at++) {
        if (*at == '.') {
            behind = true;
        } else {
            decimal.digits = decimal.digits * 10 + (uint64_t)(*at - '0');
            decimal.power -= behind;
        }
    }
    decimal.power += atoi(at + 1);
    return decimal;
}

bool json_number_is_multiple(struct json_object *number, struct json_object *of) {
    struct number one = number_of(number), other = number_of(of);
    if (one.is_real && !isfinite(one.real)) return false;
    struct decimal a = decimal_of(one), b = decimal_of(other);
    if (a.digits == 0) return true;
    if (b.digits == 0) return false;
    unsigned __int128 rest = a.digits, divisor = b.digits;
    for (int power = a.power; power > b.power; power--) rest = rest * 10 % b.digits;
    for (int power = a.power; power < b.power; power++) {
        divisor *= 10;
        if (divisor > a.digits) return false;
    }
    return rest % divisor == 0;
}

/* ---- equality ---- */

static bool same(struct json_object *a, struct json_object *b, unsigned depth, uint64_t *steps);

static bool same_objects(struct json_object *a, struct json_object *b, unsigned depth, uint64_t *steps) {
    if (json_object_object_length(a) != json_object_object_length(b)) return false;
    json_each(a, key, value) {
        struct json_object *other;
        if (!steps_take(steps, strlen(key) / 32)) return false;
        if (!json_object_object_get_ex(b, key, &other) || !same(value, other, depth, steps)) return false;
    }
    return true;
}

static bool same_arrays(struct json_object *a, struct json_object *b, unsigned depth, uint64_t *steps) {
    size_t count = json_object_array_length(a);
    if (count != json_object_array_length(b)) return false;
    for (size_t i = 0; i < count; i++) {
        if (!same(json_object_array_get_idx(a, i), json_object_array_get_idx(b, i), depth, steps)) return false;
    }
    return true;
}

static bool same(struct json_object *a, struct json_object *b, unsigned depth, uint64_t *steps) {
    if (!steps_take(steps, depth == DEPTH_MOST ? *steps : 1)) return false;
    if (json_is_number(a) && json_is_number(b)) return json_number_compare(a, b) == 0;
    if (json_object_get_type(a) != json_object_get_type(b)) return false;
    switch (json_object_get_type(a)) {
        case json_type_boolean: return json_object_get_boolean(a) == json_object_get_boolean(b);
        case json_type_string:
            return steps_take(steps, json_text(a).size / 32) && slice_equal(json_text(a), json_text(b));
        case json_type_array: return same_arrays(a, b, depth + 1, steps);
        case json_type_object: return same_objects(a, b, depth + 1, steps);
        default: return true; /* null; numbers were above */
    }
}

bool json_same(struct json_object *a, struct json_object *b, uint64_t *steps) { return same(a, b, 0, steps); }

/* ---- for people ---- */

void json_text_show(struct buffer *out, struct slice text) {
    struct slice shown = utf8_cut(text, SHOWN_MOST);
    buffer_append_byte(out, '"');
    buffer_append(out, shown.data, shown.size);
    buffer_append_text(out, shown.size < text.size ? "...\"" : "\"");
}

static void show_number(struct buffer *out, struct json_object *value) {
    struct number number = number_of(value);
    struct json_out json;
    json_out_init(&json, out, false);
    if (number.is_real && !isfinite(number.real)) {
        buffer_append_text(out, "a number beyond all bounds");
    } else if (number.is_real) {
        json_double(&json, number.real);
    } else {
        buffer_append_text(out, number.negative ? "-" : "");
        buffer_append_u64(out, number.size);
    }
}

static void show_count(struct buffer *out, const char *what, uint64_t count, const char *each) {
    buffer_printf(out, "%s of %lu %s%s", what, (unsigned long)count, each, count == 1 ? "" : "s");
}

void json_value_show(struct buffer *out, struct json_object *value) {
    switch (json_object_get_type(value)) {
        case json_type_boolean: buffer_append_text(out, json_object_get_boolean(value) ? "true" : "false"); break;
        case json_type_double:
        case json_type_int: show_number(out, value); break;
        case json_type_string: json_text_show(out, json_text(value)); break;
        case json_type_array: show_count(out, "an array", json_object_array_length(value), "item"); break;
        case json_type_object:
            show_count(out, "an object", (uint64_t)json_object_object_length(value), "member");
            break;
        case json_type_null: buffer_append_text(out, "null"); break;
    }
}
