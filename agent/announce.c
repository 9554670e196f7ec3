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

void announce_agent(const struct config *c, const struct identity *identity, const Pb__Node *node,
                    const struct http_server *http, const struct dns_server *dns) {
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
    for (size_t i = 0; i < c->http_addresses.count; i++) {
        log_info("agent", "http address=%s port=%u", c->http_addresses.items[i], http ? http_port(http) : 0u);
        if (!is_loopback(c->http_addresses.items[i]))
            log_warn("agent",
                     "the HTTP API listens beyond loopback without TLS and ACLs: everybody who reaches %s "
                     "can change everything",
                     c->http_addresses.items[i]);
    }
    for (size_t i = 0; i < c->dns_addresses.count; i++)
        log_info("agent", "dns address=%s port=%u domain=%s", c->dns_addresses.items[i], dns ? dns_port(dns) : 0u,
                 c->domain);
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
