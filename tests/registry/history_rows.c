#include "history_rows.h"

#include <stdio.h>

#include "base/check.h"

uint64_t put(struct fixture *to, const char *key, const char *value) {
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    command.key = binary_text(key), command.value = binary_text(value);
    struct outcome outcome = fixture_apply(to, KV_APPLY, &command.base);
    CHECK(outcome.yes);
    return outcome.index;
}

uint64_t change(struct fixture *to) {
    static unsigned turn;
    return put(to, "a", turn++ % 2 ? "x" : "y");
}

struct outcome mark_limits(struct fixture *to, int64_t now_unix_ms, uint64_t changes, uint64_t bytes, uint64_t age_ms) {
    Pb__HistoryMarkCommand command = PB__HISTORY_MARK_COMMAND__INIT;
    Pb__HistoryLimits limits = PB__HISTORY_LIMITS__INIT;
    command.term = to->term, command.now_unix_ms = now_unix_ms;
    limits.changes = changes, limits.bytes = bytes, limits.age_ms = age_ms;
    command.limits = &limits;
    return fixture_apply(to, HISTORY_MARK, &command.base);
}

uint64_t mark(struct fixture *to, int64_t now_unix_ms) {
    Pb__HistoryMarkCommand command = PB__HISTORY_MARK_COMMAND__INIT;
    command.term = to->term, command.now_unix_ms = now_unix_ms;
    struct outcome outcome = fixture_apply(to, HISTORY_MARK, &command.base);
    CHECK(outcome.yes);
    return outcome.index;
}

void limit(struct fixture *to, uint64_t changes, uint64_t bytes, uint64_t age_ms) {
    struct outcome outcome = mark_limits(to, 1000, changes, bytes, age_ms);
    CHECK(outcome.yes);
}

uint64_t floor_of(struct fixture *of, enum history_topic topic) {
    uint64_t floor = history_floor(store_read(of->reader), topic);
    store_read_done(of->reader);
    return floor;
}

struct seen_rows rows_of(struct fixture *of, enum history_topic topic) {
    struct seen_rows seen = {0};
    struct history_walk walk;
    struct store_txn *txn = store_read(of->reader);
    for (history_walk_open(&walk, txn, topic, 0); walk.valid; history_walk_next(&walk)) {
        CHECK(walk.row.index > seen.last && walk.row.previous.index < walk.row.index &&
              walk.row.previous.unix_ms <= walk.row.unix_ms);
        if (seen.count++ == 0) seen.first = walk.row.index;
        else CHECK(walk.row.previous.index >= seen.last);
        seen.last = walk.row.index;
        seen.bytes += walk.cursor.key.size + walk.cursor.value.size;
    }
    history_walk_close(&walk);
    CHECK(store_txn_error(txn) == CO_OK);
    store_read_done(of->reader);
    return seen;
}

const char *row_text(struct fixture *of, enum history_topic topic, uint64_t index) {
    static char text[1024];
    struct history_walk walk;
    int size = snprintf(text, sizeof text, "-");
    history_walk_open(&walk, store_read(of->reader), topic, index - 1);
    if (walk.valid && walk.row.index == index) {
        struct slice rest = walk.row.notes;
        struct store_before before;
        struct history_touch touch;
        size = snprintf(text, sizeof text, "%u:", walk.row.command);
        while (store_journal_next(&rest, &before))
            size += snprintf(text + size, sizeof text - (size_t)size, " %.*s%s", (int)before.key.size, before.key.data,
                             before.existed ? " was" : "");
        for (rest = walk.row.touches; history_touch_next(&rest, &touch);)
            size += snprintf(text + size, sizeof text - (size_t)size, " <%u>%.*s", touch.space, (int)touch.name.size,
                             touch.name.data);
    }
    history_walk_close(&walk);
    store_read_done(of->reader);
    return text;
}
