/* The second half of http/impl.h, which includes it: answers, and what requests wait for. */
#ifndef COORD_HTTP_ANSWERS_H
#define COORD_HTTP_ANSWERS_H

#include "http/fetched.h"
#include "http/impl.h"

/* -- reply.c ------------------------------------------------------------------------------------------------------ */

#define JSON_TYPE "application/json"

/* A body, shared by answers and by libmicrohttpd's responses. Worker's thread only. */
struct bytes {
    unsigned references;
    bool has_digest;
    uint8_t digest[16];
    size_t size;
    char *data;
};
struct bytes *bytes_copy(const void *data, size_t size);
struct bytes *bytes_take(struct buffer *buffer); /* copies small ones, takes over large ones; empties the buffer */
struct bytes *bytes_keep(struct bytes *bytes);
void bytes_release(struct bytes *bytes);
size_t bytes_held(void); /* of all bodies that are alive, in all workers */
const uint8_t *bytes_digest(struct bytes *bytes);

struct MHD_Response *response_new(struct bytes *bytes,
                                  const char *content_type); /* with the headers of every response */
void response_header(struct MHD_Response *response, const char *name, const char *value);
void response_header_u64(struct MHD_Response *response, const char *name, uint64_t value);
/* Says how many rows the requester may not see; nothing when there are none. */
void response_hidden(struct MHD_Response *response, uint64_t hidden);
/* Adds the headers of http_header, and others that only this request has. */
void response_extra(struct MHD_Response *response, const struct header *headers);
/* Sends the response, which the caller still has to free. */
void request_answer(struct http_request *request, int status, struct MHD_Response *response, size_t size);
/* The same with a body, compressed when the client accepts gzip and it saves enough. Takes over one reference. */
void request_answer_bytes(struct http_request *request, int status, struct bytes *bytes, const char *content_type);
void request_answer_yes(struct http_request *request, bool yes);
int reply_status(int error);

void kept_responses_free(struct worker *worker); /* kept_responses.c */

/* gzip.c: NULL when the result would not be smaller. */
struct bytes *gzip_bytes(struct worker *worker, const struct bytes *plain);
void gzip_free(struct worker *worker);

/* -- cache.c: ready answers --------------------------------------------------------------------------------------- */

enum consistency { CONSISTENCY_LEADER, CONSISTENCY_STALE, CONSISTENCY_CONSISTENT };

/* One result in its final form. */
struct answer {
    struct answer *chain; /* of its hash */
    struct list link;     /* by last use */
    bool kept;            /* in the cache */
    uint64_t key_hash;
    struct slice key;
    const struct http_route *route;
    enum consistency consistency;
    bool bounded;            /* ?max_stale: each use checks how stale this server is */
    bool cached_asked;       /* ?cached: X-Cache is sent */
    struct depends depends;  /* the name in `also` outlives it */
    struct read_answer read; /* its tag is the status */
    const char *content_type;
    struct header *headers; /* of the view */
    struct bytes *plain, *gzip;
    bool gzip_tried;
    /* plain, gzip; the same two with the cause of the wake-up */
    struct {
        struct MHD_Response *response;
        uint64_t index, last_contact_ms;
        bool known_leader;
    } ready[4];
    char *cause; /* of the wake-up; NULL: no waiter has got this answer yet */
    size_t cost;
};

struct cache *cache_new(size_t bytes);
void cache_free(struct cache *cache);
/* `view`: of the rules of the requester, to which the answer was reduced (registry/access.h). */
struct answer *cache_find(struct cache *cache, struct slice key, uint64_t hash, uint64_t view);
/* Copies key and thing. Keeps the answer when the key was asked for before; else the caller still owns it. */
void cache_offer(struct cache *cache, struct answer *answer);
void cache_charge(struct cache *cache, struct answer *answer, size_t more); /* it grew (gzip) */
void cache_drop(struct cache *cache, struct answer *answer);
struct answer *answer_new(void);
void ready_answer_free(struct answer *answer);
/* Sends the answer, with an index header of at least `least`. `woken`: the request waited for a change, and the answer
 * tells its cause. */
void answer_send(struct http_request *request, struct answer *answer, uint64_t least, bool woken);

/* -- parked_limit_requests.c ----------------------------------------------------------------------------------------------- */

/* The request, a blocking query or a stream, begins to wait: it counts until watch_leave. Not NULL: there are too many, which the
 * line says; it does not count, and is to be answered by watch_refuse. */
const char *watch_enter(struct http_request *request);
void watch_leave(struct http_request *request); /* nothing if it does not count */
void watch_refuse(struct http_request *request, const char *line);

/* -- blocking.c --------------------------------------------------------------------------------------------------- */

extern const struct read_owner http_reads; /* of worker->engine */
/* True: it was answered from ready bytes without being parsed. */
bool reading_fast(struct http_request *request);
bool reading_confirms(const struct http_request *request); /* a confirmation is under way for it */
void reading_end(struct http_request *request);            /* removes it from watch table, timers and confirmations */
void reading_hurry(struct http_request *request);          /* the server stops: answers with the present result */

/* -- submit.c ----------------------------------------------------------------------------------------------------- */

/* A thing that a request waits for; request->operation. Both functions may be NULL. */
struct operation {
    void (*end)(struct http_request *request);   /* the request ends: forget it */
    void (*hurry)(struct http_request *request); /* the server stops: answer now */
};

/* -- remote.c: reads of a process without a copy of the state (rpc_fetch) ----------------------------------------- */
struct http_remote {
    const struct query_type *type;
    const ProtobufCMessage *message;
    http_view view;
    enum consistency consistency;
    bool bounded; /* ?max_stale */
    uint64_t index, wait_ms;
    const void *context; /* for http_context */
};
void remote_read(struct http_request *request, const struct http_remote *read);
const char *request_content_type(const struct http_request *request); /* of the text that a view wrote */

#endif
