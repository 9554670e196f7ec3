#include "registry/machine_restore.h"

#include <pthread.h>
#include <unistd.h>

#include "base/check.h"
#include "registry/history.h"
#include "registry/operator.h"
#include "registry/tables.h"
#include "registry/version.h"

static const struct slice applied_key = SLICE_LITERAL("applied"), floor_key = SLICE_LITERAL("floor"),
                          offset_key = SLICE_LITERAL("offset"), restored_key = SLICE_LITERAL("restored");

#define APPLIED_BYTES 24                        /* registry/machine.c */
#define TIME_MOST_MS  (((uint64_t)1 << 48) - 1) /* as entries have it (consensus/entry.h) */

static uint64_t number(struct store_txn *txn, struct slice key) {
    struct slice value;
    return store_get(txn, STORE_TABLE_META, key, &value) == CO_OK && value.size >= 8 ? get_be64(value.data) : 0;
}

static void number_put(struct store_txn *txn, struct slice key, uint64_t value) {
    char bytes[8];
    put_be64(bytes, value);
    store_put(txn, STORE_TABLE_META, key, slice_make(bytes, sizeof bytes));
}

/* The time of the last applied entry. */
static uint64_t time_in(struct store_txn *txn) {
    struct slice value;
    int rv = store_get(txn, STORE_TABLE_META, applied_key, &value);
    return rv == CO_OK && value.size == APPLIED_BYTES ? get_be64(value.data + 16) : 0;
}

uint64_t restore_offset(struct store_txn *txn) { return number(txn, offset_key); }

uint64_t machine_restored(struct store_txn *txn) { return number(txn, restored_key); }

/* -- becoming the state ------------------------------------------------------------------------------------------- */
/* `at`: of the command; the other fields: of the state until now */
struct place {
    struct restore_at at;
    struct version_now version;
    struct buffer removed, kept;
};

/* -- tables that stay ---------------------------------------------------------------------------------------------- */
#define ROW_HEAD \
    9 /* of a kept row: table (1), size of its key (4), of its value (4). A table begins with a row without a key */

static void row_copy(struct buffer *out, uint8_t table, struct slice key, struct slice value) {
    char head[ROW_HEAD] = {(char)table};
    put_le32(head + 1, (uint32_t)key.size);
    put_le32(head + 5, (uint32_t)value.size);
    buffer_append(out, head, sizeof head);
    buffer_append(out, key.data, key.size);
    buffer_append(out, value.data, value.size);
}

static void table_copy(struct store_txn *txn, uint8_t table, struct buffer *out) {
    const struct slice nothing = SLICE_LITERAL("");
    struct store_cursor cursor;
    row_copy(out, table, nothing, nothing);
    for (store_cursor_open(&cursor, txn, table, nothing); cursor.valid; store_cursor_next(&cursor))
        row_copy(out, table, cursor.key, cursor.value);
    store_cursor_close(&cursor);
}

static void kept_copy(struct store_txn *txn, const struct modules *modules, struct buffer *out) {
    for (size_t i = 0; i < modules_count(modules); i++) {
        const struct module *module = modules_at(modules, i);
        if (!module->stays || !module->stays(txn)) continue;
        for (const struct store_table *table = module->tables; table->number; table++)
            table_copy(txn, table->number, out);
    }
}

static void table_clear(struct store_txn *txn, uint8_t table) {
    struct store_cursor cursor;
    store_cursor_open(&cursor, txn, table, slice_make("", 0));
    while (cursor.valid) store_cursor_del(&cursor);
    store_cursor_close(&cursor);
}

/* As kept_copy wrote it. */
static void kept_place(struct store_txn *txn, struct slice rows) {
    for (size_t at = 0; at < rows.size;) {
        CHECK(rows.size - at >= ROW_HEAD);
        uint8_t table = (uint8_t)rows.data[at];
        size_t key = get_le32(rows.data + at + 1), value = get_le32(rows.data + at + 5);
        at += ROW_HEAD;
        CHECK(rows.size - at >= key + value);
        if (key == 0) table_clear(txn, table);
        else store_put(txn, table, slice_make(rows.data + at, key), slice_make(rows.data + at + key, value));
        at += key + value;
    }
}

static int older(unsigned theirs, unsigned ours, struct fault *fault) {
    if (theirs <= ours) return CO_OK;
    return fault_set(fault, CO_INVALID, "the backup is of cluster version %u, this cluster is at %u", theirs, ours);
}

/* Keeps the cluster's own id and version, whatever backup it restores. */
static int keep_version(struct store_txn *txn, const struct place *place, struct fault *fault) {
    struct version_now theirs;
    if (version_read(txn, &theirs) != CO_OK)
        return fault_set(fault, CO_CORRUPT, "the backup's cluster version does not decode");
    int error = older(theirs.version, place->version.version, fault);
    if (!error) version_put(txn, &place->version, place->at.index + place->at.offset);
    return error;
}

/* Replaces the backup's place in its own cluster's log by ours, so that indexes go on above both. */
static int take_place(struct store_txn *txn, void *data, struct fault *fault) {
    const struct place *place = data;
    uint64_t theirs = number(txn, applied_key), more = number(txn, offset_key),
             ours = place->at.index + place->at.offset;
    if (theirs > OPERATOR_INDEX_MAX || more > OPERATOR_INDEX_MAX)
        return fault_set(fault, CO_CORRUPT, "the backup's index is impossible");
    theirs += more;
    if (number(txn, floor_key) > theirs) return fault_set(fault, CO_CORRUPT, "the backup's floor is above its index");
    int error = keep_version(txn, place, fault);
    if (error) return error;
    uint64_t now = theirs >= ours ? theirs + 1 : ours;
    CHECK(now >= place->at.index && now > theirs);
    uint64_t unix_ms = time_in(txn); /* the backup's time may be ahead */
    if (unix_ms < place->at.unix_ms) unix_ms = place->at.unix_ms;
    char applied[APPLIED_BYTES];
    put_be64(applied, place->at.index);
    put_be64(applied + 8, place->at.term);
    put_be64(applied + 16, unix_ms);
    store_put(txn, STORE_TABLE_META, applied_key, slice_make(applied, sizeof applied));
    number_put(txn, offset_key, now - place->at.index);
    number_put(txn, floor_key, now);
    number_put(txn, restored_key, now);
    operator_removed_place(txn, buffer_slice(&place->removed)); /* those of this cluster stay removed */
    kept_place(txn, buffer_slice(&place->kept));
    operator_staged_clear(txn); /* the backup may have been taken while another one was
                                                                 * restored */
    history_restored(txn, now, unix_ms);
    return CO_OK;
}

struct feeder {
    struct store *store;
    int fd, error;
};

static void *feed(void *arg) {
    struct feeder *feeder = arg;
    struct store_reader *reader = store_reader_new(feeder->store);
    feeder->error = operator_staged_write(store_read(reader), feeder->fd);
    store_read_done(reader);
    store_reader_free(reader);
    close(feeder->fd);
    return NULL;
}

static int replace(struct store *store, uint64_t size, struct place *place, struct fault *fault) {
    int ends[2];
    if (pipe(ends) != 0) return fault_set(fault, CO_IO, "no pipe for a backup");
    struct feeder feeder = {.store = store, .fd = ends[1]};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, feed, &feeder) == 0);
    int error = store_replace_edited(store, ends[0], size, false, take_place, place, fault);
    close(ends[0]); /* the feeder, if it still writes, gets EPIPE */
    pthread_join(thread, NULL);
    return error;
}

static int may_restore(struct store *store, const struct modules *modules, const Pb__RestoreEndCommand *command,
                       struct place *place, struct fault *fault) {
    struct store_reader *reader = store_reader_new(store);
    struct store_txn *txn = store_read(reader);
    const char *why = operator_restore_refused(txn, command);
    int error = version_read(txn, &place->version);
    operator_removed_copy(txn, &place->removed);
    kept_copy(txn, modules, &place->kept);
    int damage = store_txn_error(txn);
    store_read_done(reader);
    store_reader_free(reader);
    if (error) return fault_set(fault, CO_IO, "the record of the cluster version does not decode");
    if (damage) return fault_set(fault, CO_IO, "the tables that are to stay cannot be read");
    return why ? fault_set(fault, CO_INVALID, "%s", why) : CO_OK;
}

int restore_staged(struct store *store, const struct modules *modules, struct slice payload,
                   const struct restore_at *at, struct fault *fault) {
    CHECK(at->index > 0);
    struct arena arena = {0};
    ProtobufCAllocator allocator = ARENA_PROTOBUF(&arena);
    Pb__RestoreEndCommand *command =
        pb__restore_end_command__unpack(&allocator, payload.size, (const uint8_t *)payload.data);
    int error = CO_OK;
    if (!command || command->give_up) error = CO_AGAIN; /* the module handles it */
    struct place place = {.at = *at};
    if (!error) error = may_restore(store, modules, command, &place, fault);
    if (!error) error = replace(store, command->size, &place, fault);
    buffer_free(&place.removed);
    buffer_free(&place.kept);
    arena_free(&arena);
    return error;
}

/* -- checking ----------------------------------------------------------------------------------------------------- */
struct seen {
    uint64_t applied, offset, floor;
    struct version_now version;
    bool bad;
};

static void on_record(void *data, uint8_t table, struct slice key, struct slice value) {
    struct seen *seen = data;
    if (table == TABLE_CLUSTER && !version_decode(key, value, &seen->version)) seen->bad = true;
    if (table != STORE_TABLE_META) return;
    bool applied = slice_equal(key, applied_key), offset = slice_equal(key, offset_key),
         floor = slice_equal(key, floor_key);
    if (!applied && !offset && !floor) return;
    if (value.size != (applied ? APPLIED_BYTES : 8)) {
        seen->bad = true;
        return;
    }
    if (applied && get_be64(value.data + 16) > TIME_MOST_MS) seen->bad = true;
    *(applied ? &seen->applied : offset ? &seen->offset : &seen->floor) = get_be64(value.data);
}

int restore_check(struct store *store, int fd, uint64_t size, unsigned version, uint64_t *index, uint64_t *applied,
                  struct fault *fault) {
    struct seen seen = {.version = {.version = 1}};
    int error = store_copy_check(store, fd, size, on_record, &seen, fault);
    if (!error) error = older(seen.version.version, version, fault);
    if (error) return error;
    *index = seen.applied + seen.offset;
    *applied = seen.applied;
    bool wild = seen.applied > OPERATOR_INDEX_MAX || seen.offset > OPERATOR_INDEX_MAX || seen.floor > *index;
    return seen.bad || wild ? fault_set(fault, CO_CORRUPT, "store: a copy has an impossible index") : CO_OK;
}
