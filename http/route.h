/* A row of the routing table: the parameters of an endpoint, its answer, and its documentation. The table is used by
 * the router, by the check of parameters (http/declared.h), by http_declared, which serves an endpoint from its row
 * alone, by the command line (agent/cmd_endpoint.c) and for docs/api.md. All of it is constant. */
#ifndef COORD_HTTP_ROUTE_H
#define COORD_HTTP_ROUTE_H

#include "http/message_json.h"
#include "registry/module.h"

struct http_request;
struct http_wait;

enum http_method {
    HTTP_GET = 1,
    HTTP_PUT = 2,
    HTTP_POST = 4,
    HTTP_DELETE = 8,
    HTTP_HEAD = 16,
    HTTP_OPTIONS = 32,
    HTTP_OTHER = 64
};

/* -- parameters --------------------------------------------------------------------------------------------------- */

enum http_type {
    HTTP_FLAG,     /* given or not; the values "", "1" and "true" mean the same. In JSON true or false */
    HTTP_U64,      /* a whole number */
    HTTP_DECIMAL,  /* a number */
    HTTP_FRACTION, /* a number that fills a field in millionths; bounds in millionths */
    HTTP_OFFSET,   /* "+01:00", from UTC; fills a field in minutes */
    HTTP_DURATION, /* "10s"; bounds in nanoseconds. In JSON a whole number is nanoseconds */
    HTTP_TEXT,     /* bounds in bytes; without NULs */
    HTTP_CHOICE,   /* one of `choices` */
    HTTP_UUID,     /* in either case; lower case once it is checked */
    HTTP_OBJECT,   /* of bodies: an object with the members of `group` */
    /* Rows that are no parameters themselves. */
    HTTP_GROUP, /* stands for the rows of `group`, which several endpoints share */
    /* `session` or `ttl` (`group`), which fill a pb.SessionUse: an existing session or a new one; or in their place the
     * parameter that `choices` names */
    HTTP_SESSION,
    HTTP_NEW_UUID, /* no client gives it: the field gets a new UUID */
    HTTP_NOW,      /* no client gives it: the field gets the time since 1970, in its unit (_ns, _ms) */
};

/* A list ends with a row of zeroes; NULL is an empty one. */
struct http_param {
    const char *name; /* as in a query string or a body; ":name", "*name", "+name": of the path */
    enum http_type type;
    const char *help;      /* half a sentence for docs and command line */
    uint64_t least, most;  /* most 0: no bound but that of the type */
    const char *choices;   /* "exclusive|shared"; of HTTP_SESSION: see there, or NULL */
    const char *otherwise; /* the default; NULL: the field is not set */
    bool required, repeats;
    /* Of declared endpoints: the field of the request's message that it fills, "ttl_ns" or "lease.ttl_ns"; NULL: none.
     * A repeated field takes all values. */
    const char *field;
    const char *given; /* a bool field that is set when it was given, or NULL */
    const struct http_param *group;
};
#define HTTP_PARAMS(...)          \
    (const struct http_param[]) { \
        __VA_ARGS__, { 0 }        \
    }

extern const struct http_param http_params_read[], http_params_session[]; /* http/declared.c */
#define HTTP_DC \
    { "dc", HTTP_TEXT, .help = "the region that is asked; this one unless it is given" }
#define HTTP_READS \
    { "blocking reads", HTTP_GROUP, .group = http_params_read }
/* The session for which a command acts: fills a pb.SessionUse (kv/session/session.h). With ?ttl= the command makes the
 * session in its own log entry: of this agent's node, but without a check and without a lock-delay. */
#define HTTP_SESSION_USE(field_) \
    { "sessions", HTTP_SESSION, .group = http_params_session, .field = (field_) }

#define HTTP_TTL_MOST_NS  86400000000000 /* of a session; the least is configured: session_ttl_min */
#define HTTP_WAIT_MOST_NS 600000000000
#define HTTP_WAIT(help_) \
    { "wait", HTTP_DURATION, .help = (help_), .most = HTTP_WAIT_MOST_NS }

#define HTTP_SESSION_USE_OR(field_, other_) \
    { "sessions", HTTP_SESSION, .group = http_params_session, .field = (field_), .choices = (other_) }

/* -- declared endpoints ------------------------------------------------------------------------------------------- */

/* An endpoint that http_declared serves: it makes the message of the command or the query, submits it, and writes the
 * result. A refused command is answered with reply_status of its error, and its text. */
struct http_endpoint {
    uint8_t command;                /* number of a command; 0: none */
    const struct query_type *query; /* or a query */
    /* Of a handler of its own that is neither: the message that declared_message makes of the request. */
    const ProtobufCMessageDescriptor *message;
    const struct http_param *body; /* the members of a JSON body; NULL: the body is not read, or `raw` */
    const struct http_param *raw;  /* its field gets the whole body, of any bytes (with HTTP_BODY_RAW) */
    /* Worker thread, when all fields are filled: for work that rows cannot express. False: it has replied. */
    bool (*prepare)(struct http_request *request, ProtobufCMessage *message);
    /* The wait that follows (http/http.h), for as long as the parameter HTTP_WAIT says. With a query in place of a
     * command the request only waits, for the result of that query. */
    const struct http_wait *then;
    const struct message_member *answer; /* the members of the answer; NULL: all fields of its message */
    const char *list; /* the answer is a list of the records in this field; without `missing` it may be empty */
    int (*status)(const ProtobufCMessage *answer); /* NULL: 200 */
    bool fresh;                                    /* of queries: no ready bytes are kept */
    /* Of queries without a result: 404 and `WATCHED "FIRST VALUE OF THE PATH" MISSING`. */
    const char *watched, *missing;
};

/* -- members of answers ------------------------------------------------------------------------------------------- */

/* An example request. They are sent in the order of the table when docs/api.md is written or checked. In target and
 * body {word} stands for a value that an earlier example kept, {address} for the agent's address. */
struct http_example {
    const char *target; /* NULL: the row's path, with "x" for its values */
    const char *body;
    int status;
    const char *keep;        /* "word=ID": the member ID of the answer is kept as {word} */
    unsigned depth;          /* levels of the answer that are shown; 0: four */
    enum http_method method; /* 0: the row's first */
};

/* `coord GROUP COMMAND`. Values of the path and `raw` are arguments; parameters, and members of a body, are flags. */
struct http_cli {
    const char *command;  /* "lease grant"; NULL: there is none */
    const char *defaults; /* "ttl=15s remaining": values that are sent when the flag is not given */
    const char *show;     /* a member of the answer that is printed alone; NULL: all of it */
    const char *columns;  /* of a list: "ID TTL Name"; NULL: the members of its first record */
};

/* -- the row ------------------------------------------------------------------------------------------------------ */

enum http_route_flags {
    HTTP_BODY_RAW = 1,  /* body is any bytes (KV) */
    HTTP_BODY_BIG = 2,  /* limit is env.kv_value_max instead of 64 KiB... see server.h */
    HTTP_BODY_TXN = 32, /* ... env.txn_body_max */
    HTTP_LOCAL = 4,     /* answered by this process: ?dc is ignored; with HTTP_OWN another region is refused */
    HTTP_BODY_FILE = 8, /* the body goes into a file without a name in env.spool_folder: http_body_file */
    /* The endpoint is coord's own: parameters that are not declared, or not as declared, are a 400 before the handler
     * runs. Without this flag the endpoint is Consul's, ignores unknown parameters, and refuses wrong ones in its own
     * words. */
    HTTP_OWN = 16,
};
/* `path`: literal segments; ":name" one segment; "*name" the rest (may hold '/', may be empty); "+name" everything
 * before the last segment, which is a literal one (may hold '/'). Decoded. */
struct http_route {
    unsigned methods; /* enum http_method bits (HEAD comes with GET) */
    const char *path;
    void (*handler)(struct http_request *request); /* http_declared: it is served by `endpoint` */
    /* The right that the token has to have: "RESOURCE:LEVEL" (registry/access.h), and for which name: " of *key" (of the path), " of ?node"
     * (a parameter), " of this agent". " rows": a list, of which it sees the rows that it may read. Without a name the record
     * or the command decides. "none: REASON": everybody may. */
    const char *permission;
    const struct http_param *params; /* pretty, token and ns are always known */
    const char *summary;             /* one line */
    unsigned flags;                  /* enum http_route_flags */
    struct http_example example;
    const char *no_example; /* why there is none */
    struct http_endpoint endpoint;
    struct http_cli cli;
};

struct http_topic {
    const char *title;
    const struct http_route *rows; /* the last has no path */
    /* Of paths that begin so, also where no row is: adds headers to the answer when the server refuses a request before a
     * handler runs. NULL: none. */
    const char *prefix;
    void (*refused)(struct http_request *request);
};
extern const struct http_topic http_topics[]; /* http/api/topics.c; the last has no title */

#endif
