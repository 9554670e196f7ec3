/* Network coordinates on a server: its own, by measuring the other servers, and the updates of everybody that arrive
 * here, gathered into few commands (lb/coordinate_agent.h and lb/coordinate_batch.h decide; here are loop, timer and
 * frames).
 *
 * How round trips are measured: PEER_ECHO, answered at once by PEER_ECHO_ANSWER with the answering server's coordinate,
 * over the connection that the two have anyway. PEER_PING has no answer, and the answers to READ and RENEW wait for a
 * round of leadership with third servers, so they do not measure the path between two. The measured time includes that
 * for which a frame waits in either loop: microseconds, except while a loop is busy. The median of the last three
 * samples removes such outliers (vivaldi.h). One echo is under way at a time, each server in its turn, one a second: 60
 * bytes.
 *
 * Only members of the cluster are measured: coordinates of strangers would move this server's own.
 *
 * Updates are not acknowledged when they are applied, but when they are taken: nobody waits for the log. */
#ifndef COORD_RPC_COORDINATES_H
#define COORD_RPC_COORDINATES_H

#include <uv.h>

#include "lb/coordinate_batch.h"
#include "rpc/api/rpc.h"

struct coordinates_config {
    bool disabled;        /* measures nothing, reports nothing, takes no updates */
    uint64_t interval_ms; /* between reports of the own one; 0: see coordinate_agent.h */
    struct coordinate_batch_config batch;
};

/* Any thread: as in rpc_role. */
int coordinates_put(struct rpc *rpc, const Pb__Coordinate *record);
struct vivaldi_coordinate coordinates_here(struct rpc *rpc);

/* -- loop thread -------------------------------------------------------------------------------------------------- */
struct coordinates;
struct coordinates *coordinates_new(struct rpc *rpc, const struct coordinates_config *config, const char *node);
void coordinates_free(struct coordinates *coordinates);      /* nothing of it is under way: the node has stopped */
void coordinates_start(struct rpc *rpc);                     /* rpc->server->coordinates is set; begins a timer */
void coordinates_close(struct rpc *rpc, uv_close_cb closed); /* closes the timer, whose data is `rpc` */
struct caller;
bool coordinates_echo(const struct caller *caller, struct slice payload); /* PEER_ECHO of a server; as echo_serve */
void coordinates_down(struct rpc *rpc, uint64_t peer);

#endif
