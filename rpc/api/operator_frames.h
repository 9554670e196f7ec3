/* Operators' questions and changes as frames: between servers, and between client agents and servers
 * (rpc/core/operator_calls.c). */
#ifndef COORD_RPC_OPERATOR_FRAMES_H
#define COORD_RPC_OPERATOR_FRAMES_H

#include "rpc/api/operator.h"
#include "rpc/wire/peer.pb-c.h"

/* Lists in the arena, texts where they are. */
void operator_state_pack(const struct rpc_cluster_state *state, struct arena *arena, Pb__PeerClusterAnswer *answer);
/* Servers in the arena; at most as many as a configuration can have. */
void operator_state_unpack(const Pb__PeerClusterAnswer *answer, struct arena *arena, struct rpc_cluster_state *state);
/* CO_INVALID: it is not a change. */
int operator_change_unpack(const Pb__PeerChange *wanted, struct rpc_change *change);

#endif
