#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/config.h"
#include "agent/config_internal.h"
#include "base/check.h"
#include "registry/reconnect.h"

static struct config config;
static struct fault fault;

static void begin(void) {
    config_init(&config);
    fault = (struct fault){0};
}
static void end(void) { config_free(&config); }

TestSuite(config, .init = begin, .fini = end);

static void again(void) {
    end();
    begin();
}

static int add(const char *text) { return config_add_text(&config, "web.json", slice_text(text), &fault); }

static void must(const char *text) { cr_assert_eq(add(text), CO_OK, "%s: %s", text, fault.text); }

Test(config, defaults) {
    must("{\"data_dir\":\"/d\"}");
    cr_assert_eq(config_finish(&config, &fault), CO_OK, "%s", fault.text);
    cr_expect_not(config.server);
    cr_expect_str_eq(config.datacenter, "dc1");
    cr_expect_str_eq(config.domain, "coord");
    cr_expect_eq(config.http_port, 8500);
    cr_expect_eq(config.dns_port, 8600);
    cr_expect_eq(config.dns_tls_port, -1);
    cr_expect_eq(config.server_port, 8300);
    cr_expect_eq(config.http_addresses.count, 1);
    cr_expect_str_eq(config.http_addresses.items[0], "127.0.0.1");
    cr_expect_null(config.http_addresses.items[1]);
    cr_expect_str_eq(config.dns_addresses.items[0], "127.0.0.1");
    cr_expect_eq(config.kv_max_value_size, 512 * 1024);
    cr_expect(config.txn_max_req_len == 512 * 1024 && config.txn_max_operations == 64);
    cr_expect_eq(config.quota_priority, 5);
    cr_expect_eq(config.udp_answer_limit, 0, "no limit, unlike Consul");
    cr_expect_eq(config.http_max_conns_per_client, 200);
    cr_expect(config.parked_most[PARKED_ADDRESS] == 0 && config.parked_most[PARKED_TOKEN] == 0);
    cr_expect_eq(config.cluster_write_rate, 0);
    cr_expect(config.leave_on_terminate);
    cr_expect_not(config.skip_leave_on_interrupt);
    cr_expect_eq(config.without_effect.count, 0);
}

Test(config, dev) {
    config_dev(&config);
    cr_assert_eq(config_finish(&config, &fault), CO_OK);
    cr_expect(config.server && config.bootstrap && config.dev);
    cr_expect_str_eq(config.bind_addr, "127.0.0.1");
    cr_expect_null(config.data_dir);
    cr_expect_not(config.leave_on_terminate);
    cr_expect(config.skip_leave_on_interrupt);
}

Test(config, every_field) {
    must(
        "{\"server\":true,\"bootstrap_expect\":3,\"node_name\":\"n1\",\"datacenter\":\"DC-2\",\"domain\":\"."
        "Example.Org.\","
        "\"alt_domain\":\"alt\",\"node_id\":\"01234567-89AB-cdef-0001-0203040506ff\",\"node_meta\":{\"a\":"
        "\"1\",\"b\":\"2\"},"
        "\"bind_addr\":\"[::1]\",\"advertise_addr\":\"10.0.0.1\",\"client_addr\":\" 127.0.0.1  [::1] "
        "\",\"data_dir\":\"/d\","
        "\"addresses\":{\"http\":\"0.0.0.0\",\"dns\":\"127.0.0.2 127.0.0.3\"},"
        "\"ports\":{\"http\":0,\"dns\":-1,\"dns_tls\":853,\"server\":65535},\"log_level\":\"WARN\","
        "\"retry_join\":[\"a\",\"b:1\"],\"start_join\":[\"c\"],\"retry_interval\":\"5s\",\"retry_max\":7,"
        "\"retry_join_wan\":[\"d:2\"],\"start_join_wan\":[\"e\"],\"retry_interval_wan\":\"9s\"}");
    must(
        "{\"dns_config\":{\"node_ttl\":\"10s\",\"service_ttl\":{\"*\":\"5s\",\"web\":\"1m\"},\"udp_answer_"
        "limit\":3,"
        "\"a_record_limit\":4,\"enable_truncate\":false,\"only_passing\":true,\"allow_stale\":false,\"max_"
        "stale\":\"1h\","
        "\"soa\":{\"refresh\":1,\"retry\":2,\"expire\":3,\"min_ttl\":4}},\"recursors\":[\"1.1.1.1\"],"
        "\"limits\":{\"http_max_conns_per_client\":5,\"kv_max_value_size\":1000,\"txn_max_req_len\":2000,"
        "\"client_parked\":30,\"token_parked\":-1,\"cluster_write_rate\":50},"
        "\"performance\":{\"raft_"
        "multiplier\":2,"
        "\"leave_drain_time\":\"1s\",\"rpc_hold_timeout\":\"2s\"},\"session_ttl_min\":\"3s\",\"default_query_"
        "time\":\"1m\","
        "\"max_query_time\":\"2m\",\"reconnect_timeout\":\"8h\",\"leave_on_terminate\":true,\"skip_leave_on_"
        "interrupt\":false,"
        "\"enable_script_checks\":true,\"enable_local_script_checks\":true,\"check_output_max_size\":10,"
        "\"discard_check_output\":true,\"check_update_interval\":\"0s\",\"disable_update_check\":true}");
    must(
        "{\"disable_coordinates\":true,\"sync_coordinate_interval_min\":\"9s\",\"consul\":{\"coordinate\":{"
        "\"update_period\":\"2s\",\"update_batch_size\":64,\"update_max_batches\":3}}}");
    must(
        "{\"coord\":{\"txn_max_operations\":7,\"http_workers\":1,\"http_shards\":2,\"http_connection_memory\":3,\"http_"
        "connections_"
        "max\":4,"
        "\"http_body_max\":5,\"http_header_max\":22,\"http_idle_timeout\":\"6s\",\"http_watches_max\":7,\"http_cache_"
        "bytes\":8,"
        "\"dns_workers\":9,"
        "\"dns_tcp_connections_max\":10,\"store_map_bytes\":11,\"store_reserve_bytes\":12,\"snapshot_log_"
        "bytes\":13,"
        "\"snapshot_rate\":14,\"check_flap_limit\":15,\"check_flap_window\":\"16s\",\"self_preservation_percent\":17,"
        "\"self_preservation_instances\":18,\"self_preservation_nodes\":19,\"self_preservation_window\":\"20s\",\"self_"
        "preservation_hold\":\"21s\",\"lock_waiters_max\":23,\"lock_session_max\":24,\"lock_note_max\":25,\"quota_"
        "priority\":0,\"slow_start\":\"26s\"}}");
    cr_assert_eq(config_finish(&config, &fault), CO_OK, "%s", fault.text);
    cr_expect(config.server && !config.bootstrap && config.bootstrap_expect == 3);
    cr_expect_str_eq(config.node_name, "n1");
    cr_expect_str_eq(config.datacenter, "dc-2");
    cr_expect_str_eq(config.domain, "Example.Org");
    cr_expect_str_eq(config.alt_domain, "alt");
    cr_expect_str_eq(config.node_id, "01234567-89ab-cdef-0001-0203040506ff");
    cr_expect_eq(config.node_meta.count, 2);
    cr_expect_str_eq(config.node_meta.items[1].name, "b");
    cr_expect_str_eq(config.node_meta.items[1].value, "2");
    cr_expect_str_eq(config.bind_addr, "::1");
    cr_expect_str_eq(config.advertise_addr, "10.0.0.1");
    cr_expect_str_eq(config.client_addr, "127.0.0.1 ::1");
    cr_expect_str_eq(config.data_dir, "/d");
    cr_expect_eq(config.http_addresses.count, 1);
    cr_expect_str_eq(config.http_addresses.items[0], "0.0.0.0");
    cr_expect_eq(config.dns_addresses.count, 2);
    cr_expect_str_eq(config.dns_addresses.items[1], "127.0.0.3");
    cr_expect(config.http_port == 0 && config.dns_port == -1 && config.dns_tls_port == 853);
    cr_expect(config.server_port == 65535);
    cr_expect_str_eq(config.log_level, "WARN");
    cr_expect_eq(config.retry_join.count, 3);
    cr_expect_str_eq(config.retry_join.items[1], "b:1");
    cr_expect_str_eq(config.retry_join.items[2], "c"); /* of start_join */
    cr_expect(config.retry_join_wan.count == 2 && config.retry_interval_wan_ns == INT64_C(9000000000));
    cr_expect_str_eq(config.retry_join_wan.items[1], "e"); /* of start_join_wan */
    cr_expect(config.retry_interval_ns == 5000000000 && config.retry_max == 7);
    cr_expect_eq(config.node_ttl_ns, 10000000000);
    cr_expect_eq(config.service_ttl_count, 2);
    cr_expect_str_eq(config.service_ttls[1].name, "web");
    cr_expect_eq(config.service_ttls[1].ttl_ns, 60000000000);
    cr_expect(config.udp_answer_limit == 3 && config.a_record_limit == 4 && !config.dns_enable_truncate);
    cr_expect(config.only_passing && !config.dns_allow_stale && config.dns_max_stale_ns == 3600000000000);
    cr_expect(config.soa_refresh == 1 && config.soa_retry == 2 && config.soa_expire == 3 && config.soa_min_ttl == 4);
    cr_expect_str_eq(config.recursors.items[0], "1.1.1.1");
    cr_expect(config.http_max_conns_per_client == 5 && config.kv_max_value_size == 1000 && config.raft_multiplier == 2);
    cr_expect(config.parked_most[PARKED_ADDRESS] == 30 && config.parked_most[PARKED_TOKEN] == -1);
    cr_expect_eq(config.cluster_write_rate, 50);
    cr_expect(config.txn_max_req_len == 2000 && config.txn_max_operations == 7);
    cr_expect(config.leave_drain_time_ns == 1000000000 && config.rpc_hold_timeout_ns == 2000000000);
    cr_expect(config.session_ttl_min_ns == 3000000000 && config.default_query_time_ns == 60000000000);
    cr_expect(config.max_query_time_ns == 120000000000 && config.reconnect_timeout_ns == 28800000000000);
    cr_expect(config.leave_on_terminate && !config.skip_leave_on_interrupt);
    cr_expect(config.enable_script_checks && config.enable_local_script_checks && config.discard_check_output);
    cr_expect(config.check_output_max_size == 10 && config.check_update_interval_ns == 0 &&
              config.disable_update_check);
    cr_expect(config.disable_coordinates && config.coordinate_interval_ns == 9000000000 &&
              config.coordinate_period_ns == 2000000000 && config.coordinate_batch_size == 64 &&
              config.coordinate_batches == 3);
    cr_expect(config.http_workers == 1 && config.http_shards == 2 && config.http_connection_memory == 3);
    cr_expect(config.http_connections_max == 4 && config.http_body_max == 5 && config.http_header_max == 22 &&
              config.http_idle_timeout_ns == 6000000000);
    cr_expect(config.http_watches_max == 7 && config.http_cache_bytes == 8 && config.dns_workers == 9);
    cr_expect(config.dns_tcp_connections_max == 10 && config.store_map_bytes == 11 && config.store_reserve_bytes == 12);
    cr_expect(config.snapshot_log_bytes == 13 && config.snapshot_rate == 14);
    cr_expect(config.check_flap_limit == 15 && config.check_flap_window_ns == 16000000000);
    cr_expect_eq(config.slow_start_ns, 26000000000);
    cr_expect(config.self_preservation_percent == 17 && config.self_preservation_instances == 18 &&
              config.self_preservation_nodes == 19);
    cr_expect(config.self_preservation_window_ns == 20000000000 && config.self_preservation_hold_ns == 21000000000);
    cr_expect(config.lock_waiters_max == 23 && config.lock_session_max == 24 && config.lock_note_max == 25);
    cr_expect_eq(config.quota_priority, 0);
    /* Kept, but nobody uses them: the log says so. */
    static const char *const unused[] = {"retry_interval",       "retry_max", "dns_config.enable_truncate",
                                         "dns_config.max_stale", "recursors", "performance.leave_drain_time",
                                         "discard_check_output"};
    cr_expect_eq(config.without_effect.count, ARRAY_COUNT(unused));
    for (size_t i = 0; i < ARRAY_COUNT(unused); i++) {
        bool named = false;
        for (size_t j = 0; j < config.without_effect.count; j++)
            named |= strcmp(config.without_effect.items[j], unused[i]) == 0;
        cr_expect(named, "%s", unused[i]);
    }
}

Test(config, the_version_that_clients_are_told) {
    static const char *const versions[] = {"1.8.7", "1.10.0", "1.9.5-rc1", "1.8.7+ent"};
    cr_expect_str_eq(config.consul_version, "1.8.7");
    for (size_t i = 0; i < ARRAY_COUNT(versions); i++) {
        char text[80];
        snprintf(text, sizeof text, "{\"coord\":{\"consul_version\":\"%s\"}}", versions[i]);
        must(text);
        cr_expect_str_eq(config.consul_version, versions[i]);
    }
}

Test(config, later_wins_and_lists_append) {
    must(
        "{\"node_name\":\"a\",\"retry_join\":[\"x\"],\"node_meta\":{\"k\":\"1\",\"l\":\"2\"},\"ports\":{"
        "\"http\":1,\"dns\":2},"
        "\"dns_config\":{\"service_ttl\":{\"web\":\"1s\"}}}");
    must(
        "{\"Node_Name\":\"b\",\"retry_join\":[\"y\",\"z\"],\"node_meta\":{\"k\":\"3\"},\"PORTS\":{\"HTTP\":3}"
        ","
        "\"dns_config\":{\"service_ttl\":{\"WEB\":\"2s\"}}}");
    cr_expect_str_eq(config.node_name, "b");
    cr_expect_eq(config.retry_join.count, 3);
    cr_expect_str_eq(config.retry_join.items[0], "x");
    cr_expect_str_eq(config.retry_join.items[2], "z");
    cr_expect_null(config.retry_join.items[3]);
    cr_expect_eq(config.node_meta.count, 2);
    cr_expect_str_eq(config.node_meta.items[0].value, "3");
    cr_expect(config.http_port == 3 && config.dns_port == 2);
    cr_expect_eq(config.service_ttl_count, 1);
    cr_expect_eq(config.service_ttls[0].ttl_ns, 2000000000);
}

Test(config, long_lists) {
    struct buffer text = {0};
    buffer_append_text(&text, "{\"retry_join\":[\"h0\"");
    for (int i = 1; i < 1000; i++) buffer_printf(&text, ",\"h%d\"", i);
    buffer_append_text(&text, "]}");
    cr_assert_eq(config_add_text(&config, "f", buffer_slice(&text), &fault), CO_OK);
    cr_expect_eq(config.retry_join.count, 1000);
    for (int i = 0; i < 1000; i++) cr_assert_eq(atoi(config.retry_join.items[i] + 1), i);
    cr_expect_null(config.retry_join.items[1000]);
    buffer_free(&text);
}

Test(config, null_and_empty_are_not_given) {
    must(
        "{\"node_name\":null,\"ports\":null,\"telemetry\":null,\"services\":null,\"advertise_addr\":\"\","
        "\"node_id\":\"\","
        "\"alt_domain\":\"\",\"addresses\":{\"http\":\"\"},\"data_dir\":\"/d\"}");
    cr_assert_eq(config_finish(&config, &fault), CO_OK);
    cr_expect_null(config.node_name);
    cr_expect_null(config.node_id);
    cr_expect_null(config.alt_domain);
    cr_expect_null(config.advertise_addr);
    cr_expect_str_eq(config.http_addresses.items[0], "127.0.0.1");
    cr_expect_eq(config.without_effect.count, 0);
}

Test(config, definitions_are_kept) {
    must(
        "{\"service\":{\"name\":\"a\"},\"services\":[{\"name\":\"b\"},{\"name\":\"c\"}],\"check\":{\"id\":"
        "\"x\"},"
        "\"checks\":[{\"id\":\"y\"}]}");
    cr_assert_eq(config_add_text(&config, "more.json", SLICE_LITERAL("{\"services\":[{\"name\":\"d\"}]}"), &fault),
                 CO_OK);
    static const char *const keys[] = {"service", "services[0]", "services[1]", "services[0]"};
    cr_assert_eq(config.services.count, 4);
    for (size_t i = 0; i < 4; i++) {
        struct json_object *name;
        cr_expect_str_eq(config.services.items[i].key, keys[i]);
        cr_expect_str_eq(config.services.items[i].file, i < 3 ? "web.json" : "more.json");
        cr_assert(json_object_object_get_ex(config.services.items[i].json, "name", &name));
        cr_expect_eq(json_object_get_string(name)[0], 'a' + (int)i);
    }
    cr_expect_eq(config.checks.count, 2);
    cr_expect_str_eq(config.checks.items[1].key, "checks[0]");
}

Test(config, without_effect_is_named_once) {
    must(
        "{\"telemetry\":{\"statsd_address\":\"a:1\",\"prefix_filter\":[\"+x\"]},\"ui\":true,\"server_name\":"
        "\"x\",\"raft_protocol\":3,"
        "\"connect\":{\"enabled\":true,\"ca_config\":{\"any\":{\"thing\":1}}},\"segments\":[{\"name\":\"s\","
        "\"port\":1}],"
        "\"acl\":{\"tokens\":{\"managed_service_provider\":[{\"accessor_id\":\"a\",\"secret_id\":\"b\"}]}},"
        "\"audit\":{\"sink\":{\"My "
        "sink\":{\"type\":\"file\"}}},\"http_config\":{\"response_headers\":{\"A\":\"*\"}},"
        "\"limits\":{\"rpc_rate\":1.5},\"cache\":{\"entry_fetch_rate\":2}}");
    must("{\"ui\":false}");
    must("{\"UI\":true}");
    static const char *const names[] = {"telemetry.statsd_address",
                                        "telemetry.prefix_filter",
                                        "ui",
                                        "server_name",
                                        "raft_protocol",
                                        "connect.enabled",
                                        "connect.ca_config",
                                        "segments.[].name",
                                        "segments.[].port",
                                        "acl.tokens.managed_service_provider.[].accessor_id",
                                        "acl.tokens.managed_service_provider.[].secret_id",
                                        "audit.sink",
                                        "http_config.response_headers",
                                        "limits.rpc_rate",
                                        "cache.entry_fetch_rate"};
    cr_assert_eq(config.without_effect.count, ARRAY_COUNT(names));
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) cr_expect_str_eq(config.without_effect.items[i], names[i]);
}

/* Each line of what is refused; "" where nothing is. */
static const char *guards(void) {
    static char text[2048];
    text[0] = '\0';
    for (size_t i = 0; i < config.guard_count; i++) {
        struct buffer line = {0};
        config_guard_line(&config.guards[i], &line);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%.*s", i ? "\n" : "", (int)line.size, line.data);
        buffer_free(&line);
    }
    struct fault refused = {0};
    int error = config_require_protection(&config, &refused);
    cr_expect_eq(error, text[0] ? CO_UNSUPPORTED : CO_OK);
    cr_expect_eq(strncmp(refused.text, text, strlen(refused.text)), 0, "the fault is the first line");
    return text;
}

#define AUTO_ENCRYPT                                                                                              \
    "handing out certificates to agents that show none (`coord join` brings them in by a token, `coord tls cert " \
    "create "                                                                                                     \
    "-client` makes certificates) is not there yet"

Test(config, protection_that_is_not_there_is_refused) {
    static const struct {
        const char *text, *lines;
    } rows[] = {
        {"{\"acl_datacenter\":\"dc1\"}",
         "web.json:1:2: acl_datacenter: access control by acl_datacenter (see acl.enabled) is not there yet"},
        {"{\"acl\":{\"tokens\":{\"managed_service_provider\":[{\"secret_id\":\"s\"},{\"secret_id\":\"\"}]}}}",
         "web.json:1:48: acl.tokens.managed_service_provider.[].secret_id: tokens of managed service providers is not "
         "there yet"},
        {"{\"enable_acl_replication\":true}",
         "web.json:1:2: enable_acl_replication: copying tokens from another region is not there yet"},
        {"{\"auto_encrypt\":{\"tls\":true}}", "web.json:1:18: auto_encrypt.tls: " AUTO_ENCRYPT},
        {"{\"auto_encrypt\":{\"allow_tls\":true}}", "web.json:1:18: auto_encrypt.allow_tls: " AUTO_ENCRYPT},
        {"{\"auto_config\":{\"enabled\":true}}",
         "web.json:1:17: auto_config.enabled: bringing hosts in by JWT (see `coord join-token`) is not there yet"},
        {"{\"http_config\":{\"allow_write_http_from\":[\"127.0.0.0/8\"]}}",
         "web.json:1:42: http_config.allow_write_http_from: a limit on who may write is not there yet"},
        {"{\"http_config\":{\"block_endpoints\":[\"/v1/kv\"]}}",
         "web.json:1:36: http_config.block_endpoints: blocking of endpoints is not there yet"},
        {"{\"serf_lan_allowed_cidrs\":[\"10.0.0.0/8\",\"10.1.0.0/16\"]}",
         "web.json:1:28: serf_lan_allowed_cidrs: a limit on who may join is not there yet"},
        {"{\"serf_wan_allowed_cidrs\":[\"10.0.0.0/8\"]}",
         "web.json:1:28: serf_wan_allowed_cidrs: a limit on which regions may join is not there yet"},
        /* These protect nobody: they say no, or mean something only beside one of those above. */
        {"{\"acl\":{\"enabled\":false,\"default_policy\":\"allow\",\"down_policy\":\"deny\",\"tokens\":{\"agent\":\"\"}"
         ","
         "\"token_ttl\":\"30s\",\"enable_key_list_policy\":true,\"enable_token_persistence\":true}}",
         ""},
        {"{\"primary_datacenter\":\"dc1\",\"acl_datacenter\":null,\"acl_down_policy\":\"deny\",\"acl_token\":\"\"}",
         ""},
        /* These have an effect. */
        {"{\"acl\":{\"enabled\":true,\"default_policy\":\"Deny\",\"tokens\":{\"master\":\"s\",\"agent\":\"s\"}}}", ""},
        {"{\"audit\":{\"enabled\":true,\"file\":\"/x/y\",\"on_failure\":\"Refuse\"}}", ""},
        {"{\"acl_default_policy\":\"DENY\",\"acl_token\":\"s\",\"ACL_Master_Token\":\"s\"}", ""},
        {"{\"encrypt\":\"MDEyMzQ1Njc4OWFiY2RlZg==\",\"encrypt_verify_incoming\":true}", ""},
        {"{\"verify_incoming\":true,\"verify_outgoing\":true,\"verify_server_hostname\":true}", ""},
        {"{\"verify_incoming_rpc\":true,\"verify_incoming_https\":true}", ""},
        {"{\"tls\":{\"defaults\":{\"verify_incoming\":true,\"verify_outgoing\":true}}}", ""},
        {"{\"tls\":{\"internal_rpc\":{\"verify_incoming\":true,\"ca_file\":\"x\"},\"grpc\":{\"verify_incoming\":true}}"
         "}",
         ""},
        {"{\"encrypt\":\"\",\"encrypt_verify_incoming\":true,\"encrypt_verify_outgoing\":true}", ""},
        {"{\"verify_incoming\":false,\"verify_outgoing\":false,\"verify_server_hostname\":false}", ""},
        {"{\"ports\":{\"https\":-1},\"addresses\":{\"https\":\"0.0.0.0\"},\"tls_min_version\":\"tls12\",\"ca_file\":"
         "\"\"}",
         ""},
        {"{\"ports\":{\"https\":8501},\"cert_file\":\"c\",\"key_file\":\"k\",\"verify_incoming_https\":true}", ""},
        {"{\"ports\":{\"https\":0},\"connect\":{\"enabled\":true,\"ca_provider\":\"vault\"},\"audit\":{\"enabled\":"
         "false}}",
         ""},
        {"{\"http_config\":{\"allow_write_http_from\":[],\"block_endpoints\":[]},\"serf_wan_allowed_cidrs\":[],"
         "\"disable_remote_exec\":true}",
         ""},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        again();
        must(rows[i].text);
        cr_expect_str_eq(guards(), rows[i].lines, "%s: %s", rows[i].text, guards());
        config.insecure_ignore_security = true;
        struct fault none = {0};
        cr_expect_eq(config_require_protection(&config, &none), CO_OK);
    }
}

/* The last word on a key counts; who asked for it is named, each of them. */
Test(config, protection_may_be_taken_back_by_a_later_source) {
    must("{\"auto_config\":{\"enabled\":true},\"acl_datacenter\":\"a\",\"auto_encrypt\":{\"tls\":true}}");
    cr_assert_eq(config_add_text(&config, "z.json",
                                 slice_text("{\"acl_datacenter\":\"\",\"auto_config\":{\"enabled\":true}}"), &fault),
                 CO_OK);
    must("{\"auto_config\":{\"enabled\":true}}");
    cr_expect_str_eq(
        guards(),
        "web.json:1:17: auto_config.enabled: bringing hosts in by JWT (see `coord join-token`) is not there yet\n"
        "web.json:1:70: auto_encrypt.tls: " AUTO_ENCRYPT
        "\n"
        "z.json:1:37: auto_config.enabled: bringing hosts in by JWT (see `coord join-token`) is not there yet");
    must("{\"auto_config\":{\"enabled\":false},\"auto_encrypt\":{\"tls\":false},\"acl_datacenter\":\"b\"}");
    cr_expect_str_eq(
        guards(), "web.json:1:63: acl_datacenter: access control by acl_datacenter (see acl.enabled) is not there yet");
}

Test(config, refused) {
    static const struct {
        const char *text, *fault;
    } rows[] = {
        {"{\"data_dirr\":1}", "web.json:1:2: unknown key \"data_dirr\" (nearest: \"data_dir\")"},
        {"{\"dns_config\":{\"node_tll\":1}}",
         "web.json:1:16: unknown key \"dns_config.node_tll\" (nearest: \"dns_config.node_ttl\")"},
        {"{\"dns_confg\":{}}", "web.json:1:2: unknown key \"dns_confg\" (nearest: \"dns_config\")"},
        {"{\"udp_answer_limit\":1}",
         "web.json:1:2: unknown key \"udp_answer_limit\" (nearest: \"dns_config.udp_answer_limit\")"},
        {"{\"ports\":{\"htp\":1}}", "web.json:1:11: unknown key \"ports.htp\" (nearest: \"ports.http\")"},
        {"{\"coord\":{\"http_worker\":1}}",
         "web.json:1:11: unknown key \"coord.http_worker\" (nearest: \"coord.http_workers\")"},
        {"{\"segments\":[{\"nam\":1}]}",
         "web.json:1:15: unknown key \"segments.[].nam\" (nearest: \"segments.[].name\")"},
        {"{\"ports.http\":1}", NULL},
        {"{\"segments.[].name\":1}", NULL},
        {"{\"\":1}", NULL},
        {"{\"a\\nb\":1}", NULL},
        {"{\"ports\":{\"http\":70000}}", "web.json:1:11: ports.http: 70000 is above 65535"},
        {"{\"ports\":{\"http\":-2}}", "web.json:1:11: ports.http: -2 is not a port (-1 turns it off)"},
        {"{\"ports\":{\"http\":\"80\"}}", "web.json:1:11: ports.http: a port number is wanted"},
        {"{\"ports\":{\"http\":80.5}}", "web.json:1:11: ports.http: a port number is wanted"},
        {"{\"ports\":{\"grpc\":70000}}", "web.json:1:11: ports.grpc: 70000 is above 65535"},
        {"{\"ports\":8500}", "web.json:1:2: ports: an object is wanted"},
        {"{\"ports\":[]}", "web.json:1:2: ports: an object is wanted"},
        {"{\"server\":\"true\"}", "web.json:1:2: server: true or false is wanted"},
        {"{\"ui\":1}", "web.json:1:2: ui: true or false is wanted"},
        {"{\"node_name\":5}", "web.json:1:2: node_name: a text is wanted"},
        {"{\"node_name\":\"a\\u0000\"}", "web.json:1:2: node_name: a text is wanted"},
        {"{\"node_name\":\"a/b\"}", "web.json:1:2: node_name: \"a/b\" may hold neither / nor control characters"},
        {"{\"node_id\":\"x\"}", "web.json:1:2: node_id: \"x\" is not a UUID"},
        {"{\"datacenter\":\"a b\"}", "web.json:1:2: datacenter: \"a b\" may hold only letters, digits, - and _"},
        {"{\"datacenter\":\"\"}", NULL},
        {"{\"coord\":{\"consul_version\":\"1.8\"}}",
         "web.json:1:11: coord.consul_version: \"1.8\" is not a version as Consul's are, like 1.8.7"},
        {"{\"coord\":{\"consul_version\":\"\"}}", NULL},
        {"{\"coord\":{\"consul_version\":\"v1.8.7\"}}", NULL},
        {"{\"coord\":{\"consul_version\":\"1.8.7.1\"}}", NULL},
        {"{\"coord\":{\"consul_version\":\"1.8.7-\"}}", NULL},
        {"{\"coord\":{\"consul_version\":\"1.8.7 \\n\"}}", NULL},
        {"{\"coord\":{\"consul_version\":\"1.8.12345678901\"}}", NULL},
        {"{\"domain\":\"\"}", NULL},
        {"{\"domain\":\"a..b\"}", NULL},
        {"{\"domain\":\"a b\"}", NULL},
        {"{\"log_level\":\"loud\"}",
         "web.json:1:2: log_level: \"loud\" is not a level: trace, debug, info, warn or err"},
        {"{\"retry_interval\":\"30\"}",
         "web.json:1:2: retry_interval: \"30\" is not a duration (write it with a unit: 10s, 1m30s, 200ms)"},
        {"{\"retry_interval\":30}", "web.json:1:2: retry_interval: a text with a duration such as \"10s\" is wanted"},
        {"{\"retry_interval\":\"-30s\"}", "web.json:1:2: retry_interval: \"-30s\" is negative"},
        {"{\"retry_interval\":\"99999999h\"}", "web.json:1:2: retry_interval: \"99999999h\" is too long a duration"},
        {"{\"acl\":{\"token_ttl\":\"30\"}}", NULL},
        {"{\"acl\":{\"default_policy\":\"deny \"}}",
         "web.json:1:9: acl.default_policy: \"deny \" is not a default: allow or deny"},
        {"{\"acl\":{\"down_policy\":\"maybe\"}}", NULL},
        {"{\"bootstrap_expect\":-1}", "web.json:1:2: bootstrap_expect: -1 is negative"},
        {"{\"bootstrap_expect\":16}", "web.json:1:2: bootstrap_expect: 16 is above 15"},
        {"{\"bootstrap_expect\":18446744073709551615}", NULL},
        {"{\"coord\":{\"node_lease_ttl\":\"999ms\"}}", "web.json:1:11: coord.node_lease_ttl: \"999ms\" is below 1s"},
        {"{\"coord\":{\"lock_waiters_max\":0}}", "web.json:1:11: coord.lock_waiters_max: 0 is below 1"},
        {"{\"coord\":{\"lock_session_max\":100001}}", "web.json:1:11: coord.lock_session_max: 100001 is above 100000"},
        {"{\"coord\":{\"quota_priority\":10}}", "web.json:1:11: coord.quota_priority: 10 is above 9"},
        {"{\"coord\":{\"lock_note_max\":65537}}", "web.json:1:11: coord.lock_note_max: 65537 is above 65536"},
        {"{\"coord\":{\"node_lease_ttl\":\"25h\"}}", "web.json:1:11: coord.node_lease_ttl: \"25h\" is above 24h0m0s"},
        {"{\"performance\":{\"raft_multiplier\":11}}", "web.json:1:17: performance.raft_multiplier: 11 is above 10"},
        {"{\"limits\":{\"kv_max_value_size\":0}}", "web.json:1:12: limits.kv_max_value_size: 0 is below 1"},
        {"{\"limits\":{\"client_parked\":-2}}", "web.json:1:12: limits.client_parked: -2 is below -1"},
        {"{\"limits\":{\"txn_max_req_len\":0}}", "web.json:1:12: limits.txn_max_req_len: 0 is below 1"},
        {"{\"coord\":{\"txn_max_operations\":1025}}", "web.json:1:11: coord.txn_max_operations: 1025 is above 1024"},
        {"{\"limits\":{\"rpc_rate\":-1}}", "web.json:1:12: limits.rpc_rate: the number is negative"},
        {"{\"limits\":{\"rpc_rate\":\"1\"}}", "web.json:1:12: limits.rpc_rate: a number is wanted"},
        {"{\"dns_config\":{\"udp_answer_limit\":-1}}", "web.json:1:16: dns_config.udp_answer_limit: -1 is negative"},
        {"{\"dns_config\":{\"service_ttl\":{\"*\":\"5\"}}}", NULL},
        {"{\"dns_config\":{\"service_ttl\":{\"*\":5}}}",
         "web.json:1:31: dns_config.service_ttl: an object of durations is wanted"},
        {"{\"dns_config\":{\"soa\":{\"expire\":4294967296}}}", NULL},
        {"{\"retry_join\":\"a\"}", "web.json:1:2: retry_join: a list of texts is wanted"},
        {"{\"retry_join\":[1]}", "web.json:1:16: retry_join: a list of texts is wanted"},
        {"{\"coord\":{\"reconnect_timeouts\":{\"spot\":\"soon\"}}}",
         "web.json:1:33: coord.reconnect_timeouts: \"spot\": \"soon\" is not a duration above 0 (write it with a unit: "
         "30m, "
         "24h)"},
        {"{\"coord\":{\"reconnect_timeouts\":{\"a\":\"1m\",\"spot\":\"0s\"}}}",
         "web.json:1:42: coord.reconnect_timeouts: \"spot\": \"0s\" is not a duration above 0 (write it with a unit: "
         "30m, "
         "24h)"},
        {"{\"node_meta\":{\"reconnect_timeout\":\"-1s\"}}",
         "web.json:1:15: node_meta: \"reconnect_timeout\": \"-1s\" is not a duration above 0 (write it with a unit: "
         "30m, "
         "24h)"},
        {"{\"retry_join\":[\"provider=aws tag_key=role tag_value=consul region=eu-west-1\"]}",
         "web.json:1:16: retry_join: \"provider=aws tag_key=role tag_value=cons\" asks for cloud auto-join, which is "
         "not "
         "built in: name the servers, by address or by a DNS name of all of them (HOST or HOST:8300; in Kubernetes "
         "that "
         "of a headless service)"},
        {"{\"start_join\":[\"10.0.0.1\",\"{{ GetPrivateIP }}\"]}",
         "web.json:1:27: start_join: \"{{ GetPrivateIP }}\" is a go-sockaddr template, which is not supported: write "
         "the "
         "address itself"},
        {"{\"start_join_wan\":[\"http://a\"]}",
         "web.json:1:20: start_join_wan: \"http://a\" is a URL: write HOST or HOST:8300"},
        {"{\"retry_join_wan\":[\"tag_key=x provider=gce\"]}",
         "web.json:1:20: retry_join_wan: \"tag_key=x provider=gce\" asks for cloud auto-join, which is not built in: "
         "name "
         "the servers, by address or by a DNS name of all of them (HOST or HOST:8300; in Kubernetes that of a headless "
         "service)"},
        {"{\"retry_join\":[\"\"]}", "web.json:1:16: retry_join: an empty text is no member of this list"},
        {"{\"node_meta\":{\"a\":1}}", "web.json:1:15: node_meta: an object of texts is wanted"},
        {"{\"node_meta\":{\"a b\":\"1\"}}",
         "web.json:1:15: node_meta: \"a b\": a name may hold only letters, digits, - and _"},
        {"{\"node_meta\":{\"consul-x\":\"1\"}}",
         "web.json:1:15: node_meta: \"consul-x\": names that begin with consul- are reserved"},
        {"{\"bind_addr\":\"{{ GetPrivateIP }}\"}",
         "web.json:1:2: bind_addr: \"{{ GetPrivateIP }}\" is a go-sockaddr template, which is not supported: write the "
         "address itself"},
        {"{\"bind_addr\":\"localhost\"}", "web.json:1:2: bind_addr: \"localhost\" is not an IP address"},
        {"{\"bind_addr\":\"\"}", NULL},
        {"{\"bind_addr\":\"127.0.0.1 127.0.0.2\"}", NULL},
        {"{\"advertise_addr\":\"0.0.0.0\"}",
         "web.json:1:2: advertise_addr: \"0.0.0.0\" is no address that others can connect to"},
        {"{\"advertise_addr\":\"::\"}", NULL},
        {"{\"client_addr\":\"127.0.0.1 x\"}", NULL},
        {"{\"client_addr\":\" \"}", NULL},
        {"{\"client_addr\":\"unix:///tmp/x\"}",
         "web.json:1:2: client_addr: \"unix:///tmp/x\" is a Unix socket, which only addresses.http and "
         "addresses.https take"},
        {"{\"addresses\":{\"http\":\"127.0.0.1 {{ X }}\"}}", NULL},
        {"{\"service\":[]}", "web.json:1:2: service: an object is wanted"},
        {"{\"services\":{}}", "web.json:1:2: services: a list of objects is wanted"},
        {"{\"services\":[1]}", "web.json:1:14: services: a list of objects is wanted"},
        {"{\"segments\":1}", "web.json:1:2: segments: a list of objects is wanted"},
        {"{\"segments\":[1]}", "web.json:1:14: segments: a list of objects is wanted"},
        {"{\"watches\":1}", "web.json:1:2: watches: a list of objects is wanted"},
        {"[]", "web.json:1:1: JSON: an object is wanted"},
        {"{", NULL},
        {"", "web.json: JSON: the text is empty"},
        {"{\"server\":true,}", NULL},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        again();
        int error = add(rows[i].text);
        cr_expect_eq(error, CO_INVALID, "%s: %d", rows[i].text, error);
        cr_expect_eq(fault.code, error, "%s", rows[i].text);
        if (rows[i].fault) cr_expect_str_eq(fault.text, rows[i].fault, "%s\n  %s", rows[i].text, fault.text);
        cr_expect_eq(strncmp(fault.text, "web.json:", 9), 0, "%s", fault.text);
        for (const char *at = fault.text; *at; at++) cr_expect((unsigned char)*at >= 0x20, "%s", rows[i].text);
    }
}

/* Some editors begin a file with a byte order mark. It is no character of the text, for places neither. */
Test(config, a_byte_order_mark_is_passed_over) {
    must("\xEF\xBB\xBF{\"node_name\":\"a\"}");
    cr_expect_str_eq(config.node_name, "a");
    static const char *const rows[][2] = {
        {"\xEF\xBB\xBF{\"serve\":true}", "web.json:1:2: unknown key \"serve\" (nearest: \"server\")"},
        {"\xEF\xBB\xBF{\"server\":true]", "web.json:1:15: JSON: "},
        {"\xEF\xBB\xBF\xEF\xBB\xBF{}", "web.json:1:1: JSON: "}, /* one, not two */
        {"{} \xEF\xBB\xBF", "web.json:1:4: JSON: "},
        {"\xEF\xBB\xBF", "web.json: JSON: "},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        again();
        cr_expect_eq(add(rows[i][0]), CO_INVALID);
        cr_expect_eq(strncmp(fault.text, rows[i][1], strlen(rows[i][1])), 0, "%zu: %s", i, fault.text);
    }
}

Test(config, too_many_pairs) {
    struct buffer text = {0};
    buffer_append_text(&text, "{\"node_meta\":{\"k0\":\"\"");
    for (int i = 1; i < 65; i++) buffer_printf(&text, ",\"k%d\":\"\"", i);
    buffer_append_text(&text, "}}");
    cr_expect_eq(config_add_text(&config, "f", buffer_slice(&text), &fault), CO_INVALID);
    cr_expect_str_eq(fault.text, "f:1:581: node_meta: more than 64 pairs");
    buffer_free(&text);
}

Test(config, names_are_bounded) {
    char text[4000];
    memset(text, 'a', sizeof text);
    memcpy(text, "{\"", 2);
    memcpy(text + sizeof text - 5, "\":1}", 5);
    cr_expect_eq(add(text), CO_INVALID);
    char file[2000];
    memset(file, '/', sizeof file);
    memcpy(file + sizeof file - 9, "end.json", 9);
    fault = (struct fault){0};
    cr_expect_eq(config_add_text(&config, file, SLICE_LITERAL("{\"server\":1}"), &fault), CO_INVALID);
    cr_expect_not_null(strstr(fault.text, "end.json:1:2: server: true or false"), "%s", fault.text);
}

Test(config, whole) {
    static const struct {
        const char *text;
        bool dev;
        const char *fault; /* NULL: fine */
    } rows[] = {
        {"{}", false, "data_dir: must be given (-data-dir), unless -dev is"},
        {"{}", true, NULL},
        {"{\"data_dir\":\"d\",\"server\":true}", false, NULL},
        {"{\"data_dir\":\"d\",\"bootstrap_expect\":1}", false, "bootstrap_expect: only for a server (-server)"},
        {"{\"data_dir\":\"d\",\"bootstrap\":true}", false, "bootstrap: only for a server (-server)"},
        {"{\"data_dir\":\"d\",\"server\":true,\"bootstrap\":true,\"bootstrap_expect\":3}", false,
         "bootstrap: not together with bootstrap_expect"},
        {"{\"bootstrap_expect\":3}", true, "bootstrap_expect: not together with -dev, which is a cluster of one"},
        {"{\"bootstrap\":true}", true, "bootstrap: not together with -dev, which is a cluster of one"},
        {"{\"coord\":{\"reconnect_timeouts\":{\"spot\":\"10m\"}},\"node_meta\":{\"class\":\"spot\",\"reconnect_"
         "timeout\":\"1h\"}}",
         true, NULL},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        again();
        if (rows[i].dev) config_dev(&config);
        must(rows[i].text);
        int error = config_finish(&config, &fault);
        cr_expect_eq(error, rows[i].fault ? CO_INVALID : CO_OK, "%s", rows[i].text);
        cr_expect_str_eq(fault.text, rows[i].fault ? rows[i].fault : "", "%s: %s", rows[i].text, fault.text);
    }
}

Test(config, derived) {
    must(
        "{\"data_dir\":\"d\",\"server\":true,\"bootstrap_expect\":1,\"max_query_time\":\"1m\",\"alt_domain\":"
        "\"COORD\","
        "\"performance\":{\"raft_multiplier\":0}}");
    cr_assert_eq(config_finish(&config, &fault), CO_OK);
    cr_expect(config.bootstrap);
    cr_expect_eq(config.default_query_time_ns, config.max_query_time_ns);
    cr_expect_null(config.alt_domain);
    cr_expect_eq(config.raft_multiplier, 1);
    again();
    must(
        "{\"data_dir\":\"d\",\"reconnect_timeout\":\"0s\",\"coord\":{\"reconnect_timeouts\":{\"spot\":\"10m\",\"edge\":"
        "\"1h\"}}}");
    cr_assert_eq(config_finish(&config, &fault), CO_OK, "%s", fault.text);
    cr_expect_eq(config.reconnect_timeout_ns, 72 * 3600 * INT64_C(1000000000), "as Consul takes it");
    cr_assert_eq(config.reconnect_timeouts.count, 2);
    cr_expect_str_eq(config.reconnect_classes[1].name, "edge");
    cr_expect_eq(config.reconnect_classes[0].timeout_ns, 600 * INT64_C(1000000000));
    cr_expect_eq(config.reconnect_classes[1].timeout_ns, 3600 * INT64_C(1000000000));
}

static void write_file(const char *folder, const char *name, const char *text) {
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

Test(config, files) {
    char folder[] = "/tmp/coord-config-XXXXXX", path[100];
    cr_assert_not_null(mkdtemp(folder));
    write_file(folder, "20.json", "{\"node_name\":\"late\",\"retry_join\":[\"b\"]}");
    write_file(folder, "10.json", "{\"node_name\":\"early\",\"retry_join\":[\"a\"]}");
    write_file(folder, "readme.txt", "not read");
    write_file(folder, ".30.json", "not read either");
    snprintf(path, sizeof path, "%s/40.json", folder);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(config_add_path(&config, folder, &fault), CO_OK, "%s", fault.text);
    cr_expect_str_eq(config.node_name, "late");
    cr_expect_str_eq(config.retry_join.items[0], "a");
    rmdir(path);

    snprintf(path, sizeof path, "%s/plain", folder);
    write_file(folder, "plain", "{\"node_name\":\"x\"}");
    cr_expect_eq(config_add_path(&config, path, &fault), CO_OK);
    cr_expect_str_eq(config.node_name, "x");
    unlink(path);

    write_file(folder, "30.json", "{\"node_nam\":\"x\"}");
    cr_expect_eq(config_add_path(&config, folder, &fault), CO_INVALID);
    cr_expect_not_null(strstr(fault.text, "/30.json:1:2: unknown key \"node_nam\" (nearest: \"node_name\")"), "%s",
                       fault.text);

    fault = (struct fault){0};
    write_file(folder, "05.hcl", "a = 1");
    cr_expect_eq(config_add_path(&config, folder, &fault), CO_UNSUPPORTED);
    cr_expect_not_null(strstr(fault.text, "HCL is not supported"), "%s", fault.text);

    fault = (struct fault){0};
    snprintf(path, sizeof path, "%s/none.json", folder);
    cr_expect_eq(config_add_path(&config, path, &fault), CO_NOTFOUND);
    cr_expect_not_null(strstr(fault.text, "/none.json: No such file or directory"), "%s", fault.text);

    static const char *const names[] = {"05.hcl", "10.json", "20.json", "30.json", "readme.txt", ".30.json"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    cr_expect_eq(rmdir(folder), 0);
}

Test(config, keys_that_stand_twice) {
    static const char *const rows[] = {
        "{\"node_name\":\"a\",\"node_name\":\"a\"}",
        "{\"node_name\":\"a\",\"Node_Name\":\"a\"}",
        "{\"ports\":{\"http\":1,\"dns\":2,\"HTTP\":3}}",
        "{\"service\":{\"name\":\"a\",\"name\":\"b\"}}",
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        again();
        cr_expect_eq(add(rows[i]), CO_INVALID, "%s", rows[i]);
        cr_expect(strncmp(fault.text, "web.json:1:", 11) == 0, "%s", fault.text);
    }
    again();
    must("{\"node_meta\":{\"a\":\"1\",\"A\":\"2\"},\"services\":[{\"name\":\"a\"},{\"name\":\"b\"}]}");
}

/* Two typos of a file, one of another, one that is no JSON, a flag's: each with its place, in the order read. */
Test(config, all_mistakes_are_told_at_once) {
    static const char *const wanted[] = {
        "a.json:2:3: unknown key \"data_dirr\" (nearest: \"data_dir\")",
        "a.json:4:13: ports.http: 70000 is above 65535",
        "a.json:4:28: unknown key \"ports.dnss\" (nearest: \"ports.dns\")",
        "a.json:5:18: retry_join: \"h:99999\" is not an address",
        "a.json:6:8: retry_join: an empty text is no member of this list",
        "a.json:7:17: unknown key \"segments.[].nam\" (nearest: \"segments.[].name\")",
        "b.json:2:18: JSON: boolean expected",
        "c.json:1:24: unknown key \"portz\" (nearest: \"ports\")",
        "-bind: \"zz\" is not an IP address",
    };
    cr_expect_eq(config_add_text(&config, "a.json",
                                 SLICE_LITERAL("{\n"
                                               "  \"data_dirr\": \"/x\",\n"
                                               "  \"node_name\": \"größe\",\n"
                                               "  \"ports\": {\"http\": 70000, \"dnss\": 1},\n"
                                               "  \"retry_join\": [\"h:99999\",\n"
                                               "       \"\"],\n"
                                               "  \"segments\": [{\"nam\": \"x\"}]\n"
                                               "}\n"),
                                 &fault),
                 CO_INVALID);
    cr_expect_eq(config_add_text(&config, "b.json", SLICE_LITERAL("{\n \"server\":    tru\n}"), &fault), CO_INVALID);
    cr_expect_eq(config_add_text(&config, "c.json", SLICE_LITERAL("{\"node_name\": \"größe\", \"portz\": {}}"), &fault),
                 CO_INVALID);
    cr_expect_eq(config_set(&config, "-bind", "bind_addr", SLICE_LITERAL("zz"), &fault), CO_INVALID);
    cr_expect_eq(config_finish(&config, &fault), CO_INVALID);
    cr_expect_eq(config.errors.count, ARRAY_COUNT(wanted));
    for (size_t i = 0; i < config.errors.count && i < ARRAY_COUNT(wanted); i++)
        cr_expect_str_eq(config.errors.items[i], wanted[i], "%s", config.errors.items[i]);
    cr_expect_str_eq(fault.text, wanted[0]);
    cr_expect(config.unread);
    cr_expect_eq(config.more_errors, 0u);
}

/* A fault that only follows from a mistake is not reported beside it: data_dir is there, as data_dirr. */
Test(config, what_follows_from_a_mistake_is_not_told) {
    cr_expect_eq(add("{\"data_dirr\": \"/x\"}"), CO_INVALID);
    cr_expect_eq(config_finish(&config, &fault), CO_INVALID);
    cr_expect_eq(config.errors.count, 1u);
    again();
    cr_expect_eq(config_finish(&config, &fault), CO_INVALID);
    cr_expect_str_eq(fault.text, "data_dir: must be given (-data-dir), unless -dev is");
}

Test(config, mistakes_are_bounded) {
    struct buffer text = {0};
    for (int i = 0; i < 50; i++) buffer_printf(&text, "%s\"no_%d\":1", i ? "," : "{", i);
    buffer_append_byte(&text, '}');
    cr_expect_eq(config_add_text(&config, "f", buffer_slice(&text), &fault), CO_INVALID);
    cr_expect_eq(config.errors.count, (size_t)CONFIG_ERRORS_MAX);
    cr_expect_eq(config.more_errors, 50u - CONFIG_ERRORS_MAX);
    buffer_free(&text);
}

Test(config, what_only_consul_has_is_said_so) {
    cr_expect_eq(add("{\"xds\":{},\"ui_config\":{},\"connect\":{\"virtual_ip_cidr_v4\":"
                     "\"x\"}}"),
                 CO_INVALID);
    cr_assert_eq(config.errors.count, 3u);
    cr_expect_str_eq(
        config.errors.items[0],
        "web.json:1:2: Consul's `xds`; coord does not have it: there is no service mesh; see docs/divergence.md");
    cr_expect_not_null(strstr(config.errors.items[1], "Consul's `ui_config`"));
    cr_expect_not_null(strstr(config.errors.items[2], "Consul's `connect.virtual_ip_cidr_v4`"));
}

/* Keys that a reload cannot change, of every kind; those that it can are not named. */
Test(config, what_counts_only_after_a_restart) {
    static const char *const wanted[] = {
        "node_meta: {\"rack\": \"b\"} counts after a restart; it is {\"rack\": \"a\"} until then",
        "datacenter: \"dc2\" counts after a restart; it is \"dc1\" until then",
        "advertise_addr: \"10.0.0.1\" counts after a restart; it is not given until then",
        "ports.dns: -1 counts after a restart; it is 8600 until then",
        "retry_join: [\"a\", \"c\"] counts after a restart; it is [\"a\", \"b\"] until then",
        "dns_config.service_ttl: {\"web\": \"5s\"} counts after a restart; it is {} until then",
        "enable_script_checks: true counts after a restart; it is false until then",
        "check_update_interval: \"1m0s\" counts after a restart; it is \"5m0s\" until then",
        "log_rotate_max_files: -1 counts after a restart; it is 0 until then",
    };
    struct config before;
    struct config_texts lines;
    config_init(&before);
    cr_assert_eq(config_add_text(
                     &before, "f",
                     SLICE_LITERAL("{\"data_dir\":\"/x\",\"retry_join\":[\"a\",\"b\"],\"node_meta\":{\"rack\":\"a\"},"
                                   "\"service\":{\"name\":\"x\"},\"ui\":true,\"start_join\":[\"z\"]}"),
                     &fault),
                 CO_OK);
    must(
        "{\"data_dir\":\"/x\",\"retry_join\":[\"a\",\"c\"],\"node_meta\":{\"rack\":\"b\"},\"datacenter\":\"dc2\","
        "\"ports\":{\"dns\":-1},\"log_level\":\"debug\",\"advertise_addr\":\"10.0.0.1\",\"start_join\":[\"z\"],"
        "\"dns_config\":{\"service_ttl\":{\"web\":\"5s\"}},\"enable_script_checks\":true,"
        "\"check_update_interval\":\"60s\",\"log_rotate_max_files\":-1}");
    cr_assert_eq(config_finish(&before, &fault), CO_OK, "%s", fault.text);
    cr_assert_eq(config_finish(&config, &fault), CO_OK, "%s", fault.text);
    config_differences(&before, &config, &lines);
    cr_expect_eq(lines.count, ARRAY_COUNT(wanted));
    for (size_t i = 0; i < lines.count && i < ARRAY_COUNT(wanted); i++)
        cr_expect_str_eq(lines.items[i], wanted[i], "%s", lines.items[i]);
    config_differences(&before, &before, &lines);
    cr_expect_eq(lines.count, 0u);
    config_free(&before);
}

Test(config, no_key_stands_twice_in_the_table) {
    for (const struct key *key = config_keys; key->path; key++)
        for (const struct key *other = config_keys; other < key; other++)
            cr_expect_str_neq(key->path, other->path, "%s", key->path);
}
