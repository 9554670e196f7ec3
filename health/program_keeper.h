/* Ends the programs of an agent that ends itself without a chance to do so (kill -9, the OOM killer, a crash): the
 * keeper is a small process, /bin/sh with a loop of a few lines. The agent tells it of each process group that begins
 * and ends, over a socket that only the agent holds open. When the socket closes, the keeper kills the groups that are
 * left.
 *
 * PR_SET_PDEATHSIG would reach the program alone, and not its children; under systemd the unit's cgroup does the same
 * as the keeper, elsewhere nothing does. An agent that dies between the start of a program and the message to the
 * keeper leaves that program behind.
 *
 * The keeper has a session of its own and ignores the signals that ask an agent to end, because it has to outlive the
 * agent. */
#ifndef COORD_HEALTH_PROGRAM_KEEPER_H
#define COORD_HEALTH_PROGRAM_KEEPER_H

#include <stdbool.h>
#include <sys/types.h>

struct program_keeper {
    pid_t pid; /* 0: there is none */
    int socket;
};

/* Any thread; sleeps until the shell is loaded. 0 or an errno value. */
int program_keeper_start(struct program_keeper *keeper);
/* Tell the keeper that the group begins, or that it was killed and is about to be reaped: not later, because its number
 * may be another group's then. They never block. False: the keeper does not listen (any more), and should be ended. */
bool program_keeper_began(const struct program_keeper *keeper, pid_t group);
bool program_keeper_ended(const struct program_keeper *keeper, pid_t group);
/* Ends the keeper, which then kills nothing. */
void program_keeper_end(struct program_keeper *keeper);

#endif
