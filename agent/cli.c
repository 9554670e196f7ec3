#include "agent/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/consul_words.h"
#include "base/suggest.h"

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

int cli_unknown(const struct cli_command *commands, size_t count, const char *group, const char *name) {
    struct buffer whole = {0}, said = {0};
    const char *blank = group[0] ? " " : "";
    buffer_printf(&whole, "%s%s%s", group, blank, name);
    const struct consul_word *consul = consul_word_find(CONSUL_COMMAND, buffer_slice(&whole));
    struct suggest suggest = suggest_for(slice_text(name));
    for (size_t i = 0; i < count && !consul; i++)
        if (commands[i].help) suggest_try(&suggest, slice_text(commands[i].name));
    if (consul) {
        consul_word_print(&said, consul);
    } else {
        buffer_printf(&said, "unknown command \"%s%s%.60s\", ", group, blank, name);
        if (suggest.count) buffer_append_text(&said, "did you mean "), suggest_print(&said, &suggest);
        if (suggest.count) buffer_append_byte(&said, '?');
        else if (group[0]) buffer_printf(&said, "`coord %s -h` lists them", group);
        else buffer_append_text(&said, "`coord help` lists them");
    }
    fprintf(stderr, "coord: %.*s\n", (int)said.size, said.data);
    buffer_free(&whole);
    buffer_free(&said);
    return 2;
}

static int help(const struct cli_command *commands, size_t count, int argc, char **argv) {
    if (argc < 3 || argv[2][0] == '-') {
        list(commands, count, stdout);
        return 0;
    }
    const struct cli_command *command = find(commands, count, argv[2]);
    if (!command) return cli_unknown(commands, count, "", argv[2]);
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
    return command ? command->run(argc - 1, argv + 1) : cli_unknown(commands, count, "", name);
}
