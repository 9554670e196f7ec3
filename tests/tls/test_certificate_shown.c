/* Certificates that a node shows to those who know only an older CA, after any number of rotations. */
#include <criterion/criterion.h>

#include "base/check.h"
#include "tests/tls/pki.h"

enum { CAS = 8 }; /* as many as a cluster trusts */

/* The newest last; `crossed`: as the one before signed it. */
static struct pair cas[CAS], crossed[CAS];

static void setup(void) {
    for (int i = 0; i < CAS; i++) {
        pki_ca(NULL, &cas[i]);
        if (i == 0) continue;
        buffer_append(&crossed[i].key, cas[i].key.data, cas[i].key.size);
        pki_ca(&cas[i - 1], &crossed[i]);
    }
}
static void teardown(void) {
    for (int i = 0; i < CAS; i++) pair_free(&cas[i]), pair_free(&crossed[i]);
}
TestSuite(certificate_shown, .init = setup, .fini = teardown);

/* The file of trusted CAs, the newest first, of those from `first` to `last`. */
static void trusted(int first, int last, struct buffer *pem) {
    for (int i = last; i >= first; i--) {
        buffer_append(pem, cas[i].chain.data, cas[i].chain.size);
        buffer_append(pem, crossed[i].chain.data, crossed[i].chain.size);
    }
}

static enum tls_verdict judge(struct slice shown, struct slice by) {
    struct chain chain = {0};
    struct tls_certificate said;
    char why[160];
    chain_add(&chain, shown);
    struct tls_rules rules = {.trusted = by, .now_s = NOW, .as_server = true};
    enum tls_verdict verdict = tls_judge(&rules, chain.slices, chain.count, &said, why);
    chain_free(&chain);
    return verdict;
}

Test(certificate_shown, whoever_knows_an_older_ca_can_judge_it) {
    for (int first = 0; first < CAS; first++) {
        for (int last = first; last < CAS; last++) {
            struct pair node = {0};
            struct buffer known = {0}, shown = {0};
            trusted(first, last, &known);
            pki_node(&cas[last], TLS_ROLE_SERVER, "s1", (struct tls_life){NOW, NOW + DAY}, &node);
            tls_chain_shown(buffer_slice(&node.chain), buffer_slice(&known), &shown);
            size_t count = tls_certificate_count(buffer_slice(&shown));
            cr_assert_leq(count, TLS_CHAIN_MOST);
            cr_expect_eq(count, 2u + (size_t)(last - first) + (first > 0), "%d to %d: %zu", first, last, count);
            for (int i = 0; i < CAS;
                 i++) /* the cross of the oldest is there, too, so one more CA before it is enough */
                cr_expect_eq(judge(buffer_slice(&shown), buffer_slice(&cas[i].chain)) == TLS_TRUSTED,
                             i >= first - 1 && i <= last, "%d to %d, by %d", first, last, i);
            buffer_free(&known);
            buffer_free(&shown);
            pair_free(&node);
        }
    }
}

/* The chain of some companies ends with the CA as another one signed it. */
Test(certificate_shown, what_the_chain_has_is_not_shown_twice) {
    struct pair node = {0};
    struct buffer known = {0}, shown = {0};
    trusted(0, 2, &known);
    pki_node(&crossed[2], TLS_ROLE_SERVER, "s1", (struct tls_life){NOW, NOW + DAY}, &node);
    tls_chain_shown(buffer_slice(&node.chain), buffer_slice(&known), &shown);
    cr_expect_eq(tls_certificate_count(buffer_slice(&shown)), 3u);
    cr_expect_eq(judge(buffer_slice(&shown), buffer_slice(&cas[0].chain)), TLS_TRUSTED);
    buffer_reset(&shown);
    tls_chain_shown(buffer_slice(&node.chain), SLICE_LITERAL("no PEM"), &shown);
    cr_expect(slice_equal(buffer_slice(&shown), buffer_slice(&node.chain)));
    buffer_reset(&shown);
    tls_chain_shown(SLICE_LITERAL("no PEM"), buffer_slice(&known), &shown);
    cr_expect(slice_is(buffer_slice(&shown), "no PEM"));
    buffer_free(&known);
    buffer_free(&shown);
    pair_free(&node);
}
