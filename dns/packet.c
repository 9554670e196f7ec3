#include "dns/packet.h"

#include <string.h>

#include "base/buffer.h"
#include "base/check.h"

enum {
    FLAG_RESPONSE = 0x8000,
    FLAG_AUTHORITATIVE = 0x0400,
    FLAG_TRUNCATED = 0x0200,
    FLAG_RECURSION_DESIRED = 0x0100,
    FLAG_CHECKING_DISABLED = 0x0010,
    OPCODE_SHIFT = 11,
    OPT_FIXED_SIZE = 11,
    OPTION_CLIENT_SUBNET = 8,
    OPTION_PADDING = 12,
    OPTION_HEADER_SIZE = 4,
    RECORDS_MAX = 16, /* in a query: OPT, a signature; more is no query of a client */
    POINTER = 0xc0,
    DNSSEC_OK = 0x8000,
};

/* A place in the packet that never runs past its end; the first failure sticks. */
struct cursor {
    const uint8_t *at, *end;
    bool failed;
};

static const uint8_t *cursor_take(struct cursor *cursor, size_t size) {
    if (cursor->failed || (size_t)(cursor->end - cursor->at) < size) {
        cursor->failed = true;
        return NULL;
    }
    const uint8_t *taken = cursor->at;
    cursor->at += size;
    return taken;
}

static uint16_t cursor_u16(struct cursor *cursor) {
    const uint8_t *bytes = cursor_take(cursor, 2);
    return bytes ? get_be16(bytes) : 0;
}

/* Steps over a name; a pointer ends it (and is not followed). Returns its size, 0 when it is bad. */
static size_t cursor_name(struct cursor *cursor, bool pointer_allowed) {
    const uint8_t *start = cursor->at;
    for (;;) {
        const uint8_t *length = cursor_take(cursor, 1);
        if (!length) return 0;
        if ((*length & POINTER) == POINTER && pointer_allowed) {
            return cursor_take(cursor, 1) ? (size_t)(cursor->at - start) : 0;
        }
        if (*length & POINTER) break;
        if (!cursor_take(cursor, *length)) return 0;
        if (cursor->at - start > PACKET_NAME_MAX) break;
        if (*length == 0) return (size_t)(cursor->at - start);
    }
    cursor->failed = true;
    return 0;
}

/* RFC 7871: family, source prefix length, scope prefix length (0 in queries), and just the bytes of the prefix. */
static bool subnet_read(const uint8_t *data, size_t size, struct packet_query *query) {
    if (size < 4 || query->subnet_size) return false;
    unsigned family = get_be16(data), prefix = data[2], bits = family == 1 ? 32 : family == 2 ? 128 : 0;
    if (bits == 0 || prefix > bits || data[3] != 0 || size != 4 + (prefix + 7) / 8) return false;
    if (prefix % 8 && (data[size - 1] & (0xff >> (prefix % 8)))) return false;
    memcpy(query->subnet, data, size);
    query->subnet_size = (uint8_t)size;
    return true;
}

static bool options_read(const uint8_t *data, size_t size, struct packet_query *query) {
    struct cursor cursor = {data, data + size, false};
    while (cursor.at < cursor.end) {
        unsigned code = cursor_u16(&cursor), length = cursor_u16(&cursor);
        const uint8_t *value = cursor_take(&cursor, length);
        if (!value) return false;
        if (code == OPTION_CLIENT_SUBNET && !subnet_read(value, length, query)) return false;
        if (code == OPTION_PADDING) query->padding = true;
    }
    return true;
}

static uint16_t udp_size_within(unsigned size) {
    return (uint16_t)(size < PACKET_UDP_DEFAULT ? PACKET_UDP_DEFAULT : size > PACKET_UDP_MAX ? PACKET_UDP_MAX : size);
}

/* One record after the question. Only OPT matters. */
static int record_read(struct cursor *cursor, bool additional, struct packet_query *query) {
    size_t name_size = cursor_name(cursor, true);
    const uint8_t *fixed = cursor_take(cursor, 10);
    const uint8_t *data = fixed ? cursor_take(cursor, get_be16(fixed + 8)) : NULL;
    if (!data) return RCODE_FORMERR;
    if (get_be16(fixed) != TYPE_OPT) return RCODE_NOERROR;
    if (!additional || name_size != 1 || query->edns) return RCODE_FORMERR;
    query->edns = true;
    query->udp_size = udp_size_within(get_be16(fixed + 2));
    query->dnssec_ok = get_be16(fixed + 6) & DNSSEC_OK;
    if (fixed[5] != 0) return RCODE_BADVERS;
    return options_read(data, get_be16(fixed + 8), query) ? RCODE_NOERROR : RCODE_FORMERR;
}

static int records_read(struct cursor *cursor, unsigned before, unsigned additionals, struct packet_query *query) {
    if (before + additionals > RECORDS_MAX) return RCODE_FORMERR;
    int worst = RCODE_NOERROR;
    for (unsigned i = 0; i < before + additionals; i++) {
        int rcode = record_read(cursor, i >= before, query);
        if (rcode == RCODE_FORMERR) return rcode;
        if (rcode != RCODE_NOERROR) worst = rcode;
    }
    return cursor->at == cursor->end ? worst : RCODE_FORMERR;
}

int packet_parse(const uint8_t *data, size_t size, struct packet_query *query) {
    memset(query, 0, sizeof(*query));
    query->udp_size = PACKET_UDP_DEFAULT;
    if (size < PACKET_HEADER_SIZE) return PACKET_SILENT;
    unsigned flags = get_be16(data + 2);
    if (flags & FLAG_RESPONSE) return PACKET_SILENT;
    query->id = get_be16(data);
    query->opcode = (flags >> OPCODE_SHIFT) & 15;
    query->recursion_desired = flags & FLAG_RECURSION_DESIRED;
    query->checking_disabled = flags & FLAG_CHECKING_DISABLED;
    if (query->opcode != 0) return RCODE_NOTIMP;
    if (get_be16(data + 4) != 1 || get_be16(data + 6) != 0) return RCODE_FORMERR;

    struct cursor cursor = {data + PACKET_HEADER_SIZE, data + size, false};
    size_t name_size = cursor_name(&cursor, false);
    const uint8_t *fixed = cursor_take(&cursor, 4);
    if (!fixed) return RCODE_FORMERR;
    query->name = data + PACKET_HEADER_SIZE;
    query->name_size = (uint16_t)name_size;
    query->type = get_be16(fixed);
    query->class = get_be16(fixed + 2);

    int rcode = records_read(&cursor, get_be16(data + 8), get_be16(data + 10), query);
    if (rcode != RCODE_NOERROR) return rcode;
    if (query->type == TYPE_OPT) return RCODE_FORMERR;
    if (query->class != CLASS_IN && query->class != CLASS_ANY) return RCODE_REFUSED;
    if (query->type == TYPE_AXFR || query->type == TYPE_IXFR) return RCODE_NOTIMP;
    return RCODE_NOERROR;
}

void packet_header(uint8_t *out, const struct packet_query *query, int rcode, bool authoritative, bool truncated,
                   struct packet_counts counts) {
    unsigned flags = FLAG_RESPONSE | (unsigned)query->opcode << OPCODE_SHIFT | (rcode & 15);
    if (authoritative) flags |= FLAG_AUTHORITATIVE;
    if (truncated) flags |= FLAG_TRUNCATED;
    if (query->recursion_desired) flags |= FLAG_RECURSION_DESIRED;
    if (query->checking_disabled) flags |= FLAG_CHECKING_DISABLED;
    put_be16(out, query->id);
    put_be16(out + 2, (uint16_t)flags);
    put_be16(out + 4, query->name ? 1 : 0);
    put_be16(out + 6, counts.answers);
    put_be16(out + 8, counts.authorities);
    put_be16(out + 10, counts.additionals);
}

size_t packet_question_size(const struct packet_query *query) { return query->name ? query->name_size + 4u : 0; }

size_t packet_opt_size(const struct packet_query *query) {
    if (!query->edns) return 0;
    return OPT_FIXED_SIZE + (query->subnet_size ? 4u + query->subnet_size : 0);
}

uint8_t *packet_put_question(uint8_t *out, const struct packet_query *query) {
    if (!query->name) return out;
    memcpy(out, query->name, query->name_size);
    out += query->name_size;
    put_be16(out, query->type);
    put_be16(out + 2, query->class);
    return out + 4;
}

uint8_t *packet_put_opt(uint8_t *out, const struct packet_query *query, int rcode) {
    if (!query->edns) return out;
    size_t options = packet_opt_size(query) - OPT_FIXED_SIZE;
    out[0] = 0;
    put_be16(out + 1, TYPE_OPT);
    put_be16(out + 3, PACKET_UDP_RECEIVE);
    out[5] = (uint8_t)(rcode >> 4);
    out[6] = 0;
    put_be16(out + 7, query->dnssec_ok ? DNSSEC_OK : 0);
    put_be16(out + 9, (uint16_t)options);
    out += OPT_FIXED_SIZE;
    if (options == 0) return out;
    put_be16(out, OPTION_CLIENT_SUBNET);
    put_be16(out + 2, query->subnet_size);
    memcpy(out + 4, query->subnet, query->subnet_size);
    return out + options;
}

size_t packet_error(uint8_t *out, const struct packet_query *query, int rcode) {
    CHECK(rcode >= 0);
    packet_header(out, query, rcode, false, false, (struct packet_counts){0, 0, query->edns});
    uint8_t *end = packet_put_question(out + PACKET_HEADER_SIZE, query);
    return (size_t)(packet_put_opt(end, query, rcode) - out);
}

size_t packet_pad(uint8_t *out, size_t size, const struct packet_query *query) {
    CHECK(query->edns && size <= PACKET_PADDABLE_MAX);
    size_t options = packet_opt_size(query) - OPT_FIXED_SIZE;
    size_t end = (size + OPTION_HEADER_SIZE + PACKET_PAD_BLOCK - 1) / PACKET_PAD_BLOCK * PACKET_PAD_BLOCK;
    put_be16(out + size - options - 2, (uint16_t)(options + end - size)); /* the length of all options */
    put_be16(out + size, OPTION_PADDING);
    put_be16(out + size + 2, (uint16_t)(end - size - OPTION_HEADER_SIZE));
    memset(out + size + OPTION_HEADER_SIZE, 0, end - size - OPTION_HEADER_SIZE);
    return end;
}
