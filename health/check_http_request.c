/* An HTTP check's definition as a request of libcurl. */
#include <curl/curl.h>
#include <stdlib.h>

#include "base/check.h"
#include "health/check_http.h"

#define BODY_MOST      ((size_t)1 << 20) /* what comes after it is not read */
#define RECEIVE_BUFFER 4096L

/* The value of a header line of this name. False: it is another. */
static bool header_value(struct slice line, const char *name, struct slice *value) {
    struct slice wanted = slice_text(name);
    if (line.size <= wanted.size || line.data[wanted.size] != ':' ||
        !slice_equal_nocase(slice_make(line.data, wanted.size), wanted))
        return false;
    size_t at = wanted.size + 1, end = line.size;
    while (at < end && (line.data[at] == ' ' || line.data[at] == '\t')) at++;
    while (end > at && (line.data[end - 1] == '\r' || line.data[end - 1] == '\n' || line.data[end - 1] == ' ')) end--;
    *value = slice_make(line.data + at, end - at);
    return true;
}

/* X-Coord-Load says more, and wins. */
static void see_load(struct http_run *http, struct slice line) {
    struct slice value;
    struct load_said said = {.hint = load_unknown()};
    if (header_value(line, "X-Coord-Load", &value)) {
        (void)load_parse_line(value, &said.hint, &said.fault);
        http->said = said, http->own_load = true;
    } else if (!http->own_load && header_value(line, "endpoint-load-metrics", &value)) {
        (void)load_parse_orca(value, &said.hint, &said.fault);
        http->said = said;
    }
}

/* NOLINTNEXTLINE(readability-non-const-parameter): the signature is libcurl's */
static size_t on_header(char *data, size_t one, size_t size, void *user) {
    struct http_run *http = user;
    (void)one;
    if (size > 0 && (data[0] == '\r' || data[0] == '\n')) http->head_complete = true;
    see_load(http, slice_make(data, size));
    if (size < 5 || memcmp(data, "HTTP/", 5) != 0) return size;
    http->said = (struct load_said){.hint = load_unknown()}, http->own_load = false;
    http->head_complete = false;
    const char *blank = memchr(data, ' ', size);
    size_t at = blank ? (size_t)(blank - data) + 1 : size, end = size;
    while (end > at && (data[end - 1] == '\r' || data[end - 1] == '\n' || data[end - 1] == ' ')) end--;
    size_t length = end - at < sizeof http->reason - 1 ? end - at : sizeof http->reason - 1;
    memcpy(http->reason, data + at, length);
    http->reason[length] = '\0';
    http->body_size = 0;
    return size;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): the signature is libcurl's */
static size_t on_body(char *data, size_t one, size_t size, void *user) {
    struct http_run *http = user;
    (void)one;
    for (size_t i = 0; i < size; i++) http->tail[http->body_size++ % http->tail_max] = data[i];
    return http->body_size <= BODY_MOST ? size : 0;
}

static bool is_token(const char *text) {
    if (*text == '\0') return false;
    for (; *text; text++) {
        bool alphanumeric =
            (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') || (*text >= '0' && *text <= '9');
        if (!alphanumeric && !strchr("!#$%&'*+-.^_`|~", *text)) return false;
    }
    return true;
}

static void add_header(struct http_run *http, const char *name, const char *value) {
    struct buffer line = {0};
    buffer_printf(&line, *value ? "%s: %s" : "%s;", name, value);
    buffer_append_byte(&line, '\0');
    http->headers = curl_slist_append(http->headers, line.data);
    CHECK(http->headers != NULL);
    buffer_free(&line);
}

static bool has_header(const struct check_definition *definition, const char *name) {
    for (size_t i = 0; i < definition->header_count; i++) {
        if (slice_equal_nocase(slice_text(definition->headers[i].name), slice_text(name))) return true;
    }
    return false;
}

/* Names and values come from whoever may register checks: they must not become a second request. */
static void set_headers(struct http_run *http, const struct check_definition *definition) {
    for (size_t i = 0; i < definition->header_count; i++) {
        const struct check_header *header = &definition->headers[i];
        if (!is_token(header->name) || strpbrk(header->value, "\r\n")) {
            fault_set(&http->fault, CO_INVALID, "invalid header field %.80s", header->name);
            return;
        }
        add_header(http, header->name, header->value);
    }
    if (!has_header(definition, "User-Agent")) add_header(http, "User-Agent", "Consul Health Check");
    if (!has_header(definition, "Accept")) add_header(http, "Accept", "text/plain, text/*, */*");
    if (!has_header(definition, "Connection")) add_header(http, "Connection", "close");
    /* curl adds these to requests with a body by itself. */
    static const char *const unwanted[] = {"Content-Type", "Expect"};
    for (size_t i = 0; i < ARRAY_COUNT(unwanted); i++) {
        struct buffer line = {0};
        if (has_header(definition, unwanted[i])) continue;
        buffer_printf(&line, "%s:%c", unwanted[i], '\0');
        http->headers = curl_slist_append(http->headers, line.data);
        buffer_free(&line);
    }
    curl_easy_setopt(http->easy, CURLOPT_HTTPHEADER, http->headers);
}

static void set_method(struct http_run *http, const struct check_definition *definition) {
    bool body = definition->body[0] != '\0';
    if (!is_token(http->method)) {
        fault_set(&http->fault, CO_INVALID, "invalid method \"%.80s\"", http->method);
        return;
    }
    if (strcmp(http->method, "POST") == 0) {
        curl_easy_setopt(http->easy, CURLOPT_POST, 1L);
        curl_easy_setopt(http->easy, CURLOPT_COPYPOSTFIELDS, definition->body);
    } else if (strcmp(http->method, "HEAD") == 0) {
        curl_easy_setopt(http->easy, CURLOPT_NOBODY, 1L);
    } else {
        if (body) curl_easy_setopt(http->easy, CURLOPT_COPYPOSTFIELDS, definition->body);
        curl_easy_setopt(http->easy, CURLOPT_CUSTOMREQUEST, http->method);
    }
}

static bool is_loopback(const char *host) {
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 || strcmp(host, "[::1]") == 0;
}

/* tls_server_name: the name that is sent and verified, while the connection goes to the host of the URL. */
static void set_server_name(struct http_run *http, CURLU *url, const struct check_definition *definition,
                            const char *host, const char *port) {
    struct buffer text = {0};
    char *whole = NULL;
    buffer_printf(&text, "%s:%s:%s:%s%c", definition->tls_server_name, port, host, port, '\0');
    http->connect_to = curl_slist_append(NULL, text.data);
    curl_easy_setopt(http->easy, CURLOPT_CONNECT_TO, http->connect_to);
    if (!has_header(definition, "Host")) add_header(http, "Host", strcmp(port, "443") == 0 ? host : http->host);
    if (curl_url_set(url, CURLUPART_HOST, definition->tls_server_name, 0) == CURLUE_OK &&
        curl_url_get(url, CURLUPART_URL, &whole, 0) == CURLUE_OK) {
        curl_easy_setopt(http->easy, CURLOPT_URL, whole);
    } else {
        fault_set(&http->fault, CO_INVALID, "invalid TLS server name \"%.80s\"", definition->tls_server_name);
    }
    curl_free(whole);
    buffer_free(&text);
}

/* The URL without its password, for people to read. */
static char *url_shown(CURLU *url, const char *given) {
    char *password = NULL, *text = NULL;
    char *shown = mem_strdup(given);
    if (curl_url_get(url, CURLUPART_PASSWORD, &password, 0) == CURLUE_OK) {
        CURLU *copy = curl_url_dup(url);
        curl_url_set(copy, CURLUPART_PASSWORD, "***", 0);
        if (curl_url_get(copy, CURLUPART_URL, &text, 0) == CURLUE_OK) {
            free(shown);
            shown = mem_strdup(text);
        }
        curl_url_cleanup(copy);
    }
    curl_free(password);
    curl_free(text);
    return shown;
}

static void set_url(struct http_run *http, const struct check_definition *definition) {
    CURLU *url = curl_url();
    char *scheme = NULL, *host = NULL, *port = NULL;
    CURLUcode code = curl_url_set(url, CURLUPART_URL, definition->http, CURLU_NON_SUPPORT_SCHEME | CURLU_PATH_AS_IS);
    if (code == CURLUE_OK) code = curl_url_get(url, CURLUPART_SCHEME, &scheme, 0);
    if (code == CURLUE_OK) code = curl_url_get(url, CURLUPART_HOST, &host, 0);
    if (code != CURLUE_OK) {
        fault_set(&http->fault, CO_INVALID, "parse \"%.150s\": %s", definition->http, curl_url_strerror(code));
    } else if (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0) {
        fault_set(&http->fault, CO_INVALID, "\"%.150s\": unsupported protocol scheme \"%.40s\"", definition->http,
                  scheme);
    } else {
        struct buffer text = {0};
        bool tls = strcmp(scheme, "https") == 0;
        curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT);
        buffer_printf(&text, "%s:%s%c", host, port ? port : "", '\0');
        http->host = buffer_take(&text, NULL);
        if (is_loopback(host)) curl_easy_setopt(http->easy, CURLOPT_NOPROXY, "*");
        curl_easy_setopt(http->easy, CURLOPT_PATH_AS_IS, 1L); /* "/a/../b" is asked for as it was registered */
        curl_easy_setopt(http->easy, CURLOPT_URL, definition->http);
        if (tls && definition->tls_server_name[0] && port) set_server_name(http, url, definition, host, port);
    }
    http->url = url_shown(url, definition->http);
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_url_cleanup(url);
}

/* Connected, nothing sent yet: is it the right server? Once more after each redirection. */
/* NOLINTNEXTLINE(readability-non-const-parameter): the signature is libcurl's */
static int before_request(void *user, char *remote, char *local, int remote_port, int local_port) {
    struct http_run *http = user;
    CURLU *url = curl_url();
    char *effective = NULL, *scheme = NULL, *host = NULL;
    (void)remote, (void)local, (void)remote_port, (void)local_port;
    bool fine = curl_easy_getinfo(http->easy, CURLINFO_EFFECTIVE_URL, &effective) == CURLE_OK && effective &&
                curl_url_set(url, CURLUPART_URL, effective, 0) == CURLUE_OK &&
                curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                curl_url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK;
    if (!fine) {
        fault_set(&http->fault, CO_INVALID, "the address to verify is not known");
    } else if (strcmp(scheme, "http") != 0) {
        size_t size = strlen(host);
        if (host[0] == '[' && size > 2) { /* certificates name IPv6 addresses without brackets */
            host[size - 1] = '\0';
            fine = http_tls_verify(http->easy, host + 1, &http->fault);
        } else {
            fine = http_tls_verify(http->easy, host, &http->fault);
        }
    }
    curl_free(scheme);
    curl_free(host);
    curl_url_cleanup(url);
    return fine ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT;
}

static void set_verification(struct http_run *http, const struct check_definition *definition) {
    bool ours = http_tls_can_verify();
    if (!ours && !definition->tls_skip_verify) return; /* curl's own, its default */
    curl_easy_setopt(http->easy, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(http->easy, CURLOPT_SSL_VERIFYHOST, 0L);
    curl_easy_setopt(http->easy, CURLOPT_CAINFO, NULL);
    curl_easy_setopt(http->easy, CURLOPT_CAPATH, NULL);
    if (definition->tls_skip_verify) return;
    curl_easy_setopt(http->easy, CURLOPT_PREREQFUNCTION, before_request);
    curl_easy_setopt(http->easy, CURLOPT_PREREQDATA, http);
}

static void set_options(struct http_run *http, const struct check_definition *definition) {
    CURL *easy = http->easy;
    curl_easy_setopt(easy, CURLOPT_PRIVATE, http);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, http->error);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)http->timeout_ms);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)http->timeout_ms);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, definition->disable_redirects ? 0L : 1L);
    curl_easy_setopt(easy, CURLOPT_MAXREDIRS, (long)HTTP_REDIRECTS_MOST);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, RECEIVE_BUFFER);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, http);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, http);
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
    /* A cancelled name look-up is left to its thread: waiting for it would stop the loop. */
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
}

void http_request_prepare(struct http_run *http, const struct check_definition *definition) {
    http->method = mem_strdup(definition->method[0] ? definition->method : "GET");
    set_url(http, definition);
    set_method(http, definition);
    set_headers(http, definition);
    set_options(http, definition);
    set_verification(http, definition);
}
