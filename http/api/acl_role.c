/* /v1/acl/role, /v1/acl/roles: policies and identities that tokens have together. */
#include <string.h>

#include "http/api/acl_views.h"
#include "http/api/topics.h"

/* -- reading -------------------------------------------------------------------------------------------------------- */
static void write_role(struct json_out *json, const Pb__AclRole *role) {
    json_object(json);
    json_key(json, "ID"), json_string(json, role->id);
    json_key(json, "Name"), json_string(json, role->name);
    json_key(json, "Description"), json_string(json, role->description);
    acl_write_links(json, "Policies", role->policies, role->n_policies);
    acl_write_identities(json, role->service_identities, role->n_service_identities, role->node_identities,
                         role->n_node_identities);
    acl_write_hash(json, role->hash);
    acl_write_indexes(json, role->create_index, role->modify_index);
    json_object_end(json);
}

static int view_roles(struct http_request *request, const struct query_result *result) {
    const Pb__AclRolesResult *list = (const Pb__AclRolesResult *)result->message;
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; i < list->n_roles; i++) write_role(json, list->roles[i]);
    json_array_end(json);
    return 200;
}

static void get_roles(struct http_request *request) {
    if (!acl_is_on(request)) return;
    Pb__AclRolesRequest *message = arena_alloc(http_arena(request), sizeof *message);
    struct slice policy = http_parameter(request, "policy");
    pb__acl_roles_request__init(message);
    message->policy = arena_strndup(http_arena(request), policy.data ? policy.data : "", policy.size);
    http_read(request, &query_acl_roles, &message->base, view_roles);
}

static int view_role(struct http_request *request, const struct query_result *result) {
    if (!result->found) return 404;
    write_role(http_out(request), (const Pb__AclRole *)result->message);
    return 200;
}

static Pb__AclRoleRequest *asked(struct http_request *request, const char *id, const char *name) {
    Pb__AclRoleRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__acl_role_request__init(message);
    message->id = (char *)(uintptr_t)id, message->name = (char *)(uintptr_t)name;
    return message;
}

static void get_role(struct http_request *request) {
    if (!acl_is_on(request)) return;
    Pb__AclRoleRequest *message = asked(request, acl_path_value(request, "id"), "");
    http_read(request, &query_acl_role, &message->base, view_role);
}
static void get_role_name(struct http_request *request) {
    if (!acl_is_on(request)) return;
    Pb__AclRoleRequest *message = asked(request, "", acl_path_value(request, "name"));
    http_read(request, &query_acl_role, &message->base, view_role);
}

/* -- writing: the role is read afterwards, because its record has no names of policies ---------------------------------- */
static const ProtobufCMessage *ask_written(struct http_request *request, const struct machine_result *written) {
    if (!written->error) return &asked(request, ((const Pb__AclRole *)written->message)->id, "")->base;
    acl_reply_refusal(request, written);
    return NULL;
}

static bool holds(struct http_request *request, const struct query_result *result) {
    (void)request, (void)result;
    return true;
}

static void reply_written(struct http_request *request, const struct query_result *result, bool held) {
    (void)held;
    int status = view_role(request, result); /* it may have been deleted meanwhile */
    if (status == 200) http_reply_json(request, 200);
    else http_reply_text(request, status, "the role was deleted meanwhile");
}

static void put(struct http_request *request, bool create) {
    static const char *const known[] = {
        "ID",          "Name",        "Description", "Policies", "ServiceIdentities", "NodeIdentities", "Hash",
        "CreateIndex", "ModifyIndex", "Namespace",   NULL};
    static const struct http_wait wait = {
        .query = &query_acl_role, .ask = ask_written, .holds = holds, .reply = reply_written};
    if (!acl_is_on(request)) return;
    struct acl_form form = acl_form_begin(request, known, false);
    if (!form.json) return;
    Pb__AclRole role = PB__ACL_ROLE__INIT;
    Pb__AclRoleSetCommand command = PB__ACL_ROLE_SET_COMMAND__INIT;
    if (create) acl_form_none(&form, "ID", "role");
    role.id = create ? http_new_uuid(request) : acl_form_same(&form, "ID", acl_path_value(request, "id"));
    role.name = acl_form_text(&form, "Name");
    role.description = acl_form_text(&form, "Description");
    role.policies = acl_form_links(&form, "Policies", &role.n_policies);
    role.service_identities = acl_form_services(&form, &role.n_service_identities);
    role.node_identities = acl_form_nodes(&form, &role.n_node_identities);
    command.role = &role, command.create = create;
    if (acl_form_end(&form)) http_write_then_wait(request, ACL_ROLE_SET, &command.base, &wait);
}

static void put_role(struct http_request *request) { put(request, true); }
static void put_role_id(struct http_request *request) { put(request, false); }

static void delete_role(struct http_request *request) {
    if (!acl_is_on(request)) return;
    Pb__AclRoleDeleteCommand command = PB__ACL_ROLE_DELETE_COMMAND__INIT;
    command.id = acl_path_value(request, "id");
    http_write(request, ACL_ROLE_DELETE, &command.base, NULL);
}

/* -- rows ----------------------------------------------------------------------------------------------------------- */
#define OFF .example = {.status = 401}
#define ID \
    { ":id", HTTP_TEXT, .help = "the role's ID" }

const struct http_route http_routes_acl_role[] = {
    {HTTP_GET, "/v1/acl/roles", get_roles, "acl:read",
     HTTP_PARAMS({"policy", HTTP_TEXT, .help = "only those that have this policy: its ID"}, HTTP_READS), "All roles",
     OFF},
    {HTTP_PUT, "/v1/acl/role", put_role, "acl:write", HTTP_PARAMS(HTTP_DC),
     "Makes a role: Name, Description, Policies, ServiceIdentities, NodeIdentities", OFF},
    {HTTP_GET, "/v1/acl/role/name/:name", get_role_name, "acl:read",
     HTTP_PARAMS({":name", HTTP_TEXT, .help = "the role's name"}, HTTP_READS), "A role by its name", OFF},
    {HTTP_GET, "/v1/acl/role/:id", get_role, "acl:read", HTTP_PARAMS(ID, HTTP_READS), "A role. 404 when there is none",
     OFF},
    {HTTP_PUT, "/v1/acl/role/:id", put_role_id, "acl:write", HTTP_PARAMS(ID, HTTP_DC),
     "Changes a role: what the body leaves out is taken away", OFF},
    {HTTP_DELETE, "/v1/acl/role/:id", delete_role, "acl:write", HTTP_PARAMS(ID, HTTP_DC),
     "Deletes a role; true also when there is none", OFF},
    {0},
};
