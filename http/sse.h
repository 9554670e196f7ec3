/* Streams of Server-Sent Events: an answer that goes on until the client hangs up or the server stops. The owner of a
 * stream writes the events.
 *
 *     first question --refused: an answer with a status--> over
 *          '--> sending --all taken--> waiting --something to send--> sending
 *                                         '--no server answers: asks again a second later
 *
 * A stream sends a query (by rpc_fetch, on servers and client agents alike), sends the result, and when libmicrohttpd
 * has taken all of it queries again. So a client that reads slowly occupies only the text of one answer. The worker
 * owns everything. */
#ifndef COORD_HTTP_SSE_H
#define COORD_HTTP_SSE_H

#include "http/http.h"

struct sse;
struct sse_kind {
    /* Worker thread: fill in the rest of `sse->fetch` and call sse_ask. */
    void (*ask)(struct sse *sse, enum rpc_freshness freshness);
    /* The answer is in sse->fetched. If the stream has not begun (sse->response), call sse_start, or sse_forget and
     * reply; if it has begun, sse_go_on, or sse_finish. */
    void (*answered)(struct sse *sse);
    /* There is no answer to the first query: call sse_forget, and reply. */
    void (*failed)(struct sse *sse, int error);
};

/* The first member of a struct of its owner, which is allocated with mem_zalloc and freed with free(). */
struct sse {
    const struct sse_kind *kind;
    struct http_request *request; /* NULL: it has ended */
    bool response;                /* the stream has begun, and libmicrohttpd still has the response */
    uint64_t asked_ms, sent_ms;   /* the times of the last query, and of the last bytes sent */
    struct buffer text;           /* to be sent */
    struct rpc_fetch fetch;
    struct rpc_fetched fetched; /* a copy of the answer, until `answered` returns */
    struct sse_engine *engine;  /* used by sse.c only */
};

/* Begins with the first query, which the leader confirms. False: too many requests wait; it has replied, and has freed
 * `sse`. */
bool sse_begin(struct http_request *request, struct sse *sse, const struct sse_kind *kind);
/* For `ask`. `message` lives in the request's arena. */
void sse_ask(struct sse *sse, const struct query_type *type, const ProtobufCMessage *message);
uint64_t sse_now_ms(const struct sse *sse); /* the worker's time, as asked_ms and sent_ms */
/* Replies 200, and sends sse->text. */
void sse_start(struct sse *sse, uint64_t index);
/* Sends sse->text; when it is empty, queries again. */
void sse_go_on(struct sse *sse);
void sse_finish(struct sse *sse); /* ends the stream; the client reconnects with its position */
/* Returns the request to the caller, which replies; `sse` may be freed. */
struct http_request *sse_forget(struct sse *sse);

#endif
