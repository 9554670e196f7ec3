/* Single records, for modules and queries that are about one of them. */
#include "registry/catalog_write.h"

static int got(struct store_txn *txn, int error, const void *record) {
    if (error == CO_OK && !record) error = CO_CORRUPT; /* the transaction has failed */
    return error == CO_NOTFOUND && store_txn_error(txn) ? store_txn_error(txn) : error;
}

int catalog_node_get(struct store_txn *txn, struct slice node, struct arena *arena, Pb__Node **record) {
    struct slice bytes;
    int error = catalog_node_bytes(txn, node, &bytes);
    *record = error == CO_OK ? record_node(txn, arena, bytes) : NULL;
    return got(txn, error, *record);
}

int catalog_node_by_id(struct store_txn *txn, struct slice id, struct arena *arena, Pb__Node **record) {
    char room[STORE_KEY_MAX];
    struct slice name;
    *record = NULL;
    if (!id.size || id.size > STORE_PART_MAX) return CO_NOTFOUND;
    int error = store_get(txn, TABLE_NODE_IDS, key_node_id(room, id), &name);
    if (error != CO_OK) return got(txn, error, NULL);
    return catalog_node_get(txn, name, arena, record);
}

int catalog_service_get(struct store_txn *txn, struct slice node, struct slice id, struct arena *arena,
                        Pb__Service **record) {
    struct slice bytes;
    int error = catalog_service_bytes(txn, node, id, &bytes);
    *record = error == CO_OK ? record_service(txn, arena, bytes) : NULL;
    return got(txn, error, *record);
}

int catalog_check_get(struct store_txn *txn, struct slice node, struct slice check_id, struct arena *arena,
                      Pb__Check **record) {
    struct slice bytes;
    int error = catalog_check_bytes(txn, node, check_id, &bytes);
    *record = error == CO_OK ? record_check(txn, arena, bytes) : NULL;
    return got(txn, error, *record);
}

uint64_t catalog_node_count(struct store_txn *txn) { return store_count_now(txn, TABLE_NODES); }
