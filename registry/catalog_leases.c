/* The catalog's side of leases. */
#include "registry/catalog_leases.h"

#include "base/check.h"
#include "registry/catalog_write.h"

#define SERF_HEALTH      "serfHealth"
#define SERF_HEALTH_NAME "Serf Health Status"
#define ALIVE            "Agent alive and reachable"
#define DEAD             "Agent not live or unreachable"

/* -- bindings ----------------------------------------------------------------------------------------------------- */

void catalog_rebind(struct machine_tx *tx, enum lease_kind kind, const char *before, const char *after,
                    struct slice name) {
    if (strcmp(before, after) == 0) return;
    if (before[0]) lease_unbind(tx, slice_text(before), kind, name);
    if (after[0]) lease_bind(tx, slice_text(after), kind, name);
}

bool catalog_leases_fit(struct machine_tx *tx, Pb__RegisterCommand *command, struct machine_result *result) {
    Pb__Node *node = command->node;
    struct slice stored;
    if (command->by_lease[0] && !lease_known(tx, slice_text(command->by_lease), result)) return false;
    if (command->service && command->service->lease[0] && !lease_known(tx, slice_text(command->service->lease), result))
        return false;
    bool known = catalog_node_bytes(tx->store, slice_text(node->name), &stored) == CO_OK;
    if (node->lease[0]) {
        if (!lease_known(tx, slice_text(node->lease), result)) return false;
        if (!known || !command->skip_node_update) return true;
        result->error = CO_INVALID;
        result->text = arena_printf(tx->arena,
                                    "Lease: nothing is registered that could be bound: node \"%s\" is there "
                                    "already and SkipNodeUpdate is set",
                                    node->name);
        return false;
    }
    if (known && (command->service || command->n_checks)) {
        struct slice lease = slice_copy(tx->arena, record_text(stored, NODE_LEASE_FIELD));
        node->lease = (char *)(uintptr_t)lease.data;
    }
    return true;
}

bool catalog_leases_rename(struct machine_tx *tx, const Pb__RegisterCommand *command, const char *from,
                           struct machine_result *result) {
    const char *why;
    if (!from || !command->by_lease[0]) return true;
    int rv = lease_renames(tx, slice_text(command->by_lease), slice_text(from), &why);
    if (rv != CO_OK) store_fail(tx->store, rv); /* it was there when the command was checked */
    if (rv == CO_OK && !why) return true;
    result->error = CO_INVALID;
    result->text = rv == CO_OK ? why : "";
    return false;
}

bool catalog_leases_on_node(struct machine_tx *tx, const Pb__RegisterCommand *command, bool known,
                            struct machine_result *result) {
    if (known || !command->by_lease[0] || !command->skip_node_update) return true;
    result->error = CO_CONFLICT;
    result->text = arena_printf(tx->arena, "node \"%s\" is not registered", command->node->name);
    return false;
}

static int service_lease_ended(struct machine_tx *tx, const struct binding_end *end) {
    struct change change = {.tx = tx};
    const char *id = memchr(end->name.data, 0, end->name.size);
    if (!id) return CO_CORRUPT;
    size_t node_size = (size_t)(id - end->name.data);
    change_remove_service(&change, slice_make(end->name.data, node_size),
                          slice_make(id + 1, end->name.size - node_size - 1));
    lease_unbind(tx, end->owner, LEASE_BINDS_SERVICE, end->name); /* the removal of the service's record has done it */
    change_tell(&change);
    return CO_OK;
}

static int node_lease_ended(struct machine_tx *tx, const struct binding_end *end) {
    struct change change = {.tx = tx};
    change_remove_node(&change, end->name);
    lease_unbind(tx, end->owner, LEASE_BINDS_NODE, end->name);
    change_tell(&change);
    return CO_OK;
}

const struct module_binding catalog_lease_bindings[] = {
    {.number = LEASE_BINDS_SERVICE, .ended = service_lease_ended},
    {.number = LEASE_BINDS_NODE, .ended = node_lease_ended},
    {0},
};

/* -- nodes whose agents hold leases ------------------------------------------------------------------------------- */

struct slice catalog_node_of_id(struct machine_tx *tx, struct slice node_id) {
    char room[STORE_KEY_MAX];
    struct slice name;
    if (store_get(tx->store, TABLE_NODE_IDS, key_node_id(room, node_id), &name) != CO_OK) return slice_make("", 0);
    return slice_copy(tx->arena, name);
}

/* Is there such a node, of this id? */
static bool is_node(struct machine_tx *tx, struct slice node, struct slice node_id) {
    struct slice bytes;
    if (catalog_node_bytes(tx->store, node, &bytes) != CO_OK) return false;
    struct slice id = record_text(bytes, NODE_ID_FIELD);
    return id.size == 0 || node_id.size == 0 || slice_equal_nocase(id, node_id);
}

/* The node's check serfHealth; NULL: it has none. */
static Pb__Check *health_of(struct machine_tx *tx, struct slice node) {
    struct slice bytes;
    if (catalog_check_bytes(tx->store, node, SLICE_LITERAL(SERF_HEALTH), &bytes) != CO_OK) return NULL;
    return record_check(tx->store, tx->arena, bytes);
}

static void set_health(struct machine_tx *tx, Pb__Check *check, Pb__Status status, const char *output) {
    struct change change = {.tx = tx};
    check->status = status;
    check->output = (ProtobufCBinaryData){strlen(output), (uint8_t *)(uintptr_t)output};
    change_check(&change, check);
    change_tell(&change);
}

bool catalog_node_lives(struct machine_tx *tx, struct slice node, struct slice node_id) {
    if (!is_node(tx, node, node_id)) return false;
    Pb__Check *check = health_of(tx, node);
    if (check) set_health(tx, check, PB__STATUS__PASSING, ALIVE);
    return true;
}

bool catalog_node_alive(struct machine_tx *tx, struct slice node) {
    Pb__Status status;
    return catalog_check_status(tx->store, node, SLICE_LITERAL(SERF_HEALTH), &status) != CO_OK ||
           status != PB__STATUS__CRITICAL;
}

bool catalog_node_died(struct machine_tx *tx, struct slice node, struct slice node_id) {
    if (!is_node(tx, node, node_id)) return false;
    Pb__Check *check = health_of(tx, node);
    if (!check) {
        check = arena_alloc(tx->arena, sizeof *check);
        pb__check__init(check);
        check->node = arena_strndup(tx->arena, node.data, node.size);
        check->check_id = (char *)(uintptr_t)SERF_HEALTH;
        check->name = (char *)(uintptr_t)SERF_HEALTH_NAME;
    }
    set_health(tx, check, PB__STATUS__CRITICAL, DEAD);
    return true;
}

void catalog_node_goes(struct machine_tx *tx, struct slice node, struct slice node_id, bool dead_only) {
    struct change change = {.tx = tx};
    Pb__Status status;
    if (!is_node(tx, node, node_id)) return;
    if (dead_only && catalog_check_status(tx->store, node, SLICE_LITERAL(SERF_HEALTH), &status) == CO_OK &&
        status != PB__STATUS__CRITICAL)
        return;
    change_remove_node(&change, node);
    change_tell(&change);
}
