/* How a configuration protects connections: each combination of Consul's keys. */
#include <criterion/criterion.h>
#include <string.h>

#include "agent/protection.h"
#include "base/check.h"

#define FILES "\"ca_file\":\"ca\",\"cert_file\":\"c\",\"key_file\":\"k\""

enum { PLAIN_IN = 1, PLAIN_OUT = 2, ASKS = 4, NAMES = 8 };

Test(protection, rules_are_consuls) {
    static const struct {
        const char *text;
        bool server, keys;
        enum security_kind kind;
        unsigned flags;
        const char *fault;
    } rows[] = {
        {"{}", true, false, SECURITY_OPEN, PLAIN_IN | PLAIN_OUT, NULL},
        {"{}", false, false, SECURITY_OPEN, PLAIN_IN | PLAIN_OUT, NULL},
        /* a shared key */
        {"{}", true, true, SECURITY_SHARED_KEY, 0, NULL},
        {"{}", false, true, SECURITY_SHARED_KEY, 0, NULL},
        {"{\"encrypt_verify_incoming\":false}", true, true, SECURITY_SHARED_KEY, PLAIN_IN, NULL},
        {"{\"encrypt_verify_outgoing\":false}", true, true, SECURITY_SHARED_KEY, PLAIN_OUT, NULL},
        {"{\"encrypt_verify_outgoing\":false}", true, false, SECURITY_OPEN, PLAIN_IN | PLAIN_OUT, NULL},
        /* certificates that are there, and not demanded: a server takes both, and dials as before */
        {"{" FILES "}", true, false, SECURITY_OWN_CA, PLAIN_IN | PLAIN_OUT, NULL},
        {"{" FILES "}", false, false, SECURITY_OPEN, PLAIN_IN | PLAIN_OUT, NULL},
        {"{" FILES "}", true, true, SECURITY_SHARED_KEY, 0, NULL},
        {"{" FILES ",\"verify_incoming_https\":true}", true, true, SECURITY_SHARED_KEY, 0, NULL},
        /* demanded */
        {"{" FILES ",\"verify_outgoing\":true}", true, false, SECURITY_OWN_CA, PLAIN_IN, NULL},
        {"{" FILES ",\"verify_outgoing\":true}", false, false, SECURITY_OWN_CA, PLAIN_IN, NULL},
        {"{" FILES ",\"verify_incoming\":true}", true, false, SECURITY_OWN_CA, PLAIN_OUT | ASKS, NULL},
        {"{" FILES ",\"verify_incoming_rpc\":true}", true, false, SECURITY_OWN_CA, PLAIN_OUT | ASKS, NULL},
        {"{" FILES ",\"verify_incoming\":true}", false, false, SECURITY_OPEN, PLAIN_IN | PLAIN_OUT, NULL},
        {"{" FILES ",\"verify_incoming\":true,\"verify_outgoing\":true}", true, false, SECURITY_OWN_CA, ASKS, NULL},
        {"{" FILES ",\"verify_server_hostname\":true}", true, false, SECURITY_OWN_CA, PLAIN_IN | NAMES, NULL},
        {"{" FILES ",\"verify_server_hostname\":true}", false, false, SECURITY_OWN_CA, PLAIN_IN | NAMES, NULL},
        {"{" FILES ",\"verify_incoming\":true,\"verify_server_hostname\":true}", true, false, SECURITY_OWN_CA,
         ASKS | NAMES, NULL},
        {"{\"tls\":{\"internal_rpc\":{" FILES ",\"verify_incoming\":true,\"verify_outgoing\":true}}}", true, false,
         SECURITY_OWN_CA, ASKS, NULL},
        {"{" FILES ",\"verify_incoming\":true,\"tls\":{\"internal_rpc\":{\"verify_incoming\":false}}}", true, false,
         SECURITY_OWN_CA, PLAIN_IN | PLAIN_OUT, NULL},
        /* a client agent needs no certificate of its own */
        {"{\"ca_file\":\"ca\",\"verify_outgoing\":true}", false, false, SECURITY_OWN_CA, PLAIN_IN, NULL},
        {"{\"ca_path\":\"ca\",\"verify_server_hostname\":true}", false, false, SECURITY_OWN_CA, PLAIN_IN | NAMES, NULL},
        /* both: certificates, and what encrypt keeps out stays out */
        {"{" FILES ",\"verify_outgoing\":true}", true, true, SECURITY_OWN_CA, 0, NULL},
        {"{" FILES ",\"verify_outgoing\":true,\"encrypt_verify_incoming\":false}", true, true, SECURITY_OWN_CA,
         PLAIN_IN, NULL},
        {"{" FILES ",\"verify_incoming\":true}", true, true, 0, 0, "encrypt: together with verify_incoming"},
        {"{" FILES ",\"verify_incoming\":true,\"encrypt_verify_outgoing\":false}", true, true, SECURITY_OWN_CA,
         PLAIN_OUT | ASKS, NULL},
        {"{" FILES ",\"verify_incoming\":true}", false, true, SECURITY_SHARED_KEY, 0, NULL},
        /* mistakes */
        {"{\"verify_outgoing\":true}", false, false, 0, 0, "verify_outgoing: needs the CAs"},
        {"{\"verify_server_hostname\":true}", false, false, 0, 0, "verify_server_hostname: needs the CAs"},
        {"{\"verify_incoming\":true}", true, false, 0, 0, "verify_incoming: needs the CAs"},
        {"{\"ca_file\":\"ca\",\"verify_outgoing\":true}", true, false, 0, 0, "verify_outgoing: a server needs"},
        {"{\"ca_file\":\"ca\",\"verify_incoming\":true}", true, false, 0, 0, "verify_incoming: a server needs"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct config config;
        struct security_rules rules;
        struct fault fault = {0};
        config_init(&config);
        config.data_dir = "/x", config.server = rows[i].server;
        cr_assert_eq(config_add_text(&config, "f", slice_text(rows[i].text), &fault), CO_OK, "%s", fault.text);
        cr_assert_eq(config_finish(&config, &fault), CO_OK, "%s", fault.text);
        int rv = protection_rules(&config, rows[i].keys, &rules, &fault);
        if (rows[i].fault) {
            cr_expect(rv == CO_INVALID && strstr(fault.text, rows[i].fault), "%s: %s", rows[i].text, fault.text);
        } else {
            unsigned flags = (rules.takes_plain ? PLAIN_IN : 0) | (rules.dials_plain ? PLAIN_OUT : 0) |
                             (rules.asks_clients ? ASKS : 0) | (rules.checks_servers ? NAMES : 0);
            cr_expect_eq(rv, CO_OK, "%s: %s", rows[i].text, fault.text);
            cr_expect_eq(rules.kind, rows[i].kind, "row %zu: %s", i, rows[i].text);
            cr_expect_eq(flags, rows[i].flags, "row %zu: %s: %x", i, rows[i].text, flags);
            cr_expect_str_eq(rules.datacenter, "dc1");
            cr_expect_str_eq(rules.dns_domain, "coord");
        }
        config_free(&config);
    }
}

/* Nobody reaches a trial's process, so nothing is demanded of its configuration. */
Test(protection, dev_is_open) {
    struct config config;
    struct security_rules rules;
    struct fault fault = {0};
    config_init(&config);
    config_dev(&config);
    cr_assert_eq(config_add_text(&config, "f", SLICE_LITERAL("{\"verify_outgoing\":true}"), &fault), CO_OK);
    cr_assert_eq(config_finish(&config, &fault), CO_OK, "%s", fault.text);
    cr_expect_eq(protection_rules(&config, true, &rules, &fault), CO_OK);
    cr_expect_eq(rules.kind, SECURITY_OPEN);
    config_free(&config);
}
