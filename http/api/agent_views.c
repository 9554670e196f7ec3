#include "http/api/agent_views.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "health/local.h"
#include "http/api/views.h"

#define SYNC_WAIT_MS  2000
#define REPLY_WAIT_MS 10000 /* the deadline of `local` is earlier */

/* ---- services ---- */

const char *agent_hash_text(struct arena *arena, uint64_t hash) { return arena_printf(arena, "%" PRIx64, hash); }

void agent_view_service(struct json_out *json, const Pb__Service *service, uint64_t hash) {
    json_object(json);
    view_service_head(json, service);
    json_key(json, "Meta");
    view_pairs(json, service->meta, service->n_meta);
    json_key(json, "Port");
    json_u64(json, service->port);
    json_key(json, "Address");
    json_string(json, service->address);
    view_service_addresses(json, "TaggedAddresses", service);
    view_weights(json, "Weights", service);
    json_key(json, "EnableTagOverride");
    json_bool(json, service->enable_tag_override);
    if (hash) {
        char text[20];
        snprintf(text, sizeof text, "%" PRIx64, hash);
        json_key(json, "ContentHash");
        json_string(json, text);
    }
    json_object_end(json);
}

/* ---- health ---- */

static bool is_maintenance(const Pb__Check *check) {
    return strcmp(check->check_id, "_node_maintenance") == 0 ||
           strncmp(check->check_id, "_service_maintenance:", strlen("_service_maintenance:")) == 0;
}

const char *agent_worst_status(Pb__Check *const *checks, size_t count) {
    Pb__Status worst = PB__STATUS__PASSING;
    for (size_t i = 0; i < count; i++) {
        Pb__Status status = is_maintenance(checks[i]) ? PB__STATUS__MAINTENANCE : checks[i]->status;
        if (status > worst) worst = status;
    }
    return catalog_status_text(worst);
}

/* Writes the fields of an empty definition, because Consul shows them here even when there is none. */
static void empty_definition(struct json_out *json) {
    static const char *const texts[] = {"Interval", "Timeout", "DeregisterCriticalServiceAfter"};
    json_object(json);
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        json_key_raw(json, texts[i], strlen(texts[i]));
        json_string(json, "0s");
    }
    json_key(json, "HTTP");
    json_string(json, "");
    json_key(json, "Header");
    json_null(json);
    json_key(json, "Method");
    json_string(json, "");
    json_key(json, "Body");
    json_string(json, "");
    json_key(json, "TLSSkipVerify");
    json_bool(json, false);
    json_key(json, "TCP");
    json_string(json, "");
    json_object_end(json);
}

static void health_check(struct json_out *json, const Pb__Check *check, const Pb__Service *service) {
    json_object(json);
    view_check_head(json, check);
    json_key(json, "ServiceTags");
    if (*check->service_id &&
        service->n_tags) { /* checks of the node have no tags; without tags Consul writes null here */
        view_strings(json, service->tags, service->n_tags);
    } else {
        json_null(json);
    }
    json_key(json, "Type");
    json_string(json, "");
    json_key(json, "Definition");
    empty_definition(json);
    view_indexes(json, 0, 0);
    json_object_end(json);
}

void agent_view_health(struct json_out *json, const char *status, const Pb__Service *service, Pb__Check *const *checks,
                       size_t count) {
    json_object(json);
    json_key(json, "AggregatedStatus");
    json_string(json, status);
    json_key(json, "Service");
    if (service) {
        agent_view_service(json, service, 0);
    } else {
        json_null(json);
    }
    json_key(json, "Checks");
    if (service) {
        json_array(json);
        for (size_t i = 0; i < count; i++) health_check(json, checks[i], service);
        json_array_end(json);
    } else {
        json_null(json);
    }
    json_object_end(json);
}

/* ---- shared by several endpoints ---- */

struct synced {
    struct local_waiter waiter;
    struct http_ticket *ticket;
};

static void on_synced(struct local_waiter *waiter, int error) {
    struct synced *synced = CONTAINER_OF(waiter, struct synced, waiter);
    http_deferred(synced->ticket, error);
    free(synced);
}

/* Answers 200 even when the servers could not be told, because the agent goes on trying. Only a change that could not
 * be saved, and would be lost by a restart, is an error. */
static void reply_empty(struct http_request *request, int error) {
    if (error == CO_IO) {
        http_reply_text(request, 503,
                        "the definition is in force, but could not be saved in the data folder (disk full?): "
                        "a restart would forget it");
        return;
    }
    http_reply_text(request, 200, "%s", "");
}

void agent_reply_synced(struct http_request *request) {
    struct synced *synced = mem_zalloc(sizeof *synced);
    synced->waiter.done = on_synced;
    synced->ticket = http_defer(request, REPLY_WAIT_MS, reply_empty);
    local_on_synced(http_env(request)->local, &synced->waiter, SYNC_WAIT_MS);
}

bool agent_parameter_enable(struct http_request *request, bool *enable) {
    static const char *const yes[] = {"1", "t", "T", "TRUE", "true", "True"};
    static const char *const no[] = {"0", "f", "F", "FALSE", "false", "False"};
    struct slice text = http_parameter(request, "enable");
    for (size_t i = 0; i < ARRAY_COUNT(yes); i++) {
        *enable = slice_is(text, yes[i]);
        if (*enable || slice_is(text, no[i])) return true;
    }
    if (http_has(request, "enable")) {
        http_reply_text(request, 400, "Invalid value for enable: \"%.*s\"", (int)(text.size < 100 ? text.size : 100),
                        text.data ? text.data : "");
    } else {
        http_reply_text(request, 400, "Missing value for enable");
    }
    return false;
}
