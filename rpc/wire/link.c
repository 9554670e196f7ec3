#include "rpc/wire/link.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "base/check.h"
#include "base/memory.h"
#include "rpc/wire/link_internal.h"

#define HEAD        5
#define SHORT_BYTES (128 * 1024)
#define TRY_BYTES   (16 * 1024)
/* Whole records; so little that it stays in the processor's cache, and that its memory is used again and again. */
#define ENCRYPT_MOST  (16 * TLS_RECORD_MAX)
#define OUT_GONE_MOST (1u << 20)

static void let_go(const struct link *link, struct buffer *plain) {
    if (link->secret && plain->data) explicit_bzero(plain->data, plain->capacity);
    buffer_free(plain);
}

static void freed(uv_handle_t *handle) {
    struct link *link = handle->data;
    if (link->callbacks.closed) link->callbacks.closed(link->data, link, link->error);
    let_go(link, &link->in);
    let_go(link, &link->out);
    buffer_free(&link->sending);
    tls_session_free(link->session);
    free(link);
}

void link_end(struct link *link, int error) {
    if (link->closing) return;
    link_remote(link, link->remote);
    link->closing = true;
    link->error = error;
    if (link_is_secure(link)) link_secure_end(link);
    uv_close((uv_handle_t *)&link->tcp, freed);
}

void link_end_io(struct link *link, int cause) {
    if (!link->closing) link->cause = cause;
    link_end(link, CO_IO);
}

void link_close(struct link *link) { link_end(link, CO_CLOSED); }

void link_keep_secret(struct link *link) { link->secret = true; }

void link_limit(struct link *link, uint32_t frame_max) { link->frame_max = frame_max; }

/* -- in ----------------------------------------------------------------------------------------------------------- */
static void allocate(uv_handle_t *handle, size_t suggested, uv_buf_t *room) {
    struct link *link = handle->data;
    (void)suggested;
    size_t want = LINK_READ_ROOM;
    if (link_is_secure(link)) { /* until they are decrypted */
        *room = uv_buf_init(mem_alloc(want), (unsigned)want);
        return;
    }
    if (link->in.size >= HEAD) { /* a frame is under way, its size was checked: make room for the rest at once */
        uint32_t size;
        memcpy(&size, link->in.data, 4);
        if (HEAD + (size_t)size > link->in.size + want) want = HEAD + (size_t)size - link->in.size;
    }
    buffer_reserve(&link->in, want);
    *room = uv_buf_init(link->in.data + link->in.size, (unsigned)(link->in.capacity - link->in.size));
}

void link_take_frames(struct link *link) {
    size_t at = 0;
    while (!link->closing && link->in.size - at >= HEAD) {
        uint32_t size = get_le32(link->in.data + at);
        if (size > link->frame_max) {
            if (!link->session && link->received == link->in.size && tls_looks_like(buffer_slice(&link->in)))
                link->why = "it wants an encrypted connection, and plain ones only are taken here";
            link_end(link, CO_TOOLARGE);
            return;
        }
        if (link->in.size - at < HEAD + (size_t)size) break;
        uint8_t type = (uint8_t)link->in.data[at + 4];
        link->callbacks.frame(link->data, link, type, slice_make(link->in.data + at + HEAD, size));
        at += HEAD + (size_t)size;
    }
    if (at > 0) memmove(link->in.data, link->in.data + at, link->in.size - at);
    link->in.size -= at;
    if (link->in.size == 0 && link->in.capacity > 4 * LINK_READ_ROOM) buffer_free(&link->in); /* after a big one */
}

static void arrived(uv_stream_t *stream, ssize_t size, const uv_buf_t *room) {
    struct link *link = stream->data;
    char *encrypted = link_is_secure(link) ? room->base : NULL;
    if (size < 0) {
        link_end_io(link, (int)size);
    } else if (encrypted) {
        link->received += (uint64_t)size;
        if (size > 0) link_secure_arrived(link, slice_make(encrypted, (size_t)size));
    } else {
        link->in.size += (size_t)size;
        link->received += (uint64_t)size;
        link_take_frames(link);
    }
    free(encrypted);
}

void link_read(struct link *link, bool reads) {
    link->paused = !reads;
    if (!reads) uv_read_stop((uv_stream_t *)&link->tcp);
    else if (uv_read_start((uv_stream_t *)&link->tcp, allocate, arrived) != 0) link_end(link, CO_IO);
}

static void start_reading(struct link *link) {
    link->stands = true;
    uv_tcp_nodelay(&link->tcp, 1);
    uv_tcp_keepalive(&link->tcp, 1, 10);
    link_read(link, true);
}

/* -- out ---------------------------------------------------------------------------------------------------------- */
struct buffer *link_frame_begin(struct link *link, uint8_t type) {
    link->frame_at = link->out.size;
    buffer_reserve(&link->out, HEAD);
    link->out.data[link->out.size + 4] = (char)type;
    link->out.size += HEAD;
    return &link->out;
}

void link_frame_end(struct link *link) {
    size_t size = link->out.size - link->frame_at - HEAD;
    CHECK(size <= LINK_FRAME_MAX);
    put_le32(link->out.data + link->frame_at, (uint32_t)size);
}

void link_tell(struct link *link, uint8_t type, const ProtobufCMessage *message) {
    struct buffer *out = link_frame_begin(link, type);
    size_t size = protobuf_c_message_get_packed_size(message);
    buffer_reserve(out, size);
    protobuf_c_message_pack(message, (uint8_t *)out->data + out->size);
    out->size += size;
    link_frame_end(link);
}

void link_send(struct link *link, uint8_t type, struct slice payload) {
    buffer_append(link_frame_begin(link, type), payload.data, payload.size);
    link_frame_end(link);
}

static void sent(struct link *link) {
    if (link->sending.capacity > (1 << 20)) buffer_free(&link->sending);
}

static void written(uv_write_t *write, int status) {
    struct link *link = write->data;
    link->writing = false;
    sent(link);
    if (link->closing) return;
    if (status != 0) {
        link_end_io(link, status);
        return;
    }
    link_flush(link);
    if (!link->writing && !link->closing && link->connected && link->callbacks.drained)
        link->callbacks.drained(link->data, link);
}

/* Writes at once as much as the kernel takes, because a write request of libuv costs two more system calls and a turn
 * of the loop. When there is much and `drained` is wanted, a request is used, so that `drained` is called. */
static int try_now(struct link *link, size_t *taken) {
    uv_buf_t bytes = uv_buf_init(link->sending.data, (unsigned)link->sending.size);
    *taken = 0;
    if (link->callbacks.drained && link->sending.size > TRY_BYTES) return 0;
    int rv = uv_try_write((uv_stream_t *)&link->tcp, &bytes, 1);
    if (rv > 0) *taken = (size_t)rv;
    return rv == UV_EAGAIN || rv > 0 ? 0 : rv;
}

/* Encrypts the next part of what is queued. Bytes that a session takes no more, because it has ended, go with the link. */
static void encrypt(struct link *link) {
    size_t left = link->out.size - link->out_at, part = left < ENCRYPT_MOST ? left : ENCRYPT_MOST;
    if (!link->connected || left == 0 || tls_session_state(link->session) != TLS_OPEN) return;
    tls_session_write(link->session, slice_make(link->out.data + link->out_at, part));
    if (link->secret) explicit_bzero(link->out.data + link->out_at, part);
    link->out_at += part;
    if (left > part && (link->out_at < OUT_GONE_MOST || link->out_at < left - part)) return; /* rarely moved */
    if (left > part) memmove(link->out.data, link->out.data + link->out_at, left - part);
    link->out.size = left - part, link->out_at = 0;
    if (link->out.size == 0 && link->out.capacity > OUT_GONE_MOST) buffer_free(&link->out);
}

/* Makes what can go the bytes that are sent. */
static bool gather(struct link *link) {
    struct buffer *from = &link->out, empty = link->sending;
    if (link->session) {
        encrypt(link);
        from = tls_session_out(link->session);
    } else if (!link->connected) {
        return false;
    }
    if (from->size == 0) return false;
    link->sending = *from;
    *from = empty;
    from->size = 0;
    link->flushed += link->sending.size;
    return true;
}

static void send_gathered(struct link *link) {
    size_t taken;
    int rv = try_now(link, &taken);
    if (rv == 0 && taken < link->sending.size) {
        uv_buf_t bytes = uv_buf_init(link->sending.data + taken, (unsigned)(link->sending.size - taken));
        link->write.data = link;
        link->writing = true;
        rv = uv_write(&link->write, (uv_stream_t *)&link->tcp, &bytes, 1, written);
        if (rv != 0) link->writing = false;
    } else if (rv == 0) {
        sent(link);
    }
    if (rv != 0) link_end_io(link, rv);
}

void link_flush(struct link *link) {
    while (!link->writing && !link->closing && link->stands && gather(link)) send_gathered(link);
    if (link->session && tls_session_state(link->session) == TLS_FAILED) link_end(link, CO_DENIED);
}

size_t link_backlog(const struct link *link) {
    return link->out.size - link->out_at + (link->writing ? link->sending.size : 0);
}

void link_keep_short(struct link *link) {
    int fd, bytes = SHORT_BYTES;
    if (uv_fileno((uv_handle_t *)&link->tcp, &fd) == 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
}

bool link_heard(const struct link *link, uint64_t *received) {
    bool more = link->received != *received;
    *received = link->received;
    return more;
}

uint64_t link_queued(const struct link *link) {
    size_t waits = link->out.size - link->out_at, records = (waits + TLS_RECORD_MAX - 1) / TLS_RECORD_MAX;
    if (!link->session) return link->flushed + waits;
    return link->flushed + waits + records * TLS_RECORD_OVERHEAD + tls_session_out(link->session)->size;
}

uint64_t link_delivered(const struct link *link) {
    int fd, waits = 0;
    if (uv_fileno((const uv_handle_t *)&link->tcp, &fd) != 0 || ioctl(fd, SIOCOUTQ, &waits) != 0) return 0;
    return link->flushed - uv_stream_get_write_queue_size((const uv_stream_t *)&link->tcp) - (uint64_t)waits;
}

/* -- life --------------------------------------------------------------------------------------------------------- */
static struct link *link_new(uv_loop_t *loop, const struct link_callbacks *callbacks, void *data) {
    struct link *link = mem_zalloc(sizeof *link);
    link->callbacks = *callbacks;
    link->data = data;
    link->frame_max = LINK_FRAME_MAX;
    CHECK(uv_tcp_init(loop, &link->tcp) == 0);
    link->tcp.data = link;
    return link;
}

void link_go(struct link *link) {
    link->connected = true;
    if (link->callbacks.connected) link->callbacks.connected(link->data, link);
    link_take_frames(link);
    link_flush(link);
}

static void on_connect(uv_connect_t *connect, int status) {
    struct link *link = connect->data;
    if (link->closing) return;
    if (status != 0) {
        link_end_io(link, status);
        return;
    }
    start_reading(link);
    if (link->closing) return;
    if (link->session) link_secure_stands(link);
    else link_go(link);
}

struct link *link_dial(uv_loop_t *loop, const struct sockaddr *to, const struct sockaddr *from,
                       const struct link_security *security, const struct link_callbacks *callbacks, void *data) {
    struct link *link = link_new(loop, callbacks, data);
    link->dialled = true;
    link->connect.data = link;
    int rv = from ? uv_tcp_bind(&link->tcp, from, 0) : 0;
    if (rv == 0) rv = uv_tcp_connect(&link->connect, &link->tcp, to, on_connect);
    if (rv != 0) link_end_io(link, rv);
    else if (security) link_secure_dial(link, security);
    return link;
}

struct link *link_accept(uv_stream_t *server, const struct link_security *security,
                         const struct link_callbacks *callbacks, void *data) {
    struct link *link = link_new(server->loop, callbacks, data);
    if (uv_accept(server, (uv_stream_t *)&link->tcp) != 0) {
        link->callbacks.closed = NULL;
        link_end(link, CO_IO);
        return NULL;
    }
    if (security) link_secure_accept(link, security);
    else link->connected = true;
    start_reading(link);
    return link;
}

void link_adopt(struct link *link, const struct link_callbacks *callbacks, void *data) {
    link->callbacks = *callbacks;
    link->data = data;
}

bool link_dialled(const struct link *link) { return link->dialled; }
int link_cause(const struct link *link) { return link->cause; }

void link_remote(const struct link *link, char text[64]) {
    if (link->closing) { /* the socket is gone */
        snprintf(text, 64, "%s", link->remote);
        return;
    }
    struct sockaddr_storage address = {0};
    int size = sizeof address;
    char ip[48] = "?";
    uint16_t port = 0;
    if (uv_tcp_getpeername(&link->tcp, (struct sockaddr *)&address, &size) == 0) {
        if (address.ss_family == AF_INET6) {
            uv_ip6_name((struct sockaddr_in6 *)&address, ip, sizeof ip);
            port = ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
        } else {
            uv_ip4_name((struct sockaddr_in *)&address, ip, sizeof ip);
            port = ntohs(((struct sockaddr_in *)&address)->sin_port);
        }
    }
    snprintf(text, 64, address.ss_family == AF_INET6 ? "[%s]:%u" : "%s:%u", ip, port);
}
