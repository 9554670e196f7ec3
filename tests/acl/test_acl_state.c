/* Access control in the replicated state: every rule of its commands, what its queries show, what a restore keeps. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "acls.h"
#include "base/check.h"
#include "base/message.h"

static struct acls a;

static void opened(void) { acls_open(&a); }
static void closed(void) { acls_close(&a); }
TestSuite(acl_state, .init = opened, .fini = closed);

/* -- the beginning ------------------------------------------------------------------------------------------------ */
Test(acl_state, nothing_counts_before_the_key) {
    struct acls none = {.key = a.key};
    fixture_open(&none.f);
    cr_expect_null(acls_read_state(&none));
    cr_expect_null(acls_read_policy(&none, ACL_MANAGEMENT_ID, NULL));
    REFUSED(acls_policy(&none, 1, (struct policy_spec){.name = "x"}), CO_AGAIN, "has not begun");
    REFUSED(acls_role(&none, 1, (struct role_spec){.name = "x"}), CO_AGAIN, "has not begun");
    REFUSED(acls_token(&none, 1, (struct token_spec){0}), CO_AGAIN, "has not begun");
    REFUSED(acls_bootstrap(&none, 1), CO_AGAIN, "has not begun");
    REFUSED(acls_method(&none, "m", "jwt", 0), CO_AGAIN, "has not begun");
    REFUSED(acls_reset(&none, 0, false), CO_AGAIN, "has not begun");
    acls_begin(&none);
    OK(acls_policy(&none, 1, (struct policy_spec){.name = "x"}));
    arena_free(&none.arena);
    fixture_close(&none.f);
}

Test(acl_state, the_first_key_counts) {
    struct acl_key *other;
    Pb__AclKeyCommand command = PB__ACL_KEY_COMMAND__INIT;
    cr_assert_eq(acl_key_make(&other, NULL), CO_OK);
    command.id = message_bytes(acl_key_id(other));
    uint64_t before = acls_changes(&a);
    REFUSED(fixture_apply(&a.f, ACL_KEY, &command.base), CO_CONFLICT, "another key");
    acls_begin(&a);
    cr_expect_eq(acls_changes(&a), before, "the same key again changes nothing");
    cr_expect(acl_key_is(a.key, message_slice(acls_read_state(&a)->key_id)));
    command.id.len--;
    REFUSED(fixture_apply(&a.f, ACL_KEY, &command.base), CO_INVALID, "no id");
    REFUSED(acls_token(&a, 1, (struct token_spec){.key = other}), CO_CONFLICT, "hashed with another key");
    acl_key_release(other);
}

Test(acl_state, builtin_things) {
    const Pb__AclPolicy *policy = acls_read_policy(&a, ACL_MANAGEMENT_ID, NULL);
    cr_assert(policy && strcmp(policy->name, "global-management") == 0 && strstr(policy->rules, "acl = \"write\""));
    cr_expect_not_null(acls_read_policy(&a, NULL, "Global-Management"));
    Pb__AclPolicy changed = PB__ACL_POLICY__INIT;
    Pb__AclPolicySetCommand set = PB__ACL_POLICY_SET_COMMAND__INIT;
    Pb__AclPolicyDeleteCommand removed = PB__ACL_POLICY_DELETE_COMMAND__INIT;
    changed.id = removed.id = ACL_MANAGEMENT_ID, changed.name = "x", set.policy = &changed;
    REFUSED(fixture_apply(&a.f, ACL_POLICY_SET, &set.base), CO_INVALID, "builtin global-management");
    set.create = true;
    REFUSED(fixture_apply(&a.f, ACL_POLICY_SET, &set.base), CO_INVALID, "builtin global-management");
    REFUSED(fixture_apply(&a.f, ACL_POLICY_DELETE, &removed.base), CO_INVALID, "builtin global-management");
    changed.id = "00000000-0000-0000-0000-000000000007";
    REFUSED(fixture_apply(&a.f, ACL_POLICY_SET, &set.base), CO_INVALID, "reserved");

    const Pb__AclTokenResult *anonymous = acls_read_self(&a, "");
    cr_assert(anonymous && strcmp(anonymous->token->accessor, ACL_ANONYMOUS_ID) == 0);
    cr_expect_str_eq(anonymous->secret, "anonymous");
    cr_expect_not_null(acls_read_self(&a, "anonymous"));
    Pb__AclTokenDeleteCommand token = PB__ACL_TOKEN_DELETE_COMMAND__INIT;
    token.accessor = ACL_ANONYMOUS_ID;
    REFUSED(fixture_apply(&a.f, ACL_TOKEN_DELETE, &token.base), CO_INVALID, "anonymous token");
    OK(acls_policy(&a, 1, (struct policy_spec){.name = "p"}));
    OK(acls_token(
        &a, 0, (struct token_spec){.accessor = ACL_ANONYMOUS_ID, .change = true, .grants = {.policy_names = {"p"}}}));
    cr_expect_str_eq(acls_read_self(&a, "")->token->policies[0]->name, "p");
    REFUSED(acls_token(&a, 9, (struct token_spec){.accessor = "00000000-0000-0000-0000-000000000003"}), CO_INVALID,
            "reserved");
}

Test(acl_state, one_bootstrap_and_one_more_after_a_reset) {
    struct outcome first = OK(acls_bootstrap(&a, 1));
    const Pb__AclTokenResult *token = acls_read_self(&a, acls_secret(1));
    cr_assert(token && token->token->n_policies == 1);
    cr_expect_str_eq(token->token->policies[0]->name, "global-management");
    cr_expect_eq(acls_read_state(&a)->bootstrap_index, first.index);
    char text[64];
    snprintf(text, sizeof text, "ACL bootstrap no longer allowed (reset index: %lu)", first.index);
    REFUSED(acls_bootstrap(&a, 2), CO_DENIED, text);
    REFUSED(acls_reset(&a, first.index - 1, false), CO_CONFLICT, "the last bootstrap was at");
    OK(acls_reset(&a, first.index, false));
    REFUSED(acls_bootstrap(&a, 1), CO_EXISTS, "already in use");
    struct outcome second = OK(acls_bootstrap(&a, 2));
    cr_expect_not_null(acls_read_self(&a, acls_secret(1)), "the first one still counts");
    cr_expect_eq(acls_read_state(&a)->bootstrap_index, second.index);
    REFUSED(acls_bootstrap(&a, 3), CO_DENIED, "no longer allowed");
}

Test(acl_state, a_lost_key_takes_all_tokens_with_it) {
    struct outcome first = OK(acls_bootstrap(&a, 1));
    OK(acls_policy(&a, 1, (struct policy_spec){.name = "p"}));
    OK(acls_token(&a, 2, (struct token_spec){.ttl_ms = 60000}));
    OK(acls_reset(&a, first.index, true));
    cr_expect_eq(acls_read_tokens(&a, NULL, NULL, NULL)->n_tokens, 1, "the anonymous one");
    cr_expect_eq(acls_read_state(&a)->key_id.len, 0);
    REFUSED(acls_bootstrap(&a, 1), CO_CONFLICT, "another key");
    struct acl_key *before = a.key;
    cr_assert_eq(acl_key_make(&a.key, NULL), CO_OK);
    acl_key_use(acl_key_keep(a.key));
    acls_begin(&a);
    OK(acls_bootstrap(&a, 1));
    cr_expect_not_null(acls_read_policy(&a, NULL, "p"));
    acl_key_release(before);
}

/* -- policies and roles -------------------------------------------------------------------------------------------- */
Test(acl_state, names_are_unique_without_case) {
    struct outcome made = OK(acls_policy(&a, 1, (struct policy_spec){.name = "Web", .rules = "key \"a\" {}"}));
    REFUSED(acls_policy(&a, 2, (struct policy_spec){.name = "wEB"}), CO_EXISTS, "A Policy with Name \"wEB\" already");
    REFUSED(acls_policy(&a, 1, (struct policy_spec){.name = "other"}), CO_EXISTS, "ID is in use");
    REFUSED(acls_policy(&a, 3, (struct policy_spec){.name = "new", .change = true}), CO_NOTFOUND, "cannot find");
    OK(acls_policy(&a, 1, (struct policy_spec){.name = "web", .change = true}));
    const Pb__AclPolicy *policy = acls_read_policy(&a, NULL, "WEB");
    cr_assert(policy && strcmp(policy->name, "web") == 0);
    cr_expect(policy->create_index == made.index && policy->modify_index > made.index);
    OK(acls_policy(&a, 1, (struct policy_spec){.name = "api", .change = true}));
    cr_expect_null(acls_read_policy(&a, NULL, "web"), "its name of before is free");
    OK(acls_policy(&a, 2, (struct policy_spec){.name = "web"}));
    OK(acls_policy_delete(&a, 1));
    OK(acls_policy_delete(&a, 1)); /* as in Consul */
    OK(acls_policy(&a, 3, (struct policy_spec){.name = "API"}));

    OK(acls_role(&a, 1, (struct role_spec){.name = "Web"}));
    REFUSED(acls_role(&a, 2, (struct role_spec){.name = "web"}), CO_EXISTS, "A Role with Name");
    OK(acls_role_delete(&a, 1));
    OK(acls_role(&a, 2, (struct role_spec){.name = "web"}));
}

Test(acl_state, names_that_are_none) {
    char longest[ACL_NAME_MAX + 2];
    memset(longest, 'x', sizeof longest), longest[ACL_NAME_MAX + 1] = '\0';
    REFUSED(acls_policy(&a, 1, (struct policy_spec){.name = ""}), CO_INVALID, "no Name is set");
    REFUSED(acls_policy(&a, 1, (struct policy_spec){.name = "a b"}), CO_INVALID, "Only alphanumeric");
    REFUSED(acls_policy(&a, 1, (struct policy_spec){.name = longest}), CO_INVALID, "too long");
    OK(acls_policy(&a, 1, (struct policy_spec){.name = longest + 1}));
    OK(acls_role(&a, 1, (struct role_spec){.name = longest}));
    REFUSED(acls_role(&a, 2, (struct role_spec){.name = "a/b"}), CO_INVALID, "Only alphanumeric");
    Pb__AclPolicy policy = PB__ACL_POLICY__INIT;
    Pb__AclPolicySetCommand command = PB__ACL_POLICY_SET_COMMAND__INIT;
    command.create = true;
    REFUSED(fixture_apply(&a.f, ACL_POLICY_SET, &command.base), CO_INVALID, "no policy");
    command.policy = &policy, policy.name = "x", policy.id = "7";
    REFUSED(fixture_apply(&a.f, ACL_POLICY_SET, &command.base), CO_INVALID, "UUID");
    char *rules = mem_zalloc(ACL_POLICY_TEXT_MAX + 2);
    memset(rules, ' ', ACL_POLICY_TEXT_MAX + 1);
    REFUSED(acls_policy(&a, 5, (struct policy_spec){.name = "x", .rules = rules}), CO_INVALID, "too long");
    OK(acls_policy(&a, 5, (struct policy_spec){.name = "x", .rules = rules + 1}));
    free(rules);
}

Test(acl_state, a_digest_follows_the_content) {
    uint8_t before[32];
    OK(acls_policy(&a, 1, (struct policy_spec){.name = "p", .rules = "a"}));
    const Pb__AclPolicy *policy = acls_read_policy(&a, NULL, "p");
    cr_assert_eq(policy->hash.len, 32);
    memcpy(before, policy->hash.data, 32);
    OK(acls_policy(&a, 1, (struct policy_spec){.name = "p", .rules = "a", .change = true}));
    cr_expect_eq(memcmp(acls_read_policy(&a, NULL, "p")->hash.data, before, 32), 0);
    OK(acls_policy(&a, 1, (struct policy_spec){.name = "p", .rules = "b", .change = true}));
    cr_expect_neq(memcmp(acls_read_policy(&a, NULL, "p")->hash.data, before, 32), 0);
    OK(acls_token(&a, 1, (struct token_spec){.description = "x"}));
    memcpy(before, acls_read_token(&a, 1)->token->hash.data, 32);
    OK(acls_token(&a, 1, (struct token_spec){.description = "y", .change = true}));
    cr_expect_neq(memcmp(acls_read_token(&a, 1)->token->hash.data, before, 32), 0);
}

/* -- tokens ------------------------------------------------------------------------------------------------------- */
Test(acl_state, links_follow_renames_and_leave_what_is_deleted) {
    OK(acls_policy(&a, 1, (struct policy_spec){.name = "p1"}));
    OK(acls_policy(&a, 2, (struct policy_spec){.name = "p2"}));
    OK(acls_role(&a, 1, (struct role_spec){.name = "r1", .grants = {.policy_names = {"P1", "p2"}}}));
    struct grants_spec grants = {
        .policies = {acls_id('p', 2)}, .policy_names = {"p1", "p2"}, .roles = {acls_id('r', 1)}};
    OK(acls_token(&a, 1, (struct token_spec){.grants = grants}));
    const Pb__AclToken *token = acls_read_token(&a, 1)->token;
    cr_assert(token->n_policies == 2 && token->n_roles == 1, "each once");
    cr_expect_str_eq(token->policies[0]->name, "p1");
    cr_expect_str_eq(token->roles[0]->name, "r1");
    OK(acls_policy(&a, 1, (struct policy_spec){.name = "renamed", .change = true}));
    cr_expect_str_eq(acls_read_token(&a, 1)->token->policies[0]->name, "renamed");
    OK(acls_policy_delete(&a, 1));
    token = acls_read_token(&a, 1)->token;
    cr_assert_eq(token->n_policies, 1);
    cr_expect_str_eq(token->policies[0]->name, "p2");
    cr_expect_eq(acls_read_role(&a, 1)->n_policies, 1);
    cr_expect_eq(acls_read_tokens(&a, acls_id('p', 1), NULL, NULL)->n_tokens, 0);
    OK(acls_role_delete(&a, 1));
    cr_expect_eq(acls_read_token(&a, 1)->token->n_roles, 0);
    REFUSED(acls_token(&a, 2, (struct token_spec){.grants = {.policies = {acls_id('p', 1)}}}), CO_INVALID,
            "No such policy with ID");
    REFUSED(acls_token(&a, 2, (struct token_spec){.grants = {.policy_names = {"gone"}}}), CO_INVALID,
            "No such ACL policy with name \"gone\"");
    REFUSED(acls_token(&a, 2, (struct token_spec){.grants = {.roles = {acls_id('r', 1)}}}), CO_INVALID,
            "No such role with ID");
    REFUSED(acls_role(&a, 3, (struct role_spec){.name = "r3", .grants = {.policy_names = {"gone"}}}), CO_INVALID,
            "No such ACL policy");
    cr_expect_null(acls_read_token(&a, 2));
}

Test(acl_state, identities) {
    struct grants_spec twice = {
        .services = {"web", "api", "web"}, .service_dc = "dc1", .nodes = {"n1"}, .node_dc = "dc1"};
    OK(acls_token(&a, 1, (struct token_spec){.grants = twice}));
    const Pb__AclToken *token = acls_read_token(&a, 1)->token;
    cr_assert(token->n_service_identities == 2 && token->n_node_identities == 1);
    cr_expect_str_eq(token->service_identities[1]->service, "web");
    cr_expect_eq(token->service_identities[1]->n_datacenters, 1, "merged");
    static const struct {
        struct grants_spec grants;
        bool local;
        const char *text;
    } bad[] = {
        {{.services = {""}}, false, "missing the service name"},
        {{.services = {"Web"}}, false, "invalid name"},
        {{.services = {"-web"}}, false, "invalid name"},
        {{.services = {"web_"}}, false, "invalid name"},
        {{.services = {"web"}, .service_dc = "dc1"}, true, "on a local token"},
        {{.nodes = {""}, .node_dc = "dc1"}, false, "missing the node name"},
        {{.nodes = {"a.b"}, .node_dc = "dc1"}, false, "invalid name"},
        {{.nodes = {"n1"}}, false, "missing the datacenter"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        REFUSED(acls_token(&a, 2, (struct token_spec){.grants = bad[i].grants, .local = bad[i].local}), CO_INVALID,
                bad[i].text);
        if (!bad[i].local)
            REFUSED(acls_role(&a, 2, (struct role_spec){.name = "r", .grants = bad[i].grants}), CO_INVALID,
                    bad[i].text);
    }
}

Test(acl_state, a_token_keeps_what_it_is) {
    OK(acls_token(&a, 1, (struct token_spec){.description = "one", .local = true, .ttl_ms = 60000}));
    REFUSED(acls_token(&a, 1, (struct token_spec){.secret = "other"}), CO_EXISTS, "AccessorID is already in use");
    REFUSED(acls_token(&a, 2, (struct token_spec){.secret = acls_secret(1)}), CO_EXISTS, "SecretID is already in use");
    REFUSED(acls_token(&a, 2, (struct token_spec){.secret = ""}), CO_INVALID, "no secret");
    REFUSED(acls_token(&a, 2, (struct token_spec){.change = true}), CO_NOTFOUND, "Cannot find token");
    REFUSED(acls_token(&a, 2, (struct token_spec){.method = "m"}), CO_INVALID, "disallowed outside of Login");
    REFUSED(acls_token(&a, 2, (struct token_spec){.accessor = "x"}), CO_INVALID, "no UUID");
    struct token_spec change = {.change = true, .local = true, .description = "two"};
    struct token_spec toggled = change, secret = change, longer = change, method = change;
    toggled.local = false, secret.secret = "other", longer.ttl_ms = 70000, method.method = "m";
    REFUSED(acls_token(&a, 1, toggled), CO_INVALID, "cannot toggle local mode");
    REFUSED(acls_token(&a, 1, secret), CO_INVALID, "SecretID");
    REFUSED(acls_token(&a, 1, longer), CO_INVALID, "Cannot change expiration time");
    REFUSED(acls_token(&a, 1, method), CO_INVALID, "Cannot change AuthMethod");
    uint64_t end_ms = acls_read_token(&a, 1)->token->expiration_ms;
    a.f.unix_ms += 1000;
    OK(acls_token(&a, 1, change));
    const Pb__AclTokenResult *read = acls_read_self(&a, acls_secret(1));
    cr_assert_not_null(read);
    cr_expect_str_eq(read->token->description, "two");
    cr_expect_str_eq(read->secret, acls_secret(1));
    cr_expect(read->token->expiration_ms == end_ms && read->token->created_ms == 1000000);
    change.expiration_ms = end_ms;
    OK(acls_token(&a, 1, change)); /* a client writes what it has read */
}

Test(acl_state, a_token_ends_with_its_time) {
    struct buffer updates = {0};
    fixture_updates(&a.f, 1000000, &updates);
    buffer_reset(&updates);
    uint64_t made = OK(acls_token(&a, 1, (struct token_spec){.ttl_ms = 60000})).index;
    cr_expect_eq(acls_read_token(&a, 1)->token->expiration_ms, a.f.unix_ms + 60000);
    OK(acls_token(&a, 2, (struct token_spec){.expiration_ms = a.f.unix_ms + 90000}));
    OK(acls_token(&a, 3, (struct token_spec){0}));
    fixture_updates(&a.f, 1000000, &updates);
    cr_expect(strstr(updates.data, "token began") && strstr(updates.data, "60000") && strstr(updates.data, "90000"),
              "%s", updates.data);
    REFUSED(acls_token(&a, 4, (struct token_spec){.ttl_ms = 1, .expiration_ms = a.f.unix_ms + 1}), CO_INVALID,
            "cannot both be set");
    REFUSED(acls_token(&a, 4, (struct token_spec){.ttl_ms = -1}), CO_INVALID, "cannot both");
    REFUSED(acls_token(&a, 4, (struct token_spec){.expiration_ms = a.f.unix_ms}), CO_INVALID, "in the past");
    REFUSED(acls_token(&a, 4, (struct token_spec){.ttl_ms = INT64_MAX}), CO_INVALID, "too far");
    REFUSED(acls_token(&a, 4, (struct token_spec){.expiration_ms = UINT64_MAX}), CO_INVALID, "too far");
    OK(acls_token(&a, 1, (struct token_spec){.change = true, .description = "changed"}));
    REFUSED(acls_token_end(&a, 1, made, a.f.term + 1), CO_CONFLICT, "another term");
    REFUSED(acls_token_end(&a, 1, made + 1, a.f.term), CO_NOTFOUND, "another token");
    REFUSED(acls_token_end(&a, 3, made + 2, a.f.term), CO_NOTFOUND, "another token");
    REFUSED(acls_token_end(&a, 9, made, a.f.term), CO_NOTFOUND, "no such token");
    OK(acls_token_end(&a, 1, made, a.f.term));
    cr_expect(!acls_read_token(&a, 1) && !acls_read_self(&a, acls_secret(1)));
    OK(acls_token_delete(&a, 2, false));
    OK(acls_token_delete(&a, 2, false)); /* as in Consul */
    buffer_reset(&updates);
    fixture_updates(&a.f, 1000000, &updates);
    char *first = strstr(updates.data, "token ended");
    cr_expect(first && strstr(first + 1, "token ended"), "%s", updates.data);
    OK(acls_token(&a, 1, (struct token_spec){0})); /* accessor and secret are free again */
    buffer_free(&updates);
}

Test(acl_state, lists_by_policy_role_and_method) {
    OK(acls_policy(&a, 1, (struct policy_spec){.name = "p"}));
    OK(acls_role(&a, 1, (struct role_spec){.name = "r", .grants = {.policy_names = {"p"}}}));
    OK(acls_method(&a, "Jwt", "jwt", 0));
    OK(acls_token(&a, 1, (struct token_spec){.grants = {.policy_names = {"p"}}}));
    OK(acls_token(&a, 2, (struct token_spec){.grants = {.roles = {acls_id('r', 1)}}}));
    OK(acls_token(&a, 3, (struct token_spec){.login = true, .method = "jwt", .grants = {.policy_names = {"p"}}}));
    cr_expect_eq(acls_read_tokens(&a, NULL, NULL, NULL)->n_tokens, 4);
    cr_expect_eq(acls_read_tokens(&a, acls_id('p', 1), NULL, NULL)->n_tokens, 2);
    cr_expect_eq(acls_read_tokens(&a, NULL, acls_id('r', 1), NULL)->n_tokens, 1);
    cr_expect_eq(acls_read_tokens(&a, NULL, NULL, "JWT")->n_tokens, 1);
    cr_expect_eq(acls_read_tokens(&a, acls_id('p', 1), NULL, "jwt")->n_tokens, 1);
    cr_expect_eq(acls_read_tokens(&a, acls_id('p', 1), acls_id('r', 1), NULL)->n_tokens, 0);
    OK(acls_token(&a, 1, (struct token_spec){.change = true}));
    cr_expect_eq(acls_read_tokens(&a, acls_id('p', 1), NULL, NULL)->n_tokens, 1);
    const Pb__AclTokensResult *all = acls_read_tokens(&a, NULL, NULL, NULL);
    for (size_t i = 0; i < all->n_tokens; i++)
        cr_expect(all->tokens[i]->secret_hash.len == 0 && all->tokens[i]->secret_sealed.len == 0);
    Pb__AclRolesRequest roles = PB__ACL_ROLES_REQUEST__INIT;
    roles.policy = (char *)(uintptr_t)acls_id('p', 1);
    cr_expect_eq(((const Pb__AclRolesResult *)fixture_ask(&a.f, &query_acl_roles, &roles.base).message)->n_roles, 1);
    roles.policy = (char *)(uintptr_t)acls_id('p', 2);
    cr_expect_eq(((const Pb__AclRolesResult *)fixture_ask(&a.f, &query_acl_roles, &roles.base).message)->n_roles, 0);
    Pb__AclPoliciesRequest policies = PB__ACL_POLICIES_REQUEST__INIT;
    const Pb__AclPoliciesResult *list =
        (const Pb__AclPoliciesResult *)fixture_ask(&a.f, &query_acl_policies, &policies.base).message;
    cr_expect(list->n_policies == 2 && !list->policies[0]->rules[0]);
}

/* -- methods and rules --------------------------------------------------------------------------------------------- */
Test(acl_state, a_method_takes_its_tokens_and_rules_with_it) {
    REFUSED(acls_method(&a, "a b", "jwt", 0), CO_INVALID, "Name");
    REFUSED(acls_method(&a, "m", "", 0), CO_INVALID, "Type");
    REFUSED(acls_method(&a, "m", "jwt", -1), CO_INVALID, "MaxTokenTTL");
    OK(acls_method(&a, "m", "jwt", 60000));
    OK(acls_method(&a, "M", "jwt", 30000));
    REFUSED(acls_method(&a, "m", "unix", 0), CO_INVALID, "type is not permitted");
    OK(acls_method(&a, "other", "jwt", 0));
    REFUSED(acls_rule(&a, 1, "none", "role", false), CO_INVALID, "cannot find auth method");
    REFUSED(acls_rule(&a, 1, "", "role", false), CO_INVALID, "no AuthMethod");
    REFUSED(acls_rule(&a, 1, "m", "policy", false), CO_INVALID, "unknown BindType");
    REFUSED(acls_rule(&a, 1, "m", "role", true), CO_NOTFOUND, "cannot find binding rule");
    OK(acls_rule(&a, 1, "m", "role", false));
    OK(acls_rule(&a, 2, "other", "service", false));
    REFUSED(acls_rule(&a, 1, "m", "role", false), CO_EXISTS, "in use");
    REFUSED(acls_rule(&a, 1, "other", "role", true), CO_INVALID, "cannot change");
    OK(acls_rule(&a, 1, "M", "service", true));
    Pb__AclRulesRequest rules = PB__ACL_RULES_REQUEST__INIT;
    rules.auth_method = "m";
    cr_expect_eq(((const Pb__AclRulesResult *)fixture_ask(&a.f, &query_acl_rules, &rules.base).message)->n_rules, 1);

    REFUSED(acls_token(&a, 1, (struct token_spec){.login = true, .method = "none"}), CO_NOTFOUND, "not found");
    OK(acls_token(&a, 1, (struct token_spec){.login = true, .method = "m"}));
    cr_expect_eq(acls_read_token(&a, 1)->token->expiration_ms, a.f.unix_ms + 30000, "the method's bound");
    OK(acls_token(&a, 2, (struct token_spec){.login = true, .method = "other"}));
    OK(acls_token(&a, 3, (struct token_spec){0}));
    REFUSED(acls_token_delete(&a, 3, true), CO_DENIED, "not made by a login");
    REFUSED(acls_token_delete(&a, 9, true), CO_NOTFOUND, "ACL not found");
    OK(acls_method_delete(&a, "m"));
    OK(acls_method_delete(&a, "m"));
    cr_expect(!acls_read_token(&a, 1) && acls_read_token(&a, 2) && acls_read_token(&a, 3));
    rules.auth_method = "";
    const Pb__AclRulesResult *left =
        (const Pb__AclRulesResult *)fixture_ask(&a.f, &query_acl_rules, &rules.base).message;
    cr_assert(left->n_rules == 1 && strcmp(left->rules[0]->auth_method, "other") == 0);
    OK(acls_token_delete(&a, 2, true));
    OK(acls_rule_delete(&a, 2));
    cr_expect_eq(((const Pb__AclRulesResult *)fixture_ask(&a.f, &query_acl_rules, &rules.base).message)->n_rules, 0);
}

/* -- watches ------------------------------------------------------------------------------------------------------- */
Test(acl_state, every_change_shows_in_its_space_and_in_all) {
    struct {
        struct outcome outcome;
        enum acl_space space;
        const char *name;
    } changes[] = {
        {acls_policy(&a, 1, (struct policy_spec){.name = "p"}), SPACE_ACL_POLICIES, ""},
        {acls_role(&a, 1, (struct role_spec){.name = "r"}), SPACE_ACL_ROLES, ""},
        {acls_token(&a, 1, (struct token_spec){0}), SPACE_ACL_TOKENS, ""},
        {acls_method(&a, "m", "jwt", 0), SPACE_ACL_METHODS, ""},
        {acls_rule(&a, 1, "m", "role", false), SPACE_ACL_RULES, ""},
    };
    for (size_t i = 0; i < ARRAY_COUNT(changes); i++)
        cr_expect_eq(acls_index(&a, changes[i].space, changes[i].name), changes[i].outcome.index, "%zu", i);
    cr_expect_eq(acls_index(&a, SPACE_ACL_TOKEN, acls_id('a', 1)), changes[2].outcome.index);
    struct outcome ends[] = {OK(acls_rule_delete(&a, 1)), OK(acls_method_delete(&a, "m")),
                             OK(acls_token_delete(&a, 1, false)), OK(acls_role_delete(&a, 1)),
                             OK(acls_policy_delete(&a, 1))};
    cr_expect_eq(acls_index(&a, SPACE_ACL_RULES, ""), ends[0].index);
    cr_expect_eq(acls_index(&a, SPACE_ACL_METHODS, ""), ends[1].index);
    cr_expect_eq(acls_index(&a, SPACE_ACL_TOKEN, acls_id('a', 1)), ends[2].index);
    cr_expect_eq(acls_index(&a, SPACE_ACL_ROLES, ""), ends[3].index);
    cr_expect_eq(acls_index(&a, SPACE_ACL_POLICIES, ""), ends[4].index);
    cr_expect_eq(acls_changes(&a), ends[4].index);
    OK(acls_policy_delete(&a, 1));
    cr_expect_eq(acls_changes(&a), ends[4].index, "nothing was there");
}

/* -- who may ------------------------------------------------------------------------------------------------------- */
static struct access *access_of(const char *accessor, bool some, enum access_level level) {
    struct access *access = access_new(ACCESS_WRITE); /* the default is not for acl */
    if (some) access_add(access, ACCESS_ACL, false, slice_text(""), level);
    access_name(access, accessor, "");
    access_seal(access);
    return access;
}

static int may(uint8_t number, const ProtobufCMessage *request, const struct access *access) {
    const struct module_command *row = acl_module.commands;
    while (row->number != number) row++;
    struct access_check check = {.access = access, .arena = &a.arena};
    return row->may ? row->may(&check, NULL, request) : CO_OK;
}

Test(acl_state, writing_needs_acl_write) {
    struct access *none = access_of("x", false, 0), *reads = access_of("x", true, ACCESS_READ),
                  *writes = access_of("x", true, ACCESS_WRITE);
    static const uint8_t numbers[] = {ACL_TOKEN_SET, ACL_TOKEN_DELETE, ACL_POLICY_SET, ACL_POLICY_DELETE,
                                      ACL_ROLE_SET,  ACL_ROLE_DELETE,  ACL_METHOD_SET, ACL_METHOD_DELETE,
                                      ACL_RULE_SET,  ACL_RULE_DELETE};
    for (size_t i = 0; i < ARRAY_COUNT(numbers); i++) {
        cr_expect_eq(may(numbers[i], NULL, none), CO_DENIED, "%d", numbers[i]);
        cr_expect_eq(may(numbers[i], NULL, reads), CO_DENIED, "%d", numbers[i]);
        cr_expect_eq(may(numbers[i], NULL, writes), CO_OK, "%d", numbers[i]);
    }
    Pb__AclTokenDeleteCommand logout = PB__ACL_TOKEN_DELETE_COMMAND__INIT;
    logout.accessor = "x";
    cr_expect_eq(may(ACL_LOGOUT, &logout.base, none), CO_OK);
    logout.accessor = "y";
    cr_expect_eq(may(ACL_LOGOUT, &logout.base, reads), CO_DENIED);
    static const uint8_t of_servers[] = {ACL_KEY, ACL_BOOTSTRAP, ACL_RESET, ACL_TOKEN_SET, ACL_TOKEN_END, ACL_LOGIN};
    for (const struct module_command *row = acl_module.commands; row->number; row++)
        cr_expect_eq(row->servers_only, memchr(of_servers, row->number, sizeof of_servers) != NULL, "%s", row->name);
    access_release(none), access_release(reads), access_release(writes);
}

Test(acl_state, reading_needs_acl_read_and_secrets_acl_write) {
    struct access *none = access_of("x", false, 0), *reads = access_of("x", true, ACCESS_READ),
                  *writes = access_of("x", true, ACCESS_WRITE);
    OK(acls_token(&a, 1, (struct token_spec){0}));
    for (size_t i = 0; acl_module.queries[i]; i++) {
        const struct query_type *type = acl_module.queries[i];
        Pb__AclResolveRequest resolve = PB__ACL_RESOLVE_REQUEST__INIT;
        struct query_result result = {0};
        struct access_check check = {.access = none, .arena = &a.arena};
        resolve.accessor = "x";
        const ProtobufCMessage *request = type == &query_acl_resolve ? &resolve.base : NULL;
        cr_assert_not_null(type->show, "%s", type->name);
        bool open = type == &query_acl_token_self || type == &query_acl_changes;
        cr_expect_eq(type->show(&check, NULL, request, &result), open ? CO_OK : CO_DENIED, "%s", type->name);
        check.access = reads;
        cr_expect_eq(type->show(&check, NULL, request, &result), CO_OK, "%s", type->name);
    }
    Pb__AclTokenRequest request = PB__ACL_TOKEN_REQUEST__INIT;
    request.accessor = (char *)(uintptr_t)acls_id('a', 1);
    const struct access *all[] = {writes, reads};
    for (size_t i = 0; i < 2; i++) {
        struct query_result result = fixture_query(&a.f, &query_acl_token, &request.base);
        struct access_check check = {.access = all[i], .arena = &a.arena};
        cr_expect_eq(query_acl_token.show(&check, NULL, &request.base, &result), CO_OK);
        const Pb__AclTokenResult *token = (const Pb__AclTokenResult *)result.message;
        cr_expect_str_eq(token->secret, i == 0 ? acls_secret(1) : "");
        cr_expect_eq(token->hidden, i == 1);
        fixture_forget(&a.f);
    }
    access_release(none), access_release(reads), access_release(writes);
}
