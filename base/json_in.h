/* JSON in: json-c, strict and bounded (depth 64, UTF-8, nothing after the value, no duplicate of NUL surprises), and
 * look-ups without regard to case or underscores, as clients of this API write keys ("ServiceID", "service_id",
 * "serviceid").
 *
 * Getters leave *out untouched when the key is absent or null, and set `fault` (CO_INVALID, naming the path and the
 * wanted type) when the type is wrong. Text stays valid as long as the document. */
#ifndef COORD_BASE_JSON_IN_H
#define COORD_BASE_JSON_IN_H

#include <json-c/json_object.h>
#include <json-c/linkhash.h>

#include "base/buffer.h"
#include "base/error.h"

/* NULL and a fault ("JSON: unexpected character at line 3, column 17") when it does not parse. Release with json_object_put().
 * An empty body is a fault too: callers that allow one look before. */
struct json_object *json_parse(struct slice text, struct fault *fault);
/* The same for any JSON value: `null` is CO_OK with a NULL, an integer beyond 64 bits is the nearest double. */
int json_parse_value(struct slice text, struct json_object **value, struct fault *fault);

/* As json_parse, for callers that word the place themselves: NULL, the reason ("unexpected character"), and the
 * byte. */
struct json_object *json_parse_placed(struct slice text, const char **why, size_t *at);

/* Is the text JSON, at most 64 levels deep? Builds nothing; for text that is handed on as it is. Less strict than
 * json_parse: an object may have a name twice, and numbers may be of any size. */
bool json_valid(struct slice text);

/* CO_INVALID when an object in it has a key twice, spelled alike. `text` is one that json_parse has taken. */
int json_refuse_duplicates(struct slice text, struct fault *fault);

/* The same as a question: true, and the second occurrence of the key in `text`, without its quotes. */
bool json_duplicate(struct slice text, struct slice *key);

/* A path from the root into a value: members by name, items by number. A chain on the stack, the last step first. */
struct json_step {
    const struct json_step *up; /* NULL: this is the first step */
    const char *name;           /* NULL: an item */
    size_t index;
};
/* The byte at which the last step's member (its name) or item begins in `text`, which json_parse has accepted. 0: there
 * is no such member or item. Of several members of one name it is the last. */
size_t json_place(struct slice text, const struct json_step *step);

/* Do they name the same member by the rules of json_get? */
bool json_same_key(struct slice a, struct slice b);

/* Member of an object by any of its names; NULL when absent, null, or `object` is not an object. */
struct json_object *json_get(struct json_object *object, const char *name);

void json_get_string(struct json_object *object, const char *name, const char **out, struct fault *fault);
/* Accepts text with NUL bytes, which json_get_string refuses. */
void json_get_slice(struct json_object *object, const char *name, struct slice *out, struct fault *fault);
void json_get_bool(struct json_object *object, const char *name, bool *out, struct fault *fault);
void json_get_u64(struct json_object *object, const char *name, uint64_t most, uint64_t *out, struct fault *fault);
void json_get_i64(struct json_object *object, const char *name, int64_t *out, struct fault *fault);
/* "10s" or a number of nanoseconds. */
void json_get_duration(struct json_object *object, const char *name, int64_t *nanoseconds, struct fault *fault);
struct json_object *json_get_object(struct json_object *object, const char *name, struct fault *fault);
struct json_object *json_get_array(struct json_object *object, const char *name, struct fault *fault);
/* Refuses keys that are not in `known` (NULL-terminated; compared as json_get does): names the key, and the nearest. */
void json_only_known(struct json_object *object, const char *const *known, struct fault *fault);

/* The kind of a value for errors: "a string", "null", ... */
const char *json_kind(struct json_object *value);

/* json-c exposes its members as a list: `json_each(object, key, value)` is json_object_object_foreach. */
#define json_each(object, key, value) json_object_object_foreach(object, key, value)

#endif
