#include "watchers.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/json_in.h"
#include "web.h"

struct watcher {
    struct watchers *all;
    struct fleet_agent *agent;
    pthread_t thread;
    double *lags_ms;
    size_t count, capacity;
};

struct watchers {
    struct fleet *fleet;
    const char *http;
    _Atomic bool stop;
    unsigned count;
    struct watcher *watchers;
};

static void note(struct watcher *watcher, double lag_ms) {
    if (watcher->count == watcher->capacity) {
        watcher->capacity = watcher->capacity ? watcher->capacity * 2 : 64;
        watcher->lags_ms = mem_realloc(watcher->lags_ms, watcher->capacity * sizeof *watcher->lags_ms);
    }
    watcher->lags_ms[watcher->count++] = lag_ms;
}

static struct fleet_check *check_of(struct fleet_agent *agent, unsigned checks, const char *id) {
    const char *last = strrchr(id, '-');
    unsigned long number = strncmp(id, "c-", 2) == 0 && last ? strtoul(last + 1, NULL, 10) : ULONG_MAX;
    return number < checks ? &agent->checks[number] : NULL;
}

static void look(struct watcher *watcher, struct json_object *checks, uint64_t now_ns) {
    struct fleet_agent *agent = watcher->agent;
    uv_mutex_lock(&agent->lock);
    for (size_t i = 0; i < json_object_array_length(checks); i++) {
        struct json_object *json = json_object_array_get_idx(checks, i);
        struct fleet_check *check =
            check_of(agent, watcher->all->fleet->config.checks, json_object_get_string(json_get(json, "CheckID")));
        unsigned long long number = 0;
        if (!check || !check->changed_ns ||
            sscanf(json_object_get_string(json_get(json, "Output")), "change %llu", &number) != 1)
            continue;
        if (number != check->number) continue;
        note(watcher, (double)(now_ns - check->changed_ns) / 1e6);
        check->changed_ns = 0;
    }
    uv_mutex_unlock(&agent->lock);
}

static void *watch(void *data) {
    struct watcher *watcher = data;
    struct watchers *all = watcher->all;
    struct web *web = web_new(all->http);
    uint64_t index = 0;
    while (!atomic_load(&all->stop)) {
        char path[200];
        snprintf(path, sizeof path, "/v1/health/node/%s?index=%llu&wait=30s", watcher->agent->node,
                 (unsigned long long)index);
        struct json_object *checks = web_get(web, path, &index, &all->stop);
        if (checks) look(watcher, checks, clock_mono_ns());
        else if (!atomic_load(&all->stop)) usleep(100000);
        json_object_put(checks);
    }
    web_free(web);
    return NULL;
}

struct watchers *watchers_start(struct fleet *fleet, const char *http) {
    struct watchers *all = mem_zalloc(sizeof *all);
    all->fleet = fleet, all->http = http;
    all->count = fleet->config.watched < fleet->config.agents ? fleet->config.watched : fleet->config.agents;
    all->watchers = mem_zalloc((all->count + 1) * sizeof *all->watchers);
    for (unsigned i = 0; i < all->count; i++) {
        all->watchers[i].all = all, all->watchers[i].agent = &fleet->agents[i];
        CHECK(pthread_create(&all->watchers[i].thread, NULL, watch, &all->watchers[i]) == 0);
    }
    return all;
}

static int by_value(const void *a, const void *b) {
    double one = *(const double *)a, other = *(const double *)b;
    return one < other ? -1 : one > other;
}

static unsigned not_seen(struct fleet_agent *agent, unsigned checks) {
    unsigned count = 0;
    uv_mutex_lock(&agent->lock);
    for (unsigned i = 0; i < checks; i++) count += agent->checks[i].changed_ns != 0;
    uv_mutex_unlock(&agent->lock);
    return count;
}

unsigned watchers_unseen(struct watchers *all) {
    unsigned count = 0;
    for (unsigned i = 0; i < all->count; i++) count += not_seen(all->watchers[i].agent, all->fleet->config.checks);
    return count;
}

void watchers_stop(struct watchers *all, struct watchers_result *result) {
    struct watcher sum = {0};
    *result = (struct watchers_result){0};
    atomic_store(&all->stop, true);
    for (unsigned i = 0; i < all->count; i++) {
        struct watcher *watcher = &all->watchers[i];
        pthread_join(watcher->thread, NULL);
        for (size_t n = 0; n < watcher->count; n++) note(&sum, watcher->lags_ms[n]);
        result->not_seen += not_seen(watcher->agent, all->fleet->config.checks);
        free(watcher->lags_ms);
    }
    if (sum.count) {
        qsort(sum.lags_ms, sum.count, sizeof *sum.lags_ms, by_value);
        result->watched = (unsigned)sum.count;
        result->median_ms = sum.lags_ms[sum.count / 2], result->p99_ms = sum.lags_ms[sum.count * 99 / 100],
        result->longest_ms = sum.lags_ms[sum.count - 1];
    }
    free(sum.lags_ms);
    free(all->watchers);
    free(all);
}
