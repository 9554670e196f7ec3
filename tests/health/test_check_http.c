#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "health/check_runner.h"
#include "health/definition.h"
#include "web.h"

struct outcome {
    bool ended;
    Pb__Status status;
    char *output;
    size_t size;
};

static void on_done(void *data, Pb__Status status, struct slice output) {
    struct outcome *outcome = data;
    cr_assert(!outcome->ended, "once");
    outcome->ended = true;
    outcome->status = status;
    outcome->output = mem_strndup(output.data, output.size);
    outcome->size = output.size;
}

static bool all_closed;
static void on_closed(struct runners *runners) {
    (void)runners;
    all_closed = true;
}

static struct check_definition *definition(const char *more, const char *url) {
    struct fault fault = {0};
    struct buffer text = {0};
    buffer_printf(&text, "{\"Name\":\"n\",\"Interval\":\"10s\",\"HTTP\":\"%s\"%s}", url, more);
    struct json_object *json = json_parse(buffer_slice(&text), &fault);
    struct check_definition *result = json ? check_definition_parse(json, &fault) : NULL;
    cr_assert_not_null(result, "%s: %s", text.data, fault.text);
    json_object_put(json);
    buffer_free(&text);
    return result;
}

/* Runs one check to its end; nothing is left open afterwards. */
static struct outcome run(const char *more, const char *url, uint32_t output_max) {
    uv_loop_t loop;
    struct runners runners;
    struct outcome outcome = {0};
    uv_loop_init(&loop);
    runners_init(&runners, &loop);
    struct check_definition *d = definition(more, url);
    struct run *one = run_start(&runners, d, output_max, on_done, &outcome);
    check_definition_free(d);
    cr_assert_not_null(one);
    cr_assert(!outcome.ended, "never from within the start");
    while (!outcome.ended) uv_run(&loop, UV_RUN_ONCE);
    all_closed = false;
    runners_close(&runners, on_closed);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(all_closed);
    cr_assert_eq(uv_loop_close(&loop), 0);
    return outcome;
}

static char *url_of(const struct web *web, const char *scheme, const char *path) {
    struct buffer text = {0};
    buffer_printf(&text, "%s://127.0.0.1:%u%s%c", scheme, web_port(web), path, '\0');
    return buffer_take(&text, NULL);
}

static void expect(const struct outcome *outcome, Pb__Status status, const char *format, const char *url) {
    struct buffer text = {0};
    buffer_printf(&text, format, url);
    buffer_append_byte(&text, '\0');
    cr_assert_eq(outcome->status, status, "%d: %s", outcome->status, outcome->output);
    cr_assert_str_eq(outcome->output, text.data);
    buffer_free(&text);
    free(outcome->output);
}

Test(http, statuses_and_output) {
    static const struct {
        const char *path, *more;
        Pb__Status status;
        const char *output;
    } rows[] = {
        {"/status/200", "", PB__STATUS__PASSING, "HTTP GET %s: 200 OK Output: hello"},
        {"/status/204", "", PB__STATUS__PASSING, "HTTP GET %s: 204 Whatever Output: "},
        {"/status/299", "", PB__STATUS__PASSING, "HTTP GET %s: 299 Whatever Output: hello"},
        {"/status/429", "", PB__STATUS__WARNING, "HTTP GET %s: 429 Too Many Requests Output: hello"},
        {"/status/500", "", PB__STATUS__CRITICAL, "HTTP GET %s: 500 Whatever Output: hello"},
        {"/status/404", "", PB__STATUS__CRITICAL, "HTTP GET %s: 404 Whatever Output: hello"},
        {"/status/302", "", PB__STATUS__CRITICAL, "HTTP GET %s: 302 Found Output: hello"},
        {"/status/200", ",\"Method\":\"HEAD\"", PB__STATUS__PASSING, "HTTP HEAD %s: 200 OK Output: "},
        {"/redirect/3", "", PB__STATUS__PASSING, "HTTP GET %s: 200 OK Output: hello"},
        {"/redirect/10", "", PB__STATUS__PASSING, "HTTP GET %s: 200 OK Output: hello"},
        {"/redirect/11", "", PB__STATUS__CRITICAL, "Get \"%s\": stopped after 10 redirects"},
        {"/redirect/3", ",\"DisableRedirects\":true", PB__STATUS__CRITICAL, "HTTP GET %s: 302 Found Output: elsewhere"},
        {"/hang", ",\"Timeout\":\"150ms\"", PB__STATUS__CRITICAL, "Get \"%s\": no answer within 150 ms"},
        {"/hang-body", ",\"Timeout\":\"150ms\"", PB__STATUS__PASSING, "HTTP GET %s: 200 OK Output: begin"},
        {"/close", "", PB__STATUS__CRITICAL, "Get \"%s\": Server returned nothing (no headers, no data)"},
        {"/half-head/hang", ",\"Timeout\":\"150ms\"", PB__STATUS__CRITICAL, "Get \"%s\": no answer within 150 ms"},
        {"/half-head/close", "", PB__STATUS__CRITICAL, "Get \"%s\": unexpected EOF"},
        {"/status/200", ",\"Method\":\"BO GUS\"", PB__STATUS__CRITICAL, "invalid method \"BO GUS\""},
        {"/status/200", ",\"Header\":{\"a b\":[\"c\"]}", PB__STATUS__CRITICAL, "invalid header field a b"},
        {"/status/200", ",\"Header\":{\"a\":[\"b\\r\\nc: d\"]}", PB__STATUS__CRITICAL, "invalid header field a"},
    };
    struct web *web = web_start(false);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        char *url = url_of(web, "http", rows[i].path);
        struct outcome outcome = run(rows[i].more, url, 4096);
        expect(&outcome, rows[i].status, rows[i].output, url);
        free(url);
    }
    web_stop(web);
}

Test(http, of_a_large_body_the_end_is_kept) {
    struct web *web = web_start(false);
    char *url = url_of(web, "http", "/bytes/80000");
    struct outcome outcome = run("", url, 20);
    expect(&outcome, PB__STATUS__PASSING, "HTTP GET %s: 200 OK Output: 997\n0009998\n0009999\n", url);
    free(url);
    url = url_of(web, "http", "/endless");
    outcome = run("", url, 8);
    expect(&outcome, PB__STATUS__PASSING, "HTTP GET %s: 200 OK Output: eeeeeeee", url);
    free(url);
    web_stop(web);
}

Test(http, the_request_is_as_asked) {
    struct web *web = web_start(false);
    char *url = url_of(web, "http", "/echo");
    struct outcome outcome =
        run(",\"Method\":\"POST\",\"Body\":\"bo "
            "dy\",\"Header\":{\"Host\":[\"ex.test\"],\"X-A\":[\"1\",\"2\"],\"X-E\":[\"\"]}",
            url, 4096);
    cr_assert_eq(outcome.status, PB__STATUS__PASSING);
    static const char *const parts[] = {"POST /echo HTTP/1.1\r\n",
                                        "\r\nHost: ex.test\r\n",
                                        "\r\nX-A: 1\r\n",
                                        "\r\nX-A: 2\r\n",
                                        "\r\nX-E:\r\n",
                                        "\r\nContent-Length: 5\r\n",
                                        "\r\n\r\nbo dy",
                                        "\r\nUser-Agent: Consul Health Check\r\n",
                                        "\r\nAccept: text/plain, text/*, */*\r\n",
                                        "\r\nConnection: close\r\n"};
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++) {
        cr_assert_not_null(strstr(outcome.output, parts[i]), "%s in %s", parts[i], outcome.output);
    }
    cr_assert_null(strcasestr(outcome.output, "Content-Type"));
    cr_assert_null(strcasestr(outcome.output, "Expect"));
    free(outcome.output);
    outcome = run(",\"Method\":\"PUT\",\"Header\":{\"user-agent\":[\"me\"],\"accept\":[\"a/b\"]}", url, 4096);
    cr_assert_not_null(strstr(outcome.output, "PUT /echo HTTP/1.1\r\n"), "%s", outcome.output);
    cr_assert_not_null(strstr(outcome.output, "\r\nuser-agent: me\r\n"), "%s", outcome.output);
    cr_assert_null(strstr(outcome.output, "Consul Health Check"));
    free(outcome.output);
    free(url);
    web_stop(web);
}

Test(http, passwords_are_not_shown) {
    struct web *web = web_start(false);
    struct buffer url = {0};
    buffer_printf(&url, "http://user:secret@127.0.0.1:%u/status/200%c", web_port(web), '\0');
    struct outcome outcome = run("", url.data, 4096);
    cr_assert_eq(outcome.status, PB__STATUS__PASSING);
    cr_assert_null(strstr(outcome.output, "secret"), "%s", outcome.output);
    cr_assert_not_null(strstr(outcome.output, "user:***@"), "%s", outcome.output);
    free(outcome.output);
    buffer_free(&url);
    web_stop(web);
}

Test(http, nobody_there) {
    struct buffer url = {0}, want = {0};
    uint16_t port = web_free_port();
    buffer_printf(&url, "http://127.0.0.1:%u/%c", port, '\0');
    buffer_printf(&want, "Get \"%s\": dial tcp 127.0.0.1:%u: connect: connection refused%c", url.data, port, '\0');
    struct outcome outcome = run("", url.data, 4096);
    expect(&outcome, PB__STATUS__CRITICAL, "%s", want.data);
    buffer_free(&url);
    buffer_free(&want);
}

Test(http, urls_that_are_none) {
    static const char *const urls[] = {"::::", "ftp://127.0.0.1/", "127.0.0.1:80/x",
                                       "",     "http://",          "file:///etc/passwd"};
    for (size_t i = 0; i < ARRAY_COUNT(urls); i++) {
        if (!*urls[i]) continue;
        struct outcome outcome = run("", urls[i], 4096);
        cr_assert_eq(outcome.status, PB__STATUS__CRITICAL, "%s", urls[i]);
        cr_assert_gt(outcome.size, 0);
        free(outcome.output);
    }
}

Test(https, verified_unless_told_otherwise) {
    struct web *web = web_start(true);
    char *url = url_of(web, "https", "/status/200");
    struct outcome outcome = run("", url, 4096);
    cr_assert_eq(outcome.status, PB__STATUS__CRITICAL, "%s", outcome.output);
    cr_assert_eq(web_requests(web), 0);
    free(outcome.output);
    outcome = run(",\"TLSSkipVerify\":true", url, 4096);
    expect(&outcome, PB__STATUS__PASSING, "HTTP GET %s: 200 OK Output: hello", url);
    free(url);
    url = url_of(web, "https", "/echo");
    outcome = run(",\"TLSSkipVerify\":true,\"TLSServerName\":\"check.test\"", url, 4096);
    cr_assert_eq(outcome.status, PB__STATUS__PASSING, "%s", outcome.output);
    struct buffer host = {0};
    buffer_printf(&host, "\r\nHost: 127.0.0.1:%u\r\n%c", web_port(web), '\0');
    cr_assert_not_null(strstr(outcome.output, host.data), "%s", outcome.output);
    buffer_free(&host);
    free(outcome.output);
    free(url);
    url = url_of(web, "http", "/status/200");
    outcome = run(",\"Timeout\":\"2s\"", url, 4096);
    cr_assert_eq(outcome.status, PB__STATUS__CRITICAL, "plain HTTP to a TLS port");
    free(outcome.output);
    free(url);
    web_stop(web);
}

Test(https, trusted_by_file_and_name) {
    char path[] = "/tmp/coord-test-XXXXXX";
    struct web *web = web_start(true);
    close(mkstemp(path));
    web_write_certificate(web, path);
    setenv("SSL_CERT_FILE", path, 1);
    char *url = url_of(web, "https", "/status/200");
    struct outcome outcome = run(",\"TLSServerName\":\"check.test\"", url, 4096);
    expect(&outcome, PB__STATUS__PASSING, "HTTP GET %s: 200 OK Output: hello", url);
    outcome = run(",\"TLSServerName\":\"other.test\"", url, 4096);
    cr_assert_eq(outcome.status, PB__STATUS__CRITICAL);
    cr_assert_not_null(strstr(outcome.output, "x509: "), "%s", outcome.output);
    free(outcome.output);
    outcome = run("", url, 4096);
    cr_assert_eq(outcome.status, PB__STATUS__CRITICAL, "the certificate does not name 127.0.0.1");
    free(outcome.output);
    cr_assert_eq(web_requests(web), 1, "nothing is sent to the wrong server");
    free(url);
    unlink(path);
    web_stop(web);
}

Test(http, many_at_once_and_some_given_up) {
    struct web *web = web_start(false);
    uv_loop_t loop;
    struct runners runners;
    struct outcome outcomes[40] = {0};
    struct run *runs[40];
    uv_loop_init(&loop);
    runners_init(&runners, &loop);
    char *fast = url_of(web, "http", "/status/200"), *slow = url_of(web, "http", "/hang");
    for (size_t i = 0; i < ARRAY_COUNT(runs); i++) {
        struct check_definition *d = definition("", i % 2 ? slow : fast);
        runs[i] = run_start(&runners, d, 4096, on_done, &outcomes[i]);
        check_definition_free(d);
    }
    uint64_t end = clock_mono_ms() + 60000;
    for (size_t ended = 0; ended < ARRAY_COUNT(runs) / 2;) {
        cr_assert_lt(clock_mono_ms(), end);
        uv_run(&loop, UV_RUN_ONCE);
        ended = 0;
        for (size_t i = 0; i < ARRAY_COUNT(runs); i += 2) ended += outcomes[i].ended;
    }
    for (size_t i = 1; i < ARRAY_COUNT(runs); i += 2) run_cancel(runs[i]);
    all_closed = false;
    runners_close(&runners, on_closed);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(all_closed);
    cr_assert_eq(uv_loop_close(&loop), 0);
    for (size_t i = 0; i < ARRAY_COUNT(runs); i++) {
        cr_assert_eq(outcomes[i].ended, i % 2 == 0);
        free(outcomes[i].output);
    }
    free(fast);
    free(slow);
    web_stop(web);
}

/* Returns the time that it took. */
static uint64_t give_up_a_look_up(void) {
    uv_loop_t loop;
    struct runners runners;
    struct outcome outcome = {0};
    uv_loop_init(&loop);
    runners_init(&runners, &loop);
    struct check_definition *d = definition("", "http://nowhere.invalid/");
    struct run *one = run_start(&runners, d, 4096, on_done, &outcome);
    check_definition_free(d);
    uv_run(&loop, UV_RUN_NOWAIT);
    uint64_t begin = clock_mono_ms();
    if (!outcome.ended) run_cancel(one);
    all_closed = false;
    runners_close(&runners, on_closed);
    uv_run(&loop, UV_RUN_DEFAULT);
    uint64_t took_ms = clock_mono_ms() - begin;
    cr_assert(all_closed);
    uv_loop_close(&loop);
    free(outcome.output);
    return took_ms;
}

/* A name that does not resolve must not stop the loop, not even while it is given up. */
Test(http, giving_up_a_look_up_does_not_wait) {
    uint64_t took_ms = give_up_a_look_up();
    for (int i = 0; i < 2 && took_ms >= 1000; i++) took_ms = give_up_a_look_up(); /* the machine stood still */
    cr_assert_lt(took_ms, 1000);
}
