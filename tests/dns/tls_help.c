#include "tls_help.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"

enum { PATIENCE_S = 60 };

void help_tls_flush(struct help_tls *client) {
    struct buffer *out = tls_session_out(client->session);
    for (size_t done = 0; done < out->size;) {
        ssize_t n = send(client->fd, out->data + done, out->size - done, MSG_NOSIGNAL);
        if (n <= 0) break; /* the server has closed: hearing tells */
        done += (size_t)n;
    }
    buffer_reset(out);
}

/* Receives once. False: the connection has ended. */
static bool receive(struct help_tls *client) {
    char data[16384];
    ssize_t n = recv(client->fd, data, sizeof(data), 0);
    if (n <= 0) return false;
    enum tls_state state = tls_session_feed(client->session, slice_make(data, (size_t)n), &client->plain);
    help_tls_flush(client);
    return state == TLS_HANDSHAKE || state == TLS_OPEN;
}

bool help_tls_dial(struct help_tls *client, uint16_t port, struct tls_context *context) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {.tv_sec = PATIENCE_S};
    *client = (struct help_tls){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    CHECK(setsockopt(client->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0);
    CHECK(connect(client->fd, (struct sockaddr *)&to, sizeof(to)) == 0);
    struct tls_session_config config = {.peer = TLS_PEER_REQUIRED};
    client->session = tls_session_new(context, &config);
    help_tls_flush(client);
    while (tls_session_state(client->session) == TLS_HANDSHAKE && receive(client)) continue;
    return tls_session_state(client->session) == TLS_OPEN;
}

void help_tls_send(struct help_tls *client, const void *data, size_t size) {
    tls_session_write(client->session, slice_make(data, size));
    help_tls_flush(client);
}

static bool gather(struct help_tls *client, size_t size) {
    bool goes_on = true;
    while (client->plain.size - client->taken < size && goes_on) goes_on = receive(client);
    return client->plain.size - client->taken >= size;
}

size_t help_tls_hear(struct help_tls *client, uint8_t *to, size_t room) {
    if (!gather(client, 2)) return 0;
    size_t size = get_be16(client->plain.data + client->taken);
    CHECK(size <= room && gather(client, 2 + size));
    memcpy(to, client->plain.data + client->taken + 2, size);
    client->taken += 2 + size;
    return size;
}

void help_tls_close(struct help_tls *client) {
    close(client->fd);
    tls_session_free(client->session);
    buffer_free(&client->plain);
}
