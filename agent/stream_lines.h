/* Server-Sent Events as they come in pieces (the HTML standard, "Parsing an event stream"), as far as /v1/watch makes use
 * of them. Decides nothing about connections. */
#ifndef COORD_AGENT_STREAM_LINES_H
#define COORD_AGENT_STREAM_LINES_H

#include "base/buffer.h"

struct stream_lines {
    struct buffer line;            /* that has not ended yet */
    struct buffer event, id, data; /* that has not ended yet */
    /* What was handled up to: the id of the last event, or the index of a comment. Empty: nothing is known. */
    struct buffer position;
    struct buffer cluster; /* its id, of a comment. Empty: not known */
};
/* Calls `each` for every event that is complete, with event, id and data; its id is the position from then on. */
void stream_lines_feed(struct stream_lines *lines, struct slice bytes,
                       void (*each)(void *data, const struct stream_lines *lines), void *data);
void stream_lines_cut(struct stream_lines *lines);  /* the connection has ended: what is not complete is forgotten */
void stream_lines_anew(struct stream_lines *lines); /* the position and the cluster, too */
void stream_lines_free(struct stream_lines *lines);

#endif
