/* The audit log's writer: a thread of its own takes the lines of base/audit_log.h to a file or to a Unix socket, so that
 * nobody waits for a disk or for a slow reader. It does not sync.
 *
 * The file is for this user alone, and it is rotated as the log's (base/log_file.h). A socket is connected as a stream, or as
 * datagrams (a line each) where it takes those; a reader that goes away is connected to again, once a second. */
#ifndef COORD_BASE_AUDIT_LOG_RUN_H
#define COORD_BASE_AUDIT_LOG_RUN_H

#include "base/buffer.h"
#include "base/error.h"

struct audit_log_config {
    const char *file, *socket; /* one of them; the other is NULL */
    uint64_t rotate_bytes;     /* 0: never */
    int64_t rotate_ns;         /* 0: never */
    int64_t rotate_files;      /* rotated files that are kept; 0: all; -1: none */
    size_t buffer_bytes;       /* of lines that wait */
    bool refuse;               /* requests that cannot be recorded are refused; else lines are lost */
};

void audit_log_register(void); /* the metrics, also where there is no audit log */
struct audit_log_run;
/* CO_INVALID, CO_IO: others may write the file's folder, read the file, or it cannot be opened. A socket need not be there
 * yet. `config` is not needed any more after the call. */
int audit_log_start(const struct audit_log_config *config, struct audit_log_run **out, struct fault *fault);
/* Writes the waiting lines, for two seconds at most. Accepts NULL. */
void audit_log_stop(struct audit_log_run *run);
/* The same judgement of a file as at a start; nothing is made. */
int audit_log_check(const char *file, struct fault *fault);

/* Any thread, as base/audit_log.h; they do not wait. */
bool audit_log_run_reserve(struct audit_log_run *run, size_t size, size_t *reserved);
void audit_log_run_release(struct audit_log_run *run, size_t reserved);
void audit_log_run_put(struct audit_log_run *run, struct slice line, size_t reserved);
void audit_log_reopen(struct audit_log_run *run); /* the file may have been moved away. Accepts NULL */

#endif
