/* /v1/acl/auth-method, /v1/acl/binding-rule: who gets a token by a login, and what the token may do. */
#include <string.h>

#include "acl/login.h"
#include "base/message.h"
#include "base/text.h"
#include "http/api/acl_views.h"
#include "http/api/topics.h"

/* -- auth methods: reading ------------------------------------------------------------------------------------------ */
static void write_method(struct json_out *json, const Pb__AclAuthMethod *method, bool whole) {
    struct buffer ttl = {0};
    json_object(json);
    json_key(json, "Name"), json_string(json, method->name);
    json_key(json, "Type"), json_string(json, method->type);
    if (method->display_name[0]) json_key(json, "DisplayName"), json_string(json, method->display_name);
    json_key(json, "Description"), json_string(json, method->description);
    if (method->max_token_ttl_ms) {
        duration_format(&ttl, method->max_token_ttl_ms * 1000000);
        json_key(json, "MaxTokenTTL"), json_slice(json, buffer_slice(&ttl));
    }
    if (method->token_locality[0]) json_key(json, "TokenLocality"), json_string(json, method->token_locality);
    if (whole && method->config.len) json_key(json, "Config"), json_raw(json, message_slice(method->config));
    acl_write_indexes(json, method->create_index, method->modify_index);
    json_object_end(json);
    buffer_free(&ttl);
}

static int view_methods(struct http_request *request, const struct query_result *result) {
    const Pb__AclMethodsResult *list = (const Pb__AclMethodsResult *)result->message;
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; i < list->n_methods; i++) write_method(json, list->methods[i], false);
    json_array_end(json);
    return 200;
}

static void get_methods(struct http_request *request) {
    if (!acl_is_on(request)) return;
    Pb__AclMethodsRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__acl_methods_request__init(message);
    http_read(request, &query_acl_methods, &message->base, view_methods);
}

static int view_method(struct http_request *request, const struct query_result *result) {
    if (!result->found) return 404;
    write_method(http_out(request), (const Pb__AclAuthMethod *)result->message, true);
    return 200;
}

static void get_method(struct http_request *request) {
    if (!acl_is_on(request)) return;
    Pb__AclMethodRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__acl_method_request__init(message);
    message->name = acl_path_value(request, "name");
    http_read(request, &query_acl_method, &message->base, view_method);
}

/* -- auth methods: writing ------------------------------------------------------------------------------------------ */
static void method_written(struct http_request *request, const struct machine_result *result) {
    if (result->error) {
        acl_reply_refusal(request, result);
        return;
    }
    write_method(http_out(request), (const Pb__AclAuthMethod *)result->message, true);
    http_reply_json(request, 200);
}

static void form_ttl(struct acl_form *form, Pb__AclAuthMethod *method) {
    int64_t ttl_ns = 0;
    json_get_duration(form->json, "MaxTokenTTL", &ttl_ns, &form->fault);
    method->max_token_ttl_ms = ttl_ns / 1000000;
    bool fits =
        method->max_token_ttl_ms >= (int64_t)ACL_TTL_LEAST_MS && method->max_token_ttl_ms <= (int64_t)ACL_TTL_MOST_MS;
    if (ttl_ns && !fits) fault_set(&form->fault, CO_INVALID, "MaxTokenTTL: a duration from 1m to 24h is wanted");
}

static void form_config(struct acl_form *form, Pb__AclAuthMethod *method) {
    struct json_object *config = json_get_object(form->json, "Config", &form->fault);
    if (!config) return;
    const char *text = json_object_to_json_string_ext(config, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
    method->config = message_bytes(slice_copy(form->arena, slice_text(text)));
}

/* The name of a method that is put by its path may stand in the body too. */
static void put_method_of(struct http_request *request, const char *name) {
    static const char *const known[] = {"Name",        "Type",          "DisplayName", "Description",
                                        "MaxTokenTTL", "TokenLocality", "Config",      "CreateIndex",
                                        "ModifyIndex", "Namespace",     NULL};
    struct acl_form form = acl_form_begin(request, known, false);
    if (!form.json) return;
    Pb__AclAuthMethod method = PB__ACL_AUTH_METHOD__INIT;
    Pb__AclMethodSetCommand command = PB__ACL_METHOD_SET_COMMAND__INIT;
    method.name = name ? acl_form_same(&form, "Name", name) : acl_form_text(&form, "Name");
    method.type = acl_form_text(&form, "Type");
    method.display_name = acl_form_text(&form, "DisplayName");
    method.description = acl_form_text(&form, "Description");
    method.token_locality = acl_form_text(&form, "TokenLocality");
    form_ttl(&form, &method);
    form_config(&form, &method);
    if (!form.fault.code) (void)acl_login_check(&method, &form.fault);
    command.method = &method;
    if (acl_form_end(&form)) http_write(request, ACL_METHOD_SET, &command.base, method_written);
}

static void put_method(struct http_request *request) {
    if (acl_is_on(request)) put_method_of(request, NULL);
}
static void put_method_name(struct http_request *request) {
    if (acl_is_on(request)) put_method_of(request, acl_path_value(request, "name"));
}

static void delete_method(struct http_request *request) {
    if (!acl_is_on(request)) return;
    Pb__AclMethodDeleteCommand command = PB__ACL_METHOD_DELETE_COMMAND__INIT;
    command.name = acl_path_value(request, "name");
    http_write(request, ACL_METHOD_DELETE, &command.base, NULL);
}

/* -- binding rules --------------------------------------------------------------------------------------------------- */
static void write_rule(struct json_out *json, const Pb__AclBindingRule *rule) {
    json_object(json);
    json_key(json, "ID"), json_string(json, rule->id);
    json_key(json, "Description"), json_string(json, rule->description);
    json_key(json, "AuthMethod"), json_string(json, rule->auth_method);
    json_key(json, "Selector"), json_string(json, rule->selector);
    json_key(json, "BindType"), json_string(json, rule->bind_type);
    json_key(json, "BindName"), json_string(json, rule->bind_name);
    acl_write_indexes(json, rule->create_index, rule->modify_index);
    json_object_end(json);
}

static int view_rules(struct http_request *request, const struct query_result *result) {
    const Pb__AclRulesResult *list = (const Pb__AclRulesResult *)result->message;
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; i < list->n_rules; i++) write_rule(json, list->rules[i]);
    json_array_end(json);
    return 200;
}

static void get_rules(struct http_request *request) {
    if (!acl_is_on(request)) return;
    Pb__AclRulesRequest *message = arena_alloc(http_arena(request), sizeof *message);
    struct slice method = http_parameter(request, "authmethod");
    pb__acl_rules_request__init(message);
    message->auth_method = arena_strndup(http_arena(request), method.data ? method.data : "", method.size);
    http_read(request, &query_acl_rules, &message->base, view_rules);
}

static int view_rule(struct http_request *request, const struct query_result *result) {
    if (!result->found) return 404;
    write_rule(http_out(request), (const Pb__AclBindingRule *)result->message);
    return 200;
}

static void get_rule(struct http_request *request) {
    if (!acl_is_on(request)) return;
    Pb__AclRuleRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__acl_rule_request__init(message);
    message->id = acl_path_value(request, "id");
    http_read(request, &query_acl_rule, &message->base, view_rule);
}

static void rule_written(struct http_request *request, const struct machine_result *result) {
    if (result->error) {
        acl_reply_refusal(request, result);
        return;
    }
    write_rule(http_out(request), (const Pb__AclBindingRule *)result->message);
    http_reply_json(request, 200);
}

/* Its selector and names are judged by what the method makes of claims. A method that is not there the command refuses. */
static void rule_judged(struct http_request *request, int error, const struct query_result *result) {
    const Pb__AclRuleSetCommand *command = http_context(request);
    struct fault fault = {0};
    if (!error && result->found)
        (void)acl_login_check_rule((const Pb__AclAuthMethod *)result->message, command->rule, &fault);
    if (error) http_reply_error(request, error);
    else if (fault.code) http_reply_fault(request, &fault);
    else http_write(request, ACL_RULE_SET, &command->base, rule_written);
}

static void put_rule_of(struct http_request *request, bool create) {
    static const char *const known[] = {"ID",       "Description", "AuthMethod",  "Selector",  "BindType",
                                        "BindName", "CreateIndex", "ModifyIndex", "Namespace", NULL};
    if (!acl_is_on(request)) return;
    struct acl_form form = acl_form_begin(request, known, false);
    if (!form.json) return;
    Pb__AclBindingRule rule = PB__ACL_BINDING_RULE__INIT;
    Pb__AclRuleSetCommand command = PB__ACL_RULE_SET_COMMAND__INIT;
    if (create) acl_form_none(&form, "ID", "binding rule");
    rule.id = create ? http_new_uuid(request) : acl_form_same(&form, "ID", acl_path_value(request, "id"));
    rule.description = acl_form_text(&form, "Description");
    rule.auth_method = acl_form_text(&form, "AuthMethod");
    rule.selector = acl_form_text(&form, "Selector");
    rule.bind_type = acl_form_text(&form, "BindType");
    rule.bind_name = acl_form_text(&form, "BindName");
    command.rule = &rule, command.create = create;
    if (!acl_form_end(&form)) return;
    Pb__AclMethodRequest *method = arena_alloc(http_arena(request), sizeof *method);
    pb__acl_method_request__init(method);
    method->name = rule.auth_method;
    http_set_context(request, message_copy(http_arena(request), &command.base));
    http_read_once(request, &query_acl_method, &method->base, RPC_DEFAULT, rule_judged);
}

static void put_rule(struct http_request *request) { put_rule_of(request, true); }
static void put_rule_id(struct http_request *request) { put_rule_of(request, false); }

static void delete_rule(struct http_request *request) {
    if (!acl_is_on(request)) return;
    Pb__AclRuleDeleteCommand command = PB__ACL_RULE_DELETE_COMMAND__INIT;
    command.id = acl_path_value(request, "id");
    http_write(request, ACL_RULE_DELETE, &command.base, NULL);
}

/* -- rows ----------------------------------------------------------------------------------------------------------- */
#define OFF .example = {.status = 401}
#define NAME \
    { ":name", HTTP_TEXT, .help = "the method's name" }
#define ID \
    { ":id", HTTP_TEXT, .help = "the rule's ID" }

const struct http_route http_routes_acl_method[] = {
    {HTTP_GET, "/v1/acl/auth-methods", get_methods, "acl:read", HTTP_PARAMS(HTTP_READS),
     "All auth methods, without their Config", OFF},
    {HTTP_PUT, "/v1/acl/auth-method", put_method, "acl:write", HTTP_PARAMS(HTTP_DC),
     "Makes an auth method, or puts one in the place of that name: Name, Type (`jwt`, `unix`, "
     "`certificate`), DisplayName, Description, MaxTokenTTL, TokenLocality, Config",
     HTTP_BODY_BIG, OFF},
    {HTTP_GET, "/v1/acl/auth-method/:name", get_method, "acl:read", HTTP_PARAMS(NAME, HTTP_READS),
     "An auth method. 404 when there is none", OFF},
    {HTTP_PUT, "/v1/acl/auth-method/:name", put_method_name, "acl:write", HTTP_PARAMS(NAME, HTTP_DC),
     "Makes or changes an auth method", HTTP_BODY_BIG, OFF},
    {HTTP_DELETE, "/v1/acl/auth-method/:name", delete_method, "acl:write", HTTP_PARAMS(NAME, HTTP_DC),
     "Deletes an auth method, its binding rules, and the tokens that it made", OFF},
    {HTTP_GET, "/v1/acl/binding-rules", get_rules, "acl:read",
     HTTP_PARAMS({"authmethod", HTTP_TEXT, .help = "only those of this auth method"}, HTTP_READS), "All binding rules",
     OFF},
    {HTTP_PUT, "/v1/acl/binding-rule", put_rule, "acl:write", HTTP_PARAMS(HTTP_DC),
     "Makes a binding rule: AuthMethod, Selector, BindType (`service` or `role`), BindName, Description", OFF},
    {HTTP_GET, "/v1/acl/binding-rule/:id", get_rule, "acl:read", HTTP_PARAMS(ID, HTTP_READS),
     "A binding rule. 404 when there is none", OFF},
    {HTTP_PUT, "/v1/acl/binding-rule/:id", put_rule_id, "acl:write", HTTP_PARAMS(ID, HTTP_DC), "Changes a binding rule",
     OFF},
    {HTTP_DELETE, "/v1/acl/binding-rule/:id", delete_rule, "acl:write", HTTP_PARAMS(ID, HTTP_DC),
     "Deletes a binding rule; true also when there is none", OFF},
    {0},
};
