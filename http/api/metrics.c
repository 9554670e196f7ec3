/* GET /v1/agent/metrics: Prometheus' text format, or the same figures as JSON in the shape of Consul's. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "http/api/topics.h"
#include "http/api/trust_views.h"
#include "http/http.h"

/* One line of the text format. */
struct sample {
    struct slice name, labels, value;
};

static bool sample_parse(struct slice line, struct sample *sample) {
    if (!line.size || line.data[0] == '#') return false;
    const char *blank = memrchr(line.data, ' ', line.size);
    if (!blank) return false;
    size_t head = (size_t)(blank - line.data);
    const char *brace = memchr(line.data, '{', head);
    size_t name = brace ? (size_t)(brace - line.data) : head;
    sample->name = slice_make(line.data, name);
    sample->labels = brace ? slice_make(brace + 1, head - name - 2) : slice_make("", 0);
    sample->value = slice_make(blank + 1, line.size - head - 1);
    return true;
}

/* name="value",... */
static void labels_json(struct json_out *json, struct slice labels) {
    json_object(json);
    for (const char *at = labels.data, *end = at + labels.size; at < end;) {
        const char *equals = memchr(at, '=', (size_t)(end - at));
        const char *close = equals && equals + 2 <= end ? memchr(equals + 2, '"', (size_t)(end - equals - 2)) : NULL;
        if (!close) break;
        json_key_slice(json, slice_make(at, (size_t)(equals - at)));
        json_slice(json, slice_make(equals + 2, (size_t)(close - equals - 2)));
        at = close + 1 + (close + 1 < end);
    }
    json_object_end(json);
}

/* Consul's counters have the events of the last interval; ours have the total, as their only observation. */
static void sample_json(struct json_out *json, const struct sample *sample, bool counter) {
    json_object(json);
    json_key(json, "Name");
    json_slice(json, sample->name);
    if (counter) {
        json_key(json, "Count");
        json_u64(json, 1);
        json_key(json, "Sum");
        json_raw(json, sample->value);
    } else {
        json_key(json, "Value");
        json_raw(json, sample->value);
    }
    json_key(json, "Labels");
    labels_json(json, sample->labels);
    json_object_end(json);
}

/* All samples whose family is of this type. Histograms are listed as counters, because their buckets and sums are
 * counters. */
static void samples_json(struct json_out *json, struct slice text, bool counters) {
    bool counter = false;
    json_array(json);
    for (const char *at = text.data, *end = at + text.size, *stop; at < end; at = stop + 1) {
        stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) break;
        struct slice line = slice_make(at, (size_t)(stop - at));
        struct sample sample;
        if (slice_starts(line, SLICE_LITERAL("# TYPE "))) {
            counter = !memmem(line.data, line.size, " gauge", 6);
        } else if (counter == counters && sample_parse(line, &sample)) {
            sample_json(json, &sample, counter);
        }
    }
    json_array_end(json);
}

static void metrics_json(struct http_request *request, struct slice text) {
    char now[64];
    time_t seconds = (time_t)(clock_wall_ns() / 1000000000);
    struct tm parts;
    gmtime_r(&seconds, &parts);
    strftime(now, sizeof now, "%Y-%m-%d %H:%M:%S +0000 UTC", &parts);
    struct json_out *json = http_out(request);
    json_object(json);
    json_key(json, "Timestamp");
    json_string(json, now);
    json_key(json, "Gauges");
    samples_json(json, text, false);
    json_key(json, "Points");
    json_raw(json, SLICE_LITERAL("[]"));
    json_key(json, "Counters");
    samples_json(json, text, true);
    json_key(json, "Samples");
    json_raw(json, SLICE_LITERAL("[]"));
    json_object_end(json);
    http_reply_json(request, 200);
}

static void metrics_get(struct http_request *request) {
    struct slice format = http_parameter(request, "format");
    if (slice_is(format, "prometheus")) {
        metrics_print(http_raw(request));
        http_reply_raw(request, 200, "text/plain; version=0.0.4; charset=utf-8");
        return;
    }
    if (format.size) {
        http_reply_text(request, 400, "format: \"%.40s\" is not known; \"prometheus\", or none for JSON", format.data);
        return;
    }
    struct buffer text = {0};
    metrics_print(&text);
    metrics_json(request, buffer_slice(&text));
    buffer_free(&text);
}

/* -- certificates ------------------------------------------------------------------------------------------------------ */
static const char *const severities[] = {"ok", "info", "warning", "critical"};

static void certificate_json(struct http_request *request, struct json_out *json, const struct http_certificate *one,
                             int64_t now_s) {
    struct arena *arena = http_arena(request);
    int64_t left_s = one->to_s - now_s;
    json_object(json);
    json_key(json, "Type"), json_string(json, one->which);
    json_key(json, "Name"), json_string(json, one->name);
    json_key(json, "Serial"), json_string(json, one->serial);
    json_key(json, "NotBefore"), json_string(json, trust_time_text(arena, one->from_s));
    json_key(json, "NotAfter"), json_string(json, trust_time_text(arena, one->to_s));
    json_key(json, "DaysRemaining"), json_i64(json, left_s / 86400);
    json_key(json, "SecondsRemaining"), json_i64(json, left_s);
    json_key(json, "AutoRenewable"), json_bool(json, one->renews);
    json_key(json, "Severity"), json_string(json, severities[one->severity]);
    json_object_end(json);
}

static void summary_json(struct json_out *json, const struct http_protection *seen) {
    static const char *const types[] = {"node", "ca", "https", "rpc"};
    size_t stuck = 0;
    json_key(json, "Summary");
    json_object(json);
    json_key(json, "Total"), json_u64(json, seen->count);
    json_key(json, "BySeverity");
    json_object(json);
    for (size_t i = 0; i < ARRAY_COUNT(severities); i++) {
        size_t count = 0;
        for (size_t k = 0; k < seen->count; k++) count += seen->certificates[k].severity == i;
        json_key_slice(json, slice_text(severities[i])), json_u64(json, count);
    }
    json_object_end(json);
    json_key(json, "ByType");
    json_object(json);
    for (size_t i = 0; i < ARRAY_COUNT(types); i++) {
        size_t count = 0;
        for (size_t k = 0; k < seen->count; k++) count += strcmp(seen->certificates[k].which, types[i]) == 0;
        json_key_slice(json, slice_text(types[i])), json_u64(json, count);
    }
    json_object_end(json);
    for (size_t k = 0; k < seen->count; k++) stuck += seen->certificates[k].stuck;
    json_key(json, "TotalWithFailures"), json_u64(json, stuck);
    json_object_end(json);
}

static void certificates_get(struct http_request *request) {
    const struct http_env *env = http_env(request);
    struct http_protection seen = {0};
    int64_t now_s = clock_wall_ns() / 1000000000;
    if (env->protection) env->protection(env->protection_data, &seen);
    struct json_out *json = http_out(request);
    json_object(json);
    json_key(json, "Certificates");
    json_array(json);
    for (size_t i = 0; i < seen.count; i++) certificate_json(request, json, &seen.certificates[i], now_s);
    json_array_end(json);
    summary_json(json, &seen);
    json_key(json, "Thresholds");
    json_object(json);
    json_key(json, "CriticalDays"), json_u64(json, seen.critical_days);
    json_key(json, "WarningDays"), json_u64(json, seen.warning_days);
    json_key(json, "InfoDays"), json_u64(json, seen.info_days);
    json_object_end(json);
    json_object_end(json);
    buffer_free(&seen.safe);
    buffer_free(&seen.open);
    http_reply_json(request, 200);
}

const struct http_route http_routes_metrics[] = {
    {HTTP_GET, "/v1/agent/metrics", metrics_get, "agent:read of this agent",
     HTTP_PARAMS({"format", HTTP_CHOICE, .choices = "prometheus", .help = "prometheus: its text format; else JSON"}),
     "All metrics", HTTP_LOCAL, .example = {.status = 200, .depth = 1}},
    {HTTP_GET, "/v1/agent/metrics/certificates", certificates_get, "agent:read of this agent", NULL,
     "The certificates of this process, and how near their end is by the thresholds of telemetry.certificate",
     HTTP_LOCAL, .example = {.status = 200}},
    {0},
};
