/* The catalog as a token gets it, query by query. */
#include <criterion/criterion.h>

#include "access_world.h"
#include "registry/catalog_changes.h"
#include "registry/history.h"
#include "registry/operator.h"
#include "registry/operator_queries.h"
#include "registry/trust.h"

/* -- nodes, services, checks ------------------------------------------------------------------------------------------ */

static void two_services_on_two_nodes(void) {
    register_spec("node=n1 service=w1:web:80 tag=blue check=wc:passing:w1");
    register_spec("node=n1 service=d1:web-db:81 check=dc:passing:d1");
    register_spec("node=n1-b service=w2:web:80 check=w2c:critical:w2");
    register_spec("node=n1 check=own:passing:");
}

static const char *table(const char *rules, const struct query_type *type) {
    Pb__TableRequest request = PB__TABLE_REQUEST__INIT;
    return seen(rules, type, &request.base);
}
static const char *of_node(const char *rules, const struct query_type *type, const char *node) {
    Pb__NodeRequest request = PB__NODE_REQUEST__INIT;
    request.node = TEXT(node);
    return seen(rules, type, &request.base);
}
static const char *of_service(const char *rules, const struct query_type *type, const char *service) {
    Pb__ServiceRequest request = PB__SERVICE_REQUEST__INIT;
    request.service = TEXT(service);
    return seen(rules, type, &request.base);
}
static const char *of_state(const char *rules, const char *state) {
    Pb__StateRequest request = PB__STATE_REQUEST__INIT;
    request.state = TEXT(state);
    return seen(rules, &query_state_checks, &request.base);
}

Test(access_catalog, nodes_by_node_read, .init = access_world_open, .fini = access_world_close) {
    two_services_on_two_nodes();
    cr_expect_str_eq(table("node:read=n1", &query_nodes), "@n1");
    cr_expect_str_eq(table("node_prefix:read=N1 node:deny=n1-b", &query_nodes), "@n1", "names have no case");
    cr_expect_str_eq(table("node_prefix:write=", &query_nodes), "@n1 @n1-b");
    cr_expect_str_eq(table("service_prefix:write=", &query_nodes), "");
}

Test(access_catalog, names_of_services_by_service_read_alone, .init = access_world_open, .fini = access_world_close) {
    two_services_on_two_nodes();
    cr_expect_str_eq(table("service:read=web", &query_services), "web");
    cr_expect_str_eq(table("service_prefix:read=web service_prefix:deny=web-", &query_services), "web");
    cr_expect_str_eq(table("node_prefix:write=", &query_services), "");
}

Test(access_catalog, instances_by_both, .init = access_world_open, .fini = access_world_close) {
    two_services_on_two_nodes();
    cr_expect_str_eq(of_service("service:read=web node:read=n1", &query_service_entries, "web"), "web@n1");
    cr_expect_str_eq(of_service("service:read=web node_prefix:read=", &query_service_entries, "WEB"),
                     "web@n1 web@n1-b");
    cr_expect_str_eq(of_service("service:read=web", &query_service_entries, "web"), "");
    cr_expect_str_eq(of_service("node_prefix:read=", &query_service_entries, "web"), "");
    cr_expect_str_eq(
        of_service("service_prefix:read=web service:deny=web-db node_prefix:read=", &query_service_entries, "web-db"),
        "");
}

Test(access_catalog, a_node_with_its_services, .init = access_world_open, .fini = access_world_close) {
    two_services_on_two_nodes();
    cr_expect_str_eq(of_node("node:read=n1 service:read=web", &query_node_services, "n1"), "@n1 web@n1");
    cr_expect_str_eq(of_node("node:read=n1", &query_node_services, "n1"), "@n1");
    cr_expect_str_eq(of_node("node_prefix:read=n1 node:deny=n1-b service_prefix:read=", &query_node_services, "n1-b"),
                     "-", "as a node that is not there");
}

Test(access_catalog, checks_by_what_they_belong_to, .init = access_world_open, .fini = access_world_close) {
    two_services_on_two_nodes();
    cr_expect_str_eq(of_node("node:read=n1", &query_node_checks, "n1"), "@n1");
    cr_expect_str_eq(of_node("node:read=n1 service:read=web", &query_node_checks, "n1"), "@n1 web@n1");
    cr_expect_str_eq(of_node("service_prefix:read=", &query_node_checks, "n1"), "");
    cr_expect_str_eq(of_service("node:read=n1 service:read=web", &query_service_checks, "web"), "web@n1");
    cr_expect_str_eq(of_service("node:read=n1 service:read=web-db", &query_service_checks, "web"), "");
    cr_expect_str_eq(of_service("service:read=web", &query_service_checks, "web"), "");
    cr_expect_str_eq(of_state("node_prefix:read= service:read=web", "any"), "@n1 web@n1 web@n1-b");
    cr_expect_str_eq(of_state("node_prefix:read=n1 node_prefix:deny=n1- service:read=web", "any"), "@n1 web@n1");
    cr_expect_str_eq(of_state("service_prefix:read=", "any"), "");
}

Test(access_catalog, addresses_of_services_by_both, .init = access_world_open, .fini = access_world_close) {
    Pb__RegisterCommand *command = fixture_register_command(&arena, "node=n1 service=w1:web:80");
    command->service->address = TEXT("10.1.1.1");
    cr_assert_eq(fixture_apply(&f, CATALOG_REGISTER, &command->base).error, CO_OK);
    cr_expect_str_eq(table("service:read=web node:read=n1", &query_service_addresses), "web@n1");
    cr_expect_str_eq(table("service:read=web", &query_service_addresses), "");
    cr_expect_str_eq(table("node:read=n1", &query_service_addresses), "");
}

static const char *name_of(const char *rules, const struct query_type *type, const char *name) {
    Pb__NameRequest request = PB__NAME_REQUEST__INIT;
    struct access *access = access_of(rules);
    struct query_result result;
    struct access_check check;
    request.name = TEXT(name);
    cr_assert_eq(fixture_ask_as(&f, access, type, &request.base, &result, &check), CO_OK);
    access_release(access);
    const char *stored = ((const Pb__NameResult *)result.message)->name;
    cr_expect_eq(result.found, stored[0] != 0);
    cr_expect(result.found || result.index == 0 || check.hidden == 0, "the index does not tell that it is there");
    return arena_strndup(&arena, stored, strlen(stored));
}

Test(access_catalog, names_in_any_case, .init = access_world_open, .fini = access_world_close) {
    register_spec("node=Node service=w1:Web:80");
    cr_expect_str_eq(name_of("node:read=node", &query_node_nocase, "NODE"), "Node");
    cr_expect_str_eq(name_of("service:read=node", &query_node_nocase, "NODE"), "");
    cr_expect_str_eq(name_of("service:read=WEB", &query_service_nocase, "web"), "Web");
    cr_expect_str_eq(name_of("node_prefix:read=", &query_service_nocase, "web"), "");
}

/* The index of the answer for this token. */
static uint64_t index_of(const char *rules, const struct query_type *type, const ProtobufCMessage *request) {
    struct access *access = access_of(rules);
    struct query_result result;
    struct access_check check;
    cr_assert_eq(fixture_ask_as(&f, access, type, request, &result, &check), CO_OK);
    access_release(access);
    return result.index;
}

Test(access_catalog, the_index_of_a_hidden_thing_does_not_tell_that_it_is_there, .init = access_world_open,
     .fini = access_world_close) {
    two_services_on_two_nodes();
    Pb__NodeRequest node = PB__NODE_REQUEST__INIT;
    Pb__ServiceRequest service = PB__SERVICE_REQUEST__INIT;
    node.node = TEXT("n1"), service.service = TEXT("web");
    const struct query_type *of_nodes[] = {&query_node_services, &query_node_checks};
    const struct query_type *of_services[] = {&query_service_entries, &query_service_checks};
    for (size_t i = 0; i < 2; i++) {
        cr_expect_gt(index_of("node:read=n1", of_nodes[i], &node.base), 0);
        cr_expect_eq(index_of("service_prefix:read=", of_nodes[i], &node.base), 0);
        cr_expect_gt(index_of("service:read=web", of_services[i], &service.base), 0);
        cr_expect_eq(index_of("node_prefix:read=", of_services[i], &service.base), 0);
    }
}

Test(access_catalog, members_and_dead_nodes_by_node_read, .init = access_world_open, .fini = access_world_close) {
    Pb__DeadNodesRequest dead = PB__DEAD_NODES_REQUEST__INIT;
    register_spec("node=n1 id=" ID(1) " check=serfHealth:passing:");
    register_spec("node=n2 id=" ID(2) " check=serfHealth:passing:");
    register_spec("node=n3 id=" ID(3) " check=serfHealth:passing:");
    register_spec("node=bare");
    cr_assert(grant(ID(7), "n2", ID(2)).yes && grant(ID(8), "n3", ID(3)).yes);
    lease_ends(ID(7), true, false), lease_ends(ID(8), false, true);
    cr_expect_str_eq(table("node_prefix:read=", &query_members), "@n1 @n2 @n3");
    cr_expect_str_eq(table("node:read=n1 node:read=n3", &query_members), "@n1 @n3", "who has left likewise");
    cr_expect_str_eq(table("node_prefix:read= node:deny=n3", &query_members), "@n1 @n2");
    cr_expect_str_eq(seen("node:read=n2", &query_dead_nodes, &dead.base), "@n2");
    cr_expect_str_eq(seen("node:read=n1", &query_dead_nodes, &dead.base), "");
}

Test(access_catalog, a_former_name_of_a_service_is_not_told_by_its_checks, .init = access_world_open,
     .fini = access_world_close) {
    register_spec("node=n1 service=i:old:80 tag=oldtag check=c:critical:i");
    register_spec("node=n1 service=i:new:80");
    cr_expect_str_eq(of_node("node:read=n1 service:read=new", &query_node_checks, "n1"), "");
    cr_expect_str_eq(of_node("node:read=n1 service:read=old", &query_node_checks, "n1"), "old@n1");
    struct access *access = access_of("node:read=n1 service:read=new");
    Pb__ServiceRequest request = PB__SERVICE_REQUEST__INIT;
    struct query_result result;
    struct access_check check;
    request.service = TEXT("new");
    cr_assert_eq(fixture_ask_as(&f, access, &query_service_entries, &request.base, &result, &check), CO_OK);
    const Pb__ServiceEntriesResult *entries = (const Pb__ServiceEntriesResult *)result.message;
    cr_assert_eq(entries->n_entries, 1);
    cr_assert_eq(entries->entries[0]->n_checks, 1, "without it the instance would seem to pass");
    const Pb__Check *row = entries->entries[0]->checks[0];
    cr_expect_eq(row->status, PB__STATUS__CRITICAL);
    cr_expect_str_eq(row->service_name, "new");
    cr_expect_eq(row->n_service_tags, 0);
    access_release(access);
}

Test(access_catalog, a_read_of_the_past_is_judged_by_the_records_of_then, .init = access_world_open,
     .fini = access_world_close) {
    register_spec("node=n1 service=i:old:80 check=c:passing:i");
    uint64_t then = machine_applied(f.machine);
    register_spec("node=n1 service=i:new:80 check=c:passing:i");
    Pb__NodeRequest request = PB__NODE_REQUEST__INIT;
    request.node = TEXT("n1");
    static const struct {
        const char *rules, *services, *checks;
    } rows[] = {{"node:read=n1 service:read=old", "@n1 old@n1", "old@n1"},
                {"node:read=n1 service:read=new", "@n1", ""}};
    for (size_t i = 0; i < 2; i++) {
        struct access *access = access_of(rows[i].rules);
        struct access_check check = {.access = access, .arena = &arena};
        struct query_result services = {0}, checks = {0};
        struct store_past *past;
        fixture_forget(&f);
        struct store_txn *txn = store_read(f.reader);
        cr_assert_eq(history_read_past(txn, HISTORY_CATALOG, then, &past), CO_OK);
        cr_assert_eq(query_node_services.run(txn, &request.base, &arena, &services), CO_OK);
        cr_assert_eq(query_node_checks.run(txn, &request.base, &arena, &checks), CO_OK);
        cr_assert_eq(query_node_services.show(&check, txn, &request.base, &services), CO_OK);
        cr_assert_eq(query_node_checks.show(&check, txn, &request.base, &checks), CO_OK);
        cr_expect_str_eq(rows_text(&arena, services.message), rows[i].services);
        cr_expect_str_eq(rows_text(&arena, checks.message), rows[i].checks);
        history_past_end(txn, past);
        access_release(access);
    }
}

/* -- what is the operator's ---------------------------------------------------------------------------------------- */

Test(access_catalog, what_shows_all_needs_operator_read, .init = access_world_open, .fini = access_world_close) {
    Pb__CatalogChangesRequest changes = PB__CATALOG_CHANGES_REQUEST__INIT;
    Pb__TableRequest position = PB__TABLE_REQUEST__INIT;
    Pb__AutopilotRequest autopilot = PB__AUTOPILOT_REQUEST__INIT;
    Pb__JoinTokensRequest tokens = PB__JOIN_TOKENS_REQUEST__INIT;
    Pb__CertificatesRequest certificates = PB__CERTIFICATES_REQUEST__INIT;
    Pb__TrustRequest trust = PB__TRUST_REQUEST__INIT;
    const struct {
        const struct query_type *type;
        const ProtobufCMessage *request;
    } table[] = {{&query_catalog_changes, &changes.base},  {&query_catalog_position, &position.base},
                 {&query_autopilot, &autopilot.base},      {&query_all_members, &position.base},
                 {&query_trusted_regions, &trust.base},    {&query_join_tokens, &tokens.base},
                 {&query_certificates, &certificates.base}};
    struct access *allowed = access_of("operator:read");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct query_result result;
        struct access_check check;
        cr_expect_str_eq(seen("node_prefix:write= service_prefix:write=", table[i].type, table[i].request),
                         "[operator:read]", "%s", table[i].type->name);
        cr_expect_eq(fixture_ask_as(&f, allowed, table[i].type, table[i].request, &result, &check), CO_OK, "%s",
                     table[i].type->name);
    }
    access_release(allowed);
}

Test(access_catalog, the_clusters_cas_are_for_everyone_and_other_regions_for_operators, .init = access_world_open,
     .fini = access_world_close) {
    Pb__TrustSetCommand command = PB__TRUST_SET_COMMAND__INIT;
    Pb__Trust trust = PB__TRUST__INIT;
    Pb__TrustCa ca = PB__TRUST_CA__INIT, *cas[] = {&ca};
    Pb__TrustRegion region = PB__TRUST_REGION__INIT, *regions[] = {&region};
    Pb__TrustRequest request = PB__TRUST_REQUEST__INIT;
    uint8_t pin[32] = {1};
    ca.certificate = TEXT("PEM"), ca.pin = (ProtobufCBinaryData){sizeof pin, pin};
    region.name = TEXT("us"), region.domain = TEXT("ffffffffffffffffffffffffffffffff");
    region.certificate = TEXT("PEM"), region.pin = ca.pin;
    trust.domain = TEXT("0123456789abcdef0123456789abcdef"), trust.cas = cas, trust.n_cas = 1;
    trust.mode = TRUST_CLOSED;
    trust.regions = regions, trust.n_regions = 1;
    command.trust = &trust;
    struct outcome outcome = fixture_apply(&f, TRUST_SET, &command.base);
    cr_assert(outcome.yes, "%s", outcome.text);
    static const char *const rules[] = {"node:write=n1", "operator:read"};
    for (size_t i = 0; i < 2; i++) {
        struct access *access = access_of(rules[i]);
        struct query_result result;
        struct access_check check;
        cr_assert_eq(fixture_ask_as(&f, access, &query_trust, &request.base, &result, &check), CO_OK);
        cr_expect_eq(((const Pb__Trust *)result.message)->n_cas, 1);
        cr_expect_eq(((const Pb__Trust *)result.message)->n_regions, i);
        access_release(access);
    }
}
