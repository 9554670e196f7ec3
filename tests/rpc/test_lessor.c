/* What the leader does when the end of something that it has decided does not get into the log. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kv/keys/kv.h"
#include "registry/catalog.h"
#include "registry/lease.h"
#include "rpc/leader/lessor.h"
#include "tests/lib/fixture.h"

static struct fixture world;
static struct lessor *keeper;
static struct lessor_decision *proposed;

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
    proposed = NULL;
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
