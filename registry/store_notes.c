#include "registry/store_notes.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"

static char *bytes_of(const struct store_note *note) {
    return (char *)(uintptr_t)note + sizeof *note + note->levels * sizeof note->next[0];
}

struct slice store_note_key(const struct store_note *note) {
    return slice_make(bytes_of(note), note->key_size);
}

struct slice store_note_data(const struct store_note *note) {
    return slice_make(bytes_of(note) + note->key_size, note->data_size);
}

static int compare(const struct store_note *note, uint8_t table, struct slice key) {
    if (note->table != table) return note->table < table ? -1 : 1;
    return slice_compare(store_note_key(note), key);
}

/* One note in four is on the next level, too. */
static uint8_t levels_of_next(struct store_notes *notes) {
    uint8_t levels = 1;
    uint64_t bits = notes->random = notes->random * 6364136223846793005u + 1442695040888963407u;
    for (bits >>= 33; levels < STORE_NOTE_LEVELS && (bits & 3) == 0; bits >>= 2) levels++;
    return levels;
}

static size_t size_of(const struct store_note *note) {
    return sizeof *note + note->levels * sizeof note->next[0] + note->key_size + note->data_size;
}

struct store_note *store_notes_add(struct store_notes *notes, uint8_t table, struct slice key, bool existed,
                                   struct slice data) {
    struct store_note **links[STORE_NOTE_LEVELS], **row = notes->heads;
    for (size_t level = STORE_NOTE_LEVELS; level-- > 0;) {
        while (row[level] && compare(row[level], table, key) < 0) row = row[level]->next;
        links[level] = &row[level];
    }
    struct store_note *there = *links[0];
    if (there && compare(there, table, key) == 0) return there;
    uint8_t levels = levels_of_next(notes);
    size_t data_size = existed ? data.size : 0;
    struct store_note *note = mem_alloc(sizeof *note + levels * sizeof note->next[0] + key.size + data_size);
    *note = (struct store_note){
        .table = table, .levels = levels, .existed = existed, .key_size = (uint32_t)key.size, .data_size = data_size};
    memcpy(bytes_of(note), key.data, key.size);
    if (data_size) memcpy(bytes_of(note) + key.size, data.data, data_size);
    for (size_t level = 0; level < levels; level++) note->next[level] = *links[level], *links[level] = note;
    notes->bytes += size_of(note), notes->count++;
    return note;
}

void store_notes_set_gone(struct store_notes *notes, struct store_note *note, uint64_t gone_in) {
    CHECK(!note->existed);
    if (note->gone_in) notes->gone_bytes -= size_of(note);
    note->gone_in = gone_in;
    if (note->gone_in) notes->gone_bytes += size_of(note);
}

void store_notes_drop_gone(struct store_notes *notes, uint64_t last) {
    struct store_note **links[STORE_NOTE_LEVELS], *next;
    for (size_t level = 0; level < STORE_NOTE_LEVELS; level++) links[level] = &notes->heads[level];
    for (struct store_note *note = notes->heads[0]; note; note = next) {
        next = note->next[0];
        bool dropped = note->gone_in && note->gone_in <= last;
        for (size_t level = 0; level < note->levels; level++) {
            if (dropped) *links[level] = note->next[level];
            else links[level] = &note->next[level];
        }
        if (!dropped) continue;
        notes->bytes -= size_of(note), notes->gone_bytes -= size_of(note), notes->count--;
        free(note);
    }
}

void store_notes_not_gone(struct store_notes *notes, uint64_t aborted) {
    for (struct store_note *note = notes->heads[0]; note; note = note->next[0]) {
        if (note->gone_in == aborted) store_notes_set_gone(notes, note, 0);
    }
}

struct store_note *store_notes_take(struct store_notes *notes, uint8_t table, struct slice key, bool whole_table) {
    struct store_note *first = notes->heads[0], *last = NULL;
    for (struct store_note *note = first; note; note = note->next[0]) {
        if (whole_table ? note->table > table : compare(note, table, key) > 0) break;
        for (size_t level = 0; level < note->levels; level++) notes->heads[level] = note->next[level];
        notes->bytes -= size_of(note), notes->count--;
        if (note->gone_in) notes->gone_bytes -= size_of(note);
        last = note;
    }
    if (last) last->next[0] = NULL;
    return last ? first : NULL;
}

void store_notes_free(struct store_notes *notes) {
    for (struct store_note *note = notes->heads[0], *next; note; note = next) next = note->next[0], free(note);
    *notes = (struct store_notes){0};
}
