/* Programs that checks run: started, read, timed and ended without the loop waiting for any of it.
 *
 *     QUEUED --a pool thread is free--> SPAWNING --posix_spawn--> RUNNING --exits--> reaped, freed
 *
 * A program has a process group of its own, /dev/null as input, and one pipe for both outputs, of which the last bytes
 * are kept while it is read, so that it is neither stopped by a full pipe nor costs memory. When the program has ended,
 * its time is over, or the attempt is cancelled, the agent kills all that is left of its group (SIGKILL, as Consul
 * does): a process that is to outlive the check has to leave the group (setsid). The attempt is over at the timeout
 * even if the kernel cannot end the program yet; the next attempt of the same check then waits until it is gone, so
 * that they never pile up.
 *
 * posix_spawn does not copy the page tables of a large process, as fork does, but the caller sleeps until the new
 * program is loaded, which may hang on a dead file system: so threads of libuv's pool call it, at most
 * PROGRAM_SPAWNS_MOST at a time. A pidfd (Linux 5.3) tells when the program has ended, not SIGCHLD.
 *
 * When the agent itself is killed, program_keeper.h ends the programs that it leaves running, because the next agent
 * runs the checks anew. */
#ifndef COORD_HEALTH_CHECK_PROGRAM_H
#define COORD_HEALTH_CHECK_PROGRAM_H

#include <sys/types.h>

#include "health/check_runner.h"

#define PROGRAM_SPAWNS_MOST 2

struct program_end {
    int error; /* errno: it could not be started */
    bool timed_out;
    int wait_status;       /* of waitpid, otherwise */
    struct slice output;   /* the last bytes, valid during the call */
    uint64_t output_total; /* all bytes that came */
};

struct program;
typedef void (*program_judge)(const struct program *program, const struct program_end *end, Pb__Status *status,
                              struct buffer *text);

struct program {
    struct run run;
    struct list link; /* in runners->programs */
    enum { PROGRAM_QUEUED, PROGRAM_SPAWNING, PROGRAM_RUNNING, PROGRAM_ENDED } state;
    bool reported;    /* or cancelled: nobody waits for it any more */
    bool polled;      /* its two polls are open */
    unsigned handles; /* not closed yet */
    char *owner;      /* the check's id */
    char **argv;      /* NULL-terminated */
    program_judge judge;
    int64_t timeout_ns;
    uv_timer_t timer;
    uv_work_t work;
    uv_poll_t output, end;
    /* Written by the pool thread while SPAWNING. */
    int error, pipe, pidfd;
    pid_t pid;
    struct program_keeper keeper; /* of an attempt that begins it as well */
    int keeper_error;
    bool begins_keeper;
    /* Ring of the last `tail_max` bytes. */
    char *tail;
    size_t tail_max;
    uint64_t output_total;
};

/* Copies `argv` (NULL-terminated). The program is looked for in PATH unless its name has a slash; no shell runs it. */
struct run *run_program_start(struct runners *runners, const struct check_definition *definition, char *const *argv,
                              uint32_t output_max, program_judge judge);

/* Appends the text that all judges share: the program was not started, or ran too long. False: it ended by itself. */
bool program_failed(const struct program *program, const struct program_end *end, struct buffer *text);
/* Appends the program's output, after a line that says so when it is not all of it. */
void program_append_output(const struct program_end *end, struct buffer *text);

/* Judges the output of `systemctl show` about a unit (check_os_service.c). */
void os_service_judge(const char *unit, const struct program_end *end, Pb__Status *status, struct buffer *text);

#endif
