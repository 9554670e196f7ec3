/* JSON Schema, draft 7, without what reaches beyond one document. For schemas and documents of outsiders: memory and
 * work are bounded, and the answer depends on schema and document alone (no clock, no locale, no library's version), so
 * that all servers give the same. The state machine uses it too: other bounds would give other answers, so they may
 * only change together with the cluster version.
 *
 * Keywords: type, enum, const; minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf; minLength, maxLength
 * (code points), pattern (base/pattern.h); items (one schema, or a list), minItems, maxItems, uniqueItems; properties,
 * patternProperties, additionalProperties, required; allOf, anyOf, oneOf, not; true and false as schemas; $ref to a
 * place in the same document ("#", "#/definitions/x", "#/$defs/x"). Without effect: $schema, title, description,
 * default, examples, $comment, and $id at the root. Everything else is refused by its name and path, because a schema
 * of which coord obeyed only half would seem to protect more than it does.
 *
 * Draft 7 ignores other keywords beside $ref, later drafts obey them. Therefore they are refused, unless "$schema" at
 * the root names draft 7: then they are ignored. */
#ifndef COORD_BASE_JSON_SCHEMA_H
#define COORD_BASE_JSON_SCHEMA_H

#include <json-c/json_object.h>

#include "base/error.h"

#define JSON_SCHEMA_NODES_MOST    4096    /* schemas within the schema */
#define JSON_SCHEMA_BYTES_MOST    262144  /* texts in it, and 16 for each value */
#define JSON_SCHEMA_PATTERNS_MOST 1048576 /* bytes of memory for all its patterns */
#define JSON_SCHEMA_CHAIN_MOST    64      /* schemas for one place of a document, each from the one before */
#define JSON_SCHEMA_NESTED_MOST   256     /* schemas within one another, also by $ref, while a document is checked */
#define JSON_SCHEMA_STEPS_MOST    1000000 /* looks at a value, a name, a state of a pattern: 0.1 s at most */

struct json_schema;

/* NULL and a fault (CO_INVALID; CO_TOOLARGE beyond a bound) that names the place in the schema:
 * `#/properties/port: "minimun" is no keyword that is supported (nearest: "minimum")`. Keeps a reference to `schema`,
 * which nobody may change or print (json-c keeps what it printed) from then on. */
struct json_schema *json_schema_compile(struct json_object *schema, struct fault *fault);
void json_schema_free(struct json_schema *schema);

/* CO_OK; CO_INVALID: the first place that does not fit, with a description of the values that fit there:
 * `/servers/2/port: a whole number from 1 to 65535 is wanted, not "http"`. A document that takes more steps or nests
 * deeper than the bounds is refused too, with a line that says so. NULL is the document `null`. Any thread, also
 * several at once; `document` is not changed. */
int json_schema_check(const struct json_schema *schema, struct json_object *document, struct fault *fault);

#endif
