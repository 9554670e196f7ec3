#include "dns/answer_layout.h"

#include <stdlib.h>

#include "base/check.h"

enum { POINTER = 0xc000, POINTER_REACH = 0x4000, COUNT_MAX = 65535, SERIAL_FROM_END = 20 };

/* One packet being written. `end` leaves room for OPT. */
struct packing {
    struct answer *answer;
    uint8_t *packet, *at, *end;
    uint32_t serial;
    struct packet_counts counts;
};

void answer_free(struct answer *answer) { free(answer); }
size_t answer_bytes(const struct answer *answer) { return answer->block_size; }
size_t answer_count(const struct answer *answer) { return answer->section_end[ANSWER_SHUFFLED]; }
int answer_rcode(const struct answer *answer) { return answer->rcode; }
void answer_set_zone(struct answer *answer, uint8_t at) { answer->zone_at = at; }

static inline size_t room(const struct packing *packing) { return (size_t)(packing->end - packing->at); }

/* Copies whole steps, because that is cheaper than an exact copy of these sizes. Both sides have room for it. */
static inline void copy_over(uint8_t *to, const uint8_t *from, size_t size) {
    for (size_t done = 0; done < size; done += COPY_STEP) memcpy(to + done, from + done, COPY_STEP);
}

static void name_seen(struct answer *answer, uint32_t index, size_t position) {
    struct answer_named *name = &answer->names[index];
    if (position >= POINTER_REACH || name->stamp == answer->stamp) return;
    name->position = (uint16_t)position;
    name->stamp = answer->stamp;
}

/* Places the owner: a pointer where the name stands in the packet already, else the name. */
static bool put_owner(struct packing *packing, uint32_t index, size_t record_size) {
    struct answer *answer = packing->answer;
    struct answer_named *name = &answer->names[index];
    bool known = name->stamp == answer->stamp;
    size_t size = known ? 2 : name->size;
    if (size + record_size > room(packing)) return false;
    if (known) {
        put_be16(packing->at, (uint16_t)(POINTER | name->position));
    } else {
        memcpy(packing->at, answer->bytes + name->offset, size);
        name_seen(answer, index, (size_t)(packing->at - packing->packet));
    }
    packing->at += size;
    return true;
}

static inline bool put_record(struct packing *packing, const struct answer_record *record) {
    if (record->owner == ANSWER_QUESTION) {
        if (record->size > room(packing)) return false;
    } else if (!put_owner(packing, record->owner, record->size)) {
        return false;
    }
    copy_over(packing->at, packing->answer->bytes + record->offset, record->size);
    if (record->target != ANSWER_NO_NAME) {
        name_seen(packing->answer, record->target, (size_t)(packing->at - packing->packet) + record->target_at);
    }
    if (record->soa) put_be16(packing->at, (uint16_t)(POINTER | (PACKET_HEADER_SIZE + packing->answer->zone_at)));
    packing->at += record->size;
    if (record->soa) put_be32(packing->at - SERIAL_FROM_END, packing->serial);
    return true;
}

/* Records first..last-1 in their order. Returns how many fitted. */
static uint32_t put_records(struct packing *packing, uint32_t first, uint32_t last) {
    uint32_t at = first;
    while (at < last && at - first < COUNT_MAX && put_record(packing, &packing->answer->records[at])) at++;
    return at - first;
}

/* A Fisher-Yates shuffle that stops when the packet is full: the first k places hold k random records in random order,
 * whatever the order was before. */
static uint32_t put_shuffled(struct packing *packing, struct rng *rng, uint32_t most, uint32_t wanted_first) {
    struct answer *answer = packing->answer;
    const uint32_t first = answer->section_end[ANSWER_FIXED], count = answer->section_end[ANSWER_SHUFFLED] - first;
    const struct answer_record *records = answer->records + first;
    uint32_t *order = answer->order, placed = 0;
    uint64_t random = 0;
    if (most > count) most = count;
    if (wanted_first && wanted_first <= count && most) {
        uint32_t at = 0;
        while (order[at] != wanted_first - 1) at++;
        order[at] = order[0];
        order[0] = wanted_first - 1;
        if (!put_record(packing, &records[order[0]])) return 0;
        placed = 1;
    }
    for (; placed < most; placed++) {
        random = placed & 1 ? random >> 32 : rng_next(rng);
        uint32_t other = placed + (uint32_t)((random & UINT32_MAX) * (count - placed) >> 32);
        uint32_t chosen = order[other];
        order[other] = order[placed];
        order[placed] = chosen;
        if (!put_record(packing, &records[chosen])) break;
    }
    return placed;
}

static bool put_extras(struct packing *packing, struct answer_extra_range range) {
    for (uint32_t i = 0; i < range.count; i++) {
        if (packing->counts.additionals == COUNT_MAX) return false;
        if (!put_record(packing, &packing->answer->extras[range.first + i])) return false;
        packing->counts.additionals++;
    }
    return true;
}

static bool put_addresses_of(struct packing *packing, const struct answer_record *record) {
    if (record->target == ANSWER_NO_NAME) return true;
    struct answer_named *name = &packing->answer->names[record->target];
    if (name->addresses_stamp == packing->answer->stamp) return true;
    name->addresses_stamp = packing->answer->stamp;
    return put_extras(packing, name->addresses);
}

static bool put_texts_of(struct packing *packing, const struct answer_record *record) {
    if (record->node == ANSWER_NO_NAME) return true;
    struct answer_named *name = &packing->answer->names[record->node];
    if (name->texts_stamp == packing->answer->stamp) return true;
    name->texts_stamp = packing->answer->stamp;
    return put_extras(packing, name->texts);
}

/* Puts the additional records of each record that fitted: the addresses of all first, then the texts. */
static void put_additional(struct packing *packing, uint32_t shuffled) {
    struct answer *answer = packing->answer;
    const uint32_t *end = answer->section_end;
    bool (*const passes[])(struct packing *, const struct answer_record *) = {put_addresses_of, put_texts_of};
    for (size_t pass = 0; answer->extra_count && pass < ARRAY_COUNT(passes); pass++) {
        for (uint32_t i = 0; i < shuffled; i++) {
            if (!passes[pass](packing, &answer->records[end[ANSWER_FIXED] + answer->order[i]])) return;
        }
        for (uint32_t i = end[ANSWER_SHUFFLED]; i < end[ANSWER_AUTHORITY]; i++) {
            if (!passes[pass](packing, &answer->records[i])) return;
        }
    }
    packing->counts.additionals += (uint16_t)put_records(packing, end[ANSWER_AUTHORITY], end[ANSWER_ADDITIONAL]);
}

/* A new stamp makes all places unknown. When the stamp wraps round to 0, all old stamps are cleared, because they would
 * look new. */
static void next_stamp(struct answer *answer) {
    if (++answer->stamp != 0) return;
    for (uint32_t i = 0; i < answer->name_count; i++) {
        answer->names[i].stamp = answer->names[i].addresses_stamp = answer->names[i].texts_stamp = 0;
    }
    answer->stamp = 1;
}

static void packing_start(struct packing *packing, const struct packet_query *query) {
    struct answer *answer = packing->answer;
    next_stamp(answer);
    packing->at = packet_put_question(packing->packet + PACKET_HEADER_SIZE, query);
    if (answer->domain == ANSWER_NO_NAME || query->name_size < answer->names[answer->domain].size) return;
    name_seen(answer, answer->domain, PACKET_HEADER_SIZE + query->name_size - answer->names[answer->domain].size);
}

size_t answer_render(struct answer *answer, const struct packet_query *query, const struct answer_limits *limits,
                     struct rng *rng, uint8_t *out, bool *truncated) {
    CHECK(limits->size >= PACKET_UDP_DEFAULT && limits->size <= PACKET_TCP_MAX);
    const uint32_t *end = answer->section_end;
    struct packing packing = {.answer = answer, .packet = out, .serial = limits->serial};
    packing_start(&packing, query);
    packing.end = out + limits->size - packet_opt_size(query);

    uint32_t wanted = end[ANSWER_SHUFFLED];
    if (limits->answers_max && wanted > limits->answers_max) wanted = (uint32_t)limits->answers_max;
    uint32_t fixed_wanted = wanted < end[ANSWER_FIXED] ? wanted : end[ANSWER_FIXED];
    uint32_t fixed = put_records(&packing, 0, fixed_wanted), shuffled = 0;
    if (fixed == fixed_wanted) shuffled = put_shuffled(&packing, rng, wanted - fixed, limits->first);
    packing.counts.answers = (uint16_t)(fixed + shuffled);
    *truncated = fixed + shuffled < wanted;
    if (!*truncated) {
        packing.counts.authorities = (uint16_t)put_records(&packing, end[ANSWER_SHUFFLED], end[ANSWER_AUTHORITY]);
    }
    put_additional(&packing, shuffled);

    packing.at = packet_put_opt(packing.at, query, answer->rcode);
    packing.counts.additionals += query->edns;
    packet_header(out, query, answer->rcode, true, *truncated, packing.counts);
    return (size_t)(packing.at - out);
}
