/* What alias checks look at: local checks at once, other nodes' as this server's catalog has them. */
#include "base/check.h"
#include "base/clock.h"
#include "health/local_internal.h"

#define STEPS_MOST 1000 /* of a walk along aliases of aliases */

/* -- here
 * ------------------------------------------------------------------------------------------------------------- */

/* An alias looks at the checks of its service, and at those of the node itself. */
static bool concerns(const struct check_definition *alias, const struct local_check *check) {
    const char *of = check->shared->definition->service_id;
    return !check->item.removed && (*of == '\0' || strcmp(of, alias->alias_service) == 0);
}

static bool is_local(const struct local *local, const struct check_definition *alias) {
    return alias->kind == CHECK_ALIAS &&
           (*alias->alias_node == '\0' || strcmp(alias->alias_node, local->config.node) == 0);
}

/* Whether `check` depends on the check `id`: two that look at each other would keep each other down for ever. */
static bool leads_to(struct local *local, const struct local_check *check, const char *id, unsigned *steps) {
    if (strcmp(check->item.id, id) == 0) return true;
    const struct check_definition *alias = check->shared->definition;
    if (!is_local(local, alias)) return false;
    for (size_t i = 0; i < local->checks.count && *steps < STEPS_MOST; i++) {
        const struct local_check *next = as_check(local->checks.items[i]);
        if (next == check || !concerns(alias, next)) continue;
        ++*steps;
        if (leads_to(local, next, id, steps)) return true;
    }
    return false;
}

static void look_here(struct local *local, const struct check_definition *alias, struct arena *arena,
                      struct alias_target *target) {
    local_lock(local);
    target->found = *alias->alias_service == '\0' || live_service(local, slice_text(alias->alias_service));
    target->checks = arena_alloc(arena, (local->checks.count + 1) * sizeof *target->checks);
    for (size_t i = 0; i < local->checks.count; i++) {
        const struct local_check *check = as_check(local->checks.items[i]);
        unsigned steps = 0;
        if (!concerns(alias, check) || leads_to(local, check, alias->check_id, &steps)) continue;
        target->checks[target->count++] = check_record_copy(local, check, arena);
    }
    local_unlock(local);
}

/* -- elsewhere
 * -------------------------------------------------------------------------------------------------------- */

/* The records that count, copied out of the store. */
static int read_node(struct store_txn *txn, const struct check_definition *alias, struct arena *arena,
                     struct alias_target *target) {
    Pb__NodeRequest request = PB__NODE_REQUEST__INIT;
    struct query_result services = {0}, checks = {0};
    request.node = alias->alias_node;
    int error = query_node_services.run(txn, &request.base, arena, &services);
    if (error == CO_OK) error = query_node_checks.run(txn, &request.base, arena, &checks);
    if (error != CO_OK) return error;
    const Pb__NodeServicesResult *node = (const Pb__NodeServicesResult *)services.message;
    const Pb__ChecksResult *all = (const Pb__ChecksResult *)checks.message;
    target->found = services.found && *alias->alias_service == '\0';
    for (size_t i = 0; services.found && node && i < node->n_services; i++) {
        if (strcmp(node->services[i]->id, alias->alias_service) == 0) target->found = true;
    }
    target->checks = arena_alloc(arena, ((all ? all->n_checks : 0) + 1) * sizeof *target->checks);
    for (size_t i = 0; all && i < all->n_checks; i++) {
        const char *of = all->checks[i]->service_id;
        if (*of && strcmp(of, alias->alias_service) != 0) continue;
        target->checks[target->count++] = check_copy(all->checks[i], arena);
    }
    return CO_OK;
}

static int look_there(struct local *local, const struct check_definition *alias, struct arena *arena,
                      struct alias_target *target, struct fault *fault) {
    int error = rpc_serves(local->rpc);
    if (error == CO_OK) {
        if (!local->alias_reader) local->alias_reader = rpc_reader_new(local->rpc);
        struct store_txn *txn = rpc_read_begin(local->alias_reader);
        error = txn ? read_node(txn, alias, arena, target) : CO_IO;
        rpc_read_end(local->alias_reader);
    }
    return error == CO_OK ? CO_OK : fault_set(fault, error, "%s", co_strerror(error));
}

int local_alias_look(void *data, const struct check_definition *definition, struct arena *arena,
                     struct alias_target *target, struct fault *fault) {
    struct local *local = data;
    if (is_local(local, definition)) {
        target->node = local->config.node;
        look_here(local, definition, arena, target);
        return CO_OK;
    }
    target->node = definition->alias_node;
    return look_there(local, definition, arena, target, fault);
}

/* -- when
 * ----------------------------------------------------------------------------------------------------------- */

/* An alias that changes is a change as well: those that look at it look again, until nothing changes any more. */
void local_aliases_refresh(struct local *local) {
    local_lock(local);
    bool changed = local->alias_generation != local->generation;
    local->alias_generation = local->generation;
    LIST_FOREACH(link, &local->aliases) {
        struct local_check *alias = LIST_ENTRY(link, struct local_check, of_aliases);
        if (!changed || !is_local(local, alias->shared->definition)) continue;
        check_hurry(&alias->core, clock_mono_ns());
        if (list_empty(&alias->restart)) list_append(&local->restarts, &alias->restart);
    }
    local_unlock(local);
}
