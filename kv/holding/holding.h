/* Holdings: everything that a session holds or waits for, in all modules that bind things to sessions. For people who
 * ask why something is held, and what ends together with a session. A module of the state machine that only has a
 * query. */
#ifndef COORD_KV_HOLDING_H
#define COORD_KV_HOLDING_H

#include "kv/holding/holding.pb-c.h"
#include "registry/module.h"

#define HOLDINGS_SHOWN 100 /* of each kind */

extern const struct module holding_module;
/* HoldingsRequest -> HoldingsResult; found=false: there is no such session. Its index is the session's: a thing that
 * the session takes or releases wakes nobody. */
extern const struct query_type query_holdings;

#endif
