/* Shared by the files of JSON Schema only. */
#ifndef COORD_BASE_JSON_SCHEMA_INTERNAL_H
#define COORD_BASE_JSON_SCHEMA_INTERNAL_H

#include "base/json_schema.h"

#define SCHEMA_DEPTH_MOST 256 /* of schemas within one another, references followed */

struct json_schema {
    struct json_object *root;
};

bool schema_is_number(struct json_object *value);
long double schema_number(struct json_object *value); /* exact for all integers of JSON */
bool schema_is_whole(struct json_object *value);
struct slice schema_text(struct json_object *value);
/* The place that a $ref leads to. False: nowhere. */
bool schema_follow(struct json_object *root, const char *reference, struct json_object **out);

#endif
