#include "health/away.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/boot.h"
#include "base/clock.h"
#include "base/error.h"

#define PATH_SIZE 4096

static void boot_path(const char *folder, char path[PATH_SIZE]) { snprintf(path, PATH_SIZE, "%s/local/boot", folder); }

static bool same_boot(const char *folder) {
    char path[PATH_SIZE], now[BOOT_ID_SIZE], then[BOOT_ID_SIZE];
    boot_path(folder, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, then, sizeof then - 1);
    if (fd >= 0) close(fd);
    if (got <= 0) return false;
    then[got] = '\0';
    return boot_id(now) && strcmp(now, then) == 0;
}

static int64_t since(struct timespec at, int64_t now_ns) {
    return now_ns - ((int64_t)at.tv_sec * 1000000000 + at.tv_nsec);
}

int64_t away_ns(const char *folder) {
    char path[PATH_SIZE];
    struct stat status;
    snprintf(path, sizeof path, "%s/local/definitions", folder);
    if (stat(path, &status) != 0) return 0;
    int64_t wall = since(status.st_mtim, clock_wall_ns()), up = since(status.st_atim, (int64_t)clock_boot_ns());
    int64_t away = same_boot(folder) && up >= 0 && up < wall ? up : wall;
    return away > 0 ? away : 0;
}

int away_note_boot(const char *folder) {
    char path[PATH_SIZE], id[BOOT_ID_SIZE];
    if (!boot_id(id) || same_boot(folder)) return CO_OK;
    /* as a time of access: later than any that is compared with it */
    struct timespec not_ours[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
    snprintf(path, sizeof path, "%s/local/definitions", folder);
    if (utimensat(AT_FDCWD, path, not_ours, 0) != 0 && errno != ENOENT) return co_from_errno(errno);
    boot_path(folder, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return co_from_errno(errno);
    ssize_t done = write(fd, id, strlen(id));
    int error = done == (ssize_t)strlen(id) ? CO_OK : done < 0 ? co_from_errno(errno) : CO_DISKFULL;
    close(fd);
    return error;
}

void away_now(double *access, double *change) {
    *access = (double)clock_boot_ns() / 1e9;
    *change = (double)clock_wall_ns() / 1e9;
}
