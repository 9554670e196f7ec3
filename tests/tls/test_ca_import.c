/* A CA that a company brings: what is taken, and each reason to refuse it. */
#include <criterion/criterion.h>
#include <gnutls/x509-ext.h>
#include <gnutls/x509.h>
#include <stdio.h>

#include "base/check.h"
#include "tests/tls/pki.h"
#include "tls/ca_import.h"

/* How a CA is made; zero: as a company's own would be. */
struct wish {
    const char *name;
    bool no_ca, no_cert_sign;
    int path_length; /* 0: none is said; N: N - 1 */
    struct tls_life life;
    gnutls_pk_algorithm_t kind;
    unsigned bits;
    gnutls_digest_algorithm_t hash;
    const char *dns, *uri; /* the only ones that are allowed */
    const char *not_dns;   /* one that is not */
    const char *ip;        /* 10.0.0.0/8, as bytes of address and mask */
    const char *use;       /* extended key usage */
};

static void must(int rv) { CHECK(rv >= 0); }

static void allow(gnutls_x509_name_constraints_t all, gnutls_x509_subject_alt_name_t kind, const char *name,
                  size_t size) {
    gnutls_datum_t bytes = {(unsigned char *)(uintptr_t)name, (unsigned)size};
    if (name) must(gnutls_x509_name_constraints_add_permitted(all, kind, &bytes));
}

static void constrain(gnutls_x509_crt_t made, const struct wish *wish) {
    gnutls_x509_name_constraints_t all;
    if (!wish->dns && !wish->uri && !wish->ip && !wish->not_dns) return;
    must(gnutls_x509_name_constraints_init(&all));
    allow(all, GNUTLS_SAN_DNSNAME, wish->dns, wish->dns ? strlen(wish->dns) : 0);
    allow(all, GNUTLS_SAN_URI, wish->uri, wish->uri ? strlen(wish->uri) : 0);
    allow(all, GNUTLS_SAN_IPADDRESS, wish->ip, 8);
    if (wish->not_dns) {
        gnutls_datum_t name = {(unsigned char *)(uintptr_t)wish->not_dns, (unsigned)strlen(wish->not_dns)};
        must(gnutls_x509_name_constraints_add_excluded(all, GNUTLS_SAN_DNSNAME, &name));
    }
    must(gnutls_x509_crt_set_name_constraints(made, all, 1));
    gnutls_x509_name_constraints_deinit(all);
}

static void append_pem(gnutls_x509_crt_t made, struct buffer *out) {
    gnutls_datum_t pem;
    must(gnutls_x509_crt_export2(made, GNUTLS_X509_FMT_PEM, &pem));
    buffer_append(out, pem.data, pem.size);
    gnutls_free(pem.data);
}

/* `by` NULL: it signs itself. */
static void make_ca(const struct wish *wish, const struct pair *by, struct pair *ca) {
    gnutls_x509_crt_t made, issuer = NULL;
    gnutls_x509_privkey_t key, signs = NULL;
    gnutls_datum_t pem;
    must(gnutls_x509_privkey_init(&key));
    must(gnutls_x509_privkey_generate(key, wish->kind ? wish->kind : GNUTLS_PK_ECDSA,
                                      wish->bits ? wish->bits : GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0));
    must(gnutls_x509_privkey_export2_pkcs8(key, GNUTLS_X509_FMT_PEM, NULL, GNUTLS_PKCS_PLAIN, &pem));
    ca->key.size = ca->chain.size = 0;
    buffer_append(&ca->key, pem.data, pem.size);
    gnutls_free(pem.data);
    must(gnutls_x509_crt_init(&made));
    must(gnutls_x509_crt_set_version(made, 3));
    must(gnutls_x509_crt_set_serial(made, "\x07", 1));
    must(gnutls_x509_crt_set_key(made, key));
    const char *name = wish->name ? wish->name : "Example Issuing CA";
    must(gnutls_x509_crt_set_dn_by_oid(made, GNUTLS_OID_X520_ORGANIZATION_NAME, 0, "Example & Sons, Inc.", 20));
    must(gnutls_x509_crt_set_dn_by_oid(made, GNUTLS_OID_X520_COMMON_NAME, 0, name, (unsigned)strlen(name)));
    struct tls_life life = wish->life.to_s ? wish->life : (struct tls_life){NOW - 10 * DAY, NOW + 1000 * DAY};
    must(gnutls_x509_crt_set_activation_time(made, life.from_s));
    must(gnutls_x509_crt_set_expiration_time(made, life.to_s));
    must(gnutls_x509_crt_set_subject_key_id(made, name, strlen(name)));
    must(gnutls_x509_crt_set_basic_constraints(made, !wish->no_ca, wish->path_length - 1));
    must(
        gnutls_x509_crt_set_key_usage(made, GNUTLS_KEY_CRL_SIGN | (wish->no_cert_sign ? 0 : GNUTLS_KEY_KEY_CERT_SIGN)));
    if (wish->use) must(gnutls_x509_crt_set_key_purpose_oid(made, wish->use, 0));
    constrain(made, wish);
    if (by) {
        pem = (gnutls_datum_t){(unsigned char *)by->chain.data, (unsigned)by->chain.size};
        must(gnutls_x509_crt_init(&issuer) | gnutls_x509_crt_import(issuer, &pem, GNUTLS_X509_FMT_PEM));
        pem = (gnutls_datum_t){(unsigned char *)by->key.data, (unsigned)by->key.size};
        must(gnutls_x509_privkey_init(&signs));
        must(gnutls_x509_privkey_import2(signs, &pem, GNUTLS_X509_FMT_PEM, NULL, 0));
    }
    must(gnutls_x509_crt_sign2(made, by ? issuer : made, by ? signs : key, wish->hash ? wish->hash : GNUTLS_DIG_SHA256,
                               0));
    append_pem(made, &ca->chain);
    if (by) buffer_append(&ca->chain, by->chain.data, by->chain.size);
    gnutls_x509_crt_deinit(made);
    gnutls_x509_privkey_deinit(key);
    if (issuer) gnutls_x509_crt_deinit(issuer);
    if (signs) gnutls_x509_privkey_deinit(signs);
}

static struct pair root, middle;
static struct ca_import import;
static struct fault fault;
static const struct wish as_usual;

static int read_at(const struct pair *ca, int64_t now_s) {
    struct tls_subject subject = {.domain = pki_domain,
                                  .role = TLS_ROLE_SERVER,
                                  .node = "s1",
                                  .datacenter = "dc1",
                                  .dns_domain = "coord",
                                  .addresses = ca_import_addresses};
    ca_import_free(&import);
    fault = (struct fault){0};
    return ca_import_read(buffer_slice(&ca->chain), buffer_slice(&ca->key), &subject, now_s, &import, &fault);
}

static void expect_refused(const struct wish *wish, const char *why) {
    make_ca(wish, &root, &middle);
    cr_expect_eq(read_at(&middle, NOW), CO_INVALID, "%s", why);
    cr_expect_not_null(strstr(fault.text, why), "\"%s\" is not in \"%s\"", why, fault.text);
}

static void setup(void) {
    make_ca(&(struct wish){.name = "Example Root"}, NULL, &root);
    make_ca(&as_usual, &root, &middle);
}

static void teardown(void) {
    pair_free(&root);
    pair_free(&middle);
    ca_import_free(&import);
}

TestSuite(ca_import, .init = setup, .fini = teardown);

Test(ca_import, an_intermediate_is_taken) {
    cr_assert_eq(read_at(&middle, NOW), CO_OK, "%s", fault.text);
    cr_expect_eq(tls_certificate_count(buffer_slice(&import.certificate)), 1u);
    cr_expect_str_eq(import.read.common_name, "Example Issuing CA");
    cr_expect_eq(import.above.size, 0u, "a root is not shown");
    cr_expect_eq(import.ends_s, NOW + 1000 * DAY);
}

Test(ca_import, all_between_it_and_the_root_is_shown) {
    struct pair third = {0};
    make_ca(&(struct wish){.name = "Policy CA", .path_length = 2, .life = {NOW - DAY, NOW + 100 * DAY}}, &root,
            &middle);
    make_ca(&(struct wish){.path_length = 1}, &middle, &third);
    cr_assert_eq(read_at(&third, NOW), CO_OK, "%s", fault.text);
    struct tls_certificate above;
    cr_assert_eq(tls_certificate_count(buffer_slice(&import.above)), 1u);
    cr_assert_eq(tls_certificate_read(buffer_slice(&import.above), &above, NULL), CO_OK);
    cr_expect_str_eq(above.common_name, "Policy CA");
    char line[CA_IMPORT_LINE];
    cr_expect_eq(import.ends_s, NOW + 100 * DAY, "the first that ends");
    cr_expect(ca_import_ends_soon(&import, NOW, line));
    cr_expect_not_null(strstr(line, "ends on 2027-04-25,"), "%s", line);
    cr_expect_not(ca_import_ends_soon(&import, NOW - 265 * DAY, line));
    pair_free(&third);
}

Test(ca_import, other_kinds_of_keys_are_taken) {
    static const struct wish wishes[] = {
        {.kind = GNUTLS_PK_ECDSA, .bits = GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP384R1)},
        {.kind = GNUTLS_PK_RSA, .bits = 2048},
        {.path_length = 1},
    };
    for (size_t i = 0; i < ARRAY_COUNT(wishes); i++) {
        make_ca(&wishes[i], &root, &middle);
        cr_expect_eq(read_at(&middle, NOW), CO_OK, "%zu: %s", i, fault.text);
    }
    cr_expect_eq(read_at(&root, NOW), CO_OK, "a root itself: %s", fault.text);
    size_t size = middle.chain.size;
    middle.chain.size -= root.chain.size;
    cr_expect_eq(read_at(&middle, NOW), CO_OK, "without its root: %s", fault.text);
    middle.chain.size = size;
}

Test(ca_import, names_that_fit_may_be_constrained) {
    make_ca(&(struct wish){.not_dns = "example.org"}, &root, &middle);
    cr_expect_eq(read_at(&middle, NOW), CO_OK, "%s", fault.text);
}

Test(ca_import, who_is_no_ca_is_refused) {
    expect_refused(&(struct wish){.no_ca = true}, "the CA is no CA (basic constraints)");
    expect_refused(&(struct wish){.no_cert_sign = true}, "the CA may not sign certificates");
}

Test(ca_import, time_counts) {
    expect_refused(&(struct wish){.life = {NOW - 2 * DAY, NOW - DAY}}, "the CA expired on 2027-01-14 08:00:00 UTC");
    expect_refused(&(struct wish){.life = {NOW + DAY, NOW + 2 * DAY}}, "the CA is valid only from 2027-01-16");
    make_ca(&as_usual, &root, &middle);
    cr_expect_eq(read_at(&middle, NOW + 1001 * DAY), CO_INVALID);
}

Test(ca_import, keys_of_other_kinds_are_refused) {
    static const char kinds[] = "keys are EC (P-256, P-384), or RSA of 2048 to 4096 bits";
    expect_refused(&(struct wish){.kind = GNUTLS_PK_RSA, .bits = 1024}, kinds);
    expect_refused(&(struct wish){.kind = GNUTLS_PK_EDDSA_ED25519, .bits = 256, .hash = GNUTLS_DIG_SHA256}, kinds);
    expect_refused(&(struct wish){.bits = GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP521R1)}, kinds);
}

Test(ca_import, names_that_it_may_not_sign_are_refused) {
    static const char net[] = "\x0a\0\0\0\xff\0\0";
    expect_refused(&(struct wish){.dns = "example.com"}, "DNS names");
    expect_refused(&(struct wish){.not_dns = "coord"}, "DNS names");
    expect_refused(&(struct wish){.uri = "example.com"}, "URIs");
    expect_refused(&(struct wish){.uri = pki_domain}, "URIs"); /* GnuTLS would not compare it */
    expect_refused(&(struct wish){.ip = net}, "addresses");
    make_ca(&(struct wish){.name = "Policy CA", .dns = "example.com"}, &root, &middle);
    struct pair third = {0};
    make_ca(&as_usual, &middle, &third);
    cr_expect_eq(read_at(&third, NOW), CO_INVALID, "one above it may not");
    cr_expect_not_null(strstr(fault.text, "certificate 2 (Policy CA) does not allow DNS names"), "%s", fault.text);
    pair_free(&third);
}

Test(ca_import, uses_that_others_would_refuse) {
    expect_refused(&(struct wish){.use = GNUTLS_KP_EMAIL_PROTECTION}, "nobody would take what it signs");
    expect_refused(&(struct wish){.use = GNUTLS_KP_TLS_WWW_SERVER}, "nobody would take what it signs: as a client's");
    expect_refused(&(struct wish){.hash = GNUTLS_DIG_SHA1}, "nobody would take what it signs");
}

Test(ca_import, the_chain_has_to_hold) {
    struct pair other = {0}, third = {0};
    make_ca(&(struct wish){.name = "Another Root"}, NULL, &other);
    size_t own = middle.chain.size - root.chain.size;
    middle.chain.size = own;
    buffer_append(&middle.chain, other.chain.data, other.chain.size);
    cr_expect_eq(read_at(&middle, NOW), CO_INVALID);
    cr_expect_str_eq(fault.text, "the CA is not issued by the next one of the file");

    /* the name of the root, and another key */
    make_ca(&(struct wish){.name = "Example Root"}, NULL, &other);
    middle.chain.size = own;
    buffer_append(&middle.chain, other.chain.data, other.chain.size);
    cr_expect_eq(read_at(&middle, NOW), CO_INVALID);
    cr_expect_not_null(strstr(fault.text, "nobody would take"), "%s", fault.text);

    make_ca(&(struct wish){.path_length = 1}, &root, &middle);
    make_ca(&as_usual, &middle, &third);
    cr_expect_eq(read_at(&third, NOW), CO_INVALID);
    cr_expect_not_null(strstr(fault.text, "allows 0 CAs below it, and there is 1"), "%s", fault.text);
    pair_free(&other);
    pair_free(&third);
}

Test(ca_import, the_key_has_to_be_its_own) {
    struct pair wrong = {.key = root.key, .chain = middle.chain};
    cr_expect_eq(read_at(&wrong, NOW), CO_INVALID);
    cr_expect_not_null(strstr(fault.text, "belongs to another certificate"), "%s", fault.text);
    cr_expect_not_null(strstr(fault.text, "the first certificate of the file"), "%s", fault.text);
}

Test(ca_import, text_that_is_none) {
    struct pair broken = {0};
    buffer_append(&broken.key, middle.key.data, middle.key.size);
    cr_expect_eq(read_at(&broken, NOW), CO_INVALID, "nothing");
    cr_expect_str_eq(fault.text, "there are no certificates in PEM");
    for (int i = 0; i < CA_IMPORT_MOST + 1; i++) buffer_append(&broken.chain, root.chain.data, root.chain.size);
    cr_expect_eq(read_at(&broken, NOW), CO_INVALID, "too many");
    cr_expect_str_eq(fault.text, "the file has 6 certificates, 5 are the most");
    broken.chain.size = 0;
    buffer_append(&broken.chain, middle.chain.data, middle.chain.size);
    broken.key.size /= 2;
    cr_expect_eq(read_at(&broken, NOW), CO_INVALID, "half a key");
    pair_free(&broken);
}

/* -- what it is then ---------------------------------------------------------------------------------------------- */
/* Its certificate is the anchor, though another one signed it: others of the root's are strangers. */
Test(ca_import, the_ca_is_the_anchor_and_not_its_root) {
    struct pair sister = {0}, own = {0}, foreign = {0};
    struct chain chain = {0};
    struct tls_certificate said;
    char why[160];
    cr_assert_eq(read_at(&middle, NOW), CO_OK, "%s", fault.text);
    struct tls_rules rules = {.trusted = buffer_slice(&import.certificate), .now_s = NOW};
    pki_node(&middle, TLS_ROLE_SERVER, "s1", (struct tls_life){NOW, NOW + WEEK}, &own);
    chain_add(&chain, buffer_slice(&own.chain));
    chain_add(&chain, buffer_slice(&root.chain));
    cr_expect_eq(tls_judge(&rules, chain.slices, chain.count, &said, why), TLS_TRUSTED, "%s", why);
    for (size_t count = 1; count < chain.count; count++)
        cr_expect_eq(tls_judge(&rules, chain.slices, count, &said, why), TLS_TRUSTED, "%s", why);
    chain_free(&chain);
    make_ca(&(struct wish){.name = "Sister CA"}, &root, &sister);
    pki_node(&sister, TLS_ROLE_SERVER, "s1", (struct tls_life){NOW, NOW + WEEK}, &foreign);
    chain_add(&chain, buffer_slice(&foreign.chain));
    chain_add(&chain, buffer_slice(&root.chain));
    cr_expect_eq(tls_judge(&rules, chain.slices, chain.count, &said, why), TLS_UNKNOWN_CA, "%s", why);
    chain_free(&chain);
    pair_free(&sister);
    pair_free(&own);
    pair_free(&foreign);
}

/* While it takes the place of another CA: who knows the old one alone takes it by the certificate that the old one signed,
 * and who knows the root alone by the one that the company signed. */
Test(ca_import, who_was_away_takes_it_by_the_old_ca) {
    struct pair old = {0}, policy = {0}, its = {0};
    struct buffer crossed = {0}, own = {0};
    struct tls_certificate said, known;
    char why[160];
    pki_ca(NULL, &old);
    struct tls_issuer by = pair_issuer(&old);
    make_ca(&(struct wish){.name = "Policy CA"}, &root, &policy);
    make_ca(&as_usual, &policy, &middle);
    cr_assert_eq(
        tls_ca_cross(buffer_slice(&middle.chain), (struct tls_life){NOW, NOW + 5000 * DAY}, &by, &crossed, &fault),
        CO_OK, "%s", fault.text);
    cr_assert_eq(tls_certificate_read(buffer_slice(&crossed), &said, NULL), CO_OK);
    cr_assert_eq(tls_certificate_read(buffer_slice(&middle.chain), &known, NULL), CO_OK);
    cr_expect_eq(memcmp(said.pin, known.pin, sizeof said.pin), 0);
    cr_expect_str_eq(said.common_name, "Example Issuing CA");
    cr_expect_eq(said.life.to_s, known.life.to_s, "no longer than its own");
    pki_node(&middle, TLS_ROLE_SERVER, "s1", (struct tls_life){NOW, NOW + WEEK}, &its);
    cr_assert_eq(tls_certificate_at(buffer_slice(&its.chain), 0, &own, NULL), CO_OK);
    struct slice anchors[] = {buffer_slice(&old.chain), buffer_slice(&root.chain)};
    for (int order = 1; order < 3; order++) {
        struct chain chain = {0};
        chain_add(&chain, buffer_slice(&own));
        chain_add(&chain, slice_make(middle.chain.data, middle.chain.size - policy.chain.size));
        if (order == 1) chain_add(&chain, buffer_slice(&crossed));
        chain_add(&chain, slice_make(policy.chain.data, policy.chain.size - root.chain.size));
        if (order == 2) chain_add(&chain, buffer_slice(&crossed));
        for (size_t i = 0; i < 2; i++) {
            struct tls_rules rules = {.trusted = anchors[i], .now_s = NOW, .as_server = true};
            cr_expect_eq(tls_judge(&rules, chain.slices, chain.count, &said, why), TLS_TRUSTED,
                         "order %d, anchor %zu: %s", order, i, why);
        }
        chain_free(&chain);
    }
    pair_free(&old);
    pair_free(&policy);
    pair_free(&its);
    buffer_free(&crossed);
    buffer_free(&own);
}

static void append_own(const struct pair *ca, struct buffer *cas) {
    CHECK(tls_certificate_at(buffer_slice(&ca->chain), 0, cas, NULL) == CO_OK);
}

static void append_cross(const struct pair *ca, const struct pair *by, struct buffer *cas) {
    struct tls_issuer issuer = pair_issuer(by);
    CHECK(tls_ca_cross(buffer_slice(&ca->chain), (struct tls_life){NOW, NOW + 5000 * DAY}, &issuer, cas, NULL) ==
          CO_OK);
}

static void expect_trusted_by(struct slice shown, const struct pair *ca, const char *what) {
    struct chain chain = {0};
    struct tls_certificate said;
    char why[160];
    chain_add(&chain, shown);
    struct buffer anchor = {0};
    append_own(ca, &anchor);
    struct tls_rules rules = {.trusted = buffer_slice(&anchor), .now_s = NOW, .as_server = true};
    cr_expect_eq(tls_judge(&rules, chain.slices, chain.count, &said, why), TLS_TRUSTED, "%s: %s", what, why);
    chain_free(&chain);
    buffer_free(&anchor);
}

/* The company's CA is the last of three, and then the one in the middle: its own certificate, which the company signed, leads
 * to none of the others. */
Test(ca_import, who_was_away_during_two_rotations_goes_back_over_it) {
    struct pair first = {0}, second = {0}, policy = {0}, its = {0};
    struct buffer cas = {0}, shown = {0};
    make_ca(&(struct wish){.name = "Policy CA"}, &root, &policy);
    make_ca(&as_usual, &policy, &middle);
    pki_ca(NULL, &first);
    pki_ca(NULL, &second);
    pki_node(&middle, TLS_ROLE_SERVER, "s1", (struct tls_life){NOW, NOW + WEEK}, &its);
    append_own(&policy, &its.chain);
    append_own(&middle, &cas), append_cross(&middle, &second, &cas);
    append_own(&second, &cas), append_cross(&second, &first, &cas);
    append_own(&first, &cas);
    tls_chain_shown(buffer_slice(&its.chain), buffer_slice(&cas), &shown);
    cr_expect_eq(tls_certificate_count(buffer_slice(&shown)), 5u);
    expect_trusted_by(buffer_slice(&shown), &first, "the first");
    expect_trusted_by(buffer_slice(&shown), &second, "the second");
    expect_trusted_by(buffer_slice(&shown), &middle, "the company's");
    expect_trusted_by(buffer_slice(&shown), &root, "the company's root");

    buffer_reset(&cas), buffer_reset(&shown), buffer_reset(&its.chain);
    pki_node(&second, TLS_ROLE_SERVER, "s1", (struct tls_life){NOW, NOW + WEEK}, &its);
    append_own(&second, &cas), append_cross(&second, &middle, &cas);
    append_own(&middle, &cas), append_cross(&middle, &first, &cas);
    append_own(&first, &cas);
    tls_chain_shown(buffer_slice(&its.chain), buffer_slice(&cas), &shown);
    cr_expect_eq(tls_certificate_count(buffer_slice(&shown)), 4u);
    expect_trusted_by(buffer_slice(&shown), &first, "the first");
    expect_trusted_by(buffer_slice(&shown), &middle, "the company's");
    expect_trusted_by(buffer_slice(&shown), &second, "the last");
    pair_free(&first);
    pair_free(&second);
    pair_free(&policy);
    pair_free(&its);
    buffer_free(&cas);
    buffer_free(&shown);
}

/* The old CA grants no more than the company did. */
Test(ca_import, its_path_length_counts_where_the_old_ca_signed_it_too) {
    struct pair old = {0}, last = {0};
    struct buffer crossed = {0}, out = {0};
    make_ca(&(struct wish){.path_length = 1}, &root, &middle);
    pki_ca(NULL, &old);
    pki_ca(NULL, &last);
    append_cross(&middle, &old, &crossed);
    struct tls_issuer issuer = {buffer_slice(&crossed), buffer_slice(&middle.key)};
    cr_expect_eq(tls_ca_cross(buffer_slice(&last.chain), (struct tls_life){NOW, NOW + DAY}, &issuer, &out, &fault),
                 CO_UNSUPPORTED);
    cr_expect_eq(out.size, 0u);
    pair_free(&old);
    pair_free(&last);
    buffer_free(&crossed);
}
