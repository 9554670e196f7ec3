/* Ids of an agent's services and checks in any case: one thing here, in the catalog and in the data folder
 * (registry/fold.h). */
#include <criterion/criterion.h>

#include "agent_talk.h"
#include "health/store_log.h"
#include "looks.h"

/* Of an id the last spelling counts, here and in the catalog (registry/fold.h). */
Test(local_names, ids_are_one_in_any_case) {
    struct agent *agent = agent_new(false);
    struct arena arena = {0};
    Pb__Service **services;
    register_service(agent, "{\"ID\":\"W1\",\"Name\":\"Web\",\"Check\":{\"CheckID\":\"Ck\",\"TTL\":\"60s\"}}");
    cr_assert_eq(register_check(agent, "{\"Name\":\"More\",\"TTL\":\"60s\",\"ServiceID\":\"w1\"}"), CO_OK);
    cr_assert(update(agent, "cK", PB__STATUS__PASSING, "abc"));
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    cr_assert(has_service(agent, "W1"));
    register_service(agent,
                     "{\"ID\":\"w1\",\"Name\":\"web\",\"Port\":7,\"Check\":{\"CheckID\":\"ck\",\"TTL\":\"60s\"}}");
    cr_assert_eq(local_services(agent->local, &arena, &services), 1);
    cr_assert_str_eq(services[0]->id, "w1");
    cr_assert_eq(local_status(agent, "ck"), PB__STATUS__PASSING, "a known check keeps its state");
    cr_assert_eq(local_status(agent, "Ck"), -1);
    cr_assert_neq(local_service_hash(agent->local, slice_text("W1")), 0);
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    UNTIL(local_synced(agent->local));
    const Pb__Service *stored = look_service(agent->rpc, &arena, FAKE_AGENT_NODE, "w1");
    cr_assert(stored && stored->port == 7 && strcmp(stored->id, "w1") == 0);
    cr_assert_str_eq(look_check(agent->rpc, &arena, FAKE_AGENT_NODE, "More")->service_id, "w1");
    cr_assert_eq(look_count(agent->rpc, FAKE_AGENT_NODE), 5, "consul, serfHealth, one service, its two checks");
    cr_assert_eq(local_service_maintenance(agent->local, slice_text("W1"), true, slice_text("why")), CO_OK);
    cr_assert_eq(local_service_maintenance(agent->local, slice_text("w1"), false, slice_text("")), CO_OK);
    cr_assert_eq(local_check_deregister(agent->local, slice_text("mORE")), CO_OK);
    cr_assert_eq(local_service_deregister(agent->local, slice_text("W1")), CO_OK);
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    cr_assert(!has_service(agent, "w1"));
    cr_assert_eq(look_count(agent->rpc, FAKE_AGENT_NODE), 2);
    arena_free(&arena);
    agent_free(agent);
}

/* Somebody wrote over it in another case: it comes back as it is here, once. */
Test(local_names, a_spelling_of_others_is_put_right) {
    struct agent *agent = agent_new(false);
    struct arena arena = {0};
    register_service(agent, "{\"ID\":\"web\",\"Name\":\"web\"}");
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    agent_stop(agent);
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node node = PB__NODE__INIT;
    Pb__Service service = PB__SERVICE__INIT;
    node.name = FAKE_AGENT_NODE, service.id = service.name = "WEB";
    command.node = &node, command.skip_node_update = true, command.service = &service;
    fake_rpc_apply(agent->rpc, CATALOG_REGISTER, &command.base);
    cr_assert(has_service(agent, "WEB") && !has_service(agent, "web"));
    agent_start(agent);
    register_service(agent, "{\"ID\":\"web\",\"Name\":\"web\"}");
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    UNTIL(local_synced(agent->local));
    cr_assert(has_service(agent, "web") && !has_service(agent, "WEB"));
    cr_assert_eq(look_count(agent->rpc, FAKE_AGENT_NODE), 3);
    arena_free(&arena);
    agent_free(agent);
}

/* One record of it is kept, whatever it was called before. */
Test(local_names, written_in_another_case_it_is_kept_once) {
    struct agent *agent = agent_new(true);
    struct arena arena = {0};
    Pb__Service **services;
    register_service(agent, "{\"ID\":\"W1\",\"Name\":\"web\",\"Port\":1}");
    cr_assert_eq(register_check(agent, "{\"Name\":\"Mine\",\"TTL\":\"60s\"}"), CO_OK);
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    register_service(agent, "{\"ID\":\"w1\",\"Name\":\"web\",\"Port\":2}");
    cr_assert_eq(register_check(agent, "{\"Name\":\"mINE\",\"TTL\":\"60s\"}"), CO_OK);
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    cr_assert_eq(saved(agent, 's'), 1);
    cr_assert_eq(saved(agent, 'c'), 1);
    agent_stop(agent);
    agent_start(agent);
    UNTIL(local_synced(agent->local));
    cr_assert_eq(local_services(agent->local, &arena, &services), 1);
    cr_assert(strcmp(services[0]->id, "w1") == 0 && services[0]->port == 2);
    /* as an agent of before may have left it */
    struct buffer lines = {0};
    agent_stop(agent);
    store_log_line(&lines, false, "W1",
                   slice_text("{\"Version\":1,\"Service\":{\"ID\":\"W1\",\"Name\":\"web\",\"Port\":3}}"));
    buffer_append_byte(&lines, '\0');
    append_to_definitions(agent, lines.data);
    buffer_free(&lines);
    cr_assert_eq(saved(agent, 's'), 2);
    agent_start(agent);
    UNTIL(local_synced(agent->local));
    cr_assert_eq(local_services(agent->local, &arena, &services), 1);
    cr_assert(strcmp(services[0]->id, "W1") == 0 && services[0]->port == 3, "the last one");
    cr_assert_eq(local_service_deregister(agent->local, slice_text("w1")), CO_OK);
    cr_assert_eq(local_check_deregister(agent->local, slice_text("MINE")), CO_OK);
    cr_assert_eq(wait_synced(agent, 60000), CO_OK);
    cr_assert_eq(saved(agent, 's'), 0, "both lines are void");
    cr_assert_eq(saved(agent, 'c'), 0);
    agent_stop(agent);
    agent_start(agent);
    UNTIL(local_synced(agent->local));
    cr_assert_eq(local_services(agent->local, &arena, &services), 0);
    cr_assert_eq(look_count(agent->rpc, FAKE_AGENT_NODE), 2);
    arena_free(&arena);
    agent_free(agent);
}
