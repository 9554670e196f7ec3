#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/message.h"
#include "health/state_writer.h"

#define NODE_MAINTENANCE    "_node_maintenance"
#define SERVICE_MAINTENANCE "_service_maintenance:"
#define UPDATE_INTERVAL_MS  300000

/* -- going -------------------------------------------------------------------------------------------------------- */

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
    check->item.hash = 0; /* should it be registered again, it has to be written again */
    list_remove(&check->of_service);
    alias_forget(local, check);
    state_note(local, check, false);
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
    service_load_forget(local, service);
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

/* -- results ------------------------------------------------------------------------------------------------------ */

static const char *status_text(Pb__Status status) { return catalog_status_text(status); }

void check_output_later(struct local *local, struct local_check *check, uint64_t now_ms) {
    if (check->output_due_ms || !list_empty(&check->item.dirty)) return;
    uint64_t period = local->config.check_update_interval_ns > 0
                          ? (uint64_t)local->config.check_update_interval_ns / 1000000
                          : UPDATE_INTERVAL_MS;
    check->output_due_ms = now_ms + period / 2 + rng_below(&local->rng, period + 1);
    if (check->output_due_ms < local->output_next_ms) {
        local->output_next_ms = check->output_due_ms;
        local_wake(local);
    }
}

/* A node's check is of no service. */
static void tell(const struct local_check *check, const char *what) {
    const char *service = check->shared->definition->service_id;
    log_info("health", "check %s check=%s%s%s", what, check->item.id, service[0] ? " service=" : "", service);
}

void check_publish(struct local *local, struct local_check *check, Pb__Status before, struct slice output,
                   uint64_t now_ms) {
    bool same_text = slice_equal(buffer_slice(&check->output), output);
    if (!same_text) {
        buffer_reset(&check->output);
        buffer_append(&check->output, output.data, output.size);
        local->generation++;
        if (!list_empty(&local->aliases)) local_wake(local); /* aliases show the output */
    }
    bool held = check_held(&check->core);
    if (held != check->held_shown) {
        tell(check, held ? "changes its state too often, it is held" : "is not held any more");
        check->held_shown = held;
        item_touch(local, &check->item);
        restart(local, check); /* so that its timer is set for the end of the damping */
    }
    if (check->core.status != before) {
        char now[32];
        snprintf(now, sizeof now, "is now %s", status_text(check->core.status));
        tell(check, now);
        item_changed(local, &check->item);
    } else if (!same_text) {
        check_output_later(local, check, now_ms);
    }
}

void check_expired_text(struct buffer *text, struct slice last) {
    static const char expired[] = "TTL expired", follows[] = " (last output before timeout follows): ";
    struct slice first = slice_text("TTL expired (last output before timeout follows): ");
    /* the TTL began again, and passed without a report */
    while (slice_starts(last, first)) last = slice_make(last.data + first.size, last.size - first.size);
    buffer_append_text(text, expired);
    if (last.size > 0 && !slice_is(last, expired)) {
        buffer_append_text(text, follows);
        buffer_append(text, last.data, last.size);
    }
}

/* The check takes its status over from the catalog, so that it does not become critical before it has run. A TTL check
 * with a saved state keeps that, and takes over the output only; without a saved state nobody can tell when its status
 * was reported, so it expires at once. */
void check_recall(struct local_check *check, const Pb__Check *stored, uint64_t now_ns) {
    const struct check_definition *definition = check->shared->definition;
    bool ttl = definition->kind == CHECK_TTL;
    check->restored = false;
    if (!stored) return;
    Pb__Status status = stored->status;
    struct slice output = check_output_bare(message_slice(stored->output), &status);
    if (!ttl || check->state == CHECK_STATE_NONE)
        check_resume(&check->core, definition, status, ttl ? CHECK_AGE_UNKNOWN : 0, now_ns);
    bool expired = ttl && slice_is(buffer_slice(&check->output), "TTL expired");
    if (!expired && check->core.flap.said != status) return;
    buffer_reset(&check->output);
    if (expired) check_expired_text(&check->output, output);
    else buffer_append(&check->output, output.data, output.size);
}

/* -- coming ------------------------------------------------------------------------------------------------------- */

static bool same_id(const char *a, const char *b) { return slice_equal_nocase(slice_text(a), slice_text(b)); }

/* The check was known before the agent was started: it resumes its saved state if there is one. When a TTL check of the
 * data folder has none, nobody can tell when its status was reported, so it is critical until a client reports one. */
static void take_up(struct local *local, struct local_check *check, const struct check_definition *definition) {
    struct check_moment now = check_moment_now();
    if (local->states) check->state = check_states_claim(local->states, check->item.id);
    if (check->state != CHECK_STATE_NONE)
        check_states_resume(local->states, check->state, &check->core, definition, now);
    else if (definition->kind == CHECK_TTL && check->item.persist)
        check_resume(&check->core, definition, PB__STATUS__CRITICAL, CHECK_AGE_UNKNOWN, now.mono_ns);
}

/* True: registering the TTL check again counts as a report of its status. A definition without a status does not, nor
 * does a configuration file, which the agent reads at each reload. */
static bool reports(const struct check_definition *definition, bool persist) {
    return definition->kind == CHECK_TTL && persist && definition->initial_status != PB__STATUS__CRITICAL;
}

/* How old its status is. */
static uint64_t age_of(const struct check *core, bool told, uint64_t now_ns) {
    return told ? 0 : (uint64_t)((int64_t)now_ns - core->reported_ns);
}

/* The check is new, or its definition has changed. A known check keeps its status. */
static void begin_anew(struct local *local, struct local_check *check, struct check_definition *definition, bool known,
                       bool restored) {
    uint64_t now = clock_mono_ns();
    Pb__Status status = check->core.flap.said; /* as the check reported it, damped or not */
    bool told = reports(definition, check->item.persist);
    bool was_ttl = known && check->shared->definition->kind == CHECK_TTL;
    uint64_t age = age_of(&check->core, told || !was_ttl, now);
    check_shared_drop(check->shared);
    check->shared = check_shared_new(definition);
    check->restored = restored || (!check->item.persist && !known && !local->compared);
    if (!known) buffer_reset(&check->output);
    check_end(&check->core);
    check_init(&check->core, definition, now, check_first_delay_ns(definition, !restored, rng_next(&local->rng)));
    if (known) check_resume(&check->core, definition, status, age, now);
    else if (check->restored) take_up(local, check, definition);
    check_damp(&check->core, local->config.flap_limit, (uint64_t)local->config.flap_window_ns);
    check->held_shown = false;
    bool unknown = check->restored && check->state == CHECK_STATE_NONE; /* until the catalog is compared */
    if (!unknown) state_note(local, check, known ? age == 0 : !check->restored);
    restart(local, check);
}

/* A check that is registered again with the same definition is not begun anew, or else clients that register often
 * would keep it from running. */
static struct local_check *check_install(struct local *local, struct check_definition *definition, bool persist,
                                         bool restored) {
    struct local_check *check = check_take(local, definition->check_id);
    bool known = check->shared && !check->item.removed;
    bool same = known && !check->is_maintenance && check_definition_same(check->shared->definition, definition);
    bool moves = known && !same_id(check->shared->definition->service_id, definition->service_id);
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
    if (!same) {
        begin_anew(local, check, definition, known, restored);
    } else {
        if (reports(definition, persist)) {
            check_set(&check->core, definition, check->core.flap.said, clock_mono_ns());
            state_note(local, check, true);
            restart(local, check);
        }
        check_shared_drop(check->shared); /* its token may be another one */
        check->shared = check_shared_new(definition);
    }
    item_token(local, &check->item, check->shared->definition->token);
    if (!restored) item_save(local, &check->item);
    item_changed(local, &check->item);
    return check;
}

static bool is_mentioned(const struct service_definition *definition, const char *check_id) {
    for (size_t i = 0; i < definition->check_count; i++) {
        if (definition->checks[i] && same_id(definition->checks[i]->check_id, check_id)) return true;
    }
    return false;
}

/* Checks that were saved before their service came from its configuration file. */
static void join_waiting(struct local *local, const char *service_id) {
    LIST_FOREACH_SAFE(item, next, &local->waiting) {
        struct waiting_check *waiting = LIST_ENTRY(item, struct waiting_check, link);
        if (!same_id(waiting->service_id, service_id)) continue;
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
    bool anew = !service->record || service->item.removed;
    if (anew) service->registered_ns = restored ? 0 : clock_mono_ns();
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
        if (!*check->token) check_definition_token(check, slice_text(definition->token));
        check_install(local, check, persist, restored);
    }
    item_token(local, &service->item, definition->token);
    join_waiting(local, service->record->id);
    /* The records of its other checks carry its name and tags. */
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
        if (service) item_token(local, &check->item, item_token_text(&service->item));
        if (!restored) item_save(local, &check->item);
        item_changed(local, &check->item);
    }
    buffer_free(&id);
    buffer_free(&text);
    return CO_OK;
}
