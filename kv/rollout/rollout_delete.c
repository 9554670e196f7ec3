/* The end of a rollout. One entry removes the record, its history, acknowledgements and schema, and the list of
 * published versions. Its documents and its pointer are keys, and stay unless the command says otherwise. */
#include <string.h>

#include "kv/rollout/rollout_internal.h"

/* Removes all rows that begin with the prefix. */
static void rows_drop(struct machine_tx *tx, enum rollout_row row, struct slice name) {
    char room[STORE_KEY_MAX], key_room[STORE_KEY_MAX];
    struct slice prefix = rollout_rows(row, name, room);
    for (;;) {
        struct store_cursor cursor;
        struct slice key = slice_make(key_room, 0);
        store_cursor_open(&cursor, tx->store, ROLLOUT_TABLE, prefix);
        bool found = cursor.valid && slice_starts(cursor.key, prefix);
        if (found) memcpy(key_room, cursor.key.data, key.size = cursor.key.size);
        store_cursor_close(&cursor);
        if (!found || !store_del(tx->store, ROLLOUT_TABLE, key)) return;
    }
}

static void rollout_drop(struct machine_tx *tx, struct slice name) {
    static const enum rollout_row single[] = {ROW_RECORD, ROW_SCHEMA, ROW_CRITICAL, ROW_TALLY};
    static const enum rollout_row many[] = {ROW_HISTORY, ROW_VERSION, ROW_ACK, ROW_AGE, ROW_NODE, ROW_COUNT};
    char room[STORE_KEY_MAX];
    for (size_t i = 0; i < ARRAY_COUNT(single); i++)
        (void)store_del(tx->store, ROLLOUT_TABLE, rollout_key(single[i], name, room));
    for (size_t i = 0; i < ARRAY_COUNT(many); i++) rows_drop(tx, many[i], name);
}

static int keys_delete(struct machine_tx *tx, struct slice name, struct machine_result *result) {
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    struct machine_result written = {.index = tx->index};
    struct buffer bytes = {0};
    command.verb = PB__KV_VERB__KV_DELETE_TREE;
    command.key = message_bytes(rollout_document_key(tx->arena, name, slice_make("", 0)));
    machine_command(&bytes, KV_APPLY, &command.base);
    int rv = machine_apply_command(tx, buffer_slice(&bytes), &written);
    buffer_free(&bytes);
    if (rv == CO_OK && written.error) (void)machine_refuse(result, written.error, written.text);
    return rv;
}

int rollout_delete_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__RolloutDeleteCommand *command = request;
    struct slice name = slice_text(command->name);
    Pb__RolloutRecord *record;
    if (!rollout_names_fit(command->name, NULL, result)) return CO_OK;
    int rv = rollout_get(tx->store, name, tx->arena, &record);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    bool there = rv == CO_OK;
    if (rollout_cas_fails(there ? record : NULL, command->cas_given, command->cas, tx, result)) return CO_OK;
    if (there && record->stage)
        return machine_refuse(
            result, CO_CONFLICT,
            arena_printf(tx->arena, "\"%s\" is staged: promote it or roll it back before the rollout is deleted",
                         record->stage->version));
    rv = command->with_keys ? keys_delete(tx, name, result) : CO_OK;
    if (rv != CO_OK || result->error) return rv;
    result->yes = true;
    if (!there) return CO_OK; /* the same request once more */
    struct rollout_sides before = rollout_sides(record);
    record->current = (char *)(uintptr_t) "";
    rollout_changed(tx, record, before);
    rollout_drop(tx, name);
    if (before.current[0]) machine_changed(tx, SPACE_ROLLOUT_CALLER, name, true);
    machine_changed(tx, SPACE_ROLLOUT, name, true);
    machine_changed(tx, SPACE_ROLLOUT, slice_make("", 0), false); /* for lists, in which it no longer is */
    machine_changed(tx, SPACE_ROLLOUT_HISTORY, name, true);
    machine_changed(tx, SPACE_ROLLOUT_SCHEMA, name, true);
    machine_touch(tx, SPACE_ROLLOUT_ACKS, name);
    return CO_OK;
}
