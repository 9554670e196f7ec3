/* Other regions: a record of each in the replicated state, with servers to reach it by, so that every server of this
 * region links with it (multi-dc/links_run.h), after any restart. A module of the state machine.
 *
 * A region is one cluster: its record has that cluster's id. Another cluster of the same name is refused, unless it
 * took the place of the former one: the proposing server has seen that all known servers of the former cluster belong
 * to the new one. A removed region stays on record, so that a link from there, or a neighbour that still knows it, does
 * not bring it back; only an operator who joins it again does.
 *
 * A name of a lock, an election, a barrier, a phaser, a hazard or a budget that ends in @ and the name of another
 * region on record belongs to that region, and is refused here (module.forbids): "db@us" is one lock, which us
 * keeps. */
#ifndef COORD_MULTI_DC_REGION_H
#define COORD_MULTI_DC_REGION_H

#include "multi-dc/region.pb-c.h"
#include "registry/machine.h"

enum region_command { REGION_LEARN = 220, REGION_REMOVE = 221, REGION_SEEN = 222 };
enum region_space { SPACE_REGIONS = 116 }; /* name "" */
#define REGIONS_MAX        64              /* removed ones included */
#define REGION_NAME_MAX    63              /* a DNS label */
#define REGION_SERVERS_MAX 16

extern const struct module region_module;
extern const struct query_type query_regions; /* RegionsRequest -> RegionsResult */

/* Is any other region on record, also one that was removed? */
bool region_any(struct store_txn *txn);
/* Is another region of this name on record, and not removed? */
bool region_known(struct store_txn *txn, struct slice name);
/* The part of a name behind its last @; empty: it has none. */
struct slice region_of_name(struct slice name);
/* The text of the refusal, when such a name is used in another region. */
const char *region_elsewhere(struct arena *arena, const char *noun, struct slice name);
/* Letters, digits, '-' and '_', at most REGION_NAME_MAX: the rule for names of datacenters. */
bool region_name_good(const char *name);
/* Would this command change the record? `known` NULL: there is none. To be asked before a proposal. */
/* Does the leader's observation differ from the record so much that it matters? */
bool region_seen_is_news(const Pb__RegionSeenCommand *command, const Pb__Region *known);
bool region_is_news(const Pb__RegionLearnCommand *command, const Pb__Region *known);

#endif
