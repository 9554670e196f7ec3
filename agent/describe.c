#include "agent/describe.h"

#include "agent/config.h"

static void texts(struct json_out *json, const struct config_texts *list) {
    json_array(json);
    for (size_t i = 0; i < list->count; i++) json_string(json, list->items[i]);
    json_array_end(json);
}

void describe_config(void *data, struct json_out *json, bool debug) {
    const struct config *c = data;
    if (!debug) return;
    json_key(json, "ACLsEnabled"), json_bool(json, false);
    json_key(json, "AdvertiseAddrLAN"), json_string(json, c->advertise_addr ? c->advertise_addr : c->bind_addr);
    json_key(json, "BindAddr"), json_string(json, c->bind_addr);
    json_key(json, "BootstrapExpect"), json_u64(json, c->bootstrap_expect);
    json_key(json, "CheckUpdateInterval"), json_i64(json, c->check_update_interval_ns);
    json_key(json, "ClientAddrs"), texts(json, &c->http_addresses);
    json_key(json, "DNSAddrs"), texts(json, &c->dns_addresses);
    json_key(json, "DNSDomain"), json_string(json, c->domain);
    json_key(json, "DNSPort"), json_i64(json, c->dns_port);
    json_key(json, "DataDir"), json_string(json, c->data_dir);
    json_key(json, "Datacenter"), json_string(json, c->datacenter);
    json_key(json, "DevMode"), json_bool(json, c->dev);
    json_key(json, "HTTPAddrs"), texts(json, &c->http_addresses);
    json_key(json, "HTTPMaxConnsPerClient"), json_u64(json, c->http_max_conns_per_client);
    json_key(json, "HTTPPort"), json_i64(json, c->http_port);
    json_key(json, "KVMaxValueSize"), json_u64(json, c->kv_max_value_size);
    json_key(json, "LogLevel"), json_string(json, c->log_level);
    json_key(json, "NodeName"), json_string(json, c->node_name);
    json_key(json, "RetryJoinLAN"), texts(json, &c->retry_join);
    json_key(json, "ServerMode"), json_bool(json, c->server);
    json_key(json, "ServerPort"), json_i64(json, c->server_port);
    json_key(json, "SessionTTLMin"), json_i64(json, c->session_ttl_min_ns);
    json_key(json, "SkipLeaveOnInt"), json_bool(json, c->skip_leave_on_interrupt);
    json_key(json, "LeaveOnTerm"), json_bool(json, c->leave_on_terminate);
}
