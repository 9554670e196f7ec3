/* Inside of an answer: one block of memory, shared by answer_build.c, which makes it, and answer.c, which copies
 * from it. */
#ifndef COORD_DNS_ANSWER_LAYOUT_H
#define COORD_DNS_ANSWER_LAYOUT_H

#include "dns/answer.h"

#define ANSWER_NO_NAME UINT32_MAX

enum { COPY_STEP = 16 }; /* records are copied in steps of this, over their end */

struct answer_record {
    /* in `bytes`: type, class, ttl, length, data; behind a pointer to the question when that is the owner */
    uint32_t offset;
    uint16_t size;
    uint8_t target_at;     /* where the target stands in the record, counted from `offset` */
    bool soa;              /* its owner and serial are put in when it is rendered */
    uint32_t owner;        /* name, or ANSWER_QUESTION */
    uint32_t target, node; /* names, or ANSWER_NO_NAME: of the additional addresses, and texts */
};

struct answer_extra_range {
    uint32_t first, count;
};
struct answer_named {
    uint32_t offset; /* in `bytes`, wire form */
    uint16_t size;
    uint16_t position; /* in the packet, while `stamp` is the present render's */
    uint32_t stamp;
    uint32_t addresses_stamp, texts_stamp;      /* rendered already */
    struct answer_extra_range addresses, texts; /* in `extras`; the owner is this name */
};

struct answer {
    int rcode;
    uint8_t zone_at;                       /* in the name asked: where the owner of SOA records begins */
    uint32_t section_end[ANSWER_SECTIONS]; /* records of section s: from the end of the one before */
    uint32_t extra_count, name_count;
    uint32_t domain; /* name, or ANSWER_NO_NAME */
    uint32_t stamp;
    size_t block_size;
    struct answer_record *records, *extras;
    uint32_t *order; /* of the shuffled ones; any permutation is a good start for the next shuffle */
    struct answer_named *names;
    uint8_t *bytes; /* COPY_STEP readable bytes behind its end */
};

#endif
