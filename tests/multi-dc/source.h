/* The region that a copy is of, for tests: a cluster whose servers are two, one of them behind. It can be set back to a
 * backup, and founded anew under another cluster id. */
#ifndef COORD_TESTS_MULTI_DC_SOURCE_H
#define COORD_TESTS_MULTI_DC_SOURCE_H

#include "tests/lib/fixture.h"

struct source {
    struct fixture newest, behind;
    struct buffer *log; /* of commands, since it was founded */
    size_t log_count, behind_count;
    int backup; /* a file, or -1 */
    uint64_t cluster_id;
    size_t lives;             /* restored, or founded anew */
    void (*told)(void *data); /* after each command */
    void *data;
};

/* `source` is all zero but for cluster_id, told and data. history_changes: so many rows of history are kept; 0: none. */
void source_found(struct source *source, uint64_t history_changes);
void source_found_anew(struct source *source, uint64_t history_changes);
void source_close(struct source *source);

void source_tell(struct source *source, uint8_t type, const ProtobufCMessage *message);
void source_catch_up(struct source *source, size_t most); /* who is behind applies so many commands */
void source_back_up(struct source *source);
void source_restore(struct source *source); /* source->backup */

#endif
