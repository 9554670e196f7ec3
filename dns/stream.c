#include "dns/stream.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"

enum {
    PLAIN_KEPT = 256 * 1024, /* a buffer that answers made larger than this is given back */
    SECURE_KEPT = 16 * 1024, /* the same for TLS, where a session holds much memory besides */
};

void stream_room_free(struct stream_room *room) {
    buffer_free(&room->in);
    buffer_free(&room->plain);
    buffer_free(&room->answers);
}

void stream_open(struct stream *stream, int fd, struct tls_slot *slot) {
    *stream = (struct stream){.fd = fd, .slot = slot};
}

bool stream_is_open(const struct stream *stream) {
    if (!stream->slot) return true;
    enum tls_state state = stream->session ? tls_session_state(stream->session) : TLS_HANDSHAKE;
    return state == TLS_OPEN || state == TLS_ENDED;
}

static struct buffer *out_of(struct stream *stream) {
    return stream->session ? tls_session_out(stream->session) : &stream->out;
}

bool stream_waits(const struct stream *stream) {
    return stream->session ? tls_session_out(stream->session)->size > 0 : stream->out.size > 0;
}

void stream_close(struct stream *stream) {
    if (stream->session && !stream_waits(stream)) {
        tls_session_goodbye(stream->session);
        (void)stream_flush(stream);
    }
    close(stream->fd);
    tls_session_free(stream->session);
    buffer_free(&stream->rest);
    buffer_free(&stream->out);
}

/* -- in ----------------------------------------------------------------------------------------------------------- */

/* False: these first bytes are no TLS, and it gets no answer in a language that it does not speak. A session that was not
 * made does not cost anything either. */
static bool session_begin(struct stream *stream, struct slice bytes) {
    static const char *const protocols[] = {"dot", NULL};
    if (!tls_looks_like(bytes)) {
        log_debug("dns", "a client does not speak TLS to the port of DNS over TLS: closed");
        return false;
    }
    struct tls_context *context = tls_slot_get(stream->slot);
    if (!context) return false;
    struct tls_session_config config = {
        .server = true, .peer = TLS_PEER_UNASKED, .protocols = protocols, .protocol_optional = true};
    stream->session = tls_session_new(context, &config);
    tls_context_unref(context);
    return true;
}

static enum stream_state decrypt(struct stream *stream, struct slice bytes, struct buffer *plain) {
    if (bytes.size == 0) return STREAM_GOES_ON;
    if (!stream->session && !session_begin(stream, bytes)) return STREAM_OVER;
    enum tls_state state = tls_session_feed(stream->session, bytes, plain);
    if (state == TLS_FAILED) log_debug("dns", "TLS ended: %s", tls_session_why(stream->session));
    if (state == TLS_FAILED || state == TLS_ENDED) stream->ended = true;
    return STREAM_GOES_ON;
}

/* Puts what was kept into the room. */
static void unpack(struct stream *stream, struct buffer *into) {
    buffer_reset(into);
    if (stream->rest.size == 0) return;
    buffer_append(into, stream->rest.data, stream->rest.size);
    buffer_free(&stream->rest);
}

enum stream_state stream_receive(struct stream *stream, struct stream_room *room, struct slice *input) {
    struct buffer *in = &room->in;
    if (stream->slot) buffer_reset(in);
    else unpack(stream, in);
    buffer_reserve(in, STREAM_RECEIVE);
    ssize_t n;
    do n = recv(stream->fd, in->data + in->size, STREAM_RECEIVE, 0);
    while (n < 0 && errno == EINTR);
    if (n == 0) stream->ended = true;
    if (n < 0 && errno != EAGAIN) return STREAM_OVER;
    if (n > 0) in->size += (size_t)n;
    if (!stream->slot) {
        *input = buffer_slice(in);
        return STREAM_GOES_ON;
    }
    unpack(stream, &room->plain);
    enum stream_state state = decrypt(stream, buffer_slice(in), &room->plain);
    *input = buffer_slice(&room->plain);
    return state;
}

void stream_resume(struct stream *stream, struct stream_room *room, struct slice *input) {
    unpack(stream, &room->plain);
    *input = buffer_slice(&room->plain);
}

void stream_keep(struct stream *stream, struct slice input) {
    if (input.size > 0 && stream_is_open(stream)) buffer_append(&stream->rest, input.data, input.size);
}

/* -- out ---------------------------------------------------------------------------------------------------------- */

struct buffer *stream_answers(struct stream *stream, struct stream_room *room) {
    if (!stream->slot) return &stream->out;
    buffer_reset(&room->answers); /* another connection may have ended amid its answers */
    return &room->answers;
}

void stream_seal(struct stream *stream, struct stream_room *room) {
    if (!stream->slot || room->answers.size == 0) return;
    tls_session_write(stream->session, buffer_slice(&room->answers));
    buffer_reset(&room->answers);
}

enum stream_state stream_flush(struct stream *stream) {
    struct buffer *out = out_of(stream);
    while (stream->out_sent < out->size) {
        ssize_t n = send(stream->fd, out->data + stream->out_sent, out->size - stream->out_sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN ? STREAM_GOES_ON : STREAM_OVER;
        stream->out_sent += (size_t)n;
        stream->progress += (size_t)n;
    }
    stream->out_sent = 0;
    if (out->capacity > (stream->slot ? SECURE_KEPT : PLAIN_KEPT)) buffer_free(out);
    else buffer_reset(out);
    return STREAM_GOES_ON;
}
