/* Long headers, which do not cost the memory of connections with short ones.
 *
 * libmicrohttpd allocates a connection's memory when it begins, in the size that its daemon sets, and clears all of it
 * after each request. With a size for long headers each of ten thousand parked connections would hold and clear so
 * much. So there are two kinds of shards. A connection begins in a shard with little memory. When the header of a
 * request proves to be too long for that, before libmicrohttpd has seen its end, the connection moves to a roomy shard,
 * and stays there:
 *
 *     header_receive   (recv() of libmicrohttpd) keeps the received part of a header that is long, or not complete.
 *                      Too long: the socket gets a second descriptor, and libmicrohttpd is told that its own is broken
 *     header_move      (libmicrohttpd has forgotten the connection) the second descriptor enters a roomy shard
 *     header_receive   returns the kept part; then reads from the socket
 *
 * The request has had no effect by then, because libmicrohttpd calls us when its header is complete. The received bytes
 * are a whole header only if they begin at the connection's first byte, or right after the previous request: then
 * libmicrohttpd receives them at the same address as the connection's first byte. For a request that came in one piece
 * with the end of the previous one (pipelining) the beginning is not known, and it stays in the little memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/impl.h"

#define RECORD     64  /* libmicrohttpd's record of one header */
#define LINE_LEAST 32  /* there is room for a whole header of such lines */
#define SHORT      512 /* never too long */

size_t header_roomy_memory(const struct http_config *config) {
    size_t answer = config->connection_memory;
    return config->header_max + config->header_max / LINE_LEAST * RECORD + answer;
}

void header_limit(const struct connection *connection, const char *what, char *line, size_t room) {
    const struct http_config *config = &connection->worker->server->config;
    if (connection->shard->roomy || config->header_max < config->connection_memory) {
        snprintf(line, room,
                 "Request %s too large: request line and headers may have %zu bytes, where a header counts as %d "
                 "at least (coord.http_header_max)",
                 what, config->header_max, LINE_LEAST);
    } else {
        snprintf(line, room,
                 "Request %s too large: request line and headers have %zu bytes of memory "
                 "(coord.http_connection_memory)",
                 what, config->connection_memory);
    }
}

/* The size of the header when it is complete, which an empty line shows; else 0. Usually the request ends with its
 * header. Empty lines in front of the header are skipped (RFC 9112 2.2). */
static size_t whole(const char *data, size_t size) {
    const char *end = data + size, *begin = data;
    while (begin < end && (*begin == '\r' || *begin == '\n')) begin++;
    if (begin == end) return 0;
    if (size <= SHORT && size >= 4 && memcmp(end - 4, "\r\n\r\n", 4) == 0) return size;
    for (const char *at = begin; (at = memchr(at, '\n', (size_t)(end - at))) != NULL;) {
        at++;
        if (at < end && *at == '\r') at++;
        if (at < end && *at == '\n') return (size_t)(at + 1 - data);
    }
    return 0;
}

/* Half of the memory is libmicrohttpd's first buffer. */
static bool too_long(const struct connection *connection, const char *data, size_t size) {
    if (size <= SHORT) return false;
    size_t needed = size;
    for (size_t i = 0; i < size; i++) needed += data[i] == '\n' ? RECORD : 0;
    return needed > connection->worker->server->config.connection_memory / 2;
}

/* Moves the connection. False: that is not possible, and libmicrohttpd handles the header with its little memory. */
static bool move(struct connection *connection) {
    if (connection->worker->stop) return false;
    int again = fcntl(connection->fd, F_DUPFD_CLOEXEC, 3);
    if (again < 0) return false;
    connection->next_fd = again;
    return true;
}

/* Keeps the received part of a header that is long, or not complete. True: the connection moves. */
static bool header_grows(struct connection *connection, const char *data, size_t size) {
    struct buffer *header = &connection->header;
    buffer_append(header, data, size);
    size_t end = whole(header->data, header->size);
    if (too_long(connection, header->data, end ? end : header->size) && move(connection)) return true;
    if (end) buffer_free(header);
    return false;
}

static ssize_t replay(struct connection *connection, char *data, size_t room) {
    struct buffer *header = &connection->header;
    size_t size = header->size < room ? header->size : room;
    memcpy(data, header->data, size);
    header->size -= size;
    memmove(header->data, header->data + size, header->size);
    if (!header->size) buffer_free(header);
    return (ssize_t)size;
}

/* The kept part, and with TLS what is decrypted besides: the kernel may not have it any more, and so would not wake
 * libmicrohttpd, which takes a short read for the last. */
static ssize_t receive_again(struct connection *connection, char *data, size_t size) {
    ssize_t got = replay(connection, data, size);
    if (!connection->secure || (size_t)got == size) return got;
    ssize_t more = secure_receive(connection, data + got, size - (size_t)got);
    return more > 0 ? got + more : got;
}

ssize_t header_receive(struct connection *connection, void *data, size_t size, int flags) {
    bool roomy = connection->shard->roomy;
    if (roomy && connection->header.size) return receive_again(connection, data, size);
    ssize_t got = connection_receive(connection, data, size, flags);
    if (got <= 0 || roomy || connection->stage != CONNECTION_IDLE) return got;
    if (!connection->memory) connection->memory = data;
    if (data == connection->memory) {
        connection->header.size = 0;
        size_t end = whole(data, (size_t)got);
        if (end && !too_long(connection, data, end)) return got;
    } else if (!connection->header.size) {
        return got;
    }
    if (!header_grows(connection, data, (size_t)got)) return got;
    errno = ECONNRESET;
    return -1;
}

void header_move(struct connection *connection) {
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    mhd_errors_remove(connection);
    connection->shard->connections--;
    connection->mhd = NULL;
    connection->watched = false;
    connection->fd = connection->next_fd;
    connection->next_fd = 0;
    getpeername(connection->fd, (struct sockaddr *)&address, &size);
    shard_enter(connection, true, (struct sockaddr *)&address, size);
}
