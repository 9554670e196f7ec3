/* May a token send the catalog's commands? */
#include "registry/catalog_access.h"

#include "base/message.h"
#include "registry/catalog_apply.h"
#include "registry/catalog_write.h"

/* A command on a thing that is not there is judged by `apply`. */
static int not_there(struct store_txn *txn, int error) { return error == CO_NOTFOUND ? store_txn_error(txn) : error; }

/* The same, of the ID of a service or check. A token that may write nothing of that kind does not learn which IDs there are. */
static int id_not_there(struct access_check *check, struct store_txn *txn, int error, const char *node,
                        const char *id) {
    error = not_there(txn, error);
    if (error || access_allows(check->access, ACCESS_NODE, slice_text(node), ACCESS_WRITE)) return error;
    if (access_allows_some(check->access, ACCESS_SERVICE, ACCESS_WRITE)) return CO_OK;
    return access_require(check, ACCESS_SERVICE, slice_text(id), ACCESS_WRITE);
}

static int may_write(struct access_check *check, enum access_resource resource, const char *name) {
    return access_require(check, resource, slice_text(name), ACCESS_WRITE);
}

/* A thing that the request names by its ID. `missing` does not tell a name that the token may not read. */
static int may_write_found(struct access_check *check, enum access_resource resource, struct slice name,
                           const char *id) {
    int error = access_require(check, resource, name, ACCESS_WRITE);
    if (error && !access_allows(check->access, resource, name, ACCESS_READ))
        check->missing.name = slice_copy(check->arena, slice_text(id));
    return error;
}

/* The service, by the name that its ID has now. */
static int may_write_service_of(struct access_check *check, struct store_txn *txn, const char *node, const char *id) {
    struct slice bytes;
    int error = catalog_service_bytes(txn, slice_text(node), slice_text(id), &bytes);
    if (error) return id_not_there(check, txn, error, node, id);
    return may_write_found(check, ACCESS_SERVICE, record_text(bytes, SERVICE_NAME_FIELD), id);
}

/* The check of this ID, by what it belongs to now. */
static int may_write_check_of(struct access_check *check, struct store_txn *txn, const char *node, const char *id) {
    Pb__Check *record;
    int error = catalog_check_get(txn, slice_text(node), slice_text(id), check->arena, &record);
    if (error) return id_not_there(check, txn, error, node, id);
    if (!record->service_id[0]) return may_write(check, ACCESS_NODE, node);
    return may_write_service_of(check, txn, node, record->service_id);
}

/* -- registering -------------------------------------------------------------------------------------------------- */

/* Would the node's record stay as it is? */
static int stays(struct access_check *check, struct store_txn *txn, const Pb__RegisterCommand *command, bool *same) {
    struct slice stored;
    *same = false;
    int error = catalog_node_bytes(txn, slice_text(command->node->name), &stored);
    if (error) return not_there(txn, error);
    *same = command->skip_node_update;
    if (*same) return CO_OK;
    const Pb__Node *now = record_node(txn, check->arena, stored);
    Pb__Node *node = (Pb__Node *)(uintptr_t)message_copy(check->arena, &command->node->base);
    if (!now || !node) return CO_CORRUPT;
    catalog_sort_node(node);
    node->create_index = now->create_index, node->modify_index = now->modify_index;
    if (!node->lease[0] && (command->service || command->n_checks)) node->lease = now->lease; /* catalog_leases_fit */
    *same = slice_equal(message_pack(check->arena, &node->base), stored);
    return CO_OK;
}

/* The node that has this ID under another name goes, with everything on it. */
static int may_rename(struct access_check *check, struct store_txn *txn, const Pb__Node *node) {
    Pb__Node *other;
    int error = catalog_node_by_id(txn, slice_text(node->id), check->arena, &other);
    return error ? not_there(txn, error) : may_write_found(check, ACCESS_NODE, slice_text(other->name), node->id);
}

static int may_write_node(struct access_check *check, struct store_txn *txn, const Pb__RegisterCommand *command) {
    bool same;
    int error = stays(check, txn, command, &same);
    if (error || same) return error;
    error = may_write(check, ACCESS_NODE, command->node->name);
    return error ? error : may_rename(check, txn, command->node);
}

static int may_write_service(struct access_check *check, struct store_txn *txn, const char *node,
                             const Pb__Service *service) {
    int error = may_write(check, ACCESS_SERVICE, service->name);
    if (error) return error;
    return may_write_service_of(check, txn, node, service->id[0] ? service->id : service->name);
}

static bool is_of(const Pb__Check *row, const Pb__Service *service) {
    return service &&
           slice_equal_nocase(slice_text(row->service_id), slice_text(service->id[0] ? service->id : service->name));
}

static int may_write_check(struct access_check *check, struct store_txn *txn, const Pb__RegisterCommand *command,
                           const Pb__Check *row) {
    const char *node = command->node->name;
    int error = CO_OK;
    if (!row->service_id[0]) error = may_write(check, ACCESS_NODE, node);
    else if (!is_of(row, command->service)) error = may_write_service_of(check, txn, node, row->service_id);
    if (error) return error;
    return may_write_check_of(check, txn, node, row->check_id[0] ? row->check_id : row->name);
}

int catalog_may_register(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    const Pb__RegisterCommand *command = (const Pb__RegisterCommand *)request;
    if (!command->node) return CO_OK; /* `apply` refuses it */
    int error = may_write_node(check, txn, command);
    if (!error && command->service) error = may_write_service(check, txn, command->node->name, command->service);
    for (size_t i = 0; i < command->n_checks && !error; i++)
        error = may_write_check(check, txn, command, command->checks[i]);
    return error;
}

/* -- deregistering ------------------------------------------------------------------------------------------------ */

int catalog_may_deregister(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    const Pb__DeregisterCommand *command = (const Pb__DeregisterCommand *)request;
    if (access_allows(check->access, ACCESS_NODE, slice_text(command->node), ACCESS_WRITE)) return CO_OK;
    if (command->service_id[0]) return may_write_service_of(check, txn, command->node, command->service_id);
    if (command->check_id[0]) return may_write_check_of(check, txn, command->node, command->check_id);
    return may_write(check, ACCESS_NODE, command->node);
}

int catalog_may_batch(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    const Pb__CatalogBatchCommand *batch = (const Pb__CatalogBatchCommand *)request;
    int error = CO_OK;
    for (size_t i = 0; i < batch->n_registers && !error; i++)
        error = catalog_may_register(check, txn, &batch->registers[i]->base);
    for (size_t i = 0; i < batch->n_deregisters && !error; i++)
        error = catalog_may_deregister(check, txn, &batch->deregisters[i]->base);
    return error;
}
