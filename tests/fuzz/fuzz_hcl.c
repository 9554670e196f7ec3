/* Any bytes as HCL, and as rules of a policy. A text that is HCL is the same tree again once that is written as JSON, and
 * each of its values has a place in the text. Rules that are taken are the same again once they are written, and rules
 * that are translated are not translated a second time. */
#include <stdlib.h>

#include "acl/rules.h"
#include "base/check.h"
#include "base/hcl.h"
#include "base/json_in.h"
#include "base/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_line(const char *line) {
    CHECK(line[0]);
    for (const char *at = line; *at; at++) CHECK((unsigned char)*at >= ' ' && *at != 0x7f);
}

static void check_fault(const struct fault *fault, int error) {
    CHECK(fault->code == error && (error == CO_INVALID || error == CO_TOOLARGE));
    check_line(fault->text);
}

static void check_places(struct json_object *value, size_t size) {
    CHECK(hcl_place(value) < size);
    if (json_object_is_type(value, json_type_object)) {
        json_each(value, key, member) {
            (void)key;
            check_places(member, size);
        }
    }
    size_t count = json_object_is_type(value, json_type_array) ? json_object_array_length(value) : 0;
    for (size_t i = 0; i < count; i++) {
        struct json_object *item = json_object_array_get_idx(value, i);
        CHECK(hcl_place(item) >= hcl_place(value));
        check_places(item, size);
    }
}

static void read_hcl(struct slice text) {
    struct fault fault = {0};
    struct json_object *tree = hcl_parse(text, &fault);
    if (!tree) {
        check_fault(&fault, fault.code);
        CHECK(slice_starts(slice_text(fault.text), SLICE_LITERAL("HCL: ")));
        return;
    }
    CHECK(fault.code == CO_OK && json_object_is_type(tree, json_type_object));
    json_each(tree, key, value) {
        (void)key;
        check_places(value, text.size);
    }
    const char *json = json_object_to_json_string_ext(tree, JSON_C_TO_STRING_PLAIN);
    struct json_object *again = json_parse(slice_text(json), &fault);
    CHECK(again && json_object_equal(tree, again));
    json_object_put(again);
    json_object_put(tree);
}

/* ---- rules ---- */

/* In quotes, with octal escapes for all that could mean something in them. */
static void print_name(struct buffer *out, struct slice name) {
    buffer_append_byte(out, '"');
    for (size_t i = 0; i < name.size; i++) {
        unsigned char c = (unsigned char)name.data[i];
        if (c < ' ' || c == '"' || c == '\\' || c == '$') buffer_printf(out, "\\%03o", c);
        else buffer_append_byte(out, (char)c);
    }
    buffer_append_byte(out, '"');
}

static void print_rules(struct buffer *out, const struct rules *rules) {
    for (size_t i = 0; i < rules->count; i++) {
        const struct rule *rule = &rules->items[i];
        const char *resource = access_resource_name(rule->resource), *level = access_level_name(rule->level);
        if (access_resource_named(rule->resource)) {
            buffer_printf(out, "%s%s ", resource, rule->prefix ? "_prefix" : "");
            print_name(out, rule->name);
            buffer_printf(out, " { policy = \"%s\" }\n", level);
        } else {
            buffer_printf(out, "%s = \"%s\"\n", resource, level);
        }
    }
}

static uint64_t view_of(const struct rules *rules) {
    struct access *access = access_new(ACCESS_DENY);
    rules_add(rules, access);
    access_seal(access);
    uint64_t view = access_view(access);
    access_release(access);
    return view;
}

static void check_again(const struct rules *rules) {
    struct arena arena = {0};
    struct rules again;
    struct buffer text = {0};
    struct fault fault = {0};
    print_rules(&text, rules);
    if (text.size <= RULES_TEXT_MOST) {
        CHECK(rules_parse(buffer_slice(&text), &arena, &again, &fault) == CO_OK);
        CHECK(again.count == rules->count && again.warning_count == 0 && view_of(rules) == view_of(&again));
    }
    buffer_free(&text);
    arena_free(&arena);
}

static void read_rules(struct slice text) {
    struct arena arena = {0};
    struct rules rules;
    struct fault fault = {0};
    int error = rules_parse(text, &arena, &rules, &fault);
    if (error == CO_OK) {
        CHECK(fault.code == CO_OK && rules.warning_count <= RULES_WARNINGS_MOST);
        for (size_t i = 0; i < rules.warning_count; i++) check_line(rules.warnings[i]);
        check_again(&rules);
    } else {
        check_fault(&fault, error);
    }
    arena_free(&arena);
}

static void translate(struct slice text) {
    struct buffer once = {0}, twice = {0};
    struct fault fault = {0};
    int error = rules_translate(text, &once, &fault);
    if (error == CO_OK) {
        CHECK(once.size >= text.size && rules_translate(buffer_slice(&once), &twice, &fault) == CO_OK);
        CHECK(slice_equal(buffer_slice(&once), buffer_slice(&twice)));
    } else {
        check_fault(&fault, error);
        CHECK(once.size == 0);
    }
    buffer_free(&once);
    buffer_free(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct slice text = slice_make(data, size);
    read_hcl(text);
    read_rules(text);
    translate(text);
    return 0;
}
