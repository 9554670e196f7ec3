/* Prebuilt answers: records in wire form, made once with ldns, put together per query by copying.
 *
 * A record is kept without its owner's name; the owner is the question, or a name that is written once per packet and
 * pointed to afterwards. The target of an SRV record is never compressed (RFC 2782), but other names may point to it.
 * The additional section has the addresses of the targets that fitted into the packet, and the text about their nodes.
 *
 * An answer belongs to one thread, because rendering changes it: its shuffled order, and the places of names. */
#ifndef COORD_DNS_ANSWER_H
#define COORD_DNS_ANSWER_H

#include "base/random.h"
#include "dns/name.h"
#include "dns/packet.h"

struct answer;
struct answer_builder;

enum answer_section {
    ANSWER_FIXED, /* answers in a fixed order before all others: a CNAME and the records of its target */
    ANSWER_SHUFFLED,
    ANSWER_AUTHORITY,
    ANSWER_ADDITIONAL, /* as far as there is room; TC is never set because of them */
    ANSWER_SECTIONS,
};

/* -- building. The builder is reused: start, records, finish ------------------------------------------------------ */
struct answer_builder *answer_builder_new(void);
void answer_builder_free(struct answer_builder *builder);
/* `domain`: a suffix of the names that will be asked, to which compressed names may point; NULL: none. */
void answer_start(struct answer_builder *builder, const struct wire_name *domain);

#define ANSWER_QUESTION UINT32_MAX /* the owner is the name in the question */
/* The index of a name. Equal names (compared byte by byte) are kept once. */
uint32_t answer_name(struct answer_builder *builder, const struct wire_name *name);

struct answer_place {
    enum answer_section section;
    uint32_t owner, ttl;
};
/* `address`: 4 or 16 bytes. The same address twice in ANSWER_SHUFFLED is kept once: false. */
bool answer_address(struct answer_builder *builder, struct answer_place place, const uint8_t *address, size_t size);
/* Text is split into strings of 255. */
void answer_text(struct answer_builder *builder, struct answer_place place, struct slice text);
void answer_cname(struct answer_builder *builder, struct answer_place place, uint32_t target);
void answer_ptr(struct answer_builder *builder, struct answer_place place, uint32_t target);
void answer_ns(struct answer_builder *builder, struct answer_place place, uint32_t target);
struct answer_srv {
    uint16_t priority, weight, port;
    uint32_t target, node; /* node: the name that text is about */
};
/* The same record twice is kept once. */
void answer_srv(struct answer_builder *builder, struct answer_place place, struct answer_srv srv);
struct answer_soa {
    struct wire_name mname, rname;
    uint32_t refresh, retry, expire, min_ttl;
};
/* Its owner is the zone (answer_set_zone). */
void answer_soa(struct answer_builder *builder, enum answer_section section, const struct answer_soa *soa);

/* Begins the additional records of a target (SRV, NS) or node. True for the first call with this name: the caller adds
 * its records next. False: they were added already. */
bool answer_extras_begin(struct answer_builder *builder, uint32_t name);
void answer_extra_address(struct answer_builder *builder, uint32_t name, uint32_t ttl, const uint8_t *address,
                          size_t size);
bool answer_texts_begin(struct answer_builder *builder, uint32_t name);
void answer_extra_text(struct answer_builder *builder, uint32_t name, uint32_t ttl, struct slice text);

/* The number, from 0, of the shuffled record that answer_address or answer_srv put last, or that was there already. */
uint32_t answer_last(const struct answer_builder *builder);
size_t answer_so_far(const struct answer_builder *builder);              /* records in the answer section */
struct answer *answer_finish(struct answer_builder *builder, int rcode); /* caller frees with answer_free */
void answer_free(struct answer *answer);

size_t answer_bytes(const struct answer *answer); /* memory that it holds */
size_t answer_count(const struct answer *answer); /* records in the answer section, all of them */
int answer_rcode(const struct answer *answer);
/* Sets the owner of the SOA record: the part of the question's name that begins at its byte `at`, where a label begins.
 * 0 when never set. */
void answer_set_zone(struct answer *answer, uint8_t at);

/* -- rendering ---------------------------------------------------------------------------------------------------- */
struct answer_limits {
    size_t size;        /* of the packet; at least PACKET_UDP_DEFAULT */
    size_t answers_max; /* 0: no limit. Cutting at it does not set TC */
    uint32_t serial;    /* of SOA records */
    /* The shuffled record of this number, counted from 1 as they were put, comes before the others; 0: none does. */
    uint32_t first;
};
enum { ANSWER_SLACK = 64 }; /* `out` has room for limits->size + this: copying runs over the end */
/* Writes a packet: as many shuffled records as fit, in random order. Each record is as likely as any other to be in the
 * packet and, unless limits->first names one, to come first. Sets TC when an answer did not fit. Returns the size;
 * *truncated tells TC. */
size_t answer_render(struct answer *answer, const struct packet_query *query, const struct answer_limits *limits,
                     struct rng *rng, uint8_t *out, bool *truncated);

#endif
