/* Appends to the history with each entry, and removes its oldest rows. */
#include "registry/history.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/metrics.h"
#include "base/varint.h"
#include "registry/history_internal.h"

_Static_assert(HISTORY_MARK >= 1 && HISTORY_MARK < 32, "a command of the registry (registry/module.h)");
_Static_assert(HISTORY_TOPICS == STORE_TOPICS, "the store keeps a journal for each");

#define TENTHS          10 /* marks in an age */
#define STEP_PERIOD_NS  25000000
#define TRIMMED_AT_ONCE 64
#define AT_ONCE_NS      1
#define ROOM_KEPT       (1u << 20) /* a buffer of at most this size is kept for the next entry */

static const struct slice only_name = SLICE_LITERAL("history");

/* The rows of a topic, as far as they are known. */
struct rows {
    struct history_place newest; /* index 0: none was appended since the floor */
    uint64_t number, total;      /* of the newest */
    uint64_t first, before;      /* number of the oldest, and the total before it; first > number: there is none */
    struct history_place broken; /* the last break; index 0: there was none */
    struct buffer touches;       /* of the entry; when they are larger than a row may be, it is a break */
};

struct history {
    uint8_t topics[256]; /* of watch spaces */
    bool learned;
    bool on;
    bool noting; /* the entry that is being applied: is noted, also if it switches the history off */
    uint64_t changes, bytes, age_ms;
    struct history_place floor;
    uint8_t command;
    struct rows rows[HISTORY_TOPICS];
    struct buffer row;
};

struct history *history_new(const struct modules *modules) {
    struct history *history = mem_zalloc(sizeof *history);
    for (size_t i = 0; i < modules_count(modules); i++) {
        const struct module *module = modules_at(modules, i);
        for (const uint8_t *space = module->topic_spaces; space && *space; space++)
            history->topics[*space] = module->topic;
    }
    return history;
}

void history_free(struct history *history) {
    if (!history) return;
    for (size_t i = 0; i < HISTORY_TOPICS; i++) buffer_free(&history->rows[i].touches);
    buffer_free(&history->row);
    free(history);
}

void history_forget(struct history *history) { history->learned = false; }

/* -- the rows that are there -------------------------------------------------------------------------------------- */

static bool row_at(const struct store_cursor *cursor, uint8_t topic, struct history_row *row,
                   struct history_count *place) {
    if (!cursor->valid || (uint8_t)cursor->key.data[0] != topic) return false;
    if (history_row_read(cursor, row, place)) return true;
    store_fail(cursor->txn, CO_CORRUPT);
    return false;
}

static void learn_oldest(struct rows *rows, struct store_txn *txn, uint8_t topic) {
    char room[HISTORY_KEY_BYTES];
    struct store_cursor cursor;
    struct history_row row;
    struct history_count place;
    store_cursor_open(&cursor, txn, TABLE_HISTORY, history_key(room, topic, 0));
    rows->first = rows->number + 1, rows->before = rows->total;
    if (row_at(&cursor, topic, &row, &place)) rows->first = place.number, rows->before = place.before;
    store_cursor_close(&cursor);
}

static void learn_rows(struct rows *rows, struct store_txn *txn, uint8_t topic) {
    char room[HISTORY_KEY_BYTES];
    struct store_cursor cursor;
    struct history_row row;
    struct history_count place;
    store_cursor_open(&cursor, txn, TABLE_HISTORY, history_key(room, (uint8_t)(topic + 1), 0));
    if (cursor.valid) store_cursor_prev(&cursor);
    else {
        store_cursor_close(&cursor);
        store_cursor_open_last(&cursor, txn, TABLE_HISTORY);
    }
    rows->newest = (struct history_place){0}, rows->number = rows->total = 0;
    if (row_at(&cursor, topic, &row, &place))
        rows->newest = (struct history_place){row.index, row.unix_ms}, rows->number = place.number,
        rows->total = place.total;
    store_cursor_close(&cursor);
    learn_oldest(rows, txn, topic);
}

static void take_state(struct history *history, const Pb__HistoryState *state) {
    history->on = state && state->limits->changes > 0;
    history->changes = state ? state->limits->changes : 0;
    history->bytes = state ? state->limits->bytes : 0;
    history->age_ms = state ? state->limits->age_ms : 0;
    history->floor = state ? (struct history_place){state->floor, state->floor_unix_ms} : (struct history_place){0};
    for (unsigned topic = 1; topic < HISTORY_TOPICS; topic++)
        history->rows[topic].broken = state ? history_break(state, topic) : (struct history_place){0};
}

static void learn(struct history *history, struct store_txn *txn, struct arena *arena) {
    take_state(history, history_state(txn, arena));
    for (uint8_t topic = 1; topic < HISTORY_TOPICS; topic++) learn_rows(&history->rows[topic], txn, topic);
    history->learned = true;
}

static int64_t mark_period_ns(uint64_t age_ms) { return (int64_t)(age_ms * 1000000 / TENTHS) + 1; }

/* Does any topic have rows? */
static bool rows_left(const struct history *history) {
    bool left = false;
    for (size_t i = 1; i < HISTORY_TOPICS; i++) left |= history->rows[i].first <= history->rows[i].number;
    return left;
}

/* -- the old end -------------------------------------------------------------------------------------------------- */

/* Removes the topic's oldest rows while `goes` returns true, *steps at most. */
static void remove_oldest(struct history *history, struct store_txn *txn, uint8_t topic, size_t *steps,
                          bool (*goes)(const struct history *history, const struct rows *rows,
                                       const struct history_row *row)) {
    struct rows *rows = &history->rows[topic];
    char room[HISTORY_KEY_BYTES];
    struct store_cursor cursor;
    struct history_row row;
    struct history_count place;
    store_cursor_open(&cursor, txn, TABLE_HISTORY, history_key(room, topic, 0));
    while (*steps > 0 && row_at(&cursor, topic, &row, &place) && goes(history, rows, &row)) {
        rows->first = place.number + 1, rows->before = place.total;
        store_cursor_del(&cursor);
        --*steps;
    }
    store_cursor_close(&cursor);
    if (rows->first > rows->number)
        *rows = (struct rows){.first = 1, .broken = rows->broken, .touches = rows->touches}; /* as if it were learned
                                                                                              * anew */
}

static bool too_many(const struct history *history, const struct rows *rows) {
    return rows->number + 1 - rows->first > history->changes || rows->total - rows->before > history->bytes;
}

/* Removes some more rows than necessary, so that not every entry has to look for the oldest. The newest stays. */
static bool goes_for_room(const struct history *history, const struct rows *rows, const struct history_row *row) {
    if (row->index == rows->newest.index) return false;
    uint64_t more = history->changes > 16 * TRIMMED_AT_ONCE ? TRIMMED_AT_ONCE : 0;
    return rows->number + 1 - rows->first > history->changes - more || rows->total - rows->before > history->bytes;
}

static bool goes_for_age(const struct history *history, const struct rows *rows, const struct history_row *row) {
    return row->index <= history->floor.index || row->index <= rows->broken.index;
}

/* -- an entry ----------------------------------------------------------------------------------------------------- */

/* The most bytes of before-images, and of names, in a row. */
static size_t row_most(const struct history *history) {
    return history->bytes < HISTORY_ROW_MAX ? (size_t)history->bytes : HISTORY_ROW_MAX;
}

static void empty(struct buffer *buffer) {
    if (buffer->capacity > ROOM_KEPT) buffer_free(buffer);
    else buffer_reset(buffer);
}

void history_entry_begin(struct machine_tx *tx, uint8_t command) {
    struct history *history = tx->history;
    if (!history->learned) learn(history, tx->store, tx->arena);
    history->noting = history->on;
    if (!history->noting) return;
    history->command = command;
    for (size_t topic = 1; topic < HISTORY_TOPICS; topic++) empty(&history->rows[topic].touches);
    store_journal_begin(tx->store, row_most(history));
}

void history_touched(struct machine_tx *tx, uint8_t space, struct slice name) {
    struct history *history = tx->history;
    if (!history || !history->noting || !history->topics[space]) return;
    struct buffer *touches = &history->rows[history->topics[space]].touches;
    if (touches->size > row_most(history)) return;
    buffer_append_byte(touches, (char)space);
    varint_append_slice(touches, name);
}

void history_touches_mark(const struct history *history, size_t mark[HISTORY_TOPICS]) {
    for (size_t i = 0; i < HISTORY_TOPICS; i++) mark[i] = history ? history->rows[i].touches.size : 0;
}

void history_touches_back(struct history *history, const size_t mark[HISTORY_TOPICS]) {
    for (size_t i = 0; history && i < HISTORY_TOPICS; i++) history->rows[i].touches.size = mark[i];
}

static void append_row(struct machine_tx *tx, uint8_t topic, struct slice notes) {
    struct history *history = tx->history;
    struct rows *rows = &history->rows[topic];
    char head[HISTORY_HEAD_BYTES], room[HISTORY_KEY_BYTES];
    memset(head, 0, sizeof head);
    empty(&history->row);
    buffer_append(&history->row, head, sizeof head);
    varint_append_slice(&history->row, notes);
    buffer_append(&history->row, rows->touches.data, rows->touches.size);
    rows->total += HISTORY_KEY_BYTES + history->row.size;
    rows->number++;
    struct history_place previous = rows->broken.index > history->floor.index ? rows->broken : history->floor;
    if (rows->newest.index > previous.index) previous = rows->newest;
    CHECK(tx->unix_ms >= previous.unix_ms); /* queries by time rely on it */
    put_le64(history->row.data, previous.index);
    put_le64(history->row.data + 8, rows->number);
    put_le64(history->row.data + 16, rows->total);
    history->row.data[24] = (char)history->command;
    put_le64(history->row.data + 25, tx->unix_ms);
    put_le64(history->row.data + 33, previous.unix_ms);
    store_put(tx->store, TABLE_HISTORY, history_key(room, topic, tx->index), buffer_slice(&history->row));
    rows->newest = (struct history_place){tx->index, tx->unix_ms};
    size_t steps = HISTORY_STEP;
    if (too_many(history, rows)) remove_oldest(history, tx->store, topic, &steps, goes_for_room);
}

/* For the simulator only: leaves out the first of several. */
static struct slice without_first(struct slice notes) {
    struct slice rest = notes;
    struct store_before before;
    return store_journal_next(&rest, &before) && rest.size ? rest : notes;
}

/* The entry was too large for a row. The past before it cannot be read any more, and its rows are removed in steps. */
static void break_off(struct machine_tx *tx, uint8_t topic) {
    struct history *history = tx->history;
    size_t steps = HISTORY_STEP;
    Pb__HistoryState *state = history_state(tx->store, tx->arena);
    if (!state) return; /* the transaction has failed */
    struct history_place here = {tx->index, tx->unix_ms};
    uint64_t *breaks = arena_alloc(tx->arena, 2 * (HISTORY_TOPICS - 1) * sizeof *breaks);
    uint64_t *times = breaks + HISTORY_TOPICS - 1;
    for (unsigned i = 1; i < HISTORY_TOPICS; i++) {
        struct history_place one = i == topic ? here : history_break(state, i);
        breaks[i - 1] = one.index, times[i - 1] = one.unix_ms;
    }
    state->breaks = breaks, state->breaks_unix_ms = times;
    state->n_breaks = state->n_breaks_unix_ms = HISTORY_TOPICS - 1;
    history_state_put(tx->store, state, tx->arena);
    history->rows[topic].broken = here;
    remove_oldest(history, tx->store, topic, &steps, goes_for_age);
    expiry_began_in(tx, &history_expiry, only_name, tx->index, AT_ONCE_NS); /* so that a mark removes the rest */
}

void history_entry_end(struct machine_tx *tx) {
    struct history *history = tx->history;
    if (!history->noting) return;
    bool any = false, first = !rows_left(history);
    for (uint8_t topic = 1; topic < HISTORY_TOPICS; topic++) {
        struct slice notes;
        bool whole = store_journal_end(tx->store, topic, &notes);
        if (!history->on) continue;
        if (!whole || history->rows[topic].touches.size > row_most(history)) {
            break_off(tx, topic);
            machine_touch(tx, SPACE_HISTORY, slice_make("", 0));
            continue;
        }
        if (tx->mutations & MUTATE_HISTORY_SKIPS) notes = without_first(notes);
        if (notes.size == 0 && history->rows[topic].touches.size == 0) continue;
        append_row(tx, topic, notes);
        any = true;
    }
    if (any) machine_touch(tx, SPACE_HISTORY, slice_make("", 0));
    if (any && first) expiry_began_in(tx, &history_expiry, only_name, tx->index, mark_period_ns(history->age_ms));
}

/* -- its state ---------------------------------------------------------------------------------------------------- */

static void floor_set(Pb__HistoryState *state, uint64_t index, uint64_t unix_ms) {
    state->floor = index, state->floor_unix_ms = unix_ms;
}

static const Pb__HistoryState *state_fresh(Pb__HistoryState *state, Pb__HistoryLimits *limits, uint64_t floor,
                                           uint64_t unix_ms) {
    pb__history_state__init(state);
    pb__history_limits__init(limits);
    limits->changes = HISTORY_CHANGES, limits->bytes = HISTORY_BYTES, limits->age_ms = HISTORY_AGE_MS;
    state->limits = limits;
    floor_set(state, floor, unix_ms);
    return state;
}

void history_begin(struct machine_tx *tx) {
    Pb__HistoryState state;
    Pb__HistoryLimits limits;
    history_state_put(tx->store, state_fresh(&state, &limits, tx->index, tx->unix_ms), tx->arena);
    history_forget(tx->history);
    expiry_began_in(tx, &history_expiry, only_name, tx->index, AT_ONCE_NS);
}

void history_restored(struct store_txn *txn, uint64_t index, uint64_t unix_ms) {
    struct arena arena = {0};
    Pb__HistoryState fresh;
    Pb__HistoryLimits limits;
    Pb__HistoryState *state = history_state(txn, &arena);
    if (state) state->n_marks = state->n_breaks = state->n_breaks_unix_ms = 0, floor_set(state, index, unix_ms);
    history_state_put(txn, state ? state : state_fresh(&fresh, &limits, index, unix_ms), &arena);
    arena_free(&arena);
}

/* -- marks -------------------------------------------------------------------------------------------------------- */

static bool limits_good(const Pb__HistoryLimits *limits) {
    return limits->bytes > 0 && limits->age_ms > 0 && limits->age_ms < INT64_MAX / 1000000;
}

static void take_limits(Pb__HistoryState *state, Pb__HistoryLimits *limits, const struct machine_tx *tx) {
    if ((limits->changes == 0) != (state->limits->changes == 0))
        state->n_marks = 0, floor_set(state, tx->index, tx->unix_ms);
    state->limits = limits;
}

/* The age of a mark that is not in the future; safe with any numbers that a backup may have. */
static uint64_t age_of(const Pb__HistoryMark *mark, int64_t now_unix_ms) {
    return (uint64_t)now_unix_ms - (uint64_t)mark->unix_ms;
}

/* Is it long enough since the last one? While rows are removed in steps, one such entry follows another. If all of them
 * left marks, these would push out the marks that tell when the floor rises next. */
static bool mark_wanted(Pb__HistoryMark *const *marks, size_t count, int64_t now_unix_ms, uint64_t age_ms) {
    return count == 0 || age_of(marks[count - 1], now_unix_ms) >= age_ms / (HISTORY_MARKS_MAX - 1);
}

/* Raises the floor to the newest mark that is old enough, and adds this mark. No mark may be in the future, whatever a
 * leader's clock said. */
static void take_mark(Pb__HistoryState *state, const struct machine_tx *tx, int64_t now_unix_ms) {
    Pb__HistoryMark **marks = arena_alloc(tx->arena, (HISTORY_MARKS_MAX + 1) * sizeof *marks), *mark;
    size_t count = 0;
    for (size_t i = 0; i < state->n_marks; i++) {
        mark = state->marks[i];
        if (mark->unix_ms > now_unix_ms) mark->unix_ms = now_unix_ms;
        bool old = age_of(mark, now_unix_ms) >= state->limits->age_ms;
        if (old && mark->index > state->floor) floor_set(state, mark->index, mark->entry_unix_ms);
        if (!old) marks[count++] = mark;
    }
    if (mark_wanted(marks, count, now_unix_ms, state->limits->age_ms)) {
        mark = arena_alloc(tx->arena, sizeof *mark);
        pb__history_mark__init(mark);
        mark->index = tx->index, mark->unix_ms = now_unix_ms, mark->entry_unix_ms = tx->unix_ms;
        marks[count++] = mark;
    }
    size_t drop = count > HISTORY_MARKS_MAX ? 1 : 0; /* the second one: the oldest tells when the floor rises */
    if (drop) memmove(marks + 1, marks + 2, (count - 2) * sizeof *marks);
    state->marks = marks, state->n_marks = count - drop;
}

/* Removes rows below the floor, some at a time. True: some are left. */
static bool sweep(struct history *history, struct store_txn *txn) {
    size_t steps = HISTORY_STEP;
    for (uint8_t topic = 1; topic < HISTORY_TOPICS; topic++) remove_oldest(history, txn, topic, &steps, goes_for_age);
    return steps == 0;
}

static int mark_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__HistoryMarkCommand *command = request;
    struct history *history = tx->history;
    if (command->term != tx->term) return machine_refuse(result, CO_CONFLICT, "proposed in another term");
    if (command->limits && !limits_good(command->limits))
        return machine_refuse(result, CO_INVALID, "no limits of a history");
    Pb__HistoryState *state = history_state(tx->store, tx->arena);
    if (!state) return store_txn_error(tx->store) ? CO_CORRUPT : machine_refuse(result, CO_CONFLICT, "no history yet");
    uint64_t floor = state->floor;
    if (command->limits) take_limits(state, command->limits, tx);
    if (state->limits->changes) take_mark(state, tx, command->now_unix_ms);
    history_state_put(tx->store, state, tx->arena);
    take_state(history, state);
    if (history->floor.index != floor) machine_touch(tx, SPACE_HISTORY, slice_make("", 0));
    bool more = sweep(history, tx->store);
    if (rows_left(history)) {
        int64_t period_ns = more ? STEP_PERIOD_NS : mark_period_ns(history->age_ms);
        expiry_began_in(tx, &history_expiry, only_name, tx->index, period_ns);
    } else {
        expiry_ended_in(tx, &history_expiry, only_name, tx->index);
    }
    result->yes = true;
    return CO_OK;
}

/* -- the module --------------------------------------------------------------------------------------------------- */

static bool limits_differ(const Pb__HistoryLimits *limits, const struct history_settings *settings) {
    return settings && (limits->changes != settings->changes || limits->bytes != settings->bytes ||
                        limits->age_ms != settings->age_ms);
}

static int expiry_read(struct store_txn *txn, const struct expiry_leader *leader, struct expiry *expiry) {
    struct arena arena = {0};
    const Pb__HistoryState *state = history_state(txn, &arena);
    if (state && limits_differ(state->limits, leader->settings))
        expiry_began(expiry, &history_expiry, only_name, 1, AT_ONCE_NS, leader->now_ms);
    else if (state && store_count(txn, TABLE_HISTORY) > 1)
        expiry_began(expiry, &history_expiry, only_name, 1, mark_period_ns(state->limits->age_ms), leader->now_ms);
    arena_free(&arena);
    return store_txn_error(txn);
}

/* The entry that begins a period does not know the leader's configuration. */
static int64_t period_ns(struct store_txn *txn, const struct expiry_update *began, const struct expiry_leader *leader) {
    struct arena arena = {0};
    const Pb__HistoryState *state = history_state(txn, &arena);
    bool at_once = state && limits_differ(state->limits, leader->settings);
    arena_free(&arena);
    return at_once ? AT_ONCE_NS : began->period_ns;
}

static void propose_mark(const struct expiry_due *due, const struct expiry_leader *leader,
                         void (*propose)(void *data, uint8_t command, const ProtobufCMessage *message), void *data) {
    (void)due;
    const struct history_settings *settings = leader->settings;
    Pb__HistoryLimits limits = PB__HISTORY_LIMITS__INIT;
    Pb__HistoryMarkCommand command = PB__HISTORY_MARK_COMMAND__INIT;
    command.term = leader->term, command.now_unix_ms = leader->unix_ms;
    if (settings) {
        limits.changes = settings->changes, limits.bytes = settings->bytes, limits.age_ms = settings->age_ms;
        command.limits = &limits;
    }
    propose(data, HISTORY_MARK, &command.base);
}

/* Does nothing, but a kind with this callback has its gauges read anew after each update. */
static void mark_seen(const struct expiry_update *update) { (void)update; }

const struct expiry_kind history_expiry = {.number = 16,
                                           .name = "history",
                                           .quiet = true,
                                           .no_second_period = true,
                                           .read = expiry_read,
                                           .end = propose_mark,
                                           .period_ns = period_ns,
                                           .updated = mark_seen};

METRIC rows_metric = {.name = "coord_history_rows",
                      .help = "entries whose changes are kept, of keys, of the catalog and of locks together",
                      .type = METRIC_GAUGE};
/* All records except that of the state. */
static uint64_t rows_kept(struct store_txn *txn) {
    uint64_t records = store_count(txn, TABLE_HISTORY);
    return records ? records - 1 : 0;
}
static const struct module_gauge gauges[] = {{&rows_metric, rows_kept}, {0}};

static const struct module_command commands[] = {{.number = HISTORY_MARK,
                                                  .servers_only = true,
                                                  .name = "history-mark",
                                                  .request = &pb__history_mark_command__descriptor,
                                                  .apply = mark_apply},
                                                 {0}};
static const struct store_table tables[] = {{TABLE_HISTORY, "history"}, {0}};
static const struct module_space spaces[] = {{SPACE_HISTORY, "history"}, {0}};
static const struct expiry_kind *const expiries[] = {&history_expiry, NULL};

const struct module history_module = {.name = "history",
                                      .commands = commands,
                                      .tables = tables,
                                      .spaces = spaces,
                                      .expiries = expiries,
                                      .gauges = gauges};
