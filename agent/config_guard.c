/* Keys that ask for protection which coord does not have yet. */
#include <string.h>

#include "agent/config_internal.h"
#include "base/log.h"

/* A later source may withdraw the demand of an earlier one, but one member of a list may not withdraw that of
 * another. */
static void take_back(struct config *config, const struct key *key) {
    size_t kept = 0;
    if (strstr(key->path, ".[].")) return;
    for (size_t i = 0; i < config->guard_count; i++)
        if (strcmp(config->guards[i].key, key->path) != 0) config->guards[kept++] = config->guards[i];
    config->guard_count = kept;
}

static bool is_known(const struct config *config, const struct key *key, const char *source) {
    for (size_t i = 0; i < config->guard_count; i++)
        if (strcmp(config->guards[i].key, key->path) == 0 && strcmp(config->guards[i].source, source) == 0) return true;
    return false;
}

void key_guard(const struct origin *origin, const struct key *key, bool asked) {
    struct config *config = origin->config;
    if (!key->guard) return;
    if (!asked) take_back(config, key);
    if (!asked || is_known(config, key, origin->source)) return;
    config->guards = items_grow(config, config->guards, config->guard_count, sizeof *config->guards);
    config->guards[config->guard_count++] =
        (struct config_guard){.key = key->path,
                              .source = arena_strndup(&config->arena, origin->source, strlen(origin->source)),
                              .place = origin_text(origin),
                              .guard = key->guard,
                              .by_flag = !origin->path};
}

void config_guard_line(const struct config_guard *guard, struct buffer *line) {
    buffer_printf(line, "%s: ", guard->place);
    if (!guard->by_flag) buffer_printf(line, "%s: ", guard->key);
    buffer_printf(line, "%s is not there yet", guard->guard);
}

void config_guards_log(const struct config *config) {
    for (size_t i = 0; i < config->guard_count; i++) {
        struct buffer line = {0};
        config_guard_line(&config->guards[i], &line);
        if (config->insecure_ignore_security)
            log_warn("config", "%.*s: ignored, because of -insecure-ignore-security", (int)line.size, line.data);
        else log_error("config", "%.*s", (int)line.size, line.data);
        buffer_free(&line);
    }
}

/* Prints all guards at once, so that nobody has to find one key after the other. */
void config_guards_print(const struct config *config, FILE *out) {
    for (size_t i = 0; i < config->guard_count; i++) {
        struct buffer line = {0};
        config_guard_line(&config->guards[i], &line);
        fprintf(out, "coord agent: %.*s\n", (int)line.size, line.data);
        buffer_free(&line);
    }
    fputs(
        "coord agent: not started, because this configuration counts on that protection; for a trial without it: "
        "-insecure-ignore-security\n",
        out);
}

int config_require_protection(const struct config *config, struct fault *fault) {
    if (config->guard_count == 0 || config->insecure_ignore_security) return CO_OK;
    struct buffer line = {0};
    config_guard_line(&config->guards[0], &line);
    fault_set(fault, CO_UNSUPPORTED, "%.*s", (int)line.size, line.data);
    buffer_free(&line);
    return fault->code;
}
