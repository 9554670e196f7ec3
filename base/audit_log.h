/* The queue of the audit log: lines that wait to be written, and what happens when they cannot be. It decides;
 * base/audit_log_run.h has the thread that writes. Pure; its owner locks.
 *
 * At most `most` bytes wait. Beyond that, lines are lost: they are counted, and a line says later how many. With `refuse` no
 * line is lost: room is reserved before a request is carried out, and there is none while the queue is full or nothing can be
 * written. A line that has its room is always taken. */
#ifndef COORD_BASE_AUDIT_LOG_H
#define COORD_BASE_AUDIT_LOG_H

#include "base/buffer.h"

#define AUDIT_LOG_AGAIN_MS 1000  /* after a failure */
#define AUDIT_LOG_WARN_MS  60000 /* between two lines of the ordinary log */

struct audit_log {
    size_t most;
    bool refuse;
    struct buffer lines;    /* each ends with a line feed */
    size_t writing;         /* bytes that were taken by the writer, and are not written yet */
    size_t reserved;        /* bytes of lines to come */
    uint64_t lost, refused; /* lines, requests; since a line told it */
    int error;              /* an errno: nothing can be written now. 0: the last write went well */
    uint64_t again_ms;      /* with an error: not before */
    uint64_t warned_ms;     /* 0: never */
};

/* Room for a line of about `size` bytes, before its request is carried out. *reserved goes to audit_log_put or
 * audit_log_release. False: the request must be refused. */
bool audit_log_reserve(struct audit_log *log, size_t size, size_t *reserved);
void audit_log_release(struct audit_log *log, size_t reserved);
/* False: the line is lost. */
bool audit_log_put(struct audit_log *log, struct slice line, size_t reserved);

/* When is there something to do for the writer? 0: now; UINT64_MAX: when a line comes. Milliseconds from now. */
uint64_t audit_log_wait_ms(const struct audit_log *log, uint64_t now_ms);
/* Moves the lines to `batch`, when that is empty. */
void audit_log_take(struct audit_log *log, struct buffer *batch);
/* The writer has written so many bytes of what it took, and then met `error` (an errno; 0: none). After a success a line about
 * what was lost is added. */
void audit_log_written(struct audit_log *log, size_t size, int error, uint64_t now_ms, uint64_t now_unix_ms);
/* Call it before that. Shall the ordinary log say that something is wrong? True at most once a minute. */
bool audit_log_warns(struct audit_log *log, int error, uint64_t now_ms);
/* How many bytes of `lines` to write at once: whole lines, at least one, and no more than `room` if one fits. */
size_t audit_log_chunk(struct slice lines, size_t room);

#endif
