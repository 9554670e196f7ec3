/* Fences: the resource's side of fencing tokens. Who is about to change a resource asks its fence with the token of his
 * lock (kv/lock/lock.h), or of his term in an election. The fence accepts no token below the highest that it has
 * accepted. So a holder that was paused until its lock had passed on changes nothing once the next one has begun, and
 * the resource itself has to compare nothing. A module of the state machine.
 *
 * (1) Without a lock the token is compared with the highest. That is for exclusive locks, whose tokens grow.
 * (2) With a lock it is accepted as long as it holds that lock, of whatever mode: shared holders have different tokens,
 *     and which of them comes first says nothing. The highest rises all the same.
 * (3) Tokens are indexes of the log. One that no entry before this one has was never granted, and is an error: it would
 *     shut out every later holder.
 * (4) The highest token of a resource is kept for ever, because that is the promise: a resource that was forgotten would
 *     accept the token of anybody who slept for long enough. For the same reason nothing deletes one. A name and a few
 *     bytes stay for each resource; name resources after what is there for long (a table, a volume), and let writes of
 *     short-lived things be keys with `?fence=` (kv/keys/kv.h), of which nothing stays.
 * (5) A backup brings old highests back, and what was accepted since is not known. All of that is below the index of the
 *     restore: (1) takes no token from before it. Who holds a lock of the backup acquires it anew, or uses (2). */
#ifndef COORD_KV_FENCE_H
#define COORD_KV_FENCE_H

#include "kv/fence/fence.pb-c.h"
#include "registry/machine.h"

enum fence_command { FENCE_CHECK = 45 };
enum fence_space { SPACE_FENCE = 41 }; /* a resource */
#define FENCE_NAME_MAX 256             /* bytes of a resource's name, which has no NUL */

extern const struct module fence_module;
extern const struct query_type query_fence; /* FenceRequest -> FenceView; found=false: it has accepted no token yet */

#endif
