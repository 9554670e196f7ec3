/* Finds hot keys: counts look-ups by key (policy ring, owners) of several services, in bounded memory.
 *
 * For each service it keeps the most frequent keys with their counts (space-saving: Metwally, Agrawal, El Abbadi, ICDT
 * 2005) and the number of different keys (HyperLogLog: Flajolet and others, AofA 2007; within 7 % mostly). These give
 * the mean rate of a key. A key is hot when its rate is over HOT_FACTOR times the mean; with ten keys or fewer none can
 * be.
 *
 * Each process counts its own look-ups and passes the counts on once a second (hot_take): a client agent to its server,
 * a server its own counts and those of its agents to the other servers. Rates are over the last HOT_WINDOW_NS, about.
 *
 * Pure: time is an argument. Not thread-safe. */
#ifndef COORD_LB_HOT_H
#define COORD_LB_HOT_H

#include "base/buffer.h"
#include "base/error.h"

#define HOT_SERVICES_MOST 256 /* beyond that, services that were not asked for lately make room */
#define HOT_KEYS          64  /* keys that are kept of a service */
#define HOT_KEY_SIZE      256 /* longer keys count only for the mean */
#define HOT_FACTOR        10
#define HOT_LEAST         10 /* look-ups in the window; with fewer no key is hot */
#define HOT_WINDOW_NS     (10 * UINT64_C(1000000000))

struct hot;
struct hot *hot_new(void);
void hot_free(struct hot *hot);

/* Counts a look-up that this process was asked for. */
void hot_count(struct hot *hot, struct slice service, struct slice key, uint64_t now_ns);
/* Adds the counts of another process, as its hot_take wrote them. `onward`: the next hot_take here passes them on.
 * CO_CORRUPT: they do not decode; the counts before that place have been added. */
int hot_merge(struct hot *hot, struct slice frame, bool onward, uint64_t now_ns);
/* Appends the counts since the last time that are to be passed on, if there are any. */
void hot_take(struct hot *hot, struct buffer *out);

struct hot_key {
    struct slice key; /* until the next call */
    double rate;      /* look-ups a second */
};
struct hot_service {
    double rate;                  /* rate of all keys together */
    double keys;                  /* number of different keys, about */
    double mean;                  /* mean rate of a key */
    size_t count;                 /* of hot keys: */
    struct hot_key hot[HOT_KEYS]; /* the most frequent first */
};
/* False: nobody has asked for its keys within the window. */
bool hot_look(struct hot *hot, struct slice service, uint64_t now_ns, struct hot_service *out);

#endif
