/* Many streams (GET /v1/watch) of one server, from one thread: how soon a change reaches whoever follows it, and nobody
 * else. measure_streams.py starts the server and judges.
 *
 *   streams HOST:PORT one COUNT ROUNDS          COUNT streams of one key, ROUNDS writes of it: from a write's beginning
 *                                               until the last stream has it
 *   streams HOST:PORT many COUNT KEYS RATE SECONDS
 *                                               each stream follows KEYS keys of its own; RATE writes a second of random
 *                                               ones: from a write's beginning until its stream has it
 *
 * Prints one line of JSON. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"

enum { WRITERS = 32, FIRST_TO_END_MS = 60000 };

struct peer {
    int fd;
    bool writes, busy, ready; /* writers: an answer is awaited. Streams: the first comment has come */
    uint32_t number;
    struct buffer rest; /* a line that has not ended */
    uint64_t begun_ns;  /* its write */
};
static struct sockaddr_in server;
static char host[64];
static int polls;
static struct peer *streams, writers[WRITERS];
static uint32_t stream_count, keys_each = 1, ready;
static uint64_t *sent_ns, got, strange, last_ns;
static struct delays {
    double *ms;
    size_t count, room;
} events_took, writes_took; /* from a write's beginning until the event, or until its own answer */

static void fail(const char *what) {
    fprintf(stderr, "streams: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void peer_open(struct peer *peer) {
    int one = 1;
    peer->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (peer->fd < 0 || connect(peer->fd, (struct sockaddr *)&server, sizeof server) != 0) fail("connect");
    setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
    CHECK(epoll_ctl(polls, EPOLL_CTL_ADD, peer->fd, &event) == 0);
}

static void send_all(const struct peer *peer, const struct buffer *text) {
    if (send(peer->fd, text->data, text->size, MSG_NOSIGNAL) != (ssize_t)text->size) fail("send");
}

static void stream_open(uint32_t number) {
    struct peer *peer = &streams[number];
    struct buffer text = {0};
    peer->number = number;
    peer_open(peer);
    buffer_append_text(&text, "GET /v1/watch?");
    for (uint32_t i = 0; i < keys_each; i++)
        buffer_printf(&text, "&key=k%u", keys_each > 1 ? number * keys_each + i : 0);
    buffer_printf(&text, " HTTP/1.1\r\nHost: %s\r\n\r\n", host);
    send_all(peer, &text);
    buffer_free(&text);
}

static void put(struct peer *writer, uint32_t key, uint64_t value) {
    struct buffer text = {0};
    char body[24];
    int size = snprintf(body, sizeof body, "%llu", (unsigned long long)value);
    buffer_printf(&text, "PUT /v1/kv/k%u HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", key, host, size, body);
    sent_ns[key] = writer->begun_ns = clock_mono_ns();
    writer->busy = true;
    send_all(writer, &text);
    buffer_free(&text);
}

static void note_delay(struct delays *delays, uint64_t from_ns, uint64_t now_ns) {
    if (delays->count == delays->room) {
        delays->room = delays->room ? 2 * delays->room : 1024;
        delays->ms = mem_realloc(delays->ms, delays->room * sizeof *delays->ms);
    }
    delays->ms[delays->count++] = (double)(now_ns - from_ns) / 1e6;
}

static void stream_line(struct peer *peer, const char *line, uint64_t now_ns) {
    const char *key = strstr(line, "\"Key\":\"k");
    if (strncmp(line, ": index ", 8) == 0 && !peer->ready) {
        peer->ready = true;
        ready++;
    }
    if (strncmp(line, "event: gap", 10) == 0) strange++;
    if (strncmp(line, "data: ", 6) != 0 || !key) return;
    uint32_t number = (uint32_t)strtoul(key + 8, NULL, 10);
    if (number / keys_each != (keys_each > 1 ? peer->number : 0)) strange++;
    else note_delay(&events_took, sent_ns[number], now_ns);
    got++;
    last_ns = now_ns;
}

static void peer_read(struct peer *peer) {
    static char room[65536];
    ssize_t size = recv(peer->fd, room, sizeof room, MSG_DONTWAIT);
    uint64_t now_ns = clock_mono_ns();
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) fail(peer->writes ? "a writer was cut off" : "a stream was cut off");
    if (peer->writes) {
        if (strncmp(room, "HTTP/1.1 200", 12) != 0) fail("a write failed");
        peer->busy = false;
        note_delay(&writes_took, peer->begun_ns, now_ns);
        return;
    }
    buffer_append(&peer->rest, room, (size_t)size);
    size_t from = 0;
    for (char *end; (end = memchr(peer->rest.data + from, '\n', peer->rest.size - from)) != NULL;) {
        *end = '\0';
        stream_line(peer, peer->rest.data + from, now_ns);
        from = (size_t)(end + 1 - peer->rest.data);
    }
    memmove(peer->rest.data, peer->rest.data + from, peer->rest.size - from);
    peer->rest.size -= from;
    if (peer->rest.size == 0) buffer_free(&peer->rest);
}

static void step(int wait_ms) {
    struct epoll_event events[512];
    int count = epoll_wait(polls, events, 512, wait_ms);
    for (int i = 0; i < count; i++) peer_read(events[i].data.ptr);
}

static void wait_for(const uint64_t *counter, uint64_t value, const char *what) {
    for (uint64_t end = clock_mono_ms() + FIRST_TO_END_MS; *counter < value; step(10))
        if (clock_mono_ms() > end) fail(what);
}

static int compare(const void *a, const void *b) {
    double one = *(const double *)a, other = *(const double *)b;
    return one < other ? -1 : one > other;
}

static double part_of(double *values, size_t count, double part) {
    qsort(values, count, sizeof *values, compare);
    size_t at = (size_t)((double)count * part);
    return count ? values[at < count ? at : count - 1] : 0;
}

static void begin(const char *address) {
    char ip[64];
    unsigned port;
    if (sscanf(address, "%63[^:]:%u", ip, &port) != 2) fail("HOST:PORT is wanted");
    snprintf(host, sizeof host, "%s", ip);
    server = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    CHECK(inet_pton(AF_INET, ip, &server.sin_addr) == 1);
    polls = epoll_create1(EPOLL_CLOEXEC);
    streams = mem_zalloc(stream_count * sizeof *streams);
    sent_ns = mem_zalloc((size_t)stream_count * keys_each * sizeof *sent_ns);
    for (size_t i = 0; i < WRITERS; i++) {
        writers[i].writes = true;
        peer_open(&writers[i]);
    }
    for (uint32_t i = 0; i < stream_count; i++) {
        stream_open(i);
        if (i % 64 == 63) step(0);
    }
    for (uint64_t end = clock_mono_ms() + FIRST_TO_END_MS; ready < stream_count; step(10))
        if (clock_mono_ms() > end) fail("not all streams have begun");
    printf("ready\n"); /* whoever started this looks at the server's memory now, and says go */
    fflush(stdout);
    if (getchar() == EOF) exit(1);
}

static void one_key(unsigned rounds) {
    double *last_ms = mem_zalloc(rounds * sizeof *last_ms);
    for (unsigned round = 0; round < rounds; round++) {
        uint64_t before = got;
        put(&writers[0], 0, round + 1);
        wait_for(&got, before + stream_count, "not all streams have it");
        while (writers[0].busy) step(10);
        last_ms[round] = (double)(last_ns - sent_ns[0]) / 1e6;
    }
    double median = part_of(last_ms, rounds, 0.5);
    printf(
        "{\"streams\":%u,\"rounds\":%u,\"last_median_ms\":%.1f,\"last_least_ms\":%.1f,\"last_most_ms\":%.1f,"
        "\"event_median_ms\":%.1f,\"strange\":%llu}\n",
        stream_count, rounds, median, last_ms[0], last_ms[rounds - 1], part_of(events_took.ms, events_took.count, 0.5),
        (unsigned long long)strange);
    free(last_ms);
}

static void many_keys(unsigned rate, unsigned seconds) {
    struct rng rng;
    rng_seed(&rng, 1);
    uint64_t begun_ns = clock_mono_ns(), wanted = (uint64_t)rate * seconds, written = 0, late = 0;
    for (size_t next = 0; written < wanted; step(1)) {
        uint64_t due = (clock_mono_ns() - begun_ns) * rate / 1000000000 + 1;
        for (size_t tries = 0; written < due && written < wanted && tries < WRITERS; tries++) {
            struct peer *writer = &writers[next++ % WRITERS];
            if (writer->busy) continue;
            put(writer, (uint32_t)rng_below(&rng, (uint64_t)stream_count * keys_each), ++written);
        }
        late += written < due;
    }
    wait_for(&got, wanted, "events are missing");
    for (unsigned i = 0; i < 20; i++) step(10); /* none too many */
    double p50 = part_of(events_took.ms, events_took.count, 0.5),
           p99 = part_of(events_took.ms, events_took.count, 0.99);
    printf(
        "{\"streams\":%u,\"keys_each\":%u,\"writes\":%llu,\"events\":%llu,\"strange\":%llu,\"p50_ms\":%.2f,"
        "\"p99_ms\":%.2f,\"most_ms\":%.1f,\"write_p50_ms\":%.2f,\"write_p99_ms\":%.2f,\"seconds\":%.1f,\"late\":%llu}"
        "\n",
        stream_count, keys_each, (unsigned long long)written, (unsigned long long)got, (unsigned long long)strange, p50,
        p99, events_took.ms[events_took.count - 1], part_of(writes_took.ms, writes_took.count, 0.5),
        part_of(writes_took.ms, writes_took.count, 0.99), (double)(clock_mono_ns() - begun_ns) / 1e9,
        (unsigned long long)late);
}

int main(int argc, char **argv) {
    bool one = argc == 5 && strcmp(argv[2], "one") == 0, many = argc == 7 && strcmp(argv[2], "many") == 0;
    if (!one && !many) {
        fprintf(stderr, "usage: streams HOST:PORT one COUNT ROUNDS | many COUNT KEYS RATE SECONDS\n");
        return 2;
    }
    stream_count = (uint32_t)atoi(argv[3]);
    if (many) keys_each = (uint32_t)atoi(argv[4]);
    begin(argv[1]);
    if (one) one_key((unsigned)atoi(argv[4]));
    else many_keys((unsigned)atoi(argv[5]), (unsigned)atoi(argv[6]));
    return strange != 0;
}
