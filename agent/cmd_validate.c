/* coord validate: checks configuration files as an agent would, without an agent. */
#include "agent/cmd.h"
#include "agent/config.h"
#include "agent/definitions.h"
#include "agent/outputs.h"
#include "base/check.h"

static int judge(struct config *config, char **paths) {
    struct fault fault = {0};
    for (; *paths; paths++) config_add_path(config, *paths, &fault);
    /* Flags of the agent may set these, so a file without them is no mistake. */
    if (!config->data_dir) config->data_dir = "/";
    if (config->retry_join_wan.count + config->start_join_wan.count || config->bootstrap || config->bootstrap_expect)
        config->server = true;
    config_finish(config, &fault);
    outputs_check(config, &fault);
    definitions_check(config, &fault);
    return fault.code;
}

int cmd_validate(int argc, char **argv) {
    static const char usage[] = "coord validate [FLAGS] FILE_OR_FOLDER ...";
    bool quiet = false;
    const struct cmd_flag flags[] = {{"quiet", CMD_BOOL, &quiet, "say nothing where all is well"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), NULL, usage, &rest);
    if (code >= 0) return code;
    if (!*rest) return cmd_wrong(usage, "a FILE_OR_FOLDER is wanted");
    struct config config;
    config_init(&config);
    int error = judge(&config, rest);
    config_errors_print(&config, "coord validate: ", stderr);
    if (config.guard_count) {
        struct buffer line = {0};
        for (size_t i = 0; i < config.guard_count; i++) {
            line.size = 0;
            config_guard_line(&config.guards[i], &line);
            fprintf(stderr, "coord validate: %.*s\n", (int)line.size, line.data);
        }
        buffer_free(&line);
        error = CO_UNSUPPORTED;
    }
    if (!error && !quiet) puts("Configuration is valid!");
    config_free(&config);
    return error ? CMD_EXIT_MISTAKE : 0;
}
