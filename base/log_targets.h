/* Where the log goes besides standard error: a file that is rotated, and syslog. A thread of its own writes to them, so
 * that no disk and no syslog makes anybody wait who logs: at most LOG_PENDING_MAX bytes of lines wait for it, and what is
 * beyond that, or cannot be written (the disk is full), is left out, and a line says how much is missing.
 *
 * The file has the path that is given, always; one that is set aside is NAME-NANOSECONDS.EXT beside it, as Consul names
 * them. It is appended to. */
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
    int64_t rotate_files;  /* kept of those set aside; 0: all; -1: none */
    bool json;             /* an object a line, in the file and on standard error */
    bool syslog;
    const char *facility;      /* one that log_facility knows */
    const char *syslog_socket; /* NULL: /dev/log */
};

/* Opens all of it, and lines go there from now on. With a fault (CO_IO, "log_file: PATH: why") nothing is open. Once at a
 * time; the config may go. */
int log_targets_open(const struct log_targets_config *config, struct fault *fault);
/* Any thread: the file is opened anew by its name, because somebody may have moved it away. */
void log_targets_reopen(void);
/* Writes what waits, for two seconds at most, and closes. Nothing when nothing is open. */
void log_targets_close(void);

/* "daemon", "LOCAL0": its number; -1: there is none. */
int log_facility(const char *name);

/* The path of the file that `file` stands for. */
void log_file_path(const char *file, struct buffer *out);

#endif
