/* Rollouts: versions of a configuration, and the choice of a version for each caller. A module of the state machine.
 *
 * A document is a plain key, config/NAME/VERSION, and config/NAME/current names the version that counts. A client that
 * only knows keys follows that pointer. A caller that asks for a rollout identifies itself, and may be given another
 * version: the one of the stage under way.
 *
 *                  set to all (a flip)
 *             .------------------------------.         steps advance by themselves, or set: another percentage
 *             |                              v         .--------.
 *     no current version             current alone <---|  stage |<-- pause, resume
 *                                       |  ^           '--------'
 *                                       |  '---------------'  promote, the last step's hold is over: it is current
 *                                       |                  '  rollback: the stage is gone, current stays
 *                                       '------------------^  set to a part
 *     rollback without a stage: the version that was current before is current again
 *
 * (1) A caller gets the stage's version if its bucket (rollout_bucket) is below the stage's, and it fits the stage's
 *     match. The bucket depends only on the names of rollout and caller. So a higher percentage only adds callers, and
 *     no change of the leader makes a caller change sides.
 * (2) A caller waits for its own version: it is woken when that becomes another one, and its index rises with it
 *     (rollout_layers.c). The record notes past stages for this; a stage for which it has no room is refused.
 * (3) The key `current` is written in the entry that changes `current`, and by no stage.
 * (4) Versions are immutable: publishing one again with other content is refused, also when its key was removed
 *     meanwhile, for as long as the history has its publication. No caller is moved to a version whose key was removed:
 *     such stages, steps, promotions and rollbacks are refused, or pause. A client may still write these keys, because
 *     keys know nothing of rollouts. A caller that reads next gets the content that was written into a document's key,
 *     but the write wakes nobody. A value that was written into `current` counts only for readers of keys, and the
 *     status says so.
 * (5) A hold counts from the entry that armed it (stage.armed). The leader proposes its end with that index, and the
 *     entry does nothing when another one has armed the hold since. So a hold ends once, although two leaders may
 *     propose its end. A new leader counts a full hold.
 * (6) The guard is judged in an entry, as a function of the state. Its samples are the callers that acknowledged the
 *     stage's version since the stage began. A sample fails if it refused the version, or if on its node an instance of
 *     the service has turned critical since then (an instance that was critical when the stage began counts only after
 *     it was healthy in between). When more than max_failing of at least min_samples fail, on_fail happens. The guard
 *     is judged every ROLLOUT_JUDGE_NS, and when a hold ends; at the end of a hold too few samples pause the stage. A
 *     guard that has acted rests until somebody resumes.
 * (7) The history has a row for every change, never rewritten; of each rollout the newest ROLLOUT_HISTORY_MOST.
 * (8) rollback undoes: after v1, v2, v3 it gives v2, then v1; ROLLOUT_BEFORE_MOST of them are known.
 * (9) delete ends a rollout while no stage is under way: it removes everything that is known of it, and its keys if the
 *     command says so. Its callers are told that there is no such rollout. A later rollout of the same name is another
 *     one, and takes over the remaining keys. */
#ifndef COORD_KV_ROLLOUT_H
#define COORD_KV_ROLLOUT_H

#include "kv/rollout/rollout.pb-c.h"
#include "registry/machine.h"

enum rollout_command {
    ROLLOUT_PUBLISH = 144,
    ROLLOUT_SET = 145,
    ROLLOUT_PROMOTE = 146,
    ROLLOUT_ROLLBACK = 147,
    ROLLOUT_PAUSE = 148,
    ROLLOUT_RESUME = 149,
    ROLLOUT_ACK = 150,
    ROLLOUT_SCHEMA = 151,
    ROLLOUT_ADVANCE = 152,
    ROLLOUT_JUDGE = 153,
    ROLLOUT_DELETE = 154,
};
enum rollout_space {
    SPACE_ROLLOUT = 104,        /* name: its record */
    SPACE_ROLLOUT_CALLER = 105, /* name, NUL, bucket (2 bytes): the version of callers in the bucket */
    SPACE_ROLLOUT_MATCH = 106,  /* name, NUL, 'n', 't' or 'r', node, tag or region: the version of such callers */
    SPACE_ROLLOUT_ACKS = 107,   /* name: its acknowledgements */
    SPACE_ROLLOUT_HISTORY = 108,
    SPACE_ROLLOUT_SCHEMA = 109,
};
#define ROLLOUT_BUCKETS       10000
#define ROLLOUT_NAME_MOST     128 /* bytes of a name or a version: text without '/' and control characters */
#define ROLLOUT_ID_MOST       128 /* of a caller's id */
#define ROLLOUT_NODE_MOST     200 /* of a node, a tag, a region */
#define ROLLOUT_TEXT_MOST     512 /* of a comment, a reason */
#define ROLLOUT_SCHEMA_MOST   65536
#define ROLLOUT_STEPS_MOST    32
#define ROLLOUT_MATCH_MOST    64                        /* entries of each list */
#define ROLLOUT_HOLD_MOST_NS  INT64_C(2592000000000000) /* 30 days */
#define ROLLOUT_HOLD_LEAST_NS INT64_C(10000000)         /* 10 ms: a number without a unit counts as nanoseconds */
#define ROLLOUTS_MOST         10000
#define ROLLOUT_CALLERS_MOST  100000 /* acknowledgements of a rollout; the oldest one makes room for a new one */
#define ROLLOUT_HISTORY_MOST  10000
#define ROLLOUT_BEFORE_MOST   16
#define ROLLOUT_TAGS_MOST     16                  /* that a caller names */
#define ROLLOUT_SHOWN_MOST    100                 /* lengths of the lists of refusals and silent nodes in a status */
#define ROLLOUT_JUDGE_NS      INT64_C(5000000000) /* time between two judgements of a guard */
#define ROLLOUT_BULK_MOST     (16 << 20)          /* bytes of documents in the answer of query_rollout_all */

extern const struct module rollout_module;
extern const struct expiry_kind rollout_hold_expiry;  /* 24: name; index: stage.armed */
extern const struct expiry_kind rollout_judge_expiry; /* 25: name; index: of the entry that armed it */
/* RolloutCaller -> RolloutResolution; found=false: no such rollout, or it has no current version. It waits until the
 * caller's version is another one. */
extern const struct query_type query_rollout;
/* RolloutCaller (no name) -> RolloutResolutions: of all rollouts with a current version. Asked once, without
 * waiting. */
extern const struct query_type query_rollout_all;
extern const struct query_type query_rollout_state;   /* RolloutRequest -> RolloutState */
extern const struct query_type query_rollout_history; /* RolloutHistoryRequest -> RolloutHistory, the newest first */
extern const struct query_type query_rollout_schema;  /* RolloutRequest -> RolloutSchema; found=false: the rollout has
                                                       * none */
extern const struct query_type query_rollouts;        /* RolloutListRequest -> RolloutsResult, without counts */

/* Of 0 to ROLLOUT_BUCKETS - 1: the same on every server, in every version of the program. */
uint32_t rollout_bucket(struct slice name, struct slice id);
/* Fills in caller->keys, in the arena. */
void rollout_caller_keys(Pb__RolloutCaller *caller, struct arena *arena);
/* May a rollout or a version have this name (`version`: it must not be "current")? */
bool rollout_name_fits(struct slice name, bool version);

#endif
