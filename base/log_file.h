/* The file of a log, and its rotation. One thread (that of base/log_targets.h, or of base/audit_log_run.h). */
#ifndef COORD_BASE_LOG_FILE_H
#define COORD_BASE_LOG_FILE_H

#include "base/log_targets.h"

struct log_file {
    char *path;
    unsigned mode; /* of a file that is made; 0: 0640 */
    uint64_t rotate_bytes;
    int64_t rotate_ns, rotate_files;
    int fd;
    bool regular;     /* false: it is a device or a pipe, which is never rotated */
    uint64_t size;    /* of the file */
    int64_t born_ns;  /* wall clock */
    int64_t again_ns; /* no rotation before this time, because one failed */
    uint64_t missing; /* lines that could not be written since the last one that was */
    int error;        /* an errno, why lines are missing; 0: the last line was written */
};

/* An errno, or 0. */
int log_file_open(struct log_file *file, int64_t now_ns);
int log_file_reopen(struct log_file *file, int64_t now_ns); /* on an error the open file stays in use */
/* Rotates if it is time, and appends a line. An errno, or 0; a line that was written only in part is removed again. */
int log_file_write(struct log_file *file, const char *line, size_t size, int64_t now_ns);
void log_file_close(struct log_file *file);

#endif
