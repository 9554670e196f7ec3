/* Shared by the files of kv/stream/ only. */
#ifndef COORD_KV_STREAM_INTERNAL_H
#define COORD_KV_STREAM_INTERNAL_H

#include "kv/stream/stream.h"

#define STREAM_NAME_MAX 512 /* bytes of the name of a node or a service */
#define STREAM_MARKS    1024

/* -- what a request follows (stream_match.c) ---------------------------------------------------------------------- */
/* The subscriptions of a request, sorted so that the one of a touch is found quickly. In an arena. */
struct stream_match {
    struct stream_wanted {
        uint8_t space;
        struct slice name; /* folded, if its space folds names */
        const struct stream_kind *kind;
        uint64_t row; /* in which it was found last; for the caller */
    } * exact, *prefixes;
    size_t exact_count, prefix_count;
    uint64_t marks[STREAM_MARKS / 64]; /* bits of the hashes of `exact`: most touches are not followed, and are found
                                        * here to be so */
    bool topics[HISTORY_TOPICS], wide[HISTORY_TOPICS];
};
/* False: the request makes no sense (too many subscriptions, a kind that is not known, a name too long). */
bool stream_match_init(struct stream_match *match, const Pb__StreamRequest *request, struct arena *arena);
/* The subscription that follows the touch, always the same one for a name; NULL: none does. */
struct stream_wanted *stream_match_find(const struct stream_match *match, const struct history_touch *touch);

#endif
