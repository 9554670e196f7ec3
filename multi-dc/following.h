/* Keeps our copy of one region current while this server leads: runs a follower (multi-dc/follower.h) over the rpc of our
 * own region and that of the other. One per region, on every server; it rests where the server does not lead. Every server
 * asks the region once a second where its catalog is, so that each knows how old its own copy may
 * be (multi-dc/copy_age.h).
 *
 * Everything here is called on the loop's thread. */
#ifndef COORD_MULTI_DC_FOLLOWING_H
#define COORD_MULTI_DC_FOLLOWING_H

#include <uv.h>

#include "multi-dc/follower.h"
#include "rpc/api/rpc.h"

struct following;
void following_init(void); /* registers its metric */
/* Both rpcs are borrowed until following_stop, and then until they have ended what they were asked (rpc_fetch_cancel:
 * soon; a proposal: by RPC_LEADER_WAIT_MS at the latest). `name` is copied. */
struct following *following_start(uv_loop_t *loop, struct rpc *own, struct rpc *region, const char *name);
/* It is freed later, by the loop. Our copy stays. */
void following_stop(struct following *following);
/* The link is up or down; up at the start. */
void following_linked(struct following *following, bool linked);

struct following_state {
    struct follower_state follower;
    bool leads;
    uint64_t age_ms;   /* how old this server's copy may be; UINT64_MAX: nothing was heard in this process's life */
    uint64_t heard_ms; /* when the region answered last, mono; 0: never */
    uint32_t
        round_us; /* the shortest of the last round trips; what is added to it is load, not distance. 0: none yet */
    uint64_t newest, position; /* the region's index as it said last, and that of our copy; 0: there is none */
    char error[160];           /* "" or one line, of the last attempt */
};
void following_state(const struct following *following, struct following_state *state);

#endif
