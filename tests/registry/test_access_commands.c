/* Commands of the catalog and on leases that a token may send; and leases as it gets them. */
#include <criterion/criterion.h>
#include <string.h>

#include "access_world.h"
#include "base/message.h"
#include "kv/keys/kv.h"
#include "registry/operator.h"
#include "registry/trust.h"

/* -- commands ----------------------------------------------------------------------------------------------------- */

static const char *may_register(const char *rules, const char *spec) {
    return may(rules, CATALOG_REGISTER, &fixture_register_command(&arena, spec)->base);
}

Test(access_commands, a_node_is_registered_by_node_write, .init = access_world_open, .fini = access_world_close) {
    cr_expect_str_eq(may_register("node:write=n1", "node=n1"), "yes");
    cr_expect_str_eq(may_register("node:write=N1", "node=n1 skip"), "yes");
    cr_expect_str_eq(may_register("node:read=n1", "node=n1"), "node:write on \"n1\"");
    cr_expect_str_eq(may_register("node_prefix:write=n node:deny=n1-b", "node=n1-b"), "node:write on \"n1-b\"");
    cr_expect_str_eq(may_register("service:write=web", "node=n1 skip service=w:web:80"), "node:write on \"n1\"",
                     "there is no such node");
}

Test(access_commands, a_node_that_stays_as_it_is_needs_no_permission, .init = access_world_open,
     .fini = access_world_close) {
    register_spec("node=n1 id=" ID(1) " addr=10.0.0.1 meta=b:2 meta=a:1");
    cr_expect_str_eq(may_register("", "node=n1 id=" ID(1) " addr=10.0.0.1 meta=a:1 meta=b:2"), "yes");
    cr_expect_str_eq(
        may_register("service:write=web", "node=n1 id=" ID(1) " addr=10.0.0.1 meta=b:2 meta=a:1 service=w:web:80"),
        "yes");
    cr_expect_str_eq(may_register("service:write=web", "node=n1 addr=10.9.9.9 skip service=w:web:80"), "yes",
                     "nothing of the node is written");
    static const char *const changes[] = {"node=n1 id=" ID(1) " addr=10.0.0.2 meta=a:1 meta=b:2",
                                          "node=n1 id=" ID(1) " addr=10.0.0.1 meta=a:1 meta=b:3",
                                          "node=n1 id=" ID(1) " addr=10.0.0.1 meta=a:1",
                                          "node=n1 id=" ID(2) " addr=10.0.0.1 meta=a:1 meta=b:2",
                                          "node=n1 addr=10.0.0.1 meta=a:1 meta=b:2",
                                          "node=N1 id=" ID(1) " addr=10.0.0.1 meta=a:1 meta=b:2"};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        const char *missing = may_register("service_prefix:write=", changes[i]);
        cr_expect(strncasecmp(missing, "node:write on \"n1\"", 18) == 0, "%s: %s", changes[i], missing);
    }
}

Test(access_commands, what_may_says_of_a_node_is_what_applying_does, .init = access_world_open,
     .fini = access_world_close) {
    register_spec("node=n1 id=" ID(1) " meta=a:1 service=w:web:80");
    struct outcome lease = grant(ID(9), "", "");
    cr_assert(lease.yes);
    Pb__RegisterCommand *bound = fixture_register_command(&arena, "node=n1 id=" ID(1) " meta=a:1");
    bound->node->lease = TEXT(ID(9));
    cr_expect_str_eq(may("service_prefix:write=", CATALOG_REGISTER, &bound->base), "node:write on \"n1\"");
    cr_assert_eq(fixture_apply(&f, CATALOG_REGISTER, &bound->base).error, CO_OK);
    static const struct {
        const char *spec;
        bool changes;
    } table[] = {{"node=n1 id=" ID(1) " meta=a:1 service=w:web:80", false}, /* the lease stays */
                 {"node=n1 id=" ID(1) " meta=a:1 check=c:passing:w", false},
                 {"node=n1 id=" ID(1) " meta=a:1", true}, /* the lease goes */
                 {"node=n1 id=" ID(1) " meta=a:1", false}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        Pb__NodeRequest request = PB__NODE_REQUEST__INIT;
        request.node = TEXT("n1");
        const char *answer = may_register("service_prefix:write=", table[i].spec);
        cr_expect_str_eq(answer, table[i].changes ? "node:write on \"n1\"" : "yes", "row %zu", i);
        uint64_t before = ((const Pb__NodeServicesResult *)fixture_ask(&f, &query_node_services, &request.base).message)
                              ->node->modify_index;
        register_spec(table[i].spec);
        uint64_t after = ((const Pb__NodeServicesResult *)fixture_ask(&f, &query_node_services, &request.base).message)
                             ->node->modify_index;
        cr_expect_eq(before != after, table[i].changes, "row %zu", i);
    }
}

Test(access_commands, a_node_that_takes_anothers_id_needs_both, .init = access_world_open, .fini = access_world_close) {
    register_spec("node=before id=" ID(1) " service=w:web:80");
    cr_expect_str_eq(may_register("node:write=after node:write=before", "node=after id=" ID(1)), "yes");
    cr_expect_str_eq(may_register("node:write=after node:read=before", "node=after id=" ID(1)),
                     "node:write on \"before\"");
    cr_expect_str_eq(may_register("node:write=after", "node=after id=" ID(1)), "node:write on \"" ID(1) "\"",
                     "a name that the token may not read is not told");
}

Test(access_commands, a_service_by_its_name_and_by_the_name_that_its_id_has, .init = access_world_open,
     .fini = access_world_close) {
    register_spec("node=n1 service=i:old:80 check=c:passing:i");
    cr_expect_str_eq(may_register("service:write=new", "node=n1 skip service=j:new:80"), "yes");
    cr_expect_str_eq(may_register("service:read=new", "node=n1 skip service=j:new:80"), "service:write on \"new\"");
    cr_expect_str_eq(may_register("service_prefix:write=new service:deny=new-b", "node=n1 skip service=j:new-b:80"),
                     "service:write on \"new-b\"");
    cr_expect_str_eq(may_register("service:write=new service:write=old", "node=n1 skip service=I:new:80"), "yes");
    cr_expect_str_eq(may_register("service:write=new service:read=old", "node=n1 skip service=I:new:80"),
                     "service:write on \"old\"");
    cr_expect_str_eq(may_register("service:write=new", "node=n1 skip service=i:new:80"), "service:write on \"i\"");
    register_spec("node=n1 service=old:other:80");
    cr_expect_str_eq(may_register("service:write=old", "node=n1 skip service=:old:80"), "service:write on \"old\"",
                     "without an ID it has its name's");
}

Test(access_commands, checks_by_what_they_belong_to_and_belonged_to, .init = access_world_open,
     .fini = access_world_close) {
    register_spec("node=n1 service=i:web:80 check=c:passing:i");
    register_spec("node=n1 service=j:db:80 check=own:passing:");
    static const struct {
        const char *rules, *spec, *answer;
    } table[] = {
        {"node:write=n1", "node=n1 skip check=new:passing:", "yes"},
        {"service_prefix:write=", "node=n1 skip check=new:passing:", "node:write on \"n1\""},
        {"service:write=web", "node=n1 skip check=new:passing:i", "yes"},
        {"node:write=n1", "node=n1 skip check=new:passing:i", "service:write on \"i\""},
        {"node:write=n1 service:read=web", "node=n1 skip check=new:passing:I", "service:write on \"web\""},
        {"service:write=web", "node=n1 skip check=new:passing:gone", "yes"}, /* applying refuses it */
        {"service:write=new", "node=n1 skip service=k:new:80 check=new:passing:K", "yes"},
        {"service:write=new", "node=n1 skip service=k:new:80 check=new:passing:i", "service:write on \"i\""},
        {"service:write=db", "node=n1 skip check=c:passing:j", "service:write on \"i\""}, /* of web now */
        {"service:write=db service:write=web", "node=n1 skip check=C:passing:j", "yes"},
        {"service:write=web", "node=n1 skip check=own:passing:i", "node:write on \"n1\""}, /* the node's now */
        {"service:write=web", "node=n1 skip check=c:passing:i check=own:passing:", "node:write on \"n1\""},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        cr_expect_str_eq(may_register(table[i].rules, table[i].spec), table[i].answer, "row %zu", i);
}

static const char *may_deregister(const char *rules, const char *node, const char *service_id, const char *check_id) {
    Pb__DeregisterCommand command = PB__DEREGISTER_COMMAND__INIT;
    command.node = TEXT(node), command.service_id = TEXT(service_id), command.check_id = TEXT(check_id);
    return may(rules, CATALOG_DEREGISTER, &command.base);
}

Test(access_commands, deregistering, .init = access_world_open, .fini = access_world_close) {
    register_spec("node=n1 service=i:former:80 check=c:passing:i");
    register_spec("node=n1 service=i:web:80 check=own:passing:");
    static const struct {
        const char *rules, *service_id, *check_id, *answer;
    } table[] = {
        {"node:write=n1", "", "", "yes"},
        {"service_prefix:write= node:read=n1", "", "", "node:write on \"n1\""},
        {"node_prefix:write=n node:deny=n1", "", "", "node:write on \"n1\""},
        {"node:write=n1", "i", "", "yes"},
        {"service:write=web", "I", "", "yes"},
        {"service:write=former", "i", "", "service:write on \"i\""},
        {"service:read=web", "i", "", "service:write on \"web\""},
        {"service:write=web", "", "c", "yes"}, /* although it was registered under the former name */
        {"service:write=former", "", "c", "service:write on \"i\""},
        {"node:write=n1", "", "c", "yes"},
        {"node:write=n1", "", "own", "yes"},
        {"service_prefix:write=", "", "own", "node:write on \"n1\""},
        {"service:write=other", "gone", "", "yes"}, /* nobody's */
        {"service:write=other", "", "gone", "yes"},
        {"node:write=n1", "gone", "", "yes"},
        {"service_prefix:read=", "gone", "", "service:write on \"gone\""}, /* as of one that is there: see "former" */
        {"node_prefix:read= node:write=n2", "", "gone", "service:write on \"gone\""},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        cr_expect_str_eq(may_deregister(table[i].rules, "n1", table[i].service_id, table[i].check_id), table[i].answer,
                         "row %zu", i);
    cr_expect_str_eq(may_deregister("", "gone", "", ""), "node:write on \"gone\"", "it does not tell what is there");
}

Test(access_commands, a_batch_part_by_part, .init = access_world_open, .fini = access_world_close) {
    register_spec("node=n1 service=i:web:80");
    Pb__CatalogBatchCommand batch = PB__CATALOG_BATCH_COMMAND__INIT;
    Pb__RegisterCommand *registers[] = {fixture_register_command(&arena, "node=n1 skip service=a:one:80"),
                                        fixture_register_command(&arena, "node=n1 skip service=b:two:80")};
    Pb__DeregisterCommand deregister = PB__DEREGISTER_COMMAND__INIT, *deregisters[] = {&deregister};
    deregister.node = TEXT("n1"), deregister.service_id = TEXT("i");
    batch.registers = registers, batch.n_registers = 2, batch.deregisters = deregisters, batch.n_deregisters = 1;
    static const struct {
        const char *rules, *answer;
    } table[] = {{"service:write=one service:write=two service:write=web", "yes"},
                 {"service:write=two service:write=web", "service:write on \"one\""},
                 {"service:write=one service:write=web", "service:write on \"two\""},
                 {"service:write=one service:write=two service:read=web", "service:write on \"web\""}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        cr_expect_str_eq(may(table[i].rules, CATALOG_BATCH, &batch.base), table[i].answer, "row %zu", i);
}

Test(access_commands, commands_of_operators, .init = access_world_open, .fini = access_world_close) {
    Pb__AutopilotSetCommand autopilot = PB__AUTOPILOT_SET_COMMAND__INIT;
    Pb__JoinTokenEndCommand token = PB__JOIN_TOKEN_END_COMMAND__INIT;
    Pb__NodeLeaveCommand leave = PB__NODE_LEAVE_COMMAND__INIT;
    const struct {
        uint8_t type;
        const ProtobufCMessage *message;
    } table[] = {{OPERATOR_AUTOPILOT, &autopilot.base}, {JOIN_TOKEN_END, &token.base}, {NODE_LEAVE, &leave.base}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        cr_expect_str_eq(may("operator:write", table[i].type, table[i].message), "yes", "row %zu", i);
        cr_expect_str_eq(may("operator:read node_prefix:write=", table[i].type, table[i].message), "operator:write",
                         "row %zu", i);
    }
}

/* -- leases ------------------------------------------------------------------------------------------------------- */

static const char *may_grant(const char *rules, const char *node) {
    Pb__LeaseGrantCommand command = PB__LEASE_GRANT_COMMAND__INIT;
    Pb__Lease lease = PB__LEASE__INIT;
    lease.node = TEXT(node), command.lease = &lease;
    return may(rules, LEASE_GRANT, &command.base);
}
static const char *may_end(const char *rules, const char *id) {
    Pb__LeaseEndCommand command = PB__LEASE_END_COMMAND__INIT;
    command.id = TEXT(id);
    return may(rules, LEASE_END, &command.base);
}

Test(access_commands, a_nodes_lease_by_node_write_and_another_by_session_write, .init = access_world_open,
     .fini = access_world_close) {
    cr_assert(grant(ID(7), "n1", ID(1)).yes && grant(ID(8), "", "").yes);
    cr_expect_str_eq(may_grant("node:write=n1", "n1"), "yes");
    cr_expect_str_eq(may_grant("node:read=n1 session_prefix:write=", "n1"), "node:write on \"n1\"");
    cr_expect_str_eq(may_grant("node_prefix:write=n node:deny=n1-b", "n1-b"), "node:write on \"n1-b\"");
    cr_expect_str_eq(may_grant("session:write=", ""), "yes");
    cr_expect_str_eq(may_grant("session:read= node_prefix:write=", ""), "session:write on \"\"");
    cr_expect_str_eq(may_end("node:write=n1", ID(7)), "yes");
    cr_expect_str_eq(may_end("session_prefix:write=", ID(7)), "node:write on \"n1\"");
    cr_expect_str_eq(may_end("session_prefix:write=", ID(8)), "yes");
    cr_expect_str_eq(may_end("node_prefix:write=", ID(8)), "session:write on \"\"");
    cr_expect_str_eq(may_end("", ID(9)), "yes", "there is no such lease");
}

static const char *bound_of(const char *rules, const char *id) {
    Pb__LeaseRequest request = PB__LEASE_REQUEST__INIT;
    struct access *access = access_of(rules);
    struct query_result result;
    struct access_check check;
    request.id = TEXT(id);
    int error = fixture_ask_as(&f, access, &query_lease, &request.base, &result, &check);
    const char *text = error == CO_DENIED ? "denied" : result.found ? "" : "-";
    const Pb__LeaseEntry *entry = error ? NULL : (const Pb__LeaseEntry *)result.message;
    for (size_t i = 0; entry && i < entry->n_services; i++)
        text = arena_printf(&arena, "%s %s/%s", text, entry->services[i]->node, entry->services[i]->id);
    for (size_t i = 0; entry && i < entry->n_nodes; i++) text = arena_printf(&arena, "%s @%s", text, entry->nodes[i]);
    for (size_t i = 0; entry && i < entry->n_keys; i++)
        text = arena_printf(&arena, "%s =%.*s", text, (int)entry->keys[i].len, (const char *)entry->keys[i].data);
    access_release(access);
    return text;
}

Test(access_commands, leases_by_session_read_and_bound_things_by_their_own, .init = access_world_open,
     .fini = access_world_close) {
    Pb__LeaseListRequest list = PB__LEASE_LIST_REQUEST__INIT;
    cr_assert(grant(ID(7), "n1", ID(1)).yes && grant(ID(8), "", "").yes);
    cr_expect_str_eq(seen("session:read=n1", &query_leases, &list.base), "n1");
    cr_expect_str_eq(seen("session_prefix:read=n session:deny=n1", &query_leases, &list.base), "");
    cr_expect_str_eq(seen("node_prefix:read=", &query_leases, &list.base), "");
    Pb__RegisterCommand *service = fixture_register_command(&arena, "node=n1 service=i:web:80"),
                        *node = fixture_register_command(&arena, "node=n2");
    service->service->lease = node->node->lease = TEXT(ID(8));
    cr_assert_eq(fixture_apply(&f, CATALOG_REGISTER, &service->base).error, CO_OK);
    cr_assert_eq(fixture_apply(&f, CATALOG_REGISTER, &node->base).error, CO_OK);
    Pb__KvCommand key = PB__KV_COMMAND__INIT;
    key.verb = PB__KV_VERB__KV_SET, key.key = message_bytes(slice_text("a/b")), key.lease = TEXT(ID(8));
    cr_assert(fixture_apply(&f, KV_APPLY, &key.base).yes);
    cr_expect_str_eq(bound_of("session:read= node_prefix:read= service:read=web", ID(8)), " n1/i @n2");
    cr_expect_str_eq(bound_of("session:read= key:read=a/b", ID(8)), " =a/b");
    cr_expect_str_eq(bound_of("session:read= node_prefix:read=", ID(8)), " @n2");
    cr_expect_str_eq(bound_of("session:read= node:read=n1 service:read=web", ID(8)), " n1/i");
    cr_expect_str_eq(bound_of("session:read=", ID(8)), "");
    cr_expect_str_eq(bound_of("node_prefix:read=", ID(8)), "denied");
    cr_expect_str_eq(bound_of("session:read=n1", ID(7)), "");
    cr_expect_str_eq(bound_of("session:read=", ID(7)), "denied");
    cr_expect_str_eq(bound_of("", ID(9)), "-", "there is no such lease");
}
