/* Two ends of a link over a real loopback socket, plain or encrypted, on one loop; both end together. */
#ifndef COORD_TESTS_RPC_LINK_PAIR_H
#define COORD_TESTS_RPC_LINK_PAIR_H

#include "rpc/wire/link.h"
#include "tests/lib/identity.h"

#define PAIR_FRAME 7

struct pair {
    uv_loop_t loop;
    uv_tcp_t listener;
    uv_timer_t guard;
    struct sockaddr_in at;
    struct link *dialled, *accepted;
    struct buffer got; /* payloads of frames PAIR_FRAME, of either side */
    size_t frames, frames_wanted;
    struct buffer refusal;            /* the payload of another frame */
    bool told_dialled, told_accepted; /* connected */
    bool encrypted;                   /* the accepted one, when it was told */
    int closed, error, dialled_error; /* error: of the accepted one */
    char why[256], dialled_why[256];
    const struct link_security *accept;
    uint32_t limit; /* of the accepted one's frames; 0: as it is */
    bool keep;      /* does not end when all wanted frames are there */
};
/* NULL: plain. */
void pair_open(struct pair *pair, const struct link_security *dial, const struct link_security *accept);
void pair_run(struct pair *pair);   /* to the end */
void pair_close(struct pair *pair); /* after it */

/* A CA, a server and an agent of it, and what their links need: both certificates are required. */
struct link_world {
    struct test_ca authority;
    struct identity server, agent;
    struct tls_context *server_context, *agent_context;
    struct link_security dial, accept;
};
void link_world_make(struct link_world *world);
void link_world_free(struct link_world *world);

#endif
