#include "lb/load_hint.h"

#include <math.h>

#include "base/check.h"
#include "base/json_in.h"
#include "base/text.h"

#define SHOWN_MAX 40 /* bytes of the sent text that an error repeats */

/* -- the hint ----------------------------------------------------------------------------------------------------- */
static const struct field {
    const char *name;
    size_t offset;
    double most;
} fields[] = {
    {"load", offsetof(struct load_hint, load), LOAD_MOST},
    {"inflight", offsetof(struct load_hint, inflight), LOAD_INFLIGHT_MOST},
    {"latency_ms", offsetof(struct load_hint, latency_ms), LOAD_LATENCY_MOST},
    {"errors", offsetof(struct load_hint, errors), 1},
};
enum { FIELD_COUNT = ARRAY_COUNT(fields) };

static double *field_of(struct load_hint *hint, const struct field *field) {
    return (double *)(void *)((char *)hint + field->offset);
}

struct load_hint load_unknown(void) {
    return (struct load_hint){NAN, NAN, NAN, NAN};
}

int load_check(const struct load_hint *hint, struct fault *fault) {
    struct load_hint copy = *hint;
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        double value = *field_of(&copy, &fields[i]);
        if (isnan(value) || (value >= 0 && value <= fields[i].most)) continue;
        return fault_set(fault, CO_INVALID, "%s: %g is not from 0 to %g", fields[i].name, value, fields[i].most);
    }
    if (isnan(hint->load)) return fault_set(fault, CO_INVALID, "load: missing");
    return CO_OK;
}

/* -- text --------------------------------------------------------------------------------------------------------- */
static int shown(struct slice text) { return (int)(text.size < SHOWN_MAX ? text.size : SHOWN_MAX); }

static bool blank(char byte) { return byte == ' ' || byte == '\t' || byte == '\r'; }

static struct slice trimmed(struct slice text) {
    while (text.size && blank(text.data[0])) text.data++, text.size--;
    while (text.size && blank(text.data[text.size - 1])) text.size--;
    return text;
}

/* Cuts off the text before the first byte that `ends` accepts, and that byte. */
static struct slice take_until(struct slice *text, bool (*ends)(char)) {
    size_t size = 0;
    while (size < text->size && !ends(text->data[size])) size++;
    struct slice taken = slice_make(text->data, size);
    size_t skip = size < text->size ? size + 1 : size;
    *text = slice_make(text->data + skip, text->size - skip);
    return taken;
}

static int number_parse(struct slice name, struct slice text, double *value, struct fault *fault) {
    if (decimal_parse(text, value) == CO_OK) return CO_OK;
    return fault_set(fault, CO_INVALID, "%.*s: \"%.*s\" is not a decimal number", shown(name), name.data, shown(text),
                     text.data);
}

/* Reads one number of a line into its field. */
static int field_set(struct load_hint *hint, struct slice name, struct slice text, struct fault *fault) {
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        if (!slice_is(name, fields[i].name)) continue;
        double *value = field_of(hint, &fields[i]);
        if (!isnan(*value)) return fault_set(fault, CO_INVALID, "%s: said twice", fields[i].name);
        return number_parse(name, text, value, fault);
    }
    return fault_set(fault, CO_INVALID, "\"%.*s\" is none of load, inflight, latency_ms, errors", shown(name),
                     name.data);
}

static bool is_equals(char byte) { return byte == '='; }

int load_parse_line(struct slice line, struct load_hint *hint, struct fault *fault) {
    struct load_hint read = load_unknown();
    bool first = true;
    for (struct slice rest = trimmed(line); rest.size; rest = trimmed(rest), first = false) {
        struct slice value = take_until(&rest, blank), name = value;
        bool named = memchr(value.data, '=', value.size);
        if (named) name = take_until(&value, is_equals);
        if (!named && first && decimal_parse(value, &read.load) == CO_OK) continue;
        int rc = field_set(&read, name, value, fault);
        if (rc != CO_OK) return rc;
    }
    int rc = load_check(&read, fault);
    if (rc == CO_OK) *hint = read;
    return rc;
}

static bool is_newline(char byte) { return byte == '\n'; }

int load_parse_output(struct slice output, struct load_hint *hint, struct fault *fault) {
    while (output.size) {
        struct slice line = take_until(&output, is_newline);
        if (slice_starts(line, SLICE_LITERAL("load="))) return load_parse_line(line, hint, fault);
    }
    return CO_NOTFOUND;
}

/* -- ORCA --------------------------------------------------------------------------------------------------------- */

/* The fields of a report that we use. NAN: not given. */
struct orca {
    double application, cpu, rps, eps, inflight, latency_ms;
};

static const struct metric {
    const char *name;
    size_t offset;
} metrics[] = {
    {"application_utilization", offsetof(struct orca, application)},
    {"cpu_utilization", offsetof(struct orca, cpu)},
    {"rps_fractional", offsetof(struct orca, rps)},
    {"eps", offsetof(struct orca, eps)},
    {"named_metrics.inflight", offsetof(struct orca, inflight)},
    {"named_metrics.latency_ms", offsetof(struct orca, latency_ms)},
};
static double *metric_of(struct orca *orca, const struct metric *metric) {
    return (double *)(void *)((char *)orca + metric->offset);
}

/* NULL: a field that we do not use. Its value may be anything, because reports may be newer than this program. */
static const struct metric *metric_find(struct slice name) {
    for (size_t i = 0; i < ARRAY_COUNT(metrics); i++)
        if (slice_is(name, metrics[i].name)) return &metrics[i];
    return NULL;
}

static int metric_set(struct orca *orca, const struct metric *metric, double value, struct fault *fault) {
    double *to = metric_of(orca, metric);
    if (value < 0) return fault_set(fault, CO_INVALID, "%s: %g is negative", metric->name, value);
    if (!isnan(*to)) return fault_set(fault, CO_INVALID, "%s: said twice", metric->name);
    *to = value;
    return CO_OK;
}

static bool is_comma(char byte) { return byte == ','; }
static bool is_assigned(char byte) { return byte == '=' || byte == ':'; }

static int orca_text(struct slice text, struct orca *orca, struct fault *fault) {
    while (text.size) {
        struct slice value = take_until(&text, is_comma), whole = trimmed(value);
        struct slice name = trimmed(take_until(&value, is_assigned));
        double number;
        if (name.size == whole.size)
            return fault_set(fault, CO_INVALID, "\"%.*s\" is not written as name=value", shown(whole), whole.data);
        const struct metric *metric = metric_find(name);
        if (!metric) continue;
        int rc = number_parse(name, trimmed(value), &number, fault);
        if (rc == CO_OK) rc = metric_set(orca, metric, number, fault);
        if (rc != CO_OK) return rc;
    }
    return CO_OK;
}

static int orca_number(struct json_object *value, const struct metric *metric, struct orca *orca, struct fault *fault) {
    if (!json_object_is_type(value, json_type_double) && !json_object_is_type(value, json_type_int))
        return fault_set(fault, CO_INVALID, "%s: %s, not a number", metric->name, json_kind(value));
    double number = json_object_get_double(value);
    if (!isfinite(number)) return fault_set(fault, CO_INVALID, "%s: %g is not a number", metric->name, number);
    return metric_set(orca, metric, number, fault);
}

/* Reads the members of a map: "named_metrics": {"inflight": 3} is named_metrics.inflight. */
static int orca_map(struct json_object *map, struct orca *orca, struct fault *fault) {
    int rc = CO_OK;
    if (!json_object_is_type(map, json_type_object))
        return fault_set(fault, CO_INVALID, "named_metrics: %s, not an object", json_kind(map));
    struct buffer name = {0};
    json_each(map, key, member) {
        buffer_reset(&name);
        buffer_printf(&name, "named_metrics.%s", key);
        const struct metric *metric = metric_find(buffer_slice(&name));
        if (metric && rc == CO_OK) rc = orca_number(member, metric, orca, fault);
    }
    buffer_free(&name);
    return rc;
}

static int orca_object(struct json_object *object, struct orca *orca, struct fault *fault) {
    if (!json_object_is_type(object, json_type_object))
        return fault_set(fault, CO_INVALID, "%s, not an object", json_kind(object));
    struct json_object *map = json_get(object, "named_metrics");
    for (size_t i = 0; i < ARRAY_COUNT(metrics) && !fault->code; i++) {
        struct json_object *value = json_get(object, metrics[i].name); /* also camel case, as protobuf writes JSON */
        if (value) orca_number(value, &metrics[i], orca, fault);
    }
    if (map && !fault->code) orca_map(map, orca, fault);
    return fault->code;
}

static int orca_json(struct slice text, struct orca *orca, struct fault *fault) {
    struct fault own = {0};
    struct json_object *object = json_parse(text, &own);
    if (object) json_refuse_duplicates(text, &own);
    if (!own.code) orca_object(object, orca, &own);
    if (object) json_object_put(object);
    return own.code ? fault_set(fault, own.code, "%s", own.text) : CO_OK;
}

static struct load_hint orca_hint(const struct orca *orca) {
    struct load_hint hint = load_unknown();
    hint.load = orca->application > 0 || isnan(orca->cpu) ? orca->application : orca->cpu;
    hint.inflight = orca->inflight;
    hint.latency_ms = orca->latency_ms;
    if (orca->rps > 0 && !isnan(orca->eps)) hint.errors = fmin(orca->eps / orca->rps, 1);
    return hint;
}

static int orca_read(struct slice value, struct load_hint *hint, struct fault *fault) {
    struct orca orca = {NAN, NAN, NAN, NAN, NAN, NAN};
    struct slice rest = trimmed(value), form = take_until(&rest, blank);
    int rc;
    if (slice_is(form, "TEXT")) rc = orca_text(trimmed(rest), &orca, fault);
    else if (slice_is(form, "JSON")) rc = orca_json(trimmed(rest), &orca, fault);
    else if (slice_is(form, "BIN"))
        return fault_set(fault, CO_UNSUPPORTED, "the form BIN is not read: send TEXT or JSON");
    else return fault_set(fault, CO_INVALID, "it begins with \"%.*s\", not with TEXT or JSON", shown(form), form.data);
    if (rc != CO_OK) return rc;
    struct load_hint read = orca_hint(&orca);
    if (isnan(read.load))
        return fault_set(fault, CO_INVALID, "neither application_utilization nor cpu_utilization is in it");
    rc = load_check(&read, fault);
    if (rc == CO_OK) *hint = read;
    return rc;
}

int load_parse_orca(struct slice value, struct load_hint *hint, struct fault *fault) {
    struct fault own = {0};
    int rc = orca_read(value, hint, &own);
    return rc == CO_OK ? CO_OK : fault_set(fault, rc, "endpoint-load-metrics: %s", own.text);
}
