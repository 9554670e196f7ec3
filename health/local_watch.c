/* The loop's side of checks: each check has a timer, and at most one attempt under way. */
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "health/state_writer.h"

#define AGAIN_NS        200000000ull /* after so long an alias that came too early tries again */
#define CATALOG_WAIT_NS (10 * 1000000000ull)

static void watcher_act(struct watcher *watcher);

static void on_timer(uv_timer_t *timer) { watcher_act(timer->data); }

static void arm(struct watcher *watcher, uint64_t next_ns, uint64_t now_ns) {
    if (next_ns == CHECK_NEVER) {
        uv_timer_stop(&watcher->timer);
        return;
    }
    uint64_t wait_ms = next_ns <= now_ns ? 0 : (next_ns - now_ns + 999999) / 1000000;
    uv_update_time(watcher->local->loop);
    uv_timer_start(&watcher->timer, on_timer, wait_ms, 0);
}

static uint32_t output_most(const struct local *local, const struct check_definition *definition) {
    uint32_t most = local->config.output_limit ? local->config.output_limit : 4096;
    return definition->output_max_size && definition->output_max_size < most ? definition->output_max_size : most;
}

static void on_result(void *data, Pb__Status status, struct slice output) {
    struct watcher *watcher = data;
    struct local *local = watcher->local;
    const struct load_said *said = watcher->run ? watcher->run->said : NULL;
    watcher->run = NULL;
    local_lock(local);
    struct local_check *check = watcher->check;
    if (check && !check->item.removed && check->core.running) {
        check_load(local, check, said, output);
        Pb__Status before = check->core.status;
        check->restored = false;
        if (check_result(&check->core, check->shared->definition, status, clock_mono_ns())) {
            /* Between the thresholds a failing check is a warning; its output says why. */
            check_publish(local, check, before, output, clock_mono_ms());
        } else {
            log_debug("health", "check result held by its threshold check=%s", check->item.id);
        }
        state_note(local, check, false);
    }
    local_unlock(local);
    watcher_act(watcher);
}

static void expire(struct local *local, struct local_check *check, Pb__Status before) {
    struct buffer text = {0};
    check_expired_text(&text, buffer_slice(&check->output));
    log_warn("health", "check missed its TTL, is now critical check=%s", check->item.id);
    state_note(local, check, false);
    check_publish(local, check, before, buffer_slice(&text), clock_mono_ms());
    buffer_free(&text);
}

static void deregister(struct local *local, struct local_check *check) {
    const char *id = check->shared->definition->service_id;
    struct local_service *service = live_service(local, slice_text(id));
    if (!service) return;
    log_info("health", "service deregistered: its check has been critical for too long service=%s check=%s", id,
             check->item.id);
    service_remove(local, service);
}

/* After a start of the agent an alias waits until the checks have taken over their statuses from the catalog, because
 * its target's checks have no results before: otherwise each start would make the alias critical. */
static bool too_early(const struct local *local, const struct local_check *check, uint64_t now) {
    bool waits = check->shared->definition->kind == CHECK_ALIAS && check->restored;
    return waits && !local->compared && now - local->begun_ns < CATALOG_WAIT_NS;
}

/* An alias of another node about which the servers have said nothing yet. */
static bool nothing_known(struct local *local, const struct local_check *check) {
    const struct check_definition *definition = check->shared->definition;
    return definition->kind == CHECK_ALIAS && !local_alias_known(local, definition);
}

/* Under the lock. Does what is due except running the check; returns the definition to run now, if any. */
static struct check_shared *decide(struct watcher *watcher, uint64_t now, uint64_t *next) {
    struct local *local = watcher->local;
    struct local_check *check = watcher->check;
    *next = CHECK_NEVER;
    while (check && !check->item.removed) {
        Pb__Status before = check->core.status;
        switch (check_step(&check->core, check->shared->definition, now, next)) {
            case CHECK_DO_NOTHING: return NULL;
            case CHECK_DO_RUN:
                if (too_early(local, check, now)) {
                    check_postpone(&check->core, now + AGAIN_NS);
                    break;
                }
                if (nothing_known(local, check)) {
                    check_postpone(&check->core, CHECK_NEVER);
                    break;
                }
                return check_shared_take(check->shared);
            case CHECK_DO_EXPIRE: expire(local, check, before); break;
            case CHECK_DO_SETTLE:
                check_publish(local, check, before, buffer_slice(&check->output), clock_mono_ms());
                break;
            case CHECK_DO_DEREGISTER: deregister(local, check); break;
        }
    }
    return NULL;
}

/* Cancels an attempt when the check's definition has changed meanwhile, because its result says nothing about the new
 * definition. */
static void watcher_restart(struct watcher *watcher) {
    if (!watcher->run || !watcher->check || watcher->check->core.running) return;
    run_cancel(watcher->run);
    watcher->run = NULL;
}

/* The configuration may forbid a check that was saved while it was still permitted: the check stays, critical, and no
 * program is run. */
static struct run *begin(struct watcher *watcher, const struct check_definition *definition, bool from_file) {
    struct local *local = watcher->local;
    struct fault fault = {0};
    if (check_definition_permit(definition, &local->config.permission, from_file, &fault) != CO_OK) {
        return run_refused_start(&local->runners, fault.text, on_result, watcher);
    }
    return run_start(&local->runners, definition, output_most(local, definition), on_result, watcher);
}

static void watcher_act(struct watcher *watcher) {
    struct local *local = watcher->local;
    uint64_t now = clock_mono_ns(), next;
    local_lock(local);
    watcher_restart(watcher);
    struct check_shared *shared = decide(watcher, now, &next);
    bool persist = watcher->check && watcher->check->item.persist;
    local_unlock(local);
    if (shared) {
        CHECK(watcher->run == NULL);
        watcher->run = begin(watcher, shared->definition, !persist);
        check_shared_drop(shared);
        local_lock(local); /* when to look next, now that it runs */
        shared = decide(watcher, now, &next);
        local_unlock(local);
        CHECK(shared == NULL);
    }
    arm(watcher, next, now);
}

static void on_closed(uv_handle_t *handle) {
    struct watcher *watcher = handle->data;
    struct local *local = watcher->local;
    free(watcher);
    local_part_closed(local);
}

static void watcher_close(struct watcher *watcher) {
    run_cancel(watcher->run);
    watcher->run = NULL;
    watcher->local->closing++;
    uv_close((uv_handle_t *)&watcher->timer, on_closed);
}

static struct watcher *watcher_new(struct local *local) {
    struct watcher *watcher = mem_zalloc(sizeof *watcher);
    watcher->local = local;
    uv_timer_init(local->loop, &watcher->timer);
    watcher->timer.data = watcher;
    return watcher;
}

void watchers_refresh(struct local *local) {
    for (;;) {
        local_lock(local);
        if (list_empty(&local->restarts)) break;
        struct local_check *check = LIST_ENTRY(local->restarts.next, struct local_check, restart);
        struct watcher *watcher = check->watcher;
        list_remove(&check->restart);
        if (check->item.removed) {
            check->watcher = NULL;
            item_release(local, &check->item);
            local_unlock(local);
            if (watcher) {
                watcher->check = NULL;
                watcher_close(watcher);
            }
            continue;
        }
        bool wanted = !check->is_maintenance;
        if (wanted && !watcher) {
            watcher = check->watcher = watcher_new(local);
            watcher->check = check;
        }
        local_unlock(local);
        if (watcher) watcher_act(watcher);
    }
    local_unlock(local);
}

void watchers_close(struct local *local) {
    for (size_t i = 0; i < local->checks.count; i++) {
        struct local_check *check = as_check(local->checks.items[i]);
        if (!check->watcher) continue;
        check->watcher->check = NULL;
        watcher_close(check->watcher);
        check->watcher = NULL;
    }
}
