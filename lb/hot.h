/* Which keys are hot: counts of look-ups by key (policy ring, owners) of several services, in bounded memory.
 *
 * Of each service the most frequent keys are kept with their counts (space-saving: Metwally, Agrawal, El Abbadi, ICDT
 * 2005) and how many different keys there were (HyperLogLog: Flajolet and others, AofA 2007; within 7 % mostly). So the
 * mean rate of a key is known, and a hot one is over HOT_FACTOR times the mean. With ten keys or fewer none can be.
 *
 * Each process counts its own look-ups and passes the counts on once a second (hot_take): client agents to their
 * server, servers what is their own or came from agents to the other servers. Rates are over the last
 * HOT_WINDOW_NS, about.
 *
 * Pure: time is an argument. Not thread-safe. */
#ifndef COORD_LB_HOT_H
#define COORD_LB_HOT_H

#include "base/buffer.h"
#include "base/error.h"

#define HOT_SERVICES_MOST 256 /* of more, those not asked for lately make room */
#define HOT_KEYS          64  /* kept of a service */
#define HOT_KEY_SIZE      256 /* longer keys count for the mean only */
#define HOT_FACTOR        10
#define HOT_LEAST         10 /* look-ups in the window: fewer say nothing */
#define HOT_WINDOW_NS     (10 * UINT64_C(1000000000))

struct hot;
struct hot *hot_new(void);
void hot_free(struct hot *hot);

/* A look-up that this process was asked for. */
void hot_count(struct hot *hot, struct slice service, struct slice key, uint64_t now_ns);
/* What another process counted, as hot_take wrote it. `onward`: it is in the next hot_take here too. CO_CORRUPT: it does
 * not decode; what stood before that has been counted. */
int hot_merge(struct hot *hot, struct slice frame, bool onward, uint64_t now_ns);
/* Appends what is to be passed on since the last time; nothing when there is nothing. */
void hot_take(struct hot *hot, struct buffer *out);

struct hot_key {
    struct slice key; /* until the next call */
    double rate;      /* look-ups a second */
};
struct hot_service {
    double rate;                  /* of all keys together */
    double keys;                  /* different ones, about */
    double mean;                  /* rate of a key */
    size_t count;                 /* of hot ones: */
    struct hot_key hot[HOT_KEYS]; /* the most frequent first */
};
/* False: nobody has asked for its keys within the window. */
bool hot_look(struct hot *hot, struct slice service, uint64_t now_ns, struct hot_service *out);

#endif
