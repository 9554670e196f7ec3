/* Records of other regions: what is news, what is refused, what an operator's wish changes. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "multi-dc/region.h"
#include "tests/lib/fixture.h"

static struct fixture world;
static void setup(void) {
    fixture_open(&world);
    fixture_found(&world);
}
static void teardown(void) { fixture_close(&world); }

struct told {
    const char *name;
    uint64_t cluster_id;
    const char *addresses[20];
    const char *node;
    bool add, wanted;
    uint64_t instead_of;
};

static struct outcome learn(struct told told) {
    Pb__RegionServer servers[20], *pointers[20];
    Pb__RegionLearnCommand command = PB__REGION_LEARN_COMMAND__INIT;
    command.name = (char *)(uintptr_t)told.name, command.cluster_id = told.cluster_id;
    command.add = told.add, command.wanted = told.wanted, command.instead_of = told.instead_of;
    command.servers = pointers;
    for (size_t i = 0; i < 20 && told.addresses[i]; i++) {
        servers[i] = (Pb__RegionServer)PB__REGION_SERVER__INIT;
        servers[i].address = (char *)(uintptr_t)told.addresses[i];
        if (told.node) servers[i].node = (char *)(uintptr_t)told.node;
        pointers[command.n_servers++] = &servers[i];
    }
    return fixture_apply(&world, REGION_LEARN, &command.base);
}

static struct outcome forget(const char *name) {
    Pb__RegionRemoveCommand command = PB__REGION_REMOVE_COMMAND__INIT;
    command.name = (char *)(uintptr_t)name;
    return fixture_apply(&world, REGION_REMOVE, &command.base);
}

static const Pb__RegionsResult *all(struct query_result *result) {
    Pb__RegionsRequest request = PB__REGIONS_REQUEST__INIT;
    *result = fixture_ask(&world, &query_regions, &request.base);
    return (const Pb__RegionsResult *)result->message;
}

static const Pb__Region *only(void) {
    struct query_result result;
    const Pb__RegionsResult *regions = all(&result);
    cr_assert_eq(regions->n_regions, 1);
    return regions->regions[0];
}

Test(region, what_is_no_news_changes_nothing, .init = setup, .fini = teardown) {
    struct outcome first = learn(
        (struct told){.name = "eu", .cluster_id = 7, .addresses = {"10.0.0.2:8300", "10.0.0.1:8300"}, .node = "e"});
    cr_expect(first.yes && first.error == CO_OK);
    cr_assert_eq(only()->n_servers, 2);
    cr_expect_str_eq(only()->servers[0]->address, "10.0.0.1:8300");
    uint64_t index = only()->modify_index;
    cr_expect_eq(index, first.index);
    cr_expect(learn((struct told){
                        .name = "eu", .cluster_id = 7, .addresses = {"10.0.0.1:8300", "10.0.0.2:8300"}, .node = "e"})
                  .yes);
    cr_expect(learn((struct told){.name = "eu", .cluster_id = 7, .addresses = {"10.0.0.2:8300"}, .add = true}).yes);
    cr_expect_eq(only()->modify_index, index, "the same in another order, or a part of it, is no news");
    cr_expect(learn((struct told){.name = "eu", .cluster_id = 7, .addresses = {"10.0.0.3:8300"}, .add = true}).yes);
    cr_expect_eq(only()->n_servers, 3);
    cr_expect_str_eq(only()->servers[0]->node, "e", "what is not said again stays");
    cr_expect(learn((struct told){.name = "eu", .cluster_id = 7, .addresses = {"10.0.0.3:8300"}}).yes);
    cr_expect_eq(only()->n_servers, 1, "without `add` the others are gone");
    cr_expect_eq(only()->create_index, first.index);
}

Test(region, another_cluster_of_the_name_is_refused, .init = setup, .fini = teardown) {
    cr_assert(learn((struct told){.name = "eu", .cluster_id = 7, .addresses = {"10.0.0.1:8300"}}).yes);
    struct outcome other = learn(
        (struct told){.name = "eu", .cluster_id = 8, .addresses = {"10.9.0.1:8300"}, .add = true, .wanted = true});
    cr_expect_eq(other.error, CO_CONFLICT);
    cr_expect_eq(
        learn((struct told){.name = "eu", .cluster_id = 8, .addresses = {"10.0.0.1:8300"}, .instead_of = 9}).error,
        CO_CONFLICT);
    cr_expect_eq(only()->cluster_id, 7);
    cr_expect(learn((struct told){.name = "eu", .cluster_id = 8, .addresses = {"10.0.0.1:8300"}, .instead_of = 7}).yes);
    cr_expect_eq(only()->cluster_id, 8);
    cr_expect_eq(only()->n_servers, 1);
}

Test(region, one_that_was_removed_comes_back_by_an_operator_only, .init = setup, .fini = teardown) {
    cr_expect_eq(forget("eu").error, CO_NOTFOUND);
    cr_assert(learn((struct told){.name = "eu", .cluster_id = 7, .addresses = {"10.0.0.1:8300"}}).yes);
    cr_expect(forget("eu").yes);
    cr_expect(forget("eu").yes, "twice is once");
    cr_expect(only()->removed && only()->n_servers == 0);
    cr_expect_eq(learn((struct told){.name = "eu", .cluster_id = 7, .addresses = {"10.0.0.1:8300"}, .add = true}).error,
                 CO_CONFLICT);
    cr_expect(only()->removed);
    fixture_reopen(&world);
    cr_expect(only()->removed);
    cr_expect(learn((struct told){.name = "eu", .cluster_id = 9, .addresses = {"10.0.0.1:8300"}, .wanted = true}).yes,
              "also of another cluster");
    cr_expect(!only()->removed && only()->cluster_id == 9);
}

Test(region, what_is_no_region_is_refused, .init = setup, .fini = teardown) {
    char lengthy[300], name[REGION_NAME_MAX + 2];
    memset(lengthy, 'a', sizeof lengthy), lengthy[sizeof lengthy - 1] = 0;
    memset(name, 'a', sizeof name), name[sizeof name - 1] = 0;
    static const char *const bad[] = {"", "a.b", "a b", "a/b", "\xc3\xa9", "a\"b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_expect_eq(learn((struct told){.name = bad[i], .cluster_id = 7, .addresses = {"10.0.0.1:8300"}}).error,
                     CO_INVALID, "\"%s\"", bad[i]);
    cr_expect_eq(learn((struct told){.name = name, .cluster_id = 7, .addresses = {"10.0.0.1:8300"}}).error, CO_INVALID);
    cr_expect_eq(learn((struct told){.name = "eu", .cluster_id = 0, .addresses = {"10.0.0.1:8300"}}).error, CO_INVALID);
    cr_expect_eq(learn((struct told){.name = "eu", .cluster_id = 7, .addresses = {NULL}}).error, CO_INVALID);
    cr_expect_eq(learn((struct told){.name = "eu", .cluster_id = 7, .addresses = {lengthy}}).error, CO_INVALID);
    cr_expect_eq(learn((struct told){.name = "eu", .cluster_id = 7, .addresses = {""}}).error, CO_INVALID);
    cr_expect_eq(learn((struct told){.name = "eu", .cluster_id = 7, .addresses = {"1:1"}, .node = lengthy}).error,
                 CO_INVALID);
    struct query_result result;
    cr_expect_eq(all(&result)->n_regions, 0);
    cr_expect_eq(result.index, 0, "nothing changed");
}

Test(region, there_is_room_for_so_many, .init = setup, .fini = teardown) {
    char name[16];
    for (unsigned i = 0; i < REGIONS_MAX; i++) {
        snprintf(name, sizeof name, "r%02u", i);
        cr_assert(learn((struct told){.name = name, .cluster_id = i + 1, .addresses = {"10.0.0.1:8300"}}).yes);
    }
    cr_expect_eq(learn((struct told){.name = "more", .cluster_id = 99, .addresses = {"10.0.0.1:8300"}}).error,
                 CO_TOOLARGE);
    cr_expect(learn((struct told){.name = "r05", .cluster_id = 6, .addresses = {"10.0.0.2:8300"}, .add = true}).yes,
              "those that are there go on");
    struct query_result result;
    cr_expect_eq(all(&result)->n_regions, REGIONS_MAX);
    cr_expect_str_eq(all(&result)->regions[5]->name, "r05");
    cr_expect_eq(all(&result)->regions[5]->n_servers, 2);
    char address[32];
    for (unsigned i = 0; i < 2 * REGION_SERVERS_MAX; i++) {
        snprintf(address, sizeof address, "10.1.0.%u:8300", i);
        cr_expect(learn((struct told){.name = "r05", .cluster_id = 6, .addresses = {address}, .add = true}).yes);
    }
    cr_expect_eq(all(&result)->regions[5]->n_servers, REGION_SERVERS_MAX);
}
