/* Long headers: in one piece and in many, before and after short ones, up to the limit. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "kv/keys/kv.h"
#include "web_world.h"

#define MEMORY \
    "Request header too large: request line and headers have 9728 bytes of memory (coord.http_connection_memory)"
#define LIMIT(what, most)                                                 \
    "Request " what " too large: request line and headers may have " most \
    " bytes, where a "                                                    \
    "header counts as 32 at least (coord.http_header_max)"

/* `size` bytes in all, as `lines` headers. */
static struct buffer header(const char *first, size_t size, unsigned lines) {
    struct buffer text = {0};
    buffer_printf(&text, "%s HTTP/1.1\r\nHost: x\r\n", first);
    size_t each = (size - text.size - 2) / lines;
    for (unsigned i = 0; i < lines; i++) {
        size_t line = i + 1 < lines ? each : size - text.size - 2, name = text.size;
        buffer_printf(&text, "C%u: ", i);
        while (text.size < name + line - 2) buffer_append_byte(&text, 'c');
        buffer_append_text(&text, "\r\n");
    }
    buffer_append_text(&text, "\r\n");
    cr_assert(text.size == size, "%zu", text.size);
    return text;
}

static void expect(int fd, int status, const char *body, size_t size) {
    struct web_answer answer = web_hear(fd);
    cr_expect(answer.status == status, "%zu bytes: %d %s", size, answer.status, answer.body);
    if (body) cr_expect_str_eq(answer.body, body);
    web_free(&answer);
}

static void say(int fd, const char *first, size_t size, unsigned lines) {
    struct buffer text = header(first, size, lines);
    web_send(fd, text.data, text.size);
    buffer_free(&text);
}

Test(long_headers, every_size_up_to_the_limit) {
    struct world *world = world_start(NULL);
    free(web_want(world, 200, "PUT /v1/kv/a", "value"));
    for (size_t size = 100; size <= 33000; size += size < 12000 ? 61 : 509) {
        for (unsigned lines = 1; lines <= 100 && lines * 20 < size; lines += 33) {
            int fd = web_dial(world);
            bool fits = size <= 32768;
            say(fd, "GET /v1/kv/a?raw", size, lines);
            expect(fd, fits ? 200 : 431, fits ? "value" : LIMIT("header", "32768"), size);
            if (!fits) cr_expect(web_closed(fd));
            close(fd);
        }
    }
    int fd = web_dial(world);
    say(fd, "GET /v1/kv/a?raw", 32768, 1);
    expect(fd, 200, "value", 32768);
    say(fd, "GET /v1/kv/a?raw", 32768, 900);
    expect(fd, 200, "value", 32768);
    say(fd, "GET /v1/kv/a?raw", 32769, 1);
    expect(fd, 431, LIMIT("header", "32768"), 32769);
    close(fd);
    EVENTUALLY(web_metric(world, "coord_http_connections") == 1);
    world_stop(world);
}

/* On one connection, with bodies and waits; and from a connection that waited before. */
Test(long_headers, long_and_short_in_turn) {
    struct world *world = world_start(NULL);
    static const size_t sizes[] = {100, 300, 9000, 100, 4800, 20000, 200, 5000, 30000, 100};
    int fd = web_dial(world);
    struct buffer body = {0};
    while (body.size < 8000) buffer_printf(&body, "%zu ", body.size);
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        struct buffer text = header("PUT /v1/kv/b", sizes[i], 2);
        text.size -= 2;
        buffer_printf(&text, "Content-Length: %zu\r\n\r\n", body.size);
        buffer_append(&text, body.data, body.size);
        web_send(fd, text.data, text.size);
        expect(fd, 200, "true", sizes[i]);
        say(fd, "GET /v1/kv/b?raw", sizes[i], 3);
        expect(fd, 200, body.data, sizes[i]);
        say(fd, "GET /v1/kv/b?index=1000000&stale&wait=10ms", sizes[i], 1);
        expect(fd, 200, NULL, sizes[i]);
        buffer_free(&text);
    }
    buffer_free(&body);
    close(fd);
    fd = web_dial(world);
    say(fd, "GET /v1/kv/b?index=1000000&stale&wait=10ms", 100, 1);
    expect(fd, 200, NULL, 100);
    say(fd, "GET /v1/kv/b?index=1000000&stale&wait=60s", 9000, 1);
    EVENTUALLY(web_metric(world, "coord_http_blocking_queries") == 1);
    close(fd);
    EVENTUALLY(web_metric(world, "coord_http_blocking_queries") == 0);
    EVENTUALLY(web_metric(world, "coord_http_connections") == 1);
    world_stop(world);
}

/* RFC 9112 2.2: what old clients send in front of a request is ignored, and is no header that ended. */
Test(long_headers, behind_empty_lines) {
    struct world *world = world_start(NULL);
    free(web_want(world, 200, "PUT /v1/kv/a", "value"));
    for (unsigned cut = 0; cut < 2; cut++) {
        int fd = web_dial(world);
        struct buffer text = {0}, request = header("GET /v1/kv/a?raw", 20000, 1);
        buffer_append_text(&text, "\r\n\r\n");
        if (cut) {
            web_send(fd, text.data, text.size);
            usleep(20000);
            text.size = 0;
        }
        buffer_append(&text, request.data, request.size);
        web_send(fd, text.data, text.size);
        expect(fd, 200, "value", cut);
        close(fd);
        buffer_free(&text);
        buffer_free(&request);
    }
    world_stop(world);
}

/* However it is cut, nothing of it is lost, and it is served once. */
Test(long_headers, in_pieces) {
    struct world *world = world_start(NULL);
    struct rng rng;
    rng_seed(&rng, 7);
    int fd = web_dial(world);
    for (int i = 0; i < 60; i++) {
        if (i % 3 == 0) {
            close(fd);
            fd = web_dial(world);
        }
        char first[64];
        snprintf(first, sizeof first, "PUT /v1/kv/pieces?cas=%d", i);
        size_t size = 200 + rng_below(&rng, i % 2 ? 1000 : 32000), at = 0;
        struct buffer text = header(first, size, 1 + (unsigned)rng_below(&rng, 8));
        text.size -= 2;
        buffer_append_text(&text, "Content-Length: 3\r\n\r\nabc");
        while (at < text.size) {
            size_t piece = 1 + rng_below(&rng, i % 5 ? 2000 : 60);
            if (piece > text.size - at) piece = text.size - at;
            web_send(fd, text.data + at, piece);
            at += piece;
            if (i % 4 == 0) usleep(100);
        }
        struct web_answer answer = web_hear(fd);
        cr_expect(answer.status == 200, "%zu bytes: %d %s", size, answer.status, answer.body);
        web_free(&answer);
        buffer_free(&text);
    }
    close(fd);
    EVENTUALLY(web_metric(world, "coord_http_connections") == 1);
    world_stop(world);
}

/* The server does not see where a request begins that follows another one in the same piece: it has the little memory,
 * and the line says so. A request after a long one has more. */
Test(long_headers, pipelined) {
    struct world *world = world_start(NULL);
    free(web_want(world, 200, "PUT /v1/kv/a", "value"));
    struct buffer all = header("GET /v1/kv/a?raw", 100, 1), text = header("GET /v1/kv/a?raw", 12000, 1);
    buffer_append(&all, text.data, text.size);
    int fd = web_dial(world);
    web_send(fd, all.data, all.size);
    expect(fd, 200, "value", 100);
    expect(fd, 431, MEMORY, 12000);
    cr_expect(web_closed(fd));
    close(fd);
    fd = web_dial(world);
    web_send(fd, text.data, text.size);
    for (int i = 0; i < 5; i++) web_send(fd, all.data, all.size);
    for (int i = 0; i < 11; i++) expect(fd, 200, "value", 12000);
    close(fd);
    buffer_free(&all);
    buffer_free(&text);
    world_stop(world);
}

Test(long_headers, the_limit_is_a_setting) {
    struct http_config config = {.header_max = 1000};
    struct world *world = world_start(&config);
    int fd = web_dial(world);
    say(fd, "GET /v1/catalog/datacenters", 1000, 3);
    expect(fd, 200, "[\"dc1\"]", 1000);
    say(fd, "GET /v1/catalog/datacenters", 1001, 3);
    expect(fd, 431, LIMIT("header", "1000"), 1001);
    cr_expect(web_closed(fd));
    close(fd);
    char *key = mem_alloc(1101);
    memset(key, 'k', 1100);
    key[1100] = '\0';
    fd = web_dial(world);
    web_say(fd, "GET /v1/kv/%s HTTP/1.1\r\nHost: x\r\n\r\n", key);
    expect(fd, 414, LIMIT("URL", "1000"), 1100);
    free(key);
    close(fd);
    world_stop(world);
    config.header_max = 100000;
    world = world_start(&config);
    fd = web_dial(world);
    say(fd, "GET /v1/catalog/datacenters", 100000, 100);
    expect(fd, 200, "[\"dc1\"]", 100000);
    say(fd, "GET /v1/catalog/datacenters", 100001, 100);
    expect(fd, 431, LIMIT("header", "100000"), 100001);
    close(fd);
    world_stop(world);
}

/* Whoever leaves in the middle leaves nothing behind; whoever begins and goes silent is told so. */
Test(long_headers, who_breaks_off) {
    struct http_config config = {.idle_timeout_ms = 1000};
    struct world *world = world_start(&config);
    for (size_t size = 1000; size < 30000; size += 1700) {
        struct buffer text = header("GET /v1/kv/a", 32000, 4);
        int fd = web_dial(world);
        web_send(fd, text.data, size);
        close(fd);
        buffer_free(&text);
    }
    struct buffer text = header("GET /v1/kv/a", 32000, 4);
    int fd = web_dial(world);
    web_send(fd, text.data, 9000);
    expect(fd, 408, "Request timeout: the header did not come in time", 9000);
    cr_expect(web_closed(fd));
    close(fd);
    buffer_free(&text);
    EVENTUALLY(web_metric(world, "coord_http_connections") == 1);
    world_stop(world);
}
