/* The process: configuration in, running roles out. */
#ifndef COORD_AGENT_AGENT_H
#define COORD_AGENT_AGENT_H

#define COORD_VERSION "0.1.0"

/* `coord agent ...`: argv[0] is "agent". Returns the exit code. */
int agent_main(int argc, char **argv);

#endif
