/* The cost of the history for the applier: CPU for a put of 100 bytes with a full history of 100,000 rows and without
 * one, in turns; and how long the entries take that remove all of them, HISTORY_STEP at a time. Batches of 16, 10,000
 * keys. An argument: the folder. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/modules.h"
#include "base/check.h"
#include "base/log.h"
#include "kv/keys/kv.h"
#include "registry/history.h"
#include "registry/tables.h"
#include "registry/version.h"
#include "tests/bench/cpu.h"

enum { KEYS = 10000, BATCH = 16, ROUND = 64000, ROUNDS = 5 };

static struct machine *machines[2]; /* without, with */
static char folders[2][512];
static uint64_t written;

static void done(void *data, void *origin, const struct machine_result *result) {
    (void)data, (void)origin;
    CHECK(result->error == CO_OK && result->yes);
}

static void apply(struct machine *machine, uint8_t type, const ProtobufCMessage *message) {
    struct buffer bytes = {0};
    machine_command(&bytes, type, message);
    struct machine_input input = {
        .index = machine_applied(machine) + 1, .term = 1, .command = buffer_slice(&bytes), .is_command = true};
    CHECK(machine_apply(machine, &input, 1, done, NULL, NULL) == CO_OK);
    buffer_free(&bytes);
}

static void mark(struct machine *machine, int64_t now_unix_ms, uint64_t changes) {
    Pb__HistoryMarkCommand command = PB__HISTORY_MARK_COMMAND__INIT;
    Pb__HistoryLimits limits = PB__HISTORY_LIMITS__INIT;
    limits.changes = changes, limits.bytes = HISTORY_BYTES, limits.age_ms = HISTORY_AGE_MS;
    command.term = 1, command.now_unix_ms = now_unix_ms, command.limits = &limits;
    apply(machine, HISTORY_MARK, &command.base);
}

static struct machine *open_one(char folder[512], const char *base, uint64_t changes) {
    struct machine *machine;
    struct fault fault = {0};
    snprintf(folder, 512, "%s/bench-history-XXXXXX", base);
    CHECK(mkdtemp(folder));
    struct machine_config config = {.store = {.folder = folder}, .modules = agent_modules};
    CHECK(machine_open(&config, &machine, &fault) == CO_OK);
    Pb__ClusterVersionCommand raise = PB__CLUSTER_VERSION_COMMAND__INIT;
    raise.version = MACHINE_VERSION_NEWEST, raise.cluster_id = 7;
    apply(machine, CLUSTER_VERSION, &raise.base);
    mark(machine, 1000, changes);
    return machine;
}

/* CPU in us, for one. */
static double puts_of(struct machine *machine, unsigned count) {
    struct buffer bytes[BATCH] = {{0}};
    struct machine_input inputs[BATCH];
    uint64_t spent = 0;
    char key[24], value[101];
    for (unsigned i = 0; i < count; i += BATCH) {
        for (unsigned j = 0; j < BATCH; j++) {
            Pb__KvCommand command = PB__KV_COMMAND__INIT;
            int size = snprintf(key, sizeof key, "bench/%llu", (unsigned long long)(written * 7919 % KEYS));
            snprintf(value, sizeof value, "%0100llu", (unsigned long long)written++);
            command.key = (ProtobufCBinaryData){(size_t)size, (uint8_t *)key};
            command.value = (ProtobufCBinaryData){100, (uint8_t *)value};
            buffer_reset(&bytes[j]);
            machine_command(&bytes[j], KV_APPLY, &command.base);
            inputs[j] = (struct machine_input){.index = machine_applied(machine) + 1 + j,
                                               .term = 1,
                                               .command = buffer_slice(&bytes[j]),
                                               .is_command = true};
        }
        uint64_t begun = cpu_ns();
        CHECK(machine_apply(machine, inputs, BATCH, done, NULL, NULL) == CO_OK);
        spent += cpu_ns() - begun;
    }
    for (unsigned j = 0; j < BATCH; j++) buffer_free(&bytes[j]);
    return (double)spent / 1e3 / count;
}

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static uint64_t rows(struct machine *machine) {
    struct store_reader *reader = store_reader_new(machine_store(machine));
    uint64_t count = store_count(store_read(reader), TABLE_HISTORY) - 1;
    store_read_done(reader);
    store_reader_free(reader);
    return count;
}

static void remove_all(struct machine *machine) {
    double longest = 0, longest_cpu = 0, all = 0;
    unsigned entries = 0;
    uint64_t before = rows(machine);
    mark(machine, 1000000, HISTORY_CHANGES);
    for (int64_t now = 3000000; rows(machine) > 0; now += 1000000, entries++) {
        double begun = now_ms();
        uint64_t spent = cpu_ns();
        mark(machine, now, HISTORY_CHANGES);
        double took = now_ms() - begun, cpu = (double)(cpu_ns() - spent) / 1e6;
        all += took;
        if (took > longest) longest = took;
        if (cpu > longest_cpu) longest_cpu = cpu;
    }
    printf("removal of %llu rows: %u entries, %.2f ms the mean, %.2f ms the longest, %.2f ms of CPU the longest\n",
           (unsigned long long)before, entries, all / entries, longest, longest_cpu);
}

static void close_one(struct machine *machine, const char *folder) {
    static const char *const names[] = {"data.mdb", "data.mdb-lock", "lock", "marker"};
    machine_close(machine);
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

int main(int argc, char **argv) {
    const char *base = argc > 1 ? argv[1] : "/tmp";
    log_level_set(LOG_ERROR);
    for (unsigned i = 0; i < 2; i++) {
        machines[i] = open_one(folders[i], base, i ? HISTORY_CHANGES : 0);
        puts_of(machines[i], 2 * ROUND);
    }
    for (unsigned round = 0; round < ROUNDS; round++)
        for (unsigned i = 0; i < 2; i++) {
            unsigned which = (round + i) % 2;
            printf("put, history %s: %.2f us\n", which ? "on" : "off", puts_of(machines[which], ROUND));
        }
    for (unsigned i = 0; i < 5; i++) {
        remove_all(machines[1]);
        puts_of(machines[1], 7 * ROUND / 4);
    }
    for (unsigned i = 0; i < 2; i++) close_one(machines[i], folders[i]);
    return 0;
}
