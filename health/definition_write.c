#include "base/text.h"
#include "health/definition.h"

static void write_duration(struct json_out *json, const char *key, int64_t nanoseconds) {
    if (nanoseconds == 0) return;
    struct buffer text = {0};
    duration_format(&text, nanoseconds);
    json_key_raw(json, key, strlen(key));
    json_slice(json, buffer_slice(&text));
    buffer_free(&text);
}

static void write_text(struct json_out *json, const char *key, const char *text) {
    if (*text == '\0') return;
    json_key_raw(json, key, strlen(key));
    json_string(json, text);
}

static void write_count(struct json_out *json, const char *key, uint64_t count) {
    json_key_raw(json, key, strlen(key));
    json_u64(json, count);
}

/* Values of one name need not follow one another in the definition; in JSON they must be one member. */
static void write_headers(struct json_out *json, const struct check_definition *definition) {
    json_key(json, "Header");
    json_object(json);
    for (size_t i = 0; i < definition->header_count; i++) {
        const char *name = definition->headers[i].name;
        bool again = false;
        for (size_t j = 0; j < i && !again; j++) again = strcmp(definition->headers[j].name, name) == 0;
        if (again) continue;
        json_key_slice(json, slice_text(name));
        json_array(json);
        for (size_t j = i; j < definition->header_count; j++) {
            if (strcmp(definition->headers[j].name, name) == 0) json_string(json, definition->headers[j].value);
        }
        json_array_end(json);
    }
    json_object_end(json);
}

static void write_args(struct json_out *json, const struct check_definition *definition) {
    json_key(json, "Args");
    json_array(json);
    for (size_t i = 0; i < definition->arg_count; i++) json_string(json, definition->args[i]);
    json_array_end(json);
}

static const char *status_text(Pb__Status status) {
    return status == PB__STATUS__PASSING ? "passing" : status == PB__STATUS__WARNING ? "warning" : "critical";
}

static void write_check(struct json_out *json, const struct check_definition *definition) {
    write_text(json, "CheckID", definition->check_id);
    write_text(json, "Name", definition->name);
    write_text(json, "Notes", definition->notes);
    write_text(json, "ServiceID", definition->service_id);
    write_text(json, "HTTP", definition->http);
    write_text(json, "Method", definition->method);
    write_text(json, "Body", definition->body);
    write_text(json, "TCP", definition->tcp);
    write_text(json, "UDP", definition->udp);
    write_text(json, "GRPC", definition->grpc);
    write_text(json, "H2PING", definition->h2ping);
    write_text(json, "AliasNode", definition->alias_node);
    write_text(json, "AliasService", definition->alias_service);
    write_text(json, "OSService", definition->os_service);
    if (definition->arg_count > 0) write_args(json, definition);
    json_key(json, "GRPCUseTLS");
    json_bool(json, definition->grpc_use_tls);
    json_key(json, "H2PingUseTLS");
    json_bool(json, definition->h2ping_use_tls);
    write_text(json, "TLSServerName", definition->tls_server_name);
    if (definition->header_count > 0) write_headers(json, definition);
    json_key(json, "TLSSkipVerify");
    json_bool(json, definition->tls_skip_verify);
    json_key(json, "DisableRedirects");
    json_bool(json, definition->disable_redirects);
    write_duration(json, "Interval", definition->interval_ns);
    write_duration(json, "Timeout", definition->timeout_ns);
    write_duration(json, "TTL", definition->ttl_ns);
    write_duration(json, "DeregisterCriticalServiceAfter", definition->deregister_after_ns);
    write_count(json, "SuccessBeforePassing", definition->success_before_passing);
    write_count(json, "FailuresBeforeWarning", definition->failures_before_warning);
    write_count(json, "FailuresBeforeCritical", definition->failures_before_critical);
    write_count(json, "OutputMaxSize", definition->output_max_size);
    write_text(json, "Status", status_text(definition->initial_status));
}

void check_definition_write(struct json_out *json, const struct check_definition *definition) {
    json_object(json);
    write_check(json, definition);
    write_text(json, "Token", definition->token);
    json_object_end(json);
}

static void print_check(struct buffer *text, const struct check_definition *definition) {
    struct json_out json;
    json_out_init(&json, text, false);
    json_object(&json);
    write_check(&json, definition);
    json_object_end(&json);
}

bool check_definition_same(const struct check_definition *a, const struct check_definition *b) {
    struct buffer text_a = {0}, text_b = {0};
    print_check(&text_a, a);
    print_check(&text_b, b);
    bool same = a->kind == b->kind && slice_equal(buffer_slice(&text_a), buffer_slice(&text_b));
    buffer_free(&text_a);
    buffer_free(&text_b);
    return same;
}

static void write_lists(struct json_out *json, const Pb__Service *service) {
    json_key(json, "Tags");
    json_array(json);
    for (size_t i = 0; i < service->n_tags; i++) json_string(json, service->tags[i]);
    json_array_end(json);
    json_key(json, "Meta");
    json_object(json);
    for (size_t i = 0; i < service->n_meta; i++) {
        json_key_slice(json, slice_text(service->meta[i]->key));
        json_string(json, service->meta[i]->value);
    }
    json_object_end(json);
    json_key(json, "TaggedAddresses");
    json_object(json);
    for (size_t i = 0; i < service->n_tagged_addresses; i++) {
        json_key_slice(json, slice_text(service->tagged_addresses[i]->name));
        json_object(json);
        json_key(json, "Address");
        json_string(json, service->tagged_addresses[i]->address);
        json_key(json, "Port");
        json_u64(json, service->tagged_addresses[i]->port);
        json_object_end(json);
    }
    json_object_end(json);
}

void service_definition_write(struct json_out *json, const Pb__Service *service) {
    write_text(json, "ID", service->id);
    write_text(json, "Name", service->name);
    write_text(json, "Kind", service->kind);
    write_text(json, "Address", service->address);
    write_count(json, "Port", service->port);
    write_lists(json, service);
    json_key(json, "Weights");
    json_object(json);
    write_count(json, "Passing", service->weight_passing);
    write_count(json, "Warning", service->weight_warning);
    json_object_end(json);
    json_key(json, "EnableTagOverride");
    json_bool(json, service->enable_tag_override);
    write_text(json, "Lease", service->lease);
}
