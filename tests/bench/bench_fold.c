/* How long the applier takes for the entry that raises the cluster version to that of names without case (registry/fold.h), in a catalog of
 * 100,000 instances with a check each on 10,000 nodes: with names that are folded already, with capitals in all of them, and with every
 * node there twice. Prints one line each: wall time. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/modules.h"
#include "base/check.h"
#include "base/log.h"
#include "registry/catalog.h"
#include "registry/lease.h"
#include "registry/version.h"

enum { NODES = 10000, SERVICES = 10 };

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void done(void *data, void *origin, const struct machine_result *result) {
    (void)data, (void)origin;
    CHECK(result->error == CO_OK && result->yes);
}

static void apply(struct machine *machine, uint8_t type, const ProtobufCMessage *const *messages, size_t count) {
    enum { MOST = 16 };
    struct buffer bytes[MOST] = {{0}};
    struct machine_input inputs[MOST];
    CHECK(count <= MOST);
    for (size_t i = 0; i < count; i++) {
        machine_command(&bytes[i], type, messages[i]);
        inputs[i] = (struct machine_input){.index = machine_applied(machine) + 1 + i,
                                           .term = 1,
                                           .command = buffer_slice(&bytes[i]),
                                           .is_command = true};
    }
    CHECK(machine_apply(machine, inputs, count, done, NULL, NULL) == CO_OK);
    for (size_t i = 0; i < count; i++) buffer_free(&bytes[i]);
}

static void node_with(struct machine *machine, const char *format, unsigned number, unsigned from) {
    char node[32], ids[SERVICES][32], names[SERVICES][32], checks[SERVICES][32], address[] = "10.0.0.1";
    Pb__RegisterCommand commands[SERVICES];
    Pb__Node record = PB__NODE__INIT;
    Pb__Service services[SERVICES];
    Pb__Check records[SERVICES], *lists[SERVICES];
    const ProtobufCMessage *messages[SERVICES];
    snprintf(node, sizeof node, format, number);
    record.name = node, record.address = address;
    for (unsigned i = 0; i < SERVICES; i++) {
        pb__register_command__init(&commands[i]);
        pb__service__init(&services[i]);
        pb__check__init(&records[i]);
        snprintf(ids[i], sizeof ids[i], format, from + i);
        snprintf(names[i], sizeof names[i], format, (number * SERVICES + i) % 1000);
        snprintf(checks[i], sizeof checks[i], format, 100 + from + i);
        services[i].id = ids[i], services[i].name = names[i], services[i].port = 80;
        records[i].check_id = checks[i], records[i].service_id = ids[i];
        lists[i] = &records[i];
        commands[i].node = &record, commands[i].service = &services[i];
        commands[i].checks = &lists[i], commands[i].n_checks = 1;
        messages[i] = &commands[i].base;
    }
    apply(machine, CATALOG_REGISTER, messages, SERVICES);
}

static void bench(const char *what, const char *base, const char *format, const char *other) {
    char folder[512];
    struct machine *machine;
    struct fault fault = {0};
    snprintf(folder, sizeof folder, "%s/bench-fold-XXXXXX", base);
    CHECK(mkdtemp(folder));
    struct machine_config config = {.store = {.folder = folder}, .modules = agent_modules};
    CHECK(machine_open(&config, &machine, &fault) == CO_OK);
    for (unsigned i = 0; i < (other ? NODES / 2 : NODES); i++) {
        node_with(machine, format, i, 0);
        if (other) node_with(machine, other, i, SERVICES);
    }
    Pb__ClusterVersionCommand version = PB__CLUSTER_VERSION_COMMAND__INIT;
    version.version = MACHINE_VERSION_NEWEST, version.cluster_id = 1;
    const ProtobufCMessage *message = &version.base;
    double begun = now_ms();
    apply(machine, CLUSTER_VERSION, &message, 1);
    printf("%-64s %9.0f ms\n", what, now_ms() - begun);
    machine_close(machine);
    static const char *const names[] = {"data.mdb", "data.mdb-lock", "lock", "marker"};
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
    bench("100,000 instances, names in small letters", base, "name-%05u", NULL);
    bench("100,000 instances, names with capitals", base, "Name-%05u", NULL);
    bench("100,000 instances, each node in two spellings", base, "Name-%05u", "name-%05u");
    return 0;
}
