/* The targets of the log besides standard error: a file that is rotated, and syslog. A thread of its own writes to
 * them, so that a caller never waits for a disk or for syslog. At most LOG_PENDING_MAX bytes of lines wait for the
 * thread. Lines beyond that, or that cannot be written (the disk is full), are left out, and a later line says how many
 * are missing.
 *
 * The current file always has the configured path, and lines are appended to it. Rotation renames it to
 * NAME-NANOSECONDS.EXT beside it, as Consul does. */
#ifndef COORD_BASE_LOG_TARGETS_H
#define COORD_BASE_LOG_TARGETS_H

#include "base/error.h"
#include "base/log.h"

#define LOG_PENDING_MAX ((size_t)1 << 20)

struct log_targets_config {
    const char
        *file; /* as configured; NULL: none. a folder, or "DIR/", is DIR/coord.log; "NAME" without a point NAME.log */
    uint64_t rotate_bytes; /* 0: never */
    int64_t rotate_ns;     /* 0: never */
    int64_t rotate_files;  /* rotated files that are kept; 0: all; -1: none */
    bool json;             /* an object a line, in the file and on standard error */
    bool syslog;
    const char *facility;      /* one that log_facility knows */
    const char *syslog_socket; /* NULL: /dev/log */
};

/* Opens all targets; lines go there from now on. With a fault (CO_IO, "log_file: PATH: why") nothing is open. May be
 * open only once at a time; `config` is not needed any more after the call. */
int log_targets_open(const struct log_targets_config *config, struct fault *fault);
/* Any thread: the file is opened anew by its name, because somebody may have moved it away. */
void log_targets_reopen(void);
/* Writes the waiting lines, for two seconds at most, and closes. Does nothing when nothing is open. */
void log_targets_close(void);

/* "daemon", "LOCAL0": its number; -1: there is none. */
int log_facility(const char *name);

/* The path of the file that `file` stands for. */
void log_file_path(const char *file, struct buffer *out);

#endif
