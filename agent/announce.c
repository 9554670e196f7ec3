#include "agent/announce.h"

#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "base/log.h"
#include "base/metrics.h"
#include "registry/undiscoverable.h"

static bool is_loopback(const char *address) {
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0 || strncmp(address, "unix:", 5) == 0;
}

static void announce_address(const char *scheme, const char *address, uint16_t port) {
    if (strncmp(address, "unix:", 5) == 0) log_info("agent", "%s address=%s", scheme, address);
    else log_info("agent", "%s address=%s port=%u", scheme, address, port);
}

static void announce_http(const struct config *c, const struct http_server *http) {
    for (size_t i = 0; i < c->http_addresses.count; i++) {
        announce_address("http", c->http_addresses.items[i], http ? http_port(http) : 0);
        if (!is_loopback(c->http_addresses.items[i]))
            log_warn("agent",
                     "the HTTP API listens beyond loopback without TLS and ACLs: everybody who reaches %s "
                     "can change everything",
                     c->http_addresses.items[i]);
    }
    for (size_t i = 0; i < c->https_addresses.count; i++)
        announce_address("https", c->https_addresses.items[i], http ? https_port(http) : 0);
}

static void list_addresses(struct buffer *out, const char *name, const struct config_texts *addresses) {
    if (!addresses->count) return;
    buffer_printf(out, "%s%s", out->size ? "; " : "", name);
    for (size_t i = 0; i < addresses->count; i++) buffer_printf(out, " %s", addresses->items[i]);
}

#define AMONG "servers and agents among themselves"

/* A client agent only makes connections. */
static void list_port(const struct config *c, struct buffer *safe, struct buffer *open, struct security *security) {
    static const char *const ways[] = {[SECURITY_SHARED_KEY] = "by the key of encrypt",
                                       [SECURITY_OWN_CA] = "by certificates of your CA",
                                       [SECURITY_CLUSTER] = "by the cluster's certificates"};
    struct security_rules rules;
    security_get(security, &rules);
    bool may = rules.kind != SECURITY_OPEN;
    if (!may || (rules.dials_plain && (rules.takes_plain || !c->server))) {
        buffer_printf(open, "%s" AMONG "%s", open->size ? "; " : "", may ? " (encryption is not required)" : "");
        return;
    }
    buffer_printf(safe, "%s" AMONG " (%s%s)", safe->size ? "; " : "", ways[rules.kind],
                  rules.dials_plain ? ", but this side makes plain connections" : "");
    if (rules.takes_plain && c->server)
        buffer_printf(open, "%sthose " AMONG " that have no %s yet", open->size ? "; " : "",
                      rules.kind == SECURITY_SHARED_KEY ? "key" : "certificate");
}

void announce_protected(const struct config *c, struct security *security, struct buffer *safe, struct buffer *open) {
    list_addresses(safe, "HTTPS on", &c->https_addresses);
    if (c->https_addresses.count)
        buffer_append_text(
            safe, c->tls_https.verify_incoming ? " (clients need a certificate)" : " (every client is served)");
    if (c->dns_tls_port >= 0) {
        list_addresses(safe, "DNS over TLS on", &c->dns_addresses);
        buffer_append_text(safe, " (every client is answered)");
    }
    list_addresses(open, "HTTP on", &c->http_addresses);
    bool alone = c->dev || c->server_port < 0;
    if (!alone) list_port(c, safe, open, security);
    if (c->dns_port >= 0) list_addresses(open, "DNS on", &c->dns_addresses);
    if (!safe->size) buffer_append_text(safe, "nothing");
    if (!open->size) buffer_append_text(open, "nothing");
}

void announce_protection(const struct config *c, struct security *security, struct buffer *line) {
    struct buffer safe = {0}, open = {0};
    announce_protected(c, security, &safe, &open);
    buffer_printf(line, "protected by TLS: %.*s | not protected: %.*s", (int)safe.size, safe.data, (int)open.size,
                  open.data);
    buffer_free(&safe);
    buffer_free(&open);
}

static void log_protection(const struct config *c, struct security *security) {
    struct buffer line = {0};
    struct security_rules rules;
    security_get(security, &rules);
    announce_protection(c, security, &line);
    log_info("agent", "%.*s", (int)line.size, line.data);
    buffer_free(&line);
    const struct config_tls *all = &c->tls_defaults;
    if (!c->https_addresses.count && c->dns_tls_port < 0 && rules.kind != SECURITY_OWN_CA &&
        (all->cert_file || all->ca_file || all->ca_path))
        log_warn(
            "agent",
            "cert_file, key_file, ca_file and ca_path protect nothing: ports.https and ports.dns_tls are off, and %s",
            rules.kind == SECURITY_OPEN ? "verify_outgoing is, too"
                                        : "servers and agents among themselves are protected in another way");
}

void announce_agent(const struct config *c, struct security *security, const struct identity *identity,
                    const Pb__Node *node, const struct http_server *http, const struct dns_server *dns) {
    undiscoverable_log(identity->node_name, node, NULL);
    log_info("agent", "coord %s node=%s id=%s datacenter=%s data=%s", COORD_VERSION, identity->node_name,
             identity->node_id, c->datacenter, identity->data_dir);
    for (size_t i = 0; i < c->without_effect.count; i++)
        log_warn("config", "known, but without effect in this version key=%s", c->without_effect.items[i]);
    config_guards_log(c);
    if (c->server && !c->bootstrap && (c->leave_on_terminate || !c->skip_leave_on_interrupt))
        log_warn("agent",
                 "%s takes this server out of the cluster (%s), and it comes back with an empty data folder only",
                 c->leave_on_terminate ? "SIGTERM" : "SIGINT",
                 c->leave_on_terminate ? "leave_on_terminate" : "skip_leave_on_interrupt is false");
    announce_http(c, http);
    for (size_t i = 0; i < c->dns_addresses.count && c->dns_port >= 0; i++)
        log_info("agent", "dns address=%s port=%u domain=%s", c->dns_addresses.items[i], dns ? dns_port(dns) : 0u,
                 c->domain);
    for (size_t i = 0; i < c->dns_addresses.count && c->dns_tls_port >= 0; i++)
        log_info("agent", "dns over tls address=%s port=%u domain=%s", c->dns_addresses.items[i],
                 dns ? dns_tls_port(dns) : 0u, c->domain);
    log_protection(c, security);
}

static char build_labels[160] = "version=\"\",consul_version=\"\"";
METRIC build_info = {.name = "coord_build_info",
                     .help = "Always 1: the program's version, and the API level that clients are told",
                     .labels = build_labels,
                     .type = METRIC_GAUGE};

void announce_build(const struct config *config) {
    snprintf(build_labels, sizeof build_labels, "version=\"%s\",consul_version=\"%s\"", COORD_VERSION,
             config->consul_version);
    metric_set(&build_info, 1);
    metric_register(&build_info);
}
