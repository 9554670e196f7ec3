/* The file DATA/local/definitions: what was registered with this agent, as a log of lines.
 *
 *     coord definitions 1
 *     CHECKSUM KIND KEY JSON        one a definition, the last one of a KIND and KEY counts; JSON "-": it was removed
 *
 * CHECKSUM: XXH3 (16 hex digits) of what follows it in its line; KIND: s (service) or c (check); KEY: hash128 of the
 * id (32 hex digits); JSON as store_files.h says, in one line. Lines are appended, with one sync for all that were
 * given at once. Now and then, and after whatever failed, the file is written anew: aside, synced, renamed.
 *
 * A torn end is what a crash leaves of lines that were not acknowledged: they are dropped. Whatever else cannot be
 * used is named in the log, left out, and the file as it was is kept as `definitions.left-out`. One thread at a
 * time. */
#ifndef COORD_HEALTH_STORE_LOG_H
#define COORD_HEALTH_STORE_LOG_H

#include <stdbool.h>

#include "base/buffer.h"
#include "base/error.h"

struct store_log {
    char *folder, *path, *aside, *kept;
    uint64_t size;      /* of the file */
    uint64_t rewritten; /* its size when it was written anew last */
    bool broken;        /* nothing can be appended: it has to be written anew */
};

struct store_record {
    bool is_check;
    struct slice key, json;
    size_t number; /* of its line */
};

/* Makes the folder where there is none. `records`: those that count, services first, each kind in the order of their
 * lines; they point into `text`, both are the caller's (free, buffer_free). CO_IO and the like with a fault when the
 * folder cannot be made or the file not be read. */
int store_log_open(struct store_log *log, const char *data_folder, struct buffer *text, struct store_record **records,
                   size_t *count, struct fault *fault);
void store_log_free(struct store_log *log);
/* Something of it is left out: the file as it is now is kept. */
void store_log_keep(const struct store_log *log);

/* A line; `json` empty: removed. */
void store_log_line(struct buffer *lines, bool is_check, const char *id, struct slice json);
/* It has grown so much that it is to be written anew, or has to be. */
bool store_log_anew(const struct store_log *log);
/* All of these lines are on disk when they return 0; else an errno value, and it is broken. */
int store_log_append(struct store_log *log, struct slice lines);
int store_log_rewrite(struct store_log *log, struct slice lines);

#endif
