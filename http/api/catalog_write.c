/* PUT /v1/catalog/register and deregister: turn JSON into commands. They check everything that can be checked without
 * the store; a refusal names the field. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "http/api/catalog.h"
#include "http/api/catalog_form.h"
#include "http/api/lease.h"
#include "http/api/views.h"
#include "registry/undiscoverable.h"

/* The check may name its node again. */
static Pb__Check *form_check(struct catalog_form *form, struct json_object *json, const Pb__Node *node) {
    Pb__Check *check = catalog_form_check(form, json);
    if (*check->node && strcmp(check->node, node->name) != 0)
        fault_set(&form->fault, CO_INVALID, "Check node \"%.60s\" is not the registered node \"%.60s\"", check->node,
                  node->name);
    check->node = node->name;
    catalog_judge_check(json, check, &form->fault);
    if (!*check->type) {
        struct json_object *definition = json_get_object(json, "Definition", &form->fault);
        check->type = (char *)(uintptr_t)catalog_definition_type(definition, &form->fault);
    }
    return check;
}

static void form_checks(struct catalog_form *form, struct json_object *json, Pb__RegisterCommand *command) {
    struct json_object *one = json_get_object(json, "Check", &form->fault);
    struct json_object *several = json_get_array(json, "Checks", &form->fault);
    size_t count = several ? catalog_form_count(form, json_object_array_length(several), "Checks") : 0;
    command->checks = arena_alloc(form->arena, (count + 1) * sizeof(Pb__Check *));
    for (size_t i = 0; i < count; i++) {
        struct json_object *item = json_object_array_get_idx(several, i);
        if (!json_object_is_type(item, json_type_object)) {
            fault_set(&form->fault, CO_INVALID, "Checks[%zu]: an object is wanted", i);
            continue;
        }
        command->checks[command->n_checks++] = form_check(form, item, command->node);
    }
    if (one) command->checks[command->n_checks++] = form_check(form, one, command->node);
}

/* ---- endpoints ---- */

static bool our_datacenter(struct http_request *request, struct catalog_form *form, struct json_object *json) {
    const char *datacenter = catalog_form_text(form, json, "Datacenter");
    if (form->fault.code || !*datacenter) return true;
    return http_region_set(request, slice_text(datacenter));
}

static void refuse(struct http_request *request, const struct fault *fault) {
    http_reply_text(request, 400, "%s", fault->text);
}

void catalog_warn(struct http_request *request, const Pb__Node *node, const Pb__Service *service) {
    struct buffer text = {0};
    undiscoverable_text(&text, node, service);
    if (text.size) {
        buffer_append_byte(&text, '\0');
        http_header(request, "X-Coord-Warning", text.data);
    }
    buffer_free(&text);
}

void catalog_register(struct http_request *request) {
    static const char *const known[] = {"Datacenter", "ID",      "Node",         "Address",     "TaggedAddresses",
                                        "NodeMeta",   "Service", "Check",        "Checks",      "SkipNodeUpdate",
                                        "Namespace",  "Token",   "WriteRequest", "CreateIndex", "ModifyIndex",
                                        "Lease",      NULL};
    struct json_object *json = http_json(request);
    if (!json) return;
    struct catalog_form form = {.arena = http_arena(request)};
    json_only_known(json, known, &form.fault);
    if (!our_datacenter(request, &form, json)) return;
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    bool skip = false;
    json_get_bool(json, "SkipNodeUpdate", &skip, &form.fault);
    command.skip_node_update = skip;
    command.node = catalog_form_node(&form, json, "NodeMeta", http_env(request)->datacenter);
    catalog_judge_node(command.node, &form.fault);
    if (!skip && !*command.node->address) {
        fault_set(&form.fault, CO_INVALID, "Must provide address if SkipNodeUpdate is not set");
    }
    struct json_object *service = json_get_object(json, "Service", &form.fault);
    if (service) {
        command.service = catalog_form_service(&form, service, command.node->name);
        catalog_judge_service(command.service, &form.fault);
    }
    form_checks(&form, json, &command);
    const char *lease = catalog_form_text(&form, json, "Lease");
    if (form.fault.code) {
        refuse(request, &form.fault);
        return;
    }
    if (*lease &&
        !lease_id(request, "Lease", slice_text(lease), service ? &command.service->lease : &command.node->lease))
        return;
    catalog_warn(request, command.node, command.service);
    undiscoverable_log(command.node->name, command.node, command.service);
    http_write(request, CATALOG_REGISTER, &command.base, NULL);
}

void catalog_deregister(struct http_request *request) {
    static const char *const known[] = {"Datacenter", "Node",  "Address",      "ServiceID", "CheckID",
                                        "Namespace",  "Token", "WriteRequest", NULL};
    struct json_object *json = http_json(request);
    if (!json) return;
    struct catalog_form form = {.arena = http_arena(request)};
    json_only_known(json, known, &form.fault);
    if (!our_datacenter(request, &form, json)) return;
    Pb__DeregisterCommand command = PB__DEREGISTER_COMMAND__INIT;
    command.node = catalog_form_text(&form, json, "Node");
    command.service_id = catalog_form_text(&form, json, "ServiceID");
    command.check_id = catalog_form_text(&form, json, "CheckID");
    if (!*command.node) fault_set(&form.fault, CO_INVALID, "Must provide node");
    if (form.fault.code) {
        refuse(request, &form.fault);
        return;
    }
    http_write(request, CATALOG_DEREGISTER, &command.base, NULL);
}
