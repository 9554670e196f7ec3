/* Queries, and what of their results a token may see: everything needs acl:read, a secret acl:write. */
#include <string.h>

#include "acl/acl_internal.h"
#include "acl/rules.h"
#include "base/check.h"

#define LIST(type, init)                                 \
    ({                                                   \
        type *list_ = arena_alloc(arena, sizeof *list_); \
        init(list_);                                     \
        list_;                                           \
    })

static int show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                struct query_result *result) {
    (void)txn, (void)request, (void)result;
    return access_require(check, ACCESS_ACL, acl_everything, ACCESS_READ);
}

static struct watch_key watch(enum acl_space space) { return (struct watch_key){(uint8_t)space, acl_everything}; }
static struct watch_key watched_all(const ProtobufCMessage *request) {
    (void)request;
    return watch(SPACE_ACL_ALL);
}
static struct watch_key watched_tokens(const ProtobufCMessage *request) {
    (void)request;
    return watch(SPACE_ACL_TOKENS);
}
static struct watch_key watched_policies(const ProtobufCMessage *request) {
    (void)request;
    return watch(SPACE_ACL_POLICIES);
}
static struct watch_key watched_roles(const ProtobufCMessage *request) {
    (void)request;
    return watch(SPACE_ACL_ROLES);
}
static struct watch_key watched_methods(const ProtobufCMessage *request) {
    (void)request;
    return watch(SPACE_ACL_METHODS);
}
static struct watch_key watched_rules(const ProtobufCMessage *request) {
    (void)request;
    return watch(SPACE_ACL_RULES);
}

/* The result of a single thing. `rv`: of its read. */
static int single(struct store_txn *txn, enum acl_space space, int rv, const ProtobufCMessage *message,
                  struct query_result *result) {
    *result = (struct query_result){
        .index = machine_change_index(txn, (uint8_t)space, acl_everything), .found = rv == CO_OK, .message = message};
    return rv == CO_NOTFOUND ? CO_OK : rv;
}

static int several(struct store_txn *txn, enum acl_space space, int error, const ProtobufCMessage *message,
                   struct query_result *result) {
    *result = (struct query_result){
        .index = machine_change_index(txn, (uint8_t)space, acl_everything), .found = true, .message = message};
    return error;
}

/* -- tokens ------------------------------------------------------------------------------------------------------- */
static int fill_links(struct store_txn *txn, Pb__AclToken *token, struct arena *arena) {
    int rv = acl_links_fill(txn, token->policies, &token->n_policies, false, arena);
    return rv == CO_OK ? acl_links_fill(txn, token->roles, &token->n_roles, true, arena) : rv;
}

static int open_secret(const Pb__AclToken *token, const struct acl_key *key, struct arena *arena, char **secret) {
    struct buffer text = {0};
    if (strcmp(token->accessor, ACL_ANONYMOUS_ID) == 0) {
        *secret = ACL_ANONYMOUS;
        return CO_OK;
    }
    if (!key) return CO_AGAIN;
    int rv = acl_key_open(key, slice_text(token->accessor), message_slice(token->secret_sealed), &text);
    if (rv == CO_OK) *secret = arena_strndup(arena, text.data, text.size);
    if (text.data) explicit_bzero(text.data, text.capacity);
    buffer_free(&text);
    return rv;
}

/* `rv`: of the token's read. A server without the key, or with another one, does not know the secret. */
static int token_result(struct store_txn *txn, int rv, Pb__AclToken *token, const struct acl_key *key,
                        struct arena *arena, struct query_result *result) {
    Pb__AclTokenResult *answer = NULL;
    if (rv == CO_OK) rv = fill_links(txn, token, arena);
    if (rv == CO_OK) {
        answer = LIST(Pb__AclTokenResult, pb__acl_token_result__init);
        answer->token = token;
        answer->hidden = open_secret(token, key, arena, &answer->secret) != CO_OK;
        token->secret_hash.len = token->secret_sealed.len = 0;
    }
    struct slice name = slice_text(token ? token->accessor : "");
    *result = (struct query_result){.index = machine_change_index(txn, SPACE_ACL_TOKEN, name),
                                    .found = rv == CO_OK,
                                    .message = answer ? &answer->base : NULL};
    return rv == CO_NOTFOUND ? CO_OK : rv;
}

static struct watch_key token_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_ACL_TOKEN, slice_text(((const Pb__AclTokenRequest *)request)->accessor)};
}

static int token_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                     struct query_result *result) {
    struct slice accessor = slice_text(((const Pb__AclTokenRequest *)request)->accessor);
    struct acl_key *key = acl_key_used();
    Pb__AclToken *token;
    int rv = acl_token_read(txn, accessor, arena, &token);
    rv = token_result(txn, rv, token, key, arena, result);
    if (!result->found) result->index = machine_change_index(txn, SPACE_ACL_TOKEN, accessor);
    acl_key_release(key);
    return rv;
}

static int token_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                      struct query_result *result) {
    (void)txn, (void)request;
    int rv = access_require(check, ACCESS_ACL, acl_everything, ACCESS_READ);
    if (rv != CO_OK || !result->message) return rv;
    Pb__AclTokenResult *answer = (Pb__AclTokenResult *)(uintptr_t)result->message;
    bool all = access_allows(check->access, ACCESS_ACL, acl_everything, ACCESS_WRITE) ||
               strcmp(answer->token->accessor, ACL_ANONYMOUS_ID) == 0;
    if (!all) answer->secret = "", answer->hidden = true;
    return CO_OK;
}

static int self_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                    struct query_result *result) {
    struct acl_key *key = acl_key_used();
    Pb__AclToken *token;
    int rv =
        acl_secret_find(txn, key, message_slice(((const Pb__AclTokenSelfRequest *)request)->secret), arena, &token);
    rv = token_result(txn, rv, token, key, arena, result);
    acl_key_release(key);
    return rv == CO_AGAIN ? CO_NOTREADY : rv; /* CO_AGAIN of a query means something else */
}

static int self_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                     struct query_result *result) {
    (void)check, (void)txn, (void)request, (void)result; /* whoever asks has shown the token's secret */
    return CO_OK;
}

static bool has_link(Pb__AclLink *const *links, size_t count, const char *id) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(links[i]->id, id) == 0) return true;
    return false;
}

static bool is_wanted(const Pb__AclToken *token, const Pb__AclTokensRequest *request) {
    return (!request->policy[0] || has_link(token->policies, token->n_policies, request->policy)) &&
           (!request->role[0] || has_link(token->roles, token->n_roles, request->role)) &&
           (!request->auth_method[0] ||
            slice_equal_nocase(slice_text(token->auth_method), slice_text(request->auth_method)));
}

static int take_token(struct store_txn *txn, Pb__AclToken *token, const Pb__AclTokensRequest *request,
                      struct arena *arena, Pb__AclTokensResult *list) {
    int rv = fill_links(txn, token, arena);
    if (rv != CO_OK || !is_wanted(token, request)) return rv;
    token->secret_hash.len = token->secret_sealed.len = 0;
    ACL_APPEND(arena, list->tokens, list->n_tokens, token);
    return CO_OK;
}

static int all_tokens(struct store_txn *txn, const Pb__AclTokensRequest *request, struct arena *arena,
                      Pb__AclTokensResult *list) {
    struct store_cursor cursor;
    int rv = CO_OK;
    store_cursor_open(&cursor, txn, ACL_TOKEN_TABLE, acl_everything);
    for (; cursor.valid && rv == CO_OK; store_cursor_next(&cursor)) {
        Pb__AclToken *token = message_unpack(arena, &pb__acl_token__descriptor, cursor.value);
        rv = token ? take_token(txn, token, request, arena, list) : CO_CORRUPT;
    }
    store_cursor_close(&cursor);
    return rv;
}

static int tokens_run(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                      struct query_result *result) {
    const Pb__AclTokensRequest *request = (const Pb__AclTokensRequest *)message;
    Pb__AclTokensResult *list = LIST(Pb__AclTokensResult, pb__acl_tokens_result__init);
    struct acl_ids ids = {0};
    int rv = CO_OK;
    bool linked = request->policy[0] || request->role[0] || request->auth_method[0];
    if (request->policy[0]) ids = acl_linked(txn, ACL_LINK_TOKEN_POLICY, request->policy, arena);
    else if (request->role[0]) ids = acl_linked(txn, ACL_LINK_TOKEN_ROLE, request->role, arena);
    else if (linked) ids = acl_linked(txn, ACL_LINK_TOKEN_METHOD, request->auth_method, arena);
    else rv = all_tokens(txn, request, arena, list);
    for (size_t i = 0; i < ids.count && rv == CO_OK; i++) {
        Pb__AclToken *token;
        rv = acl_token_read(txn, ids.items[i], arena, &token);
        if (rv == CO_OK) rv = take_token(txn, token, request, arena, list);
        else if (rv == CO_NOTFOUND) rv = CO_CORRUPT;
    }
    return several(txn, SPACE_ACL_TOKENS, rv, &list->base, result);
}

/* -- policies and roles -------------------------------------------------------------------------------------------- */
static int by_id_or_name(struct store_txn *txn, enum acl_row names, const char *id_text, const char *name,
                         struct arena *arena, struct slice *id) {
    *id = slice_text(id_text);
    return id->size ? CO_OK : acl_name_find(txn, names, slice_text(name), arena, id);
}

static int policy_run(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                      struct query_result *result) {
    const Pb__AclPolicyRequest *request = (const Pb__AclPolicyRequest *)message;
    Pb__AclPolicy *policy = NULL;
    struct slice id;
    int rv = by_id_or_name(txn, ACL_ROW_POLICY_NAME, request->id, request->name, arena, &id);
    if (rv == CO_OK) rv = acl_policy_read(txn, id, arena, &policy);
    if (rv == CO_OK && slice_is(id, ACL_MANAGEMENT_ID)) policy->rules = (char *)(uintptr_t)rules_management;
    return single(txn, SPACE_ACL_POLICIES, rv, policy ? &policy->base : NULL, result);
}

static int role_links(struct store_txn *txn, Pb__AclRole *role, struct arena *arena) {
    return acl_links_fill(txn, role->policies, &role->n_policies, false, arena);
}

static int role_run(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                    struct query_result *result) {
    const Pb__AclRoleRequest *request = (const Pb__AclRoleRequest *)message;
    Pb__AclRole *role = NULL;
    struct slice id;
    int rv = by_id_or_name(txn, ACL_ROW_ROLE_NAME, request->id, request->name, arena, &id);
    if (rv == CO_OK) rv = acl_role_read(txn, id, arena, &role);
    if (rv == CO_OK) rv = role_links(txn, role, arena);
    return single(txn, SPACE_ACL_ROLES, rv, role ? &role->base : NULL, result);
}

/* Calls `take` for each record of this row. */
static int rows(struct store_txn *txn, enum acl_row row, const ProtobufCMessageDescriptor *type, struct arena *arena,
                int (*take)(struct store_txn *txn, void *record, const ProtobufCMessage *request, struct arena *arena,
                            ProtobufCMessage *list),
                const ProtobufCMessage *request, ProtobufCMessage *list) {
    struct store_cursor cursor;
    char room[ACL_KEY_ROOM];
    struct slice prefix = acl_row_key(row, acl_everything, room);
    int rv = CO_OK;
    STORE_PREFIX(&cursor, txn, ACL_TABLE, prefix) {
        void *record = message_unpack(arena, type, cursor.value);
        rv = record ? take(txn, record, request, arena, list) : CO_CORRUPT;
        if (rv != CO_OK) break;
    }
    store_cursor_close(&cursor);
    return rv;
}

static int take_policy(struct store_txn *txn, void *record, const ProtobufCMessage *request, struct arena *arena,
                       ProtobufCMessage *list) {
    Pb__AclPoliciesResult *result = (Pb__AclPoliciesResult *)list;
    Pb__AclPolicy *policy = record;
    (void)txn, (void)request;
    policy->rules = "";
    ACL_APPEND(arena, result->policies, result->n_policies, policy);
    return CO_OK;
}

static int policies_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                        struct query_result *result) {
    Pb__AclPoliciesResult *list = LIST(Pb__AclPoliciesResult, pb__acl_policies_result__init);
    int rv = rows(txn, ACL_ROW_POLICY, &pb__acl_policy__descriptor, arena, take_policy, request, &list->base);
    return several(txn, SPACE_ACL_POLICIES, rv, &list->base, result);
}

static int take_role(struct store_txn *txn, void *record, const ProtobufCMessage *request, struct arena *arena,
                     ProtobufCMessage *list) {
    Pb__AclRolesResult *result = (Pb__AclRolesResult *)list;
    const char *policy = ((const Pb__AclRolesRequest *)request)->policy;
    Pb__AclRole *role = record;
    int rv = role_links(txn, role, arena);
    if (rv != CO_OK || (policy[0] && !has_link(role->policies, role->n_policies, policy))) return rv;
    ACL_APPEND(arena, result->roles, result->n_roles, role);
    return CO_OK;
}

static int roles_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                     struct query_result *result) {
    Pb__AclRolesResult *list = LIST(Pb__AclRolesResult, pb__acl_roles_result__init);
    int rv = rows(txn, ACL_ROW_ROLE, &pb__acl_role__descriptor, arena, take_role, request, &list->base);
    return several(txn, SPACE_ACL_ROLES, rv, &list->base, result);
}

/* -- methods and rules --------------------------------------------------------------------------------------------- */
static int method_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                      struct query_result *result) {
    Pb__AclAuthMethod *method;
    int rv = acl_method_read(txn, slice_text(((const Pb__AclMethodRequest *)request)->name), arena, &method);
    return single(txn, SPACE_ACL_METHODS, rv, method ? &method->base : NULL, result);
}

static int take_method(struct store_txn *txn, void *record, const ProtobufCMessage *request, struct arena *arena,
                       ProtobufCMessage *list) {
    Pb__AclMethodsResult *result = (Pb__AclMethodsResult *)list;
    Pb__AclAuthMethod *method = record;
    (void)txn, (void)request;
    ACL_APPEND(arena, result->methods, result->n_methods, method);
    return CO_OK;
}

static int methods_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                       struct query_result *result) {
    Pb__AclMethodsResult *list = LIST(Pb__AclMethodsResult, pb__acl_methods_result__init);
    int rv = rows(txn, ACL_ROW_METHOD, &pb__acl_auth_method__descriptor, arena, take_method, request, &list->base);
    return several(txn, SPACE_ACL_METHODS, rv, &list->base, result);
}

static int rule_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                    struct query_result *result) {
    Pb__AclBindingRule *rule;
    int rv = acl_get(txn, ACL_ROW_RULE, slice_text(((const Pb__AclRuleRequest *)request)->id),
                     &pb__acl_binding_rule__descriptor, arena, &rule);
    return single(txn, SPACE_ACL_RULES, rv, rule ? &rule->base : NULL, result);
}

static int take_rule(struct store_txn *txn, void *record, const ProtobufCMessage *request, struct arena *arena,
                     ProtobufCMessage *list) {
    Pb__AclRulesResult *result = (Pb__AclRulesResult *)list;
    const char *method = ((const Pb__AclRulesRequest *)request)->auth_method;
    Pb__AclBindingRule *rule = record;
    (void)txn;
    if (!method[0] || slice_equal_nocase(slice_text(rule->auth_method), slice_text(method)))
        ACL_APPEND(arena, result->rules, result->n_rules, rule);
    return CO_OK;
}

static int rules_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                     struct query_result *result) {
    Pb__AclRulesResult *list = LIST(Pb__AclRulesResult, pb__acl_rules_result__init);
    int rv = rows(txn, ACL_ROW_RULE, &pb__acl_binding_rule__descriptor, arena, take_rule, request, &list->base);
    return several(txn, SPACE_ACL_RULES, rv, &list->base, result);
}

static int state_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                     struct query_result *result) {
    Pb__AclState *state;
    (void)request;
    int rv = acl_state_read(txn, arena, &state);
    return single(txn, SPACE_ACL_ALL, rv, state ? &state->base : NULL, result);
}

/* -- the table ---------------------------------------------------------------------------------------------------- */
#define QUERY(number_, name_, type_, result_, watched_, run_, show_)                                  \
    {                                                                                                 \
        .number = (number_), .name = (name_), .request = &pb__##type_##__descriptor,                  \
        .result = &pb__##result_##__descriptor, .watched = (watched_), .run = (run_), .show = (show_) \
    }
/* The names of links change with their policies and roles. */
const struct query_type query_acl_token = {.number = 224,
                                           .name = "acl-token",
                                           .request = &pb__acl_token_request__descriptor,
                                           .result = &pb__acl_token_result__descriptor,
                                           .watched = token_watched,
                                           .also = watched_all,
                                           .run = token_run,
                                           .show = token_show};
const struct query_type query_acl_tokens = {.number = 225,
                                            .name = "acl-tokens",
                                            .request = &pb__acl_tokens_request__descriptor,
                                            .result = &pb__acl_tokens_result__descriptor,
                                            .watched = watched_tokens,
                                            .also = watched_all,
                                            .run = tokens_run,
                                            .show = show};
const struct query_type query_acl_token_self =
    QUERY(226, "acl-token-self", acl_token_self_request, acl_token_result, watched_all, self_run, self_show);
const struct query_type query_acl_policy =
    QUERY(227, "acl-policy", acl_policy_request, acl_policy, watched_policies, policy_run, show);
const struct query_type query_acl_policies =
    QUERY(228, "acl-policies", acl_policies_request, acl_policies_result, watched_policies, policies_run, show);
const struct query_type query_acl_role = {.number = 229,
                                          .name = "acl-role",
                                          .request = &pb__acl_role_request__descriptor,
                                          .result = &pb__acl_role__descriptor,
                                          .watched = watched_roles,
                                          .also = watched_all,
                                          .run = role_run,
                                          .show = show};
const struct query_type query_acl_roles = {.number = 230,
                                           .name = "acl-roles",
                                           .request = &pb__acl_roles_request__descriptor,
                                           .result = &pb__acl_roles_result__descriptor,
                                           .watched = watched_roles,
                                           .also = watched_all,
                                           .run = roles_run,
                                           .show = show};
const struct query_type query_acl_method =
    QUERY(231, "acl-method", acl_method_request, acl_auth_method, watched_methods, method_run, show);
const struct query_type query_acl_methods =
    QUERY(232, "acl-methods", acl_methods_request, acl_methods_result, watched_methods, methods_run, show);
const struct query_type query_acl_rule =
    QUERY(233, "acl-rule", acl_rule_request, acl_binding_rule, watched_rules, rule_run, show);
const struct query_type query_acl_rules =
    QUERY(234, "acl-rules", acl_rules_request, acl_rules_result, watched_rules, rules_run, show);
const struct query_type query_acl_state =
    QUERY(235, "acl-state", acl_state_request, acl_state, watched_all, state_run, show);
