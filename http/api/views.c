#include "http/api/views.h"
#include "base/message.h"

#include <string.h>

/* ---- parts ---- */

void view_strings(struct json_out *json, char *const *texts, size_t count) {
    json_array(json);
    for (size_t i = 0; i < count; i++) json_string(json, texts[i]);
    json_array_end(json);
}

void view_pairs(struct json_out *json, Pb__Pair *const *pairs, size_t count) {
    json_object(json);
    for (size_t i = 0; i < count; i++) {
        json_key_slice(json, slice_text(pairs[i]->key));
        json_string(json, pairs[i]->value);
    }
    json_object_end(json);
}

static void strings_or_null(struct json_out *json, char *const *texts, size_t count) {
    if (count) view_strings(json, texts, count);
    else json_null(json);
}

static void pairs_or_null(struct json_out *json, Pb__Pair *const *pairs, size_t count) {
    if (count) {
        view_pairs(json, pairs, count);
    } else {
        json_null(json);
    }
}

static void node_addresses(struct json_out *json, const Pb__Node *node) {
    if (!node->n_tagged_addresses) {
        json_null(json);
        return;
    }
    json_object(json);
    for (size_t i = 0; i < node->n_tagged_addresses; i++) {
        json_key_slice(json, slice_text(node->tagged_addresses[i]->name));
        json_string(json, node->tagged_addresses[i]->address);
    }
    json_object_end(json);
}

void view_service_addresses(struct json_out *json, const char *key, const Pb__Service *service) {
    if (!service->n_tagged_addresses) return;
    json_key_raw(json, key, strlen(key));
    json_object(json);
    for (size_t i = 0; i < service->n_tagged_addresses; i++) {
        const Pb__TaggedAddress *address = service->tagged_addresses[i];
        json_key_slice(json, slice_text(address->name));
        json_object(json);
        json_key(json, "Address");
        json_string(json, address->address);
        json_key(json, "Port");
        json_u64(json, address->port);
        json_object_end(json);
    }
    json_object_end(json);
}

void view_weights(struct json_out *json, const char *key, const Pb__Service *service) {
    json_key_raw(json, key, strlen(key));
    json_object(json);
    json_key(json, "Passing");
    json_u64(json, service->weight_passing);
    json_key(json, "Warning");
    json_u64(json, service->weight_warning);
    json_object_end(json);
}

void view_indexes(struct json_out *json, uint64_t created, uint64_t modified) {
    json_key(json, "CreateIndex");
    json_u64(json, created);
    json_key(json, "ModifyIndex");
    json_u64(json, modified);
}

/* Members of Consul's service mesh, always as if it were not used. */
#define NO_PROXY SLICE_LITERAL("{\"MeshGateway\":{},\"Expose\":{}}")

static void no_proxy(struct json_out *json) {
    if (!json->pretty) {
        json_raw(json, NO_PROXY);
        return;
    }
    json_object(json);
    json_key(json, "MeshGateway");
    json_raw(json, SLICE_LITERAL("{}"));
    json_key(json, "Expose");
    json_raw(json, SLICE_LITERAL("{}"));
    json_object_end(json);
}

/* ---- records ---- */

static void node_members(struct json_out *json, const Pb__Node *node, const char *meta) {
    json_key(json, "ID");
    json_string(json, node->id);
    json_key(json, "Node");
    json_string(json, node->name);
    json_key(json, "Address");
    json_string(json, node->address);
    json_key(json, "Datacenter");
    json_string(json, node->datacenter);
    json_key(json, "TaggedAddresses");
    node_addresses(json, node);
    json_key_raw(json, meta, strlen(meta));
    pairs_or_null(json, node->meta, node->n_meta);
}

void view_node(struct json_out *json, const Pb__Node *node) {
    if (!node) {
        json_null(json);
        return;
    }
    json_object(json);
    node_members(json, node, "Meta");
    view_indexes(json, node->create_index, node->modify_index);
    json_object_end(json);
}

static void service_names(struct json_out *json, const Pb__Service *service) {
    if (service->kind && *service->kind) {
        json_key(json, "Kind");
        json_string(json, service->kind);
    }
    json_key(json, "ID");
    json_string(json, service->id);
    json_key(json, "Service");
    json_string(json, service->name);
    json_key(json, "Tags");
}

void view_service_head(struct json_out *json, const Pb__Service *service) {
    service_names(json, service);
    view_strings(json, service->tags, service->n_tags);
}

static void service_rest(struct json_out *json, const Pb__Service *service) {
    json_key(json, "Address");
    json_string(json, service->address);
    view_service_addresses(json, "TaggedAddresses", service);
    json_key(json, "Meta");
    pairs_or_null(json, service->meta, service->n_meta);
    json_key(json, "Port");
    json_u64(json, service->port);
    view_weights(json, "Weights", service);
    json_key(json, "EnableTagOverride");
    json_bool(json, service->enable_tag_override);
    json_key(json, "Proxy");
    no_proxy(json);
    json_key(json, "Connect");
    json_raw(json, SLICE_LITERAL("{}"));
    view_indexes(json, service->create_index, service->modify_index);
}

void view_service(struct json_out *json, const Pb__Service *service) {
    json_object(json);
    view_service_head(json, service);
    service_rest(json, service);
    json_object_end(json);
}

void view_txn_service(struct json_out *json, const Pb__Service *service) {
    json_object(json);
    service_names(json, service);
    strings_or_null(json, service->tags, service->n_tags);
    service_rest(json, service);
    json_object_end(json);
}

void view_check_head(struct json_out *json, const Pb__Check *check) {
    json_key(json, "Node");
    json_string(json, check->node);
    json_key(json, "CheckID");
    json_string(json, check->check_id);
    json_key(json, "Name");
    json_string(json, check->name);
    json_key(json, "Status");
    json_string(json, catalog_status_text(check->status));
    json_key(json, "Notes");
    json_string(json, check->notes);
    json_key(json, "Output");
    json_slice(json, message_slice(check->output));
    json_key(json, "ServiceID");
    json_string(json, check->service_id);
    json_key(json, "ServiceName");
    json_string(json, check->service_name);
}

static void check_rest(struct json_out *json, const Pb__Check *check) {
    json_key(json, "Type");
    json_string(json, check->type);
    json_key(json, "Definition");
    json_raw(json, check->definition.len ? message_slice(check->definition) : SLICE_LITERAL("{}"));
    view_indexes(json, check->create_index, check->modify_index);
}

void view_check(struct json_out *json, const Pb__Check *check) {
    json_object(json);
    view_check_head(json, check);
    json_key(json, "ServiceTags");
    view_strings(json, check->service_tags, check->n_service_tags);
    check_rest(json, check);
    json_object_end(json);
}

void view_txn_check(struct json_out *json, const Pb__Check *check) {
    json_object(json);
    view_check_head(json, check);
    json_key(json, "ServiceTags");
    strings_or_null(json, check->service_tags, check->n_service_tags);
    check_rest(json, check);
    json_object_end(json);
}

void view_checks(struct json_out *json, Pb__Check *const *checks, size_t count) {
    json_array(json);
    for (size_t i = 0; i < count; i++) view_check(json, checks[i]);
    json_array_end(json);
}

void view_service_entry_begin(struct json_out *json, const Pb__ServiceEntry *entry) {
    json_object(json);
    json_key(json, "Node");
    view_node(json, entry->node);
    json_key(json, "Service");
    view_service(json, entry->service);
    json_key(json, "Checks");
    view_checks(json, entry->checks, entry->n_checks);
    if (entry->held) {
        json_key(json, "Held");
        json_bool(json, true);
    }
}

void view_service_entry(struct json_out *json, const Pb__ServiceEntry *entry) {
    view_service_entry_begin(json, entry);
    json_object_end(json);
}

void view_catalog_service(struct json_out *json, const Pb__ServiceEntry *entry) {
    const Pb__Node *node = entry->node;
    const Pb__Service *service = entry->service;
    json_object(json);
    node_members(json, node, "NodeMeta");
    json_key(json, "ServiceKind");
    json_string(json, service->kind);
    json_key(json, "ServiceID");
    json_string(json, service->id);
    json_key(json, "ServiceName");
    json_string(json, service->name);
    json_key(json, "ServiceTags");
    view_strings(json, service->tags, service->n_tags);
    json_key(json, "ServiceAddress");
    json_string(json, service->address);
    view_service_addresses(json, "ServiceTaggedAddresses", service);
    view_weights(json, "ServiceWeights", service);
    json_key(json, "ServiceMeta");
    view_pairs(json, service->meta, service->n_meta);
    json_key(json, "ServicePort");
    json_u64(json, service->port);
    json_key(json, "ServiceEnableTagOverride");
    json_bool(json, service->enable_tag_override);
    json_key(json, "ServiceProxy");
    no_proxy(json);
    json_key(json, "ServiceConnect");
    json_raw(json, SLICE_LITERAL("{}"));
    view_indexes(json, service->create_index, service->modify_index);
    json_object_end(json);
}

/* ---- requests ---- */

size_t view_node_meta(struct http_request *request, Pb__Pair ***pairs) {
    struct slice *values;
    struct arena *arena = http_arena(request);
    size_t count = http_parameters(request, "node-meta", &values);
    *pairs = arena_alloc(arena, (count + 1) * sizeof **pairs);
    for (size_t i = 0; i < count; i++) {
        Pb__Pair *pair = arena_alloc(arena, sizeof *pair);
        pb__pair__init(pair);
        const char *colon = memchr(values[i].data, ':', values[i].size);
        size_t key = colon ? (size_t)(colon - values[i].data) : values[i].size;
        pair->key = arena_strndup(arena, values[i].data, key);
        pair->value = colon ? arena_strndup(arena, colon + 1, values[i].size - key - 1) : (char *)"";
        (*pairs)[i] = pair;
    }
    return count;
}

bool view_no_filter(struct http_request *request) {
    if (!http_parameter(request, "filter").size) return true;
    http_reply_text(request, 400, "filter: expressions are not supported by this server");
    return false;
}

bool view_path_text(struct http_request *request, const char *name, const char *what, char **text) {
    struct slice value = http_path_value(request, name);
    *text = (char *)value.data;
    if (value.size) return true;
    http_reply_text(request, 400, "Missing %s", what);
    return false;
}
