#include "crowd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"

static const char *program_name;
static struct sockaddr_in server;
static char host[64];
static int polls;

void crowd_fail(const char *what) {
    fprintf(stderr, "%s: %s: %s\n", program_name, what, strerror(errno));
    exit(1);
}

void crowd_begin(const char *program, const char *address) {
    unsigned port;
    program_name = program;
    if (sscanf(address, "%63[^:]:%u", host, &port) != 2) crowd_fail("HOST:PORT is wanted");
    server = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, host, &server.sin_addr) != 1) crowd_fail("an IPv4 address is wanted");
    polls = epoll_create1(EPOLL_CLOEXEC);
    CHECK(polls >= 0);
}

const char *crowd_host(void) { return host; }

void crowd_open(struct crowd_peer *peer) {
    int one = 1;
    peer->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (peer->fd < 0 || connect(peer->fd, (struct sockaddr *)&server, sizeof server) != 0) crowd_fail("connect");
    setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
    CHECK(epoll_ctl(polls, EPOLL_CTL_ADD, peer->fd, &event) == 0);
}

void crowd_send(const struct crowd_peer *peer, const struct buffer *text) {
    if (send(peer->fd, text->data, text->size, MSG_NOSIGNAL) != (ssize_t)text->size) crowd_fail("send");
}

static void peer_read(struct crowd_peer *peer, crowd_read read) {
    static char room[65536];
    ssize_t size = recv(peer->fd, room, sizeof room, MSG_DONTWAIT);
    uint64_t now_ns = clock_mono_ns();
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) crowd_fail("a connection was cut off");
    buffer_append(&peer->rest, room, (size_t)size);
    read(peer, now_ns);
}

void crowd_step(int wait_ms, crowd_read read) {
    struct epoll_event events[512];
    int count = epoll_wait(polls, events, 512, wait_ms);
    for (int i = 0; i < count; i++) peer_read(events[i].data.ptr, read);
}

void crowd_wait(const uint64_t *counter, uint64_t value, const char *what, crowd_read read) {
    for (uint64_t end = clock_mono_ms() + CROWD_WAIT_MS; *counter < value; crowd_step(10, read))
        if (clock_mono_ms() > end) crowd_fail(what);
}

void crowd_taken(struct crowd_peer *peer, size_t size) {
    memmove(peer->rest.data, peer->rest.data + size, peer->rest.size - size);
    peer->rest.size -= size;
    if (peer->rest.size == 0) buffer_free(&peer->rest);
}

void crowd_ready(void) {
    printf("ready\n");
    fflush(stdout);
    if (getchar() == EOF) exit(1);
}

void crowd_note(struct crowd_times *times, uint64_t from_ns, uint64_t now_ns) {
    if (times->count == times->room) {
        times->room = times->room ? 2 * times->room : 1024;
        times->ms = mem_realloc(times->ms, times->room * sizeof *times->ms);
    }
    times->ms[times->count++] = (double)(now_ns - from_ns) / 1e6;
}

static int compare(const void *a, const void *b) {
    double one = *(const double *)a, other = *(const double *)b;
    return one < other ? -1 : one > other;
}

double crowd_part(struct crowd_times *times, double part) {
    if (times->count) qsort(times->ms, times->count, sizeof *times->ms, compare);
    size_t at = (size_t)((double)times->count * part);
    return times->count ? times->ms[at < times->count ? at : times->count - 1] : 0;
}
