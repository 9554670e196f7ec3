/* What the API shows of the local services and checks: copies. */
#include "health/local_internal.h"

size_t local_services(struct local *local, struct arena *arena, Pb__Service ***services) {
    size_t count = 0;
    local_lock(local);
    *services = arena_alloc(arena, (local->services.count + 1) * sizeof **services);
    for (size_t i = 0; i < local->services.count; i++) {
        struct item *item = local->services.items[i];
        if (!item->removed) (*services)[count++] = service_record_copy(as_service(item)->record, arena);
    }
    local_unlock(local);
    return count;
}

size_t local_checks(struct local *local, struct arena *arena, Pb__Check ***checks) {
    size_t count = 0;
    local_lock(local);
    *checks = arena_alloc(arena, (local->checks.count + 1) * sizeof **checks);
    for (size_t i = 0; i < local->checks.count; i++) {
        struct item *item = local->checks.items[i];
        if (!item->removed) (*checks)[count++] = check_record_copy(local, as_check(item), arena);
    }
    local_unlock(local);
    return count;
}

bool local_service(struct local *local, struct slice id, struct arena *arena, Pb__Service **service,
                   Pb__Check ***checks, size_t *check_count) {
    local_lock(local);
    struct local_service *found = live_service(local, id);
    if (found) {
        *service = service_record_copy(found->record, arena);
        *checks = arena_alloc(arena, (local->checks.count + 1) * sizeof **checks);
        *check_count = 0;
        for (size_t i = 0; i < local->checks.count; i++) {
            struct local_check *check = as_check(local->checks.items[i]);
            if (check->item.removed) continue;
            const char *of = check->shared->definition->service_id;
            if (*of && !slice_equal_nocase(id, slice_text(of))) continue;
            (*checks)[(*check_count)++] = check_record_copy(local, check, arena);
        }
    }
    local_unlock(local);
    return found != NULL;
}

/* Under the lock. */
static const char *name_copy(struct local *local, struct slice id, struct arena *arena) {
    const struct local_service *service = live_service(local, id);
    return service ? arena_strndup(arena, service->record->name, strlen(service->record->name)) : NULL;
}

const char *local_service_name(struct local *local, struct slice id, struct arena *arena) {
    local_lock(local);
    const char *name = name_copy(local, id, arena);
    local_unlock(local);
    return name;
}

const char *local_check_owner(struct local *local, struct slice check_id, struct arena *arena) {
    const char *owner = NULL;
    local_lock(local);
    const struct local_check *check = live_check(local, check_id);
    if (check) {
        const char *service_id = check->shared->definition->service_id;
        owner = *service_id ? name_copy(local, slice_text(service_id), arena) : "";
    }
    local_unlock(local);
    return owner;
}

/* Under the lock. */
static bool checks_pass(const struct local *local, const char *service_id) {
    for (size_t i = 0; i < local->checks.count; i++) {
        const struct local_check *check = as_check(local->checks.items[i]);
        const char *of = check->item.removed ? NULL : check->shared->definition->service_id;
        if (!of || (*of && !slice_equal_nocase(slice_text(service_id), slice_text(of)))) continue;
        if (check->core.status != PB__STATUS__PASSING) return false;
    }
    return true;
}

bool local_service_passes(struct local *local, struct slice name) {
    bool passes = false;
    local_lock(local);
    for (size_t i = 0; i < local->services.count && !passes; i++) {
        struct item *item = local->services.items[i];
        const Pb__Service *record = as_service(item)->record;
        passes = !item->removed && slice_equal_nocase(slice_text(record->name), name) && checks_pass(local, item->id);
    }
    local_unlock(local);
    return passes;
}

uint64_t local_generation(struct local *local) {
    local_lock(local);
    uint64_t generation = local->generation;
    local_unlock(local);
    return generation;
}

bool local_synced(struct local *local) {
    local_lock(local);
    bool synced = local->compared && list_empty(&local->dirty) && local->flying_first == UINT64_MAX;
    local_unlock(local);
    return synced;
}
