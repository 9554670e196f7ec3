/* The other servers as this one has heard them: when last, since when each is up or down, and how it calls itself. It
 * also remembers servers that are gone; the one that is silent for longest makes room for a new one. Loop thread only;
 * the time is an argument. */
#ifndef COORD_RPC_LAST_SEEN_H
#define COORD_RPC_LAST_SEEN_H

#include "rpc/cluster/peers.h"

struct last_seen {
    uint64_t id, ms;   /* ms: when it was heard last */
    uint64_t since_ms; /* it is up, or down, since */
    bool up;
    char node[256], build[PEER_BUILD_MAX]; /* empty: it was never connected */
};

struct last_seen_table;
struct last_seen_table *last_seen_new(void);
void last_seen_free(struct last_seen_table *table); /* may be NULL */

/* NULL: it was never heard, or is forgotten. Valid until the next call of a function below. */
const struct last_seen *last_seen_find(const struct last_seen_table *table, uint64_t id);

void last_seen_heard(struct last_seen_table *table, uint64_t id, uint64_t now_ms);
/* Its connection is up. `info`: as peers_list has it; NULL: it is not there. */
void last_seen_up(struct last_seen_table *table, uint64_t id, const struct peer_info *info, uint64_t now_ms);
void last_seen_down(struct last_seen_table *table, uint64_t id, uint64_t now_ms);

#endif
