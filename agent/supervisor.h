/* The process that ends a command in time. `coord lock` forks it; it starts the command, and watches the time:
 *
 *     coord lock <--socket--> supervisor --fork--> command, the leader of a process group of its own
 *
 * - It ends the command's group by its own clock, TERM and then KILL, before its deadline. `coord lock` tells it later
 *   deadlines. So nothing that hangs or stops `coord lock` (a request, SIGSTOP) delays the end of the command.
 * - `coord lock` has gone (SIGKILL): the socket ends, and the supervisor ends the command. The supervisor has gone:
 *   PR_SET_PDEATHSIG kills the command, and `coord lock` the rest of its group.
 * - When the command has ended, the supervisor kills the rest of its group, and reports the end after that has ended
 *   too. The supervisor adopts orphans (PR_SET_CHILD_SUBREAPER), so that it sees their ends.
 * Processes that left the group (setsid, a shell with job control) are not reached; the command itself always ends.
 *
 * Times are milliseconds of CLOCK_BOOTTIME. */
#ifndef COORD_AGENT_SUPERVISOR_H
#define COORD_AGENT_SUPERVISOR_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SUPERVISOR_NEVER    UINT64_MAX
#define SUPERVISOR_GRACE_MS 10000 /* from TERM to KILL at most, when `coord lock` has gone */

/* -- decisions ---------------------------------------------------------------------------------------------------- */

struct supervisor_times {
    uint64_t term_ms, kill_ms;
};
/* The times of the signals, for a grant that lasts `not_before_ms` from `sent_ms` on: TERM after two thirds; KILL a
 * fifth, at most 2 s, before the end, because a busy machine wakes processes late. SUPERVISOR_NEVER: never. */
struct supervisor_times supervisor_times(uint64_t sent_ms, uint64_t not_before_ms);

struct supervision {
    struct supervisor_times times;
    bool ending; /* TERM or KILL was sent, so the times do not change any more */
    bool term_passed_on, killed;
};
enum supervisor_act { SUPERVISOR_NOTHING, SUPERVISOR_TERM, SUPERVISOR_KILL };

void supervision_deadline(struct supervision *of, uint64_t sent_ms, uint64_t not_before_ms);
/* `coord lock` has gone: TERM; but KILL if it has passed on a TERM already, because it was probably killed when that
 * had no effect. */
void supervision_orphaned(struct supervision *of, uint64_t now_ms);
void supervision_kill(struct supervision *of, uint64_t now_ms);
/* The signal to send to the group now; it counts as sent. SUPERVISOR_NOTHING: call it again at *until_ms. */
enum supervisor_act supervision_next(struct supervision *of, uint64_t now_ms, uint64_t *until_ms);

/* -- the process -------------------------------------------------------------------------------------------------- */

struct supervisor {
    pid_t pid;
    int fd;         /* when it is readable, call supervisor_ended */
    pid_t group;    /* of the command; 0: not known yet */
    int exec_errno; /* of a command that could not be started; 0: none */
    bool terminal;  /* the command has the terminal, until it has ended */
};

/* Forks the supervisor, which forks the command: argv[0] is looked for in $PATH, the environment is this process's, the
 * signal mask is `mask`. When this process has the terminal for itself, the command gets it, and cannot be stopped from
 * there (SIGTSTP is ignored), because a stopped command would lose its lock. The caller ignores SIGPIPE, the command
 * does not. */
struct supervisor supervisor_start(char **argv, const sigset_t *mask, uint64_t sent_ms, uint64_t not_before_ms);

void supervisor_tell(const struct supervisor *supervisor, uint64_t sent_ms, uint64_t not_before_ms);
void supervisor_signal(const struct supervisor *supervisor, int signal); /* to the command's group */
void supervisor_kill(const struct supervisor *supervisor);

struct supervisor_end {
    int exec_errno; /* the command could not be started; 0: it was */
    int status;     /* as waitpid gives it */
    bool by_us;     /* TERM or KILL was sent to it, because the deadline came or for supervisor_kill */
};
/* When `fd` is readable: has the command ended? Then the supervisor has too, and all is freed. */
bool supervisor_ended(struct supervisor *supervisor, struct supervisor_end *end);

#endif
