/* A framed connection between two processes of one cluster: TCP on the loop, with lengths checked before memory is
 * taken, plain or encrypted (struct link_security). rpc/cluster/peers.h gives the frames their meaning.
 *
 * A frame: payload size (4 bytes, little-endian), type (1 byte), payload.
 *
 * An encrypted link shakes hands first. Frames that are queued before that wait. A handshake that is not over within
 * LINK_HANDSHAKE_MS, by a timer of the link, ends it (CO_TIMEOUT); the time that an accepted link waits for its turn
 * (rpc/wire/handshakes.h) does not count. A refusal by TLS or by the peer rule ends the link with CO_DENIED; link_why says
 * why. Loop thread only. */
#ifndef COORD_RPC_LINK_H
#define COORD_RPC_LINK_H

#include <protobuf-c/protobuf-c.h>
#include <sys/socket.h>
#include <uv.h>

#include "base/buffer.h"
#include "base/error.h"
#include "rpc/wire/handshakes_run.h"
#include "tls/session.h"

#define LINK_FRAME_MAX    (16u << 20)
#define LINK_HANDSHAKE_MS 10000

struct link;
struct link_callbacks {
    /* A whole frame; the payload is valid during the call. The link may be closed from here. */
    void (*frame)(void *data, struct link *link, uint8_t type, struct slice payload);
    /* Frames can go: the connection is established and the handshake, if there is one, over. For dialled links, and for
     * those that were accepted with a link_security: for these no frame is handed over before. May be NULL. (The side that
     * was dialled judges this side's certificate last: its refusal may come after this.) */
    void (*connected)(void *data, struct link *link);
    /* It ended by itself (CO_IO, CO_TIMEOUT, CO_CORRUPT: not our protocol, CO_TOOLARGE, CO_DENIED) or by link_close
     * (CO_CLOSED). Called exactly once; the link is freed when it returns. */
    void (*closed)(void *data, struct link *link, int error);
    /* The kernel has taken the queued bytes, 16 KiB or more at once: there is room for more. May be NULL. */
    void (*drained)(void *data, struct link *link);
};

/* How a link is encrypted. A link keeps the context that it began with. */
struct link_security {
    struct tls_slot *slot;             /* its context of the moment; empty: no handshake is possible */
    struct tls_context *context;       /* where there is no slot */
    struct tls_session_config session; /* protocols, peer rule, host, psk; `server` is set here */
    /* The others are for accepted links. */
    /* Takes both: the first bytes show what it is (tls_looks_like), if a plain side's first frame has less than 64 KiB. */
    bool allow_plain;
    /* Otherwise a plain side is answered with this frame, not encrypted, so that it can log why, and the link ends
     * (CO_DENIED). `refusal` NULL: it ends without an answer. */
    uint8_t refusal_type;
    const char *refusal;
    /* Bounds the handshakes of all that are accepted with it. NULL: no bound. */
    struct handshakes_run *handshakes;
};

/* Dials `to` from `from` (NULL: any address). `data` goes to the callbacks. `security` is copied; NULL: plain. */
struct link *link_dial(uv_loop_t *loop, const struct sockaddr *to, const struct sockaddr *from,
                       const struct link_security *security, const struct link_callbacks *callbacks, void *data);
/* Takes a connection that waits at `server`. NULL when there is none after all. The caller keeps `security` until the link
 * is connected or closed, as long as it listens in short; NULL: plain. */
struct link *link_accept(uv_stream_t *server, const struct link_security *security,
                         const struct link_callbacks *callbacks, void *data);
/* Gives the link a new owner; frames that are here already go there, too. */
void link_adopt(struct link *link, const struct link_callbacks *callbacks, void *data);
void link_close(struct link *link); /* `closed` comes later, from the loop */

/* A larger frame ends the link (CO_TOOLARGE) before memory is taken for it; LINK_FRAME_MAX unless said, and at most. */
void link_limit(struct link *link, uint32_t frame_max);

/* Frames of this encrypted link have keys in them: they are overwritten in memory once they are sent or taken. */
void link_keep_secret(struct link *link);

/* Queues a frame. Nothing goes out before link_flush, so that a turn's frames share a write. */
void link_send(struct link *link, uint8_t type, struct slice payload);
void link_tell(struct link *link, uint8_t type, const ProtobufCMessage *message);
/* The same in place: begin, append to the buffer, end. */
struct buffer *link_frame_begin(struct link *link, uint8_t type);
void link_frame_end(struct link *link);
void link_flush(struct link *link);
/* Bytes not yet taken by the kernel. Of an encrypted link those that wait are counted as they are, those that libuv has
 * as they are sent, which is at most 22 bytes more for each flush and 16 KiB. */
size_t link_backlog(const struct link *link);
/* Lets the kernel keep only little unsent data, so that a frame that is queued now does not wait long behind earlier
 * ones. For links that urgent frames share with bulk. */
void link_keep_short(struct link *link);
/* Have bytes arrived since the last call? Those of a large frame that is not whole yet are a sign of life too, and those
 * of a handshake. *received: 0 at first, then the count at the last call. */
bool link_heard(const struct link *link, uint64_t *received);
/* Counted since the link began, frames' heads included: bytes queued; bytes that the other side's kernel has
 * acknowledged (a system call). Both count the bytes of the network: of an encrypted link its handshake too, and what
 * waits with the bytes that encryption will add. So what was queued at a moment is delivered when link_delivered has come
 * to what link_queued was, and both are equal when everything is delivered. */
uint64_t link_queued(const struct link *link);
uint64_t link_delivered(const struct link *link);
bool link_dialled(const struct link *link);
/* The other side's certificate as it was judged. NULL: none (plain, by PSK, not asked). As long as the link. */
const struct tls_certificate *link_peer(const struct link *link);
const char *link_protocol(const struct link *link);  /* ALPN; NULL: none. As long as the link */
bool link_shakes(const struct link *link);           /* the other side is there, the handshake is under way */
bool link_encrypted(const struct link *link);        /* false before `connected` */
struct tls_session *link_session(struct link *link); /* NULL: plain. For tls_session_by_psk, _peer_der and _export */
/* A line about why it ended, for `closed`; "it" is the other side. "": nothing more than the error and link_cause say. As
 * long as the link. */
const char *link_why(const struct link *link);
/* in `closed`: libuv's error (UV_EOF: the other side's end) with which it ended; 0: none */
int link_cause(const struct link *link);
void link_remote(const struct link *link, char text[64]); /* "IP:port" */

#endif
