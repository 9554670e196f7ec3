/* TCP checks: healthy when a connection can be made. */
#include <stdlib.h>

#include "base/check.h"
#include "health/check_net.h"

struct tcp_run {
    struct net_run net;
    struct net_connect connect;
    struct net_target target;
    char text[320];
};

static void tcp_fail(struct net_run *net) { net_end(net, PB__STATUS__CRITICAL, slice_text(net->fault.text)); }

static void tcp_late(struct net_run *net) {
    struct tcp_run *tcp = (struct tcp_run *)net;
    fault_set(&net->fault, CO_TIMEOUT, "dial tcp %s: no connection within %llu ms", tcp->text,
              (unsigned long long)net->timeout_ms);
    tcp_fail(net);
}

static void tcp_close(struct net_run *net) { net_connect_close(&((struct tcp_run *)net)->connect); }

static void tcp_free(struct net_run *net) { free((struct tcp_run *)net); }

static const struct net_kind tcp_kind = {tcp_late, tcp_fail, tcp_close, tcp_free};

static void on_connected(struct net_connect *connect, uv_tcp_t *handle) {
    struct tcp_run *tcp = CONTAINER_OF(connect, struct tcp_run, connect);
    struct buffer text = {0};
    (void)handle;
    buffer_printf(&text, "TCP connect %s: Success", tcp->text);
    net_end(&tcp->net, PB__STATUS__PASSING, buffer_slice(&text));
    buffer_free(&text);
}

struct run *run_tcp_start(struct runners *runners, const struct check_definition *definition) {
    struct tcp_run *tcp = mem_zalloc(sizeof *tcp);
    struct net_run *net = &tcp->net;
    net_begin(net, &tcp_kind, runners, definition->timeout_ns);
    snprintf(tcp->text, sizeof tcp->text, "%s", definition->tcp);
    if (net_target_parse(&tcp->target, "tcp", slice_text(definition->tcp), &net->fault) == CO_OK) {
        net_connect_start(&tcp->connect, net, &tcp->target, on_connected);
    } else {
        net_fail_soon(net);
    }
    return &net->run;
}
