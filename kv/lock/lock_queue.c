/* Changes of queues. */
#include "kv/lock/lock_queue.h"

#include "base/message.h"
#include "base/text.h"
#include "kv/lock/lock_circle.h"
#include "kv/lock/lock_delay.h"
#include "kv/lock/lock_queue_aside.h"
#include "kv/lock/lock_queue_internal.h"
#include "kv/lock/lock_transitions.h"

/* A queue that is being changed by the entry. */
struct change {
    struct machine_tx *tx;
    const struct queue_family *family;
    struct slice name;
    Pb__Queue *queue; /* in the tx arena; a new queue is empty */
    int64_t now_unix_ms;
};

static int begin(struct machine_tx *tx, const struct queue_family *family, struct slice name, int64_t now_unix_ms,
                 struct change *change) {
    *change = (struct change){.tx = tx, .family = family, .name = name, .now_unix_ms = now_unix_ms};
    int rv = queue_get(tx->store, family, name, tx->arena, &change->queue);
    if (rv != CO_NOTFOUND) return rv;
    change->queue = arena_alloc(tx->arena, sizeof *change->queue);
    pb__queue__init(change->queue);
    return CO_OK;
}

/* -- entries ------------------------------------------------------------------------------------------------------ */

/* Writes the entry's row, or its place in the queue's record, and the session's binding. */
static void entry_put(struct change *change, Pb__QueueEntry *entry) {
    struct machine_tx *tx = change->tx;
    char room[QUEUE_KEY_MAX];
    struct slice key = queue_rows(change->name, room);
    position_put(room + key.size, position_of(entry));
    CHECK(key.size + POSITION_SIZE <= sizeof room);
    struct slice position = slice_make(room + key.size, POSITION_SIZE);
    session_bind(tx, change->family->binding, slice_text(entry->session), change->name, position);
    if (entry->token && entry->mode == PB__QUEUE_MODE__QUEUE_EXCLUSIVE) {
        CHECK(!change->queue->holder && change->queue->holders == 0);
        change->queue->holder = entry;
    } else {
        key.size += POSITION_SIZE;
        store_put(tx->store, change->family->table, key, message_pack(tx->arena, &entry->base));
    }
}

static void row_del(struct change *change, const Pb__QueueEntry *entry) {
    char room[QUEUE_KEY_MAX];
    struct slice key = queue_rows(change->name, room);
    position_put(room + key.size, position_of(entry));
    key.size += POSITION_SIZE;
    if (entry->token && entry->mode == PB__QUEUE_MODE__QUEUE_EXCLUSIVE) change->queue->holder = NULL;
    else if (!store_del(change->tx->store, change->family->table, key)) store_fail(change->tx->store, CO_CORRUPT);
}

static void note_transition(struct change *change, Pb__QueueCause cause, const char *session) {
    transition_add(change->queue, change->tx->arena, change->tx->index, cause, slice_text(session));
}

static void wake_entry(struct change *change, const char *session) {
    char room[QUEUE_ENTRY_NAME_MAX];
    machine_touch(change->tx, change->family->entry_space, queue_entry_name(change->name, slice_text(session), room));
}

/* The holder or its note has changed. */
static void holder_changed(struct change *change) {
    change->queue->holder_index = change->tx->index;
    if (change->family->holder_space) machine_touch(change->tx, change->family->holder_space, change->name);
}

/* -- the next in turn --------------------------------------------------------------------------------------------- */

static bool is_free_for(const Pb__Queue *queue, Pb__QueueMode mode) {
    if (queue->delays) return false;
    if (!queue->holders) return true;
    return mode == PB__QUEUE_MODE__QUEUE_SHARED && queue->mode == PB__QUEUE_MODE__QUEUE_SHARED &&
           (!queue->limit || queue->holders < queue->limit);
}

static void grant(struct change *change, Pb__QueueEntry *entry, Pb__QueueCause cause) {
    Pb__Queue *queue = change->queue;
    CHECK(!entry->token && is_free_for(queue, entry->mode));
    CHECK(queue->token <= change->tx->index); /* tokens of a name only grow */
    entry->token = queue->token = change->tx->index;
    entry->since_unix_ms = change->now_unix_ms;
    queue->mode = entry->mode;
    entry_put(change, entry);
    queue->holders++;
    holder_changed(change);
    note_transition(change, cause, entry->session);
}

/* CO_NOTFOUND: nobody waits. */
static int first_waiting(struct change *change, Pb__QueueEntry **entry) {
    char room[QUEUE_KEY_MAX];
    struct slice rows = queue_waiting_rows(change->name, room);
    struct store_cursor cursor;
    store_cursor_open(&cursor, change->tx->store, change->family->table, rows);
    bool found = cursor.valid && slice_starts(cursor.key, rows);
    *entry = found ? message_unpack(change->tx->arena, &pb__queue_entry__descriptor, cursor.value) : NULL;
    store_cursor_close(&cursor);
    return *entry ? CO_OK : found ? CO_CORRUPT : CO_NOTFOUND;
}

/* A shared entry is granted. When this log entry has granted another shared one before, they have one token, and both
 * are marked as common. */
static int note_common(struct change *change, Pb__QueueEntry *entry) {
    struct machine_tx *tx = change->tx;
    Pb__QueueEntry *other;
    if (change->queue->token != tx->index || entry->mode != PB__QUEUE_MODE__QUEUE_SHARED) return CO_OK;
    int rv = queue_shared_holder(tx->store, change->family, change->name, tx->index, tx->arena, &other, NULL);
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_OK : rv; /* the other one has left again */
    entry->common = true;
    if (other->common) return CO_OK;
    other->common = true;
    entry_put(change, other);
    return CO_OK;
}

static int move_on(struct change *change) {
    Pb__Queue *queue = change->queue;
    while (queue->waiters && !queue->delays) {
        Pb__QueueEntry *entry;
        int rv = first_waiting(change, &entry);
        if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_CORRUPT : rv;
        if (!is_free_for(queue, entry->mode)) break;
        CHECK(queue->waiters > 0 && position_waits(position_of(entry)));
        row_del(change, entry);
        queue->waiters--;
        rv = note_common(change, entry);
        if (rv != CO_OK) return rv;
        grant(change, entry, PB__QUEUE_CAUSE__CAUSE_PASSED_ON);
        wake_entry(change, entry->session);
    }
    return CO_OK;
}

/* -- the end of a change ------------------------------------------------------------------------------------------ */

/* Forgets the name that has been free for longest, when too many are remembered. */
static void forget_oldest(struct change *change) {
    struct slice name;
    if (!queue_free_oldest(change->tx, change->family, &name)) return;
    store_del(change->tx->store, change->family->table, name);
    machine_changed(change->tx, change->family->space, name, true);
}

static void commit(struct change *change) {
    struct machine_tx *tx = change->tx;
    Pb__Queue *queue = change->queue;
    bool used = queue->holders || queue->waiters || queue->delays;
    CHECK(!queue->waiters || queue->holders || queue->delays); /* nobody waits for a free name */
    CHECK(!queue->holder || queue->holders == 1);              /* an exclusive holder is alone */
    CHECK(queue->token <= tx->index && queue->freed <= tx->index);
    bool freed = !used && !queue->freed;
    queue->modify_index = tx->index;
    if (used && queue->freed) {
        queue_free_del(tx, change->family, change->name, queue->freed);
        queue->freed = 0;
    } else if (freed) {
        queue->freed = tx->index;
        queue->limit = 0;
        queue_free_put(tx, change->family, change->name, queue->freed);
    }
    store_put(tx->store, change->family->table, change->name, message_pack(tx->arena, &queue->base));
    machine_touch(tx, change->family->space, change->name);
    if (freed) forget_oldest(change); /* perhaps this very name, when delays take up the room */
}

/* -- acquiring ---------------------------------------------------------------------------------------------------- */

static void answer_entry(const struct change *change, const Pb__QueueEntry *entry, uint32_t position,
                         Pb__QueueAnswer *answer) {
    answer->held = entry->token != 0;
    answer->mode = entry->mode;
    answer->token = entry->token;
    answer->session = entry->session;
    answer->position = position;
    answer->waiters = change->queue->waiters;
}

static int refuse_limit(const struct change *change, const Pb__QueueAcquireCommand *wish,
                        struct machine_result *result) {
    return machine_refuse(
        result, CO_CONFLICT,
        arena_printf(change->tx->arena,
                     "limit: %s \"%s\" has %u, this request %u (0: none); it stays for as long as somebody is there",
                     change->family->noun, wish->name, change->queue->limit, wish->limit));
}

/* Gives a new token to a holder whose token is no fence: either a restored backup brought the holder back, and others
 * may have had higher tokens since; or several holders were granted together. */
static void grant_anew(struct change *change, Pb__QueueEntry *entry) {
    row_del(change, entry);
    change->queue->holders--;
    entry->token = change->queue->token = change->tx->index;
    entry->since_unix_ms = change->now_unix_ms;
    entry->common = false;
    entry_put(change, entry);
    change->queue->holders++;
    holder_changed(change);
    wake_entry(change, entry->session);
    note_transition(change, PB__QUEUE_CAUSE__CAUSE_TAKEN, entry->session);
    commit(change);
}

/* The session is in the queue already: answers what it has, or refuses a different wish. */
static int acquire_again(struct change *change, const Pb__QueueAcquireCommand *wish, struct slice session,
                         struct slice bytes, struct machine_result *result, Pb__QueueAnswer *answer) {
    struct position position;
    Pb__QueueEntry *entry;
    struct machine_tx *tx = change->tx;
    int rv = position_get(bytes, &position);
    if (rv == CO_OK) rv = queue_entry_at(tx->store, change->family, change->name, position, tx->arena, &entry);
    if (rv == CO_OK && !slice_is(session, entry->session)) rv = CO_CORRUPT;
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_CORRUPT : rv;
    if (entry->mode != wish->mode || change->queue->limit != wish->limit || entry->priority != wish->priority)
        return machine_refuse(
            result, CO_CONFLICT,
            arena_printf(tx->arena,
                         "the session %s %s \"%s\" already, in another mode or with another limit or priority; "
                         "release first",
                         entry->token ? "holds" : "waits for", change->family->noun, wish->name));
    if (entry->token && (entry->common || entry->token < machine_restored(tx->store))) grant_anew(change, entry);
    uint32_t at = entry->token ? 0 : queue_position(tx->store, change->family, change->name, entry);
    answer_entry(change, entry, at, answer);
    return CO_OK;
}

static int refuse_shared_token(struct machine_result *result) {
    return machine_refuse(result, CO_CONFLICT,
                          "several shared holders were granted together and have this token: name the session");
}

/* Names a token and no session: does the token still hold the name? */
static int acquire_by_token(struct change *change, const Pb__QueueAcquireCommand *wish, struct machine_result *result,
                            Pb__QueueAnswer *answer) {
    Pb__QueueEntry *entry;
    bool several;
    struct machine_tx *tx = change->tx;
    int rv = queue_holder(tx->store, change->family, change->name, wish->token, tx->arena, &entry, &several);
    if (rv == CO_OK && several) return refuse_shared_token(result);
    if (rv == CO_OK) answer_entry(change, entry, 0, answer);
    if (rv != CO_NOTFOUND) return rv;
    return machine_refuse(result, CO_NOTFOUND,
                          arena_printf(tx->arena, "token: nobody holds %s \"%s\" with %llu", change->family->noun,
                                       wish->name, (unsigned long long)wish->token));
}

static uint32_t lesser(uint32_t wished, uint32_t most) { return wished && wished < most ? wished : most; }

/* The number of queues of the family that the session is in; counted up to `most`. */
static uint32_t count_own(struct change *change, struct slice session, uint32_t most) {
    struct store_cursor cursor;
    uint32_t count = 0;
    SESSION_EACH_BOUND(&cursor, change->tx->store, change->family->binding, session) {
        if (++count >= most) break;
    }
    store_cursor_close(&cursor);
    return count;
}

/* Refuses a new entry that would break a limit or close a circle. A session that this command makes is in no queue yet,
 * so only the limit of waiters applies to it. */
static int refuse_entry(struct change *change, const Pb__QueueAcquireCommand *wish, const Pb__QueueEntry *entry,
                        bool waits, struct machine_result *result) {
    struct machine_tx *tx = change->tx;
    const Pb__QueueLimits *limits = wish->limits;
    uint32_t waiters = lesser(limits ? limits->waiters : 0, QUEUE_WAITERS_MAX),
             own = lesser(limits ? limits->of_session : 0, QUEUE_OWN_MAX);
    struct slice session = slice_text(entry->session);
    const char *circle = NULL;
    if (waits && change->queue->waiters >= waiters)
        return machine_refuse(
            result, CO_BUSY,
            arena_printf(tx->arena, "%u wait for %s \"%s\" already, at most %u may (coord.lock_waiters_max)", waiters,
                         change->family->noun, wish->name, waiters));
    if (!session.size) return CO_OK;
    if (count_own(change, session, own) >= own)
        return machine_refuse(
            result, CO_BUSY,
            arena_printf(tx->arena, "the session is in %u %ss already, at most %u are allowed (coord.lock_session_max)",
                         own, change->family->noun, own));
    /* Elections have no circles: candidates stand by for each other, and a leader of one election may wait for another
     * without delaying anybody. */
    if (!waits || wish->limit || change->family->is_election) return CO_OK;
    int rv = circle_find(tx->store, change->family, entry, change->name, change->queue, tx->arena, &circle);
    if (circle && wish->nameless) circle = "the wait would close a circle";
    return rv == CO_OK && circle ? machine_refuse(result, CO_CONFLICT, circle) : rv;
}

/* The entry that the wish makes, with its place. */
static Pb__QueueEntry *entry_new(const struct change *change, const Pb__QueueAcquireCommand *wish,
                                 struct slice session) {
    Pb__QueueEntry *entry = arena_alloc(change->tx->arena, sizeof *entry);
    pb__queue_entry__init(entry);
    entry->session = (char *)(uintptr_t)session.data;
    entry->mode = wish->mode, entry->priority = wish->priority, entry->note = wish->note;
    entry->place = change->tx->index;
    entry->since_unix_ms = change->now_unix_ms;
    return entry;
}

static int enter(struct change *change, const Pb__QueueAcquireCommand *wish, Pb__QueueEntry *entry, bool waits,
                 Pb__QueueAnswer *answer) {
    CHECK(entry->session && entry->session[0] && !entry->token);
    Pb__Queue *queue = change->queue;
    queue->limit = wish->limit;
    if (waits) {
        entry_put(change, entry);
        queue->waiters++;
        note_transition(change, PB__QUEUE_CAUSE__CAUSE_QUEUED, entry->session);
    } else {
        grant(change, entry, PB__QUEUE_CAUSE__CAUSE_TAKEN);
    }
    uint32_t position = waits ? queue->waiters : 0; /* the last one, but for its priority */
    if (waits && entry->priority) position = queue_position(change->tx->store, change->family, change->name, entry);
    wake_entry(change, entry->session);
    commit(change);
    answer_entry(change, entry, position, answer);
    return CO_OK;
}

static int refuse_wish(const struct queue_family *family, const Pb__QueueAcquireCommand *wish, struct machine_tx *tx,
                       struct machine_result *result) {
    if (!queue_name_fits(slice_text(wish->name)))
        return machine_refuse(
            result, CO_INVALID,
            arena_printf(tx->arena, "a %s has a name of 1 to %d bytes", family->noun, QUEUE_NAME_MAX));
    struct machine_thing thing = {family->space, family->noun, slice_text(wish->name)};
    if (machine_refuses(tx, thing, result)) return CO_OK;
    if (wish->note.len > QUEUE_NOTE_MAX) return machine_refuse(result, CO_TOOLARGE, "the note is too large");
    if (wish->session ? !wish->session->id[0] == !wish->session->create : !wish->token)
        return machine_refuse(result, CO_INVALID, "one session is wanted: named, or made");
    if (family->is_election && (wish->mode != PB__QUEUE_MODE__QUEUE_EXCLUSIVE || wish->limit))
        return machine_refuse(result, CO_INVALID, "mode, limit: only one at a time leads");
    if (!family->is_election && wish->priority)
        return machine_refuse(result, CO_INVALID, "priority: only elections have one");
    return wish->priority > QUEUE_PRIORITY_MAX ? machine_refuse(result, CO_INVALID, "priority: too high") : CO_OK;
}

static int acquire(struct machine_tx *tx, const struct queue_family *family, const Pb__QueueAcquireCommand *wish,
                   struct machine_result *result, Pb__QueueAnswer *answer) {
    struct change change;
    struct slice bytes, id = slice_text(wish->session ? wish->session->id : "");
    Pb__Session *session;
    int rv = refuse_wish(family, wish, tx, result);
    if (rv != CO_OK || result->error) return rv;
    answer->name = wish->name;
    rv = begin(tx, family, slice_text(wish->name), wish->now_unix_ms, &change);
    if (rv != CO_OK) return rv;
    if (!wish->session && wish->token) return acquire_by_token(&change, wish, result, answer);
    if (id.size) {
        rv = session_bound(tx->store, family->binding, id, change.name, &bytes);
        if (rv == CO_OK) return acquire_again(&change, wish, id, bytes, result, answer);
        if (rv != CO_NOTFOUND) return rv;
    }
    const Pb__Queue *queue = change.queue;
    bool overtakes = tx->mutations & MUTATE_LOCK_OVERTAKES;
    bool waits = (queue->waiters && !overtakes) || !is_free_for(queue, wish->mode);
    if ((queue->holders || queue->waiters) && queue->limit != wish->limit) return refuse_limit(&change, wish, result);
    answer->mode = wish->mode, answer->waiters = queue->waiters;
    if (waits && !wish->enqueue)
        return id.size && session_exists(tx->store, id) == CO_NOTFOUND
                   ? session_ensure(tx, wish->session, result, &session)
                   : CO_OK;
    Pb__QueueEntry *entry = entry_new(&change, wish, id);
    rv = refuse_entry(&change, wish, entry, waits, result);
    if (rv != CO_OK || result->error) return rv;
    rv = session_ensure(tx, wish->session, result, &session);
    if (rv != CO_OK || result->error) return rv;
    entry->session = session->id, entry->node = session->node;
    return enter(&change, wish, entry, waits, answer);
}

int queue_acquire(struct machine_tx *tx, const struct queue_family *family, const Pb__QueueAcquireCommand *command,
                  struct machine_result *result) {
    Pb__QueueAnswer *answer = arena_alloc(tx->arena, sizeof *answer);
    pb__queue_answer__init(answer);
    Pb__QueueAcquireCommand wish = *command;
    if (family->is_election && tx->mutations & MUTATE_ELECTION_PRIORITY) wish.priority = 0;
    int rv = acquire(tx, family, &wish, result, answer);
    if (rv != CO_OK || result->error) return rv;
    result->yes = answer->held;
    result->message = &answer->base;
    return CO_OK;
}

/* -- leaving ------------------------------------------------------------------------------------------------------ */

/* Removes the entry, and grants the name to those that are next. `delay_ns`: to nobody before this time is over. */
static int leave(struct change *change, Pb__QueueEntry *entry, Pb__QueueCause cause, int64_t delay_ns) {
    Pb__Queue *queue = change->queue;
    bool held = entry->token != 0;
    CHECK(held ? queue->holders > 0 : queue->waiters > 0);
    row_del(change, entry);
    session_unbind(change->tx, change->family->binding, slice_text(entry->session), change->name);
    if (held) queue->holders--, holder_changed(change);
    else queue->waiters--;
    note_transition(change, cause, entry->session);
    wake_entry(change, entry->session); /* clients that watch this entry learn that it is gone */
    if (held && delay_ns > 0 && queue_delay_put(change->tx, change->family, change->name, delay_ns)) queue->delays++;
    int rv = move_on(change);
    if (rv == CO_OK) commit(change);
    return rv;
}

static int refuse_token(const struct change *change, uint64_t token, struct machine_result *result) {
    return machine_refuse(
        result, CO_CONFLICT,
        arena_printf(change->tx->arena, "nobody holds %s \"%.*s\" with token %llu", change->family->noun,
                     (int)change->name.size, change->name.data, (unsigned long long)token));
}

static int entry_to_release(struct change *change, struct slice session, uint64_t token, Pb__QueueEntry **entry,
                            bool *several) {
    struct machine_tx *tx = change->tx;
    *several = false;
    if (session.size) return queue_entry(tx->store, change->family, change->name, session, tx->arena, entry);
    return queue_holder(tx->store, change->family, change->name, token, tx->arena, entry, several);
}

int queue_release(struct machine_tx *tx, const struct queue_family *family, const Pb__QueueReleaseCommand *command,
                  struct machine_result *result) {
    struct change change;
    struct slice session = slice_text(command->session);
    Pb__QueueEntry *entry;
    bool several;
    if (!queue_name_fits(slice_text(command->name))) return machine_refuse(result, CO_INVALID, "no such name");
    int rv = begin(tx, family, slice_text(command->name), command->now_unix_ms, &change);
    if (rv == CO_OK) rv = entry_to_release(&change, session, command->token, &entry, &several);
    if (rv == CO_NOTFOUND && !session.size) return refuse_token(&change, command->token, result);
    if (rv == CO_NOTFOUND)
        return machine_refuse(result, CO_CONFLICT,
                              arena_printf(tx->arena, "the session neither holds %s \"%s\" nor waits for it",
                                           family->noun, command->name));
    if (rv != CO_OK) return rv;
    if (several) return refuse_shared_token(result);
    rv = leave(&change, entry, entry->token ? PB__QUEUE_CAUSE__CAUSE_RELEASED : PB__QUEUE_CAUSE__CAUSE_LEFT_QUEUE, 0);
    if (rv == CO_OK) rv = session_end_idle(tx, slice_text(entry->session));
    result->yes = rv == CO_OK;
    return rv;
}

int queue_session_ended(struct machine_tx *tx, const struct queue_family *family, const struct binding_end *end) {
    CHECK(end->session && end->session->descriptor == &pb__session__descriptor);
    const Pb__Session *session = (const Pb__Session *)end->session;
    struct change change;
    struct position position;
    Pb__QueueEntry *entry;
    int rv = begin(tx, family, end->name, tx->now_unix_ms, &change);
    if (rv == CO_OK) rv = position_get(end->value, &position);
    if (rv == CO_OK) rv = queue_entry_at(tx->store, family, end->name, position, tx->arena, &entry);
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_CORRUPT : rv;
    /* when the same log entry granted it, the holder never knew */
    int64_t delay_ns = entry->token == tx->index ? 0 : lock_delay_ns(session);
    if (tx->mutations & MUTATE_LOCK_FORGETS && entry->token) change.queue->delays++;
    return leave(&change, entry,
                 entry->token ? PB__QUEUE_CAUSE__CAUSE_SESSION_ENDED : PB__QUEUE_CAUSE__CAUSE_WAITER_ENDED, delay_ns);
}

int queue_delay_over(struct machine_tx *tx, const struct queue_family *family, const Pb__QueueDelayOverCommand *command,
                     struct machine_result *result) {
    struct change change;
    bool over = false;
    if (command->term != tx->term) return machine_refuse(result, CO_CONFLICT, "proposed in another term");
    result->yes = true;
    if (!queue_name_fits(slice_text(command->name))) return CO_OK;
    int rv = begin(tx, family, slice_text(command->name), command->now_unix_ms, &change);
    if (rv == CO_OK) rv = queue_delay_del(tx, family, change.name, command->index, &over);
    if (rv != CO_OK || !over) return rv;
    if (!change.queue->delays) return CO_CORRUPT;
    change.queue->delays--;
    note_transition(&change, PB__QUEUE_CAUSE__CAUSE_DELAY_OVER, "");
    rv = move_on(&change);
    if (rv == CO_OK) commit(&change);
    return rv;
}

/* -- the note of a holder ----------------------------------------------------------------------------------------- */

int queue_set_note(struct machine_tx *tx, const struct queue_family *family, const Pb__QueueNoteCommand *command,
                   struct machine_result *result) {
    struct change change;
    if (!queue_name_fits(slice_text(command->name))) return machine_refuse(result, CO_INVALID, "no such name");
    if (command->note.len > QUEUE_NOTE_MAX) return machine_refuse(result, CO_TOOLARGE, "the note is too large");
    int rv = begin(tx, family, slice_text(command->name), 0, &change);
    if (rv != CO_OK) return rv;
    Pb__QueueEntry *holder = change.queue->holder;
    if (!holder || holder->token != command->token) return refuse_token(&change, command->token, result);
    holder->note = command->note;
    holder_changed(&change);
    commit(&change);
    result->yes = true;
    return CO_OK;
}
