/* Many threads register, update, look and deregister while writes get lost: in the end the catalog equals the agent. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "fake_agent.h"
#include "health/definition.h"
#include "looks.h"

#define THREADS 4

struct worker {
    struct agent *agent;
    int number;
    pthread_t thread;
};

struct waited {
    struct local_waiter waiter;
    _Atomic int error; /* -1: not yet */
};

static void on_waited(struct local_waiter *waiter, int error) {
    CONTAINER_OF(waiter, struct waited, waiter)->error = error;
}

static void register_one(struct agent *agent, const char *id) {
    char text[200];
    struct fault fault = {0};
    snprintf(text, sizeof text,
             "{\"Name\":\"%s\",\"Checks\":[{\"TTL\":\"60s\"},{\"TCP\":\"127.0.0.1:1\",\"Interval\":\"1s\"}]}", id);
    struct json_object *json = json_parse(slice_text(text), &fault);
    struct service_definition *definition = json ? service_definition_parse(json, &fault) : NULL;
    CHECK(definition != NULL);
    json_object_put(json);
    CHECK(local_service_register(agent->local, definition, false, true, &fault) == CO_OK);
}

static void look_around(struct agent *agent) {
    struct arena arena = {0};
    Pb__Check **checks;
    Pb__Service **services;
    (void)local_checks(agent->local, &arena, &checks);
    (void)local_services(agent->local, &arena, &services);
    arena_free(&arena);
}

static void *worker_main(void *data) {
    struct worker *worker = data;
    struct agent *agent = worker->agent;
    for (int i = 0; i < 60; i++) {
        char id[40], check[60];
        snprintf(id, sizeof id, "s%d", (worker->number * 7 + i) % 40);
        snprintf(check, sizeof check, "service:%s:1", id);
        register_one(agent, id);
        struct waited waited = {.waiter.done = on_waited, .error = -1};
        if (i % 4 == 0) local_on_synced(agent->local, &waited.waiter, 50);
        (void)local_check_update(agent->local, slice_text(check), (Pb__Status)(i % 3), slice_text(id), NULL);
        if (i % 5 == 0) local_service_deregister(agent->local, slice_text(id));
        look_around(agent);
        while (i % 4 == 0 && waited.error < 0) usleep(500);
    }
    return NULL;
}

static void compare(struct agent *agent) {
    struct arena arena = {0};
    Pb__Service **services;
    Pb__Check **checks;
    size_t service_count = local_services(agent->local, &arena, &services);
    size_t check_count = local_checks(agent->local, &arena, &checks);
    CHECK(look_count(agent->rpc, FAKE_AGENT_NODE) == service_count + check_count + 2);
    for (size_t i = 0; i < check_count; i++) {
        const Pb__Check *stored = look_check(agent->rpc, &arena, FAKE_AGENT_NODE, checks[i]->check_id);
        CHECK(stored && stored->status == checks[i]->status);
    }
    arena_free(&arena);
}

int main(void) {
    struct agent *agent = agent_new(true);
    struct worker workers[THREADS];
    fake_rpc_lose(agent->rpc, 3, true);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.agent = agent, .number = i};
        CHECK(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(workers[i].thread, NULL);
    uint64_t end = clock_mono_ms() + 60000;
    while (!local_synced(agent->local)) {
        CHECK(clock_mono_ms() < end);
        usleep(2000);
    }
    compare(agent);
    agent_stop(agent);
    agent_start(agent);
    while (!local_synced(agent->local)) {
        CHECK(clock_mono_ms() < end);
        usleep(2000);
    }
    compare(agent);
    agent_free(agent);
    return 0;
}
