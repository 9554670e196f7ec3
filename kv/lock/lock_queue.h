/* Queues: the holders of a name, and those that wait for it in turn. Locks and elections are made of queues; a queue is
 * one name of a family (all locks, all elections). The holder is replicated state: the entry that frees a name also
 * grants it to the next one, and no server has to be asked, told or waited for.
 *
 *     acquire --free, nobody waits--> HOLDS --release, the session ends--> gone; the queue moves on
 *        '--else, with enqueue--> WAITS --the queue moves on--> HOLDS
 *                                   '--release, the session ends--> gone; the queue moves on
 *
 * (1) The token of a grant is the index of its log entry. Indexes only grow, also over a restore and a recovery. So the
 *     tokens of a name only grow, although a name is soon forgotten when nobody is in its queue. Shared holders that
 *     one entry granted have one token, which is no fence; nor is the token of a holder that a restored backup brings
 *     back. When such a holder acquires again it gets a token of its own.
 * (2) Nobody overtakes the queue. It moves on in the entry that makes that possible: its first waiter is granted, and
 *     with a shared one all shared ones right behind it, as far as `limit` allows.
 * (3) A session is in a queue once. When it acquires again it is told what it has: its token, or its place.
 * (4) A wait that would close a circle is refused (CO_CONFLICT), and the text names the circle: the session would wait
 *     for a holder that waits for this session, over any number of names. Names with a limit and elections have no such
 *     check: see kv/lock/lock_circle.h.
 * (5) When the session of a holder ends and has a lock-delay, the queue moves on only after the leader's command that
 *     the delay is over. (Except when the very entry that ends the session granted it the name, because that holder
 *     never knew.)
 * (6) Each grant touches one watch key (session and name), so it wakes only the clients that wait for this grant.
 *
 * All functions that take a tx are called by the applier while it applies an entry. They return CO_OK, or why the
 * store failed; a refusal is in `result`. */
#ifndef COORD_KV_LOCK_QUEUE_H
#define COORD_KV_LOCK_QUEUE_H

#include "base/text.h"
#include "kv/lock/lock_queue.pb-c.h"
#include "registry/machine.h"

#define QUEUE_NAME_MAX     256   /* bytes of a name, which has no NUL */
#define QUEUE_NOTE_MAX     65536 /* bytes */
#define QUEUE_PRIORITY_MAX 1000000
#define QUEUE_WAITERS_MAX  100000
#define QUEUE_OWN_MAX      100000 /* the most queues of one family that a session may be in */
#define QUEUE_FREE_KEPT    10000  /* free names that are remembered, for their transitions */

/* A family: its tables, watch spaces and name. Constant. */
struct queue_family {
    const char *noun;                     /* "lock" */
    uint8_t table;                        /* name -> pb.Queue; name, NUL, position -> pb.QueueEntry */
    uint8_t aside;                        /* free names by index, lock-delays by name and index */
    uint8_t space;                        /* of watches: a name; with WATCH_PREFIX_BIT: prefixes of names */
    uint8_t entry_space;                  /* a session in a queue: queue_entry_name */
    uint8_t holder_space;                 /* a name: its holder, and the note. 0: nobody watches these alone */
    bool is_election;                     /* priorities; no shared mode, no limits, no circles */
    uint8_t delay_over;                   /* number of the command with QueueDelayOverCommand */
    const struct module_binding *binding; /* key: the name; value: the position */
    const struct expiry_kind *delay;      /* name: the lock's, NUL, index (a lock may have several); index: of the entry
                                           * that began it */
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
/* The holder with this token; the first, when several were granted together. *several may be NULL. */
int queue_holder(struct store_txn *txn, const struct queue_family *family, struct slice name, uint64_t token,
                 struct arena *arena, Pb__QueueEntry **entry, bool *several);
/* Does this token hold the name now? For fences, which let writes through only then. A token that several shared
 * holders were granted together does not count (CO_NOTFOUND), because one of them may have lost the name. */
int queue_holds(struct store_txn *txn, const struct queue_family *family, struct slice name, uint64_t token,
                struct arena *arena);
/* The session's entry: it holds the name (entry->token is not 0), or waits. */
int queue_entry(struct store_txn *txn, const struct queue_family *family, struct slice name, struct slice session,
                struct arena *arena, Pb__QueueEntry **entry);
/* The text of a refusal, because a token does not hold the name: `token 3 does not hold lock "x": it is held with token
 * 17`. */
int queue_not_held_text(struct store_txn *txn, const struct queue_family *family, struct slice name, uint64_t token,
                        struct arena *arena, const char **text);
/* The entry's place among those that wait, from 1. */
uint32_t queue_position(struct store_txn *txn, const struct queue_family *family, struct slice name,
                        const Pb__QueueEntry *entry);
/* The whole queue of a name; empty, when nobody is in it. `most`: limits the waiters in the view. */
int queue_view(struct store_txn *txn, const struct queue_family *family, struct slice name, size_t most,
               struct arena *arena, Pb__QueueView **view);
/* The names with this beginning whose queue is not empty, in order. *index: the last change of any of them. */
int queue_list(struct store_txn *txn, const struct queue_family *family, struct slice prefix, size_t most,
               struct arena *arena, Pb__QueueListResult *list, uint64_t *index);
/* The watch key of a session that waits: its id, then the name. `room`: QUEUE_ENTRY_NAME_MAX bytes. */
#define QUEUE_ENTRY_NAME_MAX (UUID_TEXT_SIZE + QUEUE_NAME_MAX)
struct slice queue_entry_name(struct slice name, struct slice session, char room[QUEUE_ENTRY_NAME_MAX]);
/* The last change of a name, also of a forgotten one; 0: never. */
uint64_t queue_index(struct store_txn *txn, const struct queue_family *family, struct slice name);

/* -- as query_type.watched and .run; request: QueueRequest, QueueEntryRequest, QueueListRequest ------------------- */

struct watch_key queue_watched(uint8_t space, const ProtobufCMessage *request);
/* QueueEntryRequest -> QueueAnswer; found=false: the session is not in the queue. The index is that of its grant, or of
 * its place. */
int queue_entry_run(struct store_txn *txn, const struct queue_family *family, const ProtobufCMessage *request,
                    struct arena *arena, struct query_result *result);
/* QueueRequest -> QueueAnswer, without a session when several were granted together; found=false: nobody holds it with
 * this token */
int queue_holder_run(struct store_txn *txn, const struct queue_family *family, const ProtobufCMessage *request,
                     struct arena *arena, struct query_result *result);
/* QueueRequest -> QueueView, with the first 1,000 waiters. */
int queue_view_run(struct store_txn *txn, const struct queue_family *family, const ProtobufCMessage *request,
                   struct arena *arena, struct query_result *result);
/* QueueListRequest -> QueueListResult */
int queue_list_run(struct store_txn *txn, const struct queue_family *family, const ProtobufCMessage *request,
                   struct arena *arena, struct query_result *result);

/* -- as module_command.may and query_type.show -------------------------------------------------------------------- */

int queue_acquire_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request);
int queue_release_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request);
int queue_note_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request);
int queue_view_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                    struct query_result *result);
/* Of a QueueAnswer. */
int queue_answer_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                      struct query_result *result);
int queue_list_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                    struct query_result *result);

#endif
