#include "base/hcl.h"

#include <errno.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hcl_inner.h"
#include "base/memory.h"
#include "base/text.h"

#define DEPTH_MOST 63 /* json_parse takes no value that is deeper */

/* Notes the place for hcl_place. `blocks`: an array of blocks, to which another one may be added. */
static struct json_object *place_at(struct json_object *value, size_t place, bool blocks) {
    CHECK(value);
    json_object_set_userdata(value, (void *)(uintptr_t)(place * 2 + blocks), NULL);
    return value;
}
static bool has_blocks(struct json_object *value) { return (uintptr_t)json_object_get_userdata(value) % 2; }
size_t hcl_place(struct json_object *value) { return (size_t)((uintptr_t)json_object_get_userdata(value) / 2); }

static struct json_object *array_at(size_t place, bool blocks) {
    return place_at(json_object_new_array_ext(1), place, blocks);
}

/* One more value; `levels` more levels while it is read. */
static bool enter(struct hcl_reader *r, size_t levels) {
    r->depth += levels;
    if (r->depth > DEPTH_MOST) hcl_refuse_for(r, CO_TOOLARGE, r->start, "nested too deeply", (struct slice){0});
    else if (++r->values > HCL_VALUES_MOST)
        hcl_refuse_for(r, CO_TOOLARGE, r->start, "too many values", (struct slice){0});
    return r->token != HCL_WRONG;
}

static struct json_object *number_value(struct hcl_reader *r) {
    struct slice text = hcl_token(r);
    char copy[64];
    bool negative = text.data[0] == '-';
    if (text.size >= sizeof copy) {
        hcl_refuse_for(r, CO_INVALID, r->start, "a number that is too long:", text);
        return NULL;
    }
    memcpy(copy, text.data, text.size);
    copy[text.size] = '\0';
    const char *digits = copy + negative;
    bool hex = digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X');
    double value;
    if (!hex && strpbrk(digits, ".eE")) {
        if (decimal_parse(text, &value) == CO_OK) return place_at(json_object_new_double(value), r->start, false);
        hcl_refuse_for(r, CO_INVALID, r->start, "malformed number", text);
        return NULL;
    }
    char *end;
    errno = 0;
    unsigned long long size = strtoull(digits, &end, 0);
    if (*end || end == digits || (hex && digits[2] == '\0')) {
        hcl_refuse_for(r, CO_INVALID, r->start, "malformed number", text);
        return NULL;
    }
    if (errno || size > (unsigned long long)INT64_MAX + negative) {
        hcl_refuse_for(r, CO_INVALID, r->start, "number out of range:", text);
        return NULL;
    }
    int64_t whole = negative ? (int64_t)(0 - size) : (int64_t)size;
    return place_at(json_object_new_int64(whole), r->start, false);
}

/* `levels` that it adds: itself, and the array around a block. */
static struct json_object *read_object(struct hcl_reader *r, size_t place, size_t levels);
static struct json_object *read_list(struct hcl_reader *r, size_t place);

/* The value from the present token on; ends at the token behind it. `place`: of its name, or its own. */
static struct json_object *read_value(struct hcl_reader *r, size_t place) {
    struct json_object *value = NULL;
    if (hcl_is_sign(r, '{')) return read_object(r, place, 1);
    if (hcl_is_sign(r, '[')) return read_list(r, place);
    if (!enter(r, 0)) return NULL;
    bool is_true = r->token == HCL_NAME && slice_is(hcl_token(r), "true");
    if (r->token == HCL_QUOTED || r->token == HCL_HEREDOC)
        value = json_object_new_string_len(r->string.size ? r->string.data : "", (int)r->string.size);
    else if (r->token == HCL_NUMBER) value = number_value(r);
    else if (is_true || (r->token == HCL_NAME && slice_is(hcl_token(r), "false")))
        value = json_object_new_boolean(is_true);
    else if (r->token == HCL_NAME) hcl_refuse_token(r, "text without quotes:");
    else hcl_refuse_token(r, "a value is missing before");
    if (!value) return NULL;
    place_at(value, place, false);
    hcl_advance(r);
    return value;
}

static struct json_object *read_list(struct hcl_reader *r, size_t place) {
    size_t bracket = r->start;
    if (!enter(r, 1)) return NULL;
    struct json_object *list = array_at(place, false);
    for (hcl_advance(r); !hcl_is_sign(r, ']');) {
        if (r->token == HCL_END) hcl_refuse(r, bracket, "a list without its \"]\"");
        struct json_object *value = r->token == HCL_WRONG ? NULL : read_value(r, r->start);
        if (!value) break;
        json_object_array_add(list, value);
        if (hcl_is_sign(r, ',')) hcl_advance(r);
        else if (r->token == HCL_END) hcl_refuse(r, bracket, "a list without its \"]\"");
        else if (!hcl_is_sign(r, ']')) hcl_refuse_token(r, "a comma is missing before");
    }
    hcl_advance(r);
    r->depth--;
    if (r->token != HCL_WRONG) return list;
    json_object_put(list);
    return NULL;
}

/* The name that was read, for json-c, which ends names with a NUL. NULL: the token is no name. */
static const char *name_of(struct hcl_reader *r) {
    bool literal = r->token == HCL_NAME && (slice_is(hcl_token(r), "true") || slice_is(hcl_token(r), "false"));
    if ((r->token != HCL_NAME && r->token != HCL_QUOTED) || literal) {
        hcl_refuse_token(r, "a name is missing before");
        return NULL;
    }
    if (r->string.size && memchr(r->string.data, '\0', r->string.size)) {
        hcl_refuse(r, r->start, "NUL in a name");
        return NULL;
    }
    buffer_append_byte(&r->string, '\0');
    return r->string.data;
}

/* A block from its labels or its brace on. */
static struct json_object *read_block(struct hcl_reader *r, size_t place) {
    if (hcl_is_sign(r, '{')) return read_object(r, place, 2);
    if (hcl_is_sign(r, '=')) hcl_refuse_token(r, "\"{\" is missing: behind labels stands no");
    size_t label_place = r->start;
    const char *label = r->token == HCL_WRONG ? NULL : name_of(r);
    if (!label || !enter(r, 2)) return NULL;
    struct json_object *block = place_at(json_object_new_object(), place, false);
    struct json_object *inner = array_at(label_place, true);
    json_object_object_add(block, label, inner);
    hcl_advance(r);
    struct json_object *content = read_block(r, label_place);
    if (content) json_object_array_add(inner, content);
    r->depth -= 2;
    if (content) return block;
    json_object_put(block);
    return NULL;
}

/* Adds a member, or a block to the blocks of its name. */
static void add_member(struct hcl_reader *r, struct json_object *object, const char *name, struct json_object *value,
                       bool block, size_t place) {
    struct json_object *old;
    bool there = json_object_object_get_ex(object, name, &old);
    if (there && block && has_blocks(old)) {
        json_object_array_add(old, value);
    } else if (there) {
        json_object_put(value);
        hcl_refuse_for(r, CO_INVALID, place, "this name stands a second time:", slice_text(name));
    } else if (block) {
        struct json_object *blocks = array_at(place, true);
        json_object_array_add(blocks, value);
        json_object_object_add(object, name, blocks);
    } else {
        json_object_object_add(object, name, value);
    }
}

static void read_member(struct hcl_reader *r, struct json_object *object) {
    size_t place = r->start;
    const char *first = name_of(r);
    if (!first) return;
    char *name = mem_strdup(first);
    struct json_object *value = NULL;
    bool block = true;
    hcl_advance(r);
    if (hcl_is_sign(r, '=')) {
        hcl_advance(r);
        block = hcl_is_sign(r, '{');
        if (r->token != HCL_WRONG) value = block ? read_object(r, place, 2) : read_value(r, place);
    } else if (hcl_is_sign(r, '{') || r->token == HCL_NAME || r->token == HCL_QUOTED) {
        value = read_block(r, place);
    } else if (r->token != HCL_WRONG) {
        hcl_refuse_for(r, CO_INVALID, place, "neither \"=\" nor \"{\" behind the name", slice_text(name));
    }
    if (value) add_member(r, object, name, value, block, place);
    free(name);
}

/* Members up to the closing brace, or to the end of the text where `brace` is that. */
static void read_members(struct hcl_reader *r, struct json_object *object, size_t brace) {
    bool whole = brace == r->text.size;
    while (r->token != HCL_WRONG && !(whole ? r->token == HCL_END : hcl_is_sign(r, '}'))) {
        if (r->token == HCL_END) hcl_refuse(r, brace, "\"{\" without its \"}\"");
        else read_member(r, object);
        if (hcl_is_sign(r, ',')) hcl_advance(r);
    }
}

static struct json_object *read_object(struct hcl_reader *r, size_t place, size_t levels) {
    size_t brace = r->start;
    if (!enter(r, levels)) return NULL;
    struct json_object *object = place_at(json_object_new_object(), place, false);
    hcl_advance(r);
    read_members(r, object, brace);
    hcl_advance(r);
    r->depth -= levels;
    if (r->token != HCL_WRONG) return object;
    json_object_put(object);
    return NULL;
}

/* ---- the text ---- */

static int bytes_fine(struct hcl_reader *r) {
    struct slice text = r->text;
    if (text.size > HCL_SIZE_MOST)
        return fault_set(r->fault, CO_TOOLARGE, "HCL: more than %zu MiB", HCL_SIZE_MOST >> 20);
    const char *nul = text.size ? memchr(text.data, '\0', text.size) : NULL;
    if (nul) return hcl_refuse(r, (size_t)(nul - text.data), "NUL byte");
    if (utf8_valid(text)) return CO_OK;
    size_t place = 0;
    for (size_t step; (step = utf8_next(slice_make(text.data + place, text.size - place))) > 0;) place += step;
    return hcl_refuse(r, place, "bytes that are not UTF-8");
}

struct json_object *hcl_parse(struct slice text, struct fault *fault) {
    struct fault own = {0};
    struct hcl_reader reader = {.text = text, .fault = fault ? fault : &own}, *r = &reader;
    if (bytes_fine(r) != CO_OK) return NULL;
    struct json_object *root = place_at(json_object_new_object(), 0, false);
    r->depth = 1;
    hcl_advance(r);
    read_members(r, root, text.size);
    buffer_free(&r->string);
    if (r->token != HCL_WRONG) return root;
    json_object_put(root);
    return NULL;
}
