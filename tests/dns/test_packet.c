/* Packets that arrive: some are queries, some get an error, some get nothing. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "base/buffer.h"
#include "dns/packet.h"

struct bytes {
    uint8_t data[1024];
    size_t size;
};

static void put(struct bytes *to, const void *data, size_t size) {
    cr_assert(to->size + size <= sizeof(to->data));
    memcpy(to->data + to->size, data, size);
    to->size += size;
}
static void put16(struct bytes *to, unsigned value) {
    uint8_t bytes[2];
    put_be16(bytes, (uint16_t)value);
    put(to, bytes, 2);
}
#define NAME  \
    "\x03"    \
    "api"     \
    "\x07"    \
    "service" \
    "\x05"    \
    "coord"
static void header(struct bytes *to, unsigned flags, unsigned qd, unsigned an, unsigned ns, unsigned ar) {
    to->size = 0;
    unsigned words[] = {0x1234, flags, qd, an, ns, ar};
    for (size_t i = 0; i < 6; i++) put16(to, words[i]);
}
static void question(struct bytes *to, unsigned type, unsigned class) {
    put(to, NAME, sizeof(NAME));
    put16(to, type);
    put16(to, class);
}
static void opt(struct bytes *to, unsigned size, unsigned version, unsigned flags, const void *options,
                size_t options_size) {
    put(to, "", 1);
    put16(to, TYPE_OPT);
    put16(to, size);
    put16(to, version);
    put16(to, flags);
    put16(to, (unsigned)options_size);
    put(to, options, options_size);
}
static int parse(const struct bytes *bytes, struct packet_query *query) {
    /* An exact copy on the heap, so that the sanitizers see a read past the end. It is gone afterwards, and
     * query->name with it. */
    uint8_t *copy = malloc(bytes->size + 1);
    memcpy(copy, bytes->data, bytes->size);
    uint8_t *exact = realloc(copy, bytes->size ? bytes->size : 1);
    int rcode = packet_parse(exact, bytes->size, query);
    free(exact);
    return rcode;
}

Test(dns_packet, a_plain_query) {
    struct bytes bytes;
    struct packet_query query;
    header(&bytes, 0x0110, 1, 0, 0, 0);
    question(&bytes, TYPE_SRV, CLASS_IN);
    cr_assert(eq(int, packet_parse(bytes.data, bytes.size, &query), RCODE_NOERROR));
    cr_expect(eq(u16, query.id, 0x1234));
    cr_expect(query.recursion_desired);
    cr_expect(query.checking_disabled);
    cr_expect(eq(u16, query.type, TYPE_SRV));
    cr_expect(eq(u16, query.name_size, sizeof(NAME)));
    cr_expect(memcmp(query.name, NAME, sizeof(NAME)) == 0);
    cr_expect(eq(u16, query.udp_size, 512));
    cr_expect(not(query.edns));
    cr_expect(eq(sz, packet_opt_size(&query), 0));
}

Test(dns_packet, edns) {
    static const struct {
        unsigned offered, size;
    } rows[] = {{0, 512}, {511, 512}, {512, 512}, {1232, 1232}, {8192, 8192}, {65535, 8192}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct bytes bytes;
        struct packet_query query;
        header(&bytes, 0, 1, 0, 0, 1);
        question(&bytes, TYPE_A, CLASS_IN);
        opt(&bytes, rows[i].offered, 0, 0x8000,
            "\0\x0a\0\x08"
            "cookie..",
            12);
        cr_assert(eq(int, parse(&bytes, &query), RCODE_NOERROR));
        cr_expect(query.edns);
        cr_expect(query.dnssec_ok);
        cr_expect(eq(u16, query.udp_size, rows[i].size));
        cr_expect(eq(int, query.subnet_size, 0));
        cr_expect(eq(sz, packet_opt_size(&query), 11));
    }
}

Test(dns_packet, client_subnet_is_echoed) {
    static const struct {
        const char *option;
        size_t size;
        int rcode;
    } rows[] = {
        {"\0\x08\0\x07\0\x01\x18\0\x01\x02\x03", 11, RCODE_NOERROR},
        {"\0\x08\0\x04\0\x01\0\0", 8, RCODE_NOERROR},
        {"\0\x08\0\x14\0\x02\x80\0\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01", 24, RCODE_NOERROR},
        {"\0\x08\0\x06\0\x01\x18\0\x01\x02", 10, RCODE_FORMERR},         /* a byte too few */
        {"\0\x08\0\x08\0\x01\x18\0\x01\x02\x03\x04", 12, RCODE_FORMERR}, /* one too many */
        {"\0\x08\0\x07\0\x01\x17\0\x01\x02\x03", 11, RCODE_FORMERR},     /* a bit beyond the prefix */
        {"\0\x08\0\x08\0\x01\x21\0\x01\x02\x03\x04", 12, RCODE_FORMERR}, /* prefix 33 */
        {"\0\x08\0\x07\0\x03\x18\0\x01\x02\x03", 11, RCODE_FORMERR},     /* family 3 */
        {"\0\x08\0\x07\0\x01\x18\x18\x01\x02\x03", 11, RCODE_FORMERR},   /* a scope in a query */
        {"\0\x08\0\x02\0\x01", 6, RCODE_FORMERR},
        {"\0\x08\0\x04\0\x01\0\0\0\x08\0\x04\0\x01\0\0", 16, RCODE_FORMERR}, /* twice */
        {"\0\x08\0\xff", 4, RCODE_FORMERR},
        {"\0\x08\0", 3, RCODE_FORMERR},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct bytes bytes;
        struct packet_query query;
        header(&bytes, 0, 1, 0, 0, 1);
        question(&bytes, TYPE_A, CLASS_IN);
        opt(&bytes, 4096, 0, 0, rows[i].option, rows[i].size);
        cr_expect(eq(int, parse(&bytes, &query), rows[i].rcode), "row %zu", i);
        if (rows[i].rcode != RCODE_NOERROR) continue;
        uint8_t out[64];
        uint8_t *end = packet_put_opt(out, &query, 0);
        cr_expect(eq(sz, (size_t)(end - out), 11 + rows[i].size), "row %zu", i);
        cr_expect(memcmp(out + 11, rows[i].option, rows[i].size) == 0, "row %zu", i);
    }
}

/* The padded answer is a packet that holds the same, and a whole number of blocks. */
Test(dns_packet, padding) {
    static const struct {
        const char *option;
        size_t size, subnet;
        bool padding;
    } rows[] = {
        {"", 0, 0, false},
        {"\0\x0a\0\x08"
         "cookie..",
         12, 0, false},
        {"\0\x0c\0\0", 4, 0, true},
        {"\0\x0c\0\x03\0\0\0", 7, 0, true},
        {"\0\x0c\0\0\0\x0c\0\x01x", 9, 0, true}, /* twice, and not of zeros */
        {"\0\x0c\0\0\0\x08\0\x07\0\x01\x18\0\x01\x02\x03", 15, 11, true},
    };
    static uint8_t out[PACKET_TCP_MAX];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct bytes bytes;
        struct packet_query query;
        header(&bytes, 0, 1, 0, 0, 1);
        question(&bytes, TYPE_A, CLASS_IN);
        opt(&bytes, 4096, 0, 0, rows[i].option, rows[i].size);
        cr_assert(eq(int, packet_parse(bytes.data, bytes.size, &query), RCODE_NOERROR));
        cr_expect(eq(int, query.padding, rows[i].padding), "row %zu", i);
        if (!rows[i].padding) continue;
        size_t before = packet_error(out, &query, RCODE_NXDOMAIN), options_at = before - rows[i].subnet;
        memset(out + before, 0xee, 1000);
        size_t size = packet_pad(out, before, &query);
        cr_expect(eq(sz, size, PACKET_PAD_BLOCK), "row %zu", i);
        cr_expect(eq(u16, get_be16(out + options_at - 2), size - options_at), "row %zu", i);
        cr_expect(eq(u16, get_be16(out + before), 12), "row %zu", i);
        cr_expect(eq(u16, get_be16(out + before + 2), size - before - 4), "row %zu", i);
        for (size_t at = before + 4; at < size; at++) cr_assert(eq(int, out[at], 0));
        cr_expect(eq(int, out[size], 0xee), "row %zu", i);
    }
}

/* At every length, the longest one included. */
Test(dns_packet, padding_of_every_length) {
    static uint8_t out[PACKET_TCP_MAX];
    struct packet_query query = {.edns = true, .padding = true};
    for (size_t size = 23; size <= PACKET_PADDABLE_MAX; size++) {
        size_t padded = packet_pad(out, size, &query);
        cr_assert(ge(sz, padded, size + 4));
        cr_assert(lt(sz, padded, size + 4 + PACKET_PAD_BLOCK));
        cr_assert(eq(sz, padded % PACKET_PAD_BLOCK, 0));
        cr_assert(le(sz, padded, PACKET_TCP_MAX));
    }
}

Test(dns_packet, errors) {
    struct packet_query query;
    struct bytes bytes;

    header(&bytes, 0x2800, 1, 0, 0, 0); /* update */
    question(&bytes, TYPE_A, CLASS_IN);
    cr_expect(eq(int, parse(&bytes, &query), RCODE_NOTIMP));
    cr_expect(eq(int, query.opcode, 5));

    static const struct {
        unsigned type, class;
        int rcode;
    } rows[] = {
        {TYPE_A, CLASS_ANY, RCODE_NOERROR},  {TYPE_A, 3, RCODE_REFUSED},          {TYPE_A, 0, RCODE_REFUSED},
        {TYPE_AXFR, CLASS_IN, RCODE_NOTIMP}, {TYPE_IXFR, CLASS_IN, RCODE_NOTIMP}, {TYPE_OPT, CLASS_IN, RCODE_FORMERR},
        {65280, CLASS_IN, RCODE_NOERROR},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        header(&bytes, 0, 1, 0, 0, 0);
        question(&bytes, rows[i].type, rows[i].class);
        cr_expect(eq(int, parse(&bytes, &query), rows[i].rcode), "row %zu", i);
    }

    header(&bytes, 0, 1, 0, 0, 1);
    question(&bytes, TYPE_A, CLASS_IN);
    opt(&bytes, 4096, 1, 0, "", 0); /* version 1 */
    cr_expect(eq(int, packet_parse(bytes.data, bytes.size, &query), RCODE_BADVERS));
    uint8_t out[PACKET_UDP_DEFAULT];
    size_t size = packet_error(out, &query, RCODE_BADVERS);
    cr_expect(eq(int, out[3] & 15, 0));
    cr_expect(eq(int, out[size - 6], 1)); /* the upper bits of the code, in OPT */
}

Test(dns_packet, malformed) {
    struct packet_query query;
    struct bytes bytes;
    static const unsigned counts[][4] = {{0, 0, 0, 0}, {2, 0, 0, 0}, {65535, 0, 0, 0}, {1, 1, 0, 0},
                                         {1, 0, 1, 0}, {1, 0, 0, 1}, {1, 0, 0, 65535}, {1, 0, 65535, 0}};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        header(&bytes, 0, counts[i][0], counts[i][1], counts[i][2], counts[i][3]);
        question(&bytes, TYPE_A, CLASS_IN);
        cr_expect(eq(int, parse(&bytes, &query), RCODE_FORMERR), "row %zu", i);
    }
    header(&bytes, 0, 1, 0, 0, 0);
    question(&bytes, TYPE_A, CLASS_IN);
    put(&bytes, "x", 1); /* something after the end */
    cr_expect(eq(int, parse(&bytes, &query), RCODE_FORMERR));

    static const struct {
        const char *name;
        size_t size;
    } names[] = {{"\xc0\x0c", 2},
                 {"\x03"
                  "api"
                  "\xc0\x0c",
                  6},
                 {"\x40", 1},
                 {"\x80", 1},
                 {"\x05"
                  "abc",
                  4},
                 {"", 0}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        header(&bytes, 0, 1, 0, 0, 0);
        put(&bytes, names[i].name, names[i].size);
        cr_expect(eq(int, parse(&bytes, &query), RCODE_FORMERR), "row %zu", i);
        cr_expect(eq(ptr, (void *)query.name, NULL));
        uint8_t out[PACKET_UDP_DEFAULT];
        cr_expect(eq(sz, packet_error(out, &query, RCODE_FORMERR), PACKET_HEADER_SIZE));
        put16(&bytes, TYPE_A);
        put16(&bytes, CLASS_IN);
        cr_expect(eq(int, parse(&bytes, &query), RCODE_FORMERR), "row %zu", i);
    }
}

Test(dns_packet, names_end_at_255) {
    for (unsigned last = 60; last <= 63; last++) {
        struct packet_query query;
        struct bytes bytes;
        uint8_t label[64];
        header(&bytes, 0, 1, 0, 0, 0);
        for (unsigned i = 0; i < 4; i++) {
            memset(label, 'a', sizeof(label));
            label[0] = (uint8_t)(i < 3 ? 63 : last);
            put(&bytes, label, 1u + label[0]);
        }
        put(&bytes, "", 1);
        put16(&bytes, TYPE_A);
        put16(&bytes, CLASS_IN);
        bool fits = 3 * 64 + 1 + last + 1 <= PACKET_NAME_MAX;
        cr_expect(eq(int, parse(&bytes, &query), fits ? RCODE_NOERROR : RCODE_FORMERR), "last %u", last);
    }
}

Test(dns_packet, records_besides_opt) {
    struct packet_query query;
    struct bytes bytes;
    header(&bytes, 0, 1, 0, 1, 2);
    question(&bytes, TYPE_A, CLASS_IN);
    put(&bytes, "\xc0\x0c\0\x06\0\x01\0\0\0\0\0\x02xy", 14); /* owner by a pointer: stepped over */
    opt(&bytes, 1232, 0, 0, "", 0);
    put(&bytes, "\0\0\xfa\0\xff\0\0\0\0\0\0", 11); /* a signature */
    cr_expect(eq(int, parse(&bytes, &query), RCODE_NOERROR));
    cr_expect(query.edns);

    header(&bytes, 0, 1, 0, 0, 2);
    question(&bytes, TYPE_A, CLASS_IN);
    opt(&bytes, 1232, 0, 0, "", 0);
    opt(&bytes, 1232, 0, 0, "", 0);
    cr_expect(eq(int, parse(&bytes, &query), RCODE_FORMERR));

    header(&bytes, 0, 1, 0, 0, 1);
    question(&bytes, TYPE_A, CLASS_IN);
    put(&bytes,
        "\x01"
        "a\0\0\x29\x10\0\0\0\0\0\0\0",
        13); /* OPT has no name */
    cr_expect(eq(int, parse(&bytes, &query), RCODE_FORMERR));
}

Test(dns_packet, silence) {
    struct packet_query query;
    struct bytes bytes;
    for (size_t size = 0; size < PACKET_HEADER_SIZE; size++) {
        header(&bytes, 0, 1, 0, 0, 0);
        bytes.size = size;
        cr_expect(eq(int, parse(&bytes, &query), PACKET_SILENT), "size %zu", size);
    }
    header(&bytes, 0x8000, 1, 0, 0, 0); /* an answer: two servers must not talk to each other */
    question(&bytes, TYPE_A, CLASS_IN);
    cr_expect(eq(int, parse(&bytes, &query), PACKET_SILENT));
    header(&bytes, 0xa800, 1, 0, 0, 0);
    cr_expect(eq(int, parse(&bytes, &query), PACKET_SILENT));
}

/* Cut at any place it is refused or, where nothing is missing, answered. */
Test(dns_packet, cut_anywhere) {
    struct bytes whole;
    header(&whole, 0, 1, 0, 0, 1);
    question(&whole, TYPE_A, CLASS_IN);
    opt(&whole, 4096, 0, 0, "\0\x08\0\x07\0\x01\x18\0\x01\x02\x03", 11);
    for (size_t size = 0; size < whole.size; size++) {
        struct packet_query query;
        struct bytes cut = whole;
        cut.size = size;
        int wanted = size < PACKET_HEADER_SIZE ? PACKET_SILENT : RCODE_FORMERR;
        cr_expect(eq(int, parse(&cut, &query), wanted), "size %zu", size);
    }
}

Test(dns_packet, error_carries_the_query_over) {
    struct packet_query query;
    struct bytes bytes;
    header(&bytes, 0x0110, 1, 0, 0, 1);
    question(&bytes, TYPE_A, 3);
    opt(&bytes, 4096, 0, 0x8000, "", 0);
    cr_assert(eq(int, packet_parse(bytes.data, bytes.size, &query), RCODE_REFUSED));
    uint8_t out[PACKET_UDP_DEFAULT];
    size_t size = packet_error(out, &query, RCODE_REFUSED);
    cr_expect(eq(sz, size, bytes.size));
    cr_expect(eq(u16, get_be16(out), 0x1234));
    cr_expect(eq(u16, get_be16(out + 2), 0x8115));
    cr_expect(memcmp(out + 12, bytes.data + 12, sizeof(NAME) + 4) == 0);
    cr_expect(eq(u16, get_be16(out + size - 8), PACKET_UDP_RECEIVE));
    cr_expect(eq(u16, get_be16(out + size - 4), 0x8000));
}
