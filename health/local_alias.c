/* The targets of alias checks: local checks as this agent has them, those of other nodes as the servers have them
 * (local_follow.h). */
#include "base/check.h"
#include "base/clock.h"
#include "health/local_follow.h"

#define STEPS_MOST 1000 /* of a walk along aliases of aliases */

/* -- here --------------------------------------------------------------------------------------------------------- */

static bool same(const char *a, const char *b) { return slice_equal_nocase(slice_text(a), slice_text(b)); }

/* An alias looks at the checks of its service, and at those of the node itself. */
static bool concerns(const struct check_definition *alias, const struct local_check *check) {
    const char *of = check->shared->definition->service_id;
    return !check->item.removed && (*of == '\0' || same(of, alias->alias_service));
}

static bool is_local(const struct local *local, const struct check_definition *alias) {
    return alias->kind == CHECK_ALIAS && (*alias->alias_node == '\0' || same(alias->alias_node, local->config.node));
}

/* True: `check` depends on the check `id`. Two aliases that look at each other would keep each other critical for
 * ever. */
static bool leads_to(struct local *local, const struct local_check *check, const char *id, unsigned *steps) {
    if (same(check->item.id, id)) return true;
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

/* -- elsewhere ---------------------------------------------------------------------------------------------------- */

/* Takes the target's records from the servers' last answer. */
static int look_there(struct local *local, const struct check_definition *alias, struct arena *arena,
                      struct alias_target *target, struct fault *fault) {
    ProtobufCAllocator allocator = ARENA_PROTOBUF(arena);
    struct follow_seen seen;
    int error = follow_see(local->follows, alias->alias_node, alias->token, &seen);
    if (error != CO_OK) return fault_set(fault, error, "%s", co_strerror(error));
    const Pb__NodeServicesResult *node =
        pb__node_services_result__unpack(&allocator, seen.services.size, (const uint8_t *)seen.services.data);
    const Pb__ChecksResult *all =
        pb__checks_result__unpack(&allocator, seen.checks.size, (const uint8_t *)seen.checks.data);
    if (!node || !all) return fault_set(fault, CO_CORRUPT, "%s", co_strerror(CO_CORRUPT));
    target->found = seen.found && *alias->alias_service == '\0';
    for (size_t i = 0; seen.found && i < node->n_services; i++) {
        if (same(node->services[i]->id, alias->alias_service)) target->found = true;
    }
    target->checks = arena_alloc(arena, (all->n_checks + 1) * sizeof *target->checks);
    for (size_t i = 0; i < all->n_checks; i++) {
        const char *of = all->checks[i]->service_id;
        if (*of == '\0' || same(of, alias->alias_service)) target->checks[target->count++] = all->checks[i];
    }
    return CO_OK;
}

bool local_alias_known(struct local *local, const struct check_definition *alias) {
    struct follow_seen seen;
    return is_local(local, alias) || follow_see(local->follows, alias->alias_node, alias->token, &seen) != CO_AGAIN;
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

/* -- when --------------------------------------------------------------------------------------------------------- */

/* Under the lock. */
static void follow_what_is_aliased(struct local *local) {
    follows_want_begin(local->follows);
    LIST_FOREACH(link, &local->aliases) {
        const struct check_definition *alias = LIST_ENTRY(link, struct local_check, of_aliases)->shared->definition;
        if (!is_local(local, alias)) follows_want(local->follows, alias->alias_node, alias->token);
    }
    follows_want_end(local->follows);
}

/* An alias whose status changes may itself be the target of aliases: these look again too, until nothing changes any
 * more. */
void local_aliases_refresh(struct local *local) {
    local_lock(local);
    bool changed = local->alias_generation != local->generation;
    if (local->aliases_changed) follow_what_is_aliased(local);
    local->alias_generation = local->generation;
    local->aliases_changed = false;
    local_unlock(local);
    follows_look(local->follows);
    local_lock(local);
    LIST_FOREACH(link, &local->aliases) {
        struct local_check *alias = LIST_ENTRY(link, struct local_check, of_aliases);
        const struct check_definition *definition = alias->shared->definition;
        bool concerned = is_local(local, definition)
                             ? changed
                             : follow_changed(local->follows, definition->alias_node, definition->token);
        if (!concerned) continue;
        check_hurry(&alias->core, clock_mono_ns());
        if (list_empty(&alias->restart)) list_append(&local->restarts, &alias->restart);
    }
    local_unlock(local);
}
