/* CPU of the state machine: registrations in batches, health queries, waking. Prints one line each. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/modules.h"
#include "base/check.h"
#include "base/random.h"
#include "registry/catalog.h"
#include "registry/version.h"
#include "tests/bench/cpu.h"

enum { NODES = 1000 };

static struct machine *machine;

static void print(const char *what, uint64_t spent, uint64_t count) {
    printf("%-64s %9.2f us\n", what, (double)spent / (double)count / 1000.0);
}

/* -- registrations ------------------------------------------------------------------------------------------------ */

static void encode(struct buffer *out, unsigned node, const char *service, Pb__Status status, unsigned port) {
    char name[32], address[32], id[64], check_id[80];
    snprintf(name, sizeof name, "node-%04u", node);
    snprintf(address, sizeof address, "10.1.%u.%u", node / 250, node % 250);
    snprintf(id, sizeof id, "%s-1", service);
    snprintf(check_id, sizeof check_id, "service:%s", id);
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node record = PB__NODE__INIT;
    Pb__Service instance = PB__SERVICE__INIT;
    Pb__Check check = PB__CHECK__INIT, *checks[] = {&check};
    Pb__Pair pairs[2] = {PB__PAIR__INIT, PB__PAIR__INIT}, *meta[] = {&pairs[0], &pairs[1]};
    char *tags[] = {"primary", "v1"};
    pairs[0].key = "version";
    pairs[0].value = "1.2.3";
    pairs[1].key = "zone";
    pairs[1].value = "a";
    record.name = name;
    record.address = address;
    record.datacenter = "dc1";
    instance.id = id;
    instance.name = (char *)(uintptr_t)service;
    instance.address = address;
    instance.port = port;
    instance.tags = tags;
    instance.n_tags = 2;
    instance.meta = meta;
    instance.n_meta = 2;
    instance.weight_passing = instance.weight_warning = 1;
    check.check_id = check_id;
    check.name = "http";
    check.status = status;
    check.service_id = id;
    check.output = (ProtobufCBinaryData){16, (uint8_t *)"HTTP GET: 200 OK"};
    check.type = "http";
    command.node = &record;
    command.service = &instance;
    command.checks = checks;
    command.n_checks = 1;
    machine_command(out, CATALOG_REGISTER, &command.base);
}

static void expect_ok(void *data, void *origin, const struct machine_result *result) {
    (void)data, (void)origin;
    CHECK(result->error == CO_OK && result->yes);
}

static uint64_t apply(struct buffer *commands, size_t count) {
    struct machine_input inputs[64];
    for (size_t i = 0; i < count; i++) {
        inputs[i] = (struct machine_input){.index = machine_applied(machine) + 1 + i,
                                           .term = 1,
                                           .command = buffer_slice(&commands[i]),
                                           .is_command = true};
    }
    uint64_t before = cpu_ns();
    CHECK(machine_apply(machine, inputs, count, expect_ok, NULL, NULL) == CO_OK);
    return cpu_ns() - before;
}

/* `mode`: 0 new instances, 1 the same again, 2 another port, 3 a check flips. */
static void bench_registers(const char *what, size_t batch, int mode, unsigned round) {
    struct buffer commands[64] = {{0}};
    struct rng rng;
    rng_seed(&rng, batch);
    uint64_t spent = 0, count = 0;
    for (unsigned turn = 0; count < 12800; turn++) {
        for (size_t i = 0; i < batch; i++, count++) {
            char service[32];
            unsigned node = (unsigned)rng_below(&rng, NODES);
            snprintf(service, sizeof service, mode == 0 ? "new%u-%u" : "svc%03u", mode == 0 ? round : node % 200,
                     turn % 16);
            buffer_reset(&commands[i]);
            encode(&commands[i], node, service,
                   mode == 3 && rng_below(&rng, 2) ? PB__STATUS__CRITICAL : PB__STATUS__PASSING,
                   mode == 2 ? (unsigned)rng_below(&rng, 60000) : 8080);
        }
        spent += apply(commands, batch);
    }
    char line[96];
    snprintf(line, sizeof line, "register, %s, batch of %zu", what, batch);
    print(line, spent, count);
    for (int i = 0; i < 64; i++) buffer_free(&commands[i]);
}

static void fill(void) {
    struct buffer command = {0};
    Pb__ClusterVersionCommand version = PB__CLUSTER_VERSION_COMMAND__INIT;
    version.version = MACHINE_VERSION_NEWEST, version.cluster_id = 1;
    machine_command(&command, CLUSTER_VERSION, &version.base);
    apply(&command, 1);
    buffer_reset(&command);
    for (unsigned node = 0; node < NODES; node++) {
        char service[32];
        snprintf(service, sizeof service, "svc%03u", node % 200);
        encode(&command, node, service, PB__STATUS__PASSING, 8080);
        apply(&command, 1);
        buffer_reset(&command);
        if (node < 100) {
            encode(&command, node, "hundred", PB__STATUS__PASSING, 80);
            apply(&command, 1);
            buffer_reset(&command);
        }
        if (node < 10) {
            encode(&command, node, "ten", PB__STATUS__PASSING, 80);
            apply(&command, 1);
            buffer_reset(&command);
        }
    }
    buffer_free(&command);
}

/* -- queries ------------------------------------------------------------------------------------------------------ */

static void bench_query(const char *what, const struct query_type *type, const ProtobufCMessage *request,
                        size_t times) {
    struct store_reader *reader = store_reader_new(machine_store(machine));
    struct arena arena = {0};
    uint64_t before = cpu_ns();
    for (size_t i = 0; i < times; i++) {
        struct query_result result;
        CHECK(type->run(store_read(reader), request, &arena, &result) == CO_OK && result.index > 0);
        store_read_done(reader);
        arena_reset(&arena);
    }
    print(what, cpu_ns() - before, times);
    arena_free(&arena);
    store_reader_free(reader);
}

static void bench_queries(void) {
    Pb__ServiceRequest service = PB__SERVICE_REQUEST__INIT;
    Pb__NodeRequest node = PB__NODE_REQUEST__INIT;
    Pb__TableRequest table = PB__TABLE_REQUEST__INIT;
    service.service = "ten";
    bench_query("health of a service with 10 instances", &query_service_entries, &service.base, 5000);
    service.service = "hundred";
    bench_query("health of a service with 100 instances", &query_service_entries, &service.base, 1000);
    node.node = "node-0005";
    bench_query("services of a node", &query_node_services, &node.base, 10000);
    bench_query("names and tags of all services", &query_services, &table.base, 200);
    bench_query("all 1,000 nodes", &query_nodes, &table.base, 200);
}

/* -- watches ------------------------------------------------------------------------------------------------------ */

static size_t fired;
static void count(struct watch_waiter *waiter) {
    (void)waiter;
    fired++;
}

static long rss_kib(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%*s %ld", &pages) == 1);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void bench_watches(bool one_thing) {
    enum { WAITERS = 10000 };
    struct watch_table *table = watch_table_new();
    struct watch_waiter *waiters = malloc(WAITERS * sizeof *waiters);
    CHECK(waiters);
    memset(waiters, 0, WAITERS * sizeof *waiters);
    struct watch_touched touched = {0};
    size_t before_bytes = mallinfo2().uordblks;
    uint64_t before = cpu_ns();
    for (size_t i = 0; i < WAITERS; i++) {
        char name[32];
        int size = snprintf(name, sizeof name, "service-%zu", one_thing ? 0 : i);
        struct watch_key watched = {3, slice_make(name, (size_t)size)};
        watch_add(table, &waiters[i], watched, count);
    }
    print(one_thing ? "add a waiter, 10,000 on one thing" : "add a waiter, 10,000 on one thing each", cpu_ns() - before,
          WAITERS);
    printf("%-64s %9.0f bytes\n", "  memory of each beyond its struct",
           (double)(mallinfo2().uordblks - before_bytes) / WAITERS);
    for (size_t i = 0; i < (one_thing ? 1 : WAITERS); i++) {
        char name[32];
        int size = snprintf(name, sizeof name, "service-%zu", i);
        watch_touch(&touched, (struct watch_key){3, slice_make(name, (size_t)size)});
    }
    fired = 0;
    before = cpu_ns();
    watch_bump(table, &touched);
    watch_wake(table, &touched);
    print(one_thing ? "wake all 10,000" : "wake all 10,000, one each", cpu_ns() - before, 1);
    CHECK(fired == WAITERS);
    for (size_t i = 0; i < WAITERS; i++) watch_remove(table, &waiters[i]);
    watch_touched_free(&touched);
    watch_table_free(table);
    free(waiters);
}

int main(int argc, char **argv) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s/bench-machine-XXXXXX", argc > 1 ? argv[1] : "/tmp");
    CHECK(mkdtemp(folder));
    struct machine_config config = {.store = {.folder = folder}, .modules = agent_modules};
    struct fault fault = {0};
    long before_kib = rss_kib();
    CHECK(machine_open(&config, &machine, &fault) == CO_OK);
    printf("%-64s %9ld KiB\n", "memory of an empty store", rss_kib() - before_kib);
    fill();
    const size_t batches[] = {1, 16, 64};
    for (unsigned i = 0; i < 3; i++) bench_registers("new instance", batches[i], 0, i);
    for (unsigned i = 0; i < 3; i++) bench_registers("nothing changed", batches[i], 1, i);
    for (unsigned i = 0; i < 3; i++) bench_registers("another port", batches[i], 2, i);
    for (unsigned i = 0; i < 3; i++) bench_registers("its check flips", batches[i], 3, i);
    bench_queries();
    bench_watches(true);
    bench_watches(false);
    machine_close(machine);
    const char *const names[] = {"data.mdb", "data.mdb-lock", "lock", "marker"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
    return 0;
}
