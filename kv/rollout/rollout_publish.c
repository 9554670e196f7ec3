/* Documents and their schema. */
#include <string.h>

#include "base/hash.h"
#include "kv/rollout/rollout_internal.h"

/* Compares with the hash of an earlier publication of this version, also when its key has been removed since. *other:
 * that had other content. */
static int published_before(struct machine_tx *tx, struct slice name, const Pb__RolloutPublishCommand *command,
                            bool *other) {
    char room[STORE_KEY_MAX];
    Pb__RolloutPublished *before;
    *other = false;
    int rv = rollout_row(tx->store, rollout_row_key(ROW_VERSION, name, slice_text(command->version), room),
                         &pb__rollout_published__descriptor, tx->arena, &before);
    if (rv == CO_OK) *other = before->hash != hash64(command->document.data, command->document.len);
    return rv == CO_NOTFOUND ? CO_OK : rv;
}

static void remember(struct machine_tx *tx, struct slice name, const Pb__RolloutPublishCommand *command) {
    char room[STORE_KEY_MAX];
    Pb__RolloutPublished published = PB__ROLLOUT_PUBLISHED__INIT;
    published.hash = hash64(command->document.data, command->document.len), published.index = tx->index;
    rollout_row_put(tx, rollout_row_key(ROW_VERSION, name, slice_text(command->version), room), &published.base);
}

int rollout_publish_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__RolloutPublishCommand *command = request;
    struct rollout_who who = {command->by, "", command->now_unix_ms};
    struct slice name = slice_text(command->name), version = slice_text(command->version);
    char room[STORE_KEY_MAX];
    const Pb__KvEntry *there;
    Pb__RolloutSchema *schema;
    Pb__RolloutRecord *record;
    bool other;
    if (!rollout_names_fit(command->name, command->version, result)) return CO_OK;
    int rv = rollout_row(tx->store, rollout_key(ROW_SCHEMA, name, room), &pb__rollout_schema__descriptor, tx->arena,
                         &schema);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    if (command->schema_index != (rv == CO_OK ? schema->index : 0))
        return machine_refuse(result, CO_AGAIN, "the schema has changed meanwhile");
    rv = rollout_document(tx->store, tx->arena, name, version, &there);
    if (rv != CO_OK) return rv;
    result->yes = there && slice_equal(message_slice(there->value), message_slice(command->document));
    if (result->yes) return CO_OK; /* the same request once more */
    if (there)
        return machine_refuse(result, CO_EXISTS,
                              arena_printf(tx->arena,
                                           "version \"%s\" exists with other content, and versions never change: "
                                           "publish it under another name",
                                           command->version));
    rv = published_before(tx, name, command, &other);
    if (rv != CO_OK) return rv;
    if (other)
        return machine_refuse(
            result, CO_EXISTS,
            arena_printf(tx->arena,
                         "version \"%s\" was published with other content before its key was removed, "
                         "and versions never change: publish it under another name",
                         command->version));
    if (!rollout_open(tx, command->name, &record, result, &rv)) return rv;
    rv = rollout_key_put(tx, rollout_document_key(tx->arena, name, version), message_slice(command->document), result);
    if (rv != CO_OK || result->error) return rv;
    remember(tx, name, command);
    rollout_note(tx, record, &who, PB__ROLLOUT_DID__ROLLOUT_DID_PUBLISH, "", command->version, 0);
    rollout_put(tx, record);
    result->yes = true;
    return CO_OK;
}

int rollout_schema_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__RolloutSchemaCommand *command = request;
    struct rollout_who who = {command->by, command->schema.len ? "" : "removed", command->now_unix_ms};
    struct slice name = slice_text(command->name);
    char room[STORE_KEY_MAX];
    Pb__RolloutSchema schema = PB__ROLLOUT_SCHEMA__INIT;
    Pb__RolloutRecord *record;
    int rv;
    if (!rollout_names_fit(command->name, NULL, result)) return CO_OK;
    if (command->schema.len > ROLLOUT_SCHEMA_MOST)
        return machine_refuse(result, CO_TOOLARGE, "a schema has at most 65536 bytes");
    if (!rollout_open(tx, command->name, &record, result, &rv)) return rv;
    schema.schema = command->schema, schema.index = tx->index;
    struct slice key = rollout_key(ROW_SCHEMA, name, room);
    bool removes = command->schema.len == 0;
    if (!removes) rollout_row_put(tx, key, &schema.base);
    else (void)store_del(tx->store, ROLLOUT_TABLE, key);
    machine_changed(tx, SPACE_ROLLOUT_SCHEMA, name, removes);
    rollout_note(tx, record, &who, PB__ROLLOUT_DID__ROLLOUT_DID_SCHEMA, "", "", 0);
    rollout_put(tx, record);
    result->yes = true;
    return CO_OK;
}
