#include "kv/lock/lock_queue_aside.h"

#include "kv/lock/lock_delay.h"
#include "kv/lock/lock_queue_internal.h"

/* FREE, index, name -> nothing; DELAYED, name, NUL, index -> a row of kv/lock/lock_delay.h. Numbers are big-endian. */
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

/* The name that the expiry has for it: without the first byte. */
static struct slice delay_name(struct slice row) { return slice_make(row.data + 1, row.size - 1); }

static struct lock_delays delays_of(const struct queue_family *family) {
    return (struct lock_delays){.table = family->aside, .rows = SLICE_LITERAL("\2"), .kind = family->delay};
}

bool queue_delay_put(struct machine_tx *tx, const struct queue_family *family, struct slice name, int64_t delay_ns) {
    char room[ASIDE_KEY_MAX];
    struct slice row = delay_key(name, tx->index, room);
    struct lock_delays delays = delays_of(family);
    return lock_delay_begin(tx, &delays, row, delay_name(row), delay_ns);
}

int queue_delay_del(struct machine_tx *tx, const struct queue_family *family, struct slice name, uint64_t index,
                    bool *over) {
    char room[ASIDE_KEY_MAX];
    struct slice row = delay_key(name, index, room);
    struct lock_delays delays = delays_of(family);
    return lock_delay_remove(tx, &delays, row, delay_name(row), index, over);
}

int queue_delays_read(struct store_txn *txn, const struct queue_family *family, const struct expiry_leader *leader,
                      struct expiry *expiry) {
    struct lock_delays delays = delays_of(family);
    return lock_delays_read(txn, &delays, leader, expiry);
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
