/* How a process dials and takes connections, by its rules (security_dial, security_accept). */
#include <criterion/criterion.h>
#include <string.h>

#include "base/check.h"
#include "rpc/wire/security.h"
#include "tests/lib/identity.h"

static const char *const all[] = {SECURITY_MEMBER, SECURITY_JOIN, SECURITY_RENEW, SECURITY_SECURE, NULL};

static struct security *with(struct security_rules rules) {
    struct test_ca ca = {0};
    struct identity identity = {0};
    struct security *security = security_new();
    test_ca_make(&ca);
    identity_make(&ca, TLS_ROLE_SERVER, "s1", -DAY_S, DAY_S, &identity);
    security_set(security, &rules, context_of(&identity, &ca, (struct tls_context_config){.only_tls13 = true}));
    identity_free(&identity);
    test_ca_free(&ca);
    return security;
}

static bool offers(const struct link_security *link, const char *protocol) {
    for (const char *const *at = link->session.protocols; *at; at++)
        if (strcmp(*at, protocol) == 0) return true;
    return false;
}

Test(security_links, open_ones_are_plain) {
    struct link_security link;
    struct security *security = security_new();
    cr_expect(!security_dial(NULL, &link) && !security_accept(NULL, 32, &link) && !security_mixed(NULL));
    cr_expect(!security_dial(security, &link) && !security_accept(security, 32, &link) && !security_mixed(security));
    security_free(security);
}

static const struct {
    struct security_rules rules;
    bool dials;                        /* by TLS */
    enum tls_peer_rule server, client; /* asked of who is dialled; of who dials */
    bool psk, plain, joins;            /* plain: is taken; joins: who comes for a certificate is */
    const char *refusal;
} rows[] = {
    {{.kind = SECURITY_CLUSTER, .asks_clients = true},
     true,
     TLS_PEER_REQUIRED,
     TLS_PEER_REQUIRED,
     false,
     false,
     true,
     "coord join TOKEN ADDRESS"},
    {{.kind = SECURITY_CLUSTER, .asks_clients = true, .takes_plain = true, .secures = true},
     true,
     TLS_PEER_REQUIRED,
     TLS_PEER_REQUIRED,
     false,
     true,
     true,
     "coord join TOKEN ADDRESS"},
    {{.kind = SECURITY_SHARED_KEY}, true, TLS_PEER_UNASKED, TLS_PEER_UNASKED, true, false, false, "(encrypt)"},
    {{.kind = SECURITY_SHARED_KEY, .takes_plain = true, .dials_plain = true},
     false,
     0,
     TLS_PEER_UNASKED,
     false,
     true,
     false,
     "(encrypt)"},
    {{.kind = SECURITY_OWN_CA, .asks_clients = true},
     true,
     TLS_PEER_REQUIRED,
     TLS_PEER_REQUIRED,
     false,
     false,
     false,
     "ca_file, cert_file and key_file"},
    {{.kind = SECURITY_OWN_CA, .takes_plain = true, .dials_plain = true},
     false,
     0,
     TLS_PEER_ASKED,
     false,
     true,
     false,
     "ca_file, cert_file and key_file"},
};

Test(security_links, as_the_rules_say) {
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct link_security dial, accept;
        struct security *security = with(rows[i].rules);
        cr_expect_eq(security_dial(security, &dial), rows[i].dials, "row %zu", i);
        if (rows[i].dials) {
            cr_expect_eq(dial.session.peer, rows[i].server, "row %zu", i);
            cr_expect_eq(dial.session.psk, rows[i].psk, "row %zu", i);
            cr_expect_eq(dial.session.grace_s, 0, "row %zu: a server's certificate has to be good", i);
            cr_expect(offers(&dial, SECURITY_MEMBER) && !offers(&dial, SECURITY_JOIN) && !dial.allow_plain);
            cr_expect_eq(dial.slot, security_slot(security));
        }
        cr_assert(security_accept(security, 32, &accept), "row %zu", i);
        cr_expect_eq(accept.session.peer, rows[i].client, "row %zu", i);
        cr_expect_eq(accept.allow_plain, rows[i].plain, "row %zu", i);
        cr_expect_eq(accept.slot, security_slot(security));
        cr_expect(accept.refusal_type == 32 && strstr(accept.refusal, rows[i].refusal), "row %zu", i);
        for (size_t p = 0; all[p]; p++)
            cr_expect_eq(offers(&accept, all[p]), p == 0 || rows[i].joins, "row %zu: %s", i, all[p]);
        cr_expect_eq(security_mixed(security), rows[i].rules.secures);
        security_free(security);
    }
}

/* Only who renews may be late, and only who has no certificate yet need show none. */
Test(security_links, what_is_asked_depends_on_what_somebody_comes_for) {
    static const struct {
        const char *protocol;
        enum tls_peer_rule peer;
        int64_t grace_s;
    } wanted[] = {{SECURITY_MEMBER, TLS_PEER_REQUIRED, 0},
                  {SECURITY_RENEW, TLS_PEER_REQUIRED, SECURITY_GRACE_S},
                  {SECURITY_JOIN, TLS_PEER_UNASKED, 0},
                  {SECURITY_SECURE, TLS_PEER_UNASKED, 0}};
    struct link_security accept;
    struct security *security = with((struct security_rules){.kind = SECURITY_CLUSTER, .asks_clients = true});
    cr_assert(security_accept(security, 32, &accept));
    for (size_t i = 0; i < ARRAY_COUNT(wanted); i++) {
        struct tls_session_config config = accept.session;
        config.chosen(config.data, wanted[i].protocol, &config);
        cr_expect_eq(config.peer, wanted[i].peer, "%s", wanted[i].protocol);
        cr_expect_eq(config.grace_s, wanted[i].grace_s, "%s", wanted[i].protocol);
    }
    security_free(security);
}
