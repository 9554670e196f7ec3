/* Prebuilt answers: what a packet holds, where it is cut, and that the order is fair. Every packet is read back by
 * ldns. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>

#include "dns/answer.h"
#include "dns_help.h"

static struct answer_builder *builder;
static struct rng rng;
static struct wire_name domain;
static uint8_t out[PACKET_TCP_MAX + ANSWER_SLACK];

static void set_up(void) {
    builder = answer_builder_new();
    rng_seed(&rng, 7);
    cr_assert(wire_name_from_text(&domain, slice_text("coord")));
}
static void tear_down(void) { answer_builder_free(builder); }
TestSuite(dns_answer, .init = set_up, .fini = tear_down);

static const struct answer_place in_answer = {ANSWER_SHUFFLED, ANSWER_QUESTION, 5};

static uint32_t name_of(const char *text) {
    struct wire_name name;
    cr_assert(wire_name_from_text(&name, slice_text(text)), "%s", text);
    return answer_name(builder, &name);
}

static struct packet_query query_of(const char *name, unsigned type, unsigned edns) {
    static uint8_t data[512];
    struct packet_query query;
    cr_assert(eq(int, packet_parse(data, help_query(data, name, type, edns), &query), RCODE_NOERROR));
    return query;
}

static struct help_answer render(struct answer *answer, const struct packet_query *query, size_t size,
                                 size_t answers_max) {
    struct answer_limits limits = {.size = size, .answers_max = answers_max, .serial = 42};
    bool truncated;
    memset(out, 0xee, sizeof(out));
    size_t got = answer_render(answer, query, &limits, &rng, out, &truncated);
    cr_assert(got <= size);
    struct help_answer parsed = help_parse(out, got);
    cr_expect(eq(int, parsed.tc, truncated));
    return parsed;
}

/* `count` A records 10.0.x.y, each for the question. */
static struct answer *addresses(unsigned count) {
    answer_start(builder, &domain);
    for (unsigned i = 0; i < count; i++) {
        uint8_t address[4] = {10, 0, (uint8_t)(i >> 8), (uint8_t)i};
        cr_assert(answer_address(builder, in_answer, address, 4));
    }
    return answer_finish(builder, RCODE_NOERROR);
}

Test(dns_answer, addresses_of_both_families) {
    answer_start(builder, &domain);
    cr_expect(answer_address(builder, in_answer, (const uint8_t *)"\x0a\x01\x02\x03", 4));
    cr_expect(not(answer_address(builder, in_answer, (const uint8_t *)"\x0a\x01\x02\x03", 4)));
    cr_expect(answer_address(builder, in_answer, (const uint8_t *)"\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x99", 16));
    struct answer *answer = answer_finish(builder, RCODE_NOERROR);
    struct packet_query query = query_of("Db.Service.coord", TYPE_ANY, 4096);
    struct help_answer got = render(answer, &query, 4096, 0);
    EXPECT_LINES(got.answer, "Db.Service.coord. 5 IN A 10.1.2.3\nDb.Service.coord. 5 IN AAAA fd00::99");
    cr_expect_str_eq(got.question, "Db.Service.coord. IN ANY");
    cr_expect(got.aa);
    cr_expect(got.rd);
    cr_expect(not(got.ra));
    cr_expect(got.edns);
    /* header, question, 16 bytes for A, 28 for AAAA, OPT: the owner is a pointer */
    cr_expect(eq(sz, got.size, 12 + 22 + 16 + 28 + 11));
    help_free(&got);
    answer_free(answer);
}

static struct answer *three_srv(void) {
    answer_start(builder, &domain);
    uint32_t one = name_of("n1.node.dc1.coord"), two = name_of("0a090904.addr.dc1.coord"),
             node2 = name_of("n2.node.dc1.coord");
    cr_expect(eq(u32, name_of("n1.node.dc1.coord"), one));
    answer_srv(builder, in_answer, (struct answer_srv){1, 7, 5432, one, one});
    answer_srv(builder, in_answer, (struct answer_srv){1, 7, 5433, one, one});
    answer_srv(builder, in_answer, (struct answer_srv){1, 3, 5434, two, node2});
    answer_srv(builder, in_answer, (struct answer_srv){1, 3, 5434, two, node2});
    cr_expect(answer_extras_begin(builder, one));
    answer_extra_address(builder, one, 5, (const uint8_t *)"\x0a\0\0\x01", 4);
    cr_expect(not(answer_extras_begin(builder, one)));
    cr_expect(answer_extras_begin(builder, two));
    answer_extra_address(builder, two, 5, (const uint8_t *)"\x0a\x09\x09\x04", 4);
    cr_expect(answer_texts_begin(builder, one));
    answer_extra_text(builder, one, 5, slice_text("k=v"));
    answer_extra_text(builder, one, 5, slice_text("a=b"));
    cr_expect(answer_texts_begin(builder, node2));
    answer_extra_text(builder, node2, 5, slice_text("z=1"));
    answer_extra_text(builder, node2, 5, slice_text(""));
    return answer_finish(builder, RCODE_NOERROR);
}

Test(dns_answer, srv_with_what_goes_along) {
    struct answer *answer = three_srv();
    struct packet_query query = query_of("db.service.coord", TYPE_SRV, 4096);
    for (unsigned i = 0; i < 20; i++) { /* in any order */
        struct help_answer got = render(answer, &query, 4096, 0);
        EXPECT_LINES(got.answer,
                     "db.service.coord. 5 IN SRV 1 3 5434 0a090904.addr.dc1.coord.\n"
                     "db.service.coord. 5 IN SRV 1 7 5432 n1.node.dc1.coord.\n"
                     "db.service.coord. 5 IN SRV 1 7 5433 n1.node.dc1.coord.");
        EXPECT_LINES(got.additional,
                     "0a090904.addr.dc1.coord. 5 IN A 10.9.9.4\n"
                     "n1.node.dc1.coord. 5 IN A 10.0.0.1\n"
                     "n1.node.dc1.coord. 5 IN TXT \"a=b\"\n"
                     "n1.node.dc1.coord. 5 IN TXT \"k=v\"\n"
                     "n2.node.dc1.coord. 5 IN TXT \"\"\n"
                     "n2.node.dc1.coord. 5 IN TXT \"z=1\"");
        help_free(&got);
    }
    answer_free(answer);
}

/* RFC 2782: the target stands in full in each record. */
Test(dns_answer, srv_targets_are_not_compressed) {
    static const char target[] =
        "\x02"
        "n1"
        "\x04"
        "node"
        "\x03"
        "dc1"
        "\x05"
        "coord";
    struct answer *answer = three_srv();
    struct packet_query query = query_of("db.service.coord", TYPE_SRV, 4096);
    struct help_answer got = render(answer, &query, 4096, 0);
    unsigned found = 0;
    for (size_t i = 0; i + sizeof(target) <= got.size; i++) found += memcmp(out + i, target, sizeof(target)) == 0;
    cr_expect(eq(uint, found, 2)); /* the additional records point at one of them */
    help_free(&got);
    answer_free(answer);
}

/* Only what belongs to records that are in the packet goes along. */
Test(dns_answer, extras_follow_their_records) {
    struct answer *answer = three_srv();
    struct packet_query query = query_of("db.service.coord", TYPE_SRV, 4096);
    for (unsigned i = 0; i < 20; i++) {
        struct help_answer got = render(answer, &query, 4096, 1);
        cr_assert(eq(sz, got.answers, 1));
        cr_expect(not(got.tc));
        bool first = strstr(got.answer, "n1.node") != NULL;
        EXPECT_LINES(got.additional,
                     first ? "n1.node.dc1.coord. 5 IN A 10.0.0.1\nn1.node.dc1.coord. 5 IN TXT \"a=b\"\n"
                             "n1.node.dc1.coord. 5 IN TXT \"k=v\""
                           : "0a090904.addr.dc1.coord. 5 IN A 10.9.9.4\nn2.node.dc1.coord. 5 IN TXT \"\"\n"
                             "n2.node.dc1.coord. 5 IN TXT \"z=1\"");
        help_free(&got);
    }
    answer_free(answer);
}

/* Exactly as many as fit, and TC just when one is missing, at every size around each limit. */
Test(dns_answer, truncation_is_exact) {
    struct packet_query query = query_of("big.service.coord", TYPE_A, 4096);
    const size_t fixed = 12 + 23 + 11; /* header, question, OPT */
    for (unsigned count = 28; count <= 120; count += 23) {
        struct answer *answer = addresses(count);
        for (size_t size = 512; size <= 2100; size++) {
            struct help_answer got = render(answer, &query, size, 0);
            size_t fit = (size - fixed) / 16, wanted = fit < count ? fit : count;
            cr_assert(eq(sz, got.answers, wanted), "count %u size %zu", count, size);
            cr_assert(eq(int, got.tc, wanted < count), "count %u size %zu", count, size);
            cr_assert(eq(sz, got.size, fixed + 16 * wanted));
            help_free(&got);
        }
        answer_free(answer);
    }
}

/* Without room for what is additional the answer is whole, and says so. */
Test(dns_answer, additional_records_never_truncate) {
    answer_start(builder, &domain);
    char target[40];
    for (unsigned i = 0; i < 10; i++) {
        snprintf(target, sizeof(target), "n%u.node.dc1.coord", i);
        uint32_t name = name_of(target);
        answer_srv(builder, in_answer, (struct answer_srv){1, 1, (uint16_t)i, name, name});
        answer_extras_begin(builder, name);
        answer_extra_address(builder, name, 5, (const uint8_t *)"\x0a\0\0\x01", 4);
        answer_texts_begin(builder, name);
        answer_extra_text(builder, name, 5, slice_text("some=text that is long enough to matter"));
    }
    struct answer *answer = answer_finish(builder, RCODE_NOERROR);
    struct packet_query query = query_of("db.service.coord", TYPE_SRV, 4096);
    const size_t srv = 2 + 10 + 6 + 19, fixed = 12 + 22 + 11;
    for (size_t size = 512; size < 1400; size++) {
        struct help_answer got = render(answer, &query, size, 0);
        size_t left = size - fixed - 10 * srv, text = 12 + 40;
        size_t wanted = left / 16 < 10 ? left / 16 : 10 + (left - 160) / text;
        cr_assert(eq(sz, got.answers, 10));
        cr_assert(not(got.tc));
        cr_assert(eq(sz, got.additionals, wanted > 20 ? 20 : wanted), "size %zu", size);
        help_free(&got);
    }
    answer_free(answer);
}

/* Beyond 16,383 bytes nothing can be pointed at. */
Test(dns_answer, a_message_of_64_kilobytes) {
    answer_start(builder, &domain);
    char target[80];
    for (unsigned i = 0; i < 3000; i++) {
        snprintf(target, sizeof(target), "a-node-with-quite-a-long-name-%u.node.dc1.coord", i);
        uint32_t name = name_of(target);
        answer_srv(builder, in_answer, (struct answer_srv){1, 1, (uint16_t)i, name, name});
        answer_extras_begin(builder, name);
        answer_extra_address(builder, name, 5, (const uint8_t *)"\x0a\0\0\x01", 4);
    }
    struct answer *answer = answer_finish(builder, RCODE_NOERROR);
    struct packet_query query = query_of("db.service.coord", TYPE_SRV, 0);
    struct help_answer got = render(answer, &query, PACKET_TCP_MAX, 0);
    cr_expect(got.tc);
    cr_expect(gt(sz, got.size, PACKET_TCP_MAX - 80));
    help_free(&got);
    got = render(answer, &query, PACKET_TCP_MAX, 500);
    cr_expect(not(got.tc));
    cr_expect(eq(sz, got.answers, 500));
    cr_expect(eq(sz, got.additionals, 500));
    cr_expect(eq(sz, answer_count(answer), 3000));
    help_free(&got);
    answer_free(answer);
}

/* Every record comes first equally often, is in a cut answer equally often, and follows each other one equally
 * often. */
Test(dns_answer, the_shuffle_is_fair) {
    enum { COUNT = 8, KEPT = 3, ROUNDS = 56000 };
    struct answer *answer = addresses(COUNT);
    struct packet_query query = query_of("db.service.coord", TYPE_A, 0);
    unsigned first[COUNT] = {0}, kept[COUNT] = {0}, after[COUNT][COUNT] = {{0}};
    struct answer_limits limits = {.size = 512, .answers_max = KEPT};
    for (unsigned round = 0; round < ROUNDS; round++) {
        bool truncated;
        answer_render(answer, &query, &limits, &rng, out, &truncated);
        const uint8_t *at = out + 12 + packet_question_size(&query);
        unsigned order[KEPT];
        for (unsigned i = 0; i < KEPT; i++) order[i] = at[16 * i + 15];
        first[order[0]]++;
        after[order[0]][order[1]]++;
        for (unsigned i = 0; i < KEPT; i++) kept[order[i]]++;
    }
    for (unsigned i = 0; i < COUNT; i++) { /* five standard deviations, of 7,000, 21,000 and 1,000 */
        cr_expect(lt(int, abs((int)first[i] - ROUNDS / COUNT), 400), "record %u first %u times", i, first[i]);
        cr_expect(lt(int, abs((int)kept[i] - ROUNDS * KEPT / COUNT), 600), "record %u kept %u times", i, kept[i]);
        for (unsigned j = 0; j < COUNT; j++) {
            if (i != j) cr_expect(lt(int, abs((int)after[i][j] - ROUNDS / COUNT / (COUNT - 1)), 160), "%u %u", i, j);
        }
    }
    answer_free(answer);
}

/* A CNAME keeps its place in front of what it leads to. */
Test(dns_answer, fixed_records_come_first) {
    answer_start(builder, &domain);
    uint32_t target = name_of("n1.node.dc1.coord");
    answer_cname(builder, (struct answer_place){ANSWER_FIXED, ANSWER_QUESTION, 0}, target);
    for (unsigned i = 0; i < 3; i++) {
        uint8_t address[4] = {10, 0, 0, (uint8_t)i};
        answer_address(builder, (struct answer_place){ANSWER_SHUFFLED, target, 0}, address, 4);
    }
    struct answer *answer = answer_finish(builder, RCODE_NOERROR);
    struct packet_query query = query_of("alias.service.coord", TYPE_A, 0);
    for (unsigned i = 0; i < 10; i++) {
        struct help_answer got = render(answer, &query, 512, 0);
        EXPECT_LINES(got.answer,
                     "alias.service.coord. 0 IN CNAME n1.node.dc1.coord.\nn1.node.dc1.coord. 0 IN A 10.0.0.0\n"
                     "n1.node.dc1.coord. 0 IN A 10.0.0.1\nn1.node.dc1.coord. 0 IN A 10.0.0.2");
        cr_expect(eq(int, out[12 + 25 + 3], TYPE_CNAME));
        help_free(&got);
    }
    answer_free(answer);
}

Test(dns_answer, negative_answers_carry_soa) {
    struct answer_soa soa = {.refresh = 3600, .retry = 600, .expire = 86400, .min_ttl = 9};
    cr_assert(wire_name_from_text(&soa.mname, slice_text("ns.coord")));
    cr_assert(wire_name_from_text(&soa.rname, slice_text("hostmaster.coord")));
    answer_start(builder, &domain);
    answer_soa(builder, ANSWER_AUTHORITY, &soa);
    struct answer *answer = answer_finish(builder, RCODE_NXDOMAIN);
    struct packet_query query = query_of("no.such.service.CooRD", TYPE_A, 0);
    static const struct {
        uint8_t at;
        const char *zone;
    } rows[] = {{0, "no.such.service.CooRD"}, {8, "service.CooRD"}, {16, "CooRD"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char wanted[100];
        snprintf(wanted, sizeof(wanted), "%s. 9 IN SOA ns.coord. hostmaster.coord. 42 3600 600 86400 9", rows[i].zone);
        answer_set_zone(answer, rows[i].at);
        struct help_answer got = render(answer, &query, 512, 0);
        cr_expect(eq(int, got.rcode, RCODE_NXDOMAIN));
        cr_expect(got.aa);
        EXPECT_LINES(got.authority, wanted);
        help_free(&got);
    }
    answer_free(answer);
}

Test(dns_answer, long_text_is_split) {
    char text[600];
    memset(text, 'x', sizeof(text));
    answer_start(builder, &domain);
    answer_text(builder, in_answer, slice_make(text, sizeof(text)));
    struct answer *answer = answer_finish(builder, RCODE_NOERROR);
    struct packet_query query = query_of("n.node.coord", TYPE_TXT, 4096);
    struct help_answer got = render(answer, &query, 4096, 0);
    size_t strings = 0;
    for (const char *c = got.answer; *c; c++) strings += *c == '"';
    cr_expect(eq(sz, strings, 6));
    help_free(&got);
    got = render(answer, &query, 512, 0);
    cr_expect(got.tc);
    cr_expect(eq(sz, got.answers, 0));
    help_free(&got);
    answer_free(answer);
}

Test(dns_answer, bytes_are_accounted_for) {
    struct answer *small = addresses(1), *large = addresses(1000);
    cr_expect(gt(sz, answer_bytes(large), answer_bytes(small) + 999 * 16));
    cr_expect(lt(sz, answer_bytes(large), answer_bytes(small) + 999 * 64));
    answer_free(small);
    answer_free(large);
}
