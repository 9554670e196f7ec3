/* HTTP checks: libcurl's multi interface on the loop. curl says which sockets and which timer it wants to hear of;
 * we tell it what happened and collect what has ended.
 *
 * Each attempt takes a fresh connection: a check that rides an old one would not see that nobody accepts any more. */
#include <curl/curl.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "health/check_http.h"

struct runner_http {
    struct runners *runners;
    CURLM *multi;
    uv_timer_t timer;
    size_t handles; /* timer and polls that are not closed yet */
};

struct http_socket {
    uv_poll_t poll;
    struct runner_http *http;
    curl_socket_t fd;
};

/* -- the end of an attempt ---------------------------------------------------------------------------------------- */

static void http_free(struct http_run *http) {
    if (http->easy) curl_easy_cleanup(http->easy);
    curl_slist_free_all(http->headers);
    curl_slist_free_all(http->connect_to);
    free(http->method);
    free(http->url);
    free(http->host);
    free(http->tail);
    struct runners *runners = http->run.runners;
    free(http);
    runners_left(runners);
}

static void on_soon_closed(uv_handle_t *handle) { http_free(handle->data); }

/* Takes the attempt away from curl, and frees it. */
static void http_end(struct http_run *http) {
    if (http->begun) {
        curl_multi_remove_handle(http->run.runners->http->multi, http->easy);
        http_free(http);
    } else if (!uv_is_closing((uv_handle_t *)&http->soon)) {
        uv_close((uv_handle_t *)&http->soon, on_soon_closed);
    }
}

static void http_cancel(struct run *run) { http_end((struct http_run *)run); }

/* The method as Go's client names it in messages: "Get". */
static void append_operation(struct buffer *text, const char *method) {
    for (size_t i = 0; method[i]; i++) {
        bool upper = method[i] >= 'A' && method[i] <= 'Z';
        buffer_append_byte(text, upper && i > 0 ? (char)(method[i] + ('a' - 'A')) : method[i]);
    }
}

static void append_tail(struct buffer *text, const struct http_run *http) {
    if (http->body_size <= http->tail_max) {
        buffer_append(text, http->tail, http->body_size);
        return;
    }
    size_t at = http->body_size % http->tail_max;
    buffer_append(text, http->tail + at, http->tail_max - at);
    buffer_append(text, http->tail, at);
}

static void append_reason(struct buffer *text, const struct http_run *http, CURLcode code) {
    long number = 0;
    switch (code) {
        case CURLE_COULDNT_RESOLVE_HOST: buffer_printf(text, "dial tcp: lookup %s: no such host", http->host); break;
        case CURLE_COULDNT_CONNECT:
            curl_easy_getinfo(http->easy, CURLINFO_OS_ERRNO, &number);
            buffer_printf(text, "dial tcp %s: connect: %s", http->host,
                          number ? uv_strerror(-(int)number) : "no connection");
            break;
        case CURLE_OPERATION_TIMEDOUT: buffer_printf(text, "no answer within %" PRId64 " ms", http->timeout_ms); break;
        case CURLE_TOO_MANY_REDIRECTS: buffer_printf(text, "stopped after %d redirects", HTTP_REDIRECTS_MOST); break;
        case CURLE_OK: /* hung up within the head, as Go says it */ buffer_append_text(text, "unexpected EOF"); break;
        case CURLE_ABORTED_BY_CALLBACK: buffer_append_text(text, http->fault.text); break;
        case CURLE_PEER_FAILED_VERIFICATION:
            buffer_append_text(text, *http->error ? http->error : curl_easy_strerror(code));
            break;
        default: buffer_append_text(text, curl_easy_strerror(code)); break;
    }
}

/* An answer whose head has come counts, even if its body broke off or did not end in time. curl knows a status, and
 * may be content, once the first line has come. */
static bool has_answer(const struct http_run *http, CURLcode code, long status) {
    if (!http->head_complete) return false;
    if (code == CURLE_OK) return true;
    bool broke_off = code == CURLE_OPERATION_TIMEDOUT || code == CURLE_PARTIAL_FILE || code == CURLE_RECV_ERROR ||
                     code == CURLE_WRITE_ERROR;
    return broke_off && status >= 200;
}

static Pb__Status status_of(long status) {
    if (status >= 200 && status <= 299) return PB__STATUS__PASSING;
    return status == 429 ? PB__STATUS__WARNING : PB__STATUS__CRITICAL;
}

static void http_report(struct http_run *http, CURLcode code) {
    struct buffer text = {0};
    Pb__Status result = PB__STATUS__CRITICAL;
    long status = 0;
    curl_easy_getinfo(http->easy, CURLINFO_RESPONSE_CODE, &status);
    if (has_answer(http, code, status)) {
        result = status_of(status);
        buffer_printf(&text, "HTTP %s %s: %s Output: ", http->method, http->url, http->reason);
        append_tail(&text, http);
    } else {
        append_operation(&text, http->method);
        buffer_printf(&text, " \"%s\": ", http->url);
        append_reason(&text, http, code);
    }
    if (http->run.done) http->run.done(http->run.data, result, buffer_slice(&text));
    buffer_free(&text);
    http_end(http);
}

static void on_soon(uv_timer_t *timer) {
    struct http_run *http = timer->data;
    if (http->run.done) http->run.done(http->run.data, PB__STATUS__CRITICAL, slice_text(http->fault.text));
    http_end(http);
}

/* -- curl and the loop -------------------------------------------------------------------------------------------- */

static void http_free_engine(struct runner_http *http) {
    if (http->handles > 0) return;
    struct runners *runners = http->runners;
    free(http);
    runners_left(runners);
}

static void on_socket_closed(uv_handle_t *handle) {
    struct http_socket *socket = handle->data;
    struct runner_http *http = socket->http;
    free(socket);
    http->handles--;
    http_free_engine(http);
}

static void on_timer_closed(uv_handle_t *handle) {
    struct runner_http *http = handle->data;
    http->handles--;
    http_free_engine(http);
}

static void collect(struct runner_http *http) {
    int left;
    for (CURLMsg *message; (message = curl_multi_info_read(http->multi, &left));) {
        if (message->msg != CURLMSG_DONE) continue;
        struct http_run *run = NULL;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&run);
        http_report(run, code);
    }
}

static void on_poll(uv_poll_t *poll, int status, int events) {
    struct http_socket *socket = poll->data;
    struct runner_http *http = socket->http;
    int flags = status < 0 ? CURL_CSELECT_ERR : 0, running;
    if (events & UV_READABLE) flags |= CURL_CSELECT_IN;
    if (events & UV_WRITABLE) flags |= CURL_CSELECT_OUT;
    curl_multi_socket_action(http->multi, socket->fd, flags, &running);
    collect(http);
}

static int want_socket(CURL *easy, curl_socket_t fd, int what, void *data, void *known) {
    struct runner_http *http = data;
    struct http_socket *socket = known;
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (!socket) return 0;
        uv_poll_stop(&socket->poll);
        uv_close((uv_handle_t *)&socket->poll, on_socket_closed);
        curl_multi_assign(http->multi, fd, NULL);
        return 0;
    }
    if (!socket) {
        socket = mem_zalloc(sizeof *socket);
        if (uv_poll_init_socket(http->runners->loop, &socket->poll, fd) != 0) {
            free(socket);
            return -1;
        }
        socket->poll.data = socket;
        socket->http = http;
        socket->fd = fd;
        http->handles++;
        curl_multi_assign(http->multi, fd, socket);
    }
    int events = (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0);
    return uv_poll_start(&socket->poll, events, on_poll) == 0 ? 0 : -1;
}

static void on_timer(uv_timer_t *timer) {
    struct runner_http *http = timer->data;
    int running;
    curl_multi_socket_action(http->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    collect(http);
}

static int want_timer(CURLM *multi, long timeout_ms, void *data) {
    struct runner_http *http = data;
    (void)multi;
    if (timeout_ms < 0) {
        uv_timer_stop(&http->timer);
    } else {
        uv_update_time(http->runners->loop);
        uv_timer_start(&http->timer, on_timer, (uint64_t)timeout_ms, 0);
    }
    return 0;
}

static void init_curl(void) { CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK); }

/* libcurl and its TLS library take memory: only with the first HTTP check. */
static struct runner_http *engine(struct runners *runners) {
    static uv_once_t once = UV_ONCE_INIT;
    if (runners->http) return runners->http;
    uv_once(&once, init_curl);
    struct runner_http *http = mem_zalloc(sizeof *http);
    http->runners = runners;
    http->multi = curl_multi_init();
    CHECK(http->multi != NULL);
    uv_timer_init(runners->loop, &http->timer);
    http->timer.data = http;
    http->handles = 1;
    curl_multi_setopt(http->multi, CURLMOPT_SOCKETFUNCTION, want_socket);
    curl_multi_setopt(http->multi, CURLMOPT_SOCKETDATA, http);
    curl_multi_setopt(http->multi, CURLMOPT_TIMERFUNCTION, want_timer);
    curl_multi_setopt(http->multi, CURLMOPT_TIMERDATA, http);
    runners->http = http;
    runners->open++;
    return http;
}

void runner_http_close(struct runner_http *http) {
    if (!http) return;
    curl_multi_cleanup(http->multi); /* takes its sockets back through want_socket */
    uv_close((uv_handle_t *)&http->timer, on_timer_closed);
}

/* -- the beginning ------------------------------------------------------------------------------------------------ */

struct run *run_http_start(struct runners *runners, const struct check_definition *definition, uint32_t output_max) {
    struct runner_http *client = engine(runners);
    struct http_run *http = mem_zalloc(sizeof *http);
    http->run = (struct run){.runners = runners, .cancel = http_cancel, .said = &http->said};
    http->said.hint = load_unknown();
    runners->open++;
    http->easy = curl_easy_init();
    CHECK(http->easy != NULL);
    http->timeout_ms = definition->timeout_ns < 1000000 ? 1 : definition->timeout_ns / 1000000;
    http->tail_max = output_max ? output_max : 1;
    http->tail = mem_alloc(http->tail_max);
    http_request_prepare(http, definition);
    if (http->fault.code == CO_OK && curl_multi_add_handle(client->multi, http->easy) == CURLM_OK) {
        http->begun = true;
        return &http->run;
    }
    fault_set(&http->fault, CO_IO, "the request could not begin");
    uv_timer_init(runners->loop, &http->soon);
    http->soon.data = http;
    uv_timer_start(&http->soon, on_soon, 0, 0);
    return &http->run;
}
