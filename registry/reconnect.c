#include "registry/reconnect.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "registry/catalog_write.h"

bool reconnect_parse(const char *text, int64_t *timeout_ns) {
    return duration_parse(slice_text(text), timeout_ns) == CO_OK && *timeout_ns > 0;
}

static const char *meta_of(const Pb__Node *node, const char *key) {
    for (size_t i = 0; i < node->n_meta; i++) {
        if (strcmp(node->meta[i]->key, key) == 0) return node->meta[i]->value;
    }
    return "";
}

static int64_t of_record(const Pb__Node *node, const struct reconnect_classes *classes, int64_t own_ns) {
    int64_t given_ns;
    if (reconnect_parse(meta_of(node, RECONNECT_META_TIMEOUT), &given_ns)) return given_ns;
    const char *class = meta_of(node, RECONNECT_META_CLASS);
    for (size_t i = 0; i < classes->count; i++) {
        if (strcmp(classes->items[i].name, class) == 0) return classes->items[i].timeout_ns;
    }
    return own_ns;
}

int64_t reconnect_timeout(struct store_txn *txn, struct slice node, const struct reconnect_classes *classes,
                          int64_t own_ns) {
    struct slice bytes;
    if (catalog_node_bytes(txn, node, &bytes) != CO_OK) return own_ns;
    struct arena arena = {0};
    ProtobufCAllocator allocator = ARENA_PROTOBUF(&arena);
    const Pb__Node *record = pb__node__unpack(&allocator, bytes.size, (const uint8_t *)bytes.data);
    int64_t timeout_ns = record ? of_record(record, classes, own_ns) : own_ns;
    arena_free(&arena);
    return timeout_ns;
}
