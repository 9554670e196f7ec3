/* Ends the programs of an agent that ends itself without a chance to do so (kill -9, the OOM killer, a crash): a
 * small process, /bin/sh with a loop of a few lines, that is told of each process group that begins and ends, over a
 * socket that only the agent holds open. At the end of the socket it kills what is left of them.
 *
 * PR_SET_PDEATHSIG would reach the program alone, and not what that has started; under systemd the unit's cgroup
 * does the same, elsewhere nothing does. What dies in the moment between a program's start and the telling leaves
 * that one behind.
 *
 * It has a session of its own and ignores the signals that ask an agent to end, since it has to outlive it. */
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
/* The group begins; or it is killed, and about to be reaped: before its number can be another's. Never blocks.
 * False: the keeper does not listen (any more), and should be ended. */
bool program_keeper_began(const struct program_keeper *keeper, pid_t group);
bool program_keeper_ended(const struct program_keeper *keeper, pid_t group);
/* It goes, and kills nothing. */
void program_keeper_end(struct program_keeper *keeper);

#endif
