/* The process: configuration in, running roles out. */
#ifndef COORD_AGENT_AGENT_H
#define COORD_AGENT_AGENT_H

#include "registry/machine.h"

#define COORD_VERSION "0.1.0"

/* The state machine's modules, NULL-terminated. */
extern const struct machine_module *const agent_modules[];

/* `coord agent ...`: argv[0] is "agent". Returns the exit code. */
int agent_main(int argc, char **argv);

#endif
