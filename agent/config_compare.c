/* Finds the changes that a reload cannot apply, by comparing two configurations key by key, as they were given. */
#include <inttypes.h>
#include <stdio.h>

#include "agent/config_internal.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"

/* Does a reload apply changes of this key? */
static bool is_reloaded(const struct key *key) {
    static const char *const certificates[] = {"ca_file", "ca_path", "cert_file", "key_file"};
    const char *last = strrchr(key->path, '.');
    bool tls = !last || strncmp(key->path, "tls.", 4) == 0;
    for (size_t i = 0; tls && i < ARRAY_COUNT(certificates); i++)
        if (strcmp(last ? last + 1 : key->path, certificates[i]) == 0) return true;
    return key->kind == KEY_BLOCK || key->kind == KEY_BLOCKS || strcmp(key->path, "log_level") == 0;
}

static void texts_write(const struct config_texts *texts, struct buffer *out) {
    buffer_append_byte(out, '[');
    for (size_t i = 0; i < texts->count; i++) buffer_printf(out, "%s\"%s\"", i ? ", " : "", texts->items[i]);
    buffer_append_byte(out, ']');
}

static void pairs_write(const struct config_pairs *pairs, struct buffer *out) {
    buffer_append_byte(out, '{');
    for (size_t i = 0; i < pairs->count; i++)
        buffer_printf(out, "%s\"%s\": \"%s\"", i ? ", " : "", pairs->items[i].name, pairs->items[i].value);
    buffer_append_byte(out, '}');
}

static void ttls_write(const struct config *config, struct buffer *out) {
    buffer_append_byte(out, '{');
    for (size_t i = 0; i < config->service_ttl_count; i++) {
        buffer_printf(out, "%s\"%s\": \"", i ? ", " : "", config->service_ttls[i].name);
        duration_format(out, config->service_ttls[i].ttl_ns);
        buffer_append_byte(out, '"');
    }
    buffer_append_byte(out, '}');
}

void key_value_write(const struct config *config, const struct key *key, struct buffer *out) {
    const void *field = (const char *)config + key->field;
    switch (key->kind) {
        case KEY_TEXT: {
            const char *text = *(const char *const *)field;
            /* 32 bits of a hash say next to nothing about a key. */
            if (text && key_is_secret(key)) buffer_printf(out, "a key (%08x)", (unsigned)hash64(text, strlen(text)));
            else if (text) buffer_printf(out, "\"%s\"", text);
            else buffer_append_text(out, "not given");
            return;
        }
        case KEY_DURATION:
            buffer_append_byte(out, '"');
            duration_format(out, *(const int64_t *)field);
            buffer_append_byte(out, '"');
            return;
        case KEY_TEXTS: texts_write(field, out); return;
        case KEY_MAP: pairs_write(field, out); return;
        case KEY_TTLS: ttls_write(config, out); return;
        default: key_value_print(config, key, out); return;
    }
}

void config_note_given(struct config *config) {
    size_t count = 0;
    while (config_keys[count].path) count++;
    config->as_given = arena_zalloc(&config->arena, count * sizeof *config->as_given);
    for (size_t i = 0; i < count; i++) {
        const struct key *key = &config_keys[i];
        struct buffer value = {0};
        if (!key_has_effect(key) || is_reloaded(key)) continue;
        key_value_write(config, key, &value);
        config->as_given[i] = arena_strndup(&config->arena, value.data ? value.data : "", value.size);
        buffer_free(&value);
    }
}

void config_differences(const struct config *was, struct config *now, struct config_texts *lines) {
    *lines = (struct config_texts){0};
    for (size_t i = 0; config_keys[i].path; i++) {
        const char *before = was->as_given[i], *after = now->as_given[i];
        if (!before || strcmp(before, after) == 0) continue;
        struct buffer line = {0};
        buffer_printf(&line, "%s: %.80s counts after a restart; it is %.80s until then", config_keys[i].path, after,
                      before);
        buffer_append_byte(&line, '\0');
        texts_append(now, lines, line.data);
        buffer_free(&line);
    }
}
