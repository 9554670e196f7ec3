/* The orders of the part of anti-entropy that decides, over a table by itself, with answers and times made up. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "base/error.h"
#include "health/anti_entropy.h"
#include "health/definition.h"
#include "health/liveness.h"

#define NODE "n1"
#define ID   "0c8b5fd8-2166-4a20-a1b1-516072ab0001"

static Pb__Node node;
static struct local *local;
static struct liveness liveness;
static struct anti_entropy anti_entropy;
static uint64_t now_ms;
static Pb__ChecksResult no_checks;

static void leave_lease(int error, int refused) {
    liveness_answered(&liveness, &(struct liveness_answer){.error = error, .refused = refused, .text = "", .id = ID},
                      now_ms);
}

/* A lease is held and the catalog, which has nothing, was read. */
static void setup(void) {
    pb__node__init(&node);
    pb__checks_result__init(&no_checks);
    node.name = (char *)NODE;
    struct local_config config = {
        .node = NODE, .node_id = "", .address = "", .datacenter = "dc1", .node_record = &node};
    struct liveness_rules rules = {.node = NODE, .ttl_ns = INT64_C(10000000000), .seed = 3};
    now_ms = 1000;
    local = local_new(&config, 1);
    anti_entropy_begin(&anti_entropy, local, 2);
    liveness_begin(&liveness, &rules, now_ms);
    local->liveness = &liveness;
    cr_assert_eq(anti_entropy_next(&anti_entropy, now_ms).act, ANTI_ENTROPY_REST, "nothing before there is a lease");
    cr_assert_eq(liveness_next(&liveness, true, now_ms).act, LIVENESS_GRANT);
    leave_lease(CO_OK, CO_OK);
    anti_entropy_compare_soon(&anti_entropy);
    cr_assert_eq(anti_entropy_next(&anti_entropy, now_ms).act, ANTI_ENTROPY_READ);
    anti_entropy_read(&anti_entropy, CO_OK, &(struct anti_entropy_catalog){.checks = &no_checks}, now_ms);
}

static void teardown(void) {
    anti_entropy_end(&anti_entropy);
    local_free(local);
}

TestSuite(anti_entropy_rules, .init = setup, .fini = teardown);

static void service(const char *name) {
    char text[100];
    struct fault fault = {0};
    snprintf(text, sizeof text, "{\"Name\":\"%s\"}", name);
    struct json_object *json = json_parse(slice_text(text), &fault);
    struct service_definition *definition = service_definition_parse(json, &fault);
    json_object_put(json);
    cr_assert_eq(local_service_register(local, definition, false, true, &fault), CO_OK);
}

/* Until it writes or reads. */
static struct anti_entropy_order next(void) {
    for (;;) {
        struct anti_entropy_order order = anti_entropy_next(&anti_entropy, now_ms);
        if (order.act != ANTI_ENTROPY_REST) return order;
        cr_assert(order.until_ms != ANTI_ENTROPY_NEVER && order.until_ms > now_ms);
        now_ms = order.until_ms;
    }
}

static void answer(int error, int refused) {
    anti_entropy_written(&anti_entropy, &(struct anti_entropy_answer){error, refused, ""}, now_ms);
}

static void node_written(void) {
    struct anti_entropy_order order = next();
    cr_assert(order.act == ANTI_ENTROPY_WRITE && order.command == CATALOG_REGISTER, "the node comes first");
    answer(CO_OK, CO_OK);
}

/* The services of the next batch. */
static size_t batch(const char *names[8]) {
    struct anti_entropy_order order = next();
    cr_assert(order.act == ANTI_ENTROPY_WRITE && order.command == CATALOG_BATCH);
    const Pb__CatalogBatchCommand *command = (const Pb__CatalogBatchCommand *)order.message;
    cr_assert_str_eq(command->by_lease, ID);
    for (size_t i = 0; i < command->n_registers; i++) names[i] = command->registers[i]->service->id;
    return command->n_registers;
}

Test(anti_entropy_rules, one_write_at_a_time_with_all_that_is_dirty) {
    const char *names[8];
    service("a"), service("b");
    node_written();
    cr_assert_eq(batch(names), 2);
    service("c");
    cr_assert(anti_entropy_next(&anti_entropy, now_ms).act == ANTI_ENTROPY_REST && !local_synced(local));
    answer(CO_OK, CO_OK);
    cr_assert(batch(names) == 1 && strcmp(names[0], "c") == 0);
    answer(CO_OK, CO_OK);
    cr_assert(local_synced(local));
}

Test(anti_entropy_rules, what_was_not_taken_goes_again_in_order) {
    const char *names[8];
    node_written();
    service("a");
    cr_assert_eq(batch(names), 1);
    service("b");
    answer(CO_NOLEADER, CO_OK);
    cr_assert(batch(names) == 2 && strcmp(names[0], "a") == 0 && strcmp(names[1], "b") == 0);
}

Test(anti_entropy_rules, an_unknown_outcome_voids_the_lease_and_then_the_catalog_is_compared) {
    const char *names[8];
    node_written();
    service("a");
    cr_assert_eq(batch(names), 1);
    answer(CO_UNKNOWN_OUTCOME, CO_OK);
    cr_assert(!liveness_may_write(&liveness));
    now_ms += 60000;
    cr_assert_eq(anti_entropy_next(&anti_entropy, now_ms).act, ANTI_ENTROPY_REST, "not before there is a new lease");
    cr_assert_eq(liveness_next(&liveness, true, now_ms).act, LIVENESS_CHANGED);
    cr_assert_eq(liveness_next(&liveness, true, now_ms).act, LIVENESS_GRANT);
    leave_lease(CO_OK, CO_OK);
    cr_assert_eq(next().act, ANTI_ENTROPY_READ);
}

Test(anti_entropy_rules, a_lease_that_does_not_stand_is_lost) {
    const char *names[8];
    node_written();
    service("a");
    cr_assert_eq(batch(names), 1);
    answer(CO_OK, CO_NOTFOUND);
    cr_assert(!liveness_may_write(&liveness) && !local_synced(local));
}

/* Each loss is followed by a new lease and a comparison. */
static void lose(void) {
    answer(CO_UNKNOWN_OUTCOME, CO_OK);
    while (liveness_next(&liveness, true, now_ms).act != LIVENESS_GRANT) continue;
    leave_lease(CO_OK, CO_OK);
    anti_entropy_compare_soon(&anti_entropy);
    cr_assert_eq(next().act, ANTI_ENTROPY_READ);
    anti_entropy_read(&anti_entropy, CO_OK, &(struct anti_entropy_catalog){.checks = &no_checks}, now_ms);
    node_written();
}

Test(anti_entropy_rules, a_record_that_loses_its_connection_is_set_aside_and_comes_back) {
    const char *names[8];
    node_written();
    service("bad"), service("good");
    cr_assert_eq(batch(names), 2);
    lose();
    cr_assert_eq(batch(names), 2);
    lose();
    cr_assert(batch(names) == 1 && strcmp(names[0], "bad") == 0, "alone after two losses");
    lose();
    uint64_t lost_ms = now_ms;
    cr_assert(batch(names) == 1 && strcmp(names[0], "good") == 0, "the others go on");
    answer(CO_OK, CO_OK);
    cr_assert(batch(names) == 1 && strcmp(names[0], "bad") == 0);
    cr_assert(now_ms - lost_ms >= 1900 && now_ms - lost_ms <= 4000, "after %lu ms", now_ms - lost_ms);
    answer(CO_OK, CO_OK);
    cr_assert(local_synced(local));
}
