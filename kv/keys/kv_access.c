/* Keys are read and written by the rules `key` for their names. A write with a session needs no right for the session:
 * as in Consul its ID is enough. Nor does a write that binds the key to a lease. */
#include "base/message.h"
#include "kv/keys/kv_copied.h"
#include "kv/keys/kv_internal.h"

bool kv_key_list_policy;

/* -- commands ----------------------------------------------------------------------------------------------------- */

/* A fence tells whether, and with which token, the lock is held. */
int kv_command_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    const Pb__KvCommand *command = (const Pb__KvCommand *)request;
    struct slice key = message_slice(command->key);
    (void)txn;
    int rv = command->verb == PB__KV_VERB__KV_DELETE_TREE ? access_require_below(check, ACCESS_KEY, key, ACCESS_WRITE)
                                                          : access_require(check, ACCESS_KEY, key, ACCESS_WRITE);
    if (rv != CO_OK || !command->fence[0]) return rv;
    return access_require(check, ACCESS_LOCK, slice_text(command->fence), ACCESS_READ);
}

/* A dry run needs the same, so that it tells whether the restore would be done. */
int kv_restore_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    const Pb__KvRestoreCommand *command = (const Pb__KvRestoreCommand *)request;
    struct slice key = message_slice(command->key);
    (void)txn;
    return command->recurse ? access_require_below(check, ACCESS_KEY, key, ACCESS_WRITE)
                            : access_require(check, ACCESS_KEY, key, ACCESS_WRITE);
}

/* -- queries ------------------------------------------------------------------------------------------------------ */

static bool shows(struct access_check *check, ProtobufCBinaryData key) {
    return access_shows(check, ACCESS_KEY, message_slice(key));
}

/* May this prefix be listed at all? */
static int list_required(struct access_check *check, struct slice prefix) {
    return kv_key_list_policy ? access_require(check, ACCESS_KEY, prefix, ACCESS_LIST) : CO_OK;
}

static struct slice request_key(const ProtobufCMessage *request) {
    return message_slice(((const Pb__KvRequest *)request)->key);
}

int kv_get_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                struct query_result *result) {
    (void)txn, (void)result;
    return access_require(check, ACCESS_KEY, request_key(request), ACCESS_READ);
}

int kv_list_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                 struct query_result *result) {
    Pb__KvEntriesResult *list = (Pb__KvEntriesResult *)result->message;
    (void)txn;
    int rv = list_required(check, request_key(request));
    if (rv != CO_OK || !result->found) return rv;
    ACCESS_KEEP_ROWS(list->n_entries, list->entries, shows(check, row->key));
    if (list->n_entries == 0) result->found = false, result->message = NULL; /* as if there were no key */
    return CO_OK;
}

/* May one of the keys that begin with this be read? There is such a key. */
static int some_shown(struct access_check *check, struct store_txn *txn, struct slice prefix, bool *some) {
    struct kv_walk walk;
    *some = access_allows_below(check->access, ACCESS_KEY, prefix, ACCESS_READ);
    if (*some) return CO_OK;
    for (kv_walk_open(&walk, txn, prefix, slice_make("", 0)); walk.valid && !*some; kv_walk_next(&walk))
        *some = access_allows(check->access, ACCESS_KEY, walk.record.key, ACCESS_READ);
    kv_walk_close(&walk);
    if (!*some) check->hidden++;
    return walk.error;
}

/* A row that was cut at the separator stands for all keys that begin with it. */
static bool is_cut(ProtobufCBinaryData row, struct slice prefix, struct slice separator) {
    CHECK(row.len >= prefix.size);
    return separator.size && memmem(row.data + prefix.size, row.len - prefix.size, separator.data, separator.size);
}

static int keys_keep(struct access_check *check, struct store_txn *txn, struct slice prefix, struct slice separator,
                     size_t *count, ProtobufCBinaryData *keys) {
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++) {
        bool shown;
        int rv = CO_OK;
        if (is_cut(keys[i], prefix, separator)) rv = some_shown(check, txn, message_slice(keys[i]), &shown);
        else shown = shows(check, keys[i]);
        if (rv != CO_OK) return rv;
        if (shown) keys[kept++] = keys[i];
    }
    *count = kept;
    return CO_OK;
}

int kv_keys_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *message,
                 struct query_result *result) {
    const Pb__KvRequest *request = (const Pb__KvRequest *)message;
    Pb__KvKeysResult *list = (Pb__KvKeysResult *)result->message;
    int rv = list_required(check, request_key(message));
    if (rv == CO_OK)
        rv = keys_keep(check, txn, request_key(message), message_slice(request->separator), &list->n_keys, list->keys);
    if (rv == CO_OK) result->found = list->n_keys != 0;
    return rv;
}

/* The rules of today count for the past. */
static int past_keys_show(struct access_check *check, struct store_txn *txn, const Pb__KvPastRequest *request,
                          Pb__KvPastResult *answer) {
    struct store_past *past;
    if (answer->n_keys == 0) return CO_OK;
    int rv = history_read_past(txn, HISTORY_KEYS, answer->at, &past);
    if (rv != CO_OK) return rv;
    rv = keys_keep(check, txn, message_slice(request->key), message_slice(request->separator), &answer->n_keys,
                   answer->keys);
    history_past_end(txn, past);
    return rv;
}

int kv_past_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *message,
                 struct query_result *result) {
    const Pb__KvPastRequest *request = (const Pb__KvPastRequest *)message;
    Pb__KvPastResult *answer = (Pb__KvPastResult *)result->message;
    struct slice key = message_slice(request->key);
    bool lists = request->form == PB__KV_PAST_FORM__PAST_ENTRIES || request->form == PB__KV_PAST_FORM__PAST_KEYS;
    if (!lists) return access_require(check, ACCESS_KEY, key, ACCESS_READ);
    int rv = list_required(check, key);
    if (rv == CO_OK) rv = past_keys_show(check, txn, request, answer);
    if (rv != CO_OK) return rv;
    ACCESS_KEEP_ROWS(answer->n_entries, answer->entries, shows(check, row->key));
    if (answer->n_entries == 0 && answer->n_keys == 0) result->found = false;
    return CO_OK;
}
