#include "dns_help.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/check.h"
#include "dns/name.h"

size_t help_query(uint8_t *out, const char *name, unsigned type, unsigned edns) {
    static const uint8_t header[PACKET_HEADER_SIZE] = {0x12, 0x34, 0x01, 0x00, 0, 1};
    struct wire_name wire;
    wire_name_root(&wire);
    if (strcmp(name, ".") != 0) CHECK(wire_name_from_text(&wire, slice_text(name)));
    memcpy(out, header, sizeof(header));
    uint8_t *at = out + sizeof(header);
    memcpy(at, wire.data, wire.size);
    at += wire.size;
    put_be16(at, (uint16_t)type);
    put_be16(at + 2, CLASS_IN);
    at += 4;
    if (edns) {
        static const uint8_t opt[11] = {0, 0, TYPE_OPT};
        out[11] = 1;
        memcpy(at, opt, sizeof(opt));
        put_be16(at + 3, (uint16_t)edns);
        at += sizeof(opt);
    }
    return (size_t)(at - out);
}

static int compare_lines(const void *left, const void *right) {
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* ldns writes tabs between the fields; one blank reads better in a test. */
static char *line_of(const ldns_rr *rr) {
    char *text = ldns_rr2str(rr);
    CHECK(text != NULL);
    text[strcspn(text, "\n")] = 0;
    for (char *c = text; *c; c++) {
        if (*c == '\t') *c = ' ';
    }
    return text;
}

static char *lines_of(const ldns_rr_list *list) {
    size_t count = ldns_rr_list_rr_count(list);
    char **lines = calloc(count + 1, sizeof(*lines));
    struct buffer text = {0};
    for (size_t i = 0; i < count; i++) lines[i] = line_of(ldns_rr_list_rr(list, i));
    qsort(lines, count, sizeof(*lines), compare_lines);
    for (size_t i = 0; i < count; i++) {
        if (i) buffer_append_byte(&text, '\n');
        buffer_append_text(&text, lines[i]);
        free(lines[i]);
    }
    free(lines);
    buffer_append_byte(&text, 0);
    return buffer_take(&text, NULL);
}

struct help_answer help_parse(const uint8_t *data, size_t size) {
    ldns_pkt *packet = NULL;
    ldns_status status = ldns_wire2pkt(&packet, data, size);
    CHECK(status == LDNS_STATUS_OK);
    struct help_answer answer = {.rcode = ldns_pkt_get_rcode(packet),
                                 .aa = ldns_pkt_aa(packet),
                                 .tc = ldns_pkt_tc(packet),
                                 .ra = ldns_pkt_ra(packet),
                                 .rd = ldns_pkt_rd(packet),
                                 .edns = ldns_pkt_edns(packet),
                                 .size = size,
                                 .answers = ldns_rr_list_rr_count(ldns_pkt_answer(packet)),
                                 .authorities = ldns_rr_list_rr_count(ldns_pkt_authority(packet)),
                                 .additionals = ldns_rr_list_rr_count(ldns_pkt_additional(packet)),
                                 .answer = lines_of(ldns_pkt_answer(packet)),
                                 .authority = lines_of(ldns_pkt_authority(packet)),
                                 .additional = lines_of(ldns_pkt_additional(packet))};
    if (ldns_pkt_edns(packet)) answer.rcode |= ldns_pkt_edns_extended_rcode(packet) << 4;
    if (ldns_rr_list_rr_count(ldns_pkt_question(packet))) {
        char *question = line_of(ldns_rr_list_rr(ldns_pkt_question(packet), 0));
        snprintf(answer.question, sizeof(answer.question), "%s", question);
        free(question);
    }
    ldns_pkt_free(packet);
    return answer;
}

void help_free(struct help_answer *answer) {
    free(answer->answer);
    free(answer->authority);
    free(answer->additional);
    *answer = (struct help_answer){0};
}
