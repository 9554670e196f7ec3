/* Programs that checks run: started, read, timed and ended without the loop waiting for any of it.
 *
 *     QUEUED --a pool thread is free--> SPAWNING --posix_spawn--> RUNNING --exits--> reaped, freed
 *
 * A program has a process group of its own, /dev/null as input, and one pipe for both outputs, of which the last
 * bytes are kept while it is read, so that it is neither stopped by a full pipe nor costs memory. When it has ended,
 * or its time has, or the attempt is cancelled, all that is left of its group is killed (SIGKILL, as Consul does):
 * what is to outlive a check leaves the group (setsid). The attempt is over at the timeout even if the kernel cannot
 * end the program yet; the next attempt of the same check then waits until it is gone, so that they never pile up.
 *
 * posix_spawn does not copy the page tables of a large process, as fork does, but the caller sleeps until the new
 * program is loaded, which may hang on a dead file system: that is why it is done on libuv's pool, at most
 * PROGRAM_SPAWNS_MOST at a time. Ends are seen by pidfd (Linux 5.3), not by SIGCHLD.
 *
 * When the agent itself is killed, program_keeper.h ends what it leaves running: the next one runs the check anew. */
#ifndef COORD_HEALTH_RUNNER_PROGRAM_H
#define COORD_HEALTH_RUNNER_PROGRAM_H

#include <sys/types.h>

#include "health/runner.h"

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
    struct program_keeper keeper; /* where this attempt begins it as well */
    int keeper_error;
    bool begins_keeper;
    /* Ring of the last `tail_max` bytes. */
    char *tail;
    size_t tail_max;
    uint64_t output_total;
};

/* Copies `argv` (NULL-terminated). Looked for in PATH unless there is a slash in it; never run by a shell. */
struct run *run_program_start(struct runners *runners, const struct check_definition *definition, char *const *argv,
                              uint32_t output_max, program_judge judge);

/* What every judge says of a program that was not started, or ran too long; false: it ended by itself. */
bool program_failed(const struct program *program, const struct program_end *end, struct buffer *text);
/* Its output, with a line before it where that is not all. */
void program_append_output(const struct program_end *end, struct buffer *text);

/* What `systemctl show` says of a unit (runner_os_service.c). */
void os_service_judge(const char *unit, const struct program_end *end, Pb__Status *status, struct buffer *text);

#endif
