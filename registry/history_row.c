/* Rows of the history, and reading them.
 *
 * TABLE_HISTORY: topic (1 byte), index (8, big-endian) -> the index of the row before (8), number (8), total (8),
 * command (1), time (8), time of the row before (8); the notes with their size in front; the touches, each its space
 * (1) and its name with the size in front. number: rows of the topic so far; total: their bytes so far, keys and
 * values. The number and the bytes of the rows that are still there are differences between the newest and the oldest.
 * And 0 (1 byte) -> HistoryState. */
#include "base/check.h"
#include "base/message.h"
#include "base/varint.h"
#include "registry/history_internal.h"

struct slice history_key(char room[HISTORY_KEY_BYTES], uint8_t topic, uint64_t index) {
    room[0] = (char)topic;
    put_be64(room + 1, index);
    return slice_make(room, HISTORY_KEY_BYTES);
}

bool history_row_read(const struct store_cursor *cursor, struct history_row *row, struct history_count *count) {
    struct slice rest = cursor->value;
    if (cursor->key.size != HISTORY_KEY_BYTES || rest.size < HISTORY_HEAD_BYTES) return false;
    *row = (struct history_row){.index = get_be64(cursor->key.data + 1),
                                .previous = {get_le64(rest.data), get_le64(rest.data + 33)},
                                .command = (uint8_t)rest.data[24],
                                .unix_ms = get_le64(rest.data + 25)};
    uint64_t total = get_le64(rest.data + 16), size = cursor->key.size + cursor->value.size;
    if (count)
        *count = (struct history_count){.number = get_le64(rest.data + 8), .before = total - size, .total = total};
    rest = slice_make(rest.data + HISTORY_HEAD_BYTES, rest.size - HISTORY_HEAD_BYTES);
    bool good = varint_slice(&rest, &row->notes);
    row->touches = rest;
    return good;
}

Pb__HistoryState *history_state(struct store_txn *txn, struct arena *arena) {
    struct slice bytes;
    if (store_get(txn, TABLE_HISTORY, slice_make("", 1), &bytes) != CO_OK) return NULL;
    Pb__HistoryState *state = message_unpack(arena, &pb__history_state__descriptor, bytes);
    if (!state || !state->limits || state->n_marks > HISTORY_MARKS_MAX || state->n_breaks >= HISTORY_TOPICS ||
        state->n_breaks != state->n_breaks_unix_ms) {
        store_fail(txn, CO_CORRUPT);
        return NULL;
    }
    return state;
}

void history_state_put(struct store_txn *txn, const Pb__HistoryState *state, struct arena *arena) {
    store_put(txn, TABLE_HISTORY, slice_make("", 1), message_pack(arena, &state->base));
}

/* -- walking ------------------------------------------------------------------------------------------------------ */

static void look(struct history_walk *walk) {
    const struct store_cursor *cursor = &walk->cursor;
    walk->valid = cursor->valid && (uint8_t)cursor->key.data[0] == walk->topic;
    if (!walk->valid || history_row_read(cursor, &walk->row, NULL)) return;
    walk->valid = false;
    store_fail(cursor->txn, CO_CORRUPT);
}

void history_walk_open(struct history_walk *walk, struct store_txn *txn, enum history_topic topic, uint64_t after) {
    CHECK(topic > HISTORY_NONE && topic < STORE_TOPICS);
    char room[HISTORY_KEY_BYTES];
    *walk = (struct history_walk){.topic = topic};
    uint64_t from = after == UINT64_MAX ? after : after + 1;
    store_cursor_open(&walk->cursor, txn, TABLE_HISTORY, history_key(room, topic, from));
    look(walk);
}

void history_walk_next(struct history_walk *walk) {
    CHECK(walk->valid);
    store_cursor_next(&walk->cursor);
    look(walk);
}

void history_walk_close(struct history_walk *walk) {
    store_cursor_close(&walk->cursor);
    walk->valid = false;
}

bool history_touch_next(struct slice *rest, struct history_touch *touch) {
    if (rest->size == 0) return false;
    touch->space = (uint8_t)rest->data[0];
    *rest = slice_make(rest->data + 1, rest->size - 1);
    return varint_slice(rest, &touch->name);
}

/* -- the past ----------------------------------------------------------------------------------------------------- */

static struct history_place topic_floor(struct store_txn *txn, const Pb__HistoryState *state, unsigned topic) {
    struct history_place floor = {state->floor, state->floor_unix_ms}, broken = history_break(state, topic);
    struct history_walk walk;
    if (broken.index > floor.index) floor = broken;
    history_walk_open(&walk, txn, topic, floor.index);
    if (walk.valid && walk.row.previous.index > floor.index) floor = walk.row.previous;
    history_walk_close(&walk);
    return floor;
}

struct history_place history_floor_place(struct store_txn *txn, enum history_topic topic) {
    struct arena arena = {0};
    const Pb__HistoryState *state = history_state(txn, &arena);
    struct history_place floor = {UINT64_MAX, UINT64_MAX};
    if (state && state->limits->changes) floor = topic_floor(txn, state, topic);
    arena_free(&arena);
    return floor;
}

uint64_t history_floor_of(struct store_txn *txn, const bool topics[HISTORY_TOPICS], uint64_t *window) {
    struct arena arena = {0};
    uint64_t highest = UINT64_MAX;
    const Pb__HistoryState *state = history_state(txn, &arena);
    *window = state ? state->limits->changes : 0;
    if (*window) highest = 0;
    for (unsigned topic = 1; topic < HISTORY_TOPICS && *window; topic++) {
        uint64_t floor = topics[topic] ? topic_floor(txn, state, topic).index : 0;
        if (floor > highest) highest = floor;
    }
    arena_free(&arena);
    return highest;
}

uint64_t history_floor(struct store_txn *txn, enum history_topic topic) {
    return history_floor_place(txn, topic).index;
}

/* The oldest row of the topic above `after`; index 0: there is none. */
static struct history_place row_after(struct store_txn *txn, enum history_topic topic, uint64_t after,
                                      struct history_place *previous) {
    struct history_walk walk;
    struct history_place place = {0};
    history_walk_open(&walk, txn, topic, after);
    if (walk.valid) place = (struct history_place){walk.row.index, walk.row.unix_ms}, *previous = walk.row.previous;
    history_walk_close(&walk);
    return place;
}

/* The newest row that is not after the time, or the floor, which is not after it. Times never go back along the rows,
 * so a binary search finds the oldest row after the time; the result is the one before it. */
static uint64_t newest_until(struct store_txn *txn, enum history_topic topic, struct history_place floor,
                             uint64_t unix_ms, uint64_t newest) {
    uint64_t low = floor.index, high = newest; /* the result lies between them, both included */
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        struct history_place previous, row = row_after(txn, topic, middle, &previous);
        if (row.index == 0) {
            high = middle;
            continue;
        }
        if (row.unix_ms <= unix_ms) low = row.index;
        else high = previous.index < middle ? previous.index : middle;
        if (high < low) high = low; /* a damaged row */
    }
    return low;
}

int history_moment(struct store_txn *txn, enum history_topic topic, const struct history_moment *moment,
                   struct history_place present, uint64_t *index) {
    struct history_place floor = history_floor_place(txn, topic);
    *index = moment->index;
    if (store_txn_error(txn)) return store_txn_error(txn);
    if (*index) return *index < floor.index ? CO_GONE : *index > present.index ? CO_INVALID : CO_OK;
    if (moment->unix_ms < floor.unix_ms) return CO_GONE;
    if (moment->unix_ms > present.unix_ms && moment->unix_ms > moment->now_ms) return CO_INVALID;
    *index = newest_until(txn, topic, floor, moment->unix_ms, present.index);
    return store_txn_error(txn);
}

int history_read_past(struct store_txn *txn, enum history_topic topic, uint64_t at, struct store_past **past) {
    uint64_t floor = history_floor(txn, topic);
    if (store_txn_error(txn)) return store_txn_error(txn);
    if (at < floor) return CO_GONE;
    if (at > machine_index_in(txn)) return CO_INVALID;
    *past = store_past_new();
    struct history_walk walk;
    for (history_walk_open(&walk, txn, topic, at); walk.valid; history_walk_next(&walk)) {
        struct slice rest = walk.row.notes;
        struct store_before before;
        while (store_journal_next(&rest, &before)) store_past_add(*past, walk.row.index, &before);
        if (rest.size) store_fail(txn, CO_CORRUPT);
    }
    history_walk_close(&walk);
    if (store_txn_error(txn)) {
        store_past_free(*past);
        return store_txn_error(txn);
    }
    store_read_past(txn, *past, at);
    return CO_OK;
}

void history_past_end(struct store_txn *txn, struct store_past *past) {
    store_read_past(txn, NULL, 0);
    store_past_free(past);
}
