/* Load on one server, plain or by TLS: many connections that ask again and again, or that wait. measure_https.py starts it.
 *
 *     https_load IP PORT tls|plain CONNECTIONS REQUESTS TARGET     asks REQUESTS times in all, keep-alive
 *     https_load IP PORT tls|plain CONNECTIONS 0 TARGET            asks once on each, and waits for a line on stdin
 *
 * Prints "ready" when all connections are open (and have asked), waits for a line, and in the first form asks. */
#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"

struct client {
    int fd;
    gnutls_session_t session; /* NULL: plain */
    size_t wanted;            /* bytes of the answer that are still to come; 0: its header is */
};

static char request[4096], answer[1 << 16];
static size_t request_size;

static ssize_t say(struct client *client) {
    if (!client->session) return send(client->fd, request, request_size, MSG_NOSIGNAL);
    return gnutls_record_send(client->session, request, request_size);
}

static ssize_t hear(struct client *client) {
    if (!client->session) return recv(client->fd, answer, sizeof answer, 0);
    return gnutls_record_recv(client->session, answer, sizeof answer);
}

static void client_open(struct client *client, const struct sockaddr_in *to, gnutls_certificate_credentials_t trust) {
    client->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(client->fd >= 0 && connect(client->fd, (const struct sockaddr *)to, sizeof *to) == 0);
    if (!trust) return;
    CHECK(gnutls_init(&client->session, GNUTLS_CLIENT) == 0);
    CHECK(gnutls_set_default_priority(client->session) == 0);
    CHECK(gnutls_credentials_set(client->session, GNUTLS_CRD_CERTIFICATE, trust) == 0);
    gnutls_transport_set_int(client->session, client->fd);
    CHECK(gnutls_handshake(client->session) == 0);
}

/* Reads one whole answer. Its header comes in one piece, as it was sent. */
static void take_answer(struct client *client) {
    size_t missing = 0;
    do {
        ssize_t got = hear(client);
        if (got == GNUTLS_E_AGAIN || got == GNUTLS_E_INTERRUPTED) continue;
        CHECK(got > 0);
        if (!missing) {
            char *end = memmem(answer, (size_t)got, "\r\n\r\n", 4), *length = strcasestr(answer, "Content-Length:");
            CHECK(end && length && memcmp(answer, "HTTP/1.1 200", 12) == 0);
            missing = (size_t)(end + 4 - answer) + strtoull(length + 15, NULL, 10);
        }
        CHECK((size_t)got <= missing);
        missing -= (size_t)got;
    } while (missing);
}

static void ask_many(struct client *clients, size_t count, long requests) {
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    long sent = 0, done = 0;
    for (size_t i = 0; i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &clients[i]};
        CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, clients[i].fd, &event) == 0);
        CHECK(say(&clients[i]) == (ssize_t)request_size);
        sent++;
    }
    while (done < requests) {
        struct epoll_event events[64];
        int ready = epoll_wait(epoll, events, 64, 60000);
        CHECK(ready > 0);
        for (int i = 0; i < ready; i++) {
            struct client *client = events[i].data.ptr;
            take_answer(client);
            done++;
            if (sent < requests) {
                CHECK(say(client) == (ssize_t)request_size);
                sent++;
            }
        }
    }
    close(epoll);
}

int main(int argc, char **argv) {
    CHECK(argc == 7);
    bool tls = strcmp(argv[3], "tls") == 0;
    size_t count = strtoull(argv[4], NULL, 10);
    long requests = strtol(argv[5], NULL, 10);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)strtoul(argv[2], NULL, 10))};
    gnutls_certificate_credentials_t trust = NULL;
    CHECK(inet_pton(AF_INET, argv[1], &to.sin_addr) == 1);
    if (tls) CHECK(gnutls_certificate_allocate_credentials(&trust) == 0);
    request_size =
        (size_t)snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: bench\r\nAccept: */*\r\n\r\n", argv[6]);
    struct client *clients = mem_zalloc(count * sizeof *clients);
    for (size_t i = 0; i < count; i++) client_open(&clients[i], &to, trust);
    for (size_t i = 0; i < count && requests == 0; i++) CHECK(say(&clients[i]) == (ssize_t)request_size);
    puts("ready");
    fflush(stdout);
    char line[16];
    if (!fgets(line, sizeof line, stdin)) return 0;
    if (requests) ask_many(clients, count, requests);
    return 0;
}
