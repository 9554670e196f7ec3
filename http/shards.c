/* Shards: libmicrohttpd daemons without a listening socket, run by the worker.
 *
 * There are many, because resuming a suspended connection walks all suspended ones of its daemon. They are filled one
 * after the other, so that a few connections need only a few shards, and one turn serves many requests with one call.
 * Timeouts are our own, because those of libmicrohttpd start anew with each byte, so that a slow sender could go on for
 * ever. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/wakeup_batch.h"
#include "http/impl.h"

#define RUNS_MOST    32    /* of a shard in one turn */
#define BUFFER_STEP  64    /* libmicrohttpd's buffer grows by twice as many bytes in a run, at least */
#define LATE_MOST    64    /* writes handed over before the cluster's thread is woken */
#define LATE_BYTES   16384 /* a body from this size on takes long to parse */
#define REST_MS      50    /* pause of a shard whose runs do nothing */
#define OWED_RUNS    8     /* at most so many runs of a shard, until the answer of a resumed connection is sent */
#define SEND_MOST_MS 30000 /* for a client to take an answer */
#define SLOWEST      65536 /* bodies and answers get one more second for so many bytes */

/* ---- callbacks ---- */

static struct connection *connection_of(struct MHD_Connection *mhd) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info->socket_context;
}

/* libmicrohttpd 0.9 makes a record of each parameter in the connection's memory, and when that is full it forgets the
 * connection, which never gets an answer. We parse parameters ourselves, so this cuts them off in libmicrohttpd's own
 * buffer, which it would cut up anyway. There may be more of them after a NUL in the target. */
static void hide_parameters(char *target) {
    char *part = target;
    do {
        char *mark = strchr(part, '?');
        if (mark && mark[1]) {
            mark[1] = '\0';
            return;
        }
        part += strlen(part) + 1;
    } while (strncmp(part, "HTTP/", 5) != 0);
}

static void *on_target(void *data, const char *target, struct MHD_Connection *mhd) {
    (void)data;
    struct connection *connection = connection_of(mhd);
    struct http_request *request = request_new(connection, target);
    if (target && connection->worker->server->old_library) hide_parameters((char *)(uintptr_t)target);
    return request;
}

/* We decode targets ourselves, strictly, so libmicrohttpd must not. */
static size_t on_unescape(void *data, struct MHD_Connection *mhd, char *text) {
    (void)data, (void)mhd;
    return strlen(text);
}

static void hold(struct connection *connection) {
    connection->shard->held += !connection->request->held;
    connection->request->held = true;
}

/* Requests that wait for a write, or for the confirmation of a read, are held: libmicrohttpd calls us again on every
 * run of the shard, which is cheaper than the four system calls that take the connection out of its epoll and back.
 * Requests that may wait for long are suspended. */
void connection_wait(struct connection *connection) {
    struct http_request *request = connection->request;
    if (request->busy || reading_confirms(request)) {
        hold(connection);
        return;
    }
    if (request->watched && connection->hung_up) { /* the client hung up while the request was held */
        request_hung_up(request);
        return;
    }
    connection_unhold(connection);
    request->suspended = true;
    MHD_suspend_connection(connection->mhd);
}

/* Ends the hold. A shard that was not run again because of held requests is run now. */
void connection_unhold(struct connection *connection) {
    struct shard *shard = connection->shard;
    if (!connection->request->held) return;
    connection->request->held = false;
    if (--shard->held == 0 && shard->gave_way) shard_wake(shard);
}

void shard_owes_answer(struct shard *shard) {
    shard->owed = OWED_RUNS;
    shard_wake(shard);
}

/* Writes are handled when all shards have run. So they are handed to the cluster's thread one right after the other,
 * and wake it once, when it can take all of them. */
static void handle_late(struct http_request *request) {
    request->stage = REQUEST_WORK;
    hold(request->connection);
    list_append(&request->worker->late, &request->late);
}

static void run_late(struct worker *worker) {
    if (list_empty(&worker->late)) return;
    wakeup_batch_begin();
    for (unsigned done = 0; !list_empty(&worker->late); done++) {
        if (done % LATE_MOST == LATE_MOST - 1) wakeup_batch_flush();
        struct http_request *request = LIST_ENTRY(worker->late.next, struct http_request, late);
        struct connection *connection = request->connection;
        if (request->body_size > LATE_BYTES) wakeup_batch_flush(); /* parsing it takes long */
        list_remove(&request->late);
        request_run(request);
        if (connection->request == request && request->stage == REQUEST_WORK) connection_wait(connection);
    }
    wakeup_batch_flush(); /* also within a turn's hold */
    wakeup_batch_end();
}

/* libmicrohttpd calls this with the headers, with each piece of the body, and at the end. An answer on the first call
 * makes it close the connection, so we do that only when the connection has to be closed. */
static enum MHD_Result on_request(void *data, struct MHD_Connection *mhd, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_size, void **context) {
    (void)data, (void)mhd;
    struct http_request *request = *context;
    if (!request) return MHD_NO;
    if (request->held) return MHD_YES;
    request->worker->progress++;
    if (request->stage == REQUEST_HEAD) {
        request_head(request, url, method, version);
        return MHD_YES;
    }
    if (request->stage == REQUEST_BODY) {
        if (*upload_size) {
            request_body(request, upload, *upload_size);
            *upload_size = 0;
            return MHD_YES;
        }
        if (request->chunked) trailers_read(request);
        if (request->method & (HTTP_PUT | HTTP_POST | HTTP_DELETE)) {
            handle_late(request);
        } else {
            request_run(request);
            if (request->stage == REQUEST_WORK) connection_wait(request->connection);
        }
    }
    return request->stage == REQUEST_ABORT ? MHD_NO : MHD_YES;
}

/* Sends an answer past libmicrohttpd, on a connection that is about to be closed and on which libmicrohttpd is sending
 * nothing. */
static void say_plainly(struct connection *connection, const char *status, const char *line) {
    char answer[512];
    if (connection->secure && secure_silent(connection)) return;
    size_t size = plain_answer(answer, sizeof answer, status, line);
    connection->worker->tally.answered[4] += connection_say(connection, answer, size) > 0;
}

/* Ends the connection: shuts the socket down, so that libmicrohttpd finds it closed. */
static void cut(struct connection *connection, const char *status, const char *why) {
    if (why) say_plainly(connection, status, why);
    secure_goodbye(connection);
    connection->hung_up = true;
    shutdown(connection->fd, SHUT_RDWR);
    /* A connection that libmicrohttpd does not read would not notice that, so it gets a timeout. */
    if (connection->mhd) MHD_set_connection_option(connection->mhd, MHD_CONNECTION_OPTION_TIMEOUT, 1U);
}

static void on_completed(void *data, struct MHD_Connection *mhd, void **context, enum MHD_RequestTerminationCode code) {
    (void)data, (void)mhd;
    struct http_request *request = *context;
    if (!request) return;
    struct connection *connection = request->connection;
    /* The request filled the connection's memory so far that libmicrohttpd found no room for the answer's header. */
    if (code == MHD_REQUEST_TERMINATED_WITH_ERROR && request->stage == REQUEST_ANSWERED && !connection->hung_up) {
        say_plainly(connection, "431 Request Header Fields Too Large",
                    "Request header too large: no room is left for the answer's (coord.http_connection_memory)");
    }
    /* Refused before all of it was read. */
    if (request->close && request->stage == REQUEST_ANSWERED && !connection->hung_up) connection_linger(connection);
    *context = NULL;
    connection_unhold(connection);
    connection->request = NULL;
    connection->heard = false;
    connection->worker->progress++;
    if (!connection->next_fd) {
        connection->stage = CONNECTION_IDLE;
        connection->began_ms = connection->worker->now_ms;
        connection->completed_run = connection->worker->run_serial;
    }
    request_end(request);
    /* libmicrohttpd read the client's last bytes with the request, and would wait for more. */
    if (secure_ended(connection) && !connection->next_fd && !connection->hung_up) cut(connection, NULL, NULL);
}

/* libmicrohttpd closes the connection without an answer when the first line is no request line. When nothing was ever
 * sent on the connection, it is safe to send our own answer. */
static void explain_close(struct connection *connection) {
    if (connection->completed_run || connection->hung_up || connection->reported || connection->worker->stop) return;
    if (!connection->heard || connection->spoke) return;
    char byte;
    ssize_t unread = plain_receive(connection->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (unread == 0 || (unread < 0 && errno != EAGAIN)) return; /* the client is gone */
    say_plainly(connection, "400 Bad Request", "Bad request: not a request line");
    if (unread > 0) connection_linger(connection);
}

void connection_gone(struct connection *connection) {
    struct worker *worker = connection->worker;
    worker->connection_count--;
    if (connection->shard) connection->shard->connections--;
    address_leave(worker->server->addresses, connection->address);
    atomic_fetch_sub(&worker->server->connections, 1);
    mhd_errors_remove(connection);
    secure_free(connection);
    free(connection->credentials);
    connection->credentials = NULL;
    buffer_free(&connection->header);
    connection->mhd = NULL;
    connection->gone = true;
    list_remove(&connection->link);
    list_append(&worker->closed, &connection->link);
}

static void on_connection(void *data, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code) {
    struct worker *worker = ((struct shard *)data)->worker;
    worker->progress++;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) { /* from within MHD_add_connection; 1.0: in the next run */
        int fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        *context = worker->by_fd[fd];
        worker->by_fd[fd]->mhd = mhd;
        return;
    }
    struct connection *connection = *context;
    if (!connection->next_fd) explain_close(connection);
    if (connection->watched) epoll_ctl(worker->epoll, EPOLL_CTL_DEL, connection->fd, NULL);
    if (connection->next_fd) {
        header_move(connection);
        return;
    }
    secure_goodbye(connection);
    connection_gone(connection);
}

static void on_message(void *data, const char *format, va_list arguments) {
    (void)data;
    if (LOG_DEBUG < log_level_now) return;
    char text[256];
    int size = vsnprintf(text, sizeof text, format, arguments);
    while (size > 0 && size < (int)sizeof text && text[size - 1] == '\n') text[--size] = '\0';
    log_debug("http", "%s", text);
}

/* ---- shards ---- */

static size_t shard_memory(const struct shard *shard) {
    const struct http_server *server = shard->worker->server;
    return shard->roomy ? server->roomy_memory : server->config.connection_memory;
}

static struct shard *shard_new(struct worker *worker, bool roomy) {
    struct shard *shard = mem_zalloc(sizeof *shard);
    shard->worker = worker;
    shard->roomy = roomy;
    shard->source.kind = SOURCE_SHARD;
    list_init(&shard->link);
    unsigned flags =
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_TURBO | MHD_USE_ERROR_LOG;
    shard->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, shard, MHD_OPTION_EXTERNAL_LOGGER, on_message, NULL,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, shard, MHD_OPTION_NOTIFY_CONNECTION, on_connection, shard,
        MHD_OPTION_URI_LOG_CALLBACK, on_target, shard, MHD_OPTION_UNESCAPE_CALLBACK, on_unescape, NULL,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, shard_memory(shard), MHD_OPTION_CONNECTION_LIMIT,
        worker->server->config.connections_max + 1, MHD_OPTION_CONNECTION_TIMEOUT, 0U, MHD_OPTION_END);
    const union MHD_DaemonInfo *info =
        shard->daemon ? MHD_get_daemon_info(shard->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    /* Each run empties the inner epoll, so an edge is enough and spares the kernel looking into it every time. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = &shard->source};
    if (!info || epoll_ctl(worker->epoll, EPOLL_CTL_ADD, info->epoll_fd, &event) != 0) {
        if (shard->daemon) MHD_stop_daemon(shard->daemon);
        free(shard);
        return NULL;
    }
    worker->shards = mem_realloc(worker->shards, (worker->shard_count + 1) * sizeof(struct shard *));
    shard->number = worker->shard_count;
    worker->shards[worker->shard_count++] = shard;
    return shard;
}

/* Chooses the first shard with room, else a new one; when no more are allowed, the one with the fewest connections. */
static struct shard *shard_choose(struct worker *worker, bool roomy) {
    struct shard *least = NULL;
    for (unsigned i = 0; i < worker->shard_count; i++) {
        struct shard *shard = worker->shards[i];
        if (shard->roomy != roomy) continue;
        if (shard->connections < SHARD_CONNECTIONS) return shard;
        if (!least || shard->connections < least->connections) least = shard;
    }
    unsigned most = worker->server->config.shards;
    struct shard *fresh = most && worker->shard_count >= most && least ? NULL : shard_new(worker, roomy);
    return fresh ? fresh : least;
}

void shard_enter(struct connection *connection, bool roomy, const struct sockaddr *address, unsigned address_size) {
    struct shard *shard = connection->shard = shard_choose(connection->worker, roomy);
    mhd_errors_add(connection);
    if (!shard) {
        close(connection->fd);
    } else {
        shard->connections++;
        if (MHD_add_connection(shard->daemon, connection->fd, address, address_size) == MHD_YES) {
            shard_wake(shard);
            return;
        } /* else it closed the socket */
    }
    if (!connection->gone) connection_gone(connection);
}

struct connection *connection_new(struct worker *worker, int fd, struct address_entry *entry) {
    struct connection *connection = mem_zalloc(sizeof *connection);
    connection->source.kind = SOURCE_CONNECTION;
    connection->worker = worker;
    connection->fd = fd;
    connection->address = entry;
    connection->began_ms = worker->now_ms;
    connection->check_ms = worker->now_ms + worker->server->check_interval_ms;
    list_init(&connection->link);
    list_append(&worker->connections, &connection->link);
    worker->connection_count++;
    return connection;
}

void shard_wake(struct shard *shard) {
    if (shard->later) list_remove(&shard->link);
    shard->later = false;
    if (list_empty(&shard->link)) list_append(&shard->worker->runnable, &shard->link);
}

static bool shard_pending(struct shard *shard) {
    MHD_UNSIGNED_LONG_LONG timeout;
    return MHD_get_timeout(shard->daemon, &timeout) == MHD_YES && timeout == 0;
}

static bool unread(const struct connection *connection) {
    int bytes = 0;
    return secure_unread(connection) || (ioctl(connection->fd, FIONREAD, &bytes) == 0 && bytes > 0);
}

/* When a line of a chunk does not fit into its memory, libmicrohttpd 0.9 searches for the line's end again and again,
 * and reads no further. Unread bytes in the socket tell which connection it is; without them the time limit of bodies
 * ends it. */
static void shard_stuck(struct shard *shard) {
    LIST_FOREACH(link, &shard->worker->connections) {
        struct connection *connection = LIST_ENTRY(link, struct connection, link);
        struct http_request *request = connection->request;
        if (connection->shard != shard || connection->stage != CONNECTION_BODY || connection->hung_up) continue;
        if (!request || !request->chunked || request->held) continue;
        if (!unread(connection)) continue;
        say_plainly(connection, "400 Bad Request",
                    "Bad request: a line of the body's chunked encoding is too long "
                    "(coord.http_connection_memory)");
        connection_linger(connection);
        cut(connection, NULL, NULL);
    }
}

static unsigned idle_most(const struct shard *shard) {
    return RUNS_MOST + (unsigned)(shard_memory(shard) / BUFFER_STEP);
}

static void shard_rested(struct worker *worker, struct timer *timer) {
    (void)worker;
    struct shard *shard = CONTAINER_OF(timer, struct shard, rest);
    shard->idle_runs = idle_most(shard) - RUNS_MOST;
    shard_wake(shard);
}

/* Should the shard run again at once? libmicrohttpd reports held requests as pending for as long as they wait, and
 * stuck connections too, while others may have work: a long header, of which each run reads a part, or a file, of which
 * it sends a part (send.c counts these as progress). The answer of a resumed connection takes several runs without
 * progress, so the shard gets these runs also while requests are held. */
static bool shard_again(struct shard *shard, uint64_t before) {
    struct worker *worker = shard->worker;
    bool pending = shard_pending(shard), done = worker->progress != before;
    shard->idle_runs = pending && !done ? shard->idle_runs + 1 : 0;
    shard->gave_way = false;
    if (!pending) {
        shard->owed = 0;
        return false;
    }
    if (!done && shard->owed) {
        shard->owed--;
        return true;
    }
    if (!done && shard->held) {
        shard->gave_way = true;
        return false;
    }
    if (shard->idle_runs < idle_most(shard)) return true;
    if (shard->idle_runs == idle_most(shard)) shard_stuck(shard);
    if (!shard->rest.place) timer_set(worker, &shard->rest, worker->now_ms + REST_MS, shard_rested);
    return false;
}

static void run_once(struct worker *worker, bool again) {
    struct list turn;
    list_init(&turn);
    list_splice(&turn, &worker->runnable);
    while (!list_empty(&turn)) {
        struct shard *shard = LIST_ENTRY(turn.next, struct shard, link);
        list_remove(&shard->link);
        uint64_t before = worker->progress;
        worker->run_serial++;
        MHD_run(shard->daemon);
        if (!shard_again(shard, before)) continue;
        if (again) {
            shard_wake(shard);
        } else if (list_empty(&shard->link)) {
            shard->later = true;
            list_append(&worker->later, &shard->link);
        }
    }
    run_late(worker);
}

/* When thousands are woken together, all their answers are sent before new requests of the first of them are served. */
void shards_run_answers(struct worker *worker) { run_once(worker, false); }

/* Runs all shards once before any a second time. */
void shards_run(struct worker *worker) {
    LIST_FOREACH_SAFE(link, next, &worker->later) shard_wake(LIST_ENTRY(link, struct shard, link));
    for (unsigned pass = 0; pass < RUNS_MOST && !list_empty(&worker->runnable); pass++) run_once(worker, true);
}

/* ---- connections over time ---- */

void connection_event(struct worker *worker, struct connection *connection, uint32_t events) {
    (void)worker;
    if (connection->handshake) {
        handshake_event(connection);
        return;
    }
    if (!(events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) || !connection->mhd) return;
    connection->hung_up = true;
    struct http_request *request = connection->request;
    if (request && request->suspended && request->watched) request_hung_up(request);
}

void connection_watch(struct connection *connection) {
    /* The connection stays in the epoll, because a client that waited once will wait again. An edge is enough, because
     * hung_up remembers it. */
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET, .data.ptr = &connection->source};
    connection->request->watched = true;
    if (!connection->watched)
        connection->watched = epoll_ctl(connection->worker->epoll, EPOLL_CTL_ADD, connection->fd, &event) == 0;
    /* The event of the hang-up has been seen before, so it is raised once more. The request must not end here, because
     * the caller goes on using it. */
    else if (connection->hung_up) (void)epoll_ctl(connection->worker->epoll, EPOLL_CTL_MOD, connection->fd, &event);
}

#define LATE(what) "408 Request Timeout", "Request timeout: the " what " did not come in time"

static void connection_check(struct connection *connection, uint64_t now_ms) {
    const struct http_server *server = connection->worker->server;
    uint64_t age = now_ms - connection->began_ms;
    struct http_request *request = connection->request;
    uint64_t received = request ? request->body_size : 0;
    if (connection->hung_up || connection->handshake) return;
    switch (connection->stage) {
        case CONNECTION_IDLE:
            if (age < server->header_timeout_ms) return;
            if (request || connection->heard) { /* part of a header came */
                cut(connection, LATE("header"));
            } else if (age >= server->config.idle_timeout_ms) {
                cut(connection, NULL, NULL);
            }
            return;
        case CONNECTION_BODY:
            if (age >= server->body_timeout_ms + received / SLOWEST * 1000) cut(connection, LATE("body"));
            return;
        case CONNECTION_SEND:
            if (age >= SEND_MOST_MS + connection->sending / SLOWEST * 1000) cut(connection, NULL, NULL);
            return;
        case CONNECTION_WORK: return;
    }
}

void shards_check(struct worker *worker) {
    while (!list_empty(&worker->connections)) {
        struct connection *connection = LIST_ENTRY(worker->connections.next, struct connection, link);
        if (connection->check_ms > worker->now_ms) return;
        connection_check(connection, worker->now_ms);
        connection->check_ms = worker->now_ms + worker->server->check_interval_ms;
        list_remove(&connection->link);
        list_append(&worker->connections, &connection->link);
    }
}

/* ---- the end ---- */

void shards_stop(struct worker *worker) {
    handshakes_stop(worker);
    LIST_FOREACH_SAFE(link, next, &worker->connections) {
        struct connection *connection = LIST_ENTRY(link, struct connection, link);
        if (connection->request && connection->request->suspended) request_hung_up(connection->request);
    }
    shards_run(worker);
    for (unsigned i = 0; i < worker->shard_count; i++) {
        MHD_stop_daemon(worker->shards[i]->daemon);
        timer_clear(worker, &worker->shards[i]->rest);
        free(worker->shards[i]);
    }
    worker->shard_count = 0;
    list_init(&worker->runnable); /* forgets shards that are still to run */
    list_init(&worker->later);
    LIST_FOREACH_SAFE(link, next, &worker->closed) {
        list_remove(link);
        free(LIST_ENTRY(link, struct connection, link));
    }
}
