/* JSON Schema (draft 7), the part that says what a document looks like: type, enum, const, minimum, maximum,
 * exclusiveMinimum, exclusiveMaximum, minLength, maxLength, pattern (base/pattern.h), items, minItems, maxItems,
 * properties, required, additionalProperties, minProperties, maxProperties, allOf, anyOf, oneOf, not, and $ref to a
 * place in the schema itself ("#/definitions/port"). title, description, default, examples, $comment, $schema,
 * definitions and $defs say nothing about documents. Any other keyword is refused by name, because a rule that is passed
 * over would be taken for one that holds. */
#ifndef COORD_BASE_JSON_SCHEMA_H
#define COORD_BASE_JSON_SCHEMA_H

#include "base/json_in.h"

struct json_schema;
/* CO_INVALID with a fault that names the place in the schema. */
int json_schema_new(struct slice text, struct json_schema **out, struct fault *fault);
void json_schema_free(struct json_schema *schema); /* accepts NULL */
/* CO_OK, or CO_INVALID with a fault that names the path inside the document and what is wanted there: "servers[2].port: 70000
 * is above the maximum, 65535". CO_TOOLARGE: judging it takes too many steps (each schema against each value is one;
 * 2,000,000), which is the schema's fault. */
int json_schema_check(const struct json_schema *schema, struct json_object *document, struct fault *fault);

#endif
