#include "acls.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/message.h"

/* -- life --------------------------------------------------------------------------------------------------------- */
void acls_begin(struct acls *a) {
    Pb__AclKeyCommand command = PB__ACL_KEY_COMMAND__INIT;
    command.id = message_bytes(acl_key_id(a->key));
    struct outcome outcome = fixture_apply(&a->f, ACL_KEY, &command.base);
    cr_assert(outcome.yes, "%s", outcome.text);
}

void acls_open(struct acls *a) {
    *a = (struct acls){0};
    fixture_open(&a->f);
    a->f.unix_ms = 1000000;
    cr_assert_eq(acl_key_make(&a->key, NULL), CO_OK);
    acl_key_use(acl_key_keep(a->key));
    acls_begin(a);
}

void acls_close(struct acls *a) {
    acl_key_use(NULL);
    acl_key_release(a->key);
    arena_free(&a->arena);
    fixture_close(&a->f);
}

/* -- names -------------------------------------------------------------------------------------------------------- */
const char *acls_id(char kind, unsigned number) {
    static char rooms[4][40];
    static unsigned next;
    char *room = rooms[next++ % 4];
    snprintf(room, 40, "%08x-0000-4000-8000-%012x", (unsigned)kind, number);
    return room;
}

const char *acls_secret(unsigned number) { return acls_id('s', number); }

static char *text(const char *given) { return (char *)(uintptr_t)(given ? given : ""); }

static char *kept(struct acls *a, const char *given) {
    return given ? arena_strndup(&a->arena, given, strlen(given)) : NULL;
}

static size_t length(const char *const *names) {
    size_t count = 0;
    while (count < NAMES_MOST && names[count]) count++;
    return count;
}

/* -- policies ----------------------------------------------------------------------------------------------------- */
struct outcome acls_policy(struct acls *a, unsigned number, struct policy_spec spec) {
    Pb__AclPolicy policy = PB__ACL_POLICY__INIT;
    Pb__AclPolicySetCommand command = PB__ACL_POLICY_SET_COMMAND__INIT;
    char *datacenters[] = {text(spec.datacenter)};
    policy.id = text(acls_id('p', number)), policy.name = text(spec.name), policy.rules = text(spec.rules);
    policy.description = text(spec.description);
    if (spec.datacenter) policy.datacenters = datacenters, policy.n_datacenters = 1;
    command.policy = &policy, command.create = !spec.change;
    return fixture_apply(&a->f, ACL_POLICY_SET, &command.base);
}

struct outcome acls_policy_delete(struct acls *a, unsigned number) {
    Pb__AclPolicyDeleteCommand command = PB__ACL_POLICY_DELETE_COMMAND__INIT;
    command.id = text(acls_id('p', number));
    return fixture_apply(&a->f, ACL_POLICY_DELETE, &command.base);
}

/* -- tokens and roles ---------------------------------------------------------------------------------------------- */
static Pb__AclLink **links(struct acls *a, const char *const *ids, const char *const *names, size_t *count) {
    size_t id_count = length(ids), name_count = names ? length(names) : 0;
    Pb__AclLink **list = arena_alloc(&a->arena, (id_count + name_count + 1) * sizeof *list);
    for (size_t i = 0; i < id_count + name_count; i++) {
        list[i] = arena_alloc(&a->arena, sizeof **list);
        pb__acl_link__init(list[i]);
        if (i < id_count) list[i]->id = kept(a, ids[i]);
        else list[i]->name = kept(a, names[i - id_count]);
    }
    *count = id_count + name_count;
    return list;
}

static Pb__AclServiceIdentity **services(struct acls *a, const struct grants_spec *spec, size_t *count) {
    Pb__AclServiceIdentity **list = arena_alloc(&a->arena, (NAMES_MOST + 1) * sizeof *list);
    char **datacenters = arena_alloc(&a->arena, sizeof *datacenters);
    datacenters[0] = text(spec->service_dc);
    *count = length(spec->services);
    for (size_t i = 0; i < *count; i++) {
        list[i] = arena_alloc(&a->arena, sizeof **list);
        pb__acl_service_identity__init(list[i]);
        list[i]->service = text(spec->services[i]);
        if (spec->service_dc) list[i]->datacenters = datacenters, list[i]->n_datacenters = 1;
    }
    return list;
}

static Pb__AclNodeIdentity **nodes(struct acls *a, const struct grants_spec *spec, size_t *count) {
    Pb__AclNodeIdentity **list = arena_alloc(&a->arena, (NAMES_MOST + 1) * sizeof *list);
    *count = length(spec->nodes);
    for (size_t i = 0; i < *count; i++) {
        list[i] = arena_alloc(&a->arena, sizeof **list);
        pb__acl_node_identity__init(list[i]);
        list[i]->node = text(spec->nodes[i]), list[i]->datacenter = text(spec->node_dc);
    }
    return list;
}

struct outcome acls_role(struct acls *a, unsigned number, struct role_spec spec) {
    Pb__AclRole role = PB__ACL_ROLE__INIT;
    Pb__AclRoleSetCommand command = PB__ACL_ROLE_SET_COMMAND__INIT;
    arena_reset(&a->arena);
    role.id = kept(a, acls_id('r', number)), role.name = text(spec.name);
    role.policies = links(a, spec.grants.policies, spec.grants.policy_names, &role.n_policies);
    role.service_identities = services(a, &spec.grants, &role.n_service_identities);
    role.node_identities = nodes(a, &spec.grants, &role.n_node_identities);
    command.role = &role, command.create = !spec.change;
    return fixture_apply(&a->f, ACL_ROLE_SET, &command.base);
}

struct outcome acls_role_delete(struct acls *a, unsigned number) {
    Pb__AclRoleDeleteCommand command = PB__ACL_ROLE_DELETE_COMMAND__INIT;
    command.id = text(acls_id('r', number));
    return fixture_apply(&a->f, ACL_ROLE_DELETE, &command.base);
}

struct outcome acls_token(struct acls *a, unsigned number, struct token_spec spec) {
    Pb__AclToken token = PB__ACL_TOKEN__INIT;
    Pb__AclTokenSetCommand command = PB__ACL_TOKEN_SET_COMMAND__INIT;
    const struct acl_key *key = spec.key ? spec.key : a->key;
    arena_reset(&a->arena);
    token.accessor = kept(a, spec.accessor ? spec.accessor : acls_id('a', number));
    const char *secret = kept(a, spec.secret ? spec.secret : spec.change ? "" : acls_secret(number));
    if (secret[0]) acl_token_secret(&token, key, slice_text(secret), &a->arena);
    token.description = text(spec.description), token.auth_method = text(spec.method), token.local = spec.local;
    token.expiration_ms = spec.expiration_ms;
    token.policies = links(a, spec.grants.policies, spec.grants.policy_names, &token.n_policies);
    token.roles = links(a, spec.grants.roles, NULL, &token.n_roles);
    token.service_identities = services(a, &spec.grants, &token.n_service_identities);
    token.node_identities = nodes(a, &spec.grants, &token.n_node_identities);
    command.token = &token, command.create = !spec.change, command.ttl_ms = spec.ttl_ms;
    command.key_id = message_bytes(acl_key_id(key));
    return fixture_apply(&a->f, spec.login ? ACL_LOGIN : ACL_TOKEN_SET, &command.base);
}

struct outcome acls_token_delete(struct acls *a, unsigned number, bool logout) {
    Pb__AclTokenDeleteCommand command = PB__ACL_TOKEN_DELETE_COMMAND__INIT;
    command.accessor = text(acls_id('a', number));
    return fixture_apply(&a->f, logout ? ACL_LOGOUT : ACL_TOKEN_DELETE, &command.base);
}

struct outcome acls_token_end(struct acls *a, unsigned number, uint64_t index, uint64_t term) {
    Pb__AclTokenEndCommand command = PB__ACL_TOKEN_END_COMMAND__INIT;
    command.accessor = text(acls_id('a', number)), command.index = index, command.term = term;
    return fixture_apply(&a->f, ACL_TOKEN_END, &command.base);
}

struct outcome acls_bootstrap(struct acls *a, unsigned number) {
    arena_reset(&a->arena);
    Pb__AclBootstrapCommand *command =
        acl_bootstrap(a->key, acls_id('a', number), "first", slice_text(acls_secret(number)), &a->arena);
    return fixture_apply(&a->f, ACL_BOOTSTRAP, &command->base);
}

struct outcome acls_reset(struct acls *a, uint64_t index, bool new_key) {
    Pb__AclResetCommand command = PB__ACL_RESET_COMMAND__INIT;
    command.index = index, command.new_key = new_key;
    return fixture_apply(&a->f, ACL_RESET, &command.base);
}

/* -- methods and rules --------------------------------------------------------------------------------------------- */
struct outcome acls_method(struct acls *a, const char *name, const char *type, int64_t max_ttl_ms) {
    Pb__AclAuthMethod method = PB__ACL_AUTH_METHOD__INIT;
    Pb__AclMethodSetCommand command = PB__ACL_METHOD_SET_COMMAND__INIT;
    method.name = text(name), method.type = text(type), method.max_token_ttl_ms = max_ttl_ms;
    command.method = &method;
    return fixture_apply(&a->f, ACL_METHOD_SET, &command.base);
}

struct outcome acls_method_delete(struct acls *a, const char *name) {
    Pb__AclMethodDeleteCommand command = PB__ACL_METHOD_DELETE_COMMAND__INIT;
    command.name = text(name);
    return fixture_apply(&a->f, ACL_METHOD_DELETE, &command.base);
}

struct outcome acls_rule(struct acls *a, unsigned number, const char *method, const char *bind_type, bool change) {
    Pb__AclBindingRule rule = PB__ACL_BINDING_RULE__INIT;
    Pb__AclRuleSetCommand command = PB__ACL_RULE_SET_COMMAND__INIT;
    rule.id = text(acls_id('b', number)), rule.auth_method = text(method);
    rule.bind_type = text(bind_type), rule.bind_name = "x";
    command.rule = &rule, command.create = !change;
    return fixture_apply(&a->f, ACL_RULE_SET, &command.base);
}

struct outcome acls_rule_delete(struct acls *a, unsigned number) {
    Pb__AclRuleDeleteCommand command = PB__ACL_RULE_DELETE_COMMAND__INIT;
    command.id = text(acls_id('b', number));
    return fixture_apply(&a->f, ACL_RULE_DELETE, &command.base);
}

/* -- reading ------------------------------------------------------------------------------------------------------ */
static const void *ask(struct acls *a, const struct query_type *type, const ProtobufCMessage *request) {
    struct query_result result = fixture_ask(&a->f, type, request);
    return result.found ? result.message : NULL;
}

const Pb__AclTokenResult *acls_read_token(struct acls *a, unsigned number) {
    Pb__AclTokenRequest request = PB__ACL_TOKEN_REQUEST__INIT;
    request.accessor = text(acls_id('a', number));
    return ask(a, &query_acl_token, &request.base);
}

const Pb__AclTokenResult *acls_read_self(struct acls *a, const char *secret) {
    Pb__AclTokenSelfRequest request = PB__ACL_TOKEN_SELF_REQUEST__INIT;
    request.secret = message_bytes(slice_text(secret));
    return ask(a, &query_acl_token_self, &request.base);
}

const Pb__AclTokensResult *acls_read_tokens(struct acls *a, const char *policy, const char *role, const char *method) {
    Pb__AclTokensRequest request = PB__ACL_TOKENS_REQUEST__INIT;
    request.policy = text(policy), request.role = text(role), request.auth_method = text(method);
    return ask(a, &query_acl_tokens, &request.base);
}

const Pb__AclPolicy *acls_read_policy(struct acls *a, const char *id, const char *name) {
    Pb__AclPolicyRequest request = PB__ACL_POLICY_REQUEST__INIT;
    request.id = text(id), request.name = text(name);
    return ask(a, &query_acl_policy, &request.base);
}

const Pb__AclRole *acls_read_role(struct acls *a, unsigned number) {
    Pb__AclRoleRequest request = PB__ACL_ROLE_REQUEST__INIT;
    request.id = text(acls_id('r', number));
    return ask(a, &query_acl_role, &request.base);
}

const Pb__AclState *acls_read_state(struct acls *a) {
    Pb__AclStateRequest request = PB__ACL_STATE_REQUEST__INIT;
    return ask(a, &query_acl_state, &request.base);
}

struct store_txn *acls_begin_read(struct acls *a) {
    fixture_forget(&a->f);
    return store_read(a->f.reader);
}
void acls_end_read(struct acls *a) { store_read_done(a->f.reader); }

uint64_t acls_index(struct acls *a, enum acl_space space, const char *name) {
    uint64_t index = machine_change_index(acls_begin_read(a), (uint8_t)space, slice_text(name));
    acls_end_read(a);
    return index;
}

uint64_t acls_changes(struct acls *a) { return acls_index(a, SPACE_ACL_ALL, ""); }

bool acls_refused(struct outcome outcome, int error, const char *wanted) {
    if (outcome.error == error && !outcome.yes && strstr(outcome.text, wanted)) return true;
    cr_log_error("%d \"%s\", not %d \"%s\"", outcome.error, outcome.text, error, wanted);
    return false;
}
