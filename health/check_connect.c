/* A connection to any address of a name, for the runners. */
#include <stdlib.h>

#include "base/check.h"
#include "health/check_net.h"

#define NEXT_ADDRESS_MS 300

static void try_next(struct net_connect *connect);

static void try_failed(struct net_connect *connect, unsigned at, int uv_error) {
    struct net_run *net = connect->net;
    char text[80];
    net_address_text(&connect->lookup.addresses[at], text, sizeof text);
    fault_set(&net->fault, CO_IO, "dial tcp %s: connect: %s", text, uv_strerror(uv_error));
    if (++connect->failed == connect->lookup.count) {
        net->kind->fail(net);
    } else {
        try_next(connect);
    }
}

static void try_close(struct net_try *one) {
    if (one->open) net_close(one->owner->net, (uv_handle_t *)&one->handle);
    one->open = false;
}

static void on_connect(uv_connect_t *request, int status) {
    struct net_try *one = request->data;
    struct net_connect *connect = one->owner;
    if (connect->net->over || !one->open) return;
    unsigned at = (unsigned)(one - connect->tries);
    if (status != 0) {
        try_close(one);
        try_failed(connect, at, status);
        return;
    }
    for (unsigned i = 0; i < connect->tried; i++) {
        if (i != at) try_close(&connect->tries[i]);
    }
    uv_timer_stop(&connect->next);
    connect->done(connect, &one->handle);
}

static void on_next(uv_timer_t *timer) { try_next(timer->data); }

static void try_next(struct net_connect *connect) {
    struct net_run *net = connect->net;
    if (net->over || connect->tried == connect->lookup.count) return;
    unsigned at = connect->tried++;
    struct net_try *one = &connect->tries[at];
    uv_timer_start(&connect->next, on_next, NEXT_ADDRESS_MS, 0);
    uv_tcp_init(net->run.runners->loop, &one->handle);
    one->owner = connect;
    one->connect.data = one;
    one->open = true;
    net_hold(net);
    int error =
        uv_tcp_connect(&one->connect, &one->handle, (struct sockaddr *)&connect->lookup.addresses[at], on_connect);
    if (error == 0) return;
    try_close(one);
    try_failed(connect, at, error);
}

static void on_addresses(struct net_lookup *lookup) { try_next(CONTAINER_OF(lookup, struct net_connect, lookup)); }

void net_connect_start(struct net_connect *connect, struct net_run *net, const struct net_target *target,
                       void (*done)(struct net_connect *connect, uv_tcp_t *tcp)) {
    connect->net = net;
    connect->done = done;
    connect->open = true;
    net_hold(net);
    uv_timer_init(net->run.runners->loop, &connect->next);
    connect->next.data = connect;
    net_lookup_start(&connect->lookup, net, target, SOCK_STREAM, on_addresses);
}

void net_connect_close(struct net_connect *connect) {
    if (!connect->open) return;
    connect->open = false;
    net_lookup_close(&connect->lookup);
    net_close(connect->net, (uv_handle_t *)&connect->next);
    for (unsigned i = 0; i < connect->tried; i++) try_close(&connect->tries[i]);
}
