/* Queues: who holds a name, and who waits for it, in turn. What locks and elections are made of; a queue is one name of
 * a family (all locks, all elections). Who holds is replicated state: a name passes on in the entry that frees it, and
 * no server has to be asked, told or waited for.
 *
 *     acquire --free, nobody waits--> HOLDS --release, the session ends--> gone; the queue moves on
 *        '--else, with enqueue--> WAITS --the queue moves on--> HOLDS
 *                                   '--release, the session ends--> gone; the queue moves on
 *
 * (1) The token of a grant is the index of its entry. Indexes only grow, also over a restore and a recovery, so the
 *     tokens of a name do, although nothing of a name is kept for long once nobody is there.
 *     Shared holders that were granted together, in one entry, have one token, which is no fence; nor is that of a
 *     holder whom a restored backup brings back. Acquiring again gives them a token of their own.
 * (2) Nobody overtakes the queue. It moves on in the entry that makes it possible: its first one is granted, and with
 *     a shared one all shared ones right behind it, as far as `limit` goes.
 * (3) A session is once in a queue. Acquiring again gives what it has: its token, or its place.
 * (4) Who would wait for something that is held by one who, over any number of names, waits for this session, is
 *     refused (CO_CONFLICT); the text names the circle. Neither with a limit nor in elections: see kv/lock/circle.h.
 * (5) When the session of a holder ends and has a lock-delay, the queue moves on only when the leader has said that it
 *     is over. (Not of one that was granted by the very entry that ends it: it never knew.)
 * (6) Each grant touches one watch key (session and name), so it wakes who waits for just that.
 *
 * All functions that take a tx are called by the applier while it applies an entry. They return CO_OK, or why the
 * store failed; a refusal is in `result`. */
#ifndef COORD_KV_LOCK_QUEUE_H
#define COORD_KV_LOCK_QUEUE_H

#include "base/text.h"
#include "kv/lock/queue.pb-c.h"
#include "registry/machine.h"

#define QUEUE_NAME_MAX     256   /* bytes of a name, which has no NUL */
#define QUEUE_NOTE_MAX     65536 /* bytes */
#define QUEUE_PRIORITY_MAX 1000000
#define QUEUE_WAITERS_MAX  100000
#define QUEUE_OWN_MAX      100000 /* queues of one family that a session is in */
#define QUEUE_FREE_KEPT    10000  /* names that nobody is in: so many are remembered, for their transitions */

/* A family: where its rows are, and what it is called. Constant. */
struct queue_family {
    const char *noun;                     /* "lock" */
    uint8_t table;                        /* name -> pb.Queue; name, NUL, position -> pb.QueueEntry */
    uint8_t aside;                        /* free names by index, lock-delays by name and index */
    uint8_t space;                        /* of watches: a name; with WATCH_PREFIX_BIT: prefixes of names */
    uint8_t entry_space;                  /* a session in a queue: queue_entry_name */
    uint8_t holder_space;                 /* a name: who holds it, and the note. 0: nobody watches that alone */
    bool is_election;                     /* priorities; neither shared ones nor limits, and no circles */
    uint8_t delay_over;                   /* number of the command with QueueDelayOverCommand */
    const struct module_binding *binding; /* key: the name; value: the position */
    const struct expiry_kind *delay;      /* the name, NUL, index: a name may have several; the index that began it */
};

bool queue_name_fits(struct slice name);

/* -- commands ----------------------------------------------------------------------------------------------------- */

/* As module_command.apply. Acquire answers with a QueueAnswer. */
int queue_acquire(struct machine_tx *tx, const struct queue_family *family, const Pb__QueueAcquireCommand *command,
                  struct machine_result *result);
int queue_release(struct machine_tx *tx, const struct queue_family *family, const Pb__QueueReleaseCommand *command,
                  struct machine_result *result);
int queue_set_note(struct machine_tx *tx, const struct queue_family *family, const Pb__QueueNoteCommand *command,
                   struct machine_result *result);
int queue_delay_over(struct machine_tx *tx, const struct queue_family *family, const Pb__QueueDelayOverCommand *command,
                     struct machine_result *result);
/* As module_binding.ended. */
int queue_session_ended(struct machine_tx *tx, const struct queue_family *family, const struct binding_end *end);
/* As expiry_kind.read and .end. */
int queue_delays_read(struct store_txn *txn, const struct queue_family *family, const struct expiry_leader *leader,
                      struct expiry *expiry);
void queue_delay_end(const struct queue_family *family, const struct expiry_due *due,
                     const struct expiry_leader *leader,
                     void (*propose)(void *data, uint8_t command, const ProtobufCMessage *message), void *data);

/* -- reads: into the arena; CO_OK, CO_NOTFOUND, or the store failed ----------------------------------------------- */

int queue_get(struct store_txn *txn, const struct queue_family *family, struct slice name, struct arena *arena,
              Pb__Queue **queue);
/* Who holds it with this token; of several that were granted together the first. *several may be NULL. */
int queue_holder(struct store_txn *txn, const struct queue_family *family, struct slice name, uint64_t token,
                 struct arena *arena, Pb__QueueEntry **entry, bool *several);
/* Does this token hold the name now? For fences: writes that count only then. A token that several shared holders were
 * granted together does not (CO_NOTFOUND), because one of them may have lost the name. */
int queue_holds(struct store_txn *txn, const struct queue_family *family, struct slice name, uint64_t token,
                struct arena *arena);
/* What the session has there: it holds (entry->token is not 0), or waits. */
int queue_entry(struct store_txn *txn, const struct queue_family *family, struct slice name, struct slice session,
                struct arena *arena, Pb__QueueEntry **entry);
/* For those who are refused because their token does not hold the name: `token 3 does not hold lock "x": it is held with
 * token 17`. */
int queue_not_held_text(struct store_txn *txn, const struct queue_family *family, struct slice name, uint64_t token,
                        struct arena *arena, const char **text);
/* How many wait before this one, and itself. */
uint32_t queue_position(struct store_txn *txn, const struct queue_family *family, struct slice name,
                        const Pb__QueueEntry *entry);
/* All of a name; when nobody is there, an empty view. `most`: of those that wait. */
int queue_view(struct store_txn *txn, const struct queue_family *family, struct slice name, size_t most,
               struct arena *arena, Pb__QueueView **view);
/* Names with this beginning that somebody is in, in order. *index: the last change of any. */
int queue_list(struct store_txn *txn, const struct queue_family *family, struct slice prefix, size_t most,
               struct arena *arena, Pb__QueueListResult *list, uint64_t *index);
/* What a session that waits watches: its id, then the name. `room`: QUEUE_ENTRY_NAME_MAX bytes. */
#define QUEUE_ENTRY_NAME_MAX (UUID_TEXT_SIZE + QUEUE_NAME_MAX)
struct slice queue_entry_name(struct slice name, struct slice session, char room[QUEUE_ENTRY_NAME_MAX]);
/* The last change of a name, also of one that is gone; 0: never. */
uint64_t queue_index(struct store_txn *txn, const struct queue_family *family, struct slice name);

/* -- as query_type.watched and .run; request: QueueRequest, QueueEntryRequest, QueueListRequest ---------------------- */

struct watch_key queue_watched(uint8_t space, const ProtobufCMessage *request);
/* QueueEntryRequest -> QueueAnswer; found=false: it is not there. The index of what is: of its grant, or of its place. */
int queue_entry_run(struct store_txn *txn, const struct queue_family *family, const ProtobufCMessage *request,
                    struct arena *arena, struct query_result *result);
/* QueueRequest -> QueueAnswer, without a session when several were granted together; found=false: nobody holds it so */
int queue_holder_run(struct store_txn *txn, const struct queue_family *family, const ProtobufCMessage *request,
                     struct arena *arena, struct query_result *result);
/* QueueRequest -> QueueView, with the first 1,000 of those that wait. */
int queue_view_run(struct store_txn *txn, const struct queue_family *family, const ProtobufCMessage *request,
                   struct arena *arena, struct query_result *result);
/* QueueListRequest -> QueueListResult */
int queue_list_run(struct store_txn *txn, const struct queue_family *family, const ProtobufCMessage *request,
                   struct arena *arena, struct query_result *result);

#endif
