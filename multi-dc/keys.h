/* Keys that are copied from other regions: all keys below a prefix come from one region, their source, and nobody else
 * changes them here. Replicated state: the rules, each with the position of its copy. The copied keys lie among all
 * other keys (kv/keys/kv.h), so that they are read, waited for and streamed like these, with indexes of this region.
 *
 * Values and flags are copied; locks, sessions and leases are not. Two kinds of steps, each one entry (KEYS_TAKE) with
 * at most KEYS_ROWS_MOST rows:
 *   a page     of a listing in the order of the store: all keys that the source has between two places. Other keys here
 *              between them are removed. The pages are read at several moments; the listing counts as of the first.
 *   changes    between two indexes of the source. A step never divides an entry of the source: one that is too large
 *              for a step makes a listing.
 * So the keys here equal those of the source at one index, `at`. The exception is a listing: while it is under way, and
 * until the changes have reached the index at which its last page was read (keys_whole).
 *
 * A step names the revision of the rule for which it was decided, and every step makes a new revision. So a step that
 * comes twice, late, or from a former leader, is refused. The rule also has the place that a listing has reached, so
 * another leader continues it. When a rule is removed its keys stay, and belong to this region from then on. */
#ifndef COORD_MULTI_DC_KEYS_H
#define COORD_MULTI_DC_KEYS_H

#include "multi-dc/keys.pb-c.h"
#include "registry/machine.h"

#define KEYS_RULES_MAX  64
#define KEYS_PREFIX_MAX 256
#define KEYS_ROWS_MOST  256                 /* entries and removals in one step */
#define KEYS_BYTES_MOST ((size_t)512 << 10) /* bytes of keys and values in one step; a single row may have more */
#define KEYS_STEP_ROWS  1024                /* keys here that one entry of a page looks at */

enum keys_command { KEYS_SET = 213, KEYS_UNSET = 214, KEYS_TAKE = 215 };
enum keys_space { SPACE_KEYS = 118 }; /* name "": the rules, and the positions of their copies */

/* Refused: CO_INVALID, CO_TOOLARGE, CO_CONFLICT (another rule, keys that are here, another revision), CO_NOTFOUND.
 * KEYS_TAKE says yes, unless one entry could not take the whole page: then it is proposed again with the new revision,
 * which is result.index. */
extern const struct module keys_module;
extern const struct query_type query_keys_rules; /* KeysRulesRequest -> KeysRulesResult */
/* At the source: KeysChangesRequest -> KeysChangesResult. Its index is above that of `from` when there are changes. The
 * answer is the first page of a listing when the history (registry/history.h) does not reach back to `from` and
 * something may have changed, or when `from` is of another life of the cluster. `to` below `from`: this server is
 * behind. */
extern const struct query_type query_keys_changes;

/* Do the keys here equal the source's at rule->at? */
static inline bool keys_whole(const Pb__KeysRule *rule) {
    return rule->at && !rule->listing && rule->at->index >= rule->whole;
}

#endif
