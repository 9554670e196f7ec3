/* Any bytes as a query: the parser stays inside of them, and what is answered carries the question over. */
#include <stdlib.h>

#include "base/buffer.h"
#include "base/check.h"
#include "dns/packet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_accepted(const uint8_t *data, size_t size, const struct packet_query *query) {
    CHECK(query->name == data + PACKET_HEADER_SIZE);
    CHECK(query->name_size >= 1 && query->name_size <= PACKET_NAME_MAX);
    CHECK(PACKET_HEADER_SIZE + query->name_size + 4u <= size);
    CHECK(query->name[query->name_size - 1] == 0);
    CHECK(query->udp_size >= PACKET_UDP_DEFAULT && query->udp_size <= PACKET_UDP_MAX);
    CHECK(query->subnet_size <= PACKET_OPTION_MAX);
    CHECK(query->opcode == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    /* A copy of just this size, so that a read past the end is seen. */
    uint8_t *exact = malloc(size ? size : 1);
    if (size) memcpy(exact, data, size);
    struct packet_query query;
    int rcode = packet_parse(exact, size, &query);
    if (rcode == RCODE_NOERROR) check_accepted(exact, size, &query);
    if (rcode != PACKET_SILENT) {
        static uint8_t out[PACKET_TCP_MAX];
        size_t written = packet_error(out, &query, rcode);
        CHECK(written >= PACKET_HEADER_SIZE && written <= PACKET_UDP_DEFAULT);
        CHECK(written == PACKET_HEADER_SIZE + packet_question_size(&query) + packet_opt_size(&query));
        CHECK(memcmp(out, exact, 2) == 0 && (out[2] & 0x80));
        if (query.padding) {
            size_t padded = packet_pad(out, written, &query);
            CHECK(padded > written && padded % PACKET_PAD_BLOCK == 0);
            written = padded;
        }
        struct packet_query again;
        CHECK(packet_parse(out, written, &again) == PACKET_SILENT); /* never an answer to an answer */
    } else {
        CHECK(size < PACKET_HEADER_SIZE || (exact[2] & 0x80));
    }
    free(exact);
    return 0;
}
