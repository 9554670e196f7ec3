/* Commands of the catalog: everything is checked before the first write. */
#include "registry/catalog_apply.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/text.h"
#include "registry/catalog_access.h"
#include "registry/catalog_leases.h"
#include "registry/catalog_write.h"

#define SERF_HEALTH "serfHealth"

static bool refuse(struct machine_result *result, const char *text) {
    result->error = CO_INVALID;
    result->text = text;
    return false;
}

static const char *text_of(struct arena *arena, struct slice bytes) {
    return arena_strndup(arena, bytes.data, bytes.size);
}

/* -- checks of the command alone ---------------------------------------------------------------------------------- */

static int compare_pairs(const void *a, const void *b) {
    const Pb__Pair *one = *(Pb__Pair *const *)a, *other = *(Pb__Pair *const *)b;
    int order = strcmp(one->key, other->key);
    return order ? order : strcmp(one->value, other->value);
}

static int compare_addresses(const void *a, const void *b) {
    const Pb__TaggedAddress *one = *(Pb__TaggedAddress *const *)a, *other = *(Pb__TaggedAddress *const *)b;
    int order = strcmp(one->name, other->name);
    if (!order) order = strcmp(one->address, other->address);
    return order ? order : (one->port > other->port) - (one->port < other->port);
}

void catalog_sort_node(Pb__Node *node) {
    if (node->n_meta > 1) qsort(node->meta, node->n_meta, sizeof *node->meta, compare_pairs);
    if (node->n_tagged_addresses > 1)
        qsort(node->tagged_addresses, node->n_tagged_addresses, sizeof *node->tagged_addresses, compare_addresses);
}

static void sort_service(Pb__Service *service) {
    if (service->n_meta > 1) qsort(service->meta, service->n_meta, sizeof *service->meta, compare_pairs);
    if (service->n_tagged_addresses > 1) {
        qsort(service->tagged_addresses, service->n_tagged_addresses, sizeof *service->tagged_addresses,
              compare_addresses);
    }
}

static bool check_service(Pb__Service *service, const char *node, struct machine_result *result) {
    if (!service->name[0]) return refuse(result, "Must provide service name with ID");
    if (!service->id[0]) service->id = service->name;
    service->node = (char *)(uintptr_t)node;
    if (service->weight_passing == 0) service->weight_passing = service->weight_warning = 1;
    return true;
}

static bool check_check(struct arena *arena, Pb__Check *check, const char *node, struct machine_result *result) {
    if (check->node[0] && strcmp(check->node, node) != 0) {
        return refuse(result, arena_printf(arena, "check node \"%s\" does not match node \"%s\"", check->node, node));
    }
    check->node = (char *)(uintptr_t)node;
    if (!check->check_id[0]) check->check_id = check->name;
    if (!check->check_id[0])
        return refuse(
            result,
            arena_printf(arena, "failed inserting check: it has neither an ID nor a name, on node \"%s\"", node));
    if (check->status > PB__STATUS__CRITICAL)
        return refuse(result, arena_printf(arena, "check \"%s\" has a status that cannot be stored", check->check_id));
    return true;
}

/* Checks the command's fields, and fills in optional ones. */
static bool check_shape(struct arena *arena, Pb__RegisterCommand *command, struct machine_result *result) {
    Pb__Node *node = command->node;
    if (!node || !node->name[0]) return refuse(result, "Must provide node");
    if (!node->address[0] && !command->skip_node_update)
        return refuse(result, "Must provide address if SkipNodeUpdate is not set");
    if (node->id[0] && !uuid_valid(slice_text(node->id)))
        return refuse(result, arena_printf(arena, "Bad node ID: \"%.64s\" is no UUID", node->id));
    if (command->service && !check_service(command->service, node->name, result)) return false;
    for (size_t i = 0; i < command->n_checks; i++) {
        if (!check_check(arena, command->checks[i], node->name, result)) return false;
    }
    catalog_sort_node(node);
    if (command->service) sort_service(command->service);
    return true;
}

/* -- checks against the catalog ----------------------------------------------------------------------------------- */

/* The changes of the node's record. */
struct node_plan {
    bool write;
    const char *renamed_from; /* another name with the same ID: it is removed, with everything on it. NULL: none */
    uint64_t base;            /* the index of creation to keep; 0: none */
};

static bool serf_healthy(struct store_txn *store, struct slice node) {
    Pb__Status status;
    return catalog_check_status(store, node, SLICE_LITERAL(SERF_HEALTH), &status) == CO_OK &&
           status != PB__STATUS__CRITICAL;
}

static bool same_id(struct slice stored, const char *id) { return slice_equal_nocase(stored, slice_text(id)); }

/* A name (in any case) is taken while the node that has it under another ID is alive. `spare_nameless`: a node without
 * ID may be taken over. An agent with the address of the node that has its name is its successor: it lost its data
 * folder, and with it its ID. */
static bool name_is_free(struct machine_tx *tx, const Pb__RegisterCommand *command, bool spare_nameless,
                         struct machine_result *result) {
    const Pb__Node *node = command->node;
    char room[STORE_KEY_MAX];
    struct slice prefix = key_spellings(room, SPELLING_NODE, slice_text(node->name));
    struct store_cursor cursor;
    bool is_free = true;
    STORE_PREFIX(&cursor, tx->store, TABLE_SPELLINGS, prefix) {
        struct slice bytes, name = cursor.value;
        if (catalog_node_bytes(tx->store, name, &bytes) != CO_OK) continue;
        struct slice id = record_text(bytes, NODE_ID_FIELD);
        if (same_id(id, node->id) || (id.size == 0 && spare_nameless) || !serf_healthy(tx->store, name)) continue;
        if (command->own && slice_is(record_text(bytes, NODE_ADDRESS_FIELD), node->address)) continue;
        const char *address = spare_nameless ? "" : arena_printf(tx->arena, " (%s)", node->address);
        is_free =
            refuse(result, arena_printf(tx->arena,
                                        "failed inserting node: Error while renaming Node ID: \"%s\"%s: Node "
                                        "name %s is reserved by node %s with name %s (%s)",
                                        node->id, address, node->name, text_of(tx->arena, id), text_of(tx->arena, name),
                                        text_of(tx->arena, record_text(bytes, NODE_ADDRESS_FIELD))));
        break;
    }
    store_cursor_close(&cursor);
    return is_free;
}

static bool plan_node(struct machine_tx *tx, const Pb__RegisterCommand *command, struct node_plan *plan,
                      struct machine_result *result) {
    const Pb__Node *node = command->node;
    struct slice name = slice_text(node->name), bytes, holder;
    bool known = catalog_node_bytes(tx->store, name, &bytes) == CO_OK;
    *plan = (struct node_plan){.write = !known || !command->skip_node_update};
    if (!catalog_leases_on_node(tx, command, known, result)) return false;
    if (!plan->write || !node->id[0]) return true;
    bool as_written = known && slice_equal(record_text(bytes, NODE_NAME_FIELD), name);
    if (as_written && same_id(record_text(bytes, NODE_ID_FIELD), node->id)) return true;
    char room[STORE_KEY_MAX];
    bool id_known = store_get(tx->store, TABLE_NODE_IDS, key_node_id(room, slice_text(node->id)), &holder) == CO_OK;
    if (id_known && !slice_equal(holder, name)) {
        plan->renamed_from = text_of(tx->arena, holder);
        if (catalog_node_bytes(tx->store, holder, &bytes) == CO_OK)
            plan->base = record_number(bytes, NODE_CREATE_FIELD);
    }
    return catalog_leases_rename(tx, command, plan->renamed_from, result) &&
           name_is_free(tx, command, !plan->renamed_from, result);
}

static bool checks_have_services(struct machine_tx *tx, const Pb__RegisterCommand *command,
                                 struct machine_result *result) {
    const char *node = command->node->name;
    for (size_t i = 0; i < command->n_checks; i++) {
        const char *id = command->checks[i]->service_id;
        struct slice bytes;
        if (!id[0] || (command->service && slice_equal_nocase(slice_text(command->service->id), slice_text(id))))
            continue;
        if (catalog_service_bytes(tx->store, slice_text(node), slice_text(id), &bytes) == CO_OK) continue;
        return refuse(
            result,
            arena_printf(tx->arena, "failed inserting check: Missing service registration on node \"%s\"", node));
    }
    return true;
}

/* -- applying ----------------------------------------------------------------------------------------------------- */

static bool apply_register(struct change *change, Pb__RegisterCommand *command, struct machine_result *result) {
    struct machine_tx *tx = change->tx;
    struct node_plan plan;
    if (!check_shape(tx->arena, command, result)) return false;
    if (!catalog_leases_fit(tx, command, result)) return false;
    if (!plan_node(tx, command, &plan, result)) return false;
    if (!checks_have_services(tx, command, result)) return false;
    if (plan.renamed_from) change_remove_node(change, slice_text(plan.renamed_from));
    if (plan.write) change_node(change, command->node, plan.base);
    if (command->service) change_service(change, command->service);
    for (size_t i = 0; i < command->n_checks; i++) change_check(change, command->checks[i]);
    return true;
}

static bool apply_deregister(struct change *change, const Pb__DeregisterCommand *command,
                             struct machine_result *result) {
    struct slice node = slice_text(command->node);
    if (node.size == 0) return refuse(result, "Must provide node");
    if (command->service_id[0]) change_remove_service(change, node, slice_text(command->service_id));
    else if (command->check_id[0]) change_remove_check(change, node, slice_text(command->check_id));
    else change_remove_node(change, node);
    return true;
}

/* Later parts may depend on earlier ones. So the batch is not checked beforehand: it is tried, and taken back as a
 * whole when a part is refused. */
static bool apply_batch(struct change *change, const Pb__CatalogBatchCommand *command, struct machine_result *result) {
    bool good = true;
    if (command->by_lease[0] && !lease_known(change->tx, slice_text(command->by_lease), result)) return false;
    struct machine_point point = machine_point_set(change->tx);
    for (size_t i = 0; i < command->n_registers && good; i++) {
        if (command->by_lease[0]) command->registers[i]->by_lease = command->by_lease;
        good = apply_register(change, command->registers[i], result);
    }
    for (size_t i = 0; i < command->n_deregisters && good; i++)
        good = apply_deregister(change, command->deregisters[i], result);
    if (good) machine_point_keep(change->tx);
    else machine_point_back(change->tx, &point);
    return good;
}

/* -- the commands ------------------------------------------------------------------------------------------------- */

static int end_change(struct change *change, struct machine_result *result, bool good) {
    result->yes = good;
    if (good) change_tell(change);
    return CO_OK;
}

static int register_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    struct change change = {.tx = tx};
    return end_change(&change, result, apply_register(&change, request, result));
}

static int deregister_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    struct change change = {.tx = tx};
    return end_change(&change, result, apply_deregister(&change, request, result));
}

static int batch_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    struct change change = {.tx = tx};
    return end_change(&change, result, apply_batch(&change, request, result));
}

const struct module_command catalog_commands[] = {
    {.number = CATALOG_REGISTER,
     .name = "catalog-register",
     .request = &pb__register_command__descriptor,
     .may = catalog_may_register,
     .apply = register_apply},
    {.number = CATALOG_DEREGISTER,
     .name = "catalog-deregister",
     .request = &pb__deregister_command__descriptor,
     .may = catalog_may_deregister,
     .apply = deregister_apply},
    {.number = CATALOG_BATCH,
     .name = "catalog-batch",
     .request = &pb__catalog_batch_command__descriptor,
     .may = catalog_may_batch,
     .apply = batch_apply},
    {0},
};
