#include "kv/lock/lock_delay.h"

#include "base/check.h"
#include "registry/expiry.h"

/* A row has the index and the length in ns, both big-endian, and the name. */
enum { NAME_AT = 16 };

int64_t lock_delay_ns(const Pb__Session *session) {
    return session->lock_delay_ns < LOCK_DELAY_MAX_NS ? session->lock_delay_ns : LOCK_DELAY_MAX_NS;
}

int lock_delay_decode(struct slice bytes, struct lock_delay *delay) {
    if (bytes.size <= NAME_AT) return CO_CORRUPT;
    delay->index = get_be64(bytes.data);
    delay->delay_ns = (int64_t)get_be64(bytes.data + 8);
    delay->name = slice_make(bytes.data + NAME_AT, bytes.size - NAME_AT);
    return delay->delay_ns > 0 && delay->delay_ns <= LOCK_DELAY_MAX_NS ? CO_OK : CO_CORRUPT;
}

bool lock_delay_begin(struct machine_tx *tx, const struct lock_delays *delays, struct slice row, struct slice name,
                      int64_t delay_ns) {
    struct lock_delay before;
    struct slice bytes;
    CHECK(name.size > 0 && delay_ns > 0 && delay_ns <= LOCK_DELAY_MAX_NS);
    bool is_new = store_get(tx->store, delays->table, row, &bytes) == CO_NOTFOUND;
    if (!is_new && lock_delay_decode(bytes, &before) == CO_OK && before.index == tx->index) {
        if (before.delay_ns >= delay_ns) return false;
        expiry_ended_in(tx, delays->kind, name, tx->index);
    }
    char *value = arena_alloc(tx->arena, NAME_AT + name.size);
    put_be64(value, tx->index);
    put_be64(value + 8, (uint64_t)delay_ns);
    memcpy(value + NAME_AT, name.data, name.size);
    store_put(tx->store, delays->table, row, slice_make(value, NAME_AT + name.size));
    expiry_began_in(tx, delays->kind, name, tx->index, delay_ns);
    return is_new;
}

int lock_delay_remove(struct machine_tx *tx, const struct lock_delays *delays, struct slice row, struct slice name,
                      uint64_t index, bool *over) {
    struct slice bytes;
    struct lock_delay delay;
    *over = false;
    int rv = store_get(tx->store, delays->table, row, &bytes);
    if (rv == CO_OK) rv = lock_delay_decode(bytes, &delay);
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_OK : rv;
    *over = delay.index == index && slice_equal(delay.name, name);
    if (!*over) return CO_OK;
    store_del(tx->store, delays->table, row);
    expiry_ended_in(tx, delays->kind, name, index);
    return CO_OK;
}

int lock_delays_read(struct store_txn *txn, const struct lock_delays *delays, const struct expiry_leader *leader,
                     struct expiry *expiry) {
    struct store_cursor cursor;
    int rv = CO_OK;
    STORE_PREFIX(&cursor, txn, delays->table, delays->rows) {
        struct lock_delay delay;
        int error = lock_delay_decode(cursor.value, &delay);
        if (error == CO_OK) expiry_began(expiry, delays->kind, delay.name, delay.index, delay.delay_ns, leader->now_ms);
        else rv = error;
    }
    store_cursor_close(&cursor);
    return rv;
}
