/* rpc.h over a machine in this process, without Raft: commands are applied at once, on the caller's thread. Reads,
 * generations and the applied index are the machine's own. */
#ifndef COORD_TESTS_DNS_FAKE_RPC_H
#define COORD_TESTS_DNS_FAKE_RPC_H

#include "rpc/rpc.h"

/* A catalog in a folder of its own, removed by fake_rpc_close. */
struct rpc *fake_rpc_open(void);
void fake_rpc_close(struct rpc *rpc);
/* Applies a command of the catalog; it must be accepted. */
void fake_rpc_apply(struct rpc *rpc, uint8_t command, const ProtobufCMessage *message);

/* What rpc_confirm answers to default reads: CO_OK at once; anything else comes later, from another thread. */
void fake_rpc_set_confirm(struct rpc *rpc, int error);
/* How often a read was begun, by all readers. */
unsigned long fake_rpc_reads(struct rpc *rpc);

#endif
