/* The Definition of a check in PUT /v1/catalog/register: coord does not run it; other programs, which watch external
 * services, read it. It is stored in the form in which they read it: the fields of Consul 1.8, in its order and
 * spelling, durations as "1m30s", empty ones left out. A field of a wrong type is refused, because a typed client could
 * not read any answer with this check. */
#include <string.h>

#include "base/check.h"
#include "base/json_out.h"
#include "base/text.h"
#include "http/api/catalog.h"

enum kind { TEXT, SWITCH, COUNT, DURATION, NANOSECONDS, TEXTS, HEADER };

static const struct field {
    const char *name;
    enum kind kind;
} fields[] = {
    {"Interval", DURATION}, {"OutputMaxSize", COUNT},
    {"Timeout", DURATION},  {"DeregisterCriticalServiceAfter", DURATION},
    {"HTTP", TEXT},         {"TLSSkipVerify", SWITCH},
    {"Header", HEADER},     {"Method", TEXT},
    {"Body", TEXT},         {"TCP", TEXT},
    {"ScriptArgs", TEXTS},  {"DockerContainerID", TEXT},
    {"Shell", TEXT},        {"GRPC", TEXT},
    {"GRPCUseTLS", SWITCH}, {"AliasNode", TEXT},
    {"AliasService", TEXT}, {"TTL", NANOSECONDS},
};

static void field_key(struct json_out *out, const struct field *field) {
    json_key_raw(out, field->name, strlen(field->name));
}

static void write_text(struct json_out *out, const struct field *field, struct json_object *in, struct fault *fault) {
    struct slice text = {0};
    json_get_slice(in, field->name, &text, fault);
    if (!text.size) return;
    field_key(out, field);
    json_slice(out, text);
}

static void write_switch(struct json_out *out, const struct field *field, struct json_object *in, struct fault *fault) {
    bool on = false;
    json_get_bool(in, field->name, &on, fault);
    if (!on) return;
    field_key(out, field);
    json_bool(out, true);
}

static void write_count(struct json_out *out, const struct field *field, struct json_object *in, struct fault *fault) {
    uint64_t count = 0;
    json_get_u64(in, field->name, UINT64_MAX, &count, fault);
    if (!count) return;
    field_key(out, field);
    json_u64(out, count);
}

static void write_duration(struct json_out *out, const struct field *field, struct json_object *in,
                           struct fault *fault) {
    int64_t nanoseconds = 0;
    json_get_duration(in, field->name, &nanoseconds, fault);
    if (!nanoseconds) return;
    field_key(out, field);
    if (field->kind == NANOSECONDS) {
        json_i64(out, nanoseconds);
        return;
    }
    struct buffer text = {0};
    duration_format(&text, nanoseconds);
    json_slice(out, buffer_slice(&text));
    buffer_free(&text);
}

static void write_array(struct json_out *out, const struct field *field, struct json_object *array,
                        struct fault *fault) {
    json_array(out);
    for (size_t i = 0; i < json_object_array_length(array); i++) {
        struct json_object *item = json_object_array_get_idx(array, i);
        if (json_object_is_type(item, json_type_string)) {
            json_slice(out, slice_make(json_object_get_string(item), (size_t)json_object_get_string_len(item)));
        } else {
            fault_set(fault, CO_INVALID, "Definition.%s: strings are wanted", field->name);
        }
    }
    json_array_end(out);
}

static void write_texts(struct json_out *out, const struct field *field, struct json_object *in, struct fault *fault) {
    struct json_object *array = json_get_array(in, field->name, fault);
    if (!array || !json_object_array_length(array)) return;
    field_key(out, field);
    write_array(out, field, array, fault);
}

static void write_header(struct json_out *out, const struct field *field, struct json_object *in, struct fault *fault) {
    struct json_object *header = json_get_object(in, field->name, fault);
    if (!header || !json_object_object_length(header)) return;
    field_key(out, field);
    json_object(out);
    json_each(header, key, values) {
        json_key_slice(out, slice_text(key));
        if (json_object_is_type(values, json_type_array)) {
            write_array(out, field, values, fault);
        } else {
            if (values) fault_set(fault, CO_INVALID, "Definition.Header.%.60s: an array of strings is wanted", key);
            json_null(out);
        }
    }
    json_object_end(out);
}

void catalog_definition_write(struct buffer *text, struct json_object *in, struct fault *fault) {
    struct json_out out;
    json_out_init(&out, text, false);
    json_object(&out);
    for (size_t i = 0; i < ARRAY_COUNT(fields) && !fault->code; i++) {
        const struct field *field = &fields[i];
        switch (field->kind) {
            case TEXT: write_text(&out, field, in, fault); break;
            case SWITCH: write_switch(&out, field, in, fault); break;
            case COUNT: write_count(&out, field, in, fault); break;
            case DURATION:
            case NANOSECONDS: write_duration(&out, field, in, fault); break;
            case TEXTS: write_texts(&out, field, in, fault); break;
            case HEADER: write_header(&out, field, in, fault); break;
        }
    }
    json_object_end(&out);
}

/* -- its type ------------------------------------------------------------------------------------------------------ */

static bool has_text(struct json_object *in, const char *name, struct fault *fault) {
    struct slice text = {0};
    json_get_slice(in, name, &text, fault);
    return text.size > 0;
}

static bool has_duration(struct json_object *in, const char *name, struct fault *fault) {
    int64_t nanoseconds = 0;
    json_get_duration(in, name, &nanoseconds, fault);
    return nanoseconds > 0;
}

/* In Consul's order: a definition with two types has the first. */
const char *catalog_definition_type(struct json_object *in, struct fault *fault) {
    bool repeats = has_duration(in, "Interval", fault);
    struct json_object *arguments = json_get_array(in, "ScriptArgs", fault);
    bool script = arguments && json_object_array_length(arguments);
    if (repeats && has_text(in, "GRPC", fault)) return "grpc";
    if (repeats && has_text(in, "HTTP", fault)) return "http";
    if (has_duration(in, "TTL", fault)) return "ttl";
    if (repeats && has_text(in, "TCP", fault)) return "tcp";
    if (has_text(in, "AliasNode", fault) || has_text(in, "AliasService", fault)) return "alias";
    if (repeats && script && has_text(in, "DockerContainerID", fault)) return "docker";
    return script ? "script" : "";
}
