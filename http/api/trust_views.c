#include "http/api/trust_views.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/check.h"

/* -- asking a server ---------------------------------------------------------------------------------------------- */
struct asking {
    struct http_call call;
    struct rpc_trust trust;
    http_trust_view view;
    const void *context;
};

/* Loop thread. */
static void answered(struct rpc_trust *trust, int error) {
    http_called(&CONTAINER_OF(trust, struct asking, trust)->call, error);
}

static void view(struct http_request *request, struct http_call *call, int error) {
    struct asking *asking = CONTAINER_OF(call, struct asking, call);
    asking->view(request, error, &asking->trust, asking->context);
    explicit_bzero(asking->trust.text, sizeof asking->trust.text);
}

static void drop(struct http_call *call, int error) {
    struct asking *asking = CONTAINER_OF(call, struct asking, call);
    (void)error;
    explicit_bzero(asking->trust.text, sizeof asking->trust.text);
}

void http_ask_trust(struct http_request *request, const struct rpc_trust *ask, http_trust_view shown,
                    const void *context) {
    struct asking *asking = arena_zalloc(http_arena(request), sizeof *asking);
    asking->trust = *ask;
    asking->trust.done = answered;
    asking->view = shown, asking->context = context;
    asking->call.view = view, asking->call.drop = drop;
    http_call(request, &asking->call);
    asking->trust.requester = http_requester(request);
    rpc_trust(http_env(request)->rpc, &asking->trust);
}

void http_refuse_trust(struct http_request *request, int error, const struct rpc_trust *trust) {
    struct fault fault = {.code = error == CO_AGAIN ? CO_CLOSED : error}; /* asked again later it succeeds: 503 */
    snprintf(fault.text, sizeof fault.text, "%.*s", (int)sizeof fault.text - 1, trust->text);
    if (error == CO_NOLEADER || error == CO_UNKNOWN_OUTCOME) http_reply_error(request, error);
    else http_reply_fault(request, &fault);
}

/* -- texts ---------------------------------------------------------------------------------------------------------- */
const char *trust_time_text(struct arena *arena, int64_t unix_s) {
    char text[32];
    struct tm utc;
    time_t seconds = (time_t)unix_s;
    if (!gmtime_r(&seconds, &utc) || !strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc)) return "";
    return arena_strndup(arena, text, strlen(text));
}

const char *trust_pin_text(struct arena *arena, struct slice pin) {
    static const char digits[] = "0123456789abcdef";
    char *text = arena_alloc(arena, 2 * pin.size + 1);
    for (size_t i = 0; i < pin.size; i++) {
        text[2 * i] = digits[(uint8_t)pin.data[i] >> 4];
        text[2 * i + 1] = digits[(uint8_t)pin.data[i] & 15];
    }
    text[2 * pin.size] = '\0';
    return text;
}

/* -- certificates --------------------------------------------------------------------------------------------------- */
int64_t trust_renews_s(const Pb__CertificateInfo *info) { return info->from_s + (info->to_s - info->from_s) / 2; }

const char *trust_state(const Pb__NodeCertificate *record, int64_t now_s) {
    if (record->removed) return "removed";
    if (now_s > record->now->to_s) return "expired";
    return now_s >= trust_renews_s(record->now) ? "renewal-due" : "valid";
}

static int compare(bool server, const char *node, const Pb__CertificateInfo *info) {
    if (server != info->server) return server ? 1 : -1;
    return strcasecmp(node, info->node);
}

static int by_name(const void *left, const void *right) {
    const Pb__CertificateInfo *a = (*(const Pb__NodeCertificate *const *)left)->now;
    return compare(a->server, a->node, (*(const Pb__NodeCertificate *const *)right)->now);
}

struct trust_names trust_names_of(struct arena *arena, const Pb__CertificatesResult *all) {
    struct trust_names names = {arena_alloc(arena, (all->n_certificates + 1) * sizeof *names.records), 0};
    for (size_t i = 0; i < all->n_certificates; i++)
        if (all->certificates[i]->now && !all->certificates[i]->removed)
            names.records[names.count++] = all->certificates[i];
    qsort(names.records, names.count, sizeof *names.records, by_name);
    return names;
}

bool trust_has(const struct trust_names *names, bool server, const char *node) {
    size_t from = 0, to = names->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        int order = compare(server, node, names->records[middle]->now);
        if (order == 0) return true;
        if (order < 0) to = middle;
        else from = middle + 1;
    }
    return false;
}
