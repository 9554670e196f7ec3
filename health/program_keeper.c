#include "health/program_keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char script[] =
    "trap '' TERM INT HUP QUIT PIPE USR1 USR2\n"
    "all=' '\n"
    "while read -r what group; do\n"
    "  case $what in\n"
    "  +) all=\"$all$group \" ;;\n"
    "  -) case $all in *\" $group \"*) all=\"${all%% $group *} ${all#* $group }\" ;; esac ;;\n"
    "  esac\n"
    "done\n"
    "for group in $all; do kill -s KILL -- \"-$group\" \"$group\"; done\n";

int program_keeper_start(struct program_keeper *keeper) {
    static char name[] = "sh", option[] = "-c", title[] = "coord-program-keeper";
    char *argv[] = {name, option, (char *)(size_t)script, title, NULL};
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return errno;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
    posix_spawn_file_actions_addchdir_np(&actions, "/");
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attributes, &none);
    int error = posix_spawn(&keeper->pid, "/bin/sh", &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error == 0) {
        keeper->socket = ends[0];
        return 0;
    }
    close(ends[0]);
    keeper->pid = 0;
    return error;
}

static bool tell(const struct program_keeper *keeper, char what, pid_t group) {
    char line[32];
    int size = snprintf(line, sizeof line, "%c %d\n", what, (int)group);
    ssize_t sent;
    do sent = send(keeper->socket, line, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent == size;
}

bool program_keeper_began(const struct program_keeper *keeper, pid_t group) { return tell(keeper, '+', group); }
bool program_keeper_ended(const struct program_keeper *keeper, pid_t group) { return tell(keeper, '-', group); }

void program_keeper_end(struct program_keeper *keeper) {
    if (keeper->pid == 0) return;
    kill(keeper->pid, SIGKILL);
    while (waitpid(keeper->pid, NULL, 0) < 0 && errno == EINTR) continue;
    close(keeper->socket);
    keeper->pid = 0;
}
