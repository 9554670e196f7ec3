/* Warns before a certificate of this process ends: its node certificate, the CAs of the cluster, the certificate of
 * HTTPS, and one of its own CA for connections with other processes. Every few seconds it sets the gauges coord_certificate_expires_seconds, logs a line when a certificate has come
 * nearer to its end than a threshold, and keeps the node's check "certificate" current, which is passing, warning or
 * critical.
 *
 * Somebody else's certificate is judged by the days that are left (telemetry.certificate). One of the cluster renews
 * itself from half of its life on: for that it is a warning when less than a third is left, and critical when less than
 * a tenth is left, or when the node cannot renew it at all. */
#ifndef COORD_AGENT_CERTIFICATE_WATCH_H
#define COORD_AGENT_CERTIFICATE_WATCH_H

#include <uv.h>

#include "agent/certificates.h"
#include "agent/cluster_identity.h"
#include "agent/config.h"
#include "health/local.h"
#include "http/http.h"

/* Pure. */
struct certificate_thresholds {
    int64_t info_days, warning_days, critical_days;
};
enum http_certificate_severity certificate_severity(const struct certificate_thresholds *thresholds,
                                                    const struct http_certificate *certificate, int64_t now_s);

struct certificate_watch_config {
    const struct config *config; /* outlives it, as what follows */
    const char *node;
    struct security *security;
    struct certificates *certificates;     /* NULL: no HTTPS */
    struct certificates *rpc_certificates; /* of one's own, for connections with other processes; NULL: none */
    struct cluster_identity *cluster_identity;
    struct local *local; /* NULL: no check, for tests */
};

struct certificate_watch;
/* Loop thread; looks at once. Copies the config. */
struct certificate_watch *certificate_watch_start(uv_loop_t *loop, const struct certificate_watch_config *config);
/* `stopped` is called from the loop, when it is freed. NULL: calls it at once. */
void certificate_watch_stop(struct certificate_watch *watch, void (*stopped)(void *data), void *data);

/* For http_env.protection. Any thread; `data`: struct certificate_watch. */
void certificate_watch_protection(void *data, struct http_protection *protection);

#endif
