/* Servers that are made up: each says and answers just what a story needs, over real loopback sockets, on the test's
 * own loop. */
#ifndef COORD_TESTS_RPC_FAKE_SERVER_H
#define COORD_TESTS_RPC_FAKE_SERVER_H

#include <uv.h>

#include "base/buffer.h"
#include "rpc/cluster/peers.h"
#include "rpc/wire/peer.pb-c.h"

struct fake_session {
    uv_tcp_t tcp;
    struct fake_server *fake;
    struct fake_session *next;
    struct buffer in;
    bool greeted;
};
struct fake_server {
    uv_tcp_t listener;
    struct fake_session *sessions;
    char address[32];
    const char *datacenter, *refuses; /* refuses: a line; it answers hellos with that alone; NULL: it does not */
    uint64_t id, cluster_id;
    bool leads, cut_off, mute, silent; /* leads: it knows a leader; mute: it answers no pings; silent: nor hellos */
    bool resets, ends;                 /* it ends each connection: at once, without a word; when it has heard a hello */
    const struct fake_server *cluster; /* the servers that it names, the second leads; unless set: none */
    unsigned cluster_count;
    unsigned connections, hellos, agents, pings, fetches, fetch_ends, changes, backups, asks, answers;
    uint64_t fetch, fetch_index, change; /* number and index of the last fetch; number of the last change */
    uint64_t ask;                        /* number of the last one */
    char answer[64];                     /* of the last one that it was given */
};

/* It is dc1's, of cluster 77, and knows a leader; listens. */
void fake_open(struct fake_server *fake, uv_loop_t *loop, uint64_t id);
/* When it has no more sessions. The loop runs once more. */
void fake_close(struct fake_server *fake);

void fake_leads(struct fake_server *fake, bool yes); /* and tells its agents */
void fake_cut_off(struct fake_server *fake);         /* likewise: it knows no leader, and hears of no majority */
/* A piece of the answer to the last fetch. */
void fake_answer(struct fake_server *fake, const char *text, bool more);
void fake_say(struct fake_server *fake, uint8_t type, const ProtobufCMessage *message); /* to all its agents */

/* The caller's buffer. `message` NULL: an empty frame. */
struct buffer fake_frame(uint8_t type, const ProtobufCMessage *message);
void fake_send(struct fake_session *session, const char *bytes, size_t size); /* copied */
void fake_read(struct fake_session *session);                                 /* again, after uv_read_stop */
void fake_end(struct fake_session *session);

#endif
