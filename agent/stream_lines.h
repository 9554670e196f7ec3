/* Parses Server-Sent Events that come in pieces (the HTML standard, "Parsing an event stream"), as far as /v1/watch
 * uses them. Knows nothing of connections. */
#ifndef COORD_AGENT_STREAM_LINES_H
#define COORD_AGENT_STREAM_LINES_H

#include "base/buffer.h"

struct stream_lines {
    struct buffer line;            /* that has not ended yet */
    struct buffer event, id, data; /* that has not ended yet */
    /* The position up to which all events were handled: the id of the last event, or the index of a comment. Empty: not
     * known. */
    struct buffer position;
    struct buffer cluster; /* its id, of a comment. Empty: not known */
};
/* Calls `each` for every complete event, with event, id and data; the event's id has become the position. */
void stream_lines_feed(struct stream_lines *lines, struct slice bytes,
                       void (*each)(void *data, const struct stream_lines *lines), void *data);
void stream_lines_cut(struct stream_lines *lines);  /* the connection has ended: forgets an incomplete event */
void stream_lines_anew(struct stream_lines *lines); /* forgets the position and the cluster too */
void stream_lines_free(struct stream_lines *lines);

#endif
