#include "agent/certificate_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/announce.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/json_in.h"
#include "base/log.h"
#include "base/metrics.h"

#define LOOK_MS      5000
#define CHECK_MS     60000 /* between reports of the check that say the same */
#define LOG_AGAIN_MS (24 * 3600 * 1000)
#define DAY_S        86400
#define CHECK_ID     "certificate"
#define CHECK_TTL    "10m"
#define SHOWN_MAX    HTTP_CERTIFICATES_MAX

/* The order of http_protection.certificates is that of each look, so a line is told once by which and serial. */
struct told {
    char serial[41];
    enum http_certificate_severity severity;
    uint64_t at_ms;
};

struct certificate_watch {
    struct certificate_watch_config config;
    uv_timer_t timer;
    uv_mutex_t lock;
    struct http_certificate shown[SHOWN_MAX];
    size_t count;
    struct told told[SHOWN_MAX];
    uint64_t checked_ms; /* 0: the check is not there */
    Pb__Status checked;
    bool no_check;
    void (*stopped)(void *data);
    void *stopped_data;
};

#define GAUGE(which_)                                                                                            \
    {                                                                                                            \
        .name = "coord_certificate_expires_seconds",                                                             \
        .help = "Seconds until a certificate of this process ends; 0: it has", .labels = "which=\"" which_ "\"", \
        .type = METRIC_GAUGE                                                                                     \
    }
enum { GAUGE_NODE, GAUGE_CA, GAUGE_HTTPS, GAUGE_RPC, GAUGES };
METRIC gauges[GAUGES] = {GAUGE("node"), GAUGE("ca"), GAUGE("https"), GAUGE("rpc")};

/* -- judging ---------------------------------------------------------------------------------------------------------- */
enum http_certificate_severity certificate_severity(const struct certificate_thresholds *thresholds,
                                                    const struct http_certificate *certificate, int64_t now_s) {
    int64_t left_s = certificate->to_s - now_s, whole_s = certificate->to_s - certificate->from_s;
    if (left_s <= 0 || certificate->stuck) return HTTP_CERTIFICATE_CRITICAL;
    if (certificate->renews)
        return left_s < whole_s / 10  ? HTTP_CERTIFICATE_CRITICAL
               : left_s < whole_s / 3 ? HTTP_CERTIFICATE_WARNING
                                      : HTTP_CERTIFICATE_OK;
    return left_s <= thresholds->critical_days * DAY_S  ? HTTP_CERTIFICATE_CRITICAL
           : left_s <= thresholds->warning_days * DAY_S ? HTTP_CERTIFICATE_WARNING
           : left_s <= thresholds->info_days * DAY_S    ? HTTP_CERTIFICATE_INFO
                                                        : HTTP_CERTIFICATE_OK;
}

/* -- looking ---------------------------------------------------------------------------------------------------------- */
static struct http_certificate *add(struct http_certificate *list, size_t *count, const char *which, const char *name,
                                    const char *serial, struct tls_life life) {
    CHECK(*count < SHOWN_MAX);
    struct http_certificate *one = &list[(*count)++];
    *one = (struct http_certificate){.which = which, .from_s = life.from_s, .to_s = life.to_s};
    snprintf(one->name, sizeof one->name, "%s", name);
    snprintf(one->serial, sizeof one->serial, "%s", serial);
    return one;
}

static void gauge(int at, int64_t to_s, int64_t now_s) {
    metric_set(&gauges[at], to_s > now_s ? (uint64_t)(to_s - now_s) : 0);
    metric_register(&gauges[at]);
}

static size_t gather(const struct certificate_watch *watch, struct http_certificate *list, int64_t now_s) {
    struct cluster_identity_facts facts;
    struct tls_certificate https, rpc;
    enum certificate_source source;
    size_t count = 0;
    cluster_identity_facts(watch->config.cluster_identity, &facts);
    bool stuck = facts.state == CERTIFICATE_RENEWAL_EXPIRED || facts.state == CERTIFICATE_RENEWAL_REFUSED;
    if (facts.has_certificate) {
        struct http_certificate *one = add(list, &count, "node", watch->config.node, facts.serial, facts.life);
        one->renews = true, one->stuck = stuck;
        gauge(GAUGE_NODE, facts.life.to_s, now_s);
    }
    for (size_t i = 0; i < facts.ca_count; i++)
        add(list, &count, "ca", facts.cas[i].name, facts.cas[i].serial, facts.cas[i].life);
    if (facts.ca_count) gauge(GAUGE_CA, facts.cas[0].life.to_s, now_s);
    if (certificates_shown(watch->config.certificates, &https, &source)) {
        struct http_certificate *one = add(list, &count, "https", https.common_name, https.serial, https.life);
        one->renews = source == CERTIFICATES_CLUSTER, one->stuck = one->renews && stuck;
        gauge(GAUGE_HTTPS, https.life.to_s, now_s);
    }
    if (certificates_shown(watch->config.rpc_certificates, &rpc, &source)) {
        add(list, &count, "rpc", rpc.common_name, rpc.serial, rpc.life);
        gauge(GAUGE_RPC, rpc.life.to_s, now_s);
    }
    return count;
}

/* -- telling ---------------------------------------------------------------------------------------------------------- */
static void describe(const struct http_certificate *one, int64_t now_s, char *text, size_t room) {
    int64_t left_s = one->to_s - now_s, away_s = left_s < 0 ? -left_s : left_s;
    bool hours = away_s < 2 * DAY_S;
    snprintf(text, room, "%s certificate of %.80s %s %lld %s%s", one->which, one->name,
             left_s > 0 ? "ends in" : "ended", (long long)(away_s / (hours ? 3600 : DAY_S)), hours ? "hours" : "days",
             left_s <= 0 ? " ago" : "");
    if (one->stuck) snprintf(text + strlen(text), room - strlen(text), ", and the cluster does not renew it");
    else if (one->renews) snprintf(text + strlen(text), room - strlen(text), ", and its renewal is overdue");
}

static void log_one(struct certificate_watch *watch, size_t i, const struct http_certificate *one, int64_t now_s) {
    struct told *told = &watch->told[i];
    uint64_t now_ms = clock_mono_ms();
    bool same = strcmp(told->serial, one->serial) == 0 && told->severity == one->severity;
    if (same && now_ms - told->at_ms < LOG_AGAIN_MS) return;
    char text[256];
    *told = (struct told){.severity = one->severity, .at_ms = now_ms};
    snprintf(told->serial, sizeof told->serial, "%s", one->serial);
    if (one->severity == HTTP_CERTIFICATE_OK) return;
    describe(one, now_s, text, sizeof text);
    if (one->severity == HTTP_CERTIFICATE_INFO) log_info("certificates", "%s serial=%s", text, one->serial);
    else log_warn("certificates", "%s serial=%s", text, one->serial);
}

/* False: there is none, and will be none, if the user's configuration has a check of this name. */
static bool register_check(struct certificate_watch *watch) {
    struct fault fault = {0};
    if (!watch->checked_ms && local_from_file(watch->config.local, SLICE_LITERAL(CHECK_ID), true)) {
        log_warn("certificates", "a configuration file defines a check \"" CHECK_ID "\", which keeps this name");
        watch->no_check = true;
        return false;
    }
    struct json_object *json = json_parse(
        SLICE_LITERAL("{\"CheckID\":\"" CHECK_ID "\",\"Name\":\"Certificates of this agent\",\"Status\":\"passing\","
                      "\"TTL\":\"" CHECK_TTL "\",\"Notes\":\"telemetry.certificate has the thresholds\"}"),
        &fault);
    CHECK(json);
    struct check_definition *definition = check_definition_parse(json, &fault);
    json_object_put(json);
    CHECK(definition);
    int error = local_check_register(watch->config.local, definition, false, &fault);
    if (error) log_warn("certificates", "the check \"" CHECK_ID "\" is not registered error=\"%s\"", fault.text);
    return error == CO_OK;
}

static void report(struct certificate_watch *watch, Pb__Status status, const struct buffer *output) {
    uint64_t now_ms = clock_mono_ms();
    struct fault fault = {0};
    if (watch->checked_ms && watch->checked == status && now_ms - watch->checked_ms < CHECK_MS) return;
    int error = watch->checked_ms ? CO_OK : CO_NOTFOUND;
    for (int attempt = 0; attempt < 2; attempt++) {
        if (error == CO_NOTFOUND && !register_check(watch)) return;
        error = local_check_update(watch->config.local, SLICE_LITERAL(CHECK_ID), status, buffer_slice(output), &fault);
        if (error != CO_NOTFOUND) break; /* somebody has deregistered it */
    }
    if (error) log_warn("certificates", "the check \"" CHECK_ID "\" is not updated error=\"%s\"", fault.text);
    watch->checked_ms = now_ms, watch->checked = status;
}

static void tell(struct certificate_watch *watch, const struct http_certificate *list, size_t count, int64_t now_s) {
    const struct config *c = watch->config.config;
    enum http_certificate_severity worst = HTTP_CERTIFICATE_OK;
    struct buffer output = {0};
    for (size_t i = 0; i < count; i++) {
        const struct http_certificate *one = &list[i];
        char text[256];
        if (one->renews && c->certificate_exclude_renewable) continue;
        log_one(watch, i, one, now_s);
        if (one->severity > worst) worst = one->severity;
        if (one->severity < HTTP_CERTIFICATE_WARNING) continue;
        describe(one, now_s, text, sizeof text);
        buffer_printf(&output, "%s%s", output.size ? "\n" : "", text);
    }
    if (!output.size) buffer_append_text(&output, "no certificate is near its end");
    Pb__Status status = worst == HTTP_CERTIFICATE_CRITICAL  ? PB__STATUS__CRITICAL
                        : worst == HTTP_CERTIFICATE_WARNING ? PB__STATUS__WARNING
                                                            : PB__STATUS__PASSING;
    if (count && c->certificate_check && watch->config.local && !watch->no_check) report(watch, status, &output);
    buffer_free(&output);
}

static void look(struct certificate_watch *watch) {
    const struct config *c = watch->config.config;
    const struct certificate_thresholds thresholds = {
        (int64_t)c->certificate_info_days, (int64_t)c->certificate_warning_days, (int64_t)c->certificate_critical_days};
    struct http_certificate list[SHOWN_MAX];
    int64_t now_s = (int64_t)time(NULL);
    size_t count = gather(watch, list, now_s);
    for (size_t i = 0; i < count; i++) list[i].severity = certificate_severity(&thresholds, &list[i], now_s);
    uv_mutex_lock(&watch->lock);
    memcpy(watch->shown, list, count * sizeof *list);
    watch->count = count;
    uv_mutex_unlock(&watch->lock);
    if (c->certificate_warnings) tell(watch, list, count, now_s);
}

static void on_timer(uv_timer_t *timer) { look(timer->data); }

void certificate_watch_protection(void *data, struct http_protection *protection) {
    struct certificate_watch *watch = data;
    const struct config *c = watch->config.config;
    uv_mutex_lock(&watch->lock);
    memcpy(protection->certificates, watch->shown, watch->count * sizeof *watch->shown);
    protection->count = watch->count;
    uv_mutex_unlock(&watch->lock);
    protection->info_days = c->certificate_info_days, protection->warning_days = c->certificate_warning_days;
    protection->critical_days = c->certificate_critical_days;
    announce_protected(c, watch->config.security, &protection->safe, &protection->open);
}

/* -- life --------------------------------------------------------------------------------------------------------------- */
struct certificate_watch *certificate_watch_start(uv_loop_t *loop, const struct certificate_watch_config *config) {
    struct certificate_watch *watch = mem_zalloc(sizeof *watch);
    watch->config = *config;
    CHECK(uv_mutex_init(&watch->lock) == 0 && uv_timer_init(loop, &watch->timer) == 0);
    watch->timer.data = watch;
    look(watch);
    uv_timer_start(&watch->timer, on_timer, LOOK_MS, LOOK_MS);
    return watch;
}

static void freed(uv_handle_t *handle) {
    struct certificate_watch *watch = handle->data;
    void (*stopped)(void *data) = watch->stopped;
    void *data = watch->stopped_data;
    uv_mutex_destroy(&watch->lock);
    free(watch);
    stopped(data);
}

void certificate_watch_stop(struct certificate_watch *watch, void (*stopped)(void *data), void *data) {
    if (!watch) {
        stopped(data);
        return;
    }
    watch->stopped = stopped, watch->stopped_data = data;
    uv_close((uv_handle_t *)&watch->timer, freed);
}
