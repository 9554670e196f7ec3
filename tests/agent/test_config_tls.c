/* Keys of the configuration about TLS and shared keys. */
#include <criterion/criterion.h>
#include <string.h>

#include "agent/config.h"
#include "base/check.h"

static struct config config;
static struct fault fault;

static void begin(void) {
    config_init(&config);
    fault = (struct fault){0};
}
static void end(void) { config_free(&config); }

TestSuite(config_tls, .init = begin, .fini = end);

static void again(void) {
    end();
    begin();
}

static void must(const char *text) {
    cr_assert_eq(config_add_text(&config, "web.json", slice_text(text), &fault), CO_OK, "%s: %s", text, fault.text);
}

/* Settings for servers and agents among themselves win over those for all. */
Test(config_tls, servers_and_agents_have_their_own_settings) {
    must(
        "{\"data_dir\":\"/x\",\"ca_file\":\"ca\",\"cert_file\":\"c\",\"key_file\":\"k\",\"verify_incoming\":true,"
        "\"tls\":{\"internal_rpc\":{\"ca_path\":\"folder\",\"verify_incoming\":false,\"verify_outgoing\":true}}}");
    cr_assert_eq(config_finish(&config, &fault), CO_OK, "%s", fault.text);
    const struct config_tls *rpc = &config.tls_rpc;
    cr_expect_str_eq(rpc->cert_file, "c");
    cr_expect_null(rpc->ca_file, "ca_path alone is given for them");
    cr_expect_str_eq(rpc->ca_path, "folder");
    cr_expect(!rpc->verify_incoming && rpc->verify_outgoing && !rpc->verify_server_hostname);
    cr_expect(config.tls_https.verify_incoming);
    static const struct {
        const char *text;
        bool incoming, outgoing, names;
    } rows[] = {
        {"{}", false, false, false},
        {"{\"verify_incoming\":true}", true, false, false},
        {"{\"verify_incoming_rpc\":true}", true, false, false},
        {"{\"verify_incoming_https\":true}", false, false, false},
        {"{\"verify_outgoing\":true}", false, true, false},
        {"{\"verify_server_hostname\":true}", false, true, true},
        {"{\"tls\":{\"defaults\":{\"verify_server_hostname\":true}}}", false, true, true},
        {"{\"tls\":{\"internal_rpc\":{\"verify_server_hostname\":true}}}", false, true, true},
        {"{\"verify_outgoing\":true,\"tls\":{\"internal_rpc\":{\"verify_outgoing\":false}}}", false, false, false},
        {"{\"verify_server_hostname\":true,\"tls\":{\"internal_rpc\":{\"verify_server_hostname\":false}}}", false,
         false, false},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        again();
        must(rows[i].text);
        config.data_dir = "/x";
        cr_assert_eq(config_finish(&config, &fault), CO_OK, "%s", fault.text);
        cr_expect_eq(config.tls_rpc.verify_incoming, rows[i].incoming, "%s", rows[i].text);
        cr_expect_eq(config.tls_rpc.verify_outgoing, rows[i].outgoing, "%s", rows[i].text);
        cr_expect_eq(config.tls_rpc.verify_server_hostname, rows[i].names, "%s", rows[i].text);
    }
}

/* A key that is wrong is not repeated, and neither is one that changes. */
Test(config_tls, a_shared_key_is_checked_and_not_shown) {
    static const char *const wrong[] = {"no base64!", "c2VjcmV0", "MDEyMzQ1Njc4OWFiY2RlZg", "MDEyMzQ1Njc4OWFiY2RlZjA="};
    static const char *const right[] = {"MDEyMzQ1Njc4OWFiY2RlZg==", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3",
                                        "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="};
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        again();
        fault = (struct fault){0};
        cr_expect_eq(config_set(&config, "-encrypt", "encrypt", slice_text(wrong[i]), &fault), CO_INVALID);
        cr_expect(strstr(fault.text, "`coord keygen`") && !strstr(fault.text, wrong[i]), "%s", fault.text);
    }
    for (size_t i = 0; i < ARRAY_COUNT(right); i++) {
        again();
        fault = (struct fault){0};
        cr_expect_eq(config_set(&config, "-encrypt", "encrypt", slice_text(right[i]), &fault), CO_OK, "%s", fault.text);
        cr_expect_str_eq(config.encrypt, right[i]);
    }
    struct config other;
    struct config_texts lines;
    again();
    must("{\"data_dir\":\"/x\",\"encrypt\":\"MDEyMzQ1Njc4OWFiY2RlZg==\"}");
    cr_assert_eq(config_finish(&config, &fault), CO_OK);
    config_init(&other);
    cr_assert_eq(config_set(&other, "x", "encrypt", slice_text(right[1]), &fault), CO_OK);
    cr_assert_eq(config_set(&other, "x", "data_dir", slice_text("/x"), &fault), CO_OK);
    cr_assert_eq(config_finish(&other, &fault), CO_OK);
    config_differences(&config, &other, &lines);
    cr_assert_eq(lines.count, 1);
    cr_expect(strstr(lines.items[0], "encrypt: a key (") && !strstr(lines.items[0], "MDEy"), "%s", lines.items[0]);
    config_free(&other);
}

/* A setting for HTTPS alone wins over one for all; a pair is taken as a whole, and CAs are too. */
Test(config_tls, https_has_its_own_settings) {
    must(
        "{\"data_dir\":\"/x\",\"ports\":{\"https\":8501},\"ca_file\":\"ca\",\"cert_file\":\"c\",\"key_file\":\"k\","
        "\"tls_min_version\":\"tls13\",\"limits\":{\"https_handshake_timeout\":\"2s\"},"
        "\"addresses\":{\"https\":\"10.0.0.1 unix:///run/s [::1]\"},\"verify_incoming\":true,"
        "\"tls\":{\"https\":{\"ca_path\":\"folder\",\"verify_incoming\":false,\"tls_cipher_suites\":\"A,B\"}}}");
    cr_assert_eq(config_finish(&config, &fault), CO_OK, "%s", fault.text);
    const struct config_tls *https = &config.tls_https;
    cr_expect_str_eq(https->cert_file, "c");
    cr_expect_str_eq(https->key_file, "k");
    cr_expect_null(https->ca_file, "ca_path alone is given for HTTPS");
    cr_expect_str_eq(https->ca_path, "folder");
    cr_expect_str_eq(https->min_version, "tls13");
    cr_expect_str_eq(https->cipher_suites, "A,B");
    cr_expect_not(https->verify_incoming, "what is said for HTTPS wins");
    cr_expect_eq(config.https_handshake_timeout_ns, 2000000000);
    cr_assert_eq(config.https_addresses.count, 3);
    cr_expect_str_eq(config.https_addresses.items[0], "10.0.0.1");
    cr_expect_str_eq(config.https_addresses.items[1], "unix:///run/s");
    cr_expect_str_eq(config.https_addresses.items[2], "::1");
    again();
    must("{\"data_dir\":\"/x\",\"addresses\":{\"http\":\"127.0.0.1 unix:///s\"},\"ports\":{\"http\":-1}}");
    cr_assert_eq(config_finish(&config, &fault), CO_OK, "%s", fault.text);
    cr_assert_eq(config.http_addresses.count, 1, "a port that is off leaves the Unix sockets");
    cr_expect_str_eq(config.http_addresses.items[0], "unix:///s");
    cr_expect_eq(config.https_addresses.count, 0, "HTTPS is off unless a port is given");
}

Test(config_tls, https_mistakes) {
    static const struct {
        const char *text, *fault;
    } rows[] = {
        {"{\"cert_file\":\"c\"}", "cert_file: needs key_file"},
        {"{\"tls\":{\"https\":{\"key_file\":\"c\"}}}", "key_file: needs cert_file"},
        {"{\"cert_file\":\"c\",\"key_file\":\"k\",\"tls\":{\"internal_rpc\":{\"key_file\":\"c\"}}}",
         "key_file: needs cert_file"},
        {"{\"tls_min_version\":\"1.2\"}", "tls_min_version: \"1.2\" is no version of TLS"},
        {"{\"unix_sockets\":{\"mode\":\"rw\"}}", "unix_sockets.mode: \"rw\" is no mode of a file: write 0660"},
        {"{\"unix_sockets\":{\"mode\":\"7777\"}}", "unix_sockets.mode: \"7777\" is no mode of a file"},
        {"{\"addresses\":{\"http\":\"unix://x\"}}", "is no Unix socket: write unix:///path"},
        {"{\"addresses\":{\"http\":\"127.0.0.1 localhost\"}}", "is not an IP address"},
        {"{\"addresses\":{\"dns\":\"unix:///x\"}}",
         "is a Unix socket, which only addresses.http and addresses.https take"},
        {"{\"limits\":{\"https_handshake_timeout\":\"0s\"}}", "is below 1ms"},
        {"{\"tls\":{\"https\":{\"verify_outgoing\":true}}}", "unknown key \"tls.https.verify_outgoing\""},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        again();
        fault = (struct fault){0};
        int error = config_add_text(&config, "web.json", slice_text(rows[i].text), &fault);
        config.data_dir = "/x";
        if (!error) error = config_finish(&config, &fault);
        cr_expect_eq(error, CO_INVALID, "%s", rows[i].text);
        cr_expect_not_null(strstr(fault.text, rows[i].fault), "%s: %s", rows[i].text, fault.text);
    }
}
