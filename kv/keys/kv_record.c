#include "kv/keys/kv_record.h"

#include "base/check.h"
#include "base/hash.h"
#include "kv/keys/kv_internal.h"

/* version 1 byte | parts 1 | key size 2 | zero 4 | create 8 | modify 8 | lock 8 | flags 8 (little-endian) [session
 * text and NUL] [lease text and NUL] [token 8] [full key] value */
enum { RECORD_VERSION = 1, RECORD_HEADER = 40, ID_BYTES = UUID_TEXT_SIZE + 1, TOKEN_BYTES = 8 };
enum { PART_SESSION = 1, PART_KEY = 2, PART_LEASE = 4, PART_TOKEN = 8 };
_Static_assert(RECORD_HEADER == 8 + 4 * 8, "a word, then four numbers");
_Static_assert(KV_KEY_MAX <= UINT16_MAX, "the size of a key has 16 bits");

struct slice kv_store_key(struct slice key, char room[KV_STORE_KEY_MAX]) {
    if (key.size <= STORE_KEY_PREFIX) return key;
    memcpy(room, key.data, STORE_KEY_PREFIX);
    hash128(key.data, key.size, (uint8_t *)room + STORE_KEY_PREFIX);
    return slice_make(room, KV_STORE_KEY_MAX);
}

int kv_record_decode(struct slice store_key, struct slice bytes, struct kv_record *record) {
    if (bytes.size < RECORD_HEADER || bytes.data[0] != RECORD_VERSION) return CO_CORRUPT;
    record->create_index = get_le64(bytes.data + 8);
    record->modify_index = get_le64(bytes.data + 16);
    record->lock_index = get_le64(bytes.data + 24);
    record->flags = get_le64(bytes.data + 32);
    unsigned parts = (unsigned char)bytes.data[1];
    if (parts == 0 && !kv_is_long(store_key)) { /* most keys are short */
        record->session = record->lease = slice_make(bytes.data, 0);
        record->token = 0;
        record->key = store_key;
        record->value = slice_make(bytes.data + RECORD_HEADER, bytes.size - RECORD_HEADER);
        return CO_OK;
    }
    size_t at = RECORD_HEADER,
           key_size = (size_t)(unsigned char)bytes.data[2] | (size_t)(unsigned char)bytes.data[3] << 8;
    size_t session_size = parts & PART_SESSION ? ID_BYTES : 0, lease_size = parts & PART_LEASE ? ID_BYTES : 0,
           token_size = parts & PART_TOKEN ? TOKEN_BYTES : 0;
    if (bytes.size - at < session_size + lease_size + token_size + key_size) return CO_CORRUPT;
    if (kv_is_long(store_key) != ((parts & PART_KEY) != 0) || store_key.size > KV_STORE_KEY_MAX) return CO_CORRUPT;
    if (parts & PART_KEY ? key_size <= STORE_KEY_PREFIX || key_size > KV_KEY_MAX : key_size > 0) return CO_CORRUPT;
    record->session = slice_make(bytes.data + at, session_size ? UUID_TEXT_SIZE : 0);
    at += session_size;
    record->lease = slice_make(bytes.data + at, lease_size ? UUID_TEXT_SIZE : 0);
    at += lease_size;
    record->token = token_size ? get_le64(bytes.data + at) : 0;
    at += token_size;
    if (token_size && (!session_size || !record->token)) return CO_CORRUPT;
    record->key = parts & PART_KEY ? slice_make(bytes.data + at, key_size) : store_key;
    at += key_size;
    CHECK(at <= bytes.size);
    record->value = slice_make(bytes.data + at, bytes.size - at);
    return CO_OK;
}

static char *put_id(char *at, struct slice id) {
    memcpy(at, id.data, UUID_TEXT_SIZE);
    at[UUID_TEXT_SIZE] = '\0';
    return at + ID_BYTES;
}

struct slice kv_record_encode(const struct kv_record *record, struct arena *arena) {
    bool has_session = record->session.size != 0, has_lease = record->lease.size != 0, has_token = record->token != 0,
         is_long = record->key.size > STORE_KEY_PREFIX;
    CHECK(!has_session || record->session.size == UUID_TEXT_SIZE);
    CHECK(!has_lease || record->lease.size == UUID_TEXT_SIZE);
    CHECK(!has_token || has_session);
    CHECK(record->key.size <= KV_KEY_MAX);
    size_t key_size = is_long ? record->key.size : 0;
    size_t size = RECORD_HEADER + (has_session ? ID_BYTES : 0) + (has_lease ? ID_BYTES : 0) +
                  (has_token ? TOKEN_BYTES : 0) + key_size + record->value.size;
    char *bytes = arena_alloc(arena, size), *at = bytes + RECORD_HEADER;
    put_le64(bytes, RECORD_VERSION |
                        (uint64_t)((has_session ? PART_SESSION : 0) | (is_long ? PART_KEY : 0) |
                                   (has_lease ? PART_LEASE : 0) | (has_token ? PART_TOKEN : 0))
                            << 8 |
                        (uint64_t)key_size << 16);
    put_le64(bytes + 8, record->create_index);
    put_le64(bytes + 16, record->modify_index);
    put_le64(bytes + 24, record->lock_index);
    put_le64(bytes + 32, record->flags);
    if (has_session) at = put_id(at, record->session);
    if (has_lease) at = put_id(at, record->lease);
    if (has_token) put_le64(at, record->token), at += TOKEN_BYTES;
    if (key_size != 0) memcpy(at, record->key.data, key_size);
    at += key_size;
    CHECK(at + record->value.size == bytes + size);
    if (record->value.size != 0) memcpy(at, record->value.data, record->value.size);
    return slice_make(bytes, size);
}

int kv_record_get(struct store_txn *txn, struct slice store_key, struct slice key, struct kv_record *record,
                  bool *taken) {
    struct slice bytes;
    *taken = false;
    int rv = store_get(txn, KV_TABLE_KEYS, store_key, &bytes);
    if (rv != CO_OK) return rv;
    rv = kv_record_decode(store_key, bytes, record);
    if (rv != CO_OK) return rv;
    if (kv_is_long(store_key) && !slice_equal(record->key, key)) {
        *taken = true;
        return CO_NOTFOUND;
    }
    return CO_OK;
}
