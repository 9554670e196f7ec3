/* The command line: `coord COMMAND ...`. Each command is one row of a table. */
#ifndef COORD_AGENT_CLI_H
#define COORD_AGENT_CLI_H

#include <stddef.h>

#include "base/memory.h"

struct cli_command {
    const char *name, *help;           /* help NULL: it is not listed */
    int (*run)(int argc, char **argv); /* argv[0] is the command's name; returns the exit code */
};

void cli_sort(struct cli_command *commands, size_t count); /* by name */

/* Runs the command that argv[1] names, with the rest of the arguments. Without one, or with help, -h or --help: the
 * list of commands (`help COMMAND` runs `COMMAND -h`). -v and --version mean version. Anything else: cli_unknown. */
int cli_run(const struct cli_command *commands, size_t count, int argc, char **argv);

/* `name` is none of the commands of `group` ("kv", "operator raft"; "": of the program). Prints a line to stderr with
 * the command that was probably meant, or why this command of Consul is not here. Returns 2. */
int cli_unknown(const struct cli_command *commands, size_t count, const char *group, const char *name);

/* All top-level commands of the program, sorted: those of commands.c and of the routing table. Fills `all` (room for
 * CLI_COMMANDS_MOST); the names of the latter are in `names`. */
#define CLI_COMMANDS_MOST 80
size_t cli_commands(struct cli_command *all, struct arena *names);

/* The program. */
int cli_main(int argc, char **argv);

#endif
