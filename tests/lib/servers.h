/* Servers in this process, each with its loop on a thread of its own, and its data in a temporary folder. */
#ifndef COORD_TESTS_LIB_SERVERS_H
#define COORD_TESTS_LIB_SERVERS_H

#include <pthread.h>
#include <uv.h>

#include "kv/keys/kv.h"
#include "rpc/server/server.h"

struct server {
    char folder[64], address[32], name[32];
    struct rpc_server_config config;
    const struct rpc_access_control *control; /* NULL: there is none */
    struct rpc *rpc;
    uv_loop_t loop;
    uv_async_t stop;
    uv_barrier_t ready;
    pthread_t thread;
};
#define SERVERS_MOST 5
/* Returns when they have a leader; `count` 1: without a server port. `patience`: their raft_multiplier. At 1 they elect
 * another leader whenever a thread of the leader's stands still for some tenths of a second. */
void servers_start(struct server *servers, unsigned count, unsigned patience);
void servers_stop(struct server *servers, unsigned count); /* and removes their folders */
/* NULL, or is called for each before it starts: its folder is there, and its configuration may be changed,
 * and `control` be set. */
extern void (*servers_prepare)(struct server *server);

/* May a write or a default read end with this error because several servers elect a leader? They may do so at any
 * moment (a leader whose disk stood still hands over: consensus/disk_health.h), and the test asks again. A server alone
 * never does. */
bool server_elects(const struct server *server, int error);

/* Wait until the write is acknowledged, and make it again where server_elects: so it may have been applied twice, and
 * once more later. Give each key one value where that would matter. */
void server_put(struct server *server, const char *key, const char *value);
void server_put_bytes(struct server *server, const char *key, struct slice value);
void server_delete(struct server *server, const char *key);
/* Any command, once; its result must be yes. The error, if it does not come to that. */
int server_write(struct server *server, uint8_t command, const ProtobufCMessage *message);

#endif
