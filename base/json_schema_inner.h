/* A compiled schema: json_schema.c makes it, json_schema_check.c checks documents with it, json_schema_text.c describes
 * it. */
#ifndef COORD_BASE_JSON_SCHEMA_INNER_H
#define COORD_BASE_JSON_SCHEMA_INNER_H

#include "base/json_schema.h"
#include "base/memory.h"
#include "base/pattern.h"
#include "base/suggest.h"

/* In the order of the bits of node.types. */
#define JSON_SCHEMA_TYPES(X)     \
    X(NULL, "null")              \
    X(BOOLEAN, "a boolean")      \
    X(INTEGER, "a whole number") \
    X(NUMBER, "a number")        \
    X(STRING, "a string")        \
    X(ARRAY, "an array")         \
    X(OBJECT, "an object")
#define TYPE_ENUM(name, shown) TYPE_BIT_##name,
enum { JSON_SCHEMA_TYPES(TYPE_ENUM) TYPE_COUNT };
#undef TYPE_ENUM
#define TYPE(name) (1u << TYPE_BIT_##name)

struct node;

struct nodes {
    struct node **items;
    size_t count;
};

/* The schema of a member by its name, or of all members whose names match a pattern. */
struct member {
    struct slice name;
    struct pattern *pattern;
    struct node *node;
};

struct members {
    struct member *items;
    size_t count;
};

struct node {
    struct node *ref;            /* when set, the node has no other keyword */
    const char *path;            /* when it has a ref: its place in the schema */
    bool never;                  /* the schema false */
    uint8_t types;               /* bits; 0: any */
    struct json_object *choices; /* enum; NULL: none */
    struct json_object *constant;
    bool has_constant; /* it may be null */
    struct json_object *minimum, *maximum, *above, *below, *multiple_of;
    uint64_t least_length, most_length, least_items, most_items; /* UINT64_MAX: no bound above */
    struct pattern *pattern;
    struct slice pattern_text;
    bool unique;
    struct node *each_item;
    struct nodes first_items; /* of a list of schemas */
    struct members members, pattern_members;
    struct json_object *properties; /* to find a name among `members` */
    struct node *other_members;
    struct member *required; /* names alone */
    size_t required_count;
    struct nodes all, any, one;
    struct node * not ;
    unsigned height; /* how many schemas are asked one after the other at one place; 0: not known yet */
    bool is_open;    /* while its height is computed */
};

struct json_schema {
    struct json_object *json;
    struct arena arena;
    struct node *root;
};

/* All schemas by the JSON that they were made of, and the references among them, in the order of the text. */
struct places {
    struct known {
        struct json_object *json;
        struct node *node;
    } * known;
    size_t known_count;
    struct reference {
        struct node *from;
        struct slice to; /* behind the "#" */
    } * references;
    size_t reference_count;
};

/* Sets `ref` of all nodes that have one. Sorts `known`. */
bool json_schema_resolve(struct places *places, struct json_object *json, struct fault *fault);

/* json_schema_check with another bound than JSON_SCHEMA_STEPS_MOST, for tests. Takes what it needs from *steps. */
int json_schema_check_within(const struct json_schema *schema, struct json_object *document, uint64_t *steps,
                             struct fault *fault);

/* A place in a document: a chain on the stack. */
struct place {
    const struct place *up; /* NULL: the root */
    const char *key;        /* NULL: an item */
    size_t index;
    unsigned depth;
};
#define PLACE_KEY(above, name) \
    (struct place) { .up = (above), .key = (name), .depth = (above)->depth + 1 }
#define PLACE_ITEM(above, number) \
    (struct place) { .up = (above), .index = (number), .depth = (above)->depth + 1 }

/* Appends the known name that was probably meant: ` (nearest: "port")`, or nothing. */
void json_nearest_show(struct buffer *out, const struct suggest *suggest);

/* Appends the place as a JSON pointer ("" is the root); only its end, when it is long. */
void json_place_show(struct buffer *out, const struct place *place);

/* Appends a description of the values that the node accepts in the place of `value`: "a whole number from 1 to 65535".
 * 84 bytes at most. */
void json_schema_show(struct buffer *out, const struct node *node, struct json_object *value);
/* The same for alternatives: "null or a string". */
void json_schema_show_any(struct buffer *out, const struct nodes *nodes, struct json_object *value);

#endif
