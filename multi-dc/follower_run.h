/* Acts for a follower (multi-dc/follower.h): asks and proposes what it wants, over the rpc of our own region and the link
 * to the source, and tells it what came of it. It runs on every server; the follower rests where its server does not lead.
 *
 * Everything here is called on the loop's thread, which is that of our own rpc. */
#ifndef COORD_MULTI_DC_FOLLOWER_RUN_H
#define COORD_MULTI_DC_FOLLOWER_RUN_H

#include <uv.h>

#include "multi-dc/follower.h"
#include "rpc/api/rpc.h"

struct follower_run;
void follower_run_init(void); /* registers metrics */
/* Takes the follower. `subject`: which copy it is, for the log ("region=us"); copied. `own` is borrowed until it has ended
 * what was proposed (by RPC_LEADER_WAIT_MS at the latest). */
struct follower_run *follower_run_start(uv_loop_t *loop, struct rpc *own, struct follower *follower,
                                        const char *subject);
/* It is freed later, by the loop. The copy stays. */
void follower_run_stop(struct follower_run *run);
/* The link to the source, and whether it is up. It is borrowed until another one is given, or follower_run_stop, and then
 * until it has ended what it was asked (rpc_fetch_cancel: soon). NULL, as at the start: there is none. */
void follower_run_linked(struct follower_run *run, struct rpc *source, bool up);
struct follower *follower_run_follower(struct follower_run *run);
void follower_run_state(const struct follower_run *run, struct follower_state *state);
/* How old this server's copy may be; UINT64_MAX: nothing was heard in this process's life. */
uint64_t follower_run_age_ms(const struct follower_run *run);

#endif
