/* Services of all regions in one answer: which are in it, and which region is the nearest that can help. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/message.h"
#include "multi-dc/global.h"
#include "tests/lib/fixture.h"

static struct fixture world;
static struct arena arena;
static void setup(void) {
    fixture_open(&world);
    fixture_raise(&world);
}
static void teardown(void) {
    fixture_close(&world);
    arena_free(&arena);
}

#define TEXT(text) ((char *)(uintptr_t)(text))

static Pb__ServiceEntry *entry(const char *node, Pb__Status status) {
    Pb__ServiceEntry *entry = arena_alloc(&arena, sizeof *entry);
    pb__service_entry__init(entry);
    entry->node = arena_alloc(&arena, sizeof *entry->node);
    entry->service = arena_alloc(&arena, sizeof *entry->service);
    Pb__Check *check = arena_alloc(&arena, sizeof *check);
    pb__node__init(entry->node);
    pb__service__init(entry->service);
    pb__check__init(check);
    entry->node->name = entry->service->node = check->node = TEXT(node);
    entry->node->address = TEXT("10.0.0.1");
    entry->service->id = entry->service->name = TEXT("web");
    check->check_id = TEXT("alive"), check->status = status;
    entry->checks = arena_alloc(&arena, sizeof *entry->checks);
    entry->checks[entry->n_checks++] = check;
    return entry;
}

/* A region whose copy has one instance. */
static void region(const char *name, Pb__Status status) {
    Pb__RegionServer server = PB__REGION_SERVER__INIT, *servers[] = {&server};
    Pb__RegionLearnCommand learn = PB__REGION_LEARN_COMMAND__INIT;
    server.address = TEXT("10.0.0.1:8300");
    learn.name = TEXT(name), learn.cluster_id = 7, learn.servers = servers, learn.n_servers = 1;
    cr_assert(fixture_apply(&world, REGION_LEARN, &learn.base).yes);
    Pb__ServiceEntry *instance = entry(name, status);
    catalog_strip(instance);
    ProtobufCBinaryData packed = message_bytes(message_pack(&arena, &instance->base));
    Pb__CatalogAt to = PB__CATALOG_AT__INIT;
    Pb__CopyUpdateCommand update = PB__COPY_UPDATE_COMMAND__INIT;
    to.cluster_id = 7, to.index = 10;
    update.region = TEXT(name), update.to = &to, update.entries = &packed, update.n_entries = 1;
    cr_assert(fixture_apply(&world, COPY_UPDATE, &update.base).yes);
}

static struct outcome seen(const char *name, uint64_t cluster_id, uint32_t rtt_us, bool reachable) {
    Pb__RegionSeenCommand command = PB__REGION_SEEN_COMMAND__INIT;
    command.name = TEXT(name), command.cluster_id = cluster_id;
    command.rtt_us = rtt_us, command.reachable = reachable;
    return fixture_apply(&world, REGION_SEEN, &command.base);
}

static void here(Pb__Status status) {
    Pb__ServiceEntry *instance = entry("n1", status);
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    instance->checks[0]->service_id = TEXT("web");
    command.node = instance->node, command.service = instance->service;
    command.checks = instance->checks, command.n_checks = 1;
    cr_assert_eq(fixture_apply(&world, CATALOG_REGISTER, &command.base).error, CO_OK);
}

/* "own eu us ": whose instances are in the answer, in its order. */
static const char *answer(const char *own, bool nearest, bool passing) {
    static char text[128];
    Pb__GlobalRequest request = PB__GLOBAL_REQUEST__INIT;
    request.service = TEXT("web"), request.own = TEXT(own), request.nearest = nearest, request.passing_only = passing;
    struct query_result result = fixture_ask(&world, &query_global, &request.base);
    const Pb__GlobalServiceResult *found = (const Pb__GlobalServiceResult *)result.message;
    text[0] = 0;
    for (size_t i = 0; i < found->n_regions; i++)
        if (found->regions[i]->n_entries) strcat(strcat(text, found->regions[i]->region), " ");
    return text;
}

Test(global, this_region_comes_first_and_the_others_by_name, .init = setup, .fini = teardown) {
    region("us", PB__STATUS__PASSING);
    region("eu", PB__STATUS__CRITICAL);
    cr_expect_str_eq(answer("own", false, false), "eu us ", "nothing is registered here");
    here(PB__STATUS__PASSING);
    cr_expect_str_eq(answer("own", false, false), "own eu us ");
    cr_expect_str_eq(answer("own", false, true), "own us ", "those that pass");
    cr_expect_str_eq(answer("", false, false), "eu us ", "without this region");
}

Test(global, the_nearest_is_the_one_that_can_be_reached_and_has_healthy_instances, .init = setup, .fini = teardown) {
    region("ap", PB__STATUS__PASSING);
    region("eu", PB__STATUS__PASSING);
    region("us", PB__STATUS__WARNING);
    here(PB__STATUS__PASSING);
    cr_expect_str_eq(answer("own", true, false), "ap ", "as long as no distance is known, by name; never this region");
    cr_expect(seen("eu", 7, 90000, true).yes && seen("us", 7, 40000, true).yes);
    cr_expect_str_eq(answer("own", true, false), "us ",
                     "a known distance goes before an unknown one; a warning is healthy");
    cr_expect(seen("ap", 7, 20000, true).yes);
    cr_expect_str_eq(answer("own", true, false), "ap ");
    cr_expect(seen("ap", 7, 20000, false).yes);
    cr_expect_str_eq(answer("own", true, false), "us ", "the near one cannot be reached");
    cr_expect_str_eq(answer("own", true, true), "eu ", "only those that pass");
    cr_expect(seen("eu", 7, 90000, false).yes && seen("us", 7, 40000, false).yes);
    cr_expect_str_eq(answer("own", true, false), "ap ",
                     "without any that can be reached the last state of the nearest");
}

Test(global, no_region_without_healthy_instances_helps, .init = setup, .fini = teardown) {
    region("eu", PB__STATUS__CRITICAL);
    cr_expect(seen("eu", 7, 1000, true).yes);
    cr_expect_str_eq(answer("own", true, false), "");
}

Test(global, what_is_seen_of_another_cluster_or_of_nobody_does_not_count, .init = setup, .fini = teardown) {
    region("eu", PB__STATUS__PASSING);
    cr_expect_eq(seen("eu", 8, 1000, true).error, CO_CONFLICT);
    cr_expect_eq(seen("us", 7, 1000, true).error, CO_CONFLICT);
}

Test(global, small_changes_of_a_distance_are_no_news) {
    Pb__Region known = PB__REGION__INIT;
    Pb__RegionSeenCommand command = PB__REGION_SEEN_COMMAND__INIT;
    known.cluster_id = command.cluster_id = 7, known.reachable = command.reachable = true;
    known.rtt_us = 40000;
    static const struct {
        uint32_t rtt_us;
        bool news;
    } table[] = {{40000, false}, {59000, false}, {61000, true}, {27000, false}, {26000, true}, {0, false}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        command.rtt_us = table[i].rtt_us;
        cr_expect_eq(region_seen_is_news(&command, &known), table[i].news, "%u us", table[i].rtt_us);
    }
    known.rtt_us = 300, command.rtt_us = 2000;
    cr_expect_not(region_seen_is_news(&command, &known), "less than two milliseconds more");
    command.reachable = false;
    cr_expect(region_seen_is_news(&command, &known));
    known.removed = true;
    cr_expect_not(region_seen_is_news(&command, &known));
}
