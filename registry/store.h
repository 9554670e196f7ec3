/* The store: LMDB behind a small interface. It is derived from the log (docs/internals/store.md): opened without fsync,
 * trusted only when the marker file shows that no machine crash lies between, otherwise rebuilt.
 *
 * Every table maps keys to values in memcmp order. Keys longer than LMDB's 511 bytes are stored as their first 400
 * bytes + a 128-bit hash; records that can have such keys carry the full key themselves, and ranges over them are
 * filtered and sorted by the caller (store_key_long).
 *
 * Each record is kept with hash(table, key, value), which is compared wherever a record is read, so that a read returns
 * exactly the bytes that were written. A mismatch is CO_CORRUPT, and the transaction has failed. State sum: the store
 * keeps, in each write transaction, the wrapping sum of the hashes of all records (order-independent); store_put and
 * store_del keep it up to date. */
#ifndef COORD_REGISTRY_STORE_H
#define COORD_REGISTRY_STORE_H

#include "base/buffer.h"
#include "base/error.h"

#define STORE_TABLES_MAX 64
#define STORE_KEY_MAX    511

struct store;
struct store_txn; /* a read or the one write transaction. Used by one thread at a time */

/* Tables are numbered by their owners (registry/module.h). Names must be unique. Table 0 is always
 * there: a few small records about the store as a whole (applied index, floor). It has no ranges and no count. */
#define STORE_TABLE_META 0
struct store_table {
    uint8_t number;
    const char *name;
};
#define STORE_TOPICS 5 /* of journals (store_journal_begin): numbers 1 to 4 */

/* The defaults of store_config, which 0 stands for. */
#define STORE_MAP_BYTES          ((uint64_t)64 << 30)
#define STORE_RESERVE_STEP_BYTES ((uint64_t)16 << 20)
#define STORE_COMPACT_FREE_BYTES ((uint64_t)8 << 20)
#define STORE_VIEW_NOTES_BYTES   ((uint64_t)64 << 20)

struct store_config {
    const char *folder; /* DATA/store */
    uint64_t map_bytes;
    uint64_t reserve_step_bytes; /* at most so much of the file is reserved ahead of use */
    const struct store_table *tables;
    size_t table_count;
    uint8_t topics[STORE_TABLES_MAX]; /* by the tables' numbers; 0: none */
    uint64_t examine_bytes;           /* 0: 256 MiB: a larger file is not read to its end before it is opened */
    uint64_t compact_free_bytes;      /* 0: STORE_COMPACT_FREE_BYTES: with less free pages no new file is made */
    uint64_t view_notes_bytes;        /* of memory for each view; see store_view.c */
    bool distrust;                    /* put the existing file aside, as after a crash of the machine */
};

/* Opens or creates. *trusted: false when the store is new, was neither closed cleanly nor left by a process of this
 * boot of the machine (kill -9), is fenced, has the format of another version, or is damaged. Then its content was put
 * aside and it is empty; rebuild it from snapshot and log. The whole file is checked for damage before LMDB sees a page
 * of it, unless it is large (store_trust.c). CO_IO, CO_CORRUPT, CO_DISKFULL with a fault naming the file. */
int store_open(const struct store_config *config, struct store **out, bool *trusted, struct fault *fault);
/* Was the whole file checked, and found whole, when it was opened? If not, call store_examine soon. */
bool store_examined(const struct store *store);
/* Full sync; then the marker notes that it was closed. */
void store_close(struct store *store);

/* Opens a store that nobody has open for reading, and changes nothing on disk. *there: there is a data file; else (and
 * with a folder of NULL) there is nothing to read, and only store_copy_check works. *trusted: would store_open trust
 * it? CO_BUSY; CO_CORRUPT, CO_UNSUPPORTED (a table of a newer version), CO_IO with a fault naming the file and, where
 * it can be told, the offset: the whole file is checked first, as store_examine does. End it with store_close, which
 * writes nothing then. */
int store_look(const struct store_config *config, struct store **out, bool *there, bool *trusted, struct fault *fault);

/* Reads. A reader belongs to one thread and is renewed per read (0.01 us); never hold one over a wait: to replace the
 * store, the applier lets no new reads begin, and waits for those under way. It waits for the reads of long readers,
 * which take seconds (a copy), first, while the others go on. */
struct store_reader;
struct store_reader *store_reader_new(struct store *store);
struct store_reader *store_long_reader_new(struct store *store);
void store_reader_free(struct store_reader *reader);
struct store_txn *store_read(struct store_reader *reader); /* begins (renews) */
void store_read_done(struct store_reader *reader);         /* resets; all slices from it are invalid now */

/* Views: the content as of one commit, for reads that take seconds (a copy). A view hands it out in pieces, in the
 * order of tables and keys. Between pieces no read transaction is open, because a long one slows all later writes down
 * (store_view.c). The store is not replaced until the view is closed. For one thread. */
struct store_view;
struct store_view *store_view_open(struct store *store); /* waits for the end of a write transaction */
void store_view_close(struct store_view *view);          /* accepts NULL */
/* The view's commit as a read transaction, until the first piece. */
struct store_txn *store_view_first(struct store_view *view);
uint64_t store_view_sum(const struct store_view *view); /* the state sum of its commit */
/* Called for all records except that of the sum. Slices are valid during the call. */
typedef void (*store_view_record)(void *data, uint8_t table, struct slice key, struct slice value);
/* Hands out the next piece, which may be empty. CO_NOTFOUND: there is no more, and the records that were handed out
 * have the sum that was kept with them; CO_CORRUPT, CO_IO. */
int store_view_next(struct store_view *view, store_view_record each, void *data);

/* CO_OK; else the error that the transaction met: CO_CORRUPT, CO_IO. A range that meets damage ends as if there were no
 * more records, so a reader must ask before it uses the result. */
int store_txn_error(const struct store_txn *txn);

/* For a read that is not to take long: its cursors end, as if there were no more, once they have walked so many bytes
 * (each record counts a little more than its own). The caller must ask afterwards whether the limit was hit, and then
 * throw the result away. */
void store_read_limit(struct store_txn *txn, size_t bytes);
bool store_read_limit_hit(const struct store_txn *txn);
void store_read_unlimited(struct store_txn *txn); /* removes the limit, and that it was hit */

/* The write transaction: applier thread only. Errors stick: after the first one, all functions do nothing and commit
 * fails. */
struct store_txn *store_write(struct store *store);
int store_commit(struct store_txn *txn); /* CO_OK, CO_DISKFULL, CO_IO, CO_CORRUPT; the txn is gone */
void store_abort(struct store_txn *txn);
void store_fail(struct store_txn *txn, int code); /* makes it fail: a record in it does not decode (CO_CORRUPT) */

/* Slices point into the map: valid until the transaction ends, or (write) until the next put/del. So slices that are
 * given to store_put must not point into the map. Keys have 1 to STORE_KEY_MAX bytes; longer ones are our mistake. */
/* CO_NOTFOUND; CO_CORRUPT, CO_IO: the transaction has failed */
int store_get(struct store_txn *txn, uint8_t table, struct slice key, struct slice *value);
void store_put(struct store_txn *txn, uint8_t table, struct slice key, struct slice value);
bool store_del(struct store_txn *txn, uint8_t table, struct slice key); /* was it there? */
uint64_t store_count(struct store_txn *txn, uint8_t table);             /* records in it */
uint64_t store_count_now(struct store_txn *txn, uint8_t table);         /* at present, also in a read of the past */
/* The bytes of the pages that hold records; a copy (store_copy) has hardly more. After removals the file may be much
 * larger. */
uint64_t store_live_bytes(struct store_txn *txn);

/* Ranges: positions at the first key >= from; step on. In a write transaction the cursor survives store_del of the
 * record it stands on (store_cursor_del), nothing else. */
struct store_cursor {
    void *impl;
    struct past_cursor *past; /* store_journal.c; of a read of the past */
    struct store_txn *txn;
    uint8_t table;
    bool valid;
    struct slice key, value;
};
void store_cursor_open(struct store_cursor *cursor, struct store_txn *txn, uint8_t table, struct slice from);
void store_cursor_open_last(struct store_cursor *cursor, struct store_txn *txn, uint8_t table); /* at the last record */
void store_cursor_next(struct store_cursor *cursor);
void store_cursor_prev(struct store_cursor *cursor);
void store_cursor_del(struct store_cursor *cursor);   /* deletes the record under it; then stands on the next */
void store_cursor_close(struct store_cursor *cursor); /* cursors left open are closed with the transaction */
#define STORE_PREFIX(cursor, txn, table, prefix)                \
    for (store_cursor_open((cursor), (txn), (table), (prefix)); \
         (cursor)->valid && slice_starts((cursor)->key, (prefix)); store_cursor_next(cursor))

/* The LMDB key for any byte string: itself up to STORE_KEY_WHOLE bytes, else its first STORE_KEY_PREFIX + a 128-bit
 * hash. A shortened key is longer than any whole one, so nobody can write the one that equals the other. `room`:
 * STORE_KEY_MAX bytes. */
#define STORE_KEY_PREFIX 400
#define STORE_KEY_WHOLE  (STORE_KEY_PREFIX + 15)
struct slice store_key_long(struct slice key, char *room);

/* Composite keys of 1 to 4 parts, joined so that order and prefixes of whole parts work: each part's bytes, then
 * 0x00 (parts hold no NUL; only the last one may). A part of more than STORE_PART_MAX bytes is shortened to its
 * beginning, 0x01 and a 128-bit hash in hexadecimal digits, alike in every key, so that (node) is a prefix of (node,
 * id) for any node. `room`: STORE_KEY_MAX bytes. */
#define STORE_PART_MAX 120
struct slice store_key_join(char *room, size_t part_count, ...); /* struct slice each */

/* All or nothing within the write transaction: store_rollback takes back all changes since the last store_savepoint.
 * store_rollback or store_release ends the savepoint. Savepoints nest: the rollback of an outer one takes back the
 * changes that an inner one released. No cursor may be open over a rollback. For commands use machine_point
 * (registry/machine.h), which also takes back their touches and updates. */
void store_savepoint(struct store_txn *txn);
void store_release(struct store_txn *txn);
void store_rollback(struct store_txn *txn);

/* The journal: the former values of changed records. From store_journal_begin on, until store_journal_end of some
 * topic, the write transaction notes, in order, the former value of each record that it puts, changes or deletes in a
 * table with a topic. Changes that a rollback takes back are not in it. */
void store_journal_begin(struct store_txn *txn, size_t most); /* empties all journals; `most` bytes each */
/* The topic's notes, until it begins again. False: there was more than `most`, and they are not whole. */
bool store_journal_end(struct store_txn *txn, uint8_t topic, struct slice *notes);
struct store_before {
    uint8_t table;
    bool existed; /* else `value` is nothing */
    struct slice key, value;
};
/* Takes the first note from *rest. False: there is none, or *rest does not decode (and is not empty). */
bool store_journal_next(struct slice *rest, struct store_before *before);

/* Reads of the past: the present records, except where notes of a journal have former values. A past is filled with the
 * notes of all changes between some index and the transaction's present, and can then show the state as of each index
 * in between. It holds the notes' slices, not their bytes. For one thread. */
struct store_past;
struct store_past *store_past_new(void);
void store_past_free(struct store_past *past); /* accepts NULL; no transaction reads it any more */
/* `index`: of the entry that made the change. Notes of one index are added in their order: the first of a record
 * counts. */
void store_past_add(struct store_past *past, uint64_t index, const struct store_before *before);
/* From now on the read transaction sees tables that have a topic as of `at`: after that entry, and before the next; NULL:
 * as they are. None of its cursors is open. Such tables have no store_count then, and no ranges backwards. */
void store_read_past(struct store_txn *txn, struct store_past *past, uint64_t at);

uint64_t store_sum(struct store_txn *txn);
/* a record's share of the sum; 0: there is none */
uint64_t store_hash(struct store_txn *txn, uint8_t table, struct slice key);
uint64_t store_scrub(struct store_txn *txn); /* recomputes the sum by walking everything */

/* Reads the whole file as one transaction sees it, page by page and without LMDB, which dies of pages that make no
 * sense: are they a store, and do the records have the sum that was kept with them? Any thread. `stop` (may be NULL)
 * is asked now and then. CO_OK; CO_CORRUPT: `fault` says what is wrong where; CO_AGAIN: stopped, or too many commits
 * went by; CO_IO. */
struct store_scrubbed {
    uint64_t kept, found, records, pages;
};
const struct store_scrubbed *store_looked(const struct store *store); /* found by store_look; lives as long */
int store_examine(struct store *store, bool (*stop)(void *data), void *data, struct store_scrubbed *out,
                  struct fault *fault);
/* Has a transaction met damage since the file was opened or replaced? Any thread. */
bool store_damaged(struct store *store);
/* Replaces the content by nothing (applier thread), as store_replace does. */
int store_clear(struct store *store, struct fault *fault);

/* Two marks in the folder, durable when the functions return. "fenced": the content of the store must not be served or
 * trusted, whatever the marker says, and store_open puts it aside; `text` (one line) has the reason. "suspect": a
 * process died of a signal, its memory or the store may be damaged: store_open reads the store to its end before it
 * trusts it, however large, and puts it aside after the second signal, or one while it was being opened. */
int store_fence(const char *folder, const char *text, struct fault *fault);
bool store_fenced(const char *folder, char *text, size_t room);
int store_unfence(const char *folder);
/* From now on a signal that kills this process (SEGV, BUS, ABRT, FPE, ILL) leaves the mark "suspect" first. One
 * store a process. */
void store_watch_crashes(const char *folder);

/* Space: reserves file space ahead; false while the disk cannot give it (writes must be refused). Any thread. */
bool store_has_room(struct store *store);
uint64_t store_bytes(struct store *store);

/* A copy of the content as of one commit, to `fd` (snapshot copier thread). Streamed; blocks when the pipe does,
 * without holding a read transaction; the process ignores SIGPIPE. The format is our own (store_copy.c): the same
 * records give the same bytes on every server. CO_IO, CO_CORRUPT, CO_CLOSED (EPIPE). */
int store_copy(struct store *store, int fd);
int store_copy_view(struct store_view *view, int fd); /* of a view that has handed out nothing yet */
/* Replaces the content by such a copy read from `fd` to its end (applier thread; readers are kept out while it
 * switches). It loads a file aside, then renames it. `size`: how many bytes will come; 0: not known. On an error the
 * old content stays. CO_CORRUPT (also: sum or size do not agree), CO_UNSUPPORTED (tables of a newer version),
 * CO_DISKFULL, CO_IO. */
int store_replace(struct store *store, int fd, uint64_t size, struct fault *fault);
/* The same, and before it becomes the content, `edit` may change it within the loading transaction; not CO_OK: the old
 * content stays. `background`: nobody waits for it, so a thread of low priority (base/background.h) loads and calls
 * `edit`, while the caller waits. */
typedef int (*store_edit)(struct store_txn *txn, void *data, struct fault *fault);
int store_replace_edited(struct store *store, int fd, uint64_t size, bool background, store_edit edit, void *data,
                         struct fault *fault);
/* Would store_replace take what `fd` brings? Reads it to its end, keeps nothing. Each record is shown to `seen`. Any
 * thread. */
typedef void (*store_seen)(void *data, uint8_t table, struct slice key, struct slice value);
int store_copy_check(struct store *store, int fd, uint64_t size, store_seen seen, void *data, struct fault *fault);

#endif
