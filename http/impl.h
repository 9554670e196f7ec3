/* Shared by the files of http/ itself. Endpoints (http/api/) do not see it: http/http.h, http/feed.h and http/sse.h are
 * for them.
 *
 * One worker thread owns everything reachable from its `struct worker`: shards (libmicrohttpd daemons), connections,
 * requests, the answer cache. Other threads touch a worker only by `worker_post`.
 *
 *     socket -> accept (listen.c) -> shard (shards.c) -> request (request.c) -> route (routes.c) -> handler (http/api)
 *     with TLS between accept and shard: handshake (handshake.c); its bytes are moved by secure.c
 *     handler -> reply.c, or blocking.c / submit.c: the connection is suspended; a post wakes it and it is answered */
#ifndef COORD_HTTP_IMPL_H
#define COORD_HTTP_IMPL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "base/list.h"
#include "base/mailbox.h"
#include "base/random.h"
#include "http/http.h"
#include "http/parked_limits.h"
#include "http/permission.h"
#include "http/server.h"
#include "rpc/reads/read.h"
#include "tls/certificate.h"

struct worker;
struct shard;
struct connection;
struct answer;
struct audited;
struct cache;
struct reading;

/* -- worker.c: the thread, its outer epoll, posts and timers ------------------------------------------------------ */

/* The target of an entry in the outer epoll. It is the first member of its owner. */
struct source {
    enum source_kind { SOURCE_LISTENER, SOURCE_WAKE, SOURCE_SHARD, SOURCE_CONNECTION, SOURCE_LINGER } kind;
};

/* Any thread. The post belongs to the worker until `taken` is called with the worker and it. */
void worker_post(struct worker *worker, struct post *post);

/* A point in time; in the worker's heap while place != 0. */
struct timer {
    uint64_t at_ms;
    size_t place;
    void (*due)(struct worker *worker, struct timer *timer);
};
void timer_set(struct worker *worker, struct timer *timer, uint64_t at_ms,
               void (*due)(struct worker *worker, struct timer *timer));
void timer_clear(struct worker *worker, struct timer *timer);

/* A body being written. */
struct output {
    struct buffer out;
    struct json_out json;
};

/* Counted by the worker alone, added to the metrics once a turn. */
struct tally {
    uint64_t answered[6];   /* by the hundreds of the status */
    uint64_t handshakes[3]; /* full, resumed, failed */
    uint64_t cache_hits, cache_misses, refused_connections;
    int64_t parked; /* difference since the last turn */
};

#define BULK_GROUPS 64
struct worker {
    struct http_server *server;
    pthread_t thread;
    bool started;
    _Atomic bool stop;

    /* Any thread. */
    struct mailbox box;
    _Atomic bool asleep;
    _Atomic unsigned posting; /* threads within worker_post, and their delayed wake-ups */
    int wake_fd;

    /* Used by the worker's thread only, from here on. */
    int epoll;
    struct source wake;
    uint64_t now_ms; /* at the start of this turn */
    struct rpc_reader *reader;
    struct rng rng;
    struct posts {
        struct mail *first, **end;
    } bulk[BULK_GROUPS]; /* posts that wait for their turn, by their group */
    size_t bulk_count;
    unsigned bulk_group; /* the group whose turn it is */
    struct timer **heap;
    size_t heap_size, heap_capacity;

    struct shard **shards;
    unsigned shard_count;
    struct list runnable;      /* shards to run in this turn */
    struct list later;         /* shards with more to do, after the answers to many that were woken together */
    struct list late;          /* requests to handle once the shards have run */
    uint64_t run_serial;       /* counts MHD_run calls */
    uint64_t progress;         /* counts libmicrohttpd's calls of our functions, and its sends and receives */
    struct connection **by_fd; /* mhd_errors.c: of all connections */
    size_t by_fd_size;
    unsigned reported;       /* connections whose fault was replied and that are not closed yet */
    struct list connections; /* by the time of their next check */
    struct list closed;      /* freed at the end of the turn: events of this turn may point to them */
    unsigned connection_count;
    struct list handshakes;   /* that can go on (handshake.c) */
    struct secure_room *room; /* secure.c; NULL: there was no TLS yet */
    struct list lingering;    /* refused connections, whose clients get time to read the answer */
    unsigned lingering_count;
    uint64_t listen_again_ms; /* without descriptors listening pauses until then; 0: it does not pause */

    struct http_request *spare; /* free list */
    unsigned spare_count;
    unsigned active;  /* requests with a client */
    unsigned orphans; /* requests whose client is gone, but which still wait for a report */

    struct read_engine engine;
    unsigned tickets; /* handed out by http_defer, and reads of remote.c */

    struct cache *cache;
    void *api; /* the endpoints': http_api */
    struct kept_responses *responses;
    struct requesters *requesters; /* requesters.c; NULL: none yet */
    struct access_table *known;    /* access.c; NULL: none yet */
    struct arena scratch;          /* results of one query */
    struct output output;
    void *deflate; /* of gzip.c */
    struct buffer packed;
    struct buffer audit_line;
    struct MHD_Response *yes, *no; /* "true", "false" */
    uint64_t leader_checked_ms, last_contact_ms;
    bool known_leader;
    struct tally tally;
};

struct http_server {
    struct http_config config; /* defaults filled in; addresses not kept */
    struct http_env env;
    struct worker *workers;
    unsigned worker_count;
    struct large_reads *large;
    struct listener {
        struct source source;
        int fd;
        bool tls;
        char *path;             /* of a Unix socket; NULL: TCP */
        uint64_t device, inode; /* its file's */
        struct timespec made;
    } * listeners;
    unsigned listener_count;
    uint16_t port, https_port;
    struct address_table *addresses;
    struct limits *limits;        /* NULL: none */
    struct parked_limits *parked; /* NULL: none */
    bool old_library;             /* libmicrohttpd is older than 1.0 */
    size_t roomy_memory;          /* of a connection with long headers */
    uint64_t header_timeout_ms, body_timeout_ms, check_interval_ms;
    _Atomic unsigned connections;
    _Atomic uint64_t watches;
    struct http_server *next_abandoned;
};

void *worker_main(void *data);
void worker_free(struct worker *worker);
/* True when the leader is known; refreshed once a turn. */
bool worker_known_leader(struct worker *worker, uint64_t *last_contact_ms);

/* -- listen.c: sockets, limits, refusals -------------------------------------------------------------------------- */

int listen_open(struct http_server *server, const struct http_config *config, struct fault *fault);
void listen_close(struct http_server *server);
int listen_watch(struct worker *worker, bool on); /* enters the listeners into the worker's epoll */
void listen_ready(struct worker *worker, struct listener *listener);
/* Ends sending, and keeps the socket open for a moment after the caller has closed its descriptor, and reads the rest
 * that the client sends: closing a socket with unread data would make the client lose the answer. */
void linger(struct worker *worker, int fd);
void linger_event(struct source *source);
void linger_tick(struct worker *worker, bool all); /* closes those whose time is up */
uint64_t linger_deadline_ms(const struct worker *worker);
/* listen_unix.c. `listener` gets the socket, its path and its file's inode. A file that nobody listens on any more is
 * replaced. */
int listen_unix(struct listener *listener, const char *path, const struct http_socket_file *file, int backlog,
                struct fault *fault);
void listen_unix_remove(const struct listener *listener); /* the file, if it is still ours */

/* Connections per address, over all workers. */
struct address_table *address_table_new(void);
void address_table_free(struct address_table *table);
/* NULL: too many */
struct address_entry *address_enter(struct address_table *table, const uint8_t address[16], unsigned most);
void address_leave(struct address_table *table, struct address_entry *entry);
uint64_t address_hash(const struct address_entry *entry);

/* -- shards.c: libmicrohttpd's daemons and their connections ------------------------------------------------------ */

#define SHARD_CONNECTIONS 64 /* resuming one connection walks the suspended ones of its daemon */

struct shard {
    struct source source;
    struct worker *worker;
    struct MHD_Daemon *daemon;
    unsigned number; /* its place in worker->shards */
    bool roomy;      /* its connections have server->roomy_memory */
    unsigned connections;
    unsigned held;      /* requests that wait without being suspended */
    bool gave_way;      /* it was not run again because of held requests, although there may be more to do */
    unsigned owed;      /* runs that it gets in spite of held requests */
    unsigned idle_runs; /* the last runs, that were due but did nothing */
    struct timer rest;  /* pause after too many idle runs */
    struct list link;   /* in worker->runnable or worker->later, or empty */
    bool later;         /* in worker->later */
};

struct connection {
    struct source source;
    struct worker *worker;
    struct shard *shard;
    struct MHD_Connection *mhd;
    int fd;
    struct secure *secure;       /* NULL: plain */
    struct handshake *handshake; /* under way; not in a shard yet */
    struct address_entry *address;
    struct credentials *credentials; /* of a unix socket, with access control; else NULL */
    struct list link;                /* worker->connections; worker->closed once gone */
    uint64_t began_ms;               /* of the present stage */
    uint64_t check_ms;
    enum { CONNECTION_IDLE, CONNECTION_BODY, CONNECTION_WORK, CONNECTION_SEND } stage;
    size_t sending;         /* bytes of the answer */
    uint64_t completed_run; /* run_serial when the last answer was complete; 0: none yet */
    struct http_request *request;
    bool watched; /* in the outer epoll, for EPOLLRDHUP */
    bool hung_up, gone;
    bool heard;           /* bytes came since the last answer was complete */
    bool spoke;           /* something was sent */
    bool reported;        /* mhd_errors.c has replied a fault: the connection is about to be closed */
    size_t reported_size; /* bytes of that reply that are sent */
    const void *memory;   /* long_headers.c: the address at which the first bytes of a request are received */
    struct buffer header; /* the received part of a header that is long, or not complete */
    int next_fd;          /* in the roomy shard that it moves to; 0: it does not move */
};

/* Adds the connection to the daemon of a shard, which takes over connection->fd. */
void shard_enter(struct connection *connection, bool roomy, const struct sockaddr *address, unsigned address_size);
/* A new connection, outside of shards; takes over `fd` and the address entry. */
struct connection *connection_new(struct worker *worker, int fd, struct address_entry *entry);
void connection_gone(struct connection *connection); /* whoever calls has closed its descriptor, or is about to */
void shard_wake(struct shard *shard);                /* run it in this turn */
void shard_owes_answer(struct shard *shard);         /* the same, and again until its pending answer is sent */
void shards_run(struct worker *worker);
void shards_run_answers(struct worker *worker); /* runs each once; other work waits for shards_run */
void shards_check(struct worker *worker);       /* slow and idle connections */
void shards_stop(struct worker *worker);
void connection_event(struct worker *worker, struct connection *connection, uint32_t events);
void connection_wait(struct connection *connection); /* its request has no answer yet */
/* Goes on after a step of a request: it may have been answered (and be freed already), or wait for something else. */
void request_next(struct connection *connection, const struct http_request *request);
void connection_unhold(struct connection *connection);
void connection_watch(struct connection *connection); /* from now on hang-ups are noticed */

/* -- secure.c: TLS of a connection, below libmicrohttpd --------------------------------------------------------------
 *
 * libmicrohttpd knows nothing of TLS: it calls recv() and send(), which send.c hands to us. So its answers, which are
 * one sendmsg() of header and body, become one record and one system call, and everything that gets between
 * libmicrohttpd and the client (mhd_errors.c, long_headers.c) sees plain bytes. */

/* Begins a session with the present credentials. False: there are none yet. */
bool secure_begin(struct connection *connection);
void secure_free(struct connection *connection); /* says nothing to the client */
/* Bytes that were received before secure_begin. */
void secure_feed(struct connection *connection, const char *data, size_t size);
enum secure_step { SECURE_DONE, SECURE_WAIT, SECURE_FULL, SECURE_FAILED }; /* FULL: the kernel takes no more bytes */
enum secure_step secure_handshake(struct connection *connection); /* one step; FAILED: the client was told why */
const char *secure_why(const struct connection *connection);      /* a line about the failure */
/* As recv(), send(), sendfile(): -1 and errno. After EAGAIN the same bytes have to come again. */
ssize_t secure_receive(struct connection *connection, void *data, size_t size);
ssize_t secure_send(struct connection *connection, const struct iovec *parts, size_t count);
ssize_t secure_send_file(struct connection *connection, int from, off64_t *offset, size_t size);
bool secure_ended(const struct connection *connection);  /* the client will send no more */
bool secure_unread(const struct connection *connection); /* has it bytes that were received and not read? */
bool secure_silent(const struct connection *connection); /* nothing can be said any more, or not at this point */
void secure_goodbye(struct connection *connection);      /* no more will be sent; once */
void secure_room_free(struct worker *worker);
/* The client's certificate, which it showed and which was found good. NULL: none. Valid while the connection
 * lives. */
const struct tls_certificate *connection_peer(const struct connection *connection);

/* All that it showed, DER, its own first, up to `room`: it has the key, and nothing is said about the CA. 0: none. Valid likewise. */
size_t secure_certificates(const struct connection *connection, struct slice *chain, size_t room);

/* As send() and recv(), past libmicrohttpd; by TLS where the connection has it. */
ssize_t connection_say(struct connection *connection, const char *data, size_t size);
ssize_t connection_receive(struct connection *connection, void *data, size_t size, int flags);
void connection_linger(struct connection *connection); /* says goodbye, and lingers */

/* -- proof.c: who is at the other side of a unix socket ------------------------------------------------------------- */

/* Of a connection that was just accepted; NULL: there is no access control, or nothing is known. Freed by free(). */
struct credentials *credentials_read(struct worker *worker, int fd);

/* -- handshake.c: connections of TLS before they enter a shard ------------------------------------------------------ */

void handshake_begin(struct connection *connection, const struct sockaddr_storage *address, socklen_t size);
void handshake_event(struct connection *connection);
void handshakes_run(struct worker *worker); /* for a bounded time; more stay in worker->handshakes */
void handshakes_stop(struct worker *worker);

/* -- mhd_errors.c: replaces libmicrohttpd's own error pages ------------------------------------------------------- */

void mhd_errors_enter(struct worker *worker); /* this thread is the worker; NULL: no more */
void mhd_errors_add(struct connection *connection);
void mhd_errors_remove(struct connection *connection);
/* Writes an answer of one line, which ends the connection; returns its size. `status`: "400 Bad Request". */
size_t plain_answer(char *out, size_t room, const char *status, const char *line);

/* -- long_headers.c ----------------------------------------------------------------------------------------------- */

size_t header_roomy_memory(const struct http_config *config);
/* recv() for libmicrohttpd, on one of our connections. */
ssize_t header_receive(struct connection *connection, void *data, size_t size, int flags);
/* libmicrohttpd has given up a connection that moves, and is about to close its descriptor. */
void header_move(struct connection *connection);
/* One line for a refusal. `what`: "URL", "header". */
void header_limit(const struct connection *connection, const char *what, char *line, size_t room);

/* -- send.c ------------------------------------------------------------------------------------------------------- */

/* Hooks of this thread. send_instead_here replaces send() and sendmsg(): true when it has sent, or failed with errno
 * and -1. */
extern __thread uint64_t *moved_here; /* counts calls that received, or sent a file; NULL: nothing counts */
extern __thread ssize_t (*receive_here)(int fd, void *data, size_t size, int flags); /* in place of recv(); or NULL */
extern __thread bool (*send_instead_here)(int fd, const struct iovec *parts, size_t count, ssize_t *sent);
/* the same for sendfile() */
extern __thread bool (*send_file_here)(int to, int from, off64_t *offset, size_t size, ssize_t *sent);
/* as send() without the hooks; does not block, raises no signal */
ssize_t plain_send(int fd, const char *data, size_t size);
ssize_t plain_receive(int fd, void *data, size_t size, int flags); /* as recv() without the hooks */

/* -- request.c: life of a request, headers, body ------------------------------------------------------------------ */

struct parameter {
    struct slice name, value;
    bool has_value;
};
struct header {
    struct header *next;
    const char *name, *value;
};

/* The thing with a TTL that a request makes; ttl_ns 0: none. since_ms: the TTL counts from then on, or later. */
struct granted {
    const char *session; /* a session made with ?ttl=, which nobody knows before the answer. NULL: another thing */
    int64_t ttl_ns;
    uint64_t since_ms;
};

struct http_request {
    struct post post; /* other threads report with this one */
    struct worker *worker;
    struct output *output;         /* where its body is written */
    struct connection *connection; /* NULL: the client is gone */
    const struct http_route *route;
    const char *region; /* in the arena. NULL: it is for this region */
    enum { REQUEST_HEAD, REQUEST_BODY, REQUEST_WORK, REQUEST_ANSWERED, REQUEST_ABORT, REQUEST_ORPHAN } stage;
    enum http_method method;
    bool suspended, held; /* suspended: waits outside of its daemon's lists; held: waits in them */
    bool busy;            /* another thread will post it */
    bool watched;         /* a hang-up ends it (connection_watch) */
    _Atomic bool mailed;  /* it is in the worker's mailbox because its waiter fired */
    bool confirmed;       /* its read need not be confirmed any more */
    bool counted;         /* by limits_pass */
    bool parked;          /* between watch_enter and watch_leave */
    bool pretty, gzip, expects, raw, close;
    bool has_length, chunked, old_version;
    uint8_t hosts, lengths, encodings;
    bool bad_name, bad_value, bad_host, bad_lines;
    uint8_t line_break;   /* bytes that end a line of this header; 0: not known yet */
    const char *line_end; /* of the last line seen; NULL: not looked at */
    const char *method_text;
    size_t head_size;    /* request line and headers */
    struct slice target; /* as received; of a URL the part after the host */
    struct slice key;    /* target without index and wait: the key of ready answers */
    uint64_t key_hash;
    struct slice path; /* raw, without the query */
    struct parameter *parameters;
    unsigned parameter_count, value_count;
    struct {
        struct slice name, value;
    } values[4]; /* of the route's ":name", "*name" and "+name" */
    struct buffer body;
    uint64_t body_length; /* as declared */
    uint64_t body_size;   /* as received, also of dropped bytes */
    int spool;            /* the body's file + 1; 0: none */
    uint64_t body_most;
    int refusal; /* status; 0: none */
    const char *refusal_text;
    struct slice token;          /* of the headers, or of ?token=; empty: none */
    bool token_named;            /* by X-Consul-Token, which counts before Authorization */
    struct requester *requester; /* NULL: there is no access control */
    struct access *access;       /* its rules, where this process decides (access_find); NULL: not found yet */
    uint64_t access_generation;  /* from before they were asked for */
    size_t hidden;               /* rows that were left out by them */
    size_t left_out;             /* of the last http_read_once */
    void (*with_access)(struct http_request *request);
    bool or_nobody; /* with_access comes, too, when there is no such token */
    void (*permitted)(struct http_request *request);
    struct parked_place place; /* while it is parked */
    const char *denial;        /* why a read of http_read_once was refused; "": it was not */
    struct audited *audited;   /* audit.c; NULL: it is not recorded, or not yet */
    struct json_object *json;
    struct header *headers;
    const char *content_type;
    struct granted granted;
    struct reading *reading;     /* of blocking.c */
    const void *context;         /* of a read by remote.c, for its view */
    struct operation *operation; /* of submit.c, remote.c */
    struct arena arena;
    struct list late; /* worker->late, or empty */
    struct http_request *next_spare;
    _Alignas(16) char room[960]; /* the arena's first chunk */
};

struct http_request *request_new(struct connection *connection, const char *target);
void request_free(struct http_request *request);
/* A copy of a request for a view on another thread: made from target and method, without connection. */
struct http_request *request_copy(const struct http_request *request);
void request_copy_free(struct http_request *copy);
/* The client is gone or answered: frees the request now, or when the thread that it waits for has reported. */
void request_end(struct http_request *request);
/* First call of libmicrohttpd's handler: refuses, or finds the route. */
void request_head(struct http_request *request, const char *url, const char *method, const char *version);
void request_body(struct http_request *request, const char *data, size_t size);
void request_run(struct http_request *request);
void request_run_parsed(struct http_request *request); /* runs the handler, and does not use ready bytes */
/* The client hung up while it waited. */
void request_hung_up(struct http_request *request);
/* Sets the refusal unless there is one. Answered once the body is drained. */
void request_refuse(struct http_request *request, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* access.c */
/* Finds the rules of the requester, sets request->access, and calls `then`, maybe later; or replies. */
void access_find(struct http_request *request, void (*then)(struct http_request *request));
/* The rules, if that takes no question to a server: a reference. NULL: they are not known, or there are none. */
const struct access *access_look(struct http_request *request);
/* Of a client agent: asks a server for them, for access_look, and calls `then` in any case, maybe later. */
void access_learn(struct http_request *request, void (*then)(struct http_request *request));
void known_access_free(struct worker *worker);

/* audit.c. Without an audit log (env.audit) nothing of it is called but audit_denial. */
bool audit_due(const struct http_request *request); /* is it recorded, whatever its answer? */
/* Makes room for the request's line, once. False: the audit log cannot take it, and it has replied 503. */
bool audit_admit(struct http_request *request);
bool audit_asks(const struct http_request *request); /* has access_learn to find whose token it is? */
/* Of a 403: adds the request's id to the line (which has AUDIT_DENIAL_ROOM more) and to the answer's headers. False: it has
 * replied 503. */
bool audit_denial(struct http_request *request, char *line, size_t room);
#define AUDIT_DENIAL_ROOM 80
void audit_answered(struct http_request *request, int status);
void audit_index(struct http_request *request, uint64_t index); /* of its write */
void audit_end(struct http_request *request);                   /* of one that has been recorded, or has to be */

/* requesters.c */
/* Sets request->requester from its token, or the agent's default token. Refuses a token that cannot be one. */
void requester_set(struct http_request *request);
void requesters_free(struct worker *worker);

/* rate_limit_requests.c */
/* Counts the request once, when its requester is known. Above a limit of the configuration it refuses it (429). */
void limits_pass(struct http_request *request);
void limits_begin(void); /* registers the metrics */

/* parked_limit_requests.c */
void parked_begin(void); /* registers the metrics */
void limited_by_cluster(
    struct http_request *request); /* the leader has refused its write with CO_LIMITED: headers, metric */

/* headers.c: reads the headers that we use; NULL, or why the request is refused and its connection closed */
const char *headers_read(struct http_request *request, const char *version);
/* Call it when a chunked body is complete: refuses the request if its trailers are malformed. */
void trailers_read(struct http_request *request);

/* target.c */
/* Reduces a target of any form to a path; else the request is refused, or answered (OPTIONS *). */
void target_take(struct http_request *request, const char *url, const char *version);
bool authority_valid(struct slice text); /* of a URL, or a Host header */

/* params.c */
bool parameters_parse(struct http_request *request); /* target -> path, parameters, key; false: refused */
void token_parse(struct http_request *request);      /* ?token=, once the row is known */

/* routes.c */
void routes_init(void);
/* Finds route and path values; false: refused (404, 405) or answered (OPTIONS). */
bool route_find(struct http_request *request);

#include "http/answers.h"

#endif
