#include "registry/version.h"

#include "base/check.h"
#include "registry/history.h"
#include "registry/machine_version.h"
#include "registry/tables.h"

static const struct slice version_key = SLICE_LITERAL("version");

/* -- the record --------------------------------------------------------------------------------------------------- */
bool version_decode(struct slice key, struct slice value, struct version_now *now) {
    if (!slice_equal(key, version_key)) return false;
    struct arena arena = {0};
    ProtobufCAllocator allocator = ARENA_PROTOBUF(&arena);
    const Pb__ClusterVersion *record = pb__cluster_version__unpack(&allocator, value.size, (const uint8_t *)value.data);
    bool good = record && record->version > 0;
    if (good) *now = (struct version_now){record->version, record->cluster_id};
    arena_free(&arena);
    return good;
}

int version_read(struct store_txn *txn, struct version_now *now) {
    struct slice value;
    *now = (struct version_now){.version = 1};
    if (store_get(txn, TABLE_CLUSTER, version_key, &value) != CO_OK) return CO_OK;
    return version_decode(version_key, value, now) ? CO_OK : CO_CORRUPT;
}

void version_put(struct store_txn *txn, const struct version_now *now, uint64_t index) {
    CHECK(now->version > 0);
    if (now->cluster_id == 0) {
        (void)store_del(txn, TABLE_CLUSTER, version_key);
        return;
    }
    Pb__ClusterVersion record = PB__CLUSTER_VERSION__INIT;
    record.version = now->version, record.cluster_id = now->cluster_id, record.modify_index = index;
    uint8_t bytes[64];
    CHECK(pb__cluster_version__get_packed_size(&record) <= sizeof bytes);
    size_t size = pb__cluster_version__pack(&record, bytes);
    store_put(txn, TABLE_CLUSTER, version_key, slice_make(bytes, size));
}

int version_check(const struct version_now *now, unsigned newest, struct fault *fault) {
    if (now->version > newest)
        return fault_set(fault, CO_UNSUPPORTED,
                         "the cluster is at version %u, this program supports up to %u: a newer one is needed",
                         now->version, newest);
    if (now->version < MACHINE_VERSION_OLDEST)
        return fault_set(fault, CO_UNSUPPORTED,
                         "the cluster is at version %u, this program supports %u and up: an older one is "
                         "needed, to raise it first",
                         now->version, MACHINE_VERSION_OLDEST);
    return CO_OK;
}

/* -- the module --------------------------------------------------------------------------------------------------- */
static int apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__ClusterVersionCommand *command = request;
    struct version_now now;
    if (command->version == 0 || command->cluster_id == 0)
        return machine_refuse(result, CO_INVALID, "not a cluster version");
    if (command->version > machine_newest(tx->machine))
        return CO_UNSUPPORTED; /* nothing more is applied by this program */
    if (version_read(tx->store, &now) != CO_OK) {
        store_fail(tx->store, CO_CORRUPT);
        return CO_CORRUPT;
    }
    if (now.cluster_id != 0 && command->version <= now.version)
        return machine_refuse(result, CO_CONFLICT, "the cluster version only rises");
    bool founds = now.cluster_id == 0;
    now.version = command->version;
    if (founds) now.cluster_id = command->cluster_id;
    version_put(tx->store, &now, tx->index);
    machine_version_note(tx->machine, &now);
    if (founds) history_begin(tx);
    result->yes = true;
    return CO_OK;
}

static const struct module_command commands[] = {
    {.number = CLUSTER_VERSION,
     .servers_only = true,
     .name = "cluster-version",
     .request = &pb__cluster_version_command__descriptor,
     .apply = apply},
    {0},
};
static const struct store_table tables[] = {{TABLE_CLUSTER, "cluster"}, {0}};

const struct module version_module = {.name = "version", .commands = commands, .tables = tables};
