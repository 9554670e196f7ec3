/* Acknowledgements: a caller runs the version that it was given, or refuses it. */
#include <string.h>

#include "kv/rollout/rollout_internal.h"

static const struct slice nothing = SLICE_LITERAL("");

/* -- rows --------------------------------------------------------------------------------------------------------- */

/* Rows of a node, whose name is in lower case in the key. */
static struct slice node_rows(struct slice name, struct slice node, struct slice id, char *room) {
    size_t head = rollout_rows(ROW_NODE, name, room).size, size = rollout_row_key(ROW_NODE, name, node, room).size;
    bytes_lower(room + head, node.size);
    room[size++] = '\0';
    if (id.size) memcpy(room + size, id.data, id.size);
    return slice_make(room, size + id.size);
}

static struct slice count_key(struct slice name, uint64_t epoch, const char *version, char *room) {
    return rollout_number_key(ROW_COUNT, name, epoch, slice_text(version), room);
}

int rollout_count(struct store_txn *txn, struct slice name, uint64_t epoch, const char *version,
                  Pb__RolloutCount *out) {
    char room[STORE_KEY_MAX];
    struct arena arena = {0};
    Pb__RolloutCount *found;
    pb__rollout_count__init(out);
    int rv = rollout_row(txn, count_key(name, epoch, version, room), &pb__rollout_count__descriptor, &arena, &found);
    if (rv == CO_OK) out->ok = found->ok, out->refused = found->refused;
    arena_free(&arena);
    return rv == CO_NOTFOUND ? CO_OK : rv;
}

int rollout_on_node(struct store_txn *txn, struct slice name, struct slice node, uint64_t epoch, uint64_t *running,
                    bool *any) {
    char room[STORE_KEY_MAX];
    struct store_cursor cursor;
    int rv = CO_OK;
    *running = 0, *any = false;
    if (node.size == 0 || node.size > ROLLOUT_NODE_MOST) return CO_OK;
    struct slice prefix = node_rows(name, node, nothing, room);
    STORE_PREFIX(&cursor, txn, ROLLOUT_TABLE, prefix) {
        *any = true;
        if (cursor.value.size != 9) rv = CO_CORRUPT;
        else *running += get_be64(cursor.value.data) == epoch && cursor.value.data[8];
    }
    store_cursor_close(&cursor);
    return rv;
}

static int count_change(struct machine_tx *tx, struct slice name, const Pb__RolloutAck *ack, bool more) {
    char room[STORE_KEY_MAX];
    struct slice key = count_key(name, ack->epoch, ack->version, room);
    Pb__RolloutCount count;
    int rv = rollout_count(tx->store, name, ack->epoch, ack->version, &count);
    if (rv != CO_OK) return rv;
    uint64_t *number = ack->ok ? &count.ok : &count.refused;
    if (!more && *number == 0) return CO_CORRUPT;
    *number += more ? 1 : UINT64_MAX;
    if (count.ok || count.refused) rollout_row_put(tx, key, &count.base);
    else (void)store_del(tx->store, ROLLOUT_TABLE, key);
    return CO_OK;
}

static int ack_remove(struct machine_tx *tx, struct slice name, const Pb__RolloutAck *ack) {
    char room[STORE_KEY_MAX];
    struct slice id = slice_text(ack->id), node = slice_text(ack->node);
    (void)store_del(tx->store, ROLLOUT_TABLE, rollout_row_key(ROW_ACK, name, id, room));
    (void)store_del(tx->store, ROLLOUT_TABLE, rollout_number_key(ROW_AGE, name, ack->index, id, room));
    if (node.size) (void)store_del(tx->store, ROLLOUT_TABLE, node_rows(name, node, id, room));
    return count_change(tx, name, ack, false);
}

static int ack_put(struct machine_tx *tx, struct slice name, const Pb__RolloutAck *ack) {
    char room[STORE_KEY_MAX], value[9];
    struct slice id = slice_text(ack->id), node = slice_text(ack->node);
    rollout_row_put(tx, rollout_row_key(ROW_ACK, name, id, room), &ack->base);
    store_put(tx->store, ROLLOUT_TABLE, rollout_number_key(ROW_AGE, name, ack->index, id, room), nothing);
    put_be64(value, ack->epoch), value[8] = (char)(ack->ok != 0);
    if (node.size)
        store_put(tx->store, ROLLOUT_TABLE, node_rows(name, node, id, room), slice_make(value, sizeof value));
    return count_change(tx, name, ack, true);
}

static int ack_get(struct machine_tx *tx, struct slice name, struct slice id, Pb__RolloutAck **ack) {
    char room[STORE_KEY_MAX];
    int rv =
        rollout_row(tx->store, rollout_row_key(ROW_ACK, name, id, room), &pb__rollout_ack__descriptor, tx->arena, ack);
    return rv == CO_OK && !slice_equal(id, slice_text((*ack)->id)) ? CO_CORRUPT : rv;
}

/* Removes the oldest acknowledgement. */
static int drop_oldest(struct machine_tx *tx, struct slice name) {
    char room[STORE_KEY_MAX], id_room[ROLLOUT_ID_MOST];
    struct slice prefix = rollout_rows(ROW_AGE, name, room), id = slice_make(id_room, 0);
    struct store_cursor cursor;
    Pb__RolloutAck *ack;
    store_cursor_open(&cursor, tx->store, ROLLOUT_TABLE, prefix);
    bool found = cursor.valid && slice_starts(cursor.key, prefix) && cursor.key.size > prefix.size + 8 &&
                 cursor.key.size <= prefix.size + 8 + sizeof id_room;
    if (found) {
        id.size = cursor.key.size - prefix.size - 8;
        memcpy(id_room, cursor.key.data + prefix.size + 8, id.size);
    }
    store_cursor_close(&cursor);
    int rv = found ? ack_get(tx, name, id, &ack) : CO_CORRUPT;
    if (rv == CO_OK) rv = ack_remove(tx, name, ack);
    return rv == CO_NOTFOUND ? CO_CORRUPT : rv;
}

/* -- the command -------------------------------------------------------------------------------------------------- */

static const char *wrong(const Pb__RolloutAckCommand *command) {
    size_t id = strlen(command->id);
    if (id == 0 || id > ROLLOUT_ID_MOST) return "id: a caller's id has 1 to 128 bytes";
    if (strlen(command->node) > ROLLOUT_NODE_MOST) return "node: at most 200 bytes";
    return strlen(command->reason) > ROLLOUT_TEXT_MOST ? "reason: at most 512 bytes" : NULL;
}

/* Does the rollout have this version? A version whose document was removed meanwhile may still run. */
static int known(struct machine_tx *tx, const Pb__RolloutRecord *record, const char *version, bool *there) {
    const Pb__KvEntry *document = NULL;
    *there = strcmp(record->current, version) == 0 || (record->stage && strcmp(record->stage->version, version) == 0);
    if (*there) return CO_OK;
    int rv = rollout_document(tx->store, tx->arena, slice_text(record->name), slice_text(version), &document);
    *there = document != NULL;
    return rv;
}

static int acknowledge(struct machine_tx *tx, const Pb__RolloutRecord *record, Pb__RolloutAck *ack) {
    char room[STORE_KEY_MAX];
    struct slice name = slice_text(record->name);
    Pb__RolloutAck *before = NULL;
    Pb__RolloutTally *tally, none = PB__ROLLOUT_TALLY__INIT;
    int rv =
        rollout_row(tx->store, rollout_key(ROW_TALLY, name, room), &pb__rollout_tally__descriptor, tx->arena, &tally);
    if (rv == CO_NOTFOUND) tally = &none, rv = CO_OK;
    if (rv == CO_OK) rv = ack_get(tx, name, slice_text(ack->id), &before);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    bool fresh = rv == CO_NOTFOUND;
    rv = CO_OK;
    if (!fresh) rv = ack_remove(tx, name, before);
    else if (tally->callers >= ROLLOUT_CALLERS_MOST) rv = drop_oldest(tx, name);
    else tally->callers++;
    if (rv == CO_OK) rv = ack_put(tx, name, ack);
    tally->modify_index = tx->index;
    rollout_row_put(tx, rollout_key(ROW_TALLY, name, room), &tally->base);
    machine_touch(tx, SPACE_ROLLOUT_ACKS, name);
    return rv;
}

int rollout_ack_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__RolloutAckCommand *command = request;
    Pb__RolloutRecord *record;
    bool there;
    if (!rollout_names_fit(command->name, command->version, result)) return CO_OK;
    const char *why = wrong(command);
    if (why) return machine_refuse(result, CO_INVALID, why);
    int rv = rollout_get(tx->store, slice_text(command->name), tx->arena, &record);
    if (rv == CO_NOTFOUND)
        return machine_refuse(result, CO_NOTFOUND,
                              arena_printf(tx->arena, "there is no rollout \"%s\"", command->name));
    if (rv == CO_OK) rv = known(tx, record, command->version, &there);
    if (rv != CO_OK) return rv;
    if (!there)
        return machine_refuse(
            result, CO_NOTFOUND,
            arena_printf(tx->arena, "rollout \"%s\" has no version \"%s\"", command->name, command->version));
    Pb__RolloutAck ack = PB__ROLLOUT_ACK__INIT;
    ack.id = command->id, ack.version = command->version, ack.node = command->node, ack.reason = command->reason;
    ack.ok = command->ok == PB__ROLLOUT_VERDICT__ROLLOUT_VERDICT_TRUE;
    ack.index = tx->index, ack.time_unix_ms = command->now_unix_ms;
    bool staged = record->stage && strcmp(record->stage->version, command->version) == 0;
    ack.epoch = staged ? record->stage->began : 0;
    result->yes = true;
    return acknowledge(tx, record, &ack);
}
