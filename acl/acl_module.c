/* Access control as a module. */
#include <string.h>

#include "acl/acl_internal.h"
#include "base/check.h"
#include "base/text.h"

/* -- tokens end by themselves ------------------------------------------------------------------------------------- */
int64_t acl_period_ns(int64_t left_ms) {
    const int64_t most_ms = INT64_MAX / 1000000;
    return (left_ms < 1 ? 1 : left_ms > most_ms ? most_ms : left_ms) * 1000000;
}

/* Counts the time that is left, by the wall clock: a new leader grants no second period. */
static int tokens_read(struct store_txn *txn, const struct expiry_leader *leader, struct expiry *expiry) {
    struct store_cursor cursor;
    int error = CO_OK;
    store_cursor_open(&cursor, txn, ACL_TOKEN_TABLE, acl_everything);
    for (; cursor.valid; store_cursor_next(&cursor)) {
        struct arena arena = {0};
        const Pb__AclToken *token = message_unpack(&arena, &pb__acl_token__descriptor, cursor.value);
        if (!token) {
            error = CO_CORRUPT;
        } else if (token->expiration_ms) {
            int64_t left_ms = (int64_t)token->expiration_ms - leader->unix_ms;
            expiry_began(expiry, &acl_token_expiry, cursor.key, token->create_index, acl_period_ns(left_ms),
                         leader->now_ms);
        }
        arena_free(&arena);
    }
    store_cursor_close(&cursor);
    return error ? error : store_txn_error(txn);
}

static void propose_end(const struct expiry_due *due, const struct expiry_leader *leader,
                        void (*propose)(void *data, uint8_t command, const ProtobufCMessage *message), void *data) {
    Pb__AclTokenEndCommand command = PB__ACL_TOKEN_END_COMMAND__INIT;
    char accessor[UUID_TEXT_SIZE + 1];
    CHECK(due->name.size == UUID_TEXT_SIZE);
    memcpy(accessor, due->name.data, due->name.size), accessor[due->name.size] = '\0';
    command.accessor = accessor, command.index = due->index, command.term = leader->term;
    propose(data, ACL_TOKEN_END, &command.base);
}

const struct expiry_kind acl_token_expiry = {
    .number = 27, .name = "token", .no_second_period = true, .quiet = true, .read = tokens_read, .end = propose_end};

/* -- who may ------------------------------------------------------------------------------------------------------ */
static int may_write(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    (void)txn, (void)request;
    return access_require(check, ACCESS_ACL, acl_everything, ACCESS_WRITE);
}

/* A token ends itself. */
static int may_logout(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    const char *accessor = ((const Pb__AclTokenDeleteCommand *)request)->accessor;
    if (strcmp(access_accessor(check->access), accessor) == 0) return CO_OK;
    return may_write(check, txn, request);
}

/* Whoever was bootstrapped once has tokens that count, and revoked ones that must not come back. */
static bool stays(struct store_txn *txn) {
    struct arena arena = {0};
    Pb__AclState *state;
    bool bootstrapped = acl_state_read(txn, &arena, &state) == CO_OK && state->bootstrap_index != 0;
    arena_free(&arena);
    return bootstrapped;
}

/* -- the table ---------------------------------------------------------------------------------------------------- */
/* Tokens' commands carry hashes that only a server can make, so only servers propose them. */
#define SERVERS(number_, name_, type_, may_, apply_)                                                       \
    {                                                                                                      \
        .number = (number_), .servers_only = true, .name = (name_), .request = &pb__##type_##__descriptor, \
        .may = (may_), .apply = (apply_)                                                                   \
    }
#define MAKES(number_, name_, type_, result_, may_, apply_)                                                \
    {                                                                                                      \
        .number = (number_), .servers_only = true, .name = (name_), .request = &pb__##type_##__descriptor, \
        .result = &pb__##result_##__descriptor, .may = (may_), .apply = (apply_)                           \
    }
#define SETS(number_, name_, type_, result_, apply_)                                 \
    {                                                                                \
        .number = (number_), .name = (name_), .request = &pb__##type_##__descriptor, \
        .result = &pb__##result_##__descriptor, .may = may_write, .apply = (apply_)  \
    }
#define DELETES(number_, name_, type_, may_, apply_) \
    { .number = (number_), .name = (name_), .request = &pb__##type_##__descriptor, .may = (may_), .apply = (apply_) }

static const struct module_command commands[] = {
    SERVERS(ACL_KEY, "acl-key", acl_key_command, NULL, acl_key_apply),
    MAKES(ACL_BOOTSTRAP, "acl-bootstrap", acl_bootstrap_command, acl_token, NULL, acl_bootstrap_apply),
    SERVERS(ACL_RESET, "acl-reset", acl_reset_command, NULL, acl_reset_apply),
    MAKES(ACL_TOKEN_SET, "acl-token-set", acl_token_set_command, acl_token, may_write, acl_token_set_apply),
    DELETES(ACL_TOKEN_DELETE, "acl-token-delete", acl_token_delete_command, may_write, acl_token_delete_apply),
    SERVERS(ACL_TOKEN_END, "acl-token-end", acl_token_end_command, NULL, acl_token_end_apply),
    SETS(ACL_POLICY_SET, "acl-policy-set", acl_policy_set_command, acl_policy, acl_policy_set_apply),
    DELETES(ACL_POLICY_DELETE, "acl-policy-delete", acl_policy_delete_command, may_write, acl_policy_delete_apply),
    SETS(ACL_ROLE_SET, "acl-role-set", acl_role_set_command, acl_role, acl_role_set_apply),
    DELETES(ACL_ROLE_DELETE, "acl-role-delete", acl_role_delete_command, may_write, acl_role_delete_apply),
    SETS(ACL_METHOD_SET, "acl-method-set", acl_method_set_command, acl_auth_method, acl_method_set_apply),
    DELETES(ACL_METHOD_DELETE, "acl-method-delete", acl_method_delete_command, may_write, acl_method_delete_apply),
    SETS(ACL_RULE_SET, "acl-rule-set", acl_rule_set_command, acl_binding_rule, acl_rule_set_apply),
    DELETES(ACL_RULE_DELETE, "acl-rule-delete", acl_rule_delete_command, may_write, acl_rule_delete_apply),
    MAKES(ACL_LOGIN, "acl-login", acl_token_set_command, acl_token, NULL, acl_login_apply),
    DELETES(ACL_LOGOUT, "acl-logout", acl_token_delete_command, may_logout, acl_logout_apply),
    {0},
};
static const struct store_table tables[] = {{ACL_TABLE, "acl"},
                                            {ACL_TOKEN_TABLE, "acl-tokens"},
                                            {ACL_SECRET_TABLE, "acl-secrets"},
                                            {ACL_LINK_TABLE, "acl-links"},
                                            {0}};
static const struct module_space spaces[] = {{SPACE_ACL_ALL, "acl"},           {SPACE_ACL_TOKEN, "acl-token"},
                                             {SPACE_ACL_TOKENS, "acl-tokens"}, {SPACE_ACL_POLICIES, "acl-policies"},
                                             {SPACE_ACL_ROLES, "acl-roles"},   {SPACE_ACL_METHODS, "acl-methods"},
                                             {SPACE_ACL_RULES, "acl-rules"},   {0}};
static const struct query_type *const queries[] = {
    &query_acl_token, &query_acl_tokens, &query_acl_token_self, &query_acl_policy,  &query_acl_policies,
    &query_acl_role,  &query_acl_roles,  &query_acl_method,     &query_acl_methods, &query_acl_rule,
    &query_acl_rules, &query_acl_state,  &query_acl_resolve,    &query_acl_changes, NULL};
static const struct expiry_kind *const expiries[] = {&acl_token_expiry, NULL};

const struct module acl_module = {.name = "acl",
                                  .commands = commands,
                                  .tables = tables,
                                  .spaces = spaces,
                                  .queries = queries,
                                  .expiries = expiries,
                                  .stays = stays};
