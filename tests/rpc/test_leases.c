/* The leader's behaviour when an end that it has decided does not get into the log. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "kv/keys/kv.h"
#include "kv/session/session.h"
#include "registry/catalog.h"
#include "registry/lease.h"
#include "rpc/leader/leases.h"
#include "tests/lib/fixture.h"

static struct fixture world;
static struct lessor *keeper;
static struct lessor_decision *proposed, *next_proposed[8]; /* the latter: before it, in the same tick */
static unsigned next_count;

static struct expiry_update *updates(void *data) { return expiry_updates_take(data); }
static struct store_txn *read_now(void *data) {
    (void)data;
    return store_read(world.reader);
}
static void read_done(void *data) {
    (void)data;
    store_read_done(world.reader);
}
static int64_t unix_now(void *data) {
    (void)data;
    return 1000000;
}
static void propose(void *data, struct lessor_decision *decision, uint8_t command, const ProtobufCMessage *message) {
    (void)data, (void)command, (void)message;
    if (proposed) next_proposed[next_count++] = proposed;
    proposed = decision;
}

static void setup(void) {
    fixture_open(&world);
    struct lessor_callbacks callbacks = {.data = world.updates,
                                         .modules = machine_modules(world.machine),
                                         .updates = updates,
                                         .read = read_now,
                                         .read_done = read_done,
                                         .propose = propose,
                                         .unix_ms = unix_now};
    keeper = lessor_new(&callbacks);
    lessor_role(keeper, 7, true, 1000);
    expiry_updates_put(world.updates, &lock_delay_expiry, false, slice_text("locked"), 5, 2000000000);
    expiry_updates_batch_end(world.updates, true);
    lessor_updates(keeper, 1000);
}

static void teardown(void) {
    lessor_free(keeper);
    fixture_close(&world);
}
TestSuite(lessor, .init = setup, .fini = teardown);

static void decide(int error, uint64_t now_ms) {
    struct lessor_decision *decision = proposed;
    proposed = next_count ? next_proposed[--next_count] : NULL;
    lessor_decided(keeper, decision, error, now_ms);
}

/* In small steps: a loop that stood still would grant everything a full period. Until something is proposed. */
static uint64_t now_ms = 1000;
static bool proposes_within(uint64_t ms) {
    for (uint64_t end = now_ms + ms; now_ms < end && !proposed; now_ms += 20) lessor_tick(keeper, now_ms);
    return proposed != NULL;
}

Test(lessor, what_was_refused_is_proposed_again) {
    static const int refused[] = {CO_NOLEADER, CO_DISKFULL, CO_BUSY, CO_FENCED, CO_UNSUPPORTED};
    cr_assert_not(proposes_within(1900));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        cr_assert(proposes_within(5000), "before %s", co_strerror(refused[i]));
        decide(refused[i], now_ms);
    }
    cr_assert(proposes_within(5000));
    decide(CO_UNKNOWN_OUTCOME, now_ms); /* it may be in the log: its news will tell */
    cr_assert_not(proposes_within(100000));
}

/* -- the log ------------------------------------------------------------------------------------------------------ */
static char told[1024];
static void hear(void *data, enum log_level level, const char *line, size_t size) {
    (void)data, (void)level;
    size_t at = strlen(told);
    snprintf(told + at, sizeof told - at, "%.*s", (int)size, line);
}

static void lease_grant(const char *id, const char *name, const char *node) {
    Pb__LeaseGrantCommand command = PB__LEASE_GRANT_COMMAND__INIT;
    Pb__Lease lease = PB__LEASE__INIT;
    lease.id = (char *)(uintptr_t)id, lease.name = (char *)(uintptr_t)name, lease.node = (char *)(uintptr_t)node;
    if (node[0]) lease.node_id = (char *)(uintptr_t) "3c1a06b4-6b8c-4a4e-9d5b-0b7e3f0a9b11";
    lease.ttl_ns = 1000000000;
    command.lease = &lease;
    struct outcome result = fixture_apply(&world, LEASE_GRANT, &command.base);
    cr_assert_eq(result.error, CO_OK, "%s", result.text);
}

Test(lessor, what_has_expired_is_named_as_people_know_it) {
    Pb__RegisterCommand registers = PB__REGISTER_COMMAND__INIT;
    Pb__Node node = PB__NODE__INIT;
    node.name = (char *)(uintptr_t) "web1", node.address = (char *)(uintptr_t) "10.0.0.1";
    registers.node = &node;
    cr_assert_eq(fixture_apply(&world, CATALOG_REGISTER, &registers.base).error, CO_OK);
    lease_grant("00000000-0000-4000-8000-000000000001", "node", "web1");
    lease_grant("00000000-0000-4000-8000-000000000002", "backup", "");
    Pb__SessionCreateCommand create = PB__SESSION_CREATE_COMMAND__INIT;
    Pb__Session session = PB__SESSION__INIT;
    session.id = (char *)(uintptr_t) "00000000-0000-4000-8000-000000000003",
    session.name = (char *)(uintptr_t) "nightly";
    session.node = (char *)(uintptr_t) "web1", session.ttl = (char *)(uintptr_t) "1s", session.ttl_ns = 1000000000;
    create.session = &session;
    cr_assert_eq(fixture_apply(&world, SESSION_CREATE, &create.base).error, CO_OK);
    lessor_updates(keeper, now_ms);
    log_set_sink(hear, NULL);
    for (int i = 0; i < 4; i++) {
        cr_assert(proposes_within(10000), "%d of 4", i);
        decide(CO_OK, now_ms);
    }
    log_set_sink(NULL, NULL);
    cr_expect(strstr(told, "kind=\"lease\" node=\"web1\" id=00000000-0000-4000-8000-000000000001"), "%s", told);
    cr_expect(strstr(told, "kind=\"lease\" name=\"backup\" id=00000000-0000-4000-8000-000000000002"), "%s", told);
    cr_expect(strstr(told, "kind=\"session\" node=\"web1\" name=\"nightly\" id="), "%s", told);
}
