/* UDP checks, as Consul has them (1.13 and later): the agent sends an empty datagram. Any answer is passing, and so is
 * silence until the timeout, because few services answer an empty datagram; "port unreachable" is critical.
 *
 * When a name has several addresses and one refuses, the check asks the next one, and is critical when all refuse. It
 * is critical too when the name is not resolved in time, because nothing was sent. */
#include <stdlib.h>

#include "base/check.h"
#include "health/check_net.h"

struct udp_run {
    struct net_run net;
    struct net_target target;
    struct net_lookup lookup;
    unsigned tried;
    bool sent; /* to the address before `tried` */
    struct udp_try {
        uv_udp_t handle;
        bool open;
    } tries[NET_ADDRESSES_MOST]; /* the one before `tried` is in use */
    char text[320];
    char byte; /* only whether there is an answer counts: one byte of it is read */
};

static void udp_pass(struct udp_run *udp) {
    struct buffer text = {0};
    buffer_printf(&text, "UDP connect %s: Success", udp->text);
    net_end(&udp->net, PB__STATUS__PASSING, buffer_slice(&text));
    buffer_free(&text);
}

static void udp_fail(struct net_run *net) { net_end(net, PB__STATUS__CRITICAL, slice_text(net->fault.text)); }

static void udp_late(struct net_run *net) {
    struct udp_run *udp = (struct udp_run *)net;
    if (udp->sent) {
        udp_pass(udp);
        return;
    }
    fault_set(&net->fault, CO_TIMEOUT, "dial udp %s: no address within %llu ms", udp->text,
              (unsigned long long)net->timeout_ms);
    udp_fail(net);
}

static void try_close(struct udp_run *udp, struct udp_try *one) {
    if (one->open) net_close(&udp->net, (uv_handle_t *)&one->handle);
    one->open = false;
}

static void udp_close(struct net_run *net) {
    struct udp_run *udp = (struct udp_run *)net;
    net_lookup_close(&udp->lookup);
    for (unsigned i = 0; i < udp->tried; i++) try_close(udp, &udp->tries[i]);
}

static void udp_free(struct net_run *net) { free((struct udp_run *)net); }

static const struct net_kind udp_kind = {udp_late, udp_fail, udp_close, udp_free};

static void on_room(uv_handle_t *handle, size_t size, uv_buf_t *buffer) {
    struct udp_run *udp = handle->data;
    (void)size;
    *buffer = uv_buf_init(&udp->byte, 1);
}

static void try_next(struct udp_run *udp);

static void refused(struct udp_run *udp, const char *what, int uv_error) {
    char text[80];
    net_address_text(&udp->lookup.addresses[udp->tried - 1], text, sizeof text);
    fault_set(&udp->net.fault, CO_IO, "%s udp %s: %s", what, text, uv_strerror(uv_error));
    try_close(udp, &udp->tries[udp->tried - 1]);
    udp->sent = false;
    try_next(udp);
}

static void on_datagram(uv_udp_t *handle, ssize_t got, const uv_buf_t *buffer, const struct sockaddr *from,
                        unsigned flags) {
    struct udp_run *udp = handle->data;
    (void)buffer, (void)flags;
    if (got < 0) {
        refused(udp, "read", (int)got);
    } else if (got > 0 || from) { /* a datagram may be empty; without a sender there was none */
        udp_pass(udp);
    }
}

static int send_one(struct udp_run *udp, uv_udp_t *handle, const struct sockaddr *address) {
    uv_buf_t empty = uv_buf_init(&udp->byte, 0);
    int error = uv_udp_connect(handle, address);
    if (error == 0) error = uv_udp_recv_start(handle, on_room, on_datagram);
    if (error == 0) error = uv_udp_try_send(handle, &empty, 1, NULL);
    udp->sent = error >= 0;
    return error < 0 ? error : 0;
}

static void try_next(struct udp_run *udp) {
    if (udp->tried == udp->lookup.count) {
        udp_fail(&udp->net);
        return;
    }
    struct udp_try *one = &udp->tries[udp->tried];
    const struct sockaddr *address = (const struct sockaddr *)&udp->lookup.addresses[udp->tried];
    udp->tried++;
    uv_udp_init(udp->net.run.runners->loop, &one->handle);
    one->handle.data = udp;
    one->open = true;
    net_hold(&udp->net);
    int error = send_one(udp, &one->handle, address);
    if (error != 0) refused(udp, "dial", error);
}

static void on_addresses(struct net_lookup *lookup) { try_next(CONTAINER_OF(lookup, struct udp_run, lookup)); }

struct run *run_udp_start(struct runners *runners, const struct check_definition *definition) {
    struct udp_run *udp = mem_zalloc(sizeof *udp);
    struct net_run *net = &udp->net;
    net_begin(net, &udp_kind, runners, definition->timeout_ns);
    snprintf(udp->text, sizeof udp->text, "%s", definition->udp);
    if (net_target_parse(&udp->target, "udp", slice_text(definition->udp), &net->fault) == CO_OK) {
        net_lookup_start(&udp->lookup, net, &udp->target, SOCK_DGRAM, on_addresses);
    } else {
        net_fail_soon(net);
    }
    return &net->run;
}
