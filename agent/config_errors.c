/* The list of all errors of a configuration. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

#include "agent/config_internal.h"
#include "base/log.h"

int config_wrong(struct config *config, struct fault *fault, int code, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *at = text; *at; at++)
        if (iscntrl((unsigned char)*at)) *at = '?';
    fault_set(fault, code, "%s", text);
    if (config_errors_full(config)) config->more_errors++;
    else texts_append(config, &config->errors, text);
    return code;
}

void config_errors_print(const struct config *config, const char *before, FILE *out) {
    for (size_t i = 0; i < config->errors.count; i++) fprintf(out, "%s%s\n", before, config->errors.items[i]);
    if (config->more_errors) fprintf(out, "%sand %zu more\n", before, config->more_errors);
}

void config_errors_log(const struct config *config) {
    for (size_t i = 0; i < config->errors.count; i++) log_error("config", "%s", config->errors.items[i]);
    if (config->more_errors) log_error("config", "and %zu more", config->more_errors);
}
