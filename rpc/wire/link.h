/* A framed connection between two processes of one cluster: TCP on the loop, with lengths checked before memory is
 * taken. rpc/cluster/peers.h gives the frames their meaning. TLS will go between link and socket without changes for
 * callers.
 *
 * A frame: payload size (4 bytes, little-endian), type (1 byte), payload. Loop thread only. */
#ifndef COORD_RPC_LINK_H
#define COORD_RPC_LINK_H

#include <protobuf-c/protobuf-c.h>
#include <sys/socket.h>
#include <uv.h>

#include "base/buffer.h"
#include "base/error.h"

#define LINK_FRAME_MAX (16u << 20)

struct link;
struct link_callbacks {
    /* A whole frame; the payload is valid during the call. The link may be closed from here. */
    void (*frame)(void *data, struct link *link, uint8_t type, struct slice payload);
    /* The connection is established (dialled links only). */
    void (*connected)(void *data, struct link *link);
    /* It ended by itself (CO_IO, CO_TIMEOUT, CO_CORRUPT: not our protocol, CO_TOOLARGE) or by link_close
     * (CO_CLOSED). Called exactly once; the link is freed when it returns. */
    void (*closed)(void *data, struct link *link, int error);
    /* The kernel has taken the queued bytes, 16 KiB or more at once: there is room for more. May be NULL. */
    void (*drained)(void *data, struct link *link);
};

/* Dials `to` from `from` (NULL: any address). `data` goes to the callbacks. */
struct link *link_dial(uv_loop_t *loop, const struct sockaddr *to, const struct sockaddr *from,
                       const struct link_callbacks *callbacks, void *data);
/* Takes a connection that waits at `server`. NULL when there is none after all. */
struct link *link_accept(uv_stream_t *server, const struct link_callbacks *callbacks, void *data);
/* Gives the link a new owner; frames that are here already go there, too. */
void link_adopt(struct link *link, const struct link_callbacks *callbacks, void *data);
void link_close(struct link *link); /* `closed` comes later, from the loop */

/* A larger frame ends the link (CO_TOOLARGE) before memory is taken for it; LINK_FRAME_MAX unless said, and at most. */
void link_limit(struct link *link, uint32_t frame_max);

/* Queues a frame. Nothing goes out before link_flush, so that a turn's frames share a write. */
void link_send(struct link *link, uint8_t type, struct slice payload);
void link_tell(struct link *link, uint8_t type, const ProtobufCMessage *message);
/* The same in place: begin, append to the buffer, end. */
struct buffer *link_frame_begin(struct link *link, uint8_t type);
void link_frame_end(struct link *link);
void link_flush(struct link *link);
size_t link_backlog(const struct link *link); /* bytes not yet taken by the kernel */
/* Lets the kernel keep only little unsent data, so that a frame that is queued now does not wait long behind earlier
 * ones. For links that urgent frames share with bulk. */
void link_keep_short(struct link *link);
/* Have bytes arrived since the last call? Those of a large frame that is not whole yet are a sign of life too.
 * *received: 0 at first, then the count at the last call. */
bool link_heard(const struct link *link, uint64_t *received);
/* Counted since the link began, frames' heads included: bytes queued; bytes that the other side's kernel has
 * acknowledged (a system call). */
uint64_t link_queued(const struct link *link);
uint64_t link_delivered(const struct link *link);
bool link_dialled(const struct link *link);
/* in `closed`: libuv's error (UV_EOF: the other side's end) with which it ended; 0: none */
int link_cause(const struct link *link);
void link_remote(const struct link *link, char text[64]); /* "IP:port" */

#endif
