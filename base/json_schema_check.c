/* Checks a document against a compiled schema.
 *
 * A failure is reported where it is found. Within alternatives failures are not reported; only how near each
 * alternative came to fitting is noted: the deeper in the document it failed, the nearer. A value that is not the
 * wanted constant is further away than any other failure at that place, because such constants say which alternative is
 * meant. When all alternatives fail, the nearest one is checked again, and this time reports its failure. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/check.h"
#include "base/json_in.h"
#include "base/json_schema_inner.h"
#include "base/json_value.h"
#include "base/steps.h"
#include "base/text.h"

#define NAMES_COMPARED 64  /* for "nearest" */
#define DECIMAL_STEPS  512 /* the price of a division in decimal */

struct checking {
    struct fault fault;
    uint64_t steps, steps_most;
    unsigned nested;  /* schemas within one another */
    unsigned quiet;   /* alternatives within one another */
    unsigned nearest; /* how near the alternative came to fitting, see above */
    bool stopped;     /* a bound was exceeded: nothing is judged any more */
};

static bool fits(struct checking *c, const struct node *node, struct json_object *value, const struct place *place);

/* ---- faults ---- */

static void tell(struct checking *c, const struct place *place, const char *format, va_list arguments) {
    struct buffer path = {0};
    char what[240];
    json_place_show(&path, place);
    if (path.size == 0) buffer_append_text(&path, "the document");
    vsnprintf(what, sizeof what, format, arguments);
    fault_set(&c->fault, CO_INVALID, "%.*s: %s", (int)path.size, path.data, what);
    buffer_free(&path);
}

/* Remembers that something fails here. True when the caller shall report it. */
static bool fails_aloud(struct checking *c, const struct place *place) {
    unsigned near = place->depth * 2 + 1;
    if (c->nearest < near) c->nearest = near;
    return !c->quiet && !c->stopped;
}

static __attribute__((format(printf, 3, 4))) bool refuse(struct checking *c, const struct place *place,
                                                         const char *format, ...) {
    if (!fails_aloud(c, place)) return false;
    va_list arguments;
    va_start(arguments, format);
    tell(c, place, format, arguments);
    va_end(arguments);
    return false;
}

/* "... %s ...", about a text. */
static bool refuse_text(struct checking *c, const struct place *place, const char *before, struct slice text,
                        const char *behind) {
    if (!fails_aloud(c, place)) return false;
    struct buffer shown = {0};
    json_text_show(&shown, text);
    refuse(c, place, "%s%.*s%s", before, (int)shown.size, shown.data, behind);
    buffer_free(&shown);
    return false;
}

/* A bound is exceeded; this is reported within alternatives too. */
static __attribute__((format(printf, 3, 4))) bool stop(struct checking *c, const struct place *place,
                                                       const char *format, ...) {
    if (c->stopped) return false;
    c->stopped = true;
    va_list arguments;
    va_start(arguments, format);
    tell(c, place, format, arguments);
    va_end(arguments);
    return false;
}

static bool too_much(struct checking *c, const struct place *place) {
    return stop(c, place, "judging this document takes more than %" PRIu64 " steps", c->steps_most);
}

static bool spend(struct checking *c, const struct place *place, uint64_t steps) {
    return steps_take(&c->steps, steps) || too_much(c, place);
}

/* Frees `what`. */
static bool refuse_value(struct checking *c, const struct place *place, struct buffer *what,
                         struct json_object *value) {
    struct buffer shown = {0};
    json_value_show(&shown, value);
    refuse(c, place, "%.*s is wanted, not %.*s", (int)what->size, what->data, (int)shown.size, shown.data);
    buffer_free(what);
    buffer_free(&shown);
    return false;
}

static bool wanted(struct checking *c, const struct node *node, struct json_object *value, const struct place *place) {
    if (!fails_aloud(c, place)) return false;
    struct buffer what = {0};
    json_schema_show(&what, node, value);
    return refuse_value(c, place, &what, value);
}

/* ---- single values ---- */

static bool has_type(const struct node *node, struct json_object *value) {
    if (node->types == 0) return true;
    switch (json_object_get_type(value)) {
        case json_type_null: return node->types & TYPE(NULL);
        case json_type_boolean: return node->types & TYPE(BOOLEAN);
        case json_type_string: return node->types & TYPE(STRING);
        case json_type_array: return node->types & TYPE(ARRAY);
        case json_type_object: return node->types & TYPE(OBJECT);
        case json_type_int:
        case json_type_double:
            return node->types & TYPE(NUMBER) || (node->types & TYPE(INTEGER) && json_is_whole(value));
    }
    UNREACHABLE();
}

static bool is_constant(struct checking *c, const struct node *node, struct json_object *value,
                        const struct place *place) {
    bool found = !node->has_constant || json_same(value, node->constant, &c->steps);
    if (found && node->choices) {
        found = false;
        size_t count = json_object_array_length(node->choices);
        for (size_t i = 0; i < count && !found; i++) {
            found = json_same(value, json_object_array_get_idx(node->choices, i), &c->steps);
        }
    }
    if (found) return true;
    if (c->steps == 0) return too_much(c, place);
    unsigned before = c->nearest;
    wanted(c, node, value, place);
    if (before < place->depth * 2) before = place->depth * 2;
    c->nearest = before; /* see above: further away */
    return false;
}

static bool number_fits(struct checking *c, const struct node *node, struct json_object *value,
                        const struct place *place) {
    bool in_decimal = node->multiple_of && !(json_object_is_type(value, json_type_int) &&
                                             json_object_is_type(node->multiple_of, json_type_int));
    if (in_decimal && !spend(c, place, DECIMAL_STEPS)) return false;
    bool fine = (!node->minimum || json_number_compare(value, node->minimum) >= 0) &&
                (!node->maximum || json_number_compare(value, node->maximum) <= 0) &&
                (!node->above || json_number_compare(value, node->above) > 0) &&
                (!node->below || json_number_compare(value, node->below) < 0) &&
                (!node->multiple_of || json_number_is_multiple(value, node->multiple_of));
    return fine || wanted(c, node, value, place);
}

static bool length_fits(struct checking *c, const struct node *node, struct slice text, const struct place *place) {
    if (node->least_length == 0 && node->most_length == UINT64_MAX) return true;
    if (!spend(c, place, text.size / 16)) return false;
    uint64_t length = 0;
    for (size_t i = 0; i < text.size; i++) length += (text.data[i] & 0xc0) != 0x80;
    return length >= node->least_length && length <= node->most_length;
}

static bool matches(struct checking *c, const struct pattern *pattern, struct slice pattern_text, struct slice text,
                    const struct place *place) {
    if (pattern_match(pattern, text, &c->steps)) return true;
    if (c->steps > 0) return false;
    struct buffer shown = {0};
    json_text_show(&shown, pattern_text);
    stop(c, place, "the pattern %.*s takes too long here: more than %" PRIu64 " steps for the document",
         (int)shown.size, shown.data, c->steps_most);
    buffer_free(&shown);
    return false;
}

static bool text_fits(struct checking *c, const struct node *node, struct json_object *value,
                      const struct place *place) {
    struct slice text = json_text(value);
    bool fine = length_fits(c, node, text, place) &&
                (!node->pattern || matches(c, node->pattern, node->pattern_text, text, place));
    return fine || wanted(c, node, value, place);
}

/* ---- arrays ---- */

static bool items_differ(struct checking *c, struct json_object *value, const struct place *place) {
    size_t count = json_object_array_length(value);
    for (size_t i = 1; i < count; i++) {
        for (size_t other = 0; other < i; other++) {
            const struct place here = PLACE_ITEM(place, i);
            if (json_same(json_object_array_get_idx(value, i), json_object_array_get_idx(value, other), &c->steps)) {
                return refuse(c, &here, "an item that differs from all before is wanted, not one equal to item %zu",
                              other);
            }
            if (c->steps == 0) return too_much(c, &here);
        }
    }
    return true;
}

static bool array_fits(struct checking *c, const struct node *node, struct json_object *value,
                       const struct place *place) {
    size_t count = json_object_array_length(value);
    if (count < node->least_items || count > node->most_items) return wanted(c, node, value, place);
    for (size_t i = 0; i < count; i++) {
        const struct node *item = i < node->first_items.count ? node->first_items.items[i] : node->each_item;
        if (!item) break;
        if (!fits(c, item, json_object_array_get_idx(value, i), &PLACE_ITEM(place, i))) return false;
    }
    return !node->unique || items_differ(c, value, place);
}

/* ---- objects ---- */

static bool has_required(struct checking *c, const struct node *node, struct json_object *value,
                         const struct place *place) {
    for (size_t i = 0; i < node->required_count; i++) {
        struct slice name = node->required[i].name;
        if (!spend(c, place, 1 + name.size / 32)) return false;
        if (json_object_object_get_ex(value, name.data, NULL)) continue;
        return refuse_text(c, place, "the member ", name, " is missing");
    }
    return true;
}

static bool members_fit(struct checking *c, const struct node *node, struct json_object *value,
                        const struct place *place) {
    for (size_t i = 0; i < node->members.count; i++) {
        const struct member *member = &node->members.items[i];
        struct json_object *found;
        if (!spend(c, place, 1 + member->name.size / 32)) return false;
        if (!json_object_object_get_ex(value, member->name.data, &found)) continue;
        if (!fits(c, member->node, found, &PLACE_KEY(place, member->name.data))) return false;
    }
    return true;
}

static bool unknown_member(struct checking *c, const struct node *node, const struct place *here) {
    if (!fails_aloud(c, here)) return false;
    struct suggest nearest = suggest_for(slice_text(here->key));
    for (size_t i = 0; i < node->members.count && i < NAMES_COMPARED; i++) {
        suggest_try(&nearest, node->members.items[i].name);
    }
    struct buffer what = {0};
    buffer_append_text(&what, "no member of this name is allowed");
    json_nearest_show(&what, &nearest);
    refuse(c, here, "%.*s", (int)what.size, what.data);
    buffer_free(&what);
    return false;
}

/* Members that patternProperties or additionalProperties speak of. */
static bool other_member_fits(struct checking *c, const struct node *node, struct json_object *value,
                              const struct place *here) {
    struct slice name = slice_text(here->key);
    bool known = node->properties && json_object_object_get_ex(node->properties, name.data, NULL);
    if (!spend(c, here, 1 + name.size / 32)) return false;
    for (size_t i = 0; i < node->pattern_members.count; i++) {
        const struct member *member = &node->pattern_members.items[i];
        bool speaks = matches(c, member->pattern, member->name, name, here);
        if (c->stopped || (speaks && !fits(c, member->node, value, here))) return false;
        known = known || speaks;
    }
    if (known || !node->other_members) return true;
    if (node->other_members->never) return unknown_member(c, node, here);
    return fits(c, node->other_members, value, here);
}

static bool object_fits(struct checking *c, const struct node *node, struct json_object *value,
                        const struct place *place) {
    if (!has_required(c, node, value, place) || !members_fit(c, node, value, place)) return false;
    if (!node->other_members && node->pattern_members.count == 0) return true;
    json_each(value, key, member) {
        if (!other_member_fits(c, node, member, &PLACE_KEY(place, key))) return false;
    }
    return true;
}

/* ---- alternatives ---- */

/* Checks without reporting; *near: how near it came to fitting. */
static bool fits_quietly(struct checking *c, const struct node *node, struct json_object *value,
                         const struct place *place, unsigned *near) {
    unsigned before = c->nearest;
    c->nearest = 0;
    c->quiet++;
    bool fine = fits(c, node, value, place);
    c->quiet--;
    *near = c->nearest;
    c->nearest = before;
    return fine;
}

/* None fits; the nearest came as near as `near`. */
static bool none_fits(struct checking *c, const struct nodes *nodes, size_t nearest, unsigned near,
                      struct json_object *value, const struct place *place) {
    if (near <= place->depth * 2 + 1) { /* all of them fail here, not within */
        if (!fails_aloud(c, place)) return false;
        struct buffer what = {0};
        json_schema_show_any(&what, nodes, value);
        refuse_value(c, place, &what, value);
    } else if (!c->quiet) {
        fits(c, nodes->items[nearest], value, place);
    } else if (c->nearest < near) {
        c->nearest = near;
    }
    return false;
}

static bool alternatives_fit(struct checking *c, const struct nodes *nodes, bool exactly_one, struct json_object *value,
                             const struct place *place) {
    size_t nearest = 0, fitting = nodes->count;
    unsigned nearest_near = 0;
    for (size_t i = 0; i < nodes->count; i++) {
        unsigned near;
        bool fine = fits_quietly(c, nodes->items[i], value, place, &near);
        if (c->stopped) return false;
        if (fine && !exactly_one) return true;
        if (fine && fitting < nodes->count) {
            return refuse(c, place, "exactly one of %zu alternatives is wanted, and both %zu and %zu fit", nodes->count,
                          fitting, i);
        }
        if (fine) {
            fitting = i;
        } else if (near > nearest_near) {
            nearest_near = near;
            nearest = i;
        }
    }
    return fitting < nodes->count || none_fits(c, nodes, nearest, nearest_near, value, place);
}

static bool differs(struct checking *c, const struct node *node, struct json_object *value, const struct place *place) {
    unsigned near;
    bool fine = fits_quietly(c, node, value, place, &near);
    if (c->stopped) return false;
    if (!fine) return true;
    if (!fails_aloud(c, place)) return false;
    struct buffer what = {0};
    buffer_append_text(&what, "anything but ");
    json_schema_show(&what, node, value);
    return refuse_value(c, place, &what, value);
}

static bool combinations_fit(struct checking *c, const struct node *node, struct json_object *value,
                             const struct place *place) {
    for (size_t i = 0; i < node->all.count; i++) {
        if (!fits(c, node->all.items[i], value, place)) return false;
    }
    return (!node->any.count || alternatives_fit(c, &node->any, false, value, place)) &&
           (!node->one.count || alternatives_fit(c, &node->one, true, value, place)) &&
           (!node->not || differs(c, node->not, value, place));
}

/* ---- the whole ---- */

static bool value_fits(struct checking *c, const struct node *node, struct json_object *value,
                       const struct place *place) {
    if (!has_type(node, value)) return wanted(c, node, value, place);
    if ((node->has_constant || node->choices) && !is_constant(c, node, value, place)) return false;
    switch (json_object_get_type(value)) {
        case json_type_int:
        case json_type_double: return number_fits(c, node, value, place);
        case json_type_string: return text_fits(c, node, value, place);
        case json_type_array: return array_fits(c, node, value, place);
        case json_type_object: return object_fits(c, node, value, place);
        default: return true;
    }
}

static bool fits(struct checking *c, const struct node *node, struct json_object *value, const struct place *place) {
    if (c->stopped || !spend(c, place, 1)) return false;
    for (; node->ref; node = node->ref) {
        if (!spend(c, place, 1)) return false;
    }
    if (node->never) return refuse(c, place, "nothing is allowed here");
    if (c->nested == JSON_SCHEMA_NESTED_MOST) return stop(c, place, "nested too deeply for this schema");
    c->nested++;
    bool fine = value_fits(c, node, value, place) && combinations_fit(c, node, value, place);
    c->nested--;
    return fine;
}

int json_schema_check_within(const struct json_schema *schema, struct json_object *document, uint64_t *steps,
                             struct fault *fault) {
    const struct place root = {0};
    struct checking c = {.steps = *steps, .steps_most = *steps};
    bool fine = fits(&c, schema->root, document, &root);
    *steps = c.steps;
    CHECK(fine == (c.fault.code == CO_OK));
    return fine ? CO_OK : fault_set(fault, CO_INVALID, "%s", c.fault.text);
}

int json_schema_check(const struct json_schema *schema, struct json_object *document, struct fault *fault) {
    uint64_t steps = JSON_SCHEMA_STEPS_MOST;
    return json_schema_check_within(schema, document, &steps, fault);
}
