/* The members of the cluster: join tokens, certificates, removed nodes. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry/trust.h"
#include "tests/lib/fixture.h"

#define DOMAIN "0123456789abcdef0123456789abcdef"
static uint8_t ca_pin[32] = "the pin of the ca", key_a[32] = "key a", key_b[32] = "key b", key_c[32] = "key c";
static uint8_t hash[32] = "hash", wrong[32] = "wrong", id_1[6] = "id-001", id_2[6] = "id-002";

static ProtobufCBinaryData bytes(uint8_t *data, size_t size) { return (ProtobufCBinaryData){size, data}; }

static struct outcome set_trust(struct fixture *f, uint32_t mode, uint64_t cas) {
    Pb__TrustCa ca = PB__TRUST_CA__INIT, *cas_list[] = {&ca};
    Pb__Trust trust = PB__TRUST__INIT;
    Pb__TrustSetCommand command = PB__TRUST_SET_COMMAND__INIT;
    ca.certificate = "pem", ca.pin = bytes(ca_pin, 32);
    trust.domain = DOMAIN, trust.cas = cas_list, trust.n_cas = 1, trust.mode = mode;
    command.trust = &trust, command.cas = cas;
    return fixture_apply(f, TRUST_SET, &command.base);
}

struct spec {
    bool server;
    const char *node;
    uint32_t uses;
    int64_t ttl_s;
};
static struct outcome make_token(struct fixture *f, uint8_t id[6], struct spec spec) {
    Pb__JoinToken token = PB__JOIN_TOKEN__INIT;
    Pb__JoinTokenCreateCommand command = PB__JOIN_TOKEN_CREATE_COMMAND__INIT;
    token.id = bytes(id, 6), token.hash = bytes(hash, 32), token.server = spec.server;
    token.node = (char *)(uintptr_t)(spec.node ? spec.node : ""), token.uses = spec.uses;
    token.ttl_ns = spec.ttl_s * 1000000000;
    command.token = &token;
    return fixture_apply(f, JOIN_TOKEN_CREATE, &command.base);
}

static Pb__CertificateInfo info_of(bool server, const char *node, uint8_t key[32], int64_t to_s) {
    Pb__CertificateInfo info = PB__CERTIFICATE_INFO__INIT;
    info.server = server, info.node = (char *)(uintptr_t)node, info.pin = bytes(key, 32);
    info.ca_pin = bytes(ca_pin, 32), info.to_s = to_s, info.serial = "1";
    return info;
}

static struct outcome join(struct fixture *f, uint8_t id[6], uint8_t secret[32], bool server, const char *node,
                           uint8_t key[32]) {
    Pb__CertificateInfo info = info_of(server, node, key, (int64_t)(f->unix_ms / 1000) + 3600);
    Pb__TrustJoinCommand command = PB__TRUST_JOIN_COMMAND__INIT;
    command.id = bytes(id, 6), command.hash = bytes(secret, 32), command.certificate = &info;
    return fixture_apply(f, TRUST_JOIN, &command.base);
}

static struct outcome renew(struct fixture *f, bool server, const char *node, uint8_t key[32], bool any) {
    Pb__CertificateInfo info = info_of(server, node, key, (int64_t)(f->unix_ms / 1000) + 7200);
    Pb__TrustRenewedCommand command = PB__TRUST_RENEWED_COMMAND__INIT;
    command.certificate = &info, command.any = any;
    return fixture_apply(f, TRUST_RENEWED, &command.base);
}

static struct outcome remove_node(struct fixture *f, bool server, const char *node) {
    Pb__TrustRemoveCommand command = PB__TRUST_REMOVE_COMMAND__INIT;
    command.server = server, command.node = (char *)(uintptr_t)node;
    return fixture_apply(f, TRUST_REMOVE, &command.base);
}

static struct outcome end_token(struct fixture *f, uint8_t id[6], uint64_t expired_index) {
    Pb__JoinTokenEndCommand command = PB__JOIN_TOKEN_END_COMMAND__INIT;
    command.id = bytes(id, 6), command.expired = expired_index != 0, command.index = expired_index;
    return fixture_apply(f, JOIN_TOKEN_END, &command.base);
}

static bool counts(struct fixture *f, bool server, const char *node, uint8_t key[32]) {
    struct store_txn *txn = store_read(f->reader);
    const char *why = trust_refuses(txn, server, node, slice_make(key, 32));
    store_read_done(f->reader);
    return why == NULL;
}

static bool known(struct fixture *f, bool server, const char *node) {
    bool knows = trust_knows(store_read(f->reader), server, node);
    store_read_done(f->reader);
    return knows;
}

static void closed(struct fixture *f) {
    fixture_open(f);
    f->unix_ms = 1000000;
    struct outcome result = set_trust(f, TRUST_CLOSED, 0);
    cr_assert_eq(result.error, CO_OK, "%s", result.text);
}

static bool refused(struct outcome result, int error, const char *text) {
    if (result.error == error && strstr(result.text, text)) return true;
    cr_log_error("%d \"%s\", not %d \"%s\"", result.error, result.text, error, text);
    return false;
}

Test(trust, a_token_lets_in_as_many_as_it_says) {
    struct fixture f;
    closed(&f);
    cr_assert_eq(make_token(&f, id_1, (struct spec){.uses = 2, .ttl_s = 3600}).error, CO_OK);
    cr_expect(refused(join(&f, id_1, wrong, false, "web1", key_a), CO_DENIED, "secret is wrong"));
    cr_expect(refused(join(&f, id_2, hash, false, "web1", key_a), CO_DENIED, "is not known"));
    cr_expect(refused(join(&f, id_1, hash, true, "web1", key_a), CO_DENIED, "for client agents"));
    cr_expect_eq(join(&f, id_1, hash, false, "web1", key_a).error, CO_OK);
    cr_expect_eq(join(&f, id_1, hash, false, "Web1", key_a).error, CO_OK, "its answer was lost: it asks again");
    cr_expect_eq(join(&f, id_1, hash, false, "web2", key_b).error, CO_OK);
    cr_expect(refused(join(&f, id_1, hash, false, "web3", key_c), CO_DENIED, "used up"));
    cr_expect_eq(join(&f, id_1, hash, false, "web2", key_b).error, CO_OK, "the last one may ask again, too");
    cr_expect(refused(join(&f, id_1, hash, false, "web3", key_c), CO_DENIED, "used up"));
    cr_expect(counts(&f, false, "WEB1", key_a) && !counts(&f, false, "web1", key_b));
    cr_expect(counts(&f, true, "web1", key_b), "a server of this name is another node");
    fixture_close(&f);
}

Test(trust, a_token_for_some_names) {
    struct fixture f;
    closed(&f);
    cr_assert_eq(make_token(&f, id_1, (struct spec){.node = "web-*", .server = true}).error, CO_OK);
    cr_expect(refused(join(&f, id_1, hash, true, "db-1", key_a), CO_DENIED, "other names"));
    cr_expect(refused(join(&f, id_1, hash, false, "web-1", key_a), CO_DENIED, "for servers"));
    cr_expect_eq(join(&f, id_1, hash, true, "WEB-1", key_a).error, CO_OK);
    static const struct {
        const char *glob, *name;
        bool fits;
    } cases[] = {{"*", "", true},          {"", "", true},           {"", "a", false},
                 {"a*b*c", "aXbYc", true}, {"a*b*c", "abcb", false}, {"?", "", false},
                 {"?", "x", true},         {"*?", "x", true},        {"w?b-*", "web-1", true},
                 {"web-*", "web", false},  {"**a", "bba", true},     {"*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaac", false}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        cr_expect_eq(trust_glob_fits(cases[i].glob, cases[i].name), cases[i].fits, "%s %s", cases[i].glob,
                     cases[i].name);
    fixture_close(&f);
}

Test(trust, a_token_ends_with_its_time_or_when_it_is_revoked) {
    struct fixture f;
    struct buffer updates = {0};
    closed(&f);
    uint64_t made = make_token(&f, id_1, (struct spec){.ttl_s = 60}).index;
    cr_expect_eq(make_token(&f, id_1, (struct spec){.ttl_s = 60}).error, CO_EXISTS);
    fixture_updates(&f, 1000000000, &updates);
    cr_expect(strstr(updates.data, "join token began"), "%s", updates.data);
    f.unix_ms += 59999;
    cr_expect_eq(join(&f, id_1, hash, false, "web1", key_a).error, CO_OK);
    f.unix_ms += 1;
    cr_expect(refused(join(&f, id_1, hash, false, "web2", key_b), CO_DENIED, "time is over"), "the leader is late");
    cr_expect_eq(end_token(&f, id_1, made + 1).error, CO_NOTFOUND, "the end of an earlier one of this id");
    cr_expect_eq(end_token(&f, id_1, made).error, CO_OK);
    cr_expect(refused(join(&f, id_1, hash, false, "web2", key_b), CO_DENIED, "is not known"));
    cr_assert_eq(make_token(&f, id_2, (struct spec){.ttl_s = 60}).error, CO_OK);
    cr_expect_eq(end_token(&f, id_2, 0).error, CO_OK, "revoked");
    cr_expect(refused(join(&f, id_2, hash, false, "web2", key_b), CO_DENIED, "is not known"));
    cr_expect_eq(end_token(&f, id_2, 0).error, CO_NOTFOUND);
    buffer_free(&updates);
    fixture_close(&f);
}

Test(trust, a_token_does_not_take_the_place_of_a_node) {
    struct fixture f;
    closed(&f);
    cr_assert_eq(make_token(&f, id_1, (struct spec){0}).error, CO_OK);
    cr_expect_eq(join(&f, id_1, hash, false, "web1", key_a).error, CO_OK);
    cr_expect(refused(join(&f, id_1, hash, false, "web1", key_b), CO_CONFLICT, "force-leave -prune"));
    cr_expect(counts(&f, false, "web1", key_a) && !counts(&f, false, "web1", key_b));
    f.unix_ms += 3600000;
    cr_expect_eq(join(&f, id_1, hash, false, "web1", key_b).error, CO_OK, "the old certificate has expired");
    cr_expect(!counts(&f, false, "web1", key_a) && counts(&f, false, "web1", key_b));
    fixture_close(&f);
}

Test(trust, a_server_and_an_agent_do_not_share_a_name) {
    struct fixture f;
    closed(&f);
    cr_assert_eq(make_token(&f, id_1, (struct spec){0}).error, CO_OK);
    cr_assert_eq(make_token(&f, id_2, (struct spec){.server = true}).error, CO_OK);
    cr_expect_eq(join(&f, id_2, hash, true, "s9", key_a).error, CO_OK);
    cr_expect(refused(join(&f, id_1, hash, false, "S9", key_b), CO_CONFLICT, "has a certificate already"));
    cr_expect(refused(renew(&f, false, "s9", key_b, true), CO_CONFLICT, "has a certificate already"));
    cr_expect_not(counts(&f, false, "s9", key_b) && known(&f, false, "s9"));
    cr_expect(known(&f, true, "S9") && !known(&f, true, "s8") && !known(&f, false, ""));
    cr_expect_eq(remove_node(&f, true, "s9").error, CO_OK);
    cr_expect_not(known(&f, true, "s9"));
    cr_expect_eq(join(&f, id_1, hash, false, "s9", key_b).error, CO_OK, "the server is gone");
    fixture_close(&f);
}

Test(trust, a_removed_node_stays_out_until_it_joins_anew) {
    struct fixture f;
    closed(&f);
    cr_assert_eq(make_token(&f, id_1, (struct spec){0}).error, CO_OK);
    cr_expect_eq(join(&f, id_1, hash, false, "web1", key_a).error, CO_OK);
    cr_expect_eq(remove_node(&f, false, "WEB1").error, CO_OK);
    cr_expect_not(counts(&f, false, "web1", key_a));
    cr_expect(refused(renew(&f, false, "web1", key_a, true), CO_DENIED, "was removed"));
    cr_expect_eq(join(&f, id_1, hash, false, "web1", key_b).error, CO_OK);
    cr_expect(counts(&f, false, "web1", key_b) && !counts(&f, false, "web1", key_a));
    cr_expect_eq(remove_node(&f, false, "never-seen").error, CO_OK);
    cr_expect_not(counts(&f, false, "never-seen", key_c), "it may have a certificate of the company's CA");
    fixture_close(&f);
}

Test(trust, a_renewal_keeps_the_key) {
    struct fixture f;
    closed(&f);
    cr_expect(refused(renew(&f, false, "web1", key_a, false), CO_DENIED, "no certificate"));
    cr_expect_eq(renew(&f, false, "web1", key_a, true).error, CO_OK, "an open cluster is being closed");
    cr_expect_eq(renew(&f, false, "web1", key_a, false).error, CO_OK);
    cr_expect(refused(renew(&f, false, "web1", key_b, true), CO_DENIED, "another certificate"));
    cr_expect(counts(&f, false, "web1", key_a) && !counts(&f, false, "web1", key_b));
    Pb__CertificatesRequest all = PB__CERTIFICATES_REQUEST__INIT;
    const Pb__CertificatesResult *result = (const void *)fixture_ask(&f, &query_certificates, &all.base).message;
    cr_expect_eq(result->certificates[0]->now->to_s, 1000 + 7200);
    fixture_close(&f);
}

Test(trust, founders_have_records_from_the_beginning) {
    struct fixture f;
    fixture_open(&f);
    Pb__CertificateInfo s1 = info_of(true, "s1", key_a, 1), s2 = info_of(true, "s2", key_b, 1), *founders[] = {&s1};
    Pb__TrustCa ca = PB__TRUST_CA__INIT, *cas[] = {&ca};
    Pb__Trust trust = PB__TRUST__INIT;
    Pb__TrustSetCommand command = PB__TRUST_SET_COMMAND__INIT;
    ca.certificate = "pem", ca.pin = bytes(ca_pin, 32);
    trust.domain = DOMAIN, trust.cas = cas, trust.n_cas = 1, trust.mode = TRUST_CLOSED;
    command.trust = &trust, command.founders = founders, command.n_founders = 1;
    s1.pin.len = 5;
    cr_expect_eq(fixture_apply(&f, TRUST_SET, &command.base).error, CO_INVALID);
    s1.pin.len = 32;
    struct outcome set = fixture_apply(&f, TRUST_SET, &command.base);
    cr_expect_eq(set.error, CO_OK);
    cr_expect(counts(&f, true, "s1", key_a) && !counts(&f, true, "s1", key_b), "only its key counts for its name");
    cr_expect_eq(renew(&f, true, "s1", key_a, false).error, CO_OK, "a renewal of it is noted");
    founders[0] = &s2, command.cas = set.index;
    cr_expect_eq(fixture_apply(&f, TRUST_SET, &command.base).error, CO_OK);
    Pb__CertificatesRequest all = PB__CERTIFICATES_REQUEST__INIT;
    const Pb__CertificatesResult *result = (const void *)fixture_ask(&f, &query_certificates, &all.base).message;
    cr_expect_eq(result->n_certificates, 1, "later there are no founders, so s2 has no record");
    fixture_close(&f);
}

Test(trust, what_makes_no_sense_is_refused) {
    struct fixture f;
    fixture_open(&f);
    cr_expect(refused(set_trust(&f, TRUST_OPEN, 0), CO_CONFLICT, "stays closed"));
    cr_expect_eq(set_trust(&f, TRUST_MODES, 0).error, CO_INVALID);
    uint64_t first = set_trust(&f, TRUST_BOTH, 0).index;
    cr_expect_eq(set_trust(&f, TRUST_CLOSED, 0).error, CO_CONFLICT);
    cr_expect_eq(set_trust(&f, TRUST_CLOSED, first).error, CO_OK);
    char glob[200];
    memset(glob, 'a', sizeof glob - 1), glob[sizeof glob - 1] = 0;
    cr_expect_eq(make_token(&f, id_1, (struct spec){.node = glob}).error, CO_INVALID);
    cr_expect_eq(make_token(&f, id_1, (struct spec){.ttl_s = 366 * 86400}).error, CO_INVALID);
    cr_expect_eq(make_token(&f, id_1, (struct spec){.ttl_s = -1}).error, CO_INVALID);
    cr_expect_eq(remove_node(&f, false, "").error, CO_INVALID);
    cr_expect_eq(join(&f, id_1, hash, false, "", key_a).error, CO_INVALID);
    Pb__TrustJoinCommand nothing = PB__TRUST_JOIN_COMMAND__INIT;
    cr_expect_eq(fixture_apply(&f, TRUST_JOIN, &nothing.base).error, CO_INVALID);
    fixture_close(&f);
}

Test(trust, closing_an_open_cluster_may_be_given_up) {
    struct fixture f;
    fixture_open(&f);
    uint64_t first = set_trust(&f, TRUST_BOTH, 0).index;
    cr_assert_eq(make_token(&f, id_1, (struct spec){.ttl_s = 60}).error, CO_OK);
    cr_assert_eq(renew(&f, false, "web1", key_a, true).error, CO_OK);
    cr_expect_eq(set_trust(&f, TRUST_OPEN, first + 1).error, CO_CONFLICT);
    cr_expect_eq(set_trust(&f, TRUST_OPEN, first).error, CO_OK);
    cr_expect(counts(&f, false, "web1", key_b), "nothing is left");
    Pb__TrustRequest ask = PB__TRUST_REQUEST__INIT;
    cr_expect_not(fixture_ask(&f, &query_trust, &ask.base).found);
    first = set_trust(&f, TRUST_CLOSED, 0).index;
    cr_expect(refused(set_trust(&f, TRUST_OPEN, first), CO_CONFLICT, "stays closed"));
    fixture_close(&f);
}

/* -- a backup ------------------------------------------------------------------------------------------------------ */
static void restore(struct fixture *f, struct fixture *from) {
    struct buffer copy = {0};
    fixture_save(from, &copy);
    cr_assert_eq(fixture_restore(f, buffer_slice(&copy)).error, CO_OK);
    buffer_free(&copy);
}

Test(trust, a_restored_backup_brings_back_neither_tokens_nor_removed_nodes) {
    struct fixture f, then;
    closed(&f), closed(&then);
    cr_assert_eq(make_token(&then, id_1, (struct spec){0}).error, CO_OK);
    cr_assert_eq(join(&then, id_1, hash, false, "web1", key_a).error, CO_OK);
    cr_assert_eq(renew(&f, false, "web1", key_a, true).error, CO_OK);
    cr_assert_eq(remove_node(&f, false, "web1").error, CO_OK);
    cr_assert_eq(make_token(&f, id_2, (struct spec){.ttl_s = 60}).error, CO_OK);
    restore(&f, &then);
    cr_expect(refused(join(&f, id_1, hash, false, "web2", key_b), CO_DENIED, "is not known"));
    cr_expect_not(counts(&f, false, "web1", key_a));
    cr_expect_eq(join(&f, id_2, hash, false, "web2", key_b).error, CO_OK, "what is there now stays");
    (void)fixture_sum(&f);
    fixture_close(&f), fixture_close(&then);
}

Test(trust, lists_show_no_hash) {
    struct fixture f;
    closed(&f);
    cr_assert_eq(make_token(&f, id_1, (struct spec){.uses = 3}).error, CO_OK);
    for (int i = 0; i < 150; i++) {
        char node[16];
        uint8_t key[32] = {(uint8_t)i, 1};
        snprintf(node, sizeof node, "n%03d", i);
        cr_assert_eq(renew(&f, i % 2, node, key, true).error, CO_OK);
    }
    Pb__JoinTokensRequest ask = PB__JOIN_TOKENS_REQUEST__INIT;
    const Pb__JoinTokensResult *tokens = (const void *)fixture_ask(&f, &query_join_tokens, &ask.base).message;
    cr_assert_eq(tokens->n_tokens, 1);
    cr_expect(tokens->tokens[0]->hash.len == 0 && tokens->tokens[0]->uses == 3);
    Pb__CertificatesRequest all = PB__CERTIFICATES_REQUEST__INIT;
    const Pb__CertificatesResult *result = (const void *)fixture_ask(&f, &query_certificates, &all.base).message;
    cr_assert_eq(result->n_certificates, 150);
    cr_expect(result->certificates[0]->now->server && !result->certificates[149]->now->server);
    cr_expect_str_eq(result->certificates[149]->now->node, "n148");
    fixture_close(&f);
}
