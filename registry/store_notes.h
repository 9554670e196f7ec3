/* Notes of a view (store_view.c): the former values of changed records that the view has not handed out yet. Sorted by
 * table and key; of each record only the first note counts, because it has the value as of the view. A skip list: the
 * smallest notes are taken first, in order. A record that did not exist and was deleted again needs no note once the
 * deletion is committed: `gone_in` says which write transaction deleted it. No lock: the view has one. */
#ifndef COORD_REGISTRY_STORE_NOTES_H
#define COORD_REGISTRY_STORE_NOTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

#define STORE_NOTE_LEVELS 12

struct store_note {
    uint8_t table, levels;
    bool existed;
    uint32_t key_size;
    size_t data_size;          /* of LMDB's data of the record: value and hash; 0: it did not exist */
    uint64_t gone_in;          /* the write transaction that deleted a record that had not existed; 0: none */
    struct store_note *next[]; /* `levels` of them; behind them the key, then the data */
};

struct store_notes {
    struct store_note *heads[STORE_NOTE_LEVELS];
    uint64_t random;     /* decides the levels of the next one */
    size_t count, bytes; /* `bytes` of memory, about */
    size_t gone_bytes;   /* of them, of notes with `gone_in` */
};

/* Returns the record's note, and makes it if there is none. `existed` false: there was no record, and `data` is not
 * used. Copies. The note lives until it is taken or dropped. */
struct store_note *store_notes_add(struct store_notes *notes, uint8_t table, struct slice key, bool existed,
                                   struct slice data);
void store_notes_set_gone(struct store_notes *notes, struct store_note *note, uint64_t gone_in);
/* Frees the notes of records that write transactions up to `last` deleted. It walks over all notes. */
void store_notes_drop_gone(struct store_notes *notes, uint64_t last);
/* The write transaction was aborted: what it deleted is there again. It walks over all notes. */
void store_notes_not_gone(struct store_notes *notes, uint64_t aborted);
/* Takes all notes up to (table, key); `whole_table`: up to the end of the table. In order, linked by next[0]; NULL:
 * there is none. Each to be freed with free(). */
struct store_note *store_notes_take(struct store_notes *notes, uint8_t table, struct slice key, bool whole_table);
struct slice store_note_key(const struct store_note *note);
struct slice store_note_data(const struct store_note *note);
void store_notes_free(struct store_notes *notes); /* all of them */

#endif
