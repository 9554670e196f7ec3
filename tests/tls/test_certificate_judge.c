/* Each verdict about a chain, with the time as argument. */
#include <criterion/criterion.h>
#include <gnutls/abstract.h>
#include <gnutls/x509.h>

#include "base/check.h"
#include "tests/tls/pki.h"

static struct pair ca, node;
static struct chain chain;
static struct tls_certificate said;
static char why[160];

static void setup(void) {
    pki_ca(NULL, &ca);
    pki_node(&ca, TLS_ROLE_SERVER, "s1", (struct tls_life){NOW - DAY, NOW + WEEK}, &node);
    chain_add(&chain, buffer_slice(&node.chain));
}

static void teardown(void) {
    pair_free(&ca);
    pair_free(&node);
    chain_free(&chain);
}

TestSuite(certificate_judge, .init = setup, .fini = teardown);

static enum tls_verdict judge_by(struct slice trusted, int64_t now_s, int64_t grace_s, bool as_server) {
    struct tls_rules rules = {.trusted = trusted, .now_s = now_s, .grace_s = grace_s, .as_server = as_server};
    struct tls_certificate once;
    char why_once[160];
    enum tls_verdict verdict = tls_judge(&rules, chain.slices, chain.count, &once, why_once);
    struct tls_trust *trust = tls_trust_make(trusted);
    rules.trust = trust, rules.trusted = (struct slice){0};
    for (int i = 0; i < 2; i++) { /* parsed before, and used again: the same */
        cr_expect_eq(tls_judge(&rules, chain.slices, chain.count, &said, why), verdict);
        cr_expect_str_eq(why, why_once);
        cr_expect(said.role == once.role && strcmp(said.node, once.node) == 0 && strcmp(said.domain, once.domain) == 0);
    }
    tls_trust_free(trust);
    return verdict;
}

static enum tls_verdict judge(int64_t now_s, int64_t grace_s) {
    return judge_by(buffer_slice(&ca.chain), now_s, grace_s, true);
}

#define expect_why(part) cr_expect_not_null(strstr(why, part), "%s", why)

Test(certificate_judge, a_node_of_the_cluster_is_trusted) {
    cr_assert_eq(judge(NOW, 0), TLS_TRUSTED, "%s", why);
    cr_expect_str_eq(why, "");
    cr_expect_eq(said.role, TLS_ROLE_SERVER);
    cr_expect_str_eq(said.node, "s1");
    cr_expect_str_eq(said.domain, pki_domain);
    cr_assert_eq(judge_by(buffer_slice(&ca.chain), NOW, 0, false), TLS_TRUSTED, "%s", why);
}

/* The node alone, without the CA's certificate behind it. */
Test(certificate_judge, a_chain_may_lack_the_root) {
    chain.count = 1;
    cr_expect_eq(judge(NOW, 0), TLS_TRUSTED, "%s", why);
    chain.count = 2;
}

Test(certificate_judge, another_ca_is_unknown) {
    struct pair other = {0};
    pki_ca(NULL, &other);
    cr_expect_eq(judge_by(buffer_slice(&other.chain), NOW, 0, true), TLS_UNKNOWN_CA);
    expect_why("a CA that is not trusted here (CN=coord CA ");
    cr_expect_str_eq(said.node, "s1", "it can be read all the same");
    cr_expect_eq(judge_by((struct slice){0}, NOW, 0, true), TLS_UNKNOWN_CA, "nobody is trusted");
    cr_expect_eq(judge_by(SLICE_LITERAL("no PEM"), NOW, 0, true), TLS_UNKNOWN_CA);
    pair_free(&other);
}

/* The same name and another key: the signature tells them apart. */
Test(certificate_judge, a_ca_of_the_same_name_is_another) {
    struct pair one = {0}, two = {0};
    struct tls_plain_ca plain = {.common_name = "the CA"};
    struct tls_life life = {NOW - DAY, NOW + DAY};
    CHECK(tls_key_make(&one.key, NULL) == CO_OK && tls_key_make(&two.key, NULL) == CO_OK);
    CHECK(tls_ca_make_plain(buffer_slice(&one.key), &plain, life, &one.chain, NULL) == CO_OK);
    CHECK(tls_ca_make_plain(buffer_slice(&two.key), &plain, life, &two.chain, NULL) == CO_OK);
    struct pair false_node = {0};
    pki_node(&one, TLS_ROLE_SERVER, "s1", life, &false_node);
    chain_free(&chain);
    chain_add(&chain, buffer_slice(&false_node.chain));
    cr_expect_eq(judge_by(buffer_slice(&one.chain), NOW, 0, true), TLS_TRUSTED, "%s", why);
    cr_expect_eq(judge_by(buffer_slice(&two.chain), NOW, 0, true), TLS_UNKNOWN_CA);
    struct buffer both = {0};
    buffer_append(&both, two.chain.data, two.chain.size);
    buffer_append(&both, one.chain.data, one.chain.size);
    cr_expect_eq(judge_by(buffer_slice(&both), NOW, 0, true), TLS_TRUSTED, "%s", why);
    buffer_free(&both);
    pair_free(&one);
    pair_free(&two);
    pair_free(&false_node);
}

Test(certificate_judge, signed_by_itself_is_unknown_unless_trusted) {
    struct pair alone = {0};
    pki_ca(NULL, &alone);
    chain_free(&chain);
    chain_add(&chain, buffer_slice(&alone.chain));
    cr_expect_eq(judge(NOW, 0), TLS_UNKNOWN_CA);
    expect_why("signed by itself");
    cr_expect_eq(judge_by(buffer_slice(&alone.chain), NOW, 0, true), TLS_TRUSTED);
    cr_expect_eq(said.role, TLS_ROLE_NONE, "a CA is no node");
    pair_free(&alone);
}

Test(certificate_judge, time_counts_to_the_second) {
    cr_expect_eq(judge(NOW + WEEK, 0), TLS_TRUSTED);
    cr_expect_eq(judge(NOW + WEEK + 1, 0), TLS_EXPIRED);
    cr_expect_str_eq(why, "its certificate expired on 2027-01-22 08:00:00 UTC");
    cr_expect_eq(judge(NOW - DAY, 0), TLS_TRUSTED);
    cr_expect_eq(judge(NOW - DAY - 1, 0), TLS_NOT_YET);
    cr_expect_str_eq(why, "its certificate is valid only from 2027-01-14 08:00:00 UTC on: is a clock wrong?");
}

Test(certificate_judge, grace_is_for_expired_ones_alone) {
    cr_expect_eq(judge(NOW + WEEK + 30 * DAY, 30 * DAY), TLS_TRUSTED);
    cr_expect_eq(judge(NOW + WEEK + 30 * DAY + 1, 30 * DAY), TLS_EXPIRED);
    cr_expect_eq(judge(NOW - DAY - 1, 30 * DAY), TLS_NOT_YET);
}

static time_t long_ago(time_t *to) {
    if (to) *to = 1;
    return 1;
}

Test(certificate_judge, the_clock_of_the_process_does_not_count) {
    gnutls_global_set_time_function(long_ago);
    struct tls_life life = {NOW + 1000 * DAY, NOW + 1001 * DAY};
    struct pair later = {0};
    pki_node(&ca, TLS_ROLE_AGENT, "a", life, &later);
    chain_free(&chain);
    chain_add(&chain, buffer_slice(&later.chain));
    cr_expect_eq(judge(NOW + 1000 * DAY, 0), TLS_TRUSTED, "%s", why);
    pair_free(&later);
}

Test(certificate_judge, a_ca_that_expired_is_named_and_has_no_grace) {
    struct pair old = {0}, its = {0};
    CHECK(tls_key_make(&old.key, NULL) == CO_OK);
    CHECK(tls_ca_make(buffer_slice(&old.key), pki_domain, (struct tls_life){NOW - DAY, NOW + DAY}, &old.chain, NULL) ==
          CO_OK);
    pki_node(&old, TLS_ROLE_SERVER, "s1", (struct tls_life){NOW, NOW + DAY}, &its);
    chain_free(&chain);
    chain_add(&chain, buffer_slice(&its.chain));
    cr_expect_eq(judge_by(buffer_slice(&old.chain), NOW, 0, true), TLS_TRUSTED, "%s", why);
    cr_expect_eq(judge_by(buffer_slice(&old.chain), NOW + DAY + 1, 30 * DAY, true), TLS_EXPIRED);
    cr_expect_str_eq(why, "the CA of its certificate expired on 2027-01-16 08:00:00 UTC");
    cr_expect_eq(judge_by(buffer_slice(&old.chain), NOW - DAY - 1, 0, true), TLS_NOT_YET);
    expect_why("the CA of its certificate is valid only from");
    pair_free(&old);
    pair_free(&its);
}

static void one_of_use(bool server, bool client) {
    struct tls_issuer issuer = pair_issuer(&ca);
    struct tls_plain_subject subject = {.common_name = "x", .server = server, .client = client};
    struct tls_life life = {NOW - DAY, NOW + DAY};
    struct buffer pem = {0};
    CHECK(tls_issue_plain(&issuer, buffer_slice(&node.key), &subject, life, &pem, NULL) == CO_OK);
    chain_free(&chain);
    chain_add(&chain, buffer_slice(&pem));
    buffer_free(&pem);
}

Test(certificate_judge, the_use_must_fit) {
    one_of_use(false, true);
    cr_expect_eq(judge(NOW, 0), TLS_WRONG_USE);
    cr_expect_str_eq(why, "its certificate is not made for servers (extended key usage)");
    cr_expect_eq(judge_by(buffer_slice(&ca.chain), NOW, 0, false), TLS_TRUSTED, "%s", why);
    one_of_use(true, false);
    cr_expect_eq(judge_by(buffer_slice(&ca.chain), NOW, 0, false), TLS_WRONG_USE);
    cr_expect_str_eq(why, "its certificate is not made for clients (extended key usage)");
    cr_expect_eq(judge(NOW, 0), TLS_TRUSTED, "%s", why);
    one_of_use(false, false);
    cr_expect_eq(judge(NOW, 0), TLS_TRUSTED, "without uses it may have any");
}

/* root -> intermediate -> node */
Test(certificate_judge, an_intermediate_leads_to_its_root) {
    struct pair middle = {0}, its = {0};
    pki_ca(&ca, &middle);
    pki_node(&middle, TLS_ROLE_AGENT, "a1", (struct tls_life){NOW, NOW + DAY}, &its);
    chain_free(&chain);
    chain_add(&chain, buffer_slice(&its.chain));
    cr_assert_eq(chain.count, 2u);
    cr_expect_eq(judge(NOW, 0), TLS_TRUSTED, "%s", why);
    cr_expect_eq(judge_by(buffer_slice(&middle.chain), NOW, 0, true), TLS_TRUSTED, "it may be trusted itself: %s", why);
    chain.count = 1;
    cr_expect_eq(judge(NOW, 0), TLS_UNKNOWN_CA, "without it there is no way");
    chain.count = 2;
    cr_expect_eq(judge(NOW + 4000 * DAY, 5000 * DAY), TLS_EXPIRED, "it has no grace");
    expect_why("the CA of its certificate expired");
    pair_free(&middle);
    pair_free(&its);
}

/* Its root is well, and the node would have grace: a CA has none. */
Test(certificate_judge, an_intermediate_that_expired_has_no_grace) {
    struct pair middle = {0}, its = {0};
    struct tls_issuer root = pair_issuer(&ca);
    struct pair own = {0};
    pki_ca(NULL, &own);
    buffer_append(&middle.key, own.key.data, own.key.size);
    CHECK(tls_ca_cross(buffer_slice(&own.chain), (struct tls_life){NOW - DAY, NOW + DAY}, &root, &middle.chain, NULL) ==
          CO_OK);
    pair_free(&own);
    pki_node(&middle, TLS_ROLE_AGENT, "a1", (struct tls_life){NOW, NOW + DAY}, &its);
    chain_free(&chain);
    chain_add(&chain, buffer_slice(&its.chain));
    cr_expect_eq(judge(NOW + DAY, 30 * DAY), TLS_TRUSTED, "%s", why);
    cr_expect_eq(judge(NOW + DAY + 1, 30 * DAY), TLS_EXPIRED);
    cr_expect_str_eq(why, "the CA of its certificate expired on 2027-01-16 08:00:00 UTC");
    pair_free(&middle);
    pair_free(&its);
}

/* A node may not sign for another. */
Test(certificate_judge, a_node_is_no_ca) {
    struct pair false_ca = {0}, its = {0};
    CHECK(tls_key_make(&its.key, NULL) == CO_OK);
    gnutls_x509_crt_t issuer, made;
    gnutls_x509_privkey_t key, own;
    gnutls_datum_t issuer_pem = {(unsigned char *)node.chain.data, (unsigned)node.chain.size}, out;
    gnutls_datum_t key_pem = {(unsigned char *)node.key.data, (unsigned)node.key.size};
    gnutls_datum_t own_pem = {(unsigned char *)its.key.data, (unsigned)its.key.size};
    gnutls_x509_crt_init(&issuer);
    gnutls_x509_crt_init(&made);
    gnutls_x509_privkey_init(&key);
    gnutls_x509_privkey_init(&own);
    CHECK(gnutls_x509_crt_import(issuer, &issuer_pem, GNUTLS_X509_FMT_PEM) == 0);
    CHECK(gnutls_x509_privkey_import(key, &key_pem, GNUTLS_X509_FMT_PEM) == 0);
    CHECK(gnutls_x509_privkey_import(own, &own_pem, GNUTLS_X509_FMT_PEM) == 0);
    CHECK(gnutls_x509_crt_set_key(made, own) == 0 && gnutls_x509_crt_set_version(made, 3) == 0 &&
          gnutls_x509_crt_set_serial(made, "\x01", 1) == 0 && gnutls_x509_crt_set_activation_time(made, NOW) == 0 &&
          gnutls_x509_crt_set_expiration_time(made, NOW + DAY) == 0 &&
          gnutls_x509_crt_set_dn_by_oid(made, GNUTLS_OID_X520_COMMON_NAME, 0, "x", 1) == 0 &&
          gnutls_x509_crt_sign2(made, issuer, key, GNUTLS_DIG_SHA256, 0) == 0 &&
          gnutls_x509_crt_export2(made, GNUTLS_X509_FMT_PEM, &out) == 0);
    struct buffer old = {0};
    buffer_append(&old, node.chain.data, node.chain.size);
    chain_free(&chain);
    chain_add(&chain, slice_make(out.data, out.size));
    chain_add(&chain, buffer_slice(&old));
    cr_expect_eq(judge(NOW, 0), TLS_UNKNOWN_CA);
    expect_why("no CA");
    gnutls_free(out.data);
    gnutls_x509_crt_deinit(issuer);
    gnutls_x509_crt_deinit(made);
    gnutls_x509_privkey_deinit(key);
    gnutls_x509_privkey_deinit(own);
    buffer_free(&old);
    pair_free(&false_ca);
    pair_free(&its);
}

/* A rotation: the new CA signs; nodes that know only the old one get the new one signed by the old one. */
Test(certificate_judge, a_new_ca_signed_by_the_old_one_serves_both) {
    struct pair fresh = {0}, crossed = {0}, its = {0};
    pki_ca(NULL, &fresh);
    buffer_append(&crossed.key, fresh.key.data, fresh.key.size);
    pki_ca(&ca, &crossed);
    pki_node(&crossed, TLS_ROLE_SERVER, "s2", (struct tls_life){NOW, NOW + DAY}, &its);
    chain_free(&chain);
    chain_add(&chain, buffer_slice(&its.chain));
    cr_assert_eq(chain.count, 2u);
    cr_expect_eq(judge(NOW, 0), TLS_TRUSTED, "who knows the old one alone: %s", why);
    cr_expect_eq(judge_by(buffer_slice(&fresh.chain), NOW, 0, true), TLS_TRUSTED, "who knows the new one alone: %s",
                 why);
    struct buffer both = {0};
    buffer_append(&both, fresh.chain.data, fresh.chain.size);
    buffer_append(&both, ca.chain.data, ca.chain.size);
    cr_expect_eq(judge_by(buffer_slice(&both), NOW, 0, true), TLS_TRUSTED, "both: %s", why);
    /* Behind it the old one too, as some send it; and for who knows the new one alone, even when the old one is over. */
    chain_add(&chain, buffer_slice(&ca.chain));
    cr_expect_eq(judge_by(buffer_slice(&fresh.chain), NOW, 0, true), TLS_TRUSTED, "%s", why);
    /* Meanwhile a server shows both certificates of the new one. */
    struct buffer own = {0};
    CHECK(tls_certificate_at(buffer_slice(&its.chain), 0, &own, NULL) == CO_OK);
    for (int order = 0; order < 2; order++) {
        chain_free(&chain);
        chain_add(&chain, buffer_slice(&own));
        chain_add(&chain, buffer_slice(order ? &crossed.chain : &fresh.chain));
        chain_add(&chain, buffer_slice(order ? &fresh.chain : &crossed.chain));
        cr_expect_eq(judge(NOW, 0), TLS_TRUSTED, "who was away since the old one: %s", why);
        cr_expect_eq(judge_by(buffer_slice(&fresh.chain), NOW, 0, true), TLS_TRUSTED, "%s", why);
        cr_expect_eq(judge_by(buffer_slice(&both), NOW, 0, true), TLS_TRUSTED, "%s", why);
    }
    buffer_free(&own);
    chain_free(&chain);
    chain_add(&chain, buffer_slice(&node.chain));
    cr_expect_eq(judge_by(buffer_slice(&fresh.chain), NOW, 0, true), TLS_UNKNOWN_CA, "the old one is dropped");
    cr_expect_eq(judge_by(buffer_slice(&both), NOW, 0, true), TLS_TRUSTED);
    buffer_free(&both);
    pair_free(&fresh);
    pair_free(&crossed);
    pair_free(&its);
}

/* The old CA is over, and its signature on the new one with it; the new one is trusted, so nothing is wrong. */
Test(certificate_judge, a_signature_that_expired_does_not_harm_a_trusted_ca) {
    struct pair old = {0}, fresh = {0}, crossed = {0}, its = {0};
    CHECK(tls_key_make(&old.key, NULL) == CO_OK);
    CHECK(tls_ca_make(buffer_slice(&old.key), pki_domain, (struct tls_life){NOW - DAY, NOW + DAY}, &old.chain, NULL) ==
          CO_OK);
    pki_ca(NULL, &fresh);
    buffer_append(&crossed.key, fresh.key.data, fresh.key.size);
    pki_ca(&old, &crossed);
    pki_node(&fresh, TLS_ROLE_SERVER, "s2", (struct tls_life){NOW, NOW + WEEK}, &its);
    chain_free(&chain);
    struct buffer own = {0};
    CHECK(tls_certificate_at(buffer_slice(&its.chain), 0, &own, NULL) == CO_OK);
    chain_add(&chain, buffer_slice(&own));
    chain_add(&chain, buffer_slice(&crossed.chain));
    chain_add(&chain, buffer_slice(&old.chain));
    struct buffer both = {0};
    buffer_append(&both, old.chain.data, old.chain.size);
    buffer_append(&both, fresh.chain.data, fresh.chain.size);
    cr_expect_eq(judge_by(buffer_slice(&both), NOW + 2 * DAY, 0, true), TLS_TRUSTED, "%s", why);
    cr_expect_eq(judge_by(buffer_slice(&old.chain), NOW, 0, true), TLS_TRUSTED, "%s", why);
    cr_expect_eq(judge_by(buffer_slice(&old.chain), NOW + 2 * DAY, 0, true), TLS_EXPIRED);
    expect_why("the CA of its certificate");
    buffer_free(&own);
    buffer_free(&both);
    pair_free(&old);
    pair_free(&fresh);
    pair_free(&crossed);
    pair_free(&its);
}

/* A company's CA, RSA, and a certificate of it with a key of that kind. Small keys are not secure any more. */
Test(certificate_judge, rsa_is_taken_from_2048_bits) {
    for (unsigned bits = 1024; bits <= 2048; bits += 1024) {
        struct pair company = {0};
        struct tls_plain_ca plain = {.common_name = "Company"};
        struct tls_life life = {NOW - DAY, NOW + DAY};
        struct buffer key = {0}, pem = {0};
        pki_rsa_key(2048, &company.key);
        pki_rsa_key(bits, &key);
        CHECK(tls_ca_make_plain(buffer_slice(&company.key), &plain, life, &company.chain, NULL) == CO_OK);
        struct tls_plain_subject subject = {.common_name = "x", .server = true, .client = true};
        struct tls_issuer issuer = pair_issuer(&company);
        CHECK(tls_issue_plain(&issuer, buffer_slice(&key), &subject, life, &pem, NULL) == CO_OK);
        chain_free(&chain);
        chain_add(&chain, buffer_slice(&pem));
        enum tls_verdict verdict = judge_by(buffer_slice(&company.chain), NOW, 0, true);
        cr_expect_eq(verdict, bits < 2048 ? TLS_UNKNOWN_CA : TLS_TRUSTED, "%u: %s", bits, why);
        if (bits < 2048) expect_why("not secure");
        cr_expect_eq(tls_pair_check(buffer_slice(&key), buffer_slice(&pem), NULL), CO_OK);
        buffer_free(&key);
        buffer_free(&pem);
        pair_free(&company);
    }
}

Test(certificate_judge, names_that_the_ca_may_not_sign_are_refused) {
    const char *const constraints[] = {"coord", "localhost", NULL};
    struct pair bound = {0};
    struct tls_plain_ca plain = {.common_name = "bound", .constraints = constraints};
    struct tls_life life = {NOW - DAY, NOW + DAY};
    struct buffer pem = {0};
    CHECK(tls_key_make(&bound.key, NULL) == CO_OK);
    CHECK(tls_ca_make_plain(buffer_slice(&bound.key), &plain, life, &bound.chain, NULL) == CO_OK);
    /* One without constraints, with the same key and name: it signs anything. */
    struct pair free_one = {0};
    struct tls_plain_ca unbound = {.common_name = "bound"};
    buffer_append(&free_one.key, bound.key.data, bound.key.size);
    CHECK(tls_ca_make_plain(buffer_slice(&free_one.key), &unbound, life, &free_one.chain, NULL) == CO_OK);
    static const char *const names[][2] = {{"server.dc1.coord"}, {"evil.example"}};
    for (size_t i = 0; i < 2; i++) {
        struct tls_plain_subject subject = {.common_name = "x", .names = names[i], .server = true};
        struct tls_issuer issuer = pair_issuer(&free_one);
        pem.size = 0;
        CHECK(tls_issue_plain(&issuer, buffer_slice(&node.key), &subject, life, &pem, NULL) == CO_OK);
        chain_free(&chain);
        chain_add(&chain, buffer_slice(&pem));
        cr_expect_eq(judge_by(buffer_slice(&bound.chain), NOW, 0, true), i ? TLS_UNKNOWN_CA : TLS_TRUSTED, "%s", why);
        struct fault fault = {0};
        issuer = pair_issuer(&bound);
        cr_expect_eq(tls_issue_plain(&issuer, buffer_slice(&node.key), &subject, life, &pem, &fault),
                     i ? CO_INVALID : CO_OK, "%s: %s", names[i][0], fault.text);
        if (i) cr_expect_str_eq(fault.text, "the CA may not sign one of its DNS names (name constraints)");
    }
    expect_why("may not sign");
    buffer_free(&pem);
    pair_free(&bound);
    pair_free(&free_one);
}

Test(certificate_judge, garbage_is_unreadable) {
    struct slice whole = chain.slices[0];
    cr_expect_eq(tls_judge(&(struct tls_rules){.now_s = NOW}, NULL, 0, &said, why), TLS_UNREADABLE);
    cr_expect_str_eq(why, "it showed no certificate");
    for (size_t size = 0; size < whole.size; size++) {
        chain.slices[0] = slice_make(whole.data, size);
        cr_assert_eq(judge(NOW, 0), TLS_UNREADABLE, "%zu bytes", size);
        cr_assert_eq(said.role, TLS_ROLE_NONE);
    }
    expect_why("certificate 1 of 2 cannot be read");
    chain.slices[0] = whole;
    chain.slices[1] = SLICE_LITERAL("garbage");
    cr_expect_eq(judge(NOW, 0), TLS_UNREADABLE);
    expect_why("certificate 2 of 2 cannot be read");
    cr_expect_str_eq(said.node, "s1", "the first one can be read");
}

Test(certificate_judge, a_long_chain_is_unreadable) {
    while (chain.count < TLS_CHAIN_MOST + 2) chain_add(&chain, buffer_slice(&ca.chain));
    cr_expect_eq(judge(NOW, 0), TLS_UNREADABLE);
    expect_why("12 certificates, 10 are the most");
}

/* Whatever byte is changed: it is not trusted, or it says the same. */
Test(certificate_judge, a_changed_byte_is_noticed) {
    struct buffer own = {0};
    buffer_append(&own, chain.slices[0].data, chain.slices[0].size);
    chain.slices[0] = buffer_slice(&own);
    cr_assert_eq(judge(NOW, 0), TLS_TRUSTED);
    for (size_t at = 0; at < own.size; at++) {
        own.data[at] ^= 1;
        cr_expect_neq(judge(NOW, 0), TLS_TRUSTED, "byte %zu", at);
        cr_expect_neq(why[0], '\0');
        own.data[at] ^= 1;
    }
    buffer_free(&own);
}

/* Another writes the name of its CA: no control character of it reaches a log. */
Test(certificate_judge, words_of_others_are_one_line) {
    struct pair loud = {0}, its = {0};
    struct tls_plain_ca plain = {.common_name =
                                     "a\nb\x1b[31m \xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
                                     "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"};
    struct tls_life life = {NOW - DAY, NOW + DAY};
    CHECK(tls_key_make(&loud.key, NULL) == CO_OK);
    CHECK(tls_ca_make_plain(buffer_slice(&loud.key), &plain, life, &loud.chain, NULL) == CO_OK);
    pki_node(&loud, TLS_ROLE_SERVER, "s1", life, &its);
    chain_free(&chain);
    chain_add(&chain, buffer_slice(&its.chain));
    cr_expect_eq(judge(NOW, 0), TLS_UNKNOWN_CA);
    for (const char *at = why; *at; at++) cr_expect((unsigned char)*at >= ' ', "%s", why);
    cr_expect_lt(strlen(why), 160u);
    pair_free(&loud);
    pair_free(&its);
}
