/* Shared by the files of kv/stream/ only. */
#ifndef COORD_KV_STREAM_INTERNAL_H
#define COORD_KV_STREAM_INTERNAL_H

#include "kv/stream/stream.h"

#define STREAM_NAME_MAX 512 /* of nodes and services */
#define STREAM_MARKS    1024

/* -- what a request follows (stream_match.c) ---------------------------------------------------------------------- */
/* Subscriptions in an order in which the one that a touch is about is found quickly. In an arena. */
struct stream_match {
    struct stream_wanted {
        uint8_t space;
        struct slice name; /* folded where its space folds */
        const struct stream_kind *kind;
        uint64_t row; /* that it was found in last; for the caller */
    } * exact, *prefixes;
    size_t exact_count, prefix_count;
    uint64_t marks[STREAM_MARKS / 64]; /* of exact: a bit for each; most touches are not followed, and end here */
    bool topics[HISTORY_TOPICS], wide[HISTORY_TOPICS];
};
/* False: the request makes no sense (too many subscriptions, a kind that is not known, a name too long). */
bool stream_match_init(struct stream_match *match, const Pb__StreamRequest *request, struct arena *arena);
/* The subscription by which the touch is followed, always the same for a name; NULL: it is not. */
struct stream_wanted *stream_match_find(const struct stream_match *match, const struct history_touch *touch);

#endif
