/* PUT /v1/catalog/register and deregister: JSON into commands. Everything is checked here that can be without the
 * store; what is refused names the field. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "http/api_catalog.h"
#include "http/api_lease.h"
#include "http/views.h"
#include "registry/undiscoverable.h"

#define NAME_MOST 4096 /* bytes of a name, id or address */
#define LIST_MOST 4096 /* tags, meta entries, checks */

/* What one request is read into. The first fault sticks; what follows it is ignored. */
struct form {
    struct arena *arena;
    struct fault fault;
};

static char *form_text(struct form *form, struct json_object *object, const char *name) {
    const char *text = "";
    json_get_string(object, name, &text, &form->fault);
    if (strlen(text) > NAME_MOST) fault_set(&form->fault, CO_INVALID, "%s is longer than %d bytes", name, NAME_MOST);
    return (char *)text; /* lives as long as the document: until the request is freed */
}

static size_t form_count(struct form *form, size_t count, const char *name) {
    if (count <= LIST_MOST) return count;
    fault_set(&form->fault, CO_INVALID, "%s has more than %d entries", name, LIST_MOST);
    return 0;
}

static int compare_pairs(const void *a, const void *b) {
    return strcmp((*(Pb__Pair *const *)a)->key, (*(Pb__Pair *const *)b)->key);
}

static Pb__Pair **form_pairs(struct form *form, struct json_object *object, const char *name, size_t *count) {
    struct json_object *map = json_get_object(object, name, &form->fault);
    *count = map ? form_count(form, (size_t)json_object_object_length(map), name) : 0;
    if (!*count) return NULL;
    Pb__Pair **pairs = arena_alloc(form->arena, *count * sizeof *pairs);
    size_t i = 0;
    json_each(map, key, value) {
        Pb__Pair *pair = pairs[i++] = arena_alloc(form->arena, sizeof *pair);
        pb__pair__init(pair);
        pair->key = key;
        if (!json_object_is_type(value, json_type_string)) {
            fault_set(&form->fault, CO_INVALID, "%s.%.60s: a string is wanted", name, key);
            continue;
        }
        pair->value = (char *)json_object_get_string(value);
        if (strlen(pair->value) != (size_t)json_object_get_string_len(value)) {
            fault_set(&form->fault, CO_INVALID, "%s.%.60s holds a NUL", name, key);
        }
    }
    qsort(pairs, *count, sizeof *pairs, compare_pairs);
    return pairs;
}

/* {"lan": "10.0.0.1"} of a node, {"lan": {"Address", "Port"}} of a service. */
static Pb__TaggedAddress **form_addresses(struct form *form, struct json_object *object, bool with_port,
                                          size_t *count) {
    struct json_object *map = json_get_object(object, "TaggedAddresses", &form->fault);
    *count = map ? form_count(form, (size_t)json_object_object_length(map), "TaggedAddresses") : 0;
    if (!*count) return NULL;
    Pb__TaggedAddress **addresses = arena_alloc(form->arena, *count * sizeof *addresses);
    size_t i = 0;
    json_each(map, key, value) {
        Pb__TaggedAddress *address = addresses[i++] = arena_alloc(form->arena, sizeof *address);
        pb__tagged_address__init(address);
        address->name = key;
        if (with_port && json_object_is_type(value, json_type_object)) {
            uint64_t port = 0;
            address->address = form_text(form, value, "Address");
            json_get_u64(value, "Port", UINT16_MAX, &port, &form->fault);
            address->port = (uint32_t)port;
        } else if (!with_port && json_object_is_type(value, json_type_string)) {
            address->address = (char *)json_object_get_string(value);
            if (strlen(address->address) != (size_t)json_object_get_string_len(value)) {
                fault_set(&form->fault, CO_INVALID, "TaggedAddresses.%.60s holds a NUL", key);
            }
        } else {
            fault_set(&form->fault, CO_INVALID, "TaggedAddresses.%.60s: %s is wanted", key,
                      with_port ? "an object" : "a string");
        }
    }
    return addresses;
}

static char **form_strings(struct form *form, struct json_object *object, const char *name, size_t *count) {
    struct json_object *array = json_get_array(object, name, &form->fault);
    *count = array ? form_count(form, json_object_array_length(array), name) : 0;
    if (!*count) return NULL;
    char **texts = arena_alloc(form->arena, *count * sizeof *texts);
    for (size_t i = 0; i < *count; i++) {
        struct json_object *item = json_object_array_get_idx(array, i);
        texts[i] = (char *)"";
        if (!json_object_is_type(item, json_type_string)) {
            fault_set(&form->fault, CO_INVALID, "%s[%zu]: a string is wanted", name, i);
        } else {
            texts[i] = (char *)json_object_get_string(item);
            if (strlen(texts[i]) != (size_t)json_object_get_string_len(item)) {
                fault_set(&form->fault, CO_INVALID, "%s[%zu] holds a NUL", name, i);
            }
        }
    }
    return texts;
}

static uint32_t form_u32(struct form *form, struct json_object *object, const char *name, uint64_t most,
                         uint32_t otherwise) {
    uint64_t value = otherwise;
    json_get_u64(object, name, most, &value, &form->fault);
    return (uint32_t)value;
}

/* ---- node, service, check ---- */

static Pb__Node *form_node(struct form *form, struct json_object *json, const char *datacenter) {
    Pb__Node *node = arena_alloc(form->arena, sizeof *node);
    pb__node__init(node);
    node->name = form_text(form, json, "Node");
    node->id = form_text(form, json, "ID");
    node->address = form_text(form, json, "Address");
    node->datacenter = (char *)datacenter;
    node->tagged_addresses = form_addresses(form, json, false, &node->n_tagged_addresses);
    node->meta = form_pairs(form, json, "NodeMeta", &node->n_meta);
    if (!*node->name) fault_set(&form->fault, CO_INVALID, "Must provide node");
    if (*node->id && !uuid_valid(slice_text(node->id))) {
        fault_set(&form->fault, CO_INVALID, "Bad node ID: \"%.60s\" is no UUID", node->id);
    }
    return node;
}

static Pb__Service *form_service(struct form *form, struct json_object *json, const Pb__Node *node) {
    static const char *const known[] = {"ID",    "Service", "Tags",      "Address",           "TaggedAddresses",
                                        "Meta",  "Port",    "Weights",   "EnableTagOverride", "Kind",
                                        "Proxy", "Connect", "Namespace", "CreateIndex",       "ModifyIndex",
                                        NULL};
    static const char *const known_weights[] = {"Passing", "Warning", NULL};
    Pb__Service *service = arena_alloc(form->arena, sizeof *service);
    pb__service__init(service);
    json_only_known(json, known, &form->fault);
    service->node = node->name;
    service->name = form_text(form, json, "Service");
    service->id = form_text(form, json, "ID");
    if (*service->id && !*service->name) fault_set(&form->fault, CO_INVALID, "Must provide service name with ID");
    if (!*service->name) fault_set(&form->fault, CO_INVALID, "Must provide service name");
    if (!*service->id) service->id = service->name;
    service->address = form_text(form, json, "Address");
    if (!strcmp(service->address, "0.0.0.0") || !strcmp(service->address, "::") || !strcmp(service->address, "[::]")) {
        fault_set(&form->fault, CO_INVALID, "Invalid service address");
    }
    service->kind = form_text(form, json, "Kind");
    service->port = form_u32(form, json, "Port", UINT16_MAX, 0);
    service->tags = form_strings(form, json, "Tags", &service->n_tags);
    service->meta = form_pairs(form, json, "Meta", &service->n_meta);
    service->tagged_addresses = form_addresses(form, json, true, &service->n_tagged_addresses);
    struct json_object *weights = json_get_object(json, "Weights", &form->fault);
    if (weights) json_only_known(weights, known_weights, &form->fault);
    service->weight_passing = form_u32(form, weights, "Passing", UINT16_MAX, 1);
    service->weight_warning = form_u32(form, weights, "Warning", UINT16_MAX, 1);
    bool override = false;
    json_get_bool(json, "EnableTagOverride", &override, &form->fault);
    service->enable_tag_override = override;
    return service;
}

static void form_definition(struct form *form, struct json_object *json, Pb__Check *check) {
    struct json_object *definition = json_get_object(json, "Definition", &form->fault);
    if (!definition || json_object_object_length(definition) == 0) return;
    struct buffer text = {0};
    catalog_definition_write(&text, definition, &form->fault);
    if (text.size > strlen("{}")) {
        check->definition.len = text.size;
        check->definition.data = (uint8_t *)arena_strndup(form->arena, text.data, text.size);
    }
    buffer_free(&text);
}

static void form_status(struct form *form, struct json_object *json, Pb__Check *check) {
    const char *text = form_text(form, json, "Status");
    check->status = PB__STATUS__CRITICAL;
    if (!*text) return;
    if (catalog_status_parse(slice_text(text), &check->status) != CO_OK || check->status == PB__STATUS__MAINTENANCE) {
        fault_set(&form->fault, CO_INVALID, "Invalid check status \"%.40s\": one of passing, warning, critical", text);
    }
}

static Pb__Check *form_check(struct form *form, struct json_object *json, const Pb__Node *node) {
    static const char *const known[] = {"Node",       "CheckID",   "Name",        "Status",      "Notes",
                                        "Output",     "ServiceID", "ServiceName", "ServiceTags", "Type",
                                        "Definition", "Namespace", "CreateIndex", "ModifyIndex", NULL};
    Pb__Check *check = arena_alloc(form->arena, sizeof *check);
    pb__check__init(check);
    json_only_known(json, known, &form->fault);
    const char *at = form_text(form, json, "Node");
    if (*at && strcmp(at, node->name) != 0) {
        fault_set(&form->fault, CO_INVALID, "Check node \"%.60s\" is not the registered node \"%.60s\"", at,
                  node->name);
    }
    check->node = node->name;
    check->name = form_text(form, json, "Name");
    check->check_id = form_text(form, json, "CheckID");
    if (!*check->check_id) check->check_id = check->name;
    if (!*check->check_id) fault_set(&form->fault, CO_INVALID, "Must provide check ID or name");
    check->service_id = form_text(form, json, "ServiceID");
    check->type = form_text(form, json, "Type");
    struct slice notes = {0}, output = {0};
    json_get_slice(json, "Output", &output, &form->fault);
    json_get_slice(json, "Notes", &notes, &form->fault);
    if (notes.data) check->notes = arena_strndup(form->arena, notes.data, strnlen(notes.data, notes.size));
    check->output = (ProtobufCBinaryData){.len = output.size, .data = (uint8_t *)output.data};
    form_status(form, json, check);
    form_definition(form, json, check);
    return check;
}

static void form_checks(struct form *form, struct json_object *json, Pb__RegisterCommand *command) {
    struct json_object *one = json_get_object(json, "Check", &form->fault);
    struct json_object *several = json_get_array(json, "Checks", &form->fault);
    size_t count = several ? form_count(form, json_object_array_length(several), "Checks") : 0;
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

static bool our_datacenter(struct http_request *request, struct form *form, struct json_object *json) {
    const char *datacenter = form_text(form, json, "Datacenter");
    if (form->fault.code || !*datacenter || strcmp(datacenter, http_env(request)->datacenter) == 0) return true;
    http_reply_text(request, 500, "No path to datacenter");
    return false;
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
    struct form form = {.arena = http_arena(request)};
    json_only_known(json, known, &form.fault);
    if (!our_datacenter(request, &form, json)) return;
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    bool skip = false;
    json_get_bool(json, "SkipNodeUpdate", &skip, &form.fault);
    command.skip_node_update = skip;
    command.node = form_node(&form, json, http_env(request)->datacenter);
    if (!skip && !*command.node->address) {
        fault_set(&form.fault, CO_INVALID, "Must provide address if SkipNodeUpdate is not set");
    }
    struct json_object *service = json_get_object(json, "Service", &form.fault);
    if (service) command.service = form_service(&form, service, command.node);
    form_checks(&form, json, &command);
    const char *lease = form_text(&form, json, "Lease");
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
    struct form form = {.arena = http_arena(request)};
    json_only_known(json, known, &form.fault);
    if (!our_datacenter(request, &form, json)) return;
    Pb__DeregisterCommand command = PB__DEREGISTER_COMMAND__INIT;
    command.node = form_text(&form, json, "Node");
    command.service_id = form_text(&form, json, "ServiceID");
    command.check_id = form_text(&form, json, "CheckID");
    if (!*command.node) fault_set(&form.fault, CO_INVALID, "Must provide node");
    if (form.fault.code) {
        refuse(request, &form.fault);
        return;
    }
    http_write(request, CATALOG_DEREGISTER, &command.base, NULL);
}
