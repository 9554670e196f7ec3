/* A restore of a backup with access control, and no secret in a copy of the state. */
#include <criterion/criterion.h>
#include <string.h>

#include "acls.h"
#include "base/message.h"

static struct acls a;

static void opened(void) { acls_open(&a); }
static void closed(void) { acls_close(&a); }
TestSuite(acl_restore, .init = opened, .fini = closed);

Test(acl_restore, a_restore_brings_no_revoked_token_back) {
    struct buffer copy = {0};
    OK(acls_bootstrap(&a, 1));
    OK(acls_policy(&a, 1, (struct policy_spec){.name = "old"}));
    OK(acls_token(&a, 2, (struct token_spec){.grants = {.policy_names = {"old"}}}));
    fixture_save(&a.f, &copy);
    OK(acls_token_delete(&a, 2, false));
    OK(acls_policy_delete(&a, 1));
    OK(acls_token(&a, 3, (struct token_spec){0}));
    OK(fixture_restore(&a.f, buffer_slice(&copy)));
    cr_expect_null(acls_read_self(&a, acls_secret(2)));
    cr_expect_null(acls_read_token(&a, 2));
    cr_expect_null(acls_read_policy(&a, NULL, "old"));
    cr_expect_not_null(acls_read_self(&a, acls_secret(1)), "nobody is locked out");
    cr_expect_not_null(acls_read_self(&a, acls_secret(3)));
    cr_expect_eq(acls_read_tokens(&a, acls_id('p', 1), NULL, NULL)->n_tokens, 0);
    fixture_sum(&a.f);
    buffer_free(&copy);
}

Test(acl_restore, a_restore_into_a_cluster_without_bootstrap_brings_all) {
    struct buffer copy = {0};
    OK(acls_bootstrap(&a, 1));
    OK(acls_token(&a, 2, (struct token_spec){.ttl_ms = 60000}));
    fixture_save(&a.f, &copy);
    struct acl_key *before = acl_key_keep(a.key);
    acls_close(&a);
    acls_open(&a); /* another cluster, with another key */
    OK(acls_token(&a, 5, (struct token_spec){0}));
    OK(fixture_restore(&a.f, buffer_slice(&copy)));
    cr_expect(acl_key_is(before, message_slice(acls_read_state(&a)->key_id)));
    cr_expect(acls_read_token(&a, 1) && acls_read_token(&a, 2) && !acls_read_token(&a, 5));
    cr_expect(acls_read_token(&a, 1)->hidden, "this server does not have the key");
    acl_key_use(before);
    cr_expect_not_null(acls_read_self(&a, acls_secret(2)));
    REFUSED(acls_bootstrap(&a, 7), CO_CONFLICT, "another key");
    buffer_free(&copy);
}

Test(acl_restore, no_secret_is_in_a_copy_of_the_state) {
    struct buffer copy = {0};
    OK(acls_bootstrap(&a, 1));
    OK(acls_token(&a, 2, (struct token_spec){.secret = "the secret of a person", .description = "shown"}));
    fixture_save(&a.f, &copy);
    cr_expect_null(memmem(copy.data, copy.size, acls_secret(1), strlen(acls_secret(1))));
    cr_expect_null(memmem(copy.data, copy.size, "the secret of", 13));
    cr_expect_not_null(memmem(copy.data, copy.size, "shown", 5), "the copy can be searched");
    struct slice key = acl_key_bytes(a.key);
    cr_expect_null(memmem(copy.data, copy.size, key.data, key.size));
    buffer_free(&copy);
}
