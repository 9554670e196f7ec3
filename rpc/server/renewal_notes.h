/* The records of the renewals that this server signed. A renewal waits for no leader, so its record may have to: it is
 * submitted again until it is written or refused, because as long as the record names a CA of before, that one is trusted
 * (registry/trust.h). Of several of one node the last one counts. Records that wait when the server ends are lost; the node's next
 * renewal makes up for it. Loop thread. */
#ifndef COORD_RPC_RENEWAL_NOTES_H
#define COORD_RPC_RENEWAL_NOTES_H

#include "registry/trust.pb-c.h"
#include "rpc/core/rpc_internal.h"

struct renewal_notes;
struct renewal_notes *renewal_notes_new(struct rpc *rpc);
void renewal_notes_add(struct renewal_notes *notes, const Pb__CertificateInfo *info); /* copies it */
void renewal_notes_tick(struct renewal_notes *notes, uint64_t now_ms);
/* `stopped` is called from the loop, or before this returns, when no write is under way; all is freed then. */
void renewal_notes_stop(struct renewal_notes *notes, void (*stopped)(void *data), void *data);

#endif
