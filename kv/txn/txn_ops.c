/* Operations of a transaction. The words of their failures are Consul's, which clients compare. */
#include "base/message.h"
#include "kv/fence/fence.h"
#include "kv/keys/kv.h"
#include "kv/lock/lock.h"
#include "kv/session/session.h"
#include "kv/txn/txn_internal.h"
#include "registry/catalog.h"

/* -- changes: another module's command ---------------------------------------------------------------------------- */

static bool may_carry(Pb__TxnThing thing, uint8_t command) {
    switch (thing) {
        case PB__TXN_THING__TXN_KEY: return command == KV_APPLY;
        case PB__TXN_THING__TXN_NODE:
        case PB__TXN_THING__TXN_SERVICE:
        case PB__TXN_THING__TXN_CHECK: return command == CATALOG_REGISTER || command == CATALOG_DEREGISTER;
        case PB__TXN_THING__TXN_SESSION: return command == SESSION_DESTROY;
        case PB__TXN_THING__TXN_FENCE: return command == FENCE_CHECK;
        default: return false;
    }
}

/* Applies the command. *done: it was not refused, and *result has its result; else the operation has failed. */
static int carry_out(struct txn_run *run, const Pb__TxnOp *op, struct machine_result *result, bool *done) {
    struct slice command = message_slice(op->command);
    *done = false;
    if (!run->tx || !command.size || !may_carry(op->thing, (uint8_t)command.data[0])) {
        txn_fail(run, "the operation cannot be done here"); /* only newer programs make such transactions */
        return CO_OK;
    }
    *result = (struct machine_result){.index = run->tx->index};
    int rv = machine_apply_command(run->tx, command, result);
    if (rv != CO_OK) return rv;
    *done = result->error == CO_OK;
    if (!*done) txn_fail(run, result->text ? result->text : co_strerror(result->error));
    return CO_OK;
}

/* -- keys --------------------------------------------------------------------------------------------------------- */

int txn_entry(struct txn_run *run, ProtobufCBinaryData key, const Pb__KvEntry **entry) {
    Pb__KvRequest request = PB__KV_REQUEST__INIT;
    struct query_result result;
    request.key = key;
    int rv = query_kv_get.run(run->store, &request.base, run->arena, &result);
    *entry = rv == CO_OK && result.found ? (const Pb__KvEntry *)result.message : NULL;
    return rv;
}

/* Copies slices of the store when later operations may change what they point to. */
static void add_entry(struct txn_run *run, const Pb__KvEntry *entry, bool with_value) {
    size_t value = with_value ? entry->value.len : 0;
    Pb__TxnResult *result = txn_result(run, sizeof *entry + entry->key.len + value);
    if (!result) return;
    Pb__KvEntry *copy = arena_alloc(run->arena, sizeof *copy);
    *copy = *entry;
    copy->value.len = value;
    if (!value) copy->value.data = NULL;
    result->kv = run->tx ? (Pb__KvEntry *)message_copy(run->arena, &copy->base) : copy;
}

static int get_tree(struct txn_run *run, const Pb__TxnOp *op) {
    Pb__KvRequest request = PB__KV_REQUEST__INIT;
    struct query_result found;
    size_t errors = run->answer->n_errors;
    if (errors) return CO_OK; /* nobody will see this result */
    request.key = op->key;
    if (run->tx) store_read_limit(run->store, TXN_WALK_MAX); /* the other commands of the batch wait meanwhile */
    int rv = query_kv_list.run(run->store, &request.base, run->arena, &found);
    bool too_much = run->tx && store_read_limit_hit(run->store);
    if (run->tx) store_read_unlimited(run->store);
    if (too_much) txn_too_much(run);
    if (rv != CO_OK || too_much || !found.found) return rv;
    const Pb__KvEntriesResult *list = (const Pb__KvEntriesResult *)found.message;
    struct access *shown = txn_shown_keys(op);
    for (size_t i = 0; i < list->n_entries && run->answer->n_errors == errors; i++)
        if (!shown || access_allows(shown, ACCESS_KEY, message_slice(list->entries[i]->key), ACCESS_READ))
            add_entry(run, list->entries[i], true);
    access_release(shown);
    return CO_OK;
}

static const char *quoted_key(struct txn_run *run, const Pb__TxnOp *op) {
    return txn_quoted(run, message_slice(op->key));
}

static int read_key(struct txn_run *run, const Pb__TxnOp *op) {
    const Pb__KvEntry *entry;
    int rv = txn_entry(run, op->key, &entry);
    if (rv != CO_OK) return rv;
    switch (op->verb) {
        case PB__TXN_VERB__TXN_GET:
            if (entry) add_entry(run, entry, true);
            else txn_failf(run, "key %s doesn't exist", quoted_key(run, op));
            break;
        case PB__TXN_VERB__TXN_CHECK_NOT_EXISTS:
            if (entry) txn_failf(run, "key %s exists", quoted_key(run, op));
            break;
        case PB__TXN_VERB__TXN_CHECK_INDEX:
            if (!entry) txn_failf(run, "failed to check index, key %s doesn't exist", quoted_key(run, op));
            else if (entry->modify_index != op->index)
                txn_failf(run, "failed index check for key %s, current modify index %llu != %llu", quoted_key(run, op),
                          (unsigned long long)entry->modify_index, (unsigned long long)op->index);
            else add_entry(run, entry, false);
            break;
        default:
            if (!entry) txn_failf(run, "failed to check session, key %s doesn't exist", quoted_key(run, op));
            else if (strcmp(entry->session, op->session) != 0)
                txn_failf(run, "failed session check for key %s, current session \"%s\" != %s", quoted_key(run, op),
                          entry->session, txn_quoted(run, slice_text(op->session)));
            else add_entry(run, entry, false);
    }
    return CO_OK;
}

static void key_not_written(struct txn_run *run, const Pb__TxnOp *op) {
    const char *key = quoted_key(run, op);
    switch (op->verb) {
        case PB__TXN_VERB__TXN_CAS: txn_failf(run, "failed to set key %s, index is stale", key); break;
        case PB__TXN_VERB__TXN_ACQUIRE: txn_failf(run, "failed to lock key %s, lock is already held", key); break;
        case PB__TXN_VERB__TXN_RELEASE:
            txn_failf(run, "failed to unlock key %s, lock isn't held, or is held by another session", key);
            break;
        default: txn_failf(run, "failed to delete key %s, index is stale", key);
    }
}

static int write_key(struct txn_run *run, const Pb__TxnOp *op) {
    struct machine_result written;
    const Pb__KvEntry *entry;
    bool done;
    int rv = carry_out(run, op, &written, &done);
    if (rv != CO_OK || !done) return rv;
    if (!written.yes) {
        key_not_written(run, op);
        return CO_OK;
    }
    if (op->verb >= PB__TXN_VERB__TXN_DELETE) return CO_OK;
    rv = txn_entry(run, op->key, &entry);
    if (rv == CO_OK && entry) add_entry(run, entry, false);
    return rv;
}

/* False: the operation has failed, or *rv is the store's error. */
static bool fence_holds(struct txn_run *run, const Pb__TxnOp *op, int *rv) {
    struct slice name = slice_text(op->fence);
    const char *text = "no lock has such a name";
    *rv = queue_name_fits(name) ? txn_holds(run, PB__TXN_THING__TXN_LOCK, op->fence, op->token) : CO_NOTFOUND;
    if (*rv != CO_NOTFOUND) return *rv == CO_OK;
    *rv = queue_name_fits(name) ? queue_not_held_text(run->store, &lock_family, name, op->token, run->arena, &text)
                                : CO_OK;
    if (*rv == CO_OK) txn_failf(run, "fence: %s", text);
    return false;
}

static int key_op(struct txn_run *run, const Pb__TxnOp *op) {
    int rv = CO_OK;
    if (op->fence[0] && !fence_holds(run, op, &rv)) return rv;
    switch (op->verb) {
        case PB__TXN_VERB__TXN_GET:
        case PB__TXN_VERB__TXN_CHECK_INDEX:
        case PB__TXN_VERB__TXN_CHECK_SESSION:
        case PB__TXN_VERB__TXN_CHECK_NOT_EXISTS: return read_key(run, op);
        case PB__TXN_VERB__TXN_GET_TREE: return get_tree(run, op);
        default: return write_key(run, op);
    }
}

/* -- the catalog -------------------------------------------------------------------------------------------------- */

int txn_record(struct txn_run *run, Pb__TxnThing thing, const char *node, const char *id, struct txn_record *record) {
    struct slice node_name = slice_text(node), own_id = slice_text(id);
    int rv = CO_NOTFOUND;
    *record = (struct txn_record){0};
#define INDEXES(of) record->create_index = (of)->create_index, record->modify_index = (of)->modify_index
    if (thing == PB__TXN_THING__TXN_NODE) {
        rv = own_id.size ? catalog_node_by_id(run->store, own_id, run->arena, &record->node)
                         : catalog_node_get(run->store, node_name, run->arena, &record->node);
        if (rv == CO_OK) INDEXES(record->node);
    } else if (thing == PB__TXN_THING__TXN_SERVICE) {
        rv = catalog_service_get(run->store, node_name, own_id, run->arena, &record->service);
        if (rv == CO_OK) INDEXES(record->service);
    } else if (thing == PB__TXN_THING__TXN_CHECK) {
        rv = catalog_check_get(run->store, node_name, own_id, run->arena, &record->check);
        if (rv == CO_OK) INDEXES(record->check);
    }
#undef INDEXES
    record->exists = rv == CO_OK;
    return rv == CO_NOTFOUND ? CO_OK : rv;
}

static size_t record_bytes(const struct txn_record *record) {
    if (record->node) return pb__node__get_packed_size(record->node);
    if (record->service) return pb__service__get_packed_size(record->service);
    return pb__check__get_packed_size(record->check);
}

static void add_record(struct txn_run *run, const struct txn_record *record) {
    Pb__TxnResult *result = txn_result(run, record_bytes(record));
    if (result) result->node = record->node, result->service = record->service, result->check = record->check;
}

static const char *record_text(struct txn_run *run, const Pb__TxnOp *op) {
    const char *node = txn_quoted(run, slice_text(op->node)), *id = txn_quoted(run, slice_text(op->id));
    if (op->thing == PB__TXN_THING__TXN_NODE) return arena_printf(run->arena, "node %s", node);
    return arena_printf(run->arena, "%s %s on node %s", op->thing == PB__TXN_THING__TXN_SERVICE ? "service" : "check",
                        id, node);
}

/* Has the record the index that the client knows? 0: the client knows none. */
static bool as_known(const Pb__TxnOp *op, const struct txn_record *record) {
    if (op->verb == PB__TXN_VERB__TXN_CAS && op->index == 0) return !record->exists;
    return record->exists && record->modify_index == op->index;
}

static int write_record(struct txn_run *run, const Pb__TxnOp *op) {
    struct machine_result written;
    struct txn_record record;
    bool done, sets = op->verb == PB__TXN_VERB__TXN_SET || op->verb == PB__TXN_VERB__TXN_CAS;
    if (sets && op->thing != PB__TXN_THING__TXN_NODE && !catalog_node_exists(run->store, slice_text(op->node))) {
        txn_fail(run, "Missing node registration");
        return store_txn_error(run->store);
    }
    int rv = carry_out(run, op, &written, &done);
    if (rv != CO_OK || !done || !sets) return rv;
    rv = txn_record(run, op->thing, op->node, op->thing == PB__TXN_THING__TXN_NODE ? "" : op->id, &record);
    if (rv == CO_OK && record.exists) add_record(run, &record);
    return rv;
}

static int record_op(struct txn_run *run, const Pb__TxnOp *op) {
    struct txn_record record;
    int rv;
    switch (op->verb) {
        case PB__TXN_VERB__TXN_GET:
            rv = txn_record(run, op->thing, op->node, op->id, &record);
            if (rv != CO_OK) return rv;
            if (record.exists) add_record(run, &record);
            else txn_failf(run, "%s doesn't exist", record_text(run, op));
            return CO_OK;
        case PB__TXN_VERB__TXN_CAS:
        case PB__TXN_VERB__TXN_DELETE_CAS:
            rv = txn_record(run, op->thing, op->node, op->thing == PB__TXN_THING__TXN_NODE ? "" : op->id, &record);
            if (rv != CO_OK) return rv;
            if (as_known(op, &record)) return write_record(run, op);
            txn_failf(run, "failed to %s %s, index is stale", op->verb == PB__TXN_VERB__TXN_CAS ? "set" : "delete",
                      record_text(run, op));
            return CO_OK;
        default: return write_record(run, op);
    }
}

/* -- sessions and fences ------------------------------------------------------------------------------------------ */

static int session_op(struct txn_run *run, const Pb__TxnOp *op) {
    struct machine_result ended;
    bool done;
    return carry_out(run, op, &ended, &done);
}

static int fence_op(struct txn_run *run, const Pb__TxnOp *op) {
    struct machine_result judged;
    bool done;
    int rv = carry_out(run, op, &judged, &done);
    if (rv != CO_OK || !done || judged.yes) return rv;
    const Pb__FenceAnswer *answer = (const Pb__FenceAnswer *)judged.message;
    txn_failf(run, "fence %s: %s", txn_quoted(run, slice_text(op->id)), answer ? answer->reason : "refused");
    return CO_OK;
}

int txn_op(struct txn_run *run, const Pb__TxnOp *op) {
    if (op->refused[0]) {
        txn_fail(run, op->refused);
        return CO_OK;
    }
    run->hidden = op->hidden;
    if (op->hidden && !op->command.len) return CO_OK;
    switch (op->thing) {
        case PB__TXN_THING__TXN_KEY: return key_op(run, op);
        case PB__TXN_THING__TXN_NODE:
        case PB__TXN_THING__TXN_SERVICE:
        case PB__TXN_THING__TXN_CHECK: return record_op(run, op);
        case PB__TXN_THING__TXN_SESSION: return session_op(run, op);
        case PB__TXN_THING__TXN_FENCE: return fence_op(run, op);
        default: txn_fail(run, "the operation cannot be done here"); return CO_OK;
    }
}
