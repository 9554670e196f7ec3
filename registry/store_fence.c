/* Marks of a store that must not be trusted: "fenced", by the self-audit; "suspect", by a process that dies of a
 * signal. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "registry/store_file.h"

#define FENCED     "fenced"
#define FENCED_NEW "fenced.new"
#define SUSPECT    "suspect"

int store_fence(const char *folder, const char *text, struct fault *fault) {
    char line[512], *path = store_path(folder, FENCED), *fresh = store_path(folder, FENCED_NEW);
    snprintf(line, sizeof line, "coord fenced 1\n%s\n", text);
    int error = store_write_synced(fresh, line);
    if (!error && rename(fresh, path) != 0) error = co_from_errno(errno);
    if (!error) error = store_sync_folder(folder);
    if (error) fault_set(fault, error, "store: %s: cannot be written: %s", path, co_strerror(error));
    free(path);
    free(fresh);
    return error;
}

/* The store is fenced when the file is there, whatever its content is. */
bool store_fenced(const char *folder, char *text, size_t room) {
    char *path = store_path(folder, FENCED), line[512] = "";
    FILE *file = fopen(path, "re");
    bool there = file || errno != ENOENT;
    free(path);
    for (int i = 0; file && i < 2; i++)
        if (!fgets(line, sizeof line, file)) line[0] = 0;
    if (file) fclose(file);
    line[strcspn(line, "\n")] = 0;
    if (room) snprintf(text, room, "%s", line);
    return there;
}

static int mark_remove(const char *folder, const char *name) {
    char *path = store_path(folder, name);
    int error = unlink(path) == 0 || errno == ENOENT ? store_sync_folder(folder) : co_from_errno(errno);
    free(path);
    return error;
}

int store_unfence(const char *folder) { return mark_remove(folder, FENCED); }

/* -- crashes ------------------------------------------------------------------------------------------------------ */
static char suspect_path[4096];
static volatile sig_atomic_t opening;

/* Calls only functions that a signal handler may call. The handler is reset when it is called, so that the signal it
 * raises ends the process. A byte for each crash, one more while the store was being opened. */
static void on_crash(int number) {
    int fd = open(suspect_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) {
        ssize_t done = write(fd, "\n\n", opening ? 2 : 1);
        (void)done;
        (void)fsync(fd);
        (void)close(fd);
    }
    (void)raise(number);
}

void store_watch_crashes(const char *folder) {
    static const int signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    char *path = store_path(folder, SUSPECT);
    if (strlen(path) < sizeof suspect_path) {
        memcpy(suspect_path, path, strlen(path) + 1);
        struct sigaction action = {.sa_handler = on_crash, .sa_flags = (int)SA_RESETHAND};
        for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
            struct sigaction old;
            /* A sanitizer's own handlers stay. */
            if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL && !(old.sa_flags & SA_SIGINFO))
                (void)sigaction(signals[i], &action, NULL);
        }
    }
    free(path);
}

void store_crash_opening(bool begins) { opening = begins; }

unsigned store_crashes(const char *folder) {
    char *path = store_path(folder, SUSPECT);
    struct stat info;
    unsigned crashes = 0; /* an empty mark is of a full disk */
    if (stat(path, &info) == 0) crashes = info.st_size > 1 ? (unsigned)info.st_size : 1;
    free(path);
    return crashes;
}

void store_crashes_forget(const char *folder) {
    if (store_crashes(folder) > 0 && mark_remove(folder, SUSPECT) != CO_OK)
        log_warn("store", "the mark of a crash cannot be removed folder=%s", folder);
}
