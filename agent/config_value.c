/* Stores values into struct config: parses them from JSON or from a flag's text, checks them, and writes the field. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>

#include "agent/config_internal.h"
#include "base/check.h"
#include "base/json_in.h"
#include "base/text.h"
#include "registry/reconnect.h"

#define META_PAIRS_MOST 64
#define LIST_MOST       4096
#define PORT_MOST       65535

const char *source_tail(const char *source) {
    size_t size = strlen(source);
    return size > 100 ? source + size - 100 : source;
}

void origin_print(const struct origin *origin, struct buffer *out) {
    size_t line, column;
    buffer_append_text(out, source_tail(origin->source));
    if (!origin->from) return;
    struct slice text = buffer_slice(&origin->from->text);
    text_place(text, json_place(text, origin->step), &line, &column);
    buffer_printf(out, ":%zu:%zu", line, column);
}

const char *origin_text(const struct origin *origin) {
    struct buffer text = {0};
    origin_print(origin, &text);
    const char *kept = arena_strndup(&origin->config->arena, text.data, text.size);
    buffer_free(&text);
    return kept;
}

int origin_fault(const struct origin *origin, int code, const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const char *path = origin->path ? origin->path : "", *colon = origin->path ? ": " : "";
    struct buffer where = {0};
    if (!config_errors_full(origin->config)) origin_print(origin, &where); /* a further error is only counted */
    config_wrong(origin->config, origin->fault, code, "%.*s: %.80s%s%s", (int)where.size, where.data, path, colon,
                 text);
    buffer_free(&where);
    return code;
}

static void *field_of(const struct origin *origin, const struct key *key) {
    return (char *)origin->config + key->field;
}

/* ---- storing: the values were checked; a key may have no field ---- */

static int set_bool(const struct origin *origin, const struct key *key, bool value) {
    struct config *config = origin->config;
    key_guard(origin, key, value);
    if (key->field == NO_FIELD) return CO_OK;
    bool *field = field_of(origin, key);
    *field = value;
    if (field == &config->tls_https.verify_incoming) config->tls_https.verify_incoming_given = true;
    if (field == &config->tls_rpc.verify_incoming) config->tls_rpc.verify_incoming_given = true;
    if (field == &config->tls_rpc.verify_outgoing) config->tls_rpc.verify_outgoing_given = true;
    if (field == &config->tls_rpc.verify_server_hostname) config->tls_rpc.verify_server_hostname_given = true;
    if (field == &config->leave_on_terminate) config->leave_on_terminate_given = true;
    if (field == &config->skip_leave_on_interrupt) config->skip_leave_on_interrupt_given = true;
    return CO_OK;
}

static int set_number(const struct origin *origin, const struct key *key, uint64_t value) {
    if (value < key->least) return origin_fault(origin, CO_INVALID, "%" PRIu64 " is below %" PRIu64, value, key->least);
    if (value > key->most) return origin_fault(origin, CO_INVALID, "%" PRIu64 " is above %" PRIu64, value, key->most);
    if (key->field != NO_FIELD) *(uint64_t *)field_of(origin, key) = value;
    return CO_OK;
}

static int set_port(const struct origin *origin, const struct key *key, int64_t value) {
    if (value < -1) return origin_fault(origin, CO_INVALID, "%" PRId64 " is not a port (-1 turns it off)", value);
    if (value > PORT_MOST) return origin_fault(origin, CO_INVALID, "%" PRId64 " is above %d", value, PORT_MOST);
    key_guard(origin, key, value > 0);
    if (key->field != NO_FIELD) *(int64_t *)field_of(origin, key) = value;
    return CO_OK;
}

static int set_count(const struct origin *origin, const struct key *key, int64_t value) {
    if (value < -1) return origin_fault(origin, CO_INVALID, "%" PRId64 " is below -1", value);
    *(int64_t *)field_of(origin, key) = value;
    return CO_OK;
}

static int parse_duration(const struct origin *origin, struct slice text, int64_t *value) {
    int size = text.size > 40 ? 40 : (int)text.size;
    int error = duration_parse(text, value);
    if (error == CO_TOOLARGE)
        return origin_fault(origin, CO_INVALID, "\"%.*s\" is too long a duration", size, text.data);
    if (error) {
        return origin_fault(origin, CO_INVALID, "\"%.*s\" is not a duration (write it with a unit: 10s, 1m30s, 200ms)",
                            size, text.data);
    }
    if (*value < 0) return origin_fault(origin, CO_INVALID, "\"%.*s\" is negative", size, text.data);
    return CO_OK;
}

static int set_duration(const struct origin *origin, const struct key *key, struct slice text) {
    int64_t value;
    int error = parse_duration(origin, text, &value);
    if (error) return error;
    bool below = (uint64_t)value < key->least;
    if (below || (uint64_t)value > key->most) {
        struct buffer bound = {0};
        key_bound_print(key, below ? key->least : key->most, &bound);
        origin_fault(origin, CO_INVALID, "\"%.*s\" is %s %.*s", (int)text.size, text.data, below ? "below" : "above",
                     (int)bound.size, bound.data);
        buffer_free(&bound);
        return CO_INVALID;
    }
    if (key->field != NO_FIELD) *(int64_t *)field_of(origin, key) = value;
    return CO_OK;
}

static int set_text(const struct origin *origin, const struct key *key, struct slice given) {
    const char *text = arena_strndup(&origin->config->arena, given.data, given.size);
    key_guard(origin, key, *text && !(key->guard_text && strcasecmp(text, key->guard_text) == 0));
    if (key->accept) {
        const char *written = text, *wrong = key->accept(&origin->config->arena, &text);
        if (wrong && key_is_secret(key)) return origin_fault(origin, CO_INVALID, "%s", wrong);
        if (wrong) return origin_fault(origin, CO_INVALID, "\"%.60s\" %s", written, wrong);
    }
    if (key->field == NO_FIELD) return CO_OK;
    struct config *config = origin->config;
    const char **field = field_of(origin, key);
    *field = text;
    if (field == &config->log_file) config->log_file_place = origin_text(origin);
    if (field == &config->pid_file) config->pid_file_place = origin_text(origin);
    return CO_OK;
}

void *items_grow(struct config *config, void *items, size_t count, size_t size) {
    if (count & (count - 1)) return items;
    size_t room = count ? count * 2 : 1;
    void *moved = arena_zalloc(&config->arena, (room + 1) * size);
    if (count) memcpy(moved, items, count * size);
    return moved;
}

void texts_append(struct config *config, struct config_texts *texts, const char *text) {
    texts->items = items_grow(config, texts->items, texts->count, sizeof *texts->items);
    texts->items[texts->count++] = arena_strndup(&config->arena, text, strlen(text));
    texts->items[texts->count] = NULL;
}

static int add_text(const struct origin *origin, const struct key *key, struct slice text) {
    if (text.size == 0) return origin_fault(origin, CO_INVALID, "an empty text is no member of this list");
    const char *member = arena_strndup(&origin->config->arena, text.data, text.size), *written = member;
    const char *wrong = key->accept ? key->accept(&origin->config->arena, &member) : NULL;
    if (wrong) return origin_fault(origin, CO_INVALID, "\"%.40s\" %s", written, wrong);
    key_guard(origin, key, true);
    if (key->field == NO_FIELD) return CO_OK;
    struct config_texts *texts = field_of(origin, key);
    if (texts->count == LIST_MOST) return origin_fault(origin, CO_INVALID, "more than %d members", LIST_MOST);
    texts_append(origin->config, texts, member);
    return CO_OK;
}

/* Is the value a time for which dead nodes stay, of classes of nodes or of this node? */
static bool is_reconnect(const struct config *config, const struct config_pairs *pairs, const char *name) {
    return pairs == &config->reconnect_timeouts ||
           (pairs == &config->node_meta && strcmp(name, RECONNECT_META_TIMEOUT) == 0);
}

/* Every map has the rules of node_meta, from every source. */
static int add_pair(const struct origin *origin, const struct key *key, const char *name, const char *value) {
    if (key->field == NO_FIELD) return CO_OK;
    struct config_pairs *pairs = field_of(origin, key);
    const char *wrong = accept_meta(name, value);
    if (wrong) return origin_fault(origin, CO_INVALID, "\"%.60s\": %s", name, wrong);
    int64_t ignored_ns;
    if (is_reconnect(origin->config, pairs, name) && !reconnect_parse(value, &ignored_ns))
        return origin_fault(origin, CO_INVALID,
                            "\"%.60s\": \"%.60s\" is not a duration above 0 (write it with a unit: 30m, 24h)", name,
                            value);
    struct arena *arena = &origin->config->arena;
    value = arena_strndup(arena, value, strlen(value));
    for (size_t i = 0; i < pairs->count; i++) {
        if (strcmp(pairs->items[i].name, name) != 0) continue;
        pairs->items[i].value = value;
        return CO_OK;
    }
    if (pairs->count == META_PAIRS_MOST) return origin_fault(origin, CO_INVALID, "more than %d pairs", META_PAIRS_MOST);
    pairs->items = items_grow(origin->config, pairs->items, pairs->count, sizeof *pairs->items);
    pairs->items[pairs->count++] = (struct config_pair){arena_strndup(arena, name, strlen(name)), value};
    return CO_OK;
}

static int add_ttl(const struct origin *origin, const char *name, struct slice text) {
    struct config *config = origin->config;
    int64_t ttl;
    int error = parse_duration(origin, text, &ttl);
    if (error) return error;
    if (*name == '\0') return origin_fault(origin, CO_INVALID, "a service has no name");
    for (size_t i = 0; i < config->service_ttl_count; i++) {
        if (strcasecmp(config->service_ttls[i].name, name) != 0) continue;
        config->service_ttls[i].ttl_ns = ttl;
        return CO_OK;
    }
    if (config->service_ttl_count == LIST_MOST)
        return origin_fault(origin, CO_INVALID, "more than %d services", LIST_MOST);
    config->service_ttls =
        items_grow(config, config->service_ttls, config->service_ttl_count, sizeof *config->service_ttls);
    config->service_ttls[config->service_ttl_count++] =
        (struct config_ttl){arena_strndup(&config->arena, name, strlen(name)), ttl};
    return CO_OK;
}

static int add_block(const struct origin *origin, const struct key *key, struct json_object *json, const char *name) {
    struct config *config = origin->config;
    struct config_blocks *blocks = field_of(origin, key);
    if (!json_object_is_type(json, json_type_object)) {
        return origin_fault(origin, CO_INVALID, "%s is wanted",
                            key->kind == KEY_BLOCK ? "an object" : "a list of objects");
    }
    blocks->items = items_grow(config, blocks->items, blocks->count, sizeof *blocks->items);
    struct config_block *block = &blocks->items[blocks->count++];
    block->json = json_object_get(json);
    block->file = arena_strndup(&config->arena, origin->source, strlen(origin->source));
    block->key = arena_strndup(&config->arena, name, strlen(name));
    block->source = origin->from;
    const struct json_step *step = origin->step;
    block->item = step && !step->name;
    if (block->item) block->index = step->index, step = step->up;
    if (step) block->member = arena_strndup(&config->arena, step->name, strlen(step->name));
    return CO_OK;
}

/* ---- from JSON ---- */

static const char *const wanted[] = {
    [KEY_BOOL] = "true or false",
    [KEY_NUMBER] = "a whole number",
    [KEY_REAL] = "a number",
    [KEY_PORT] = "a port number",
    [KEY_COUNT] = "a whole number",
    [KEY_DURATION] = "a text with a duration such as \"10s\"",
    [KEY_TEXT] = "a text",
    [KEY_TEXTS] = "a list of texts",
    [KEY_MAP] = "an object of texts",
    [KEY_TTLS] = "an object of durations",
    [KEY_BLOCK] = "an object",
    [KEY_BLOCKS] = "a list of objects",
    [KEY_ANY] = "an object or a list",
};

static int wrong_type(const struct origin *origin, const struct key *key) {
    return origin_fault(origin, CO_INVALID, "%s is wanted", wanted[key->kind]);
}

static struct slice text_of(struct json_object *value) {
    return slice_make(json_object_get_string(value), (size_t)json_object_get_string_len(value));
}

static bool is_text(struct json_object *value) {
    return json_object_is_type(value, json_type_string) && !memchr(text_of(value).data, '\0', text_of(value).size);
}

static int number_from_json(const struct origin *origin, const struct key *key, struct json_object *value) {
    bool whole = json_object_is_type(value, json_type_int);
    if (key->kind == KEY_REAL) {
        if (!whole && !json_object_is_type(value, json_type_double)) return wrong_type(origin, key);
        return json_object_get_double(value) < 0 ? origin_fault(origin, CO_INVALID, "the number is negative") : CO_OK;
    }
    if (!whole) return wrong_type(origin, key);
    int64_t number = json_object_get_int64(value);
    if (key->kind == KEY_PORT) return set_port(origin, key, number);
    if (key->kind == KEY_COUNT) return set_count(origin, key, number);
    if (number < 0) return origin_fault(origin, CO_INVALID, "%" PRId64 " is negative", number);
    return set_number(origin, key, json_object_get_uint64(value));
}

static int texts_from_json(const struct origin *origin, const struct key *key, struct json_object *value) {
    int error = CO_OK;
    if (!json_object_is_type(value, json_type_array)) return wrong_type(origin, key);
    for (size_t i = 0; i < json_object_array_length(value); i++) {
        struct json_object *member = json_object_array_get_idx(value, i);
        struct json_step step = {.up = origin->step, .index = i};
        struct origin item = *origin;
        item.step = &step;
        int wrong = is_text(member) ? add_text(&item, key, text_of(member)) : wrong_type(&item, key);
        if (!error) error = wrong;
    }
    return error;
}

static int map_from_json(const struct origin *origin, const struct key *key, struct json_object *value) {
    int error = CO_OK;
    if (!json_object_is_type(value, json_type_object)) return wrong_type(origin, key);
    json_each(value, name, member) {
        struct json_step step = {.up = origin->step, .name = name};
        struct origin item = *origin;
        item.step = &step;
        int wrong = !is_text(member)        ? wrong_type(&item, key)
                    : key->kind == KEY_TTLS ? add_ttl(&item, name, text_of(member))
                                            : add_pair(&item, key, name, json_object_get_string(member));
        if (!error) error = wrong;
    }
    return error;
}

static int blocks_from_json(const struct origin *origin, const struct key *key, struct json_object *value) {
    int error = CO_OK;
    if (key->kind == KEY_BLOCK) return add_block(origin, key, value, key->path);
    if (!json_object_is_type(value, json_type_array)) return wrong_type(origin, key);
    for (size_t i = 0; i < json_object_array_length(value); i++) {
        char name[KEY_PATH_MOST];
        struct json_step step = {.up = origin->step, .index = i};
        struct origin item = *origin;
        item.step = &step;
        snprintf(name, sizeof name, "%s[%zu]", key->path, i);
        int wrong = add_block(&item, key, json_object_array_get_idx(value, i), name);
        if (!error) error = wrong;
    }
    return error;
}

int key_set_json(const struct origin *origin, const struct key *key, struct json_object *value) {
    switch (key->kind) {
        case KEY_BOOL:
            if (!json_object_is_type(value, json_type_boolean)) return wrong_type(origin, key);
            return set_bool(origin, key, json_object_get_boolean(value));
        case KEY_NUMBER:
        case KEY_REAL:
        case KEY_COUNT:
        case KEY_PORT: return number_from_json(origin, key, value);
        case KEY_DURATION: return is_text(value) ? set_duration(origin, key, text_of(value)) : wrong_type(origin, key);
        case KEY_TEXT: return is_text(value) ? set_text(origin, key, text_of(value)) : wrong_type(origin, key);
        case KEY_TEXTS: return texts_from_json(origin, key, value);
        case KEY_MAP:
        case KEY_TTLS: return map_from_json(origin, key, value);
        case KEY_BLOCK:
        case KEY_BLOCKS: return blocks_from_json(origin, key, value);
        case KEY_ANY: {
            bool fine = json_object_is_type(value, json_type_object) || json_object_is_type(value, json_type_array);
            return fine ? CO_OK : wrong_type(origin, key);
        }
    }
    UNREACHABLE();
}

/* ---- from a flag ---- */

static int bool_from_text(const struct origin *origin, const struct key *key, struct slice text) {
    static const char *const words[2][6] = {{"false", "f", "0", "False", "FALSE", "F"},
                                            {"true", "t", "1", "True", "TRUE", "T"}};
    for (int value = 0; value < 2; value++) {
        for (size_t i = 0; i < ARRAY_COUNT(words[value]); i++) {
            if (slice_is(text, words[value][i])) return set_bool(origin, key, value);
        }
    }
    return origin_fault(origin, CO_INVALID, "\"%.*s\" is neither true nor false", (int)text.size, text.data);
}

static int number_from_text(const struct origin *origin, const struct key *key, struct slice text) {
    bool negative = text.size > 0 && text.data[0] == '-';
    uint64_t value;
    int error = u64_parse(negative ? slice_make(text.data + 1, text.size - 1) : text, INT64_MAX, &value);
    if (error == CO_TOOLARGE) return origin_fault(origin, CO_INVALID, "%.*s is too large", (int)text.size, text.data);
    if (error) return origin_fault(origin, CO_INVALID, "\"%.*s\" is not a whole number", (int)text.size, text.data);
    if (key->kind == KEY_COUNT) return set_count(origin, key, negative ? -(int64_t)value : (int64_t)value);
    if (key->kind == KEY_PORT) return set_port(origin, key, negative ? -(int64_t)value : (int64_t)value);
    if (negative) return origin_fault(origin, CO_INVALID, "%.*s is negative", (int)text.size, text.data);
    return set_number(origin, key, value);
}

static int pair_from_text(const struct origin *origin, const struct key *key, struct slice text) {
    const char *colon = text.size ? memchr(text.data, ':', text.size) : NULL;
    if (!colon) return origin_fault(origin, CO_INVALID, "\"%.*s\" is not name:value", (int)text.size, text.data);
    struct arena *arena = &origin->config->arena;
    size_t name_size = (size_t)(colon - text.data);
    return add_pair(origin, key, arena_strndup(arena, text.data, name_size),
                    arena_strndup(arena, colon + 1, text.size - name_size - 1));
}

int key_set_text(const struct origin *origin, const struct key *key, struct slice text) {
    switch (key->kind) {
        case KEY_BOOL: return bool_from_text(origin, key, text);
        case KEY_NUMBER:
        case KEY_COUNT:
        case KEY_PORT: return number_from_text(origin, key, text);
        case KEY_DURATION: return set_duration(origin, key, text);
        case KEY_TEXT: return set_text(origin, key, text);
        case KEY_TEXTS: return add_text(origin, key, text);
        case KEY_MAP: return pair_from_text(origin, key, text);
        case KEY_REAL:
        case KEY_TTLS:
        case KEY_BLOCK:
        case KEY_BLOCKS:
        case KEY_ANY: break; /* no flag stands for these */
    }
    UNREACHABLE();
}

/* ---- back into text ---- */

static void number_print(uint64_t value, struct buffer *out) {
    static const char units[] = "KMGT";
    size_t unit = 0;
    buffer_append_u64(out, value);
    if (value <= 4096 || value % 1024) return;
    while ((value /= 1024) % 1024 == 0 && units[unit + 1]) unit++;
    buffer_printf(out, " (%" PRIu64 " %ciB)", value, units[unit]);
}

void key_bound_print(const struct key *key, uint64_t bound, struct buffer *out) {
    if (key->kind == KEY_DURATION) duration_format(out, (int64_t)bound);
    else number_print(bound, out);
}

void key_value_print(const struct config *config, const struct key *key, struct buffer *out) {
    const void *field = (const char *)config + key->field;
    switch (key->kind) {
        case KEY_BOOL: buffer_append_text(out, *(const bool *)field ? "true" : "false"); return;
        case KEY_NUMBER: number_print(*(const uint64_t *)field, out); return;
        case KEY_COUNT:
        case KEY_PORT: buffer_printf(out, "%" PRId64, *(const int64_t *)field); return;
        case KEY_DURATION: duration_format(out, *(const int64_t *)field); return;
        case KEY_TEXT: buffer_append_text(out, *(const char *const *)field ? *(const char *const *)field : ""); return;
        case KEY_TEXTS:
        case KEY_MAP:
        case KEY_TTLS:
        case KEY_BLOCK:
        case KEY_BLOCKS:
        case KEY_REAL:
        case KEY_ANY: return;
    }
    UNREACHABLE();
}
