/* The HTTP API, as endpoint files see it. An endpoint is a row of the routing table (http/route.h) with a handler; the
 * server (http/server.h) does the rest: parsing, limits, refusing smuggled requests, permission, the declared
 * parameters of coord's own endpoints, waiting, caching, gzip, headers. An endpoint that only fills a command or a
 * query and shows its answer needs no handler of its own: http_declared.
 *
 * A handler runs on an HTTP worker thread once the whole body is there, and ends by calling exactly one of:
 * http_reply_*, http_read, http_write, http_renew. After that the request no longer belongs to it, except in the
 * callbacks it gave. It never blocks. Memory from `http_arena` lives until the reply is queued. */
#ifndef COORD_HTTP_HTTP_H
#define COORD_HTTP_HTTP_H

#include "base/error.h"
#include "base/json_in.h"
#include "base/json_out.h"
#include "base/mailbox.h"
#include "base/memory.h"
#include "base/random.h"
#include "http/route.h"
#include "rpc/api/rpc.h"

struct http_request;
struct local;
struct spender_run;

/* A request to the process. The process owns the struct until it calls `done` (loop thread, once), with CO_OK or an
 * error; then `fault` says more. */
enum http_control_kind { HTTP_CONTROL_JOIN, HTTP_CONTROL_JOIN_WAN, HTTP_CONTROL_LEAVE, HTTP_CONTROL_RELOAD };
struct http_control {
    enum http_control_kind kind;
    const char *address; /* to join by */
    struct fault fault;
    /* Lines, NULL at the end, valid until `done` returns: further messages; after an error all faults, the first too.
     * NULL: none */
    const char **warnings;
    void (*done)(struct http_control *act, int error);
    struct mail mail; /* from here on used by the process only */
    struct http_control *next;
};

/* A certificate of this process. */
enum http_certificate_severity {
    HTTP_CERTIFICATE_OK,
    HTTP_CERTIFICATE_INFO,
    HTTP_CERTIFICATE_WARNING,
    HTTP_CERTIFICATE_CRITICAL
};
struct http_certificate {
    const char *which; /* "node", "ca", "https", "rpc" (for connections with other processes) */
    char name[256], serial[41];
    int64_t from_s, to_s; /* Unix time */
    bool renews, stuck;   /* it renews itself; it does, but the cluster refuses */
    enum http_certificate_severity severity;
};
/* The protection of this process's connections. The caller frees the buffers. */
#define HTTP_CERTIFICATES_MAX 16
struct http_protection {
    struct buffer safe, open; /* listeners that TLS protects, and the others: for people, in one line each */
    struct http_certificate certificates[HTTP_CERTIFICATES_MAX];
    size_t count;
    uint64_t info_days, warning_days, critical_days; /* the thresholds of severity */
};

/* Tokens of the agent: of requests that have none; of its own work; one for this agent alone, which needs no server. */
enum http_agent_token { HTTP_AGENT_TOKEN_DEFAULT, HTTP_AGENT_TOKEN_AGENT, HTTP_AGENT_TOKEN_MASTER, HTTP_AGENT_TOKENS };

/* While no server can tell what a token may do: what a server said before counts on; nothing, or everything is allowed. */
enum http_down_policy { HTTP_DOWN_EXTEND, HTTP_DOWN_DENY, HTTP_DOWN_ALLOW };

/* Facts about the process, for handlers. Set before the server starts, constant afterwards. */
struct http_env {
    struct rpc *rpc;
    struct local *local;         /* the agent's own services and checks */
    const struct config *config; /* agent/config.h; endpoint files use the fields below instead */
    const char *datacenter, *node_name, *node_id;
    const char *version, *consul_version; /* coord's own; that of the Consul whose API is offered */
    const char *address;                  /* advertised */
    bool is_server;
    bool no_coordinates;                         /* disable_coordinates */
    uint64_t kv_value_max;                       /* bytes; 512 KiB */
    uint64_t txn_body_max;                       /* bytes; 512 KiB, and at least kv_value_max */
    uint64_t txn_ops_max;                        /* operations of a transaction; 64 */
    int64_t session_ttl_min_ns;                  /* 10 s */
    uint64_t lock_waiters_max, lock_session_max; /* of one queue; queues of one session. 0: the module's own limits */
    uint64_t lock_note_max;                      /* bytes */
    uint64_t token_ttl_ms;                       /* of client agents: so long a server's word about a token counts */
    enum http_down_policy down_policy;           /* of client agents */
    enum access_level default_level;             /* acl.default_policy */
    struct spender_run *spender_run;             /* rpc/quota/spender_run.h; NULL: no takes of quotas */
    uint64_t quota_priority;                     /* of leases whose request names no priority */
    const char *spool_folder;                    /* for bodies and answers too large for memory; NULL: /tmp */
    /* Appends the agent/self JSON's Config and DebugConfig members (written by agent). */
    void (*describe)(void *data, struct json_out *json, bool debug);
    /* agent/members; later the cluster's. */
    void *self_config_data;
    /* Fills a struct of zeroes; any thread. NULL: not known. */
    void (*protection)(void *data, struct http_protection *protection);
    void *protection_data;
    /* Sets a token of the agent, "": takes it back; counts at once. Any thread; may write a small file. Where there is
     * access control. */
    int (*set_token)(void *data, enum http_agent_token token, struct slice secret, struct fault *fault);
    /* Whose rights the agent's own work has, for people. Any thread; where there is access control. NULL: not told. */
    const char *(*own_rights)(void *data);
    void *set_token_data;                              /* of both */
    void (*act)(void *data, struct http_control *act); /* any thread */
    void *act_data;
    struct audit_log_run *audit; /* base/audit_log_run.h; outlives the server. NULL: there is no audit log */
    bool audit_reads;            /* reads are recorded, too */
};

/* State that endpoints keep for each worker (http/api/topics.c). */
struct http_api {
    /* On the worker's thread, before its first request. `cache_bytes`: of ready answers, of this worker. */
    void *(*worker_new)(struct rpc *rpc, size_t cache_bytes);
    void (*worker_free)(void *kept); /* on its thread, after its last request; NULL allowed */
};
extern const struct http_api http_api;
void *http_api_kept(const struct http_request *request); /* of the worker that has the request */
struct rng *http_rng(struct http_request *request);      /* the worker's */

/* -- asking the request ------------------------------------------------------------------------------------------- */
const struct http_env *http_env(const struct http_request *request);
struct arena *http_arena(struct http_request *request);
enum http_method http_method(const struct http_request *request);
struct slice http_path_value(const struct http_request *request, const char *name); /* of ":name" or "*name", decoded */
/* A header of the request; NULL: it has none of this name. Valid until the reply. */
const char *http_request_header(const struct http_request *request, const char *name);
bool http_has(const struct http_request *request, const char *parameter); /* present, with or without a value */
/* decoded, NUL-terminated; {NULL,0}: absent */
struct slice http_parameter(const struct http_request *request, const char *parameter);
/* all of them, arena */
size_t http_parameters(struct http_request *request, const char *parameter, struct slice **values);
struct slice http_body(const struct http_request *request);
/* HTTP_BODY_FILE: at its beginning; closed with the request. -1: no body came */
int http_body_file(const struct http_request *request);
/* Parses the body as a JSON object; on failure it has replied 400 and returns NULL. Freed with the request. */
struct json_object *http_json(struct http_request *request);
/* The same for an object or an array. `failed`: the beginning of the reply after a mistake. */
struct json_object *http_json_of(struct http_request *request, json_type type, const char *failed);
/* Parses the body as JSON of any type, and does not reply: after a mistake fault->code is set. Freed with the request. */
struct json_object *http_json_any(struct http_request *request, struct fault *fault);
/* Parameters that must parse: on failure it has replied 400 ("wait: invalid duration ...") and returns false;
 * absent: untouched, true. */
bool http_parameter_u64(struct http_request *request, const char *parameter, uint64_t *value);
bool http_parameter_duration(struct http_request *request, const char *parameter, int64_t *nanoseconds);
/* ?dc: the region that the request is for, "": this one (rpc/api/rpc.h). The server has checked that it is a name.
 * Always "" for routes that are HTTP_LOCAL. http_read, http_read_once, http_write, http_renew, waits and streams go to that
 * region without further work of the handler. */
const char *http_region(const struct http_request *request);
void http_region_name(const struct http_request *request, char region[RPC_REGION_MAX + 1]); /* copies it */
/* For a body that names its datacenter, as in Consul's catalog: from now on the request is for that region. False: it
 * has replied. */
bool http_region_set(struct http_request *request, struct slice name);

/* Equal for requests that may see the same; 0 without access control. For answers that an endpoint keeps itself. CO_OK, or
 * CO_NOTOKEN, CO_NOTREADY. */
const struct requester *http_requester(const struct http_request *request); /* on whose behalf; NULL: nobody's */
/* The token that the client itself sent, also without access control; empty: none, or one that is too long to be one. */
struct slice http_token(const struct http_request *request);
int http_sees(struct http_request *request, uint64_t *view);
/* One line about the refusal of the last http_read_once (CO_DENIED and the like); "": it was none. */
const char *http_denial(const struct http_request *request);
/* The rows that the last http_read_once left out are among those that the answer leaves out (X-Coord-Filtered). */
void http_tell_hidden(struct http_request *request);

/* For handlers that need the rules of the request's token although their row asks for none: finds them, maybe at a server, and
 * calls `then`; or it replies. http_allows and http_accessor need it. */
void http_find_access(struct http_request *request, void (*then)(struct http_request *request));
/* The same for another requester, whose reference it takes over: from now on the request is on its behalf. `then` comes also when
 * there is no such token: then http_rules is NULL. */
void http_find_access_of(struct http_request *request, struct requester *requester,
                         void (*then)(struct http_request *request));
const struct access *http_rules(const struct http_request *request); /* borrowed, until the rules are found anew */
const char *http_accessor(const struct http_request *request);       /* of the token; "": there is no access control */

/* For handlers of HTTP_LOCAL rows, which decide about things that this process has itself. http_shows: for rows of a list,
 * counts those that are hidden. http_require: false: it has replied 403. */
bool http_allows(struct http_request *request, enum access_resource resource, struct slice name,
                 enum access_level least);
bool http_shows(struct http_request *request, enum access_resource resource, struct slice name);
bool http_require(struct http_request *request, enum access_resource resource, struct slice name,
                  enum access_level least);
/* Is there a name for which it has this level? */
bool http_allows_some(struct http_request *request, enum access_resource resource, enum access_level least);
/* Replies 403; the name is shown. */
void http_deny(struct http_request *request, enum access_resource resource, struct slice name, enum access_level least);
/* After a wait, in which the rules may have changed: finds them anew, then calls `then`, or replies. */
void http_access_again(struct http_request *request, void (*then)(struct http_request *request));

/* For the audit log: what the request made or changed, where its path does not say (copied; never a secret), and the index of
 * that. Not needed after http_write, but for the name. */
void http_audit(struct http_request *request, const char *subject, uint64_t index);

/* -- answering ---------------------------------------------------------------------------------------------------- */
void http_reply_text(struct http_request *request, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* For a view: its answer is one line of text. */
void http_view_text(struct http_request *request, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* 400/403/404/409/412/413/429/500/503 by its code */
void http_reply_fault(struct http_request *request, const struct fault *fault);
/* Replies the result of a command: the reason of a refusal, with the status of its error; else true or false. */
void http_reply_result(struct http_request *request, const struct machine_result *result);
void http_reply_error(struct http_request *request, int error); /* CO_NOLEADER: 500 "No cluster leader", ... */
/* Replies the error of a read, with X-Consul-Index and its companions, because clients expect these headers on every
 * answer of such an endpoint. `text`: more about it; NULL: nothing. */
void http_reply_read_error(struct http_request *request, int error, const char *text);
/* JSON: write to http_out, then call http_reply_json. */
struct json_out *http_out(struct http_request *request); /* empty, with ?pretty honoured */
void http_reply_json(struct http_request *request, int status);
/* As http_reply_json with 200, for small answers that are often the same: the worker keeps the response with its headers
 * and uses it again for the same bytes, because making one takes as long as all the rest. */
void http_reply_json_again(struct http_request *request);
/* Any bytes: append to http_raw, then reply with this content type. */
struct buffer *http_raw(struct http_request *request);
void http_reply_raw(struct http_request *request, int status, const char *content_type);
/* `size` bytes from the beginning of a file; takes it over. */
void http_reply_file(struct http_request *request, int status, int fd, uint64_t size, const char *content_type);
void http_header(struct http_request *request, const char *name, const char *value); /* extra header; copied */
void http_header_u64(struct http_request *request, const char *name, uint64_t value);

/* -- reading the replicated state: blocking, consistency, caching ------------------------------------------------- */
/* Writes one result; returns the HTTP status (200, or 404 with the body the API wants, often none). Runs on the worker,
 * or for a large result on another thread with a copy of the request (target and method alone), inside the read
 * transaction. It must be a pure function of result and request, because its bytes are cached and shared: everything
 * that shapes the bytes must be in the request's path and query string (they are the cache key). */
/* writes to http_out or http_raw */
typedef int (*http_view)(struct http_request *request, const struct query_result *result);
/* In a view: the content type of its answer (a string that stays). Without it: application/json, and text/plain
 * after http_raw; an empty JSON body has none. */
void http_content_type(struct http_request *request, const char *content_type);
/* `message` lives in the request's arena. Handles index, wait, stale, consistent, headers, 404s, ready bytes. */
void http_read(struct http_request *request, const struct query_type *type, const ProtobufCMessage *message,
               http_view view);
/* The same, for an answer that does not depend on the state alone: it is not kept, and the view finds `context` (in the
 * request's arena, or NULL) by http_context. For small results. */
void http_read_fresh(struct http_request *request, const struct query_type *type, const ProtobufCMessage *message,
                     http_view view, const void *context);
/* For answers that are made from data kept beside the state. Confirms that this server's state is the newest (not with
 * ?stale, and not on client agents), then calls `view` on the worker, with CO_OK, or the error for which it must not
 * answer. The view must reply. */
void http_confirm(struct http_request *request, void (*view)(struct http_request *request, int error));
/* In such a view: replies 200 with the text in http_out and the headers of http_read. `index`: of its result. For small
 * ones. */
void http_reply_confirmed(struct http_request *request, const struct query_type *type, const ProtobufCMessage *message,
                          uint64_t index);
const void *http_context(const struct http_request *request);
void http_set_context(struct http_request *request, const void *context); /* for a view of a write or fetch */

/* -- writing ------------------------------------------------------------------------------------------------------ */
/* Submits; `view` runs on the worker with the outcome (error CO_OK; result copied, its text and message included
 * unless they are NULL) and must reply. Other errors are answered by the server (500, 503 disk full). NULL view:
 * true/false by result->yes. */
typedef void (*http_written)(struct http_request *request, const struct machine_result *result);
void http_write(struct http_request *request, uint8_t command, const ProtobufCMessage *message, http_written view);
/* Writes, and then waits until something holds: for requests like "take the lock, and wait for it". On servers and
 * client agents alike. The command goes into the log once; when the leader is lost while the request waits, it waits
 * for the next one. A client that hangs up while it waits ends the wait; the effect of the write stays. A session that
 * the command makes (`?ttl=`) is renewed for as long as the client waits. */
struct http_wait {
    const struct query_type *query; /* is read until `holds`; only changes of its thing wake it */
    /* Gets the outcome of the command (as a `view` of http_write). Returns the query's request, in the request's arena;
     * NULL: there is nothing to wait for, and it has replied. */
    const ProtobufCMessage *(*ask)(struct http_request *request, const struct machine_result *written);
    /* http_context is now the query's request, which it may change for the following reads. */
    bool (*holds)(struct http_request *request, const struct query_result *result);
    /* Must reply. `holds` false: the time is up, and this is the last result. */
    void (*reply)(struct http_request *request, const struct query_result *result, bool holds);
    uint64_t wait_ms; /* after the write; 0: read once */
    /* `ask` knows from the command's result that it does not hold yet, so the first read waits for a change after the
     * write. */
    bool after_write;
};
void http_write_then_wait(struct http_request *request, uint8_t command, const ProtobufCMessage *message,
                          const struct http_wait *wait);
/* For `ask`: is there time to wait? If not, the outcome of the command is the answer, without another read. */
bool http_waits(const struct http_request *request);
/* Only waits. `message`: the query's request, in the request's arena; `ask` is not called. */
void http_wait_for(struct http_request *request, const struct http_wait *wait, const ProtobufCMessage *message);
/* Renews a session or a lease, or only looks at it, then calls view with CO_OK/CO_NOTFOUND/... on the worker.
 * `renew` (rpc/api/rpc.h) is in the request's arena. */
typedef void (*http_renewed)(struct http_request *request, int error, const struct rpc_renew *renew);
void http_renew(struct http_request *request, const struct expiry_kind *kind, bool look, struct slice id,
                http_renewed view);

/* -- bounds of the life of a grant (http/bounds.c) ---------------------------------------------------------------- */
/* Bounds of the life of something that the leader renews, in milliseconds from now on. */
struct http_bounds {
    int64_t not_before_ms, not_after_ms; /* it ends not before; it ends by then, also with a change of the leader */
};
struct http_bounds http_bounds(int64_t ttl_ns, int64_t left_ms); /* left_ms: certainly so much of the TTL is left */
/* Call it before the write: notes that the request makes something with this TTL. Not needed for a session that is made
 * with ?ttl=. */
void http_granted(struct http_request *request, int64_t ttl_ns);
/* The bounds of the thing that this request made; false: it made nothing with a TTL. */
bool http_made_bounds(const struct http_request *request, struct http_bounds *bounds);
void http_bounds_write(struct json_out *json, struct http_bounds bounds); /* members NotBefore, NotAfter */
/* For message_member.write, with the request as context: writes the bounds of the thing that it made, if there are
 * any. */
void http_write_made_bounds(struct json_out *json, const ProtobufCMessage *message, void *request);
void http_bounds_headers(struct http_request *request, struct http_bounds bounds);

/* -- declared endpoints (http/endpoint.c) ------------------------------------------------------------------------- */
/* The handler of rows that are served by their `endpoint`. */
void http_declared(struct http_request *request);
const struct http_endpoint *http_endpoint(const struct http_request *request); /* of its row */
/* For handlers that do something before: reads are then not kept, and their view finds `context` (http_context). NULL:
 * none. */
void http_declared_with(struct http_request *request, const void *context);
/* Reads another query than the row's, with the same request and answer. */
void http_declared_query(struct http_request *request, const struct query_type *query);
char *http_new_uuid(struct http_request *request); /* in the arena */
/* Checks ?ttl= of a session against the configured minimum, which no row knows. False: it has replied 400. */
bool http_session_ttl(struct http_request *request, int64_t *ttl_ns);

/* -- a call that cannot be taken back ----------------------------------------------------------------------------- */
/* Lives in the request's arena until http_called (any thread, once), also when the client hangs up meanwhile. Then the
 * worker calls `view`, which must reply, or, when the client has gone, `drop` (may be NULL), which releases the result
 * of the call. */
struct http_call {
    void (*view)(struct http_request *request, struct http_call *call, int error);
    void (*drop)(struct http_call *call, int error);
    struct http_request *request; /* set by the server */
    int error;
};
/* parks the request; start the call after it */
void http_call(struct http_request *request, struct http_call *call);
/* Undoes http_call, for a call that has ended at once and will not call http_called. */
void http_uncall(struct http_request *request);
void http_called(struct http_call *call, int error);

/* -- records for an answer that is made of more than one thing ---------------------------------------------------- */
/* Reads once, without waiting for a change and without the headers of reads; then calls `view`, on the worker, with
 * CO_OK and the records (in the request's arena), or an error and NULL. It must reply, or go on with another call.
 * `message` lives in the request's arena. */
typedef void (*http_fetched)(struct http_request *request, int error, const struct query_result *result);
void http_read_once(struct http_request *request, const struct query_type *type, const ProtobufCMessage *message,
                    enum rpc_freshness freshness, http_fetched view);

/* -- waiting for something else ----------------------------------------------------------------------------------- */
/* Before a wait that is not for a write: http_defer, http_feed_new. False: its client has too many of them, and it has replied
 * 429. It counts until the ticket, or the feed, ends. */
bool http_parks(struct http_request *request);
/* Parks the request until http_deferred is called (any thread, once); then `view` runs on the worker and must reply.
 * At most `wait_ms`: then view is called with CO_TIMEOUT, and the ticket stays valid until http_deferred. */
struct http_ticket;
struct http_ticket *http_defer(struct http_request *request, uint64_t wait_ms,
                               void (*view)(struct http_request *request, int error));
void http_deferred(struct http_ticket *ticket, int error);
/* For a GET whose answer is not there yet, when nothing will report its arrival: parks it for `wait_ms`; then `view`
 * runs on the worker, and replies or calls this again. `waited_ms`: since the first call; UINT64_MAX: the server stops,
 * reply. */
void http_look_again(struct http_request *request, uint64_t wait_ms,
                     void (*view)(struct http_request *request, uint64_t waited_ms));

#endif
