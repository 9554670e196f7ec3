#include "agent/supervisor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

/* -- decisions ---------------------------------------------------------------------------------------------------- */

#define MARGIN_MOST_MS 2000
#define NEVER_RUN      127 /* exit code of a child that could not become the command; a report says why */

static uint64_t later(uint64_t at_ms, uint64_t by_ms) {
    return by_ms > SUPERVISOR_NEVER - at_ms ? SUPERVISOR_NEVER : at_ms + by_ms;
}

struct supervisor_times supervisor_times(uint64_t sent_ms, uint64_t not_before_ms) {
    uint64_t margin = not_before_ms / 5 < MARGIN_MOST_MS ? not_before_ms / 5 : MARGIN_MOST_MS;
    if (not_before_ms == SUPERVISOR_NEVER) return (struct supervisor_times){SUPERVISOR_NEVER, SUPERVISOR_NEVER};
    return (struct supervisor_times){later(sent_ms, not_before_ms - not_before_ms / 3),
                                     later(sent_ms, not_before_ms - margin)};
}

void supervision_deadline(struct supervision *of, uint64_t sent_ms, uint64_t not_before_ms) {
    if (!of->ending) of->times = supervisor_times(sent_ms, not_before_ms);
}

void supervision_kill(struct supervision *of, uint64_t now_ms) {
    of->times = (struct supervisor_times){now_ms, now_ms};
    of->ending = true;
}

void supervision_orphaned(struct supervision *of, uint64_t now_ms) {
    uint64_t grace_ms = of->term_passed_on ? 0 : SUPERVISOR_GRACE_MS;
    if (of->times.term_ms > now_ms) of->times.term_ms = now_ms;
    if (of->times.kill_ms > now_ms + grace_ms) of->times.kill_ms = now_ms + grace_ms;
}

enum supervisor_act supervision_next(struct supervision *of, uint64_t now_ms, uint64_t *until_ms) {
    bool kill = now_ms >= of->times.kill_ms, term = now_ms >= of->times.term_ms;
    if (kill && !of->killed) {
        of->ending = of->killed = true;
        return SUPERVISOR_KILL;
    }
    if (term && !of->ending) {
        of->ending = true;
        return SUPERVISOR_TERM;
    }
    *until_ms = of->killed ? SUPERVISOR_NEVER : of->ending ? of->times.kill_ms : of->times.term_ms;
    return SUPERVISOR_NOTHING;
}

/* -- messages over the socket ------------------------------------------------------------------------------------- */

struct order { /* to the supervisor */
    enum { DEADLINE, SIGNAL, KILL } kind;
    int signal;
    uint64_t sent_ms, not_before_ms;
};
struct report { /* from it, and from the command before its exec */
    enum { STARTED, NOT_STARTED, ENDED } kind;
    pid_t group;
    int number; /* errno, or the status */
    bool by_us;
};

/* The send may fail, because each side goes on when the other has gone. */
static void send_to(int fd, const void *message, size_t size) {
    ssize_t ignored = send(fd, message, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)ignored;
}

/* -- the command -------------------------------------------------------------------------------------------------- */
/* The code from here on may use only functions that are safe in the child of a process with threads. */

struct start {
    char **argv;
    const sigset_t *mask;
    bool terminal;
    int fd; /* the supervisor's end */
};

static void take_terminal(void) {
    signal(SIGTTOU, SIG_IGN); /* it is in the background until it has the terminal */
    (void)tcsetpgrp(STDIN_FILENO, getpgrp());
    signal(SIGTTOU, SIG_DFL);
    signal(SIGTSTP, SIG_IGN);
}

static void become_command(const struct start *start, pid_t supervisor) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != supervisor) _exit(NEVER_RUN);
    if (start->terminal) take_terminal();
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, start->mask, NULL);
    execvp(start->argv[0], start->argv);
    const struct report report = {.kind = NOT_STARTED, .number = errno};
    send_to(start->fd, &report, sizeof report);
    _exit(NEVER_RUN);
}

/* -- the supervisor ----------------------------------------------------------------------------------------------- */

struct charge {
    struct supervision rules;
    pid_t command;
    int fd, timer, children;
    bool orphaned;
};

static uint64_t now_ms(void) { return clock_boot_ns() / 1000000; }

static void send_signal(const struct charge *charge, int signal) {
    (void)kill(-charge->command, signal);
    if (signal == SIGTERM) (void)kill(-charge->command, SIGCONT); /* so that a stopped command gets it */
    if (signal == SIGKILL) (void)kill(charge->command, signal);   /* also when it has left the group */
}

static void act(struct charge *charge) {
    uint64_t until = SUPERVISOR_NEVER;
    for (;;) {
        enum supervisor_act what = supervision_next(&charge->rules, now_ms(), &until);
        if (what == SUPERVISOR_NOTHING) break;
        send_signal(charge, what == SUPERVISOR_TERM ? SIGTERM : SIGKILL);
    }
    struct itimerspec at = {0};
    if (until != SUPERVISOR_NEVER)
        at.it_value = (struct timespec){(time_t)(until / 1000), (long)(until % 1000) * 1000000 + 1};
    (void)timerfd_settime(charge->timer, TFD_TIMER_ABSTIME, &at, NULL);
}

static void take_order(struct charge *charge) {
    static const char gone[] = "coord: the process that holds the lock was killed, so its command is ended\n";
    struct order order;
    ssize_t size = recv(charge->fd, &order, sizeof order, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size != sizeof order) {
        ssize_t ignored = write(STDERR_FILENO, gone, sizeof gone - 1);
        (void)ignored;
        charge->orphaned = true;
        supervision_orphaned(&charge->rules, now_ms());
    } else if (order.kind == DEADLINE) {
        supervision_deadline(&charge->rules, order.sent_ms, order.not_before_ms);
    } else if (order.kind == KILL) {
        supervision_kill(&charge->rules, now_ms());
    } else {
        if (order.signal == SIGTERM) charge->rules.term_passed_on = true;
        send_signal(charge, order.signal);
    }
}

/* Reaps orphans. True: the command has ended; it is not reaped yet, so the number of its group is not reused. */
static bool command_ended(const struct charge *charge) {
    struct signalfd_siginfo ignored;
    while (read(charge->children, &ignored, sizeof ignored) > 0) {}
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return false;
        if (info.si_pid == charge->command) return true;
        (void)waitpid(info.si_pid, NULL, WNOHANG);
    }
}

/* Reaps the command, and returns its status. The rest of the group has ended too by then. */
static int take_end(const struct charge *charge) {
    int status = 0;
    (void)kill(-charge->command, SIGKILL);
    while (waitpid(charge->command, &status, 0) < 0 && errno == EINTR) {}
    while (waitpid(-charge->command, NULL, 0) > 0 || errno == EINTR) {}
    return status;
}

static void supervise(const struct start *start, uint64_t sent_ms, uint64_t not_before_ms) {
    struct charge charge = {.fd = start->fd, .rules.times = supervisor_times(sent_ms, not_before_ms)};
    sigset_t all, child;
    sigfillset(&all), sigemptyset(&child), sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_SETMASK, &all, NULL);
    signal(SIGCHLD, SIG_DFL);
    setpgid(0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (start->fd > 3) (void)close_range(3, (unsigned)start->fd - 1, 0); /* connections of its parent */
    (void)close_range((unsigned)start->fd + 1, ~0u, 0);
    charge.timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC);
    charge.children = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    pid_t self = getpid();
    charge.command = charge.timer >= 0 && charge.children >= 0 ? fork() : -1;
    if (charge.command == 0) become_command(start, self);
    struct report report = {.kind = charge.command < 0 ? NOT_STARTED : STARTED,
                            .group = charge.command,
                            .number = charge.command < 0 ? errno : 0};
    send_to(start->fd, &report, sizeof report);
    if (charge.command < 0) _exit(NEVER_RUN);
    setpgid(charge.command, charge.command); /* both processes set it, so that it is set before a signal is sent */
    while (!command_ended(&charge)) {
        struct pollfd fds[] = {{.fd = charge.orphaned ? -1 : charge.fd, .events = POLLIN},
                               {.fd = charge.timer, .events = POLLIN},
                               {.fd = charge.children, .events = POLLIN}};
        act(&charge);
        (void)poll(fds, ARRAY_COUNT(fds), -1);
        if (fds[0].revents) take_order(&charge);
    }
    report = (struct report){.kind = ENDED, .number = take_end(&charge), .by_us = charge.rules.ending};
    send_to(start->fd, &report, sizeof report);
    _exit(0);
}

/* -- the parent of the supervisor --------------------------------------------------------------------------------- */

struct supervisor supervisor_start(char **argv, const sigset_t *mask, uint64_t sent_ms, uint64_t not_before_ms) {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    bool terminal = isatty(STDOUT_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp(); /* false in a pipeline */
    struct start start = {argv, mask, terminal, ends[1]};
    struct supervisor supervisor = {.fd = ends[0], .terminal = start.terminal};
    supervisor.pid = fork();
    if (supervisor.pid == 0) supervise(&start, sent_ms, not_before_ms);
    if (supervisor.pid < 0) supervisor.exec_errno = errno;
    close(ends[1]);
    return supervisor;
}

void supervisor_tell(const struct supervisor *supervisor, uint64_t sent_ms, uint64_t not_before_ms) {
    const struct order order = {.kind = DEADLINE, .sent_ms = sent_ms, .not_before_ms = not_before_ms};
    send_to(supervisor->fd, &order, sizeof order);
}

void supervisor_signal(const struct supervisor *supervisor, int signal) {
    const struct order order = {.kind = SIGNAL, .signal = signal};
    send_to(supervisor->fd, &order, sizeof order);
}

void supervisor_kill(const struct supervisor *supervisor) {
    const struct order order = {.kind = KILL};
    send_to(supervisor->fd, &order, sizeof order);
}

static void close_it(struct supervisor *supervisor) {
    if (supervisor->pid > 0)
        while (waitpid(supervisor->pid, NULL, 0) < 0 && errno == EINTR) {}
    close(supervisor->fd);
    if (supervisor->terminal) {
        signal(SIGTTOU, SIG_IGN);
        (void)tcsetpgrp(STDIN_FILENO, getpgrp());
    }
}

bool supervisor_ended(struct supervisor *supervisor, struct supervisor_end *end) {
    for (;;) {
        struct report report = {0};
        ssize_t size = recv(supervisor->fd, &report, sizeof report, MSG_DONTWAIT);
        if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
        if (size != sizeof report) break;
        if (report.kind == STARTED) supervisor->group = report.group;
        if (report.kind == NOT_STARTED) supervisor->exec_errno = report.number;
        if (report.kind != ENDED) continue;
        close_it(supervisor);
        *end = (struct supervisor_end){supervisor->exec_errno, report.number, report.by_us};
        return true;
    }
    /* The supervisor has ended without a report: it was killed, and the command with it. */
    if (supervisor->group > 0) (void)kill(-supervisor->group, SIGKILL);
    close_it(supervisor);
    *end = (struct supervisor_end){supervisor->exec_errno, SIGKILL, true};
    return true;
}
