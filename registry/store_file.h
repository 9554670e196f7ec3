/* Inside the store: one LMDB file with its tables, reserved space and transactions. Included by store*.c (and their
 * tests) only.
 *
 *   store.c         opening, closing, trust, the gate that keeps readers out while the file is switched
 *   store_file.c    one LMDB environment: flags, tables, translation of LMDB's errors
 *   store_space.c   file space reserved ahead of use
 *   store_record.c  a record's bytes and their checksum
 *   store_txn.c     transactions, get and put, the state sum, savepoints
 *   store_find.c    looking a record up, and proving that it is not there
 *   store_cursor.c  ranges
 *   store_key.c     keys store_journal.c former values of records, and reads of the past
 *   store_trust.c   whether an existing store can be trusted
 *   store_marker.c  the marker file
 *   store_view.c    the content as of one commit, read in short pieces
 *   store_notes.c   notes of a view about later changes
 *   store_copy.c    copies and replacing
 *   store_compact.c a file without the free pages
 *   store_examine.c reading a file without LMDB, for damage
 *   store_fence.c   marks of a store that must not be trusted
 *   store_flush.c   writing the file out bit by bit
 *   store_look.c    looking without changing anything */
#ifndef COORD_REGISTRY_STORE_FILE_H
#define COORD_REGISTRY_STORE_FILE_H

#include <lmdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/list.h"
#include "registry/store.h"

/* Keys of table 0 get this byte in front: LMDB keeps the tables' own names beside them. */
#define STORE_META_BYTE '\0'

struct store_file {
    MDB_env *env;
    int fd; /* LMDB's */
    char *path;
    MDB_dbi tables[STORE_TABLES_MAX];
    bool known[STORE_TABLES_MAX];
    const char *names[STORE_TABLES_MAX]; /* of those but table 0 */
    uint8_t topics[STORE_TABLES_MAX];
    uint64_t map_bytes, step_bytes;
    unsigned page_bytes;
    pthread_mutex_t space_lock;      /* for reserving */
    _Atomic uint64_t reserved_bytes; /* of the file, from its beginning */
    _Atomic uint64_t used_bytes;     /* up to the last page of the newest commit */
    _Atomic bool full;               /* the last attempt to reserve ahead failed */
    _Atomic uint64_t tried_ms;       /* when that was */
    _Atomic uint64_t wanted_bytes;   /* so much a change needed that failed for lack of space; 0: none */
    _Atomic bool damaged;            /* a transaction met damage */
    char *aside;                     /* a file that may be removed when space is short; NULL */
};

int store_error(int lmdb_code); /* LMDB's codes and errno to ours */
int store_file_fault(struct fault *fault, const char *path, int lmdb_code);
/* Is the file (which had `size` bytes before it was opened; 0: new) as long as its meta page says? */
int store_file_whole(struct store_file *file, uint64_t size, struct fault *fault);

/* Opens or creates the file with its tables. */
int store_file_open(const char *path, const struct store_config *config, struct store_file **out, struct fault *fault);
/* Full sync and close. The reserved space stays, because on a full disk the next start needs it. */
int store_file_close(struct store_file *file);
/* Close without sync, and remove it (a replacement that failed, the file that was replaced). */
void store_file_discard(struct store_file *file, bool unlink_too);

/* -- space -------------------------------------------------------------------------------------------------------- */
void store_space_open(struct store_file *file); /* learns how much is used */
int store_space_cover(struct store_file *file,
                      uint64_t bytes);           /* reserves at least so many bytes of the file. CO_DISKFULL, CO_IO */
bool store_space_short(struct store_file *file); /* not even a small change has room */
void store_space_ahead(struct store_file *file); /* after a commit: reserves one step beyond the used space */
bool store_space_retry(struct store_file *file); /* any thread */
void store_space_aside_gone(struct store_file *file);

/* How much of the file the running write transaction may come to use, at most (store_space.c explains). */
struct store_need {
    uint64_t base_pages;    /* in use when it began */
    uint64_t covered_pages; /* reserved */
    uint64_t value_pages;   /* for large values */
    uint64_t op_pages;      /* the sum of the most that each change so far may have taken */
    bool looked;
    uint64_t last_pages, since_pages; /* of all trees at the last look; op_pages since then */
    uint64_t peak_pages;              /* the largest size of all trees up to the last look */
    uint64_t changed_bytes;           /* about so many bytes of pages: a leaf for each change, and the large values */
};
void store_need_begin(struct store_txn *txn);
int store_need_op(struct store_txn *txn, MDB_dbi table,
                  size_t value_bytes); /* before each change. CO_DISKFULL, CO_IO */

/* -- records (store_record.c) ------------------------------------------------------------------------------------- */
#define STORE_HASH_BYTES 8
uint64_t store_record_hash(uint8_t table, const MDB_val *key, struct slice value);
/* Splits LMDB's data of a record into its value and the hash that is kept with it. False: the record is damaged. */
bool store_record_read(uint8_t table, const MDB_val *key, const MDB_val *data, struct slice *value, uint64_t *hash);
/* The same, without checking the hash; for records that are about to be removed. */
bool store_record_parts(const MDB_val *data, struct slice *value, uint64_t *hash);
/* `room`: of value.size + STORE_HASH_BYTES */
void store_record_write(char *room, struct slice value, uint64_t hash);

/* -- transactions ------------------------------------------------------------------------------------------------- */
#define STORE_SAVEPOINTS_MAX 4 /* within one another */
struct store_undo {            /* old values since the outermost savepoint */
    bool on;                   /* changes are noted */
    unsigned depth;            /* savepoints that are open */
    struct {
        size_t log, topics[STORE_TOPICS]; /* where it began, in the log and in the journal */
        bool over[STORE_TOPICS];
    } marks[STORE_SAVEPOINTS_MAX];
    struct buffer log;
};

struct store_journal {
    bool on;
    size_t most;
    struct buffer topics[STORE_TOPICS];
    bool over[STORE_TOPICS]; /* there was more */
};

struct store_txn {
    struct store_file *file;
    MDB_txn *mdb;
    bool writing;
    bool viewed;  /* write: some views need notes of changes */
    int error;    /* sticks */
    uint64_t sum; /* write: as of now */
    struct store_need need;
    struct store_undo undo;
    struct store_journal journal; /* write */
    struct store_past *past;      /* read: NULL, or as of past_at */
    uint64_t past_at;
    MDB_cursor *cursors[STORE_TABLES_MAX];  /* of store_txn_cursor; a reader keeps them for its next transaction */
    uint64_t placed;                        /* a bit for each of them that belongs to this transaction */
    struct store_cursor_impl *open, *spare; /* of store_cursor */
    bool limited, limit_hit;                /* read: see store_read_limit */
    size_t limit;                           /* the rest of the limit */
};
void store_txn_end(struct store_txn *txn); /* closes cursors */
int store_file_begin(struct store_file *file, struct store_txn *txn);
int store_txn_commit(struct store_txn *txn);
void store_txn_abort(struct store_txn *txn);
bool store_is_sum(uint8_t table, const MDB_val *key); /* the one record that is not in the sum */
/* Call it before each change. `old`: LMDB's data of the record; NULL: there is none. `deletes`: there will be none. */
void store_undo_note(struct store_txn *txn, uint8_t table, const MDB_val *key, const MDB_val *old, bool deletes);
/* the same for the journal */
void store_journal_note(struct store_txn *txn, uint8_t table, const MDB_val *key, const MDB_val *old);
/* NULL: the record was the same then */
const struct store_before *store_past_find(const struct store_txn *txn, uint8_t table, struct slice key);
/* A cursor of the past, whose txn and table are set. */
void store_past_open(struct store_cursor *cursor, struct slice from);
void store_past_next(struct store_cursor *cursor);
void store_past_close(struct store_cursor *cursor);
void store_cursor_open_present(struct store_cursor *cursor, struct store_txn *txn, uint8_t table, struct slice from);
void store_damage(struct store_txn *txn, uint8_t table); /* a record of this table is damaged */
void store_txn_append(struct store_txn *txn, uint8_t table, struct slice key,
                      struct slice value); /* loading, in order */

/* -- looking up (store_find.c) ------------------------------------------------------------------------------------ */
/* The transaction's cursor of this table, for looking up and for changes. NULL: the transaction has failed. */
MDB_cursor *store_txn_cursor(struct store_txn *txn, uint8_t table);
/* LMDB's data of the record, not compared with its checksum; the transaction's cursor stands on it. CO_NOTFOUND: its
 * neighbours prove that it is not there; else (CO_CORRUPT, CO_IO) the transaction has failed. */
int store_find(struct store_txn *txn, uint8_t table, const MDB_val *key, MDB_val *data);
/* MDB_SET_RANGE has placed `cursor` behind where `key` would be, and has not found it; `last`: there is none behind it
 * either. Moves to the record before, whose key has to be below `key`, and which must not be damaged. LMDB's code: 0;
 * MDB_NOTFOUND: there is none before; MDB_CORRUPTED: it is damaged or not in order, and the transaction has failed;
 * others. */
int store_check_before(struct store_txn *txn, uint8_t table, MDB_cursor *cursor, const MDB_val *key, bool last);
/* `cursor` stands on a record that LMDB has just put where it found none: checks its neighbours as above. 0; else
 * LMDB's code. */
int store_check_inserted(struct store_txn *txn, uint8_t table, MDB_cursor *cursor, const MDB_val *key);
/* `cursor` stands on the record: room for another value of the size in `data`. LMDB's code */
int store_replace_found(struct store_txn *txn, uint8_t table, MDB_cursor *cursor, MDB_val *key, MDB_val *data);
/* LMDB has found nothing at all in the table: checks that the table is there, and that its count is 0. MDB_NOTFOUND;
 * MDB_CORRUPTED as above
 */
int store_check_empty(struct store_txn *txn, uint8_t table);

struct store_reader {
    struct list link;
    struct store *store;
    struct store_txn txn;
    bool lengthy;
    _Atomic bool active;
};

struct store {
    char *folder;
    struct store_config config; /* with a copy of the tables */
    int lock_fd;
    bool looking; /* store_look */
    bool examined;
    struct store_scrubbed looked;
    struct store_file *file; /* changed behind the closed gate only */
    struct store_txn write;
    bool write_open; /* changed by the applier thread, with views_lock */
    uint64_t writes; /* write transactions so far, the open one as well; like `write_open` */
    pthread_mutex_t views_lock;
    pthread_cond_t view_begun;
    struct list views;
    struct store_compact *compact;       /* NULL: none is under way. Set by the applier thread, with views_lock */
    uint64_t crowded_ms, compact_due_ms; /* applier thread: since when too much is free; no compaction before */
    uint64_t measured_ms;                /* applier thread; the gauges of its size */
    pthread_mutex_t lock;                /* readers, gate */
    pthread_cond_t changed;
    _Atomic bool gate;      /* closed: no reader may begin */
    _Atomic bool long_gate; /* closed first: no long reader may begin */
    struct list readers;
    /* store_flush.c */
    pthread_t flush_thread;
    bool flush_runs, flush_warned; /* applier thread */
    pthread_mutex_t flush_lock;    /* stop, going to sleep */
    pthread_cond_t flush_wake;
    bool flush_stop;
    _Atomic bool flush_idle;        /* sleeps until something changes */
    _Atomic uint64_t changed_bytes; /* bytes changed since the last tick */
};

struct store *store_make(const struct store_config *config);    /* nothing is open yet */
bool store_has_table(const struct store *store, uint8_t table); /* a table that this version knows */

/* A read in steps: from enter to store_read_done it keeps the store from being replaced; between begin and pause it has a
 * transaction. */
void store_reader_enter(struct store_reader *reader);
struct store_txn *store_reader_begin(struct store_reader *reader);
struct store_txn *store_reader_txn(struct store_reader *reader);
void store_reader_pause(struct store_reader *reader);

/* -- views (store_view.c) ----------------------------------------------------------------------------------------- */
bool store_views_write(struct store *store); /* a write transaction is about to begin. Is there a view? */
void store_views_written(struct store *store, bool committed); /* it has ended */
/* the same as store_undo_note, for views */
void store_views_note(struct store *store, uint8_t table, const MDB_val *key, const MDB_val *old, bool deletes);
size_t store_view_noted(struct store_view *view); /* the bytes of its notes */

/* Call it behind the closed gate, when `next` has the name already: makes it the store's file. Returns the old one,
 * which the caller owns. */
struct store_file *store_switch(struct store *store, struct store_file *next);

/* -- compaction (store_compact.c) --------------------------------------------------------------------------------- */
/* Applier thread. No write transaction may be open, except for begin and judge. */

void store_compact_turn(struct store *store);
bool store_compact_begin(struct store *store);
/* Is a compaction due? Called now and then, after a commit. */
void store_compact_judge(struct store *store, uint64_t now_ms, uint64_t file_bytes, uint64_t live_bytes);
/* Gives up a compaction that is under way. Called before the file is closed or replaced; applier thread. */
void store_compact_stop(struct store *store);
void store_compact_init(const struct store *store); /* removes files that a killed process has left */
void store_sizes_init(void);                        /* gauges, store_txn.c */
/* A key that is about to change; with views_lock held. */
void store_compact_note(struct store *store, uint8_t table, struct slice key);
bool store_compact_collects(const struct store *store); /* with views_lock held */
/* At a boundary of write transactions, with views_lock held: the notes so far are complete. */
void store_compact_boundary(struct store *store);

/* Closes the gate. False: a long reader is within, or a short one does not end in time. */
bool store_gate_try_close(struct store *store, unsigned wait_ms);
/* Closes the gate, once the long readers within are done, waits for the others and ends their LMDB transactions;
 * then the file may be switched. */
void store_gate_close(struct store *store);
void store_gate_open(struct store *store);

/* -- writing out (store_flush.c explains) ------------------------------------------------------------------------- */
void store_flush_init(struct store *store);
/* applier thread, after a commit that changed so many bytes of pages */
void store_flush_note(struct store *store, uint64_t bytes);
void store_flush_stop(struct store *store); /* before the file is closed; a second call does nothing */
void store_flush_free(struct store *store);
int store_flush_behind(struct store_file *file); /* a file that is being loaded */
uint64_t store_flush_round_ms(uint64_t file_bytes, uint64_t rate);
uint64_t store_flush_piece(uint64_t file_bytes, uint64_t rate, uint64_t part);

/* -- examining (store_examine.c) ---------------------------------------------------------------------------------- */
/* The file as of transaction `txnid` (0: the newest); `config` names the tables. See store_examine. */
int store_examine_file(int fd, const struct store_config *config, uint64_t txnid, bool (*stop)(void *data), void *data,
                       struct store_scrubbed *out, struct fault *fault);

/* -- trust (store_trust.c, store_fence.c, store_marker.c) --------------------------------------------------------- */
/* May LMDB open the data file at `path`: does it have the bytes that were written? *examined: the whole file was
 * read. */
bool store_trust(const struct store *store, const char *path, const struct stat *info, bool *examined);
/* How often signals have ended processes since the store was closed cleanly or made anew; one that ended while it
 * was being opened counts twice. */
unsigned store_crashes(const char *folder);
void store_crashes_forget(const char *folder);
void store_crash_opening(bool begins); /* notes that a signal from now on comes while the store is being opened */
/* Is the marker one of another format of the store? */
bool store_marker_foreign(const char *folder);
/* Is `file` the one that the marker of this boot names? *clean: it says that the store was closed. */
bool store_marker_fits(const char *folder, const struct stat *file, bool *clean);
/* Does nothing when the marker is there already. */
int store_marker_write(const char *folder, const struct stat *file, struct fault *fault);
/* `next` is about to replace `file`: the marker names both. */
int store_marker_write_both(const char *folder, const struct stat *file, const struct stat *next, struct fault *fault);
int store_marker_close(const char *folder, struct fault *fault); /* closed cleanly */
/* A small file, made or written anew, and on disk when it returns. */
int store_write_synced(const char *path, const char *text);
int store_sync_folder(const char *folder);
char *store_path(const char *folder, const char *name); /* free() it */

#endif
