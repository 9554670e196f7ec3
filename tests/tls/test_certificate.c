/* Making and reading: keys, CAs, certificates of nodes, plain ones. Requests: test_certificate_request.c. */
#include <criterion/criterion.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "tests/lib/scratch.h"
#include "tests/tls/pki.h"

static struct pair ca, node;
static const struct tls_life life = {NOW - DAY, NOW + WEEK};

static void setup(void) { pki_ca(NULL, &ca); }

static void teardown(void) {
    pair_free(&ca);
    pair_free(&node);
}

TestSuite(certificate, .init = setup, .fini = teardown);

/* -- OpenSSL's opinion -------------------------------------------------------------------------------------------- */
static void write_text(const char *folder, const char *name, struct slice text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    CHECK(file && fwrite(text.data, 1, text.size, file) == text.size && fclose(file) == 0);
}

static int shell(const char *folder, const char *line, char *output, size_t room) {
    char command[1024];
    snprintf(command, sizeof command, "cd %s && %s", folder, line);
    FILE *pipe = popen(command, "r");
    CHECK(pipe);
    size_t got = fread(output, 1, room - 1, pipe);
    output[got] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool openssl_is_here(void) {
    char output[256];
    return shell("/", "openssl version 2>&1", output, sizeof output) == 0;
}

/* `trusted`, `chain`: PEM; the chain's first is judged, with the rest as help. */
static void expect_openssl(struct slice trusted, struct slice chain, const char *more) {
    if (!openssl_is_here()) cr_skip("no openssl");
    const char *folder = scratch_folder();
    char line[512], output[2048];
    write_text(folder, "ca", trusted);
    write_text(folder, "chain", chain);
    snprintf(line, sizeof line,
             "openssl verify -x509_strict -check_ss_sig -attime %lld -CAfile ca -untrusted chain %s chain 2>&1",
             (long long)NOW, more);
    int code = shell(folder, line, output, sizeof output);
    cr_expect_eq(code, 0, "%s: %s", line, output);
    scratch_remove(folder);
}

Test(certificate, openssl_takes_all_of_them_strictly) {
    expect_openssl(buffer_slice(&ca.chain), buffer_slice(&ca.chain), "");
    static const char *const addresses[] = {"10.0.0.1", "fd00::1", NULL}, *const names[] = {"*.example.com", NULL};
    struct tls_subject subject = {.domain = pki_domain,
                                  .role = TLS_ROLE_SERVER,
                                  .node = "M\xc3\xbcller & S\xc3\xb6hne/1",
                                  .datacenter = "dc1",
                                  .dns_domain = "coord",
                                  .addresses = addresses,
                                  .names = names};
    pki_issue(&ca, &subject, life, &node);
    expect_openssl(buffer_slice(&ca.chain), buffer_slice(&node.chain),
                   "-purpose sslserver -verify_hostname server.dc1.coord");
    expect_openssl(buffer_slice(&ca.chain), buffer_slice(&node.chain), "-purpose sslclient -verify_ip fd00::1");
    expect_openssl(buffer_slice(&ca.chain), buffer_slice(&node.chain), "-verify_hostname a.example.com");
}

Test(certificate, openssl_takes_a_ca_signed_by_another_strictly) {
    struct pair fresh = {0}, crossed = {0};
    pki_ca(NULL, &fresh);
    buffer_append(&crossed.key, fresh.key.data, fresh.key.size);
    pki_ca(&ca, &crossed);
    pki_node(&crossed, TLS_ROLE_AGENT, "a", life, &node);
    cr_assert_eq(tls_certificate_count(buffer_slice(&node.chain)), 2u);
    expect_openssl(buffer_slice(&ca.chain), buffer_slice(&node.chain), "-purpose sslserver");
    expect_openssl(buffer_slice(&fresh.chain), buffer_slice(&node.chain), "-purpose sslserver");
    struct tls_certificate own, cross;
    cr_assert_eq(tls_certificate_read(buffer_slice(&fresh.chain), &own, NULL), CO_OK);
    cr_assert_eq(tls_certificate_read(buffer_slice(&crossed.chain), &cross, NULL), CO_OK);
    cr_expect_str_eq(own.common_name, cross.common_name);
    cr_expect_eq(memcmp(own.pin, cross.pin, sizeof own.pin), 0);
    cr_expect_str_neq(own.serial, cross.serial);
    pair_free(&fresh);
    pair_free(&crossed);
}

/* The pin is what `openssl` calls the digest of the public key. */
Test(certificate, the_pin_is_that_of_the_key_alone) {
    if (!openssl_is_here()) cr_skip("no openssl");
    struct tls_certificate said;
    char hex[2 * TLS_PIN_SIZE + 1], output[256];
    cr_assert_eq(tls_certificate_read(buffer_slice(&ca.chain), &said, NULL), CO_OK);
    for (size_t i = 0; i < sizeof said.pin; i++) snprintf(hex + 2 * i, 3, "%02x", said.pin[i]);
    const char *folder = scratch_folder();
    write_text(folder, "ca", buffer_slice(&ca.chain));
    shell(folder, "openssl x509 -in ca -noout -pubkey | openssl pkey -pubin -outform DER | openssl dgst -sha256 -r",
          output, sizeof output);
    cr_expect_eq(strncmp(output, hex, 2 * TLS_PIN_SIZE), 0, "%s %s", output, hex);
    scratch_remove(folder);
}

/* -- reading ------------------------------------------------------------------------------------------------------ */
Test(certificate, a_ca_says_its_domain) {
    struct tls_certificate said;
    cr_assert_eq(tls_certificate_read(buffer_slice(&ca.chain), &said, NULL), CO_OK);
    cr_expect_str_eq(said.domain, pki_domain);
    cr_expect(said.is_ca && said.role == TLS_ROLE_NONE && said.node[0] == '\0');
    cr_expect_eq(strncmp(said.common_name, "coord CA ", 9), 0);
    cr_expect(said.life.from_s == NOW - 365 * DAY && said.life.to_s == NOW + 3650 * DAY);
    cr_expect_eq(strlen(said.serial), 32u);
}

Test(certificate, a_node_says_who_it_is) {
    struct tls_certificate said, of_ca;
    pki_node(&ca, TLS_ROLE_AGENT, "web-1", life, &node);
    cr_assert_eq(tls_certificate_count(buffer_slice(&node.chain)), 2u);
    cr_assert_eq(tls_certificate_read(buffer_slice(&node.chain), &said, NULL), CO_OK);
    cr_expect_str_eq(said.domain, pki_domain);
    cr_expect_str_eq(said.node, "web-1");
    cr_expect_str_eq(said.common_name, "web-1");
    cr_expect(said.role == TLS_ROLE_AGENT && !said.is_ca);
    cr_expect(said.life.from_s == life.from_s && said.life.to_s == life.to_s);
    struct buffer second = {0}, der = {0};
    cr_assert_eq(tls_certificate_at(buffer_slice(&node.chain), 1, &second, NULL), CO_OK);
    cr_assert_eq(tls_certificate_read(buffer_slice(&second), &of_ca, NULL), CO_OK);
    cr_expect(of_ca.is_ca, "its CA stands behind it");
    cr_assert_eq(tls_certificate_to_der(buffer_slice(&node.chain), &der, NULL), CO_OK);
    cr_assert_eq(tls_certificate_read(buffer_slice(&der), &of_ca, NULL), CO_OK, "DER is read too");
    cr_expect_str_eq(of_ca.serial, said.serial);
    struct fault fault = {0};
    cr_expect_eq(tls_certificate_at(buffer_slice(&node.chain), 2, &second, &fault), CO_INVALID);
    cr_expect_str_eq(fault.text, "there are 2 certificates, none at 2");
    buffer_free(&second);
    buffer_free(&der);
}

Test(certificate, any_name_of_a_node_survives) {
    char longest[TLS_NODE_MAX + 1], umlauts[TLS_NODE_MAX + 1];
    memset(longest, ' ', sizeof longest - 1);
    longest[TLS_NODE_MAX] = '\0';
    for (size_t i = 0; i + 1 < sizeof umlauts; i += 2) memcpy(umlauts + i, "\xc3\xbc", 2);
    umlauts[TLS_NODE_MAX - 1] = '\0';
    const char *const nodes[] = {
        "a",     "my node", "M\xc3\xbcller",    "a/b",          "../server/x", "/",         "%2F",
        "a+b",   "x?y#z",   "\xf0\x9f\xa6\x86", "a\"b\\c,CN=d", "a\nb",        "*.example", "-",
        longest, umlauts,   "localhost",        "10.0.0.1",     "A.B",         "."};
    for (size_t i = 0; i < ARRAY_COUNT(nodes); i++) {
        struct tls_certificate said;
        pki_node(&ca, i % 2 ? TLS_ROLE_AGENT : TLS_ROLE_SERVER, nodes[i], life, &node);
        cr_assert_eq(tls_certificate_read(buffer_slice(&node.chain), &said, NULL), CO_OK);
        cr_expect_str_eq(said.node, nodes[i]);
        cr_expect_eq(said.role, i % 2 ? TLS_ROLE_AGENT : TLS_ROLE_SERVER);
        cr_expect_str_eq(said.domain, pki_domain);
        struct chain chain = {0};
        struct tls_rules rules = {.trusted = buffer_slice(&ca.chain), .now_s = NOW};
        char why[160];
        chain_add(&chain, buffer_slice(&node.chain));
        cr_expect_eq(tls_judge(&rules, chain.slices, chain.count, &said, why), TLS_TRUSTED, "%s: %s", nodes[i], why);
        chain_free(&chain);
        node.chain.size = 0;
    }
}

/* The content of a certificate with this URI, and with that one too if it is not NULL. */
static struct tls_certificate with_uris(const char *one, const char *two) {
    struct tls_certificate said;
    gnutls_x509_crt_t made;
    gnutls_x509_privkey_t key;
    gnutls_datum_t der, pem = {(unsigned char *)ca.key.data, (unsigned)ca.key.size};
    CHECK(gnutls_x509_crt_init(&made) == 0 && gnutls_x509_privkey_init(&key) == 0 &&
          gnutls_x509_privkey_import(key, &pem, GNUTLS_X509_FMT_PEM) == 0 && gnutls_x509_crt_set_key(made, key) == 0 &&
          gnutls_x509_crt_set_version(made, 3) == 0 && gnutls_x509_crt_set_serial(made, "\x01", 1) == 0);
    CHECK(gnutls_x509_crt_set_subject_alt_name(made, GNUTLS_SAN_URI, one, (unsigned)strlen(one), 0) == 0);
    if (two)
        CHECK(gnutls_x509_crt_set_subject_alt_name(made, GNUTLS_SAN_URI, two, (unsigned)strlen(two),
                                                   GNUTLS_FSAN_APPEND) == 0);
    CHECK(gnutls_x509_crt_set_activation_time(made, NOW) == 0 && gnutls_x509_crt_set_expiration_time(made, NOW) == 0 &&
          gnutls_x509_crt_sign2(made, made, key, GNUTLS_DIG_SHA256, 0) == 0 &&
          gnutls_x509_crt_export2(made, GNUTLS_X509_FMT_DER, &der) == 0);
    CHECK(tls_certificate_read(slice_make(der.data, der.size), &said, NULL) == CO_OK);
    gnutls_free(der.data);
    gnutls_x509_crt_deinit(made);
    gnutls_x509_privkey_deinit(key);
    return said;
}

#define D "spiffe://00112233445566778899aabbccddeeff"

Test(certificate, only_the_exact_form_of_the_uri_counts) {
    static const char *const wrong[] = {
        D "/server/",
        D "/server",
        D "/client/a",
        D "/Server/a",
        D "/server/a/b",
        D "/server/a%2fb",
        D "/server/%61",
        D "/server/a b",
        D "/server/a%",
        D "/server/a%0",
        D "/server/a%00b",
        D "/server/a?b",
        D "//server/a",
        D "0/server/a",
        D "/agent/server/a",
        "SPIFFE://00112233445566778899aabbccddeeff/server/a",
        "spiffe://00112233445566778899AABBCCDDEEFF/server/a",
        "spiffe://00112233445566778899aabbccddee/server/a",
        "spiffe://00112233-4455-6677-8899-aabbccddeeff.consul/agent/client/dc/dc1/id/a",
        "https://00112233445566778899aabbccddeeff/server/a",
    };
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        struct tls_certificate said = with_uris(wrong[i], NULL);
        cr_expect(said.role == TLS_ROLE_NONE && said.node[0] == '\0' && said.domain[0] == '\0', "%s", wrong[i]);
    }
    struct tls_certificate said = with_uris(D "/server/a", D "/agent/b");
    cr_expect(said.role == TLS_ROLE_NONE && said.node[0] == '\0', "two are nobody");
    said = with_uris("https://example.com", D "/agent/b");
    cr_expect(said.role == TLS_ROLE_AGENT && strcmp(said.node, "b") == 0, "another kind of URI does not count");
    said = with_uris(D "/server/a%2Fb%25~", NULL);
    cr_expect(said.role == TLS_ROLE_SERVER && strcmp(said.node, "a/b%~") == 0);
    char many[64 + 3 * (TLS_NODE_MAX + 1) + 1] = D "/agent/";
    for (int i = 0; i < TLS_NODE_MAX; i++) strcat(many, "%20");
    cr_expect_eq(strlen(with_uris(many, NULL).node), TLS_NODE_MAX);
    strcat(many, "%20");
    cr_expect_eq(with_uris(many, NULL).role, TLS_ROLE_NONE);
}

Test(certificate, texts_without_certificates_are_told) {
    struct tls_certificate said;
    struct buffer out = {0};
    static const char *const texts[] = {"", "x", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                                        "-----BEGIN CERTIFICATE-----\n", "0\x82"};
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        struct fault fault = {0};
        cr_expect_eq(tls_certificate_read(slice_text(texts[i]), &said, &fault), CO_INVALID, "%s", texts[i]);
        cr_expect_eq(strncmp(fault.text, "there is no certificate", 23) && strncmp(fault.text, "no certificate", 14), 0,
                     "%s", fault.text);
        cr_expect_eq(tls_certificate_count(slice_text(texts[i])), 0u);
        cr_expect_eq(tls_certificate_to_der(slice_text(texts[i]), &out, NULL), CO_INVALID);
        cr_expect_eq(tls_certificate_at(slice_text(texts[i]), 0, &out, NULL), CO_INVALID);
    }
    cr_expect_eq(out.size, 0u);
}

/* -- names -------------------------------------------------------------------------------------------------------- */
static bool names(const struct pair *pair, const char *host) {
    struct buffer der = {0};
    CHECK(tls_certificate_to_der(buffer_slice(&pair->chain), &der, NULL) == CO_OK);
    bool fits = tls_certificate_names(buffer_slice(&der), host);
    buffer_free(&der);
    return fits;
}

Test(certificate, a_server_has_consuls_names) {
    static const char *const addresses[] = {"10.0.0.1", "fd00::1", "127.0.0.1", "::ffff:10.0.0.1", NULL};
    struct tls_subject subject = {.domain = pki_domain,
                                  .role = TLS_ROLE_SERVER,
                                  .node = "S1",
                                  .datacenter = "dc2",
                                  .dns_domain = "corp.example",
                                  .addresses = addresses};
    pki_issue(&ca, &subject, life, &node);
    static const char *const right[] = {"S1.node.dc2.corp.example",
                                        "s1.node.dc2.corp.example",
                                        "server.dc2.corp.example",
                                        "s1.server.dc2.corp.example",
                                        "s1",
                                        "localhost",
                                        "LOCALHOST",
                                        "localhost.",
                                        "127.0.0.1",
                                        "::1",
                                        "10.0.0.1",
                                        "fd00::1",
                                        "fd00:0::1"};
    static const char *const wrong[] = {
        "",          ".",          "s2", "server.dc1.corp.example",       "a.s1",
        "127.0.0.2", "fd00::2",    "*",  "s1.node.dc2.corp.example.evil", "corp.example",
        "10.0.0.1.", "localhost\n"};
    for (size_t i = 0; i < ARRAY_COUNT(right); i++) cr_expect(names(&node, right[i]), "%s", right[i]);
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) cr_expect_not(names(&node, wrong[i]), "%s", wrong[i]);
}

Test(certificate, an_agent_is_not_named_as_a_server) {
    pki_node(&ca, TLS_ROLE_AGENT, "a1", life, &node);
    cr_expect(names(&node, "a1.node.dc1.coord") && names(&node, "a1") && names(&node, "localhost"));
    cr_expect_not(names(&node, "server.dc1.coord"));
    cr_expect_not(names(&node, "a1.server.dc1.coord"));
}

/* An agent of this name would be taken for any server by those who look at names alone. */
Test(certificate, a_nodes_name_makes_it_no_server) {
    static const char *const sly[] = {"server.dc1.coord", "x.server.dc1.coord", "SERVER.dc1.coord"};
    for (size_t i = 0; i < ARRAY_COUNT(sly); i++) {
        pki_node(&ca, TLS_ROLE_AGENT, sly[i], life, &node);
        cr_expect_not(names(&node, "server.dc1.coord"), "%s", sly[i]);
        cr_expect_not(names(&node, "x.server.dc1.coord"), "%s", sly[i]);
        node.chain.size = 0;
    }
    pki_node(&ca, TLS_ROLE_AGENT, "*.node", life, &node);
    cr_expect_not(names(&node, "b.node.node.dc1.coord"));
    cr_expect_not(names(&node, "b.node"));
}

Test(certificate, a_wildcard_stands_for_one_label_on_the_left) {
    static const char *const more[] = {"*.web.example", "LOCALHOST", NULL};
    struct tls_subject subject = {.domain = pki_domain,
                                  .role = TLS_ROLE_AGENT,
                                  .node = "a",
                                  .datacenter = "dc1",
                                  .dns_domain = "coord",
                                  .names = more};
    pki_issue(&ca, &subject, life, &node);
    cr_expect(names(&node, "x.web.example"));
    cr_expect_not(names(&node, "x.y.web.example"));
    cr_expect_not(names(&node, "web.example"));
}

/* The common name is no name of a host. */
Test(certificate, the_common_name_does_not_count) {
    struct tls_issuer issuer = pair_issuer(&ca);
    struct tls_plain_subject subject = {.common_name = "host.example", .server = true};
    CHECK(tls_key_make(&node.key, NULL) == CO_OK);
    cr_assert_eq(tls_issue_plain(&issuer, buffer_slice(&node.key), &subject, life, &node.chain, NULL), CO_OK);
    cr_expect_not(names(&node, "host.example"));
}

/* -- what is refused ---------------------------------------------------------------------------------------------- */
static const char *refusal(struct tls_subject subject, struct tls_life wanted) {
    static struct fault fault;
    struct tls_issuer issuer = pair_issuer(&ca);
    struct buffer request = {0}, out = {0};
    fault = (struct fault){0};
    if (node.key.size == 0) CHECK(tls_key_make(&node.key, NULL) == CO_OK);
    CHECK(tls_request_make(buffer_slice(&node.key), &request, NULL) == CO_OK);
    int rv = tls_issue(&issuer, buffer_slice(&request), &subject, wanted, &out, &fault);
    cr_expect_eq(rv, fault.code);
    cr_expect_eq(out.size == 0, rv != CO_OK, "nothing is appended after a fault");
    buffer_free(&request);
    buffer_free(&out);
    return fault.text;
}

Test(certificate, wrong_subjects_are_refused) {
    char long_one[TLS_NODE_MAX + 2];
    memset(long_one, 'a', sizeof long_one - 1);
    long_one[TLS_NODE_MAX + 1] = '\0';
    struct tls_subject good = {
        .domain = pki_domain, .role = TLS_ROLE_AGENT, .node = "a", .datacenter = "dc1", .dns_domain = "coord"};
    cr_expect_str_eq(refusal(good, life), "");
    struct tls_subject bad = good;
    static const char *const nodes[] = {"", "\xff", "a\xc3", NULL};
    for (size_t i = 0; i < ARRAY_COUNT(nodes); i++) {
        bad.node = nodes[i] ? nodes[i] : long_one;
        cr_expect_str_eq(refusal(bad, life), "a node's name has 1 to 255 bytes of UTF-8");
    }
    bad = good;
    bad.domain = "coord";
    cr_expect_str_eq(refusal(bad, life), "\"coord\" is no trust domain: it has 32 hex digits");
    bad = good;
    bad.datacenter = "dc 1";
    cr_expect_str_eq(refusal(bad, life), "\"dc 1\" cannot be part of a DNS name");
    bad = good;
    bad.names = (const char *const[]){"a..b", NULL};
    cr_expect_str_eq(refusal(bad, life), "\"a..b\" is no DNS name");
    bad = good;
    bad.addresses = (const char *const[]){"10.0.0.256", NULL};
    cr_expect_str_eq(refusal(bad, life), "\"10.0.0.256\" is no IP address");
    cr_expect_str_eq(refusal(good, (struct tls_life){NOW, NOW - 1}),
                     "a life until 2027-01-15 07:59:59 UTC ends before it begins");
    cr_expect_not(refusal(good, (struct tls_life){-1, NOW})[0] == '\0');
    cr_expect_str_eq(refusal(good, (struct tls_life){NOW + 4000 * DAY, NOW + 4001 * DAY}),
                     "the CA's certificate ends on 2037-01-12 08:00:00 UTC");
}

Test(certificate, a_life_ends_with_the_cas) {
    struct tls_certificate said;
    pki_node(&ca, TLS_ROLE_AGENT, "a", (struct tls_life){NOW, NOW + 9000 * DAY}, &node);
    cr_assert_eq(tls_certificate_read(buffer_slice(&node.chain), &said, NULL), CO_OK);
    cr_expect_eq(said.life.to_s, NOW + 3650 * DAY);
}

/* It may sign no other CA from now on, as many companies' do. */
static void narrow(struct pair *authority) {
    gnutls_x509_crt_t certificate;
    gnutls_x509_privkey_t key;
    gnutls_datum_t text = {(unsigned char *)authority->chain.data, (unsigned)authority->chain.size}, made = {0};
    gnutls_datum_t secret = {(unsigned char *)authority->key.data, (unsigned)authority->key.size};
    CHECK(gnutls_x509_crt_init(&certificate) == 0 && gnutls_x509_privkey_init(&key) == 0);
    CHECK(gnutls_x509_crt_import(certificate, &text, GNUTLS_X509_FMT_PEM) == 0);
    CHECK(gnutls_x509_privkey_import(key, &secret, GNUTLS_X509_FMT_PEM) == 0);
    CHECK(gnutls_x509_crt_set_basic_constraints(certificate, 1, 0) == 0);
    CHECK(gnutls_x509_crt_sign2(certificate, certificate, key, GNUTLS_DIG_SHA256, 0) == 0);
    CHECK(gnutls_x509_crt_export2(certificate, GNUTLS_X509_FMT_PEM, &made) == 0);
    buffer_reset(&authority->chain);
    buffer_append(&authority->chain, made.data, made.size);
    gnutls_free(made.data);
    gnutls_x509_crt_deinit(certificate);
    gnutls_x509_privkey_deinit(key);
}

Test(certificate, only_a_ca_issues) {
    struct pair its = {0};
    struct fault fault = {0};
    struct buffer out = {0}, request = {0};
    struct tls_subject subject = {
        .domain = pki_domain, .role = TLS_ROLE_AGENT, .node = "b", .datacenter = "dc1", .dns_domain = "coord"};
    pki_node(&ca, TLS_ROLE_SERVER, "s1", life, &node);
    struct tls_issuer issuer = pair_issuer(&node);
    CHECK(tls_key_make(&its.key, NULL) == CO_OK && tls_request_make(buffer_slice(&its.key), &request, NULL) == CO_OK);
    cr_expect_eq(tls_issue(&issuer, buffer_slice(&request), &subject, life, &out, &fault), CO_INVALID);
    cr_expect_str_eq(fault.text, "the issuer's certificate is not that of a CA");
    fault = (struct fault){0};
    issuer = pair_issuer(&ca);
    issuer.key = buffer_slice(&its.key);
    cr_expect_eq(tls_issue(&issuer, buffer_slice(&request), &subject, life, &out, &fault), CO_INVALID);
    cr_expect_str_eq(fault.text, "the CA: the private key belongs to another certificate");
    /* A CA that another one signed signs further ones: whoever was away during two rotations goes back over both. */
    struct pair second = {0}, third = {0}, last = {0};
    fault = (struct fault){0};
    pki_ca(&ca, &second);
    pki_ca(&second, &third);
    narrow(&second);
    issuer = pair_issuer(&second);
    pki_ca(NULL, &last);
    struct buffer crossed = {0};
    cr_expect_eq(tls_ca_cross(buffer_slice(&last.chain), life, &issuer, &crossed, &fault), CO_UNSUPPORTED);
    cr_expect_eq(crossed.size, 0u);
    cr_expect_str_eq(fault.text, "the issuer may sign no other CA (path length 0)");
    pair_free(&last);
    buffer_free(&out);
    buffer_free(&request);
    pair_free(&its);
    pair_free(&second);
    pair_free(&third);
}

Test(certificate, a_ca_of_a_wrong_domain_is_refused) {
    static const char *const wrong[] = {"", "coord", "00112233445566778899aabbccddeef",
                                        "00112233445566778899AABBCCDDEEFF"};
    struct buffer out = {0};
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        cr_expect_eq(tls_ca_make(buffer_slice(&ca.key), wrong[i], life, &out, NULL), CO_INVALID, "%s", wrong[i]);
        cr_expect_eq(out.size, 0u);
    }
}

Test(certificate, pairs_are_checked) {
    struct fault fault = {0};
    pki_node(&ca, TLS_ROLE_AGENT, "a", life, &node);
    cr_expect_eq(tls_pair_check(buffer_slice(&node.key), buffer_slice(&node.chain), &fault), CO_OK);
    cr_expect_eq(tls_pair_check(buffer_slice(&ca.key), buffer_slice(&node.chain), &fault), CO_INVALID);
    cr_expect_str_eq(fault.text, "the private key belongs to another certificate");
    fault = (struct fault){0};
    cr_expect_eq(tls_pair_check(SLICE_LITERAL(""), buffer_slice(&node.chain), &fault), CO_INVALID);
    cr_expect_str_eq(fault.text, "there is no private key: it is empty");
    fault = (struct fault){0};
    cr_expect_eq(tls_pair_check(buffer_slice(&node.chain), buffer_slice(&node.chain), &fault), CO_INVALID);
    cr_expect_eq(strncmp(fault.text, "no private key in PEM", 21), 0, "%s", fault.text);
    fault = (struct fault){0};
    cr_expect_eq(tls_pair_check(buffer_slice(&node.key), buffer_slice(&node.key), &fault), CO_INVALID);
    cr_expect_eq(strncmp(fault.text, "no certificate", 14), 0, "%s", fault.text);
}

Test(certificate, a_key_with_a_password_is_told) {
    if (!openssl_is_here()) cr_skip("no openssl");
    pki_node(&ca, TLS_ROLE_AGENT, "a", life, &node);
    const char *folder = scratch_folder();
    char output[4096];
    write_text(folder, "key", buffer_slice(&node.key));
    static const char *const ways[] = {"openssl pkcs8 -topk8 -in key -passout pass:x -out -",
                                       "openssl ec -in key -aes256 -passout pass:x 2>/dev/null"};
    for (size_t i = 0; i < ARRAY_COUNT(ways); i++) {
        struct fault fault = {0};
        cr_assert_eq(shell(folder, ways[i], output, sizeof output), 0);
        cr_expect_eq(tls_pair_check(slice_text(output), buffer_slice(&node.chain), &fault), CO_INVALID);
        cr_expect_str_eq(fault.text, "the private key is encrypted by a password; coord takes keys without one");
    }
    /* PKCS #8 without one is taken, as Consul and openssl write it. */
    cr_assert_eq(shell(folder, "openssl pkcs8 -topk8 -nocrypt -in key -out -", output, sizeof output), 0);
    cr_expect_eq(tls_pair_check(slice_text(output), buffer_slice(&node.chain), NULL), CO_OK);
    scratch_remove(folder);
}

Test(certificate, each_is_drawn_anew) {
    char one[TLS_DOMAIN_SIZE + 1], two[TLS_DOMAIN_SIZE + 1];
    cr_assert(tls_domain_make(one, NULL) == CO_OK && tls_domain_make(two, NULL) == CO_OK);
    cr_expect_str_neq(one, two);
    cr_expect_eq(strspn(one, "0123456789abcdef"), TLS_DOMAIN_SIZE);
    struct buffer first = {0}, second = {0};
    cr_assert(tls_key_make(&first, NULL) == CO_OK && tls_key_make(&second, NULL) == CO_OK);
    cr_expect_not(slice_equal(buffer_slice(&first), buffer_slice(&second)));
    tls_wipe(&first);
    tls_wipe(&second);
    cr_expect_null(first.data);
    char serials[64][41];
    for (size_t i = 0; i < 64; i++) {
        struct tls_certificate said;
        node.chain.size = 0;
        pki_node(&ca, TLS_ROLE_AGENT, "a", life, &node);
        CHECK(tls_certificate_read(buffer_slice(&node.chain), &said, NULL) == CO_OK);
        memcpy(serials[i], said.serial, sizeof said.serial);
        for (size_t j = 0; j < i; j++) cr_assert_str_neq(serials[i], serials[j]);
    }
}
