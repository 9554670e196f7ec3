/* The arguments of `coord lock`, `coord elect` and `coord barrier`: [FLAGS] NAME [FLAGS] -- COMMAND [ARGS]. */
#ifndef COORD_AGENT_CMD_HOLD_H
#define COORD_AGENT_CMD_HOLD_H

#include "agent/cmd.h"
#include "agent/hold_run.h"

#define CMD_HOLD_TTL "15s"

struct cmd_hold {
    const char *usage;
    const struct cmd_flag *flags; /* of its own, at most 8 */
    size_t count;
    bool command_optional;
};

/* Sets run's client, name, ttl, argv, and rules.ttl_ms and rules.wait_ms. -1: go on; else the exit code (0 after -h; 1
 * for wrong arguments, with a line on stderr). */
int cmd_hold_words(int argc, char **argv, const struct cmd_hold *of, struct hold_run *run);

#endif
