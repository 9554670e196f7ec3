/* Keys and rows of queues. */
#include "base/message.h"
#include "kv/lock/lock_queue_internal.h"

struct position position_of(const Pb__QueueEntry *entry) {
    return (struct position){entry->token ? entry->token : QUEUE_WAITS, entry->priority, entry->place};
}

void position_put(char *to, struct position position) {
    put_be64(to, position.token);
    put_be32(to + 8, UINT32_MAX - position.priority);
    put_be64(to + 12, position.place);
}

int position_get(struct slice bytes, struct position *position) {
    if (bytes.size != POSITION_SIZE) return CO_CORRUPT;
    position->token = get_be64(bytes.data);
    position->priority = UINT32_MAX - get_be32(bytes.data + 8);
    position->place = get_be64(bytes.data + 12);
    return CO_OK;
}

bool queue_name_fits(struct slice name) {
    return name.size && name.size <= QUEUE_NAME_MAX && !memchr(name.data, '\0', name.size);
}

struct slice queue_rows(struct slice name, char room[QUEUE_KEY_MAX]) {
    CHECK(queue_name_fits(name));
    memcpy(room, name.data, name.size);
    room[name.size] = '\0';
    return slice_make(room, name.size + 1);
}

struct slice queue_waiting_rows(struct slice name, char room[QUEUE_KEY_MAX]) {
    struct slice rows = queue_rows(name, room);
    put_be64(room + rows.size, QUEUE_WAITS);
    return slice_make(room, rows.size + 8);
}

struct slice queue_entry_name(struct slice name, struct slice session, char room[QUEUE_ENTRY_NAME_MAX]) {
    CHECK(queue_name_fits(name) && session.size == UUID_TEXT_SIZE);
    memcpy(room, session.data, session.size);
    memcpy(room + session.size, name.data, name.size);
    return slice_make(room, session.size + name.size);
}

int queue_get(struct store_txn *txn, const struct queue_family *family, struct slice name, struct arena *arena,
              Pb__Queue **queue) {
    struct slice bytes;
    if (!queue_name_fits(name)) return CO_NOTFOUND;
    int rv = store_get(txn, family->table, name, &bytes);
    if (rv != CO_OK) return rv;
    *queue = message_unpack(arena, &pb__queue__descriptor, bytes);
    return *queue ? CO_OK : CO_CORRUPT;
}

static int exclusive_holder(struct store_txn *txn, const struct queue_family *family, struct slice name,
                            struct arena *arena, Pb__QueueEntry **entry) {
    Pb__Queue *queue;
    int rv = queue_get(txn, family, name, arena, &queue);
    if (rv != CO_OK) return rv;
    *entry = queue->holder;
    return *entry ? CO_OK : CO_NOTFOUND;
}

int queue_entry_at(struct store_txn *txn, const struct queue_family *family, struct slice name,
                   struct position position, struct arena *arena, Pb__QueueEntry **entry) {
    char room[QUEUE_KEY_MAX];
    struct slice bytes, key = queue_rows(name, room);
    position_put(room + key.size, position);
    key.size += POSITION_SIZE;
    int rv = store_get(txn, family->table, key, &bytes);
    if (rv == CO_OK) {
        *entry = message_unpack(arena, &pb__queue_entry__descriptor, bytes);
        return *entry ? CO_OK : CO_CORRUPT;
    }
    if (rv != CO_NOTFOUND || position_waits(position)) return rv;
    rv = exclusive_holder(txn, family, name, arena, entry);
    return rv == CO_OK && (*entry)->token != position.token ? CO_NOTFOUND : rv;
}
