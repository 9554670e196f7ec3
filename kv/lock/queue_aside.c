#include "kv/lock/queue_aside.h"

#include "kv/lock/queue_internal.h"

/* FREE, index, name -> nothing; DELAYED, name, NUL, index -> its length in ns. Numbers are big-endian. */
enum { FREE = 1, DELAYED = 2, ASIDE_KEY_MAX = 1 + 8 + QUEUE_NAME_MAX + 1 };

static struct slice free_key(struct slice name, uint64_t freed, char room[ASIDE_KEY_MAX]) {
    CHECK(queue_name_fits(name) && freed);
    room[0] = FREE;
    put_be64(room + 1, freed);
    memcpy(room + 9, name.data, name.size);
    return slice_make(room, 9 + name.size);
}

void queue_free_put(struct machine_tx *tx, const struct queue_family *family, struct slice name, uint64_t freed) {
    char room[ASIDE_KEY_MAX];
    store_put(tx->store, family->aside, free_key(name, freed, room), slice_make("", 0));
}

void queue_free_del(struct machine_tx *tx, const struct queue_family *family, struct slice name, uint64_t freed) {
    char room[ASIDE_KEY_MAX];
    if (!store_del(tx->store, family->aside, free_key(name, freed, room))) store_fail(tx->store, CO_CORRUPT);
}

bool queue_free_oldest(struct machine_tx *tx, const struct queue_family *family, struct slice *name) {
    struct store_cursor cursor;
    if (store_count(tx->store, family->aside) <= QUEUE_FREE_KEPT) return false; /* counts the few delays too */
    store_cursor_open(&cursor, tx->store, family->aside, SLICE_LITERAL("\1"));
    bool found = cursor.valid && cursor.key.data[0] == FREE && cursor.key.size > 9;
    if (found) {
        *name = slice_copy(tx->arena, slice_make(cursor.key.data + 9, cursor.key.size - 9));
        store_cursor_del(&cursor);
    }
    store_cursor_close(&cursor);
    return found;
}

static struct slice delay_key(struct slice name, uint64_t index, char room[ASIDE_KEY_MAX]) {
    CHECK(queue_name_fits(name));
    room[0] = DELAYED;
    memcpy(room + 1, name.data, name.size);
    room[1 + name.size] = '\0';
    put_be64(room + 2 + name.size, index);
    return slice_make(room, 2 + name.size + 8);
}

/* The name that the expiry has for it. */
static struct slice delay_name(struct slice key) { return slice_make(key.data + 1, key.size - 1); }

bool queue_delay_put(struct machine_tx *tx, const struct queue_family *family, struct slice name, int64_t delay_ns) {
    char room[ASIDE_KEY_MAX], bytes[8];
    struct slice key = delay_key(name, tx->index, room), before;
    bool is_new = store_get(tx->store, family->aside, key, &before) == CO_NOTFOUND;
    CHECK(delay_ns > 0 && delay_ns <= LOCK_DELAY_MAX_NS);
    if (!is_new && before.size == sizeof bytes && (int64_t)get_be64(before.data) >= delay_ns) return false;
    if (!is_new) expiry_ended_in(tx, family->delay, delay_name(key), tx->index);
    put_be64(bytes, (uint64_t)delay_ns);
    store_put(tx->store, family->aside, key, slice_make(bytes, sizeof bytes));
    expiry_began_in(tx, family->delay, delay_name(key), tx->index, delay_ns);
    return is_new;
}

bool queue_delay_del(struct machine_tx *tx, const struct queue_family *family, struct slice name, uint64_t index) {
    char room[ASIDE_KEY_MAX];
    struct slice key = delay_key(name, index, room);
    if (!store_del(tx->store, family->aside, key)) return false;
    expiry_ended_in(tx, family->delay, delay_name(key), index);
    return true;
}

int queue_delays_read(struct store_txn *txn, const struct queue_family *family, const struct expiry_leader *leader,
                      struct expiry *expiry) {
    struct store_cursor cursor;
    int rv = CO_OK;
    STORE_PREFIX(&cursor, txn, family->aside, SLICE_LITERAL("\2")) {
        if (cursor.key.size < 1 + 1 + 1 + 8 || cursor.value.size != 8) {
            rv = CO_CORRUPT;
            continue;
        }
        expiry_began(expiry, family->delay, delay_name(cursor.key), get_be64(cursor.key.data + cursor.key.size - 8),
                     (int64_t)get_be64(cursor.value.data), leader->now_ms);
    }
    store_cursor_close(&cursor);
    return rv;
}

void queue_delay_end(const struct queue_family *family, const struct expiry_due *due,
                     const struct expiry_leader *leader,
                     void (*propose)(void *data, uint8_t command, const ProtobufCMessage *message), void *data) {
    Pb__QueueDelayOverCommand command = PB__QUEUE_DELAY_OVER_COMMAND__INIT;
    command.name = (char *)(uintptr_t)due->name.data; /* the lock's name ends at the NUL */
    command.index = due->index, command.term = leader->term;
    command.now_unix_ms = leader->unix_ms;
    propose(data, family->delay_over, &command.base);
}
