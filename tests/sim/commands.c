/* The bytes of clients' writes. Each names its operation, so that it is known in any log: flags of a key, name of a
 * session, port of a service. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "kv/kv.h"
#include "kv/kv_command.h"
#include "kv/session.h"
#include "registry/catalog.h"
#include "registry/fold.h"
#include "registry/lease.h"
#include "registry/version.h"
#include "tests/sim/sim.h"

uint64_t command_sum(const struct raft_entry *entry) {
    struct slice bytes = raft_entry_bytes(entry);
    uint64_t sum = bytes.size ? hash64_seed(bytes.data, bytes.size, entry->type) : (uint64_t)entry->type + 1;
    return sum ? sum : 1;
}

void command_key(uint32_t key, char name[16]) {
    CHECK(key < SIM_KEYS);
    snprintf(name, 16, key < SIM_KEYS - SIM_LOCKS ? "k%u" : "lock%u", key);
}

void command_session(uint64_t op, char id[40]) {
    snprintf(id, 40, "5e550000-0000-4000-8000-%012" PRIx64, op & 0xffffffffffff);
}

uint64_t command_session_op(const char *id) {
    return strlen(id) == 36 && strncmp(id, "5e550000-", 9) == 0 ? strtoull(id + 24, NULL, 16) : 0;
}

void command_lease(uint64_t op, char id[40]) {
    snprintf(id, 40, "1ea50000-0000-4000-8000-%012" PRIx64, op & 0xffffffffffff);
}

uint64_t command_lease_op(const char *id) {
    return strlen(id) == 36 && strncmp(id, "1ea50000-", 9) == 0 ? strtoull(id + 24, NULL, 16) : 0;
}

static struct raft_data *bytes_of(uint8_t type, const ProtobufCMessage *message) {
    struct buffer bytes = {0};
    machine_command(&bytes, type, message);
    struct raft_data *data = raft_data_new(bytes.data, bytes.size);
    buffer_free(&bytes);
    return data;
}

static struct raft_data *make_kv(const struct op *op) {
    static const Pb__KvVerb verbs[] = {
        [OP_PUT] = PB__KV_VERB__KV_SET,   [OP_CAS] = PB__KV_VERB__KV_CAS,       [OP_DELETE] = PB__KV_VERB__KV_DELETE,
        [OP_LOCK] = PB__KV_VERB__KV_LOCK, [OP_UNLOCK] = PB__KV_VERB__KV_UNLOCK, [OP_LEASED] = PB__KV_VERB__KV_SET,
    };
    char key[16], session[40];
    command_key(op->key, key);
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    command.verb = verbs[op->kind];
    command.key = (ProtobufCBinaryData){strlen(key), (uint8_t *)key};
    command.flags = op->id;
    command.index = op->cas;
    if (op->kind == OP_LEASED) {
        command_lease(op->session, session);
        command.lease = session;
    } else if (op->session) {
        command_session(op->session, session);
        command.session = session;
    }
    uint8_t *value = mem_alloc(op->size + 1);
    for (uint32_t i = 0; i < op->size; i++) value[i] = (uint8_t)(op->id * 131 + i);
    command.value = (ProtobufCBinaryData){op->size, value};
    struct raft_data *data = bytes_of(KV_APPLY, &command.base);
    free(value);
    return data;
}

/* Half of the clients write names in capitals, and change their mind now and then: another node each until names are folded
 * (registry/fold.h). */
bool command_in_capitals(const struct op *op) { return (op->client + op->id / 64) % 2; }

static void command_node(const struct op *op, uint32_t node, char name[8]) {
    CHECK(node < SIM_NODES);
    snprintf(name, 8, "%c%u", command_in_capitals(op) ? 'N' : 'n', node);
}

static struct raft_data *make_session(const struct op *op) {
    char id[40], node[8];
    command_session(op->id, id);
    command_node(op, op->key % SIM_NODES, node);
    Pb__Session session = PB__SESSION__INIT;
    session.id = id;
    session.node = node;
    session.ttl_ns = (int64_t)op->ttl_ms * 1000000;
    session.lock_delay_ns = (int64_t)op->delay_ms * 1000000;
    Pb__SessionCreateCommand command = PB__SESSION_CREATE_COMMAND__INIT;
    command.session = &session;
    return bytes_of(SESSION_CREATE, &command.base);
}

static struct raft_data *make_register(const struct op *op) {
    char name[8], address[32];
    command_node(op, op->key % SIM_NODES, name);
    snprintf(address, sizeof address, "10.0.0.%u", (unsigned)(op->id % 200));
    Pb__Node node = PB__NODE__INIT;
    node.name = name;
    node.address = address;
    Pb__Service service = PB__SERVICE__INIT;
    char service_id[16];
    snprintf(service_id, sizeof service_id, "%s%u", op->id % 5 ? "web" : "Web", (unsigned)(op->id / 2 % 2));
    service.id = service_id;
    service.name = (char *)(uintptr_t)(op->id % 7 ? "web" : "WEB");
    service.port = (uint32_t)op->id;
    Pb__Check check = PB__CHECK__INIT, *checks[] = {&check};
    check.check_id = (char *)(uintptr_t)(op->id % 11 ? "c" : "C");
    check.status = op->id % 3 ? PB__STATUS__PASSING : PB__STATUS__CRITICAL;
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    command.node = &node;
    command.service = &service;
    command.checks = checks;
    command.n_checks = 1;
    return bytes_of(CATALOG_REGISTER, &command.base);
}

static struct raft_data *make_grant(const struct op *op) {
    char id[40], node[8], owner[40];
    command_lease(op->id, id);
    if (op->node) command_node(op, op->node - 1, node);
    command_session(op->owner, owner); /* any UUID of its own */
    Pb__Lease lease = PB__LEASE__INIT;
    lease.id = id;
    lease.ttl_ns = (int64_t)op->ttl_ms * 1000000;
    if (op->node) lease.node = node, lease.node_id = owner;
    lease.reconnect_timeout_ns = SIM_REAP_MS * INT64_C(1000000);
    Pb__LeaseGrantCommand command = PB__LEASE_GRANT_COMMAND__INIT;
    command.lease = &lease;
    return bytes_of(LEASE_GRANT, &command.base);
}

static struct raft_data *make_raise(const struct op *op) {
    Pb__ClusterVersionCommand command = PB__CLUSTER_VERSION_COMMAND__INIT;
    command.version = FOLD_SINCE;
    command.cluster_id = op->id;
    return bytes_of(CLUSTER_VERSION, &command.base);
}

struct raft_data *command_make(struct sim *sim, const struct op *op) {
    (void)sim;
    switch (op->kind) {
        case OP_SESSION: return make_session(op);
        case OP_REGISTER: return make_register(op);
        case OP_GRANT: return make_grant(op);
        case OP_RAISE: return make_raise(op);
        default: return make_kv(op);
    }
}

static uint64_t op_of_session(struct slice payload, struct arena *arena) {
    ProtobufCAllocator allocator = ARENA_PROTOBUF(arena);
    const Pb__SessionCreateCommand *command =
        pb__session_create_command__unpack(&allocator, payload.size, (const uint8_t *)payload.data);
    return command && command->session ? command_session_op(command->session->id) : 0;
}

static uint64_t op_of_register(struct slice payload, struct arena *arena) {
    ProtobufCAllocator allocator = ARENA_PROTOBUF(arena);
    const Pb__RegisterCommand *command =
        pb__register_command__unpack(&allocator, payload.size, (const uint8_t *)payload.data);
    return command && command->service ? command->service->port : 0;
}

static uint64_t op_of_grant(struct slice payload, struct arena *arena) {
    ProtobufCAllocator allocator = ARENA_PROTOBUF(arena);
    const Pb__LeaseGrantCommand *command =
        pb__lease_grant_command__unpack(&allocator, payload.size, (const uint8_t *)payload.data);
    return command && command->lease ? command_lease_op(command->lease->id) : 0;
}

static uint64_t op_of_raise(struct slice payload, struct arena *arena) {
    ProtobufCAllocator allocator = ARENA_PROTOBUF(arena);
    const Pb__ClusterVersionCommand *command =
        pb__cluster_version_command__unpack(&allocator, payload.size, (const uint8_t *)payload.data);
    return command ? command->cluster_id : 0;
}

uint64_t command_op(const struct raft_entry *entry) {
    struct slice bytes = raft_entry_bytes(entry);
    if (entry->type != RAFT_ENTRY_COMMAND || bytes.size < 2) return 0;
    struct slice payload = slice_make(bytes.data + 2, bytes.size - 2);
    struct arena arena = {0};
    struct kv_command_view view;
    uint64_t op = 0;
    switch ((uint8_t)bytes.data[0]) {
        case KV_APPLY: op = kv_command_decode(payload, &view) ? view.flags : 0; break;
        case SESSION_CREATE: op = op_of_session(payload, &arena); break;
        case CATALOG_REGISTER: op = op_of_register(payload, &arena); break;
        case LEASE_GRANT: op = op_of_grant(payload, &arena); break;
        case CLUSTER_VERSION: op = op_of_raise(payload, &arena); break;
        default: break;
    }
    arena_free(&arena);
    return op;
}
