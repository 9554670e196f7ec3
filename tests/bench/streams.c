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
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "crowd.h"

enum { WRITERS = 32 };

/* Streams: busy until the first comment has come. */
static struct crowd_peer *streams, writers[WRITERS];
static uint32_t stream_count, keys_each = 1;
static uint64_t *sent_ns, got, ready, strange, last_ns;
static struct crowd_times events_took, writes_took; /* from a write's beginning until the event, or its own answer */

static void stream_open(uint32_t number) {
    struct crowd_peer *peer = &streams[number];
    struct buffer text = {0};
    peer->number = number, peer->busy = true;
    crowd_open(peer);
    buffer_append_text(&text, "GET /v1/watch?");
    for (uint32_t i = 0; i < keys_each; i++)
        buffer_printf(&text, "&key=k%u", keys_each > 1 ? number * keys_each + i : 0);
    buffer_printf(&text, " HTTP/1.1\r\nHost: %s\r\n\r\n", crowd_host());
    crowd_send(peer, &text);
    buffer_free(&text);
}

static void put(struct crowd_peer *writer, uint32_t key, uint64_t value) {
    struct buffer text = {0};
    char body[24];
    int size = snprintf(body, sizeof body, "%llu", (unsigned long long)value);
    buffer_printf(&text, "PUT /v1/kv/k%u HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", key, crowd_host(), size,
                  body);
    sent_ns[key] = writer->begun_ns = clock_mono_ns();
    writer->busy = true;
    crowd_send(writer, &text);
    buffer_free(&text);
}

static void stream_line(struct crowd_peer *peer, const char *line, uint64_t now_ns) {
    const char *key = strstr(line, "\"Key\":\"k");
    if (strncmp(line, ": index ", 8) == 0 && peer->busy) {
        peer->busy = false;
        ready++;
    }
    if (strncmp(line, "event: gap", 10) == 0) strange++;
    if (strncmp(line, "data: ", 6) != 0 || !key) return;
    uint32_t number = (uint32_t)strtoul(key + 8, NULL, 10);
    if (number / keys_each != (keys_each > 1 ? peer->number : 0)) strange++;
    else crowd_note(&events_took, sent_ns[number], now_ns);
    got++;
    last_ns = now_ns;
}

static bool writes(const struct crowd_peer *peer) { return peer >= writers && peer < writers + WRITERS; }

static void peer_read(struct crowd_peer *peer, uint64_t now_ns) {
    if (writes(peer)) {
        if (strncmp(peer->rest.data, "HTTP/1.1 200", 12) != 0) crowd_fail("a write failed");
        peer->busy = false;
        crowd_note(&writes_took, peer->begun_ns, now_ns);
        crowd_taken(peer, peer->rest.size);
        return;
    }
    size_t from = 0;
    for (char *end; (end = memchr(peer->rest.data + from, '\n', peer->rest.size - from)) != NULL;) {
        *end = '\0';
        stream_line(peer, peer->rest.data + from, now_ns);
        from = (size_t)(end + 1 - peer->rest.data);
    }
    crowd_taken(peer, from);
}

static void begin(const char *address) {
    crowd_begin("streams", address);
    streams = mem_zalloc(stream_count * sizeof *streams);
    sent_ns = mem_zalloc((size_t)stream_count * keys_each * sizeof *sent_ns);
    for (size_t i = 0; i < WRITERS; i++) crowd_open(&writers[i]);
    for (uint32_t i = 0; i < stream_count; i++) {
        stream_open(i);
        if (i % 64 == 63) crowd_step(0, peer_read);
    }
    crowd_wait(&ready, stream_count, "not all streams have begun", peer_read);
    crowd_ready(); /* whoever started this looks at the server's memory now */
}

static void one_key(unsigned rounds) {
    struct crowd_times last = {0};
    for (unsigned round = 0; round < rounds; round++) {
        uint64_t before = got;
        put(&writers[0], 0, round + 1);
        crowd_wait(&got, before + stream_count, "not all streams have it", peer_read);
        while (writers[0].busy) crowd_step(10, peer_read);
        crowd_note(&last, sent_ns[0], last_ns);
    }
    printf(
        "{\"streams\":%u,\"rounds\":%u,\"last_median_ms\":%.1f,\"last_least_ms\":%.1f,\"last_most_ms\":%.1f,"
        "\"event_median_ms\":%.1f,\"strange\":%llu}\n",
        stream_count, rounds, crowd_part(&last, 0.5), crowd_part(&last, 0), crowd_part(&last, 1),
        crowd_part(&events_took, 0.5), (unsigned long long)strange);
    free(last.ms);
}

static void many_keys(unsigned rate, unsigned seconds) {
    struct rng rng;
    rng_seed(&rng, 1);
    uint64_t begun_ns = clock_mono_ns(), wanted = (uint64_t)rate * seconds, written = 0, late = 0;
    for (size_t next = 0; written < wanted; crowd_step(1, peer_read)) {
        uint64_t due = (clock_mono_ns() - begun_ns) * rate / 1000000000 + 1;
        for (size_t tries = 0; written < due && written < wanted && tries < WRITERS; tries++) {
            struct crowd_peer *writer = &writers[next++ % WRITERS];
            if (writer->busy) continue;
            put(writer, (uint32_t)rng_below(&rng, (uint64_t)stream_count * keys_each), ++written);
        }
        late += written < due;
    }
    crowd_wait(&got, wanted, "events are missing", peer_read);
    for (unsigned i = 0; i < 20; i++) crowd_step(10, peer_read); /* none too many */
    double p50 = crowd_part(&events_took, 0.5), p99 = crowd_part(&events_took, 0.99);
    printf(
        "{\"streams\":%u,\"keys_each\":%u,\"writes\":%llu,\"events\":%llu,\"strange\":%llu,\"p50_ms\":%.2f,"
        "\"p99_ms\":%.2f,\"most_ms\":%.1f,\"write_p50_ms\":%.2f,\"write_p99_ms\":%.2f,\"seconds\":%.1f,\"late\":%llu}"
        "\n",
        stream_count, keys_each, (unsigned long long)written, (unsigned long long)got, (unsigned long long)strange, p50,
        p99, crowd_part(&events_took, 1), crowd_part(&writes_took, 0.5), crowd_part(&writes_took, 0.99),
        (double)(clock_mono_ns() - begun_ns) / 1e9, (unsigned long long)late);
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
