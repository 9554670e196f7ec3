/* What the leader does when the end of something that it has decided does not get into the log. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kv/kv.h"
#include "registry/catalog.h"
#include "registry/lease.h"
#include "rpc/lease_keeper.h"

static struct machine *machine;
static struct store_reader *reader;
static struct lease_box *box;
static struct lease_keeper *keeper;
static struct lease_decision *proposed;
static char folder[] = "/tmp/coord-keeper-XXXXXX";

static void woken(void *data) { (void)data; }
static struct lease_news *news(void *data) { return lease_box_take(data); }
static struct store_txn *read_now(void *data) {
    (void)data;
    return store_read(reader);
}
static void read_done(void *data) {
    (void)data;
    store_read_done(reader);
}
static int64_t unix_now(void *data) {
    (void)data;
    return 1000000;
}
static void propose(void *data, struct lease_decision *decision, uint8_t command, const ProtobufCMessage *message) {
    (void)data, (void)command, (void)message;
    proposed = decision;
}

static void setup(void) {
    cr_assert(mkdtemp(folder) != NULL);
    box = lease_box_new(woken, NULL);
    const struct machine_module *const modules[] = {&catalog_module, &kv_module, &lease_module, NULL};
    void *const module_data[] = {NULL, box, box};
    struct machine_config config = {.store = {.folder = folder, .map_bytes = 1 << 26, .reserve_step_bytes = 128 << 10},
                                    .modules = modules,
                                    .module_data = module_data};
    struct fault fault = {0};
    cr_assert_eq(machine_open(&config, &machine, &fault), CO_OK, "%s", fault.text);
    reader = store_reader_new(machine_store(machine));
    struct lease_keeper_edge edge = {
        .data = box, .news = news, .read = read_now, .read_done = read_done, .propose = propose, .unix_ms = unix_now};
    keeper = lease_keeper_new(&edge);
    lease_keeper_role(keeper, 7, true, 1000);
    lease_box_put(box, TIMED_LOCK_DELAY, false, slice_text("locked"), 5, 2000000000);
    lease_box_batch_end(box, true);
    lease_keeper_news(keeper, 1000);
}

static void teardown(void) {
    char command[100];
    lease_keeper_free(keeper);
    store_reader_free(reader);
    machine_close(machine);
    lease_box_free(box);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}
TestSuite(lease_keeper, .init = setup, .fini = teardown);

static void decide(int error, uint64_t now_ms) {
    struct lease_decision *decision = proposed;
    proposed = NULL;
    lease_keeper_decided(keeper, decision, error, now_ms);
}

/* In small steps: a loop that stood still would grant everything a full period. Until something is proposed. */
static uint64_t now_ms = 1000;
static bool proposes_within(uint64_t ms) {
    for (uint64_t end = now_ms + ms; now_ms < end && !proposed; now_ms += 20) lease_keeper_tick(keeper, now_ms);
    return proposed != NULL;
}

Test(lease_keeper, what_was_refused_is_proposed_again) {
    static const int refused[] = {CO_NOLEADER, CO_DISKFULL, CO_BUSY, CO_FENCED};
    cr_assert_not(proposes_within(1900));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        cr_assert(proposes_within(5000), "before %s", co_strerror(refused[i]));
        decide(refused[i], now_ms);
    }
    cr_assert(proposes_within(5000));
    decide(CO_UNKNOWN_OUTCOME, now_ms); /* it may be in the log: its news will tell */
    cr_assert_not(proposes_within(100000));
}
