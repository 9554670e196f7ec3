#include "agent/start_unit.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static bool run(char *const *command, bool silent) {
    pid_t pid;
    int status;
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions) != 0) return false;
    int rv = silent ? posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0) : 0;
    if (rv == 0) rv = posix_spawnp(&pid, command[0], &actions, NULL, command, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rv != 0) return false;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return false;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int start_unit_check(struct fault *fault) {
    struct stat info;
    if (stat("/run/systemd/system", &info) != 0)
        return fault_set(
            fault, CO_UNSUPPORTED,
            "systemd does not run here, so there is no service to start; leave -start away and run `coord agent`");
    static char *const find[] = {(char *)"systemctl", (char *)"cat", (char *)"coord.service", NULL};
    if (!run(find, true))
        return fault_set(fault, CO_UNSUPPORTED,
                         "systemd knows no unit coord.service; leave -start away and run `coord agent`");
    return CO_OK;
}

int start_unit(struct fault *fault) {
    static char *const start[] = {(char *)"systemctl", (char *)"enable", (char *)"--now", (char *)"coord.service",
                                  NULL};
    if (run(start, false)) return CO_OK;
    return fault_set(fault, CO_IO, "`systemctl enable --now coord.service` failed; `journalctl -u coord` may say why");
}
