#include <inttypes.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/message.h"
#include "health/anti_entropy_run.h"
#include "health/liveness_run.h"
#include "health/local_follow.h"
#include "health/state_writer.h"
#include "health/store_files.h"
#include "registry/undiscoverable.h"
#include "rpc/api/access_control.h"

/* -- waking and waiting ------------------------------------------------------------------------------------------- */

void local_wake(struct local *local) {
    if (local->loop) uv_async_send(&local->wake);
}

static void tell_change(struct local *local) {
    uint64_t generation = local_generation(local);
    if (!local->config.changed || generation == local->told_generation) return;
    local->told_generation = generation;
    local->config.changed(local->config.changed_data);
}

static void on_wake(uv_async_t *wake) {
    struct local *local = wake->data;
    if (local->stopping) return;
    local_aliases_refresh(local);
    watchers_refresh(local);
    if (local->files) store_files_kick(local->files);
    if (local->state_writer) state_writer_kick(local->state_writer);
    anti_entropy_run_kick(local->anti_entropy_run);
    local_waiters_look(local);
    tell_change(local);
}

static uint64_t hash_of(struct local *local, struct slice id) {
    struct local_service *service = live_service(local, id);
    return service ? service->item.hash : 0;
}

static void waiter_end(struct local_waiter *waiter, int error) {
    free(waiter->service_id);
    waiter->service_id = NULL;
    waiter->done(waiter, error);
}

/* The sequence of the first change that waiters have to wait for. An item that was set aside, or denied
 * (anti_entropy.h), counts only when it has changed since, so that it does not hold up those who wait for other
 * changes. */
static uint64_t dirty_first(const struct local *local) {
    LIST_FOREACH(link, &local->dirty) {
        const struct item *item = LIST_ENTRY(link, struct item, dirty);
        bool aside = item->lost_ms && item->sequence == item->lost_sequence;
        bool denied = item->denied && item->sequence == item->denied_sequence;
        if (!aside && !denied) return item->sequence;
    }
    return UINT64_MAX;
}

/* Under the lock. True: the waiter's wait is over, and *error says how it ended. */
static bool has_come(struct local *local, const struct local_waiter *waiter, int *error) {
    *error = CO_OK;
    if (waiter->service_id) return hash_of(local, slice_text(waiter->service_id)) != waiter->target;
    if (local->files && local->saved_sequence < waiter->target) return false;
    if (local->files && local->unsaved) {
        *error = CO_IO;
        return true;
    }
    uint64_t first = dirty_first(local);
    if (local->flying_first < first) first = local->flying_first;
    if (local->compared && first > waiter->target) return true;
    if (local->failed_sequence >= waiter->target && local->compared) {
        *error = local->failed_error;
        return true;
    }
    if (rpc_known_leader(local->rpc)) return false;
    *error = CO_NOLEADER;
    return true;
}

static void on_clock(uv_timer_t *clock) { local_waiters_look(clock->data); }

/* Loop thread. Calls the waiters whose wait is over, and sets the clock for the next deadline. */
void local_waiters_look(struct local *local) {
    struct list ready;
    list_init(&ready);
    local_lock(local);
    uint64_t now = clock_mono_ms(), next = UINT64_MAX;
    LIST_FOREACH_SAFE(link, following, &local->waiters) {
        struct local_waiter *waiter = LIST_ENTRY(link, struct local_waiter, link);
        int error;
        if (!has_come(local, waiter, &error)) {
            error = local->files && !waiter->service_id && local->saved_sequence < waiter->target ? CO_IO : CO_TIMEOUT;
            if (waiter->deadline_ms > now) {
                if (waiter->deadline_ms < next) next = waiter->deadline_ms;
                continue;
            }
        }
        waiter->target = (uint64_t)error; /* the error, until the waiter is called */
        list_remove(&waiter->link);
        list_append(&ready, &waiter->link);
    }
    local_unlock(local);
    while (!list_empty(&ready)) {
        struct local_waiter *waiter = LIST_ENTRY(ready.next, struct local_waiter, link);
        list_remove(&waiter->link);
        waiter_end(waiter, (int)waiter->target);
    }
    if (next == UINT64_MAX || local->stopping) return;
    uv_update_time(local->loop);
    uv_timer_start(&local->clock, on_clock, next > now ? next - now : 0, 0);
}

/* Under the lock, which it releases. Calls the waiter when its wait is over already; else it puts the waiter in
 * line. */
static void await(struct local *local, struct local_waiter *waiter, uint64_t wait_ms) {
    int error = CO_OK;
    waiter->deadline_ms = clock_mono_ms() + wait_ms;
    if (has_come(local, waiter, &error)) {
        local_unlock(local);
        waiter_end(waiter, error);
        return;
    }
    list_append(&local->waiters, &waiter->link);
    local_wake(local);
    local_unlock(local);
}

void local_on_synced(struct local *local, struct local_waiter *waiter, uint64_t wait_ms) {
    local_lock(local);
    waiter->service_id = NULL;
    waiter->target = local->sequence;
    await(local, waiter, wait_ms);
}

void local_on_service_change(struct local *local, struct local_waiter *waiter, struct slice id, uint64_t hash,
                             uint64_t wait_ms) {
    local_lock(local);
    waiter->service_id = mem_strndup(id.data, id.size);
    waiter->target = hash;
    await(local, waiter, wait_ms);
}

uint64_t local_service_hash(struct local *local, struct slice id) {
    local_lock(local);
    uint64_t hash = hash_of(local, id);
    local_unlock(local);
    return hash;
}

/* -- beginning ---------------------------------------------------------------------------------------------------- */

static const char *keep(struct local *local, const char *text) {
    return text ? arena_strndup(&local->strings, text, strlen(text)) : NULL;
}

static void keep_config(struct local *local, const struct local_config *config) {
    local->config = *config;
    local->config.node = keep(local, config->node);
    local->config.node_id = keep(local, config->node_id);
    local->config.address = keep(local, config->address);
    local->config.datacenter = keep(local, config->datacenter);
    local->config.folder = keep(local, config->folder);
    local->config.version = keep(local, config->version);
    local->config.consul_version = keep(local, config->consul_version);
    local->config.node_record = (Pb__Node *)message_copy(&local->strings, &config->node_record->base);
}

struct local *local_new(const struct local_config *config, uint64_t seed) {
    struct local *local = mem_zalloc(sizeof *local);
    keep_config(local, config);
    CHECK(uv_mutex_init(&local->lock) == 0);
    struct list *lists[] = {&local->dirty,   &local->saves,   &local->restarts,
                            &local->waiters, &local->waiting, &local->aliases};
    for (size_t i = 0; i < ARRAY_COUNT(lists); i++) list_init(lists[i]);
    local->flying_first = local->output_next_ms = UINT64_MAX;
    rng_seed(&local->rng, seed);
    return local;
}

void local_free(struct local *local) {
    items_free(local);
    check_states_free(local->states);
    LIST_FOREACH_SAFE(link, next, &local->waiting) {
        struct waiting_check *waiting = LIST_ENTRY(link, struct waiting_check, link);
        check_definition_free(waiting->definition);
        free(waiting->service_id);
        free(waiting->reason);
        free(waiting);
    }
    uv_mutex_destroy(&local->lock);
    arena_free(&local->strings);
    free(local);
}

static void on_broken_closed(uv_handle_t *handle) { local_free(handle->data); }

int local_start(uv_loop_t *loop, const struct local_config *config, struct rpc *rpc, struct local **out,
                struct fault *fault) {
    struct local *local = local_new(config, random_u64());
    local->loop = loop;
    local->rpc = rpc;
    local->hints = rpc_hints(rpc);
    local->begun_ns = clock_mono_ns();
    CHECK(uv_async_init(loop, &local->wake, on_wake) == 0);
    local->wake.data = local;
    int error = config->folder ? store_files_open(local, fault) : CO_OK;
    if (error != CO_OK) {
        uv_close((uv_handle_t *)&local->wake, on_broken_closed);
        return error;
    }
    uv_timer_init(loop, &local->clock);
    local->clock.data = local;
    runners_init(&local->runners, loop);
    local->runners.look = local_alias_look;
    local->runners.look_data = local;
    local->follows = follows_new(local);
    local->anti_entropy_run = anti_entropy_run_new(local);
    if (config->lease_ttl_ns > 0) local->liveness_run = liveness_run_new(local);
    *out = local;
    return CO_OK;
}

struct requester *local_requester(struct rpc *rpc) {
    struct requester *requester = rpc_default_requester(rpc);
    if (!requester || requester->slot != REQUESTER_ANONYMOUS) return requester;
    requester_release(requester);
    return NULL;
}

/* -- end ---------------------------------------------------------------------------------------------------------- */

void local_part_closed(struct local *local) {
    CHECK(local->closing > 0);
    if (--local->closing > 0 || !local->stopping) return;
    void (*closed)(void *data) = local->closed;
    void *data = local->closed_data;
    local_free(local);
    closed(data);
}

static void on_handle_closed(uv_handle_t *handle) { local_part_closed(handle->data); }
static void on_runners_closed(struct runners *runners) {
    local_part_closed(CONTAINER_OF(runners, struct local, runners));
}

static void dismiss_waiters(struct local *local) {
    for (;;) {
        local_lock(local);
        bool none = list_empty(&local->waiters);
        struct local_waiter *waiter = LIST_ENTRY(local->waiters.next, struct local_waiter, link);
        if (!none) list_remove(&waiter->link);
        local_unlock(local);
        if (none) return;
        waiter_end(waiter, CO_CLOSED);
    }
}

void local_stop(struct local *local, void (*closed)(void *data), void *data) {
    local->closed = closed;
    local->closed_data = data;
    local->stopping = true;
    local->closing += 5 + (local->files != NULL) + (local->state_writer != NULL) + (local->liveness_run != NULL);
    if (local->liveness_run) liveness_run_close(local->liveness_run);
    watchers_close(local);
    dismiss_waiters(local);
    anti_entropy_run_close(local->anti_entropy_run);
    follows_close(local->follows);
    runners_close(&local->runners, on_runners_closed);
    uv_close((uv_handle_t *)&local->wake, on_handle_closed);
    uv_close((uv_handle_t *)&local->clock, on_handle_closed);
    if (local->files) store_files_close(local->files);
    if (local->state_writer) state_writer_close(local->state_writer);
}

void local_leave(struct local *local, void (*done)(void *data, int error), void *data) {
    if (local->liveness_run) liveness_run_leave(local->liveness_run, done, data);
    else done(data, CO_OK);
}

const struct local_config *local_configuration(const struct local *local) { return &local->config; }

/* -- the API: changes --------------------------------------------------------------------------------------------- */

int local_service_register(struct local *local, struct service_definition *definition, bool replace, bool persist,
                           struct fault *fault) {
    int error = CO_OK;
    for (size_t i = 0; i < definition->check_count && error == CO_OK; i++)
        error = check_definition_permit(definition->checks[i], &local->config.permission, !persist, fault);
    if (error != CO_OK) {
        service_definition_free(definition);
        return error;
    }
    undiscoverable_log(local->config.node, NULL, definition->service);
    local_lock(local);
    error = service_put(local, definition, replace, persist, false);
    local_unlock(local);
    return error;
}

int local_service_deregister(struct local *local, struct slice id) {
    local_lock(local);
    struct local_service *service = live_service(local, id);
    if (service) service_remove(local, service);
    local_unlock(local);
    return service ? CO_OK : CO_NOTFOUND;
}

int local_check_register(struct local *local, struct check_definition *definition, bool persist, struct fault *fault) {
    int error = check_definition_permit(definition, &local->config.permission, !persist, fault);
    if (error != CO_OK) {
        check_definition_free(definition);
        return error;
    }
    local_lock(local);
    error = check_put(local, definition, persist, false, fault);
    local_unlock(local);
    return error;
}

int local_check_deregister(struct local *local, struct slice check_id) {
    local_lock(local);
    struct local_check *check = live_check(local, check_id);
    if (check) check_remove(local, check);
    local_unlock(local);
    return check ? CO_OK : CO_NOTFOUND;
}

bool local_from_file(struct local *local, struct slice id, bool check) {
    local_lock(local);
    const struct item *item = item_find(check ? &local->checks : &local->services, id);
    bool yes = item && !item->removed && !item->persist;
    local_unlock(local);
    return yes;
}

/* Cuts text beyond the limit, and appends a note that says so. */
static void cut_output(struct buffer *out, struct slice text, size_t most) {
    if (text.size <= most) {
        buffer_append(out, text.data, text.size);
        return;
    }
    buffer_append(out, text.data, most);
    buffer_printf(out, " ... (captured %zu of %zu bytes)", most, text.size);
}

int local_check_update(struct local *local, struct slice check_id, Pb__Status status, struct slice output,
                       struct fault *fault) {
    struct buffer text = {0};
    local_lock(local);
    struct local_check *check = live_check(local, check_id);
    const struct check_definition *definition = check ? check->shared->definition : NULL;
    int error = !check ? CO_NOTFOUND : definition->kind != CHECK_TTL || check->is_maintenance ? CO_INVALID : CO_OK;
    if (error == CO_OK) {
        size_t most = local->config.output_limit ? local->config.output_limit : 4096;
        if (definition->output_max_size < most) most = definition->output_max_size;
        cut_output(&text, output, most);
        Pb__Status before = check->core.status;
        bool sooner = check->core.due_ns == CHECK_NEVER; /* its timer stands still */
        check->restored = false;
        check_set(&check->core, definition, status, clock_mono_ns());
        state_note(local, check, true);
        check_publish(local, check, before, buffer_slice(&text), clock_mono_ms());
        check_load(local, check, NULL, output);
        if (definition->deregister_after_ns > 0 && status == PB__STATUS__CRITICAL && before != status) sooner = true;
        if (sooner && list_empty(&check->restart)) {
            list_append(&local->restarts, &check->restart);
            local_wake(local);
        }
    }
    local_unlock(local);
    buffer_free(&text);
    if (error == CO_OK) return CO_OK;
    return fault_set(fault, error, "CheckID \"%.*s\" does not have associated TTL",
                     (int)(check_id.size < 150 ? check_id.size : 150), check_id.data);
}

static int maintenance(struct local *local, struct slice service_id, bool enable, struct slice reason) {
    static const char prefix[] = "_service_maintenance:";
    int error = CO_OK;
    local_lock(local);
    if (enable) {
        error = maintenance_put(local, service_id, reason, false);
    } else if (service_id.size > 0 && !live_service(local, service_id)) {
        error = CO_NOTFOUND;
    } else {
        struct buffer id = {0};
        buffer_append_text(&id, service_id.size ? prefix : "_node_maintenance");
        buffer_append(&id, service_id.data, service_id.size);
        struct local_check *check = live_check(local, buffer_slice(&id));
        if (check) check_remove(local, check);
        buffer_free(&id);
    }
    local_unlock(local);
    if (error == CO_OK) {
        if (service_id.size)
            log_info("health", "maintenance mode %s service=\"%.*s\"", enable ? "on" : "off", (int)service_id.size,
                     service_id.data);
        else log_info("health", "maintenance mode %s node=%s", enable ? "on" : "off", local->config.node);
    }
    return error;
}

int local_service_maintenance(struct local *local, struct slice id, bool enable, struct slice reason) {
    return id.size == 0 ? CO_NOTFOUND : maintenance(local, id, enable, reason);
}

int local_node_maintenance(struct local *local, bool enable, struct slice reason) {
    return maintenance(local, slice_text(""), enable, reason);
}
