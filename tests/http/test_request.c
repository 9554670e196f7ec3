/* Requests that are taken, and requests that are refused, byte by byte. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "kv/keys/kv.h"
#include "web_world.h"

#define TEXT "text/plain; charset=utf-8"
#define JSON "application/json"

struct exchange {
    const char *bytes;
    size_t size;      /* 0: strlen */
    int status;       /* 0: no answer */
    const char *body; /* NULL: not looked at */
    bool closes;
};

static void talk(const struct world *world, const struct exchange *exchange) {
    int fd = web_dial(world);
    size_t size = exchange->size ? exchange->size : strlen(exchange->bytes);
    web_send(fd, exchange->bytes, size);
    struct web_answer answer = web_hear(fd);
    cr_expect(answer.status == exchange->status, "status %d, wanted %d for %s", answer.status, exchange->status,
              exchange->bytes);
    if (exchange->body && answer.body)
        cr_expect_str_eq(answer.body, exchange->body, "for %s\ngot: %s", exchange->bytes, answer.body);
    if (exchange->body && *exchange->body && answer.status >= 400) {
        cr_expect(answer.size > 0 && !strchr(answer.body, '\n'), "an error is one line: %s", answer.body);
    }
    if (exchange->closes) {
        cr_expect(web_closed(fd), "stays open after %s", exchange->bytes);
    } else {
        web_say(fd, "GET /v1/catalog/datacenters HTTP/1.1\r\nHost: x\r\n\r\n");
        struct web_answer next = web_hear(fd);
        cr_expect(next.status == 200, "the connection is of no more use after %s", exchange->bytes);
        web_free(&next);
    }
    web_free(&answer);
    close(fd);
}

#define GET(target)  "GET " target " HTTP/1.1\r\nHost: x\r\n\r\n"
#define HEADER(line) "PUT /v1/kv/none HTTP/1.1\r\nHost: x\r\n" line "\r\n\r\n"

static const struct exchange good[] = {
    {GET("/v1/catalog/datacenters"), 0, 200, "[\"dc1\"]", false},
    {GET("/v1/catalog/datacenters?pretty"), 0, 200, "[\n    \"dc1\"\n]\n", false},
    {GET("/v1/catalog/datacenters?unknown=%20&&x"), 0, 200, "[\"dc1\"]", false},
    {GET("/v1/catalog/nodes?dc=dc1&near=_agent&cached"), 0, 200, "[]", false},
    {GET("/v1/catalog/node/none"), 0, 200, "null", false},
    {GET("/v1/kv/none"), 0, 404, "", false},
    {GET("/"), 0, 200, "Coord Agent", false},
    {"GET /v1/catalog/datacenters HTTP/1.0\r\n\r\n", 0, 200, "[\"dc1\"]", true},
    {"GET /v1/catalog/datacenters HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 0, 200, "[\"dc1\"]", false},
    {"GET /v1/catalog/datacenters HTTP/1.1\r\nhOsT: x\r\nConnection: close\r\n\r\n", 0, 200, "[\"dc1\"]", true},
    {"\r\nGET /v1/catalog/datacenters HTTP/1.1\r\nHost: x\r\n\r\n", 0, 200, "[\"dc1\"]", false},
    {"GET /v1/catalog/datacenters HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 0, 200, "[\"dc1\"]", false},
    {"PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 0, 200, "true", false},
    {"PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\n\r\n", 0, 200, "true", false},
    {"PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
     "chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
     0, 200, "true", false},
    {GET("/v1/kv/k?raw"), 0, 200, "abcde", false},
    {"PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
     "chunked\r\n\r\n5\r\nabcde\r\n0\r\n!#$%&'*+-.^_`|~09azAZ: \ta\t\xc3\xa9\r\nX-Sum: 1\r\n\r\n",
     0, 200, "true", false},
    {"OPTIONS /v1/kv/k HTTP/1.1\r\nHost: x\r\n\r\n", 0, 200, "", false},
    {"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 0, 200, "", false},
    {"OPTIONS * HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 0, 200, "", false},
    {GET("http://127.0.0.1:8500/v1/kv/k?raw"), 0, 200, "abcde", false},
    {GET("HTTPS://other:/v1/kv/k?raw"), 0, 200, "abcde", false},
    {GET("Http://user:word@[2001:db8::1]:8500/v1/kv/k?raw"), 0, 200, "abcde", false},
    {"GET http://h/v1/kv/k?raw HTTP/1.0\r\n\r\n", 0, 200, "abcde", true},
    {"PUT http://h/v1/kv/k HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nvwxyz", 0, 200, "true", false},
    {GET("/v1/kv/k?raw"), 0, 200, "vwxyz", false},
    {GET("http://h"), 0, 200, "Coord Agent", false},
    {GET("http://h?pretty"), 0, 200, "Coord Agent", false},
    {GET("http://h/"), 0, 200, "Coord Agent", false},
    {"GET /v1/catalog/datacenters HTTP/1.1\r\nHost:\r\n!#$%&'*+-.^_`|~09azAZ: \ta\t\xc3\xa9\r\n\r\n", 0, 200,
     "[\"dc1\"]", false},
};

static const struct exchange bad[] = {
    {GET("/v1/nothing"), 0, 404, "Invalid path: there is no such endpoint", false},
    {"PATCH /v1/kv/k HTTP/1.1\r\nHost: x\r\n\r\n", 0, 405, "method PATCH not allowed; allowed: GET,PUT,DELETE", false},
    {"POST /v1/catalog/nodes HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab", 0, 405,
     "method POST not allowed; allowed: GET", false},
    {"get /v1/catalog/nodes HTTP/1.1\r\nHost: x\r\n\r\n", 0, 405, "method get not allowed; allowed: GET", false},
    {"GET /v1/catalog/nodes HTTP/1.1\r\n\r\n", 0, 400, "Bad request: missing required Host header", true},
    {"GET /v1/catalog/nodes HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 0, 400, "Bad request: more than one Host header",
     true},
    {"PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na", 0, 400,
     "Bad request: more than one Content-Length header", true},
    {"PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: "
     "chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n",
     0, 400, "Bad request: both Content-Length and Transfer-Encoding", true},
    {"PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
     "chunked\r\n\r\n0\r\n\r\n",
     0, 400, "Bad request: more than one Transfer-Encoding header", true},
    {"PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\nabc", 0, 501, "Unsupported transfer encoding",
     true},
    {"PUT /v1/kv/k HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, 400,
     "Bad request: Transfer-Encoding in HTTP/1.0", true},
    {"PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nContent-Length : 5\r\n\r\nabcde", 0, 400,
     "Bad request: a header name is empty or holds a character that names cannot hold", true},
    {"PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", 0, 400, NULL, true},
    {"PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nContent-Length: 5x\r\n\r\n", 0, 400, NULL, true},
    {"PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n", 0, 413, NULL, true},
    {"PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 0, 400, NULL, true},
    {"PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nBad Name: x\r\n\r\n", 0,
     400, "Bad request: a header name is empty or holds a character that names cannot hold", true},
    {"PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nContent-Length : "
     "5\r\n\r\n",
     0, 400, "Bad request: a header name is empty or holds a character that names cannot hold", true},
    {"PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\na\tb: x\r\n\r\n", 0, 400,
     "Bad request: a header name is empty or holds a character that names cannot hold", true},
    {"PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\na(b): x\r\n\r\n", 0, 400,
     "Bad request: a header name is empty or holds a character that names cannot hold", true},
    {"PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nn\xc3\xa9: x\r\n\r\n", 0,
     400, "Bad request: a header name is empty or holds a character that names cannot hold", true},
    {"PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nGood: x\r\n@: x\r\n\r\n",
     0, 400, "Bad request: a header name is empty or holds a character that names cannot hold", true},
    {"PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nGood: a\x01z\r\n\r\n", 0,
     400, "Bad request: a header value holds a control character", true},
    {"PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n: x\r\n\r\n", 0, 400, NULL,
     true},
    {"PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nnonsense\r\n\r\n", 0, 400,
     NULL, true},
    {"nonsense\r\n\r\n", 0, 400, "Bad request: not a request line", true},
    {"GET / HTTP/9.9\r\nHost: x\r\n\r\n", 0, 505, NULL, true},
    {"GET /v1/kv/%zz HTTP/1.1\r\nHost: x\r\n\r\n", 0, 400, "Bad request: bad percent-encoding or NUL in the path",
     false},
    {GET("/v1/kv/a%"), 0, 400, "Bad request: bad percent-encoding or NUL in the path", false},
    {GET("/v1/kv/a%00b"), 0, 400, "Bad request: bad percent-encoding or NUL in the path", false},
    {GET("/v1/kv/a?x=%4"), 0, 400, "Bad request: bad percent-encoding or NUL in the parameter x", false},
    {GET("/v1/kv/a?%00"), 0, 400, "Bad request: bad percent-encoding or NUL in the name of a parameter", false},
    {GET("/v1/kv/a b"), 0, 400, "Bad request: the target holds a NUL, a blank or a control character", false},
    {GET("/v1/kv/a\x01"), 0, 400, "Bad request: the target holds a NUL, a blank or a control character", false},
    {GET("http:///v1/kv/a"), 0, 400, "Bad request: the target is neither a path nor an http URL with a host", false},
    {GET("http://h:80x/v1/kv/a"), 0, 400, "Bad request: the target is neither a path nor an http URL with a host",
     false},
    {GET("http://h:80:80/v1/kv/a"), 0, 400, "Bad request: the target is neither a path nor an http URL with a host",
     false},
    {GET("http://[::1/v1/kv/a"), 0, 400, "Bad request: the target is neither a path nor an http URL with a host",
     false},
    {GET("http://[::1]80/v1/kv/a"), 0, 400, "Bad request: the target is neither a path nor an http URL with a host",
     false},
    {GET("http://a\"b/v1/kv/a"), 0, 400, "Bad request: the target is neither a path nor an http URL with a host",
     false},
    {GET("http://u@/v1/kv/a"), 0, 400, "Bad request: the target is neither a path nor an http URL with a host", false},
    {GET("http:/v1/kv/a"), 0, 400, "Bad request: the target is neither a path nor an http URL with a host", false},
    {GET("ftp://h/v1/kv/a"), 0, 400, "Bad request: the target is neither a path nor an http URL with a host", false},
    {GET("v1/kv/a"), 0, 400, "Bad request: the target is neither a path nor an http URL with a host", false},
    {GET("*"), 0, 400, "Bad request: the target is neither a path nor an http URL with a host", false},
    {"CONNECT h:80 HTTP/1.1\r\nHost: x\r\n\r\n", 0, 400,
     "Bad request: the target is neither a path nor an http URL with a host", false},
    {GET("http://h/v1/kv/a\x01"), 0, 400, "Bad request: the target holds a NUL, a blank or a control character", false},
    {GET("http://h/v1/kv/%zz"), 0, 400, "Bad request: bad percent-encoding or NUL in the path", false},
    {GET("http://h/v1/nothing"), 0, 404, "Invalid path: there is no such endpoint", false},
    {"GET http://h/v1/kv/a HTTP/1.1\r\n\r\n", 0, 400, "Bad request: missing required Host header", true},
    {"GET http://h/v1/kv/a HTTP/1.1\r\nHost: a\r\nHost: h\r\n\r\n", 0, 400, "Bad request: more than one Host header",
     true},
    {"GET /v1/kv/a HTTP/1.1\r\nHost: a b\r\n\r\n", 0, 400, "Bad request: malformed Host header", true},
    {"GET /v1/kv/a HTTP/1.1\r\nHost: a/b\r\n\r\n", 0, 400, "Bad request: malformed Host header", true},
    {HEADER("X y: 1"), 0, 400, "Bad request: a header name is empty or holds a character that names cannot hold", true},
    {HEADER("X-y : 1"), 0, 400, "Bad request: a header name is empty or holds a character that names cannot hold",
     true},
    {HEADER("X\ty: 1"), 0, 400, "Bad request: a header name is empty or holds a character that names cannot hold",
     true},
    {HEADER("X(y: 1"), 0, 400, "Bad request: a header name is empty or holds a character that names cannot hold", true},
    {HEADER("X\"y: 1"), 0, 400, "Bad request: a header name is empty or holds a character that names cannot hold",
     true},
    {HEADER("X/y: 1"), 0, 400, "Bad request: a header name is empty or holds a character that names cannot hold", true},
    {HEADER("X\xc3\xa9: 1"), 0, 400, "Bad request: a header name is empty or holds a character that names cannot hold",
     true},
    {HEADER("X\x7f: 1"), 0, 400, "Bad request: a header name is empty or holds a character that names cannot hold",
     true},
    {HEADER(": 1"), 0, 400, NULL, true},
    {HEADER("X"), 0, 400, NULL, true},
    {HEADER("X: a\x01"), 0, 400, "Bad request: a header value holds a control character", true},
    {HEADER("X: a\x7f"), 0, 400, "Bad request: a header value holds a control character", true},
    {HEADER("X: a\rY: b"), 0, 400, "Bad request: a header value holds a control character", true},
    {"GET /v1/kv/a\0b HTTP/1.1\r\nHost: x\r\n\r\n", sizeof "GET /v1/kv/a\0b HTTP/1.1\r\nHost: x\r\n\r\n" - 1, 400,
     "Bad request: the target holds a NUL, a blank or a control character", false},
    {GET("/v1/catalog/nodes?index=-1"), 0, 400, "Invalid index: \"-1\" is no whole number", false},
    {GET("/v1/catalog/nodes?index=1x"), 0, 400, "Invalid index: \"1x\" is no whole number", false},
    {GET("/v1/catalog/nodes?index=18446744073709551616"), 0, 400,
     "Invalid index: \"18446744073709551616\" is larger than 2^64-1", false},
    {GET("/v1/catalog/nodes?index=1%0d%0a2"), 0, 400, "Invalid index: \"1??2\" is no whole number", false},
    {GET("/v1/catalog/nodes?wait=10"), 0, 400, "Invalid wait time: \"10\" is no duration such as \"10s\" or \"1m30s\"",
     false},
    {GET("/v1/catalog/nodes?index=1&wait=-1s"), 0, 400, "Invalid wait time: \"-1s\" is negative", false},
    {GET("/v1/catalog/nodes?wait=99999999999999h"), 0, 400, "Invalid wait time: \"99999999999999h\" is too long",
     false},
    {GET("/v1/catalog/nodes?stale&consistent"), 0, 400,
     "Cannot specify ?stale with ?consistent, conflicting semantics.", false},
    {GET("/v1/catalog/nodes?filter=x"), 0, 400, "filter: expressions are not supported by this server", false},
    {GET("/v1/catalog/nodes?ns=x"), 0, 400,
     "Bad request: Invalid query parameter: \"ns\" - Namespaces are a Consul Enterprise feature", false},
    {GET("/v1/catalog/nodes?dc=other"), 0, 500, "No path to datacenter", false},
    {GET("/v1/catalog/service/"), 0, 400, "Missing service name", false},
    {GET("/v1/catalog/service"), 0, 400, "Missing service name", false},
    {GET("/v1/health/state/odd"), 0, 400, "Invalid check state \"odd\": one of any, passing, warning, critical", false},
    {GET("/v1/health/service/web?passing=perhaps"), 0, 400, "Invalid value for ?passing", false},
    {GET("/v1/agent/metrics?format=odd"), 0, 400, "format: \"odd\" is not known; \"prometheus\", or none for JSON",
     false},
};

Test(request, taken) {
    struct world *world = world_start(NULL);
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) talk(world, &good[i]);
    world_stop(world);
}

Test(request, refused) {
    struct world *world = world_start(NULL);
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) talk(world, &bad[i]);
    world_stop(world);
}

Test(request, in_single_bytes) {
    struct world *world = world_start(NULL);
    int fd = web_dial(world);
    const char *text = "PUT /v1/kv/slow HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc";
    for (const char *at = text; *at; at++) web_send(fd, at, 1);
    struct web_answer answer = web_hear(fd);
    cr_expect_str_eq(answer.body, "true");
    web_free(&answer);
    close(fd);
    free(web_want(world, 200, "GET /v1/kv/slow?raw", NULL));
    world_stop(world);
}

Test(request, pipelined) {
    struct world *world = world_start(NULL);
    int fd = web_dial(world);
    struct buffer text = {0};
    for (int i = 0; i < 50; i++) {
        buffer_printf(&text, "PUT /v1/kv/p%d HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n%02d", i, i);
        buffer_printf(&text, "GET /v1/kv/p%d?raw HTTP/1.1\r\nHost: x\r\n\r\n", i);
    }
    web_send(fd, text.data, text.size);
    for (int i = 0; i < 50; i++) {
        char wanted[16];
        snprintf(wanted, sizeof wanted, "%02d", i);
        struct web_answer put = web_hear(fd), get = web_hear(fd);
        cr_expect_str_eq(put.body, "true");
        cr_expect_str_eq(get.body, wanted);
        web_free(&put);
        web_free(&get);
    }
    buffer_free(&text);
    close(fd);
    world_stop(world);
}

Test(request, head_has_no_body) {
    struct world *world = world_start(NULL);
    int fd = web_dial(world);
    web_say(fd, "HEAD /v1/catalog/datacenters HTTP/1.1\r\nHost: x\r\n\r\n");
    struct web_answer head = web_hear_head(fd);
    cr_expect(head.status == 200);
    cr_expect_str_eq(web_header(&head, "Content-Length"), "7");
    web_say(fd, GET("/v1/catalog/datacenters"));
    struct web_answer next = web_hear(fd);
    cr_expect_str_eq(next.body, "[\"dc1\"]");
    web_free(&head);
    web_free(&next);
    close(fd);
    world_stop(world);
}

/* ---- sizes ---- */

Test(request, long_target_and_headers) {
    struct world *world = world_start(NULL);
    char *long_text = mem_alloc(100001);
    memset(long_text, 'a', 100000);
    long_text[100000] = '\0';
    int fd = web_dial(world);
    web_say(fd, "GET /v1/kv/%s HTTP/1.1\r\nHost: x\r\n\r\n", long_text);
    struct web_answer answer = web_hear(fd);
    cr_expect(answer.status == 414, "%d", answer.status);
    web_free(&answer);
    close(fd);
    fd = web_dial(world);
    web_say(fd, "GET /v1/kv/a HTTP/1.1\r\nHost: x\r\nX-Long: %s\r\n\r\n", long_text);
    answer = web_hear(fd);
    cr_expect(answer.status == 431, "%d", answer.status);
    web_free(&answer);
    close(fd);
    /* The longest possible key fits. */
    long_text[KV_KEY_MAX] = '\0';
    fd = web_dial(world);
    web_say(fd, "PUT /v1/kv/%s HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nv", long_text);
    answer = web_hear(fd);
    cr_expect(answer.status == 200, "%d %s", answer.status, answer.body);
    web_free(&answer);
    close(fd);
    free(long_text);
    world_stop(world);
}

/* Up to a size it is served, above it is refused; nowhere in between is there silence. */
Test(request, every_size_is_answered) {
    struct world *world = world_start(NULL);
    char *path = mem_alloc(12001);
    memset(path, 'k', 12000);
    path[12000] = '\0';
    int served = 0;
    for (int size = 6000; size < 12000; size += 16) {
        int fd = web_dial(world);
        web_say(fd, "PUT /v1/kv/%.*s HTTP/1.1\r\nHost: x\r\nAccept: */*\r\nContent-Length: 1\r\n\r\nv", size, path);
        struct web_answer answer = web_hear(fd);
        bool refused = answer.status == 400 || answer.status == 414 || answer.status == 431;
        cr_expect(size <= KV_KEY_MAX ? answer.status == 200 : refused, "%d bytes: %d", size, answer.status);
        if (answer.status == 200) served = size;
        web_free(&answer);
        close(fd);
    }
    cr_expect(served == KV_KEY_MAX, "%d", served);
    free(path);
    world_stop(world);
}

/* A large body in one go, then the next request on the same connection: the refusal is readable and the rest is not
 * taken for a request. */
static void large(const struct world *world, const char *target, size_t size, bool chunked, int status,
                  const char *body) {
    int fd = web_dial(world);
    char *data = mem_alloc(size);
    memset(data, 'G', size);
    if (chunked) {
        web_say(fd, "PUT %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%zx\r\n", target, size);
    } else {
        web_say(fd, "PUT %s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n", target, size);
    }
    web_send(fd, data, size);
    if (chunked) web_say(fd, "\r\n0\r\n\r\n");
    struct web_answer answer = web_hear(fd);
    cr_expect(answer.status == status, "%zu bytes: %d", size, answer.status);
    if (body) cr_expect_str_eq(answer.body, body);
    web_free(&answer);
    web_say(fd, GET("/v1/catalog/datacenters"));
    answer = web_hear(fd);
    cr_expect(answer.status == 200);
    web_free(&answer);
    close(fd);
    free(data);
}

Test(request, large_bodies) {
    struct world *world = world_start(NULL);
    size_t most = 512 * 1024;
    large(world, "/v1/kv/big", most, false, 200, "true");
    large(world, "/v1/kv/big", most, true, 200, "true");
    large(world, "/v1/kv/big", most + 1, false, 413,
          "Request body(524289 bytes) too large, max size: 524288 bytes (limits.kv_max_value_size)");
    large(world, "/v1/kv/big", most + 1, true, 413,
          "Request body too large, max size: 524288 bytes (limits.kv_max_value_size)");
    large(world, "/v1/kv/big", 3 << 20, false, 413, NULL);
    large(world, "/v1/catalog/register", (1 << 20) + 1, false, 413,
          "Request body(1048577 bytes) too large, max size: 1048576 bytes (coord.http_body_max)");
    world_stop(world);
}

Test(request, a_huge_body_is_refused_before_it_is_sent) {
    struct world *world = world_start(NULL);
    int fd = web_dial(world);
    web_say(fd, "PUT /v1/kv/big HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n");
    struct web_answer answer = web_hear(fd);
    cr_expect(answer.status == 413, "%d", answer.status);
    cr_expect_str_eq(answer.body,
                     "Request body(99999999999 bytes) too large, max size: 524288 bytes (limits.kv_max_value_size)");
    cr_expect(web_closed(fd));
    web_free(&answer);
    close(fd);
    world_stop(world);
}

Test(request, expect_is_answered_before_the_body) {
    struct world *world = world_start(NULL);
    int fd = web_dial(world);
    web_say(fd, "PUT /v1/kv/big HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n");
    struct web_answer answer = web_hear(fd);
    cr_expect(answer.status == 413, "%d", answer.status);
    cr_expect(web_closed(fd));
    web_free(&answer);
    close(fd);
    fd = web_dial(world);
    web_say(fd, "PUT /v1/kv/small HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    char line[26] = {0};
    cr_assert(recv(fd, line, 25, MSG_WAITALL) == 25);
    cr_expect_str_eq(line, "HTTP/1.1 100 Continue\r\n\r\n");
    web_say(fd, "abc");
    answer = web_hear(fd);
    cr_expect(answer.status == 200);
    web_free(&answer);
    close(fd);
    world_stop(world);
}

/* ---- JSON bodies ---- */

static const struct {
    const char *body;
    int status;
    const char *text;
} registers[] = {
    {"", 400, "Request decode failed: JSON: the text is empty"},
    {"{", 400, NULL},
    {"[]", 400, "Request decode failed: JSON: an object is wanted"},
    {"{\"Node\":5,\"Address\":\"a\"}", 400, NULL},
    {"{\"Address\":\"a\"}", 400, "Must provide node"},
    {"{\"Node\":\"n\"}", 400, "Must provide address if SkipNodeUpdate is not set"},
    {"{\"Node\":\"n\",\"Address\":\"a\",\"Odd\":1}", 400, NULL},
    {"{\"Node\":\"n\",\"Address\":\"a\",\"ID\":\"odd\"}", 400, "Bad node ID: \"odd\" is no UUID"},
    {"{\"Node\":\"n\",\"Address\":\"a\",\"Datacenter\":\"dc9\"}", 500, "No path to datacenter"},
    {"{\"Node\":\"n\",\"Address\":\"a\",\"NodeMeta\":{\"k\":1}}", 400, "NodeMeta.k: a string is wanted"},
    {"{\"Node\":\"n\",\"Address\":\"a\",\"TaggedAddresses\":{\"lan\":\"a\\u0000b\"}}", 400,
     "TaggedAddresses.lan holds a NUL"},
    {"{\"Node\":\"n\",\"Address\":\"a\",\"Service\":{\"ID\":\"s\"}}", 400, "Must provide service name with ID"},
    {"{\"Node\":\"n\",\"Address\":\"a\",\"Service\":{\"Service\":\"s\",\"Port\":65536}}", 400, NULL},
    {"{\"Node\":\"n\",\"Address\":\"a\",\"Service\":{\"Service\":\"s\",\"Tags\":[1]}}", 400,
     "Tags[0]: a string is wanted"},
    {"{\"Node\":\"n\",\"Address\":\"a\",\"Service\":{\"Service\":\"s\",\"Tags\":[\"a\\u0000b\"]}}", 400,
     "Tags[0] holds a NUL"},
    {"{\"Node\":\"n\",\"Address\":\"a\",\"Check\":{\"Status\":\"passing\"}}", 400, "Must provide check ID or name"},
    {"{\"Node\":\"n\",\"Address\":\"a\",\"Check\":{\"Name\":\"c\",\"Status\":\"odd\"}}", 400,
     "Invalid check status \"odd\": one of passing, warning, critical"},
    {"{\"Node\":\"n\",\"Address\":\"a\",\"Check\":{\"Node\":\"m\",\"Name\":\"c\"}}", 400,
     "Check node \"m\" is not the registered node \"n\""},
    {"{\"Node\":\"n\",\"Address\":\"a\",\"Checks\":[3]}", 400, "Checks[0]: an object is wanted"},
    {"{\"node\":\"n\",\"ADDRESS\":\"a\",\"node_meta\":{\"k\":\"v\"},\"service\":{\"service\":\"s\",\"tags\":["
     "\"t\"]}}",
     200, "true"},
};

Test(request, registrations) {
    struct world *world = world_start(NULL);
    for (size_t i = 0; i < ARRAY_COUNT(registers); i++) {
        struct web_answer answer = web_ask(world, "PUT /v1/catalog/register", registers[i].body);
        cr_expect(answer.status == registers[i].status, "%s: %d %s", registers[i].body, answer.status, answer.body);
        if (registers[i].text) cr_expect_str_eq(answer.body, registers[i].text);
        cr_expect(answer.size > 0 && !strchr(answer.body, '\n'));
        web_free(&answer);
    }
    char *nodes = web_want(world, 200, "GET /v1/catalog/nodes", NULL);
    cr_expect_str_eq(nodes,
                     "[{\"ID\":\"\",\"Node\":\"n\",\"Address\":\"a\",\"Datacenter\":\"dc1\",\"TaggedAddresses\":null,"
                     "\"Meta\":{\"k\":\"v\"},\"CreateIndex\":1,\"ModifyIndex\":1}]");
    free(nodes);
    world_stop(world);
}
