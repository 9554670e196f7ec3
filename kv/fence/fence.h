/* Fences: the resource's side of fencing tokens. A program that is about to change a resource asks its fence with the
 * token of its lock (kv/lock/lock.h), or of its term in an election. The fence accepts no token below the highest that
 * it has accepted. So a holder that was paused until its lock had passed on can change nothing once the next holder has
 * used its own token, and the resource itself has to compare nothing. A module of the state machine.
 *
 * (1) When the command names no lock, the token is compared with the highest. That is for exclusive locks, because
 *     their tokens grow.
 * (2) When the command names a lock, the token is accepted as long as it holds that lock in any mode. Shared holders
 *     have different tokens, and their order means nothing. The highest rises all the same.
 * (3) Tokens are indexes of the log. A token that is not the index of an earlier entry was never granted, and is
 *     refused as an error, because it would shut out every later holder.
 * (4) The highest token of a resource is kept for ever and nothing deletes it, because a forgotten resource would
 *     accept the token of any holder that slept for long enough. A name and a few bytes stay for each resource. So name
 *     resources after things that live long (a table, a volume). For short-lived things write keys with `?fence=`
 *     (kv/keys/kv.h), which leave nothing behind.
 * (5) A restored backup brings older highests back, and the tokens accepted since the backup are not known. All of them
 *     are below the index of the restore, so (1) accepts no token from before it. A client that holds a lock of the
 *     backup acquires it anew, or uses (2). */
#ifndef COORD_KV_FENCE_H
#define COORD_KV_FENCE_H

#include "kv/fence/fence.pb-c.h"
#include "registry/machine.h"

enum fence_command { FENCE_CHECK = 45 };
enum fence_space { SPACE_FENCE = 41 }; /* a resource */
#define FENCE_NAME_MAX 256             /* bytes of a resource's name, which has no NUL */

extern const struct module fence_module;
extern const struct query_type query_fence; /* FenceRequest -> FenceView; found=false: the resource has accepted no
                                             * token yet */

#endif
