/* The catalog as real Consul 1.8.7 behaves (looked at in each case), and which indexes move. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "catalog_specs.h"

#define UUID(last) "22222222-2222-2222-2222-22222222222" last

static struct fixture f;
static void open_fixture(void) { fixture_open(&f); }
static void close_fixture(void) {
    fixture_sum(&f);
    fixture_close(&f);
}
TestSuite(catalog, .init = open_fixture, .fini = close_fixture);

static uint64_t node_index(const char *name) { return fixture_node(&f, &query_node_services, name).index; }
static uint64_t service_index(const char *name) { return fixture_service(&f, &query_service_entries, name).index; }
static uint64_t nodes_index(void) { return fixture_table(&f, &query_nodes).index; }
static uint64_t services_index(void) { return fixture_table(&f, &query_services).index; }
static uint64_t checks_index(void) { return fixture_state(&f, "any").index; }

static uint64_t reg(const char *spec) {
    struct outcome result = fixture_register(&f, spec);
    cr_assert_eq(result.error, CO_OK, "%s: %s", spec, result.text);
    cr_assert(result.yes);
    return result.index;
}

static void refused(const char *spec, const char *text) {
    uint64_t before[] = {nodes_index(), services_index(), checks_index()};
    struct outcome result = fixture_register(&f, spec);
    cr_assert(result.error == CO_INVALID && !result.yes, "%s", spec);
    cr_assert_str_eq(result.text, text);
    cr_assert(nodes_index() == before[0] && services_index() == before[1] && checks_index() == before[2], "%s", spec);
}

static uint64_t dereg(const char *node, const char *service_id, const char *check_id) {
    struct outcome result = fixture_deregister(&f, node, service_id, check_id);
    cr_assert(result.error == CO_OK && result.yes);
    return result.index;
}

static const Pb__NodeServicesResult *node(const char *name, bool *found) {
    struct query_result result = fixture_node(&f, &query_node_services, name);
    if (found) *found = result.found;
    return (const Pb__NodeServicesResult *)result.message;
}

static const Pb__ServiceEntriesResult *entries(const char *service) {
    return (const Pb__ServiceEntriesResult *)fixture_service(&f, &query_service_entries, service).message;
}

static const Pb__ChecksResult *checks_of(const char *name) {
    return (const Pb__ChecksResult *)fixture_node(&f, &query_node_checks, name).message;
}

Test(catalog, a_registration_is_found_everywhere) {
    uint64_t index =
        reg("node=n1 addr=10.9.9.9 meta=b:2 meta=a:1 service=web1:web:80 tag=x tag=y check=c1:passing:web1 "
            "check=nc:warning:");
    bool found;
    const Pb__NodeServicesResult *n = node("n1", &found);
    cr_assert(found);
    cr_assert_str_eq(n->node->address, "10.9.9.9");
    cr_assert_str_eq(n->node->meta[0]->key, "a"); /* sorted */
    cr_assert_eq(n->n_services, 1);
    cr_assert_str_eq(n->services[0]->node, "n1");
    cr_assert(n->services[0]->weight_passing == 1 && n->services[0]->weight_warning == 1);
    const Pb__ServiceEntriesResult *e = entries("web");
    cr_assert_eq(e->n_entries, 1);
    cr_assert_eq(e->entries[0]->n_checks, 2);
    cr_assert_str_eq(e->entries[0]->checks[0]->check_id, "nc"); /* the node's first */
    cr_assert_str_eq(e->entries[0]->checks[1]->service_name, "web");
    cr_assert_eq(e->entries[0]->checks[1]->n_service_tags, 2);
    cr_assert_eq(catalog_entry_status(e->entries[0]), PB__STATUS__WARNING);
    const Pb__ServicesResult *s = (const Pb__ServicesResult *)fixture_table(&f, &query_services).message;
    cr_assert(s->n_services == 1 && s->services[0]->n_tags == 2);
    cr_assert_eq(((const Pb__NodesResult *)fixture_table(&f, &query_nodes).message)->n_nodes, 1);
    cr_assert_eq(checks_of("n1")->n_checks, 2);
    const Pb__ChecksResult *sc = (const Pb__ChecksResult *)fixture_service(&f, &query_service_checks, "web").message;
    cr_assert(sc->n_checks == 1 && strcmp(sc->checks[0]->check_id, "c1") == 0);
    cr_assert_eq(((const Pb__ChecksResult *)fixture_state(&f, "warning").message)->n_checks, 1);
    cr_assert_eq(((const Pb__ChecksResult *)fixture_state(&f, "any").message)->n_checks, 2);
    cr_assert_eq(((const Pb__ChecksResult *)fixture_state(&f, "nonsense").message)->n_checks, 0);
    cr_assert(node_index("n1") == index && service_index("web") == index && nodes_index() == index &&
              checks_index() == index);
    fixture_reopen(&f);
    cr_assert_eq(entries("web")->n_entries, 1);
}

Test(catalog, what_is_not_there) {
    bool found = true;
    cr_assert_eq(node("none", &found)->n_services, 0);
    cr_assert_not(found);
    cr_assert_eq(node_index("none"), 0);
    cr_assert_eq(entries("none")->n_entries, 0);
    cr_assert_eq(service_index("none"), 0);
    cr_assert_eq(services_index(), 0);
    dereg("none", "", "");
    dereg("none", "x", "");
    dereg("none", "", "x");
    cr_assert(nodes_index() == 0 && checks_index() == 0 && node_index("none") == 0);
}

Test(catalog, registering_the_same_again_changes_no_index) {
    const char *spec =
        "node=n1 id=" UUID("1") " meta=a:1 meta=b:1 service=web:web:80 tag=x check=c:critical:web output=text";
    uint64_t index = reg(spec);
    reg(spec);
    reg("node=n1 id=" UUID("1") " meta=b:1 meta=a:1 service=web:web:80 tag=x check=c:critical:web output=text");
    reg("node=n1 addr=1.1.1.1 skip service=web:web:80 tag=x");
    cr_assert_eq(node_index("n1"), index);
    cr_assert_eq(service_index("web"), index);
    cr_assert(nodes_index() == index && services_index() == index && checks_index() == index);
    cr_assert_eq(node("n1", NULL)->node->modify_index, index);
}

Test(catalog, a_register_replaces_the_whole_node_but_keeps_its_creation) {
    uint64_t created = reg("node=n1 addr=10.0.0.1 id=" UUID("1") " meta=a:1 service=web:web:80");
    uint64_t other = reg("node=n2 service=other:other:1");
    uint64_t changed = reg("node=n1 addr=10.0.0.1");
    const Pb__Node *n = node("n1", NULL)->node;
    cr_assert(n->n_meta == 0 && n->id[0] == '\0');
    cr_assert(n->create_index == created && n->modify_index == changed);
    cr_assert_eq(service_index("web"), changed); /* its node moved */
    cr_assert_eq(service_index("other"), other);
    cr_assert_eq(services_index(), other);
}

Test(catalog, skip_node_update_spares_a_known_node_and_creates_an_unknown) {
    reg("node=n1 addr=10.0.0.1");
    reg("node=n1 addr=10.0.0.9 skip service=web:web:80");
    cr_assert_str_eq(node("n1", NULL)->node->address, "10.0.0.1");
    reg("node=n2 addr= skip service=web:web:80");
    cr_assert_str_eq(node("n2", NULL)->node->address, "");
    cr_assert_eq(entries("web")->n_entries, 2);
}

Test(catalog, what_cannot_be_registered) {
    refused("node=", "Must provide node");
    refused("node=n addr=", "Must provide address if SkipNodeUpdate is not set");
    refused("node=n id=zz", "Bad node ID: \"zz\" is no UUID");
    refused("node=n service=x::1", "Must provide service name with ID");
    refused("node=n check=c:passing:none", "failed inserting check: Missing service registration on node \"n\"");
    refused("node=n check=ok:passing: check=c:passing:none",
            "failed inserting check: Missing service registration on node \"n\"");
    refused("node=n check=:passing:", "failed inserting check: it has neither an ID nor a name, on node \"n\"");
    refused("node=n check=c:maintenance:", "check \"c\" has a status that cannot be stored");
    bool found;
    (void)node("n", &found);
    cr_assert_not(found);
    struct outcome result = fixture_deregister(&f, "", "", "");
    cr_assert(result.error == CO_INVALID && !result.yes);
    Pb__RegisterCommand empty = PB__REGISTER_COMMAND__INIT;
    cr_assert_eq(fixture_apply(&f, CATALOG_REGISTER, &empty.base).error, CO_INVALID);
}

Test(catalog, a_command_that_does_not_decode_is_refused) {
    struct machine_input input = {
        .index = 1, .term = 1, .is_command = true, .command = slice_make("\x01\x01\xff\xff\xff", 5)};
    cr_assert_eq(machine_apply(f.machine, &input, 1, NULL, NULL, NULL), CO_OK);
    cr_assert_eq(machine_applied(f.machine), 1);
}

/* protobuf-c unpacks 85 00 as an unknown field of number 0, packs it as 05, and does not unpack that. */
static void note_error(void *data, void *origin, const struct machine_result *result) {
    (void)origin;
    *(int *)data = result->error;
}

Test(catalog, a_command_that_would_become_an_unreadable_record_is_refused) {
    static const struct slice commands[] = {
        /* in the node, in its meta, in a service, in the command itself */
        SLICE_LITERAL("\x01\x01\n\x0c\n\x01n\x1a\x01"
                      "a\x85\x00"
                      "1234"),
        SLICE_LITERAL("\x01\x01\n\x11\n\x01n\x1a\x01"
                      "a2\x09\n\x01k\x85\x00"
                      "1234"),
        SLICE_LITERAL("\x01\x01\n\x06\n\x01n\x1a\x01"
                      "a\x1a\x0c\n\x01n\x1a\x01s\x85\x00"
                      "1234"),
        SLICE_LITERAL("\x01\x01\n\x06\n\x01n\x1a\x01"
                      "a\x85\x00"
                      "1234"),
    };
    reg("node=n");
    uint64_t before = node_index("n");
    for (size_t i = 0; i < ARRAY_COUNT(commands); i++) {
        struct machine_input input = {
            .index = machine_applied(f.machine) + 1, .term = 1, .is_command = true, .command = commands[i]};
        int error = CO_OK;
        cr_assert_eq(machine_apply(f.machine, &input, 1, note_error, &error, NULL), CO_OK, "%zu", i);
        cr_expect_eq(error, CO_INVALID, "%zu", i);
        cr_expect_eq(node_index("n"), before, "%zu", i);
    }
    reg("node=n addr=10.0.0.2");
}

Test(catalog, an_id_may_be_left_out) {
    reg("node=n service=:web:80");
    cr_assert_str_eq(node("n", NULL)->services[0]->id, "web");
    struct arena arena = {0};
    Pb__RegisterCommand *command = fixture_register_command(&arena, "node=n check=x:passing:web");
    command->checks[0]->check_id = (char *)protobuf_c_empty_string;
    cr_assert(fixture_apply(&f, CATALOG_REGISTER, &command->base).yes);
    cr_assert_str_eq(checks_of("n")->checks[0]->check_id, "x");
    command->checks[0]->node = arena_strndup(&arena, "other", 5);
    struct outcome result = fixture_apply(&f, CATALOG_REGISTER, &command->base);
    cr_assert_eq(result.error, CO_INVALID);
    cr_assert_str_eq(result.text, "check node \"other\" does not match node \"n\"");
    arena_free(&arena);
}

Test(catalog, removing_services_checks_and_nodes) {
    reg("node=n1 service=a:web:1 check=ac:passing:a check=nc:passing:");
    reg("node=n1 service=b:web:2 check=bc:passing:b");
    uint64_t index = dereg("n1", "a", "");
    cr_assert(entries("web")->n_entries == 1 && checks_of("n1")->n_checks == 2);
    cr_assert(service_index("web") == index && node_index("n1") == index && checks_index() == index);
    cr_assert_lt(services_index(), index); /* the name is still there */
    uint64_t check_gone = dereg("n1", "", "nc");
    cr_assert(service_index("web") == check_gone && checks_of("n1")->n_checks == 1);
    uint64_t gone = dereg("n1", "", "");
    bool found;
    (void)node("n1", &found);
    cr_assert_not(found);
    cr_assert(entries("web")->n_entries == 0 &&
              ((const Pb__ChecksResult *)fixture_state(&f, "any").message)->n_checks == 0);
    cr_assert(node_index("n1") == gone && service_index("web") == gone && services_index() == gone &&
              nodes_index() == gone);
    uint64_t back = reg("node=n1 service=a:web:1");
    cr_assert_eq(node("n1", NULL)->node->create_index, back);
    cr_assert_eq(service_index("web"), back);
}

Test(catalog, what_changes_touch) {
    reg("node=n1 service=a:alpha:1 check=ac:passing:a");
    reg("node=n1 service=b:beta:1");
    uint64_t before = reg("node=n2 service=g:gamma:1");
    uint64_t index = reg("node=n1 check=ac:critical:a"); /* a service's check: that service only */
    cr_assert(service_index("alpha") == index && node_index("n1") == index && checks_index() == index);
    cr_assert(service_index("beta") < before && nodes_index() == before && services_index() == before);
    index = reg("node=n1 check=nc:critical:"); /* a node's check: all services on it */
    cr_assert(service_index("alpha") == index && service_index("beta") == index && service_index("gamma") == before);
    index = reg("node=n1 service=b:beta:2"); /* a port: neither names nor tags */
    cr_assert(service_index("beta") == index && node_index("n1") == index && services_index() == before);
    cr_assert_lt(service_index("alpha"), index);
    index = reg("node=n1 service=b:beta:2 tag=new");
    cr_assert_eq(services_index(), index);
    uint64_t second = reg("node=n2 service=b2:beta:1 tag=new"); /* the tag is in the union already */
    cr_assert(services_index() == index && service_index("beta") == second);
    reg("node=n2 service=b2:beta:1");
    cr_assert_eq(services_index(), index);
    uint64_t third = reg("node=n1 service=b:beta:2"); /* the last one that had it */
    cr_assert_eq(services_index(), third);
}

Test(catalog, a_service_takes_another_name_under_its_id) {
    uint64_t created = reg("node=n1 service=web:web:80 tag=x check=c1:passing:web");
    uint64_t renamed = reg("node=n1 service=web:web-new:80 tag=z");
    cr_assert(entries("web")->n_entries == 0 && entries("web-new")->n_entries == 1);
    cr_assert(service_index("web") == renamed && service_index("web-new") == renamed && services_index() == renamed);
    const Pb__ServiceEntry *entry = entries("web-new")->entries[0];
    cr_assert(entry->service->create_index == created && entry->service->modify_index == renamed);
    cr_assert(entry->n_checks == 1 && strcmp(entry->checks[0]->service_name, "web") == 0); /* as Consul: not told */
    cr_assert_eq(((const Pb__ChecksResult *)fixture_service(&f, &query_service_checks, "web").message)->n_checks, 1);
    cr_assert_eq(((const Pb__ChecksResult *)fixture_service(&f, &query_service_checks, "web-new").message)->n_checks,
                 0);
    uint64_t again = reg("node=n1 check=c1:passing:web");
    cr_assert_eq(((const Pb__ChecksResult *)fixture_service(&f, &query_service_checks, "web").message)->n_checks, 0);
    const Pb__ChecksResult *now =
        (const Pb__ChecksResult *)fixture_service(&f, &query_service_checks, "web-new").message;
    cr_assert(now->n_checks == 1 && now->checks[0]->n_service_tags == 1 &&
              strcmp(now->checks[0]->service_tags[0], "z") == 0);
    cr_assert(now->checks[0]->create_index == created && now->checks[0]->modify_index == again);
    cr_assert(service_index("web") == again && service_index("web-new") == again);
}

Test(catalog, a_check_moves_between_services) {
    reg("node=n1 service=a:alpha:1 check=c:passing:a");
    reg("node=n1 service=b:beta:1");
    uint64_t index = reg("node=n1 check=c:passing:b");
    cr_assert(service_index("alpha") == index && service_index("beta") == index);
    cr_assert_eq(checks_of("n1")->n_checks, 1);
    cr_assert_eq(entries("alpha")->entries[0]->n_checks, 0);
    index = reg("node=n1 check=c:passing:");
    cr_assert(entries("beta")->entries[0]->n_checks == 1 && checks_of("n1")->checks[0]->service_name[0] == '\0');
    cr_assert_eq(entries("alpha")->entries[0]->n_checks, 1); /* the node's check now */
}

Test(catalog, a_node_with_a_known_id_takes_another_name) {
    uint64_t created = reg("node=r1 id=" UUID("1") " service=rs:rs:1 check=rc:passing:");
    uint64_t renamed = reg("node=r2 id=" UUID("1"));
    bool found;
    (void)node("r1", &found);
    cr_assert_not(found);
    cr_assert(entries("rs")->n_entries == 0 && service_index("rs") == renamed && node_index("r1") == renamed);
    const Pb__NodeServicesResult *n = node("r2", &found);
    cr_assert(found && n->n_services == 0 && n->node->create_index == created && n->node->modify_index == renamed);
    reg("node=r2 id=" UUID("2")); /* no serfHealth: another ID takes the name */
    cr_assert_str_eq(node("r2", NULL)->node->id, UUID("2"));
    reg("node=r3 id=" UUID("1")); /* the first ID is free again */
    cr_assert_eq(node("r2", &found)->n_services, 0);
    cr_assert(found);
}

Test(catalog, a_rename_onto_another_node_keeps_that_ones_services) {
    uint64_t created = reg("node=r7 addr=10.1.0.7 id=" UUID("9") " service=seven:seven:1");
    reg("node=r8 addr=10.1.0.8 id=" UUID("a") " service=eight:eight:1");
    reg("node=r8 addr=10.1.0.7 id=" UUID("9"));
    bool found;
    (void)node("r7", &found);
    cr_assert_not(found);
    const Pb__NodeServicesResult *n = node("r8", NULL);
    cr_assert(n->n_services == 1 && strcmp(n->services[0]->id, "eight") == 0 && n->node->create_index == created);
    cr_assert_eq(entries("seven")->n_entries, 0);
    reg("node=r9 id=" UUID("a")); /* nobody has it: a new node */
    (void)node("r8", &found);
    cr_assert(found);
}

Test(catalog, the_name_of_a_node_alive_is_reserved) {
    reg("node=r3 addr=10.1.0.1 id=" UUID("3") " check=serfHealth:passing:");
    refused("node=r3 addr=10.1.0.1 id=" UUID("4"),
            "failed inserting node: Error while renaming Node ID: \"" UUID(
                "4") "\": Node name r3 is reserved by node " UUID("3") " with name r3 (10.1.0.1)");
    refused("node=R3 addr=10.1.0.1 id=" UUID("4"),
            "failed inserting node: Error while renaming Node ID: \"" UUID(
                "4") "\": Node name R3 is reserved by node " UUID("3") " with name r3 (10.1.0.1)");
    reg("node=r4 addr=10.1.0.1 id=" UUID("6"));
    refused("node=r3 addr=10.1.0.1 id=" UUID("6"),
            "failed inserting node: Error while renaming Node ID: \"" UUID(
                "6") "\" (10.1.0.1): Node name r3 is reserved by node " UUID("3") " with name r3 (10.1.0.1)");
    reg("node=r3 addr=10.1.0.2");               /* without an ID: taken as it is */
    reg("node=r3 addr=10.1.0.2 id=" UUID("5")); /* one without ID may get one */
    cr_assert_str_eq(node("r3", NULL)->node->id, UUID("5"));
    reg("node=r5 addr=10.1.0.5 check=serfHealth:warning:");
    refused("node=r5 addr=10.1.0.1 id=" UUID("6"),
            "failed inserting node: Error while renaming Node ID: \"" UUID("6") "\" (10.1.0.1): Node name r5 is reserved by node "
            " with name r5 (10.1.0.5)");
    reg("node=r3 addr=10.1.0.2 id=" UUID("5") " check=serfHealth:critical:");
    reg("node=r3 addr=10.1.0.2 id=" UUID("7")); /* dead: free to take */
    cr_assert_str_eq(node("r3", NULL)->node->id, UUID("7"));
}

Test(catalog, an_agent_takes_over_the_name_of_the_one_before_it_at_its_address) {
    uint64_t created = reg("node=s3 addr=10.1.0.3 id=" UUID("b") " service=web:web:80 check=serfHealth:passing:");
    refused("node=s3 addr=10.1.0.4 id=" UUID("c") " own",
            "failed inserting node: Error while renaming Node ID: \"" UUID(
                "c") "\": Node name s3 is reserved by node " UUID("b") " with name s3 (10.1.0.3)");
    reg("node=s3 addr=10.1.0.3 id=" UUID("c") " own check=serfHealth:passing:");
    const Pb__NodeServicesResult *n = node("s3", NULL);
    cr_assert_str_eq(n->node->id, UUID("c"));
    cr_assert(n->node->create_index == created && n->n_services == 1);
    refused("node=s3 addr=10.1.0.3 id=" UUID("b"),
            "failed inserting node: Error while renaming Node ID: \"" UUID(
                "b") "\": Node name s3 is reserved by node " UUID("c") " with name s3 (10.1.0.3)");
    reg("node=s4 addr=10.1.0.3 id=" UUID("b") " own"); /* the ID before is free */
}

static Pb__ServiceRequest *service_request(const char *service, bool passing, const char *tag, const char *tag2,
                                           const char *meta) {
    static Pb__ServiceRequest request;
    static char *tags[2];
    static Pb__Pair pair, *pairs[1] = {&pair};
    static char key[32];
    pb__service_request__init(&request);
    request.service = (char *)(uintptr_t)service;
    request.passing_only = passing;
    tags[0] = (char *)(uintptr_t)tag;
    tags[1] = (char *)(uintptr_t)tag2;
    request.tags = tags;
    request.n_tags = (size_t)(tag != NULL) + (tag2 != NULL);
    if (meta) {
        pb__pair__init(&pair);
        snprintf(key, sizeof key, "%s", meta);
        pair.value = strchr(key, ':') + 1;
        *strchr(key, ':') = '\0';
        pair.key = key;
        request.node_meta = pairs;
        request.n_node_meta = 1;
    }
    return &request;
}

static size_t count_entries(const char *service, bool passing, const char *tag, const char *tag2, const char *meta) {
    const Pb__ServiceRequest *request = service_request(service, passing, tag, tag2, meta);
    return ((const Pb__ServiceEntriesResult *)fixture_query(&f, &query_service_entries, &request->base).message)
        ->n_entries;
}

Test(catalog, filters_of_instances) {
    reg("node=n1 meta=rack:1 service=a:web:1 tag=V1 tag=prod check=a:passing:a");
    reg("node=n2 meta=rack:2 service=b:web:2 tag=v1 check=b:warning:b");
    reg("node=n3 meta=rack:2 service=c:web:3 tag=v2 check=c:critical:c");
    reg("node=n3 meta=rack:2 service=d:web:4 check=d:passing:d");
    uint64_t last = reg("node=n4 service=e:web:5 check=node:critical:");
    cr_assert_eq(count_entries("web", false, NULL, NULL, NULL), 5);
    cr_assert_eq(count_entries("web", false, "v1", NULL, NULL), 2); /* tags: in any case */
    cr_assert_eq(count_entries("web", false, "V1", "PROD", NULL), 1);
    cr_assert_eq(count_entries("web", true, NULL, NULL, NULL), 2);
    cr_assert_eq(count_entries("web", false, NULL, NULL, "rack:2"), 3);
    cr_assert_eq(count_entries("web", true, NULL, NULL, "rack:2"), 1);
    cr_assert_eq(count_entries("Web", false, NULL, NULL, NULL), 5); /* names: in any case */
    const Pb__ServiceRequest *request = service_request("web", true, "none", NULL, NULL);
    cr_assert_eq(fixture_query(&f, &query_service_entries, &request->base).index, last);
    const Pb__ServiceEntriesResult *all = entries("web");
    const char *order[] = {"a", "b", "c", "d", "e"};
    for (int i = 0; i < 5; i++) cr_assert_str_eq(all->entries[i]->service->id, order[i]);
}

static Pb__TableRequest *meta_request(const char *key, const char *value) {
    static Pb__TableRequest request;
    static Pb__Pair pair, *pairs[1] = {&pair};
    pb__table_request__init(&request);
    pb__pair__init(&pair);
    pair.key = (char *)(uintptr_t)key;
    pair.value = (char *)(uintptr_t)value;
    request.node_meta = pairs;
    request.n_node_meta = 1;
    return &request;
}

Test(catalog, tables_by_node_meta) {
    reg("node=n1 meta=rack:1 service=a:web:1 tag=x check=c:passing:");
    reg("node=n2 meta=rack:2 service=a:web:1 tag=y");
    reg("node=n2 meta=rack:2 service=b:db:1");
    const Pb__ServicesResult *s =
        (const Pb__ServicesResult *)fixture_query(&f, &query_services, &meta_request("rack", "2")->base).message;
    cr_assert(s->n_services == 2 && strcmp(s->services[0]->name, "db") == 0 && s->services[0]->n_tags == 0);
    cr_assert(s->services[1]->n_tags == 1 && strcmp(s->services[1]->tags[0], "y") == 0);
    cr_assert_eq(
        ((const Pb__NodesResult *)fixture_query(&f, &query_nodes, &meta_request("rack", "1")->base).message)->n_nodes,
        1);
    /* Changes that leave the whole table alone, but not the filtered one: an instance moves, a node's meta changes. */
    uint64_t all = services_index();
    uint64_t index = dereg("n2", "a", "");
    index = reg("node=n2 meta=rack:2 service=a2:web:1 tag=x");
    cr_assert_gt(fixture_query(&f, &query_services, &meta_request("rack", "2")->base).index, all);
    all = services_index();
    index = reg("node=n1 meta=rack:2");
    cr_assert_eq(fixture_query(&f, &query_services, &meta_request("rack", "2")->base).index, index);
    cr_assert_eq(services_index(), all);
    cr_assert_eq(checks_index(), index);
    Pb__StateRequest state = PB__STATE_REQUEST__INIT;
    state.state = (char *)(uintptr_t) "any";
    Pb__TableRequest *table = meta_request("rack", "2");
    state.node_meta = table->node_meta;
    state.n_node_meta = 1;
    cr_assert_eq(((const Pb__ChecksResult *)fixture_query(&f, &query_state_checks, &state.base).message)->n_checks, 1);
}

static struct query_result name_query(const struct query_type *type, const char *name) {
    Pb__NameRequest request = PB__NAME_REQUEST__INIT;
    request.name = (char *)(uintptr_t)name;
    return fixture_query(&f, type, &request.base);
}
static const char *name_of(struct query_result result) { return ((const Pb__NameResult *)result.message)->name; }

Test(catalog, queries_of_names_in_another_case) {
    cr_assert_not(name_query(&query_node_nocase, "node-1").found);
    reg("node=Node-1 service=a:Web:1");
    struct query_result node = name_query(&query_node_nocase, "nODE-1");
    cr_assert(node.found);
    cr_assert_str_eq(name_of(node), "Node-1");
    uint64_t first = node.index;
    cr_assert_gt(first, 0);
    cr_assert_str_eq(name_of(name_query(&query_service_nocase, "wEB")), "Web");
    cr_assert_not(name_query(&query_service_nocase, "node-1").found, "of the other kind");
    dereg("Node-1", "", "");
    node = name_query(&query_node_nocase, "node-1");
    cr_assert(!node.found && node.index > first);
    struct query_result service = name_query(&query_service_nocase, "web");
    cr_assert(!service.found && service.index > first);
}

Test(catalog, names_in_another_case) {
    reg("node=Node-1 service=a:Web:1");
    store_read_done(f.reader);
    struct store_txn *txn = store_read(f.reader);
    struct slice stored;
    cr_assert_eq(catalog_service_nocase(txn, slice_text("wEB"), &stored), CO_OK);
    cr_assert(slice_is(stored, "Web"));
    cr_assert_eq(catalog_node_nocase(txn, slice_text("node-1"), &stored), CO_OK);
    cr_assert(slice_is(stored, "Node-1"));
    cr_assert_eq(catalog_service_nocase(txn, slice_text("we"), &stored), CO_NOTFOUND);
    cr_assert(catalog_node_exists(txn, slice_text("Node-1")) && catalog_node_exists(txn, slice_text("node-1")));
    store_read_done(f.reader);
    reg("node=n service=b:web:1");
    txn = store_read(f.reader);
    cr_assert_eq(catalog_service_nocase(txn, slice_text("web"), &stored), CO_OK);
    cr_assert(slice_is(stored, "web")); /* the exact one before others */
    store_read_done(f.reader);
    dereg("Node-1", "", "");
    dereg("n", "b", "");
    txn = store_read(f.reader);
    cr_assert_eq(catalog_service_nocase(txn, slice_text("web"), &stored), CO_NOTFOUND);
    cr_assert_eq(catalog_node_nocase(txn, slice_text("node-1"), &stored), CO_NOTFOUND);
    store_read_done(f.reader);
}

Test(catalog, names_longer_than_a_key) {
    char name[701], id[701], spec[4000];
    memset(name, 'n', 700);
    memset(id, 'i', 700);
    name[700] = id[700] = '\0';
    for (int i = 0; i < 2; i++) {
        id[699] = (char)('a' + i);
        snprintf(spec, sizeof spec, "node=%s service=%s:%s:%d tag=%s", name, id, name, i, name);
        reg(spec);
        snprintf(spec, sizeof spec, "node=%s check=%s:passing:%s", name, id, id);
        reg(spec);
    }
    const Pb__ServiceEntriesResult *e = entries(name);
    cr_assert_eq(e->n_entries, 2);
    cr_assert_eq(e->entries[0]->n_checks, 1);
    cr_assert_str_neq(e->entries[0]->service->id, e->entries[1]->service->id);
    const Pb__ServicesResult *s = (const Pb__ServicesResult *)fixture_table(&f, &query_services).message;
    cr_assert(s->n_services == 1 && s->services[0]->n_tags == 1);
    cr_assert_str_eq(s->services[0]->name, name);
    cr_assert_str_eq(s->services[0]->tags[0], name);
    dereg(name, id, "");
    cr_assert(entries(name)->n_entries == 1 && checks_of(name)->n_checks == 1);
    snprintf(spec, sizeof spec, "node=%s service=%s:short:1", name, entries(name)->entries[0]->service->id);
    reg(spec); /* renamed: its check goes astray */
    cr_assert_eq(((const Pb__ChecksResult *)fixture_service(&f, &query_service_checks, name).message)->n_checks, 1);
    dereg(name, "", "");
    cr_assert_eq(((const Pb__ChecksResult *)fixture_service(&f, &query_service_checks, name).message)->n_checks, 0);
}

Test(catalog, a_batch_is_all_or_nothing) {
    struct arena arena = {0};
    Pb__CatalogBatchCommand batch = PB__CATALOG_BATCH_COMMAND__INIT;
    Pb__RegisterCommand *registers[3] = {
        fixture_register_command(&arena, "node=n1 service=a:web:1 tag=x"),
        fixture_register_command(&arena, "node=n1 check=c:passing:a"), /* of the one before */
        fixture_register_command(&arena, "node=n2 check=c:passing:missing"),
    };
    batch.registers = registers;
    batch.n_registers = 3;
    reg("node=old service=o:old:1");
    uint64_t services = services_index(), nodes = nodes_index();
    struct outcome result = fixture_apply(&f, CATALOG_BATCH, &batch.base);
    cr_assert_eq(result.error, CO_INVALID);
    bool found;
    (void)node("n1", &found);
    cr_assert(!found && services_index() == services && nodes_index() == nodes && service_index("web") == 0);
    fixture_sum(&f);
    Pb__DeregisterCommand gone = PB__DEREGISTER_COMMAND__INIT, *deregisters[1] = {&gone};
    gone.node = arena_strndup(&arena, "old", 3);
    batch.n_registers = 2;
    batch.deregisters = deregisters;
    batch.n_deregisters = 1;
    result = fixture_apply(&f, CATALOG_BATCH, &batch.base);
    cr_assert(result.error == CO_OK && result.yes);
    cr_assert(entries("web")->n_entries == 1 && checks_of("n1")->n_checks == 1 && entries("old")->n_entries == 0);
    arena_free(&arena);
}
