#include "health/check_program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/text.h"

#define BLOCK        65536
#define DRAIN_BLOCKS 16   /* 1 MiB: an unprivileged process can make a pipe hold no more */
#define LATE_MS      1000 /* how often the agent looks after a program that was killed and has not ended */

extern char **environ;

static void programs_next(struct runners *runners);

/* -- starting (pool thread) --------------------------------------------------------------------------------------- */

/* Returns an errno value. The program would inherit that the agent ignores SIGPIPE, and the signals that this thread
 * blocks, so both are reset. */
static int spawn_with(struct program *program, int write_end) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, pipe;
    sigemptyset(&none);
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, write_end, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, write_end, STDERR_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &pipe);
    int error = posix_spawnp(&program->pid, program->argv[0], &actions, &attributes, program->argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

static void kill_group(pid_t pid) {
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL); /* should it have left its own group */
}

static int spawn(struct program *program) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return errno;
    int error = fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0 ? errno : spawn_with(program, ends[1]);
    close(ends[1]);
    if (error == 0) {
        program->pidfd = (int)syscall(SYS_pidfd_open, program->pid, 0);
        program->pipe = ends[0];
        if (program->pidfd >= 0) return 0;
        error = errno;
        kill_group(program->pid);
        while (waitpid(program->pid, NULL, 0) < 0 && errno == EINTR) continue;
    }
    close(ends[0]);
    program->pipe = -1;
    return error;
}

static void on_work(uv_work_t *work) {
    struct program *program = work->data;
    if (program->begins_keeper) program->keeper_error = program_keeper_start(&program->keeper);
    program->error = spawn(program);
}

/* -- the keeper, which ends them when the agent is killed (loop thread) ------------------------------------------- */

/* The keeper is gone, or stands still: the next program begins another. */
static void keeper_lost(struct runners *runners) {
    log_warn(
        "health",
        "the process that ends programs of checks when the agent is killed has died; the next program starts another");
    program_keeper_end(&runners->keeper);
}

static void keeper_take(struct program *program) {
    struct runners *runners = program->run.runners;
    if (!program->begins_keeper) return;
    runners->keeper_begins = false;
    if (program->keeper_error) {
        runners->keeper_failed = true; /* said once */
        log_warn("health", "programs of checks will outlive an agent that is killed: /bin/sh: %s",
                 uv_strerror(-program->keeper_error));
        return;
    }
    runners->keeper = program->keeper;
    LIST_FOREACH(link, &runners->programs) {
        const struct program *other = LIST_ENTRY(link, struct program, link);
        bool told = other->state != PROGRAM_RUNNING || program_keeper_began(&runners->keeper, other->pid);
        if (told) continue;
        keeper_lost(runners);
        return;
    }
}

static void keeper_tell(struct program *program, bool (*tell)(const struct program_keeper *keeper, pid_t group)) {
    struct runners *runners = program->run.runners;
    if (runners->keeper.pid && !tell(&runners->keeper, program->pid)) keeper_lost(runners);
}

/* -- the end ------------------------------------------------------------------------------------------------------ */

static void program_free(struct program *program) {
    struct runners *runners = program->run.runners;
    if (program->pipe >= 0) close(program->pipe);
    if (program->pidfd >= 0) close(program->pidfd);
    for (size_t i = 0; program->argv[i]; i++) free(program->argv[i]);
    free(program->argv);
    free(program->owner);
    free(program->tail);
    free(program);
    runners_left(runners);
}

static void on_closed(uv_handle_t *handle) {
    struct program *program = handle->data;
    if (--program->handles == 0) program_free(program);
}

/* To be called before the descriptor is closed, because uv_close makes epoll forget whatever has that number at the
 * time. */
static void output_close(struct program *program) {
    if (!uv_is_closing((uv_handle_t *)&program->output)) uv_close((uv_handle_t *)&program->output, on_closed);
}

/* The program has ended, or never started: closes its handles, and then frees it. */
static void program_release(struct program *program) {
    struct runners *runners = program->run.runners;
    program->state = PROGRAM_ENDED;
    list_remove(&program->link);
    uv_close((uv_handle_t *)&program->timer, on_closed);
    if (program->polled) {
        output_close(program);
        uv_close((uv_handle_t *)&program->end, on_closed);
    }
    programs_next(runners);
}

static void report(struct program *program, struct program_end *end) {
    if (program->reported) return;
    program->reported = true;
    struct buffer kept = {0}, text = {0};
    Pb__Status status = PB__STATUS__CRITICAL;
    size_t size = program->output_total < program->tail_max ? program->output_total : program->tail_max;
    size_t at = program->output_total > size ? program->output_total % program->tail_max : 0;
    buffer_append(&kept, program->tail + at, size - at);
    buffer_append(&kept, program->tail, at);
    end->output = buffer_slice(&kept);
    end->output_total = program->output_total;
    program->judge(program, end, &status, &text);
    if (program->run.done) program->run.done(program->run.data, status, buffer_slice(&text));
    buffer_free(&kept);
    buffer_free(&text);
}

/* The program was killed and is still there: the kernel cannot end a process that waits for a disk that does not
 * answer. */
static void on_late(uv_timer_t *timer) {
    struct program *program = timer->data;
    if (program->state == PROGRAM_RUNNING && program->run.runners->closed) {
        log_warn("health", "a program of a check is left behind: it was killed and does not end check=%s pid=%d",
                 program->owner, (int)program->pid);
        program_release(program);
    }
}

/* Ends a program that nobody waits for any more. */
static void put_down(struct program *program) {
    if (program->state == PROGRAM_QUEUED) {
        program_release(program);
        return;
    }
    if (program->state == PROGRAM_RUNNING) {
        kill_group(program->pid);
        output_close(program);
        close(program->pipe);
        program->pipe = -1;
    }
    uv_timer_start(&program->timer, on_late, LATE_MS, LATE_MS);
}

static void on_timeout(uv_timer_t *timer) {
    struct program *program = timer->data;
    struct program_end end = {.timed_out = true};
    report(program, &end);
    put_down(program);
}

static void program_cancel(struct run *run) {
    struct program *program = (struct program *)run;
    program->reported = true;
    put_down(program);
}

/* -- running ------------------------------------------------------------------------------------------------------ */

static void keep(struct program *program, const char *bytes, size_t size) {
    size_t skip = size > program->tail_max ? size - program->tail_max : 0;
    program->output_total += skip;
    for (size_t at = skip; at < size;) {
        size_t place = program->output_total % program->tail_max, room = program->tail_max - place;
        size_t take = size - at < room ? size - at : room;
        memcpy(program->tail + place, bytes + at, take);
        program->output_total += take;
        at += take;
    }
}

/* Reads one block; false: there is nothing more now. */
static bool read_block(struct program *program) {
    char block[BLOCK];
    ssize_t got = read(program->pipe, block, sizeof block);
    if (got > 0) {
        keep(program, block, (size_t)got);
        return true;
    }
    if (got < 0 && errno == EINTR) return true;
    if (got == 0 || errno != EAGAIN) uv_poll_stop(&program->output); /* nobody can write any more */
    return false;
}

static void on_output(uv_poll_t *poll, int status, int events) {
    (void)status, (void)events;
    (void)read_block(poll->data);
}

static void on_end(uv_poll_t *poll, int status, int events) {
    struct program *program = poll->data;
    struct program_end end = {0};
    (void)status, (void)events;
    kill_group(program->pid); /* not reaped yet: the number of the group is still its own */
    for (int i = 0; program->pipe >= 0 && i < DRAIN_BLOCKS && read_block(program); i++) continue;
    keeper_tell(program, program_keeper_ended);
    pid_t reaped;
    while ((reaped = waitpid(program->pid, &end.wait_status, WNOHANG)) < 0 && errno == EINTR) continue;
    if (reaped == 0) return; /* woken too early */
    if (reaped < 0) end.error = errno;
    program->state = PROGRAM_ENDED; /* `done` may want the next attempt at once */
    report(program, &end);
    program_release(program);
}

static void watch(struct program *program) {
    uv_loop_t *loop = program->run.runners->loop;
    CHECK(uv_poll_init(loop, &program->output, program->pipe) == 0);
    CHECK(uv_poll_init(loop, &program->end, program->pidfd) == 0);
    program->output.data = program->end.data = program;
    program->handles += 2;
    program->polled = true;
    uv_poll_start(&program->output, UV_READABLE, on_output);
    uv_poll_start(&program->end, UV_READABLE, on_end);
}

static void after_work(uv_work_t *work, int status) {
    struct program *program = work->data;
    struct runners *runners = program->run.runners;
    runners->spawning--;
    if (status != 0) program->error = program->keeper_error = ECANCELED;
    keeper_take(program);
    if (program->error) {
        struct program_end end = {.error = program->error};
        program->state = PROGRAM_ENDED;
        report(program, &end);
        program_release(program);
        return;
    }
    program->state = PROGRAM_RUNNING;
    keeper_tell(program, program_keeper_began);
    watch(program);
    if (program->reported) put_down(program);
    programs_next(runners);
}

/* True: the program of the check's attempt before has not ended yet. */
static bool must_wait(const struct program *program) {
    LIST_FOREACH(link, &program->run.runners->programs) {
        const struct program *other = LIST_ENTRY(link, struct program, link);
        bool alive = other->state == PROGRAM_SPAWNING || other->state == PROGRAM_RUNNING;
        if (alive && strcmp(other->owner, program->owner) == 0) return true;
    }
    return false;
}

static void programs_next(struct runners *runners) {
    LIST_FOREACH(link, &runners->programs) {
        struct program *program = LIST_ENTRY(link, struct program, link);
        if (runners->spawning >= PROGRAM_SPAWNS_MOST) return;
        if (program->state != PROGRAM_QUEUED || must_wait(program)) continue;
        program->state = PROGRAM_SPAWNING;
        program->begins_keeper = runners->keeper.pid == 0 && !runners->keeper_begins && !runners->keeper_failed;
        runners->keeper_begins = runners->keeper_begins || program->begins_keeper;
        runners->spawning++;
        CHECK(uv_queue_work(runners->loop, &program->work, on_work, after_work) == 0);
    }
}

struct run *run_program_start(struct runners *runners, const struct check_definition *definition, char *const *argv,
                              uint32_t output_max, program_judge judge) {
    struct program *program = mem_zalloc(sizeof *program);
    program->run = (struct run){.runners = runners, .cancel = program_cancel};
    runners->open++;
    size_t count = 0;
    while (argv[count]) count++;
    program->argv = mem_zalloc((count + 1) * sizeof *program->argv);
    for (size_t i = 0; i < count; i++) program->argv[i] = mem_strdup(argv[i]);
    program->owner = mem_strdup(definition->check_id);
    program->judge = judge;
    program->timeout_ns = definition->timeout_ns;
    program->pipe = program->pidfd = -1;
    program->tail_max = output_max ? output_max : 1;
    program->tail = mem_alloc(program->tail_max);
    program->work.data = program->timer.data = program;
    uv_timer_init(runners->loop, &program->timer);
    program->timer.data = program;
    program->handles = 1;
    uv_update_time(runners->loop);
    uint64_t timeout_ms = (uint64_t)definition->timeout_ns / 1000000;
    uv_timer_start(&program->timer, on_timeout, timeout_ms ? timeout_ms : 1, 0);
    list_append(&runners->programs, &program->link);
    programs_next(runners);
    return &program->run;
}

/* -- words -------------------------------------------------------------------------------------------------------- */

void program_append_output(const struct program_end *end, struct buffer *text) {
    if (end->output_total > end->output.size) {
        buffer_printf(text, "Captured %zu of %llu bytes\n...\n", end->output.size,
                      (unsigned long long)end->output_total);
    }
    buffer_append(text, end->output.data, end->output.size);
}

bool program_failed(const struct program *program, const struct program_end *end, struct buffer *text) {
    const char *name = program->argv[0];
    if (end->error == ENOENT && !strchr(name, '/')) {
        buffer_printf(text, "exec: \"%s\": executable file not found in $PATH", name);
    } else if (end->error) {
        buffer_printf(text, "fork/exec %s: %s", name, uv_strerror(-end->error));
    } else if (end->timed_out) {
        buffer_append_text(text, "Timed out (");
        duration_format(text, program->timeout_ns);
        buffer_append_text(text, ") running check");
        if (end->output_total > 0) buffer_append_text(text, "\n\n");
        program_append_output(end, text);
    }
    return end->error || end->timed_out;
}
