/* What a token gets to see of the catalog and of leases, and which of their commands it may send. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/message.h"
#include "catalog_specs.h"
#include "registry/catalog_changes.h"
#include "registry/history.h"
#include "registry/lease.h"
#include "registry/operator.h"
#include "registry/trust.h"
#include "tests/lib/with_access.h"

static struct fixture f;
static struct arena arena;
static void setup(void) {
    fixture_open(&f);
    fixture_found(&f);
}
static void teardown(void) {
    fixture_close(&f);
    arena_free(&arena);
}

#define TEXT(text) ((char *)(uintptr_t)(text))
#define ID(n)      "00000000-0000-4000-8000-00000000000" #n

static void put(const char *spec) {
    struct outcome outcome = fixture_register(&f, spec);
    cr_assert_eq(outcome.error, CO_OK, "%s: %s", spec, outcome.text);
}

static struct outcome grant(const char *id, const char *node, const char *node_id) {
    Pb__LeaseGrantCommand command = PB__LEASE_GRANT_COMMAND__INIT;
    Pb__Lease lease = PB__LEASE__INIT;
    lease.id = TEXT(id), lease.ttl_ns = 1000000000, lease.node = TEXT(node), lease.node_id = TEXT(node_id);
    command.lease = &lease;
    return fixture_apply(&f, LEASE_GRANT, &command.base);
}

static void end(const char *id, bool expired, bool leave) {
    Pb__LeaseEndCommand command = PB__LEASE_END_COMMAND__INIT;
    command.id = TEXT(id), command.term = expired ? f.term : 0, command.leave = leave;
    cr_assert(fixture_apply(&f, LEASE_END, &command.base).yes);
}

/* -- queries, one by one ------------------------------------------------------------------------------------------ */

/* "web@n1 db@n2", or what was missing in brackets. Of what is not found "-". */
static const char *seen(const char *rules, const struct query_type *type, const ProtobufCMessage *request) {
    struct access *access = access_of(rules);
    struct query_result result;
    struct access_check check;
    struct buffer missing = {0};
    int error = fixture_ask_as(&f, access, type, request, &result, &check);
    const char *text = "-";
    if (error) {
        cr_assert_eq(error, CO_DENIED);
        access_missing_print(&check.missing, &missing);
        text = arena_printf(&arena, "[%.*s]", (int)missing.size, missing.data);
    } else if (result.found) {
        text = rows_text(&arena, result.message);
    }
    buffer_free(&missing);
    access_release(access);
    return text;
}

static void two_services_on_two_nodes(void) {
    put("node=n1 service=w1:web:80 tag=blue check=wc:passing:w1");
    put("node=n1 service=d1:web-db:81 check=dc:passing:d1");
    put("node=n1-b service=w2:web:80 check=w2c:critical:w2");
    put("node=n1 check=own:passing:");
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

Test(access_catalog, nodes_by_node_read, .init = setup, .fini = teardown) {
    two_services_on_two_nodes();
    cr_expect_str_eq(table("node:read=n1", &query_nodes), "@n1");
    cr_expect_str_eq(table("node_prefix:read=N1 node:deny=n1-b", &query_nodes), "@n1", "names have no case");
    cr_expect_str_eq(table("node_prefix:write=", &query_nodes), "@n1 @n1-b");
    cr_expect_str_eq(table("service_prefix:write=", &query_nodes), "");
}

Test(access_catalog, names_of_services_by_service_read_alone, .init = setup, .fini = teardown) {
    two_services_on_two_nodes();
    cr_expect_str_eq(table("service:read=web", &query_services), "web");
    cr_expect_str_eq(table("service_prefix:read=web service_prefix:deny=web-", &query_services), "web");
    cr_expect_str_eq(table("node_prefix:write=", &query_services), "");
}

Test(access_catalog, instances_by_both, .init = setup, .fini = teardown) {
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

Test(access_catalog, a_node_with_its_services, .init = setup, .fini = teardown) {
    two_services_on_two_nodes();
    cr_expect_str_eq(of_node("node:read=n1 service:read=web", &query_node_services, "n1"), "@n1 web@n1");
    cr_expect_str_eq(of_node("node:read=n1", &query_node_services, "n1"), "@n1");
    cr_expect_str_eq(of_node("node_prefix:read=n1 node:deny=n1-b service_prefix:read=", &query_node_services, "n1-b"),
                     "-", "as a node that is not there");
}

Test(access_catalog, checks_by_what_they_belong_to, .init = setup, .fini = teardown) {
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

Test(access_catalog, addresses_of_services_by_both, .init = setup, .fini = teardown) {
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

Test(access_catalog, names_in_any_case, .init = setup, .fini = teardown) {
    put("node=Node service=w1:Web:80");
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

Test(access_catalog, the_index_of_a_hidden_thing_does_not_tell_that_it_is_there, .init = setup, .fini = teardown) {
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

Test(access_catalog, members_and_dead_nodes_by_node_read, .init = setup, .fini = teardown) {
    Pb__DeadNodesRequest dead = PB__DEAD_NODES_REQUEST__INIT;
    put("node=n1 id=" ID(1) " check=serfHealth:passing:");
    put("node=n2 id=" ID(2) " check=serfHealth:passing:");
    put("node=n3 id=" ID(3) " check=serfHealth:passing:");
    put("node=bare");
    cr_assert(grant(ID(7), "n2", ID(2)).yes && grant(ID(8), "n3", ID(3)).yes);
    end(ID(7), true, false), end(ID(8), false, true);
    cr_expect_str_eq(table("node_prefix:read=", &query_members), "@n1 @n2 @n3");
    cr_expect_str_eq(table("node:read=n1 node:read=n3", &query_members), "@n1 @n3", "who has left likewise");
    cr_expect_str_eq(table("node_prefix:read= node:deny=n3", &query_members), "@n1 @n2");
    cr_expect_str_eq(seen("node:read=n2", &query_dead_nodes, &dead.base), "@n2");
    cr_expect_str_eq(seen("node:read=n1", &query_dead_nodes, &dead.base), "");
}

Test(access_catalog, a_former_name_of_a_service_is_not_told_by_its_checks, .init = setup, .fini = teardown) {
    put("node=n1 service=i:old:80 tag=oldtag check=c:critical:i");
    put("node=n1 service=i:new:80");
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

Test(access_catalog, a_read_of_the_past_is_judged_by_the_records_of_then, .init = setup, .fini = teardown) {
    put("node=n1 service=i:old:80 check=c:passing:i");
    uint64_t then = machine_applied(f.machine);
    put("node=n1 service=i:new:80 check=c:passing:i");
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

Test(access_catalog, what_shows_all_needs_operator_read, .init = setup, .fini = teardown) {
    Pb__CatalogChangesRequest changes = PB__CATALOG_CHANGES_REQUEST__INIT;
    Pb__TableRequest position = PB__TABLE_REQUEST__INIT;
    Pb__AutopilotRequest autopilot = PB__AUTOPILOT_REQUEST__INIT;
    Pb__JoinTokensRequest tokens = PB__JOIN_TOKENS_REQUEST__INIT;
    Pb__CertificatesRequest certificates = PB__CERTIFICATES_REQUEST__INIT;
    const struct {
        const struct query_type *type;
        const ProtobufCMessage *request;
    } table[] = {{&query_catalog_changes, &changes.base},
                 {&query_catalog_position, &position.base},
                 {&query_autopilot, &autopilot.base},
                 {&query_join_tokens, &tokens.base},
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

Test(access_catalog, the_clusters_cas_are_for_everyone_and_other_regions_for_operators, .init = setup,
     .fini = teardown) {
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

/* -- commands ----------------------------------------------------------------------------------------------------- */

static const char *may(const char *rules, uint8_t type, const ProtobufCMessage *command) {
    static char missing[256];
    struct access *access = access_of(rules);
    int error = fixture_may(&f, access, type, command, missing);
    access_release(access);
    return error ? missing : "yes";
}
static const char *may_register(const char *rules, const char *spec) {
    return may(rules, CATALOG_REGISTER, &fixture_register_command(&arena, spec)->base);
}

Test(access_catalog, a_node_is_registered_by_node_write, .init = setup, .fini = teardown) {
    cr_expect_str_eq(may_register("node:write=n1", "node=n1"), "yes");
    cr_expect_str_eq(may_register("node:write=N1", "node=n1 skip"), "yes");
    cr_expect_str_eq(may_register("node:read=n1", "node=n1"), "node:write on \"n1\"");
    cr_expect_str_eq(may_register("node_prefix:write=n node:deny=n1-b", "node=n1-b"), "node:write on \"n1-b\"");
    cr_expect_str_eq(may_register("service:write=web", "node=n1 skip service=w:web:80"), "node:write on \"n1\"",
                     "there is no such node");
}

Test(access_catalog, a_node_that_stays_as_it_is_needs_no_permission, .init = setup, .fini = teardown) {
    put("node=n1 id=" ID(1) " addr=10.0.0.1 meta=b:2 meta=a:1");
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

Test(access_catalog, what_may_says_of_a_node_is_what_applying_does, .init = setup, .fini = teardown) {
    put("node=n1 id=" ID(1) " meta=a:1 service=w:web:80");
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
        put(table[i].spec);
        uint64_t after = ((const Pb__NodeServicesResult *)fixture_ask(&f, &query_node_services, &request.base).message)
                             ->node->modify_index;
        cr_expect_eq(before != after, table[i].changes, "row %zu", i);
    }
}

Test(access_catalog, a_node_that_takes_anothers_id_needs_both, .init = setup, .fini = teardown) {
    put("node=before id=" ID(1) " service=w:web:80");
    cr_expect_str_eq(may_register("node:write=after node:write=before", "node=after id=" ID(1)), "yes");
    cr_expect_str_eq(may_register("node:write=after node:read=before", "node=after id=" ID(1)),
                     "node:write on \"before\"");
    cr_expect_str_eq(may_register("node:write=after", "node=after id=" ID(1)), "node:write on \"" ID(1) "\"",
                     "a name that the token may not read is not told");
}

Test(access_catalog, a_service_by_its_name_and_by_the_name_that_its_id_has, .init = setup, .fini = teardown) {
    put("node=n1 service=i:old:80 check=c:passing:i");
    cr_expect_str_eq(may_register("service:write=new", "node=n1 skip service=j:new:80"), "yes");
    cr_expect_str_eq(may_register("service:read=new", "node=n1 skip service=j:new:80"), "service:write on \"new\"");
    cr_expect_str_eq(may_register("service_prefix:write=new service:deny=new-b", "node=n1 skip service=j:new-b:80"),
                     "service:write on \"new-b\"");
    cr_expect_str_eq(may_register("service:write=new service:write=old", "node=n1 skip service=I:new:80"), "yes");
    cr_expect_str_eq(may_register("service:write=new service:read=old", "node=n1 skip service=I:new:80"),
                     "service:write on \"old\"");
    cr_expect_str_eq(may_register("service:write=new", "node=n1 skip service=i:new:80"), "service:write on \"i\"");
    put("node=n1 service=old:other:80");
    cr_expect_str_eq(may_register("service:write=old", "node=n1 skip service=:old:80"), "service:write on \"old\"",
                     "without an ID it has its name's");
}

Test(access_catalog, checks_by_what_they_belong_to_and_belonged_to, .init = setup, .fini = teardown) {
    put("node=n1 service=i:web:80 check=c:passing:i");
    put("node=n1 service=j:db:80 check=own:passing:");
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

Test(access_catalog, deregistering, .init = setup, .fini = teardown) {
    put("node=n1 service=i:former:80 check=c:passing:i");
    put("node=n1 service=i:web:80 check=own:passing:");
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
        {"", "gone", "", "yes"}, /* nobody's */
        {"", "", "gone", "yes"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        cr_expect_str_eq(may_deregister(table[i].rules, "n1", table[i].service_id, table[i].check_id), table[i].answer,
                         "row %zu", i);
    cr_expect_str_eq(may_deregister("", "gone", "", ""), "node:write on \"gone\"", "it does not tell what is there");
}

Test(access_catalog, a_batch_part_by_part, .init = setup, .fini = teardown) {
    put("node=n1 service=i:web:80");
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

Test(access_catalog, commands_of_operators, .init = setup, .fini = teardown) {
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

Test(access_catalog, a_nodes_lease_by_node_write_and_another_by_session_write, .init = setup, .fini = teardown) {
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
    access_release(access);
    return text;
}

Test(access_catalog, leases_by_session_read_and_bound_things_by_their_own, .init = setup, .fini = teardown) {
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
    cr_expect_str_eq(bound_of("session:read= node_prefix:read= service:read=web", ID(8)), " n1/i @n2");
    cr_expect_str_eq(bound_of("session:read= node_prefix:read=", ID(8)), " @n2");
    cr_expect_str_eq(bound_of("session:read= node:read=n1 service:read=web", ID(8)), " n1/i");
    cr_expect_str_eq(bound_of("session:read=", ID(8)), "");
    cr_expect_str_eq(bound_of("node_prefix:read=", ID(8)), "denied");
    cr_expect_str_eq(bound_of("session:read=n1", ID(7)), "");
    cr_expect_str_eq(bound_of("session:read=", ID(7)), "denied");
    cr_expect_str_eq(bound_of("", ID(9)), "-", "there is no such lease");
}

/* -- subsets ------------------------------------------------------------------------------------------------------ */

enum { NODES = 6, SERVICES = 6, WORLDS = 6, TOKENS = 40, CASES = 32 };

struct world {
    struct known_names known;
    struct rng rng;
};

static int pick(struct world *world, int below) { return (int)rng_below(&world->rng, (uint64_t)below); }

/* A name as somebody may write it. */
static char *spelled(struct world *world, bool service) {
    char *name = arena_strndup(&arena, world->known.names[service][pick(world, service ? SERVICES : NODES)], 10);
    if (pick(world, 3) == 0) name[0] = (char)(name[0] - 32);
    return name;
}

static void random_step(struct world *world) {
    char spec[256];
    int id = pick(world, 4), size = snprintf(spec, sizeof spec, "node=%s", spelled(world, false));
    bool service = pick(world, 4) != 0;
    if (service)
        size += snprintf(spec + size, sizeof spec - (size_t)size, " service=i%d:%s:80 tag=t%d", id,
                         spelled(world, true), pick(world, 3));
    if (pick(world, 2))
        size += snprintf(spec + size, sizeof spec - (size_t)size, " check=c%d:%s:%s", id,
                         pick(world, 2) ? "passing" : "critical",
                         service ? (const char *)arena_printf(&arena, "i%d", id) : "");
    if (pick(world, 3) == 0) snprintf(spec + size, sizeof spec - (size_t)size, " check=serfHealth:passing:");
    Pb__RegisterCommand *command = fixture_register_command(&arena, spec);
    if (service && pick(world, 2)) command->service->address = TEXT("10.1.1.1");
    cr_assert_eq(fixture_apply(&f, CATALOG_REGISTER, &command->base).error, CO_OK, "%s", spec);
}

/* Leases of some nodes: two stand, one has expired, and one node has left. */
static void some_leases(struct world *world) {
    for (int i = 0; i < 4; i++) {
        char id[] = ID(0);
        id[sizeof id - 2] = (char)('1' + i);
        const char *node = world->known.names[0][i];
        Pb__RegisterCommand *command =
            fixture_register_command(&arena, arena_printf(&arena, "node=%s id=%s check=serfHealth:passing:", node, id));
        cr_assert_eq(fixture_apply(&f, CATALOG_REGISTER, &command->base).error, CO_OK);
        cr_assert(grant(id, node, id).yes);
        if (i >= 2) end(id, i == 2, i == 3);
    }
}

struct asked {
    const struct query_type *type;
    const ProtobufCMessage *request;
    size_t caught;
};

static size_t all_cases(struct world *world, struct asked cases[CASES]) {
    static Pb__TableRequest all;
    static Pb__StateRequest state;
    static Pb__LeaseListRequest leases;
    static Pb__DeadNodesRequest dead;
    size_t count = 0;
    pb__table_request__init(&all), pb__state_request__init(&state);
    pb__lease_list_request__init(&leases), pb__dead_nodes_request__init(&dead);
    state.state = TEXT("any");
    cases[count++] = (struct asked){&query_nodes, &all.base, 0};
    cases[count++] = (struct asked){&query_services, &all.base, 0};
    cases[count++] = (struct asked){&query_service_addresses, &all.base, 0};
    cases[count++] = (struct asked){&query_members, &all.base, 0};
    cases[count++] = (struct asked){&query_state_checks, &state.base, 0};
    cases[count++] = (struct asked){&query_leases, &leases.base, 0};
    cases[count++] = (struct asked){&query_dead_nodes, &dead.base, 0};
    for (int i = 0; i < 3; i++) {
        Pb__NodeRequest *node = arena_alloc(&arena, sizeof *node);
        Pb__ServiceRequest *service = arena_alloc(&arena, sizeof *service);
        pb__node_request__init(node), pb__service_request__init(service);
        node->node = spelled(world, false), service->service = spelled(world, true);
        service->held = i == 0;
        cases[count++] = (struct asked){&query_node_services, &node->base, 0};
        cases[count++] = (struct asked){&query_node_checks, &node->base, 0};
        cases[count++] = (struct asked){&query_service_entries, &service->base, 0};
        cases[count++] = (struct asked){&query_service_checks, &service->base, 0};
    }
    cr_assert_leq(count, CASES);
    return count;
}

Test(access_catalog, a_token_sees_exactly_the_rows_that_it_may_read, .fini = teardown) {
    size_t caught[32] = {0}; /* by number of the query: how often the judge noticed an answer that was not reduced */
    for (uint64_t seed = 1; seed <= WORLDS; seed++) {
        struct world world = {0};
        struct asked cases[CASES];
        if (seed > 1) teardown();
        arena = (struct arena){0};
        setup();
        rng_seed(&world.rng, seed);
        for (int i = 0; i < NODES; i++) (void)known_name(&world.known, false, &world.rng, &arena);
        for (int i = 0; i < SERVICES; i++) (void)known_name(&world.known, true, &world.rng, &arena);
        some_leases(&world);
        for (int i = 0; i < 60; i++) random_step(&world);
        size_t count = all_cases(&world, cases);
        for (int token = 0; token < TOKENS; token++) {
            struct access *access = random_access(&world.known, &world.rng);
            for (size_t i = 0; i < count; i++) {
                struct arena scratch = {0};
                const char *fault =
                    answer_fault(&f, &world.known, access, cases[i].type, cases[i].request, false, &scratch);
                cr_expect_null(fault, "seed %d token %d: %s", (int)seed, token, fault);
                caught[cases[i].type->number] +=
                    answer_fault(&f, &world.known, access, cases[i].type, cases[i].request, true, &scratch) != NULL;
                arena_free(&scratch);
            }
            access_release(access);
        }
    }
    static const struct query_type *const types[] = {
        &query_nodes,          &query_services,    &query_node_services, &query_service_entries,
        &query_service_checks, &query_node_checks, &query_state_checks,  &query_service_addresses,
        &query_members,        &query_leases,      &query_dead_nodes};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        cr_expect_geq(caught[types[i]->number], 20, "%s: the judge noticed little", types[i]->name);
}
