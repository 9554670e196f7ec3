/* /v1/acl/policy, /v1/acl/policies, /v1/acl/rules: what tokens may do. The rules of a policy are read before it is stored, so
 * that a mistake is refused with its place. */
#include <string.h>

#include "acl/rules.h"
#include "base/text.h"
#include "http/api/acl_views.h"
#include "http/api/topics.h"

/* -- reading -------------------------------------------------------------------------------------------------------- */
static void write_policy(struct json_out *json, const Pb__AclPolicy *policy, bool whole) {
    json_object(json);
    json_key(json, "ID"), json_string(json, policy->id);
    json_key(json, "Name"), json_string(json, policy->name);
    json_key(json, "Description"), json_string(json, policy->description);
    if (whole) json_key(json, "Rules"), json_string(json, policy->rules);
    if (policy->n_datacenters) {
        json_key(json, "Datacenters");
        acl_write_texts(json, policy->datacenters, policy->n_datacenters);
    } else if (!whole) {
        json_key(json, "Datacenters"), json_null(json);
    }
    acl_write_hash(json, policy->hash);
    acl_write_indexes(json, policy->create_index, policy->modify_index);
    json_object_end(json);
}

static int view_policies(struct http_request *request, const struct query_result *result) {
    const Pb__AclPoliciesResult *list = (const Pb__AclPoliciesResult *)result->message;
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; i < list->n_policies; i++) write_policy(json, list->policies[i], false);
    json_array_end(json);
    return 200;
}

static void get_policies(struct http_request *request) {
    if (!acl_is_on(request)) return;
    Pb__AclPoliciesRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__acl_policies_request__init(message);
    http_read(request, &query_acl_policies, &message->base, view_policies);
}

static int view_policy(struct http_request *request, const struct query_result *result) {
    if (!result->found) {
        http_view_text(request, "ACL not found");
        return 403;
    }
    write_policy(http_out(request), (const Pb__AclPolicy *)result->message, true);
    return 200;
}

static void read_policy(struct http_request *request, const char *id, const char *name) {
    Pb__AclPolicyRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__acl_policy_request__init(message);
    message->id = (char *)(uintptr_t)id, message->name = (char *)(uintptr_t)name;
    http_read(request, &query_acl_policy, &message->base, view_policy);
}

static void get_policy(struct http_request *request) {
    if (acl_is_on(request)) read_policy(request, acl_path_value(request, "id"), "");
}
static void get_policy_name(struct http_request *request) {
    if (acl_is_on(request)) read_policy(request, "", acl_path_value(request, "name"));
}

/* -- writing -------------------------------------------------------------------------------------------------------- */
static void written(struct http_request *request, const struct machine_result *result) {
    if (result->error) {
        acl_reply_refusal(request, result);
        return;
    }
    write_policy(http_out(request), (const Pb__AclPolicy *)result->message, true);
    http_reply_json(request, 200);
}

/* Says what has no effect in a header for each. */
static void judge_rules(struct acl_form *form, const char *text) {
    struct rules rules;
    struct fault fault = {0};
    if (rules_parse(slice_text(text), form->arena, &rules, &fault) != CO_OK) {
        fault_set(&form->fault, fault.code, "Invalid Policy: Rules: %.200s", fault.text);
        return;
    }
    for (size_t i = 0; i < rules.warning_count; i++) http_header(form->request, "X-Coord-Warning", rules.warnings[i]);
}

static void put(struct http_request *request, bool create) {
    static const char *const known[] = {"ID",   "Name",        "Description", "Rules",     "Datacenters",
                                        "Hash", "CreateIndex", "ModifyIndex", "Namespace", NULL};
    if (!acl_is_on(request)) return;
    struct acl_form form = acl_form_begin(request, known, false);
    if (!form.json) return;
    Pb__AclPolicy policy = PB__ACL_POLICY__INIT;
    Pb__AclPolicySetCommand command = PB__ACL_POLICY_SET_COMMAND__INIT;
    if (create) acl_form_none(&form, "ID", "policy");
    policy.id = create ? http_new_uuid(request) : acl_form_same(&form, "ID", acl_path_value(request, "id"));
    policy.name = acl_form_text(&form, "Name");
    policy.description = acl_form_text(&form, "Description");
    policy.rules = acl_form_text(&form, "Rules");
    policy.datacenters = acl_form_texts(&form, form.json, "Datacenters", &policy.n_datacenters);
    if (!form.fault.code) judge_rules(&form, policy.rules);
    command.policy = &policy, command.create = create;
    if (acl_form_end(&form)) http_write(request, ACL_POLICY_SET, &command.base, written);
}

static void put_policy(struct http_request *request) { put(request, true); }
static void put_policy_id(struct http_request *request) { put(request, false); }

static void delete_policy(struct http_request *request) {
    if (!acl_is_on(request)) return;
    Pb__AclPolicyDeleteCommand command = PB__ACL_POLICY_DELETE_COMMAND__INIT;
    command.id = acl_path_value(request, "id");
    http_write(request, ACL_POLICY_DELETE, &command.base, NULL);
}

/* -- rules of before Consul 1.4 ------------------------------------------------------------------------------------- */
static void post_translate(struct http_request *request) {
    struct fault fault = {0};
    if (!acl_is_on(request)) return;
    if (rules_translate(http_body(request), http_raw(request), &fault) == CO_OK)
        http_reply_raw(request, 200, "text/plain");
    else http_reply_text(request, 400, "Failed to parse the rules: %s", fault.text);
}

/* Rules were in tokens then. None here has any. */
static int view_no_rules(struct http_request *request, const struct query_result *result) {
    http_view_text(request,
                   result->found ? "the token has no rules of its own: its policies have them" : "ACL not found");
    return result->found ? 404 : 403;
}

static void get_translate(struct http_request *request) {
    if (!acl_is_on(request)) return;
    Pb__AclTokenRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__acl_token_request__init(message);
    message->accessor = acl_path_value(request, "id");
    http_read_fresh(request, &query_acl_token, &message->base, view_no_rules, NULL);
}

/* -- rows ----------------------------------------------------------------------------------------------------------- */
#define OFF .example = {.status = 401}
#define ID \
    { ":id", HTTP_TEXT, .help = "the policy's ID" }

const struct http_route http_routes_acl_policy[] = {
    {HTTP_GET, "/v1/acl/policies", get_policies, "acl:read", HTTP_PARAMS(HTTP_READS),
     "All policies, without their rules", OFF},
    {HTTP_PUT, "/v1/acl/policy", put_policy, "acl:write", HTTP_PARAMS(HTTP_DC),
     "Makes a policy: Name, Description, Rules (HCL or JSON), Datacenters. Rules with a mistake are a 400 with its "
     "place; "
     "`X-Coord-Warning` names what has no effect",
     HTTP_BODY_BIG, OFF},
    {HTTP_GET, "/v1/acl/policy/name/:name", get_policy_name, "acl:read",
     HTTP_PARAMS({":name", HTTP_TEXT, .help = "the policy's name"}, HTTP_READS), "A policy by its name", OFF},
    {HTTP_GET, "/v1/acl/policy/:id", get_policy, "acl:read", HTTP_PARAMS(ID, HTTP_READS),
     "A policy. 403 when there is none", OFF},
    {HTTP_PUT, "/v1/acl/policy/:id", put_policy_id, "acl:write", HTTP_PARAMS(ID, HTTP_DC),
     "Changes a policy; its tokens have the new rules at once", HTTP_BODY_BIG, OFF},
    {HTTP_DELETE, "/v1/acl/policy/:id", delete_policy, "acl:write", HTTP_PARAMS(ID, HTTP_DC),
     "Deletes a policy; true also when there is none", OFF},
    {HTTP_POST, "/v1/acl/rules/translate", post_translate, "acl:read", NULL,
     "Rules as they were before Consul 1.4, as rules of today: `key \"a\"` becomes `key_prefix \"a\"`",
     HTTP_LOCAL | HTTP_BODY_RAW, OFF},
    {HTTP_GET, "/v1/acl/rules/translate/:id", get_translate, "acl:read",
     HTTP_PARAMS({":id", HTTP_TEXT, .help = "a token's AccessorID"}, HTTP_READS),
     "The rules of an old token, which no token has here: 404", OFF},
    {0},
};
