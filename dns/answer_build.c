#include <ldns/ldns.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "dns/answer_layout.h"

enum { STRING_MAX = 255, TEXT_MAX = 60000, FIXED_SIZE = 10, SRV_TARGET_AT = FIXED_SIZE + 6, INTERN_FIRST = 64 };
enum { SEEN_MAX = 16, SEEN_SRV = 8 };

/* Finds equal byte strings: slots hold 1 + an index into somebody's array. */
struct intern {
    uint32_t *slots;
    uint32_t mask, count;
};

struct extra { /* one additional record of a name */
    uint32_t name;
    struct answer_record record;
};
enum { KNOWN_ADDRESSES = 1, KNOWN_TEXTS = 2 };
struct named {
    uint32_t offset;
    uint16_t size;
    uint8_t known;
};
struct seen {
    uint8_t size, key[SEEN_MAX];
};

/* Arrays are kept as growing buffers of their element. */
struct answer_builder {
    uint32_t domain;
    struct buffer sections[ANSWER_SECTIONS]; /* struct answer_record */
    struct buffer addresses, texts;          /* struct extra */
    struct buffer names;                     /* struct named */
    struct buffer seen;                      /* struct seen: the keys by which equal shuffled records are found */
    struct buffer bytes;
    struct intern name_index, seen_index;
    uint32_t last; /* answer_last */
    ldns_buffer *wire;
};

#define ITEMS(buffer, type) ((type *)(void *)(buffer)->data)
#define COUNT(buffer, type) ((uint32_t)((buffer)->size / sizeof(type)))

/* -- interning ---------------------------------------------------------------------------------------------------- */

static void intern_insert(struct intern *intern, uint32_t index, uint64_t hash) {
    uint32_t slot = (uint32_t)hash & intern->mask;
    while (intern->slots[slot]) slot = (slot + 1) & intern->mask;
    intern->slots[slot] = index + 1;
}

/* Makes room for one more; `hash_of` tells the hashes of the present items. */
static void intern_grow(struct intern *intern, const struct answer_builder *builder,
                        uint64_t (*hash_of)(const struct answer_builder *, uint32_t)) {
    if (intern->slots && intern->count * 2 < intern->mask) return;
    uint32_t size = intern->slots ? (intern->mask + 1) * 2 : INTERN_FIRST;
    free(intern->slots);
    intern->slots = mem_zalloc(size * sizeof(*intern->slots));
    intern->mask = size - 1;
    for (uint32_t i = 0; i < intern->count; i++) intern_insert(intern, i, hash_of(builder, i));
}

static void intern_reset(struct intern *intern) {
    if (intern->mask >= INTERN_FIRST * 16) {
        free(intern->slots);
        *intern = (struct intern){0};
    }
    if (intern->slots) memset(intern->slots, 0, (intern->mask + 1) * sizeof(*intern->slots));
    intern->count = 0;
}

static uint64_t name_hash(const struct answer_builder *builder, uint32_t index) {
    const struct named *name = &ITEMS(&builder->names, struct named)[index];
    return hash64(builder->bytes.data + name->offset, name->size);
}

static uint64_t seen_hash(const struct answer_builder *builder, uint32_t index) {
    const struct seen *seen = &ITEMS(&builder->seen, struct seen)[index];
    return hash64(seen->key, seen->size);
}

/* -- life --------------------------------------------------------------------------------------------------------- */

struct answer_builder *answer_builder_new(void) {
    struct answer_builder *builder = mem_zalloc(sizeof(*builder));
    builder->wire = ldns_buffer_new(PACKET_UDP_DEFAULT);
    CHECK(builder->wire);
    return builder;
}

static void all_buffers(struct answer_builder *builder, void (*act)(struct buffer *)) {
    for (size_t i = 0; i < ANSWER_SECTIONS; i++) act(&builder->sections[i]);
    act(&builder->addresses);
    act(&builder->texts);
    act(&builder->names);
    act(&builder->seen);
    act(&builder->bytes);
}

void answer_builder_free(struct answer_builder *builder) {
    if (!builder) return;
    all_buffers(builder, buffer_free);
    free(builder->name_index.slots);
    free(builder->seen_index.slots);
    ldns_buffer_free(builder->wire);
    free(builder);
}

/* Frees a large buffer instead of keeping it, because huge answers are rare. */
static void reset_or_shrink(struct buffer *buffer) {
    if (buffer->capacity > 256 * 1024) buffer_free(buffer);
    else buffer_reset(buffer);
}

void answer_start(struct answer_builder *builder, const struct wire_name *domain) {
    all_buffers(builder, reset_or_shrink);
    intern_reset(&builder->name_index);
    intern_reset(&builder->seen_index);
    builder->domain = domain ? answer_name(builder, domain) : ANSWER_NO_NAME;
}

uint32_t answer_name(struct answer_builder *builder, const struct wire_name *name) {
    CHECK(name->size > 0);
    intern_grow(&builder->name_index, builder, name_hash);
    uint64_t hash = hash64(name->data, name->size);
    for (uint32_t slot = (uint32_t)hash;; slot++) {
        uint32_t index = builder->name_index.slots[slot & builder->name_index.mask];
        if (index == 0) break;
        const struct named *known = &ITEMS(&builder->names, struct named)[index - 1];
        if (known->size == name->size && memcmp(builder->bytes.data + known->offset, name->data, name->size) == 0) {
            return index - 1;
        }
    }
    struct named fresh = {(uint32_t)builder->bytes.size, name->size, 0};
    buffer_append(&builder->bytes, name->data, name->size);
    buffer_append(&builder->names, &fresh, sizeof(fresh));
    intern_insert(&builder->name_index, builder->name_index.count, hash);
    return builder->name_index.count++;
}

/* -- one record, by ldns ------------------------------------------------------------------------------------------ */

static ldns_rr *rr_begin(ldns_rr_type type, uint32_t ttl) {
    ldns_rr *rr = ldns_rr_new();
    CHECK(rr);
    static const uint8_t root[1] = {0};
    ldns_rdf *owner = ldns_rdf_new_frm_data(LDNS_RDF_TYPE_DNAME, sizeof(root), root);
    CHECK(owner);
    ldns_rr_set_owner(rr, owner);
    ldns_rr_set_type(rr, type);
    ldns_rr_set_class(rr, LDNS_RR_CLASS_IN);
    ldns_rr_set_ttl(rr, ttl);
    return rr;
}

static void rr_data(ldns_rr *rr, ldns_rdf_type type, const void *data, size_t size) {
    ldns_rdf *rdf = ldns_rdf_new_frm_data(type, size, data);
    CHECK(rdf && ldns_rr_push_rdf(rr, rdf));
}

static void rr_number16(ldns_rr *rr, uint16_t value) {
    uint8_t bytes[2];
    put_be16(bytes, value);
    rr_data(rr, LDNS_RDF_TYPE_INT16, bytes, sizeof(bytes));
}

static void rr_number32(ldns_rr *rr, ldns_rdf_type type, uint32_t value) {
    uint8_t bytes[4];
    put_be32(bytes, value);
    rr_data(rr, type, bytes, sizeof(bytes));
}

static void rr_name(ldns_rr *rr, const struct wire_name *name) {
    rr_data(rr, LDNS_RDF_TYPE_DNAME, name->data, name->size);
}

static void rr_known_name(ldns_rr *rr, const struct answer_builder *builder, uint32_t index) {
    const struct named *name = &ITEMS(&builder->names, struct named)[index];
    rr_data(rr, LDNS_RDF_TYPE_DNAME, builder->bytes.data + name->offset, name->size);
}

/* Turns the record into bytes. The owner (here always the root, one byte) is left out, or replaced by a pointer to the
 * question. */
static struct answer_record rr_end(struct answer_builder *builder, ldns_rr *rr, uint32_t owner) {
    ldns_buffer_clear(builder->wire);
    CHECK(ldns_rr2buffer_wire(builder->wire, rr, LDNS_SECTION_ANSWER) == LDNS_STATUS_OK);
    ldns_rr_free(rr);
    const char *wire = (const char *)ldns_buffer_begin(builder->wire) + 1;
    size_t size = ldns_buffer_position(builder->wire) - 1;
    struct answer_record record = {
        .offset = (uint32_t)builder->bytes.size, .owner = owner, .target = ANSWER_NO_NAME, .node = ANSWER_NO_NAME};
    static const uint8_t to_question[2] = {0xc0, PACKET_HEADER_SIZE};
    if (owner == ANSWER_QUESTION) buffer_append(&builder->bytes, to_question, sizeof(to_question));
    buffer_append(&builder->bytes, wire, size);
    record.size = (uint16_t)(builder->bytes.size - record.offset);
    return record;
}

static struct answer_record *section_add(struct answer_builder *builder, enum answer_section section,
                                         const struct answer_record *record) {
    struct buffer *records = &builder->sections[section];
    buffer_append(records, record, sizeof(*record));
    return &ITEMS(records, struct answer_record)[COUNT(records, struct answer_record) - 1];
}

static ldns_rr *rr_address(const uint8_t *address, size_t size, uint32_t ttl) {
    ldns_rr *rr = rr_begin(size == 4 ? LDNS_RR_TYPE_A : LDNS_RR_TYPE_AAAA, ttl);
    rr_data(rr, size == 4 ? LDNS_RDF_TYPE_A : LDNS_RDF_TYPE_AAAA, address, size);
    return rr;
}

static ldns_rr *rr_text(struct slice text, uint32_t ttl) {
    ldns_rr *rr = rr_begin(LDNS_RR_TYPE_TXT, ttl);
    if (text.size > TEXT_MAX) text.size = TEXT_MAX;
    do {
        uint8_t string[1 + STRING_MAX];
        string[0] = (uint8_t)(text.size < STRING_MAX ? text.size : STRING_MAX);
        memcpy(string + 1, text.data, string[0]);
        rr_data(rr, LDNS_RDF_TYPE_STR, string, 1u + string[0]);
        text = slice_make(text.data + string[0], text.size - string[0]);
    } while (text.size);
    return rr;
}

/* -- records ------------------------------------------------------------------------------------------------------ */

/* Notes the key of a record (an address is its own key, 4 or 16 bytes). False: it was there already, and a DNS answer
 * has no record twice. */
static bool seen_add(struct answer_builder *builder, const uint8_t *key, size_t size) {
    intern_grow(&builder->seen_index, builder, seen_hash);
    uint64_t hash = hash64(key, size);
    for (uint32_t slot = (uint32_t)hash;; slot++) {
        uint32_t index = builder->seen_index.slots[slot & builder->seen_index.mask];
        if (index == 0) break;
        const struct seen *known = &ITEMS(&builder->seen, struct seen)[index - 1];
        if (known->size == size && memcmp(known->key, key, size) == 0) {
            builder->last = index - 1;
            return false;
        }
    }
    builder->last = builder->seen_index.count;
    struct seen fresh = {.size = (uint8_t)size};
    memcpy(fresh.key, key, size);
    buffer_append(&builder->seen, &fresh, sizeof(fresh));
    intern_insert(&builder->seen_index, builder->seen_index.count++, hash);
    return true;
}

bool answer_address(struct answer_builder *builder, struct answer_place place, const uint8_t *address, size_t size) {
    CHECK(size == 4 || size == 16);
    if (place.section == ANSWER_SHUFFLED && !seen_add(builder, address, size)) return false;
    struct answer_record record = rr_end(builder, rr_address(address, size, place.ttl), place.owner);
    section_add(builder, place.section, &record);
    return true;
}

void answer_text(struct answer_builder *builder, struct answer_place place, struct slice text) {
    struct answer_record record = rr_end(builder, rr_text(text, place.ttl), place.owner);
    section_add(builder, place.section, &record);
}

static struct answer_record *named_add(struct answer_builder *builder, struct answer_place place, ldns_rr_type type,
                                       uint32_t target) {
    ldns_rr *rr = rr_begin(type, place.ttl);
    rr_known_name(rr, builder, target);
    struct answer_record record = rr_end(builder, rr, place.owner);
    record.target = target;
    record.target_at = (uint8_t)(FIXED_SIZE + (place.owner == ANSWER_QUESTION ? 2 : 0));
    return section_add(builder, place.section, &record);
}

void answer_cname(struct answer_builder *builder, struct answer_place place, uint32_t target) {
    named_add(builder, place, LDNS_RR_TYPE_CNAME, target);
}

void answer_ptr(struct answer_builder *builder, struct answer_place place, uint32_t target) {
    named_add(builder, place, LDNS_RR_TYPE_PTR, target);
}

void answer_ns(struct answer_builder *builder, struct answer_place place, uint32_t target) {
    named_add(builder, place, LDNS_RR_TYPE_NS, target);
}

void answer_srv(struct answer_builder *builder, struct answer_place place, struct answer_srv srv) {
    uint8_t key[SEEN_SRV];
    put_be32(key, srv.target);
    put_be16(key + 4, srv.port);
    put_be16(key + 6, srv.weight);
    if (place.section == ANSWER_SHUFFLED && !seen_add(builder, key, sizeof(key))) return;
    ldns_rr *rr = rr_begin(LDNS_RR_TYPE_SRV, place.ttl);
    rr_number16(rr, srv.priority);
    rr_number16(rr, srv.weight);
    rr_number16(rr, srv.port);
    rr_known_name(rr, builder, srv.target);
    struct answer_record record = rr_end(builder, rr, place.owner);
    record.target = srv.target;
    record.target_at = (uint8_t)(SRV_TARGET_AT + (place.owner == ANSWER_QUESTION ? 2 : 0));
    record.node = srv.node;
    section_add(builder, place.section, &record);
}

void answer_soa(struct answer_builder *builder, enum answer_section section, const struct answer_soa *soa) {
    ldns_rr *rr = rr_begin(LDNS_RR_TYPE_SOA, soa->min_ttl);
    rr_name(rr, &soa->mname);
    rr_name(rr, &soa->rname);
    rr_number32(rr, LDNS_RDF_TYPE_INT32, 0);
    rr_number32(rr, LDNS_RDF_TYPE_PERIOD, soa->refresh);
    rr_number32(rr, LDNS_RDF_TYPE_PERIOD, soa->retry);
    rr_number32(rr, LDNS_RDF_TYPE_PERIOD, soa->expire);
    rr_number32(rr, LDNS_RDF_TYPE_PERIOD, soa->min_ttl);
    struct answer_record record = rr_end(builder, rr, ANSWER_QUESTION);
    record.soa = true;
    section_add(builder, section, &record);
}

static bool known_begin(struct answer_builder *builder, uint32_t name, uint8_t what) {
    struct named *named = &ITEMS(&builder->names, struct named)[name];
    bool first = !(named->known & what);
    named->known |= what;
    return first;
}

bool answer_extras_begin(struct answer_builder *builder, uint32_t name) {
    return known_begin(builder, name, KNOWN_ADDRESSES);
}

bool answer_texts_begin(struct answer_builder *builder, uint32_t name) {
    return known_begin(builder, name, KNOWN_TEXTS);
}

void answer_extra_address(struct answer_builder *builder, uint32_t name, uint32_t ttl, const uint8_t *address,
                          size_t size) {
    struct extra extra = {name, rr_end(builder, rr_address(address, size, ttl), name)};
    buffer_append(&builder->addresses, &extra, sizeof(extra));
}

void answer_extra_text(struct answer_builder *builder, uint32_t name, uint32_t ttl, struct slice text) {
    struct extra extra = {name, rr_end(builder, rr_text(text, ttl), name)};
    buffer_append(&builder->texts, &extra, sizeof(extra));
}

/* -- finish ------------------------------------------------------------------------------------------------------- */

static size_t align8(size_t size) { return (size + 7) & ~(size_t)7; }

/* Extras of one name follow one another, since each name's are added in one go (begin ... add ...). */
static void extras_place(struct answer *answer, const struct buffer *extras, bool texts) {
    const struct extra *items = ITEMS(extras, struct extra);
    uint32_t count = COUNT(extras, struct extra);
    for (uint32_t i = 0; i < count; i++) {
        struct answer_named *name = &answer->names[items[i].name];
        struct answer_extra_range *range = texts ? &name->texts : &name->addresses;
        if (range->count == 0) range->first = answer->extra_count;
        CHECK(range->first + range->count == answer->extra_count);
        range->count++;
        answer->extras[answer->extra_count++] = items[i].record;
    }
}

static void records_place(struct answer *answer, const struct answer_builder *builder) {
    uint32_t end = 0;
    for (size_t section = 0; section < ANSWER_SECTIONS; section++) {
        const struct buffer *records = &builder->sections[section];
        if (records->size) memcpy(&answer->records[end], records->data, records->size);
        end += COUNT(records, struct answer_record);
        answer->section_end[section] = end;
    }
    uint32_t shuffled = COUNT(&builder->sections[ANSWER_SHUFFLED], struct answer_record);
    for (uint32_t i = 0; i < shuffled; i++) answer->order[i] = i;
}

uint32_t answer_last(const struct answer_builder *builder) { return builder->last; }

size_t answer_so_far(const struct answer_builder *builder) {
    return COUNT(&builder->sections[ANSWER_FIXED], struct answer_record) +
           COUNT(&builder->sections[ANSWER_SHUFFLED], struct answer_record);
}

struct answer *answer_finish(struct answer_builder *builder, int rcode) {
    size_t record_count = 0;
    for (size_t i = 0; i < ANSWER_SECTIONS; i++) record_count += COUNT(&builder->sections[i], struct answer_record);
    size_t extra_count = COUNT(&builder->addresses, struct extra) + COUNT(&builder->texts, struct extra);
    size_t shuffled = COUNT(&builder->sections[ANSWER_SHUFFLED], struct answer_record);
    uint32_t name_count = COUNT(&builder->names, struct named);

    size_t records_at = align8(sizeof(struct answer));
    size_t names_at = align8(records_at + (record_count + extra_count) * sizeof(struct answer_record));
    size_t order_at = align8(names_at + name_count * sizeof(struct answer_named));
    size_t bytes_at = align8(order_at + shuffled * sizeof(uint32_t));
    size_t size = bytes_at + builder->bytes.size + COPY_STEP;
    char *block = mem_zalloc(size);

    struct answer *answer = (struct answer *)(void *)block;
    *answer = (struct answer){.rcode = rcode,
                              .name_count = name_count,
                              .domain = builder->domain,
                              .block_size = size,
                              .records = (struct answer_record *)(void *)(block + records_at),
                              .order = (uint32_t *)(void *)(block + order_at),
                              .names = (struct answer_named *)(void *)(block + names_at),
                              .bytes = (uint8_t *)block + bytes_at};
    answer->extras = answer->records + record_count;
    records_place(answer, builder);
    for (uint32_t i = 0; i < name_count; i++) {
        const struct named *name = &ITEMS(&builder->names, struct named)[i];
        answer->names[i] = (struct answer_named){.offset = name->offset, .size = name->size};
    }
    extras_place(answer, &builder->addresses, false);
    extras_place(answer, &builder->texts, true);
    if (builder->bytes.size) memcpy(answer->bytes, builder->bytes.data, builder->bytes.size);
    return answer;
}
