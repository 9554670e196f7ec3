/* Parses queries, which come from anybody: the header, exactly one question, and OPT (EDNS). The parser checks every
 * byte, allocates nothing, and never follows a compression pointer, so it cannot loop.
 *
 * The rules: a packet that is no query, or too short to have a header, gets no answer; a message that does not parse
 * gets FORMERR; other opcodes, and zone transfers, get NOTIMP; other classes REFUSED; other EDNS versions BADVERS. */
#ifndef COORD_DNS_PACKET_H
#define COORD_DNS_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PACKET_HEADER_SIZE = 12,
    PACKET_NAME_MAX = 255,    /* wire form, with the root label */
    PACKET_UDP_DEFAULT = 512, /* without EDNS */
    /* The most that is sent, however much the client offers. Most resolvers offer 1232 to avoid fragments; haproxy can
     * be told to offer 8192. */
    PACKET_UDP_MAX = 8192,
    PACKET_UDP_RECEIVE = 1232, /* what our OPT offers: queries are small, and 1232 never fragments */
    PACKET_TCP_MAX = 65535,
    PACKET_QUERY_MAX = 4096, /* longest query over TCP */
    PACKET_OPTION_MAX = 24,  /* client subnet: family, two lengths, 16 bytes of address, rounded */
    PACKET_PAD_BLOCK = 468,  /* RFC 8467 */
    /* The longest answer that can still be padded to whole blocks: the option itself takes at least 4 bytes. */
    PACKET_PADDABLE_MAX = PACKET_TCP_MAX / PACKET_PAD_BLOCK * PACKET_PAD_BLOCK - 4,
};

enum packet_type {
    TYPE_A = 1,
    TYPE_NS = 2,
    TYPE_CNAME = 5,
    TYPE_SOA = 6,
    TYPE_PTR = 12,
    TYPE_TXT = 16,
    TYPE_AAAA = 28,
    TYPE_SRV = 33,
    TYPE_OPT = 41,
    TYPE_IXFR = 251,
    TYPE_AXFR = 252,
    TYPE_ANY = 255,
};
enum packet_class { CLASS_IN = 1, CLASS_ANY = 255 };
enum packet_rcode {
    RCODE_NOERROR = 0,
    RCODE_FORMERR = 1,
    RCODE_SERVFAIL = 2,
    RCODE_NXDOMAIN = 3,
    RCODE_NOTIMP = 4,
    RCODE_REFUSED = 5,
    RCODE_BADVERS = 16, /* needs OPT */
    PACKET_SILENT = -1, /* no answer at all */
};

struct packet_query {
    uint16_t id;
    uint8_t opcode;
    bool recursion_desired, checking_disabled;
    const uint8_t *name; /* wire form, in the packet; uncompressed. NULL: no question was read */
    uint16_t name_size;  /* with the root label */
    uint16_t type, class;
    bool edns, dnssec_ok;
    bool padding;                                   /* it has a padding option, so its answer is to be padded, too */
    uint16_t udp_size;                              /* 512 without EDNS; within PACKET_UDP_DEFAULT..PACKET_UDP_MAX */
    uint8_t subnet[PACKET_OPTION_MAX], subnet_size; /* client subnet, to be echoed; 0: none */
};

/* Returns RCODE_NOERROR: answer the query; another code: send this error; PACKET_SILENT: send nothing. `query` is
 * filled as far as it could be read, enough for packet_error. */
int packet_parse(const uint8_t *data, size_t size, struct packet_query *query);

/* Header of an answer. Flags: response, and those that are copied from the query. */
struct packet_counts {
    uint16_t answers, authorities, additionals;
};
void packet_header(uint8_t *out, const struct packet_query *query, int rcode, bool authoritative, bool truncated,
                   struct packet_counts counts);

/* Size of the question as it is echoed (0 when none was read), and of the OPT record that the answer needs (0:
 * none). */
size_t packet_question_size(const struct packet_query *query);
size_t packet_opt_size(const struct packet_query *query);
/* Both return the end of what they wrote. */
uint8_t *packet_put_question(uint8_t *out, const struct packet_query *query);
uint8_t *packet_put_opt(uint8_t *out, const struct packet_query *query, int rcode);

/* A whole answer without records, at most PACKET_UDP_DEFAULT bytes. Returns its size. */
size_t packet_error(uint8_t *out, const struct packet_query *query, int rcode);

/* Pads an answer of `size` bytes, which ends with the OPT that `query` calls for, to a multiple of PACKET_PAD_BLOCK (RFC
 * 7830), so that an encrypted answer tells little by its length. `query` has EDNS; `size` is at most PACKET_PADDABLE_MAX,
 * and `out` has room for PACKET_TCP_MAX. Returns the new size. */
size_t packet_pad(uint8_t *out, size_t size, const struct packet_query *query);

#endif
