/* TCP checks: healthy when a connection can be made. All addresses of a name are tried, the next one when the
 * one before has failed or has not answered for a while; the first connection wins. */
#include <netdb.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/text.h"
#include "health/runner.h"

#define ADDRESSES_MOST  8
#define NEXT_ADDRESS_MS 300

struct tcp_run {
    struct run run;
    uv_timer_t deadline, next;
    uv_getaddrinfo_t lookup;
    bool looking, over;
    unsigned handles; /* open ones, timers included */
    struct sockaddr_storage addresses[ADDRESSES_MOST];
    unsigned address_count, tried, failed;
    struct tcp_try {
        uv_tcp_t handle;
        uv_connect_t connect;
        bool open;
    } tries[ADDRESSES_MOST];
    char target[320], host[256], service[64];
    uint64_t timeout_ms;
    struct fault fault; /* the first reason why it did not work */
};

static void tcp_free_when_done(struct tcp_run *tcp) {
    if (tcp->handles > 0 || tcp->looking) return;
    struct runners *runners = tcp->run.runners;
    free(tcp);
    runners_left(runners);
}

static void handle_closed(uv_handle_t *handle) {
    struct tcp_run *tcp = handle->data;
    tcp->handles--;
    tcp_free_when_done(tcp);
}

static void tcp_end(struct tcp_run *tcp, Pb__Status status, struct slice output) {
    if (tcp->over) return;
    tcp->over = true;
    if (tcp->run.done) tcp->run.done(tcp->run.data, status, output);
    if (tcp->looking) uv_cancel((uv_req_t *)&tcp->lookup);
    uv_close((uv_handle_t *)&tcp->deadline, handle_closed);
    uv_close((uv_handle_t *)&tcp->next, handle_closed);
    for (unsigned i = 0; i < tcp->tried; i++) {
        if (tcp->tries[i].open) uv_close((uv_handle_t *)&tcp->tries[i].handle, handle_closed);
        tcp->tries[i].open = false;
    }
}

static void tcp_cancel(struct run *run) {
    tcp_end((struct tcp_run *)run, PB__STATUS__CRITICAL, slice_text(""));
}

static void tcp_fail(struct tcp_run *tcp) { tcp_end(tcp, PB__STATUS__CRITICAL, slice_text(tcp->fault.text)); }

static void address_text(const struct sockaddr_storage *address, char *text, size_t size) {
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

static void try_next(struct tcp_run *tcp);

static void try_failed(struct tcp_run *tcp, unsigned at, int uv_error) {
    char text[80];
    address_text(&tcp->addresses[at], text, sizeof text);
    fault_set(&tcp->fault, CO_IO, "dial tcp %s: connect: %s", text, uv_strerror(uv_error));
    tcp->failed++;
    if (tcp->failed == tcp->address_count) {
        tcp_fail(tcp);
    } else {
        try_next(tcp);
    }
}

static void on_connect(uv_connect_t *connect, int status) {
    struct tcp_run *tcp = connect->data;
    if (tcp->over) return;
    struct tcp_try *one = CONTAINER_OF(connect, struct tcp_try, connect);
    unsigned at = (unsigned)(one - tcp->tries);
    if (status == 0) {
        struct buffer text = {0};
        buffer_printf(&text, "TCP connect %s: Success", tcp->target);
        tcp_end(tcp, PB__STATUS__PASSING, buffer_slice(&text));
        buffer_free(&text);
        return;
    }
    one->open = false;
    uv_close((uv_handle_t *)&one->handle, handle_closed);
    try_failed(tcp, at, status);
}

static void on_next(uv_timer_t *timer) { try_next(timer->data); }

static void try_next(struct tcp_run *tcp) {
    if (tcp->over || tcp->tried == tcp->address_count) return;
    unsigned at = tcp->tried++;
    struct tcp_try *one = &tcp->tries[at];
    uv_timer_start(&tcp->next, on_next, NEXT_ADDRESS_MS, 0);
    uv_tcp_init(tcp->run.runners->loop, &one->handle);
    one->handle.data = one->connect.data = tcp;
    one->open = true;
    tcp->handles++;
    int error =
        uv_tcp_connect(&one->connect, &one->handle, (struct sockaddr *)&tcp->addresses[at], on_connect);
    if (error == 0) return;
    one->open = false;
    uv_close((uv_handle_t *)&one->handle, handle_closed);
    try_failed(tcp, at, error);
}

static void on_deadline(uv_timer_t *timer) {
    struct tcp_run *tcp = timer->data;
    fault_set(&tcp->fault, CO_TIMEOUT, "dial tcp %s: no connection within %llu ms", tcp->target,
              (unsigned long long)tcp->timeout_ms);
    tcp_fail(tcp);
}

static void on_broken(uv_timer_t *timer) { tcp_fail(timer->data); }

/* Ends a little later: never from within the start. */
static void fail_soon(struct tcp_run *tcp) { uv_timer_start(&tcp->deadline, on_broken, 0, 0); }

static void take_addresses(struct tcp_run *tcp, const struct addrinfo *list) {
    for (; list && tcp->address_count < ADDRESSES_MOST; list = list->ai_next) {
        if (list->ai_addrlen > sizeof tcp->addresses[0]) continue;
        memcpy(&tcp->addresses[tcp->address_count++], list->ai_addr, list->ai_addrlen);
    }
}

static void on_lookup(uv_getaddrinfo_t *lookup, int status, struct addrinfo *list) {
    struct tcp_run *tcp = lookup->data;
    tcp->looking = false;
    if (tcp->over) {
        uv_freeaddrinfo(list);
        tcp_free_when_done(tcp);
        return;
    }
    take_addresses(tcp, status == 0 ? list : NULL);
    uv_freeaddrinfo(list);
    if (tcp->address_count == 0) {
        fault_set(&tcp->fault, CO_IO, "dial tcp: lookup %s: %s", tcp->host,
                  status ? uv_strerror(status) : "no address");
        tcp_fail(tcp);
    } else {
        try_next(tcp);
    }
}

/* "host:port", "[::1]:port", ":port" (this host); a port may be a name. */
static bool split_target(struct tcp_run *tcp, const char *target) {
    const char *colon = strrchr(target, ':'), *host = target;
    size_t host_size = colon ? (size_t)(colon - target) : strlen(target);
    bool bracketed = host_size >= 2 && target[0] == '[' && target[host_size - 1] == ']';
    if (!colon || (target[0] == '[' && !bracketed)) {
        fault_set(&tcp->fault, CO_INVALID, "dial tcp: address %.200s: missing port in address", target);
        return false;
    }
    if (bracketed) {
        host++;
        host_size -= 2;
    } else if (memchr(host, ':', host_size)) {
        fault_set(&tcp->fault, CO_INVALID, "dial tcp: address %.200s: too many colons in address", target);
        return false;
    }
    if (host_size == 0) {
        host = "localhost";
        host_size = strlen(host);
    }
    struct slice port = slice_text(colon + 1);
    uint64_t number;
    bool digits = port.size > 0 && strspn(port.data, "0123456789") == port.size;
    if (host_size >= sizeof tcp->host || port.size == 0 || port.size >= sizeof tcp->service ||
        (digits && u64_parse(port, UINT16_MAX, &number) != CO_OK)) {
        fault_set(&tcp->fault, CO_INVALID, "dial tcp: address %.200s: invalid port or host", target);
        return false;
    }
    memcpy(tcp->host, host, host_size);
    memcpy(tcp->service, port.data, port.size);
    return true;
}

static void start_lookup(struct tcp_run *tcp) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    if (getaddrinfo(tcp->host, tcp->service, &hints, &list) == 0) { /* numbers: no thread, no waiting */
        take_addresses(tcp, list);
        freeaddrinfo(list);
        uv_timer_start(&tcp->next, on_next, 0, 0);
        return;
    }
    hints.ai_flags = 0;
    tcp->lookup.data = tcp;
    int error =
        uv_getaddrinfo(tcp->run.runners->loop, &tcp->lookup, on_lookup, tcp->host, tcp->service, &hints);
    tcp->looking = error == 0;
    if (error == 0) return;
    fault_set(&tcp->fault, CO_IO, "dial tcp: lookup %s: %s", tcp->host, uv_strerror(error));
    fail_soon(tcp);
}

struct run *run_tcp_start(struct runners *runners, const struct check_definition *definition) {
    struct tcp_run *tcp = mem_zalloc(sizeof *tcp);
    tcp->run = (struct run){.runners = runners, .cancel = tcp_cancel};
    runners->open++;
    snprintf(tcp->target, sizeof tcp->target, "%s", definition->tcp);
    tcp->timeout_ms = (uint64_t)definition->timeout_ns / 1000000;
    if (tcp->timeout_ms == 0) tcp->timeout_ms = 1;
    uv_timer_init(runners->loop, &tcp->deadline);
    uv_timer_init(runners->loop, &tcp->next);
    tcp->deadline.data = tcp->next.data = tcp;
    tcp->handles = 2;
    uv_update_time(runners->loop);
    uv_timer_start(&tcp->deadline, on_deadline, tcp->timeout_ms, 0);
    if (split_target(tcp, definition->tcp)) {
        start_lookup(tcp);
    } else {
        fail_soon(tcp);
    }
    return &tcp->run;
}
