/* Rows of rollouts: their keys, the record, the history, and the keys of documents. */
#include <string.h>

#include "base/text.h"
#include "kv/rollout/rollout_internal.h"

/* -- names -------------------------------------------------------------------------------------------------------- */

bool rollout_name_fits(struct slice name, bool version) {
    if (name.size == 0 || name.size > ROLLOUT_NAME_MOST || !utf8_valid(name)) return false;
    if (version && slice_is(name, "current")) return false;
    for (size_t i = 0; i < name.size; i++)
        if (name.data[i] == '/' || (unsigned char)name.data[i] < ' ' || name.data[i] == 0x7f) return false;
    return true;
}

bool rollout_names_fit(const char *name, const char *version, struct machine_result *result) {
    bool fits = rollout_name_fits(slice_text(name), false);
    if (!fits)
        (void)machine_refuse(result, CO_INVALID,
                             "a rollout's name has 1 to 128 bytes of text, without '/' and controls");
    else if (version && !rollout_name_fits(slice_text(version), true))
        (void)machine_refuse(
            result, CO_INVALID,
            "a version's name has 1 to 128 bytes of text, without '/' and controls, and is not \"current\"");
    return result->error == CO_OK;
}

/* -- keys --------------------------------------------------------------------------------------------------------- */

struct slice rollout_key(enum rollout_row row, struct slice name, char *room) {
    CHECK(name.size <= ROLLOUT_NAME_MOST);
    room[0] = (char)row;
    memcpy(room + 1, name.data, name.size);
    return slice_make(room, 1 + name.size);
}

struct slice rollout_rows(enum rollout_row row, struct slice name, char *room) {
    size_t size = rollout_key(row, name, room).size;
    room[size] = '\0';
    return slice_make(room, size + 1);
}

struct slice rollout_row_key(enum rollout_row row, struct slice name, struct slice rest, char *room) {
    size_t size = rollout_rows(row, name, room).size;
    CHECK(size + rest.size <= STORE_KEY_MAX);
    memcpy(room + size, rest.data, rest.size);
    return slice_make(room, size + rest.size);
}

struct slice rollout_number_key(enum rollout_row row, struct slice name, uint64_t number, struct slice rest,
                                char *room) {
    char number_bytes[8];
    put_be64(number_bytes, number);
    size_t size = rollout_row_key(row, name, slice_make(number_bytes, sizeof number_bytes), room).size;
    CHECK(size + rest.size <= STORE_KEY_MAX);
    if (rest.size) memcpy(room + size, rest.data, rest.size);
    return slice_make(room, size + rest.size);
}

/* -- rows --------------------------------------------------------------------------------------------------------- */

int rollout_row(struct store_txn *txn, struct slice key, const ProtobufCMessageDescriptor *type, struct arena *arena,
                void *record) {
    struct slice bytes;
    void **out = record;
    int rv = store_get(txn, ROLLOUT_TABLE, key, &bytes);
    if (rv != CO_OK) return rv;
    *out = machine_decode(type, bytes, arena);
    return *out ? CO_OK : CO_CORRUPT;
}

void rollout_row_put(struct machine_tx *tx, struct slice key, const ProtobufCMessage *record) {
    store_put(tx->store, ROLLOUT_TABLE, key, message_pack(tx->arena, record));
}

int rollout_get(struct store_txn *txn, struct slice name, struct arena *arena, Pb__RolloutRecord **record) {
    char room[STORE_KEY_MAX];
    if (!rollout_name_fits(name, false)) return CO_NOTFOUND;
    int rv = rollout_row(txn, rollout_key(ROW_RECORD, name, room), &pb__rollout_record__descriptor, arena, record);
    if (rv == CO_OK && (*record)->n_matches == 0) return CO_CORRUPT;
    for (size_t i = 0; rv == CO_OK && i < (*record)->n_layers; i++) {
        const Pb__RolloutLayer *layer = (*record)->layers[i];
        if (layer->before_match >= (*record)->n_matches || layer->after_match >= (*record)->n_matches) rv = CO_CORRUPT;
    }
    return rv;
}

/* When a new rollout finds a pointer that a client has written before, that names its current version. */
static int adopt(struct machine_tx *tx, Pb__RolloutRecord *record) {
    const Pb__KvEntry *pointer, *document;
    struct slice name = slice_text(record->name);
    int rv = rollout_document(tx->store, tx->arena, name, SLICE_LITERAL("current"), &pointer);
    if (rv != CO_OK || !pointer || !rollout_name_fits(message_slice(pointer->value), true)) return rv;
    struct slice version = slice_copy(tx->arena, message_slice(pointer->value));
    rv = rollout_document(tx->store, tx->arena, name, version, &document);
    if (rv == CO_OK && document) record->current = (char *)(uintptr_t)version.data;
    return rv;
}

static uint64_t rollouts_there(struct store_txn *txn) {
    struct store_cursor cursor;
    uint64_t count = 0;
    struct slice head = SLICE_LITERAL("r");
    STORE_PREFIX(&cursor, txn, ROLLOUT_TABLE, head) count++;
    store_cursor_close(&cursor);
    return count;
}

bool rollout_open(struct machine_tx *tx, const char *name, Pb__RolloutRecord **record, struct machine_result *result,
                  int *rv) {
    *rv = rollout_get(tx->store, slice_text(name), tx->arena, record);
    if (*rv != CO_NOTFOUND) return *rv == CO_OK;
    *rv = CO_OK;
    if (rollouts_there(tx->store) >= ROLLOUTS_MOST) {
        (void)machine_refuse(result, CO_BUSY, "there are 10000 rollouts already");
        return false;
    }
    Pb__RolloutRecord *fresh = *record = arena_alloc(tx->arena, sizeof *fresh);
    pb__rollout_record__init(fresh);
    fresh->name = (char *)(uintptr_t)name;
    fresh->create_index = fresh->modify_index = tx->index;
    fresh->history_first = fresh->history_next = 1;
    fresh->matches = arena_alloc(tx->arena, sizeof *fresh->matches);
    fresh->matches[0] = arena_alloc(tx->arena, sizeof *fresh->matches[0]);
    pb__rollout_match__init(fresh->matches[0]);
    fresh->n_matches = 1;
    *rv = adopt(tx, fresh);
    if (*rv == CO_OK && fresh->current[0]) rollout_changed(tx, fresh, (struct rollout_sides){"", NULL});
    return *rv == CO_OK;
}

void rollout_put(struct machine_tx *tx, Pb__RolloutRecord *record) {
    char room[STORE_KEY_MAX];
    struct slice name = slice_text(record->name);
    rollout_row_put(tx, rollout_key(ROW_RECORD, name, room), &record->base);
    machine_touch(tx, SPACE_ROLLOUT, name);
}

/* -- history ------------------------------------------------------------------------------------------------------ */

/* Removes the oldest row; if that is a publication, the hash of the version is removed too. */
static void drop_oldest(struct machine_tx *tx, Pb__RolloutRecord *record) {
    char room[STORE_KEY_MAX], version_room[STORE_KEY_MAX];
    struct slice name = slice_text(record->name);
    struct slice row = rollout_number_key(ROW_HISTORY, name, record->history_first++, slice_make("", 0), room);
    Pb__RolloutChange *change;
    Pb__RolloutPublished *published;
    if (rollout_row(tx->store, row, &pb__rollout_change__descriptor, tx->arena, &change) == CO_OK &&
        change->kind == PB__ROLLOUT_DID__ROLLOUT_DID_PUBLISH) {
        struct slice version = rollout_row_key(ROW_VERSION, name, slice_text(change->to), version_room);
        int rv = rollout_row(tx->store, version, &pb__rollout_published__descriptor, tx->arena, &published);
        if (rv == CO_OK && published->index == change->index) (void)store_del(tx->store, ROLLOUT_TABLE, version);
    }
    (void)store_del(tx->store, ROLLOUT_TABLE, row);
}

void rollout_note(struct machine_tx *tx, Pb__RolloutRecord *record, const struct rollout_who *who, Pb__RolloutDid kind,
                  const char *from, const char *to, uint32_t buckets) {
    char room[STORE_KEY_MAX];
    struct slice name = slice_text(record->name);
    Pb__RolloutChange change = PB__ROLLOUT_CHANGE__INIT;
    change.number = record->history_next++, change.index = tx->index, change.time_unix_ms = who->unix_ms;
    change.kind = kind, change.by = (char *)(uintptr_t)who->by, change.comment = (char *)(uintptr_t)who->comment;
    change.from = (char *)(uintptr_t)from, change.to = (char *)(uintptr_t)to;
    change.percent = rollout_percent(buckets);
    rollout_row_put(tx, rollout_number_key(ROW_HISTORY, name, change.number, slice_make("", 0), room), &change.base);
    while (record->history_next - record->history_first > ROLLOUT_HISTORY_MOST) drop_oldest(tx, record);
    machine_changed(tx, SPACE_ROLLOUT_HISTORY, name, false);
}

/* -- documents ---------------------------------------------------------------------------------------------------- */

struct slice rollout_document_key(struct arena *arena, struct slice name, struct slice version) {
    return slice_text(
        arena_printf(arena, "config/%.*s/%.*s", (int)name.size, name.data, (int)version.size, version.data));
}

int rollout_document(struct store_txn *txn, struct arena *arena, struct slice name, struct slice version,
                     const Pb__KvEntry **entry) {
    Pb__KvRequest request = PB__KV_REQUEST__INIT;
    struct query_result result;
    request.key = message_bytes(rollout_document_key(arena, name, version));
    int rv = query_kv_get.run(txn, &request.base, arena, &result);
    *entry = rv == CO_OK && result.found ? (const Pb__KvEntry *)result.message : NULL;
    return rv;
}

int rollout_key_put(struct machine_tx *tx, struct slice key, struct slice value, struct machine_result *result) {
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    struct machine_result written = {.index = tx->index};
    struct buffer bytes = {0};
    command.verb = PB__KV_VERB__KV_SET;
    command.key = message_bytes(key), command.value = message_bytes(value);
    machine_command(&bytes, KV_APPLY, &command.base);
    int rv = machine_apply_command(tx, buffer_slice(&bytes), &written);
    buffer_free(&bytes);
    if (rv == CO_OK && written.error) (void)machine_refuse(result, written.error, written.text);
    return rv;
}
