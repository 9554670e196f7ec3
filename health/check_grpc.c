/* gRPC checks: healthy when grpc.health.v1.Health/Check says SERVING. The target is "host:port" (the server as a
 * whole) or "host:port/service". */
#include <inttypes.h>
#include <stdlib.h>

#include "base/check.h"
#include "health/check_h2.h"
#include "health/grpc_answer.h"
#include "health/grpc_health.pb-c.h"

struct grpc_run {
    struct h2_run h2;
    struct buffer request; /* prefix and message */
    size_t request_sent;
    char *target, *authority;
    int32_t stream;
    struct grpc_answer answer;
};

/* -- the request -------------------------------------------------------------------------------------------------- */

static ssize_t read_request(nghttp2_session *session, int32_t stream, uint8_t *to, size_t size, uint32_t *flags,
                            nghttp2_data_source *source, void *data) {
    struct grpc_run *grpc = source->ptr;
    size_t left = grpc->request.size - grpc->request_sent, part = left < size ? left : size;
    (void)session, (void)stream, (void)data;
    memcpy(to, grpc->request.data + grpc->request_sent, part);
    grpc->request_sent += part;
    if (part == left) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)part;
}

static nghttp2_nv field(const char *name, const char *value) {
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name), strlen(value),
                        NGHTTP2_NV_FLAG_NONE};
}

static int grpc_begin(struct h2_run *h2) {
    struct grpc_run *grpc = (struct grpc_run *)h2;
    char timeout[24];
    if (h2->net.timeout_ms < 100000000) { /* eight digits at most */
        snprintf(timeout, sizeof timeout, "%" PRIu64 "m", h2->net.timeout_ms);
    } else {
        snprintf(timeout, sizeof timeout, "%" PRIu64 "H", h2->net.timeout_ms / 3600000 % 100000000);
    }
    const nghttp2_nv fields[] = {
        field(":method", "POST"),
        field(":scheme", h2->tls ? "https" : "http"),
        field(":path", "/grpc.health.v1.Health/Check"),
        field(":authority", grpc->authority),
        field("content-type", "application/grpc"),
        field("user-agent", "Consul Health Check"),
        field("te", "trailers"),
        field("grpc-timeout", timeout),
    };
    const nghttp2_data_provider body = {.source.ptr = grpc, .read_callback = read_request};
    grpc->stream = nghttp2_submit_request(h2->session, NULL, fields, ARRAY_COUNT(fields), &body, NULL);
    return grpc->stream;
}

static void make_request(struct grpc_run *grpc, const char *service) {
    Pb__GrpcHealthRequest message = PB__GRPC_HEALTH_REQUEST__INIT;
    message.service = (char *)(uintptr_t)service;
    size_t size = pb__grpc_health_request__get_packed_size(&message);
    buffer_reserve(&grpc->request, GRPC_PREFIX_SIZE + size);
    grpc->request.data[0] = 0; /* not compressed */
    put_be32(grpc->request.data + 1, (uint32_t)size);
    pb__grpc_health_request__pack(&message, (uint8_t *)grpc->request.data + GRPC_PREFIX_SIZE);
    grpc->request.size = GRPC_PREFIX_SIZE + size;
}

/* -- the answer --------------------------------------------------------------------------------------------------- */

static void conclude(struct grpc_run *grpc) {
    struct buffer text = {0};
    bool serves = grpc_answer_judge(&grpc->answer, grpc->target, &text);
    h2_decide(&grpc->h2, serves ? PB__STATUS__PASSING : PB__STATUS__CRITICAL, "%.*s", (int)text.size, text.data);
    buffer_free(&text);
}

static void grpc_header(struct h2_run *h2, int32_t stream, struct slice name, struct slice value) {
    struct grpc_run *grpc = (struct grpc_run *)h2;
    if (stream == grpc->stream) grpc_answer_header(&grpc->answer, name, value);
}

static void grpc_data(struct h2_run *h2, int32_t stream, struct slice bytes) {
    struct grpc_run *grpc = (struct grpc_run *)h2;
    if (stream != grpc->stream) return;
    grpc_answer_data(&grpc->answer, bytes);
    if (grpc_answer_is_hopeless(&grpc->answer)) conclude(grpc);
}

/* The attempt ends with the server's side of the stream, even if our side has not been sent by then. */
static void grpc_frame(struct h2_run *h2, const nghttp2_frame *frame) {
    struct grpc_run *grpc = (struct grpc_run *)h2;
    bool ends = (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
                (frame->hd.flags & NGHTTP2_FLAG_END_STREAM);
    if (ends && frame->hd.stream_id == grpc->stream) conclude(grpc);
}

/* The stream was reset before the answer had ended: by the server, or by nghttp2 because of a wrong frame. */
static void grpc_stream_closed(struct h2_run *h2, int32_t stream, uint32_t error_code) {
    struct grpc_run *grpc = (struct grpc_run *)h2;
    struct buffer text = {0};
    if (stream != grpc->stream || h2->decided) return;
    grpc_error_begin(&text, grpc_code_of_reset(error_code));
    if (h2->complaint.code != CO_OK) {
        buffer_append_text(&text, h2->complaint.text);
    } else {
        buffer_printf(&text, "stream terminated by RST_STREAM with error code: %s", nghttp2_http2_strerror(error_code));
    }
    h2_decide(h2, PB__STATUS__CRITICAL, "%.*s", (int)text.size, text.data);
    buffer_free(&text);
}

static void grpc_describe(struct h2_run *h2, struct buffer *text) {
    const struct fault *fault = &h2->net.fault;
    if (fault->code == CO_TIMEOUT) {
        grpc_error_begin(text, GRPC_DEADLINE_EXCEEDED);
        buffer_printf(text, "context deadline exceeded (%s)", fault->text);
    } else if (fault->code == CO_TOOLARGE) {
        grpc_error_begin(text, GRPC_RESOURCE_EXHAUSTED);
        buffer_append_text(text, fault->text);
    } else if (h2->session) {
        grpc_error_begin(text, GRPC_UNAVAILABLE);
        buffer_printf(text, "transport is closing: %s", fault->text);
    } else {
        grpc_error_begin(text, GRPC_UNAVAILABLE);
        buffer_printf(text, "connection error: desc = \"transport: %s%s\"",
                      h2->tcp ? "authentication handshake failed: " : "Error while dialing ", fault->text);
    }
}

static void grpc_free(struct h2_run *h2) {
    struct grpc_run *grpc = (struct grpc_run *)h2;
    buffer_free(&grpc->request);
    free(grpc->target);
    free(grpc->authority);
    free(grpc);
}

static const struct h2_kind grpc_kind = {grpc_begin,         grpc_frame,    grpc_header, grpc_data,
                                         grpc_stream_closed, grpc_describe, grpc_free};

/* -- the beginning ------------------------------------------------------------------------------------------------ */

static char *authority_of(const struct check_definition *definition, struct slice server) {
    struct buffer text = {0};
    if (definition->grpc_use_tls && *definition->tls_server_name) {
        buffer_append_text(&text, definition->tls_server_name);
    } else {
        if (server.size > 0 && server.data[0] == ':') buffer_append_text(&text, "localhost");
        buffer_append(&text, server.data, server.size);
    }
    buffer_append_byte(&text, '\0');
    return buffer_take(&text, NULL);
}

struct run *run_grpc_start(struct runners *runners, const struct check_definition *definition) {
    struct grpc_run *grpc = mem_zalloc(sizeof *grpc);
    const char *slash = strchr(definition->grpc, '/');
    size_t server_size = slash ? (size_t)(slash - definition->grpc) : strlen(definition->grpc);
    struct slice server = slice_make(definition->grpc, server_size);
    grpc->target = mem_strdup(definition->grpc);
    grpc->authority = authority_of(definition, server);
    make_request(grpc, slash ? slash + 1 : "");
    return h2_start(&grpc->h2, &grpc_kind, runners, definition, server, definition->grpc_use_tls);
}
