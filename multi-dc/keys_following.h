/* Keeps copied keys (multi-dc/keys.h) current while this server leads: runs a follower (multi-dc/keys_follower.h) for
 * each rule, over the rpc of our own region and the link to the rule's source. It runs on every server, because each
 * server asks the sources once a second whether anything has changed, so that each knows how far the keys here may lag
 * behind.
 *
 * Everything here is called on the loop's thread. */
#ifndef COORD_MULTI_DC_KEYS_FOLLOWING_H
#define COORD_MULTI_DC_KEYS_FOLLOWING_H

#include <uv.h>

#include "multi-dc/keys_follower.h"
#include "rpc/api/rpc.h"

#define KEYS_LOOK_MS 1000 /* between the questions of a server that does not lead */

struct keys_following;
void keys_following_init(void); /* registers its metrics */
/* `link`: the rpc of the link to a region, which stays until `closed`; NULL: there is none. *up: it can be reached.
 * Both are borrowed until `closed`. */
struct keys_following *keys_following_start(uv_loop_t *loop, struct rpc *own,
                                            struct rpc *(*link)(void *data, const char *region, bool *up), void *data);
/* `closed` is called from the loop, once what was proposed has an outcome (RPC_LEADER_WAIT_MS at the latest). */
void keys_following_stop(struct keys_following *following, void (*closed)(void *data), void *data);
/* Adds the state of each rule's copy to the answer. */
void keys_following_seen(const struct keys_following *following, struct arena *arena, Pb__PeerRegionsAnswer *answer);

#endif
