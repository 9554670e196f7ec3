/* The common parts of the runners with sockets of their own (TCP, UDP, gRPC, H2 ping): the life of an attempt with its
 * deadline, targets ("host:port"), look-ups, and a connection to any address of a name. Loop thread only. */
#ifndef COORD_HEALTH_CHECK_NET_H
#define COORD_HEALTH_CHECK_NET_H

#include <netinet/in.h>

#include "health/check_runner.h"

/* -- an attempt --------------------------------------------------------------------------------------------------- */

/* First member of the runner's own struct. It lives until it is over and nothing of it is open any more. */
struct net_run {
    struct run run;
    const struct net_kind *kind;
    uv_timer_t deadline;
    bool over;
    unsigned holds; /* handles, look-ups and requests that may still call */
    uint64_t timeout_ms;
    struct fault fault; /* the first reason why it does not work */
};
struct net_kind {
    void (*late)(struct net_run *net);  /* the deadline has passed */
    void (*fail)(struct net_run *net);  /* `fault` says why: the runner reports it in its own words */
    void (*close)(struct net_run *net); /* it is over: lets go of all that it has open. Once */
    void (*free)(struct net_run *net);  /* the last thing that happens; frees the struct too */
};
/* The deadline runs from here. `net` is zeroed. */
void net_begin(struct net_run *net, const struct net_kind *kind, struct runners *runners, int64_t timeout_ns);
/* Calls `done`, unless cancelled; nothing happens when it is over already. */
void net_end(struct net_run *net, Pb__Status status, struct slice output);
/* Lets `fail` be called a little later: never from within the start. `fault` is set. */
void net_fail_soon(struct net_run *net);
/* The caller initialises a handle and calls net_hold; net_close closes the handle and releases it. `handle->data` is
 * the caller's until then. */
void net_hold(struct net_run *net);
void net_release(struct net_run *net);
void net_close(struct net_run *net, uv_handle_t *handle); /* of one that is held: releases it when it is closed */

/* -- a target and its addresses ----------------------------------------------------------------------------------- */

#define NET_ADDRESSES_MOST 8

struct net_target {
    const char *network;         /* "tcp" or "udp", for messages; constant */
    char host[256], service[64]; /* without brackets; "localhost" where none is given */
};
/* "host:port", "[::1]:port", ":port" (this host); a port may be a name. CO_INVALID. */
int net_target_parse(struct net_target *target, const char *network, struct slice text, struct fault *fault);
/* "127.0.0.1:80", "[::1]:80" */
void net_address_text(const struct sockaddr_storage *address, char *text, size_t size);

struct net_lookup {
    struct net_run *net;
    const struct net_target *target;
    uv_getaddrinfo_t request;
    uv_timer_t soon;
    bool open, looking;
    void (*done)(struct net_lookup *lookup);
    struct sockaddr_storage addresses[NET_ADDRESSES_MOST];
    unsigned count;
};
/* Ends with `done` and at least one address, or by the attempt's `fail`; neither from within. Names are looked up on
 * libuv's pool. */
void net_lookup_start(struct net_lookup *lookup, struct net_run *net, const struct net_target *target, int socket_type,
                      void (*done)(struct net_lookup *lookup));
void net_lookup_close(struct net_lookup *lookup); /* also of one that was never started */

/* -- a connection ------------------------------------------------------------------------------------------------- */

/* All addresses of a name are tried, the next one when the one before has failed or has not answered for a while;
 * the first connection wins. */
struct net_connect {
    struct net_run *net;
    struct net_lookup lookup;
    uv_timer_t next;
    bool open;
    unsigned tried, failed;
    struct net_try {
        struct net_connect *owner;
        uv_tcp_t handle;
        uv_connect_t connect;
        bool open;
    } tries[NET_ADDRESSES_MOST];
    void (*done)(struct net_connect *connect, uv_tcp_t *tcp);
};
/* Ends with `done`, whose connection belongs to the struct, or by the attempt's `fail`. */
void net_connect_start(struct net_connect *connect, struct net_run *net, const struct net_target *target,
                       void (*done)(struct net_connect *connect, uv_tcp_t *tcp));
void net_connect_close(struct net_connect *connect); /* the connection too; also of one that was never started */

#endif
