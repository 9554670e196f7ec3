/* CAs that are parsed once and judge at many times, and what a side shows of its chain. */
#include <criterion/criterion.h>

#include "base/check.h"
#include "tests/tls/pki.h"
#include "tests/tls/world.h"

static enum tls_verdict judge(const struct tls_trust *trust, const struct chain *chain, int64_t now_s, char why[160]) {
    struct tls_rules rules = {.trust = trust, .now_s = now_s, .grace_s = 100 * DAY, .as_server = true};
    struct tls_certificate said;
    return tls_judge(&rules, chain->slices, chain->count, &said, why);
}

/* One of the two expires, later the other begins: each judgement counts those of its own moment. */
Test(trust, each_judgement_has_its_own_time) {
    struct pair early = {0}, late = {0}, early_node = {0}, late_node = {0};
    struct chain by_early = {0}, by_late = {0};
    struct buffer both = {0};
    char why[160];
    struct tls_life first = {NOW - 10 * DAY, NOW + DAY}, second = {NOW, NOW + 10 * DAY};
    CHECK(tls_key_make(&early.key, NULL) == CO_OK && tls_key_make(&late.key, NULL) == CO_OK);
    CHECK(tls_ca_make(buffer_slice(&early.key), pki_domain, first, &early.chain, NULL) == CO_OK);
    CHECK(tls_ca_make(buffer_slice(&late.key), pki_domain, second, &late.chain, NULL) == CO_OK);
    pki_node(&early, TLS_ROLE_SERVER, "s1", first, &early_node);
    pki_node(&late, TLS_ROLE_SERVER, "s2", second, &late_node);
    chain_add(&by_early, buffer_slice(&early_node.chain));
    chain_add(&by_late, buffer_slice(&late_node.chain));
    buffer_append(&both, early.chain.data, early.chain.size);
    buffer_append(&both, late.chain.data, late.chain.size);
    struct tls_trust *trust = tls_trust_make(buffer_slice(&both));
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(judge(trust, &by_early, NOW + 1, why), TLS_TRUSTED, "%s", why);
        cr_expect_eq(judge(trust, &by_late, NOW + 1, why), TLS_TRUSTED, "%s", why);
        cr_expect_eq(judge(trust, &by_early, NOW + 2 * DAY, why), TLS_EXPIRED);
        cr_expect_str_eq(why, "the CA of its certificate expired on 2027-01-16 08:00:00 UTC");
        cr_expect_eq(judge(trust, &by_late, NOW + 2 * DAY, why), TLS_TRUSTED, "%s", why);
        cr_expect_eq(judge(trust, &by_early, NOW - 2 * DAY, why), TLS_TRUSTED, "%s", why);
        cr_expect_eq(judge(trust, &by_late, NOW - 2 * DAY, why), TLS_NOT_YET);
    }
    tls_trust_free(trust);
    buffer_free(&both);
    chain_free(&by_early), chain_free(&by_late);
    pair_free(&early), pair_free(&late), pair_free(&early_node), pair_free(&late_node);
}

/* A broken text trusts nobody, as before it was kept. */
Test(trust, of_a_broken_text_nobody_is_trusted) {
    struct pair ca = {0}, node = {0};
    struct chain chain = {0};
    struct buffer text = {0};
    char why[160];
    pki_ca(NULL, &ca);
    pki_node(&ca, TLS_ROLE_SERVER, "s1", (struct tls_life){NOW - DAY, NOW + DAY}, &node);
    chain_add(&chain, buffer_slice(&node.chain));
    buffer_append(&text, ca.chain.data, ca.chain.size);
    buffer_append_text(&text, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    struct tls_trust *trust = tls_trust_make(buffer_slice(&text));
    cr_expect_eq(judge(trust, &chain, NOW, why), TLS_UNKNOWN_CA);
    tls_trust_free(trust);
    buffer_free(&text);
    chain_free(&chain);
    pair_free(&ca), pair_free(&node);
}

/* The dialled side shows its CA, because the other one may compare it with the pin of a token; the other side does not. */
Test(trust, who_dials_shows_no_root) {
    struct world world;
    struct ends ends;
    world_make(&world);
    open_mutual(&world, &ends);
    cr_expect_gt(tls_session_peer_chain(ends.client, 1).size, 0u);
    cr_expect_gt(tls_session_peer_chain(ends.server, 0).size, 0u);
    cr_expect_eq(tls_session_peer_chain(ends.server, 1).size, 0u);
    ends_close(&ends);
    world_free(&world);
}

/* A rotation: of the new CA's two certificates, the one that the old CA signed is what a server of before needs. */
Test(trust, who_dials_shows_what_an_older_ca_signed) {
    struct world world;
    struct ends ends;
    struct test_ca fresh = {0};
    struct identity node = {0};
    struct buffer crossed = {0};
    world_make(&world);
    test_ca_make(&fresh);
    memcpy(fresh.domain, world.authority.domain, sizeof fresh.domain);
    identity_make(&fresh, TLS_ROLE_AGENT, "web-1", -DAY_S, DAY_S, &node);
    struct tls_issuer old = {buffer_slice(&world.authority.certificate), buffer_slice(&world.authority.key)};
    struct tls_certificate ca;
    CHECK(tls_certificate_read(buffer_slice(&fresh.certificate), &ca, NULL) == CO_OK);
    CHECK(tls_ca_cross(buffer_slice(&fresh.certificate), ca.life, &old, &crossed, NULL) == CO_OK);
    buffer_append(&node.chain, crossed.data, crossed.size);
    cr_assert_eq(tls_certificate_count(buffer_slice(&node.chain)), 3u);
    struct tls_context *context = context_of(&node, &world.authority, inner);
    ends_open(&ends, context, mutual, world.server_context, mutual);
    ends_move(&ends, 0);
    cr_assert(ends_are_open(&ends), "%s", tls_session_why(ends.server));
    cr_expect_gt(tls_session_peer_chain(ends.server, 1).size, 0u);
    cr_expect_eq(tls_session_peer_chain(ends.server, 2).size, 0u);
    ends_close(&ends);
    tls_context_unref(context);
    buffer_free(&crossed);
    identity_free(&node);
    test_ca_free(&fresh);
    world_free(&world);
}
