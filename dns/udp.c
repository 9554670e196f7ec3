/* A UDP worker: one socket, one thread. It sleeps in recvmmsg, answers what has come in the meantime, and
 * sends the answers together. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "dns/socket.h"

enum {
    BATCH = 64,
    QUERY_ROOM = PACKET_UDP_RECEIVE + 48, /* longer ones are cut, and so do not parse */
    OUT_ROOM = 256 * 1024, /* answers of a batch, one behind the other; sent early when it is full */
    CONTROL_ROOM = 64,
    ERROR_PAUSE_US = 10000,
};

struct place { /* of one query and its answer */
    struct sockaddr_storage peer;
    struct iovec query, answer;
    _Alignas(16) uint8_t control[CONTROL_ROOM];
    uint8_t data[QUERY_ROOM];
};

struct dns_udp {
    int fd;
    bool wildcard;
    _Atomic bool stopping;
    pthread_t thread;
    struct dns_responder *responder;
    struct mmsghdr in[BATCH], out[BATCH];
    struct place places[BATCH];
    size_t out_count, out_size;
    uint8_t *out_data;
};

static void prepare(struct dns_udp *udp, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct msghdr *in = &udp->in[i].msg_hdr;
        in->msg_namelen = sizeof(udp->places[i].peer);
        in->msg_controllen = udp->wildcard ? CONTROL_ROOM : 0;
        in->msg_flags = 0;
    }
}

static void prepare_first(struct dns_udp *udp) {
    for (size_t i = 0; i < BATCH; i++) {
        struct place *place = &udp->places[i];
        struct msghdr *in = &udp->in[i].msg_hdr;
        place->query = (struct iovec){place->data, QUERY_ROOM};
        in->msg_name = &place->peer;
        in->msg_iov = &place->query;
        in->msg_iovlen = 1;
        in->msg_control = udp->wildcard ? place->control : NULL;
    }
    prepare(udp, BATCH);
}

/* What one message makes fail (no route, a filter's refusal) is that message's; the others go out. */
static void send_all(struct dns_udp *udp) {
    size_t sent = 0;
    while (sent < udp->out_count) {
        int n = sendmmsg(udp->fd, udp->out + sent, (unsigned)(udp->out_count - sent), 0);
        if (n > 0)
            sent += (size_t)n;
        else if (errno != EINTR)
            sent++;
    }
    udp->out_count = udp->out_size = 0;
}

static void answer_one(struct dns_udp *udp, size_t i) {
    struct mmsghdr *in = &udp->in[i];
    if (udp->out_size + DNS_UDP_ROOM > OUT_ROOM) send_all(udp);
    uint8_t *out = udp->out_data + udp->out_size;
    size_t size = dns_responder_answer(udp->responder, DNS_UDP, udp->places[i].data, in->msg_len, out);
    if (size == 0) return;
    udp->out_size += (size + 15) & ~(size_t)15;
    udp->places[i].answer = (struct iovec){out, size};
    /* The kernel takes the same words about the destination back as the source to use. */
    udp->out[udp->out_count++].msg_hdr = (struct msghdr){.msg_name = in->msg_hdr.msg_name,
                                                         .msg_namelen = in->msg_hdr.msg_namelen,
                                                         .msg_iov = &udp->places[i].answer,
                                                         .msg_iovlen = 1,
                                                         .msg_control = in->msg_hdr.msg_control,
                                                         .msg_controllen = in->msg_hdr.msg_controllen};
}

static void *udp_run(void *data) {
    struct dns_udp *udp = data;
    prepare_first(udp);
    for (;;) {
        int count = recvmmsg(udp->fd, udp->in, BATCH, MSG_WAITFORONE, NULL);
        if (atomic_load(&udp->stopping)) return NULL;
        if (count <= 0) {
            if (count < 0 && errno != EINTR) {
                log_warn("dns", "receiving failed error=\"%s\"", co_strerror(co_from_errno(errno)));
                usleep(ERROR_PAUSE_US); /* not round and round, should it last */
            }
            continue;
        }
        dns_responder_begin(udp->responder);
        for (int i = 0; i < count; i++) answer_one(udp, (size_t)i);
        send_all(udp);
        dns_responder_end(udp->responder);
        prepare(udp, (size_t)count);
    }
}

int dns_udp_start(const struct dns_setup *setup, struct rpc *rpc, int fd, bool wildcard, struct dns_udp **out,
                  struct fault *fault) {
    struct dns_udp *udp = mem_zalloc(sizeof(*udp));
    udp->fd = fd;
    udp->wildcard = wildcard;
    udp->responder = dns_responder_new(setup, rpc);
    udp->out_data = mem_alloc(OUT_ROOM);
    int rv = pthread_create(&udp->thread, NULL, udp_run, udp);
    if (rv != 0) {
        dns_responder_free(udp->responder);
        close(fd);
        free(udp->out_data);
        free(udp);
        return fault_set(fault, co_from_errno(rv), "cannot start a DNS thread");
    }
    pthread_setname_np(udp->thread, "dns-udp");
    *out = udp;
    return CO_OK;
}

void dns_udp_stop(struct dns_udp *udp) {
    if (!udp) return;
    atomic_store(&udp->stopping, true);
    (void)shutdown(udp->fd, SHUT_RDWR); /* ENOTCONN, and yet it wakes the receiver */
    pthread_join(udp->thread, NULL);
    close(udp->fd);
    dns_responder_free(udp->responder);
    free(udp->out_data);
    free(udp);
}
