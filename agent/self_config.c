#include "agent/self_config.h"

#include <stdio.h>
#include <string.h>

#include "agent/config.h"
#include "base/text.h"

static void texts(struct json_out *json, const struct config_texts *list) {
    json_array(json);
    for (size_t i = 0; i < list->count; i++) json_string(json, list->items[i]);
    json_array_end(json);
}

/* Writes listeners in Consul's form, because Nomad reads them: "tcp://127.0.0.1:8500". */
static void listeners(struct json_out *json, const char *scheme, const struct config_texts *addresses, int64_t port) {
    for (size_t i = 0; i < addresses->count; i++) {
        const char *address = addresses->items[i];
        char text[160];
        if (strncmp(address, "unix://", 7) == 0) {
            json_string(json, address);
            continue;
        }
        snprintf(text, sizeof text, strchr(address, ':') ? "%s://[%s]:%lld" : "%s://%s:%lld", scheme, address,
                 (long long)port);
        json_string(json, text);
    }
}

static void duration(struct json_out *json, const char *key, int64_t nanoseconds) {
    struct buffer text = {0};
    duration_format(&text, nanoseconds);
    buffer_append_byte(&text, '\0');
    json_key_raw(json, key, strlen(key));
    json_string(json, text.data);
    buffer_free(&text);
}

static void domain(struct json_out *json, const char *key, const char *name) {
    char text[260] = "";
    if (name) snprintf(text, sizeof text, "%s.", name);
    json_key_raw(json, key, strlen(key));
    json_string(json, text);
}

/* Names and types are Consul's, because clients decode them. */
void self_config_write(void *data, struct json_out *json, bool debug) {
    const struct config *c = data;
    if (!debug) return;
    json_key(json, "ACLsEnabled"), json_bool(json, false);
    json_key(json, "AdvertiseAddrLAN"), json_string(json, c->advertise_addr ? c->advertise_addr : c->bind_addr);
    json_key(json, "BindAddr"), json_string(json, c->bind_addr);
    json_key(json, "Bootstrap"), json_bool(json, c->bootstrap);
    json_key(json, "BootstrapExpect"), json_u64(json, c->bootstrap_expect);
    duration(json, "CheckUpdateInterval", c->check_update_interval_ns);
    json_key(json, "ClientAddrs"), texts(json, &c->http_addresses);
    json_key(json, "ConnectEnabled"), json_bool(json, false);
    json_key(json, "DNSAddrs"), json_array(json);
    if (c->dns_port >= 0) listeners(json, "tcp", &c->dns_addresses, c->dns_port);
    if (c->dns_port >= 0) listeners(json, "udp", &c->dns_addresses, c->dns_port);
    json_array_end(json);
    domain(json, "DNSAltDomain", c->alt_domain);
    domain(json, "DNSDomain", c->domain);
    json_key(json, "DNSPort"), json_i64(json, c->dns_port);
    json_key(json, "DataDir"), json_string(json, c->data_dir ? c->data_dir : "");
    json_key(json, "Datacenter"), json_string(json, c->datacenter);
    json_key(json, "DevMode"), json_bool(json, c->dev);
    json_key(json, "GRPCPort"), json_i64(json, -1);
    json_key(json, "HTTPAddrs"), json_array(json);
    listeners(json, "tcp", &c->http_addresses, c->http_port);
    json_array_end(json);
    json_key(json, "HTTPMaxConnsPerClient"), json_u64(json, c->http_max_conns_per_client);
    json_key(json, "HTTPPort"), json_i64(json, c->http_port);
    json_key(json, "HTTPSAddrs"), json_array(json);
    listeners(json, "tcp", &c->https_addresses, c->https_port);
    json_array_end(json);
    duration(json, "HTTPSHandshakeTimeout", c->https_handshake_timeout_ns);
    json_key(json, "HTTPSPort"), json_i64(json, c->https_port);
    json_key(json, "KVMaxValueSize"), json_u64(json, c->kv_max_value_size);
    json_key(json, "LogLevel"), json_string(json, c->log_level);
    json_key(json, "NodeName"), json_string(json, c->node_name);
    json_key(json, "RetryJoinLAN"), texts(json, &c->retry_join);
    json_key(json, "RetryJoinWAN"), texts(json, &c->retry_join_wan);
    json_key(json, "Revision"), json_string(json, "");
    json_key(json, "SegmentName"), json_string(json, "");
    json_key(json, "ServerMode"), json_bool(json, c->server);
    json_key(json, "ServerPort"), json_i64(json, c->server_port);
    duration(json, "SessionTTLMin", c->session_ttl_min_ns);
    json_key(json, "SkipLeaveOnInt"), json_bool(json, c->skip_leave_on_interrupt);
    json_key(json, "LeaveOnTerm"), json_bool(json, c->leave_on_terminate);
    json_key(json, "Version"), json_string(json, c->consul_version);
}
