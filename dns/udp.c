/* A UDP worker: one socket, one thread. It sleeps in recvmmsg, answers all queries that have come in the meantime, and
 * sends the answers together (outbox.h). */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "dns/outbox.h"
#include "dns/rush.h"
#include "dns/socket.h"

enum {
    BATCH = OUTBOX_ANSWERS,
    QUERY_ROOM = PACKET_UDP_RECEIVE + 48, /* the kernel cuts longer queries, which then do not parse */
    ERROR_PAUSE_US = 10000,
};

struct place { /* of one query */
    struct sockaddr_storage peer;
    struct iovec query;
    _Alignas(16) uint8_t control[OUTBOX_CONTROL];
    uint8_t data[QUERY_ROOM];
};

struct dns_udp {
    int fd;
    bool wildcard;
    _Atomic bool stopping;
    pthread_t thread;
    struct dns_responder *responder;
    struct dns_outbox *outbox;
    struct mmsghdr in[BATCH];
    struct place places[BATCH];
};

static void prepare(struct dns_udp *udp, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct msghdr *in = &udp->in[i].msg_hdr;
        in->msg_namelen = sizeof(udp->places[i].peer);
        in->msg_controllen = udp->wildcard ? OUTBOX_CONTROL : 0;
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

static void answer_one(struct dns_udp *udp, size_t i) {
    const struct mmsghdr *in = &udp->in[i];
    uint8_t *out = dns_outbox_room(udp->outbox);
    size_t size = dns_responder_answer(udp->responder, DNS_UDP, udp->places[i].data, in->msg_len, out);
    if (size) dns_outbox_add(udp->outbox, &in->msg_hdr, size);
}

/* In a rush the thread does not preempt others on its processor as soon as a query comes (SCHED_BATCH, sched(7)), and
 * it yields to waiting threads before it receives again. More queries arrive meanwhile, their answers share messages,
 * and fewer context switches cost less time. The thread's share of the processor stays the same. A system that does not
 * allow SCHED_BATCH changes nothing. */
static void mind_the_rush(struct rush *rush, unsigned queries) {
    bool changed = rush_note(rush, clock_mono_ns(), queries);
    struct sched_param none = {0};
    if (changed) (void)sched_setscheduler(0, rush->on ? SCHED_BATCH : SCHED_OTHER, &none); /* 0: this thread */
    if (rush->on && queries < BATCH) (void)sched_yield(); /* a whole batch: more are here already */
}

static void *udp_run(void *data) {
    struct dns_udp *udp = data;
    struct rush rush = {0};
    bool may_wait = sched_getscheduler(0) == SCHED_OTHER; /* else someone has decided already */
    prepare_first(udp);
    for (;;) {
        int count = recvmmsg(udp->fd, udp->in, BATCH, MSG_WAITFORONE, NULL);
        if (atomic_load(&udp->stopping)) return NULL;
        if (count <= 0) {
            if (count < 0 && errno != EINTR) {
                log_warn("dns", "receiving failed error=\"%s\"", strerror(errno));
                usleep(ERROR_PAUSE_US); /* should the error last, the loop must not spin */
            }
            continue;
        }
        dns_responder_begin(udp->responder);
        for (int i = 0; i < count; i++) answer_one(udp, (size_t)i);
        dns_outbox_flush(udp->outbox);
        dns_responder_end(udp->responder);
        prepare(udp, (size_t)count);
        if (may_wait) mind_the_rush(&rush, (unsigned)count);
    }
}

int dns_udp_start(const struct dns_setup *setup, struct rpc *rpc, int fd, bool wildcard, struct dns_udp **out,
                  struct fault *fault) {
    struct dns_udp *udp = mem_zalloc(sizeof(*udp));
    udp->fd = fd;
    udp->wildcard = wildcard;
    udp->responder = dns_responder_new(setup, rpc);
    udp->outbox = dns_outbox_new(fd, dns_socket_segments(fd), sendmmsg);
    int rv = pthread_create(&udp->thread, NULL, udp_run, udp);
    if (rv != 0) {
        dns_responder_free(udp->responder);
        dns_outbox_free(udp->outbox);
        close(fd);
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
    (void)shutdown(udp->fd, SHUT_RDWR); /* fails with ENOTCONN, but wakes the receiver */
    pthread_join(udp->thread, NULL);
    close(udp->fd);
    dns_responder_free(udp->responder);
    dns_outbox_free(udp->outbox);
    free(udp);
}
