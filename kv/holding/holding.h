/* What a session holds or waits for, over all modules that bind things to sessions: for people who ask why something is
 * held, and what ends with a session. A module of the state machine with a query and nothing else. */
#ifndef COORD_KV_HOLDING_H
#define COORD_KV_HOLDING_H

#include "kv/holding/holding.pb-c.h"
#include "registry/module.h"

#define HOLDINGS_SHOWN 100 /* of each kind */

extern const struct module holding_module;
/* HoldingsRequest -> HoldingsResult; found=false: there is no such session. Its index is the session's: nobody is woken by
 * what it takes and releases. */
extern const struct query_type query_holdings;

#endif
