/* The servers' view of other nodes, for the alias checks of these nodes. One *follower* for each node and each token that its
 * aliases were registered with, whatever their number, asks for the node's services and its checks and goes on asking, by blocking queries of two
 * minutes that any server answers from its state (rpc_fetch, RPC_STALE): on a client agent as on a server. The answers
 * are kept, packed.
 *
 *     services --answer--> the indexes are equal (both are of the node): shown together --> both wait for news
 *     checks   --answer-----'   '--not: the older one is asked again at once
 *
 * So an alias never sees a service without its checks, or checks without their service.
 *
 * When the servers cannot be reached the last known state stays, for a while: a query that waits notices this after two
 * minutes at the latest; the follower then asks again every few seconds, and when that has failed for FOLLOW_LOST_MS it
 * is *lost*. Its aliases are critical then, as in Consul, which bounds the age of answers by the same 15 s (there the
 * second query that fails in a row counts). With the next answer they follow the node again. A follower that never had
 * an answer is never lost: its aliases have no result yet.
 *
 * What the token may not read is not there for its aliases; when it may not read the node at all, they are critical at once.
 *
 * Loop thread only. */
#ifndef COORD_HEALTH_LOCAL_FOLLOW_H
#define COORD_HEALTH_LOCAL_FOLLOW_H

#include "health/local_internal.h"

#define FOLLOW_LOST_MS 15000

struct follows;
struct follows *follows_new(struct local *local);
/* Abandons the queries under way, closes the timer, then calls local_part_closed. */
void follows_close(struct follows *follows);

/* The nodes that are to be followed from now on: everything between begin and end. The others' followers end. */
void follows_want_begin(struct follows *follows);
void follows_want(struct follows *follows, const char *node, const char *token);
void follows_want_end(struct follows *follows);

/* follows_look takes the answers that have come, and asks again. Until its next call follow_changed tells whether it
 * has changed what is known of a node. */
void follows_look(struct follows *follows);
bool follow_changed(const struct follows *follows, const char *node, const char *token);

/* CO_OK: `seen` is the last answer. CO_AGAIN: there is no answer yet. Another error: the follower is lost, for this
 * reason. */
struct follow_seen {
    bool found; /* there is such a node */
    /* packed pb.NodeServicesResult and pb.ChecksResult; valid until the next look, want or close */
    struct slice services, checks;
};
int follow_see(const struct follows *follows, const char *node, const char *token, struct follow_seen *seen);

#endif
