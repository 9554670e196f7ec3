#include "rpc/offline/verify_store.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "registry/store.h"

static void look(const struct verify_config *config, struct verify_store *out) {
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/store", config->folder);
    out->fenced = store_fenced(folder, out->fence, sizeof out->fence);
    struct machine_config machine_config = {.store = {.folder = folder}, .modules = config->modules};
    struct machine *machine;
    if (machine_look(&machine_config, &machine, &out->there, &out->trusted, &out->fault) != CO_OK || !out->there)
        return;
    out->applied = machine_applied(machine);
    out->term = machine_applied_term(machine);
    const struct store_scrubbed *found = store_looked(machine_store(machine));
    out->records = found->records, out->sum = found->found;
    machine_close(machine);
}

/* Never returns. LMDB's own messages about damage are not shown to people. */
static _Noreturn void child(const struct verify_config *config, struct verify_store *out) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* when the parent is gone */
    struct rlimit none = {0};
    setrlimit(RLIMIT_CORE, &none);
    /* these signals are expected here, so no handler reports them */
    static const int ends[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    for (size_t i = 0; i < ARRAY_COUNT(ends); i++) signal(ends[i], SIG_DFL);
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
    look(config, out);
    _exit(0);
}

/* `shared` has the results up to the moment when reading ended the process: whether the store is there, and trusted. */
static void run_child(const struct verify_config *config, struct verify_store *shared) {
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) child(config, shared);
    if (pid < 0) {
        fault_set(&shared->fault, CO_IO, "store: cannot be looked at: %s", strerror(errno));
        return;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    shared->there = true;
    shared->fault = (struct fault){0};
    fault_set(&shared->fault, CO_CORRUPT, "store: %s/store/data.mdb: damaged: reading it ended with %s %d",
              config->folder, WIFSIGNALED(status) ? "signal" : "code",
              WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

void verify_store_look(const struct verify_config *config, struct verify_store *out) {
    *out = (struct verify_store){0};
    struct verify_store *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        fault_set(&out->fault, CO_NOMEM, "store: cannot be looked at: %s", strerror(errno));
        return;
    }
    run_child(config, shared);
    *out = *shared;
    munmap(shared, sizeof *shared);
}
