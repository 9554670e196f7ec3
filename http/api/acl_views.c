#include "http/api/acl_views.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/message.h"
#include "base/text.h"
#include "base/timestamp.h"
#include "http/proof.h"
#include "rpc/api/access_control.h"

#define LIST_MOST 4096

bool acl_is_on(struct http_request *request) {
    if (rpc_access_controlled(http_env(request)->rpc)) return true;
    http_reply_text(request, 401, "ACL support disabled");
    return false;
}

/* -- bodies --------------------------------------------------------------------------------------------------------- */
struct acl_form acl_form_begin(struct http_request *request, const char *const *known, bool optional) {
    struct acl_form form = {.request = request, .arena = http_arena(request)};
    bool empty = optional && http_body(request).size == 0;
    form.json = empty ? NULL : http_json(request);
    if (form.json) json_only_known(form.json, known, &form.fault);
    return form;
}

char *acl_path_value(struct http_request *request, const char *name) {
    struct slice value = http_path_value(request, name);
    return arena_strndup(http_arena(request), value.data ? value.data : "", value.size);
}

char *acl_form_text(struct acl_form *form, const char *name) {
    const char *text = "";
    json_get_string(form->json, name, &text, &form->fault);
    return (char *)(uintptr_t)text;
}

char *acl_form_same(struct acl_form *form, const char *name, const char *in_path) {
    char *text = acl_form_text(form, name);
    if (text[0] && strcmp(text, in_path) != 0)
        fault_set(&form->fault, CO_INVALID, "%s in URL and payload do not match", name);
    return (char *)(uintptr_t)in_path;
}

void acl_form_none(struct acl_form *form, const char *name, const char *noun) {
    if (acl_form_text(form, name)[0])
        fault_set(&form->fault, CO_INVALID, "Cannot specify the %s when creating a new %s", name, noun);
}

/* The items of a list; 0: there is none, or a fault. */
static struct json_object *list_of(struct acl_form *form, struct json_object *object, const char *name, size_t *count) {
    struct json_object *list = json_get_array(object, name, &form->fault);
    *count = list ? json_object_array_length(list) : 0;
    if (*count > LIST_MOST) {
        fault_set(&form->fault, CO_TOOLARGE, "%s has more than %d entries", name, LIST_MOST);
        *count = 0;
    }
    return list;
}

/* The i-th item, which has to be an object; an empty one after a fault. */
static struct json_object *item_of(struct acl_form *form, struct json_object *list, size_t i, const char *name,
                                   const char *const *known) {
    struct json_object *item = json_object_array_get_idx(list, i);
    if (!json_object_is_type(item, json_type_object)) {
        fault_set(&form->fault, CO_INVALID, "%s[%zu]: an object is wanted", name, i);
        return NULL;
    }
    json_only_known(item, known, &form->fault);
    return item;
}

static char *text_of(struct acl_form *form, struct json_object *object, const char *name) {
    const char *text = "";
    json_get_string(object, name, &text, &form->fault);
    return (char *)(uintptr_t)text;
}

char **acl_form_texts(struct acl_form *form, struct json_object *object, const char *name, size_t *count) {
    struct json_object *list = list_of(form, object, name, count);
    char **texts = arena_alloc(form->arena, (*count + 1) * sizeof *texts);
    for (size_t i = 0; i < *count; i++) {
        struct json_object *item = json_object_array_get_idx(list, i);
        bool fits = json_object_is_type(item, json_type_string);
        texts[i] = fits ? (char *)(uintptr_t)json_object_get_string(item) : (char *)(uintptr_t) "";
        if (!fits || strlen(texts[i]) != (size_t)json_object_get_string_len(item))
            fault_set(&form->fault, CO_INVALID, "%s[%zu]: a text without NULs is wanted", name, i);
    }
    return texts;
}

Pb__AclLink **acl_form_links(struct acl_form *form, const char *name, size_t *count) {
    static const char *const known[] = {"ID", "Name", NULL};
    struct json_object *list = list_of(form, form->json, name, count);
    Pb__AclLink **links = arena_alloc(form->arena, (*count + 1) * sizeof *links);
    for (size_t i = 0; i < *count; i++) {
        struct json_object *item = item_of(form, list, i, name, known);
        links[i] = arena_alloc(form->arena, sizeof **links);
        pb__acl_link__init(links[i]);
        links[i]->id = text_of(form, item, "ID"), links[i]->name = text_of(form, item, "Name");
        if (links[i]->id[0]) links[i]->name = (char *)(uintptr_t) "";
    }
    return links;
}

Pb__AclServiceIdentity **acl_form_services(struct acl_form *form, size_t *count) {
    static const char name[] = "ServiceIdentities";
    static const char *const known[] = {"ServiceName", "Datacenters", NULL};
    struct json_object *list = list_of(form, form->json, name, count);
    Pb__AclServiceIdentity **identities = arena_alloc(form->arena, (*count + 1) * sizeof *identities);
    for (size_t i = 0; i < *count; i++) {
        struct json_object *item = item_of(form, list, i, name, known);
        identities[i] = arena_alloc(form->arena, sizeof **identities);
        pb__acl_service_identity__init(identities[i]);
        identities[i]->service = text_of(form, item, "ServiceName");
        identities[i]->datacenters = acl_form_texts(form, item, "Datacenters", &identities[i]->n_datacenters);
    }
    return identities;
}

Pb__AclNodeIdentity **acl_form_nodes(struct acl_form *form, size_t *count) {
    static const char name[] = "NodeIdentities";
    static const char *const known[] = {"NodeName", "Datacenter", NULL};
    struct json_object *list = list_of(form, form->json, name, count);
    Pb__AclNodeIdentity **identities = arena_alloc(form->arena, (*count + 1) * sizeof *identities);
    for (size_t i = 0; i < *count; i++) {
        struct json_object *item = item_of(form, list, i, name, known);
        identities[i] = arena_alloc(form->arena, sizeof **identities);
        pb__acl_node_identity__init(identities[i]);
        identities[i]->node = text_of(form, item, "NodeName");
        identities[i]->datacenter = text_of(form, item, "Datacenter");
    }
    return identities;
}

bool acl_form_end(struct acl_form *form) {
    if (!form->fault.code) return true;
    http_reply_fault(form->request, &form->fault);
    return false;
}

/* -- answers -------------------------------------------------------------------------------------------------------- */
void acl_write_links(struct json_out *json, const char *key, Pb__AclLink *const *links, size_t count) {
    if (!count) return;
    json_key_slice(json, slice_text(key));
    json_array(json);
    for (size_t i = 0; i < count; i++) {
        json_object(json);
        json_key(json, "ID"), json_string(json, links[i]->id);
        json_key(json, "Name"), json_string(json, links[i]->name);
        json_object_end(json);
    }
    json_array_end(json);
}

void acl_write_texts(struct json_out *json, char *const *texts, size_t count) {
    json_array(json);
    for (size_t i = 0; i < count; i++) json_string(json, texts[i]);
    json_array_end(json);
}

static void write_service(struct json_out *json, const Pb__AclServiceIdentity *identity) {
    json_object(json);
    json_key(json, "ServiceName"), json_string(json, identity->service);
    if (identity->n_datacenters) {
        json_key(json, "Datacenters");
        acl_write_texts(json, identity->datacenters, identity->n_datacenters);
    }
    json_object_end(json);
}

static void write_node(struct json_out *json, const Pb__AclNodeIdentity *identity) {
    json_object(json);
    json_key(json, "NodeName"), json_string(json, identity->node);
    json_key(json, "Datacenter"), json_string(json, identity->datacenter);
    json_object_end(json);
}

void acl_write_identities(struct json_out *json, Pb__AclServiceIdentity *const *services, size_t service_count,
                          Pb__AclNodeIdentity *const *nodes, size_t node_count) {
    if (service_count) {
        json_key(json, "ServiceIdentities");
        json_array(json);
        for (size_t i = 0; i < service_count; i++) write_service(json, services[i]);
        json_array_end(json);
    }
    if (node_count) {
        json_key(json, "NodeIdentities");
        json_array(json);
        for (size_t i = 0; i < node_count; i++) write_node(json, nodes[i]);
        json_array_end(json);
    }
}

void acl_write_hash(struct json_out *json, ProtobufCBinaryData hash) {
    json_key(json, "Hash"), json_base64(json, message_slice(hash));
}

void acl_write_indexes(struct json_out *json, uint64_t create_index, uint64_t modify_index) {
    json_key(json, "CreateIndex"), json_u64(json, create_index);
    json_key(json, "ModifyIndex"), json_u64(json, modify_index);
}

void acl_write_time(struct json_out *json, uint64_t unix_ms) {
    char text[TIMESTAMP_ROOM];
    timestamp_format(unix_ms, text);
    json_string(json, text);
}

void acl_write_token(struct json_out *json, const Pb__AclToken *token, const char *secret) {
    json_object(json);
    json_key(json, "AccessorID"), json_string(json, token->accessor);
    if (secret) json_key(json, "SecretID"), json_string(json, secret);
    json_key(json, "Description"), json_string(json, token->description);
    acl_write_links(json, "Policies", token->policies, token->n_policies);
    acl_write_links(json, "Roles", token->roles, token->n_roles);
    acl_write_identities(json, token->service_identities, token->n_service_identities, token->node_identities,
                         token->n_node_identities);
    json_key(json, "Local"), json_bool(json, token->local);
    if (token->auth_method[0]) json_key(json, "AuthMethod"), json_string(json, token->auth_method);
    if (token->expiration_ms) json_key(json, "ExpirationTime"), acl_write_time(json, token->expiration_ms);
    json_key(json, "CreateTime"), acl_write_time(json, token->created_ms);
    acl_write_hash(json, token->hash);
    acl_write_indexes(json, token->create_index, token->modify_index);
    json_object_end(json);
}

void acl_reply_refusal(struct http_request *request, const struct machine_result *result) {
    struct fault fault = {0};
    const char *text = result->text ? result->text : co_strerror(result->error);
    fault_set(&fault, result->error, "%s%s", result->error == CO_AGAIN ? "The ACL system is not ready yet: " : "",
              text);
    http_reply_fault(request, &fault);
}

/* -- commands on tokens ---------------------------------------------------------------------------------------------- */
struct calling {
    struct http_call call;
    struct rpc_acl acl;
};

static void wipe(struct rpc_acl *acl) {
    if (acl->answer.data) explicit_bzero(acl->answer.data, acl->answer.size);
    buffer_free(&acl->answer);
}

static void refuse(struct http_request *request, int error, const struct rpc_acl *acl) {
    const char *before = "", *text = acl->text;
    int status = 0;
    if (error == CO_UNSUPPORTED) status = 401, text = "ACL support disabled";
    else if (error == CO_NOTREADY || error == CO_AGAIN) status = 500, before = "The ACL system is not ready yet: ";
    else if (error == CO_DENIED && strncmp(text, "Permission denied", 17) != 0)
        status = 403, before = "Permission denied: ";
    struct fault fault = {.code = error};
    snprintf(fault.text, sizeof fault.text, "%.*s", (int)sizeof fault.text - 1, text);
    if (status) http_reply_text(request, status, "%s%s", before, text);
    else if (text[0] && error != CO_NOLEADER && error != CO_UNKNOWN_OUTCOME) http_reply_fault(request, &fault);
    else http_reply_error(request, error);
}

static void answered(struct http_request *request, struct http_call *call, int error) {
    struct calling *calling = CONTAINER_OF(call, struct calling, call);
    Pb__AclTokenResult *result = error ? NULL
                                       : message_unpack(http_arena(request), &pb__acl_token_result__descriptor,
                                                        buffer_slice(&calling->acl.answer));
    if (!error && !(result && result->token)) error = CO_UNKNOWN_OUTCOME;
    if (error) {
        refuse(request, error, &calling->acl);
    } else {
        acl_write_token(http_out(request), result->token, result->hidden ? "<hidden>" : result->secret);
        explicit_bzero(result->secret, strlen(result->secret));
        http_audit(request, result->token->accessor, result->token->modify_index);
        http_reply_json(request, 200);
    }
    wipe(&calling->acl);
}

static void drop(struct http_call *call, int error) {
    (void)error;
    wipe(&CONTAINER_OF(call, struct calling, call)->acl);
}

/* Loop thread. */
static void done(struct rpc_acl *acl, int error) { http_called(&CONTAINER_OF(acl, struct calling, acl)->call, error); }

static void call_server(struct http_request *request, enum rpc_acl_verb verb, const Pb__AclTokenSetCommand *command,
                        struct slice secret, Pb__AclProof *proof) {
    struct calling *calling = arena_zalloc(http_arena(request), sizeof *calling);
    calling->acl = (struct rpc_acl){.done = done, .verb = verb, .requester = http_requester(request), .proof = proof};
    calling->acl.command = message_pack(http_arena(request), &command->base);
    calling->acl.secret = slice_copy(http_arena(request), secret);
    http_region_name(request, calling->acl.region);
    calling->call.view = answered, calling->call.drop = drop;
    http_call(request, &calling->call);
    rpc_acl(http_env(request)->rpc, &calling->acl);
}

void acl_call_server(struct http_request *request, enum rpc_acl_verb verb, const Pb__AclTokenSetCommand *command,
                     struct slice secret) {
    call_server(request, verb, command, secret, NULL);
}

void acl_call_login(struct http_request *request, const Pb__AclTokenSetCommand *command, struct slice shown) {
    call_server(request, RPC_ACL_LOGIN, command, shown, http_proof(request));
}
