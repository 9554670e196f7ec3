/* Our copy of another region, followed over real servers: three of ours, and one of a region that is copied.
 * The first copy, changes, a link that is down, a region that is founded anew under the same name, the end at any moment.
 * A plain main: runs under the sanitizers. With an argument it measures 10,000 instances instead: the first copy, 100
 * changes a second, a catch-up. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "multi-dc/copy_age.h"
#include "multi-dc/follower_run.h"
#include "rpc/core/rpc_internal.h"
#include "tests/lib/servers.h"

enum { MANY = 1300, IN_BATCH = 100 };
enum { SERVERS = 3 };
static struct server own[SERVERS], far, other;
static struct follower_run *all[SERVERS]; /* one on each of our servers, and its loop */
static struct rpc_reader *reader;

static void turn(void) { usleep(1000); }

static char *text(const char *constant) { return (char *)(uintptr_t)constant; }

static void register_many(struct server *server, const char *service, unsigned count, uint32_t port) {
    for (unsigned from = 0; from < count; from += IN_BATCH) {
        Pb__CatalogBatchCommand batch = PB__CATALOG_BATCH_COMMAND__INIT;
        Pb__RegisterCommand commands[IN_BATCH], *list[IN_BATCH];
        Pb__Node nodes[IN_BATCH];
        Pb__Service services[IN_BATCH];
        char names[IN_BATCH][16];
        for (unsigned i = 0; i < IN_BATCH && from + i < count; i++) {
            snprintf(names[i], sizeof names[i], "n%u", from + i);
            pb__register_command__init(&commands[i]), pb__node__init(&nodes[i]), pb__service__init(&services[i]);
            nodes[i].name = names[i], nodes[i].address = text("10.0.0.1");
            services[i].name = services[i].id = text(service), services[i].port = port;
            commands[i].node = &nodes[i], commands[i].service = &services[i];
            list[batch.n_registers++] = &commands[i];
        }
        batch.registers = list;
        CHECK(server_write(server, CATALOG_BATCH, &batch.base) == CO_OK);
    }
}

/* Instances in our copy that are on the port. */
static size_t copied(const char *service, uint32_t port) {
    Pb__GlobalServiceRequest request = PB__GLOBAL_SERVICE_REQUEST__INIT;
    struct arena arena = {0};
    struct query_result result;
    size_t count = 0;
    request.service = text(service);
    CHECK(rpc_query(reader, &query_global_service, &request.base, NULL, &arena, &result) == CO_OK);
    const Pb__GlobalServiceResult *found = (const Pb__GlobalServiceResult *)result.message;
    for (size_t i = 0; i < found->n_regions; i++)
        for (size_t j = 0; j < found->regions[i]->n_entries; j++)
            count += found->regions[i]->entries[j]->service->port == port;
    rpc_read_end(reader);
    arena_free(&arena);
    return count;
}

static uint64_t until_copied(const char *service, uint32_t port, size_t count) {
    uint64_t began = clock_mono_ms();
    while (copied(service, port) != count) {
        CHECK(clock_mono_ms() - began < 60000);
        turn();
    }
    return clock_mono_ms() - began;
}

/* Runs something for the follower of a server on that server's loop, and waits until it has run. */
struct job {
    struct loop_task task;
    void (*run)(unsigned number, void *data);
    unsigned number;
    void *data;
    uv_sem_t done;
};
static void job_run(struct loop_task *task) {
    struct job *job = CONTAINER_OF(task, struct job, task);
    job->run(job->number, job->data);
    uv_sem_post(&job->done);
}
static void on_each(void (*run)(unsigned number, void *data), void *data) {
    for (unsigned i = 0; i < SERVERS; i++) {
        struct job job = {.run = run, .number = i, .data = data};
        CHECK(uv_sem_init(&job.done, 0) == 0);
        rpc_on_loop(own[i].rpc, &job.task, job_run);
        uv_sem_wait(&job.done);
        uv_sem_destroy(&job.done);
    }
}

static void start_one(unsigned number, void *data) {
    struct server *region = data, *server = &own[number];
    all[number] = follower_run_start(&server->loop, server->rpc, follow_catalog("far"), "region=far");
    follower_run_linked(all[number], region->rpc, true);
}
static void start(struct server *region) { on_each(start_one, region); }

static void stop_one(unsigned number, void *data) {
    (void)data;
    follower_run_stop(all[number]);
}
static void stop(void) { on_each(stop_one, NULL); }

static void link_one(unsigned number, void *data) { follower_run_linked(all[number], far.rpc, *(bool *)data); }
static void link_all(bool linked) { on_each(link_one, &linked); }

/* The oldest of what the servers have, and how many lead. */
struct ages {
    uint64_t oldest_ms;
    unsigned leaders;
};
static void age_one(unsigned number, void *data) {
    struct ages *ages = data;
    struct follower_state state;
    uint64_t age_ms = follower_run_age_ms(all[number]);
    follower_run_state(all[number], &state);
    ages->leaders += state.leads;
    if (age_ms > ages->oldest_ms) ages->oldest_ms = age_ms;
}
static uint64_t age_ms(unsigned *leaders) {
    struct ages ages = {0};
    on_each(age_one, &ages);
    *leaders = ages.leaders;
    return ages.oldest_ms;
}

static void follows(void) {
    unsigned leaders;
    start(&far);
    printf("first copy of %d instances: %d ms\n", MANY, (int)until_copied("web", 80, MANY));
    register_many(&far, "db", 1, 5432);
    printf("one change: %d ms\n", (int)until_copied("db", 5432, 1));
    uint64_t began = clock_mono_ms();
    while (age_ms(&leaders) > 3 * COPY_AGE_HEARTBEAT_MS || leaders != 1) { /* each knows how old its own is */
        CHECK(clock_mono_ms() - began < 30000);
        turn();
    }
    link_all(false);
    register_many(&far, "db", 1, 5433);
    while (age_ms(&leaders) < 2 * COPY_AGE_HEARTBEAT_MS) turn();
    CHECK(copied("db", 5432) == 1 && copied("db", 5433) == 0);
    link_all(true);
    (void)until_copied("db", 5433, 1);
    (void)until_copied("db", 5432, 0);
    stop();
}

/* Another cluster takes the name: all that it does not have goes. */
static void another_cluster(void) {
    start(&other);
    (void)until_copied("web", 80, 0);
    CHECK(copied("db", 5433) == 0 && copied("web", 81) == 10);
    stop();
}

/* The end comes whatever is under way. */
static void stops_at_any_moment(void) {
    for (unsigned i = 0; i < 20; i++) {
        start(i % 2 ? &far : &other);
        for (unsigned turns = 3 * i; turns > 0; turns--) turn();
        stop();
    }
}

/* -- figures ------------------------------------------------------------------------------------------------------ */

static uint64_t cpu_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Their port changes, one command each, so many a second (0: at once). */
static void change_each(unsigned count, uint32_t port, unsigned a_second) {
    uint64_t began = clock_mono_ms();
    for (unsigned i = 0; i < count; i++) {
        Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
        Pb__Node node = PB__NODE__INIT;
        Pb__Service service = PB__SERVICE__INIT;
        char name[16];
        snprintf(name, sizeof name, "n%u", i);
        node.name = name, node.address = text("10.0.0.1");
        service.name = service.id = text("web"), service.port = port;
        command.node = &node, command.service = &service;
        CHECK(server_write(&far, CATALOG_REGISTER, &command.base) == CO_OK);
        while (a_second && clock_mono_ms() - began < (uint64_t)i * 1000 / a_second) turn();
    }
}

static void measure(void) {
    enum { INSTANCES = 10000, SECONDS = 10, RATE = 100 };
    register_many(&far, "web", INSTANCES, 80);
    start(&far);
    printf("first copy of %d: %d ms\n", INSTANCES, (int)until_copied("web", 80, INSTANCES));
    uint64_t cpu[2];
    for (uint32_t with = 0; with < 2; with++) {
        link_all(with);
        (void)until_copied("web", 80 + with, with ? RATE * SECONDS : INSTANCES);
        uint64_t before = cpu_ms();
        change_each(RATE * SECONDS, 81 + with, RATE);
        cpu[with] = cpu_ms() - before;
    }
    printf("%d changes a second: %.2f %% of a core for following, both sides\n", RATE,
           (double)(cpu[1] - cpu[0]) / SECONDS / 10);
    link_all(false);
    change_each(INSTANCES, 90, 0);
    link_all(true);
    printf("catch-up of %d changes: %d ms\n", INSTANCES, (int)until_copied("web", 90, INSTANCES));
    stop();
}

static void test(void) {
    register_many(&far, "web", MANY, 80);
    register_many(&other, "web", 10, 81);
    follows();
    another_cluster();
    stops_at_any_moment();
}

int main(int count, char **arguments) {
    (void)arguments;
    log_level_set(LOG_WARN);
    servers_start(own, SERVERS, 3); /* elections are not what is looked at */
    servers_start(&far, 1, 1);
    servers_start(&other, 1, 1);
    reader = rpc_reader_new(own[0].rpc);
    if (count > 1) measure();
    else test();
    rpc_reader_free(reader);
    servers_stop(&far, 1); /* first, because its thread gives the ends of cancelled questions to those who asked */
    servers_stop(&other, 1);
    servers_stop(own, SERVERS);
    return 0;
}
