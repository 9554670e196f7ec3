/* Keys that are copied from other regions: what begins with a prefix comes from one region, its source, and nobody else
 * changes it here. Replicated state: the rules, each with how far its copy is; the copied keys lie among all others
 * (kv/keys/kv.h), so that they are read, waited for and streamed like these, with indexes of this region.
 *
 * Values and flags are copied; locks, sessions and leases are not. Two kinds of steps, each one entry (KEYS_TAKE) with at
 * most KEYS_ROWS_MOST rows:
 *   a page     of a listing in the order of the store: all that the source has between two places. What else is here
 *              between them goes. A listing reads at several moments; it counts from its first on.
 *   changes    of what the source was at one index to what it was at a later one. An entry of the source is never
 *              divided: one that is too large for a step makes a listing.
 * So the keys here are as they were at the source at one index, `at`, except while a listing is under way, and until the
 * changes have come to the index at which its last page was read (keys_whole).
 *
 * A step names the revision of its rule that it was decided on, and every step makes another one: a step that comes twice,
 * late, or of a former leader, is refused. Where a listing is lies in the rule, so another leader goes on with it.
 * A rule that is removed leaves the keys, which are this region's then. */
#ifndef COORD_MULTI_DC_KEYS_H
#define COORD_MULTI_DC_KEYS_H

#include "multi-dc/keys.pb-c.h"
#include "registry/machine.h"

#define KEYS_RULES_MAX  64
#define KEYS_PREFIX_MAX 256
#define KEYS_ROWS_MOST  256                 /* entries and removals in one step */
#define KEYS_BYTES_MOST ((size_t)512 << 10) /* of keys and values in one step; one row alone may have more */
#define KEYS_STEP_ROWS  1024                /* keys here that one page passes */

enum keys_command { KEYS_SET = 213, KEYS_UNSET = 214, KEYS_TAKE = 215 };
enum keys_space { SPACE_KEYS = 118 }; /* name "": the rules, and where they are */

/* Refused: CO_INVALID, CO_TOOLARGE, CO_CONFLICT (another rule, keys that are here, another revision), CO_NOTFOUND.
 * KEYS_TAKE says yes unless a page has not been passed whole: it is proposed again then, with the new revision, which is
 * result.index. */
extern const struct module keys_module;
extern const struct query_type query_keys_rules; /* KeysRulesRequest -> KeysRulesResult */
/* At the source: KeysChangesRequest -> KeysChangesResult. Its index: above that of `from` when there is something to tell.
 * Where the history (registry/history.h) does not reach back to `from`, or `from` is of another life of the cluster, and
 * something may have changed: the first page. `to` below `from`: this server is behind. */
extern const struct query_type query_keys_changes;

/* As its source's were at rule->at, and nothing else. */
static inline bool keys_whole(const Pb__KeysRule *rule) {
    return rule->at && !rule->listing && rule->at->index >= rule->whole;
}

#endif
