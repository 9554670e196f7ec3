/* CPU of the applier when nodes die: the end of a lease of a node with 50 services, with and without self-preservation;
 * 10,000 instances of one service on 1,000 nodes that die together, the end at which self-preservation acts included. Prints
 * one line each. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/modules.h"
#include "base/check.h"
#include "base/text.h"
#include "registry/lease.h"
#include "registry/self_preservation.h"
#include "registry/version.h"
#include "tests/bench/cpu.h"

enum { NODES = 1000 };

static struct machine *machine;

static void done(void *data, void *origin, const struct machine_result *result) {
    (void)data, (void)origin;
    CHECK(result->error == CO_OK);
}

/* The time of the transaction with it, its commit included. */
static uint64_t apply(uint8_t type, const ProtobufCMessage *message) {
    struct buffer bytes = {0};
    machine_command(&bytes, type, message);
    struct machine_input input = {
        .index = machine_applied(machine) + 1, .term = 1, .command = buffer_slice(&bytes), .is_command = true};
    uint64_t begun = cpu_ns();
    CHECK(machine_apply(machine, &input, 1, done, NULL, NULL) == CO_OK);
    uint64_t spent = cpu_ns() - begun;
    buffer_free(&bytes);
    return spent;
}

static void lease_of(unsigned node, char id[UUID_TEXT_SIZE + 1]) {
    snprintf(id, UUID_TEXT_SIZE + 1, "%08x-1ea5-4000-8000-000000000000", node);
}

static void node_with(unsigned node, unsigned services, bool one_name) {
    char name[32], id[UUID_TEXT_SIZE + 1], node_id[] = "00000000-0000-4000-8000-000000000000", address[] = "10.0.0.1",
                                           health[] = "serfHealth";
    snprintf(name, sizeof name, "node-%05u", node);
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node record = PB__NODE__INIT;
    Pb__Check check = PB__CHECK__INIT, *checks[] = {&check};
    record.name = name, record.address = address;
    check.check_id = health;
    command.node = &record, command.checks = checks, command.n_checks = 1;
    (void)apply(CATALOG_REGISTER, &command.base);
    Pb__Lease lease = PB__LEASE__INIT;
    Pb__LeaseGrantCommand grant = PB__LEASE_GRANT_COMMAND__INIT;
    lease_of(node, id);
    lease.id = id, lease.node = name, lease.node_id = node_id, lease.ttl_ns = 10000000000;
    grant.lease = &lease;
    (void)apply(LEASE_GRANT, &grant.base);
    command.skip_node_update = true;
    for (unsigned i = 0; i < services; i++) {
        char service[32], instance[48], check_id[64];
        snprintf(service, sizeof service, "svc-%u", one_name ? 0 : i);
        snprintf(instance, sizeof instance, "svc-%u-%u", i, node);
        snprintf(check_id, sizeof check_id, "service:%s", instance);
        Pb__Service entry = PB__SERVICE__INIT;
        Pb__Check own = PB__CHECK__INIT;
        entry.name = service, entry.id = instance;
        own.check_id = check_id, own.service_id = instance;
        checks[0] = &own;
        command.service = &entry;
        (void)apply(CATALOG_REGISTER, &command.base);
    }
}

static void die(const char *what, unsigned services, bool one_name, unsigned nodes, uint64_t hold_ms) {
    char folder[] = "/tmp/coord-bench-preservation-XXXXXX", remove[128];
    CHECK(mkdtemp(folder));
    struct machine_config config = {.store = {.folder = folder, .map_bytes = (uint64_t)2 << 30},
                                    .modules = agent_modules};
    struct fault fault = {0};
    CHECK(machine_open(&config, &machine, &fault) == CO_OK);
    Pb__ClusterVersionCommand version = PB__CLUSTER_VERSION_COMMAND__INIT;
    version.version = MACHINE_VERSION_NEWEST, version.cluster_id = 1;
    (void)apply(CLUSTER_VERSION, &version.base);
    for (unsigned i = 0; i < nodes; i++) node_with(i, services, one_name);
    uint64_t sum = 0, most = 0;
    for (unsigned i = 0; i < nodes; i++) {
        Pb__LeaseEndCommand end = PB__LEASE_END_COMMAND__INIT;
        Pb__PreservationOrder order = PB__PRESERVATION_ORDER__INIT;
        char id[UUID_TEXT_SIZE + 1];
        lease_of(i, id);
        end.id = id, end.term = 1, end.preservation = &order;
        order.at_ms = 1000 + i, order.percent = 85, order.instances = 10, order.nodes = 3, order.window_ms = 15000;
        order.hold_ms = hold_ms;
        uint64_t spent = apply(LEASE_END, &end.base);
        sum += spent;
        if (spent > most) most = spent;
    }
    struct store_reader *reader = store_reader_new(machine_store(machine));
    uint64_t held = preservation_count(store_read(reader));
    store_read_done(reader);
    store_reader_free(reader);
    printf("%-64s %9.1f us each, %9.1f us the longest; %llu held\n", what, (double)sum / nodes / 1000.0,
           (double)most / 1000.0, (unsigned long long)held);
    machine_close(machine);
    snprintf(remove, sizeof remove, "rm -r %s", folder);
    CHECK(system(remove) == 0);
}

int main(void) {
    die("end of a node's lease, 50 services, preservation off", 50, false, 100, 0);
    die("end of a node's lease, 50 services", 50, false, 100, 60000);
    die("end of a node's lease, 10 of 10,000 instances, preservation off", 10, true, NODES, 0);
    die("end of a node's lease, 10 of 10,000 instances", 10, true, NODES, 60000);
    die("end of a node's lease, 3,000 services of its own, preservation off", 3000, false, 12, 0);
    die("end of a node's lease, 3,000 services", 3000, false, 12, 60000);
    return 0;
}
