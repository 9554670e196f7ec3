#include "web.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/memory.h"
#include "certificate.h"
#include "tests/lib/free_ports.h"

struct web {
    int listener, stop_pipe[2];
    uint16_t port;
    pthread_t thread;
    _Atomic int status;
    _Atomic unsigned requests;
    bool tls;
    struct certificate certificate;
};

/* One connection; each has a thread. */
struct client {
    struct web *web;
    int fd;
    gnutls_session_t session;
};

static ssize_t client_read(struct client *client, void *to, size_t size) {
    if (client->web->tls) return gnutls_record_recv(client->session, to, size);
    return recv(client->fd, to, size, 0);
}

static bool client_write(struct client *client, const void *from, size_t size) {
    const char *at = from;
    while (size > 0) {
        ssize_t wrote =
            client->web->tls ? gnutls_record_send(client->session, at, size) : send(client->fd, at, size, MSG_NOSIGNAL);
        if (wrote <= 0) return false;
        at += wrote;
        size -= (size_t)wrote;
    }
    return true;
}

static void answer(struct client *client, int status, const char *more, struct slice body) {
    struct buffer out = {0};
    const char *reason = status == 200   ? "OK"
                         : status == 429 ? "Too Many Requests"
                         : status == 302 ? "Found"
                                         : "Whatever";
    buffer_printf(&out, "HTTP/1.1 %d %s\r\nContent-Length: %zu\r\n%s\r\n", status, reason, body.size, more);
    buffer_append(&out, body.data, body.size);
    client_write(client, out.data, out.size);
    buffer_free(&out);
}

/* Until the client goes away, or the server is told to stop. */
static void wait_for_end(struct client *client) {
    char byte;
    struct pollfd fds[2] = {{.fd = client->fd, .events = POLLIN}, {.fd = client->web->stop_pipe[0], .events = POLLIN}};
    while (poll(fds, 2, 60000) > 0 && !fds[1].revents) {
        if (recv(client->fd, &byte, 1, 0) <= 0) return;
    }
}

static void respond(struct client *client, const char *path, struct slice request) {
    struct buffer body = {0};
    char more[80] = "";
    int number = 0;
    if (sscanf(path, "/status/%d", &number) == 1) {
        answer(client, number, more, slice_text(number == 204 ? "" : "hello"));
    } else if (sscanf(path, "/redirect/%d", &number) == 1) {
        if (number > 1) {
            snprintf(more, sizeof more, "Location: /redirect/%d\r\n", number - 1);
        } else {
            snprintf(more, sizeof more, "Location: /status/200\r\n");
        }
        answer(client, 302, more, slice_text("elsewhere"));
    } else if (sscanf(path, "/bytes/%d", &number) == 1) {
        for (int i = 0; body.size < (size_t)number; i++) buffer_printf(&body, "%07d\n", i);
        body.size = (size_t)number;
        answer(client, 200, more, buffer_slice(&body));
    } else if (strcmp(path, "/endless") == 0) {
        static const char head[] = "HTTP/1.1 200 OK\r\n\r\n";
        char block[4096];
        memset(block, 'e', sizeof block);
        if (client_write(client, head, sizeof head - 1)) {
            while (client_write(client, block, sizeof block)) continue;
        }
    } else if (strcmp(path, "/hang") == 0) {
        wait_for_end(client);
    } else if (strcmp(path, "/hang-body") == 0) {
        static const char head[] = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegin";
        client_write(client, head, sizeof head - 1);
        wait_for_end(client);
    } else if (strncmp(path, "/half-head", 10) == 0) {
        static const char line[] = "HTTP/1.1 200 OK\r\n";
        client_write(client, line, sizeof line - 1);
        if (strcmp(path, "/half-head/hang") == 0) wait_for_end(client);
    } else if (strcmp(path, "/echo") == 0) {
        answer(client, 200, more, request);
    } else if (strcmp(path, "/set") == 0) {
        answer(client, client->web->status, more, slice_text("set"));
    }
    buffer_free(&body);
}

/* Reads one request: head, and the body that its Content-Length promises. */
static bool read_request(struct client *client, struct buffer *request) {
    size_t wanted = 0;
    while (wanted == 0 || request->size < wanted) {
        buffer_reserve(request, 4096);
        ssize_t got = client_read(client, request->data + request->size, 4000);
        if (got <= 0) return false;
        request->size += (size_t)got;
        request->data[request->size] = '\0';
        const char *end = strstr(request->data, "\r\n\r\n");
        if (!end) continue;
        const char *length = strcasestr(request->data, "\r\nContent-Length:");
        wanted = (size_t)(end - request->data) + 4 + (length && length < end ? strtoul(length + 17, NULL, 10) : 0);
    }
    return true;
}

static void *client_main(void *data) {
    struct client *client = data;
    struct buffer request = {0};
    bool fine = true;
    if (client->web->tls) {
        CHECK(gnutls_init(&client->session, GNUTLS_SERVER) == 0);
        gnutls_set_default_priority(client->session);
        gnutls_credentials_set(client->session, GNUTLS_CRD_CERTIFICATE, client->web->certificate.credentials);
        gnutls_transport_set_int(client->session, client->fd);
        int result;
        do result = gnutls_handshake(client->session);
        while (result < 0 && !gnutls_error_is_fatal(result));
        fine = result == 0;
    }
    while (fine && read_request(client, &request)) {
        char path[200] = "";
        sscanf(request.data, "%*s %199s", path);
        atomic_fetch_add(&client->web->requests, 1);
        respond(client, path, buffer_slice(&request));
        fine = strcasestr(request.data, "Connection: close") == NULL && strcmp(path, "/close") != 0;
        buffer_reset(&request);
    }
    if (client->web->tls) gnutls_deinit(client->session);
    close(client->fd);
    buffer_free(&request);
    free(client);
    return NULL;
}

static void *web_main(void *data) {
    struct web *web = data;
    pthread_t threads[1000];
    size_t count = 0;
    for (;;) {
        struct pollfd fds[2] = {{.fd = web->listener, .events = POLLIN}, {.fd = web->stop_pipe[0], .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno == EINTR) continue;
        if (fds[1].revents) break;
        int fd = accept(web->listener, NULL, NULL);
        if (fd < 0) continue;
        struct client *client = mem_zalloc(sizeof *client);
        client->web = web;
        client->fd = fd;
        CHECK(count < ARRAY_COUNT(threads) && pthread_create(&threads[count++], NULL, client_main, client) == 0);
    }
    for (size_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
    return NULL;
}

static int listen_anywhere(uint16_t *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 64) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    *port = ntohs(address.sin_port);
    return fd;
}

struct web *web_start(bool tls) {
    struct web *web = mem_zalloc(sizeof *web);
    web->tls = tls;
    web->status = 200;
    if (tls) certificate_make(&web->certificate);
    web->listener = listen_anywhere(&web->port);
    CHECK(pipe(web->stop_pipe) == 0);
    CHECK(pthread_create(&web->thread, NULL, web_main, web) == 0);
    return web;
}

void web_stop(struct web *web) {
    close(web->stop_pipe[1]);
    pthread_join(web->thread, NULL);
    close(web->stop_pipe[0]);
    close(web->listener);
    certificate_free(&web->certificate);
    free(web);
}

void web_write_certificate(const struct web *web, const char *path) {
    certificate_write(&web->certificate, path, NULL);
}

uint16_t web_port(const struct web *web) { return web->port; }
void web_set(struct web *web, int status) { web->status = status; }
unsigned web_requests(const struct web *web) { return web->requests; }

uint16_t web_free_port(void) {
    uint16_t port;
    free_ports(1, &port);
    return port;
}
