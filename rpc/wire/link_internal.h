/* Shared by link.c and link_secure.c. */
#ifndef COORD_RPC_LINK_INTERNAL_H
#define COORD_RPC_LINK_INTERNAL_H

#include "rpc/wire/link.h"

#define LINK_READ_ROOM (64 * 1024)

/* A handshake that is under way, or has not begun. */
struct link_shaking {
    struct link *link;
    const struct link_security *security; /* accepted links */
    struct handshake turn;
    struct buffer waiting; /* what came before its turn */
    uv_timer_t timer;
};

struct link {
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_write_t write;
    struct link_callbacks callbacks;
    void *data;
    bool dialled;
    bool stands;    /* as TCP */
    bool connected; /* frames can go */
    bool writing, closing;
    bool secret; /* link_keep_secret */
    bool paused; /* nothing is read: it waits for its turn, and enough is here */
    uint32_t frame_max;
    int error;
    struct buffer in;           /* bytes that are not a whole frame yet */
    struct buffer out, sending; /* queued; with the kernel */
    size_t out_at;              /* so much of `out` is encrypted already; 0 of a plain link */
    size_t frame_at;            /* of the frame being built in `out` */
    uint64_t received, flushed; /* flushed: given to libuv */
    int cause;                  /* libuv's error */
    char remote[64];            /* once it has ended: link_remote */
    const char *why;
    struct tls_session *session;  /* NULL: it is plain, or no handshake has begun */
    struct link_shaking *shaking; /* NULL: there is no handshake, or it is over */
};

static inline bool link_is_secure(const struct link *link) { return link->session || link->shaking; }

void link_end(struct link *link, int error);
void link_end_io(struct link *link, int cause);
void link_read(struct link *link, bool reads);
void link_take_frames(struct link *link);
void link_go(struct link *link); /* it is connected: says so, and hands over what is here */

/* link_secure.c */
void link_secure_dial(struct link *link, const struct link_security *security);
void link_secure_accept(struct link *link, const struct link_security *security);
void link_secure_stands(struct link *link); /* a dialled one */
void link_secure_arrived(struct link *link, struct slice bytes);
void link_secure_end(struct link *link); /* before the socket goes */

#endif
