/* Servers in this process, each with its loop on a thread of its own, and its data in a temporary folder. */
#ifndef COORD_TESTS_RPC_SERVERS_H
#define COORD_TESTS_RPC_SERVERS_H

#include <pthread.h>
#include <uv.h>

#include "kv/keys/kv.h"
#include "rpc/server/server.h"

struct server {
    char folder[64], address[32], name[32];
    struct rpc_server_config config;
    struct rpc *rpc;
    uv_loop_t loop;
    uv_async_t stop;
    uv_barrier_t ready;
    pthread_t thread;
};
#define SERVERS_MOST 5
/* Returns when they have a leader; `count` 1: without a server port. */
void servers_start(struct server *servers, unsigned count);
void servers_stop(struct server *servers, unsigned count); /* and removes their folders */

/* Waits for the write. */
void server_put(struct server *server, const char *key, const char *value);
void server_put_bytes(struct server *server, const char *key, struct slice value);
void server_delete(struct server *server, const char *key);

#endif
