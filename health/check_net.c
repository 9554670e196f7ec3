#include "health/check_net.h"

#include <netdb.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/text.h"

/* -- an attempt --------------------------------------------------------------------------------------------------- */

static void on_deadline(uv_timer_t *timer) {
    struct net_run *net = timer->data;
    net->kind->late(net);
}

static void on_broken(uv_timer_t *timer) {
    struct net_run *net = timer->data;
    net->kind->fail(net);
}

static void net_cancel(struct run *run) { net_end((struct net_run *)run, PB__STATUS__CRITICAL, slice_text("")); }

void net_begin(struct net_run *net, const struct net_kind *kind, struct runners *runners, int64_t timeout_ns) {
    net->run = (struct run){.runners = runners, .cancel = net_cancel};
    net->kind = kind;
    net->timeout_ms = timeout_ns < 1000000 ? 1 : (uint64_t)timeout_ns / 1000000;
    runners->open++;
    net_hold(net);
    uv_timer_init(runners->loop, &net->deadline);
    net->deadline.data = net;
    uv_update_time(runners->loop);
    uv_timer_start(&net->deadline, on_deadline, net->timeout_ms, 0);
}

void net_end(struct net_run *net, Pb__Status status, struct slice output) {
    if (net->over) return;
    net->over = true;
    if (net->run.done) net->run.done(net->run.data, status, output);
    net->kind->close(net);
    net_close(net, (uv_handle_t *)&net->deadline);
}

void net_fail_soon(struct net_run *net) { uv_timer_start(&net->deadline, on_broken, 0, 0); }

void net_hold(struct net_run *net) { net->holds++; }

void net_release(struct net_run *net) {
    CHECK(net->holds > 0);
    if (--net->holds > 0) return;
    CHECK(net->over);
    struct runners *runners = net->run.runners;
    net->kind->free(net);
    runners_left(runners);
}

static void on_closed(uv_handle_t *handle) { net_release(handle->data); }

void net_close(struct net_run *net, uv_handle_t *handle) {
    handle->data = net;
    uv_close(handle, on_closed);
}

/* -- a target and its addresses ----------------------------------------------------------------------------------- */

int net_target_parse(struct net_target *target, const char *network, struct slice text, struct fault *fault) {
    const char *colon = text.size ? memrchr(text.data, ':', text.size) : NULL;
    int shown = text.size > 200 ? 200 : (int)text.size;
    struct slice host = slice_make(text.data, colon ? (size_t)(colon - text.data) : text.size);
    bool bracketed = host.size >= 2 && host.data[0] == '[' && host.data[host.size - 1] == ']';
    *target = (struct net_target){.network = network};
    if (!colon || (text.data[0] == '[' && !bracketed))
        return fault_set(fault, CO_INVALID, "dial %s: address %.*s: missing port in address", network, shown,
                         text.data);
    if (bracketed) {
        host = slice_make(host.data + 1, host.size - 2);
    } else if (memchr(host.data, ':', host.size)) {
        return fault_set(fault, CO_INVALID, "dial %s: address %.*s: too many colons in address", network, shown,
                         text.data);
    }
    if (host.size == 0) host = SLICE_LITERAL("localhost");
    struct slice port = slice_make(colon + 1, text.size - (size_t)(colon - text.data) - 1);
    memcpy(target->service, port.data, port.size < sizeof target->service ? port.size : sizeof target->service - 1);
    uint64_t number;
    bool digits = port.size > 0 && strspn(target->service, "0123456789") == port.size;
    if (host.size >= sizeof target->host || port.size == 0 || port.size >= sizeof target->service ||
        (digits && u64_parse(port, UINT16_MAX, &number) != CO_OK))
        return fault_set(fault, CO_INVALID, "dial %s: address %.*s: invalid port or host", network, shown, text.data);
    memcpy(target->host, host.data, host.size);
    return CO_OK;
}

void net_address_text(const struct sockaddr_storage *address, char *text, size_t size) {
    char host[64] = "";
    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
        uv_ip6_name(six, host, sizeof host);
        snprintf(text, size, "[%s]:%u", host, ntohs(six->sin6_port));
    } else {
        const struct sockaddr_in *four = (const struct sockaddr_in *)address;
        uv_ip4_name(four, host, sizeof host);
        snprintf(text, size, "%s:%u", host, ntohs(four->sin_port));
    }
}

static void take_addresses(struct net_lookup *lookup, const struct addrinfo *list) {
    for (; list && lookup->count < NET_ADDRESSES_MOST; list = list->ai_next) {
        if (list->ai_addrlen > sizeof lookup->addresses[0]) continue;
        memcpy(&lookup->addresses[lookup->count++], list->ai_addr, list->ai_addrlen);
    }
}

static void on_lookup(uv_getaddrinfo_t *request, int status, struct addrinfo *list) {
    struct net_lookup *lookup = request->data;
    struct net_run *net = lookup->net;
    lookup->looking = false;
    if (!net->over) {
        take_addresses(lookup, status == 0 ? list : NULL);
        if (lookup->count > 0) {
            lookup->done(lookup);
        } else {
            fault_set(&net->fault, CO_IO, "dial %s: lookup %s: %s", lookup->target->network, lookup->target->host,
                      status ? uv_strerror(status) : "no address");
            net->kind->fail(net);
        }
    }
    uv_freeaddrinfo(list);
    net_release(net);
}

static void on_soon(uv_timer_t *timer) {
    struct net_lookup *lookup = timer->data;
    lookup->done(lookup);
}

void net_lookup_start(struct net_lookup *lookup, struct net_run *net, const struct net_target *target, int socket_type,
                      void (*done)(struct net_lookup *lookup)) {
    struct addrinfo hints = {.ai_socktype = socket_type, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    uv_loop_t *loop = net->run.runners->loop;
    *lookup = (struct net_lookup){.net = net, .target = target, .done = done, .open = true};
    net_hold(net);
    uv_timer_init(loop, &lookup->soon);
    lookup->soon.data = lookup;
    if (getaddrinfo(target->host, target->service, &hints, &list) == 0) { /* numbers: no thread, no waiting */
        take_addresses(lookup, list);
        freeaddrinfo(list);
        uv_timer_start(&lookup->soon, on_soon, 0, 0);
        return;
    }
    hints.ai_flags = 0;
    lookup->request.data = lookup;
    int error = uv_getaddrinfo(loop, &lookup->request, on_lookup, target->host, target->service, &hints);
    if (error == 0) {
        lookup->looking = true;
        net_hold(net);
        return;
    }
    fault_set(&net->fault, CO_IO, "dial %s: lookup %s: %s", target->network, target->host, uv_strerror(error));
    net_fail_soon(net);
}

void net_lookup_close(struct net_lookup *lookup) {
    if (!lookup->open) return;
    lookup->open = false;
    if (lookup->looking) uv_cancel((uv_req_t *)&lookup->request); /* on_lookup comes in any case */
    net_close(lookup->net, (uv_handle_t *)&lookup->soon);
}
