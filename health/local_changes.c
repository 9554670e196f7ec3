#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "health/local_internal.h"

#define NODE_MAINTENANCE    "_node_maintenance"
#define SERVICE_MAINTENANCE "_service_maintenance:"
#define UPDATE_INTERVAL_MS  300000

/* -- going
 * ------------------------------------------------------------------------------------------------------------ */

static void restart(struct local *local, struct local_check *check) {
    if (list_empty(&check->restart)) list_append(&local->restarts, &check->restart);
    local_wake(local);
}

static void alias_note(struct local *local, struct local_check *check) {
    list_append(&local->aliases, &check->of_aliases);
    local->aliases_changed = true;
}

static void alias_forget(struct local *local, struct local_check *check) {
    if (list_empty(&check->of_aliases)) return;
    list_remove(&check->of_aliases);
    local->aliases_changed = true;
}

static void check_gone(struct local *local, struct local_check *check) {
    check->item.removed = true;
    check->item.hash = 0; /* should it come back, it has to travel */
    list_remove(&check->of_service);
    alias_forget(local, check);
    if (check->item.has_file) item_save(local, &check->item);
    item_touch(local, &check->item);
    restart(local, check);
}

void check_remove(struct local *local, struct local_check *check) {
    item_save(local, &check->item); /* while it is still known to belong to its service */
    check_gone(local, check);
}

void service_remove(struct local *local, struct local_service *service) {
    LIST_FOREACH_SAFE(item, next, &service->checks) {
        check_gone(local, LIST_ENTRY(item, struct local_check, of_service));
    }
    service->item.removed = true;
    service->item.hash = 0;
    item_save(local, &service->item);
    item_touch(local, &service->item);
}

bool services_unleased(struct local *local, const char *refusal) {
    bool any = false;
    for (size_t i = 0; i < local->services.count; i++) {
        struct local_service *service = as_service(local->services.items[i]);
        if (service->item.removed || !*service->record->lease || !strstr(refusal, service->record->lease)) continue;
        log_info("health", "a service goes, its lease is over id=%s lease=%s", service->item.id,
                 service->record->lease);
        service_remove(local, service);
        any = true;
    }
    return any;
}

/* -- results
 * ---------------------------------------------------------------------------------------------------------------- */

static const char *status_text(Pb__Status status) { return catalog_status_text(status); }

void check_output_later(struct local *local, struct local_check *check) {
    if (check->output_due_ms || !list_empty(&check->item.dirty)) return;
    uint64_t period = local->config.check_update_interval_ns > 0
                          ? (uint64_t)local->config.check_update_interval_ns / 1000000
                          : UPDATE_INTERVAL_MS;
    check->output_due_ms = clock_mono_ms() + period / 2 + rng_below(&local->rng, period + 1);
    if (check->output_due_ms < local->output_next_ms) {
        local->output_next_ms = check->output_due_ms;
        local_wake(local);
    }
}

void check_publish(struct local *local, struct local_check *check, Pb__Status before, struct slice output) {
    bool same_text = slice_equal(buffer_slice(&check->output), output);
    if (!same_text) {
        buffer_reset(&check->output);
        buffer_append(&check->output, output.data, output.size);
        local->generation++;
        if (!list_empty(&local->aliases)) local_wake(local); /* they show it */
    }
    bool held = check_held(&check->core);
    if (held != check->held_shown) {
        log_info("health", "%s check=%s service=%s",
                 held ? "check changes its state too often, it is held" : "check is not held any more", check->item.id,
                 check->shared->definition->service_id);
        check->held_shown = held;
        item_touch(local, &check->item);
        restart(local, check); /* its timer does not know when it is let go */
    }
    if (check->core.status != before) {
        log_info("health", "check is now %s check=%s service=%s", status_text(check->core.status), check->item.id,
                 check->shared->definition->service_id);
        item_changed(local, &check->item);
    } else if (!same_text) {
        check_output_later(local, check);
    }
}

/* -- coming
 * -------------------------------------------------------------------------------------------------------------------- */

static bool same_definition(const struct check_definition *a, const struct check_definition *b) {
    struct buffer text_a = {0}, text_b = {0};
    struct json_out json;
    json_out_init(&json, &text_a, false);
    check_definition_write(&json, a);
    json_out_init(&json, &text_b, false);
    check_definition_write(&json, b);
    bool same = a->kind == b->kind && slice_equal(buffer_slice(&text_a), buffer_slice(&text_b));
    buffer_free(&text_a);
    buffer_free(&text_b);
    return same;
}

/* A check that is registered again keeps its state; one of the same definition is not even started anew, or else
 * clients that register often would keep it from running. */
static struct local_check *check_install(struct local *local, struct check_definition *definition, bool persist,
                                         bool restored) {
    struct local_check *check = check_take(local, definition->check_id);
    uint64_t now = clock_mono_ns();
    bool known = check->shared && !check->item.removed;
    bool same = known && !check->is_maintenance && same_definition(check->shared->definition, definition);
    Pb__Status status = known ? check->core.flap.said : definition->initial_status; /* its own, damped or not */
    bool moves = known && strcmp(check->shared->definition->service_id, definition->service_id) != 0;
    if (moves) item_save(local, &check->item); /* the service that it leaves */
    check->item.persist = persist;
    check->item.removed = false;
    check->is_maintenance = false;
    list_remove(&check->of_service);
    alias_forget(local, check);
    if (definition->kind == CHECK_ALIAS) alias_note(local, check);
    if (*definition->service_id) {
        struct local_service *service = live_service(local, slice_text(definition->service_id));
        CHECK(service != NULL);
        list_append(&service->checks, &check->of_service);
    }
    if (same) {
        check_definition_free(definition);
        if (check->shared->definition->kind == CHECK_TTL) {
            check_set(&check->core, check->shared->definition, status, now);
            restart(local, check);
        }
    } else {
        check_shared_drop(check->shared);
        check->shared = check_shared_new(definition);
        check->restored = restored;
        if (!known) buffer_reset(&check->output);
        check_end(&check->core);
        check_init(&check->core, definition, now, check_first_delay_ns(definition, !restored, rng_next(&local->rng)));
        if (known) check_set(&check->core, definition, status, now);
        check_damp(&check->core, local->config.flap_limit, (uint64_t)local->config.flap_window_ns);
        check->held_shown = false;
        restart(local, check);
    }
    if (!restored) item_save(local, &check->item);
    item_changed(local, &check->item);
    return check;
}

static bool is_mentioned(const struct service_definition *definition, const char *check_id) {
    for (size_t i = 0; i < definition->check_count; i++) {
        if (definition->checks[i] && strcmp(definition->checks[i]->check_id, check_id) == 0) return true;
    }
    return false;
}

/* Checks that were saved before their service came from its configuration file. */
static void join_waiting(struct local *local, const char *service_id) {
    LIST_FOREACH_SAFE(item, next, &local->waiting) {
        struct waiting_check *waiting = LIST_ENTRY(item, struct waiting_check, link);
        if (strcmp(waiting->service_id, service_id) != 0) continue;
        list_remove(&waiting->link);
        if (waiting->definition) {
            struct local_check *check = check_install(local, waiting->definition, true, true);
            check->item.has_file = true;
        } else {
            maintenance_put(local, slice_text(service_id), slice_text(waiting->reason), true);
        }
        free(waiting->service_id);
        free(waiting->reason);
        free(waiting);
    }
}

int service_put(struct local *local, struct service_definition *definition, bool replace, bool persist, bool restored) {
    struct local_service *service = service_take(local, definition->service->id);
    pb_set(&definition->service->node, local->config.node);
    if (service->record) pb__service__free_unpacked(service->record, NULL);
    service->record = definition->service;
    definition->service = NULL;
    service->item.removed = false;
    service->item.persist = persist;
    if (restored) service->item.has_file = true;
    LIST_FOREACH_SAFE(item, next, &service->checks) {
        struct local_check *check = LIST_ENTRY(item, struct local_check, of_service);
        if (replace && !check->is_maintenance && !is_mentioned(definition, check->item.id)) {
            check_remove(local, check);
        }
    }
    for (size_t i = 0; i < definition->check_count; i++) {
        struct check_definition *check = definition->checks[i];
        definition->checks[i] = NULL;
        check_install(local, check, persist, restored);
    }
    join_waiting(local, service->record->id);
    /* The rest carries its name and tags. */
    LIST_FOREACH(item, &service->checks) {
        item_changed(local, &LIST_ENTRY(item, struct local_check, of_service)->item);
    }
    item_changed(local, &service->item);
    if (!restored) item_save(local, &service->item);
    service_definition_free(definition);
    return CO_OK;
}

int check_put(struct local *local, struct check_definition *definition, bool persist, bool restored,
              struct fault *fault) {
    if (*definition->service_id && !live_service(local, slice_text(definition->service_id))) {
        int error = fault_set(fault, CO_NOTFOUND, "ServiceID \"%.150s\" does not exist", definition->service_id);
        check_definition_free(definition);
        return error;
    }
    struct local_check *check = check_install(local, definition, persist, restored);
    if (restored) check->item.has_file = true;
    return CO_OK;
}

static const char *reason_or_default(struct slice reason, bool service, struct buffer *text) {
    if (reason.size > 0) {
        buffer_append(text, reason.data, reason.size);
    } else {
        buffer_printf(text,
                      "Maintenance mode is enabled for this %s, but no reason was provided. "
                      "This is a default message.",
                      service ? "service" : "node");
    }
    buffer_append_byte(text, '\0');
    return text->data;
}

int maintenance_put(struct local *local, struct slice service_id, struct slice reason, bool restored) {
    struct local_service *service = NULL;
    if (service_id.size > 0 && !(service = live_service(local, service_id))) return CO_NOTFOUND;
    struct buffer id = {0}, text = {0};
    buffer_append_text(&id, service ? SERVICE_MAINTENANCE : NODE_MAINTENANCE);
    buffer_append(&id, service_id.data, service_id.size);
    buffer_append_byte(&id, '\0');
    if (!live_check(local, slice_text(id.data))) {
        struct check_definition *definition = check_definition_blank(id.data, service ? service->item.id : "");
        free(definition->name);
        definition->name = mem_strdup(service ? "Service Maintenance Mode" : "Node Maintenance Mode");
        free(definition->notes);
        definition->notes = mem_strdup(reason_or_default(reason, service != NULL, &text));
        struct local_check *check = check_take(local, id.data);
        check_shared_drop(check->shared);
        check->shared = check_shared_new(definition);
        check->item.removed = false;
        check->item.persist = true;
        check->is_maintenance = true;
        if (restored) check->item.has_file = true;
        buffer_reset(&check->output);
        check_end(&check->core);
        check_init(&check->core, definition, clock_mono_ns(), 0);
        check->held_shown = false;
        alias_forget(local, check);
        if (service) list_append(&service->checks, &check->of_service);
        if (!restored) item_save(local, &check->item);
        item_changed(local, &check->item);
    }
    buffer_free(&id);
    buffer_free(&text);
    return CO_OK;
}
