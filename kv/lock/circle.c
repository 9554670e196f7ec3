#include "kv/lock/circle.h"

#include "base/buffer.h"
#include "base/message.h"
#include "kv/lock/queue_internal.h"

/* One that waits for the session, itself included. */
struct reached {
    struct slice session;
    size_t by;         /* for whom it waits; of the session itself: itself */
    struct slice name; /* of what it waits for */
};
struct search {
    struct store_txn *txn;
    const struct queue_family *family;
    struct arena *arena;
    struct slice wanted; /* the name that the session wants to wait for */
    struct reached reached[CIRCLE_MOST];
    size_t count, looked;
    size_t closes; /* the one that is in the queue of `wanted`; 0: none yet */
};

static bool is_known(const struct search *search, struct slice session) {
    for (size_t i = 0; i < search->count; i++)
        if (slice_equal(search->reached[i].session, session)) return true;
    return false;
}

static int reach(struct search *search, struct slice session, size_t by, struct slice name) {
    struct slice ignored;
    if (search->count == CIRCLE_MOST || is_known(search, session)) return CO_OK;
    search->reached[search->count] =
        (struct reached){.session = slice_copy(search->arena, session), .by = by, .name = name};
    int rv = session_bound(search->txn, search->family->binding, session, search->wanted, &ignored);
    if (rv == CO_OK) search->closes = search->count;
    search->count++;
    return rv == CO_NOTFOUND ? CO_OK : rv;
}

/* Those who wait in a queue behind number `by`, which stands at `position`. */
static int reach_behind(struct search *search, size_t by, struct slice name, struct position position) {
    char room[QUEUE_KEY_MAX];
    struct slice rows = queue_waiting_rows(name, room), from = rows;
    struct store_cursor cursor;
    Pb__Queue *queue;
    int rv = queue_get(search->txn, search->family, name, search->arena, &queue);
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_CORRUPT : rv;
    if (queue->limit || !queue->waiters) return CO_OK;
    char own[QUEUE_KEY_MAX];
    if (position_waits(position)) {
        from = queue_rows(name, own);
        position_put(own + from.size, position);
        from.size += POSITION_SIZE;
    }
    for (store_cursor_open(&cursor, search->txn, search->family->table, from);
         cursor.valid && slice_starts(cursor.key, rows) && rv == CO_OK && !search->closes; store_cursor_next(&cursor)) {
        if (++search->looked > CIRCLE_MOST) break;
        if (position_waits(position) && slice_equal(cursor.key, from)) continue; /* itself */
        Pb__QueueEntry *entry = message_unpack(search->arena, &pb__queue_entry__descriptor, cursor.value);
        rv = entry ? reach(search, slice_text(entry->session), by, name) : CO_CORRUPT;
    }
    store_cursor_close(&cursor);
    return rv;
}

/* All who wait for number `number`, directly. */
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

/* "A waits for "l1" of B, who waits for "l2" of A". */
static const char *circle_text(const struct search *search) {
    const struct reached *at = &search->reached[search->closes];
    struct buffer text = {0};
    buffer_printf(&text, "the wait would close a circle: session %.*s waits for %s \"%.*s\" of %.*s",
                  (int)search->reached[0].session.size, search->reached[0].session.data, search->family->noun,
                  (int)search->wanted.size, search->wanted.data, (int)at->session.size, at->session.data);
    for (size_t steps = 0; at != search->reached && steps < 8; steps++) {
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

int circle_find(struct store_txn *txn, const struct queue_family *family, struct slice session, struct slice name,
                struct arena *arena, const char **text) {
    struct store_cursor cursor;
    *text = NULL;
    store_cursor_open(&cursor, txn, family->binding->number, session);
    bool alone = !cursor.valid || !slice_starts(cursor.key, session);
    store_cursor_close(&cursor);
    if (alone) return CO_OK; /* nobody can wait for it */
    struct search *search = arena_alloc(arena, sizeof *search);
    search->txn = txn, search->family = family, search->arena = arena, search->wanted = name;
    search->count = 1, search->looked = 0, search->closes = 0;
    search->reached[0] = (struct reached){.session = session};
    int rv = CO_OK;
    for (size_t i = 0; i < search->count && rv == CO_OK && !search->closes; i++) rv = expand(search, i);
    if (rv == CO_OK && search->closes) *text = circle_text(search);
    return rv;
}
