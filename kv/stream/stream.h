/* Streams: the changes of some keys, services, nodes and locks, one event for each, in the order of the log, none left
 * out and none twice.
 *
 * A stream is one query that its client repeats: which changes did these things have after this position
 * (query_stream)? The query waits as a blocking query does, and only changes of these things wake it. No server keeps
 * anything for a stream. So its client continues from its own position at any server, after any restart and any change
 * of leader. Each event shows its thing as of the event's index, because the history (registry/history.h) has the
 * former states.
 *
 * Three answers are no events. `gap`: the history does not reach back to the position, and something may have changed
 * in between; the client reads the things anew, and follows from `position`. `reset`: a restored backup became the
 * state. `off`: no history is kept; that wakes no waiting query, but a server ends its streams when it notices. A
 * position below the history's floor is no gap while the indexes of the things themselves show that none of them has
 * changed.
 *
 * For a token that may not read everything, events are as their kind's query shows them to it, and those that it may not
 * see at all are left out. The position passes them, and they wake nobody.
 *
 * A table of kinds says which things can be followed. A new kind is a row there, a number in stream.proto, and its JSON
 * in http/api/stream_views.c. */
#ifndef COORD_KV_STREAM_H
#define COORD_KV_STREAM_H

#include "kv/stream/stream.pb-c.h"
#include "registry/history.h"

#define STREAM_SUBSCRIPTIONS_MAX 1024
#define STREAM_BYTES             32768 /* of one answer; an event that is larger comes alone */
#define STREAM_EVENTS_MAX        512

extern const struct module stream_module;
/* StreamRequest -> StreamResult; found=false: a subscription is invalid. The result's index is above that of the
 * request's position when there is an event. Watch keys: those of all subscriptions. */
extern const struct query_type query_stream;
extern unsigned stream_mutations; /* enum module_mutation; 0 outside of the simulator */

/* Appends to `out` how the entry at `index` changed the thing of this watch key, in one line that may stand in a
 * header: "service web passing->critical index 812", "key a/b deleted index 9". The line tells no more than a query of
 * that watch key shows to this access. False: the history does not have it, or it may not be told. */
bool stream_cause(struct store_txn *txn, const struct access *access, struct watch_key watched, uint64_t index,
                  struct arena *arena, struct buffer *out);

/* A kind of things that can be followed. */
struct stream_kind {
    const char *parameter; /* of /v1/watch: "key" */
    const char *event;     /* "kv" */
    uint8_t space;         /* watched; prefix spaces too */
    enum history_topic topic;
    enum access_resource resource; /* of the names */
    bool in_part; /* a token may see a part of the record only, so that changes of the rest are no events for it */
    bool wide;    /* its query of the past reads rows that changes of other names of the topic touched */
    size_t name_max;
    Pb__StreamKind shown;           /* the kind of its events: keys, for a prefix */
    const struct query_type *query; /* reads one thing of the kind `shown` */
    const struct query_type *all;   /* reads the subscription as a whole; its index is that of the last change */
    ProtobufCMessage *(*request)(struct slice name, struct arena *arena); /* for both queries */
};
#define STREAM_KINDS 6
extern const struct stream_kind stream_kinds[STREAM_KINDS]; /* by StreamKind */

#endif
