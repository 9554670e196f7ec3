#include "health/check_h2.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/check.h"

#define OUT_MOST          ((size_t)32 << 10) /* made ahead of being written */
#define OUTBOUND_ACK_MOST 64                 /* answers to PING and SETTINGS that wait to be sent */

/* -- the end ------------------------------------------------------------------------------------------------------ */

void h2_decide(struct h2_run *h2, Pb__Status status, const char *format, ...) {
    char text[512];
    va_list arguments;
    if (h2->decided) return;
    h2->decided = true;
    h2->status = status;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    buffer_append_text(&h2->output, text);
}

static void h2_fail(struct net_run *net) {
    struct h2_run *h2 = (struct h2_run *)net;
    struct buffer text = {0};
    if (net->over) return;
    h2->kind->describe(h2, &text);
    net_end(net, PB__STATUS__CRITICAL, buffer_slice(&text));
    buffer_free(&text);
}

static void h2_late(struct net_run *net) {
    fault_set(&net->fault, CO_TIMEOUT, "no answer within %" PRIu64 " ms", net->timeout_ms);
    h2_fail(net);
}

/* When no write is under way, sends GOAWAY and TLS's close_notify, as far as the socket takes them at once. */
static void say_goodbye(struct h2_run *h2) {
    const uint8_t *bytes;
    ssize_t size;
    if (h2->writing || nghttp2_session_terminate_session(h2->session, NGHTTP2_NO_ERROR) != 0) return;
    while (h2->out.size < OUT_MOST && (size = nghttp2_session_mem_send(h2->session, &bytes)) > 0) {
        if (!h2->tls) {
            buffer_append(&h2->out, bytes, (size_t)size);
        } else if (tls_send(h2->tls, slice_make(bytes, (size_t)size), &h2->out, NULL) != CO_OK) {
            return;
        }
    }
    if (h2->tls) tls_goodbye(h2->tls, &h2->out);
    uv_buf_t buffer = uv_buf_init(h2->out.data, (unsigned)h2->out.size);
    if (h2->out.size > 0) (void)uv_try_write((uv_stream_t *)h2->tcp, &buffer, 1);
}

static void h2_close(struct net_run *net) {
    struct h2_run *h2 = (struct h2_run *)net;
    net_connect_close(&h2->connect);
}

static void h2_free(struct net_run *net) {
    struct h2_run *h2 = (struct h2_run *)net;
    nghttp2_session_del(h2->session);
    tls_free(h2->tls);
    free(h2->server_name);
    buffer_free(&h2->plain);
    buffer_free(&h2->out);
    buffer_free(&h2->flying);
    buffer_free(&h2->output);
    h2->kind->free(h2);
}

static const struct net_kind net_kind_h2 = {h2_late, h2_fail, h2_close, h2_free};

/* -- nghttp2 ------------------------------------------------------------------------------------------------------ */

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *data) {
    struct h2_run *h2 = data;
    (void)session;
    if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR)
        fault_set(&h2->complaint, CO_CLOSED, "the server says GOAWAY: %s",
                  nghttp2_http2_strerror(frame->goaway.error_code));
    h2->kind->frame(h2, frame);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_size,
                     const uint8_t *value, size_t value_size, uint8_t flags, void *data) {
    struct h2_run *h2 = data;
    (void)session, (void)flags;
    h2->header_size += name_size + value_size + 32; /* as RFC 9113, section 6.5.2 counts */
    if (h2->header_size > H2_HEADERS_MOST) {
        fault_set(&h2->net.fault, CO_TOOLARGE, "the server sends more than %zu bytes of header fields",
                  H2_HEADERS_MOST);
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    if (h2->kind->header)
        h2->kind->header(h2, frame->hd.stream_id, slice_make(name, name_size), slice_make(value, value_size));
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *bytes, size_t size,
                   void *data) {
    struct h2_run *h2 = data;
    (void)session, (void)flags;
    if (h2->kind->data) h2->kind->data(h2, stream, slice_make(bytes, size));
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream, uint32_t error_code, void *data) {
    struct h2_run *h2 = data;
    (void)session;
    if (h2->kind->stream_closed) h2->kind->stream_closed(h2, stream, error_code);
    return 0;
}

static int on_complaint(nghttp2_session *session, int code, const char *text, size_t size, void *data) {
    struct h2_run *h2 = data;
    (void)session, (void)code;
    fault_set(&h2->complaint, CO_INVALID, "%.*s", (int)(size > 200 ? 200 : size), text);
    return 0;
}

static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int code, void *data) {
    struct h2_run *h2 = data;
    (void)session, (void)frame;
    fault_set(&h2->complaint, CO_INVALID, "the server sends an invalid frame: %s", nghttp2_strerror(code));
    return 0;
}

static void new_session(struct h2_run *h2) {
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    CHECK(nghttp2_session_callbacks_new(&callbacks) == 0 && nghttp2_option_new(&option) == 0);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_error_callback2(callbacks, on_complaint);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
    nghttp2_option_set_max_outbound_ack(option, OUTBOUND_ACK_MOST);
    nghttp2_option_set_no_closed_streams(option, 1);
    CHECK(nghttp2_session_client_new2(&h2->session, callbacks, h2, option) == 0);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, H2_HEADERS_MOST},
    };
    CHECK(nghttp2_submit_settings(h2->session, NGHTTP2_FLAG_NONE, settings, ARRAY_COUNT(settings)) == 0);
}

/* -- bytes -------------------------------------------------------------------------------------------------------- */

static void pump(struct h2_run *h2);

static void on_written(uv_write_t *write, int status) {
    struct h2_run *h2 = write->data;
    h2->writing = false;
    if (!h2->net.over) {
        if (status == 0) {
            pump(h2);
        } else {
            fault_set(&h2->net.fault, CO_IO, "write tcp: %s", uv_strerror(status));
            h2_fail(&h2->net);
        }
    }
    net_release(&h2->net);
}

/* Takes the bytes that nghttp2 wants to send; sets a fault when that fails. */
static void gather(struct h2_run *h2) {
    while (h2->session && h2->out.size < OUT_MOST) {
        const uint8_t *bytes;
        ssize_t size = nghttp2_session_mem_send(h2->session, &bytes);
        if (size == 0) return;
        if (size < 0) {
            fault_set(&h2->net.fault, CO_IO, "http2: %s", nghttp2_strerror((int)size));
            return;
        }
        if (!h2->tls) {
            buffer_append(&h2->out, bytes, (size_t)size);
        } else if (tls_send(h2->tls, slice_make(bytes, (size_t)size), &h2->out, &h2->net.fault) != CO_OK) {
            return;
        }
    }
}

/* Writes what waits, one piece at a time. */
static void pump(struct h2_run *h2) {
    if (h2->writing) return;
    gather(h2);
    if (h2->net.fault.code != CO_OK) {
        h2_fail(&h2->net);
        return;
    }
    if (h2->out.size == 0) return;
    struct buffer empty = h2->flying;
    h2->flying = h2->out;
    h2->out = empty;
    buffer_reset(&h2->out);
    uv_buf_t buffer = uv_buf_init(h2->flying.data, (unsigned)h2->flying.size);
    h2->write.data = h2;
    int error = uv_write(&h2->write, (uv_stream_t *)h2->tcp, &buffer, 1, on_written);
    if (error == 0) {
        h2->writing = true;
        net_hold(&h2->net);
    } else {
        fault_set(&h2->net.fault, CO_IO, "write tcp: %s", uv_strerror(error));
        h2_fail(&h2->net);
    }
}

/* The connection speaks HTTP/2 from here on. */
static void begin(struct h2_run *h2) {
    new_session(h2);
    int error = h2->kind->begin(h2);
    if (error < 0) fault_set(&h2->net.fault, CO_INVALID, "http2: %s", nghttp2_strerror(error));
}

static void hear(struct h2_run *h2, struct slice bytes) {
    struct fault *fault = &h2->net.fault;
    if (bytes.size == 0 || fault->code != CO_OK) return;
    ssize_t taken = nghttp2_session_mem_recv(h2->session, (const uint8_t *)bytes.data, bytes.size);
    if (taken < 0) {
        fault_set(fault, CO_IO, "http2: %s", h2->complaint.code ? h2->complaint.text : nghttp2_strerror((int)taken));
    }
}

static void unwrap(struct h2_run *h2, struct slice bytes) {
    struct fault *fault = &h2->net.fault;
    buffer_reset(&h2->plain);
    int rv = tls_receive(h2->tls, bytes, &h2->plain, &h2->out, fault);
    if (!h2->session && tls_ready(h2->tls)) begin(h2);
    if (h2->session) hear(h2, buffer_slice(&h2->plain));
    if (rv == CO_CLOSED && !h2->decided) fault_set(fault, CO_CLOSED, "the server closed the connection");
}

/* After bytes have come: reports the result if it is decided, or else goes on. */
static void go_on(struct h2_run *h2) {
    if (h2->decided) {
        say_goodbye(h2);
        net_end(&h2->net, h2->status, buffer_slice(&h2->output));
        return;
    }
    if (h2->net.fault.code != CO_OK) {
        h2_fail(&h2->net);
        return;
    }
    pump(h2);
    if (h2->net.over || !h2->session || nghttp2_session_want_read(h2->session)) return;
    fault_set(&h2->net.fault, CO_CLOSED, "http2: %s",
              h2->complaint.code ? h2->complaint.text : "the server ends the connection");
    h2_fail(&h2->net);
}

static void on_room(uv_handle_t *handle, size_t size, uv_buf_t *buffer) {
    struct h2_run *h2 = handle->data;
    (void)size;
    *buffer = uv_buf_init(h2->read, sizeof h2->read);
}

static void on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *buffer) {
    struct h2_run *h2 = stream->data;
    struct fault *fault = &h2->net.fault;
    if (got == 0 || h2->net.over) return;
    if (got < 0) {
        if (h2->complaint.code != CO_OK) fault_set(fault, CO_CLOSED, "http2: %s", h2->complaint.text);
        fault_set(fault, CO_CLOSED, "%s", got == UV_EOF ? "the server closed the connection" : uv_strerror((int)got));
        h2_fail(&h2->net);
        return;
    }
    h2->received += (size_t)got;
    struct slice bytes = slice_make(buffer->base, (size_t)got);
    if (h2->received > H2_RECEIVE_MOST) {
        fault_set(fault, CO_TOOLARGE, "the server sends more than %zu bytes", H2_RECEIVE_MOST);
    } else if (h2->tls) {
        unwrap(h2, bytes);
    } else {
        hear(h2, bytes);
    }
    go_on(h2);
}

/* -- the beginning ------------------------------------------------------------------------------------------------ */

static void on_connected(struct net_connect *connect, uv_tcp_t *tcp) {
    struct h2_run *h2 = CONTAINER_OF(connect, struct h2_run, connect);
    h2->tcp = tcp;
    tcp->data = h2;
    (void)uv_tcp_nodelay(tcp, 1);
    int error = uv_read_start((uv_stream_t *)tcp, on_room, on_read);
    if (error != 0) fault_set(&h2->net.fault, CO_IO, "read tcp: %s", uv_strerror(error));
    if (h2->server_name) {
        h2->tls = tls_new(h2->server_name, h2->skip_verify);
        (void)tls_receive(h2->tls, slice_make(NULL, 0), &h2->plain, &h2->out, &h2->net.fault);
    } else {
        begin(h2);
    }
    go_on(h2);
}

struct run *h2_start(struct h2_run *h2, const struct h2_kind *kind, struct runners *runners,
                     const struct check_definition *definition, struct slice target, bool use_tls) {
    struct net_run *net = &h2->net;
    h2->kind = kind;
    net_begin(net, &net_kind_h2, runners, definition->timeout_ns);
    if (net_target_parse(&h2->target, "tcp", target, &net->fault) != CO_OK) {
        net_fail_soon(net);
        return &net->run;
    }
    h2->skip_verify = definition->tls_skip_verify;
    if (use_tls)
        h2->server_name = mem_strdup(*definition->tls_server_name ? definition->tls_server_name : h2->target.host);
    net_connect_start(&h2->connect, net, &h2->target, on_connected);
    return &net->run;
}
