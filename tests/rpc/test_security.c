/* A certificate against what a hello says: every kind of protection, plain and encrypted, dialled and accepted, every role,
 * name and region. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "rpc/wire/security.h"

#define DOMAIN       "0123456789abcdef0123456789abcdef"
#define OTHER_DOMAIN "ffffffffffffffffffffffffffffffff"
#define DAY          (INT64_C(24) * 3600)

/* -- real certificates, because names are judged by their bytes ---------------------------------------------------- */
static struct buffer ca_key, ca, node_key;

static void make_ca(void) {
    struct fault fault = {0};
    if (ca.size) return;
    cr_assert_eq(tls_key_make(&ca_key, &fault), CO_OK, "%s", fault.text);
    cr_assert_eq(tls_key_make(&node_key, &fault), CO_OK, "%s", fault.text);
    struct tls_life life = {0, 100 * DAY};
    cr_assert_eq(tls_ca_make(buffer_slice(&ca_key), DOMAIN, life, &ca, &fault), CO_OK, "%s", fault.text);
}

/* One with this DNS name; NULL: "elsewhere". */
static void make_named(const char *name, struct buffer *der, struct tls_certificate *read) {
    struct fault fault = {0};
    struct buffer pem = {0};
    const char *names[] = {name ? name : "elsewhere", NULL};
    struct tls_plain_subject subject = {.common_name = "x", .names = names, .server = true, .client = true};
    make_ca();
    struct tls_issuer by = {buffer_slice(&ca), buffer_slice(&ca_key)};
    cr_assert_eq(tls_issue_plain(&by, buffer_slice(&node_key), &subject, (struct tls_life){0, DAY}, &pem, &fault),
                 CO_OK, "%s", fault.text);
    cr_assert_eq(tls_certificate_to_der(buffer_slice(&pem), der, &fault), CO_OK, "%s", fault.text);
    cr_assert_eq(tls_certificate_read(buffer_slice(&pem), read, &fault), CO_OK, "%s", fault.text);
    buffer_free(&pem);
}

/* -- tables -------------------------------------------------------------------------------------------------------- */
enum shown { PLAIN, BARE, SHOWN }; /* BARE: encrypted, without a certificate */

struct row {
    int line;
    enum security_kind kind;
    bool takes_plain, dials_plain, asks_clients, checks_servers;
    enum shown shown;
    bool dialled;
    /* the certificate: of the cluster's kind; or one with a DNS name */
    const char *domain;
    enum tls_role role;
    bool foreign; /* another cluster's CA signed it */
    const char *node, *name;
    /* the hello */
    bool agent;
    const char *says, *region;
    const char *why; /* NULL: it may */
};
#define ROW(...) \
    { .line = __LINE__, __VA_ARGS__ }

static struct security_rules rules_of(const struct row *row) {
    struct security_rules rules = {.kind = row->kind,
                                   .takes_plain = row->takes_plain,
                                   .dials_plain = row->dials_plain,
                                   .asks_clients = row->asks_clients,
                                   .checks_servers = row->checks_servers,
                                   .domain = DOMAIN,
                                   .datacenter = "dc1",
                                   .dns_domain = "example",
                                   .region_count = 1,
                                   .regions = {{"dc2", OTHER_DOMAIN}}};
    return rules;
}

struct seen {
    struct security_seen seen;
    struct tls_certificate certificate;
    struct buffer der;
};

static void see(const struct row *row, struct seen *seen) {
    *seen = (struct seen){.seen = {.dialled = row->dialled, .encrypted = row->shown != PLAIN}};
    if (row->shown != SHOWN) return;
    if (row->kind == SECURITY_OWN_CA) make_named(row->name, &seen->der, &seen->certificate);
    else {
        seen->certificate.role = row->role;
        snprintf(seen->certificate.domain, sizeof seen->certificate.domain, "%s", row->domain ? row->domain : DOMAIN);
        snprintf(seen->certificate.node, sizeof seen->certificate.node, "%s", row->node ? row->node : "");
    }
    seen->seen.foreign = row->foreign;
    seen->seen.certificate = &seen->certificate, seen->seen.der = buffer_slice(&seen->der);
}

static void expect(const struct row *row, const char *fault) {
    if (!row->why) cr_expect_null(fault, "line %d: refused: %s", row->line, fault);
    else cr_expect(fault && strstr(fault, row->why), "line %d: %s", row->line, fault ? fault : "it is taken");
}

static void judge_hello(const struct row *row) {
    struct security_rules rules = rules_of(row);
    struct seen seen;
    char why[SECURITY_WHY];
    Pb__PeerHello hello = PB__PEER_HELLO__INIT;
    hello.agent = row->agent;
    if (row->says) hello.node = (char *)(uintptr_t)row->says;
    if (row->region) hello.region = (char *)(uintptr_t)row->region;
    see(row, &seen);
    expect(row, security_judge(&rules, &seen.seen, &hello, why));
    buffer_free(&seen.der);
}

static void judge_dialled(const struct row *row) {
    struct security_rules rules = rules_of(row);
    struct seen seen;
    char why[SECURITY_WHY];
    see(row, &seen);
    expect(row, security_judge_dialled(&rules, &seen.seen, row->region, why));
    buffer_free(&seen.der);
}

#define NOT_ENCRYPTED "it is not encrypted, and this cluster is"
#define NO_CERT       "it shows no certificate"

Test(security, an_open_process_takes_and_dials_plain) {
    static const struct row rows[] = {
        ROW(.kind = SECURITY_OPEN, .takes_plain = true, .dials_plain = true, .says = "n"),
        ROW(.kind = SECURITY_OPEN, .takes_plain = true, .dials_plain = true, .agent = true, .says = "n"),
        ROW(.kind = SECURITY_OPEN, .takes_plain = true, .dials_plain = true, .dialled = true, .says = "n"),
        ROW(.kind = SECURITY_OPEN, .takes_plain = true, .dials_plain = true, .agent = true, .region = "dc9",
            .says = "n"),
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) judge_hello(&rows[i]);
}

Test(security, a_shared_key_keeps_plain_ones_out_and_names_nobody) {
    static const struct row rows[] = {
        ROW(.kind = SECURITY_SHARED_KEY, .says = "n", .why = NOT_ENCRYPTED),
        ROW(.kind = SECURITY_SHARED_KEY, .agent = true, .says = "n", .why = NOT_ENCRYPTED),
        ROW(.kind = SECURITY_SHARED_KEY, .dialled = true, .says = "n", .why = NOT_ENCRYPTED),
        /* one direction says nothing about the other */
        ROW(.kind = SECURITY_SHARED_KEY, .takes_plain = true, .says = "n"),
        ROW(.kind = SECURITY_SHARED_KEY, .takes_plain = true, .dialled = true, .says = "n", .why = NOT_ENCRYPTED),
        ROW(.kind = SECURITY_SHARED_KEY, .dials_plain = true, .says = "n", .why = NOT_ENCRYPTED),
        ROW(.kind = SECURITY_SHARED_KEY, .dials_plain = true, .dialled = true, .says = "n"),
        ROW(.kind = SECURITY_SHARED_KEY, .shown = BARE, .says = "n"),
        ROW(.kind = SECURITY_SHARED_KEY, .shown = BARE, .dialled = true, .says = "n"),
        ROW(.kind = SECURITY_SHARED_KEY, .shown = BARE, .agent = true, .region = "dc9", .says = "n"),
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) judge_hello(&rows[i]);
}

Test(security, certificates_of_another_ca_have_consuls_rules) {
    static const struct row rows[] = {
        ROW(.kind = SECURITY_OWN_CA, .says = "n", .why = NOT_ENCRYPTED),
        ROW(.kind = SECURITY_OWN_CA, .takes_plain = true, .says = "n"),
        ROW(.kind = SECURITY_OWN_CA, .dials_plain = true, .dialled = true, .says = "n"),
        ROW(.kind = SECURITY_OWN_CA, .takes_plain = true, .dialled = true, .says = "n", .why = NOT_ENCRYPTED),
        ROW(.kind = SECURITY_OWN_CA, .shown = BARE, .says = "n"),
        ROW(.kind = SECURITY_OWN_CA, .shown = BARE, .asks_clients = true, .says = "n", .why = NO_CERT),
        ROW(.kind = SECURITY_OWN_CA, .shown = BARE, .asks_clients = true, .agent = true, .says = "n", .why = NO_CERT),
        ROW(.kind = SECURITY_OWN_CA, .shown = SHOWN, .asks_clients = true, .says = "n"),
        ROW(.kind = SECURITY_OWN_CA, .shown = SHOWN, .name = "server.dc2.example", .says = "n"),
        /* verify_server_hostname: servers have the name, agents need none */
        ROW(.kind = SECURITY_OWN_CA, .shown = SHOWN, .checks_servers = true, .name = "server.dc1.example", .says = "n"),
        ROW(.kind = SECURITY_OWN_CA, .shown = SHOWN, .checks_servers = true, .says = "n", .why = "server.dc1.example"),
        ROW(.kind = SECURITY_OWN_CA, .shown = SHOWN, .checks_servers = true, .name = "client.dc1.example", .says = "n",
            .why = "server.dc1.example"),
        ROW(.kind = SECURITY_OWN_CA, .shown = SHOWN, .checks_servers = true, .name = "server.dc2.example", .says = "n",
            .why = "server.dc1.example"),
        ROW(.kind = SECURITY_OWN_CA, .shown = BARE, .checks_servers = true, .says = "n", .why = "server.dc1.example"),
        ROW(.kind = SECURITY_OWN_CA, .shown = SHOWN, .checks_servers = true, .agent = true, .says = "n"),
        ROW(.kind = SECURITY_OWN_CA, .shown = BARE, .checks_servers = true, .agent = true, .says = "n"),
        /* a link of another region is a server's, of that region */
        ROW(.kind = SECURITY_OWN_CA, .shown = SHOWN, .checks_servers = true, .agent = true, .region = "dc2",
            .name = "server.dc2.example", .says = "n"),
        ROW(.kind = SECURITY_OWN_CA, .shown = SHOWN, .checks_servers = true, .agent = true, .region = "dc2",
            .name = "server.dc1.example", .says = "n", .why = "server.dc2.example"),
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) judge_hello(&rows[i]);
}

#define CLUSTER(...) ROW(.kind = SECURITY_CLUSTER, .asks_clients = true, __VA_ARGS__)

Test(security, the_clusters_certificate_says_who_somebody_is) {
    static const struct row rows[] = {
        CLUSTER(.says = "n", .why = NOT_ENCRYPTED),
        CLUSTER(.takes_plain = true, .says = "n"),
        CLUSTER(.takes_plain = true, .dialled = true, .says = "n", .why = NOT_ENCRYPTED),
        CLUSTER(.shown = BARE, .says = "n", .why = NO_CERT),
        CLUSTER(.shown = BARE, .dialled = true, .says = "n", .why = NO_CERT),
        CLUSTER(.shown = BARE, .agent = true, .says = "n", .why = NO_CERT),
        CLUSTER(.shown = SHOWN, .role = TLS_ROLE_SERVER, .node = "s1", .says = "s1"),
        CLUSTER(.shown = SHOWN, .role = TLS_ROLE_SERVER, .node = "s1", .says = "S1"),
        CLUSTER(.shown = SHOWN, .role = TLS_ROLE_AGENT, .node = "a1", .agent = true, .says = "a1"),
        CLUSTER(.shown = SHOWN, .role = TLS_ROLE_SERVER, .node = "s1", .agent = true, .says = "s1"),
        CLUSTER(.shown = SHOWN, .role = TLS_ROLE_NONE, .node = "s1", .says = "s1", .why = "names no node"),
        CLUSTER(.shown = SHOWN, .role = TLS_ROLE_AGENT, .node = "a1", .says = "a1", .why = "no server's"),
        CLUSTER(.shown = SHOWN, .role = TLS_ROLE_AGENT, .node = "a1", .agent = true, .says = "a2",
                .why = "it says that it is node a2"),
        CLUSTER(.shown = SHOWN, .role = TLS_ROLE_SERVER, .node = "s1", .says = "s2",
                .why = "its certificate is that of s1"),
        CLUSTER(.shown = SHOWN, .role = TLS_ROLE_SERVER, .node = "s1", .domain = OTHER_DOMAIN, .says = "s1",
                .why = "of another cluster"),
        CLUSTER(.shown = SHOWN, .role = TLS_ROLE_AGENT, .node = "a1", .domain = OTHER_DOMAIN, .agent = true,
                .says = "a1", .why = "of another cluster"),
        /* the CA of a region that is trusted signs what it likes: only its own domain counts */
        CLUSTER(.shown = SHOWN, .role = TLS_ROLE_SERVER, .node = "s1", .foreign = true, .says = "s1",
                .why = "signed by the CA of another cluster"),
        CLUSTER(.shown = SHOWN, .role = TLS_ROLE_AGENT, .node = "a1", .foreign = true, .agent = true, .says = "a1",
                .why = "signed by the CA of another cluster"),
        CLUSTER(.shown = SHOWN, .role = TLS_ROLE_SERVER, .node = "s9", .domain = OTHER_DOMAIN, .foreign = true,
                .agent = true, .region = "dc2", .says = "s9", .why = "signed by the CA of another cluster"),
        /* regions: their own CA, trusted by name, and only for servers */
        CLUSTER(.shown = SHOWN, .role = TLS_ROLE_SERVER, .node = "s9", .domain = OTHER_DOMAIN, .agent = true,
                .region = "dc2", .says = "s9"),
        CLUSTER(.shown = SHOWN, .role = TLS_ROLE_SERVER, .node = "s9", .domain = DOMAIN, .agent = true, .region = "dc2",
                .says = "s9", .why = "another cluster than that region's"),
        CLUSTER(.shown = SHOWN, .role = TLS_ROLE_AGENT, .node = "a9", .domain = OTHER_DOMAIN, .agent = true,
                .region = "dc2", .says = "a9", .why = "no server's"),
        CLUSTER(.shown = SHOWN, .role = TLS_ROLE_SERVER, .node = "s9", .domain = OTHER_DOMAIN, .agent = true,
                .region = "dc2", .says = "s8", .why = "it says that it is node s8"),
        CLUSTER(.shown = SHOWN, .role = TLS_ROLE_SERVER, .node = "s9", .domain = OTHER_DOMAIN, .agent = true,
                .region = "dc3", .says = "s9", .why = "region dc3 is not trusted"),
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) judge_hello(&rows[i]);
}

Test(security, what_was_dialled_has_to_be_a_server) {
    static const struct row rows[] = {
        ROW(.kind = SECURITY_OPEN, .takes_plain = true, .dials_plain = true, .dialled = true),
        ROW(.kind = SECURITY_SHARED_KEY, .dialled = true, .why = NOT_ENCRYPTED),
        ROW(.kind = SECURITY_SHARED_KEY, .dialled = true, .takes_plain = true, .why = NOT_ENCRYPTED),
        ROW(.kind = SECURITY_SHARED_KEY, .dialled = true, .dials_plain = true),
        ROW(.kind = SECURITY_SHARED_KEY, .dialled = true, .shown = BARE),
        ROW(.kind = SECURITY_OWN_CA, .dialled = true, .why = NOT_ENCRYPTED),
        ROW(.kind = SECURITY_OWN_CA, .dialled = true, .dials_plain = true),
        ROW(.kind = SECURITY_OWN_CA, .dialled = true, .shown = SHOWN),
        ROW(.kind = SECURITY_OWN_CA, .dialled = true, .shown = SHOWN, .checks_servers = true,
            .why = "server.dc1.example"),
        ROW(.kind = SECURITY_OWN_CA, .dialled = true, .shown = SHOWN, .checks_servers = true,
            .name = "server.dc1.example"),
        ROW(.kind = SECURITY_OWN_CA, .dialled = true, .shown = SHOWN, .checks_servers = true,
            .name = "server.dc1.example", .region = "dc2", .why = "server.dc2.example"),
        ROW(.kind = SECURITY_OWN_CA, .dialled = true, .shown = SHOWN, .checks_servers = true,
            .name = "server.dc2.example", .region = "dc2"),
        CLUSTER(.dialled = true, .why = NOT_ENCRYPTED),
        CLUSTER(.dialled = true, .dials_plain = true),
        CLUSTER(.dialled = true, .shown = BARE, .why = NO_CERT),
        CLUSTER(.dialled = true, .shown = SHOWN, .role = TLS_ROLE_SERVER, .node = "s1"),
        CLUSTER(.dialled = true, .shown = SHOWN, .role = TLS_ROLE_AGENT, .node = "a1", .why = "client agent a1"),
        CLUSTER(.dialled = true, .shown = SHOWN, .role = TLS_ROLE_NONE, .why = "names no node"),
        CLUSTER(.dialled = true, .shown = SHOWN, .role = TLS_ROLE_SERVER, .node = "s1", .domain = OTHER_DOMAIN,
                .why = "of another cluster"),
        CLUSTER(.dialled = true, .shown = SHOWN, .role = TLS_ROLE_SERVER, .node = "s9", .domain = OTHER_DOMAIN,
                .region = "dc2"),
        CLUSTER(.dialled = true, .shown = SHOWN, .role = TLS_ROLE_SERVER, .node = "s9", .region = "dc2",
                .why = "another cluster than that region's"),
        CLUSTER(.dialled = true, .shown = SHOWN, .role = TLS_ROLE_AGENT, .node = "a9", .domain = OTHER_DOMAIN,
                .region = "dc2", .why = "no server's"),
        CLUSTER(.dialled = true, .shown = SHOWN, .role = TLS_ROLE_SERVER, .node = "s9", .domain = OTHER_DOMAIN,
                .region = "dc3", .why = "region dc3 is not trusted"),
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) judge_dialled(&rows[i]);
}

/* -- dialling and accepting ----------------------------------------------------------------------------------------- */
Test(security, links_are_dialled_and_accepted_by_the_rules) {
    static const struct {
        int line;
        struct security_rules rules;
        bool dials, psk, accepts, plain;
        enum tls_peer_rule peer; /* of accepted links */
        const char *refusal;
    } rows[] = {
        {__LINE__, {.kind = SECURITY_OPEN, .takes_plain = true, .dials_plain = true}, .plain = true},
        {__LINE__,
         {.kind = SECURITY_SHARED_KEY},
         .dials = true,
         .psk = true,
         .accepts = true,
         .peer = TLS_PEER_UNASKED,
         .refusal = "(encrypt)"},
        {__LINE__,
         {.kind = SECURITY_SHARED_KEY, .takes_plain = true, .dials_plain = true},
         .accepts = true,
         .plain = true,
         .peer = TLS_PEER_UNASKED,
         .refusal = "(encrypt)"},
        {__LINE__,
         {.kind = SECURITY_OWN_CA, .takes_plain = true},
         .dials = true,
         .accepts = true,
         .plain = true,
         .peer = TLS_PEER_ASKED,
         .refusal = "ca_file"},
        {__LINE__,
         {.kind = SECURITY_OWN_CA, .asks_clients = true},
         .dials = true,
         .accepts = true,
         .peer = TLS_PEER_REQUIRED,
         .refusal = "ca_file"},
        {__LINE__,
         {.kind = SECURITY_OWN_CA, .dials_plain = true},
         .accepts = true,
         .peer = TLS_PEER_ASKED,
         .refusal = "ca_file"},
        {__LINE__,
         {.kind = SECURITY_CLUSTER, .asks_clients = true},
         .dials = true,
         .accepts = true,
         .peer = TLS_PEER_REQUIRED,
         .refusal = "coord join"},
    };
    struct fault fault = {0};
    struct tls_context_config config = {.only_tls13 = true};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct security *security = security_new();
        struct tls_context *context = NULL;
        struct link_security link;
        uint64_t before = security_generation(security);
        cr_assert_eq(tls_context_make(&config, &context, &fault), CO_OK, "%s", fault.text);
        security_set(security, &rows[i].rules, context);
        cr_expect_gt(security_generation(security), before);
        cr_expect_eq(security_dial(security, &link), rows[i].dials, "line %d", rows[i].line);
        if (rows[i].dials) {
            cr_expect_eq(link.session.psk, rows[i].psk, "line %d", rows[i].line);
            cr_expect_eq(link.session.peer, rows[i].psk ? TLS_PEER_UNASKED : TLS_PEER_REQUIRED, "line %d",
                         rows[i].line);
        }
        cr_expect_eq(security_accept(security, 7, &link), rows[i].accepts, "line %d", rows[i].line);
        if (rows[i].accepts) {
            cr_expect_eq(link.session.peer, rows[i].peer, "line %d", rows[i].line);
            cr_expect_eq(link.allow_plain, rows[i].plain, "line %d", rows[i].line);
            cr_expect(strstr(link.refusal, rows[i].refusal), "line %d: %s", rows[i].line, link.refusal);
        }
        security_free(security);
    }
}
