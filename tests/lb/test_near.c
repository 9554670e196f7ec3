/* ?near=: results of the catalog in the order of round trips. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "coordinates.h"
#include "lb/near.h"

static struct fixture world;
static void setup(void) {
    static const char *const nodes[] = {"a", "b", "c", "d", "e"};
    fixture_open(&world);
    for (size_t i = 0; i < 5; i++) cr_assert_eq(node_add(&world, nodes[i]).error, CO_OK);
    coordinate_put(&world, "a", "", 0.3), coordinate_put(&world, "b", "", 0.1);
    coordinate_put(&world, "d", "", 0.2), coordinate_put(&world, "e", "", 0.0);
}
static void teardown(void) { fixture_close(&world); }

/* Their nodes, one letter each; static. */
static const char *order(const struct query_result *result) {
    static char text[200];
    size_t size = 0;
    const ProtobufCMessage *message = result->message;
    const Pb__NodesResult *nodes = (const Pb__NodesResult *)message;
    const Pb__ServiceEntriesResult *entries = (const Pb__ServiceEntriesResult *)message;
    const Pb__ChecksResult *checks = (const Pb__ChecksResult *)message;
    if (message->descriptor == &pb__nodes_result__descriptor)
        for (size_t i = 0; i < nodes->n_nodes; i++) text[size++] = nodes->nodes[i]->name[0];
    else if (message->descriptor == &pb__service_entries_result__descriptor)
        for (size_t i = 0; i < entries->n_entries; i++) text[size++] = entries->entries[i]->node->name[0];
    else
        for (size_t i = 0; i < checks->n_checks; i++)
            text[size++] = checks->checks[i]->node[0], text[size++] = checks->checks[i]->check_id[0];
    text[size] = '\0';
    return text;
}

static struct query_result ask(const char *node, const struct query_type *type, const ProtobufCMessage *message) {
    Pb__NearRequest request = PB__NEAR_REQUEST__INIT;
    request.node = (char *)(uintptr_t)node;
    cr_assert(near_wrap(&request, type, message));
    struct query_result result = fixture_ask(&world, &query_near, &request.base), plain;
    struct watch_key near = query_near.watched(&request.base), watched = type->watched(message);
    cr_expect(near.space == watched.space && slice_equal(near.name, watched.name), "it waits for the same thing");
    struct arena arena = {0};
    struct store_reader *reader = store_reader_new(machine_store(world.machine));
    cr_assert_eq(type->run(store_read(reader), message, &arena, &plain), CO_OK);
    cr_expect_eq(result.index, plain.index);
    store_read_done(reader), store_reader_free(reader), arena_free(&arena);
    return result;
}

static const char *nodes_near(const char *node) {
    Pb__TableRequest request = PB__TABLE_REQUEST__INIT;
    struct query_result result = ask(node, &query_nodes, &request.base);
    return order(&result);
}

Test(near, nearest_first_unknown_last, .init = setup, .fini = teardown) {
    cr_expect_str_eq(nodes_near("e"), "ebdac");
    cr_expect_str_eq(nodes_near("a"), "adbec");
    cr_expect_str_eq(nodes_near("c"), "abcde", "nothing is known of c: the catalog's order");
    cr_expect_str_eq(nodes_near("nobody"), "abcde");
    coordinate_put(&world, "c", "", 0.15);
    cr_expect_str_eq(nodes_near("e"), "ebcda");
}

Test(near, the_same_for_instances_and_checks, .init = setup, .fini = teardown) {
    Pb__ServiceRequest service = PB__SERVICE_REQUEST__INIT;
    Pb__StateRequest state = PB__STATE_REQUEST__INIT;
    service.service = "web", state.state = "any";
    struct query_result result = ask("e", &query_service_entries, &service.base);
    cr_expect_str_eq(order(&result), "ebdac");
    result = ask("e", &query_service_checks, &service.base);
    cr_expect_str_eq(order(&result), "esbsdsascs");
    result = ask("e", &query_state_checks, &state.base);
    cr_expect_str_eq(order(&result), "enesbnbsdndsanascncs", "checks of a node keep their order");
}

Test(near, equally_far_keeps_the_order, .init = setup, .fini = teardown) {
    for (const char *node = "abcd"; *node; node++) coordinate_put(&world, (char[]){*node, '\0'}, "", 0.7);
    cr_expect_str_eq(nodes_near("e"), "eabcd");
}

/* As Consul has it: two nodes meet in the segment of the one that has a single one. */
Test(near, segments, .init = setup, .fini = teardown) {
    cr_assert(node_remove(&world, "a").yes && node_remove(&world, "b").yes && node_remove(&world, "d").yes &&
              node_remove(&world, "e").yes);
    for (const char *node = "abde"; *node; node++) node_add(&world, (char[]){*node, '\0'});
    coordinate_put(&world, "e", "", 0), coordinate_put(&world, "e", "s", 5);
    coordinate_put(&world, "a", "", 0.3), coordinate_put(&world, "b", "s", 5.1), coordinate_put(&world, "c", "", 0.2);
    coordinate_put(&world, "d", "s", 5.05), coordinate_put(&world, "d", "t", 0.01);
    cr_expect_str_eq(nodes_near("e"), "ebcad", "d is in two segments, neither is the common one");
    cr_expect_str_eq(nodes_near("b"), "bdeac");
    cr_expect_str_eq(nodes_near("d"), "bacde");
    cr_expect_str_eq(nodes_near("a"), "acebd");
}

Test(near, what_it_does_not_wrap, .init = setup, .fini = teardown) {
    Pb__NearRequest request = PB__NEAR_REQUEST__INIT;
    Pb__NodeRequest node = PB__NODE_REQUEST__INIT;
    struct query_result result;
    cr_expect_not(near_wrap(&request, &query_node_checks, &node.base));
    store_read_done(world.reader);
    cr_expect_eq(query_near.run(store_read(world.reader), &request.base, &world.arena, &result), CO_INVALID);
    cr_expect_eq(query_near.watched(&request.base).space, SPACE_COORDINATES);
}
