#include "agent/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static void list(const struct cli_command *commands, size_t count, FILE *out) {
    fputs("usage: coord COMMAND [ARGS]\n\n", out);
    for (size_t i = 0; i < count; i++)
        if (commands[i].help) fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].help);
    fputs("\n`coord help COMMAND` tells more. Exit codes: 0 done, 1 refused (the answer is no), 2 a mistake,", out);
    fputs(" 3 nobody could say\n(no agent, no leader); of lock, elect and barrier that of the command they ran,", out);
    fputs(" else their own.\n", out);
}

static const struct cli_command *find(const struct cli_command *commands, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    }
    return NULL;
}

/* NULL when nothing looks alike. */
static const char *nearest(const struct cli_command *commands, size_t count, const char *name) {
    const char *best = NULL;
    unsigned least = 4;
    for (size_t i = 0; i < count; i++) {
        unsigned distance = edit_distance(slice_text(name), slice_text(commands[i].name));
        if (distance >= least) continue;
        least = distance;
        best = commands[i].name;
    }
    return best;
}

static int unknown(const struct cli_command *commands, size_t count, const char *name) {
    const char *meant = nearest(commands, count, name);
    fprintf(stderr, "coord: unknown command \"%.60s\"", name);
    if (meant) {
        fprintf(stderr, ", did you mean \"%s\"?\n", meant);
    } else {
        fputs(", `coord help` lists them\n", stderr);
    }
    return 2;
}

static int help(const struct cli_command *commands, size_t count, int argc, char **argv) {
    if (argc < 3) {
        list(commands, count, stdout);
        return 0;
    }
    const struct cli_command *command = find(commands, count, argv[2]);
    if (!command) return unknown(commands, count, argv[2]);
    char flag[] = "-h", *arguments[] = {argv[2], flag, NULL};
    return command->run(2, arguments);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct cli_command *)a)->name, ((const struct cli_command *)b)->name);
}

void cli_sort(struct cli_command *commands, size_t count) { qsort(commands, count, sizeof *commands, by_name); }

int cli_run(const struct cli_command *commands, size_t count, int argc, char **argv) {
    if (argc < 2) {
        list(commands, count, stderr);
        return 2;
    }
    const char *name = argv[1];
    if (strcmp(name, "help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "-help") == 0 ||
        strcmp(name, "--help") == 0) {
        return help(commands, count, argc, argv);
    }
    if (strcmp(name, "-v") == 0 || strcmp(name, "-version") == 0 || strcmp(name, "--version") == 0) name = "version";
    const struct cli_command *command = find(commands, count, name);
    return command ? command->run(argc - 1, argv + 1) : unknown(commands, count, name);
}
