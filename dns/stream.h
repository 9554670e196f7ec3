/* The bytes of one client's connection, plain TCP or TLS: what it sends comes in as one slice of messages, and answers go
 * out. It does not wait and does not read the clock. The thread that owns the connection (tcp.c) decides when to read,
 * when to write and for how long.
 *
 * A turn: stream_receive or stream_resume gives the input; the caller appends answers to stream_answers and calls
 * stream_seal, then stream_flush; at the end it calls stream_keep with what it did not take. Between turns a connection
 * that asked for nothing holds no buffers of its own: all connections of a thread share a room. */
#ifndef COORD_DNS_STREAM_H
#define COORD_DNS_STREAM_H

#include "base/buffer.h"
#include "tls/context.h"
#include "tls/session.h"

/* Working space of a thread. Its contents are valid within one turn. Zero-initialise. */
struct stream_room {
    struct buffer in, plain, answers; /* in: as received; plain: decrypted; answers: to be encrypted */
};
void stream_room_free(struct stream_room *room);

struct stream {
    int fd;
    struct tls_slot *slot;       /* NULL: plain */
    struct tls_session *session; /* of the slot's context; NULL: plain, or the client has not sent anything yet */
    bool ended;                  /* no more will be received */
    struct buffer rest;          /* messages, or a part of one, that the caller did not take */
    struct buffer out;           /* plain: answers that the socket did not take yet */
    size_t out_sent, progress;   /* progress: bytes sent; the caller sets it back */
};

/* Takes the descriptor over. `slot` (NULL: plain) must outlive the stream. */
void stream_open(struct stream *stream, int fd, struct tls_slot *slot);
/* Says goodbye as far as the kernel takes it at once. */
void stream_close(struct stream *stream);

/* Is the connection ready for messages? Plain: always. */
bool stream_is_open(const struct stream *stream);
/* Answers or bytes of a handshake wait for the kernel. */
bool stream_waits(const struct stream *stream);

/* The outcome of stream_receive and of stream_flush. */
enum stream_state { STREAM_GOES_ON, STREAM_OVER /* to be closed */ };

/* Receives once, as much as there is, up to STREAM_RECEIVE bytes. *input is what was kept, and behind it what came; it
 * stays valid until the next call that takes the room. */
enum { STREAM_RECEIVE = 16 * 1024 };
enum stream_state stream_receive(struct stream *stream, struct stream_room *room, struct slice *input);
/* The same without receiving. */
void stream_resume(struct stream *stream, struct stream_room *room, struct slice *input);
/* Keeps what of the input was not taken; nothing is kept when the connection cannot be answered any more. */
void stream_keep(struct stream *stream, struct slice input);

/* Answers, each with its length, are appended here; only when stream_is_open. */
struct buffer *stream_answers(struct stream *stream, struct stream_room *room);
/* Encrypts them. Nothing for a plain connection. */
void stream_seal(struct stream *stream, struct stream_room *room);
/* Sends what waits, as far as the kernel takes it. */
enum stream_state stream_flush(struct stream *stream);

#endif
