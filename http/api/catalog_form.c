/* Nodes, services and checks as JSON, into records. */
#include "http/api/catalog_form.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "http/api/catalog.h"

#define NAME_MOST 4096 /* bytes of a name, id or address */
#define LIST_MOST 4096 /* tags, meta entries, checks */

char *catalog_form_text(struct catalog_form *form, struct json_object *object, const char *name) {
    const char *text = "";
    json_get_string(object, name, &text, &form->fault);
    if (strlen(text) > NAME_MOST) fault_set(&form->fault, CO_INVALID, "%s is longer than %d bytes", name, NAME_MOST);
    return (char *)text; /* lives as long as the document: until the request is freed */
}

size_t catalog_form_count(struct catalog_form *form, size_t count, const char *name) {
    if (count <= LIST_MOST) return count;
    fault_set(&form->fault, CO_INVALID, "%s has more than %d entries", name, LIST_MOST);
    return 0;
}

static int compare_pairs(const void *a, const void *b) {
    return strcmp((*(Pb__Pair *const *)a)->key, (*(Pb__Pair *const *)b)->key);
}

static Pb__Pair **form_pairs(struct catalog_form *form, struct json_object *object, const char *name, size_t *count) {
    struct json_object *map = json_get_object(object, name, &form->fault);
    *count = map ? catalog_form_count(form, (size_t)json_object_object_length(map), name) : 0;
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
static Pb__TaggedAddress **form_addresses(struct catalog_form *form, struct json_object *object, bool with_port,
                                          size_t *count) {
    struct json_object *map = json_get_object(object, "TaggedAddresses", &form->fault);
    *count = map ? catalog_form_count(form, (size_t)json_object_object_length(map), "TaggedAddresses") : 0;
    if (!*count) return NULL;
    Pb__TaggedAddress **addresses = arena_alloc(form->arena, *count * sizeof *addresses);
    size_t i = 0;
    json_each(map, key, value) {
        Pb__TaggedAddress *address = addresses[i++] = arena_alloc(form->arena, sizeof *address);
        pb__tagged_address__init(address);
        address->name = key;
        if (with_port && json_object_is_type(value, json_type_object)) {
            uint64_t port = 0;
            address->address = catalog_form_text(form, value, "Address");
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

static char **form_strings(struct catalog_form *form, struct json_object *object, const char *name, size_t *count) {
    struct json_object *array = json_get_array(object, name, &form->fault);
    *count = array ? catalog_form_count(form, json_object_array_length(array), name) : 0;
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

static uint32_t form_u32(struct catalog_form *form, struct json_object *object, const char *name, uint64_t most,
                         uint32_t otherwise) {
    uint64_t value = otherwise;
    json_get_u64(object, name, most, &value, &form->fault);
    return (uint32_t)value;
}

/* ---- node, service, check ---- */

Pb__Node *catalog_form_node(struct catalog_form *form, struct json_object *json, const char *meta,
                            const char *datacenter) {
    Pb__Node *node = arena_alloc(form->arena, sizeof *node);
    pb__node__init(node);
    node->name = catalog_form_text(form, json, "Node");
    node->id = catalog_form_text(form, json, "ID");
    node->address = catalog_form_text(form, json, "Address");
    node->datacenter = (char *)datacenter;
    node->tagged_addresses = form_addresses(form, json, false, &node->n_tagged_addresses);
    node->meta = form_pairs(form, json, meta, &node->n_meta);
    return node;
}

void catalog_judge_node(const Pb__Node *node, struct fault *fault) {
    if (!*node->name) fault_set(fault, CO_INVALID, "Must provide node");
    if (*node->id && !uuid_valid(slice_text(node->id)))
        fault_set(fault, CO_INVALID, "Bad node ID: \"%.60s\" is no UUID", node->id);
}

Pb__Service *catalog_form_service(struct catalog_form *form, struct json_object *json, const char *node) {
    static const char *const known[] = {"ID",          "Service", "Tags",      "Address",           "TaggedAddresses",
                                        "Meta",        "Port",    "Weights",   "EnableTagOverride", "Kind",
                                        "Proxy",       "Connect", "Namespace", "CreateIndex",       "ModifyIndex",
                                        "ContentHash", NULL};
    static const char *const known_weights[] = {"Passing", "Warning", NULL};
    Pb__Service *service = arena_alloc(form->arena, sizeof *service);
    pb__service__init(service);
    json_only_known(json, known, &form->fault);
    service->node = (char *)(uintptr_t)node;
    service->name = catalog_form_text(form, json, "Service");
    service->id = catalog_form_text(form, json, "ID");
    service->address = catalog_form_text(form, json, "Address");
    service->kind = catalog_form_text(form, json, "Kind");
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

void catalog_judge_service(Pb__Service *service, struct fault *fault) {
    if (*service->id && !*service->name) fault_set(fault, CO_INVALID, "Must provide service name with ID");
    if (!*service->name) fault_set(fault, CO_INVALID, "Must provide service name");
    if (!*service->id) service->id = service->name;
    if (!strcmp(service->address, "0.0.0.0") || !strcmp(service->address, "::") || !strcmp(service->address, "[::]"))
        fault_set(fault, CO_INVALID, "Invalid service address");
}

static void form_definition(struct catalog_form *form, struct json_object *json, Pb__Check *check) {
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

void catalog_judge_check(struct json_object *json, Pb__Check *check, struct fault *fault) {
    const char *text = "";
    if (!*check->check_id) check->check_id = check->name;
    if (!*check->check_id) fault_set(fault, CO_INVALID, "Must provide check ID or name");
    json_get_string(json, "Status", &text, fault);
    check->status = PB__STATUS__CRITICAL;
    if (*text &&
        (catalog_status_parse(slice_text(text), &check->status) != CO_OK || check->status == PB__STATUS__MAINTENANCE))
        fault_set(fault, CO_INVALID, "Invalid check status \"%.40s\": one of passing, warning, critical", text);
}

Pb__Check *catalog_form_check(struct catalog_form *form, struct json_object *json) {
    static const char *const known[] = {"Node",       "CheckID",   "Name",        "Status",      "Notes",
                                        "Output",     "ServiceID", "ServiceName", "ServiceTags", "Type",
                                        "Definition", "Namespace", "CreateIndex", "ModifyIndex", NULL};
    Pb__Check *check = arena_alloc(form->arena, sizeof *check);
    pb__check__init(check);
    json_only_known(json, known, &form->fault);
    check->node = catalog_form_text(form, json, "Node");
    check->name = catalog_form_text(form, json, "Name");
    check->check_id = catalog_form_text(form, json, "CheckID");
    check->service_id = catalog_form_text(form, json, "ServiceID");
    check->type = catalog_form_text(form, json, "Type");
    struct slice notes = {0}, output = {0};
    json_get_slice(json, "Output", &output, &form->fault);
    json_get_slice(json, "Notes", &notes, &form->fault);
    if (notes.data) check->notes = arena_strndup(form->arena, notes.data, strnlen(notes.data, notes.size));
    check->output = (ProtobufCBinaryData){.len = output.size, .data = (uint8_t *)output.data};
    form_definition(form, json, check);
    return check;
}
