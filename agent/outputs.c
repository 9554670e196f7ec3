#include "agent/outputs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log_targets.h"

static int pid_fault(const char *path, int error, struct fault *fault) {
    return fault_set(fault, CO_IO, "pid_file: %.180s: %s", path, strerror(error));
}

static int pid_write(const char *path, struct fault *fault) {
    char text[24];
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return pid_fault(path, errno, fault);
    int size = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    ssize_t written = write(fd, text, (size_t)size);
    int error = written < 0 ? errno : ENOSPC;
    close(fd);
    if (written == size) return CO_OK;
    unlink(path);
    return pid_fault(path, error, fault);
}

static void pid_remove(const char *path) {
    char text[24] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    if (size > 0 && strtol(text, NULL, 10) == (long)getpid()) unlink(path);
}

int outputs_open(const struct config *config, struct fault *fault) {
    struct log_targets_config targets = {.file = config->log_file,
                                         .rotate_bytes = config->log_rotate_bytes,
                                         .rotate_ns = config->log_rotate_duration_ns,
                                         .rotate_files = config->log_rotate_max_files,
                                         .json = config->log_json,
                                         .syslog = config->enable_syslog,
                                         .facility = config->syslog_facility};
    if (config->pid_file && pid_write(config->pid_file, fault) != CO_OK) return CO_IO;
    int error = log_targets_open(&targets, fault);
    if (error && config->pid_file) pid_remove(config->pid_file);
    return error;
}

void outputs_close(const struct config *config) {
    if (config->pid_file) pid_remove(config->pid_file);
    log_targets_close();
}
