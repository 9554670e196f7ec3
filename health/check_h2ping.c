/* H2 ping checks: healthy when a PING frame (RFC 9113, section 6.7) comes back with the bytes that it left with. */
#include <stdlib.h>

#include "base/random.h"
#include "health/check_h2.h"

#define PING_SIZE 8

struct ping_run {
    struct h2_run h2;
    uint8_t payload[PING_SIZE];
    char target[320];
};

static int ping_begin(struct h2_run *h2) {
    struct ping_run *ping = (struct ping_run *)h2;
    random_bytes(ping->payload, sizeof ping->payload);
    return nghttp2_submit_ping(h2->session, NGHTTP2_FLAG_NONE, ping->payload);
}

static void ping_frame(struct h2_run *h2, const nghttp2_frame *frame) {
    struct ping_run *ping = (struct ping_run *)h2;
    if (frame->hd.type != NGHTTP2_PING || !(frame->hd.flags & NGHTTP2_FLAG_ACK)) return;
    if (memcmp(frame->ping.opaque_data, ping->payload, PING_SIZE) == 0)
        h2_decide(h2, PB__STATUS__PASSING, "HTTP2 ping was successful");
}

static void ping_describe(struct h2_run *h2, struct buffer *text) {
    struct ping_run *ping = (struct ping_run *)h2;
    if (h2->session) {
        buffer_printf(text, "HTTP2 ping failed: %s", h2->net.fault.text);
    } else {
        buffer_printf(text, "Failed to dial to %s: %s", ping->target, h2->net.fault.text);
    }
}

static void ping_free(struct h2_run *h2) { free((struct ping_run *)h2); }

static const struct h2_kind ping_kind = {
    .begin = ping_begin, .frame = ping_frame, .describe = ping_describe, .free = ping_free};

struct run *run_h2ping_start(struct runners *runners, const struct check_definition *definition) {
    struct ping_run *ping = mem_zalloc(sizeof *ping);
    snprintf(ping->target, sizeof ping->target, "%s", definition->h2ping);
    return h2_start(&ping->h2, &ping_kind, runners, definition, slice_text(definition->h2ping),
                    definition->h2ping_use_tls);
}
