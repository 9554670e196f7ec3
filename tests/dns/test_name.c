/* Tables: what a name asks for. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "dns/name.h"

static struct name_zone zone;

static void set_up(void) {
    struct fault fault = {0};
    cr_assert(eq(int, name_zone_set(&zone, "coord", "alt.example", &fault), CO_OK));
}
TestSuite(dns_name, .init = set_up);

/* Its slices point into itself, so it stays where it is. */
static const struct name *parse(const char *text) {
    static struct name name;
    struct wire_name wire;
    cr_assert(wire_name_from_text(&wire, slice_text(text)), "%s", text);
    name_parse(&zone, wire.data, wire.size, &name);
    return &name;
}

static void expect_slice(const char *query, const char *what, struct slice got, const char *wanted) {
    cr_expect(slice_is(got, wanted), "%s: %s is '%.*s', not '%s'", query, what, (int)got.size, got.data, wanted);
}

Test(dns_name, services) {
    static const struct {
        const char *query, *tag, *service, *datacenter;
    } rows[] = {
        {"db.service.coord", "", "db", ""},
        {"DB.Service.COORD", "", "db", ""},
        {"db.service.dc1.coord", "", "db", "dc1"},
        {"db.service.DC1.coord", "", "db", "dc1"},
        {"db.service.dc1.dc.coord", "", "db", "dc1"},
        {"primary.db.service.coord", "primary", "db", ""},
        {"v1.2.db.service.coord", "v1.2", "db", ""},
        {"a.b.c.db.service.dc2.coord", "a.b.c", "db", "dc2"},
        {"_db._tcp.service.coord", "", "db", ""},
        {"_db._udp.service.dc1.coord", "udp", "db", "dc1"},
        {"_db._TLS.service.coord", "tls", "db", ""},
        {"_db._primary.service.coord", "primary", "db", ""},
        {"_db._v1.2.service.coord", "_db._v1", "2", ""}, /* three labels are tags and a name */
        {"_sip._udp.ppid410.service.coord", "_sip._udp", "ppid410", ""},
        {"_a._b._c.service.coord", "_a._b", "_c", ""},
        {"db._tcp.service.coord", "db", "_tcp", ""},
        {"_db.tcp.service.coord", "_db", "tcp", ""},
        {"__db._tcp.service.coord", "", "_db", ""},
        {"_._tcp.service.coord", "_", "_tcp", ""},
        {"_tcp.service.coord", "", "_tcp", ""},
        {"_db._tcp.coord", "", "db", ""},
        {"_db._TCP.coord", "", "db", ""},
        {"_db._tcp.dc1.coord", "", "db", "dc1"},
        {"_db._tcp.dc1.dc.coord", "", "db", "dc1"},
        {"_db._amqp.coord", "amqp", "db", ""},
        {"_db._udp.dc1.coord", "udp", "db", "dc1"},
        {"_db.service.coord", "", "_db", ""},
        {"x._db.service.coord", "x", "_db", ""},
        {"service.service.coord", "", "service", ""},
        {"node.service.coord", "", "node", ""},
        {"db.node.service.coord", "db", "node", ""},
        {"db.service.alt.example", "", "db", ""},
        {"db.service.dc1.ALT.Example", "", "db", "dc1"},
        {"coord.service.coord", "", "coord", ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct name *name = parse(rows[i].query);
        cr_expect(eq(int, name->kind, NAME_SERVICE), "%s", rows[i].query);
        expect_slice(rows[i].query, "tag", name->tag, rows[i].tag);
        expect_slice(rows[i].query, "service", name->service, rows[i].service);
        expect_slice(rows[i].query, "datacenter", name->datacenter, rows[i].datacenter);
    }
}

Test(dns_name, nodes) {
    static const struct {
        const char *query, *node, *datacenter;
    } rows[] = {
        {"web-1.node.coord", "web-1", ""},           {"Web-1.NODE.dc1.coord", "web-1", "dc1"},
        {"a.b.c.node.dc1.dc.coord", "a.b.c", "dc1"}, {"_x.node.coord", "_x", ""},
        {"service.node.coord", "service", ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct name *name = parse(rows[i].query);
        cr_expect(eq(int, name->kind, NAME_NODE), "%s", rows[i].query);
        expect_slice(rows[i].query, "node", name->node, rows[i].node);
        expect_slice(rows[i].query, "datacenter", name->datacenter, rows[i].datacenter);
    }
}

Test(dns_name, kinds) {
    static const struct {
        const char *query;
        enum name_kind kind;
        unsigned domain;
    } rows[] = {
        {"coord", NAME_APEX, 0},
        {"COORD", NAME_APEX, 0},
        {"alt.example", NAME_APEX, 1},
        {"example", NAME_OUTSIDE, 0},
        {"www.example", NAME_OUTSIDE, 0},
        {"xcoord", NAME_OUTSIDE, 0},
        {"db.service.consul", NAME_OUTSIDE, 0},
        {"coord.com", NAME_OUTSIDE, 0},
        {"ns.coord", NAME_SERVERS, 0},
        {"ns.alt.example", NAME_SERVERS, 1},
        {"service.coord", NAME_PARENT, 0},
        {"node.coord", NAME_PARENT, 0},
        {"addr.coord", NAME_PARENT, 0},
        {"dc1.coord", NAME_PARENT, 0},
        {"service.dc1.coord", NAME_PARENT, 0},
        {"dc1.dc.coord", NAME_PARENT, 0},
        {"dc.coord", NAME_PARENT, 0},
        {"_tcp.coord", NAME_PARENT, 0},
        {"_tls.dc1.coord", NAME_PARENT, 0},
        {"_a._b._c.coord", NAME_NONE, 0},
        {"foo.bar.coord", NAME_NONE, 0},
        {"db.query.coord", NAME_NONE, 0},
        {"db.service.dc1.x.coord", NAME_NONE, 0},
        {"db.service.a.b.dc.coord", NAME_NONE, 0},
        {"x._db._tcp.coord", NAME_NONE, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct name *name = parse(rows[i].query);
        cr_expect(eq(int, name->kind, rows[i].kind), "%s", rows[i].query);
        cr_expect(eq(uint, name->domain, rows[i].domain), "%s", rows[i].query);
    }
}

/* Whose SOA denies what is below. */
Test(dns_name, zones) {
    static const struct {
        const char *query, *zone, *domain;
    } rows[] = {
        {"coord", "coord", "coord"},
        {"ns.coord", "coord", "coord"},
        {"db.service.coord", "service.coord", "coord"},
        {"service.coord", "service.coord", "coord"},
        {"v1.2.db.service.coord", "service.coord", "coord"},
        {"_db._udp.service.coord", "service.coord", "coord"},
        {"_udp.service.coord", "service.coord", "coord"},
        {"db.service.dc1.coord", "service.dc1.coord", "coord"},
        {"db.service.dc1.dc.coord", "service.dc1.dc.coord", "coord"},
        {"service.dc1.coord", "service.dc1.coord", "coord"},
        {"dc1.coord", "dc1.coord", "coord"},
        {"dc1.dc.coord", "dc1.dc.coord", "coord"},
        {"dc.coord", "coord", "coord"},
        {"_db._udp.coord", "coord", "coord"},
        {"_db._udp.dc1.coord", "dc1.coord", "coord"},
        {"_udp.dc1.coord", "dc1.coord", "coord"},
        {"service.node.coord", "node.coord", "coord"},
        {"0a000001.addr.coord", "addr.coord", "coord"},
        {"zz.addr.coord", "addr.coord", "coord"},
        {"foo.bar.coord", "coord", "coord"},
        {"db.service.dc1.x.coord", "coord", "coord"},
        {"db.Service.alt.example", "Service.alt.example", "alt.example"},
        {"alt.example", "alt.example", "alt.example"},
        {"4.3.2.1.in-addr.arpa", "4.3.2.1.in-addr.arpa", "4.3.2.1.in-addr.arpa"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct name *name = parse(rows[i].query);
        const char *end = rows[i].query + strlen(rows[i].query);
        cr_expect(eq(int, name->zone_at, end - strlen(rows[i].zone) - rows[i].query), "%s", rows[i].query);
        cr_expect(eq(int, name->domain_at, end - strlen(rows[i].domain) - rows[i].query), "%s", rows[i].query);
    }
}

Test(dns_name, addresses) {
    static const struct {
        const char *query;
        int size;
        const char *bytes;
    } rows[] = {
        {"0a000001.addr.coord", 4, "\x0a\x00\x00\x01"},
        {"0A0000fF.addr.dc9.coord", 4, "\x0a\x00\x00\xff"},
        {"fd000000000000000000000000000099.addr.coord", 16, "\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x99"},
        {"0a00000.addr.coord", 0, ""},
        {"0a00000100.addr.coord", 0, ""},
        {"0a00000g.addr.coord", 0, ""},
        {"x.0a000001.addr.coord", 0, ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct name *name = parse(rows[i].query);
        cr_expect(eq(int, name->kind, rows[i].size ? NAME_ADDRESS : NAME_NONE), "%s", rows[i].query);
        cr_expect(eq(int, name->address_size, rows[i].size), "%s", rows[i].query);
        if (rows[i].size)
            cr_expect(memcmp(name->address, rows[i].bytes, (size_t)rows[i].size) == 0, "%s", rows[i].query);
    }
}

Test(dns_name, reverse) {
    const struct name *name = parse("4.3.2.1.in-addr.arpa");
    cr_expect(eq(int, name->kind, NAME_REVERSE));
    cr_expect(eq(int, name->address_size, 4));
    cr_expect(memcmp(name->address, "\x01\x02\x03\x04", 4) == 0);
    name = parse("9.9.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.D.f.ip6.ARPA");
    cr_expect(eq(int, name->kind, NAME_REVERSE));
    cr_expect(memcmp(name->address, "\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x99", 16) == 0);
    static const char *const bad[] = {"in-addr.arpa",
                                      "1.in-addr.arpa",
                                      "256.1.1.1.in-addr.arpa",
                                      "01.1.1.1.in-addr.arpa",
                                      "x.1.1.1.in-addr.arpa",
                                      "5.4.3.2.1.in-addr.arpa",
                                      "0.ip6.arpa",
                                      "arpa"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_expect(eq(int, parse(bad[i])->kind, NAME_OUTSIDE), "%s", bad[i]);
}

/* Bytes that text cannot say: a dot or NUL in a label would become another name when joined. */
Test(dns_name, bytes_in_labels) {
    static const uint8_t dotted[] =
        "\x03"
        "a.b"
        "\x04"
        "node"
        "\x05"
        "coord",
                         nul[] =
                             "\x03"
                             "a\0b"
                             "\x04"
                             "node"
                             "\x05"
                             "coord";
    struct name name;
    name_parse(&zone, dotted, sizeof(dotted), &name);
    cr_expect(eq(int, name.kind, NAME_NONE));
    name_parse(&zone, nul, sizeof(nul), &name);
    cr_expect(eq(int, name.kind, NAME_NONE));
}

Test(dns_name, not_a_name) {
    static const uint8_t cut[] =
        "\x05"
        "coor",
                         pointer[] =
                             "\x05"
                             "coord"
                             "\xc0\x00",
                         long_label[] =
                             "\x40"
                             "coord";
    static const struct {
        const uint8_t *data;
        size_t size;
    } rows[] = {{cut, 5},     {cut, 4},     {cut, 1},        {cut, 0},
                {pointer, 8}, {pointer, 7}, {long_label, 6}, {(const uint8_t *)"\0\0", 2}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct name name;
        name_parse(&zone, rows[i].data, rows[i].size, &name);
        cr_expect(eq(int, name.kind, NAME_OUTSIDE), "row %zu", i);
    }
}

Test(dns_name, the_longest_names) {
    char text[260];
    memset(text, 'a', sizeof(text));
    for (size_t i = 1; i < sizeof(text); i += 2) text[i] = '.';
    memcpy(text + 253 - 11, "node.coord", 10);
    struct wire_name wire;
    struct name name;
    cr_assert(wire_name_from_text(&wire, slice_make(text, 252)));
    cr_expect(eq(int, wire.size, 254));
    name_parse(&zone, wire.data, wire.size, &name);
    cr_expect(eq(int, name.kind, NAME_NODE));
    cr_expect(eq(sz, name.node.size, 241));
    memcpy(text + 254 - 11, ".node.coord", 11);
    cr_expect(not(wire_name_from_text(&wire, slice_make(text, 254))));
    cr_expect(eq(int, wire.size, 0));
}

Test(dns_name, wire_names) {
    struct wire_name name;
    cr_assert(wire_name_from_text(&name, slice_text("a.bc.")));
    cr_expect(eq(int, name.size, 6));
    cr_expect(memcmp(name.data,
                     "\x01"
                     "a"
                     "\x02"
                     "bc",
                     6) == 0);
    cr_assert(wire_name_prepend(&name, slice_text("x.y")));
    cr_expect(memcmp(name.data,
                     "\x01"
                     "x"
                     "\x01"
                     "y"
                     "\x01"
                     "a"
                     "\x02"
                     "bc",
                     10) == 0);
    static const char *const bad[] = {"", ".", "a..b", ".a",
                                      "0123456789012345678901234567890123456789012345678901234567890123.x"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cr_expect(not(wire_name_from_text(&name, slice_text(bad[i]))), "'%s'", bad[i]);
        cr_expect(eq(int, name.size, 0));
    }
}

Test(dns_name, bad_domains) {
    struct name_zone other;
    static const char *const bad[] = {"", "a..b", ".", "a b", "x/y", "-a.b"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct fault fault = {0};
        cr_expect(eq(int, name_zone_set(&other, bad[i], NULL, &fault), CO_INVALID), "'%s'", bad[i]);
        cr_expect(strstr(fault.text, "domain") != NULL);
    }
}
