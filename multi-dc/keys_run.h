/* Acts for the rules of copied keys (multi-dc/keys.h): a follower for each (multi-dc/follower.h), on every server.
 *
 * Everything here is called on the loop's thread. */
#ifndef COORD_MULTI_DC_KEYS_RUN_H
#define COORD_MULTI_DC_KEYS_RUN_H

#include <uv.h>

#include "multi-dc/keys.h"
#include "rpc/api/rpc.h"

struct keys_run;
void keys_run_init(void); /* registers its metric */
/* `link`: the rpc of the link to a region; NULL: there is none. *up: it can be reached. The rpc is borrowed as that of
 * follower_run_linked. */
struct keys_run *keys_run_start(uv_loop_t *loop, struct rpc *own,
                                struct rpc *(*link)(void *data, const char *region, bool *up), void *data);
void keys_run_tick(struct keys_run *run, uint64_t now_ms); /* some times a second */
void keys_run_stop(struct keys_run *run);
/* Adds the state of each rule's copy to the answer. */
void keys_run_seen(const struct keys_run *run, struct arena *arena, Pb__PeerRegionsAnswer *answer);

#endif
