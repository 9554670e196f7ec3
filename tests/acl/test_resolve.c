/* Tokens to rights: policies, roles, identities, datacenters, time; packed for another process; the cache. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "acl/resolve.h"
#include "acls.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/message.h"

static struct acls a;
static struct fault fault;

static void opened(void) { acls_open(&a); }
static void closed(void) { acls_close(&a); }
TestSuite(resolve, .init = opened, .fini = closed);

struct where {
    const char *datacenter; /* NULL: dc1 */
    enum access_level otherwise;
    uint64_t now_ms;
};
static int resolve(const char *secret, struct where where, struct resolved *out) {
    struct resolve_settings settings = {where.datacenter ? where.datacenter : "dc1", where.otherwise};
    fault = (struct fault){0};
    int rv = resolve_secret(acls_begin_read(&a), a.key, slice_text(secret), &settings, where.now_ms, out, &fault);
    acls_end_read(&a);
    return rv;
}

static bool allows(const struct access *access, enum access_resource resource, const char *name,
                   enum access_level least) {
    return access_allows(access, resource, slice_text(name), least);
}

/* Resolves token 1, which has to be there, and asks. */
static bool may(struct where where, enum access_resource resource, const char *name, enum access_level least) {
    struct resolved resolved;
    int rv = resolve(acls_secret(1), where, &resolved);
    cr_assert_eq(rv, CO_OK, "%d %s", rv, fault.text);
    bool yes = allows(resolved.access, resource, name, least);
    access_release(resolved.access);
    return yes;
}
static const struct where here = {0};

Test(resolve, policies_roles_and_what_was_deleted) {
    OK(acls_policy(&a, 1, (struct policy_spec){.name = "p1", .rules = "key_prefix \"a\" { policy = \"write\" }"}));
    OK(acls_policy(&a, 2, (struct policy_spec){.name = "p2", .rules = "key_prefix \"b\" { policy = \"read\" }"}));
    OK(acls_policy(&a, 3, (struct policy_spec){.name = "p3", .rules = "key_prefix \"a\" { policy = \"deny\" }"}));
    OK(acls_role(&a, 1, (struct role_spec){.name = "r1", .grants = {.policy_names = {"p2"}}}));
    OK(acls_token(
        &a, 1,
        (struct token_spec){.description = "one", .grants = {.policy_names = {"p1"}, .roles = {acls_id('r', 1)}}}));
    cr_expect(may(here, ACCESS_KEY, "a/1", ACCESS_WRITE));
    cr_expect(may(here, ACCESS_KEY, "b/1", ACCESS_READ) && !may(here, ACCESS_KEY, "b/1", ACCESS_WRITE));
    cr_expect(!may(here, ACCESS_KEY, "c", ACCESS_READ) && !may(here, ACCESS_ACL, "", ACCESS_READ));
    cr_expect(may((struct where){.otherwise = ACCESS_WRITE}, ACCESS_KEY, "c", ACCESS_READ), "the default");
    struct resolved resolved;
    cr_assert_eq(resolve(acls_secret(1), here, &resolved), CO_OK);
    cr_expect_str_eq(access_accessor(resolved.access), acls_id('a', 1));
    cr_expect_str_eq(access_description(resolved.access), "one");
    access_release(resolved.access);
    OK(acls_role(&a, 1, (struct role_spec){.name = "r1", .change = true, .grants = {.policy_names = {"p3"}}}));
    cr_expect_not(may(here, ACCESS_KEY, "a/1", ACCESS_READ), "a role may forbid what the token's own policy gives");
    OK(acls_role_delete(&a, 1));
    cr_expect(may(here, ACCESS_KEY, "a/1", ACCESS_WRITE));
    OK(acls_policy_delete(&a, 1));
    cr_expect_not(may(here, ACCESS_KEY, "a/1", ACCESS_READ));
}

Test(resolve, datacenters) {
    OK(acls_policy(
        &a, 1,
        (struct policy_spec){.name = "p1", .rules = "key_prefix \"a\" { policy = \"write\" }", .datacenter = "DC2"}));
    struct grants_spec grants = {
        .policy_names = {"p1"}, .services = {"web"}, .service_dc = "dc2", .nodes = {"n1"}, .node_dc = "dc1"};
    OK(acls_token(&a, 1, (struct token_spec){.grants = grants}));
    struct where there = {.datacenter = "dc2"};
    cr_expect(!may(here, ACCESS_KEY, "a", ACCESS_READ) && may(there, ACCESS_KEY, "a", ACCESS_WRITE));
    cr_expect(!may(here, ACCESS_SERVICE, "web", ACCESS_WRITE) && may(there, ACCESS_SERVICE, "web", ACCESS_WRITE));
    cr_expect(may(here, ACCESS_NODE, "n1", ACCESS_WRITE) && !may(there, ACCESS_NODE, "n1", ACCESS_WRITE));
    cr_expect(may(here, ACCESS_SERVICE, "other", ACCESS_READ), "a node sees services");
}

Test(resolve, management_may_everything) {
    OK(acls_bootstrap(&a, 1));
    for (enum access_resource resource = 0; resource < ACCESS_RESOURCES; resource++)
        cr_expect(may(here, resource, access_resource_named(resource) ? "x" : "", ACCESS_WRITE), "%s",
                  access_resource_name(resource));
}

Test(resolve, secrets_and_time) {
    struct resolved resolved;
    OK(acls_token(&a, 1, (struct token_spec){.ttl_ms = 60000}));
    uint64_t end_ms = a.f.unix_ms + 60000;
    OK(acls_token(&a, 3, (struct token_spec){.secret = "a secret"}));
    cr_expect_eq(resolve(acls_secret(2), here, &resolved), CO_NOTFOUND);
    cr_expect_null(resolved.access);
    cr_expect_eq(resolve("A secret", here, &resolved), CO_NOTFOUND, "case counts");
    cr_expect_eq(resolve(acls_id('a', 1), here, &resolved), CO_NOTFOUND, "an accessor is no secret");
    cr_assert_eq(resolve(acls_secret(1), (struct where){.now_ms = end_ms - 1}, &resolved), CO_OK);
    cr_expect_eq(resolved.expires_ms, end_ms);
    access_release(resolved.access);
    cr_expect_eq(resolve(acls_secret(1), (struct where){.now_ms = end_ms}, &resolved), CO_NOTFOUND);
    char longest[ACL_SECRET_MAX + 2];
    memset(longest, 'x', sizeof longest), longest[ACL_SECRET_MAX + 1] = '\0';
    cr_expect_eq(resolve(longest, here, &resolved), CO_NOTFOUND);

    struct resolve_settings settings = {"dc1", ACCESS_DENY};
    cr_expect_eq(resolve_secret(acls_begin_read(&a), NULL, slice_text(acls_secret(1)), &settings, 0, &resolved, NULL),
                 CO_AGAIN, "this server does not have the key yet");
    acls_end_read(&a);
}

Test(resolve, without_a_token) {
    struct resolved resolved;
    struct resolve_settings settings = {"dc1", ACCESS_READ};
    cr_assert_eq(resolve("", here, &resolved), CO_OK);
    cr_expect_str_eq(access_accessor(resolved.access), ACL_ANONYMOUS_ID);
    cr_expect_not(allows(resolved.access, ACCESS_KEY, "x", ACCESS_READ));
    access_release(resolved.access);
    OK(acls_policy(&a, 1, (struct policy_spec){.name = "p1", .rules = "key_prefix \"a\" { policy = \"read\" }"}));
    OK(acls_token(
        &a, 0, (struct token_spec){.accessor = ACL_ANONYMOUS_ID, .change = true, .grants = {.policy_names = {"p1"}}}));
    cr_assert_eq(resolve("anonymous", here, &resolved), CO_OK);
    cr_expect(allows(resolved.access, ACCESS_KEY, "a", ACCESS_READ));
    access_release(resolved.access);

    struct fixture none;
    fixture_open(&none);
    cr_assert_eq(resolve_anonymous(store_read(none.reader), &settings, &resolved, NULL), CO_OK);
    store_read_done(none.reader);
    cr_expect(allows(resolved.access, ACCESS_KEY, "a", ACCESS_READ) &&
              !allows(resolved.access, ACCESS_ACL, "", ACCESS_READ));
    cr_expect_str_eq(access_accessor(resolved.access), ACL_ANONYMOUS_ID);
    access_release(resolved.access);
    fixture_close(&none);
}

Test(resolve, a_policy_that_does_not_compile_denies_the_token) {
    struct resolved resolved;
    OK(acls_policy(&a, 1, (struct policy_spec){.name = "good", .rules = "key_prefix \"a\" { policy = \"write\" }"}));
    OK(acls_policy(&a, 2, (struct policy_spec){.name = "bad", .rules = "keyz \"a\" { policy = \"deny\" }"}));
    OK(acls_token(&a, 1, (struct token_spec){.grants = {.policy_names = {"good", "bad"}}}));
    cr_expect_eq(resolve(acls_secret(1), here, &resolved), CO_INVALID);
    cr_expect(strstr(fault.text, "policy \"bad\""), "%s", fault.text);
    cr_expect_null(resolved.access);
}

Test(resolve, nodes_and_the_agent_master) {
    struct access *node = resolve_node("web1", ACCESS_DENY), *master = resolve_agent_master("web1", ACCESS_DENY);
    cr_expect_str_eq(access_accessor(node), "node:web1");
    cr_expect(allows(node, ACCESS_NODE, "Web1", ACCESS_WRITE) && allows(node, ACCESS_AGENT, "web1", ACCESS_WRITE));
    cr_expect(allows(node, ACCESS_SESSION, "web1", ACCESS_WRITE) && allows(node, ACCESS_SERVICE, "x", ACCESS_READ));
    cr_expect(allows(node, ACCESS_NODE, "x", ACCESS_READ) && !allows(node, ACCESS_NODE, "x", ACCESS_WRITE));
    cr_expect(!allows(node, ACCESS_SERVICE, "x", ACCESS_WRITE) && !allows(node, ACCESS_SESSION, "x", ACCESS_READ));
    cr_expect(allows(node, ACCESS_QUOTA, "x", ACCESS_WRITE), "it takes shares of budgets, and settles them");
    cr_expect(!allows(node, ACCESS_KEY, "x", ACCESS_READ) && !allows(node, ACCESS_ACL, "", ACCESS_READ));
    cr_expect(allows(master, ACCESS_AGENT, "web1", ACCESS_WRITE) && !allows(master, ACCESS_AGENT, "web2", ACCESS_READ));
    cr_expect(allows(master, ACCESS_NODE, "web2", ACCESS_READ) && !allows(master, ACCESS_NODE, "web1", ACCESS_WRITE));
    cr_expect(!allows(master, ACCESS_SERVICE, "x", ACCESS_READ));
    cr_expect(access_is_all(resolve_server()));
    access_release(node), access_release(master);
}

/* -- for another process ------------------------------------------------------------------------------------------- */
static const Pb__AclResolved *ask(const char *secret, const char *accessor) {
    Pb__AclResolveRequest request = PB__ACL_RESOLVE_REQUEST__INIT;
    request.secret = message_bytes(slice_text(secret)), request.accessor = (char *)(uintptr_t)accessor;
    request.datacenter = "dc1";
    uint64_t changed = acls_changes(&a);
    struct query_result result = fixture_ask(&a.f, &query_acl_resolve, &request.base);
    cr_assert_eq(result.index, changed);
    return result.found ? (const Pb__AclResolved *)result.message : NULL;
}

Test(resolve, an_agent_asks_a_server) {
    uint64_t now_ms = (uint64_t)(clock_wall_ns() / 1000000);
    struct resolved resolved;
    a.f.unix_ms = now_ms;
    OK(acls_policy(&a, 1, (struct policy_spec){.name = "p1", .rules = "key_prefix \"a\" { policy = \"write\" }"}));
    OK(acls_token(
        &a, 1,
        (struct token_spec){
            .description = "one", .ttl_ms = 3600000, .grants = {.policy_names = {"p1"}, .services = {"web"}}}));
    OK(acls_token(&a, 2, (struct token_spec){.expiration_ms = now_ms + 1}));
    const Pb__AclResolved *packed = ask(acls_secret(1), "");
    cr_assert_not_null(packed);
    cr_assert_eq(resolve_unpack(packed, ACCESS_READ, &resolved), CO_OK);
    cr_expect_str_eq(access_accessor(resolved.access), acls_id('a', 1));
    cr_expect_str_eq(access_description(resolved.access), "one");
    cr_expect_eq(resolved.expires_ms, now_ms + 3600000);
    struct resolved own;
    cr_assert_eq(resolve(acls_secret(1), (struct where){.otherwise = ACCESS_READ, .now_ms = now_ms}, &own), CO_OK);
    cr_expect_eq(access_view(resolved.access), access_view(own.access), "the same rules");
    access_release(resolved.access), access_release(own.access);
    cr_expect_null(ask("unknown", ""));
    cr_expect_not_null(ask("", acls_id('a', 1)));
    cr_expect_null(ask("", acls_id('a', 7)));
    cr_expect_str_eq(ask("", "")->accessor, ACL_ANONYMOUS_ID);
    while ((uint64_t)(clock_wall_ns() / 1000000) <= now_ms + 1) continue;
    cr_expect_null(ask(acls_secret(2), ""), "its time is over");
}

Test(resolve, packed_by_another_program) {
    Pb__AclResolved packed = PB__ACL_RESOLVED__INIT;
    Pb__AclRule known = PB__ACL_RULE__INIT, later = PB__ACL_RULE__INIT, *rules[] = {&known, &later};
    struct resolved resolved;
    known.resource = "key", known.level = "write", known.name = message_bytes(slice_text("a"));
    later.resource = "planet", later.level = "write";
    packed.rules = rules, packed.n_rules = 2;
    cr_assert_eq(resolve_unpack(&packed, ACCESS_DENY, &resolved), CO_OK);
    cr_expect(allows(resolved.access, ACCESS_KEY, "a", ACCESS_WRITE));
    access_release(resolved.access);
    later.resource = "acl", later.prefix = true;
    cr_expect_eq(resolve_unpack(&packed, ACCESS_DENY, &resolved), CO_CORRUPT);
    later.prefix = false, later.level = "maybe";
    cr_expect_eq(resolve_unpack(&packed, ACCESS_DENY, &resolved), CO_CORRUPT);
    cr_expect_null(resolved.access);
}
