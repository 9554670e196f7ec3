#include "health/definition.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/text.h"

#define SECOND          ((int64_t)1000000000)
#define TIMEOUT_DEFAULT (10 * SECOND)
#define TIMEOUT_PROGRAM (30 * SECOND)
#define OUTPUT_DEFAULT  4096
#define OUTPUT_MOST     (1 << 20)
#define COUNT_MOST      1000000

/* Every key that a check may have; what is not supported is known, so that the refusal can say so. */
static const char *const check_keys[] = {
    "ID",
    "CheckID",
    "Name",
    "Notes",
    "ServiceID",
    "Status",
    "Token",
    "Namespace",
    "Partition",
    "HTTP",
    "Header",
    "Method",
    "Body",
    "DisableRedirects",
    "TLSServerName",
    "TLSSkipVerify",
    "TCP",
    "TCPUseTLS",
    "TTL",
    "Interval",
    "Timeout",
    "SuccessBeforePassing",
    "FailuresBeforeWarning",
    "FailuresBeforeCritical",
    "DeregisterCriticalServiceAfter",
    "OutputMaxSize",
    "Args",
    "ScriptArgs",
    "Script",
    "UDP",
    "GRPC",
    "GRPCUseTLS",
    "H2PING",
    "H2PingUseTLS",
    "DockerContainerID",
    "Shell",
    "AliasNode",
    "AliasService",
    "OSService",
    NULL,
};

/* Keys that ask for what this version does not do. */
static const struct {
    const char *key, *what;
} not_here[] = {
    {"Script", "there is no Script; give the program and its arguments as Args"},
    {"DockerContainerID", "Docker checks (DockerContainerID) are not supported by this version"},
    {"TCPUseTLS", "TCP over TLS (TCPUseTLS) is not supported by this version"},
};

static const struct {
    const char *text;
    Pb__Status status;
} statuses[] = {
    {"passing", PB__STATUS__PASSING},
    {"warning", PB__STATUS__WARNING},
    {"critical", PB__STATUS__CRITICAL},
};

const Pb__Status *check_status_parse(const char *text) {
    for (size_t i = 0; i < ARRAY_COUNT(statuses); i++) {
        if (strcmp(text, statuses[i].text) == 0) return &statuses[i].status;
    }
    return NULL;
}

const char *check_kind_text(enum check_kind kind) {
    switch (kind) {
        case CHECK_NONE: return "";
        case CHECK_TTL: return "ttl";
        case CHECK_HTTP: return "http";
        case CHECK_TCP: return "tcp";
        case CHECK_UDP: return "udp";
        case CHECK_GRPC: return "grpc";
        case CHECK_H2PING: return "h2ping";
        case CHECK_SCRIPT: return "script";
        case CHECK_ALIAS: return "alias";
        case CHECK_OS_SERVICE: return "os_service";
    }
    return "";
}

/* All fields that are plain text, by the key that gives them. */
static const struct text_field {
    const char *key;
    size_t offset;
} text_fields[] = {
    {"CheckID", offsetof(struct check_definition, check_id)},
    {"Name", offsetof(struct check_definition, name)},
    {"Notes", offsetof(struct check_definition, notes)},
    {"ServiceID", offsetof(struct check_definition, service_id)},
    {"HTTP", offsetof(struct check_definition, http)},
    {"Method", offsetof(struct check_definition, method)},
    {"Body", offsetof(struct check_definition, body)},
    {"TCP", offsetof(struct check_definition, tcp)},
    {"UDP", offsetof(struct check_definition, udp)},
    {"GRPC", offsetof(struct check_definition, grpc)},
    {"H2PING", offsetof(struct check_definition, h2ping)},
    {"AliasNode", offsetof(struct check_definition, alias_node)},
    {"AliasService", offsetof(struct check_definition, alias_service)},
    {"OSService", offsetof(struct check_definition, os_service)},
    {"TLSServerName", offsetof(struct check_definition, tls_server_name)},
};

static char **text_at(struct check_definition *definition, const struct text_field *field) {
    return (char **)((char *)definition + field->offset);
}

/* -- sharing and freeing ------------------------------------------------------------------------------------------ */

struct check_shared *check_shared_new(struct check_definition *definition) {
    struct check_shared *shared = mem_zalloc(sizeof *shared);
    shared->references = 1;
    shared->definition = definition;
    return shared;
}

struct check_shared *check_shared_take(struct check_shared *shared) {
    atomic_fetch_add(&shared->references, 1);
    return shared;
}

void check_shared_drop(struct check_shared *shared) {
    if (!shared || atomic_fetch_sub(&shared->references, 1) > 1) return;
    check_definition_free(shared->definition);
    free(shared);
}

void token_free(char *token) {
    if (token) explicit_bzero(token, strlen(token));
    free(token);
}

void token_set(char **field, struct slice token) {
    token_free(*field);
    *field = mem_strndup(token.data, token.size);
}

char *token_read(struct json_object *json, struct fault *fault) {
    const char *token = "";
    json_get_string(json, "Token", &token, fault);
    if (strlen(token) > REQUESTER_TOKEN_MOST)
        fault_set(fault, CO_INVALID, "Token: it has %zu bytes, at most %d are allowed", strlen(token),
                  REQUESTER_TOKEN_MOST);
    return mem_strdup(token);
}

void check_definition_token(struct check_definition *definition, struct slice token) {
    token_set(&definition->token, token);
}

void check_definition_free(struct check_definition *definition) {
    if (!definition) return;
    token_free(definition->token);
    for (size_t i = 0; i < definition->header_count; i++) {
        free(definition->headers[i].name);
        free(definition->headers[i].value);
    }
    free(definition->headers);
    for (size_t i = 0; i < definition->arg_count; i++) free(definition->args[i]);
    free(definition->args);
    for (size_t i = 0; i < ARRAY_COUNT(text_fields); i++) free(*text_at(definition, &text_fields[i]));
    free(definition);
}

struct check_definition *check_definition_blank(const char *check_id, const char *service_id) {
    struct check_definition *blank = mem_zalloc(sizeof *blank);
    for (size_t i = 0; i < ARRAY_COUNT(text_fields); i++) {
        char **text = text_at(blank, &text_fields[i]);
        *text = mem_strdup(text == &blank->check_id ? check_id : text == &blank->service_id ? service_id : "");
    }
    blank->token = mem_strdup("");
    blank->initial_status = PB__STATUS__CRITICAL;
    return blank;
}

/* -- reading ------------------------------------------------------------------------------------------------------ */

static char *text_of(struct json_object *json, const char *key, const char *otherwise, struct fault *fault) {
    const char *text = otherwise;
    json_get_string(json, key, &text, fault);
    return mem_strdup(text);
}

static uint32_t count_of(struct json_object *json, const char *key, struct fault *fault) {
    uint64_t count = 0;
    json_get_u64(json, key, COUNT_MOST, &count, fault);
    return (uint32_t)count;
}

static int64_t duration_of(struct json_object *json, const char *key, struct fault *fault) {
    int64_t duration = 0;
    json_get_duration(json, key, &duration, fault);
    return duration;
}

/* "", [], {}, false and 0 ask for nothing: clients that fill in every field send them. */
static bool asks_for_something(struct json_object *value) {
    switch (json_object_get_type(value)) {
        case json_type_null: return false;
        case json_type_boolean: return json_object_get_boolean(value);
        case json_type_int: return json_object_get_int64(value) != 0;
        case json_type_string: return json_object_get_string_len(value) > 0;
        case json_type_array: return json_object_array_length(value) > 0;
        case json_type_object: return json_object_object_length(value) > 0;
        case json_type_double: return true;
    }
    return true;
}

static bool is_empty(struct json_object *json) {
    json_each(json, key, value) {
        (void)key;
        int64_t nanoseconds;
        if (!asks_for_something(value)) continue;
        if (!json_object_is_type(value, json_type_string)) return false;
        struct slice text = slice_make(json_object_get_string(value), (size_t)json_object_get_string_len(value));
        if (duration_parse(text, &nanoseconds) != CO_OK || nanoseconds != 0) return false;
    }
    return true;
}

static void read_headers(struct json_object *json, struct check_definition *definition, struct fault *fault) {
    struct json_object *headers = json_get_object(json, "Header", fault);
    if (!headers) return;
    json_each(headers, name, values) {
        if (!values) continue; /* null: no value */
        if (!json_object_is_type(values, json_type_array)) {
            fault_set(fault, CO_INVALID, "Header: an array of strings is wanted for \"%.60s\"", name);
            return;
        }
        for (size_t i = 0; i < json_object_array_length(values); i++) {
            struct json_object *value = json_object_array_get_idx(values, i);
            if (!json_object_is_type(value, json_type_string) ||
                strlen(json_object_get_string(value)) != (size_t)json_object_get_string_len(value)) {
                fault_set(fault, CO_INVALID, "Header: a value of \"%.60s\" is not a string of text", name);
                return;
            }
            definition->headers =
                mem_realloc(definition->headers, (definition->header_count + 1) * sizeof *definition->headers);
            definition->headers[definition->header_count++] =
                (struct check_header){.name = mem_strdup(name), .value = mem_strdup(json_object_get_string(value))};
        }
    }
}

static void read_output_size(struct json_object *json, struct check_definition *definition, struct fault *fault) {
    int64_t size = 0;
    json_get_i64(json, "OutputMaxSize", &size, fault);
    if (size < 0) fault_set(fault, CO_INVALID, "Invalid check: MaxOutputMaxSize must be positive");
    definition->output_max_size = size <= 0 ? OUTPUT_DEFAULT : size > OUTPUT_MOST ? OUTPUT_MOST : (uint32_t)size;
}

static void read_status(struct json_object *json, bool inside, struct check_definition *definition,
                        struct fault *fault) {
    const char *text = "";
    json_get_string(json, "Status", &text, fault);
    definition->initial_status = PB__STATUS__CRITICAL;
    if (*text == '\0') return;
    const Pb__Status *status = check_status_parse(text);
    if (status) {
        definition->initial_status = *status;
    } else {
        fault_set(fault, CO_INVALID, "%s",
                  inside ? "Status for checks must 'passing', 'warning', 'critical'" : "Bad check status");
    }
}

static void read_fields(struct json_object *json, bool inside, struct check_definition *definition,
                        struct fault *fault) {
    for (size_t i = 0; i < ARRAY_COUNT(text_fields); i++) {
        *text_at(definition, &text_fields[i]) = text_of(json, text_fields[i].key, "", fault);
    }
    if (*definition->check_id == '\0') {
        free(definition->check_id);
        definition->check_id = text_of(json, "ID", "", fault);
    }
    definition->token = token_read(json, fault);
    definition->h2ping_use_tls = *definition->h2ping != '\0';
    json_get_bool(json, "H2PingUseTLS", &definition->h2ping_use_tls, fault);
    json_get_bool(json, "GRPCUseTLS", &definition->grpc_use_tls, fault);
    json_get_bool(json, "TLSSkipVerify", &definition->tls_skip_verify, fault);
    json_get_bool(json, "DisableRedirects", &definition->disable_redirects, fault);
    definition->interval_ns = duration_of(json, "Interval", fault);
    definition->timeout_ns = duration_of(json, "Timeout", fault);
    definition->ttl_ns = duration_of(json, "TTL", fault);
    definition->deregister_after_ns = duration_of(json, "DeregisterCriticalServiceAfter", fault);
    definition->success_before_passing = count_of(json, "SuccessBeforePassing", fault);
    definition->failures_before_critical = count_of(json, "FailuresBeforeCritical", fault);
    definition->failures_before_warning = definition->failures_before_critical;
    if (json_get(json, "FailuresBeforeWarning")) {
        definition->failures_before_warning = count_of(json, "FailuresBeforeWarning", fault);
    }
    read_headers(json, definition, fault);
    check_args_read(json, definition, fault);
    check_unit_judge(definition->os_service, fault);
    read_output_size(json, definition, fault);
    read_status(json, inside, definition, fault);
}

static void check_kinds(struct json_object *json, struct check_definition *definition, struct fault *fault) {
    for (size_t i = 0; i < ARRAY_COUNT(not_here); i++) {
        struct json_object *value = json_get(json, not_here[i].key);
        if (value && asks_for_something(value)) fault_set(fault, CO_INVALID, "Invalid check: %s", not_here[i].what);
    }
    /* Where several are asked for: the one that Consul runs. */
    definition->kind = *definition->http                                       ? CHECK_HTTP
                       : *definition->tcp                                      ? CHECK_TCP
                       : *definition->udp                                      ? CHECK_UDP
                       : *definition->grpc                                     ? CHECK_GRPC
                       : definition->arg_count > 0                             ? CHECK_SCRIPT
                       : *definition->h2ping                                   ? CHECK_H2PING
                       : *definition->os_service                               ? CHECK_OS_SERVICE
                       : *definition->alias_node || *definition->alias_service ? CHECK_ALIAS
                                                                               : CHECK_TTL;
}

static const char *interval_missing(enum check_kind kind) {
    bool later = kind == CHECK_UDP || kind == CHECK_H2PING || kind == CHECK_OS_SERVICE;
    return later ? "Invalid check: Interval must be > 0 for Script, HTTP, H2PING, TCP, UDP or OSService checks"
                 : "Invalid check: Interval must be > 0 for Script, HTTP, or TCP checks";
}

static void check_values(struct check_definition *definition, struct fault *fault) {
    bool alias = *definition->alias_node || *definition->alias_service;
    bool polled = definition->kind != CHECK_TTL && definition->kind != CHECK_ALIAS;
    if (definition->interval_ns > 0 && definition->ttl_ns > 0) {
        fault_set(fault, CO_INVALID, "Invalid check: Interval and TTL cannot both be specified");
    }
    if (polled && definition->interval_ns <= 0) {
        fault_set(fault, CO_INVALID, "%s", interval_missing(definition->kind));
    }
    if (polled && alias) fault_set(fault, CO_INVALID, "Invalid check: Interval cannot be set for Alias checks");
    if (alias && definition->ttl_ns > 0) {
        fault_set(fault, CO_INVALID, "Invalid check: TTL must be not be set for Alias checks");
    }
    if (definition->kind == CHECK_TTL && definition->ttl_ns <= 0) {
        fault_set(fault, CO_INVALID, "Invalid check: TTL must be > 0 for TTL checks");
    }
    if (definition->failures_before_warning > definition->failures_before_critical) {
        fault_set(fault, CO_INVALID,
                  "Invalid check: FailuresBeforeWarning can't be higher than FailuresBeforeCritical");
    }
    if (polled && definition->interval_ns < SECOND) definition->interval_ns = SECOND;
    if (definition->timeout_ns <= 0) {
        definition->timeout_ns = check_kind_is_program(definition->kind) ? TIMEOUT_PROGRAM : TIMEOUT_DEFAULT;
    }
    if (definition->deregister_after_ns < 0) definition->deregister_after_ns = 0;
    if (definition->deregister_after_ns > 0 && definition->deregister_after_ns < SECOND) {
        definition->deregister_after_ns = SECOND;
    }
}

struct check_definition *check_definition_read(struct json_object *json, bool inside, struct fault *fault) {
    if (!json_object_is_type(json, json_type_object)) {
        fault_set(fault, CO_INVALID, "Check: an object is wanted");
        return NULL;
    }
    struct fault wrong = {0};
    json_only_known(json, check_keys, &wrong);
    if (inside && wrong.code == CO_OK && is_empty(json)) return NULL;
    struct check_definition *definition = mem_zalloc(sizeof *definition);
    read_fields(json, inside, definition, &wrong);
    if (!inside && *definition->name == '\0') fault_set(&wrong, CO_INVALID, "Missing check name");
    check_kinds(json, definition, &wrong);
    check_values(definition, &wrong);
    const char *check_id = *definition->check_id || inside ? definition->check_id : definition->name;
    if (slice_equal_nocase(slice_text(check_id), SLICE_LITERAL(CHECK_OWN_ID)))
        fault_set(&wrong, CO_INVALID, "CheckID: \"" CHECK_OWN_ID "\" is the node's own, by its agent's lease");
    if (wrong.code == CO_OK) return definition;
    bool whole = strncmp(wrong.text, "Invalid ", 8) == 0 || !inside || strncmp(wrong.text, "Status for", 10) == 0;
    fault_set(fault, wrong.code, "%s%.240s", whole ? "" : "Check: ", wrong.text);
    check_definition_free(definition);
    return NULL;
}

struct check_definition *check_definition_parse(struct json_object *json, struct fault *fault) {
    struct check_definition *definition = check_definition_read(json, false, fault);
    if (!definition) return NULL;
    if (*definition->check_id == '\0') {
        free(definition->check_id);
        definition->check_id = mem_strdup(definition->name);
    }
    return definition;
}
