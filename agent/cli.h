/* The command line: `coord COMMAND ...`. One row a command; adding one is adding its row. */
#ifndef COORD_AGENT_CLI_H
#define COORD_AGENT_CLI_H

#include <stddef.h>

struct cli_command {
    const char *name, *help;           /* help NULL: it is not listed */
    int (*run)(int argc, char **argv); /* argv[0] is the command's name; returns the exit code */
};

void cli_sort(struct cli_command *commands, size_t count); /* by name */

/* Runs the command that argv[1] names, with what follows. Without one, or with help, -h or --help: the list of
 * commands (`help COMMAND` runs `COMMAND -h`). -v and --version mean version. Anything else: a line that names the
 * nearest command, and 2. */
int cli_run(const struct cli_command *commands, size_t count, int argc, char **argv);

/* The program. */
int cli_main(int argc, char **argv);

#endif
