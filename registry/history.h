/* History: the state at each index of a window, and the changes at each.
 *
 * Tables and watch spaces belong to a *topic* (`topic` of their module: registry/module.h) or to none. For each entry
 * that changes something of a topic the machine appends one row: the former value of each record of the topic's tables
 * that the entry put, changed or deleted; and the names that it touched in the topic's spaces, in order. So
 * - a read as of index I is a read of the present in which each record that changed after I is as it was before the first
 *   of these changes (history_read_past): any query of the topic's tables can be asked of the past;
 * - a reader that follows the topic reads row after row, each exactly once (history_walk), on any server.
 *
 * Rows are replicated state: all servers hold the same, and a restart, a snapshot or a change of leader loses none. Each
 * topic has its own window, so that locks in heavy use do not shorten the history of keys:
 *   changes  when there are too many rows, the entry that appends one removes the oldest
 *   bytes    likewise, for the bytes of the rows
 *   age      now and then the leader proposes a mark of the time (HISTORY_MARK: "entries up to this index were applied
 *            before this time"); rows before a mark that is old enough are removed. While nothing changes and no row is
 *            left, it proposes none
 * Each row has the time of its entry (machine_tx.unix_ms), which never goes back from row to row; so a moment is the index
 * of the newest row that is not after it (history_moment).
 *
 * An entry that changes more than a row may hold (it deletes a whole tree) leaves no row: the history of its topic
 * breaks there, and begins anew after it. Otherwise a large state that is deleted would have to be written once more,
 * on a disk that may be full.
 *
 * The *floor* of a topic only rises: the past can be read at each index from it on. It is the index of the row that was
 * removed last, that of the last break, or the index at which the history began (the cluster was founded;
 * coord.history_changes from 0 to more; a backup became the state). Rows below it are removed in steps, HISTORY_STEP at
 * most an entry, so that no entry takes long.
 *
 * etcd keeps revisions in one B+ tree, compacts it by a walk over all keys, and stops writes to defragment it, so its
 * compaction is a pause. Here compaction is the removal of the oldest rows, which lie side by side. */
#ifndef COORD_REGISTRY_HISTORY_H
#define COORD_REGISTRY_HISTORY_H

#include "registry/history.pb-c.h"
#include "registry/machine.h"

#define HISTORY_CHANGES   100000
#define HISTORY_BYTES     ((uint64_t)64 << 20)
#define HISTORY_AGE_MS    600000
#define HISTORY_STEP      1024              /* rows that one entry removes at most */
#define HISTORY_ROW_MAX   ((size_t)8 << 20) /* bytes of before-images, and of names, in a row at most */
#define HISTORY_MARKS_MAX 16

enum history_command { HISTORY_MARK = 24 };
enum { SPACE_HISTORY = 9 }; /* name "": a row was appended to any topic, the floor rose, or it went on or off */

/* Settings: NULL (the limits stay as they are), or struct history_settings. */
extern const struct module history_module;
extern const struct expiry_kind history_expiry; /* 16: "history"; ends when it is time for a mark */
struct history_settings {
    uint64_t changes, bytes, age_ms; /* changes 0: no history */
};

/* -- reading (any thread with a transaction; slices point into the map) ------------------------------------------- */

struct history_place {
    uint64_t index, unix_ms;
};
/* The past can be read at this index and after it. UINT64_MAX: no history is kept. */
uint64_t history_floor(struct store_txn *txn, enum history_topic topic);
/* The same, with the time of the floor's entry. */
struct history_place history_floor_place(struct store_txn *txn, enum history_topic topic);
/* The highest floor of several topics; 0: no topic is given. *window: the most entries that a topic has. */
uint64_t history_floor_of(struct store_txn *txn, const bool topics[HISTORY_TOPICS], uint64_t *window);

/* A moment of the past, as clients name one: an index (above 0), or else a time. now_ms: the clock of the agent that
 * was asked, only to decide whether the time is in the future. */
struct history_moment {
    uint64_t index, unix_ms, now_ms;
};
/* *index: that of the moment; for a time, that of the newest change of the topic that is not after it, or the floor.
 * `present`: the place of the newest entry (for a read, that of the transaction; for a command, the entry before it,
 * because the newest committed entry differs from server to server). CO_OK; CO_GONE: the moment is before the floor;
 * CO_INVALID: it is in the future (an index above the present's; a time after that of the present and after now_ms).
 * Call it only when the history is kept (history_floor). */
int history_moment(struct store_txn *txn, enum history_topic topic, const struct history_moment *moment,
                   struct history_place present, uint64_t *index);

struct history_row {
    struct history_place previous; /* of the row before it, or where the history began */
    uint64_t index, unix_ms;
    uint8_t command;      /* of the entry (registry/module.h); a command may have run as part of it */
    struct slice notes;   /* store_journal_next */
    struct slice touches; /* history_touch_next */
};
struct history_walk {
    struct store_cursor cursor;
    uint8_t topic;
    bool valid;
    struct history_row row;
};
/* Rows with an index above `after`, the oldest first. A row that does not decode fails the transaction (CO_CORRUPT). */
void history_walk_open(struct history_walk *walk, struct store_txn *txn, enum history_topic topic, uint64_t after);
void history_walk_next(struct history_walk *walk);
void history_walk_close(struct history_walk *walk);
struct history_touch {
    uint8_t space;
    struct slice name;
};
/* Takes the first touch from *rest. False: there is none. A name may come more than once. */
bool history_touch_next(struct slice *rest, struct history_touch *touch);

/* From now on `txn` sees the tables of the topic as of `at`: after that entry, before the next (store_read_past).
 * Tables without a topic, and so the index of a result, are those of the present. CO_OK: end it with history_past_end,
 * while the transaction is open. CO_GONE: `at` is below the floor; CO_INVALID: it is above the transaction's index. */
int history_read_past(struct store_txn *txn, enum history_topic topic, uint64_t at, struct store_past **past);
void history_past_end(struct store_txn *txn, struct store_past *past);

/* -- for the machine (applier thread) ----------------------------------------------------------------------------- */
struct history;
struct history *history_new(const struct modules *modules);
void history_free(struct history *history); /* accepts NULL */
/* Forgets the cached counts of the rows: a batch was taken back, or the state was replaced. */
void history_forget(struct history *history);
void history_entry_begin(struct machine_tx *tx, uint8_t command);
void history_touched(struct machine_tx *tx, uint8_t space, struct slice name);
void history_entry_end(struct machine_tx *tx); /* appends the rows */
/* Sets a mark within an entry; going back to it forgets all touches after it. `history` may be NULL. */
void history_touches_mark(const struct history *history, size_t mark[HISTORY_TOPICS]);
void history_touches_back(struct history *history, const size_t mark[HISTORY_TOPICS]);
/* The cluster is founded. */
void history_begin(struct machine_tx *tx);
/* A backup becomes the state at `index`, at that time. */
void history_restored(struct store_txn *txn, uint64_t index, uint64_t unix_ms);

#endif
