/* Any query put to ready answers: the packet stays within the client's size, and ldns reads it back. */
#include <ldns/ldns.h>
#include <stdlib.h>

#include "base/check.h"
#include "dns/answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ANSWERS = 3, RECORDS = 70 };
static struct answer *answers[ANSWERS];
static struct rng rng;
static const struct answer_place shuffled = {ANSWER_SHUFFLED, ANSWER_QUESTION, 1};

static struct wire_name name_of(const char *text) {
    struct wire_name name;
    CHECK(wire_name_from_text(&name, slice_text(text)));
    return name;
}

static void put_srv(struct answer_builder *builder, unsigned i) {
    char text[80];
    snprintf(text, sizeof(text), "node-%u%s.node.dc1.coord", i, i % 3 ? "" : ".with.a.longer.name.than.the.others");
    struct wire_name name = name_of(text);
    uint32_t index = answer_name(builder, &name);
    answer_srv(builder, shuffled, (struct answer_srv){1, 1, (uint16_t)i, index, index});
    CHECK(answer_extras_begin(builder, index) && answer_texts_begin(builder, index));
    answer_extra_address(builder, index, 1, (const uint8_t *)"0123456789abcdef", i % 2 ? 4 : 16);
    answer_extra_text(builder, index, 1, slice_text("key=value"));
}

static void answers_make(void) {
    struct answer_builder *builder = answer_builder_new();
    struct wire_name domain = name_of("coord");
    answer_start(builder, &domain);
    for (unsigned i = 0; i < RECORDS; i++) {
        uint8_t address[4] = {10, 0, 0, (uint8_t)i};
        answer_address(builder, shuffled, address, sizeof(address));
    }
    answers[0] = answer_finish(builder, RCODE_NOERROR);
    answer_start(builder, &domain);
    for (unsigned i = 0; i < RECORDS; i++) put_srv(builder, i);
    answers[1] = answer_finish(builder, RCODE_NOERROR);
    answer_start(builder, &domain);
    struct answer_soa soa = {.mname = name_of("ns.coord"), .rname = name_of("hostmaster.coord")};
    answer_soa(builder, ANSWER_AUTHORITY, &soa);
    answers[2] = answer_finish(builder, RCODE_NXDOMAIN);
    answer_builder_free(builder);
    rng_seed(&rng, 1);
}

/* The answers of coord's own names point into the question, so it has to end in the domain. */
static bool is_ours(const struct packet_query *query, struct name *name) {
    static const uint8_t domain[] =
        "\x05"
        "coord";
    uint8_t lower[PACKET_NAME_MAX];
    struct name_zone zone;
    CHECK(name_zone_set(&zone, "coord", NULL, NULL) == CO_OK);
    wire_name_lower(lower, query->name, query->name_size);
    name_parse(&zone, lower, query->name_size, name);
    CHECK(name->kind == NAME_OUTSIDE || name->kind == NAME_REVERSE ||
          memcmp(lower + query->name_size - sizeof(domain), domain, sizeof(domain)) == 0);
    return name->kind != NAME_OUTSIDE && name->kind != NAME_REVERSE;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t out[PACKET_UDP_MAX + ANSWER_SLACK];
    if (!answers[0]) answers_make();
    struct packet_query query;
    struct name name;
    if (packet_parse(data, size, &query) != RCODE_NOERROR || !is_ours(&query, &name)) return 0;
    for (size_t i = 0; i < ANSWERS; i++) {
        struct answer_limits limits = {.size = query.udp_size, .serial = 1};
        bool truncated;
        answer_set_zone(answers[i], name.zone_at);
        size_t written = answer_render(answers[i], &query, &limits, &rng, out, &truncated);
        CHECK(written <= query.udp_size);
        ldns_pkt *packet = NULL;
        CHECK(ldns_wire2pkt(&packet, out, written) == LDNS_STATUS_OK);
        CHECK(ldns_pkt_tc(packet) == truncated);
        CHECK(truncated == (ldns_rr_list_rr_count(ldns_pkt_answer(packet)) < answer_count(answers[i])));
        ldns_pkt_free(packet);
    }
    return 0;
}
