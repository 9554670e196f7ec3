/* Sessions. The replicated part is in the module of kv/kv.h; here are its queries, and what the leader's table is to
 * count: TTLs and lock-delays. The module's data (machine_config.module_data) is NULL, or the struct lease_box that
 * its news go to. */
#ifndef COORD_KV_SESSION_H
#define COORD_KV_SESSION_H

#include "kv/kv.h"
#include "registry/lease_timers.h"

extern const struct query_type query_session;  /* SessionRequest -> Session; found=false */
extern const struct query_type query_sessions; /* SessionListRequest -> SessionsResult */

/* The leader's table (registry/lease_timers.h) learns of every session and every lock-delay in the store. CO_OK,
 * CO_CORRUPT: of a record that makes no sense; the others are read. */
int session_timers_read(struct lease_timers *timers, struct store_txn *txn, uint64_t now_ms);

#endif
