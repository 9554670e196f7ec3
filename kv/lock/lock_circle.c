#include "kv/lock/lock_circle.h"

#include "base/buffer.h"
#include "base/message.h"
#include "kv/lock/lock_queue_internal.h"

/* A session that waits for the session of the search, directly or over others; the first is that session itself. */
struct reached {
    struct slice session;
    size_t by;         /* the place of the session for which it waits; the first: its own */
    struct slice name; /* of the lock for which it waits */
};
struct search {
    struct store_txn *txn;
    const struct queue_family *family;
    struct arena *arena;
    struct slice wanted;      /* the name for which the session wants to wait, */
    char upto[POSITION_SIZE]; /* and the position there up to which it would wait for others */
    struct reached reached[CIRCLE_MOST];
    size_t count, looked;
    size_t closes;            /* the place of the session that closes the circle, */
    struct slice closes_name; /* and the name for which it is waited; 0: none yet */
};

static bool is_known(const struct search *search, struct slice session) {
    for (size_t i = 0; i < search->count; i++)
        if (slice_equal(search->reached[i].session, session)) return true;
    return false;
}

static bool is_exclusive(const Pb__QueueEntry *entry) { return entry->mode == PB__QUEUE_MODE__QUEUE_EXCLUSIVE; }

static int reach(struct search *search, struct slice session, size_t by, struct slice name) {
    struct slice position;
    if (search->count == CIRCLE_MOST || is_known(search, session)) return CO_OK;
    CHECK(by < search->count);
    search->reached[search->count] =
        (struct reached){.session = slice_copy(search->arena, session), .by = by, .name = name};
    int rv = session_bound(search->txn, search->family->binding, session, search->wanted, &position);
    if (rv == CO_OK && position.size != POSITION_SIZE) rv = CO_CORRUPT;
    if (rv == CO_OK && memcmp(position.data, search->upto, POSITION_SIZE) <= 0)
        search->closes = search->count, search->closes_name = search->wanted;
    search->count++;
    return rv == CO_NOTFOUND ? CO_OK : rv;
}

/* Reaches the sessions that wait in a queue for number `by`, which stands at `position`: all behind it, except that
 * shared ones do not wait for a shared one with which they are granted together. */
static int reach_behind(struct search *search, size_t by, struct slice name, struct position position) {
    char room[QUEUE_KEY_MAX], own[QUEUE_KEY_MAX];
    struct slice rows = queue_waiting_rows(name, room), from = rows;
    struct store_cursor cursor;
    Pb__Queue *queue;
    int rv = queue_get(search->txn, search->family, name, search->arena, &queue);
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_CORRUPT : rv;
    if (queue->limit || !queue->waiters) return CO_OK;
    bool alone = queue->holder != NULL; /* an exclusive entry stands in between */
    if (position_waits(position)) {
        from = queue_rows(name, own);
        position_put(own + from.size, position);
        from.size += POSITION_SIZE;
        alone = false; /* its own row has the session */
    }
    for (store_cursor_open(&cursor, search->txn, search->family->table, from);
         cursor.valid && slice_starts(cursor.key, rows) && rv == CO_OK && !search->closes; store_cursor_next(&cursor)) {
        if (++search->looked > CIRCLE_MOST) break;
        Pb__QueueEntry *entry = message_unpack(search->arena, &pb__queue_entry__descriptor, cursor.value);
        if (!entry) rv = CO_CORRUPT;
        else if ((alone = alone || is_exclusive(entry)) && !slice_equal(cursor.key, from))
            rv = reach(search, slice_text(entry->session), by, name);
    }
    store_cursor_close(&cursor);
    return rv;
}

/* Reaches all sessions that wait for number `number` directly. */
static int expand(struct search *search, size_t number) {
    struct store_cursor cursor;
    int rv = CO_OK;
    SESSION_EACH_BOUND(&cursor, search->txn, search->family->binding, search->reached[number].session) {
        struct position position;
        struct slice name = slice_copy(search->arena, session_bound_key(&cursor));
        rv = position_get(cursor.value, &position);
        if (rv == CO_OK) rv = reach_behind(search, number, name, position);
        if (rv != CO_OK || search->closes || ++search->looked > CIRCLE_MOST) break;
    }
    store_cursor_close(&cursor);
    return rv;
}

enum { NAMED_MOST = 16 };

/* "A waits for "l1" of B, who waits for "l2" of A". */
static const char *circle_text(const struct search *search) {
    CHECK(search->closes && search->closes < search->count);
    const struct reached *at = &search->reached[search->closes];
    struct buffer text = {0};
    buffer_printf(&text, "the wait would close a circle: session %.*s waits for %s \"%.*s\" of %.*s",
                  (int)search->reached[0].session.size, search->reached[0].session.data, search->family->noun,
                  (int)search->closes_name.size, search->closes_name.data, (int)at->session.size, at->session.data);
    for (size_t steps = 0; at != search->reached && steps < NAMED_MOST; steps++) {
        CHECK(at->by < search->count);
        const struct reached *next = &search->reached[at->by];
        buffer_printf(&text, ", which waits for \"%.*s\" of %.*s", (int)at->name.size, at->name.data,
                      (int)next->session.size, next->session.data);
        at = next;
    }
    if (at != search->reached) buffer_append_text(&text, ", and so on");
    const char *line = arena_strndup(search->arena, text.data, text.size);
    buffer_free(&text);
    return line;
}

static void open_before(struct store_cursor *cursor, struct store_txn *txn, uint8_t table, struct slice key) {
    store_cursor_open(cursor, txn, table, key);
    if (cursor->valid) {
        store_cursor_prev(cursor);
    } else {
        store_cursor_close(cursor);
        store_cursor_open_last(cursor, txn, table);
    }
}

/* Sets search->upto to the last position for which the entry would wait: an exclusive entry waits for everybody before
 * its own place, a shared one up to the last exclusive entry before it. False: it would wait for nobody. */
static bool waits_up_to(struct search *search, const Pb__QueueEntry *entry, const Pb__Queue *queue) {
    char room[QUEUE_KEY_MAX];
    struct slice rows = queue_rows(search->wanted, room), from = slice_make(room, rows.size + POSITION_SIZE);
    struct store_cursor cursor;
    bool found = is_exclusive(entry);
    position_put(search->upto, position_of(entry));
    if (found) return true;
    memcpy(room + rows.size, search->upto, POSITION_SIZE);
    for (open_before(&cursor, search->txn, search->family->table, from);
         cursor.valid && slice_starts(cursor.key, rows) && ++search->looked <= CIRCLE_MOST && !found;
         store_cursor_prev(&cursor)) {
        const Pb__QueueEntry *before = message_unpack(search->arena, &pb__queue_entry__descriptor, cursor.value);
        found = before && is_exclusive(before);
        if (found) position_put(search->upto, position_of(before));
    }
    store_cursor_close(&cursor);
    if (!found && queue->holder) position_put(search->upto, position_of(queue->holder));
    return found || queue->holder;
}

int circle_find(struct store_txn *txn, const struct queue_family *family, const Pb__QueueEntry *entry,
                struct slice name, const Pb__Queue *queue, struct arena *arena, const char **text) {
    struct store_cursor cursor;
    struct slice session = slice_text(entry->session);
    *text = NULL;
    store_cursor_open(&cursor, txn, family->binding->number, session);
    bool alone = !cursor.valid || !slice_starts(cursor.key, session);
    store_cursor_close(&cursor);
    if (alone) return CO_OK; /* nobody can wait for it */
    struct search *search = arena_alloc(arena, sizeof *search);
    search->txn = txn, search->family = family, search->arena = arena, search->wanted = name;
    search->count = 1, search->looked = 0, search->closes = 0;
    search->reached[0] = (struct reached){.session = session};
    if (!waits_up_to(search, entry, queue)) return CO_OK;
    int rv = CO_OK;
    for (size_t i = 0; i < search->count && rv == CO_OK && !search->closes; i++) rv = expand(search, i);
    if (rv == CO_OK && search->closes) *text = circle_text(search);
    return rv;
}
