/* The file DATA/local/definitions: the services and checks that were registered with this agent, as a log of lines.
 *
 *     coord definitions 1
 *     CHECKSUM KIND KEY JSON        one a definition, the last one of a KIND and KEY counts; JSON "-": it was removed
 *
 * CHECKSUM: XXH3 (16 hex digits) of what follows it in its line; KIND: s (service) or c (check); KEY: hash128 of the id
 * (32 hex digits); JSON as store_files.h says, in one line. The agent appends lines, with one sync for all lines of a
 * call. When the file has grown too much, and after an error, the agent writes it anew: under another name, which it
 * syncs and renames.
 *
 * A crash may leave a torn end, of lines that were not acknowledged: the reader drops it. It names any other unusable
 * line in the agent's log and leaves it out, and keeps the file as it was as `definitions.left-out`. One thread at a
 * time. */
#ifndef COORD_HEALTH_STORE_LOG_H
#define COORD_HEALTH_STORE_LOG_H

#include <stdbool.h>

#include "base/buffer.h"
#include "base/error.h"

struct store_log {
    char *folder, *path, *aside, *kept;
    uint64_t size;      /* of the file */
    uint64_t rewritten; /* its size when it was last written anew */
    bool broken;        /* nothing can be appended: the file has to be written anew */
};

struct store_record {
    bool is_check;
    struct slice key, json;
    size_t number; /* of its line */
};

/* Makes the folder where there is none. `records`: the definitions that count, services first, each kind in the order
 * of their lines; they point into `text`, both are the caller's (free, buffer_free). CO_IO and the like with a fault
 * when the folder cannot be made or the file not be read. */
int store_log_open(struct store_log *log, const char *data_folder, struct buffer *text, struct store_record **records,
                   size_t *count, struct fault *fault);
void store_log_free(struct store_log *log);
/* Some of the file's lines were left out: keeps a copy of it as it is now. */
void store_log_keep(const struct store_log *log);

/* Appends a line to `lines`; `json` empty: the definition was removed. */
void store_log_line(struct buffer *lines, bool is_check, const char *id, struct slice json);
/* True: the file has grown too much, or is broken, so the next write has to be store_log_rewrite. */
bool store_log_anew(const struct store_log *log);
/* All of these lines are on disk when they return 0; else they return an errno value, and the log is broken. */
int store_log_append(struct store_log *log, struct slice lines);
int store_log_rewrite(struct store_log *log, struct slice lines);

#endif
