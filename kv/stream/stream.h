/* Streams: the changes of some keys, services, nodes and locks, one event for each, in the order of the log, none left
 * out and none twice.
 *
 * A stream is a query that is asked again and again: what changed of these things after this position? (query_stream). It
 * waits as a blocking query does and is woken by changes of just these things. Nothing is kept for it on a server, so that
 * it goes on at any server, after any restart and any change of leader, from the position that its client has. Each event
 * shows its thing as of its own index, because the history (registry/history.h) knows how things were.
 *
 * Two answers are no events. `gap`: the history does not reach back to the position, and something may have changed
 * between it and what is kept: read the things anew, and follow from `position`. `reset`: a backup became the state. A
 * position below the floor is no gap while the indexes of the things themselves show that none of them has changed.
 * And `off`: no history is kept. Whoever waits is not woken by that; a server ends its streams when it sees it.
 *
 * What can be followed is a table of kinds; a new one is a row there, a number in stream.proto, and its JSON in
 * http/stream_views.c. */
#ifndef COORD_KV_STREAM_H
#define COORD_KV_STREAM_H

#include "kv/stream/stream.pb-c.h"
#include "registry/history.h"

#define STREAM_SUBSCRIPTIONS_MAX 1024
#define STREAM_BYTES             32768 /* of one answer; an event larger than that comes alone */
#define STREAM_EVENTS_MAX        512

extern const struct module stream_module;
/* StreamRequest -> StreamResult; found=false: the subscriptions make no sense. Its index: above that of the request's
 * position when there is something to tell. Watch keys: those of all subscriptions. */
extern const struct query_type query_stream;
extern unsigned stream_mutations; /* enum module_mutation; 0 outside of the simulator */

/* What the entry at `index` did to what this watch key names, in one line that may stand in a header: "service web
 * passing->critical index 812", "key a/b deleted index 9". It tells no more than a query of that watch key shows. Appends
 * to `out`; false: the history does not tell. */
bool stream_cause(struct store_txn *txn, struct watch_key watched, uint64_t index, struct arena *arena,
                  struct buffer *out);

/* A kind of things that can be followed. */
struct stream_kind {
    const char *parameter; /* of /v1/watch: "key" */
    const char *event;     /* "kv" */
    uint8_t space;         /* watched; prefix spaces too */
    enum history_topic topic;
    bool wide; /* as of the past its query reads what changes of other names of the topic touched */
    size_t name_max;
    Pb__StreamKind shown;           /* what its events are: keys, of a prefix */
    const struct query_type *query; /* of one thing of the kind `shown` */
    const struct query_type *all;   /* of the subscription as a whole; its index tells when it changed last */
    ProtobufCMessage *(*request)(struct slice name, struct arena *arena); /* for both queries */
};
#define STREAM_KINDS 6
extern const struct stream_kind stream_kinds[STREAM_KINDS]; /* by StreamKind */

#endif
