/* LMDB's data of a record: the value, followed by the record's hash (8 bytes, big-endian). The hash covers table, key
 * and value. It is the record's share of the state sum, and its checksum, which every read compares. It follows the
 * value so that the value begins where LMDB's data begins. */
#include "base/hash.h"
#include "registry/store_file.h"

uint64_t store_record_hash(uint8_t table, const MDB_val *key, struct slice value) {
    return hash64_seed(value.data, value.size, hash64_seed(key->mv_data, key->mv_size, table));
}

bool store_record_parts(const MDB_val *data, struct slice *value, uint64_t *hash) {
    if (data->mv_size < STORE_HASH_BYTES) return false;
    size_t size = data->mv_size - STORE_HASH_BYTES;
    *value = slice_make(data->mv_data, size);
    *hash = get_be64(value->data + size);
    return true;
}

bool store_record_read(uint8_t table, const MDB_val *key, const MDB_val *data, struct slice *value, uint64_t *hash) {
    return store_record_parts(data, value, hash) && store_record_hash(table, key, *value) == *hash;
}

void store_record_write(char *room, struct slice value, uint64_t hash) {
    if (value.size) memcpy(room, value.data, value.size);
    put_be64(room + value.size, hash);
}
