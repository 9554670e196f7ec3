#include "acl/rules.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hcl.h"
#include "base/json_in.h"
#include "base/json_value.h"
#include "base/suggest.h"
#include "base/text.h"

/* ---- words ---- */

static const char prefix_end[] = "_prefix";

/* Words of Consul that have no effect here. */
enum where { AT_TOP, IN_BLOCK };
static const struct foreign {
    const char *word;
    enum where where;
    const char *why;
} foreign[] = {
    {"identity", AT_TOP, "coord has no workload identities"},
    {"identity_prefix", AT_TOP, "coord has no workload identities"},
    {"mesh", AT_TOP, "coord has no service mesh"},
    {"namespace", AT_TOP, "coord has no namespaces"},
    {"namespace_prefix", AT_TOP, "coord has no namespaces"},
    {"partition", AT_TOP, "coord has no admin partitions"},
    {"partition_prefix", AT_TOP, "coord has no admin partitions"},
    {"peering", AT_TOP, "other datacenters are regions, which operator is for"},
    {"intentions", IN_BLOCK, "coord has no service mesh"},
    {"sentinel", IN_BLOCK, "coord has no Sentinel"},
};
_Static_assert(ARRAY_COUNT(foreign) <= RULES_WARNINGS_MOST, "room for a warning of each word");

static const struct foreign *foreign_find(struct slice word, enum where where) {
    for (size_t i = 0; i < ARRAY_COUNT(foreign); i++) {
        if (foreign[i].where == where && slice_equal_nocase(word, slice_text(foreign[i].word))) return &foreign[i];
    }
    return NULL;
}

/* Of a block: which of these words may stand in it? */
static bool block_takes(enum access_resource resource, const struct foreign *word) {
    bool sentinel = slice_is(slice_text(word->word), "sentinel");
    return resource == ACCESS_SERVICE || (sentinel && (resource == ACCESS_KEY || resource == ACCESS_NODE));
}

/* "key" or "key_prefix". */
static bool resource_word(struct slice word, enum access_resource *resource, bool *prefix) {
    for (*resource = 0; *resource < ACCESS_RESOURCES; ++*resource) {
        struct slice name = slice_text(access_resource_name(*resource));
        if (slice_equal_nocase(word, name)) {
            *prefix = false;
            return true;
        }
        if (!access_resource_named(*resource) || word.size < name.size) continue;
        *prefix = slice_equal_nocase(slice_make(word.data, name.size), name) &&
                  slice_equal_nocase(slice_make(word.data + name.size, word.size - name.size), slice_text(prefix_end));
        if (*prefix) return true;
    }
    return false;
}

/* ---- the reader ---- */

struct reader {
    struct slice text;
    bool is_json;
    struct arena *arena;
    struct rules *rules;
    struct fault *fault;
    size_t capacity;
    struct json_object *seen; /* the level of each rule, by what it is for */
    bool warned[ARRAY_COUNT(foreign)];
};

/* A value in the tree. */
struct spot {
    struct json_step step;
    struct json_object *value;
};

static struct spot member_of(const struct spot *up, const char *name, struct json_object *value) {
    return (struct spot){{.up = up->step.name || up->step.up ? &up->step : NULL, .name = name}, value};
}

static void place_of(const struct reader *r, const struct spot *spot, size_t *line, size_t *column) {
    text_place(r->text, r->is_json ? json_place(r->text, &spot->step) : hcl_place(spot->value), line, column);
}

/* "WHAT "WORD" BEHIND (nearest: "...") at line 3, column 1" */
static int refuse(struct reader *r, const struct spot *spot, const char *what, struct slice word, const char *behind,
                  const struct suggest *suggest) {
    size_t line, column;
    struct buffer text = {0};
    place_of(r, spot, &line, &column);
    buffer_append_text(&text, what);
    if (word.data) json_text_show(&text, word);
    buffer_append_text(&text, behind);
    if (suggest && suggest->count) {
        buffer_append_text(&text, " (nearest: ");
        suggest_print(&text, suggest);
        buffer_append_byte(&text, ')');
    }
    fault_set(r->fault, CO_INVALID, "%.*s at line %zu, column %zu", (int)text.size, text.data, line, column);
    buffer_free(&text);
    return CO_INVALID;
}

static void warn(struct reader *r, const struct spot *spot, const struct foreign *word) {
    size_t line, column;
    if (r->warned[word - foreign]) return;
    r->warned[word - foreign] = true;
    place_of(r, spot, &line, &column);
    r->rules->warnings[r->rules->warning_count++] =
        arena_printf(r->arena, "\"%s\" at line %zu, column %zu has no effect: %s", word->word, line, column, word->why);
}

/* Calls `each` for the object, or for each object of the array; CO_NOTFOUND: it is neither. */
static int each_object(struct reader *r, const struct spot *spot, void *data,
                       int (*each)(struct reader *r, const struct spot *spot, void *data)) {
    if (json_object_is_type(spot->value, json_type_object)) return each(r, spot, data);
    if (!json_object_is_type(spot->value, json_type_array)) return CO_NOTFOUND;
    size_t count = json_object_array_length(spot->value);
    for (size_t i = 0; i < count; i++) {
        struct spot item = {{.up = &spot->step, .index = i}, json_object_array_get_idx(spot->value, i)};
        if (!json_object_is_type(item.value, json_type_object)) return CO_NOTFOUND;
        int rv = each(r, &item, data);
        if (rv != CO_OK) return rv;
    }
    return CO_OK;
}

/* ---- rules ---- */

/* A name of a resource, exactly or as a prefix. */
struct subject {
    enum access_resource resource;
    bool prefix;
    struct slice name;
    bool has_policy;
};

/* "key_prefix" and, of one with a name, " \"a/\"". */
static void subject_print(struct buffer *out, const struct subject *subject) {
    buffer_printf(out, "%s%s", access_resource_name(subject->resource), subject->prefix ? prefix_end : "");
    if (!access_resource_named(subject->resource) || !subject->name.data) return;
    buffer_append_byte(out, ' ');
    json_text_show(out, subject->name);
}

static int refuse_subject(struct reader *r, const struct spot *spot, const struct subject *subject,
                          const char *behind) {
    struct buffer what = {0};
    subject_print(&what, subject);
    buffer_append_byte(&what, '\0');
    int rv = refuse(r, spot, what.data, (struct slice){0}, behind, NULL);
    buffer_free(&what);
    return rv;
}

static int add(struct reader *r, const struct spot *spot, const struct subject *subject, enum access_level level) {
    struct rules *rules = r->rules;
    struct json_object *before;
    struct buffer key = {0};
    buffer_printf(&key, "%u %u ", subject->resource, subject->prefix);
    size_t head = key.size;
    buffer_append(&key, subject->name.data, subject->name.size);
    if (access_resource_folds(subject->resource)) bytes_lower(key.data + head, key.size - head);
    buffer_append_byte(&key, '\0');
    bool stands = json_object_object_get_ex(r->seen, key.data, &before);
    bool same = stands && json_object_get_int(before) == (int)level;
    if (!stands) json_object_object_add(r->seen, key.data, json_object_new_int((int)level));
    buffer_free(&key);
    if (stands && !same) return refuse_subject(r, spot, subject, " has another level before");
    if (stands) return CO_OK;
    if (rules->count == r->capacity) {
        r->capacity = r->capacity ? r->capacity * 2 : 16;
        struct rule *more = arena_alloc(r->arena, r->capacity * sizeof *more);
        if (rules->count) memcpy(more, rules->items, rules->count * sizeof *more);
        rules->items = more;
    }
    rules->items[rules->count++] = (struct rule){.resource = subject->resource,
                                                 .prefix = subject->prefix,
                                                 .level = level,
                                                 .name = slice_copy(r->arena, subject->name)};
    return CO_OK;
}

static bool level_fits(enum access_resource resource, enum access_level level) {
    return level != ACCESS_LIST || resource == ACCESS_KEY;
}

static int read_level(struct reader *r, const struct spot *spot, const struct subject *subject,
                      enum access_level *level) {
    if (!json_object_is_type(spot->value, json_type_string))
        return refuse_subject(r, spot, subject, " needs a level as text, as \"read\",");
    struct slice text = json_text(spot->value);
    bool known = access_level_parse(text, level);
    if (known && level_fits(subject->resource, *level)) return CO_OK;
    if (known) return refuse(r, spot, "", text, " is a level of keys only", NULL);
    struct suggest suggest = suggest_for(text);
    for (enum access_level i = 0; i < ACCESS_LEVELS; i++) {
        if (level_fits(subject->resource, i)) suggest_try(&suggest, slice_text(access_level_name(i)));
    }
    return refuse(r, spot, "unknown level ", text, "", &suggest);
}

static int block_unknown(struct reader *r, const struct spot *spot, const struct subject *subject) {
    struct suggest suggest = suggest_for(slice_text(spot->step.name));
    suggest_try(&suggest, SLICE_LITERAL("policy"));
    for (size_t i = 0; i < ARRAY_COUNT(foreign); i++) {
        if (foreign[i].where == IN_BLOCK && block_takes(subject->resource, &foreign[i]))
            suggest_try(&suggest, slice_text(foreign[i].word));
    }
    struct buffer behind = {0};
    buffer_append_text(&behind, " in ");
    subject_print(&behind, subject);
    buffer_append_byte(&behind, '\0');
    int rv = refuse(r, spot, "unknown word ", slice_text(spot->step.name), behind.data, &suggest);
    buffer_free(&behind);
    return rv;
}

/* The content of a block with a name. */
static int read_body(struct reader *r, const struct spot *spot, void *data) {
    struct subject *subject = data;
    subject->has_policy = false;
    json_each(spot->value, key, value) {
        struct spot member = member_of(spot, key, value);
        struct slice word = slice_text(key);
        const struct foreign *ignored = foreign_find(word, IN_BLOCK);
        enum access_level level = ACCESS_DENY;
        int rv = CO_OK;
        if (slice_equal_nocase(word, SLICE_LITERAL("policy"))) {
            rv = read_level(r, &member, subject, &level);
            if (rv == CO_OK) rv = add(r, &member, subject, level);
            subject->has_policy = true;
        } else if (ignored && block_takes(subject->resource, ignored)) {
            warn(r, &member, ignored);
        } else {
            rv = block_unknown(r, &member, subject);
        }
        if (rv != CO_OK) return rv;
    }
    return subject->has_policy ? CO_OK : refuse_subject(r, spot, subject, " has no policy");
}

/* The names below "key": a block each. */
static int read_names(struct reader *r, const struct spot *spot, void *data) {
    const struct subject *group = data;
    if (json_object_object_length(spot->value) == 0) return refuse_subject(r, spot, group, " has no name");
    json_each(spot->value, key, value) {
        struct spot member = member_of(spot, key, value);
        struct subject subject = *group;
        if (json_object_is_type(value, json_type_string)) return refuse_subject(r, &member, group, " has no name");
        subject.name = slice_text(key);
        int rv = each_object(r, &member, &subject, read_body);
        if (rv == CO_NOTFOUND || (rv == CO_OK && !subject.has_policy))
            rv = refuse_subject(r, &member, &subject, " has no policy");
        if (rv != CO_OK) return rv;
    }
    return CO_OK;
}

static int top_unknown(struct reader *r, const struct spot *spot) {
    struct suggest suggest = suggest_for(slice_text(spot->step.name));
    char words[ACCESS_RESOURCES][32];
    for (enum access_resource i = 0; i < ACCESS_RESOURCES; i++) {
        suggest_try(&suggest, slice_text(access_resource_name(i)));
        if (!access_resource_named(i)) continue;
        snprintf(words[i], sizeof words[i], "%s%s", access_resource_name(i), prefix_end);
        suggest_try(&suggest, slice_text(words[i]));
    }
    for (size_t i = 0; i < ARRAY_COUNT(foreign); i++) {
        if (foreign[i].where == AT_TOP) suggest_try(&suggest, slice_text(foreign[i].word));
    }
    return refuse(r, spot, "unknown word ", slice_text(spot->step.name), "", &suggest);
}

static int read_top(struct reader *r, const struct spot *spot) {
    struct slice word = slice_text(spot->step.name);
    const struct foreign *ignored = foreign_find(word, AT_TOP);
    struct subject subject = {0};
    if (ignored) {
        warn(r, spot, ignored);
        return CO_OK;
    }
    if (!resource_word(word, &subject.resource, &subject.prefix)) return top_unknown(r, spot);
    if (access_resource_named(subject.resource)) {
        int rv = each_object(r, spot, &subject, read_names);
        return rv == CO_NOTFOUND ? refuse_subject(r, spot, &subject, " needs a block with a name,") : rv;
    }
    enum access_level level;
    subject.name = SLICE_LITERAL("");
    int rv = read_level(r, spot, &subject, &level);
    return rv == CO_OK ? add(r, spot, &subject, level) : rv;
}

/* ---- the text ---- */

static bool looks_like_json(struct slice text) {
    size_t at = 0;
    while (at < text.size && strchr(" \t\r\n\v\f", text.data[at])) at++;
    return at < text.size && text.data[at] == '{';
}

/* NULL and a fault when it is neither HCL nor JSON. */
static struct json_object *read_tree(struct slice text, bool is_json, struct fault *fault) {
    if (text.size > RULES_TEXT_MOST) {
        fault_set(fault, CO_TOOLARGE, "rules of %zu bytes: at most %zu KiB are taken", text.size,
                  RULES_TEXT_MOST >> 10);
        return NULL;
    }
    if (!is_json) return hcl_parse(text, fault);
    struct json_object *tree = json_parse(text, fault);
    if (!tree || json_refuse_duplicates(text, fault) == CO_OK) return tree;
    json_object_put(tree);
    return NULL;
}

int rules_parse(struct slice text, struct arena *arena, struct rules *rules, struct fault *fault) {
    struct fault own = {0};
    struct reader reader = {
        .text = text, .is_json = looks_like_json(text), .arena = arena, .rules = rules, .fault = &own};
    *rules = (struct rules){0};
    struct spot root = {.value = read_tree(text, reader.is_json, &own)};
    if (!root.value) return fault_set(fault, own.code, "%s", own.text);
    reader.seen = json_object_new_object();
    int rv = CO_OK;
    json_each(root.value, key, value) {
        struct spot member = member_of(&root, key, value);
        if (rv == CO_OK) rv = read_top(&reader, &member);
    }
    json_object_put(reader.seen);
    json_object_put(root.value);
    return rv == CO_OK ? CO_OK : fault_set(fault, rv, "%s", own.text);
}

/* ---- adding them ---- */

void rules_add(const struct rules *rules, struct access *access) {
    for (size_t i = 0; i < rules->count; i++) {
        const struct rule *rule = &rules->items[i];
        access_add(access, rule->resource, rule->prefix, rule->name, rule->level);
    }
}

const char rules_management[] =
    "acl = \"write\"\n"
    "agent_prefix \"\" { policy = \"write\" }\n"
    "event_prefix \"\" { policy = \"write\" }\n"
    "key_prefix \"\" { policy = \"write\" }\n"
    "keyring = \"write\"\n"
    "lock_prefix \"\" { policy = \"write\" }\n"
    "node_prefix \"\" { policy = \"write\" }\n"
    "operator = \"write\"\n"
    "query_prefix \"\" { policy = \"write\" }\n"
    "quota_prefix \"\" { policy = \"write\" }\n"
    "rollout_prefix \"\" { policy = \"write\" }\n"
    "service_prefix \"\" { policy = \"write\" }\n"
    "session_prefix \"\" { policy = \"write\" }\n";

void rules_add_management(struct access *access) {
    for (enum access_resource i = 0; i < ACCESS_RESOURCES; i++)
        access_add(access, i, access_resource_named(i), SLICE_LITERAL(""), ACCESS_WRITE);
}

void rules_add_service_identity(struct access *access, struct slice name) {
    struct buffer sidecar = {0};
    buffer_append(&sidecar, name.data, name.size);
    buffer_append_text(&sidecar, "-sidecar-proxy");
    access_add(access, ACCESS_SERVICE, false, name, ACCESS_WRITE);
    access_add(access, ACCESS_SERVICE, false, buffer_slice(&sidecar), ACCESS_WRITE);
    access_add(access, ACCESS_SERVICE, true, SLICE_LITERAL(""), ACCESS_READ);
    access_add(access, ACCESS_NODE, true, SLICE_LITERAL(""), ACCESS_READ);
    buffer_free(&sidecar);
}

void rules_add_node_identity(struct access *access, struct slice name) {
    access_add(access, ACCESS_NODE, false, name, ACCESS_WRITE);
    access_add(access, ACCESS_SERVICE, true, SLICE_LITERAL(""), ACCESS_READ);
}

/* ---- rules of before 1.4 ---- */

static const char *const legacy[] = {"agent", "event", "key", "node", "query", "service", "session"};

static bool is_legacy(struct slice word) {
    for (size_t i = 0; i < ARRAY_COUNT(legacy); i++) {
        if (slice_equal_nocase(word, slice_text(legacy[i]))) return true;
    }
    return false;
}

/* Where the name that begins at `start` ends: in front of its closing quote, if it has one. */
static size_t name_end(struct slice text, size_t start, const char *name) {
    if (text.data[start] != '"') return start + strlen(name);
    size_t at = start + 1;
    while (text.data[at] != '"') at += text.data[at] == '\\' ? 2 : 1;
    return at;
}

static void end_add(struct buffer *ends, size_t end) { buffer_append(ends, &end, sizeof end); }

/* Blocks of HCL have their own names: the array has the place of the first one. */
static void find_blocks(struct slice text, const char *name, struct json_object *value, struct buffer *ends) {
    size_t count = json_object_is_type(value, json_type_array) ? json_object_array_length(value) : 0;
    if (count == 0 || hcl_place(json_object_array_get_idx(value, 0)) != hcl_place(value)) return;
    for (size_t i = 0; i < count; i++)
        end_add(ends, name_end(text, hcl_place(json_object_array_get_idx(value, i)), name));
}

static int by_place(const void *a, const void *b) {
    const size_t *one = a, *other = b;
    return *one < *other ? -1 : *one > *other;
}

/* The ends (size_t) of the words that become prefixes, in order. */
static void find_legacy(struct slice text, bool is_json, struct json_object *tree, struct buffer *ends) {
    json_each(tree, key, value) {
        struct json_step step = {.name = key};
        bool block = json_object_is_type(value, json_type_object) || json_object_is_type(value, json_type_array);
        if (!is_legacy(slice_text(key)) || !block) continue;
        if (is_json) end_add(ends, name_end(text, json_place(text, &step), key));
        else find_blocks(text, key, value, ends);
    }
    if (ends->size) qsort(ends->data, ends->size / sizeof(size_t), sizeof(size_t), by_place);
}

int rules_translate(struct slice text, struct buffer *out, struct fault *fault) {
    bool is_json = looks_like_json(text);
    struct fault own = {0};
    struct json_object *tree = read_tree(text, is_json, &own);
    if (!tree) return fault_set(fault, own.code, "%s", own.text);
    struct buffer ends = {0}, translated = {0};
    size_t copied = 0;
    find_legacy(text, is_json, tree, &ends);
    json_object_put(tree);
    for (size_t i = 0; i < ends.size / sizeof(size_t); i++) {
        size_t end;
        memcpy(&end, ends.data + i * sizeof end, sizeof end);
        buffer_append(&translated, text.data + copied, end - copied);
        buffer_append_text(&translated, prefix_end);
        copied = end;
    }
    buffer_append(&translated, text.data + copied, text.size - copied);
    tree = read_tree(buffer_slice(&translated), is_json, &own); /* has it "key" and "key_prefix", which are one now? */
    if (tree) buffer_append(out, translated.data, translated.size);
    json_object_put(tree);
    buffer_free(&ends);
    buffer_free(&translated);
    return own.code == CO_OK ? CO_OK : fault_set(fault, own.code, "once translated: %s", own.text);
}
