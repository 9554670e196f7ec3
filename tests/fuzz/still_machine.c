#include "tests/fuzz/still_machine.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "kv/fence/fence.h"
#include "kv/keys/kv_internal.h"
#include "kv/lock/lock.h"
#include "kv/session/session_internal.h"
#include "kv/txn/txn.h"
#include "lb/coordinate.h"
#include "registry/catalog.h"
#include "registry/lease.h"
#include "registry/operator.h"
#include "registry/tables.h"
#include "registry/version.h"
#include "tests/lib/fixture.h"

#define NODE_ID "00000000-0000-4000-8000-000000000001"

static struct fixture fixture;

/* -- what is in it -- */

static void put(uint8_t type, const ProtobufCMessage *message) {
    CHECK(fixture_apply(&fixture, type, message).error == CO_OK);
}

static void put_service(void) {
    Pb__Node node = PB__NODE__INIT;
    node.name = "n1";
    node.id = NODE_ID;
    node.address = "10.0.0.1";
    char *tags[] = {"v1", "v2"};
    Pb__Service service = PB__SERVICE__INIT;
    service.id = "web1";
    service.name = "web";
    service.tags = tags;
    service.n_tags = ARRAY_COUNT(tags);
    service.port = 80;
    Pb__Check own = PB__CHECK__INIT, nodes = PB__CHECK__INIT, *checks[] = {&own, &nodes};
    own.check_id = "c1";
    own.service_id = "web1";
    own.status = PB__STATUS__PASSING;
    nodes.check_id = "serfHealth";
    nodes.status = PB__STATUS__PASSING;
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    command.node = &node;
    command.service = &service;
    command.checks = checks;
    command.n_checks = ARRAY_COUNT(checks);
    put(CATALOG_REGISTER, &command.base);
}

static void put_key(const char *key, const char *value, const char *session) {
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    command.verb = session ? PB__KV_VERB__KV_LOCK : PB__KV_VERB__KV_SET;
    command.key = (ProtobufCBinaryData){strlen(key), (uint8_t *)(uintptr_t)key};
    command.value = (ProtobufCBinaryData){strlen(value), (uint8_t *)(uintptr_t)value};
    if (session) command.session = (char *)(uintptr_t)session;
    put(KV_APPLY, &command.base);
}

static void put_session(void) {
    char *checks[] = {"serfHealth"};
    Pb__Session session = PB__SESSION__INIT;
    session.id = STILL_SESSION;
    session.node = "n1";
    session.ttl = "10s";
    session.ttl_ns = 10000000000;
    session.lock_delay_ns = 1;
    session.node_checks = checks;
    session.n_node_checks = ARRAY_COUNT(checks);
    Pb__SessionCreateCommand command = PB__SESSION_CREATE_COMMAND__INIT;
    command.session = &session;
    put(SESSION_CREATE, &command.base);
}

static void put_lease(const char *id, char *node) {
    Pb__Lease lease = PB__LEASE__INIT;
    lease.id = (char *)(uintptr_t)id;
    lease.ttl_ns = 10000000000;
    if (node) lease.node = node, lease.node_id = NODE_ID;
    Pb__LeaseGrantCommand command = PB__LEASE_GRANT_COMMAND__INIT;
    command.lease = &lease;
    put(LEASE_GRANT, &command.base);
}

static void put_leased(const char *key) {
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    command.key = (ProtobufCBinaryData){strlen(key), (uint8_t *)(uintptr_t)key};
    command.lease = STILL_LEASE;
    put(KV_APPLY, &command.base);
}

/* A free lease with all that can hang on one; one of the node "n1"; and one of "n3" that has died. */
static void put_leases(const char *long_key) {
    static const char dead[] = "1ea53000-0000-4000-8000-000000000001";
    Pb__Node node = PB__NODE__INIT;
    node.name = "n2";
    node.address = "10.0.0.2";
    Pb__Service service = PB__SERVICE__INIT;
    service.id = service.name = "job";
    service.lease = STILL_LEASE;
    Pb__RegisterCommand registration = PB__REGISTER_COMMAND__INIT;
    registration.node = &node;
    registration.service = &service;
    put_lease(STILL_LEASE, NULL);
    put(CATALOG_REGISTER, &registration.base);
    put_leased("leased");
    put_leased(long_key);
    put_lease("1ea52000-0000-4000-8000-000000000001", "n1");
    node.name = "n3";
    node.lease = STILL_LEASE;
    registration.service = NULL;
    put(CATALOG_REGISTER, &registration.base);
    put_lease(dead, "n3");
    Pb__LeaseEndCommand end = PB__LEASE_END_COMMAND__INIT;
    end.id = (char *)(uintptr_t)dead;
    put(LEASE_END, &end.base);
}

/* A lock that is held, and a resource that has seen its token. */
static void put_lock(void) {
    Pb__QueueAcquireCommand acquire = PB__QUEUE_ACQUIRE_COMMAND__INIT;
    Pb__SessionUse use = PB__SESSION_USE__INIT;
    Pb__FenceCheckCommand check = PB__FENCE_CHECK_COMMAND__INIT;
    use.id = (char *)STILL_SESSION;
    acquire.name = check.resource = check.lock = "l", acquire.session = &use;
    put(LOCK_ACQUIRE, &acquire.base);
    CHECK((check.token = machine_applied(fixture.machine)) == STILL_TOKEN);
    put(FENCE_CHECK, &check.base);
}

static void fill(void) {
    char long_key[STORE_KEY_PREFIX + 100];
    memset(long_key, 'k', sizeof long_key - 1);
    long_key[sizeof long_key - 1] = '\0';
    fixture_found(&fixture);
    put_service();
    put_session();
    put_key("a", "1", NULL);
    put_key("a/b", "some text that goes on for a while, so that it is worth to be packed", NULL);
    put_key(long_key, "", NULL);
    put_key("lock", "held", STILL_SESSION);
    long_key[0] = 'l';
    put_leases(long_key);
    put_lock();
}

/* -- life -- */

struct machine *still_machine(void) {
    if (fixture.machine) return fixture.machine;
    log_level_now = LOG_ERROR;
    fixture_open(&fixture);
    scratch_remove(fixture.folder);
    fill();
    return fixture.machine;
}

/* -- applying, and back -- */

/* Those whose keys begin with `prefix`. */
static void check_readable(struct store_txn *txn, uint8_t table, const char *prefix,
                           const ProtobufCMessageDescriptor *type, size_t head) {
    struct store_cursor cursor;
    struct slice wanted = slice_text(prefix);
    STORE_PREFIX(&cursor, txn, table, wanted) {
        CHECK(cursor.value.size >= head);
        ProtobufCMessage *message =
            protobuf_c_message_unpack(type, NULL, cursor.value.size - head, (const uint8_t *)cursor.value.data + head);
        CHECK(message);
        protobuf_c_message_free_unpacked(message, NULL);
    }
    store_cursor_close(&cursor);
}

/* A refused batch was tried and taken back: it may have touched things, in vain. */
static void check_result(struct machine_tx *tx, uint8_t type, const struct machine_result *result,
                         uint64_t sum_before) {
    uint64_t sum = store_sum(tx->store);
    CHECK(result->error >= CO_OK && result->error < CO_ERROR_COUNT);
    if (result->error || (type == TXN_APPLY && !result->yes)) {
        CHECK(sum == sum_before && !result->yes);
        CHECK(tx->touched.count == 0);
    }
    CHECK(store_scrub(tx->store) == sum);
    if (sum == sum_before) return;
    check_readable(tx->store, TABLE_NODES, "", &pb__node__descriptor, 0);
    check_readable(tx->store, TABLE_SERVICES, "", &pb__service__descriptor, 0);
    check_readable(tx->store, TABLE_CHECKS, "", &pb__check__descriptor, 0);
    check_readable(tx->store, TABLE_LEASES, "l", &pb__lease__descriptor, 0);
    check_readable(tx->store, TABLE_LEASES, "d", &pb__dead_node__descriptor, 0);
    check_readable(tx->store, SESSION_TABLE, "", &pb__session__descriptor, 8); /* behind the TTL */
}

int still_apply(struct slice command, void (*done)(void *data, const struct machine_result *result), void *data) {
    static struct watch_touched touched;
    static struct arena arena;
    CHECK(command.size >= 2);
    uint8_t type = (uint8_t)command.data[0];
    struct machine *machine = still_machine();
    if (!machine_command_row(machine, command) || type == CLUSTER_VERSION) return CO_UNSUPPORTED;
    struct machine_tx tx = {.machine = machine,
                            .store = store_write(machine_store(machine)),
                            .arena = &arena,
                            .index = machine_applied(machine) + 1,
                            .term = 1,
                            .touched = touched};
    uint64_t sum = store_sum(tx.store);
    struct machine_result result = {.index = tx.index};
    int rv = machine_apply_command(&tx, command, &result);
    CHECK(rv == CO_OK || rv == CO_UNSUPPORTED);
    if (rv == CO_OK) {
        check_result(&tx, type, &result, sum);
        if (done) done(data, &result);
    }
    store_abort(tx.store);
    arena_reset(&arena);
    touched = tx.touched;
    watch_touched_reset(&touched);
    return rv;
}
