/* JSON values (of json_parse) as JSON Schema compares them: 1 is 1.0, objects have no order, 1 is not true. Numbers
 * are compared as they are, without rounding an integer of 64 bits to a double. Pure; nothing is changed, so several
 * threads may look at the same value. */
#ifndef COORD_BASE_JSON_VALUE_H
#define COORD_BASE_JSON_VALUE_H

#include <json-c/json_object.h>

#include "base/buffer.h"

/* The text of a string. It may hold NUL bytes, and a NUL follows it. Valid as long as the value. */
static inline struct slice json_text(struct json_object *string) {
    return slice_make(json_object_get_string(string), (size_t)json_object_get_string_len(string));
}

bool json_is_number(struct json_object *value);
/* These take numbers. */
bool json_is_whole(struct json_object *number);                        /* 1 and 1.0, not 1.5 */
int json_number_compare(struct json_object *a, struct json_object *b); /* below 0, 0, above 0 */
/* In decimal: 0.0075 is a multiple of 0.0001, although these doubles are not. `of` is above 0. A number that is too
 * large for a double is a multiple of nothing. */
bool json_number_is_multiple(struct json_object *number, struct json_object *of);
/* *value when it is a whole number from 0 to 2^53, also when written 2.0. */
bool json_is_count(struct json_object *value, uint64_t *count);

/* A step (base/steps.h) for each value that is looked at, more for long texts. False, and no steps are left, when
 * these do not suffice; also when both are nested more than 64 deep. */
bool json_same(struct json_object *a, struct json_object *b, uint64_t *steps);

/* For people: a short text of the value, at most 48 bytes: `"http"`, `70000`, `an array of 3 items`. */
void json_value_show(struct buffer *out, struct json_object *value);
/* "text" with its quotes, no more than 40 bytes of it. */
void json_text_show(struct buffer *out, struct slice text);

#endif
