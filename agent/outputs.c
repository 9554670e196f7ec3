#include "agent/outputs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_lock.h"
#include "base/log_targets.h"

/* -- the pid file: locked while the process runs ------------------------------------------------------------------- */
static int pid_fd = -1;

static int pid_fault(const char *path, int error, struct fault *fault) {
    return fault_set(fault, CO_IO, "pid_file: %.180s: %s", path, strerror(error));
}

/* The number in the file; 0: it has not been written. */
static long pid_read(int fd) {
    char text[24] = "";
    return pread(fd, text, sizeof text - 1, 0) > 0 ? strtol(text, NULL, 10) : 0;
}

static bool is_at(int fd, const char *path) {
    struct stat open_file, named;
    return fstat(fd, &open_file) == 0 && stat(path, &named) == 0 && open_file.st_dev == named.st_dev &&
           open_file.st_ino == named.st_ino;
}

/* Opens and locks the file. Another agent that ended meanwhile may have removed the opened file; then it is opened
 * again. */
static int pid_open(const char *path, int *fd, struct fault *fault) {
    for (;;) {
        *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
        if (*fd < 0) return pid_fault(path, errno, fault);
        bool locked = file_lock(*fd);
        if (locked && is_at(*fd, path)) return CO_OK;
        if (!locked)
            fault_set(fault, CO_BUSY, "pid_file: %.180s is that of another agent, which runs: process %ld", path,
                      pid_read(*fd));
        close(*fd);
        if (!locked) return CO_BUSY;
    }
}

/* Writes the number of the process. A file that a killed agent left is overwritten. */
static int pid_write(const char *path, struct fault *fault) {
    char text[24];
    int fd, rv = pid_open(path, &fd, fault), size = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (rv != CO_OK) return rv;
    struct stat status;
    bool regular = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
    ssize_t written = regular && ftruncate(fd, 0) != 0 ? -1 : write(fd, text, (size_t)size);
    int error = written < 0 ? errno : ENOSPC;
    if (written == size) {
        pid_fd = fd;
        return CO_OK;
    }
    unlink(path);
    close(fd);
    return pid_fault(path, error, fault);
}

/* Removes the file, unless somebody has replaced it. */
static void pid_remove(const char *path) {
    if (pid_fd < 0) return;
    if (is_at(pid_fd, path) && pid_read(pid_fd) == (long)getpid()) unlink(path);
    close(pid_fd);
    pid_fd = -1;
}

/* -- checks without opening anything ------------------------------------------------------------------------------ */
/* Could this file be written, as far as that can be known without writing? 0, or an errno. */
static int may_write(const char *path) {
    struct stat status;
    if (stat(path, &status) == 0) return S_ISDIR(status.st_mode) ? EISDIR : access(path, W_OK) ? errno : 0;
    if (errno != ENOENT) return errno;
    const char *slash = strrchr(path, '/');
    char *folder = !slash          ? mem_strdup(".")
                   : slash == path ? mem_strdup("/")
                                   : mem_strndup(path, (size_t)(slash - path));
    int error = stat(folder, &status) != 0    ? errno
                : !S_ISDIR(status.st_mode)    ? ENOTDIR
                : access(folder, W_OK | X_OK) ? errno
                                              : 0;
    free(folder);
    return error;
}

static int judge(struct config *config, const char *place, const char *key, const char *path, struct fault *fault) {
    int error = may_write(path);
    return error ? config_wrong(config, fault, CO_IO, "%s: %s: %.180s: %s", place, key, path, strerror(error)) : CO_OK;
}

int outputs_check(struct config *config, struct fault *fault) {
    int rv = CO_OK;
    if (config->log_file) {
        struct buffer path = {0};
        log_file_path(config->log_file, &path);
        buffer_append_byte(&path, '\0');
        rv = judge(config, config->log_file_place, "log_file", path.data, fault);
        buffer_free(&path);
    }
    if (config->audit_enabled && config->audit_file) {
        struct fault audit = {0};
        int code = audit_log_check(config->audit_file, &audit);
        if (code != CO_OK) rv = config_wrong(config, fault, code, "%s", audit.text);
    }
    int wrong = config->pid_file ? judge(config, config->pid_file_place, "pid_file", config->pid_file, fault) : CO_OK;
    return rv == CO_OK ? wrong : rv;
}

/* -- the audit log ------------------------------------------------------------------------------------------------- */
static struct audit_log_run *audit;

static int audit_open(const struct config *config, struct fault *fault) {
    audit_log_register();
    if (!config->audit_enabled) return CO_OK;
    struct audit_log_config log = {.file = config->audit_file,
                                   .socket = config->audit_socket,
                                   .rotate_bytes = config->audit_rotate_bytes,
                                   .rotate_ns = config->audit_rotate_duration_ns,
                                   .rotate_files = config->audit_rotate_max_files,
                                   .buffer_bytes = config->audit_buffer_bytes,
                                   .refuse = strcasecmp(config->audit_on_failure, "refuse") == 0};
    return audit_log_start(&log, &audit, fault);
}

struct audit_log_run *outputs_audit_log(void) {
    return audit;
}

void outputs_reopen(void) {
    log_targets_reopen();
    audit_log_reopen(audit);
}

/* -- life ---------------------------------------------------------------------------------------------------------- */
int outputs_open(const struct config *config, struct fault *fault) {
    struct log_targets_config targets = {.file = config->log_file,
                                         .rotate_bytes = config->log_rotate_bytes,
                                         .rotate_ns = config->log_rotate_duration_ns,
                                         .rotate_files = config->log_rotate_max_files,
                                         .json = config->log_json,
                                         .syslog = config->enable_syslog,
                                         .facility = config->syslog_facility};
    int error = config->pid_file ? pid_write(config->pid_file, fault) : CO_OK;
    if (error) return error;
    error = log_targets_open(&targets, fault);
    if (error == CO_OK && (error = audit_open(config, fault)) != CO_OK) log_targets_close();
    if (error && config->pid_file) pid_remove(config->pid_file);
    return error;
}

void outputs_close(const struct config *config) {
    if (config->pid_file) pid_remove(config->pid_file);
    audit_log_stop(audit);
    audit = NULL;
    log_targets_close();
}
