/* Rows of the tables. */
#include <string.h>

#include "acl/acl_internal.h"
#include "base/check.h"
#include "base/text.h"

const struct slice acl_everything = SLICE_LITERAL("");

struct slice acl_row_key(enum acl_row row, struct slice name, char room[ACL_KEY_ROOM]) {
    CHECK(name.size < ACL_KEY_ROOM);
    room[0] = (char)row;
    if (name.size) memcpy(room + 1, name.data, name.size);
    bytes_lower(room + 1, name.size);
    return slice_make(room, 1 + name.size);
}

static int unpack(struct slice bytes, const ProtobufCMessageDescriptor *type, struct arena *arena, void *message) {
    ProtobufCMessage **out = message;
    *out = message_unpack(arena, type, bytes);
    return *out ? CO_OK : CO_CORRUPT;
}

int acl_get(struct store_txn *txn, enum acl_row row, struct slice name, const ProtobufCMessageDescriptor *type,
            struct arena *arena, void *message) {
    char room[ACL_KEY_ROOM];
    struct slice bytes;
    *(ProtobufCMessage **)message = NULL;
    if (name.size > ACL_ROLE_NAME_MAX) return CO_NOTFOUND;
    int rv = store_get(txn, ACL_TABLE, acl_row_key(row, name, room), &bytes);
    return rv == CO_OK ? unpack(bytes, type, arena, message) : rv;
}

void acl_put(struct machine_tx *tx, enum acl_row row, struct slice name, const ProtobufCMessage *message) {
    char room[ACL_KEY_ROOM];
    store_put(tx->store, ACL_TABLE, acl_row_key(row, name, room), message_pack(tx->arena, message));
}

void acl_remove(struct machine_tx *tx, enum acl_row row, struct slice name) {
    char room[ACL_KEY_ROOM];
    (void)store_del(tx->store, ACL_TABLE, acl_row_key(row, name, room));
}

size_t acl_count(struct store_txn *txn, enum acl_row row) {
    struct store_cursor cursor;
    char room[ACL_KEY_ROOM];
    struct slice prefix = acl_row_key(row, acl_everything, room);
    size_t count = 0;
    STORE_PREFIX(&cursor, txn, ACL_TABLE, prefix) count++;
    store_cursor_close(&cursor);
    return count;
}

int acl_name_find(struct store_txn *txn, enum acl_row row, struct slice name, struct arena *arena, struct slice *id) {
    char room[ACL_KEY_ROOM];
    struct slice bytes;
    if (name.size == 0 || name.size > ACL_ROLE_NAME_MAX) return CO_NOTFOUND;
    int rv = store_get(txn, ACL_TABLE, acl_row_key(row, name, room), &bytes);
    if (rv == CO_OK) *id = slice_copy(arena, bytes);
    return rv;
}

void acl_name_put(struct machine_tx *tx, enum acl_row row, struct slice name, struct slice id) {
    char room[ACL_KEY_ROOM];
    store_put(tx->store, ACL_TABLE, acl_row_key(row, name, room), slice_copy(tx->arena, id));
}

/* -- links -------------------------------------------------------------------------------------------------------- */
/* The key of all links to this (with `from` "") or of one. */
static struct slice link_key(enum acl_link kind, const char *to, const char *from, char room[STORE_KEY_MAX]) {
    char head = (char)kind, folded[ACL_ROLE_NAME_MAX];
    size_t size = strlen(to);
    CHECK(size <= sizeof folded);
    memcpy(folded, to, size);
    bytes_lower(folded, size);
    struct slice kind_part = slice_make(&head, 1), to_part = slice_make(folded, size);
    if (!from[0]) return store_key_join(room, 2, kind_part, to_part);
    return store_key_join(room, 3, kind_part, to_part, slice_text(from));
}

void acl_link_set(struct machine_tx *tx, enum acl_link kind, const char *to, const char *from, bool there) {
    char room[STORE_KEY_MAX];
    struct slice key = link_key(kind, to, from, room);
    if (there) store_put(tx->store, ACL_LINK_TABLE, key, acl_everything);
    else (void)store_del(tx->store, ACL_LINK_TABLE, key);
}

struct acl_ids acl_linked(struct store_txn *txn, enum acl_link kind, const char *to, struct arena *arena) {
    struct acl_ids ids = {0};
    struct store_cursor cursor;
    char room[STORE_KEY_MAX];
    if (strlen(to) > ACL_ROLE_NAME_MAX) return ids;
    struct slice prefix = link_key(kind, to, "", room);
    STORE_PREFIX(&cursor, txn, ACL_LINK_TABLE, prefix) {
        /* The last part ends with a NUL as well. */
        struct slice id = slice_make(cursor.key.data + prefix.size, cursor.key.size - prefix.size - 1);
        ACL_APPEND(arena, ids.items, ids.count, slice_copy(arena, id));
    }
    store_cursor_close(&cursor);
    return ids;
}

void acl_changed(struct machine_tx *tx, enum acl_space space) {
    machine_changed(tx, space, acl_everything, false);
    machine_changed(tx, SPACE_ACL_ALL, acl_everything, false);
}

/* -- reading ------------------------------------------------------------------------------------------------------ */
int acl_state_read(struct store_txn *txn, struct arena *arena, Pb__AclState **state) {
    return acl_get(txn, ACL_ROW_STATE, acl_everything, &pb__acl_state__descriptor, arena, state);
}

int acl_token_read(struct store_txn *txn, struct slice accessor, struct arena *arena, Pb__AclToken **token) {
    struct slice bytes;
    *token = NULL;
    if (accessor.size != UUID_TEXT_SIZE) return CO_NOTFOUND;
    int rv = store_get(txn, ACL_TOKEN_TABLE, accessor, &bytes);
    return rv == CO_OK ? unpack(bytes, &pb__acl_token__descriptor, arena, token) : rv;
}

int acl_token_find(struct store_txn *txn, const uint8_t hash[ACL_HASH_SIZE], struct arena *arena,
                   Pb__AclToken **token) {
    struct slice accessor;
    *token = NULL;
    int rv = store_get(txn, ACL_SECRET_TABLE, slice_make(hash, ACL_HASH_SIZE), &accessor);
    if (rv == CO_OK) rv = acl_token_read(txn, accessor, arena, token);
    else return rv;
    return rv == CO_NOTFOUND ? CO_CORRUPT : rv; /* each hash has its token */
}

int acl_policy_read(struct store_txn *txn, struct slice id, struct arena *arena, Pb__AclPolicy **policy) {
    return acl_get(txn, ACL_ROW_POLICY, id, &pb__acl_policy__descriptor, arena, policy);
}

int acl_role_read(struct store_txn *txn, struct slice id, struct arena *arena, Pb__AclRole **role) {
    return acl_get(txn, ACL_ROW_ROLE, id, &pb__acl_role__descriptor, arena, role);
}

int acl_method_read(struct store_txn *txn, struct slice name, struct arena *arena, Pb__AclAuthMethod **method) {
    return acl_get(txn, ACL_ROW_METHOD, name, &pb__acl_auth_method__descriptor, arena, method);
}

int acl_secret_find(struct store_txn *txn, const struct acl_key *key, struct slice secret, struct arena *arena,
                    Pb__AclToken **token) {
    uint8_t hash[ACL_HASH_SIZE];
    *token = NULL;
    if (secret.size == 0 || slice_is(secret, ACL_ANONYMOUS))
        return acl_token_read(txn, slice_text(ACL_ANONYMOUS_ID), arena, token);
    if (!key) return CO_AGAIN;
    if (secret.size > ACL_SECRET_MAX) return CO_NOTFOUND;
    acl_key_hash(key, secret, hash);
    return acl_token_find(txn, hash, arena, token);
}

/* -- making commands ---------------------------------------------------------------------------------------------- */
bool acl_reserved(struct slice id) {
    static const struct slice builtin = SLICE_LITERAL("00000000-0000-0000-0000-0000000000");
    return slice_starts(id, builtin);
}

void acl_token_secret(Pb__AclToken *token, const struct acl_key *key, struct slice secret, struct arena *arena) {
    struct buffer sealed = {0};
    uint8_t *hash = arena_alloc(arena, ACL_HASH_SIZE);
    acl_key_hash(key, secret, hash);
    acl_key_seal(key, slice_text(token->accessor), secret, &sealed);
    token->secret_hash = (ProtobufCBinaryData){ACL_HASH_SIZE, hash};
    token->secret_sealed = message_bytes(slice_copy(arena, buffer_slice(&sealed)));
    buffer_free(&sealed);
}

Pb__AclBootstrapCommand *acl_bootstrap(const struct acl_key *key, const char *accessor, const char *description,
                                       struct slice secret, struct arena *arena) {
    Pb__AclBootstrapCommand *command = arena_alloc(arena, sizeof *command);
    Pb__AclToken *token = arena_alloc(arena, sizeof *token);
    pb__acl_bootstrap_command__init(command);
    pb__acl_token__init(token);
    token->accessor = arena_strndup(arena, accessor, strlen(accessor));
    token->description = arena_strndup(arena, description, strlen(description));
    acl_token_secret(token, key, secret, arena);
    command->token = token;
    command->key_id = message_bytes(slice_copy(arena, acl_key_id(key)));
    return command;
}
