#include "agent/client.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"

#define DEFAULT_PORT "8500"
#define ANSWER_MAX   ((size_t)1 << 30)
#define SILENT_MS    1000                /* without an answer for so long, the agent is asked for the leader */
#define LEADER_MS    3000                /* time limit of that question */
#define NO_LEADER    "No cluster leader" /* how an agent's answer begins */

struct transfer {
    struct client_answer *answer;
    CURL *curl;
    FILE *to;
    struct slice body;
    size_t sent;
};

/* A request from its beginning to its end. It must not be moved in memory meanwhile. */
struct client_call {
    const struct client *client;
    struct client_answer answer;
    struct fault fault;
    bool done;
    struct transfer transfer;
    struct curl_slist *headers, *to_server;
    bool heard; /* something has come */
    char reason[CURL_ERROR_SIZE];
};

static size_t on_body(char *data, size_t size, size_t count, void *context) {
    struct transfer *transfer = context;
    size_t bytes = size * count;
    long status = 0;
    curl_easy_getinfo(transfer->curl, CURLINFO_RESPONSE_CODE, &status);
    if (transfer->to && status == 200) return fwrite(data, 1, bytes, transfer->to);
    if (transfer->answer->body.size + bytes > ANSWER_MAX) return 0;
    buffer_append(&transfer->answer->body, data, bytes);
    return bytes;
}

/* The value is the rest of the line. */
static bool header_value(struct slice line, struct slice name, struct slice *value) {
    size_t at = name.size;
    if (line.size <= at || !slice_equal_nocase(slice_make(line.data, at), name)) return false;
    while (at + 1 < line.size && line.data[at] == ' ') at++;
    size_t end = line.size;
    while (end > at && (line.data[end - 1] == '\r' || line.data[end - 1] == '\n')) end--;
    *value = slice_make(line.data + at, end - at);
    return true;
}

static size_t on_header(char *data, size_t size, size_t count, void *context) {
    struct client_call *call = context;
    struct slice line = slice_make(data, size * count), value;
    call->heard = true;
    if (header_value(line, SLICE_LITERAL("X-Consul-Index:"), &value))
        call->answer.index = strtoull(value.data, NULL, 10);
    if (header_value(line, SLICE_LITERAL("X-Consul-KnownLeader:"), &value))
        call->answer.leaderless = slice_starts(value, SLICE_LITERAL("false"));
    if (header_value(line, SLICE_LITERAL("X-Coord-Warning:"), &value))
        fprintf(stderr, "Warning: %.*s\n", (int)value.size, value.data);
    return line.size;
}

static size_t on_read(char *data, size_t size, size_t count, void *context) {
    struct transfer *transfer = context;
    size_t left = transfer->body.size - transfer->sent, part = size * count < left ? size * count : left;
    if (part) memcpy(data, transfer->body.data + transfer->sent, part);
    transfer->sent += part;
    return part;
}

void client_encode(struct buffer *out, const char *text, bool path) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (; *text; text++) {
        if (strchr(plain, *text) || (path && *text == '/')) buffer_append_byte(out, *text);
        else buffer_printf(out, "%%%02X", (unsigned char)*text);
    }
}

void client_parameter(struct buffer *out, const char *name, const char *value) {
    bool first = !out->data || !memchr(out->data, '?', out->size);
    buffer_append_byte(out, first ? '?' : '&');
    buffer_append_text(out, name);
    if (!value) return;
    buffer_append_byte(out, '=');
    client_encode(out, value, false);
}

/* This host's own addresses are reached directly even when http_proxy is set, as with Go's clients. */
static void set_no_proxy(CURL *curl) {
    const char *environment = getenv("no_proxy");
    struct buffer list = {0};
    if (!environment) environment = getenv("NO_PROXY");
    if (environment && environment[0]) buffer_printf(&list, "%s,", environment);
    buffer_append_text(&list, "localhost,127.0.0.0/8,::1");
    buffer_append_byte(&list, '\0');
    CHECK(curl_easy_setopt(curl, CURLOPT_NOPROXY, list.data) == CURLE_OK);
    buffer_free(&list);
}

CURL *client_curl(const char *url, char reason[CURL_ERROR_SIZE]) {
    CURL *curl = curl_easy_init();
    CHECK(curl);
    reason[0] = '\0';
    CHECK(curl_easy_setopt(curl, CURLOPT_URL, url) == CURLE_OK);
    CHECK(curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L) == CURLE_OK);
    CHECK(curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK);
    CHECK(curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L) == CURLE_OK);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
    set_no_proxy(curl);
    return curl;
}

static const char *socket_of(const char *address) { return strncmp(address, "unix://", 7) == 0 ? address + 7 : NULL; }

const char *client_variable(const char *name) {
    static const char *const before[] = {"COORD_", "CONSUL_"};
    for (size_t i = 0; i < 2; i++) {
        char whole[64];
        snprintf(whole, sizeof whole, "%s%s", before[i], name);
        const char *value = getenv(whole);
        if (value && value[0]) return value;
    }
    return NULL;
}

static const char *setting(const char *given, const char *name) {
    return given && given[0] ? given : client_variable(name);
}

const char *client_address(const struct client *client) {
    const char *address = setting(client->address, "HTTP_ADDR");
    return address ? address : "127.0.0.1:8500";
}

/* As Go reads truth values. */
static bool is_one_of(const char *value, const char *const *words) {
    for (; value && *words; words++)
        if (strcmp(value, *words) == 0) return true;
    return false;
}

/* As in Consul's clients the variable asks for TLS, even when the address begins with "http://". */
static bool wants_tls(void) {
    static const char *const yes[] = {"1", "t", "T", "true", "TRUE", "True", NULL};
    return is_one_of(client_variable("HTTP_SSL"), yes);
}

/* The certificate has to be for this name. libcurl takes that name from the URL, so the name is written into the URL,
 * and the connection is directed to the URL's former host. */
static struct curl_slist *set_server_name(CURL *curl, const char *url, const char *name) {
    CURLU *parts = curl_url();
    char *host = NULL, *port = NULL, *whole = NULL;
    struct curl_slist *to = NULL;
    CHECK(parts);
    if (curl_url_set(parts, CURLUPART_URL, url, CURLU_PATH_AS_IS) == CURLUE_OK &&
        curl_url_get(parts, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
        curl_url_get(parts, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
        curl_url_set(parts, CURLUPART_HOST, name, 0) == CURLUE_OK &&
        curl_url_get(parts, CURLUPART_URL, &whole, 0) == CURLUE_OK) {
        struct buffer text = {0};
        buffer_printf(&text, "::%s:%s", host, port);
        buffer_append_byte(&text, '\0');
        to = curl_slist_append(NULL, text.data);
        buffer_free(&text);
        CHECK(curl_easy_setopt(curl, CURLOPT_URL, whole) == CURLE_OK);
        curl_easy_setopt(curl, CURLOPT_CONNECT_TO, to);
        bool here = strncmp(host, "127.", 4) == 0 || strcmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0;
        if (here) curl_easy_setopt(curl, CURLOPT_NOPROXY, name); /* see set_no_proxy */
    } else { /* an unchecked name must not be used, so the request fails */
        curl_easy_setopt(curl, CURLOPT_URL, "");
    }
    curl_free(host), curl_free(port), curl_free(whole);
    curl_url_cleanup(parts);
    return to;
}

struct curl_slist *client_tls(const struct client *client, CURL *curl, const char *url) {
    static const char *const no[] = {"0", "f", "F", "false", "FALSE", "False", NULL};
    static const char https[] = "https://";
    if (strncmp(url, https, sizeof https - 1) != 0) return NULL;
    bool said = (client->ca_file && client->ca_file[0]) || (client->ca_path && client->ca_path[0]);
    const char *file = said ? client->ca_file : client_variable("CACERT");
    const char *folder = said ? client->ca_path : file ? NULL : client_variable("CAPATH");
    if (file && !file[0]) file = NULL;
    if (folder && !folder[0]) folder = NULL;
    if (file || folder) { /* they replace the certificates that the system trusts */
        curl_easy_setopt(curl, CURLOPT_CAINFO, file);
        curl_easy_setopt(curl, CURLOPT_CAPATH, folder);
    }
    const char *certificate = setting(client->certificate, "CLIENT_CERT"), *key = setting(client->key, "CLIENT_KEY");
    if (certificate) curl_easy_setopt(curl, CURLOPT_SSLCERT, certificate);
    if (key) curl_easy_setopt(curl, CURLOPT_SSLKEY, key);
    if (is_one_of(client_variable("HTTP_SSL_VERIFY"), no)) {
        curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    const char *name = setting(client->server_name, "TLS_SERVER_NAME");
    return name ? set_server_name(curl, url, name) : NULL;
}

/* A host without a port, which is no URL, means the port of the API: "web1", "web1:", "10.0.0.1", "::1", "[::1]". */
static void host_and_port(const char *address, struct buffer *url) {
    size_t size = strcspn(address, "/");
    char *host = mem_alloc(size + 1);
    memcpy(host, address, size);
    host[size] = '\0';
    char *first = strchr(host, ':'), *last = strrchr(host, ':'), *bracket = strrchr(host, ']');
    bool bare = !bracket && first != last; /* IPv6 */
    bool port = last && !bare && (!bracket || last > bracket);
    if (port && !last[1]) *last = '\0', port = false;
    buffer_printf(url, bare ? "[%s]:" DEFAULT_PORT : port ? "%s" : "%s:" DEFAULT_PORT, host);
    buffer_append_text(url, address + size);
    free(host);
}

void client_url(const char *address, const char *path, struct buffer *url) {
    static const char http[] = "http://";
    bool plain = strncmp(address, http, sizeof http - 1) == 0, scheme = strstr(address, "://") != NULL;
    if (socket_of(address)) buffer_append_text(url, "http://localhost");
    else if (plain || !scheme) buffer_append_text(url, wants_tls() ? "https://" : http);
    if (plain) buffer_append_text(url, address + sizeof http - 1);
    else if (!scheme) host_and_port(address, url);
    else if (!socket_of(address)) buffer_append_text(url, address);
    while (url->size && url->data[url->size - 1] == '/') url->size--;
    buffer_append_text(url, path);
}

static void set_body(CURL *curl, struct transfer *transfer, const struct slice *body, FILE *from) {
    if (from) {
        curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(curl, CURLOPT_READDATA, from);
        return;
    }
    if (!body) return;
    transfer->body = *body;
    curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(curl, CURLOPT_READFUNCTION, on_read);
    curl_easy_setopt(curl, CURLOPT_READDATA, transfer);
    curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)body->size);
}

static struct curl_slist *headers_of(const struct client *client) {
    struct curl_slist *headers = curl_slist_append(NULL, "Expect:");
    if (!client->token || !client->token[0]) return headers;
    struct buffer line = {0};
    buffer_printf(&line, "X-Consul-Token: %s", client->token);
    buffer_append_byte(&line, '\0');
    headers = curl_slist_append(headers, line.data);
    buffer_free(&line);
    return headers;
}

static void call_open(struct client_call *call, const struct client *client, const char *method, const char *path,
                      const struct slice *body, FILE *from, FILE *to) {
    struct buffer url = {0}, where = {0};
    buffer_append_text(&where, path);
    if (client->datacenter) client_parameter(&where, "dc", client->datacenter);
    if (client->stale && strcmp(method, "GET") == 0) client_parameter(&where, "stale", NULL);
    buffer_append_byte(&where, '\0');
    client_url(client_address(client), where.data, &url);
    buffer_append_byte(&url, '\0');
    *call = (struct client_call){.client = client, .headers = headers_of(client)};
    CURL *curl = client_curl(url.data, call->reason);
    call->transfer = (struct transfer){.answer = &call->answer, .curl = curl, .to = to};
    call->to_server = client_tls(client, curl, url.data);
    const char *socket = socket_of(client_address(client));
    if (socket) CHECK(curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, socket) == CURLE_OK);
    set_body(curl, &call->transfer, body, from);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, call->headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &call->transfer);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, call);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, 10000L);
    buffer_free(&url);
    buffer_free(&where);
}

/* A hint for a URL without a port, which means port 80 although the API's port may have been meant. */
static const char *port_hint(const char *address) {
    static const char http[] = "http://";
    const char *host = address + sizeof http - 1;
    bool plain = strncmp(address, http, sizeof http - 1) == 0;
    bool port = plain && strchr(*host == '[' && strchr(host, ']') ? strchr(host, ']') : host, ':');
    return plain && !port ? "; the API's port is " DEFAULT_PORT : "";
}

/* A hint for a server of TLS that refuses this client. By TLS 1.3 the client learns of that when it wants to read. */
static const char *certificate_hint(const struct client_call *call) {
    bool alert = strstr(call->reason, "alert") != NULL;
    bool shown = setting(call->client->certificate, "CLIENT_CERT") != NULL;
    if (!alert) return "";
    return shown ? "; the agent refuses the client's certificate (-client-cert), or its CA"
                 : "; the agent may want a certificate of its clients (-client-cert, -client-key)";
}

static void call_done(struct client_call *call, CURLcode code) {
    call->done = true;
    curl_easy_getinfo(call->transfer.curl, CURLINFO_RESPONSE_CODE, &call->answer.status);
    if (call->answer.status == 500 && slice_starts(buffer_slice(&call->answer.body), SLICE_LITERAL(NO_LEADER)))
        call->answer.leaderless = true;
    if (code == CURLE_OK) return;
    call->answer.unreachable = code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST;
    fault_set(&call->fault, CO_NOLEADER, "no answer from %s: %s%s", client_address(call->client),
              call->reason[0] ? call->reason : curl_easy_strerror(code),
              call->answer.unreachable ? port_hint(client_address(call->client)) : certificate_hint(call));
}

static void call_close(struct client_call *call) {
    curl_easy_cleanup(call->transfer.curl);
    curl_slist_free_all(call->headers);
    curl_slist_free_all(call->to_server);
}

static void call_add(struct client_call *call, CURLM *calls) {
    curl_easy_setopt(call->transfer.curl, CURLOPT_PRIVATE, call);
    CHECK(curl_multi_add_handle(calls, call->transfer.curl) == CURLM_OK);
}

/* -- without blocking --------------------------------------------------------------------------------------------- */

struct client_call *client_call_begin(CURLM *calls, const struct client *client, const char *method, const char *path,
                                      const struct slice *body, uint64_t timeout_ms) {
    struct client_call *call = mem_zalloc(sizeof *call);
    call_open(call, client, method, path, body, NULL, NULL);
    curl_easy_setopt(call->transfer.curl, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    curl_easy_setopt(call->transfer.curl, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(call->transfer.curl, CURLOPT_QUICK_EXIT,
                     1L); /* cleaning up does not wait for the look-up of a name */
    call_add(call, calls);
    return call;
}

void client_calls_step(CURLM *calls, struct curl_waitfd *fds, unsigned count, int wait_ms) {
    int running, left;
    CHECK(curl_multi_poll(calls, fds, count, wait_ms, NULL) == CURLM_OK);
    CHECK(curl_multi_perform(calls, &running) == CURLM_OK);
    for (CURLMsg *message; (message = curl_multi_info_read(calls, &left)) != NULL;) {
        char *call = NULL;
        if (message->msg != CURLMSG_DONE) continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &call);
        call_done((struct client_call *)(void *)call, message->data.result);
    }
}

const struct client_answer *client_call_answer(const struct client_call *call, const struct fault **fault) {
    *fault = &call->fault;
    return call->done ? &call->answer : NULL;
}

void client_call_free(CURLM *calls, struct client_call *call) {
    if (!call) return;
    curl_multi_remove_handle(calls, call->transfer.curl);
    call_close(call);
    client_answer_free(&call->answer);
    free(call);
}

/* -- one question ------------------------------------------------------------------------------------------------- */

static uint64_t now_ms(void) { return clock_boot_ns() / 1000000; }

static bool leaderless_told;

const char *client_leaderless(const struct client_answer *answer) {
    if (answer->status == 500 && answer->leaderless) return CLIENT_SERVERLESS;
    return answer->status == 200 && slice_is(buffer_slice(&answer->body), "\"\"") ? CLIENT_LEADERLESS : NULL;
}

/* Asks for the leader, and prints it to stderr if there is none, once in a process. Meanwhile `call` goes on; when it
 * gets an answer the question is dropped. NULL: there is no call. */
static void tell_leaderless(CURLM *calls, const struct client *client, const struct client_call *call) {
    const struct fault *failed = NULL;
    const struct client_answer *leader = NULL;
    uint64_t end_ms = now_ms() + LEADER_MS;
    if (leaderless_told) return;
    struct client_call *ask = client_call_begin(calls, client, "GET", CLIENT_LEADER, NULL, LEADER_MS);
    while (!(call && (call->done || call->heard)) && !leader && now_ms() < end_ms) {
        client_calls_step(calls, NULL, 0, LEADER_MS);
        leader = client_call_answer(ask, &failed);
    }
    const char *why = leader && !failed->code ? client_leaderless(leader) : NULL;
    if (why) fprintf(stderr, "coord: %s\n", why);
    leaderless_told = why != NULL;
    client_call_free(calls, ask);
}

void client_note_leader(const struct client *client) {
    CURLM *calls = curl_multi_init();
    CHECK(calls);
    tell_leaderless(calls, client, NULL);
    curl_multi_cleanup(calls);
}

int client_ask(const struct client *client, const char *method, const char *path, const struct slice *body, FILE *from,
               FILE *to, struct client_answer *answer, struct fault *fault) {
    struct client_call call;
    CURLM *calls = curl_multi_init();
    CHECK(calls);
    call_open(&call, client, method, path, body, from, to);
    call_add(&call, calls);
    uint64_t silent_ms = now_ms() + SILENT_MS;
    while (!call.done) {
        uint64_t now = now_ms(), left_ms = silent_ms > now ? silent_ms - now : 0;
        client_calls_step(calls, NULL, 0, call.heard || silent_ms == UINT64_MAX ? 60000 : (int)left_ms);
        if (call.done || call.heard || now_ms() < silent_ms) continue;
        silent_ms = UINT64_MAX;
        tell_leaderless(calls, client, &call);
    }
    curl_multi_remove_handle(calls, call.transfer.curl);
    call_close(&call);
    curl_multi_cleanup(calls);
    *answer = call.answer;
    return call.fault.code ? fault_set(fault, call.fault.code, "%s", call.fault.text) : CO_OK;
}

void client_answer_free(struct client_answer *answer) { buffer_free(&answer->body); }

/* As with Consul, status 500 stands both for "no leader" and for a faulty request. */
static bool says_no_leader(const struct client_answer *answer) {
    struct slice body = buffer_slice(&answer->body), words = SLICE_LITERAL("leader");
    for (size_t i = 0; i + words.size <= body.size; i++)
        if (slice_equal_nocase(slice_make(body.data + i, words.size), words)) return true;
    return false;
}

int client_answer_code(const struct client_answer *answer) {
    switch (answer->status) {
        case 404: return CO_NOTFOUND;
        case 401:
        case 403:
        case 409:
        case 410:
        case 412:
        case 423:
        case 429: return CO_DENIED;
        case 500: return says_no_leader(answer) ? CO_NOLEADER : CO_DENIED;
        default: return answer->status >= 500 ? CO_NOLEADER : CO_INVALID;
    }
}

int client_refused(const struct client_answer *answer, struct fault *fault) {
    int shown = answer->body.size < 180 ? (int)answer->body.size : 180;
    if (answer->leaderless && answer->status == 500)
        return fault_set(fault, CO_NOLEADER, "%s", leaderless_told ? "no leader" : CLIENT_LEADERLESS);
    return fault_set(fault, client_answer_code(answer), "Unexpected response code: %ld (%.*s)", answer->status, shown,
                     answer->body.size ? answer->body.data : "");
}

int client_want(const struct client *client, const char *method, const char *path, const struct slice *body,
                bool or_404, struct client_answer *answer, struct fault *fault) {
    int rv = client_ask(client, method, path, body, NULL, NULL, answer, fault);
    if (rv != CO_OK || answer->status == 200 || (or_404 && answer->status == 404)) return rv;
    return client_refused(answer, fault);
}
