/* Many callers of one rollout (GET /v1/rollout/web?id=), from one thread: how soon a flip reaches all of them, and whether
 * a stage wakes those alone who are in it. measure_callers.py starts the server, publishes v1 and v2, and judges.
 *
 *   callers HOST:PORT COUNT ROUNDS
 *
 * Each caller asks again as soon as it has an answer. ROUNDS flips between the versions: from the beginning of the write
 * until the last caller has the answer; then stages of 1, 10 and 50 percent. Prints one line of JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "crowd.h"

enum { QUIET_MS = 500 };

static struct crowd_peer *callers, writer;
static char *has; /* of each caller: '1' or '2', the version it was given; 0: none yet */
static uint32_t count;
static uint64_t answers, same, written, first_ns, last_ns;

static void ask(struct crowd_peer *peer, uint64_t index) {
    struct buffer text = {0};
    buffer_printf(&text, "GET /v1/rollout/web?id=caller-%u&wait=10m&index=%llu HTTP/1.1\r\nHost: %s\r\n\r\n",
                  peer->number, (unsigned long long)index, crowd_host());
    crowd_send(peer, &text);
    buffer_free(&text);
}

/* The size of the answer that peer->rest begins with; 0: it is not whole yet. */
static size_t whole(struct crowd_peer *peer) {
    buffer_append_byte(&peer->rest, '\0');
    peer->rest.size--;
    const char *text = peer->rest.data, *end = strstr(text, "\r\n\r\n"), *length = strstr(text, "\r\nContent-Length: ");
    if (!end) return 0;
    if (strncmp(text, "HTTP/1.1 200", 12) != 0 || !length || length > end) {
        fprintf(stderr, "%s\n", text);
        crowd_fail("no good answer");
    }
    size_t size = (size_t)(end + 4 - text) + strtoul(length + 18, NULL, 10);
    return peer->rest.size >= size ? size : 0;
}

static void peer_read(struct crowd_peer *peer, uint64_t now_ns) {
    size_t size = whole(peer);
    if (!size) return;
    if (peer == &writer) {
        written++;
    } else {
        const char *version = strstr(peer->rest.data, "\"Version\":\"v"),
                   *index = strstr(peer->rest.data, "\r\nX-Consul-Index: ");
        if (!version || !index) crowd_fail("an answer without version or index");
        same += has[peer->number] == version[12];
        has[peer->number] = version[12];
        answers++, last_ns = now_ns;
        if (!first_ns) first_ns = now_ns;
        ask(peer, strtoull(index + 18, NULL, 10));
    }
    crowd_taken(peer, size);
}

static uint64_t set(const char *members) {
    struct buffer text = {0};
    uint64_t begun_ns = clock_mono_ns();
    buffer_printf(&text, "PUT /v1/rollout/web/current HTTP/1.1\r\nHost: %s\r\nContent-Length: %zu\r\n\r\n%s",
                  crowd_host(), strlen(members), members);
    crowd_send(&writer, &text);
    buffer_free(&text);
    return begun_ns;
}

static void quiet(void) {
    for (uint64_t end = clock_mono_ms() + QUIET_MS; clock_mono_ms() < end;) crowd_step(10, peer_read);
}

static uint64_t on_second(void) {
    uint64_t those = 0;
    for (uint32_t i = 0; i < count; i++) those += has[i] == '2';
    return those;
}

static void flips(unsigned rounds) {
    struct crowd_times first = {0}, last = {0}, writes = {0};
    for (unsigned round = 0; round < 2 * rounds; round++) { /* back to v1 in the end */
        uint64_t before = answers, wrote = written;
        first_ns = 0;
        uint64_t begun_ns = set(round % 2 ? "{\"Version\":\"v1\"}" : "{\"Version\":\"v2\"}");
        crowd_wait(&written, wrote + 1, "the flip was not answered", peer_read);
        crowd_note(&writes, begun_ns, clock_mono_ns());
        crowd_wait(&answers, before + count, "not all callers have it", peer_read);
        crowd_note(&first, begun_ns, first_ns), crowd_note(&last, begun_ns, last_ns);
        quiet();
    }
    printf(
        "{\"callers\":%u,\"flips\":%u,\"first_median_ms\":%.1f,\"last_median_ms\":%.1f,\"last_least_ms\":%.1f,\"last_"
        "most_ms\":%.1f,"
        "\"write_median_ms\":%.1f,",
        count, 2 * rounds, crowd_part(&first, 0.5), crowd_part(&last, 0.5), crowd_part(&last, 0), crowd_part(&last, 1),
        crowd_part(&writes, 0.5));
    free(first.ms), free(last.ms), free(writes.ms);
}

static void stages(void) {
    static const unsigned percents[] = {1, 10, 50};
    printf("\"stages\":[");
    for (size_t i = 0; i < sizeof percents / sizeof *percents; i++) {
        char members[64];
        uint64_t before = answers, had = on_second(), wrote = written;
        snprintf(members, sizeof members, "{\"Version\":\"v2\",\"Percent\":%u}", percents[i]);
        uint64_t begun_ns = set(members);
        crowd_wait(&written, wrote + 1, "the stage was not answered", peer_read);
        quiet();
        printf("%s{\"percent\":%u,\"came_in\":%llu,\"answered\":%llu,\"last_ms\":%.1f}", i ? "," : "", percents[i],
               (unsigned long long)(on_second() - had), (unsigned long long)(answers - before),
               (double)(last_ns - begun_ns) / 1e6);
    }
    printf("],\"answered_for_nothing\":%llu}\n", (unsigned long long)same);
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: callers HOST:PORT COUNT ROUNDS\n");
        return 2;
    }
    count = (uint32_t)atoi(argv[2]);
    callers = mem_zalloc(count * sizeof *callers), has = mem_zalloc(count);
    crowd_begin("callers", argv[1]);
    crowd_open(&writer);
    for (uint32_t i = 0; i < count; i++) {
        callers[i].number = i;
        crowd_open(&callers[i]);
        ask(&callers[i], 0);
        if (i % 64 == 63) crowd_step(0, peer_read);
    }
    crowd_wait(&answers, count, "not all callers have an answer", peer_read);
    quiet();
    crowd_ready();
    flips((unsigned)atoi(argv[3]));
    stages();
    return same != 0;
}
