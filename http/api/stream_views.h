/* Events of streams as text: Server-Sent Events (the HTML standard; https://html.spec.whatwg.org). */
#ifndef COORD_HTTP_API_STREAM_VIEWS_H
#define COORD_HTTP_API_STREAM_VIEWS_H

#include "base/buffer.h"
#include "kv/stream/stream.h"

/* The id of an event: INDEX; when it is not the last of its index, INDEX.TOPIC.PLACE. */
void stream_position_append(struct buffer *out, const Pb__StreamPosition *position);
/* False: the text is no such id, or of index 0. */
bool stream_position_parse(struct slice text, Pb__StreamPosition *position);

/* Appends all events of an answer, and the events gap and reset. False: a record does not decode. */
bool stream_events_append(struct buffer *out, const Pb__StreamResult *result, bool delta, struct arena *arena);
/* A comment: the client has all events up to this position. */
void stream_progress_append(struct buffer *out, const Pb__StreamPosition *position);
void stream_begin_append(struct buffer *out, uint64_t cluster, const Pb__StreamPosition *position); /* the first one */

#endif
