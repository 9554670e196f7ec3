/* Packet in, packet out, over a real catalog: every form of name and every type; what is kept, and for how long. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "base/check.h"
#include "base/clock.h"
#include "catalog_help.h"
#include "dns/responder.h"
#include "dns_help.h"

static struct rpc *rpc;
static struct dns_setup setup;
static struct dns_responder *responder;
static uint8_t out[DNS_TCP_ROOM];

static struct dns_config default_config(void) {
    return (struct dns_config){.domain = "coord",
                               .alt_domain = "alt.example",
                               .datacenter = "dc1",
                               .node_name = "n1",
                               .stale = true,
                               .soa_refresh = 3600,
                               .soa_retry = 600,
                               .soa_expire = 86400};
}

static void use_config(const struct dns_config *config) {
    struct fault fault = {0};
    dns_responder_free(responder);
    dns_setup_free(&setup);
    cr_assert(eq(int, dns_setup_make(&setup, config, &fault), CO_OK), "%s", fault.text);
    responder = dns_responder_new(&setup, rpc);
}

static void fill(void) {
    help_node(rpc, "n1", "10.0.0.1", (const char *const[]){"k=v", "rfc1035-00=hello world", "a b=c=`d", NULL});
    help_node(rpc, "n2", "fd00::2", NULL);
    help_node(rpc, "n3", "host.example.com", NULL);
    help_node(rpc, "N.4", "10.0.0.4", NULL);
    help_node(rpc, "not a dns name..", "10.0.0.5", NULL);
    help_service(rpc, (struct help_service){.node = "n1",
                                            .id = "db1",
                                            .name = "db",
                                            .port = 5432,
                                            .tags = {"Primary", "v1.2"},
                                            .passing = 7,
                                            .warning = 3});
    help_service(rpc, (struct help_service){.node = "n2",
                                            .id = "db2",
                                            .name = "db",
                                            .port = 5433,
                                            .tags = {"replica"},
                                            .passing = 7,
                                            .warning = 3,
                                            .status = PB__STATUS__WARNING});
    help_service(
        rpc, (struct help_service){
                 .node = "N.4", .id = "db3", .name = "db", .address = "10.9.9.4", .port = 5434, .tags = {"replica"}});
    help_service(
        rpc,
        (struct help_service){
            .node = "n1", .id = "db4", .name = "db", .port = 5435, .tags = {"dead"}, .status = PB__STATUS__CRITICAL});
    help_service(rpc,
                 (struct help_service){.node = "n1", .id = "six", .name = "six", .address = "fd00::99", .port = 1});
    help_service(
        rpc, (struct help_service){.node = "n1", .id = "nm", .name = "named", .address = "svc.example.com", .port = 2});
    help_service(rpc, (struct help_service){
                          .node = "n1", .id = "own", .name = "own", .address = "n1.node.dc1.coord", .port = 3});
    help_service(rpc, (struct help_service){
                          .node = "n1", .id = "loop", .name = "loop", .address = "loop.service.coord", .port = 3});
    help_service(
        rpc, (struct help_service){
                 .node = "n1", .id = "dead", .name = "dead", .port = 4, .tags = {"t"}, .status = PB__STATUS__CRITICAL});
    help_service(rpc, (struct help_service){.node = "n1", .id = "up", .name = "UpperCase", .port = 5, .tags = {"TaG"}});
    help_service(rpc, (struct help_service){.node = "not a dns name..", .id = "odd", .name = "odd", .port = 6});
}

static void set_up(void) {
    rpc = fake_rpc_start(NULL);
    fill();
    struct dns_config config = default_config();
    use_config(&config);
}
static void tear_down(void) {
    dns_responder_free(responder);
    dns_setup_free(&setup);
    fake_rpc_stop(rpc);
}
TestSuite(dns_responder, .init = set_up, .fini = tear_down);

static struct help_answer ask_with(const char *name, unsigned type, unsigned edns, enum dns_transport transport) {
    uint8_t query[512];
    size_t size = help_query(query, name, type, edns);
    dns_responder_begin(responder);
    size_t got = dns_responder_answer(responder, transport, query, size, out);
    dns_responder_end(responder);
    cr_assert(gt(sz, got, 0));
    return help_parse(out, got);
}
static struct help_answer ask(const char *name, unsigned type) { return ask_with(name, type, 4096, DNS_UDP); }

#define SOA_END " 3600 600 86400 0"
static void expect_soa(const char *name, const char *authority, const char *zone) {
    char start[300];
    const char *domain = strstr(zone, "alt.example") ? "alt.example" : "coord";
    snprintf(start, sizeof(start), "%s. 0 IN SOA ns.%s. hostmaster.%s. ", zone, domain, domain);
    cr_expect(strncmp(authority, start, strlen(start)) == 0, "%s: %s", name, authority);
    size_t size = strlen(authority), end = strlen(SOA_END);
    cr_expect(size > end && strcmp(authority + size - end, SOA_END) == 0, "%s: %s", name, authority);
}

struct row {
    const char *name;
    unsigned type;
    const char *answer, *additional;
};

static void expect_rows(const struct row *rows, size_t count) {
    for (unsigned round = 0; round < 2; round++) { /* made, then kept */
        for (size_t i = 0; i < count; i++) {
            struct help_answer got = ask(rows[i].name, rows[i].type);
            cr_expect(eq(int, got.rcode, RCODE_NOERROR), "%s", rows[i].name);
            cr_expect(got.aa && !got.tc && !got.ra && got.edns, "%s", rows[i].name);
            cr_expect_str_eq(got.answer, rows[i].answer, "%s %u, got:\n%s", rows[i].name, rows[i].type, got.answer);
            if (rows[i].additional) {
                cr_expect_str_eq(got.additional, rows[i].additional, "%s %u, got:\n%s", rows[i].name, rows[i].type,
                                 got.additional);
            }
            help_free(&got);
        }
    }
}

Test(dns_responder, addresses_of_services) {
    static const struct row rows[] = {
        {"db.service.coord", TYPE_A, "db.service.coord. 0 IN A 10.0.0.1\ndb.service.coord. 0 IN A 10.9.9.4", ""},
        {"DB.Service.Coord", TYPE_A, "DB.Service.Coord. 0 IN A 10.0.0.1\nDB.Service.Coord. 0 IN A 10.9.9.4", ""},
        {"db.service.coord", TYPE_AAAA, "db.service.coord. 0 IN AAAA fd00::2", ""},
        {"db.service.coord", TYPE_ANY,
         "db.service.coord. 0 IN A 10.0.0.1\ndb.service.coord. 0 IN A 10.9.9.4\ndb.service.coord. 0 IN AAAA "
         "fd00::2",
         ""},
        {"primary.db.service.coord", TYPE_A, "primary.db.service.coord. 0 IN A 10.0.0.1", ""},
        {"v1.2.db.service.dc1.coord", TYPE_A, "v1.2.db.service.dc1.coord. 0 IN A 10.0.0.1", ""},
        {"db.service.dc1.dc.coord", TYPE_AAAA, "db.service.dc1.dc.coord. 0 IN AAAA fd00::2", ""},
        {"_db._primary.service.coord", TYPE_A, "_db._primary.service.coord. 0 IN A 10.0.0.1", ""},
        {"_db._tcp.dc1.coord", TYPE_AAAA, "_db._tcp.dc1.coord. 0 IN AAAA fd00::2", ""},
        {"uppercase.service.coord", TYPE_A, "uppercase.service.coord. 0 IN A 10.0.0.1", ""},
        {"tag.UPPERCASE.service.coord", TYPE_A, "tag.UPPERCASE.service.coord. 0 IN A 10.0.0.1", ""},
        {"six.service.coord", TYPE_AAAA, "six.service.coord. 0 IN AAAA fd00::99", ""},
        {"odd.service.coord", TYPE_A, "odd.service.coord. 0 IN A 10.0.0.5", ""},
        {"db.service.alt.example", TYPE_AAAA, "db.service.alt.example. 0 IN AAAA fd00::2", ""},
    };
    expect_rows(rows, ARRAY_COUNT(rows));
}

Test(dns_responder, srv_of_services) {
    static const char node1[] =
        "n1.node.dc1.coord. 0 IN A 10.0.0.1\nn1.node.dc1.coord. 0 IN TXT \"a b=c=``d\"\n"
        "n1.node.dc1.coord. 0 IN TXT \"hello world\"\nn1.node.dc1.coord. 0 IN TXT \"k=v\"";
    static const struct row rows[] = {
        {"_db._tcp.service.coord", TYPE_SRV,
         "_db._tcp.service.coord. 0 IN SRV 1 1 5434 0a090904.addr.dc1.coord.\n"
         "_db._tcp.service.coord. 0 IN SRV 1 3 5433 n2.node.dc1.coord.\n"
         "_db._tcp.service.coord. 0 IN SRV 1 7 5432 n1.node.dc1.coord.",
         "0a090904.addr.dc1.coord. 0 IN A 10.9.9.4\nn1.node.dc1.coord. 0 IN A 10.0.0.1\n"
         "n1.node.dc1.coord. 0 IN TXT \"a b=c=``d\"\nn1.node.dc1.coord. 0 IN TXT \"hello world\"\n"
         "n1.node.dc1.coord. 0 IN TXT \"k=v\"\nn2.node.dc1.coord. 0 IN AAAA fd00::2"},
        {"primary.db.service.coord", TYPE_SRV, "primary.db.service.coord. 0 IN SRV 1 7 5432 n1.node.dc1.coord.", node1},
        {"primary.db.service.alt.example", TYPE_SRV,
         "primary.db.service.alt.example. 0 IN SRV 1 7 5432 n1.node.dc1.coord.", node1},
        {"uppercase.service.coord", TYPE_SRV, "uppercase.service.coord. 0 IN SRV 1 1 5 n1.node.dc1.coord.", node1},
        {"own.service.coord", TYPE_SRV, "own.service.coord. 0 IN SRV 1 1 3 n1.node.dc1.coord.", node1},
        {"odd.service.coord", TYPE_SRV, "odd.service.coord. 0 IN SRV 1 1 6 0a000005.addr.dc1.coord.",
         "0a000005.addr.dc1.coord. 0 IN A 10.0.0.5"},
        {"named.service.coord", TYPE_SRV, "named.service.coord. 0 IN SRV 1 1 2 svc.example.com.",
         "n1.node.dc1.coord. 0 IN TXT \"a b=c=``d\"\nn1.node.dc1.coord. 0 IN TXT \"hello world\"\n"
         "n1.node.dc1.coord. 0 IN TXT \"k=v\""},
        {"six.service.coord", TYPE_SRV,
         "six.service.coord. 0 IN SRV 1 1 1 fd000000000000000000000000000099.addr.dc1.coord.", NULL},
    };
    expect_rows(rows, ARRAY_COUNT(rows));
}

/* Both ends of each name that SRV gives lead to its address. */
Test(dns_responder, targets_resolve) {
    static const struct row rows[] = {
        {"0a090904.addr.dc1.coord", TYPE_A, "0a090904.addr.dc1.coord. 0 IN A 10.9.9.4", ""},
        {"fd000000000000000000000000000099.addr.coord", TYPE_ANY,
         "fd000000000000000000000000000099.addr.coord. 0 IN AAAA fd00::99", ""},
        {"n.4.node.dc1.coord", TYPE_A, "n.4.node.dc1.coord. 0 IN A 10.0.0.4", ""},
        {"n2.node.coord", TYPE_AAAA, "n2.node.coord. 0 IN AAAA fd00::2", ""},
    };
    expect_rows(rows, ARRAY_COUNT(rows));
}

Test(dns_responder, nodes) {
    static const struct row rows[] = {
        {"N1.node.coord", TYPE_A, "N1.node.coord. 0 IN A 10.0.0.1",
         "N1.node.coord. 0 IN TXT \"a b=c=``d\"\nN1.node.coord. 0 IN TXT \"hello world\"\nN1.node.coord. 0 "
         "IN TXT \"k=v\""},
        {"n1.node.dc1.coord", TYPE_TXT,
         "n1.node.dc1.coord. 0 IN TXT \"a b=c=``d\"\nn1.node.dc1.coord. 0 IN TXT \"hello world\"\n"
         "n1.node.dc1.coord. 0 IN TXT \"k=v\"",
         ""},
        {"n1.node.coord", TYPE_ANY,
         "n1.node.coord. 0 IN A 10.0.0.1\nn1.node.coord. 0 IN TXT \"a b=c=``d\"\nn1.node.coord. 0 IN TXT "
         "\"hello world\"\n"
         "n1.node.coord. 0 IN TXT \"k=v\"",
         ""},
        {"n3.node.coord", TYPE_A, "n3.node.coord. 0 IN CNAME host.example.com.", ""},
        {"n3.node.coord", TYPE_ANY, "n3.node.coord. 0 IN CNAME host.example.com.", ""},
        {"n3.node.coord", TYPE_CNAME, "n3.node.coord. 0 IN CNAME host.example.com.", ""},
    };
    expect_rows(rows, ARRAY_COUNT(rows));
}

Test(dns_responder, names_as_addresses) {
    static const struct row rows[] = {
        {"named.service.coord", TYPE_A, "named.service.coord. 0 IN CNAME svc.example.com.", ""},
        {"named.service.coord", TYPE_AAAA, "named.service.coord. 0 IN CNAME svc.example.com.", ""},
        {"named.service.coord", TYPE_TXT, "named.service.coord. 0 IN CNAME svc.example.com.", ""},
        {"own.service.coord", TYPE_A,
         "n1.node.dc1.coord. 0 IN A 10.0.0.1\nown.service.coord. 0 IN CNAME n1.node.dc1.coord.", ""},
        {"own.service.coord", TYPE_AAAA, "own.service.coord. 0 IN CNAME n1.node.dc1.coord.", ""},
    };
    expect_rows(rows, ARRAY_COUNT(rows));
    struct help_answer got;
    help_service(rpc, (struct help_service){.node = "n1", .id = "l", .name = "later", .address = "x9.node.coord"});
    static const unsigned types[] = {TYPE_A, TYPE_SRV};
    for (size_t i = 0; i < 2; i++) {
        got = ask("later.service.coord", types[i]);
        cr_expect(strstr(got.answer, "10.0.0.9") == NULL && strstr(got.additional, "10.0.0.9") == NULL);
        help_free(&got);
    }
    help_node(rpc, "x9", "10.0.0.9", NULL); /* the name that it stands for appears */
    for (size_t i = 0; i < 2; i++) {
        got = ask("later.service.coord", types[i]);
        cr_expect(strstr(got.answer, "10.0.0.9") != NULL || strstr(got.additional, "10.0.0.9") != NULL);
        help_free(&got);
    }
}

static void add(const char *service, const char *id, const char *address, const char *tag) {
    help_service(rpc, (struct help_service){
                          .node = "n1", .id = id, .name = service, .address = address, .port = 9, .tags = {tag}});
}

/* `zone`: of the SOA in the authority section; NULL: there is none. */
static void expect_end(const char *name, unsigned type, const char *answer, int rcode, const char *zone) {
    struct help_answer got = ask(name, type);
    cr_expect(eq(int, got.rcode, rcode), "%s %u", name, type);
    cr_expect_str_eq(got.answer, answer, "%s %u, got:\n%s", name, type, got.answer);
    cr_expect_eq(got.authorities, zone ? 1 : 0, "%s %u: %s", name, type, got.authority);
    if (zone) expect_soa(name, got.authority, zone);
    help_free(&got);
}

Test(dns_responder, own_names_as_addresses_are_left_out) {
    static const char *const addresses[] = {"mine.service.coord",         "Mine.Service.DC1.Coord.",
                                            "mine.service.alt.example",   "mine.service.dc1.dc.coord",
                                            "_mine._tcp.service.coord",   "t1.mine.service.coord",
                                            "_mine._t1.service.dc1.coord"};
    char id[16];
    for (size_t i = 0; i < ARRAY_COUNT(addresses); i++) {
        snprintf(id, sizeof id, "m%zu", i);
        add("mine", id, addresses[i], "t1");
    }
    static const char *const names[] = {"mine.service.coord", "mine.service.alt.example", "t1.mine.service.coord"};
    static const char *const zones[] = {"service.coord", "service.alt.example", "service.coord"};
    static const unsigned types[] = {TYPE_A, TYPE_AAAA, TYPE_SRV, TYPE_ANY, TYPE_CNAME};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        for (size_t t = 0; t < ARRAY_COUNT(types); t++) expect_end(names[i], types[t], "", RCODE_NOERROR, zones[i]);
    add("mine", "good", "10.3.0.3", NULL); /* the others are left out beside it */
    expect_end("mine.service.coord", TYPE_A, "mine.service.coord. 0 IN A 10.3.0.3", RCODE_NOERROR, NULL);
    expect_end("mine.service.coord", TYPE_SRV, "mine.service.coord. 0 IN SRV 1 1 9 0a030003.addr.dc1.coord.",
               RCODE_NOERROR, NULL);
    add("part", "p1", "t2.part.service.coord", "t1"); /* others have that tag: no loop */
    add("part", "p2", "10.3.0.4", "t2");
    expect_end("t1.part.service.coord", TYPE_A,
               "t1.part.service.coord. 0 IN CNAME t2.part.service.coord.\nt2.part.service.coord. 0 IN A 10.3.0.4",
               RCODE_NOERROR, NULL);
    help_node(rpc, "n8", "N8.node.dc1.alt.example", NULL);
    expect_end("n8.node.coord", TYPE_A, "", RCODE_NOERROR, "node.coord");
    help_service(rpc, (struct help_service){.node = "n8", .id = "e", .name = "elsewhere", .port = 9});
    help_node(rpc, "n9", "at-node.service.coord", NULL); /* a node's address, which its service has */
    help_service(rpc, (struct help_service){.node = "n9", .id = "a", .name = "at-node", .port = 9});
    expect_end("at-node.service.coord", TYPE_A, "", RCODE_NOERROR, "service.coord");
}

Test(dns_responder, names_that_lead_to_one_another_end) {
    add("one", "1", "two.service.coord", NULL);
    add("two", "2", "three.service.coord", NULL);
    add("three", "3", "one.service.coord", NULL);
    expect_end("one.service.coord", TYPE_A,
               "one.service.coord. 0 IN CNAME two.service.coord.\ntwo.service.coord. 0 IN CNAME three.service.coord.",
               RCODE_NOERROR, "coord");
    add("ping", "4", "pong.service.coord", NULL);
    add("pong", "5", "ping.service.coord", NULL);
    expect_end("ping.service.coord", TYPE_A, "ping.service.coord. 0 IN CNAME pong.service.coord.", RCODE_NOERROR,
               "coord");
}

/* RFC 2308: the response code is the last name's. */
Test(dns_responder, names_that_lead_to_nothing) {
    add("gone", "1", "no.service.coord", NULL);
    static const unsigned types[] = {TYPE_A, TYPE_AAAA, TYPE_TXT};
    for (size_t t = 0; t < 3; t++)
        expect_end("gone.service.coord", types[t], "gone.service.coord. 0 IN CNAME no.service.coord.", RCODE_NXDOMAIN,
                   "coord");
    expect_end("gone.service.coord", TYPE_CNAME, "gone.service.coord. 0 IN CNAME no.service.coord.", RCODE_NOERROR,
               NULL);
    add("far", "2", "gone.service.coord", NULL); /* two names on */
    expect_end("far.service.coord", TYPE_A,
               "far.service.coord. 0 IN CNAME gone.service.coord.\ngone.service.coord. 0 IN CNAME no.service.coord.",
               RCODE_NXDOMAIN, "coord");
    help_node(rpc, "n7", "nowhere.coord.", NULL); /* no name of ours, in our domain */
    expect_end("n7.node.coord", TYPE_A, "n7.node.coord. 0 IN CNAME nowhere.coord.", RCODE_NXDOMAIN, "coord");
    add("ill", "3", "dead.service.coord", NULL); /* nothing healthy */
    expect_end("ill.service.coord", TYPE_A, "ill.service.coord. 0 IN CNAME dead.service.coord.", RCODE_NXDOMAIN,
               "coord");
    add("four", "4", "n1.node.coord", NULL); /* it is there, but has no such address */
    expect_end("four.service.coord", TYPE_AAAA, "four.service.coord. 0 IN CNAME n1.node.coord.", RCODE_NOERROR,
               "coord");
    expect_end("four.service.coord", TYPE_TXT, "four.service.coord. 0 IN CNAME n1.node.coord.", RCODE_NOERROR, NULL);
    add("part", "5", "service.coord", NULL); /* names below it are there */
    expect_end("part.service.coord", TYPE_A, "part.service.coord. 0 IN CNAME service.coord.", RCODE_NOERROR, "coord");
    add("abroad", "6", "web.service.dc9.coord", NULL);
    expect_end("abroad.service.coord", TYPE_A, "abroad.service.coord. 0 IN CNAME web.service.dc9.coord.",
               RCODE_NXDOMAIN, "coord");
    add("outside", "7", "h.example.com", NULL); /* whoever asks goes on there */
    expect_end("outside.service.coord", TYPE_A, "outside.service.coord. 0 IN CNAME h.example.com.", RCODE_NOERROR,
               NULL);
    /* of another domain of ours: its SOA does not lie above what was asked */
    expect_end("gone.service.alt.example", TYPE_A, "gone.service.alt.example. 0 IN CNAME no.service.coord.",
               RCODE_NOERROR, NULL);
}

Test(dns_responder, nothing_there) {
    static const struct {
        const char *name;
        unsigned type;
        int rcode;
        const char *zone;
    } rows[] = {
        {"no.service.coord", TYPE_A, RCODE_NXDOMAIN, "service.coord"},
        {"no.service.coord", TYPE_SRV, RCODE_NXDOMAIN, "service.coord"},
        {"no.service.alt.example", TYPE_A, RCODE_NXDOMAIN, "service.alt.example"},
        {"no.node.coord", TYPE_A, RCODE_NXDOMAIN, "node.coord"},
        {"dead.service.coord", TYPE_A, RCODE_NXDOMAIN, "service.coord"},
        {"dead.service.coord", TYPE_SRV, RCODE_NXDOMAIN, "service.coord"},
        {"t.dead.service.coord", TYPE_A, RCODE_NXDOMAIN, "service.coord"},
        {"dead.db.service.coord", TYPE_A, RCODE_NXDOMAIN, "service.coord"}, /* a tag of a critical instance only */
        {"notag.db.service.coord", TYPE_A, RCODE_NXDOMAIN, "service.coord"},
        {"db.service.dc2.coord", TYPE_A, RCODE_NXDOMAIN, "coord"},
        {"n1.node.dc2.coord", TYPE_A, RCODE_NXDOMAIN, "coord"},
        {"dc2.coord", TYPE_A, RCODE_NXDOMAIN, "coord"},
        {"foo.bar.coord", TYPE_A, RCODE_NXDOMAIN, "coord"},
        {"db.query.coord", TYPE_A, RCODE_NXDOMAIN, "coord"},
        {"0a00.addr.coord", TYPE_A, RCODE_NXDOMAIN, "addr.coord"},
        {"six.service.coord", TYPE_A, RCODE_NOERROR, "service.coord"},
        {"db.service.coord", TYPE_TXT, RCODE_NOERROR, "service.coord"},
        {"db.service.coord", 15, RCODE_NOERROR, "service.coord"},
        {"db.service.coord", 65280, RCODE_NOERROR, "service.coord"},
        {"n1.node.coord", TYPE_AAAA, RCODE_NOERROR, "node.coord"},
        {"n2.node.coord", TYPE_TXT, RCODE_NOERROR, "node.coord"},
        {"n1.node.coord", TYPE_SRV, RCODE_NOERROR, "node.coord"},
        {"0a000001.addr.coord", TYPE_AAAA, RCODE_NOERROR, "addr.coord"},
        {"coord", TYPE_A, RCODE_NOERROR, "coord"},
        {"alt.example", TYPE_A, RCODE_NOERROR, "alt.example"},
        {"service.coord", TYPE_A, RCODE_NOERROR, "service.coord"},
        {"dc1.coord", TYPE_A, RCODE_NOERROR, "dc1.coord"},
        {"_tcp.service.coord", TYPE_A, RCODE_NOERROR, "service.coord"},
        {"_tls.service.coord", TYPE_NS, RCODE_NOERROR, "service.coord"}, /* _NAME._tls may be there */
        {"_tls.coord", TYPE_NS, RCODE_NOERROR, "coord"},
        {"dc.coord", TYPE_NS, RCODE_NOERROR, "coord"}, /* dc1.dc.coord is there */
        {"service.dc1.dc.coord", TYPE_NS, RCODE_NOERROR, "service.dc1.dc.coord"},
        {"_db._udp.service.coord", TYPE_SRV, RCODE_NXDOMAIN, "service.coord"}, /* udp is a tag */
        {"_db._v1.2.service.coord", TYPE_A, RCODE_NXDOMAIN, "service.coord"},
        {"2.db.service.coord", TYPE_A, RCODE_NOERROR, "service.coord"}, /* v1.2.db.service.coord is there */
        {"2.db.service.coord", TYPE_SRV, RCODE_NOERROR, "service.coord"},
        {"1.2.db.service.coord", TYPE_A, RCODE_NXDOMAIN, "service.coord"},
        {"v1.db.service.coord", TYPE_A, RCODE_NXDOMAIN, "service.coord"},
        {"4.node.coord", TYPE_A, RCODE_NOERROR, "node.coord"}, /* N.4.node.coord is there */
        {"n.node.coord", TYPE_A, RCODE_NXDOMAIN, "node.coord"},
        /* the domain's own types: only the domain has them */
        {"db.service.coord", TYPE_NS, RCODE_NOERROR, "service.coord"},
        {"db.service.coord", TYPE_SOA, RCODE_NOERROR, "service.coord"},
        {"primary.db.service.dc1.coord", TYPE_SOA, RCODE_NOERROR, "service.dc1.coord"},
        {"_db._tcp.service.coord", TYPE_NS, RCODE_NOERROR, "service.coord"},
        {"service.coord", TYPE_NS, RCODE_NOERROR, "service.coord"},
        {"node.coord", TYPE_SOA, RCODE_NOERROR, "node.coord"},
        {"dc1.coord", TYPE_NS, RCODE_NOERROR, "dc1.coord"},
        {"ns.coord", TYPE_NS, RCODE_NOERROR, "coord"},
        {"n1.node.coord", TYPE_SOA, RCODE_NOERROR, "node.coord"},
        {"0a000001.addr.coord", TYPE_NS, RCODE_NOERROR, "addr.coord"},
        {"db.service.alt.example", TYPE_NS, RCODE_NOERROR, "service.alt.example"},
        {"no.service.coord", TYPE_NS, RCODE_NXDOMAIN, "service.coord"},
        {"no.service.coord", TYPE_SOA, RCODE_NXDOMAIN, "service.coord"},
        {"no.such.name.coord", TYPE_NS, RCODE_NXDOMAIN, "coord"},
        {"no.node.coord", TYPE_SOA, RCODE_NXDOMAIN, "node.coord"},
        {"x.alt.example", TYPE_NS, RCODE_NXDOMAIN, "alt.example"},
    };
    for (unsigned round = 0; round < 2; round++) {
        for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
            struct help_answer got = ask(rows[i].name, rows[i].type);
            cr_expect(eq(int, got.rcode, rows[i].rcode), "%s %u", rows[i].name, rows[i].type);
            cr_expect(got.aa, "%s", rows[i].name);
            cr_expect(eq(sz, got.answers, 0), "%s: %s", rows[i].name, got.answer);
            expect_soa(rows[i].name, got.authority, rows[i].zone);
            help_free(&got);
        }
    }
}

Test(dns_responder, the_domain) {
    struct help_answer got = ask("coord", TYPE_NS); /* no servers in the catalog: this one */
    EXPECT_LINES(got.answer, "coord. 0 IN NS n1.node.dc1.coord.");
    EXPECT_LINES(got.additional, "n1.node.dc1.coord. 0 IN A 10.0.0.1");
    help_free(&got);
    got = ask("ns.coord", TYPE_A);
    EXPECT_LINES(got.answer, "ns.coord. 0 IN A 10.0.0.1");
    help_free(&got);

    help_service(rpc, (struct help_service){.node = "n1", .id = "consul", .name = "consul", .port = 8300});
    help_service(rpc, (struct help_service){.node = "n2", .id = "consul", .name = "consul", .port = 8300});
    got = ask("coord", TYPE_NS);
    EXPECT_LINES(got.answer, "coord. 0 IN NS n1.node.dc1.coord.\ncoord. 0 IN NS n2.node.dc1.coord.");
    EXPECT_LINES(got.additional, "n1.node.dc1.coord. 0 IN A 10.0.0.1\nn2.node.dc1.coord. 0 IN AAAA fd00::2");
    help_free(&got);
    got = ask("coord", TYPE_SOA);
    expect_soa("coord", got.answer, "coord");
    EXPECT_LINES(got.authority, "coord. 0 IN NS n1.node.dc1.coord.\ncoord. 0 IN NS n2.node.dc1.coord.");
    EXPECT_LINES(got.additional, "n1.node.dc1.coord. 0 IN A 10.0.0.1\nn2.node.dc1.coord. 0 IN AAAA fd00::2");
    help_free(&got);
    got = ask("alt.example", TYPE_NS);
    EXPECT_LINES(got.answer, "alt.example. 0 IN NS n1.node.dc1.coord.\nalt.example. 0 IN NS n2.node.dc1.coord.");
    help_free(&got);
    got = ask("ns.coord", TYPE_ANY);
    EXPECT_LINES(got.answer, "ns.coord. 0 IN A 10.0.0.1\nns.coord. 0 IN AAAA fd00::2");
    help_free(&got);
    got = ask("coord", TYPE_ANY);
    cr_expect(eq(sz, got.answers, 3));
    help_free(&got);
}

Test(dns_responder, reverse) {
    static const struct row rows[] = {
        {"1.0.0.10.in-addr.arpa", TYPE_PTR, "1.0.0.10.in-addr.arpa. 0 IN PTR n1.node.dc1.coord.", ""},
        {"4.0.0.10.IN-ADDR.arpa", TYPE_PTR, "4.0.0.10.IN-ADDR.arpa. 0 IN PTR N.4.node.dc1.coord.", ""},
        {"2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa", TYPE_PTR,
         "2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa. 0 IN PTR "
         "n2.node.dc1.coord.",
         ""},
        {"1.0.0.10.in-addr.arpa", TYPE_A, "", ""},
    };
    expect_rows(rows, ARRAY_COUNT(rows));
    struct help_answer got = ask("77.0.0.10.in-addr.arpa", TYPE_PTR);
    cr_expect(eq(int, got.rcode, RCODE_REFUSED));
    help_free(&got);
    help_drop_node(rpc, "N.4");
    got = ask("1.0.0.10.in-addr.arpa", TYPE_PTR);
    cr_expect(eq(sz, got.answers, 1));
    help_free(&got);
}

/* The picture may be a moment behind. */
static void expect_reverse(const char *name, const char *answer) {
    uint64_t end_ms = clock_mono_ms() + 30000;
    for (;;) {
        struct help_answer got = ask(name, TYPE_PTR);
        bool good = strcmp(got.answer, answer) == 0 || clock_mono_ms() > end_ms;
        if (good) EXPECT_LINES(got.answer, answer);
        help_free(&got);
        if (good) return;
    }
}

Test(dns_responder, reverse_of_services_with_an_address_of_their_own) {
    help_service(rpc,
                 (struct help_service){.node = "n1", .id = "p2", .name = "Proxy", .address = "10.7.7.7", .port = 1});
    help_service(rpc, (struct help_service){.node = "n1", .id = "p1", .name = "api", .address = "10.7.7.7", .port = 1});
    expect_reverse("7.7.7.10.in-addr.arpa", "7.7.7.10.in-addr.arpa. 0 IN PTR api.service.dc1.coord.");
    help_drop_service(rpc, "n1", "p1");
    expect_reverse("7.7.7.10.in-addr.arpa", "7.7.7.10.in-addr.arpa. 0 IN PTR Proxy.service.dc1.coord.");
    /* it moves; its name alone changes; it goes */
    help_service(rpc,
                 (struct help_service){.node = "n1", .id = "p2", .name = "Proxy", .address = "fd00::7", .port = 1});
    expect_reverse("7.7.7.10.in-addr.arpa", "");
    expect_reverse(
        "7.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa",
        "7.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa. 0 IN PTR Proxy.service.dc1.coord.");
    help_service(rpc,
                 (struct help_service){.node = "n1", .id = "p2", .name = "front", .address = "10.7.7.8", .port = 1});
    expect_reverse("8.7.7.10.in-addr.arpa", "8.7.7.10.in-addr.arpa. 0 IN PTR front.service.dc1.coord.");
    help_service(rpc,
                 (struct help_service){.node = "n1", .id = "p2", .name = "back", .address = "10.7.7.8", .port = 1});
    expect_reverse("8.7.7.10.in-addr.arpa", "8.7.7.10.in-addr.arpa. 0 IN PTR back.service.dc1.coord.");
    /* a node's address is the node's */
    help_service(rpc,
                 (struct help_service){.node = "n2", .id = "x", .name = "other", .address = "10.0.0.1", .port = 1});
    expect_reverse("1.0.0.10.in-addr.arpa", "1.0.0.10.in-addr.arpa. 0 IN PTR n1.node.dc1.coord.");
    help_drop_service(rpc, "n1", "p2");
    expect_reverse("8.7.7.10.in-addr.arpa", "");
}

Test(dns_responder, not_ours) {
    static const char *const names[] = {"example.com", "coord.com", "coordx", ".", "com", "1.in-addr.arpa"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        struct help_answer got = ask(names[i], TYPE_A);
        cr_expect(eq(int, got.rcode, RCODE_REFUSED), "%s", names[i]);
        cr_expect(not(got.aa));
        cr_expect(eq(sz, got.answers + got.authorities + got.additionals, 0));
        help_free(&got);
    }
}

/* Addresses that are neither of an IP family nor a host name: the instance is left out, in whatever is asked. */
Test(dns_responder, what_is_no_address) {
    static const char *const texts[] = {
        "10.0.0.1 ",  " 10.0.0.1",        "10.0.0.1:80", "[2001:db8::1]", "http://h/", "a b",      "10.0.0.256",
        "010.0.0.1",  "2001:db8::1%eth0", "10.0.0.1\n",  "h.example\n",   "10.0.0",    "0x7f.1",   "host.0xa",
        "-a.example", "a-.example",       "h\xc3\xb6st", "a..b",          ".",         "*.example"};
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        char node[40];
        snprintf(node, sizeof(node), "odd%zu", i);
        help_node(rpc, node, texts[i], NULL);
        help_service(rpc, (struct help_service){.node = "n1", .id = node, .name = "bad", .address = texts[i]});
        help_service(rpc, (struct help_service){.node = node, .id = "x", .name = "bad"});
        char name[60];
        snprintf(name, sizeof(name), "%s.node.coord", node);
        struct help_answer got = ask(name, TYPE_ANY);
        cr_expect(eq(int, got.rcode, RCODE_NOERROR), "'%s'", texts[i]);
        cr_expect(eq(sz, got.answers, 0), "'%s': %s", texts[i], got.answer);
        help_free(&got);
    }
    static const unsigned types[] = {TYPE_A, TYPE_AAAA, TYPE_SRV, TYPE_ANY, TYPE_CNAME, TYPE_TXT};
    for (size_t i = 0; i < ARRAY_COUNT(types); i++) {
        struct help_answer got = ask("bad.service.coord", types[i]);
        cr_expect(eq(int, got.rcode, RCODE_NOERROR), "%u", types[i]);
        cr_expect(eq(sz, got.answers, 0), "%u: %s", types[i], got.answer);
        expect_soa("bad.service.coord", got.authority, "service.coord");
        help_free(&got);
    }
    /* the others are there */
    static const char *const good[] = {"10.1.1.1", "::ffff:10.1.1.2", "c_1.example.", "2.example.com"};
    for (size_t i = 0; i < ARRAY_COUNT(good); i++)
        help_service(rpc, (struct help_service){.node = "n1", .id = good[i], .name = "bad", .address = good[i]});
    struct help_answer got = ask("bad.service.coord", TYPE_A);
    EXPECT_LINES(got.answer, "bad.service.coord. 0 IN A 10.1.1.1\nbad.service.coord. 0 IN A 10.1.1.2");
    help_free(&got);
    got = ask("bad.service.coord", TYPE_SRV);
    EXPECT_LINES(got.answer,
                 "bad.service.coord. 0 IN SRV 1 1 0 0a010101.addr.dc1.coord.\n"
                 "bad.service.coord. 0 IN SRV 1 1 0 0a010102.addr.dc1.coord.\n"
                 "bad.service.coord. 0 IN SRV 1 1 0 2.example.com.\n"
                 "bad.service.coord. 0 IN SRV 1 1 0 c_1.example.");
    help_free(&got);
}

/* Names of nodes and services that are no host names are not given out either: not as targets, not in reverse. */
Test(dns_responder, names_that_are_no_host_names) {
    help_node(rpc, "a b", "10.3.0.1", NULL);
    help_node(rpc, "web_1", "10.3.0.2", NULL);
    help_service(rpc, (struct help_service){.node = "a b", .id = "x", .name = "pair", .port = 1});
    help_service(rpc, (struct help_service){.node = "web_1", .id = "x", .name = "pair", .port = 2});
    help_service(rpc, (struct help_service){.node = "n1", .id = "s", .name = "x y", .address = "10.3.0.3"});
    help_service(rpc, (struct help_service){.node = "n1", .id = "d", .name = "x.y", .address = "10.3.0.4"});
    struct help_answer got = ask("pair.service.coord", TYPE_SRV);
    EXPECT_LINES(got.answer,
                 "pair.service.coord. 0 IN SRV 1 1 1 0a030001.addr.dc1.coord.\n"
                 "pair.service.coord. 0 IN SRV 1 1 2 web_1.node.dc1.coord.");
    help_free(&got);
    static const char *const reverse[] = {"1.0.3.10.in-addr.arpa", "3.0.3.10.in-addr.arpa", "4.0.3.10.in-addr.arpa"};
    for (size_t i = 0; i < ARRAY_COUNT(reverse); i++) {
        got = ask(reverse[i], TYPE_PTR);
        cr_expect(eq(int, got.rcode, RCODE_REFUSED), "%s: %s", reverse[i], got.answer);
        help_free(&got);
    }
    help_service(rpc, (struct help_service){.node = "a b", .id = "consul", .name = "consul", .port = 8300});
    got = ask("coord", TYPE_NS); /* no server has a name: this one's */
    EXPECT_LINES(got.answer, "coord. 0 IN NS n1.node.dc1.coord.");
    help_free(&got);
}

/* A label that begins with an underscore is a tag like any other, but for _tcp. */
Test(dns_responder, names_of_rfc_2782) {
    static const char *const tags[] = {"udp", "tcp", "tls", "_sip._udp"};
    for (unsigned i = 0; i < ARRAY_COUNT(tags); i++) {
        help_service(rpc,
                     (struct help_service){
                         .node = "n1", .id = tags[i], .name = i == 3 ? "p" : "sip", .port = 10 + i, .tags = {tags[i]}});
    }
#define SIP(owner, port) owner ". 0 IN SRV 1 1 " port " n1.node.dc1.coord."
    static const struct row rows[] = {
        {"_sip._udp.service.coord", TYPE_SRV, SIP("_sip._udp.service.coord", "10"), NULL},
        {"_sip._udp.dc1.coord", TYPE_SRV, SIP("_sip._udp.dc1.coord", "10"), NULL},
        {"_sip._tls.service.coord", TYPE_SRV, SIP("_sip._tls.service.coord", "12"), NULL},
        {"_sip._tcp.service.coord", TYPE_SRV,
         SIP("_sip._tcp.service.coord", "10") "\n" SIP("_sip._tcp.service.coord", "11") "\n" SIP(
             "_sip._tcp.service.coord", "12"),
         NULL},
        {"tcp.sip.service.coord", TYPE_SRV, SIP("tcp.sip.service.coord", "11"), NULL},
        {"_sip._udp.p.service.coord", TYPE_SRV, SIP("_sip._udp.p.service.coord", "13"), NULL},
        {"_udp.p.service.coord", TYPE_SRV, "", NULL}, /* what a resolver asks on its way there */
    };
    expect_rows(rows, ARRAY_COUNT(rows));
}

/* A change shows at once, whatever was kept. */
Test(dns_responder, changes_show_at_once) {
    struct help_answer got = ask("primary.db.service.coord", TYPE_A);
    cr_expect(eq(sz, got.answers, 1));
    help_free(&got);

    help_node_check(rpc, "n1", PB__STATUS__CRITICAL);
    got = ask("primary.db.service.coord", TYPE_A);
    cr_expect(eq(int, got.rcode, RCODE_NXDOMAIN));
    help_free(&got);
    got = ask("db.service.coord", TYPE_A);
    EXPECT_LINES(got.answer, "db.service.coord. 0 IN A 10.9.9.4");
    help_free(&got);

    help_node_check(rpc, "n1", PB__STATUS__WARNING);
    got = ask("primary.db.service.coord", TYPE_SRV);
    EXPECT_LINES(got.answer, "primary.db.service.coord. 0 IN SRV 1 3 5432 n1.node.dc1.coord.");
    help_free(&got);

    help_node(rpc, "n1", "10.0.0.77", NULL);
    static const char *const names[] = {"primary.db.service.coord", "n1.node.coord", "own.service.coord"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        got = ask(names[i], TYPE_A);
        cr_expect(strstr(got.answer, "10.0.0.77") != NULL, "%s: %s", names[i], got.answer);
        help_free(&got);
    }
    got = ask("own.service.coord", TYPE_SRV);
    EXPECT_LINES(got.additional, "n1.node.dc1.coord. 0 IN A 10.0.0.77");
    help_free(&got);

    help_service(rpc, (struct help_service){.node = "n2", .id = "new", .name = "no", .port = 1, .tags = {"notag"}});
    got = ask("notag.no.service.coord", TYPE_AAAA);
    cr_expect(eq(sz, got.answers, 1));
    help_free(&got);
    help_drop_service(rpc, "n2", "new");
    got = ask("no.service.coord", TYPE_AAAA);
    cr_expect(eq(int, got.rcode, RCODE_NXDOMAIN));
    help_free(&got);
    help_drop_node(rpc, "n2");
    got = ask("n2.node.coord", TYPE_AAAA);
    cr_expect(eq(int, got.rcode, RCODE_NXDOMAIN));
    help_free(&got);
}

/* An answer that is kept is not read again; a change elsewhere does not matter. */
Test(dns_responder, answers_are_kept) {
    static const char *const names[] = {"db.service.coord", "primary.db.service.coord", "dead.service.coord",
                                        "n1.node.coord"};
    static const unsigned types[] = {TYPE_A, TYPE_AAAA, TYPE_SRV, TYPE_ANY, 15};
    unsigned long reads = 0;
    for (unsigned round = 0; round < 3; round++) {
        if (round == 1) reads = fake_rpc_reads(rpc);
        if (round == 2)
            help_service(rpc, (struct help_service){.node = "n3", .id = "z", .name = "elsewhere", .port = 1});
        for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
            for (size_t j = 0; j < ARRAY_COUNT(types); j++) {
                struct help_answer got = ask(names[i], types[j]);
                help_free(&got);
            }
        }
    }
    cr_expect(eq(u64, fake_rpc_reads(rpc), reads));
}

/* Made-up names, tags and types leave nothing behind, and cost one look each at most. */
Test(dns_responder, made_up_names_push_nothing_out) {
    struct help_answer got = ask("db.service.coord", TYPE_A);
    help_free(&got);
    got = ask("x.db.service.coord", TYPE_A);
    help_free(&got);
    uint64_t reads = fake_rpc_reads(rpc);
    for (unsigned i = 0; i < 20000; i++) {
        char name[80];
        static const char *const forms[] = {"made-up-%u.service.coord", "made-up-%u.db.service.coord",
                                            "made-up-%u.node.coord", "%08x.addr.coord", "made-up-%u.coord"};
        snprintf(name, sizeof(name), forms[i % ARRAY_COUNT(forms)], i);
        got = ask(name, TYPE_A);
        help_free(&got);
        got = ask("db.service.coord", 256 + i % 60000);
        help_free(&got);
    }
    cr_expect(le(u64, fake_rpc_reads(rpc) - reads, 20000 + 5));
    reads = fake_rpc_reads(rpc);
    got = ask("db.service.coord", TYPE_A);
    cr_expect(eq(sz, got.answers, 2));
    help_free(&got);
    cr_expect(eq(u64, fake_rpc_reads(rpc), reads));
}

Test(dns_responder, settings) {
    struct dns_service_ttl ttls[] = {
        {"*", 10 * INT64_C(1000000000)}, {"d*", 20 * INT64_C(1000000000)}, {"db", INT64_C(30500000000)}, {"six", 0}};
    struct dns_config config = default_config();
    config.service_ttls = ttls;
    config.service_ttl_count = ARRAY_COUNT(ttls);
    config.node_ttl_ns = INT64_C(40000000000);
    config.soa_min_ttl = 50;
    config.only_passing = true;
    use_config(&config);
    static const struct row rows[] = {
        {"db.service.coord", TYPE_A, "db.service.coord. 30 IN A 10.0.0.1\ndb.service.coord. 30 IN A 10.9.9.4", NULL},
        {"six.service.coord", TYPE_AAAA, "six.service.coord. 0 IN AAAA fd00::99", NULL},
        {"uppercase.service.coord", TYPE_A, "uppercase.service.coord. 10 IN A 10.0.0.1", NULL},
        {"n2.node.coord", TYPE_AAAA, "n2.node.coord. 40 IN AAAA fd00::2", NULL},
        {"own.service.coord", TYPE_A,
         "n1.node.dc1.coord. 40 IN A 10.0.0.1\nown.service.coord. 10 IN CNAME n1.node.dc1.coord.", NULL},
    };
    expect_rows(rows, ARRAY_COUNT(rows));
    struct help_answer got = ask("db.service.coord", TYPE_AAAA); /* warning only */
    cr_expect(eq(int, got.rcode, RCODE_NOERROR));
    cr_expect(strncmp(got.authority, "service.coord. 50 IN SOA", 24) == 0);
    help_free(&got);
    cr_expect(eq(u32, dns_setup_service_ttl(&setup, slice_text("DB")), 30));
    cr_expect(eq(u32, dns_setup_service_ttl(&setup, slice_text("dx")), 20));
    cr_expect(eq(u32, dns_setup_service_ttl(&setup, slice_text("d")), 20));
}

static void hundred(void) {
    for (unsigned i = 0; i < 100; i++) {
        char node[20], address[20];
        snprintf(node, sizeof(node), "m%u", i);
        snprintf(address, sizeof(address), "10.1.0.%u", i);
        help_node(rpc, node, address, NULL);
        help_service(rpc, (struct help_service){.node = node, .id = "big", .name = "big", .port = 1000 + i});
    }
}

static void show_weight(unsigned weight, const char *wanted, bool at_once) {
    help_service(rpc, (struct help_service){
                          .node = "m0", .id = "big", .name = "big", .port = 1000, .passing = weight, .warning = 1});
    uint64_t before_ms = clock_mono_ms();
    for (bool seen = false; !seen;) {
        struct help_answer got = ask_with("big.service.coord", TYPE_SRV, 0, DNS_TCP);
        seen = strstr(got.answer, wanted) != NULL;
        help_free(&got);
        cr_assert(seen || (!at_once && clock_mono_ms() - before_ms < 20000));
    }
}

/* A service of a thousand instances is not made anew at every change, and yet soon; a smaller one is. */
Test(dns_responder, large_services_rest) {
    hundred();
    for (unsigned i = 0; i < 5; i++) {
        char wanted[40];
        snprintf(wanted, sizeof(wanted), "SRV 1 %u 1000 m0.", 50 + i);
        show_weight(50 + i, wanted, true);
    }
    for (unsigned i = 0; i < 1000; i++) {
        char id[20];
        snprintf(id, sizeof(id), "more%u", i);
        help_service(rpc, (struct help_service){.node = "m1", .id = id, .name = "big", .port = 2000 + i});
    }
    show_weight(60, "SRV 1 60 1000 m0.", false);
    uint64_t reads = fake_rpc_reads(rpc);
    for (unsigned i = 0; i < 20; i++) {
        char wanted[40];
        snprintf(wanted, sizeof(wanted), "SRV 1 %u 1000 m0.", 70 + i);
        show_weight(70 + i, wanted, false);
    }
    cr_expect(le(u64, fake_rpc_reads(rpc) - reads, 20 * 3)); /* spelling, failover and instances, once a change */
    struct dns_config config = default_config();
    config.stale = false;
    use_config(&config);
    for (unsigned i = 0; i < 3; i++) {
        char wanted[40];
        snprintf(wanted, sizeof(wanted), "SRV 1 %u 1000 m0.", 90 + i);
        show_weight(90 + i, wanted, true);
    }
}

Test(dns_responder, sizes_and_limits) {
    hundred();
    const size_t fixed = 12 + 23;
    static const struct {
        unsigned type, edns;
        enum dns_transport transport;
        size_t answers;
    } rows[] = {
        {TYPE_A, 0, DNS_UDP, (512 - 35) / 16},
        {TYPE_A, 512, DNS_UDP, (512 - 46) / 16},
        {TYPE_A, 100, DNS_UDP, (512 - 46) / 16},
        {TYPE_A, 1232, DNS_UDP, (1232 - 46) / 16},
        {TYPE_A, 4096, DNS_UDP, 100},
        {TYPE_A, 0, DNS_TCP, 100},
        {TYPE_SRV, 0, DNS_TCP, 100},
        {TYPE_SRV, 8192, DNS_UDP, 100},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct help_answer got = ask_with("big.service.coord", rows[i].type, rows[i].edns, rows[i].transport);
        cr_expect(eq(sz, got.answers, rows[i].answers), "row %zu", i);
        cr_expect(eq(int, got.tc, rows[i].answers < 100), "row %zu", i);
        if (rows[i].type == TYPE_A)
            cr_expect(eq(sz, got.size, fixed + (rows[i].edns ? 11 : 0) + 16 * got.answers), "row %zu", i);
        help_free(&got);
    }
    struct dns_config config = default_config();
    config.udp_answer_limit = 3;
    config.a_record_limit = 5;
    use_config(&config);
    static const struct {
        unsigned type, edns;
        enum dns_transport transport;
        size_t answers;
    } limited[] = {
        {TYPE_A, 0, DNS_UDP, 3},        {TYPE_SRV, 0, DNS_UDP, 3}, {TYPE_A, 512, DNS_UDP, 3},
        {TYPE_A, 1232, DNS_UDP, 5},     {TYPE_A, 0, DNS_TCP, 5},   {TYPE_SRV, 0, DNS_TCP, 100},
        {TYPE_SRV, 8192, DNS_UDP, 100},
    };
    for (size_t i = 0; i < ARRAY_COUNT(limited); i++) {
        struct help_answer got = ask_with("big.service.coord", limited[i].type, limited[i].edns, limited[i].transport);
        cr_expect(eq(sz, got.answers, limited[i].answers), "row %zu", i);
        cr_expect(not(got.tc), "row %zu", i);
        help_free(&got);
    }
}

/* Default reads: one confirmation for a batch, waited for; without a leader there is no answer but SERVFAIL. */
Test(dns_responder, reads_that_must_be_fresh) {
    struct dns_config config = default_config();
    config.stale = false;
    use_config(&config);
    static const struct {
        bool alone, leader;
        int rcode;
    } rows[] = {{true, true, RCODE_NOERROR},
                {false, true, RCODE_NOERROR},
                {false, false, RCODE_SERVFAIL},
                {true, true, RCODE_NOERROR}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        fake_rpc_alone(rpc, rows[i].alone);
        fake_rpc_leader(rpc, rows[i].leader);
        struct help_answer got = ask("db.service.coord", TYPE_A);
        cr_expect(eq(int, got.rcode, rows[i].rcode), "row %zu", i);
        help_free(&got);
    }
}

Test(dns_responder, without_any_server_known) {
    struct dns_config config = default_config();
    config.node_name = "not-registered";
    use_config(&config);
    struct help_answer got = ask("coord", TYPE_NS);
    EXPECT_LINES(got.answer, "coord. 0 IN NS ns.coord.");
    help_free(&got);
    got = ask("ns.coord", TYPE_A);
    cr_expect(eq(int, got.rcode, RCODE_NOERROR));
    cr_expect(eq(sz, got.answers, 0));
    help_free(&got);
}

/* A server that knows nothing yet must not deny that names exist. */
Test(dns_responder, before_anything_is_applied) {
    struct rpc *empty = fake_rpc_start(NULL);
    struct dns_responder *other = dns_responder_new(&setup, empty);
    uint8_t query[512];
    size_t size = help_query(query, "db.service.coord", TYPE_A, 0);
    dns_responder_begin(other);
    struct help_answer got = help_parse(out, dns_responder_answer(other, DNS_UDP, query, size, out));
    cr_expect(eq(int, got.rcode, RCODE_SERVFAIL));
    help_free(&got);
    dns_responder_free(other);
    fake_rpc_stop(empty);
}
