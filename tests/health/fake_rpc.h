/* rpc/rpc.h over a real state machine in a temporary folder, without Raft: a thread applies what is submitted. What
 * a cluster can do to its users is a switch here. */
#ifndef COORD_TESTS_HEALTH_FAKE_RPC_H
#define COORD_TESTS_HEALTH_FAKE_RPC_H

#include "registry/catalog.h"
#include "registry/lease.h"
#include "rpc/rpc.h"

struct rpc *fake_rpc_start(void);
void fake_rpc_stop(struct rpc *rpc);               /* what waits ends with CO_CLOSED */
void fake_rpc_leader(struct rpc *rpc, bool there); /* there is none: writes end with CO_NOLEADER. True at the start */
/* The next `count` writes end with CO_UNKNOWN_OUTCOME, done or not. */
void fake_rpc_lose(struct rpc *rpc, unsigned count, bool done);
/* The next `count` writes end with CO_UNKNOWN_OUTCOME, and are on their way until fake_rpc_late, which applies them. */
void fake_rpc_delay(struct rpc *rpc, unsigned count);
void fake_rpc_late(struct rpc *rpc);
/* Writes with this text in them end with CO_UNKNOWN_OUTCOME, not done. NULL: no more. Returns how many there were. */
unsigned fake_rpc_poison(struct rpc *rpc, const char *text);
void fake_rpc_hold(struct rpc *rpc, bool hold); /* writes wait */
uint64_t fake_rpc_writes(struct rpc *rpc);      /* applied so far */
uint64_t fake_rpc_renewals(struct rpc *rpc);    /* that succeeded */
uint64_t fake_rpc_fetched(struct rpc *rpc);     /* so often something was asked for */
uint64_t fake_rpc_cancelled(struct rpc *rpc);
/* Fetches that are read from now on end with CO_FENCED; those that wait, when their thing changes. */
void fake_rpc_fence(struct rpc *rpc, bool fence);
void fake_rpc_slow(struct rpc *rpc, unsigned us); /* each of them is read so much after the one before */
uint64_t fake_rpc_fenced(struct rpc *rpc);        /* so often that was so */
/* Raises the cluster version, which is 1: commands that came later are refused with CO_UNSUPPORTED, leases among
 * them. */
void fake_rpc_version(struct rpc *rpc, unsigned version);
/* Applies a command as somebody else's. */
void fake_rpc_apply(struct rpc *rpc, uint8_t command, const ProtobufCMessage *message);

/* What the catalog holds now; the result lives in the arena. NULL: no such record. */
const Pb__Service *fake_rpc_service(struct rpc *rpc, struct arena *arena, const char *node, const char *id);
const Pb__Check *fake_rpc_check(struct rpc *rpc, struct arena *arena, const char *node, const char *id);
const Pb__Node *fake_rpc_node(struct rpc *rpc, struct arena *arena, const char *node);
const Pb__Lease *fake_rpc_lease(struct rpc *rpc, struct arena *arena, const char *id);
const Pb__Lease *fake_rpc_node_lease(struct rpc *rpc, struct arena *arena, const char *node);
size_t fake_rpc_count(struct rpc *rpc, const char *node); /* its services and checks */

#endif
