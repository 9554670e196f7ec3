/* libmicrohttpd answers some faults itself (a header too large, a bad chunk, a Content-Length that is no number, an
 * unknown version ...) with an HTML page, and 0.9.75 sends some of them with two header blocks. This file replaces them
 * by our answer: one plain line that names the fault.
 *
 * libmicrohttpd calls send() and sendmsg(), which send.c defines for the whole program. They work as those of the C
 * library, unless all of this holds:
 *   - the calling thread is a worker, and the descriptor is one of its connections (worker->by_fd);
 *   - we have queued no answer for it: it has no request yet, or one that is not REQUEST_ANSWERED;
 *   - the bytes begin a status line of 4xx or 5xx.
 * Then the page is libmicrohttpd's own: our answer is sent in its place, made from the page's text, and the page is
 * reported as sent. libmicrohttpd always closes a connection after such a page; all bytes that it sends until then are
 * dropped. "100 Continue" and our own answers pass, by TLS where the connection has it (secure.c). We use
 * connection_say, which these hooks do not see, when we send on a connection of libmicrohttpd ourselves. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "http/impl.h"

#define PAGE_MOST 200 /* of libmicrohttpd's own text */

static __thread struct worker *here; /* the worker that this thread is */

/* ---- whose connection is it? ---- */

void mhd_errors_add(struct connection *connection) {
    struct worker *worker = connection->worker;
    size_t fd = (size_t)connection->fd;
    if (fd >= worker->by_fd_size) {
        size_t size = (fd + 64) * 2;
        worker->by_fd = mem_realloc(worker->by_fd, size * sizeof(struct connection *));
        memset(worker->by_fd + worker->by_fd_size, 0, (size - worker->by_fd_size) * sizeof(struct connection *));
        worker->by_fd_size = size;
    }
    worker->by_fd[fd] = connection;
}

void mhd_errors_remove(struct connection *connection) {
    struct worker *worker = connection->worker;
    size_t fd = (size_t)connection->fd;
    if (fd < worker->by_fd_size && worker->by_fd[fd] == connection) worker->by_fd[fd] = NULL;
    worker->reported -= connection->reported;
}

static struct connection *connection_at(int fd) {
    return fd >= 0 && (size_t)fd < here->by_fd_size ? here->by_fd[fd] : NULL;
}

/* The status in "HTTP/1.1 400" and the like; else 0. */
static int status_refused(const char *data, size_t size) {
    if (size < 12 || memcmp(data, "HTTP/1.", 7) != 0 || (data[9] != '4' && data[9] != '5')) return 0;
    return (data[9] - '0') * 100 + (data[10] - '0') * 10 + (data[11] - '0');
}

/* The connection on which libmicrohttpd is sending a page of its own, or has sent one. */
static struct connection *own_page(int fd, const struct iovec *parts, size_t count, int *status) {
    struct worker *worker = here;
    *status = count ? status_refused(parts[0].iov_base, parts[0].iov_len) : 0;
    if (!*status && !worker->reported) return NULL;
    struct connection *connection = connection_at(fd);
    if (!connection || connection->reported) return connection;
    bool ours = connection->request && connection->request->stage == REQUEST_ANSWERED;
    return *status && !ours ? connection : NULL;
}

static ssize_t receive(int fd, void *data, size_t size, int flags) {
    struct connection *connection = connection_at(fd);
    if (!connection || flags & MSG_PEEK) return plain_receive(fd, data, size, flags);
    return header_receive(connection, data, size, flags);
}

/* ---- in our words ---- */

/* The text of a page's body without tags, as one line. */
static void page_text(struct slice page, char *out, size_t room) {
    const char *at = page.size ? memmem(page.data, page.size, "<body>", 6) : NULL, *end = page.data + page.size;
    size_t size = 0;
    bool tag = false;
    for (; at && at < end && size + 1 < room; at++) {
        if (*at == '<' || *at == '>') {
            tag = *at == '<';
        } else if (!tag) {
            out[size++] = (unsigned char)*at < ' ' ? ' ' : *at;
        }
    }
    out[size] = '\0';
}

static const char *phrase(int status) {
    switch (status) {
        case 400: return "Bad Request";
        case 413: return "Content Too Large";
        case 414: return "URI Too Long";
        case 431: return "Request Header Fields Too Large";
        case 501: return "Not Implemented";
        case 505: return "HTTP Version Not Supported";
        default: return status < 500 ? "Bad Request" : "Internal Server Error";
    }
}

/* Names the fault. The pages of 0.9.75 have few texts, so we use what we know of the request; those of 1.0 have
 * many. */
static void name_fault(const struct connection *connection, int status, struct slice page, char *line, size_t room) {
    char text[PAGE_MOST];
    page_text(page, text, sizeof text);
    bool more = text[0] && !strstr(text, "syntactically incorrect");
    if (status == 414 || status == 431) {
        header_limit(connection, status == 414 ? "URL" : "header", line, room);
    } else if (status == 505) {
        snprintf(line, room, "HTTP version not supported: speak HTTP/1.0 or HTTP/1.1");
    } else if (strstr(text, "Content-Length") && status == 400) {
        snprintf(line, room, "Bad request: Content-Length is not a number");
    } else if (strstr(text, "Content-Length")) {
        snprintf(line, room, "Request body too large: Content-Length is above any limit");
    } else if (strstr(text, "chunk")) {
        snprintf(line, room, "Bad request: the body's chunked encoding is malformed, or a chunk is too large");
    } else if (status < 500) {
        snprintf(line, room, "Bad request: %s is malformed%s%s", connection->request ? "a header" : "the request line",
                 more ? ": " : "", more ? text : "");
    } else {
        snprintf(line, room, "The request cannot be served%s%s", more ? ": " : "", more ? text : "");
    }
}

/* ---- sending ---- */

size_t plain_answer(char *out, size_t room, const char *status, const char *line) {
    int size = snprintf(out, room,
                        "HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %zu\r\n"
                        "Connection: close\r\n\r\n%s",
                        status, strlen(line), line);
    CHECK(size > 0 && (size_t)size < room);
    return (size_t)size;
}

/* Sends our answer in place of the page. False: the kernel has no room, or the client is gone; errno tells. */
static bool say_instead(struct connection *connection, int status, struct slice page) {
    char line[PAGE_MOST * 2], answer[1024], status_text[64];
    name_fault(connection, status, page, line, sizeof line);
    snprintf(status_text, sizeof status_text, "%d %s", status, phrase(status));
    size_t size = plain_answer(answer, sizeof answer, status_text, line);
    while (connection->reported_size < size) {
        ssize_t sent = connection_say(connection, answer + connection->reported_size, size - connection->reported_size);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return false;
        connection->reported_size += (size_t)sent;
    }
    struct worker *worker = connection->worker;
    worker->tally.answered[status / 100]++;
    connection->reported = true;
    worker->reported++;
    connection_linger(connection);
    return true;
}

/* Anything else that libmicrohttpd sends. */
static bool send_ours(int fd, const struct iovec *parts, size_t count, ssize_t *sent) {
    struct connection *connection = connection_at(fd);
    if (!connection) return false;
    connection->spoke = true;
    if (!connection->secure) return false;
    *sent = secure_send(connection, parts, count);
    return true;
}

static bool send_file(int to, int from, off64_t *offset, size_t size, ssize_t *sent) {
    struct connection *connection = connection_at(to);
    if (!connection || !connection->secure) return false;
    *sent = secure_send_file(connection, from, offset, size);
    return true;
}

/* The hook. True: *sent is the result: all of the page, or -1 as of the C library. */
static bool send_instead(int fd, const struct iovec *parts, size_t count, ssize_t *sent) {
    int status;
    here->progress++;
    struct connection *connection = own_page(fd, parts, count, &status);
    if (!connection) return send_ours(fd, parts, count, sent);
    size_t size = 0;
    for (size_t i = 0; i < count; i++) size += parts[i].iov_len;
    struct slice page = count > 1 ? slice_make(parts[1].iov_base, parts[1].iov_len) : (struct slice){0};
    *sent = connection->reported || say_instead(connection, status, page) ? (ssize_t)size : -1;
    return true;
}

void mhd_errors_enter(struct worker *worker) {
    here = worker;
    send_instead_here = worker ? send_instead : NULL;
    send_file_here = worker ? send_file : NULL;
    receive_here = worker ? receive : NULL;
    moved_here = worker ? &worker->progress : NULL;
}
