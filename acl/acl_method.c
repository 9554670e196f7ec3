/* Commands on auth methods and binding rules. */
#include <string.h>

#include "acl/acl_internal.h"
#include "base/check.h"
#include "base/text.h"

#define TYPE_MAX 32

/* -- auth methods ------------------------------------------------------------------------------------------------- */
static const char *method_fault(const Pb__AclAuthMethod *method) {
    if (!method) return "no auth method";
    if (acl_name_fault(method->name, ACL_NAME_MAX))
        return "Invalid Auth Method: the Name has 1 to 128 letters, digits, dashes and underscores";
    if (!method->type[0] || strlen(method->type) > TYPE_MAX) return "Invalid Auth Method: invalid Type";
    if (method->max_token_ttl_ms < 0 || method->max_token_ttl_ms > (int64_t)ACL_TIME_MOST_MS)
        return "Invalid Auth Method: MaxTokenTTL is negative, or too long";
    if (strcmp(method->token_locality, "") != 0 && strcmp(method->token_locality, "local") != 0 &&
        strcmp(method->token_locality, "global") != 0)
        return "Invalid Auth Method: TokenLocality is \"local\" or \"global\"";
    if (strlen(method->display_name) > ACL_TEXT_MAX || strlen(method->description) > ACL_TEXT_MAX)
        return "Invalid Auth Method: DisplayName or Description is too long";
    if (method->config.len > ACL_CONFIG_MAX) return "Invalid Auth Method: the Config is too long";
    return NULL;
}

int acl_method_set_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    Pb__AclAuthMethod *method = ((const Pb__AclMethodSetCommand *)request)->method, *old;
    Pb__AclState *state;
    const char *fault = method_fault(method);
    if (fault) return machine_refuse(result, CO_INVALID, fault);
    int rv = acl_begun(tx, &state, result);
    if (rv != CO_OK || result->error) return rv;
    rv = acl_method_read(tx->store, slice_text(method->name), tx->arena, &old);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    if (old && strcmp(old->type, method->type) != 0)
        return machine_refuse(result, CO_INVALID, "Changing an auth method's type is not permitted");
    if (!old && acl_count(tx->store, ACL_ROW_METHOD) >= ACL_METHODS_MAX)
        return machine_refuse(result, CO_TOOLARGE, "there are too many auth methods; delete some");
    if (old) method->name = old->name; /* its tokens and rules have it so */
    method->create_index = old ? old->create_index : tx->index, method->modify_index = tx->index;
    acl_put(tx, ACL_ROW_METHOD, slice_text(method->name), &method->base);
    acl_changed(tx, SPACE_ACL_METHODS);
    result->yes = true, result->message = &method->base;
    return CO_OK;
}

/* -- binding rules ------------------------------------------------------------------------------------------------ */
static int rule_read(struct machine_tx *tx, const char *id, Pb__AclBindingRule **rule) {
    return acl_get(tx->store, ACL_ROW_RULE, slice_text(id), &pb__acl_binding_rule__descriptor, tx->arena, rule);
}

static void rule_remove(struct machine_tx *tx, const Pb__AclBindingRule *rule) {
    acl_link_set(tx, ACL_LINK_METHOD_RULE, rule->auth_method, rule->id, false);
    acl_remove(tx, ACL_ROW_RULE, slice_text(rule->id));
    acl_changed(tx, SPACE_ACL_RULES);
}

static const char *rule_fault(const Pb__AclBindingRule *rule) {
    struct slice id = slice_text(rule ? rule->id : "");
    if (!uuid_valid(id) || slice_has_upper(id)) return "Invalid Binding Rule: its ID is no UUID in lower case";
    if (!rule->auth_method[0]) return "Invalid Binding Rule: no AuthMethod is set";
    if (strcmp(rule->bind_type, "service") != 0 && strcmp(rule->bind_type, "role") != 0)
        return "Invalid Binding Rule: unknown BindType; it is \"service\" or \"role\"";
    if (!rule->bind_name[0]) return "Invalid Binding Rule: no BindName is set";
    if (strlen(rule->bind_name) > ACL_TEXT_MAX || strlen(rule->selector) > ACL_TEXT_MAX ||
        strlen(rule->description) > ACL_TEXT_MAX)
        return "Invalid Binding Rule: a text of it is too long";
    return NULL;
}

int acl_rule_set_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__AclRuleSetCommand *command = request;
    Pb__AclBindingRule *rule = command->rule, *old;
    Pb__AclAuthMethod *method;
    const char *fault = rule_fault(rule);
    if (fault) return machine_refuse(result, CO_INVALID, fault);
    int rv = rule_read(tx, rule->id, &old);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    if (command->create == (old != NULL))
        return machine_refuse(result, old ? CO_EXISTS : CO_NOTFOUND,
                              old ? "Invalid Binding Rule: its ID is in use"
                                  : arena_printf(tx->arena, "cannot find binding rule %s", rule->id));
    rv = acl_method_read(tx->store, slice_text(rule->auth_method), tx->arena, &method);
    if (rv == CO_NOTFOUND)
        return machine_refuse(
            result, CO_INVALID,
            arena_printf(tx->arena, "cannot find auth method with name \"%.128s\"", rule->auth_method));
    if (rv != CO_OK) return rv;
    rule->auth_method = method->name;
    if (old && strcmp(old->auth_method, rule->auth_method) != 0)
        return machine_refuse(result, CO_INVALID, "the AuthMethod field of an existing binding rule cannot change");
    if (!old && acl_count(tx->store, ACL_ROW_RULE) >= ACL_RULES_MAX)
        return machine_refuse(result, CO_TOOLARGE, "there are too many binding rules; delete some");
    rule->create_index = old ? old->create_index : tx->index, rule->modify_index = tx->index;
    acl_link_set(tx, ACL_LINK_METHOD_RULE, rule->auth_method, rule->id, true);
    acl_put(tx, ACL_ROW_RULE, slice_text(rule->id), &rule->base);
    acl_changed(tx, SPACE_ACL_RULES);
    result->yes = true, result->message = &rule->base;
    return CO_OK;
}

/* Consul answers yes also when there is none, here and below. */
int acl_rule_delete_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    Pb__AclBindingRule *rule;
    int rv = rule_read(tx, ((const Pb__AclRuleDeleteCommand *)request)->id, &rule);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    if (rule) rule_remove(tx, rule);
    result->yes = true;
    return CO_OK;
}

/* -- the end of a method ------------------------------------------------------------------------------------------ */
static int tokens_remove(struct machine_tx *tx, const char *method) {
    struct acl_ids tokens = acl_linked(tx->store, ACL_LINK_TOKEN_METHOD, method, tx->arena);
    for (size_t i = 0; i < tokens.count; i++) {
        Pb__AclToken *token;
        int rv = acl_token_read(tx->store, tokens.items[i], tx->arena, &token);
        if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_CORRUPT : rv;
        acl_token_remove(tx, token);
    }
    return CO_OK;
}

static int rules_remove(struct machine_tx *tx, const char *method) {
    struct acl_ids rules = acl_linked(tx->store, ACL_LINK_METHOD_RULE, method, tx->arena);
    for (size_t i = 0; i < rules.count; i++) {
        Pb__AclBindingRule *rule;
        int rv = rule_read(tx, rules.items[i].data, &rule);
        if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_CORRUPT : rv;
        rule_remove(tx, rule);
    }
    return CO_OK;
}

int acl_method_delete_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    Pb__AclAuthMethod *method;
    int rv =
        acl_method_read(tx->store, slice_text(((const Pb__AclMethodDeleteCommand *)request)->name), tx->arena, &method);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    result->yes = true;
    if (!method) return CO_OK;
    rv = tokens_remove(tx, method->name);
    if (rv == CO_OK) rv = rules_remove(tx, method->name);
    if (rv != CO_OK) return rv;
    acl_remove(tx, ACL_ROW_METHOD, slice_text(method->name));
    acl_changed(tx, SPACE_ACL_METHODS);
    return CO_OK;
}
